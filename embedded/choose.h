// Where each operation runs: by the kernels where they take the case, else by its definition.
#pragma once
#include "operations.h"

namespace sparsepath::embedded {

// What an operation gives; it takes from the ending what it has done itself.
using Run = Value(Machine &, const Node &, const Inputs &, Ending &);

Run run_conv, run_conv_transpose, run_linear, run_affine, run_batch_norm, run_add, run_other_arithmetic,
    run_one_by_one, run_max_pool, run_avg_pool, run_adaptive_pool, run_constant, run_cat, run_index,
    run_pad, run_mean, run_transpose;

}  // namespace sparsepath::embedded
