// The windows of pooling and depthwise convolution: for each output position, where its pixels are.
#pragma once
#include "simd.h"

namespace sparsepath {

struct Windows {
    int taps;
    std::vector<Reach> reach;  // [position][tap]
    std::vector<char> plain;   // [position]: all its pixels can be read as they are
    std::vector<Halo> halos;

    Windows(const sp_layout &source, const sp_layout &target, const int32_t *kernel,
            const int32_t *stride, const int32_t *padding, const int32_t *dilation)
        : taps(kernel[0] * kernel[1]) {
        Reaches reaches(source);
        for (int y = 0; y < target.tile_height; y++)
            for (int x = 0; x < target.tile_width; x++) {
                plain.push_back(1);
                for (int tap = 0; tap < taps; tap++) {
                    const int down = tap / kernel[1] * dilation[0], across = tap % kernel[1] * dilation[1];
                    reach.push_back(reaches.find(y * stride[0] - padding[0] + down,
                                                 x * stride[1] - padding[1] + across));
                    plain.back() &= reach.back().halo == Reach::PLAIN;
                }
            }
        halos = reaches.halos();
    }
};

}  // namespace sparsepath
