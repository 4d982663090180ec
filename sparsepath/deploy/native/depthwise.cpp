// Depthwise convolution: each filter reads one channel, so there is nothing to share between filters.
#include "families.h"

namespace sparsepath {

void depthwise(const Bench &bench, const sp_weights &weights, const View &source, const View &target,
               const Finish &finish) {
    const sp_conv_spec &s = weights.spec;
    const Windows windows(source.layout, target.layout, s.kernel, s.stride, s.padding, s.dilation);
    const int filters = s.out_channels, per_channel = filters / s.in_channels;
    const vec lower = all(finish.lower), upper = all(finish.upper);
    bench.team.each(vectors(target.layout, bench.batch) * filters, [&](int item, int) {
        const int v = item / filters, k = item % filters;
        // Taps that were pruned are left out: they must not turn an infinity into NaN.
        std::vector<int> kept;
        const float *w = &weights.depthwise[size_t(k) * windows.taps];
        for (int tap = 0; tap < windows.taps; tap++)
            if (w[tap] != 0) kept.push_back(tap);
        const float *plane = source.at(v, k / per_channel);
        float *out = target.at(v, k);
        for (size_t position = 0; position < windows.plain.size(); position++, out += LANES) {
            const float *first = plane + windows.reach(position, 0).offset;
            SP_UNROLL for (int part = 0; part < PARTS; part++) {
                vec sum = all(weights.bias[k]);
                if (windows.plain[position])
                    for (int tap : kept)
                        sum += w[tap] * load(first + windows.ahead[tap] + part * WIDTH);
                else
                    for (int tap : kept)
                        sum += w[tap] * load(plane, windows.reach(position, tap), windows.halos.data(), part);
                store(out + part * WIDTH, clamp(sum, lower, upper));
            }
        }
    });
}

}  // namespace sparsepath
