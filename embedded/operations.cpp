// The table of operations, and how layers choose between the kernels and their definition.
#include "operations.h"

#include <sstream>

#include "choose.h"
#include "lanes.h"

namespace sparsepath::embedded {
namespace {

struct Operation {
    const char *name;
    int inputs;              // -1: one or more
    const char *attributes;  // those it may have, separated by spaces; with a '!' those it must have
    const char *arrays;      // the same
    Run *run;
};

// What is nothing at all when a network is used.
Value run_dropout(Machine &, const Node &, const Inputs &in, Ending &) { return *in[0]; }

template <Value (*Function)(Machine &, const Node &, Value &)>
Value of_one(Machine &machine, const Node &node, const Inputs &in, Ending &) {
    return Function(machine, node, *in[0]);
}

const Operation OPERATIONS[] = {
    {"relu", 1, "", "", run_one_by_one},
    {"relu6", 1, "", "", run_one_by_one},
    {"leaky_relu", 1, "negative_slope", "", run_one_by_one},
    {"elu", 1, "alpha", "", run_one_by_one},
    {"selu", 1, "", "", run_one_by_one},
    {"silu", 1, "", "", run_one_by_one},
    {"mish", 1, "", "", run_one_by_one},
    {"gelu", 1, "approximate", "", run_one_by_one},
    {"sigmoid", 1, "", "", run_one_by_one},
    {"tanh", 1, "", "", run_one_by_one},
    {"hardswish", 1, "", "", run_one_by_one},
    {"hardsigmoid", 1, "", "", run_one_by_one},
    {"hardtanh", 1, "min_val max_val", "", run_one_by_one},
    {"softplus", 1, "beta threshold", "", run_one_by_one},
    {"clamp", 1, "min max", "", run_one_by_one},
    {"abs", 1, "", "", run_one_by_one},
    {"neg", 1, "", "", run_one_by_one},
    {"exp", 1, "", "", run_one_by_one},
    {"sqrt", 1, "", "", run_one_by_one},
    {"pow", 1, "exponent!", "", run_one_by_one},
    {"add", -1, "left right", "", run_add},
    {"sub", -1, "left right", "", run_other_arithmetic},
    {"mul", -1, "left right", "", run_other_arithmetic},
    {"div", -1, "left right", "", run_other_arithmetic},
    {"adaptive_avg_pool", 1, "output_size!", "", run_adaptive_pool},
    {"adaptive_max_pool", 1, "output_size!", "", run_adaptive_pool},
    {"affine", 1, "", "scale! shift!", run_affine},
    {"avg_pool", 1, "kernel_size! stride! padding! ceil_mode! count_include_pad! divisor_override!", "",
     run_avg_pool},
    {"alpha_dropout", 1, "p", "", run_dropout},
    {"batch_norm", 1, "eps! momentum batches axes learned", "mean! variance! weight bias", run_batch_norm},
    {"cat", -1, "dim!", "", run_cat},
    {"constant", 0, "learned", "value!", run_constant},
    {"conv", 1, "stride! padding! dilation! groups! learned", "weight! bias", run_conv},
    {"conv_transpose", 1, "stride! padding! output_padding! groups! dilation! learned", "weight! bias",
     run_conv_transpose},
    {"dropout", 1, "p", "", run_dropout},
    {"dropout1d", 1, "p", "", run_dropout},
    {"dropout2d", 1, "p", "", run_dropout},
    {"dropout3d", 1, "p", "", run_dropout},
    {"feature_alpha_dropout", 1, "p", "", run_dropout},
    {"flatten", 1, "start_dim end_dim", "", of_one<flattened>},
    {"group_norm", 1, "num_groups! eps! learned", "weight bias", of_one<group_normed>},
    {"index", 1, "slices!", "", run_index},
    {"interpolate", 1, "size scale_factor mode align_corners recompute_scale_factor antialias", "",
     of_one<interpolated>},
    {"interpolate_like", 2, "mode align_corners antialias", "",
     [](Machine &m, const Node &node, const Inputs &in, Ending &) {
         return interpolated_like(m, node, *in[0], *in[1]);
     }},
    {"layer_norm", 1, "normalized_shape! eps! learned", "weight bias", of_one<layer_normed>},
    {"linear", 1, "learned", "weight! bias", run_linear},
    {"log_softmax", 1, "dim!", "",
     [](Machine &m, const Node &node, const Inputs &in, Ending &) {
         return softmax(m, node, *in[0], true);
     }},
    {"max_pool", 1, "kernel_size! stride! padding! dilation! ceil_mode!", "", run_max_pool},
    {"amax", 1, "dim! keepdim", "", of_one<reduced>},
    {"amin", 1, "dim! keepdim", "", of_one<reduced>},
    {"mean", 1, "dim! keepdim", "", run_mean},
    {"norm", 1, "dim! keepdim", "", of_one<reduced>},
    {"sum", 1, "dim! keepdim", "", of_one<reduced>},
    {"pad", 1, "pad! mode value", "", run_pad},
    {"permute", 1, "dims!", "",
     [](Machine &m, const Node &node, const Inputs &in, Ending &) {
         return permuted(m, node.attributes.integers("dims"), *in[0]);
     }},
    {"prelu", 1, "learned", "weight!", of_one<sloped>},
    {"pixel_shuffle", 1, "upscale_factor!", "", of_one<pixels_shuffled>},
    {"reshape", 1, "shape!", "", of_one<reshaped>},
    {"softmax", 1, "dim!", "",
     [](Machine &m, const Node &node, const Inputs &in, Ending &) {
         return softmax(m, node, *in[0], false);
     }},
    {"transpose", 1, "dim0! dim1!", "", run_transpose},
    {"unflatten", 1, "dim! sizes!", "", of_one<unflattened>},
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
    if (!node.ending.activation.empty() && (!activation || activation->run != run_one_by_one))
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
