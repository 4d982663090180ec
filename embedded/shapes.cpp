// Operations that move numbers and compute none.
#include <algorithm>

#include "operations.h"

namespace sparsepath::embedded {
namespace {

// A result whose number at each place comes from `source(place)`, a place in x, or is `otherwise` where
// that is negative. `at` counts the axes of the result.
template <typename Source>
Value gathered(Machine &machine, Value &x, const Shape &shape, const Source &source, float otherwise = 0) {
    Value y = machine.fresh(shape);
    const float *from = machine.plain(x);
    std::vector<int64_t> at(shape.size(), 0);
    const uint64_t count = y.count();
    for (uint64_t k = 0; k < count; k++) {
        const int64_t place = source(at);
        y.plain.get()[k] = place < 0 ? otherwise : from[place];
        for (size_t axis = shape.size(); axis-- > 0 && ++at[axis] == shape[axis];) at[axis] = 0;
    }
    return y;
}

// How far one step along each axis goes in a plain tensor.
std::vector<int64_t> strides(const Shape &shape) {
    std::vector<int64_t> found(shape.size(), 1);
    for (size_t k = shape.size(); k-- > 1;) found[k - 1] = found[k] * shape[k];
    return found;
}

// One slice of an axis as Python reads it.
struct Slice {
    int64_t first, step, length;

    Slice(const Json &part, int64_t now) {
        if (part.list.size() != 3) throw BadInput("it picks by something else than slices");
        const auto bound = [&](const Json &json, int64_t otherwise) {
            if (json.is(Json::NOTHING)) return otherwise;
            const int64_t given = integer_of(json, "slices");
            return std::clamp<int64_t>(given < 0 ? given + now : given, 0, now);
        };
        first = bound(part.list[0], 0);
        const int64_t last = bound(part.list[1], now);
        step = part.list[2].is(Json::NOTHING) ? 1 : integer_of(part.list[2], "slices");
        if (step < 1) throw BadInput("its step makes no sense");
        length = std::max<int64_t>(0, (last - first + step - 1) / step);
    }
};

// Which pixel of an axis stands at a place beside it, by the modes of padding; -1 for none.
int64_t padded_pixel(const std::string &mode, int64_t at, int64_t length) {
    if (at >= 0 && at < length) return at;
    if (mode == "reflect") return at < 0 ? -at : 2 * (length - 1) - at;
    if (mode == "replicate") return at < 0 ? 0 : length - 1;
    if (mode == "circular") return at < 0 ? at + length : at - length;
    return -1;
}

// A shape of so many numbers, in which one length may be whatever is left.
Shape completed(Shape shape, uint64_t count) {
    int64_t open = -1;
    uint64_t known = 1;
    for (size_t k = 0; k < shape.size(); k++)
        if (shape[k] == -1 && open < 0)
            open = int64_t(k);
        else if (shape[k] < 0 || __builtin_mul_overflow(known, uint64_t(shape[k]), &known))
            throw BadInput("its shape makes no sense");
    if (open >= 0 ? !known || count % known : known != count)
        throw BadInput("its shape does not fit what it is given");
    if (open >= 0) shape[open] = int64_t(count / known);
    return shape;
}

}  // namespace

Value reshaped(Machine &machine, const Node &node, Value &x) {
    Shape shape = node.attributes.integers("shape");
    for (size_t k = 0; k < shape.size(); k++)
        if (shape[k] == 0) {
            if (k >= x.shape.size()) throw BadInput("its shape does not fit what it is given");
            shape[k] = x.shape[k];
        }
    return machine.viewed(x, completed(shape, x.count()));
}

Value unflattened(Machine &machine, const Node &node, Value &x) {
    const int64_t axis = x.axis(node.attributes.integer("dim", 0));
    const Shape sizes = completed(node.attributes.integers("sizes"), uint64_t(x.shape[axis]));
    Shape shape(x.shape.begin(), x.shape.begin() + axis);
    shape.insert(shape.end(), sizes.begin(), sizes.end());
    shape.insert(shape.end(), x.shape.begin() + axis + 1, x.shape.end());
    return machine.viewed(x, shape);
}

Value flattened(Machine &machine, const Node &node, Value &x) {
    const int64_t first = x.axis(node.attributes.integer("start_dim", 0));
    const int64_t last = x.axis(node.attributes.integer("end_dim", -1));
    if (first > last) throw BadInput("its axes are in the wrong order");
    if (x.shape.empty()) return machine.viewed(x, {1});
    Shape shape(x.shape.begin(), x.shape.begin() + first);
    shape.push_back(int64_t(elements({x.shape.begin() + first, x.shape.begin() + last + 1})));
    shape.insert(shape.end(), x.shape.begin() + last + 1, x.shape.end());
    return machine.viewed(x, shape);
}

Value permuted(Machine &machine, const std::vector<int64_t> &dims, Value &x) {
    const auto before = strides(x.shape);
    Shape shape;
    std::vector<int64_t> step, seen;
    for (int64_t dim : dims) {
        const int64_t axis = x.axis(dim);
        if (size_t(axis) >= x.shape.size() || std::find(seen.begin(), seen.end(), axis) != seen.end())
            throw BadInput("its axes make no sense");
        seen.push_back(axis);
        shape.push_back(x.shape[axis]);
        step.push_back(before[axis]);
    }
    if (shape.size() != x.shape.size()) throw BadInput("its axes make no sense");
    return gathered(machine, x, shape, [&](const std::vector<int64_t> &at) {
        int64_t place = 0;
        for (size_t k = 0; k < at.size(); k++) place += at[k] * step[k];
        return place;
    });
}

Value indexed(Machine &machine, const Node &node, Value &x) {
    const std::vector<Json> &parts =
        node.attributes.find("slices") ? node.attributes.find("slices")->list : std::vector<Json>();
    if (parts.size() > x.shape.size()) throw BadInput("it slices more axes than there are");
    const auto before = strides(x.shape);
    Shape shape = x.shape;
    std::vector<int64_t> step = before;
    int64_t first = 0;
    for (size_t k = 0; k < parts.size(); k++) {
        const Slice slice(parts[k], x.shape[k]);
        shape[k] = slice.length;
        step[k] = before[k] * slice.step;
        first += before[k] * slice.first;
    }
    return gathered(machine, x, shape, [&](const std::vector<int64_t> &at) {
        int64_t place = first;
        for (size_t k = 0; k < at.size(); k++) place += at[k] * step[k];
        return place;
    });
}

Value concatenated(Machine &machine, const Node &node, const Inputs &in) {
    const int64_t axis = in[0]->axis(node.attributes.integer("dim"));
    Shape shape = in[0]->shape;
    if (shape.empty()) throw BadInput("it joins numbers");
    shape[axis] = 0;
    for (const Value *part : in) {
        Shape own = part->shape;
        if (own.size() != shape.size()) throw BadInput("the shapes of its inputs do not fit together");
        const int64_t length = own[axis];
        own[axis] = shape[axis];
        if (own != shape) throw BadInput("the shapes of its inputs do not fit together");
        shape[axis] += length;
    }
    Value y = machine.fresh(shape);
    const int64_t outer = int64_t(elements({shape.begin(), shape.begin() + axis}));
    const int64_t row = int64_t(elements({shape.begin() + axis, shape.end()}));
    int64_t first = 0;
    for (Value *part : in) {
        const int64_t own = int64_t(elements({part->shape.begin() + axis, part->shape.end()}));
        const float *from = machine.plain(*part);
        for (int64_t k = 0; k < outer; k++)
            std::copy_n(from + k * own, own, y.plain.get() + k * row + first);
        first += own;
    }
    return y;
}

Value padded(Machine &machine, const Node &node, Value &x) {
    const auto room = node.attributes.integers("pad");
    const std::string mode = node.attributes.text("mode", "constant");
    if (room.size() % 2 || room.size() / 2 > x.shape.size())
        throw BadInput("it pads more axes than there are");
    if (mode != "constant" && mode != "reflect" && mode != "replicate" && mode != "circular")
        throw BadInput("it pads in the unknown way " + shown(mode));
    Shape shape = x.shape;
    std::vector<int64_t> before(shape.size(), 0);
    for (size_t k = 0; k < room.size() / 2; k++) {
        const size_t axis = shape.size() - 1 - k;
        const int64_t low = room[2 * k], high = room[2 * k + 1],
                      most = mode == "reflect" ? shape[axis] - 1 : shape[axis];
        const bool far = mode == "reflect" || mode == "circular" ? std::max(low, high) > most
                                                                 : mode == "replicate" && !shape[axis];
        before[axis] = low;
        shape[axis] += low + high;
        if (far || shape[axis] < 0) throw BadInput("it pads by more than there is");
    }
    const auto step = strides(x.shape);
    const auto value = float(node.attributes.number("value", 0));
    return gathered(
        machine, x, shape,
        [&](const std::vector<int64_t> &at) {
            int64_t place = 0;
            for (size_t k = 0; k < at.size(); k++) {
                const int64_t pixel = padded_pixel(mode, at[k] - before[k], x.shape[k]);
                if (pixel < 0) return int64_t(-1);
                place += pixel * step[k];
            }
            return place;
        },
        value);
}

Value pixels_shuffled(Machine &machine, const Node &node, Value &x) {
    const int64_t r = node.attributes.integer("upscale_factor");
    const size_t rank = x.shape.size();
    if (rank < 3 || r < 1 || r > 1 << 10 || x.shape[rank - 3] % (r * r))
        throw BadInput("its channels do not divide by its factor");
    Shape shape = x.shape;
    shape[rank - 3] /= r * r, shape[rank - 2] *= r, shape[rank - 1] *= r;
    const auto step = strides(x.shape);
    return gathered(machine, x, shape, [&](const std::vector<int64_t> &at) {
        int64_t place = 0;
        for (size_t k = 0; k + 3 < rank; k++) place += at[k] * step[k];
        const int64_t y = at[rank - 2], column = at[rank - 1];
        const int64_t channel = at[rank - 3] * r * r + y % r * r + column % r;
        return place + channel * step[rank - 3] + y / r * step[rank - 2] + column / r;
    });
}

}  // namespace sparsepath::embedded
