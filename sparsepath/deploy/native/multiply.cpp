// The multiply: for each block of rows, one tight loop per pattern of steps.
#include "multiply.h"

#include <algorithm>
#include <utility>

namespace sparsepath {
namespace {

// The machine vectors of a row that one pass keeps in registers: four rows of accumulators, the
// input and a weight must fit.
constexpr int pass_width(int vectors) {
    if (REGISTERS == 32) return WIDTH == 16 ? vectors : vectors % 6 == 0 ? 6 : 4;
    return vectors % 3 == 0 ? 3 : 2;
}

// Where a step finds what it multiplies: the same column and row of T slices.
template <int T> struct Sources {
    const char *panel;
    const uint16_t *counts, *index;
    const float *weight;
    size_t across;  // floats from slice to slice of the panel
    size_t slice;   // floats from slice to slice of the weights
};

template <int P, int W, int T, int WOVEN, int MASK>
SP_INLINE void multiply_add(Sources<T> &from, vec (&sum)[4][T * W]) {
    if constexpr (MASK == 0) return;
    const float *input = reinterpret_cast<const float *>(from.panel + size_t{*from.index++} * (P * LANES * sizeof(float)));
    vec x[T * W];
    SP_UNROLL for (int k = 0; k < T * W; k++) x[k] = load(input + k / W * from.across + k % W * WIDTH);
    SP_UNROLL for (int row = 0; row < 4; row++) {
        if (!(MASK >> row & 1)) continue;
        if constexpr (WOVEN > 1) {
            const vec weight = WOVEN == 4 ? all_quads(from.weight) : all_pairs(from.weight);
            SP_UNROLL for (int k = 0; k < W; k++) sum[row][k] += x[k] * weight;
        } else {
            SP_UNROLL for (int k = 0; k < T * W; k++) sum[row][k] += x[k] * all(from.weight[k / W * from.slice]);
        }
        from.weight += WOVEN;
    }
}

// All steps of one pattern.
template <int P, int W, int T, int WOVEN, int PLACE>
SP_INLINE void steps(Sources<T> &from, uint32_t present, vec (&sum)[4][T * W]) {
    if (!(present >> PLACE & 1)) return;
    int count = *from.counts++;
    constexpr const int(&masks)[4] = PATTERN[PLACE];
    const auto step = [&](vec(&into)[4][T * W]) __attribute__((always_inline)) {
        multiply_add<P, W, T, WOVEN, masks[0]>(from, into);
        multiply_add<P, W, T, WOVEN, masks[1]>(from, into);
        multiply_add<P, W, T, WOVEN, masks[2]>(from, into);
        multiply_add<P, W, T, WOVEN, masks[3]>(from, into);
    };
    if constexpr (T * W == 1 && WIDTH == LANES) {
        // Four accumulators alone would wait for their last sums most of the time.
        vec more[4][1] = {};
        for (; count >= 2; count -= 2) step(sum), step(more);
        SP_UNROLL for (int row = 0; row < 4; row++) sum[row][0] += more[row][0];
    }
    for (; count; count--) step(sum);
}

// All steps of the patterns from FIRST on; where none of them is present, one question is enough.
template <int P, int W, int T, int WOVEN, int FIRST, size_t... PLACES>
SP_INLINE void steps_from(Sources<T> &from, uint32_t present, vec (&sum)[4][T * W],
                          std::index_sequence<PLACES...>) {
    if (present >> FIRST & ((1u << sizeof...(PLACES)) - 1))
        (steps<P, W, T, WOVEN, FIRST + PLACES>(from, present, sum), ...);
}

template <int P, int W, int T, int WOVEN>
SP_INLINE void all_steps(Sources<T> from, uint32_t present, vec (&sum)[4][T * W]) {
    steps<P, W, T, WOVEN, FOUR>(from, present, sum);
    steps_from<P, W, T, WOVEN, TWO_TWO>(from, present, sum, std::make_index_sequence<THREE_ONE - TWO_TWO>());
    steps_from<P, W, T, WOVEN, THREE_ONE>(from, present, sum,
                                          std::make_index_sequence<TWO_ONE_ONE - THREE_ONE>());
    steps_from<P, W, T, WOVEN, TWO_ONE_ONE>(from, present, sum,
                                            std::make_index_sequence<ONES - TWO_ONE_ONE>());
    steps_from<P, W, T, WOVEN, ONES>(from, present, sum, std::make_index_sequence<PATTERNS - ONES>());
}

template <int P, int T, int WOVEN = 1> void multiply(const Product &job) {
    constexpr int W = pass_width(P * PARTS), PASSES = P * PARTS / W;
    static_assert(W * PASSES == P * PARTS, "passes cover a row");
    const Steps &steps = *job.steps;
    const float *weights = steps.weight.data() + job.slice * steps.slice;
    const size_t lines = job.next ? job.next_lines : 0, fetch = lines / (job.last - job.first) + 1;
    size_t fetched = 0;
    for (int b = job.first; b < job.last; b++) {
        const RowBlock &block = steps.blocks[b];
        for (size_t end = std::min(lines, fetched + fetch); fetched < end; fetched++)
            for (int t = 0; t < T; t++) __builtin_prefetch(job.next + t * job.across + fetched * LANES);
        const uint16_t *counts = steps.index.data() + block.index;
        const uint16_t *index = counts + __builtin_popcount(block.present);
        for (int pass = 0; pass < PASSES; pass++) {
            const int offset = pass * W * WIDTH;
            vec sum[4][T * W] = {};
            all_steps<P, W, T, WOVEN>({reinterpret_cast<const char *>(job.panel + offset), counts, index,
                                       weights + block.weight, job.across, steps.slice},
                                      block.present, sum);
            if (job.before)  // added last: short sums lose less than one long one
                SP_UNROLL for (int row = 0; row < 4; row++)
                    SP_UNROLL for (int k = 0; k < W; k++)
                        sum[row][k] +=
                            load(job.before + size_t(block.rows[row]) * P * LANES + offset + k * WIDTH);
            SP_UNROLL for (int row = 0; row < 4; row++) {
                float *out = job.product + size_t(block.rows[row]) * job.stride + offset;
                if (job.ending) {
                    if (block.rows[row] >= job.ending->rows) continue;
                    const vec lower = all(job.ending->lower), upper = all(job.ending->upper);
                    if constexpr (POOLS && P == 4)
                        if (job.ending->pool) {
                            const vec(&s)[W] = sum[row];
                            const vec most = maximum(maximum(s[0], s[1]), maximum(s[2], s[3]));
                            store(out, clamp(most + job.ending->bias[block.rows[row]], lower, upper));
                            continue;
                        }
                    SP_UNROLL for (int k = 0; k < W; k++)
                        sum[row][k] = clamp(sum[row][k] + job.ending->bias[block.rows[row]], lower, upper);
                }
                SP_UNROLL for (int k = 0; k < T * W; k++)
                    store(out + k / W * job.across + k % W * WIDTH, sum[row][k]);
            }
        }
    }
}

}  // namespace

void multiply(int P, const Product &job) {
    if (job.steps->woven == 4) return multiply<4, 1, 4>(job);
    if (job.steps->woven == 2) return multiply<4, 1, 2>(job);
    if constexpr (WIDTH == LANES)
        if (job.slices > 1)
            return P == 1 ? multiply<1, slices_together(1)>(job) : multiply<2, slices_together(2)>(job);
    if (job.slices > 1) {  // narrow vectors leave no accumulators unused
        Product one = job;
        for (one.slices = 1; one.slice < job.slice + job.slices; one.slice++) {
            multiply(P, one);
            one.panel += job.across, one.product += job.across, one.next = nullptr;
        }
        return;
    }
    switch (P) {
    case 1: return multiply<1, 1>(job);
    case 2: return multiply<2, 1>(job);
    case 3: return multiply<3, 1>(job);
    case 4: return multiply<4, 1>(job);
    case 6: return multiply<6, 1>(job);
    }
}

}  // namespace sparsepath
