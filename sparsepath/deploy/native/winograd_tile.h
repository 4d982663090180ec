// Winograd's transforms of one dimension; a dimension of 1 is not transformed.
#pragma once
#include "simd.h"

namespace sparsepath {

// One dimension of the input transform, B^T d, on elements `stride` apart.
template <int F> SP_INLINE void transform_in(const vec *d, vec *out, int stride);
template <> SP_INLINE void transform_in<1>(const vec *d, vec *out, int) { out[0] = d[0]; }
template <> SP_INLINE void transform_in<4>(const vec *d, vec *out, int stride) {
    const vec d0 = d[0], d1 = d[stride], d2 = d[2 * stride], d3 = d[3 * stride], d4 = d[4 * stride],
              d5 = d[5 * stride];
    const vec even = d4 - 4 * d2, odd = d3 - 4 * d1, even2 = d4 - d2, odd2 = 2 * (d3 - d1);
    out[0] = 4 * d0 + (d4 - 5 * d2);
    out[stride] = even + odd;
    out[2 * stride] = even - odd;
    out[3 * stride] = even2 + odd2;
    out[4 * stride] = even2 - odd2;
    out[5 * stride] = 4 * d1 + (d5 - 5 * d3);
}
template <> SP_INLINE void transform_in<2>(const vec *d, vec *out, int stride) {
    const vec d0 = d[0], d1 = d[stride], d2 = d[2 * stride], d3 = d[3 * stride];
    out[0] = d0 - d2;
    out[stride] = d1 + d2;
    out[2 * stride] = d2 - d1;
    out[3 * stride] = d1 - d3;
}

// One dimension of the output transform, A^T m.
template <int F> SP_INLINE void transform_out(const vec *m, int stride, vec *out, int out_stride);
template <> SP_INLINE void transform_out<1>(const vec *m, int, vec *out, int) { out[0] = m[0]; }
template <> SP_INLINE void transform_out<4>(const vec *m, int stride, vec *out, int out_stride) {
    const vec m0 = m[0], m1 = m[stride], m2 = m[2 * stride], m3 = m[3 * stride], m4 = m[4 * stride],
              m5 = m[5 * stride];
    const vec p = m1 + m2, q = m1 - m2, r = m3 + m4, s = m3 - m4;
    out[0] = m0 + p + r;
    out[out_stride] = q + 2 * s;
    out[2 * out_stride] = p + 4 * r;
    out[3 * out_stride] = q + 8 * s + m5;
}
template <> SP_INLINE void transform_out<2>(const vec *m, int stride, vec *out, int out_stride) {
    const vec sum = m[stride] + m[2 * stride], difference = m[stride] - m[2 * stride];
    out[0] = m[0] + sum;
    out[out_stride] = difference - m[3 * stride];
}

}  // namespace sparsepath
