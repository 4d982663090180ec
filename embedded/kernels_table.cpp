// One instruction set's kernels behind one symbol. The build compiles this file with the kernels, once
// for each set, and hides every other symbol: no code of one set can then stray into another.
#include "kernels.h"

#define JOINED(a, b) a##b
#define TABLE(isa) JOINED(sp_kernels_, isa)
#define QUOTED(x) #x
#define TEXT(x) QUOTED(x)

extern "C" __attribute__((visibility("default"))) const sp_kernels *TABLE(SP_ISA)() {
    static const sp_kernels table = {TEXT(SP_ISA),   sp_best_isa,     sp_pack_conv,
                                     sp_pack_linear, sp_weights_free, sp_engine_create,
                                     sp_engine_free, sp_workspace,    sp_run};
    return &table;
}
