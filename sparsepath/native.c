/* Kernels that a CPU trains by, each of which reads its numbers once and writes them once: first
   the threshold of whole blocks. */

#include <math.h>
#include <stdint.h>

/* One build serves every x86-64 machine: the loader picks the widest copy that the CPU can run. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define EVERY_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EVERY_CPU
#endif

/* What a block is multiplied by. Chosen without a branch: at a useful threshold none predicts it. */
static inline float scale_of(float norm, float threshold, int soft)
{
    const float kept = soft ? (norm - threshold) / norm : 1.0f;
    return norm > threshold ? kept : 0.0f;
}

/* With a size known to the compiler the loops over a kernel's few weights are unrolled. Adding zero
   turns a product of -0 into +0. */
#define SHORT_BLOCKS(SIZE)                                                  \
    for (int64_t block = 0; block < count; block++, v += SIZE, f += SIZE) { \
        float square = 0.0f;                                                \
        for (int i = 0; i < SIZE; i++)                                      \
            square += v[i] * v[i];                                          \
        const float scale = scale_of(sqrtf(square), threshold, soft);       \
        for (int i = 0; i < SIZE; i++)                                      \
            f[i] = v[i] * scale + 0.0f;                                     \
    }

/* Blocks of `size` consecutive weights: zero up to the threshold; above it as they are, or, if
   `soft`, shortened by the threshold. Long blocks sum their squares in double. */
EVERY_CPU
void threshold_blocks(const float *v, float *f, int64_t count, int64_t size, float threshold, int soft)
{
    switch (size) {
    case 3: SHORT_BLOCKS(3) return;
    case 9: SHORT_BLOCKS(9) return;
    case 25: SHORT_BLOCKS(25) return;
    }
    for (int64_t block = 0; block < count; block++, v += size, f += size) {
        double square = 0.0;
#pragma omp simd reduction(+ : square)
        for (int64_t i = 0; i < size; i++)
            square += (double)v[i] * (double)v[i];
        const float scale = scale_of((float)sqrt(square), threshold, soft);
        for (int64_t i = 0; i < size; i++)
            f[i] = v[i] * scale + 0.0f;
    }
}

/* What follows serves training on a CPU (sparsepath/lab/models/cpu.py). Values come as the integers
   of their bits: those of numbers that are not negative have the numbers' own order. */

/* A NaN without its sign stands above infinity, so it wins, as it must; other values stay. */
#define LIVELY(value, bits, infinity) (((value) & (bits)) > (infinity) ? ((value) & (bits)) : (value))

/* The largest of each 2 x 2 pixels or zero, and where it was: 0 to 3, or 4 if none is positive. Of
   equal ones the first, as torch has it. Images are (count, height, width, maps), both sizes even. */
#define RELU_POOL(name, integer, bits, infinity)                                                   \
    EVERY_CPU void name(const integer *restrict images, integer *restrict pooled,               \
                           uint8_t *restrict places, int64_t count, int64_t height, int64_t width, \
                           int64_t maps) {                                                         \
        for (int64_t row = 0; row < count * height / 2; row++)                                     \
            for (int64_t x = 0; x < width / 2; x++) {                                              \
                const integer *first = images + (2 * row * width + 2 * x) * maps;                  \
                const integer *second = first + maps, *third = first + width * maps;               \
                const integer *fourth = third + maps;                                              \
                integer *largest = pooled + (row * (width / 2) + x) * maps;                        \
                uint8_t *place = places + (row * (width / 2) + x) * maps;                          \
                for (int64_t map = 0; map < maps; map++) {                                         \
                    integer a = LIVELY(first[map], bits, infinity);                                \
                    integer b = LIVELY(second[map], bits, infinity);                               \
                    integer c = LIVELY(third[map], bits, infinity);                                \
                    integer d = LIVELY(fourth[map], bits, infinity);                               \
                    integer best = a > 0 ? a : 0, at = a > 0 ? 0 : 4;                              \
                    at = b > best ? 1 : at, best = b > best ? b : best;                            \
                    at = c > best ? 2 : at, best = c > best ? c : best;                            \
                    at = d > best ? 3 : at, best = d > best ? d : best;                            \
                    largest[map] = best;                                                           \
                    place[map] = (uint8_t)at;                                                      \
                }                                                                                  \
            }                                                                                      \
    }

RELU_POOL(relu_pool_16, int16_t, 0x7fff, 0x7f80)
RELU_POOL(relu_pool_32, int32_t, 0x7fffffff, 0x7f800000)

/* Each gradient where its value came from, zero elsewhere. */
#define RELU_POOL_BACK(name, integer)                                                              \
    EVERY_CPU void name(integer *restrict back, const integer *restrict gradient,               \
                           const uint8_t *restrict places, int64_t count, int64_t height,          \
                           int64_t width, int64_t maps) {                                          \
        for (int64_t row = 0; row < count * height / 2; row++)                                     \
            for (int64_t x = 0; x < width / 2; x++) {                                              \
                integer *first = back + (2 * row * width + 2 * x) * maps;                          \
                integer *second = first + maps, *third = first + width * maps;                     \
                integer *fourth = third + maps;                                                    \
                const integer *given = gradient + (row * (width / 2) + x) * maps;                  \
                const uint8_t *place = places + (row * (width / 2) + x) * maps;                    \
                _Pragma("GCC ivdep") for (int64_t map = 0; map < maps; map++) {                    \
                    integer at = place[map], value = given[map];                                   \
                    first[map] = at == 0 ? value : 0;                                              \
                    second[map] = at == 1 ? value : 0;                                             \
                    third[map] = at == 2 ? value : 0;                                              \
                    fourth[map] = at == 3 ? value : 0;                                             \
                }                                                                                  \
            }                                                                                      \
    }

RELU_POOL_BACK(relu_pool_back_16, int16_t)
RELU_POOL_BACK(relu_pool_back_32, int32_t)

/* MurmurHash3's last mixing, as in sparsepath/lab/dropout.py. */
static inline uint32_t mixed(uint32_t word) {
    word = (word ^ (word >> 16)) * 0x85ebca6bu;
    word = (word ^ (word >> 13)) * 0xc2b2ae35u;
    return word ^ (word >> 16);
}

static inline uint32_t drawn(uint32_t place, uint32_t first, uint32_t second) {
    return mixed(mixed(place + first) ^ second) & 0x7fffffffu;
}

/* Dropout: values whose place draws at least `least` live, divided by `share`; `begin` is the place of
   the first. bfloat16 is rounded to the nearest, ties to even; a NaN is made torch's. */
EVERY_CPU void drop_16(const uint16_t *restrict values, uint16_t *restrict living, int64_t begin,
                          int64_t count, uint32_t first, uint32_t second, uint32_t least,
                          float share) {
    for (int64_t i = 0; i < count; i++) {
        union {
            uint32_t bits;
            float number;
        } wide = {.bits = (uint32_t)values[i] << 16};
        wide.number /= share;
        uint32_t rounded = (wide.bits + 0x7fffu + ((wide.bits >> 16) & 1u)) >> 16;
        rounded = (wide.bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded;
        living[i] = drawn((uint32_t)(begin + i), first, second) >= least ? (uint16_t)rounded : 0;
    }
}

EVERY_CPU void drop_32(const float *restrict values, float *restrict living, int64_t begin,
                          int64_t count, uint32_t first, uint32_t second, uint32_t least,
                          float share) {
    for (int64_t i = 0; i < count; i++) {
        float value = values[i] / share;
        living[i] = drawn((uint32_t)(begin + i), first, second) >= least ? value : 0.0f;
    }
}
