// The sparse product at the heart of every convolution here; pack.h explains the steps.
//
// panel[column][P][16] holds P vectors of each column, product[row][P][16] takes P vectors of each row.
#pragma once
#include "pack.h"
#include "simd.h"

namespace sparsepath {

constexpr int MOST_VECTORS = 4;  // of a panel

// What is done to products that are final: a bias per row, a clamp; rows from `rows` on do not exist.
struct Ending {
    const float *bias;
    float lower, upper;
    int rows;
    bool pool;  // of a row's four vectors only the maximum is stored
};
// Whether a row's four vectors are in registers at once, so that `pool` can be obeyed.
constexpr bool POOLS = WIDTH == LANES;

// A panel of one or two vectors leaves accumulators unused, and each step little to do: the same step
// is then made in several slices at once. They share the pattern, so a loop's end is met once for all.
constexpr int slices_together(int P) { return P <= 2 ? 4 / P : 1; }

// Or slices are woven: four of them with one vector each, or two with two, make four vectors in which
// the numbers of the slices lie side by side. A weight is then a number for each of these slices, and
// serves four vectors.
constexpr int WOVEN_VECTORS = 4;

// Blocks first .. last - 1 of one slice, or of `slices` of them, which is 1 or slices_together(P).
struct Product {
    const Steps *steps;
    int slice, slices, first, last;
    const float *panel;
    const float *before;   // products [row][P][16] of earlier columns, or null
    float *product;
    size_t stride;         // floats from row to row of `product`
    const Ending *ending;  // null: the products are not final yet
    size_t across;         // floats from slice to slice, of the panel and of `product`
    const float *next;     // memory to fetch into the cache meanwhile: the panels of the next slices
    size_t next_lines;
};

// For a panel of 1, 2, 3 or 4 vectors; of four, if the steps are woven.
void multiply(int P, const Product &job);

}  // namespace sparsepath
