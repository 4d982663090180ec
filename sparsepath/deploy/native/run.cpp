// One call, given to its family.
#include "families.h"
#include "pixels.h"

namespace sparsepath {

void run_call(Team &team, const sp_call &call, float *const *slots, int batch, float *workspace) {
    const Bench bench{team, batch, workspace};
    const Finish finish{call.lower, call.upper, call.pool};
    const auto *weights = static_cast<const sp_weights *>(call.weights);
    float *from = slots[call.source.slot], *to = slots[call.target.slot];
    if (call.kind == SP_LINEAR)
        return weights->spec.method == SP_ROWS ? rows(bench, *weights, from, to, finish)
                                               : linear(bench, *weights, from, to, finish);
    if (call.kind == SP_IMPORT) return import_pixels(team, from, View(call.target, slots), batch);
    const View source(call.source, slots);
    if (call.kind == SP_EXPORT) return export_pixels(team, source, to, batch);
    if (call.kind == SP_MEAN) return mean(bench, source, to);
    const View target(call.target, slots);
    switch (call.kind) {
    case SP_RELAYOUT: return relayout(team, source, target, batch);
    case SP_CONV: {
        if (weights->spec.method == SP_DEPTHWISE)
            return depthwise(bench, *weights, source, target, finish);
        if (weights->spec.method == SP_ROWS) return few_pixels(bench, *weights, source, target, finish);
        const int panel = panel_of(call, batch);
        if (is_winograd(weights->spec))
            return winograd(bench, *weights, panel, source, target, finish);
        return direct(bench, call, panel, source, View((&call)[call.tails].target, slots));
    }
    case SP_MAX_POOL:
    case SP_AVG_POOL: return pool(bench, call, source, target);
    case SP_ADD: return add(bench, source, View(call.other, slots), target, finish);
    case SP_AFFINE: return affine(bench, call, source, target);
    }
}

}  // namespace sparsepath
