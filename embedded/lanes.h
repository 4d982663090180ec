// Operations by sparsepath's own kernels: Winograd, direct, depthwise, pools and sums in lanes, and
// sparse linear layers. Each gives nothing where the kernels do not take the case, and takes from the
// ending what it has done itself.
#pragma once
#include <optional>

#include "windows.h"

namespace sparsepath::embedded {

using Perhaps = std::optional<Value>;

Perhaps conv_in_lanes(Machine &machine, const Node &node, Value &x, Ending &ending);
Perhaps linear_in_rows(Machine &machine, const Node &node, Value &x, Ending &ending);
Perhaps max_pool_in_lanes(Machine &machine, Value &x, const Window &window);
Perhaps avg_pool_in_lanes(Machine &machine, Value &x, const Window &window, bool count_padding);
Perhaps mean_in_lanes(Machine &machine, Value &x);  // of whole maps: (batch, channels)
Perhaps add_in_lanes(Machine &machine, Value &x, Value &y, Ending &ending);
Perhaps affine_in_lanes(Machine &machine, Value &x, const float *scale, const float *shift, Ending &ending);
// Every so-manieth pixel, and channels of zeros before and after.
Perhaps every_pixel_in_lanes(Machine &machine, Value &x, int64_t down, int64_t across);
Perhaps channels_padded_in_lanes(Machine &machine, Value &x, int64_t before, int64_t after);
Perhaps cat_in_lanes(Machine &machine, const std::vector<Value *> &parts);

}  // namespace sparsepath::embedded
