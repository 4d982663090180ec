// Into, out of and between lane layouts: the same pixels at other addresses.
#pragma once
#include "layout.h"
#include "team.h"

namespace sparsepath {

void import_pixels(Team &team, const float *plain, const View &target, int batch);
void export_pixels(Team &team, const View &source, float *plain, int batch);
void relayout(Team &team, const View &source, const View &target, int batch);

}  // namespace sparsepath
