// The table of operations, and how layers choose between the kernels and their definition.
#include "operations.h"

#include <cmath>
#include <sstream>

#include "lanes.h"

namespace sparsepath::embedded {
namespace {

using Run = Value (*)(Machine &, const Node &, const Inputs &, Ending &);

struct Operation {
    const char *name;
    int inputs;              // -1: one or more
    const char *attributes;  // those it may have, separated by spaces; with a '!' those it must have
    const char *arrays;      // the same
    Run run;
};

Value conv(Machine &machine, const Node &node, const Inputs &in, Ending &ending) {
    if (Perhaps y = conv_in_lanes(machine, node, *in[0], ending)) return *y;
    return convolved(machine, node, *in[0]);
}

Value conv_transpose(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    return convolved_transposed(machine, node, *in[0]);
}

Value linear(Machine &machine, const Node &node, const Inputs &in, Ending &ending) {
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

void check_channels(const Value &x, const Tensor *array) {
    if (x.shape.size() < 2 || (array && array->shape != Shape{x.shape[1]}))
        throw BadInput("its arrays have not one number for each channel");
}

Value affine(Machine &machine, const Node &node, const Inputs &in, Ending &ending) {
    Value &x = *in[0];
    const Tensor &scale = node.array("scale"), &shift = node.array("shift");
    check_channels(x, &scale);
    check_channels(x, &shift);
    if (Perhaps y = affine_in_lanes(machine, x, scale.data.data(), shift.data.data(), ending)) return *y;
    return scaled(machine, x, scale.data.data(), shift.data.data());
}

// One that no pass of fold.cpp has turned into an affine node.
Value batch_norm(Machine &machine, const Node &node, const Inputs &in, Ending &) {
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

Value add(Machine &machine, const Node &node, const Inputs &in, Ending &ending) {
    if (in.size() == 2)
        if (Perhaps y = add_in_lanes(machine, *in[0], *in[1], ending)) return *y;
    return arithmetic(machine, node, in);
}

Value other_arithmetic(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    return arithmetic(machine, node, in);
}

Value one_by_one(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    return elementwise(machine, node.op, node.attributes, *in[0]);
}

Value max_pool(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    const Window window = pool_window(node, *in[0]);
    if (Perhaps y = max_pool_in_lanes(machine, *in[0], window)) return *y;
    return max_pooled(machine, *in[0], window);
}

Value avg_pool(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    const Attributes &given = node.attributes;
    const bool usual = !given.flag("ceil_mode", false) && !given.find("divisor_override");
    if (usual)
        if (Perhaps y = avg_pool_in_lanes(machine, *in[0], pool_window(node, *in[0]),
                                          given.flag("count_include_pad", true)))
            return *y;
    return avg_pooled(machine, node, *in[0]);
}

Value adaptive_pool(Machine &machine, const Node &node, const Inputs &in, Ending &) {
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

Value constant(Machine &machine, const Node &node, const Inputs &, Ending &) {
    const Tensor &array = node.array("value");
    Value y = machine.fresh(array.shape);
    std::copy(array.data.begin(), array.data.end(), y.plain.get());
    return y;
}

Value cat(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    if (in[0]->shape.size() == 4 && in[0]->axis(node.attributes.integer("dim")) == 1)
        if (Perhaps y = cat_in_lanes(machine, in)) return *y;
    return concatenated(machine, node, in);
}

Value mean(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    Value &x = *in[0];
    const auto dims = node.attributes.integers("dim");
    if (x.lanes && dims.size() == 2 && std::min(x.axis(dims[0]), x.axis(dims[1])) == 2 &&
        x.axis(dims[0]) != x.axis(dims[1]))
        if (x.axis(dims[0]) + x.axis(dims[1]) == 5)
            if (Perhaps y = mean_in_lanes(machine, x))
                return node.attributes.flag("keepdim", false)
                           ? machine.viewed(*y, {x.shape[0], x.shape[1], 1, 1})
                           : *y;
    return mean_over(machine, node, x);
}

Value transpose(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    std::vector<int64_t> dims(in[0]->shape.size());
    for (size_t k = 0; k < dims.size(); k++) dims[k] = int64_t(k);
    const int64_t a = in[0]->axis(node.attributes.integer("dim0")),
                  b = in[0]->axis(node.attributes.integer("dim1"));
    if (!dims.empty()) std::swap(dims[a], dims[b]);
    return permuted(machine, dims, *in[0]);
}

template <Value (*Function)(Machine &, const Node &, Value &)>
Value of_one(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    return Function(machine, node, *in[0]);
}

const Operation OPERATIONS[] = {
    {"relu", 1, "", "", one_by_one},
    {"relu6", 1, "", "", one_by_one},
    {"leaky_relu", 1, "negative_slope", "", one_by_one},
    {"elu", 1, "alpha", "", one_by_one},
    {"selu", 1, "", "", one_by_one},
    {"silu", 1, "", "", one_by_one},
    {"mish", 1, "", "", one_by_one},
    {"gelu", 1, "approximate", "", one_by_one},
    {"sigmoid", 1, "", "", one_by_one},
    {"tanh", 1, "", "", one_by_one},
    {"hardswish", 1, "", "", one_by_one},
    {"hardsigmoid", 1, "", "", one_by_one},
    {"hardtanh", 1, "min_val max_val", "", one_by_one},
    {"softplus", 1, "beta threshold", "", one_by_one},
    {"clamp", 1, "min max", "", one_by_one},
    {"abs", 1, "", "", one_by_one},
    {"neg", 1, "", "", one_by_one},
    {"exp", 1, "", "", one_by_one},
    {"sqrt", 1, "", "", one_by_one},
    {"add", -1, "left right", "", add},
    {"sub", -1, "left right", "", other_arithmetic},
    {"mul", -1, "left right", "", other_arithmetic},
    {"div", -1, "left right", "", other_arithmetic},
    {"adaptive_avg_pool", 1, "output_size!", "", adaptive_pool},
    {"adaptive_max_pool", 1, "output_size!", "", adaptive_pool},
    {"affine", 1, "", "scale! shift!", affine},
    {"avg_pool", 1, "kernel_size! stride! padding! ceil_mode! count_include_pad! divisor_override!", "",
     avg_pool},
    {"batch_norm", 1, "eps!", "mean! variance! weight bias", batch_norm},
    {"cat", -1, "dim!", "", cat},
    {"constant", 0, "", "value!", constant},
    {"conv", 1, "stride! padding! dilation! groups!", "weight! bias", conv},
    {"conv_transpose", 1, "stride! padding! output_padding! groups! dilation!", "weight! bias",
     conv_transpose},
    {"flatten", 1, "start_dim end_dim", "", of_one<flattened>},
    {"index", 1, "slices!", "", of_one<indexed>},
    {"interpolate", 1, "size scale_factor mode align_corners recompute_scale_factor antialias", "",
     of_one<interpolated>},
    {"linear", 1, "", "weight! bias", linear},
    {"log_softmax", 1, "dim!", "",
     [](Machine &m, const Node &node, const Inputs &in, Ending &) {
         return softmax(m, node, *in[0], true);
     }},
    {"max_pool", 1, "kernel_size! stride! padding! dilation! ceil_mode!", "", max_pool},
    {"mean", 1, "dim! keepdim", "", mean},
    {"pad", 1, "pad! mode value", "", of_one<padded>},
    {"permute", 1, "dims!", "",
     [](Machine &m, const Node &node, const Inputs &in, Ending &) {
         return permuted(m, node.attributes.integers("dims"), *in[0]);
     }},
    {"pixel_shuffle", 1, "upscale_factor!", "", of_one<pixels_shuffled>},
    {"reshape", 1, "shape!", "", of_one<reshaped>},
    {"softmax", 1, "dim!", "",
     [](Machine &m, const Node &node, const Inputs &in, Ending &) {
         return softmax(m, node, *in[0], false);
     }},
    {"transpose", 1, "dim0! dim1!", "", transpose},
};

const Operation *find(const std::string &name) {
    for (const Operation &operation : OPERATIONS)
        if (name == operation.name) return &operation;
    return nullptr;
}

// Whether some names are among those of a list, and all that it must have among them.
template <typename Names> bool fit(const Names &names, const std::string &list) {
    std::istringstream words(list);
    size_t known = 0;
    for (std::string word; words >> word;) {
        const bool needed = word.back() == '!';
        if (needed) word.pop_back();
        bool there = false;
        for (const auto &name : names) there |= name.first == word;
        if (needed && !there) return false;
        known += there;
    }
    return known == names.size();
}

}  // namespace

void check_arguments(const Node &node) {
    const Operation *operation = find(node.op);
    if (!operation)
        throw BadInput(shown(node.name) + " does " + shown(node.op) + ", which this program does not know");
    const int given = int(node.inputs.size());
    const bool arithmetic = node.op == "add" || node.op == "sub" || node.op == "mul" || node.op == "div";
    const int numbers =
        (node.attributes.find("left") != nullptr) + (node.attributes.find("right") != nullptr);
    const bool enough = arithmetic              ? given + numbers == 2 && given
                        : operation->inputs < 0 ? given > 0
                                                : given == operation->inputs;
    if (!enough || !fit(node.attributes.all(), operation->attributes) ||
        !fit(node.arrays, operation->arrays))
        throw BadInput(shown(node.name) + " has other inputs, attributes or arrays than " + shown(node.op) +
                       " takes");
    const Operation *activation = node.ending.activation.empty() ? nullptr : find(node.ending.activation);
    if (!node.ending.activation.empty() && (!activation || activation->run != one_by_one))
        throw BadInput(shown(node.name) + " has the unknown activation " + shown(node.ending.activation));
}

Value run_node(Machine &machine, const Node &node, const Inputs &inputs) {
    Ending left = node.ending;
    Value y = find(node.op)->run(machine, node, inputs, left);
    if (!left.activation.empty()) y = elementwise(machine, left.activation, Attributes(), y);
    if (left.pool) {
        const Window window = pool_window(y, left.pool, left.ceil_mode);
        Perhaps pooled = max_pool_in_lanes(machine, y, window);
        y = pooled ? *pooled : max_pooled(machine, y, window);
    }
    return y;
}

}  // namespace sparsepath::embedded
