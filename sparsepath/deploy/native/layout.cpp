// Reaches: where the pixels beside a tile are.
#include "layout.h"

#include <cstdlib>

namespace sparsepath {

uint32_t Reaches::valid_lanes(int shift_y, int shift_x, int py, int px) const {
    const sp_layout &l = layout_;
    uint32_t valid = 0;
    for (int lane = 0; lane < LANES; lane++) {
        const int tile = lane % tiles(l);
        const int ty = tile / l.grid + shift_y, tx = tile % l.grid + shift_x;
        const bool inside = ty >= 0 && ty < l.grid && tx >= 0 && tx < l.grid &&
                            ty * l.tile_height + py < l.height && tx * l.tile_width + px < l.width;
        valid |= static_cast<uint32_t>(inside) << lane;
    }
    return valid;
}

Reach Reaches::find(int y, int x) {
    const sp_layout &l = layout_;
    const int shift_y = divide_down(y, l.tile_height), shift_x = divide_down(x, l.tile_width);
    const int py = y - shift_y * l.tile_height, px = x - shift_x * l.tile_width;
    const int32_t offset = (py * l.tile_width + px) * LANES;
    // Most pixels are inside the tile, and most tiles inside the image.
    if (shift_y == 0 && shift_x == 0 && whole_) return {offset, Reach::PLAIN};
    if (std::abs(shift_y) >= l.grid || std::abs(shift_x) >= l.grid) return {0, Reach::ZERO};
    const uint32_t valid = valid_lanes(shift_y, shift_x, py, px);
    if (valid == 0) return {0, Reach::ZERO};
    if (valid == 0xFFFF && shift_y == 0 && shift_x == 0) return {offset, Reach::PLAIN};
    return {offset, halo({shift_y, shift_x, valid})};
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

}  // namespace sparsepath
