// What each family of kernels offers.
#pragma once
#include "simd.h"
#include "team.h"
#include "weights.h"

namespace sparsepath {

// Where a job runs: its threads, its images, its scratch memory.
struct Bench {
    Team &team;
    int batch;
    float *workspace;
};

// What happens to a result on its way to memory.
struct Finish {
    float lower, upper;
    int pool;  // 2: the maximum over 2x2 pixels; 1: none
};

void winograd(const Bench &bench, const sp_weights &weights, int panel, const View &source,
              const View &target, const Finish &finish);
void direct(const Bench &bench, const sp_call &call, int panel, const View &source, const View &target);
void depthwise(const Bench &bench, const sp_weights &weights, const View &source, const View &target,
               const Finish &finish);
void linear(const Bench &bench, const sp_weights &weights, const float *source, float *target,
            const Finish &finish);
void rows(const Bench &bench, const sp_weights &weights, const float *source, float *target,
          const Finish &finish);
void few_pixels(const Bench &bench, const sp_weights &weights, const View &source, const View &target,
                const Finish &finish);
void pool(const Bench &bench, const sp_call &call, const View &source, const View &target);
void add(const Bench &bench, const View &source, const View &other, const View &target,
         const Finish &finish);
void affine(const Bench &bench, const sp_call &call, const View &source, const View &target);
void mean(const Bench &bench, const View &source, float *target);

void run_call(Team &team, const sp_call &call, float *const *slots, int batch, float *workspace);

// Part `part` of `parts` of 0 .. count - 1.
struct Range {
    int first, last;
    Range(int count, int part, int parts)
        : first(int(int64_t(count) * part / parts)), last(int(int64_t(count) * (part + 1) / parts)) {}
};

}  // namespace sparsepath
