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
    const struct {
        std::string isa;
        const sp_kernels *(*table)();
    } worst_first[] = {
        {"portable", sp_kernels_portable}, {"avx2", sp_kernels_avx2}, {"avx512", sp_kernels_avx512}};
    const char *forced = std::getenv("SPARSEPATH_ISA");
    if (forced && !*forced) forced = nullptr;  // set to nothing is not set
    const sp_kernels *best = nullptr;
    std::string own, built;
    for (const auto &[isa, table] : worst_first) {
        if (!table) continue;
        own = table()->best_isa();  // of this processor, whichever set is asked
        built += (built.empty() ? "" : ", ") + isa;
    }
    for (const auto &[isa, table] : worst_first) {
        if (table && (!forced || forced == isa)) best = table();
        if (isa == own) break;  // what follows does not run here
    }
    if (best) return *best;
    if (forced)
        throw BadInput(std::string("The instruction set '") + forced +
                       "' of SPARSEPATH_ISA does not run here or was not built.");
    throw BadInput("This processor runs none of the instruction sets that were built (" + built +
                   "): build again with " + own + " among its ISAS.");
}

}  // namespace sparsepath::embedded
