// What all calls of the kernels share: which cases they take, clamps, and the layout of a result.
#pragma once
#include "windows.h"

namespace sparsepath::embedded {

constexpr uint64_t MOST_FLOATS = uint64_t(1) << 28;  // of weights; of a value a fourth

bool takes(const Value &x);
bool takes(const Window &w);  // whether the kernels may move such a window over maps

void pair(int32_t (&two)[2], const int64_t (&three)[3]);

// The clamp that an activation is; others are left to whoever called.
void take_clamp(sp_call &call, Ending &ending);

// A result of this size; x is laid out anew where its tiles do not fit.
Value result_of(Machine &machine, Value &x, int64_t channels, const int64_t *size, const int64_t *stride);

// Run a call from x, and perhaps another, to y.
Value run(Machine &machine, sp_call &call, Value &x, Value &y, const Value *other = nullptr);

}  // namespace sparsepath::embedded
