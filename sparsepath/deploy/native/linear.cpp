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
        const int panels = divide_up(bench_.batch, P * LANES);
        bench_.team.each(panels, [&](int panel, int thread) {
            float *scratch = bench_.workspace + thread * each;
            float *products = scratch + each - product_floats(weights_, P);
            const int first = panel * P * LANES, here = std::min(P * LANES, bench_.batch - first);
            for (const Steps &set : weights_.sets) {
                fill(set, scratch, first, here);
                multiply(P, {&set, 0, 1, 0, int(set.blocks.size()), scratch,
                             &set == &weights_.sets[0] ? nullptr : products, products, size_t(P) * LANES,
                             nullptr, 0, nullptr, 0});
            }
            empty(products, first, here);
        });
    }

  private:
    const int P;  // vectors of 16 images in a panel
    Bench bench_;
    const sp_weights &weights_;
    const float *source_;
    float *target_;
    Finish finish_;

    void fill(const Steps &set, float *scratch, int first, int here) const {
        const size_t columns = set.columns.size();
        std::memset(scratch, 0, sizeof(float) * columns * P * LANES);
        for (int n = 0; n < here; n++) {
            const float *row = source_ + size_t(first + n) * weights_.spec.in_channels;
            for (size_t k = 0; k < columns; k++) scratch[k * P * LANES + n] = row[set.columns[k]];
        }
    }

    void empty(const float *products, int first, int here) const {
        const int filters = weights_.spec.out_channels;
        for (int n = 0; n < here; n++)
            for (int k = 0; k < filters; k++) {
                float y = products[size_t(k) * P * LANES + n] + weights_.bias[k];
                y = y < finish_.lower ? finish_.lower : y;
                target_[size_t(first + n) * filters + k] = y > finish_.upper ? finish_.upper : y;
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
