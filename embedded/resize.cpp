// Images of another size: axis by axis, each pixel of the result a few weighted ones of the source.
#include <algorithm>
#include <cmath>

#include "operations.h"
#include "windows.h"

namespace sparsepath::embedded {
namespace {

struct Source {
    int64_t pixel;
    double weight;
};
using Sources = std::vector<std::vector<Source>>;  // for each pixel of an axis of the result

// Where a pixel of the result stands in the source (torch's rules).
double place_of(int64_t at, double scale, bool corners) {
    return corners ? double(at) * scale : (double(at) + 0.5) * scale - 0.5;
}

Sources sources(const std::string &mode, int64_t in, int64_t out, double scale, bool corners) {
    Sources found(out);
    const auto inside = [in](int64_t pixel) { return std::clamp<int64_t>(pixel, 0, in - 1); };
    for (int64_t k = 0; k < out; k++) {
        if (mode == "nearest" || mode == "nearest-exact") {
            const double shift = mode == "nearest" ? 0 : 0.5;
            // In float32, as torch has it: which of two pixels is nearest may hang on that.
            found[k] = {{inside(int64_t(std::floor((float(k) + float(shift)) * float(scale)))), 1}};
        } else if (mode == "bicubic") {
            const double at = place_of(k, scale, corners), t = at - std::floor(at), a = -0.75;
            const auto near = [a](double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
            const auto far = [a](double x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
            const auto first = int64_t(std::floor(at));
            const double weights[4] = {far(t + 1), near(t), near(1 - t), far(2 - t)};
            for (int tap = 0; tap < 4; tap++) found[k].push_back({inside(first - 1 + tap), weights[tap]});
        } else {
            const double at = std::max(0.0, place_of(k, scale, corners));
            const int64_t first = inside(int64_t(at));
            const double t = std::clamp(at - double(first), 0.0, 1.0);
            found[k] = {{first, 1 - t}, {inside(first + 1), t}};
        }
    }
    return found;
}

// One axis replaced: x is (outer, in, inner).
Value along(Machine &machine, Value &x, size_t axis, const Sources &found) {
    Shape shape = x.shape;
    const int64_t in = shape[axis], out = int64_t(found.size());
    shape[axis] = out;
    Value y = machine.fresh(shape);
    const float *from = machine.plain(x);
    const int64_t outer = int64_t(elements({shape.begin(), shape.begin() + axis}));
    const int64_t inner = int64_t(elements({shape.begin() + axis + 1, shape.end()}));
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < out; k++)
            for (int64_t i = 0; i < inner; i++) {
                double sum = 0;
                for (const Source &source : found[k])
                    sum += source.weight * from[(o * in + source.pixel) * inner + i];
                y.plain.get()[(o * out + k) * inner + i] = float(sum);
            }
    return y;
}

// One number for each axis, of a list or for all.
std::vector<double> numbers(const Json &json, size_t dimensions, const char *what) {
    std::vector<double> found;
    for (const Json &one : json.list) found.push_back(number_of(one, what));
    if (!json.is(Json::LIST)) found.assign(dimensions, number_of(json, what));
    if (found.size() != dimensions)
        throw BadInput(std::string("its ") + what + " has not one number for each axis");
    for (double x : found)
        if (!(x > 0 && x < 1 << 20)) throw BadInput(std::string("its ") + what + " makes no sense");
    return found;
}

// How an image is resized, if this program knows it.
std::string mode_of(const Attributes &given, const Value &x) {
    const std::string mode = given.text("mode", "nearest");
    const size_t dimensions = x.shape.size() < 3 ? 0 : x.shape.size() - 2;
    const std::string smooth[] = {"linear", "bilinear", "trilinear"};
    const bool linear = dimensions >= 1 && dimensions <= 3 && mode == smooth[dimensions - 1];
    const bool known = linear || mode == "nearest" || mode == "nearest-exact" || mode == "area" ||
                       (mode == "bicubic" && dimensions == 2);
    if (!known || dimensions < 1 || dimensions > 3 || given.flag("antialias", false))
        throw BadInput("it resizes in a way that this program does not know: " + shown(mode));
    return mode;
}

// The images in this size; a factor is what their sides were multiplied by, where that is to count.
Value resized(Machine &machine, Value &x, const std::string &mode, const std::vector<int64_t> &size,
              const std::vector<double> &factors, bool corners) {
    for (size_t k = 0; k < size.size(); k++)
        if (x.shape[k + 2] < 1 || size[k] < 1 || size[k] > 1 << 20) throw BadInput("its size makes no sense");
    if (mode == "area") return adaptively_pooled(machine, x, size, false);
    Value y = x;
    for (size_t k = 0; k < size.size(); k++) {
        const int64_t in = x.shape[k + 2], out = size[k];
        const double scale = corners           ? (out > 1 ? double(in - 1) / double(out - 1) : 0)
                             : factors.empty() ? double(in) / double(out)
                                               : 1 / factors[k];
        y = along(machine, y, k + 2, sources(mode, in, out, scale, corners));
    }
    return y;
}

}  // namespace

Value interpolated(Machine &machine, const Node &node, Value &x) {
    const Attributes &given = node.attributes;
    const std::string mode = mode_of(given, x);
    const size_t dimensions = x.shape.size() - 2;
    const Json *size = given.find("size"), *factor = given.find("scale_factor");
    if (!size == !factor) throw BadInput("it needs either a size or a scale_factor");
    const auto wanted = numbers(size ? *size : *factor, dimensions, size ? "size" : "scale_factor");
    const bool anew = given.flag("recompute_scale_factor", false);
    std::vector<int64_t> lengths;
    for (size_t k = 0; k < dimensions; k++)
        lengths.push_back(int64_t(std::floor(size ? wanted[k] : double(x.shape[k + 2]) * wanted[k])));
    const auto factors = factor && !anew ? wanted : std::vector<double>();
    return resized(machine, x, mode, lengths, factors, given.flag("align_corners", false));
}

Value interpolated_like(Machine &machine, const Node &node, Value &x, const Value &like) {
    const std::string mode = mode_of(node.attributes, x);
    if (like.shape.size() != x.shape.size()) throw BadInput("its images have not as many axes");
    const std::vector<int64_t> size(like.shape.begin() + 2, like.shape.end());
    return resized(machine, x, mode, size, {}, node.attributes.flag("align_corners", false));
}

}  // namespace sparsepath::embedded
