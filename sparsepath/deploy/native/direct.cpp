// Convolution of any kernel, stride, dilation, padding and grouping by its definition: a sparse product
// with a panel that holds, for P output pixels, every input pixel that a kept weight reads.
//
// A column of the matrix is a (channel, tap) pair; 1x1 convolution is the case of one tap. Columns come
// in sets whose panel fits into the first cache; their products add up. 1x1 convolutions that follow at
// once are made of each panel's products before the next panel begins (chain.h). Where the result is
// pooled, a panel is four pixels that become one, if possible before they leave the registers.
#include "chain.h"
#include "multiply.h"

namespace sparsepath {
namespace {

class Direct {
  public:
    Direct(const Bench &bench, const sp_call &call, int panel, const View &source, const View &target)
        : P(panel), bench_(bench), weights_(*static_cast<const sp_weights *>(call.weights)),
          chain_(bench.team, call, panel), source_(source), target_(target),
          own_(scratch_floats(weights_, P)), each_(own_ + Chain::floats(call, P)),
          pool_((&call)[call.tails].pool),
          ending_{weights_.bias.data(), call.lower, call.upper, weights_.spec.out_channels, pooled_at_once()},
          made_(unpooled(target.layout, pool_)),
          positions_(positions(made_)), total_(vectors(made_, bench.batch) * positions_),
          windows_(source.layout, made_, weights_.spec.kernel, weights_.spec.stride,
                   weights_.spec.padding, weights_.spec.dilation) {}

    void run() {
        const int panels = divide_up(total_, P), threads = bench_.team.threads();
        if (panels >= 2 * threads || threads == 1) {
            bench_.team.each(panels, [&](int panel, int thread) {
                float *scratch = bench_.workspace + thread * each_;
                for (const Steps &set : weights_.sets) {
                    fill(panel, set, scratch, 0, int(set.columns.size()));
                    multiply_blocks(panel, set, scratch, 0, int(set.blocks.size()));
                }
                finish(panel, scratch, 1);
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
            finish(panel, scratch, threads);
        }
    }

  private:
    const int P;  // output pixels in a panel
    Bench bench_;
    const sp_weights &weights_;
    const Chain chain_;
    View source_, target_;
    const size_t own_, each_;  // floats of one thread's scratch memory, without and with the chain's
    const int pool_;
    const Ending ending_;
    const sp_layout made_;  // the layout before pooling
    int positions_, total_;
    Windows windows_;

    static sp_layout unpooled(sp_layout layout, int pool) {
        layout.tile_height *= pool, layout.tile_width *= pool;
        return layout;
    }

    // A chain pools by itself.
    bool pooled_at_once() const { return POOLS && pool_ == 2 && chain_.empty(); }

    // The position of an item: in rows, or four by four in squares.
    int position(int item) const {
        const int within = item % positions_;
        if (pool_ == 1) return within;
        const int across = made_.tile_width / 2, square = within / 4;
        return (square / across * 2 + within % 4 / 2) * made_.tile_width + square % across * 2 + within % 2;
    }

    float *products(float *scratch) const {
        return scratch + own_ - product_floats(weights_, P);
    }

    // The panel's P output pixels lie side by side in one plane.
    bool side_by_side(int panel) const {
        const int last = panel * P + P - 1;
        return pool_ == 1 && last < total_ && panel * P / positions_ == last / positions_;
    }

    // And so do their inputs of one tap, which are found here.
    bool side_by_side(const Reach *found) const {
        for (int p = 0; p < P; p++)
            if (found[p].halo != Reach::PLAIN || found[p].offset != found[0].offset + p * LANES) return false;
        return true;
    }

    void fill(int panel, const Steps &set, float *scratch, int first, int last) const {
        const int item = panel * P, here = std::min(P, total_ - item);
        int vector[MOST_VECTORS], at[MOST_VECTORS];  // divisions are slow, and there are many columns
        for (int p = 0; p < here; p++) vector[p] = (item + p) / positions_, at[p] = position(item + p);
        Reach found[MOST_TAPS][MOST_VECTORS];  // looked up once for all channels
        bool run[MOST_TAPS];
        const bool neighbours = side_by_side(panel);
        for (int tap = 0; tap < std::min(windows_.taps, MOST_TAPS); tap++) {
            for (int p = 0; p < here; p++) found[tap][p] = windows_.reach(at[p], tap);
            run[tap] = neighbours && side_by_side(found[tap]);
        }
        int channel = first < last ? set.columns[first] / windows_.taps : 0;
        for (int k = first; k < last; k++) {
            while (set.columns[k] >= (channel + 1) * windows_.taps) channel++;  // they are in order
            const int tap = set.columns[k] - channel * windows_.taps;
            float *out = scratch + size_t(k) * P * LANES;
            if (tap < MOST_TAPS && run[tap]) {
                const float *in = source_.at(vector[0], channel) + found[tap][0].offset;
                for (int q = 0; q < P * PARTS; q++) store(out + q * WIDTH, load(in + q * WIDTH));
                continue;
            }
            for (int p = 0; p < here; p++) {
                const float *plane = source_.at(vector[p], channel);
                const Reach from = tap < MOST_TAPS ? found[tap][p] : windows_.reach(at[p], tap);
                for (int part = 0; part < PARTS; part++)
                    store(out + p * LANES + part * WIDTH, load(plane, from, windows_.halos.data(), part));
            }
        }
    }

    // Whether the products of a panel can be written to their target at once.
    bool leaves(int panel) const { return pool_ == 1 ? side_by_side(panel) : POOLS; }

    float *target_of(int panel) const {
        const int item = panel * P, pixels = pool_ * pool_;
        return target_.at(item / positions_, 0) + size_t(item % positions_ / pixels) * LANES;
    }

    // Products of the last columns go straight to the target if they can.
    void multiply_blocks(int panel, const Steps &set, float *scratch, int first, int last) const {
        if (first == last) return;
        float *products = this->products(scratch);
        const float *before = &set == &weights_.sets.front() ? nullptr : products;
        const Ending *ending = &set == &weights_.sets.back() ? &ending_ : nullptr;
        const bool leaves = ending && chain_.empty() && this->leaves(panel);
        multiply(P, {&set, 0, 1, first, last, scratch, before, leaves ? target_of(panel) : products,
                     leaves ? target_.plane : size_t(P) * LANES, ending, 0, nullptr, 0});
    }

    // Bring the products through the chain and to the target, as far as they are not there.
    void finish(int panel, float *scratch, int parts) const {
        const float *products = this->products(scratch);
        float *out = leaves(panel) ? target_of(panel) : nullptr;
        if (!chain_.empty()) products = chain_.run(products, scratch + own_, out, target_.plane, parts);
        if (out) return;
        if (pool_ == 2)
            gather(panel, products);
        else
            scatter(panel, products);
    }

    void scatter(int panel, const float *products) const {
        const int item = panel * P, here = std::min(P, total_ - item);
        for (int k = 0; k < target_.channels; k++)
            for (int p = 0; p < here; p++) {
                const float *in = products + (size_t(k) * P + p) * LANES;
                float *out = target_.at((item + p) / positions_, k) +
                             size_t((item + p) % positions_) * LANES;
                SP_UNROLL for (int part = 0; part < PARTS; part++)
                    store(out + part * WIDTH, load(in + part * WIDTH));
            }
    }

    // The largest of each filter's four pixels.
    void gather(int panel, const float *products) const {
        const int item = panel * P, at = item % positions_ / 4 * LANES;
        for (int k = 0; k < target_.channels; k++)
            SP_UNROLL for (int part = 0; part < PARTS; part++) {
                const float *in = products + size_t(k) * P * LANES + part * WIDTH;
                const vec above = maximum(load(in), load(in + LANES));
                const vec below = maximum(load(in + 2 * LANES), load(in + 3 * LANES));
                store(target_.at(item / positions_, k) + at + part * WIDTH, maximum(above, below));
            }
    }

    static constexpr int MOST_TAPS = 64;  // beyond, pixels are fetched one by one
};

}  // namespace

void direct(const Bench &bench, const sp_call &call, int panel, const View &source, const View &target) {
    Direct(bench, call, panel, source, target).run();
}

}  // namespace sparsepath
