// Reaches: where the pixels beside a tile are.
#include "layout.h"

#include <cstdlib>

namespace sparsepath {

Reaches::Reaches(const sp_layout &layout)
    : layout_(layout), whole_(layout.tile_height * layout.grid == layout.height &&
                              layout.tile_width * layout.grid == layout.width) {}

uint32_t Reaches::valid_lanes(Coordinate y, Coordinate x) const {
    const sp_layout &l = layout_;
    uint32_t valid = 0;
    for (int lane = 0; lane < LANES; lane++) {
        const int tile = lane % tiles(l);
        const int ty = tile / l.grid + y.shift, tx = tile % l.grid + x.shift;
        const bool inside = ty >= 0 && ty < l.grid && tx >= 0 && tx < l.grid &&
                            ty * l.tile_height + y.place < l.height &&
                            tx * l.tile_width + x.place < l.width;
        valid |= static_cast<uint32_t>(inside) << lane;
    }
    return valid;
}

Reach Reaches::find(Coordinate y, Coordinate x) {
    const int32_t offset = (y.place * layout_.tile_width + x.place) * LANES;
    // Most pixels are inside the tile, and most tiles inside the image.
    if (y.shift == 0 && x.shift == 0 && whole_) return {offset, Reach::PLAIN};
    if (std::abs(y.shift) >= layout_.grid || std::abs(x.shift) >= layout_.grid) return {0, Reach::ZERO};
    const uint32_t valid = valid_lanes(y, x);
    if (valid == 0) return {0, Reach::ZERO};
    if (valid == 0xFFFF && y.shift == 0 && x.shift == 0) return {offset, Reach::PLAIN};
    return {offset, halo({y.shift, x.shift, valid})};
}

Reach Reaches::through_halo(Reach reach) {
    if (reach.halo == Reach::PLAIN) return {reach.offset, halo({0, 0, 0xFFFF})};
    if (reach.halo == Reach::ZERO) return {reach.offset, halo({0, 0, 0})};
    return reach;
}

int32_t Reaches::halo(const Key &key) {
    for (size_t k = 0; k < keys_.size(); k++)
        if (keys_[k].shift_y == key.shift_y && keys_[k].shift_x == key.shift_x &&
            keys_[k].valid == key.valid)
            return static_cast<int32_t>(k);
    Halo halo;
    for (int lane = 0; lane < LANES; lane++) {
        const bool inside = key.valid >> lane & 1;
        halo.lane[lane] = inside ? lane + key.shift_y * layout_.grid + key.shift_x : LANES;
        halo.valid[lane] = inside ? -1 : 0;
    }
    keys_.push_back(key);
    halos_.push_back(halo);
    return static_cast<int32_t>(halos_.size() - 1);
}

Windows::Windows(const sp_layout &source, const sp_layout &target, const int32_t *kernel,
                 const int32_t *stride, const int32_t *padding, const int32_t *dilation)
    : taps(kernel[0] * kernel[1]) {
    Reaches reaches(source);
    std::vector<Coordinate> columns;  // [x][tap across]
    for (int x = 0; x < target.tile_width; x++)
        for (int c = 0; c < kernel[1]; c++)
            columns.push_back(reaches.column(x * stride[1] - padding[1] + c * dilation[1]));
    reach.reserve(size_t(positions(target)) * taps);
    for (int y = 0; y < target.tile_height; y++)
        for (int x = 0; x < target.tile_width; x++) {
            bool all_plain = true;
            for (int r = 0; r < kernel[0]; r++) {
                const Coordinate row = reaches.row(y * stride[0] - padding[0] + r * dilation[0]);
                for (int c = 0; c < kernel[1]; c++) {
                    reach.push_back(reaches.find(row, columns[size_t(x) * kernel[1] + c]));
                    all_plain &= reach.back().halo == Reach::PLAIN;
                }
            }
            plain.push_back(all_plain);
        }
    halos = reaches.halos();
}

}  // namespace sparsepath
