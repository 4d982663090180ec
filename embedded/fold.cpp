// The passes, each a rule by which a node takes in the one node that reads it.
#include "fold.h"

#include <algorithm>
#include <cmath>

namespace sparsepath::embedded {
namespace {

bool among(const std::string &op, std::initializer_list<const char *> ops) {
    return std::find(ops.begin(), ops.end(), op) != ops.end();
}

// A batch norm as y = scale * x + shift, in float64.
struct Affine {
    std::vector<double> scale, shift;
    bool finite = true;

    explicit Affine(const Node &norm) {
        const Tensor &mean = norm.array("mean"), &variance = norm.array("variance");
        const Tensor *weight = norm.find("weight"), *bias = norm.find("bias");
        const double eps = norm.attributes.number("eps", 0);
        for (size_t k = 0; k < mean.data.size(); k++) {
            scale.push_back((weight ? weight->data[k] : 1.0) / std::sqrt(variance.data[k] + eps));
            shift.push_back((bias ? bias->data[k] : 0.0) - mean.data[k] * scale[k]);
            finite = finite && std::isfinite(scale[k]) && std::isfinite(shift[k]);
        }
    }
};

// One number for each channel in all of its arrays.
bool is_sane(const Node &norm) {
    const Shape &shape = norm.array("mean").shape;
    return shape.size() == 1 && std::all_of(norm.arrays.begin(), norm.arrays.end(), [&](const auto &array) {
               return array.second->shape == shape;
           });
}

Array array_of(const Shape &shape, const std::vector<double> &numbers) {
    auto array = std::make_shared<Tensor>();
    array->shape = shape;
    array->data.assign(numbers.begin(), numbers.end());
    return array;
}

// Which output channel each weight belongs to: (out, ...), or (in, out of a group, ...) if transposed.
size_t channel_of(const Node &layer, const Tensor &weight, size_t place) {
    const size_t each = weight.data.size() / size_t(weight.shape[0]);
    if (layer.op == "conv") return place / each;
    const auto groups = size_t(layer.attributes.integer("groups")), filters = size_t(weight.shape[1]);
    return place / each / (size_t(weight.shape[0]) / groups) * filters + place % each / (each / filters);
}

bool drop_dropout(Node &, const Node &after) {
    return after.op.find("dropout") != std::string::npos && after.ending.activation.empty() &&
           !after.ending.pool;
}

bool fold_batch_norm(Node &layer, const Node &norm) {
    if (norm.op != "batch_norm" || !among(layer.op, {"conv", "conv_transpose"}) || !is_sane(norm))
        return false;
    if (!layer.ending.activation.empty() || layer.ending.pool) return false;
    const Tensor &weight = layer.array("weight"), *bias = layer.find("bias");
    const int64_t groups = layer.attributes.integer("groups", 1);
    if (weight.shape.size() < 3 || weight.data.empty() || groups < 1 || weight.shape[0] % groups)
        return false;
    const int64_t outputs = layer.op == "conv" ? weight.shape[0] : weight.shape[1] * groups;
    const Affine affine(norm);
    if (!affine.finite || int64_t(affine.scale.size()) != outputs ||
        (bias && bias->shape != Shape{outputs}))
        return false;
    std::vector<double> start = affine.shift;
    for (int64_t k = 0; bias && k < outputs; k++) start[k] += affine.scale[k] * bias->data[k];
    auto wide = std::make_shared<Tensor>(weight);
    for (size_t k = 0; k < wide->data.size(); k++)
        wide->data[k] = float(wide->data[k] * affine.scale[channel_of(layer, weight, k)]);
    layer.arrays["weight"] = wide;
    layer.arrays["bias"] = array_of({outputs}, start);
    layer.ending = norm.ending;
    return true;
}

bool fuse_activation(Node &node, const Node &after) {
    if (!among(after.op, {"relu", "relu6"}) ||
        !among(node.op, {"conv", "conv_transpose", "linear", "affine", "add"}))
        return false;
    // The largest of clamped values is the clamped largest: a ReLU behind a pool moves before it.
    if (!node.ending.activation.empty() || !after.ending.activation.empty() || after.ending.pool)
        return false;
    node.ending.activation = after.op;
    return true;
}

bool fuse_pool(Node &conv, const Node &after) {
    if (conv.op != "conv" || after.op != "max_pool" || conv.ending.pool ||
        conv.array("weight").shape.size() != 4)
        return false;
    const auto is = [&](const char *key, int64_t number) {
        return after.attributes.integers(key) == std::vector<int64_t>{number, number};
    };
    if (!is("kernel_size", 2) || !is("stride", 2) || !is("padding", 0) || !is("dilation", 1)) return false;
    if (!after.ending.activation.empty() || after.ending.pool) return false;
    conv.ending.pool = 2;
    conv.ending.ceil_mode = after.attributes.flag("ceil_mode", false);
    return true;
}

// Let nodes take in the one node that reads them, as often as a rule allows.
template <typename Rule> void absorb(Graph &graph, const Rule &rule) {
    std::vector<int> readers(graph.values, 0), maker(graph.values, -1);
    for (const Node &node : graph.nodes)
        for (int value : node.inputs) readers[value]++;
    for (int value : graph.outputs) readers[value]++;
    std::vector<Node> kept;
    for (Node &node : graph.nodes) {
        const int first =
            node.inputs.size() == 1 && readers[node.inputs[0]] == 1 ? maker[node.inputs[0]] : -1;
        if (first >= 0 && rule(kept[first], node)) {
            kept[first].value = node.value;  // it now gives what the other gave
            maker[node.value] = first;
        } else {
            maker[node.value] = int(kept.size());
            kept.push_back(std::move(node));
        }
    }
    graph.nodes = std::move(kept);
}

void name_affine(Graph &graph) {
    for (Node &node : graph.nodes) {
        if (node.op != "batch_norm" || !is_sane(node)) continue;
        const Affine affine(node);
        const Shape shape = node.array("mean").shape;
        node.op = "affine";
        node.attributes = Attributes();
        node.arrays = {{"scale", array_of(shape, affine.scale)}, {"shift", array_of(shape, affine.shift)}};
    }
}

}  // namespace

void fold(Graph &graph) {
    absorb(graph, drop_dropout);
    absorb(graph, fold_batch_norm);
    name_affine(graph);
    absorb(graph, fuse_activation);
    absorb(graph, [](Node &node, const Node &after) {
        return fuse_pool(node, after) || fuse_activation(node, after);
    });
}

}  // namespace sparsepath::embedded
