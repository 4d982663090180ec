// Operations without weights on maps that lie in lanes already.
#include "lanes.h"

#include <algorithm>

#include "calls.h"

namespace sparsepath::embedded {
namespace {

bool same_tiles(const Value &x, const Value &y) {
    const sp_layout &a = x.layout, &b = y.layout;
    return a.grid == b.grid && a.tile_height == b.tile_height && a.tile_width == b.tile_width;
}

// All of x as the channels of y from `first` on.
void copy_channels(Machine &machine, Value &x, Value &y, int64_t first) {
    sp_call call = empty_call(same_tiles(x, y) ? SP_AFFINE : SP_RELAYOUT);
    call.source = Machine::map(x, Machine::SOURCE);
    call.target = Machine::map(y, Machine::TARGET);
    call.target.first = int32_t(first);
    call.target.channels = call.source.channels;
    machine.call(call, x.lanes.get(), nullptr, y.lanes.get(), x.shape[0]);
}

Perhaps pool_in_lanes(Machine &machine, Value &x, const Window &w, sp_call call) {
    if (!x.lanes || !takes(w) || w.dilation[1] != 1 || w.dilation[2] != 1) return {};
    pair(call.window, w.kernel);
    pair(call.stride, w.stride);
    pair(call.padding, w.padding);
    Value y = result_of(machine, x, x.shape[1], w.out + 1, w.stride + 1);
    return run(machine, call, x, y);
}

}  // namespace

Perhaps max_pool_in_lanes(Machine &machine, Value &x, const Window &window) {
    return pool_in_lanes(machine, x, window, empty_call(SP_MAX_POOL));
}

Perhaps avg_pool_in_lanes(Machine &machine, Value &x, const Window &window, bool count_padding) {
    sp_call call = empty_call(SP_AVG_POOL);
    call.count_padding = count_padding;
    return pool_in_lanes(machine, x, window, call);
}

Perhaps mean_in_lanes(Machine &machine, Value &x) {
    if (!x.lanes) return {};
    sp_call call = empty_call(SP_MEAN);
    call.source = Machine::map(x, Machine::SOURCE);
    call.target.slot = Machine::TARGET;
    Value y = machine.fresh({x.shape[0], x.shape[1]});
    machine.call(call, x.lanes.get(), nullptr, y.plain.get(), x.shape[0]);
    return y;
}

Perhaps add_in_lanes(Machine &machine, Value &x, Value &y, Ending &ending) {
    if (!x.lanes || !y.lanes || x.shape != y.shape) return {};
    if (!same_tiles(x, y)) machine.relayout(y, x.layout);
    sp_call call = empty_call(SP_ADD);
    take_clamp(call, ending);
    Value sum = machine.fresh_lanes(x.shape, x.layout);
    return run(machine, call, x, sum, &y);
}

Perhaps affine_in_lanes(Machine &machine, Value &x, const float *scale, const float *shift,
                        Ending &ending) {
    if (!x.lanes) return {};
    sp_call call = empty_call(SP_AFFINE);
    call.scale = scale;
    call.shift = shift;
    take_clamp(call, ending);
    Value y = machine.fresh_lanes(x.shape, x.layout);
    return run(machine, call, x, y);
}

Perhaps cat_in_lanes(Machine &machine, const std::vector<Value *> &parts) {
    Shape shape = parts[0]->shape;
    int64_t channels = 0;
    for (const Value *part : parts) {
        if (!part->lanes) return {};
        channels += part->shape[1];
        shape[1] = part->shape[1];
        if (part->shape != shape) return {};
    }
    shape[1] = channels;
    if (channels > 1 << 20) return {};
    Value y = machine.fresh_lanes(shape, parts[0]->layout);
    int64_t first = 0;
    for (Value *part : parts) {
        copy_channels(machine, *part, y, first);
        first += part->shape[1];
    }
    return y;
}

Perhaps every_pixel_in_lanes(Machine &machine, Value &x, int64_t down, int64_t across) {
    Window w;  // every so-manieth pixel is the largest of a window of one
    w.dimensions = 2;
    w.stride[1] = down, w.stride[2] = across;
    for (int k = 1; k < 3; k++) {
        w.in[k] = x.shape[k + 1];
        w.out[k] = (w.in[k] + w.stride[k] - 1) / w.stride[k];
    }
    return max_pool_in_lanes(machine, x, w);
}

Perhaps channels_padded_in_lanes(Machine &machine, Value &x, int64_t before, int64_t after) {
    if (!x.lanes || before < 0 || after < 0 || before + after > 1 << 20) return {};
    Shape shape = x.shape;
    shape[1] += before + after;
    Value y = machine.fresh_lanes(shape, x.layout);
    std::fill_n(y.lanes.get(), lane_floats(y.layout, shape[1], shape[0]), 0.0f);
    copy_channels(machine, x, y, before);
    return y;
}

}  // namespace sparsepath::embedded
