// Pools by their definitions, as torch has them.
#include <algorithm>
#include <cmath>

#include "windows.h"

namespace sparsepath::embedded {
namespace {

// The window of a pool over the last axes of a value.
Window over(const Value &x, const std::vector<int64_t> &kernel) {
    Window w;
    w.dimensions = int(kernel.size());
    const int rank = int(x.shape.size()), d = w.dimensions;
    if (d < 1 || d > 3 || (rank != d + 1 && rank != d + 2))
        throw BadInput("its input has another number of axes");
    for (int k = 0; k < d; k++) {
        w.in[3 - d + k] = x.shape[rank - d + k];
        w.kernel[3 - d + k] = kernel[k];
    }
    return w;
}

void take(int64_t (&axes)[3], const std::vector<int64_t> &given, int dimensions) {
    if (int(given.size()) != dimensions) throw BadInput("its window has not one number for each axis");
    std::copy(given.begin(), given.end(), axes + 3 - dimensions);
}

void set_size(Window &w, bool ceil_mode) {
    for (int k = 3 - w.dimensions; k < 3; k++) {
        const int64_t kernel = w.kernel[k], stride = w.stride[k], padding = w.padding[k];
        if (kernel < 1 || stride < 1 || w.dilation[k] < 1 || padding < 0 || 2 * padding > kernel ||
            std::max({kernel, stride, w.dilation[k]}) > 1 << 20)
            throw BadInput("its window makes no sense");
        const int64_t room = w.in[k] + 2 * padding - w.dilation[k] * (kernel - 1) - 1;
        if (room < 0 && !(ceil_mode && room + stride > 0))
            throw BadInput("its window is larger than the map");
        w.out[k] = (ceil_mode ? room + stride - 1 : room) / stride + 1;
        if (ceil_mode && (w.out[k] - 1) * stride >= w.in[k] + padding) w.out[k]--;  // torch's rule
        if (w.out[k] < 1) throw BadInput("its window is larger than the map");
    }
}

// What a pool does at each place: `each` gets the plane, the corner and end of the window in it (cut to
// the map), and the place's number.
template <typename Each> Value over_places(Machine &machine, Value &x, const Window &w, const Each &each) {
    const int64_t channels = x.shape[x.shape.size() - w.dimensions - 1];
    Value y = machine.fresh(w.shape_after(x.shape, channels));
    const float *from = machine.plain(x);
    const int64_t planes = w.pixels() ? int64_t(x.count()) / w.pixels() : 0;
    for (int64_t plane = 0; plane < planes; plane++)
        for (int64_t place = 0; place < w.places(); place++) {
            const int64_t at[3] = {place / (w.out[1] * w.out[2]), place / w.out[2] % w.out[1],
                                   place % w.out[2]};
            y.plain.get()[plane * w.places() + place] = each(from + plane * w.pixels(), at);
        }
    return y;
}

// Calls `pixel` for every pixel of a plane from `first` to `last`, every so-manieth.
template <typename Pixel>
void over_pixels(const Window &w, const int64_t *first, const int64_t *last, const int64_t *step,
                 const Pixel &pixel) {
    for (int64_t z = first[0]; z < last[0]; z += step[0])
        for (int64_t y = first[1]; y < last[1]; y += step[1])
            for (int64_t x = first[2]; x < last[2]; x += step[2]) pixel((z * w.in[1] + y) * w.in[2] + x);
}

float larger(float a, float b) { return b > a || std::isnan(b) ? b : a; }

}  // namespace

Window pool_window(const Node &node, const Value &x) {
    const Attributes &given = node.attributes;
    Window w = over(x, given.integers("kernel_size"));
    take(w.stride, given.integers("stride"), w.dimensions);
    take(w.padding, given.integers("padding"), w.dimensions);
    if (given.find("dilation")) take(w.dilation, given.integers("dilation"), w.dimensions);
    set_size(w, given.flag("ceil_mode", false));
    return w;
}

Window pool_window(const Value &x, int64_t side, bool ceil_mode) {
    Window w = over(x, {side, side});
    w.stride[1] = w.stride[2] = side;
    set_size(w, ceil_mode);
    return w;
}

Value max_pooled(Machine &machine, Value &x, const Window &w) {
    return over_places(machine, x, w, [&](const float *plane, const int64_t *at) {
        int64_t first[3], last[3];
        for (int k = 0; k < 3; k++) {
            first[k] = at[k] * w.stride[k] - w.padding[k];
            last[k] = std::min(w.in[k], first[k] + w.dilation[k] * (w.kernel[k] - 1) + 1);
            while (first[k] < 0) first[k] += w.dilation[k];
        }
        float found = -INFINITY;
        over_pixels(w, first, last, w.dilation,
                    [&](int64_t pixel) { found = larger(found, plane[pixel]); });
        return found;
    });
}

Value avg_pooled(Machine &machine, const Node &node, Value &x) {
    const Window w = pool_window(node, x);
    const bool count_padding = node.attributes.flag("count_include_pad", true);
    const int64_t divisor = node.attributes.integer("divisor_override", 0);
    const int64_t step[3] = {1, 1, 1};
    return over_places(machine, x, w, [&](const float *plane, const int64_t *at) {
        int64_t first[3], last[3], padded = 1, inside = 1;
        for (int k = 0; k < 3; k++) {
            first[k] = at[k] * w.stride[k] - w.padding[k];
            last[k] = std::min(w.in[k] + w.padding[k], first[k] + w.kernel[k]);
            padded *= last[k] - first[k];
            first[k] = std::max<int64_t>(0, first[k]);
            last[k] = std::min(w.in[k], last[k]);
            inside *= std::max<int64_t>(0, last[k] - first[k]);
        }
        double sum = 0;
        over_pixels(w, first, last, step, [&](int64_t pixel) { sum += plane[pixel]; });
        const int64_t count = divisor ? divisor : count_padding ? padded : inside;
        return static_cast<float>(sum / static_cast<double>(count));
    });
}

Value adaptively_pooled(Machine &machine, Value &x, const std::vector<int64_t> &size, bool maximal) {
    Window w = over(x, size);
    for (int k = 3 - w.dimensions; k < 3; k++) {
        w.out[k] = w.kernel[k];
        if (w.out[k] < 1 || w.out[k] > 1 << 20 || w.in[k] < 1)
            throw BadInput("its output_size makes no sense");
    }
    const int64_t step[3] = {1, 1, 1};
    return over_places(machine, x, w, [&](const float *plane, const int64_t *at) {
        int64_t first[3], last[3], count = 1;
        for (int k = 0; k < 3; k++) {
            first[k] = at[k] * w.in[k] / w.out[k];
            last[k] = ((at[k] + 1) * w.in[k] + w.out[k] - 1) / w.out[k];
            count *= last[k] - first[k];
        }
        double sum = 0;
        float most = -INFINITY;
        over_pixels(w, first, last, step, [&](int64_t pixel) {
            sum += plane[pixel];
            most = larger(most, plane[pixel]);
        });
        return maximal ? most : static_cast<float>(sum / static_cast<double>(count));
    });
}

}  // namespace sparsepath::embedded
