// Sums of maps, and scales and shifts per channel, clamped; lane by lane, whatever the layout.
#include "families.h"

namespace sparsepath {

void add(const Bench &bench, const View &source, const View &other, const View &target,
         const Finish &finish) {
    const vec lower = all(finish.lower), upper = all(finish.upper);
    const int channels = target.channels;
    bench.team.each(vectors(target.layout, bench.batch) * channels, [&](int item, int) {
        const int v = item / channels, channel = item % channels;
        const float *a = source.at(v, channel), *b = other.at(v, channel);
        float *out = target.at(v, channel);
        for (size_t k = 0; k < target.plane; k += WIDTH)
            store(out + k, clamp(load(a + k) + load(b + k), lower, upper));
    });
}

void affine(const Bench &bench, const sp_call &call, const View &source, const View &target) {
    const vec lower = all(call.lower), upper = all(call.upper);
    const int channels = target.channels;
    bench.team.each(vectors(target.layout, bench.batch) * channels, [&](int item, int) {
        const int v = item / channels, channel = item % channels;
        const float scale = call.scale ? call.scale[channel] : 1.0f;
        const float shift = call.shift ? call.shift[channel] : 0.0f;
        const float *in = source.at(v, channel);
        float *out = target.at(v, channel);
        for (size_t k = 0; k < target.plane; k += WIDTH)
            store(out + k, clamp(load(in + k) * scale + shift, lower, upper));
    });
}

}  // namespace sparsepath
