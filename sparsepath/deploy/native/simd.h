// The machine's vector, whatever its width: all sources are compiled once per instruction set, each
// time into a library of its own (compile.py), so that no code of one strays into another.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "layout.h"

#define SP_INLINE inline __attribute__((always_inline))
#define SP_UNROLL _Pragma("GCC unroll 48")

namespace sparsepath {

#if defined(__AVX512F__)
constexpr int WIDTH = 16, REGISTERS = 32;
constexpr __mmask16 ALL_LANES = 0xFFFF;
#elif defined(__AVX2__)
constexpr int WIDTH = 8, REGISTERS = 16;
#elif defined(__aarch64__)
constexpr int WIDTH = 4, REGISTERS = 32;
#else
constexpr int WIDTH = 4, REGISTERS = 16;
#endif
constexpr int PARTS = LANES / WIDTH;  // machine vectors in a vector of 16 lanes

typedef float vec __attribute__((vector_size(WIDTH * 4)));
typedef int32_t ivec __attribute__((vector_size(WIDTH * 4)));

SP_INLINE vec load(const float *at) { return *reinterpret_cast<const vec *>(at); }
SP_INLINE vec load_unaligned(const float *at) {
    vec x;
    std::memcpy(&x, at, sizeof x);
    return x;
}
SP_INLINE void store(float *at, vec x) { *reinterpret_cast<vec *>(at) = x; }
SP_INLINE vec all(float x) { return x - vec{}; }

// Four numbers, again and again.
SP_INLINE vec all_quads(const float *four) {
#if defined(__AVX512F__)
    return _mm512_maskz_broadcast_f32x4(ALL_LANES, _mm_loadu_ps(four));
#elif defined(__AVX2__)
    return _mm256_broadcast_ps(reinterpret_cast<const __m128 *>(four));
#else
    static_assert(WIDTH == 4, "a vector is one quad");
    return load_unaligned(four);
#endif
}

// Each quad of four vectors is transposed with its fellows: number j of vector i and i of j change places.
SP_INLINE void transpose_quads(vec (&x)[4]) {
#if defined(__AVX512F__)
    const __m512 ab = _mm512_maskz_unpacklo_ps(ALL_LANES, x[0], x[1]);
    const __m512 cd = _mm512_maskz_unpacklo_ps(ALL_LANES, x[2], x[3]);
    const __m512 ab2 = _mm512_maskz_unpackhi_ps(ALL_LANES, x[0], x[1]);
    const __m512 cd2 = _mm512_maskz_unpackhi_ps(ALL_LANES, x[2], x[3]);
    x[0] = _mm512_maskz_shuffle_ps(ALL_LANES, ab, cd, 0x44);
    x[1] = _mm512_maskz_shuffle_ps(ALL_LANES, ab, cd, 0xEE);
    x[2] = _mm512_maskz_shuffle_ps(ALL_LANES, ab2, cd2, 0x44);
    x[3] = _mm512_maskz_shuffle_ps(ALL_LANES, ab2, cd2, 0xEE);
#elif defined(__AVX2__)
    const __m256 ab = _mm256_unpacklo_ps(x[0], x[1]), ab2 = _mm256_unpackhi_ps(x[0], x[1]);
    const __m256 cd = _mm256_unpacklo_ps(x[2], x[3]), cd2 = _mm256_unpackhi_ps(x[2], x[3]);
    x[0] = _mm256_shuffle_ps(ab, cd, 0x44), x[1] = _mm256_shuffle_ps(ab, cd, 0xEE);
    x[2] = _mm256_shuffle_ps(ab2, cd2, 0x44), x[3] = _mm256_shuffle_ps(ab2, cd2, 0xEE);
#else
    const vec a = x[0], b = x[1], c = x[2], d = x[3];
    for (int k = 0; k < 4; k++) x[k] = vec{a[k], b[k], c[k], d[k]};
#endif
}

// Neither drops a NaN.
SP_INLINE vec clamp(vec x, vec lower, vec upper) {
    x = x < lower ? lower : x;
    return x > upper ? upper : x;
}
SP_INLINE vec maximum(vec a, vec b) { return (b > a) | (b != b) ? b : a; }

// Part `part` of a vector's 16 lanes through a halo; `outside` for lanes beyond the image.
SP_INLINE vec load_halo(const float *from, const Halo &halo, int part, float outside) {
#if defined(__AVX512F__)
    (void)part;
    const __m512i lanes = _mm512_load_si512(halo.lane);
    return _mm512_permutex2var_ps(_mm512_load_ps(from), lanes, _mm512_set1_ps(outside));
#elif defined(__AVX2__)
    const __m256i lanes = _mm256_load_si256(reinterpret_cast<const __m256i *>(halo.lane) + part);
    const __m256 valid = _mm256_load_ps(reinterpret_cast<const float *>(halo.valid) + part * 8);
    return _mm256_mask_i32gather_ps(_mm256_set1_ps(outside), from, lanes, valid, 4);
#else
    vec found;
    for (int lane = 0; lane < WIDTH; lane++) {
        const int l = part * WIDTH + lane;
        found[lane] = halo.valid[l] ? from[halo.lane[l]] : outside;
    }
    return found;
#endif
}

// Part `part` of the 16 lanes that a reach finds in a plane.
SP_INLINE vec load(const float *plane, Reach reach, const Halo *halos, int part, float outside = 0) {
    if (reach.halo == Reach::PLAIN) return load(plane + reach.offset + part * WIDTH);
    if (reach.halo == Reach::ZERO) return all(outside);
    return load_halo(plane + reach.offset, halos[reach.halo], part, outside);
}

}  // namespace sparsepath
