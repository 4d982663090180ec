// The multiply: for each block of rows, one tight loop per pattern of steps.
#include "multiply.h"

#include <algorithm>

namespace sparsepath {
namespace {

// The machine vectors of a row that one pass keeps in registers: four rows of accumulators, the
// input and a weight must fit.
constexpr int pass_width(int vectors) {
    if (REGISTERS == 32) return WIDTH == 16 ? vectors : vectors % 6 == 0 ? 6 : 4;
    return vectors % 3 == 0 ? 3 : 2;
}

template <int W, int MASK>
SP_INLINE void multiply_add(const float *input, const float *&weight, vec (&sum)[4][W]) {
    vec x[W];
    SP_UNROLL for (int k = 0; k < W; k++) x[k] = load(input + k * WIDTH);
    SP_UNROLL for (int row = 0; row < 4; row++) {
        if (!(MASK >> row & 1)) continue;
        const vec w = all(*weight++);
        SP_UNROLL for (int k = 0; k < W; k++) sum[row][k] += x[k] * w;
    }
}

// All steps of one pattern.
template <int P, int W, int... MASKS>
SP_INLINE void steps(const char *panel, const uint32_t *&index, const float *&weight, int count,
                     vec (&sum)[4][W]) {
    const uint32_t *at = index;
    const float *w = weight;
    for (; count; count--)
        (multiply_add<W, MASKS>(reinterpret_cast<const float *>(panel + size_t{*at++} * P), w, sum), ...);
    index = at;
    weight = w;
}

template <int P, int W>
SP_INLINE void all_steps(const char *panel, const uint32_t *i, const float *w, const int32_t *count,
                         vec (&sum)[4][W]) {
    steps<P, W, 15>(panel, i, w, count[0], sum);
    steps<P, W, 14, 1>(panel, i, w, count[1], sum);
    steps<P, W, 13, 2>(panel, i, w, count[2], sum);
    steps<P, W, 11, 4>(panel, i, w, count[3], sum);
    steps<P, W, 7, 8>(panel, i, w, count[4], sum);
    steps<P, W, 3, 12>(panel, i, w, count[5], sum);
    steps<P, W, 5, 10>(panel, i, w, count[6], sum);
    steps<P, W, 6, 9>(panel, i, w, count[7], sum);
    steps<P, W, 3, 4, 8>(panel, i, w, count[8], sum);
    steps<P, W, 5, 2, 8>(panel, i, w, count[9], sum);
    steps<P, W, 9, 2, 4>(panel, i, w, count[10], sum);
    steps<P, W, 6, 1, 8>(panel, i, w, count[11], sum);
    steps<P, W, 10, 1, 4>(panel, i, w, count[12], sum);
    steps<P, W, 12, 1, 2>(panel, i, w, count[13], sum);
    steps<P, W, 1, 2, 4, 8>(panel, i, w, count[14], sum);
}

template <int P> void multiply(const Product &job) {
    constexpr int W = pass_width(P * PARTS), PASSES = P * PARTS / W;
    static_assert(W * PASSES == P * PARTS, "passes cover a row");
    const Steps &steps = *job.steps;
    const float *weights = steps.weight.data() + job.slice * steps.slice;
    const size_t lines = job.next ? job.next_lines : 0, fetch = lines / (job.last - job.first) + 1;
    size_t fetched = 0;
    for (int b = job.first; b < job.last; b++) {
        const RowBlock &block = steps.blocks[b];
        for (size_t end = std::min(lines, fetched + fetch); fetched < end; fetched++)
            __builtin_prefetch(job.next + fetched * LANES);
        for (int pass = 0; pass < PASSES; pass++) {
            const int offset = pass * W * WIDTH;
            vec sum[4][W];
            SP_UNROLL for (int row = 0; row < 4; row++)
                SP_UNROLL for (int k = 0; k < W; k++) {
                    const size_t at = size_t(block.rows[row]) * P * LANES + offset + k * WIDTH;
                    sum[row][k] = job.before ? load(job.before + at) : vec{};
                }
            all_steps<P, W>(reinterpret_cast<const char *>(job.panel + offset),
                            steps.index.data() + block.index, weights + block.weight, block.counts, sum);
            SP_UNROLL for (int row = 0; row < 4; row++) {
                float *out = job.product + size_t(block.rows[row]) * job.stride + offset;
                if (job.ending) {
                    if (block.rows[row] >= job.ending->rows) continue;
                    const vec lower = all(job.ending->lower), upper = all(job.ending->upper);
                    SP_UNROLL for (int k = 0; k < W; k++)
                        sum[row][k] = clamp(sum[row][k] + job.ending->bias[block.rows[row]], lower, upper);
                }
                SP_UNROLL for (int k = 0; k < W; k++) store(out + k * WIDTH, sum[row][k]);
            }
        }
    }
}

}  // namespace

void multiply(int P, const Product &job) {
    switch (P) {
    case 1: return multiply<1>(job);
    case 2: return multiply<2>(job);
    case 3: return multiply<3>(job);
    case 4: return multiply<4>(job);
    case 6: return multiply<6>(job);
    }
}

}  // namespace sparsepath
