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
#include "families.h"
#include "multiply.h"

namespace sparsepath {
namespace {

// One dimension of the input transform, B^T d, on elements `stride` apart.
template <int F> SP_INLINE void transform_in(const vec *d, vec *out, int stride);
template <> SP_INLINE void transform_in<1>(const vec *d, vec *out, int) { out[0] = d[0]; }
template <> SP_INLINE void transform_in<4>(const vec *d, vec *out, int stride) {
    const vec d0 = d[0], d1 = d[stride], d2 = d[2 * stride], d3 = d[3 * stride], d4 = d[4 * stride],
              d5 = d[5 * stride];
    const vec even = d4 - 4 * d2, odd = d3 - 4 * d1, even2 = d4 - d2, odd2 = 2 * (d3 - d1);
    out[0] = 4 * d0 + (d4 - 5 * d2);
    out[stride] = even + odd;
    out[2 * stride] = even - odd;
    out[3 * stride] = even2 + odd2;
    out[4 * stride] = even2 - odd2;
    out[5 * stride] = 4 * d1 + (d5 - 5 * d3);
}
template <> SP_INLINE void transform_in<2>(const vec *d, vec *out, int stride) {
    const vec d0 = d[0], d1 = d[stride], d2 = d[2 * stride], d3 = d[3 * stride];
    out[0] = d0 - d2;
    out[stride] = d1 + d2;
    out[2 * stride] = d2 - d1;
    out[3 * stride] = d1 - d3;
}

// One dimension of the output transform, A^T m.
template <int F> SP_INLINE void transform_out(const vec *m, int stride, vec *out, int out_stride);
template <> SP_INLINE void transform_out<1>(const vec *m, int, vec *out, int) { out[0] = m[0]; }
template <> SP_INLINE void transform_out<4>(const vec *m, int stride, vec *out, int out_stride) {
    const vec m0 = m[0], m1 = m[stride], m2 = m[2 * stride], m3 = m[3 * stride], m4 = m[4 * stride],
              m5 = m[5 * stride];
    const vec p = m1 + m2, q = m1 - m2, r = m3 + m4, s = m3 - m4;
    out[0] = m0 + p + r;
    out[out_stride] = q + 2 * s;
    out[2 * out_stride] = p + 4 * r;
    out[3 * out_stride] = q + 8 * s + m5;
}
template <> SP_INLINE void transform_out<2>(const vec *m, int stride, vec *out, int out_stride) {
    const vec sum = m[stride] + m[2 * stride], difference = m[stride] - m[2 * stride];
    out[0] = m[0] + sum;
    out[out_stride] = difference - m[3 * stride];
}

// Tiles of FY x FX pixels; a dimension of 1 is not transformed.
template <int FY, int FX> class Winograd {
    static constexpr int NY = FY == 1 ? 1 : FY + 2, NX = FX == 1 ? 1 : FX + 2, SLICES = NY * NX;
    static constexpr bool WEAVES = SLICES % 4 == 0;
    // One instruction reads any halo: asking first whether there is one would cost more.
    static constexpr bool ANY_HALO = WIDTH == LANES;

  public:
    Winograd(const Bench &bench, const sp_weights &weights, int panel, const View &source,
             const View &target, const Finish &finish)
        : P(panel), bench_(bench), weights_(weights), steps_(weights.sets[0]), source_(source),
          target_(target), finish_(finish), height_(target.layout.tile_height * finish.pool),
          width_(target.layout.tile_width * finish.pool), down_(divide_up(height_, FY)),
          across_(divide_up(width_, FX)), total_(vectors(target.layout, bench.batch) * down_ * across_),
          woven_(steps_.woven), at_a_time_(weights, P), stride_(at_a_time_.floats) {
        Reaches reaches(source.layout);
        for (int i = 0; i < down_; i++)
            for (int j = 0; j < across_; j++)
                for (int k = 0; k < SLICES; k++)
                    reach_.push_back(
                        reaches.find(reaches.row(FY * i - weights.spec.padding[0] + k / NX),
                                     reaches.column(FX * j - weights.spec.padding[1] + k % NX)));
        for (int tile = 0; tile < down_ * across_; tile++) {
            const auto begin = reach_.begin() + tile * SLICES, end = begin + SLICES;
            plain_.push_back(
                std::all_of(begin, end, [](Reach r) { return r.halo == Reach::PLAIN; }));
            if (ANY_HALO && !plain_.back())
                std::transform(begin, end, begin, [&](Reach r) { return reaches.through_halo(r); });
        }
        halos_ = reaches.halos();
    }

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
    std::vector<Reach> reach_;   // [tile][slice]
    std::vector<char> plain_;    // [tile]: all of it can be read as it is
    std::vector<Halo> halos_;

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

    // Transform channels first .. last - 1 of the panel's tiles.
    void fill(int panel, float *panels, int first, int last) const {
        const Tiles tiles(*this, panel);
        for (int k = first; k < last; k++) {
            for (int p = tiles.count; p < P; p++)  // what memory held before may be slow to multiply
                for (int t = 0; t < SLICES / woven_; t++)
                    std::memset(panels + t * stride_ + k * line() + p * woven_ * LANES, 0,
                                sizeof(float) * woven_ * LANES);
            for (int p = 0; p < tiles.count; p++) {
                const int tile = tiles.tile[p];
                const float *plane = source_.at(tiles.vector[p], steps_.columns[k]);
                const Reach *reach = &reach_[tile * SLICES];
                float *out = panels + k * line() + p * woven_ * LANES;
                for (int part = 0; part < PARTS; part++)
                    plain_[tile] ? transform_tile<true>(plane, reach, part, out + part * WIDTH)
                                 : transform_tile<false>(plane, reach, part, out + part * WIDTH);
            }
        }
    }

    template <bool PLAIN>
    SP_INLINE vec load_pixel(const float *plane, Reach reach, int part) const {
        if (PLAIN) return load(plane + reach.offset + part * WIDTH);
        if (ANY_HALO) return load_halo(plane + reach.offset, halos_[reach.halo], part, 0);
        return load(plane, reach, halos_.data(), part);
    }

    template <bool PLAIN>
    void transform_tile(const float *plane, const Reach *reach, int part, float *out) const {
        vec d[SLICES], e[SLICES];
        SP_UNROLL for (int c = 0; c < NX; c++) {
            SP_UNROLL for (int r = 0; r < NY; r++)
                d[r * NX + c] = load_pixel<PLAIN>(plane, reach[r * NX + c], part);
            transform_in<FY>(d + c, e + c, NX);
        }
        // Row by row, so that a machine of few registers need not put the others aside.
        SP_UNROLL for (int r = 0; r < NY; r++) {
            transform_in<FX>(e + r * NX, d + r * NX, 1);
            if (!WEAVES || woven_ == 1)
                SP_UNROLL for (int t = r * NX; t < (r + 1) * NX; t++) store(out + t * stride_, d[t]);
        }
        if (WEAVES && woven_ == 4) store_woven<4>(d, out);
        if (WEAVES && woven_ == 2) store_woven<2>(d, out);
    }

    // All slices of a vector of tiles, N of them side by side.
    template <int N> SP_INLINE void store_woven(vec (&x)[SLICES], float *out) const {
        SP_UNROLL for (int t = 0; t < SLICES / N * N; t += N, out += stride_) {
            mix<N>(x + t);
            SP_UNROLL for (int k = 0; k < N; k++) store(out + k * LANES, x[t + k]);
        }
    }
    template <int N> SP_INLINE void load_woven(const float *in, vec (&x)[SLICES]) const {
        SP_UNROLL for (int t = 0; t < SLICES / N * N; t += N, in += stride_) {
            SP_UNROLL for (int k = 0; k < N; k++) x[t + k] = load(in + k * LANES);
            unmix<N>(x + t);
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
                for (int part = 0; part < PARTS; part++)
                    untransform_tile(products + k * line() + p * woven_ * LANES + part * WIDTH, weights_.bias[k],
                                     y[p], x[p], target_.at(tiles.vector[p], k) + part * WIDTH);
    }

    void untransform_tile(const float *product, float bias, int y, int x, float *plane) const {
        vec m[SLICES], e[FY * NX], out[FY * FX];
        const bool woven = WEAVES && woven_ > 1;
        if (woven) woven_ == 4 ? load_woven<4>(product, m) : load_woven<2>(product, m);
        SP_UNROLL for (int c = 0; c < NX; c++) {
            if (!woven)
                SP_UNROLL for (int t = c; t < SLICES; t += NX) m[t] = load(product + t * stride_);
            transform_out<FY>(m + c, NX, e + c, NX);
        }
        SP_UNROLL for (int r = 0; r < FY; r++) transform_out<FX>(e + r * NX, 1, out + r * FX, 1);
        if constexpr (FY > 1 && FX > 1)
            if (finish_.pool == 2) {
                SP_UNROLL for (int r = 0; r < FY / 2; r++)
                    SP_UNROLL for (int c = 0; c < FX / 2; c++) {
                        const vec *o = out + 2 * r * FX + 2 * c;
                        out[r * (FX / 2) + c] = maximum(maximum(o[0], o[1]), maximum(o[FX], o[FX + 1]));
                    }
                return store_pixels<FY / 2, FX / 2>(out, bias, y / 2, x / 2, plane);
            }
        store_pixels<FY, FX>(out, bias, y, x, plane);
    }

    // SY x SX pixels, as far as they lie in the tile.
    template <int SY, int SX>
    SP_INLINE void store_pixels(const vec *out, float bias, int y, int x, float *plane) const {
        const int width = target_.layout.tile_width, height = target_.layout.tile_height;
        const vec lower = all(finish_.lower), upper = all(finish_.upper);
        float *at = plane + (size_t(y) * width + x) * LANES;
        const bool inside = y + SY <= height && x + SX <= width;
        SP_UNROLL for (int r = 0; r < SY; r++)
            SP_UNROLL for (int c = 0; c < SX; c++)
                if (inside || (y + r < height && x + c < width))
                    store(at + (r * width + c) * LANES, clamp(out[r * SX + c] + bias, lower, upper));
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
