/* Kernels that a CPU trains by, each of which reads its numbers once and writes them once: first
   the threshold of whole blocks. */

#include <math.h>
#include <stdint.h>

/* Work on `count` things, of which each thread takes one part after the other. */
typedef struct {
    void (*run)(const void *given, int64_t begin, int64_t end);
    const void *given;
    int64_t count, parts, next;
} Work;

static void take_parts(void *pointer)
{
    Work *work = pointer;
    for (;;) {
        const int64_t part = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED);
        if (part >= work->parts)
            return;
        work->run(work->given, work->count * part / work->parts,
                  work->count * (part + 1) / work->parts);
    }
}

/* OpenMP's GOMP_parallel as torch has it. Its threads keep turning for a while after torch's own
   work, so any others would have to share the cores with them. */
static void (*team)(void (*)(void *), void *, unsigned, unsigned);

void set_team(void (*found)(void (*)(void *), void *, unsigned, unsigned)) { team = found; }

/* Always by as many threads as torch has: a smaller team would end the others. */
static void spread(void (*run)(const void *, int64_t, int64_t), const void *given, int64_t count,
                   int64_t parts)
{
    Work work = {run, given, count, parts, 0};
    if (parts > 1)
        team(take_parts, &work, 0, 0);
    else
        take_parts(&work);
}

/* One build serves every x86-64 machine: the loader picks the widest copy that the CPU can run. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define EVERY_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EVERY_CPU
#endif

/* What a block is multiplied by, also one that is not a number: it must show. Chosen without a branch:
   at a useful threshold none predicts it. */
static inline float scale_of(float norm, float threshold, int soft)
{
    const float kept = soft ? (norm - threshold) / norm : 1.0f;
    return norm <= threshold ? 0.0f : kept;
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

typedef struct {
    const float *v;
    float *f;
    int64_t size;
    float threshold;
    int soft;
} Blocks;

EVERY_CPU
static void some_blocks(const void *given, int64_t begin, int64_t end)
{
    const Blocks *blocks = given;
    const int64_t size = blocks->size, count = end - begin;
    const float *v = blocks->v + begin * size, threshold = blocks->threshold;
    float *f = blocks->f + begin * size;
    const int soft = blocks->soft;
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

/* Blocks of `size` consecutive weights: zero up to the threshold; above it as they are, or, if
   `soft`, shortened by the threshold. Long blocks sum their squares in double. */
void threshold_blocks(const float *v, float *f, int64_t count, int64_t size, float threshold,
                      int soft, int64_t parts)
{
    const Blocks blocks = {v, f, size, threshold, soft};
    spread(some_blocks, &blocks, count, parts);
}

/* What follows serves training on a CPU (sparsepath/lab/models/cpu.py). Values come as the integers
   of their bits: those of numbers that are not negative have the numbers' own order. */

/* A NaN without its sign stands above infinity, so it wins, as it must; other values stay. */
#define LIVELY(value, bits, infinity) (((value) & (bits)) > (infinity) ? ((value) & (bits)) : (value))

typedef struct {
    void *images, *pooled;
    uint8_t *places;
    int64_t width, maps;
} Maps;

/* The largest of each 2 x 2 pixels or zero, and where it was: 0 to 3, or 4 if none is positive. Of
   equal ones the first, as torch has it. Images are (pixels down, width, maps), one below the other,
   and every two rows of pixels give one of the pooled `rows`. */
#define RELU_POOL(some, integer, bits, infinity)                                                   \
    EVERY_CPU static void some(const void *given, int64_t begin, int64_t end) {                    \
        const Maps *all = given;                                                                   \
        const int64_t width = all->width, maps = all->maps;                                        \
        const integer *restrict images = all->images;                                              \
        integer *restrict pooled = all->pooled;                                                    \
        uint8_t *restrict places = all->places;                                                    \
        for (int64_t row = begin; row < end; row++)                                                \
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

RELU_POOL(some_pooled_16, int16_t, 0x7fff, 0x7f80)
RELU_POOL(some_pooled_32, int32_t, 0x7fffffff, 0x7f800000)

/* Each gradient where its value came from, zero elsewhere. */
#define RELU_POOL_BACK(some, integer)                                                              \
    EVERY_CPU static void some(const void *given, int64_t begin, int64_t end) {                    \
        const Maps *all = given;                                                                   \
        const int64_t width = all->width, maps = all->maps;                                        \
        integer *restrict back = all->images;                                                      \
        const integer *restrict gradient = all->pooled;                                            \
        const uint8_t *restrict places = all->places;                                              \
        for (int64_t row = begin; row < end; row++)                                                \
            for (int64_t x = 0; x < width / 2; x++) {                                              \
                integer *first = back + (2 * row * width + 2 * x) * maps;                          \
                integer *second = first + maps, *third = first + width * maps;                     \
                integer *fourth = third + maps;                                                    \
                const integer *from = gradient + (row * (width / 2) + x) * maps;                   \
                const uint8_t *place = places + (row * (width / 2) + x) * maps;                    \
                _Pragma("GCC ivdep") for (int64_t map = 0; map < maps; map++) {                    \
                    integer at = place[map], value = from[map];                                    \
                    first[map] = at == 0 ? value : 0;                                              \
                    second[map] = at == 1 ? value : 0;                                             \
                    third[map] = at == 2 ? value : 0;                                              \
                    fourth[map] = at == 3 ? value : 0;                                             \
                }                                                                                  \
            }                                                                                      \
    }

RELU_POOL_BACK(some_back_16, int16_t)
RELU_POOL_BACK(some_back_32, int32_t)

#define POOL(some, name)                                                                           \
    void name(void *images, void *pooled, uint8_t *places, int64_t rows, int64_t width,            \
              int64_t maps, int64_t parts) {                                                       \
        const Maps all = {images, pooled, places, width, maps};                                    \
        spread(some, &all, rows, parts);                                                           \
    }

POOL(some_pooled_16, relu_pool_16)
POOL(some_pooled_32, relu_pool_32)
POOL(some_back_16, relu_pool_back_16)
POOL(some_back_32, relu_pool_back_32)

/* MurmurHash3's last mixing, as in sparsepath/lab/dropout.py. */
static inline uint32_t mixed(uint32_t word) {
    word = (word ^ (word >> 16)) * 0x85ebca6bu;
    word = (word ^ (word >> 13)) * 0xc2b2ae35u;
    return word ^ (word >> 16);
}

static inline uint32_t drawn(uint32_t place, uint32_t first, uint32_t second) {
    return mixed(mixed(place + first) ^ second) & 0x7fffffffu;
}

typedef struct {
    const void *values;
    void *living;
    uint32_t first, second, least;
    float share;
} Drop;

static inline int lives(const Drop *all, int64_t place) {
    return drawn((uint32_t)place, all->first, all->second) >= all->least;
}

EVERY_CPU static void some_dropped_16(const void *given, int64_t begin, int64_t end) {
    const Drop all = *(const Drop *)given;
    const uint16_t *restrict values = all.values;
    uint16_t *restrict living = all.living;
    for (int64_t i = begin; i < end; i++) {
        union {
            uint32_t bits;
            float number;
        } wide = {.bits = (uint32_t)values[i] << 16};
        wide.number /= all.share;
        uint32_t rounded = (wide.bits + 0x7fffu + ((wide.bits >> 16) & 1u)) >> 16;
        rounded = (wide.bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded;
        living[i] = lives(&all, i) ? (uint16_t)rounded : 0;
    }
}

EVERY_CPU static void some_dropped_32(const void *given, int64_t begin, int64_t end) {
    const Drop all = *(const Drop *)given;
    const float *restrict values = all.values;
    float *restrict living = all.living;
    for (int64_t i = begin; i < end; i++) {
        float value = values[i] / all.share;
        living[i] = lives(&all, i) ? value : 0.0f;
    }
}

/* Dropout: values whose place draws at least `least` live, divided by `share`. bfloat16 is rounded
   to the nearest, ties to even; a NaN is made torch's. */
#define DROP(some, name)                                                                           \
    void name(const void *values, void *living, int64_t count, uint32_t first, uint32_t second,    \
              uint32_t least, float share, int64_t parts) {                                        \
        const Drop all = {values, living, first, second, least, share};                            \
        spread(some, &all, count, parts);                                                          \
    }

DROP(some_dropped_16, drop_16)
DROP(some_dropped_32, drop_32)
