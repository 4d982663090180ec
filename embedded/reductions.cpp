// Means and softmax along axes.
#include <algorithm>
#include <cmath>

#include "operations.h"

namespace sparsepath::embedded {

Value mean_over(Machine &machine, const Node &node, Value &x) {
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
    std::vector<double> sums(y.count(), 0.0);
    const float *from = machine.plain(x);
    std::vector<int64_t> at(x.shape.size(), 0);
    const uint64_t count = x.count();
    for (uint64_t k = 0; k < count; k++) {
        int64_t place = 0;
        for (size_t axis = 0; axis < at.size(); axis++)
            place = place * kept[axis] + (gone[axis] ? 0 : at[axis]);
        sums[place] += from[k];
        for (size_t axis = at.size(); axis-- > 0 && ++at[axis] == x.shape[axis];) at[axis] = 0;
    }
    for (size_t k = 0; k < sums.size(); k++) y.plain.get()[k] = float(sums[k] / double(share));
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

}  // namespace sparsepath::embedded
