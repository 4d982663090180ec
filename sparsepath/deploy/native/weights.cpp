// From a layer's weights to its packed form.
#include "weights.h"

#include <algorithm>

namespace sparsepath {
namespace {

// The kernel transform of one dimension, G g: points 0, 1, -1, 2, -2 and infinity for F(4x4).
const double G4[6][3] = {{1 / 4., 0, 0},           {-1 / 6., -1 / 6., -1 / 6.}, {-1 / 6., 1 / 6., -1 / 6.},
                         {1 / 24., 1 / 12., 1 / 6.}, {1 / 24., -1 / 12., 1 / 6.}, {0, 0, 1}};
const double G2[4][3] = {{1, 0, 0}, {.5, .5, .5}, {.5, -.5, .5}, {0, 0, 1}};

const double G1[1][3] = {{1}};  // a dimension of one tap is left as it is

struct Transform {
    const double (*G)[3];
    int size;
};
Transform transform_of(int tile) {
    return tile == 4 ? Transform{G4, 6} : tile == 2 ? Transform{G2, 4} : Transform{G1, 1};
}

// G k G^T in double precision.
void transform_kernel(const sp_conv_spec &spec, const float *kernel, float *out) {
    const WinogradTile tile = winograd_tile(spec);
    const Transform down = transform_of(tile.height), across = transform_of(tile.width);
    for (int a = 0; a < down.size; a++)
        for (int b = 0; b < across.size; b++) {
            double sum = 0;
            for (int r = 0; r < spec.kernel[0]; r++)
                for (int c = 0; c < spec.kernel[1]; c++)
                    sum += down.G[a][r] * across.G[b][c] * kernel[r * spec.kernel[1] + c];
            out[a * across.size + b] = static_cast<float>(sum);
        }
}

Matrix winograd_matrix(const sp_conv_spec &spec, const float *weight) {
    const WinogradTile tile = winograd_tile(spec);
    const int in = spec.in_channels, all = taps(spec);
    return {spec.out_channels, in, tile.rows() * tile.columns(),
            [=](int row, int column) {
                const float *kernel = weight + (size_t(row) * in + column) * all;
                return std::any_of(kernel, kernel + all, [](float w) { return w != 0; });
            },
            [=](int row, int column, float *values) {
                transform_kernel(spec, weight + (size_t(row) * in + column) * all, values);
            },
            spec.out_channels, std::max(1, spec.woven)};
}

Matrix direct_matrix(const sp_conv_spec &spec, const float *weight) {
    const int all = taps(spec), in = spec.in_channels / spec.groups, out = spec.out_channels / spec.groups;
    auto place = [=](int row, int column) -> const float * {  // null: of another group
        const int channel = column / all - row / out * in;
        if (channel < 0 || channel >= in) return nullptr;
        return weight + (size_t(row) * in + channel) * all + column % all;
    };
    return {spec.out_channels, spec.in_channels * all, 1,
            [=](int row, int column) {
                const float *w = place(row, column);
                return w && *w != 0;
            },
            [=](int row, int column, float *values) { *values = *place(row, column); }, out, 1};
}

}  // namespace

sp_weights pack_conv(const sp_conv_spec &spec, const float *weight, const float *bias) {
    sp_weights packed;
    packed.spec = spec;
    if (!is_winograd(spec) || spec.kernel[0] != 3 || spec.kernel[1] != 3) packed.spec.woven = 0;
    if (bias)
        packed.bias.assign(bias, bias + spec.out_channels);
    else
        packed.bias.assign(spec.out_channels, 0.0f);
    if (spec.method == SP_DEPTHWISE)
        packed.depthwise.assign(weight, weight + size_t(spec.out_channels) * taps(spec));
    else if (spec.method == SP_ROWS)
        packed.rows = pack_rows(spec.out_channels, spec.in_channels * taps(spec), weight);
    else if (is_winograd(spec))
        packed.sets = pack(winograd_matrix(packed.spec, weight), MOST_PLACES);
    else
        packed.sets = pack(direct_matrix(spec, weight), spec.columns > 0 ? std::min(spec.columns, MOST_PLACES) : MOST_COLUMNS);
    return packed;
}

int panel_of(const sp_call &call, int batch) {
    const auto &weights = *static_cast<const sp_weights *>(call.weights);
    if (!is_winograd(weights.spec) && (&call)[call.tails].pool == 2) return 4;  // a square of pixels
    if (is_woven(weights)) return WOVEN_VECTORS / weights.spec.woven;
    const sp_layout &layout = call.target.layout;
    const WinogradTile tile = is_winograd(weights.spec) ? winograd_tile(weights.spec) : WinogradTile{1, 1};
    const int items = vectors(layout, batch) * divide_up(layout.tile_height * call.pool, tile.height) *
                      divide_up(layout.tile_width * call.pool, tile.width);
    // No panel holds vectors that are not there: whatever memory held before may be slow to multiply.
    if (call.panel && call.panel <= items) return call.panel;
    return items >= 4 ? 4 : items;
}

}  // namespace sparsepath
