// The sparse product at the heart of every convolution here; pack.h explains the steps.
//
// panel[column][P][16] holds P vectors of each column, product[row][P][16] takes P vectors of each row.
#pragma once
#include "pack.h"
#include "simd.h"

namespace sparsepath {

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

// For a panel of 1, 2, 3, 4 or 6 vectors.
void multiply(int P, const Product &job);

}  // namespace sparsepath
