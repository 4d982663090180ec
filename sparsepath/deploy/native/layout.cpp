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
    if (std::abs(shift_y) >= l.grid || std::abs(shift_x) >= l.grid) return {0, Reach::ZERO};
    const uint32_t valid = valid_lanes(shift_y, shift_x, py, px);
    if (valid == 0) return {0, Reach::ZERO};
    if (valid == 0xFFFF && shift_y == 0 && shift_x == 0) return {offset, Reach::PLAIN};
    for (size_t k = 0; k < keys_.size(); k++)
        if (keys_[k].shift_y == shift_y && keys_[k].shift_x == shift_x && keys_[k].valid == valid)
            return {offset, static_cast<int32_t>(k)};
    Halo halo;
    for (int lane = 0; lane < LANES; lane++) {
        const bool inside = valid >> lane & 1;
        halo.lane[lane] = inside ? lane + shift_y * l.grid + shift_x : 0;
        halo.valid[lane] = inside ? -1 : 0;
    }
    keys_.push_back({shift_y, shift_x, valid});
    halos_.push_back(halo);
    return {offset, static_cast<int32_t>(halos_.size() - 1)};
}

}  // namespace sparsepath
