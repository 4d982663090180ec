/* The C interface of the CPU kernels: pack weights once, then run arrays of calls on buffers.
 *
 * Nothing here keeps global state, but for a count of forks. An engine (its threads) runs one program at a
 * time; packed weights are read-only and may be shared by any number of engines. The same sources
 * become one library per instruction set; weights packed by one may be run by another. The caller owns
 * every buffer. Shapes are checked by the Python side (program.py), which builds the calls. */
#ifndef SPARSEPATH_H
#define SPARSEPATH_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define SP_VERSION 5 /* raised whenever this file changes meaning */

/* How a map of height x width lies in the 16 lanes; explained in layout.h. */
typedef struct sp_layout {
    int32_t height, width, grid, tile_height, tile_width;
} sp_layout;

/* Channels first .. first + channels - 1 of a buffer that holds `total` channels per vector. A plain
 * row-major tensor (N, total, height, width) is described by the same record with grid 0. */
typedef struct sp_map {
    int32_t slot, first, channels, total;
    sp_layout layout;
} sp_map;

enum sp_kind {
    SP_IMPORT,   /* plain tensor -> lanes */
    SP_EXPORT,   /* lanes -> plain tensor */
    SP_RELAYOUT, /* lanes -> lanes of another layout */
    SP_CONV,     /* source * weights + bias, clamped, then 2x2 max-pooled if pool is 2 (not depthwise or
                    rows, and by Winograd 3x3 only) */
    SP_MAX_POOL,
    SP_AVG_POOL,
    SP_ADD,      /* source + other, clamped */
    SP_AFFINE,   /* source * scale[c] + shift[c], clamped; a null scale is 1, a null shift 0 */
    SP_MEAN,     /* mean over each channel's map -> plain (N, channels) */
    SP_LINEAR    /* plain (N, in) * weights + bias, clamped -> plain (N, out) */
};

typedef struct sp_call {
    int32_t kind, pool;
    int32_t panel; /* vectors that SP_CONV multiplies at a time: 1, 2, 3, 4, or 0 to choose */
    int32_t tails; /* of SP_CONV by SP_DIRECT: so many of the calls behind it are 1x1 convolutions, each
                      of the one before, of which only the last may pool, and run with it; the buffers in between are never touched */
    sp_map source, other, target;
    int32_t window[2], stride[2], padding[2]; /* of the two pools, as (vertical, horizontal) */
    int32_t count_padding;                    /* whether an average counts padded pixels */
    float lower, upper;                       /* the clamp: -inf, inf for none; 0, inf for ReLU */
    const void *weights;                      /* sp_weights of SP_CONV and SP_LINEAR */
    const float *scale, *shift;
} sp_call;

enum sp_method { SP_DIRECT, SP_WINOGRAD2, SP_WINOGRAD4, SP_DEPTHWISE, SP_ROWS };

typedef struct sp_conv_spec {
    int32_t in_channels, out_channels, groups;
    int32_t kernel[2], stride[2], padding[2], dilation[2];
    int32_t method; /* Winograd: stride 1, dilation 1, one group, 3x3 (SP_WINOGRAD4 also 1x3 and
                       3x1); depthwise: groups = in_channels; rows: one group, for linear layers on few images and
                       maps of few pixels */
    int32_t columns; /* SP_DIRECT takes so many pairs of channel and tap at a time; 0 to choose */
    int32_t woven;   /* Winograd of 3x3 kernels takes 4 slices of 1 vector of tiles at a time, or 2 slices
                        of 2 vectors; or, if this is 0, one slice of as many as the call says */
} sp_conv_spec;

typedef struct sp_weights sp_weights;
typedef struct sp_engine sp_engine;

int sp_version(void);
const char *sp_best_isa(void); /* "avx512", "avx2" or "portable": the best that runs here */

/* weight is (out, in / groups, kernel) row-major, bias (out) or null; both are copied. Null: there is
 * not enough memory. */
sp_weights *sp_pack_conv(const sp_conv_spec *spec, const float *weight, const float *bias);
sp_weights *sp_pack_linear(int32_t out, int32_t in, const float *weight, const float *bias,
                           int32_t method); /* SP_DIRECT or SP_ROWS */
void sp_weights_free(sp_weights *weights);
size_t sp_weights_bytes(const sp_weights *weights); /* memory of the packed form */

/* Null: the system does not give so many threads. A forked process runs another's engine alone. */
sp_engine *sp_engine_create(int32_t threads);
void sp_engine_free(sp_engine *engine);

/* Floats of workspace that sp_run needs for these calls; the workspace must be aligned to 64 bytes,
 * as must be every slot that holds lanes. */
size_t sp_workspace(const sp_call *calls, int32_t count, int32_t batch, int32_t threads);

/* Run the calls in order on `batch` images; slots[i] is the buffer of slot i. Gives 1; or 0 if there
 * was not enough memory, and then the buffers that the calls write hold anything. */
int32_t sp_run(const sp_engine *engine, const sp_call *calls, int32_t count, float *const *slots,
               int32_t batch, float *workspace);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
