// Packing: masks are put together into steps, see pack.h.
#include "pack.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace sparsepath {
namespace {

using Step = std::array<int, 4>;  // the columns of a step, one per mask of its pattern

// Puts the inputs of four rows together into steps; no row may want more than the one before it.
class Partition {
  public:
    std::vector<Step> steps[PATTERNS];

    void add(int mask, int column) {
        wanted_[mask].push_back(column);
        for (int row = 0; row < 4; row++) left_[row] += mask >> row & 1;
    }

    void partition() {
        for (int pattern = FOUR; pattern < TWO_ONE_ONE; pattern++) whole(pattern);
        for (int pattern = TWO_ONE_ONE; pattern < ONES; pattern++) led(pattern);
        for (int pattern = THREE_ONE; pattern < THREES; pattern++) led(pattern);
        for (int rows = 4; rows > 0; rows--)  // one by one, and the last rows run out first
            while (left_[rows - 1] > 0) {
                Step step{};
                for (int row = 0; row < rows; row++) step[row] = single(1 << row);
                steps[ONES + 4 - rows].push_back(step);
            }
        for (auto &same : steps)  // in memory order
            std::sort(same.begin(), same.end());
    }

  private:
    std::vector<int> wanted_[16];
    int left_[4] = {};  // the weights of each row that are in no step yet

    int take(int mask) {
        const int column = wanted_[mask].back();
        wanted_[mask].pop_back();
        for (int row = 0; row < 4; row++) left_[row] -= mask >> row & 1;
        return column;
    }

    // Steps whose masks are all there as they are.
    void whole(int pattern) {
        const int *mask = PATTERN[pattern], *end = std::find(mask, mask + 4, 0);
        while (std::all_of(mask, end, [&](int m) { return !wanted_[m].empty(); })) {
            Step step{};
            std::transform(mask, end, step.begin(), [&](int m) { return take(m); });
            steps[pattern].push_back(step);
        }
    }

    // Steps whose first mask is there, as long as the other rows have anything left.
    void led(int pattern) {
        const int *mask = PATTERN[pattern], *end = std::find(mask, mask + 4, 0);
        while (!wanted_[mask[0]].empty() && left_[3] > 0) {
            Step step{take(mask[0])};
            std::transform(mask + 1, end, step.begin() + 1, [&](int m) { return single(m); });
            steps[pattern].push_back(step);
        }
    }

    // An input for one row: one that only this row wants, or else one torn from a smallest mask, which
    // is then loaded twice.
    int single(int bit) {
        for (int size = 1; size <= 3; size++)
            for (int mask = 1; mask < 15; mask++)
                if ((mask & bit) && __builtin_popcount(mask) == size && !wanted_[mask].empty()) {
                    const int column = take(mask);
                    if (mask != bit) add(mask & ~bit, column);
                    return column;
                }
        return 0;  // never: the row has something left
    }
};

class Packer {
  public:
    Packer(const Matrix &matrix, std::vector<int32_t> columns) : matrix_(matrix) {
        steps_.columns = std::move(columns);
        steps_.woven = matrix.woven;
        slices_.resize(matrix.slices / matrix.woven);
        wants_.assign(matrix.rows + 3, Bits((steps_.columns.size() + 63) / 64));
        scratch_.resize(matrix.slices);
    }

    Steps packed() {
        std::vector<int> length(matrix_.rows + 3, 0);
        for (int row = 0; row < matrix_.rows; row++)
            for (size_t k = 0; k < steps_.columns.size(); k++)
                if (matrix_.kept(row, steps_.columns[k])) {
                    wants_[row][k / 64] |= uint64_t{1} << k % 64;
                    length[row]++;
                }
        const auto longer = [&](int a, int b) { return length[a] > length[b]; };
        std::vector<int> order(matrix_.rows);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
            const int group_a = a / matrix_.rows_per_group, group_b = b / matrix_.rows_per_group;
            return group_a != group_b ? group_a < group_b : longer(a, b);
        });
        bring_together(order);
        for (size_t first = 0; first < order.size(); first += 4) {
            RowBlock block{};
            for (size_t k = 0; k < 4; k++)
                block.rows[k] = first + k < order.size()
                                    ? order[first + k]
                                    : matrix_.rows + static_cast<int>(first + k - order.size());
            std::stable_sort(block.rows, block.rows + 4, longer);  // where two groups meet
            append(block);
        }
        steps_.slice = slices_[0].size();
        for (const auto &slice : slices_)
            steps_.weight.insert(steps_.weight.end(), slice.begin(), slice.end());
        steps_.index.push_back(0);  // the multiply reads one place beyond those of three inputs
        steps_.weight.shrink_to_fit();
        steps_.index.shrink_to_fit();
        return std::move(steps_);
    }

  private:
    const Matrix &matrix_;
    Steps steps_;
    std::vector<std::vector<float>> slices_;
    std::vector<float> scratch_;

    using Bits = std::vector<uint64_t>;
    std::vector<Bits> wants_;  // [row]: a bit for each place of a column; none of rows beyond the matrix

    int shared(const Bits &block, int row) const {
        int count = 0;
        for (size_t w = 0; w < block.size(); w++) count += __builtin_popcountll(block[w] & wants_[row][w]);
        return count;
    }

    // Let the rows of a block share inputs: to the first of each come, one by one, those that share most
    // with it, out of the next few, which are about as long.
    void bring_together(std::vector<int> &order) const {
        constexpr size_t FEW = 16;
        for (size_t first = 0; first < order.size(); first += 4) {
            Bits block = wants_[order[first]];
            for (size_t k = first + 1; k < std::min(first + 4, order.size()); k++) {
                const auto next = order.begin() + k, end = order.begin() + std::min(k + FEW, order.size());
                auto best = next;
                int most = shared(block, *best);
                for (auto other = next + 1; other < end; other++)
                    if (const int count = shared(block, *other); count > most) best = other, most = count;
                std::rotate(next, best, best + 1);
                for (size_t w = 0; w < block.size(); w++) block[w] |= wants_[*next][w];
            }
        }
    }

    void append(RowBlock block) {
        Partition partition;
        for (size_t k = 0; k < steps_.columns.size(); k++) {
            int mask = 0;
            for (int row = 0; row < 4; row++) mask |= (wants_[block.rows[row]][k / 64] >> k % 64 & 1) << row;
            if (mask) partition.add(mask, static_cast<int>(k));
        }
        partition.partition();
        block.index = static_cast<uint32_t>(steps_.index.size());
        block.weight = static_cast<uint32_t>(slices_[0].size());
        for (int pattern = 0; pattern < PATTERNS; pattern++)
            if (const size_t count = partition.steps[pattern].size()) {
                block.present |= 1u << pattern;
                steps_.index.push_back(static_cast<uint16_t>(count));
            }
        for (int pattern = 0; pattern < PATTERNS; pattern++)
            for (const Step &step : partition.steps[pattern])
                for (int k = 0; k < 4 && PATTERN[pattern][k]; k++)
                    append(block, PATTERN[pattern][k], step[k]);
        steps_.blocks.push_back(block);
    }

    void append(const RowBlock &block, int mask, int place) {
        steps_.index.push_back(static_cast<uint16_t>(place));
        for (int row = 0; row < 4; row++) {
            if (!(mask >> row & 1)) continue;
            matrix_.values(block.rows[row], steps_.columns[place], scratch_.data());
            for (int t = 0; t < matrix_.slices; t++) slices_[t / matrix_.woven].push_back(scratch_[t]);
        }
    }
};

}  // namespace

std::vector<Steps> pack(const Matrix &matrix, int most) {
    std::vector<int32_t> used;
    for (int column = 0; column < matrix.columns; column++)
        for (int row = 0; row < matrix.rows; row++)
            if (matrix.kept(row, column)) {
                used.push_back(column);
                break;
            }
    // Without any column there is still one set, which makes every row zero.
    const size_t sets = std::max<size_t>(1, (used.size() + most - 1) / most);
    std::vector<Steps> packed;
    for (size_t set = 0; set < sets; set++) {
        const auto begin = used.begin() + used.size() * set / sets;
        const auto end = used.begin() + used.size() * (set + 1) / sets;
        packed.push_back(Packer(matrix, {begin, end}).packed());
    }
    return packed;
}

}  // namespace sparsepath
