// The multiply: for each block of rows, one tight loop per pattern of steps.
//
// Loads are what a step of several inputs waits for, above all on machines that make hardly more than one
// wide load a cycle. So the places of all its inputs come in one load; and weights reach their registers
// by a load each, or four by one load and a permutation each. A permutation takes a port that also
// multiplies: how many weights are best picked out of four depends on the pattern and the machine.
#include "multiply.h"

#include <algorithm>
#include <utility>

namespace sparsepath {
namespace {

// The machine vectors of a row that one pass keeps in registers: four rows of accumulators, the
// input and a weight must fit.
constexpr int pass_width(int vectors) {
    if (REGISTERS == 32) return WIDTH == 16 ? vectors : vectors % 6 == 0 ? 6 : 4;
    return vectors % 3 == 0 ? 3 : 2;
}

// Where a step finds what it multiplies: the same column and row of T slices.
template <int T> struct Sources {
    const char *panel;
    const uint16_t *counts, *index;
    const float *weight;
    size_t across;  // floats from slice to slice of the panel
    size_t slice;   // floats from slice to slice of the weights
};

// Wide loads in eight cycles, beside sixteen multiply-adds.
enum Loads { NINE = 9, SIXTEEN = 16 };

constexpr int bits(int mask) { return mask ? (mask & 1) + bits(mask >> 1) : 0; }

// What a step of a pattern takes, on W vectors.
template <int PLACE> struct Step {
    static constexpr const int (&MASKS)[4] = PATTERN[PLACE];
    static constexpr int INPUTS = (MASKS[0] > 0) + (MASKS[1] > 0) + (MASKS[2] > 0) + (MASKS[3] > 0);
    static constexpr int WEIGHTS = bits(MASKS[0]) + bits(MASKS[1]) + bits(MASKS[2]) + bits(MASKS[3]);

    // Which of the weights multiplies input k in a row.
    static constexpr int number(int k, int row) {
        return k ? number(k - 1, 4) + number_within(k, row) : number_within(0, row);
    }
    // How many of the first four weights are best picked: loads and ports shall take equally long.
    static constexpr int picked(Loads loads, int W) {
        if (WIDTH < LANES || WEIGHTS < 4) return 0;
        int best = 0;
        for (int count = 2; count <= 4; count++)
            if (cycles(loads, W, count) < cycles(loads, W, best)) best = count;
        return best;
    }

  private:
    static constexpr int number_within(int k, int row) { return bits(MASKS[k] & ((1 << row) - 1)); }
    static constexpr double cycles(Loads loads, int W, int picked) {
        const double loading = 8.0 / loads * (W * INPUTS + WEIGHTS - picked + (picked > 0));
        const double working = (W * WEIGHTS + picked) / 2.0;
        return loading > working ? loading : working;
    }
};

// The places of a step's inputs, 16 bits each; those of three are read as four.
template <int INPUTS> SP_INLINE uint64_t places_of(const uint16_t *index) {
    if constexpr (INPUTS == 1) return *index;
    if constexpr (INPUTS == 2) return load_as<uint32_t>(index);
    return load_as<uint64_t>(index);
}
template <int INPUTS, int K> SP_INLINE size_t place(uint64_t places) {
    constexpr bool BIG_END_FIRST = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    constexpr int LAST = INPUTS == 3 ? 3 : INPUTS - 1;
    return places >> 16 * (BIG_END_FIRST ? LAST - K : K) & 0xFFFF;
}

template <int W, int T, int WOVEN, Loads LOADS, int PLACE, int K, int ROW>
SP_INLINE void multiply_row(const Sources<T> &from, const vec (&x)[T * W], vec four, vec (&sum)[4][T * W]) {
    if constexpr (Step<PLACE>::MASKS[K] >> ROW & 1) {
        constexpr int NUMBER = Step<PLACE>::number(K, ROW);
        const float *at = from.weight + NUMBER * WOVEN;
        if constexpr (T > 1) {
            SP_UNROLL for (int k = 0; k < T * W; k++) sum[ROW][k] += x[k] * all(at[k / W * from.slice]);
        } else {
            vec weight;
            if constexpr (NUMBER < Step<PLACE>::picked(LOADS, W))
                weight = pick<WOVEN, NUMBER>(four);
            else
                weight = WOVEN == 4 ? all_quads(at) : WOVEN == 2 ? all_pairs(at) : all(*at);
            SP_UNROLL for (int k = 0; k < W; k++) sum[ROW][k] += x[k] * weight;
        }
    }
}

template <int P, int W, int T, int WOVEN, Loads LOADS, int PLACE, int K>
SP_INLINE void multiply_input(const Sources<T> &from, uint64_t places, vec four, vec (&sum)[4][T * W]) {
    if constexpr (K < Step<PLACE>::INPUTS) {
        const size_t offset = place<Step<PLACE>::INPUTS, K>(places) * (P * LANES * sizeof(float));
        const float *input = reinterpret_cast<const float *>(from.panel + offset);
        vec x[T * W];
        SP_UNROLL for (int k = 0; k < T * W; k++) x[k] = load(input + k / W * from.across + k % W * WIDTH);
        multiply_row<W, T, WOVEN, LOADS, PLACE, K, 0>(from, x, four, sum);
        multiply_row<W, T, WOVEN, LOADS, PLACE, K, 1>(from, x, four, sum);
        multiply_row<W, T, WOVEN, LOADS, PLACE, K, 2>(from, x, four, sum);
        multiply_row<W, T, WOVEN, LOADS, PLACE, K, 3>(from, x, four, sum);
    }
}

// All steps of one pattern.
template <int P, int W, int T, int WOVEN, Loads LOADS, int PLACE>
SP_INLINE void steps(Sources<T> &from, uint32_t present, vec (&sum)[4][T * W]) {
    if (!(present >> PLACE & 1)) return;
    int count = *from.counts++;
    using Step = Step<PLACE>;
    const auto step = [&](vec(&into)[4][T * W]) __attribute__((always_inline)) {
        const uint64_t places = places_of<Step::INPUTS>(from.index);
        vec four{};
        if constexpr (T == 1 && Step::picked(LOADS, W) > 0) four = load_four<WOVEN>(from.weight);
        multiply_input<P, W, T, WOVEN, LOADS, PLACE, 0>(from, places, four, into);
        multiply_input<P, W, T, WOVEN, LOADS, PLACE, 1>(from, places, four, into);
        multiply_input<P, W, T, WOVEN, LOADS, PLACE, 2>(from, places, four, into);
        multiply_input<P, W, T, WOVEN, LOADS, PLACE, 3>(from, places, four, into);
        from.index += Step::INPUTS, from.weight += Step::WEIGHTS * WOVEN;
    };
    if constexpr (T * W == 1 && WIDTH == LANES) {
        // Four accumulators alone would wait for their last sums most of the time.
        vec more[4][1] = {};
        for (; count >= 2; count -= 2) step(sum), step(more);
        SP_UNROLL for (int row = 0; row < 4; row++) sum[row][0] += more[row][0];
    }
    for (; count; count--) step(sum);
}

// All steps of the patterns from FIRST on; where none of them is present, one question is enough.
template <int P, int W, int T, int WOVEN, Loads LOADS, int FIRST, size_t... PLACES>
SP_INLINE void steps_from(Sources<T> &from, uint32_t present, vec (&sum)[4][T * W],
                          std::index_sequence<PLACES...>) {
    if (present >> FIRST & ((1u << sizeof...(PLACES)) - 1))
        (steps<P, W, T, WOVEN, LOADS, FIRST + PLACES>(from, present, sum), ...);
}

template <int P, int W, int T, int WOVEN, Loads LOADS>
SP_INLINE void all_steps(Sources<T> from, uint32_t present, vec (&sum)[4][T * W]) {
    steps<P, W, T, WOVEN, LOADS, FOUR>(from, present, sum);
    steps_from<P, W, T, WOVEN, LOADS, TWO_TWO>(from, present, sum,
                                               std::make_index_sequence<THREE_ONE - TWO_TWO>());
    steps_from<P, W, T, WOVEN, LOADS, THREE_ONE>(from, present, sum,
                                                 std::make_index_sequence<TWO_ONE_ONE - THREE_ONE>());
    steps_from<P, W, T, WOVEN, LOADS, TWO_ONE_ONE>(from, present, sum,
                                                   std::make_index_sequence<ONES - TWO_ONE_ONE>());
    steps_from<P, W, T, WOVEN, LOADS, ONES>(from, present, sum, std::make_index_sequence<PATTERNS - ONES>());
}

template <Loads LOADS, int P, int T = 1, int WOVEN = 1> void multiply(const Product &job) {
    constexpr int W = pass_width(P * PARTS), PASSES = P * PARTS / W;
    static_assert(W * PASSES == P * PARTS, "passes cover a row");
    const Steps &steps = *job.steps;
    const float *weights = steps.weight.data() + job.slice * steps.slice;
    const size_t lines = job.next ? job.next_lines : 0, fetch = lines / (job.last - job.first) + 1;
    size_t fetched = 0;
    for (int b = job.first; b < job.last; b++) {
        const RowBlock &block = steps.blocks[b];
        for (size_t end = std::min(lines, fetched + fetch); fetched < end; fetched++)
            for (int t = 0; t < T; t++) __builtin_prefetch(job.next + t * job.across + fetched * LANES);
        const uint16_t *counts = steps.index.data() + block.index;
        const uint16_t *index = counts + __builtin_popcount(block.present);
        for (int pass = 0; pass < PASSES; pass++) {
            const int offset = pass * W * WIDTH;
            vec sum[4][T * W] = {};
            all_steps<P, W, T, WOVEN, LOADS>({reinterpret_cast<const char *>(job.panel + offset), counts, index,
                                              weights + block.weight, job.across, steps.slice},
                                             block.present, sum);
            if (job.before)  // added last: short sums lose less than one long one
                SP_UNROLL for (int row = 0; row < 4; row++)
                    SP_UNROLL for (int k = 0; k < W; k++)
                        sum[row][k] +=
                            load(job.before + size_t(block.rows[row]) * P * LANES + offset + k * WIDTH);
            SP_UNROLL for (int row = 0; row < 4; row++) {
                float *out = job.product + size_t(block.rows[row]) * job.stride + offset;
                if (job.ending) {
                    if (block.rows[row] >= job.ending->rows) continue;
                    const vec lower = all(job.ending->lower), upper = all(job.ending->upper);
                    if constexpr (POOLS && P == 4)
                        if (job.ending->pool) {
                            const vec(&s)[W] = sum[row];
                            const vec most = maximum(maximum(s[0], s[1]), maximum(s[2], s[3]));
                            store(out, clamp(most + job.ending->bias[block.rows[row]], lower, upper));
                            continue;
                        }
                    SP_UNROLL for (int k = 0; k < W; k++)
                        sum[row][k] = clamp(sum[row][k] + job.ending->bias[block.rows[row]], lower, upper);
                }
                SP_UNROLL for (int k = 0; k < T * W; k++)
                    store(out + k / W * job.across + k % W * WIDTH, sum[row][k]);
            }
        }
    }
}

// Of four vectors, slices woven or not.
template <Loads LOADS> void wide_multiply(const Product &job) {
    if (job.steps->woven == 4) return multiply<LOADS, 4, 1, 4>(job);
    if (job.steps->woven == 2) return multiply<LOADS, 4, 1, 2>(job);
    multiply<LOADS, 4>(job);
}

}  // namespace

void multiply(int P, const Product &job) {
    if constexpr (WIDTH == LANES)
        if (job.slices > 1)
            return P == 1 ? multiply<SIXTEEN, 1, slices_together(1)>(job)
                          : multiply<SIXTEEN, 2, slices_together(2)>(job);
    if (job.slices > 1) {  // narrow vectors leave no accumulators unused
        Product one = job;
        for (one.slices = 1; one.slice < job.slice + job.slices; one.slice++) {
            multiply(P, one);
            one.panel += job.across, one.product += job.across, one.next = nullptr;
        }
        return;
    }
#if defined(__AVX512F__)
    // Narrow panels wait for other things: their loops are compiled once.
    static const bool few_loads = __builtin_cpu_is("icelake-server");
    if (few_loads && P == 4) return wide_multiply<NINE>(job);
#endif
    switch (P) {
    case 1: return multiply<SIXTEEN, 1>(job);
    case 2: return multiply<SIXTEEN, 2>(job);
    case 3: return multiply<SIXTEEN, 3>(job);
    default: return wide_multiply<SIXTEEN>(job);
    }
}

}  // namespace sparsepath
