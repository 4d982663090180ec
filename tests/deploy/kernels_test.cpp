// The kernels against plain loops in double precision, on random shapes, in buffers of exactly the
// size that is asked for: to be run under sanitizers and emulators.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "sparsepath.h"

namespace {

std::mt19937 dice(1);
int roll(int low, int high) { return std::uniform_int_distribution<int>(low, high)(dice); }
float normal() { return std::normal_distribution<float>()(dice); }
std::vector<float> normals(size_t count) {
    std::vector<float> values(count);
    for (float &value : values) value = normal();
    return values;
}

int divide_up(int a, int b) { return (a + b - 1) / b; }

// Memory aligned to a cache line, not a byte longer than asked for.
struct Buffer {
    float *data;
    explicit Buffer(size_t floats)
        : data(static_cast<float *>(aligned_alloc(64, std::max<size_t>(64, (floats * 4 + 63) / 64 * 64)))) {}
    ~Buffer() { free(data); }
    Buffer(const Buffer &) = delete;
};

sp_layout layout_of(int height, int width, int grid, int stride_y = 1, int stride_x = 1) {
    const int g = grid ? grid : 1;  // tiles that a stride divides
    return {height, width, grid, divide_up(divide_up(height, g), stride_y) * stride_y,
            divide_up(divide_up(width, g), stride_x) * stride_x};
}
size_t floats_of(const sp_map &map, int batch) {
    const sp_layout &l = map.layout;
    if (l.grid == 0) return size_t(batch) * map.total * l.height * l.width;
    return size_t(divide_up(batch * l.grid * l.grid, 16)) * map.total * l.tile_height * l.tile_width * 16;
}
sp_map map_of(int slot, int channels, sp_layout layout) { return {slot, 0, channels, channels, layout}; }

sp_call call_of(int kind, const sp_map &source, const sp_map &target) {
    const float infinity = std::numeric_limits<float>::infinity();
    sp_call call{};
    call.kind = kind, call.pool = 1, call.source = source, call.other = source, call.target = target;
    for (int d = 0; d < 2; d++) call.window[d] = call.stride[d] = 1;
    call.lower = -infinity, call.upper = infinity;
    return call;
}

// Runs the calls on one input; slot 0 is the input, the last slot the output.
std::vector<float> run(const std::vector<sp_call> &calls, const std::vector<float> &input, int batch) {
    std::vector<Buffer *> owned;
    std::vector<float *> slots(1, const_cast<float *>(input.data()));
    std::vector<float> output(floats_of(calls.back().target, batch));
    for (size_t k = 0; k + 1 < calls.size(); k++) {
        owned.push_back(new Buffer(floats_of(calls[k].target, batch)));
        slots.push_back(owned.back()->data);
    }
    slots.push_back(output.data());
    const int threads = roll(1, 3);
    sp_engine *engine = sp_engine_create(threads);
    const int count = static_cast<int>(calls.size());
    Buffer workspace(sp_workspace(calls.data(), count, batch, threads));
    if (!sp_run(engine, calls.data(), count, slots.data(), batch, workspace.data)) std::exit(1);
    sp_engine_free(engine);
    for (Buffer *buffer : owned) delete buffer;
    return output;
}

void check(const char *what, const std::vector<float> &found, const std::vector<double> &expected,
           double limit) {
    double largest = 1e-6, error = 0;
    for (double value : expected) largest = std::max(largest, std::abs(value));
    for (size_t k = 0; k < expected.size(); k++) error = std::max(error, std::abs(found[k] - expected[k]));
    if (!(error <= limit * largest) || found.size() != expected.size()) {
        std::printf("%s: an error of %g of the largest value, %zu values\n", what, error / largest, found.size());
        std::exit(1);
    }
}

// Windows over a plane: calls visit(y, x) for each pixel of window (oy, ox) that lies inside.
template <typename Visit>
void window(const int32_t *size, const int32_t *stride, const int32_t *padding, const int32_t *dilation,
            int height, int width, int oy, int ox, Visit visit) {
    for (int r = 0; r < size[0]; r++)
        for (int c = 0; c < size[1]; c++) {
            const int y = oy * stride[0] - padding[0] + r * dilation[0];
            const int x = ox * stride[1] - padding[1] + c * dilation[1];
            if (y >= 0 && y < height && x >= 0 && x < width) visit(y, x, r * size[1] + c);
        }
}

void test_convolution() {
    const int grids[] = {1, 2, 4}, method = roll(0, 4), grid = grids[roll(0, 2)];
    sp_conv_spec s{roll(1, 9), roll(1, 9), 1, {roll(1, 4), roll(1, 4)}, {roll(1, 2), roll(1, 2)},
                   {roll(0, 2), roll(0, 2)}, {roll(1, 2), roll(1, 2)}, method, 0, 2 * roll(0, 2)};
    if (method == SP_WINOGRAD2 || method == SP_WINOGRAD4)
        for (int d = 0; d < 2; d++) s.kernel[d] = 3, s.stride[d] = s.dilation[d] = 1;
    if (method == SP_WINOGRAD4 && roll(0, 2) == 0) s.kernel[roll(0, 1)] = 1;
    if (method == SP_DEPTHWISE) s.groups = s.in_channels, s.out_channels = s.in_channels * roll(1, 2);
    const bool small = roll(0, 1);  // so small that threads share out the parts of a panel
    const int most = small ? 8 : 17, batch = roll(1, small ? 3 : 18);
    const int height = roll(s.kernel[0] * 2, most), width = roll(s.kernel[1] * 2, most);
    int after[2];
    for (int d = 0; d < 2; d++)
        after[d] = ((d ? width : height) + 2 * s.padding[d] - s.dilation[d] * (s.kernel[d] - 1) - 1) / s.stride[d] + 1;

    const int in = s.in_channels / s.groups, taps = s.kernel[0] * s.kernel[1];
    std::vector<float> weight = normals(size_t(s.out_channels) * in * taps), bias = normals(s.out_channels);
    const double kept = roll(0, 4) / 4.0;
    for (int k = 0; k < s.out_channels * in; k++)
        if (std::uniform_real_distribution<double>()(dice) >= kept)
            for (int tap = 0; tap < taps; tap++) weight[size_t(k) * taps + tap] = 0;
    const std::vector<float> x = normals(size_t(batch) * s.in_channels * height * width);

    // Pooled by the kernel itself, where it can.
    const bool able = method == SP_DIRECT || (method != SP_DEPTHWISE && s.kernel[0] == 3 && s.kernel[1] == 3);
    const int pool = able && after[0] > 1 && after[1] > 1 ? roll(1, 2) : 1, pooled[] = {after[0] / pool, after[1] / pool};
    // Tiles so large that the result fits lane by lane.
    sp_layout to = layout_of(pooled[0], pooled[1], grid), from = to;
    for (int d = 0; d < 2; d++) {
        int &tile = d ? to.tile_width : to.tile_height;
        tile = std::max(tile, divide_up(divide_up(d ? width : height, grid), s.stride[d] * pool));
    }
    if (grid == 1) to = layout_of(pooled[0], pooled[1], 1);
    from = grid == 1 ? layout_of(height, width, 1)
                     : sp_layout{height, width, grid, to.tile_height * s.stride[0] * pool,
                                 to.tile_width * s.stride[1] * pool};
    sp_weights *packed = sp_pack_conv(&s, weight.data(), bias.data());
    sp_call conv = call_of(SP_CONV, map_of(1, s.in_channels, from), map_of(2, s.out_channels, to));
    conv.weights = packed, conv.lower = 0, conv.pool = pool;
    const int panels[] = {0, 1, 2, 3, 4};
    conv.panel = panels[roll(0, 4)];
    const auto y = run({call_of(SP_IMPORT, map_of(0, s.in_channels, layout_of(height, width, 0)), conv.source), conv,
                        call_of(SP_EXPORT, conv.target, map_of(3, s.out_channels, layout_of(pooled[0], pooled[1], 0)))},
                       x, batch);
    sp_weights_free(packed);

    std::vector<double> expected(size_t(batch) * s.out_channels * pooled[0] * pooled[1]);
    const int filters = s.out_channels / s.groups;
    for (int n = 0; n < batch; n++)
        for (int k = 0; k < s.out_channels; k++)
            for (int oy = 0; oy < pooled[0] * pool; oy++)
                for (int ox = 0; ox < pooled[1] * pool; ox++) {
                    double sum = bias[k];
                    for (int c = 0; c < in; c++) {
                        const float *plane = &x[(size_t(n) * s.in_channels + k / filters * in + c) * height * width];
                        window(s.kernel, s.stride, s.padding, s.dilation, height, width, oy, ox,
                               [&](int yy, int xx, int tap) {
                                   sum += double(plane[yy * width + xx]) * weight[(size_t(k) * in + c) * taps + tap];
                               });
                    }
                    double &most = expected[((size_t(n) * s.out_channels + k) * pooled[0] + oy / pool) * pooled[1] + ox / pool];
                    most = std::max(most, sum);  // never below the clamp's zero
                }
    check("convolution", y, expected, method == SP_WINOGRAD4 ? 1e-4 : 1e-5);
}

// A convolution, a 1x1 one behind it and a pool: as one call, or one after the other.
void test_chain() {
    const int grids[] = {1, 2, 4}, grid = grids[roll(0, 2)], height = 2 * roll(1, 7), width = 2 * roll(1, 7);
    const int batch = roll(1, 18), in = roll(1, 5), between = roll(1, 9), out = roll(1, 9);
    const std::vector<float> x = normals(size_t(batch) * in * height * width);
    const sp_conv_spec head{in, between, 1, {3, 3}, {1, 1}, {1, 1}, {1, 1}, SP_DIRECT, roll(0, 20), 0};
    const sp_conv_spec tail{between, out, 1, {1, 1}, {1, 1}, {0, 0}, {1, 1}, SP_DIRECT, roll(0, 4), 0};
    std::vector<float> first = normals(size_t(between) * in * 9), second = normals(size_t(out) * between);
    for (auto *weight : {&first, &second})
        for (float &w : *weight) w = roll(0, 1) ? w : 0;
    sp_weights *heads = sp_pack_conv(&head, first.data(), normals(between).data());
    sp_weights *tails = sp_pack_conv(&tail, second.data(), normals(out).data());

    sp_layout large = layout_of(height, width, grid, 2, 2), small = large, plain = layout_of(height / 2, width / 2, 0);
    small.height /= 2, small.width /= 2, small.tile_height /= 2, small.tile_width /= 2;
    const sp_map maps[] = {map_of(0, in, layout_of(height, width, 0)), map_of(1, in, large),
                           map_of(2, between, large), map_of(3, out, large), map_of(4, out, small)};
    sp_call a = call_of(SP_CONV, maps[1], maps[2]), b = call_of(SP_CONV, maps[2], maps[3]);
    a.weights = heads, b.weights = tails, a.lower = 0;
    sp_call pool = call_of(SP_MAX_POOL, maps[3], maps[4]);
    for (int d = 0; d < 2; d++) pool.window[d] = pool.stride[d] = 2;
    const sp_call enter = call_of(SP_IMPORT, maps[0], maps[1]);
    const auto apart = run({enter, a, b, pool, call_of(SP_EXPORT, maps[4], map_of(5, out, plain))}, x, batch);
    a.tails = 1, b.pool = 2, b.target = map_of(3, out, small);
    const auto together = run({enter, a, b, call_of(SP_EXPORT, b.target, map_of(4, out, plain))}, x, batch);
    sp_weights_free(heads);
    sp_weights_free(tails);
    check("chain", together, std::vector<double>(apart.begin(), apart.end()), 1e-5);
}

void test_pools_and_elementwise() {
    const bool wide = roll(0, 9) == 0;  // more windows and taps than are tabulated
    const int least = wide ? 28 : 2, most = wide ? 32 : 13, side = wide ? 31 : 3;
    const int grids[] = {1, 2, 4}, grid = grids[roll(0, 2)], height = roll(least, most), width = roll(least, most);
    const int batch = roll(1, wide ? 3 : 18), channels = roll(1, wide ? 2 : 5);
    const int kind = roll(0, 1) ? SP_MAX_POOL : SP_AVG_POOL;
    const std::vector<float> x = normals(size_t(batch) * channels * height * width);
    const std::vector<float> scale = normals(channels), shift = normals(channels);
    const sp_layout first = layout_of(height, width, grids[roll(0, 2)]), second = layout_of(height, width, grid);
    const sp_map maps[] = {map_of(0, channels, layout_of(height, width, 0)), map_of(1, channels, first),
                           map_of(2, channels, second), map_of(3, channels, second), map_of(4, channels, second),
                           map_of(5, channels, second), map_of(6, channels, layout_of(height, width, 0)),
                           map_of(6, channels, layout_of(1, 1, 0))};
    sp_call affine = call_of(SP_AFFINE, maps[2], maps[3]), add = call_of(SP_ADD, maps[3], maps[4]);
    affine.scale = scale.data(), affine.shift = shift.data();
    add.other = maps[2], add.lower = -1, add.upper = 2;
    sp_call pool = call_of(kind, maps[4], maps[5]);
    for (int d = 0; d < 2; d++) pool.window[d] = side, pool.padding[d] = side / 2;
    const std::vector<sp_call> begin = {call_of(SP_IMPORT, maps[0], maps[1]), call_of(SP_RELAYOUT, maps[1], maps[2]),
                                        affine, add, pool};
    auto exported = begin, averaged = begin;
    exported.push_back(call_of(SP_EXPORT, maps[5], maps[6]));
    averaged.push_back(call_of(SP_MEAN, maps[5], maps[7]));

    std::vector<double> sums(x.size()), expected, means;
    for (size_t k = 0; k < x.size(); k++) {
        const int c = int(k / (size_t(height) * width) % channels);
        sums[k] = std::min(2.0, std::max(-1.0, double(x[k]) * scale[c] + shift[c] + x[k]));
    }
    const int32_t one[2] = {1, 1};
    for (int plane = 0; plane < batch * channels; plane++) {
        means.push_back(0);
        for (int y = 0; y < height; y++)
            for (int xx = 0; xx < width; xx++) {
                double best = -1e30, sum = 0;
                int count = 0;
                window(pool.window, one, pool.padding, one, height, width, y, xx, [&](int r, int c, int) {
                    const double value = sums[(size_t(plane) * height + r) * width + c];
                    best = std::max(best, value), sum += value, count++;
                });
                expected.push_back(kind == SP_MAX_POOL ? best : sum / count);
                means.back() += expected.back() / (height * width);
            }
    }
    check("pool", run(exported, x, batch), expected, 1e-5);
    check("mean", run(averaged, x, batch), means, 1e-5);
}

void test_linear() {
    const int in = roll(0, 9) ? roll(1, 150) : roll(1000, 2100), out = roll(1, 20), batch = roll(1, 70);
    std::vector<float> weight = normals(size_t(out) * in), bias = normals(out), x = normals(size_t(batch) * in);
    for (float &w : weight) w = roll(0, 1) ? w : 0;
    sp_weights *packed = sp_pack_linear(out, in, weight.data(), bias.data(), roll(0, 1) ? SP_ROWS : SP_DIRECT);
    sp_call call = call_of(SP_LINEAR, map_of(0, in, layout_of(1, 1, 0)), map_of(1, out, layout_of(1, 1, 0)));
    call.weights = packed;
    const auto y = run({call}, x, batch);
    sp_weights_free(packed);
    std::vector<double> expected;
    for (int n = 0; n < batch; n++)
        for (int k = 0; k < out; k++) {
            expected.push_back(bias[k]);
            for (int c = 0; c < in; c++) expected.back() += double(x[size_t(n) * in + c]) * weight[size_t(k) * in + c];
        }
    check("linear", y, expected, 1e-5);
}

}  // namespace

int main(int count, char **arguments) {
    const int rounds = count > 1 ? std::atoi(arguments[1]) : 100;
    for (int k = 0; k < rounds; k++) {
        test_convolution();
        test_chain();
        test_pools_and_elementwise();
        test_linear();
    }
    std::printf("%d rounds of everything agree\n", rounds);
}
