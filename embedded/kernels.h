// sparsepath's own kernels (sparsepath/deploy/native), once for each instruction set that was built.
#pragma once
#include "sparsepath.h"

extern "C" {
// The functions of sparsepath.h as compiled for one instruction set.
struct sp_kernels {
    const char *isa;
    const char *(*best_isa)(void);
    sp_weights *(*pack_conv)(const sp_conv_spec *, const float *, const float *);
    sp_weights *(*pack_linear)(int32_t, int32_t, const float *, const float *, int32_t);
    void (*weights_free)(sp_weights *);
    sp_engine *(*engine_create)(int32_t);
    void (*engine_free)(sp_engine *);
    size_t (*workspace)(const sp_call *, int32_t, int32_t, int32_t);
    int32_t (*run)(const sp_engine *, const sp_call *, int32_t, float *const *, int32_t, float *);
};
}

namespace sparsepath::embedded {

// The fastest that runs here, or the one that the environment's SPARSEPATH_ISA names.
const sp_kernels &best_kernels();

}  // namespace sparsepath::embedded
