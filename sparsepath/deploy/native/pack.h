// Sparse matrices in the form that the multiply reads: the partition trick.
//
// Every convolution here ends in products of a sparse matrix (filters x inputs) with panels of dense
// vectors. Rows are taken four at a time, so that an input loaded once can serve four filters. In a
// sparse matrix each input is wanted by some of the four rows only: its mask, four bits. Working mask
// by mask leaves a single-row mask with one chain of additions, each waiting for the one before.
//
// Instead, masks are put together into steps that cover each of the four rows equally often:
//
//     once:   {1111}   {0011 1100} and 2 more   {0111 1000} and 3 more   {0011 0100 1000} and 5 more
//             {0001 0010 0100 1000}
//     twice:  {1110 1101 0011} and 5 more
//     thrice: {0111 1011 1101 1110}
//
// so every step, whatever its pattern, makes as many multiply-adds for each row: four independent
// chains, and weights read in order. Loads are as scarce as multiply-adds, so an input should be loaded
// once: with the patterns of several three-row masks hardly any has to be torn apart in a matrix of few
// zeros. A block takes rows of about as many weights, and among these the ones that share most inputs;
// what the longer ones have left makes steps of the first three, two or one of the rows alone. With these
// there are 25 patterns, hence 25 tight loops per block of rows.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace sparsepath {

constexpr int PATTERNS = 25;
// The masks of each pattern's steps, in the order in which their inputs and weights are stored.
constexpr int PATTERN[PATTERNS][4] = {
    {15},
    {3, 12},     {5, 10},     {6, 9},
    {14, 13, 3}, {14, 11, 5}, {14, 7, 9}, {13, 11, 6}, {13, 7, 10}, {11, 7, 12},
    {14, 1},     {13, 2},     {11, 4},    {7, 8},
    {7, 11, 13, 14},
    {3, 4, 8},   {5, 2, 8},   {9, 2, 4},  {6, 1, 8},   {10, 1, 4},  {12, 1, 2},
    {1, 2, 4, 8}, {1, 2, 4}, {1, 2}, {1}};
// Where patterns of a kind begin.
enum { FOUR, TWO_TWO, THREE_ONE = 10, THREES = 14, TWO_ONE_ONE = 15, ONES = 21 };

// Four rows, and where their numbers of steps, followed by their inputs, and their weights begin.
struct RowBlock {
    int32_t rows[4];   // a row beyond the matrix is computed and thrown away
    uint32_t present;  // a bit for each pattern that has steps; only of these is the number stored
    uint32_t index, weight;
};

// A set of columns of the matrix, for all rows. The multiply wants them as one panel: column k of
// the set at vector k.
constexpr int MOST_PLACES = 65535;  // 16 bits name one, and count the steps of a pattern
struct Steps {
    std::vector<int32_t> columns;
    std::vector<RowBlock> blocks;
    std::vector<uint16_t> index;  // of each block: how many steps, and the places of their columns
    std::vector<float> weight;    // one slice after the other, or `woven` of them side by side
    size_t slice = 0;             // weights of one slice, or of as many as are woven
    int woven = 1;

    size_t bytes() const {
        return columns.size() * sizeof(int32_t) + blocks.size() * sizeof(RowBlock) +
               index.size() * sizeof(uint16_t) + weight.size() * sizeof(float);
    }
};

// The matrix to pack. Winograd has one value per slice (36 or 16 of them) for each kept entry.
struct Matrix {
    int rows, columns, slices;
    std::function<bool(int row, int column)> kept;
    std::function<void(int row, int column, float *values)> values;
    int rows_per_group;  // rows of different groups share no column
    int woven;           // slices whose values lie side by side: 1, 2 or 4
};

// Pack the columns that any row keeps, in sets of at most `most` columns.
std::vector<Steps> pack(const Matrix &matrix, int most);

}  // namespace sparsepath
