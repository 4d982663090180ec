// Convolutions and linear layers by the kernels, their weights packed when they are first met.
#include <algorithm>
#include <cmath>

#include "calls.h"
#include "lanes.h"

namespace sparsepath::embedded {
namespace {

bool all_finite(const Tensor &array) {
    return std::all_of(array.data.begin(), array.data.end(), [](float x) { return std::isfinite(x); });
}

sp_weights *given(sp_weights *weights) {
    if (!weights) throw BadInput("there is not enough memory left to pack its weights");
    return weights;
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
    if (!takes(x) || !takes(w) || weight.data.empty() || weight.data.size() > MOST_FLOATS) return {};
    if (conv.out_channels > 1 << 20 || uint64_t(conv.in_channels * w.taps()) > MOST_FLOATS ||
        elements({conv.batch, conv.out_channels, w.places()}) > MOST_FLOATS / 4)
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
                          method,
                          0,
                          0};
        pair(spec.kernel, w.kernel);
        pair(spec.stride, w.stride);
        pair(spec.padding, w.padding);
        pair(spec.dilation, w.dilation);
        return given(machine.kernels().pack_conv(&spec, conv.weight, conv.bias));
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
    if (x.shape.size() != 2 || weight.data.empty() || weight.data.size() > MOST_FLOATS || !rows ||
        rows > 1 << 20)
        return {};
    const auto out = int32_t(weight.shape[0]), in = int32_t(weight.shape[1]);
    const int method = rows == 1 ? SP_ROWS : SP_DIRECT;  // a single row leaves lanes to the filters
    const sp_weights *weights = machine.packed(node, method, [&]() -> sp_weights * {
        if (!all_finite(weight)) return nullptr;
        return given(machine.kernels().pack_linear(out, in, weight.data.data(),
                                                   bias ? bias->data.data() : nullptr, method));
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

}  // namespace sparsepath::embedded
