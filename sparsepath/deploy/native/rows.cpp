// Linear layers on few images: 16 filters side by side in the lanes, where the other kernels put images.
//
// One image leaves nothing to share but its own row, so the time is that of reading the weights once.
// A block of 16 filters leaves out the inputs that none of them keeps.
#include "rows.h"

#include "families.h"

namespace sparsepath {
namespace {

constexpr int TOGETHER = 4;  // images that share a weight once it is read
// So many products are summed before they are added to the others: the error of one long sum grows with
// its length.
constexpr size_t STRETCH = 1024;

// N images of one block. Sums take turns at two accumulators, so that they need not wait.
template <int N>
void multiply_block(const FilterBlock &block, const float *source, size_t length, float (*sums)[LANES]) {
    const size_t columns = block.columns.size();
    for (int part = 0; part < PARTS; part++) {
        const float *weight = block.weight.data() + part * WIDTH;
        vec total[N] = {};
        for (size_t k = 0; k < columns;) {
            const size_t end = std::min(columns, k + STRETCH);
            vec sum[2][N] = {};
            for (; k + 2 <= end; k += 2)
                SP_UNROLL for (int turn = 0; turn < 2; turn++) {
                    const vec w = load(weight + (k + turn) * LANES);
                    SP_UNROLL for (int n = 0; n < N; n++)
                        sum[turn][n] += w * source[n * length + block.columns[k + turn]];
                }
            for (; k < end; k++)
                SP_UNROLL for (int n = 0; n < N; n++)
                    sum[0][n] += load(weight + k * LANES) * source[n * length + block.columns[k]];
            SP_UNROLL for (int n = 0; n < N; n++) total[n] += sum[0][n] + sum[1][n];
        }
        SP_UNROLL for (int n = 0; n < N; n++) store(sums[n] + part * WIDTH, total[n]);
    }
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
            const float *images = source + first * length;
            const int here = std::min(TOGETHER, bench.batch - first);
            switch (here) {
            case 1: multiply_block<1>(block, images, length, sums); break;
            case 2: multiply_block<2>(block, images, length, sums); break;
            case 3: multiply_block<3>(block, images, length, sums); break;
            default: multiply_block<TOGETHER>(block, images, length, sums);
            }
            for (int n = 0; n < here; n++)
                for (int k = b * LANES; k < std::min(filters, (b + 1) * LANES); k++) {
                    float y = sums[n][k - b * LANES] + weights.bias[k];
                    y = y < finish.lower ? finish.lower : y;
                    target[size_t(first + n) * filters + k] = y > finish.upper ? finish.upper : y;
                }
        }
    });
}

}  // namespace sparsepath
