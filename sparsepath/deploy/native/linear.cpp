// Linear layers on plain rows: 16 images side by side in the lanes, then the sparse product.
#include "families.h"
#include "multiply.h"

namespace sparsepath {
namespace {

class Linear {
  public:
    Linear(const Bench &bench, const sp_weights &weights, int panel, const float *source,
           float *target, const Finish &finish)
        : P(panel), bench_(bench), weights_(weights), source_(source), target_(target), finish_(finish) {}

    void run() const {
        const size_t each = scratch_floats(weights_, P);
        const int panels = divide_up(bench_.batch, P * LANES), threads = bench_.team.threads();
        const int filters = weights_.spec.out_channels;
        if (panels >= 2 * threads || threads == 1) {
            bench_.team.each(panels, [&](int panel, int thread) {
                float *scratch = bench_.workspace + thread * each;
                for (const Steps &set : weights_.sets) {
                    fill(panel, set, scratch, 0, int(set.columns.size()));
                    multiply_blocks(set, scratch, 0, int(set.blocks.size()));
                }
                empty(panel, scratch, 0, filters);
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
                    multiply_blocks(set, scratch, range.first, range.last);
                });
            }
            bench_.team.each(threads, [&](int part, int) {
                const Range range(filters, part, threads);
                empty(panel, scratch, range.first, range.last);
            });
        }
    }

  private:
    const int P;  // vectors of 16 images in a panel
    Bench bench_;
    const sp_weights &weights_;
    const float *source_;
    float *target_;
    Finish finish_;

    int images(int panel) const { return std::min(P * LANES, bench_.batch - panel * P * LANES); }

    float *products(float *scratch) const {
        return scratch + scratch_floats(weights_, P) - product_floats(weights_, P);
    }

    void fill(int panel, const Steps &set, float *scratch, int first, int last) const {
        const size_t line = size_t(P) * LANES, length = weights_.spec.in_channels;
        std::fill(scratch + first * line, scratch + last * line, 0.0f);
        for (int n = 0; n < images(panel); n++) {
            const float *row = source_ + (panel * line + n) * length;
            for (int k = first; k < last; k++) scratch[k * line + n] = row[set.columns[k]];
        }
    }

    void multiply_blocks(const Steps &set, float *scratch, int first, int last) const {
        if (first == last) return;
        float *products = this->products(scratch);
        multiply(P, {&set, 0, 1, first, last, scratch, &set == &weights_.sets[0] ? nullptr : products, products,
                     size_t(P) * LANES, nullptr, 0, nullptr, 0});
    }

    void empty(int panel, float *scratch, int first, int last) const {
        const float *products = this->products(scratch);
        const size_t line = size_t(P) * LANES, filters = weights_.spec.out_channels;
        for (int n = 0; n < images(panel); n++)
            for (int k = first; k < last; k++) {
                float y = products[k * line + n] + weights_.bias[k];
                y = y < finish_.lower ? finish_.lower : y;
                target_[(panel * line + n) * filters + k] = y > finish_.upper ? finish_.upper : y;
            }
    }
};

}  // namespace

void linear(const Bench &bench, const sp_weights &weights, const float *source, float *target,
            const Finish &finish) {
    const int vectors = divide_up(bench.batch, LANES), panel = vectors <= 2 ? vectors : 4;
    Linear(bench, weights, panel, source, target, finish).run();
}

}  // namespace sparsepath
