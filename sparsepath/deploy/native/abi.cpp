// The C interface: packing, engines and running; and which instruction set this machine has.
#include <exception>

#include "chain.h"

using namespace sparsepath;

namespace {

// What the work gives, or nothing where the system gave it no memory or no thread: nobody on the other
// side of C catches what is thrown here.
template <typename Work> auto attempted(Work work) -> decltype(work()) {
    try {
        return work();
    } catch (const std::exception &) {
        return {};
    }
}

}  // namespace

struct sp_engine {
    mutable Team team;
    explicit sp_engine(int threads) : team(threads) {}
};

int sp_version(void) { return SP_VERSION; }

const char *sp_best_isa(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
        return "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
    return "portable";
}

sp_weights *sp_pack_conv(const sp_conv_spec *spec, const float *weight, const float *bias) {
    return attempted([&] { return new sp_weights(pack_conv(*spec, weight, bias)); });
}

sp_weights *sp_pack_linear(int32_t out, int32_t in, const float *weight, const float *bias,
                           int32_t method) {
    const sp_conv_spec spec{in, out, 1, {1, 1}, {1, 1}, {0, 0}, {1, 1}, method, 0, 0};
    return sp_pack_conv(&spec, weight, bias);
}

void sp_weights_free(sp_weights *weights) { delete weights; }

size_t sp_weights_bytes(const sp_weights *weights) {
    size_t bytes = (weights->depthwise.size() + weights->bias.size()) * sizeof(float);
    for (const Steps &set : weights->sets) bytes += set.bytes();
    for (const FilterBlock &block : weights->rows)
        bytes += block.columns.size() * sizeof(int32_t) + block.weight.size() * sizeof(float);
    return bytes;
}

sp_engine *sp_engine_create(int32_t threads) {
    return attempted([&] { return new sp_engine(threads); });
}

// What a forked process has of another's engine is left as it is: its locks may be held by threads that
// are not there.
void sp_engine_free(sp_engine *engine) {
    if (engine && engine->team.here()) delete engine;
}

size_t sp_workspace(const sp_call *calls, int32_t count, int32_t batch, int32_t threads) {
    size_t most = 0;
    for (int k = 0; k < count; k++) {
        const auto *weights = static_cast<const sp_weights *>(calls[k].weights);
        if (!weights || (calls[k].kind == SP_LINEAR && weights->spec.method == SP_ROWS)) continue;
        const int panel = calls[k].kind == SP_LINEAR ? 4 : panel_of(calls[k], batch);
        most = std::max(most, scratch_floats(*weights, panel) + Chain::floats(calls[k], panel));
    }
    return most * threads;
}

int32_t sp_run(const sp_engine *engine, const sp_call *calls, int32_t count, float *const *slots,
               int32_t batch, float *workspace) {
    return attempted([&] {
        Team alone(1);
        Team &team = engine->team.here() ? engine->team : alone;
        for (int k = 0; k < count; k += 1 + calls[k].tails)
            run_call(team, calls[k], slots, batch, workspace);
        return int32_t(true);
    });
}
