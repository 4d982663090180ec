// Windows that move over the last one to three axes: convolutions and pools, by their definitions.
#pragma once
#include "machine.h"

namespace sparsepath::embedded {

// A window over up to three axes; axes that are not there have length 1.
struct Window {
    int dimensions = 0;
    int64_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, padding[3] = {}, dilation[3] = {1, 1, 1};
    int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1};

    int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
    int64_t pixels() const { return in[0] * in[1] * in[2]; }
    int64_t places() const { return out[0] * out[1] * out[2]; }
    Shape shape_after(const Shape &before, int64_t channels) const;
};

// A convolution: its window, once its weight, its attributes and its input are known to fit.
struct Convolution {
    Window window;
    int64_t batch, in_channels, out_channels, groups;
    const float *weight, *bias;  // bias may be null
};

Convolution convolution(const Node &node, const Value &x);
Value convolved(Machine &machine, const Node &node, Value &x);
Value convolved_transposed(Machine &machine, const Node &node, Value &x);

// The window of "max_pool" and "avg_pool".
Window pool_window(const Node &node, const Value &x);
Window pool_window(const Value &x, int64_t side, bool ceil_mode);
Value max_pooled(Machine &machine, Value &x, const Window &window);
Value avg_pooled(Machine &machine, const Node &node, Value &x);
Value adaptively_pooled(Machine &machine, Value &x, const std::vector<int64_t> &size, bool maximal);

}  // namespace sparsepath::embedded
