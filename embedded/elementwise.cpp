// Operations number by number: functions of one value, arithmetic of two, scales and slopes by channel.
#include <algorithm>
#include <cmath>

#include "operations.h"

namespace sparsepath::embedded {
namespace {

// A function of every number. Maps stay in lanes: what lies beyond the image there, nobody reads.
template <typename Function> Value each(Machine &machine, Value &x, const Function &function) {
    const bool in_lanes = x.lanes && !x.plain;
    Value y = in_lanes ? machine.fresh_lanes(x.shape, x.layout) : machine.fresh(x.shape);
    const float *from = in_lanes ? x.lanes.get() : machine.plain(x);
    float *to = in_lanes ? y.lanes.get() : y.plain.get();
    const uint64_t count = in_lanes ? lane_floats(x.layout, x.shape[1], x.shape[0]) : x.count();
    for (uint64_t k = 0; k < count; k++) to[k] = function(from[k]);
    return y;
}

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }
float clamped(float x, float low, float high) {
    return x < low ? low : x > high ? high : x;
}  // keeps a NaN

float gelu_tanh(float x) { return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x))); }

// How far one step along each axis of a result goes in an input that is broadcast to it.
std::vector<int64_t> steps(const Shape &shape, const Shape &result) {
    std::vector<int64_t> found(result.size(), 0);
    int64_t step = 1;
    for (size_t k = 0; k < shape.size(); k++) {
        const int64_t length = shape[shape.size() - 1 - k];
        const int64_t wanted = result[result.size() - 1 - k];
        if (length != wanted && length != 1) throw BadInput("the shapes of its inputs do not fit together");
        found[result.size() - 1 - k] = length == 1 ? 0 : step;
        step *= length;
    }
    return found;
}

template <typename Function> Value both(Machine &machine, Value &x, Value &y, const Function &function) {
    Shape shape = x.shape.size() >= y.shape.size() ? x.shape : y.shape;
    const Shape &shorter = x.shape.size() >= y.shape.size() ? y.shape : x.shape;
    for (size_t k = 1; k <= shorter.size(); k++) {
        int64_t &length = shape[shape.size() - k];
        if (length == 1) length = shorter[shorter.size() - k];
    }
    const auto x_steps = steps(x.shape, shape), y_steps = steps(y.shape, shape);
    Value z = machine.fresh(shape);
    const float *a = machine.plain(x), *b = machine.plain(y);
    std::vector<int64_t> at(shape.size(), 0);
    const uint64_t count = z.count();
    for (uint64_t k = 0; k < count; k++) {
        z.plain.get()[k] = function(*a, *b);
        for (size_t axis = shape.size(); axis-- > 0;) {
            a += x_steps[axis], b += y_steps[axis];
            if (++at[axis] < shape[axis]) break;
            at[axis] = 0;
            a -= x_steps[axis] * shape[axis], b -= y_steps[axis] * shape[axis];
        }
    }
    return z;
}

template <typename Function>
Value combined(Machine &machine, const Node &node, const Inputs &in, const Function &function) {
    if (in.size() == 2) return both(machine, *in[0], *in[1], function);
    if (node.attributes.find("left")) {
        const auto left = float(node.attributes.number("left", 0));
        return each(machine, *in[0], [&](float x) { return function(left, x); });
    }
    const auto right = float(node.attributes.number("right", 0));
    return each(machine, *in[0], [&](float x) { return function(x, right); });
}

}  // namespace

Value elementwise(Machine &machine, const std::string &op, const Attributes &given, Value &x) {
    const auto with = [&](const auto &function) { return each(machine, x, function); };
    const auto number = [&](const char *key, double otherwise) {
        return float(given.number(key, otherwise));
    };
    if (op == "relu") return with([](float v) { return v < 0 ? 0 : v; });
    if (op == "relu6") return with([](float v) { return clamped(v, 0, 6); });
    if (op == "leaky_relu") {
        const float slope = number("negative_slope", 0.01);
        return with([=](float v) { return v > 0 ? v : v * slope; });
    }
    if (op == "elu") {
        const float alpha = number("alpha", 1);
        return with([=](float v) { return v > 0 ? v : alpha * std::expm1(v); });
    }
    if (op == "selu")
        return with([](float v) {
            return 1.0507009873554805f * (v > 0 ? v : 1.6732632423543772f * std::expm1(v));
        });
    if (op == "silu") return with([](float v) { return v * sigmoid(v); });
    if (op == "mish") return with([](float v) { return v * std::tanh(softplus(v)); });
    if (op == "gelu") {
        const std::string way = given.text("approximate", "none");
        if (way == "tanh") return with(gelu_tanh);
        if (way != "none") throw BadInput("it is approximated in an unknown way");
        return with([](float v) { return 0.5f * v * (1 + std::erf(v * 0.70710678118f)); });
    }
    if (op == "sigmoid") return with(sigmoid);
    if (op == "tanh") return with([](float v) { return std::tanh(v); });
    if (op == "hardswish") return with([](float v) { return v * clamped(v + 3, 0, 6) / 6; });
    if (op == "hardsigmoid") return with([](float v) { return clamped(v + 3, 0, 6) / 6; });
    if (op == "hardtanh") {
        const float low = number("min_val", -1), high = number("max_val", 1);
        return with([=](float v) { return clamped(v, low, high); });
    }
    if (op == "softplus") {
        const float beta = number("beta", 1), threshold = number("threshold", 20);
        return with(
            [=](float v) { return v * beta > threshold ? v : std::log1p(std::exp(v * beta)) / beta; });
    }
    if (op == "clamp") {
        // torch takes the upper bound where the two cross.
        const float low = number("min", -INFINITY), high = number("max", INFINITY);
        return with([=](float v) { return v != v ? v : std::min(std::max(v, low), high); });
    }
    if (op == "abs") return with([](float v) { return std::fabs(v); });
    if (op == "neg") return with([](float v) { return -v; });
    if (op == "exp") return with([](float v) { return std::exp(v); });
    if (op == "pow") {
        const float exponent = number("exponent", 1);
        if (exponent == 2) return with([](float v) { return v * v; });
        return with([=](float v) { return std::pow(v, exponent); });
    }
    if (op == "sqrt") return with([](float v) { return std::sqrt(v); });
    throw BadInput("it is an operation that this program does not know");
}

Value arithmetic(Machine &machine, const Node &node, const Inputs &in) {
    if (node.op == "add") return combined(machine, node, in, [](float a, float b) { return a + b; });
    if (node.op == "sub") return combined(machine, node, in, [](float a, float b) { return a - b; });
    if (node.op == "mul") return combined(machine, node, in, [](float a, float b) { return a * b; });
    return combined(machine, node, in, [](float a, float b) { return a / b; });
}

Value scaled(Machine &machine, Value &x, const float *scale, const float *shift) {
    Value y = machine.fresh(x.shape);
    const float *from = machine.plain(x);
    const int64_t channels = x.shape[1];
    const uint64_t planes = uint64_t(x.shape[0]) * channels, size = planes ? x.count() / planes : 0;
    for (uint64_t plane = 0; plane < planes; plane++)
        for (uint64_t k = plane * size; k < (plane + 1) * size; k++)
            y.plain.get()[k] = from[k] * scale[plane % channels] + shift[plane % channels];
    return y;
}

Value sloped(Machine &machine, const Node &node, Value &x) {
    const Tensor &slopes = node.array("weight");
    const int64_t channels = x.shape.size() < 2 ? 1 : x.shape[1], count = int64_t(x.count());
    const bool one = slopes.data.size() == 1;
    if (!one && int64_t(slopes.data.size()) != channels)
        throw BadInput(shown(node.name) + " has not one slope for each channel");
    const int64_t pixels = x.shape.size() < 2 ? 1 : int64_t(elements({x.shape.begin() + 2, x.shape.end()}));
    Value y = machine.fresh(x.shape);
    const float *from = machine.plain(x);
    for (int64_t k = 0; k < count; k++) {
        const float slope = slopes.data[one ? 0 : size_t(k / pixels % channels)];
        y.plain.get()[k] = from[k] > 0 ? from[k] : from[k] * slope;
    }
    return y;
}

}  // namespace sparsepath::embedded
