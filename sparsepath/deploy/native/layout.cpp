// Reaches: where the pixels beside a tile are.
#include "layout.h"

#include <cstdlib>
#include <utility>

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

namespace {

// Rows (or columns) are of one kind if the same tiles find them in the same neighbour.
struct Kinds {
    struct Kind {
        int shift, inside;  // of the tiles side by side, so many find it inside the image
        Coordinate one;
    };
    const int tile, grid, length;
    std::vector<Kind> found;

    int of(Coordinate at) {
        int inside = 0;
        for (int own = 0; own < grid; own++) {
            const int other = own + at.shift;
            inside += other >= 0 && other < grid && other * tile + at.place < length;
        }
        const int shift = inside ? at.shift : grid;  // all that nobody finds are alike
        for (size_t k = 0; k < found.size(); k++)
            if (found[k].shift == shift && found[k].inside == inside) return int(k);
        found.push_back({shift, inside, at});
        return int(found.size() - 1);
    }
};

}  // namespace

Windows::Windows(const sp_layout &source, const sp_layout &target, const int32_t *kernel,
                 const int32_t *stride, const int32_t *padding, const int32_t *dilation)
    : taps(kernel[0] * kernel[1]) {
    Reaches reaches(source);
    Kinds down{source.tile_height, source.grid, source.height, {}};
    Kinds across{source.tile_width, source.grid, source.width, {}};
    const int height = (target.tile_height - 1) * stride[0] + (kernel[0] - 1) * dilation[0] + 1;
    const int width = (target.tile_width - 1) * stride[1] + (kernel[1] - 1) * dilation[1] + 1;
    for (int y = 0; y < height; y++) {
        const Coordinate at = reaches.row(y - padding[0]);
        rows_.push_back({at.place * source.tile_width * LANES, down.of(at)});
    }
    for (int x = 0; x < width; x++) {
        const Coordinate at = reaches.column(x - padding[1]);
        columns_.push_back({at.place * LANES, across.of(at)});
    }
    for (const auto &row : down.found)
        for (const auto &column : across.found) halo_.push_back(reaches.find(row.one, column.one).halo);
    for (Line &row : rows_) row.kind *= int32_t(across.found.size());
    halos = reaches.halos();

    for (int r = 0; r < kernel[0]; r++)
        for (int c = 0; c < kernel[1]; c++) {
            taps_.push_back({r * dilation[0], c * dilation[1]});
            ahead.push_back((r * dilation[0] * source.tile_width + c * dilation[1]) * LANES);
        }
    begins_.reserve(size_t(positions(target)));
    for (int y = 0; y < target.tile_height; y++)
        for (int x = 0; x < target.tile_width; x++) {
            begins_.push_back({y * stride[0], x * stride[1]});
            // Inside the tile a window is plain if its corners are.
            bool all_plain = true;
            for (int corner : {0, kernel[1] - 1, taps - kernel[1], taps - 1})
                all_plain &= reach(begins_.size() - 1, corner).halo == Reach::PLAIN;
            plain.push_back(all_plain);
        }
    const size_t entries = plain.size() * taps;
    if (entries > SMALL) return;
    std::vector<Reach> table;
    table.reserve(entries);
    for (size_t position = 0; position < plain.size(); position++)
        for (int tap = 0; tap < taps; tap++) table.push_back(found(position, tap));
    table_ = std::move(table);
}

}  // namespace sparsepath
