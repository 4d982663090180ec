// From operations to calls of the kernels.
#include "lanes.h"

#include <algorithm>
#include <cmath>

namespace sparsepath::embedded {
namespace {

constexpr int64_t LONGEST = 1 << 14;          // side of a map
constexpr uint64_t MOST = uint64_t(1) << 28;  // floats of a value, and entries of a table of windows

bool takes(const Value &x) {
    const auto &s = x.shape;
    if (s.size() != 4 || std::find(s.begin(), s.end(), 0) != s.end()) return false;
    return s[2] <= LONGEST && s[3] <= LONGEST && s[1] <= 1 << 20 && s[0] <= 1 << 20 &&
           x.count() <= MOST / 4;
}

// Whether the kernels may move such a window over such maps.
bool takes(const Window &w) {
    if (w.dimensions != 2) return false;
    for (int k = 1; k < 3; k++)
        if (w.stride[k] > 8 || w.padding[k] > LONGEST || w.dilation[k] > 64 || w.kernel[k] > 64 ||
            w.out[k] > LONGEST)
            return false;
    return uint64_t(w.places()) * w.taps() <= MOST / 8;
}

bool all_finite(const Tensor &array) {
    return std::all_of(array.data.begin(), array.data.end(), [](float x) { return std::isfinite(x); });
}

void pair(int32_t (&two)[2], const int64_t (&three)[3]) {
    two[0] = int32_t(three[1]), two[1] = int32_t(three[2]);
}

// The clamp that an activation is; others are left to whoever called.
void take_clamp(sp_call &call, Ending &ending) {
    if (ending.activation != "relu" && ending.activation != "relu6") return;
    call.lower = 0;
    if (ending.activation == "relu6") call.upper = 6;
    ending.activation.clear();
}

// The layout of a result of this size, lane by lane, if there is one (Layout.after of maps.py).
bool layout_after(const sp_layout &before, const int64_t *size, const int64_t *stride, sp_layout &after) {
    if (before.grid == 1) return after = layout_of(size[0], size[1], 1), true;
    const int64_t high = before.tile_height / stride[0], wide = before.tile_width / stride[1];
    after = {int32_t(size[0]), int32_t(size[1]), before.grid, int32_t(high), int32_t(wide)};
    return high * stride[0] == before.tile_height && wide * stride[1] == before.tile_width &&
           high * before.grid >= size[0] && wide * before.grid >= size[1] && high && wide;
}

// A result of this size; x is laid out anew where its tiles do not fit (Layout.before).
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

Value run(Machine &machine, sp_call &call, Value &x, Value &y, const Value *other = nullptr) {
    call.source = Machine::map(x, Machine::SOURCE);
    call.target = Machine::map(y, Machine::TARGET);
    if (other) call.other = Machine::map(*other, Machine::OTHER);
    machine.call(call, x.lanes.get(), other ? other->lanes.get() : nullptr, y.lanes.get(), x.shape[0]);
    return y;
}

// The rule of plan.py: Winograd as large as the tiles allow.
int method_for(const Convolution &conv, int grid) {
    const Window &w = conv.window;
    if (conv.groups == conv.in_channels && conv.groups > 1) return SP_DEPTHWISE;
    const bool plain = w.stride[1] == 1 && w.stride[2] == 1 && w.dilation[1] == 1 && w.dilation[2] == 1;
    const int64_t edge = (std::min(w.in[1], w.in[2]) + grid - 1) / grid, high = w.kernel[1],
                  wide = w.kernel[2];
    if (!plain || conv.groups != 1) return SP_DIRECT;
    if (edge >= 4 && ((high == 3 && (wide == 3 || wide == 1)) || (high == 1 && wide == 3)))
        return SP_WINOGRAD4;
    return edge >= 2 && high == 3 && wide == 3 ? SP_WINOGRAD2 : SP_DIRECT;
}

// Whether the 2x2 max pool behind a convolution can be taken on its way out.
bool pools(const Window &w, int method, const Ending &ending) {
    if (ending.pool != 2 || (method != SP_WINOGRAD4 && method != SP_WINOGRAD2) || w.taps() != 9)
        return false;
    const bool odd = w.out[1] % 2 || w.out[2] % 2;
    const bool clamps =
        ending.activation.empty() || ending.activation == "relu" || ending.activation == "relu6";
    return clamps && !(odd && ending.ceil_mode) && w.out[1] >= 2 && w.out[2] >= 2;
}

}  // namespace

Perhaps conv_in_lanes(Machine &machine, const Node &node, Value &x, Ending &ending) {
    const Convolution conv = convolution(node, x);
    const Window &w = conv.window;
    const Tensor &weight = node.array("weight");
    if (w.dimensions == 1 || int(x.shape.size()) == w.dimensions + 1) return {};
    if (!takes(x) || !takes(w) || weight.data.empty() || weight.data.size() > MOST) return {};
    if (conv.out_channels > 1 << 20 || uint64_t(conv.in_channels * w.taps()) > MOST ||
        elements({conv.batch, conv.out_channels, w.places()}) > MOST / 4)
        return {};
    const int method = method_for(conv, machine.grid());
    const sp_weights *weights = machine.packed(node, method, [&]() -> sp_weights * {
        if (!all_finite(weight)) return nullptr;
        sp_conv_spec spec{int32_t(conv.in_channels),
                          int32_t(conv.out_channels),
                          int32_t(conv.groups),
                          {},
                          {},
                          {},
                          {},
                          method};
        pair(spec.kernel, w.kernel);
        pair(spec.stride, w.stride);
        pair(spec.padding, w.padding);
        pair(spec.dilation, w.dilation);
        return machine.kernels().pack_conv(&spec, conv.weight, conv.bias);
    });
    if (!weights) return {};
    machine.into_lanes(x);
    sp_call call = empty_call(SP_CONV);
    call.weights = weights;
    int64_t size[2] = {w.out[1], w.out[2]}, stride[2] = {w.stride[1], w.stride[2]};
    if (pools(w, method, ending)) {
        for (int k = 0; k < 2; k++) size[k] /= 2, stride[k] = 2;
        call.pool = 2;
        ending.pool = 0;
    }
    take_clamp(call, ending);
    Value y = result_of(machine, x, conv.out_channels, size, stride);
    return run(machine, call, x, y);
}

Perhaps linear_in_rows(Machine &machine, const Node &node, Value &x, Ending &ending) {
    const Tensor &weight = node.array("weight"), *bias = node.find("bias");
    const int64_t rows = x.shape[0];
    if (x.shape.size() != 2 || weight.data.empty() || weight.data.size() > MOST || !rows || rows > 1 << 20)
        return {};
    const auto out = int32_t(weight.shape[0]), in = int32_t(weight.shape[1]);
    const sp_weights *weights = machine.packed(node, SP_DIRECT, [&]() -> sp_weights * {
        if (!all_finite(weight)) return nullptr;
        return machine.kernels().pack_linear(out, in, weight.data.data(),
                                             bias ? bias->data.data() : nullptr);
    });
    if (!weights) return {};
    sp_call call = empty_call(SP_LINEAR);
    call.weights = weights;
    call.source.slot = Machine::SOURCE;
    call.target.slot = Machine::TARGET;
    take_clamp(call, ending);
    Value y = machine.fresh({rows, out});
    machine.call(call, machine.plain(x), nullptr, y.plain.get(), rows);
    return y;
}

static Perhaps pool_in_lanes(Machine &machine, Value &x, const Window &w, sp_call call) {
    if (!x.lanes || !takes(w) || w.dilation[1] != 1 || w.dilation[2] != 1) return {};
    pair(call.window, w.kernel);
    pair(call.stride, w.stride);
    pair(call.padding, w.padding);
    Value y = result_of(machine, x, x.shape[1], w.out + 1, w.stride + 1);
    return run(machine, call, x, y);
}

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
    const sp_layout &a = x.layout, &b = y.layout;
    if (a.grid != b.grid || a.tile_height != b.tile_height || a.tile_width != b.tile_width)
        machine.relayout(y, x.layout);
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
    const sp_layout layout = parts[0]->layout;
    Value y = machine.fresh_lanes(shape, layout);
    int32_t first = 0;
    for (Value *part : parts) {
        const sp_layout &own = part->layout;
        const bool same = own.tile_height == layout.tile_height && own.tile_width == layout.tile_width;
        sp_call call = empty_call(same ? SP_AFFINE : SP_RELAYOUT);
        call.source = Machine::map(*part, Machine::SOURCE);
        call.target = Machine::map(y, Machine::TARGET);
        call.target.first = first;
        call.target.channels = int32_t(part->shape[1]);
        first += call.target.channels;
        machine.call(call, part->lanes.get(), nullptr, y.lanes.get(), shape[0]);
    }
    return y;
}

}  // namespace sparsepath::embedded
