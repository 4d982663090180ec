// One panel of pixels through one 1x1 convolution after the other.
#include "chain.h"

#include "multiply.h"

namespace sparsepath {
namespace {

const sp_weights &weights_of(const sp_call &call) { return *static_cast<const sp_weights *>(call.weights); }

// The sizes of the three parts of a chain's memory: the panel of a set of columns, and two buffers that
// take turns to hold a layer's products and the next one's maps.
struct Sizes {
    size_t panel = 0, products = 0;
    Sizes(const sp_call *first, int count, int P) {
        for (int k = 0; k < count; k++) {
            for (const Steps &set : weights_of(first[k]).sets) panel = std::max(panel, panel_floats(set, P));
            products = std::max(products, product_floats(weights_of(first[k]), P));
        }
    }
};

}  // namespace

size_t Chain::floats(const sp_call &head, int P) {
    const Sizes sizes(&head + 1, head.tails, P);
    return sizes.panel + 2 * sizes.products;
}

const float *Chain::run(const float *maps, float *scratch, float *out, size_t stride, int parts) const {
    const Sizes sizes(first_, count_, P);
    const size_t line = size_t(P) * LANES;
    for (int k = 0; k < count_; k++) {
        const sp_weights &weights = weights_of(first_[k]);
        const Ending ending{weights.bias.data(), first_[k].lower, first_[k].upper, weights.spec.out_channels,
                            out && first_[k].pool == 2};
        float *products = scratch + sizes.panel + k % 2 * sizes.products;
        for (const Steps &set : weights.sets) {
            for (size_t column = 0; column < set.columns.size(); column++)
                std::memcpy(scratch + column * line, maps + set.columns[column] * line, line * sizeof(float));
            const bool first = &set == &weights.sets.front(), last = &set == &weights.sets.back();
            const bool leaves = last && out && k == count_ - 1;
            team_.each(parts, [&](int part, int) {
                const Range range(int(set.blocks.size()), part, parts);
                if (range.first < range.last)
                    multiply(P, {&set, 0, 1, range.first, range.last, scratch, first ? nullptr : products,
                                 leaves ? out : products, leaves ? stride : line, last ? &ending : nullptr,
                                 0, nullptr, 0});
            });
        }
        maps = products;
    }
    return maps;
}

}  // namespace sparsepath
