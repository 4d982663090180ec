// Layers on few images: 16 filters side by side in the lanes, where the other kernels put images or pixels.
//
// One image leaves a linear layer nothing to share but its own row, so the time is that of reading the
// weights once; so it is with a convolution whose maps are no larger than a vector. A block of 16 filters
// leaves out the inputs that none of them keeps.
#include "rows.h"

#include "families.h"

namespace sparsepath {
namespace {

constexpr int TOGETHER = 4;  // images that share a weight once it is read
// Pixels that do: as many as have accumulators of their own.
constexpr int PIXELS = REGISTERS == 32 ? 16 : 8;
// So many products are summed before they are added to the others: the error of one long sum grows with
// its length.
constexpr size_t STRETCH = 1024;

// Where a linear layer finds number `column` of image n.
struct Images {
    const float *first;
    size_t length;
    float at(int n, int32_t column) const { return first[n * length + column]; }
};

// Where a convolution finds input `column` (channel and tap) of pixel n: in panel[column][16].
struct Pixels {
    const float *panel;
    float at(int n, int32_t column) const { return panel[size_t(column) * LANES + n]; }
};

// N images or pixels of one block. Few sums take turns at two accumulators, so that they need not wait.
template <int N, typename Source>
void multiply_block(const FilterBlock &block, const Source &source, float (*sums)[LANES]) {
    constexpr int TURNS = N < 8 ? 2 : 1;
    const size_t columns = block.columns.size();
    for (int part = 0; part < PARTS; part++) {
        const float *weight = block.weight.data() + part * WIDTH;
        vec total[N] = {};
        for (size_t k = 0; k < columns;) {
            const size_t end = std::min(columns, k + STRETCH);
            vec sum[TURNS][N] = {};
            for (; k + TURNS <= end; k += TURNS)
                SP_UNROLL for (int turn = 0; turn < TURNS; turn++) {
                    const vec w = load(weight + (k + turn) * LANES);
                    SP_UNROLL for (int n = 0; n < N; n++)
                        sum[turn][n] += w * source.at(n, block.columns[k + turn]);
                }
            for (; k < end; k++)
                SP_UNROLL for (int n = 0; n < N; n++)
                    sum[0][n] += load(weight + k * LANES) * source.at(n, block.columns[k]);
            SP_UNROLL for (int n = 0; n < N; n++)
                SP_UNROLL for (int turn = 0; turn < TURNS; turn++) total[n] += sum[turn][n];
        }
        SP_UNROLL for (int n = 0; n < N; n++) store(sums[n] + part * WIDTH, total[n]);
    }
}

float finished(float y, const Finish &finish) {
    y = y < finish.lower ? finish.lower : y;
    return y > finish.upper ? finish.upper : y;
}

// The lanes of a vector that can hold a pixel: whatever stands behind the last is nobody's.
int lanes_used(const sp_layout &layout) {
    if (layout.grid < 4) return LANES;
    const int down = divide_up(layout.height, layout.tile_height);
    const int across = divide_up(layout.width, layout.tile_width);
    return (down - 1) * layout.grid + across;
}

}  // namespace

std::vector<FilterBlock> pack_rows(int rows, int columns, const float *weight) {
    std::vector<FilterBlock> blocks(divide_up(rows, LANES));
    for (int b = 0; b < int(blocks.size()); b++) {
        const int here = std::min(LANES, rows - b * LANES);
        const float *first = weight + size_t(b) * LANES * columns;
        for (int column = 0; column < columns; column++) {
            float lanes[LANES] = {};
            for (int row = 0; row < here; row++) lanes[row] = first[size_t(row) * columns + column];
            if (std::all_of(lanes, lanes + LANES, [](float w) { return w == 0; })) continue;
            blocks[b].columns.push_back(column);
            blocks[b].weight.insert(blocks[b].weight.end(), lanes, lanes + LANES);
        }
        blocks[b].weight.shrink_to_fit();
    }
    return blocks;
}

void rows(const Bench &bench, const sp_weights &weights, const float *source, float *target,
          const Finish &finish) {
    const int filters = weights.spec.out_channels;
    const size_t length = weights.spec.in_channels;
    bench.team.each(int(weights.rows.size()), [&](int b, int) {
        const FilterBlock &block = weights.rows[b];
        alignas(64) float sums[TOGETHER][LANES];
        for (int first = 0; first < bench.batch; first += TOGETHER) {
            const Images images{source + first * length, length};
            const int here = std::min(TOGETHER, bench.batch - first);
            switch (here) {
            case 1: multiply_block<1>(block, images, sums); break;
            case 2: multiply_block<2>(block, images, sums); break;
            case 3: multiply_block<3>(block, images, sums); break;
            default: multiply_block<TOGETHER>(block, images, sums);
            }
            for (int n = 0; n < here; n++)
                for (int k = b * LANES; k < std::min(filters, (b + 1) * LANES); k++)
                    target[size_t(first + n) * filters + k] =
                        finished(sums[n][k - b * LANES] + weights.bias[k], finish);
        }
    });
}

void few_pixels(const Bench &bench, const sp_weights &weights, const View &source, const View &target,
                const Finish &finish) {
    const sp_conv_spec &spec = weights.spec;
    const Windows windows(source.layout, target.layout, spec.kernel, spec.stride, spec.padding,
                          spec.dilation);
    const int positions = sparsepath::positions(target.layout), used = lanes_used(target.layout);
    const int threads = bench.team.threads();
    float *panel = bench.workspace;
    for (int item = 0; item < vectors(target.layout, bench.batch) * positions; item++) {
        const int vector = item / positions, position = item % positions;
        bench.team.each(threads, [&](int part, int) {
            const Range range(spec.in_channels, part, threads);
            for (int tap = 0; tap < windows.taps; tap++) {
                const Reach from = windows.reach(position, tap);
                for (int channel = range.first; channel < range.last; channel++) {
                    float *out = panel + (size_t(channel) * windows.taps + tap) * LANES;
                    for (int k = 0; k < PARTS; k++)
                        store(out + k * WIDTH, load(source.at(vector, channel), from, windows.halos.data(), k));
                }
            }
        });
        bench.team.each(int(weights.rows.size()), [&](int b, int) {
            const FilterBlock &block = weights.rows[b];
            alignas(64) float sums[PIXELS][LANES];
            for (int first = 0; first < used; first += PIXELS) {
                const Pixels pixels{panel + first};
                const int here = std::min(PIXELS, used - first);
                if (here == 1)
                    multiply_block<1>(block, pixels, sums);
                else if (here <= 6)  // a map of 2 x 2 stands in six lanes
                    multiply_block<6>(block, pixels, sums);
                else
                    multiply_block<PIXELS>(block, pixels, sums);
                for (int k = b * LANES; k < std::min(spec.out_channels, (b + 1) * LANES); k++) {
                    float *out = target.at(vector, k) + size_t(position) * LANES + first;
                    for (int n = 0; n < here; n++)
                        out[n] = finished(sums[n][k - b * LANES] + weights.bias[k], finish);
                }
            }
        });
    }
}

}  // namespace sparsepath
