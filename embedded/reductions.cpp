// Means, norms and softmax along axes.
#include <algorithm>
#include <cmath>

#include "operations.h"

namespace sparsepath::embedded {

Value reduced(Machine &machine, const Node &node, Value &x) {
    const bool largest = node.op == "amax", least = node.op == "amin", length = node.op == "norm";
    std::vector<bool> gone(x.shape.size(), false);
    const auto dims = node.attributes.integers("dim");
    for (int64_t dim : dims)
        if (!gone.empty()) gone[x.axis(dim)] = true;
    if (dims.empty()) gone.assign(gone.size(), true);  // torch's way to say all
    Shape kept = x.shape, shape;
    int64_t share = 1;
    for (size_t k = 0; k < kept.size(); k++) {
        if (gone[k]) share *= kept[k], kept[k] = 1;
        if (!gone[k] || node.attributes.flag("keepdim", false)) shape.push_back(kept[k]);
    }
    Value y = machine.fresh(shape);
    if ((largest || least) && !share) throw BadInput("there is no largest of no numbers");
    std::vector<double> found(y.count(), largest ? -INFINITY : least ? INFINITY : 0.0);
    const float *from = machine.plain(x);
    std::vector<int64_t> at(x.shape.size(), 0);
    const uint64_t count = x.count();
    for (uint64_t k = 0; k < count; k++) {
        int64_t place = 0;
        for (size_t axis = 0; axis < at.size(); axis++)
            place = place * kept[axis] + (gone[axis] ? 0 : at[axis]);
        double &now = found[place];
        if (largest || least)
            now = std::isnan(now) || (largest ? from[k] <= now : from[k] >= now) ? now : from[k];
        else
            now += length ? double(from[k]) * from[k] : from[k];
        for (size_t axis = at.size(); axis-- > 0 && ++at[axis] == x.shape[axis];) at[axis] = 0;
    }
    const double by = node.op == "mean" ? double(share) : 1;
    for (size_t k = 0; k < found.size(); k++)
        y.plain.get()[k] = float(length ? std::sqrt(found[k]) : found[k] / by);
    return y;
}

Value softmax(Machine &machine, const Node &node, Value &x, bool logarithm) {
    const int64_t axis = x.axis(node.attributes.integer("dim"));
    Value y = machine.fresh(x.shape);
    const float *from = machine.plain(x);
    const bool scalar = x.shape.empty();
    const int64_t length = scalar ? 1 : x.shape[axis];
    const int64_t inner = scalar ? 1 : int64_t(elements({x.shape.begin() + axis + 1, x.shape.end()}));
    const int64_t outer = length && inner ? int64_t(x.count()) / (length * inner) : 0;
    for (int64_t line = 0; line < outer * inner; line++) {
        const int64_t first = line / inner * length * inner + line % inner;
        float most = -INFINITY;
        for (int64_t k = 0; k < length; k++) most = std::max(most, from[first + k * inner]);
        double sum = 0;
        for (int64_t k = 0; k < length; k++) sum += std::exp(double(from[first + k * inner]) - most);
        for (int64_t k = 0; k < length; k++) {
            const double power = double(from[first + k * inner]) - most;
            y.plain.get()[first + k * inner] =
                float(logarithm ? power - std::log(sum) : std::exp(power) / sum);
        }
    }
    return y;
}

namespace {

// Bring each run of `length` numbers to mean 0 and variance 1. The number at `place` of its run has the
// weight at (run % runs * length + place) / share: `runs` of them have weights of their own.
Value normed(Machine &machine, const Node &node, Value &x, int64_t length, int64_t runs, int64_t share) {
    const Tensor *weight = node.find("weight"), *bias = node.find("bias");
    const double eps = node.attributes.number("eps", 0);
    Value y = machine.fresh(x.shape);
    const float *from = machine.plain(x);
    float *to = y.plain.get();
    const int64_t count = int64_t(x.count());
    for (int64_t first = 0, run = 0; first < count; first += length, run++) {
        double sum = 0, squares = 0;
        for (int64_t k = 0; k < length; k++) sum += from[first + k];
        const double mean = sum / double(length);
        for (int64_t k = 0; k < length; k++) squares += (from[first + k] - mean) * (from[first + k] - mean);
        const double by = 1 / std::sqrt(squares / double(length) + eps);
        for (int64_t k = 0; k < length; k++) {
            const size_t place = size_t((run % runs * length + k) / share);
            const double own = (from[first + k] - mean) * by;
            to[first + k] = float(own * (weight ? weight->data[place] : 1.0) + (bias ? bias->data[place] : 0.0));
        }
    }
    return y;
}

// Refuse an array whose numbers are not as many as there are places for them.
void check_count(const Node &node, const char *key, int64_t count) {
    const Tensor *array = node.find(key);
    if (array && int64_t(array->data.size()) != count)
        throw BadInput(shown(node.name) + " has a " + key + " of " + std::to_string(array->data.size()) +
                       " numbers for " + std::to_string(count));
}

}  // namespace

Value group_normed(Machine &machine, const Node &node, Value &x) {
    const int64_t groups = node.attributes.integer("num_groups");
    const int64_t channels = x.shape.size() < 2 ? 0 : x.shape[1];
    if (groups < 1 || channels < 1 || channels % groups)
        throw BadInput(shown(node.name) + " has " + std::to_string(groups) + " groups for " +
                       std::to_string(channels) + " channels");
    check_count(node, "weight", channels);
    check_count(node, "bias", channels);
    const int64_t pixels = int64_t(elements({x.shape.begin() + 2, x.shape.end()}));
    return normed(machine, node, x, channels / groups * pixels, groups, pixels);
}

Value layer_normed(Machine &machine, const Node &node, Value &x) {
    const auto wanted = node.attributes.integers("normalized_shape");
    const bool fits = !wanted.empty() && wanted.size() <= x.shape.size() &&
                      std::equal(wanted.rbegin(), wanted.rend(), x.shape.rbegin());
    if (!fits) throw BadInput(shown(node.name) + " is given another shape than it normalises");
    const int64_t length = int64_t(elements({wanted.begin(), wanted.end()}));
    check_count(node, "weight", length);
    check_count(node, "bias", length);
    return normed(machine, node, x, length, 1, 1);
}

}  // namespace sparsepath::embedded
