// Packed weights of a layer, and how much memory its kernels work in.
#pragma once
#include <algorithm>
#include <vector>

#include "layout.h"
#include "multiply.h"
#include "pack.h"
#include "rows.h"

struct sp_weights {
    sp_conv_spec spec;  // a linear layer is a 1x1 convolution of 1x1 maps
    std::vector<sparsepath::Steps> sets;
    std::vector<float> depthwise;  // (out, taps), of the depthwise method only
    std::vector<sparsepath::FilterBlock> rows;  // of SP_ROWS only
    std::vector<float> bias;
};

namespace sparsepath {

// A panel of so many columns and four vectors is about as large as the first cache. Smaller sets would
// stay in it for sure, but leave shorter runs of steps, which costs sparse layers more.
constexpr int MOST_COLUMNS = 200;

sp_weights pack_conv(const sp_conv_spec &spec, const float *weight, const float *bias);
// The panel of a convolution call, chosen here if the call leaves it open.
int panel_of(const sp_call &call, int batch);

// The pixels that Winograd makes at a time; a dimension in which the kernel has one tap counts 1.
struct WinogradTile {
    int height, width;
    int rows() const { return height == 1 ? 1 : height + 2; }
    int columns() const { return width == 1 ? 1 : width + 2; }
};
inline WinogradTile winograd_tile(const sp_conv_spec &spec) {
    const int side = spec.method == SP_WINOGRAD4 ? 4 : 2;
    return {spec.kernel[0] == 1 ? 1 : side, spec.kernel[1] == 1 ? 1 : side};
}
inline int taps(const sp_conv_spec &spec) { return spec.kernel[0] * spec.kernel[1]; }
inline bool is_woven(const sp_weights &w) { return w.spec.woven != 0; }
inline bool is_winograd(const sp_conv_spec &spec) {
    return spec.method == SP_WINOGRAD2 || spec.method == SP_WINOGRAD4;
}

// Vectors that lie a whole number of pages apart fall into the same few places of the cache: slices
// are kept an odd number of cache lines apart.
inline size_t odd_lines(size_t lines) { return (lines | 1) * LANES; }

// Floats of one panel of P vectors, and of its products.
inline size_t panel_floats(const Steps &steps, int P) { return odd_lines(steps.columns.size() * P); }
inline size_t product_floats(const sp_weights &w, int P) {
    return odd_lines(size_t(divide_up(w.spec.out_channels, 4)) * 4 * P);
}
// What Winograd multiplies at a time: a slice of P vectors, or slices woven together (winograd.cpp).
struct SlicesAtATime {
    int vectors;  // of one channel or filter
    int ahead;    // products lie so many slices before what they are made of
    size_t floats;

    SlicesAtATime(const sp_weights &w, int P)
        : vectors(P * w.sets[0].woven), ahead(is_woven(w) ? 1 : slices_together(P)),
          floats(std::max(panel_floats(w.sets[0], vectors), product_floats(w, vectors))) {}
};

// What one thread needs for one panel.
inline size_t scratch_floats(const sp_weights &w, int P) {
    if (is_winograd(w.spec)) {
        const WinogradTile tile = winograd_tile(w.spec);
        const SlicesAtATime slices(w, P);
        return (tile.rows() * tile.columns() / w.sets[0].woven + slices.ahead) * slices.floats;
    }
    if (w.spec.method == SP_ROWS) return size_t(w.spec.in_channels) * taps(w.spec) * LANES;
    if (w.sets.empty()) return 0;
    size_t panel = 0;
    for (const Steps &set : w.sets) panel = std::max(panel, panel_floats(set, P));
    return panel + product_floats(w, P);
}

}  // namespace sparsepath
