// How an array is stored, and the way back to its numbers.
#pragma once
#include <map>
#include <string>

#include "safetensors.h"

namespace sparsepath::embedded {

struct Entry {
    Shape shape;
    const Type *type = nullptr;
    std::string how;  // which blocks are kept
    int64_t block = 1;
    std::string code;                         // what the kept weights are
    std::map<std::string, int64_t> deflated;  // by kind of tensor, its bytes before
    int64_t axis = 0;                         // of the channels that the scales of levels belong to
};
using Parts = std::map<std::string, Stored>;  // by kind: values, where, scales, codebook

bool known_way(const Entry &entry);
Tensor unpacked(const Entry &entry, const Parts &parts);

}  // namespace sparsepath::embedded
