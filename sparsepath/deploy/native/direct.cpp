// Convolution of any kernel, stride, dilation, padding and grouping by its definition: a sparse product
// with a panel that holds, for P output pixels, every input pixel that a kept weight reads.
//
// A column of the matrix is a (channel, tap) pair; 1x1 convolution is the case of one tap. Columns come
// in sets whose panel fits into the first cache; their products add up.
#include "families.h"
#include "multiply.h"

namespace sparsepath {
namespace {

class Direct {
  public:
    Direct(const Bench &bench, const sp_weights &weights, int panel, const View &source,
           const View &target, const Finish &finish)
        : P(panel), bench_(bench), weights_(weights), source_(source), target_(target), finish_(finish),
          positions_(positions(target.layout)),
          total_(vectors(target.layout, bench.batch) * positions_),
          windows_(source.layout, target.layout, weights.spec.kernel, weights.spec.stride,
                   weights.spec.padding, weights.spec.dilation) {}

    void run() {
        const int panels = divide_up(total_, P), threads = bench_.team.threads();
        const int filters = weights_.spec.out_channels;
        if (panels >= 2 * threads || threads == 1) {
            const size_t each = scratch_floats(weights_, P);
            bench_.team.each(panels, [&](int panel, int thread) {
                float *scratch = bench_.workspace + thread * each;
                for (const Steps &set : weights_.sets) {
                    fill(panel, set, scratch, 0, int(set.columns.size()));
                    multiply_blocks(panel, set, scratch, 0, int(set.blocks.size()));
                }
                if (!side_by_side(panel)) empty(panel, scratch, 0, filters);
            });
            return;
        }
        for (int panel = 0; panel < panels; panel++) {  // too few to share out: share out their parts
            float *scratch = bench_.workspace;
            for (const Steps &set : weights_.sets) {
                bench_.team.each(threads, [&](int part, int) {
                    const Range range(int(set.columns.size()), part, threads);
                    fill(panel, set, scratch, range.first, range.last);
                });
                bench_.team.each(threads, [&](int part, int) {
                    const Range range(int(set.blocks.size()), part, threads);
                    multiply_blocks(panel, set, scratch, range.first, range.last);
                });
            }
            if (!side_by_side(panel)) empty(panel, scratch, 0, filters);
        }
    }

  private:
    const int P;  // output pixels in a panel
    Bench bench_;
    const sp_weights &weights_;
    View source_, target_;
    Finish finish_;
    int positions_, total_;
    Windows windows_;

    const Reach &reach(int position, int tap) const {
        return windows_.reach[size_t(position) * windows_.taps + tap];
    }

    float *products(float *scratch) const {
        return scratch + scratch_floats(weights_, P) - product_floats(weights_, P);
    }

    // The panel's P output pixels lie side by side in one plane.
    bool side_by_side(int panel) const {
        const int last = panel * P + P - 1;
        return last < total_ && panel * P / positions_ == last / positions_;
    }

    // And so do their inputs of one tap.
    bool side_by_side(int panel, int tap) const {
        const int position = panel * P % positions_, offset = reach(position, tap).offset;
        for (int p = 0; p < P; p++) {
            const Reach &other = reach(position + p, tap);
            if (other.halo != Reach::PLAIN || other.offset != offset + p * LANES) return false;
        }
        return true;
    }

    void fill(int panel, const Steps &set, float *scratch, int first, int last) const {
        const int item = panel * P, here = std::min(P, total_ - item);
        bool run[MOST_TAPS] = {};
        for (int tap = 0; side_by_side(panel) && tap < std::min(windows_.taps, MOST_TAPS); tap++)
            run[tap] = side_by_side(panel, tap);
        if (last == int(set.columns.size()))  // behind the last column: zeros
            std::memset(scratch + size_t(last) * P * LANES, 0, sizeof(float) * P * LANES);
        for (int k = first; k < last; k++) {
            const int channel = set.columns[k] / windows_.taps, tap = set.columns[k] % windows_.taps;
            float *out = scratch + size_t(k) * P * LANES;
            if (tap < MOST_TAPS && run[tap]) {
                const float *in =
                    source_.at(item / positions_, channel) + reach(item % positions_, tap).offset;
                for (int q = 0; q < P * PARTS; q++) store(out + q * WIDTH, load(in + q * WIDTH));
                continue;
            }
            for (int p = 0; p < here; p++) {
                const int v = (item + p) / positions_, position = (item + p) % positions_;
                const float *plane = source_.at(v, channel);
                for (int part = 0; part < PARTS; part++)
                    store(out + p * LANES + part * WIDTH,
                          load(plane, reach(position, tap), windows_.halos.data(), part));
            }
        }
    }

    // Products of the last columns go straight to the target if they can.
    void multiply_blocks(int panel, const Steps &set, float *scratch, int first, int last) const {
        if (first == last) return;
        float *products = this->products(scratch);
        const float *before = &set == &weights_.sets.front() ? nullptr : products;
        if (&set != &weights_.sets.back() || !side_by_side(panel)) {
            multiply(P, {&set, 0, first, last, scratch, before, products, size_t(P) * LANES, nullptr, nullptr, 0});
            return;
        }
        const int item = panel * P;
        const Ending ending{weights_.bias.data(), finish_.lower, finish_.upper, weights_.spec.out_channels};
        float *out = target_.at(item / positions_, 0) + size_t(item % positions_) * LANES;
        multiply(P, {&set, 0, first, last, scratch, before, out, target_.plane, &ending, nullptr, 0});
    }

    // Products that lie elsewhere are brought to the target one by one.
    void empty(int panel, float *scratch, int first, int last) const {
        const int item = panel * P, here = std::min(P, total_ - item);
        const vec lower = all(finish_.lower), upper = all(finish_.upper);
        for (int k = first; k < last; k++)
            for (int p = 0; p < here; p++) {
                const float *in = products(scratch) + (size_t(k) * P + p) * LANES;
                float *out = target_.at((item + p) / positions_, k) +
                             size_t((item + p) % positions_) * LANES;
                SP_UNROLL for (int part = 0; part < PARTS; part++)
                    store(out + part * WIDTH,
                          clamp(load(in + part * WIDTH) + weights_.bias[k], lower, upper));
            }
    }

    static constexpr int MOST_TAPS = 64;  // beyond, pixels are fetched one by one
};

}  // namespace

void direct(const Bench &bench, const sp_weights &weights, int panel, const View &source,
            const View &target, const Finish &finish) {
    Direct(bench, weights, panel, source, target, finish).run();
}

}  // namespace sparsepath
