// Which kernels run: decided when the program starts.
#include "kernels.h"

#include <cstdlib>
#include <string>

#include "sparsepath_infer.h"

// Sets that were not built are null.
extern "C" {
__attribute__((weak)) const sp_kernels *sp_kernels_portable();
__attribute__((weak)) const sp_kernels *sp_kernels_avx2();
__attribute__((weak)) const sp_kernels *sp_kernels_avx512();
}

namespace sparsepath::embedded {

const sp_kernels &best_kernels() {
    const sp_kernels *(*const worst_first[])() = {sp_kernels_portable, sp_kernels_avx2, sp_kernels_avx512};
    const char *forced = std::getenv("SPARSEPATH_ISA");
    const sp_kernels *best = nullptr;
    std::string runs;  // the best set that this processor has
    for (const auto table : worst_first) {
        if (!table) continue;
        const sp_kernels &kernels = *table();
        if (runs.empty()) runs = kernels.best_isa();
        if (!forced || std::string(forced) == kernels.isa) best = &kernels;
        if (runs == kernels.isa) break;  // what follows does not run here
    }
    if (!best)
        throw BadInput(std::string("The instruction set '") + (forced ? forced : "") +
                       "' of SPARSEPATH_ISA does not run here or was not built.");
    return *best;
}

}  // namespace sparsepath::embedded
