/* The threshold of whole blocks, fused: each weight is read once and written once. */

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
