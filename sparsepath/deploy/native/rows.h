// The packed form of rows.cpp: blocks of 16 filters, one in each lane.
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace sparsepath {

// Vectors of a block begin at cache lines.
template <typename T> struct ByLine {
    using value_type = T;
    ByLine() = default;
    template <typename U> ByLine(const ByLine<U> &) {}
    T *allocate(std::size_t count) {
        return static_cast<T *>(::operator new(count * sizeof(T), std::align_val_t{64}));
    }
    void deallocate(T *at, std::size_t) { ::operator delete(at, std::align_val_t{64}); }
    template <typename U> bool operator==(const ByLine<U> &) const { return true; }
    template <typename U> bool operator!=(const ByLine<U> &) const { return false; }
};

struct FilterBlock {
    std::vector<int32_t> columns;             // the inputs that any of its filters keeps
    std::vector<float, ByLine<float>> weight;  // [column][16]
};

std::vector<FilterBlock> pack_rows(int rows, int columns, const float *weight);

}  // namespace sparsepath
