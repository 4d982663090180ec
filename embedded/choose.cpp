// The choice between the kernels and the definitions, operation by operation.
#include "choose.h"

#include <algorithm>
#include <cmath>

#include "lanes.h"

namespace sparsepath::embedded {
namespace {

void check_channels(const Value &x, const Tensor *array) {
    if (x.shape.size() < 2 || (array && array->shape != Shape{x.shape[1]}))
        throw BadInput("its arrays have not one number for each channel");
}

}  // namespace

Value run_conv(Machine &machine, const Node &node, const Inputs &in, Ending &ending) {
    if (Perhaps y = conv_in_lanes(machine, node, *in[0], ending)) return *y;
    return convolved(machine, node, *in[0]);
}

Value run_conv_transpose(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    return convolved_transposed(machine, node, *in[0]);
}

Value run_linear(Machine &machine, const Node &node, const Inputs &in, Ending &ending) {
    const Tensor &weight = node.array("weight"), *bias = node.find("bias");
    Value &x = *in[0];
    if (weight.shape.size() != 2 || x.shape.empty() || x.shape.back() != weight.shape[1])
        throw BadInput("its weight does not fit its input");
    const int64_t inputs = weight.shape[1], outputs = weight.shape[0];
    if (bias && bias->shape != Shape{outputs}) throw BadInput("its bias does not fit its weight");
    Shape shape = x.shape;
    shape.back() = outputs;
    const int64_t count =
        inputs ? int64_t(x.count()) / inputs : int64_t(elements(shape)) / std::max<int64_t>(1, outputs);
    Value rows = machine.viewed(x, {count, inputs});
    Perhaps y = linear_in_rows(machine, node, rows, ending);
    if (!y) {
        y = machine.fresh({count, outputs});
        for (int64_t n = 0; n < count; n++)
            for (int64_t k = 0; k < outputs; k++) {
                float sum = bias ? bias->data[k] : 0;
                for (int64_t c = 0; c < inputs; c++)
                    sum += weight.data[k * inputs + c] * rows.plain.get()[n * inputs + c];
                y->plain.get()[n * outputs + k] = sum;
            }
    }
    return machine.viewed(*y, shape);
}

Value run_affine(Machine &machine, const Node &node, const Inputs &in, Ending &ending) {
    Value &x = *in[0];
    const Tensor &scale = node.array("scale"), &shift = node.array("shift");
    check_channels(x, &scale);
    check_channels(x, &shift);
    if (Perhaps y = affine_in_lanes(machine, x, scale.data.data(), shift.data.data(), ending)) return *y;
    return scaled(machine, x, scale.data.data(), shift.data.data());
}

// One that no pass of fold.cpp has turned into an affine node.
Value run_batch_norm(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    const Tensor &mean = node.array("mean"), &variance = node.array("variance");
    const Tensor *weight = node.find("weight"), *bias = node.find("bias");
    for (const Tensor *array : {&mean, &variance, weight, bias}) check_channels(*in[0], array);
    std::vector<float> scale(mean.data.size()), shift(mean.data.size());
    for (size_t k = 0; k < scale.size(); k++) {
        const double by = (weight ? weight->data[k] : 1.0) /
                          std::sqrt(variance.data[k] + node.attributes.number("eps", 0));
        scale[k] = float(by);
        shift[k] = float((bias ? bias->data[k] : 0.0) - mean.data[k] * by);
    }
    return scaled(machine, *in[0], scale.data(), shift.data());
}

Value run_add(Machine &machine, const Node &node, const Inputs &in, Ending &ending) {
    if (in.size() == 2)
        if (Perhaps y = add_in_lanes(machine, *in[0], *in[1], ending)) return *y;
    return arithmetic(machine, node, in);
}

Value run_other_arithmetic(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    return arithmetic(machine, node, in);
}

Value run_one_by_one(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    return elementwise(machine, node.op, node.attributes, *in[0]);
}

Value run_max_pool(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    const Window window = pool_window(node, *in[0]);
    if (Perhaps y = max_pool_in_lanes(machine, *in[0], window)) return *y;
    return max_pooled(machine, *in[0], window);
}

Value run_avg_pool(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    const Attributes &given = node.attributes;
    const bool usual = !given.flag("ceil_mode", false) && !given.find("divisor_override");
    if (usual)
        if (Perhaps y = avg_pool_in_lanes(machine, *in[0], pool_window(node, *in[0]),
                                          given.flag("count_include_pad", true)))
            return *y;
    return avg_pooled(machine, node, *in[0]);
}

Value run_adaptive_pool(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    Value &x = *in[0];
    const bool maximal = node.op == "adaptive_max_pool";
    const Json *wanted = node.attributes.find("output_size");
    std::vector<int64_t> size;
    if (wanted)
        for (const Json &length : wanted->list) {
            const size_t axis = x.shape.size() - wanted->list.size() + size.size();
            const bool now = length.is(Json::NOTHING) && axis < x.shape.size();
            size.push_back(now ? x.shape[axis] : integer_of(length, "output_size"));
        }
    if (!maximal && size == std::vector<int64_t>{1, 1})
        if (Perhaps y = mean_in_lanes(machine, x))
            return machine.viewed(*y, {x.shape[0], x.shape[1], 1, 1});
    return adaptively_pooled(machine, x, size, maximal);
}

Value run_constant(Machine &machine, const Node &node, const Inputs &, Ending &) {
    const Tensor &array = node.array("value");
    Value y = machine.fresh(array.shape);
    std::copy(array.data.begin(), array.data.end(), y.plain.get());
    return y;
}

Value run_cat(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    if (in[0]->shape.size() == 4 && in[0]->axis(node.attributes.integer("dim")) == 1)
        if (Perhaps y = cat_in_lanes(machine, in)) return *y;
    return concatenated(machine, node, in);
}

// Shortcuts of residual networks: every so-manieth pixel, and more channels of zeros.
Value run_index(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    Value &x = *in[0];
    const Json *slices = node.attributes.find("slices");
    if (x.lanes && slices && slices->list.size() <= 4) {
        int64_t step[4] = {1, 1, 1, 1};
        bool whole = true;
        for (size_t k = 0; k < slices->list.size(); k++) {
            const auto &part = slices->list[k].list;
            whole = whole && part.size() == 3 && part[0].is(Json::NOTHING) && part[1].is(Json::NOTHING);
            if (whole && !part[2].is(Json::NOTHING)) step[k] = integer_of(part[2], "slices");
        }
        if (whole && step[0] == 1 && step[1] == 1 && step[2] > 0 && step[3] > 0)
            if (Perhaps y = every_pixel_in_lanes(machine, x, step[2], step[3])) return *y;
    }
    return indexed(machine, node, x);
}

Value run_pad(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    const auto room = node.attributes.integers("pad");
    const bool zeros =
        node.attributes.text("mode", "constant") == "constant" && node.attributes.number("value", 0) == 0;
    if (zeros && room.size() == 6 &&
        std::all_of(room.begin(), room.begin() + 4, [](int64_t n) { return n == 0; }))
        if (Perhaps y = channels_padded_in_lanes(machine, *in[0], room[4], room[5])) return *y;
    return padded(machine, node, *in[0]);
}

Value run_mean(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    Value &x = *in[0];
    const auto dims = node.attributes.integers("dim");
    if (x.lanes && dims.size() == 2 && std::min(x.axis(dims[0]), x.axis(dims[1])) == 2 &&
        x.axis(dims[0]) != x.axis(dims[1]))
        if (x.axis(dims[0]) + x.axis(dims[1]) == 5)
            if (Perhaps y = mean_in_lanes(machine, x))
                return node.attributes.flag("keepdim", false)
                           ? machine.viewed(*y, {x.shape[0], x.shape[1], 1, 1})
                           : *y;
    return reduced(machine, node, x);
}

Value run_transpose(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    std::vector<int64_t> dims(in[0]->shape.size());
    for (size_t k = 0; k < dims.size(); k++) dims[k] = int64_t(k);
    const int64_t a = in[0]->axis(node.attributes.integer("dim0")),
                  b = in[0]->axis(node.attributes.integer("dim1"));
    if (!dims.empty()) std::swap(dims[a], dims[b]);
    return permuted(machine, dims, *in[0]);
}

}  // namespace sparsepath::embedded
