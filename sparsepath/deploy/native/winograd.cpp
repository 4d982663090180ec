// 3x3 convolution of stride 1 by Winograd: F(4x4) makes 4x4 pixels from 36 products, F(2x2) makes 2x2
// from 16, where the definition takes 144 and 36 per pair of channels. 1x3 and 3x1 kernels have one
// dimension to transform, F(1x4) or F(4x1): 4 pixels from 6 products instead of 12.
//
// A kernel that is zero stays zero in the Winograd domain, so all these products share one pattern
// of zeros: the transform's saving and the sparsity's multiply. Each panel of P tile vectors is
// transformed into `panel[t][channel][P]`, multiplied slice by slice (one slice of the panel stays in
// the first cache while all filters read it), and transformed back on the way out. The products of a
// slice are written over the panel of a slice before, which is no longer needed and still in the
// cache: this halves the memory that a panel goes through.
//
// Small maps of one image are but one vector of tiles. Each weight would then be loaded for a single
// multiply-add, and loads, not multiply-adds, would take the time. So four slices are woven: their four
// vectors, of 16 tiles each, become four of 4 tiles with their four slices side by side, and a quad of
// weights, loaded at once, serves all of them. Panels of two vectors weave two slices likewise: such
// panels are half as large as those of four, and more of them stays in the second cache.
#include <type_traits>

#include "families.h"
#include "multiply.h"
#include "winograd_tile.h"
#include "winograd_window.h"

namespace sparsepath {
namespace {

// Tiles of FY x FX pixels; a dimension of 1 is not transformed.
template <int FY, int FX> class Winograd {
    static constexpr int NY = FY == 1 ? 1 : FY + 2, NX = FX == 1 ? 1 : FX + 2, SLICES = NY * NX;
    static constexpr bool WEAVES = SLICES % 4 == 0;
    // Maps of more floats are not in the second cache: their channels are fetched so many ahead. What a
    // machine foresees by itself ends with every page of memory, that is, after a few channels.
    static constexpr size_t NEAR = 1 << 18;
    static constexpr int AHEAD = 4;

  public:
    Winograd(const Bench &bench, const sp_weights &weights, int panel, const View &source,
             const View &target, const Finish &finish)
        : P(panel), bench_(bench), weights_(weights), steps_(weights.sets[0]), source_(source),
          target_(target), finish_(finish), height_(target.layout.tile_height * finish.pool),
          width_(target.layout.tile_width * finish.pool), down_(divide_up(height_, FY)),
          across_(divide_up(width_, FX)), total_(vectors(target.layout, bench.batch) * down_ * across_),
          woven_(steps_.woven), at_a_time_(weights, P), stride_(at_a_time_.floats),
          windows_(source.layout, weights.spec.padding, down_, across_, FY, FX),
          far_(vectors(source.layout, bench.batch) * source.vector > NEAR) {}

    void run() {
        const int panels = divide_up(total_, P), threads = bench_.team.threads();
        const int channels = static_cast<int>(steps_.columns.size());
        const int filters = weights_.spec.out_channels;
        if (panels >= 2 * threads || threads == 1) {
            const size_t each = scratch_floats(weights_, P);
            bench_.team.each(panels, [&](int panel, int thread) {
                float *scratch = bench_.workspace + thread * each;
                float *panels = scratch + at_a_time_.ahead * stride_;
                fill(panel, panels, 0, channels);
                multiply_slices(panels, scratch, 0, SLICES / woven_);
                empty(panel, scratch, 0, filters);
            });
            return;
        }
        const int slices = SLICES / woven_;
        for (int panel = 0; panel < panels; panel++) {  // too few to share out: share out their parts
            float *panels = bench_.workspace, *products = panels + slices * stride_;
            bench_.team.each(threads, [&](int part, int) {
                const Range range(channels, part, threads);
                fill(panel, panels, range.first, range.last);
            });
            // Slices that one thread multiplies together stay together: a lone one sums in another
            // order, and a number of threads changes no bit.
            const int together = at_a_time_.ahead, sets = divide_up(slices, together);
            const int parts = std::min(sets, 2 * threads);
            bench_.team.each(parts, [&](int part, int) {
                const Range range(sets, part, parts);
                multiply_slices(panels, products, range.first * together,
                                std::min(range.last * together, slices));
            });
            bench_.team.each(threads, [&](int part, int) {
                const Range range(filters, part, threads);
                empty(panel, products, range.first, range.last);
            });
        }
    }

  private:
    const int P;  // tile vectors in a panel
    Bench bench_;
    const sp_weights &weights_;
    const Steps &steps_;
    View source_, target_;
    Finish finish_;
    int height_, width_;         // of a tile of the layout before pooling
    int down_, across_, total_;  // Winograd's tiles in such a tile, and in all vectors
    const int woven_;            // slices that are multiplied as one
    const SlicesAtATime at_a_time_;
    const size_t stride_;        // floats from slice to slice
    const WinogradWindows<NY, NX> windows_;  // [tile]
    const bool far_;             // the source is not in the second cache

    // The tiles of a panel; divisions are slow, and there are many channels to a tile.
    struct Tiles {
        int count, vector[MOST_VECTORS], tile[MOST_VECTORS];
        Tiles(const Winograd &own, int panel) : count(std::min(own.P, own.total_ - panel * own.P)) {
            for (int p = 0; p < count; p++) {
                const int item = panel * own.P + p, per_vector = own.down_ * own.across_;
                vector[p] = item / per_vector, tile[p] = item % per_vector;
            }
        }
    };

    // Floats of one channel or filter in a slice.
    size_t line() const { return size_t(at_a_time_.vectors) * LANES; }

    // work(woven_), as a constant.
    template <typename Work> SP_INLINE void as_woven(Work work) const {
        if constexpr (WEAVES) {
            if (woven_ == 4) return work(std::integral_constant<int, 4>());
            if (woven_ == 2) return work(std::integral_constant<int, 2>());
        }
        work(std::integral_constant<int, 1>());
    }
    // Slices are transformed in rows; so many hold all that is woven with any slice of theirs.
    static constexpr int rows_at_a_time(int woven) { return NX % woven ? 2 : 1; }

    // Transform channels first .. last - 1 of the panel's tiles.
    void fill(int panel, float *panels, int first, int last) const {
        const Tiles tiles(*this, panel);
        for (int k = first; k < last; k++) {
            for (int p = tiles.count; p < P; p++)  // what memory held before may be slow to multiply
                for (int t = 0; t < SLICES / woven_; t++)
                    std::memset(panels + t * stride_ + k * line() + p * woven_ * LANES, 0,
                                sizeof(float) * woven_ * LANES);
            for (int p = 0; p < tiles.count; p++) {
                const auto &window = windows_[tiles.tile[p]];
                const float *plane = source_.at(tiles.vector[p], steps_.columns[k]);
                float *out = panels + k * line() + p * woven_ * LANES;
                if (far_ && window.regular && k + AHEAD < last)
                    windows_.fetch(source_.at(tiles.vector[p], steps_.columns[k + AHEAD]), window);
                as_woven([&](auto woven) {
                    for (int part = 0; part < PARTS; part++)
                        window.regular
                            ? transform_tile<true, woven>(plane, window, part, out + part * WIDTH)
                            : transform_tile<false, woven>(plane, window, part, out + part * WIDTH);
                });
            }
        }
    }

    // All registers are needed: within a loop, compilers would fill them with addresses.
    template <bool REGULAR, int WOVEN, typename Window>
    SP_APART void transform_tile(const float *plane, const Window &window, int part, float *out) const {
        vec d[SLICES], e[SLICES];
        SP_UNROLL for (int c = 0; c < NX; c++) {
            SP_UNROLL for (int r = 0; r < NY; r++)
                d[r * NX + c] = windows_.template load_pixel<REGULAR>(plane, window, r, c, part);
            transform_in<FY>(d + c, e + c, NX);
        }
        // Row by row, so that a machine of few registers need not put the others aside.
        constexpr int ROWS = rows_at_a_time(WOVEN);
        SP_UNROLL for (int r = 0; r < NY; r += ROWS) {
            SP_UNROLL for (int k = r; k < r + ROWS; k++) transform_in<FX>(e + k * NX, d + k * NX, 1);
            SP_UNROLL for (int t = r * NX; t < (r + ROWS) * NX; t += WOVEN) {
                mix<WOVEN>(d + t);
                SP_UNROLL for (int k = 0; k < WOVEN; k++)
                    store(out + t / WOVEN * stride_ + k * LANES, d[t + k]);
            }
        }
    }

    // Slices first .. last - 1 of the products.
    void multiply_slices(const float *panels, float *products, int first, int last) const {
        const int blocks = static_cast<int>(steps_.blocks.size());
        const int vectors = at_a_time_.vectors, together = at_a_time_.ahead;
        for (int t = first, slices; t < last; t += slices) {
            slices = last - t >= together ? together : 1;
            const float *panel = panels + t * stride_;
            const float *next = last - t >= 2 * slices ? panel + slices * stride_ : nullptr;
            multiply(vectors, {&steps_, t, slices, 0, blocks, panel, nullptr, products + t * stride_, line(),
                               nullptr, stride_, next, steps_.columns.size() * vectors});
        }
    }

    // Transform filters first .. last - 1 back, add the bias, clamp, pool, store.
    void empty(int panel, const float *products, int first, int last) const {
        const Tiles tiles(*this, panel);
        int y[MOST_VECTORS], x[MOST_VECTORS];
        for (int p = 0; p < tiles.count; p++)
            y[p] = FY * (tiles.tile[p] / across_), x[p] = FX * (tiles.tile[p] % across_);
        for (int k = first; k < last; k++)
            for (int p = 0; p < tiles.count; p++)
                as_woven([&](auto woven) {
                    for (int part = 0; part < PARTS; part++)
                        untransform_tile<woven>(products + k * line() + p * woven * LANES + part * WIDTH,
                                                weights_.bias[k], y[p], x[p],
                                                target_.at(tiles.vector[p], k) + part * WIDTH);
                });
    }

    template <int WOVEN>
    SP_APART void untransform_tile(const float *product, float bias, int y, int x, float *plane) const {
        vec m[SLICES], e[NY * FX], out[FY * FX];
        constexpr int ROWS = rows_at_a_time(WOVEN);
        // One product is in every pixel just as it is: with the bias in it, all pixels have theirs.
        constexpr int EVERYWHERE = (FY > 1) * NX + (FX > 1);
        SP_UNROLL for (int r = 0; r < NY; r += ROWS) {
            SP_UNROLL for (int t = r * NX; t < (r + ROWS) * NX; t += WOVEN) {
                SP_UNROLL for (int k = 0; k < WOVEN; k++)
                    m[t + k] = load(product + t / WOVEN * stride_ + k * LANES);
                unmix<WOVEN>(m + t);
            }
            if (r <= EVERYWHERE / NX && EVERYWHERE / NX < r + ROWS) m[EVERYWHERE] += bias;
            SP_UNROLL for (int k = r; k < r + ROWS; k++) transform_out<FX>(m + k * NX, 1, e + k * FX, 1);
        }
        SP_UNROLL for (int c = 0; c < FX; c++) transform_out<FY>(e + c, FX, out + c, FX);
        if constexpr (FY > 1 && FX > 1)
            if (finish_.pool == 2) {
                SP_UNROLL for (int r = 0; r < FY / 2; r++)
                    SP_UNROLL for (int c = 0; c < FX / 2; c++) {
                        const vec *o = out + 2 * r * FX + 2 * c;
                        out[r * (FX / 2) + c] = maximum(maximum(o[0], o[1]), maximum(o[FX], o[FX + 1]));
                    }
                return store_pixels<FY / 2, FX / 2>(out, y / 2, x / 2, plane);
            }
        store_pixels<FY, FX>(out, y, x, plane);
    }

    // SY x SX pixels, as far as they lie in the tile.
    template <int SY, int SX>
    SP_INLINE void store_pixels(const vec *out, int y, int x, float *plane) const {
        const int width = target_.layout.tile_width, height = target_.layout.tile_height;
        const vec lower = all(finish_.lower), upper = all(finish_.upper);
        float *at = plane + (size_t(y) * width + x) * LANES;
        const bool inside = y + SY <= height && x + SX <= width;
        SP_UNROLL for (int r = 0; r < SY; r++)
            SP_UNROLL for (int c = 0; c < SX; c++)
                if (inside || (y + r < height && x + c < width))
                    store(at + (r * width + c) * LANES, clamp(out[r * SX + c], lower, upper));
    }
};

}  // namespace

void winograd(const Bench &bench, const sp_weights &weights, int panel, const View &source,
              const View &target, const Finish &finish) {
    const WinogradTile tile = winograd_tile(weights.spec);
    if (tile.height == 1)
        Winograd<1, 4>(bench, weights, panel, source, target, finish).run();
    else if (tile.width == 1)
        Winograd<4, 1>(bench, weights, panel, source, target, finish).run();
    else if (tile.height == 2)
        Winograd<2, 2>(bench, weights, panel, source, target, finish).run();
    else
        Winograd<4, 4>(bench, weights, panel, source, target, finish).run();
}

}  // namespace sparsepath
