// Float32 tensors in numpy's .npy files.
#pragma once
#include "sparsepath_infer.h"

namespace sparsepath::embedded {

Tensor read_npy(const std::string &path, uint64_t limit);
void write_npy(const std::string &path, const Tensor &tensor);  // whole or not at all

}  // namespace sparsepath::embedded
