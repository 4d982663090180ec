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
#define SP_APART __attribute__((noinline))
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
template <typename Word> SP_INLINE Word load_as(const void *at) {  // wherever it lies
    Word word;
    std::memcpy(&word, at, sizeof word);
    return word;
}
SP_INLINE vec load_unaligned(const float *at) { return load_as<vec>(at); }
SP_INLINE void store(float *at, vec x) { *reinterpret_cast<vec *>(at) = x; }
SP_INLINE vec all(float x) { return x - vec{}; }

// Two numbers, again and again.
SP_INLINE vec all_pairs(const float *two) {
#if defined(__AVX512F__)
    __m128d both = _mm_load_sd(reinterpret_cast<const double *>(two));
    return _mm512_castpd_ps(_mm512_maskz_broadcastsd_pd(0xFF, both));
#elif defined(__AVX2__)
    return _mm256_castpd_ps(_mm256_broadcast_sd(reinterpret_cast<const double *>(two)));
#else
    return vec{two[0], two[1], two[0], two[1]};
#endif
}

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

// Four weights of N numbers each by one load, and one of them again and again; of wide vectors only.
template <int N> SP_INLINE vec load_four(const float *at) {
#if defined(__AVX512F__)
    if constexpr (N == 1) return all_quads(at);
    if constexpr (N == 2) {
        const __m256d four = _mm256_loadu_pd(reinterpret_cast<const double *>(at));
        return _mm512_castpd_ps(_mm512_maskz_broadcast_f64x4(0xFF, four));
    }
    if constexpr (N == 4) return load_unaligned(at);
#else
    return all(*at);
#endif
}
template <int N, int K> SP_INLINE vec pick(vec four) {
#if defined(__AVX512F__)
    if constexpr (N == 1) return _mm512_maskz_permute_ps(ALL_LANES, four, K * 0x55);
    if constexpr (N == 2)
        return _mm512_castpd_ps(_mm512_maskz_permutex_pd(0xFF, _mm512_castps_pd(four), K * 0x55));
    if constexpr (N == 4) return _mm512_maskz_shuffle_f32x4(ALL_LANES, four, four, K * 0x55);
#else
    return four;
#endif
}

// Two vectors mixed number by number, quad by quad: a0 b0 a1 b1 and a2 b2 a3 b3; and parted again.
SP_INLINE void mix(vec &a, vec &b) {
#if defined(__AVX512F__)
    const vec low = _mm512_maskz_unpacklo_ps(ALL_LANES, a, b);
    b = _mm512_maskz_unpackhi_ps(ALL_LANES, a, b), a = low;
#elif defined(__AVX2__)
    const vec low = _mm256_unpacklo_ps(a, b);
    b = _mm256_unpackhi_ps(a, b), a = low;
#else
    const vec low{a[0], b[0], a[1], b[1]}, high{a[2], b[2], a[3], b[3]};
    a = low, b = high;
#endif
}
SP_INLINE void unmix(vec &a, vec &b) {
#if defined(__AVX512F__)
    const vec even = _mm512_maskz_shuffle_ps(ALL_LANES, a, b, 0x88);
    b = _mm512_maskz_shuffle_ps(ALL_LANES, a, b, 0xDD), a = even;
#elif defined(__AVX2__)
    const vec even = _mm256_shuffle_ps(a, b, 0x88);
    b = _mm256_shuffle_ps(a, b, 0xDD), a = even;
#else
    const vec even{a[0], a[2], b[0], b[2]}, odd{a[1], a[3], b[1], b[3]};
    a = even, b = odd;
#endif
}

// N vectors mixed so that their numbers lie side by side, N at a time; and parted again.
template <int N> SP_INLINE void mix(vec *x) {
    if constexpr (N == 2) mix(x[0], x[1]);
    if constexpr (N == 4) mix(x[0], x[2]), mix(x[1], x[3]), mix(x[0], x[1]), mix(x[2], x[3]);
    (void)x;
}
template <int N> SP_INLINE void unmix(vec *x) {
    if constexpr (N == 2) unmix(x[0], x[1]);
    if constexpr (N == 4) unmix(x[0], x[1]), unmix(x[2], x[3]), unmix(x[0], x[2]), unmix(x[1], x[3]);
    (void)x;
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
