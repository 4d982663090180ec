// Into, out of and between lane layouts: the same pixels at other addresses.
#pragma once
#include "layout.h"
#include "team.h"

namespace sparsepath {

void copy_pixels(Team &team, const sp_map &source, const sp_map &target, float *const *slots, int batch);

}  // namespace sparsepath
