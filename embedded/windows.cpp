// Convolutions by their definition; weights that are zero are left out.
#include "windows.h"

#include <algorithm>

namespace sparsepath::embedded {
namespace {

void fill(int64_t (&axes)[3], const std::vector<int64_t> &given, int dimensions, int64_t least,
          const char *what) {
    if (int(given.size()) != dimensions)
        throw BadInput(std::string("its ") + what + " has not one number for each axis");
    for (int k = 0; k < dimensions; k++) {
        axes[3 - dimensions + k] = given[k];
        if (given[k] < least || given[k] > 1 << 20)
            throw BadInput(std::string("its ") + what + " makes no sense");
    }
}

// Batch and channels of an input, which may lack the batch, and the lengths of its axes.
int64_t take_input(Window &window, const Shape &shape) {
    const int rank = int(shape.size()), d = window.dimensions;
    if (rank != d + 2 && rank != d + 1)
        throw BadInput("its input has " + std::to_string(rank) + " axes, not " + std::to_string(d + 2));
    for (int k = 0; k < d; k++) window.in[3 - d + k] = shape[rank - d + k];
    return rank == d + 2 ? shape[0] : 1;
}

Window layer_window(const Node &node, const Tensor &weight) {
    Window window;
    window.dimensions = int(weight.shape.size()) - 2;
    if (window.dimensions < 1 || window.dimensions > 3)
        throw BadInput("its weight has another number of axes");
    const int d = window.dimensions;
    fill(window.kernel, {weight.shape.begin() + 2, weight.shape.end()}, d, 1, "kernel");
    if (elements({weight.shape.begin() + 2, weight.shape.end()}) > 1 << 20)
        throw BadInput("its kernel makes no sense");
    fill(window.stride, node.attributes.integers("stride"), d, 1, "stride");
    fill(window.padding, node.attributes.integers("padding"), d, 0, "padding");
    fill(window.dilation, node.attributes.integers("dilation"), d, 1, "dilation");
    return window;
}

const float *bias_of(const Node &node, int64_t channels) {
    const Tensor *bias = node.find("bias");
    if (bias && bias->shape != Shape{channels}) throw BadInput("its bias does not fit its weight");
    return bias ? bias->data.data() : nullptr;
}

// Weights of one tap times one plane, added to another: `out` is where the window stands, `in` what it
// reads. Turned round it is a transposed convolution.
struct Tap {
    int64_t offset[3];          // what the window reads lies at place * stride + offset
    int64_t first[3], last[3];  // the places where that is inside

    Tap(const Window &w, int64_t tap) {
        const int64_t at[3] = {tap / (w.kernel[1] * w.kernel[2]), tap / w.kernel[2] % w.kernel[1],
                               tap % w.kernel[2]};
        for (int k = 0; k < 3; k++) {
            offset[k] = at[k] * w.dilation[k] - w.padding[k];
            const int64_t s = w.stride[k];
            first[k] = offset[k] >= 0 ? 0 : (-offset[k] + s - 1) / s;
            last[k] = std::min(w.out[k], w.in[k] > offset[k] ? (w.in[k] - 1 - offset[k]) / s + 1 : 0);
        }
    }

    template <typename Row> void rows(const Window &w, const Row &row) const {
        for (int64_t z = first[0]; z < last[0]; z++)
            for (int64_t y = first[1]; y < last[1]; y++) {
                const int64_t out = (z * w.out[1] + y) * w.out[2];
                const int64_t line = (z * w.stride[0] + offset[0]) * w.in[1] + y * w.stride[1] + offset[1];
                row(out, line * w.in[2] + offset[2], first[2], last[2]);
            }
    }
};

}  // namespace

Shape Window::shape_after(const Shape &before, int64_t channels) const {
    Shape after(before.begin(), before.end() - dimensions);
    after.back() = channels;
    for (int k = 3 - dimensions; k < 3; k++) after.push_back(out[k]);
    return after;
}

Convolution convolution(const Node &node, const Value &x) {
    const Tensor &weight = node.array("weight");
    Convolution conv{layer_window(node, weight),        1,       0,      0,
                     node.attributes.integer("groups"), nullptr, nullptr};
    Window &w = conv.window;
    conv.batch = take_input(w, x.shape);
    conv.out_channels = weight.shape[0];
    const int64_t channels = x.shape[x.shape.size() - w.dimensions - 1];
    if (conv.groups < 1 || conv.groups > 1 << 20 || conv.out_channels % conv.groups)
        throw BadInput("its filters do not divide into its groups");
    conv.in_channels = weight.shape[1] * conv.groups;
    if (channels != conv.in_channels)
        throw BadInput("it takes " + std::to_string(conv.in_channels) + " channels, not " +
                       std::to_string(channels));
    conv.weight = weight.data.data();
    conv.bias = bias_of(node, conv.out_channels);
    for (int k = 0; k < 3; k++) {
        const int64_t room = w.in[k] + 2 * w.padding[k] - w.dilation[k] * (w.kernel[k] - 1) - 1;
        if (room < 0) throw BadInput("its kernel is larger than the map");
        w.out[k] = room / w.stride[k] + 1;
    }
    return conv;
}

Value convolved(Machine &machine, const Node &node, Value &x) {
    const Convolution conv = convolution(node, x);
    const Window &w = conv.window;
    Value y = machine.fresh(w.shape_after(x.shape, conv.out_channels));
    const float *from = machine.plain(x);
    const int64_t in = conv.in_channels / conv.groups, filters = conv.out_channels / conv.groups;
    std::vector<Tap> taps;
    for (int64_t t = 0; t < w.taps(); t++) taps.emplace_back(w, t);
    for (int64_t n = 0; n < conv.batch; n++)
        for (int64_t filter = 0; filter < conv.out_channels; filter++) {
            float *out = y.plain.get() + (n * conv.out_channels + filter) * w.places();
            std::fill_n(out, w.places(), conv.bias ? conv.bias[filter] : 0.0f);
            for (int64_t c = 0; c < in; c++) {
                const float *plane = from + (n * conv.in_channels + filter / filters * in + c) * w.pixels();
                const float *weights = conv.weight + (filter * in + c) * w.taps();
                for (int64_t t = 0; t < w.taps(); t++) {
                    const float weight = weights[t];
                    if (weight == 0) continue;
                    taps[t].rows(w, [&](int64_t row, int64_t read, int64_t first, int64_t last) {
                        for (int64_t k = first; k < last; k++)
                            out[row + k] += weight * plane[read + k * w.stride[2]];
                    });
                }
            }
        }
    return y;
}

Value convolved_transposed(Machine &machine, const Node &node, Value &x) {
    // It is a convolution from y to x turned round: `out` of its window is x, `in` is y.
    const Tensor &weight = node.array("weight");
    Window w = layer_window(node, weight);
    const int64_t batch = take_input(w, x.shape), groups = node.attributes.integer("groups");
    const int64_t in_channels = weight.shape[0];
    if (groups < 1 || groups > 1 << 20 || in_channels % groups)
        throw BadInput("its channels do not divide into its groups");
    const int64_t filters = weight.shape[1], out_channels = filters * groups;
    if (x.shape[x.shape.size() - w.dimensions - 1] != in_channels)
        throw BadInput("it takes " + std::to_string(in_channels) + " channels");
    const float *bias = bias_of(node, out_channels);
    int64_t more[3] = {};
    fill(more, node.attributes.integers("output_padding"), w.dimensions, 0, "output_padding");
    for (int k = 0; k < 3; k++) {
        if (more[k] >= std::max(w.stride[k], w.dilation[k]))
            throw BadInput("its output_padding makes no sense");
        w.out[k] = w.in[k];
        w.in[k] = (w.out[k] - 1) * w.stride[k] - 2 * w.padding[k] + w.dilation[k] * (w.kernel[k] - 1) +
                  more[k] + 1;
        if (w.in[k] < 1) throw BadInput("nothing is left of the map");
    }
    Window shown_to_caller = w;
    std::swap(shown_to_caller.in, shown_to_caller.out);
    Value y = machine.fresh(shown_to_caller.shape_after(x.shape, out_channels));
    const float *from = machine.plain(x);
    std::vector<Tap> taps;
    for (int64_t t = 0; t < w.taps(); t++) taps.emplace_back(w, t);
    for (int64_t plane = 0; plane < batch * out_channels; plane++)
        std::fill_n(y.plain.get() + plane * w.pixels(), w.pixels(),
                    bias ? bias[plane % out_channels] : 0.0f);
    for (int64_t n = 0; n < batch; n++)
        for (int64_t c = 0; c < in_channels; c++) {
            const float *in = from + (n * in_channels + c) * w.places();
            for (int64_t filter = 0; filter < filters; filter++) {
                const int64_t channel = c / (in_channels / groups) * filters + filter;
                float *out = y.plain.get() + (n * out_channels + channel) * w.pixels();
                const float *weights = weight.data.data() + (c * filters + filter) * w.taps();
                for (int64_t t = 0; t < w.taps(); t++) {
                    const float weight_here = weights[t];
                    if (weight_here == 0) continue;
                    taps[t].rows(w, [&](int64_t row, int64_t write, int64_t first, int64_t last) {
                        for (int64_t k = first; k < last; k++)
                            out[write + k * w.stride[2]] += weight_here * in[row + k];
                    });
                }
            }
        }
    return y;
}

}  // namespace sparsepath::embedded
