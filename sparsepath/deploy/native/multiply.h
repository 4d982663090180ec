// The sparse product at the heart of every convolution here; pack.h explains the steps.
//
// panel[column][P][16] holds P vectors of each column, product[row][P][16] takes P vectors of each row.
#pragma once
#include "pack.h"
#include "simd.h"

namespace sparsepath {

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

// What is done to products that are final: a bias per row, a clamp; rows from `rows` on do not exist.
struct Ending {
    const float *bias;
    float lower, upper;
    int rows;
};

// Blocks first .. last - 1 of one slice.
struct Product {
    const Steps *steps;
    int slice, first, last;
    const float *panel;
    const float *before;   // products [row][P][16] of earlier columns, or null
    float *product;
    size_t stride;         // floats from row to row of `product`
    const Ending *ending;  // null: the products are not final yet
    const float *next;     // memory to fetch into the cache meanwhile: the panel of the next slice
    size_t next_lines;
};

template <int P> __attribute__((noinline)) void multiply(const Product &job) {
    constexpr int W = pass_width(P * PARTS), PASSES = P * PARTS / W;
    static_assert(W * PASSES == P * PARTS, "passes cover a row");
    const Steps &steps = *job.steps;
    const float *weights = steps.weight.data() + job.slice * steps.slice;
    const size_t fetch = job.next ? job.next_lines / (job.last - job.first) + 1 : 0;
    const float *next = job.next, *next_end = job.next + job.next_lines * LANES;
    for (int b = job.first; b < job.last; b++) {
        const RowBlock &block = steps.blocks[b];
        for (size_t k = 0; k < fetch && next < next_end; k++, next += LANES) __builtin_prefetch(next);
        for (int pass = 0; pass < PASSES; pass++) {
            const int offset = pass * W * WIDTH;
            vec sum[4][W];
            SP_UNROLL for (int row = 0; row < 4; row++) {
                const float *before = job.before + size_t(block.rows[row]) * P * LANES + offset;
                SP_UNROLL for (int k = 0; k < W; k++)
                    sum[row][k] = job.before ? load(before + k * WIDTH) : vec{};
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

// Calls with(P) for the panel that was asked for.
template <typename F> SP_INLINE void for_panel(int panel, F &&with) {
    switch (panel) {
    case 1: return with(std::integral_constant<int, 1>{});
    case 2: return with(std::integral_constant<int, 2>{});
    case 3: return with(std::integral_constant<int, 3>{});
    case 6: return with(std::integral_constant<int, 6>{});
    default: return with(std::integral_constant<int, 4>{});
    }
}

}  // namespace sparsepath
