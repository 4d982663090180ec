// Which cases the kernels take, and how results are laid out (Layout of sparsepath/deploy/running/maps.py).
#include "calls.h"

#include <algorithm>

namespace sparsepath::embedded {
namespace {

constexpr int64_t LONGEST = 1 << 14;  // side of a map

// The layout of a result of this size, lane by lane, if there is one.
bool layout_after(const sp_layout &before, const int64_t *size, const int64_t *stride, sp_layout &after) {
    if (before.grid == 1) return after = layout_of(size[0], size[1], 1), true;
    const int64_t high = before.tile_height / stride[0], wide = before.tile_width / stride[1];
    after = {int32_t(size[0]), int32_t(size[1]), before.grid, int32_t(high), int32_t(wide)};
    return high * stride[0] == before.tile_height && wide * stride[1] == before.tile_width &&
           high * before.grid >= size[0] && wide * before.grid >= size[1] && high && wide;
}

}  // namespace

bool takes(const Value &x) {
    const auto &s = x.shape;
    if (s.size() != 4 || std::find(s.begin(), s.end(), 0) != s.end()) return false;
    return s[2] <= LONGEST && s[3] <= LONGEST && s[1] <= 1 << 20 && s[0] <= 1 << 20 &&
           x.count() <= MOST_FLOATS / 4;
}

bool takes(const Window &w) {
    if (w.dimensions != 2) return false;
    for (int k = 1; k < 3; k++)
        if (w.stride[k] > 8 || w.padding[k] > LONGEST || w.dilation[k] > 64 || w.kernel[k] > 64 ||
            w.out[k] > LONGEST)
            return false;
    return uint64_t(w.places()) * w.taps() <= MOST_FLOATS / 8;
}

void pair(int32_t (&two)[2], const int64_t (&three)[3]) {
    two[0] = int32_t(three[1]), two[1] = int32_t(three[2]);
}

void take_clamp(sp_call &call, Ending &ending) {
    if (ending.activation != "relu" && ending.activation != "relu6") return;
    call.lower = 0;
    if (ending.activation == "relu6") call.upper = 6;
    ending.activation.clear();
}

Value result_of(Machine &machine, Value &x, int64_t channels, const int64_t *size, const int64_t *stride) {
    sp_layout after;
    if (!layout_after(x.layout, size, stride, after)) {
        sp_layout layout = x.layout;
        const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
        const auto tile = [&](int64_t now, int64_t then, int64_t step) {
            return int32_t(up(std::max(up(now, layout.grid), up(then, layout.grid) * step), step) * step);
        };
        layout.tile_height = tile(layout.height, size[0], stride[0]);
        layout.tile_width = tile(layout.width, size[1], stride[1]);
        machine.relayout(x, layout);
        layout_after(x.layout, size, stride, after);
    }
    return machine.fresh_lanes({x.shape[0], channels, size[0], size[1]}, after);
}

Value run(Machine &machine, sp_call &call, Value &x, Value &y, const Value *other) {
    call.source = Machine::map(x, Machine::SOURCE);
    call.target = Machine::map(y, Machine::TARGET);
    if (other) call.other = Machine::map(*other, Machine::OTHER);
    machine.call(call, x.lanes.get(), other ? other->lanes.get() : nullptr, y.lanes.get(), x.shape[0]);
    return y;
}

}  // namespace sparsepath::embedded
