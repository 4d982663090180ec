// Max and average pooling over any window, and the mean of whole maps.
#include <algorithm>
#include <limits>

#include "families.h"

namespace sparsepath {
namespace {

// How many pixels of a window that begins at `first` are inside a map of this length.
int inside(int first, int window, int length) {
    return std::max(0, std::min(window, length - first) - std::max(0, -first));
}

// One over the number of pixels that each lane averages, per position.
std::vector<float> shares(const sp_call &call, const sp_layout &from, const sp_layout &to) {
    std::vector<float> share;
    share.reserve(size_t(positions(to)) * LANES);
    for (int y = 0; y < to.tile_height; y++)
        for (int x = 0; x < to.tile_width; x++)
            for (int lane = 0; lane < LANES; lane++) {
                const int tile = lane % tiles(from);
                const int top = tile / from.grid * from.tile_height + y * call.stride[0] - call.padding[0];
                const int left = tile % from.grid * from.tile_width + x * call.stride[1] - call.padding[1];
                const int pixels = call.count_padding ? call.window[0] * call.window[1]
                                                      : inside(top, call.window[0], from.height) *
                                                            inside(left, call.window[1], from.width);
                share.push_back(pixels ? 1.0f / pixels : 0.0f);
            }
    return share;
}

constexpr int BLOCK = 128;

// The sum of some vectors: that of its halves, or four sums side by side, none waiting for another. One
// sum that runs over a large map would grow so far beyond its pixels that their last digits were lost.
template <typename At> vec sum(int first, int last, const At &at) {
    if (last - first > BLOCK) {
        const int middle = first + (last - first) / 2;
        return sum(first, middle, at) + sum(middle, last, at);
    }
    vec part[4] = {};
    int k = first;
    for (; k + 4 <= last; k += 4)
        for (int j = 0; j < 4; j++) part[j] += at(k + j);
    for (; k < last; k++) part[0] += at(k);
    return (part[0] + part[1]) + (part[2] + part[3]);
}

// The largest of some vectors, or their sum: mostly of few, in a window.
template <typename At> SP_INLINE vec together(int count, bool maximal, const At &at) {
    if (!maximal && count > BLOCK) return sum(0, count, at);
    vec result = at(0);
    for (int k = 1; k < count; k++) {
        const vec x = at(k);
        result = maximal ? maximum(result, x) : result + x;
    }
    return result;
}

}  // namespace

void pool(const Bench &bench, const sp_call &call, const View &source, const View &target) {
    const int32_t dense[2] = {1, 1};
    const Windows windows(source.layout, target.layout, call.window, call.stride, call.padding, dense);
    const bool maximal = call.kind == SP_MAX_POOL;
    const std::vector<float> share =
        maximal ? std::vector<float>() : shares(call, source.layout, target.layout);
    const float outside = maximal ? -std::numeric_limits<float>::infinity() : 0.0f;
    const int channels = target.channels;
    bench.team.each(vectors(target.layout, bench.batch) * channels, [&](int item, int) {
        const float *plane = source.at(item / channels, item % channels);
        float *out = target.at(item / channels, item % channels);
        for (size_t position = 0; position < windows.plain.size(); position++)
            for (int part = 0; part < PARTS; part++) {
                vec result;
                if (windows.plain[position]) {
                    const float *first = plane + windows.reach(position, 0).offset + part * WIDTH;
                    result = together(windows.taps, maximal,
                                      [&](int tap) { return load(first + windows.ahead[tap]); });
                } else
                    result = together(windows.taps, maximal, [&](int tap) {
                        return load(plane, windows.reach(position, tap), windows.halos.data(), part, outside);
                    });
                const size_t at = position * LANES + part * WIDTH;
                store(out + at, maximal ? result : result * load_unaligned(&share[at]));
            }
    });
}

void mean(const Bench &bench, const View &source, float *target) {
    const sp_layout &l = source.layout;
    const int32_t one[2] = {1, 1}, none[2] = {0, 0};
    const Windows pixels(l, l, one, one, none, one);
    const int per_vector = images_per_vector(l), channels = source.channels;
    const float share = 1.0f / (float(l.height) * float(l.width));
    bench.team.each(vectors(l, bench.batch) * channels, [&](int item, int) {
        const int v = item / channels, channel = item % channels;
        const float *plane = source.at(v, channel);
        alignas(64) float lanes[LANES];
        for (int part = 0; part < PARTS; part++) {
            const vec total = sum(0, int(pixels.plain.size()), [&](int position) {
                return pixels.plain[position]
                           ? load(plane + size_t(position) * LANES + part * WIDTH)
                           : load(plane, pixels.reach(position, 0), pixels.halos.data(), part);
            });
            store(lanes + part * WIDTH, total);
        }
        for (int n = 0; n < per_vector && v * per_vector + n < bench.batch; n++) {
            float total = 0;
            for (int tile = 0; tile < tiles(l); tile++) total += lanes[n * tiles(l) + tile];
            target[size_t(v * per_vector + n) * channels + channel] = total * share;
        }
    });
}

}  // namespace sparsepath
