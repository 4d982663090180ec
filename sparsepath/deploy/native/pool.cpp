// Max and average pooling over any window, and the mean of whole maps.
#include <limits>

#include "families.h"

namespace sparsepath {
namespace {

// One over the number of pixels that each lane averages, per position.
std::vector<float> shares(const Windows &windows, bool count_padding) {
    std::vector<float> share(windows.plain.size() * LANES);
    for (size_t position = 0; position < windows.plain.size(); position++)
        for (int lane = 0; lane < LANES; lane++) {
            int pixels = 0;
            for (int tap = 0; tap < windows.taps; tap++) {
                const Reach reach = windows.reach[position * windows.taps + tap];
                const bool inside = reach.halo == Reach::PLAIN ||
                                    (reach.halo >= 0 && windows.halos[reach.halo].valid[lane]);
                pixels += count_padding || inside;
            }
            share[position * LANES + lane] = pixels ? 1.0f / pixels : 0.0f;
        }
    return share;
}

}  // namespace

void pool(const Bench &bench, const sp_call &call, const View &source, const View &target) {
    const int32_t dense[2] = {1, 1};
    const Windows windows(source.layout, target.layout, call.window, call.stride, call.padding, dense);
    const bool maximal = call.kind == SP_MAX_POOL;
    const std::vector<float> share =
        maximal ? std::vector<float>() : shares(windows, call.count_padding);
    const float outside = maximal ? -std::numeric_limits<float>::infinity() : 0.0f;
    const int channels = target.channels;
    bench.team.each(vectors(target.layout, bench.batch) * channels, [&](int item, int) {
        const float *plane = source.at(item / channels, item % channels);
        float *out = target.at(item / channels, item % channels);
        for (size_t position = 0; position < windows.plain.size(); position++)
            for (int part = 0; part < PARTS; part++) {
                const Reach *reach = &windows.reach[position * windows.taps];
                vec result = load(plane, reach[0], windows.halos.data(), part, outside);
                for (int tap = 1; tap < windows.taps; tap++) {
                    const vec x = load(plane, reach[tap], windows.halos.data(), part, outside);
                    result = maximal ? maximum(result, x) : result + x;
                }
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
            vec sum[4] = {};
            for (size_t position = 0; position < pixels.reach.size(); position++)
                sum[position % 4] += load(plane, pixels.reach[position], pixels.halos.data(), part);
            store(lanes + part * WIDTH, (sum[0] + sum[1]) + (sum[2] + sum[3]));
        }
        for (int n = 0; n < per_vector && v * per_vector + n < bench.batch; n++) {
            float total = 0;
            for (int tile = 0; tile < tiles(l); tile++) total += lanes[n * tiles(l) + tile];
            target[size_t(v * per_vector + n) * channels + channel] = total * share;
        }
    });
}

}  // namespace sparsepath
