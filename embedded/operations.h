// Every operation of a graph by name (sparsepath/deploy/graph/operations.py says what each means).
#pragma once
#include "machine.h"

namespace sparsepath::embedded {

using Inputs = std::vector<Value *>;

// Refuse a node of an unknown operation, or one with other arguments than its operation has.
void check_arguments(const Node &node);

// What a node gives for these inputs, its ending included.
Value run_node(Machine &machine, const Node &node, const Inputs &inputs);

// ---- the families, each in a file of its own
Value elementwise(Machine &machine, const std::string &op, const Attributes &attributes, Value &x);
Value arithmetic(Machine &machine, const Node &node, const Inputs &inputs);
Value scaled(Machine &machine, Value &x, const float *scale, const float *shift);  // by channel, axis 1
Value sloped(Machine &machine, const Node &node, Value &x);  // negative numbers times a slope

Value reshaped(Machine &machine, const Node &node, Value &x);
Value flattened(Machine &machine, const Node &node, Value &x);
Value unflattened(Machine &machine, const Node &node, Value &x);
Value permuted(Machine &machine, const std::vector<int64_t> &dims, Value &x);
Value indexed(Machine &machine, const Node &node, Value &x);
Value concatenated(Machine &machine, const Node &node, const Inputs &inputs);
Value padded(Machine &machine, const Node &node, Value &x);
Value pixels_shuffled(Machine &machine, const Node &node, Value &x);

Value reduced(Machine &machine, const Node &node, Value &x);  // mean, sum, norm, amax, amin
Value group_normed(Machine &machine, const Node &node, Value &x);
Value layer_normed(Machine &machine, const Node &node, Value &x);
Value softmax(Machine &machine, const Node &node, Value &x, bool logarithm);
Value interpolated(Machine &machine, const Node &node, Value &x);
Value interpolated_like(Machine &machine, const Node &node, Value &x, const Value &like);

}  // namespace sparsepath::embedded
