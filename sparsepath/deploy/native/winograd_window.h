// How Winograd reads the NY x NX pixels that a tile is made from: the tile itself and a frame of one pixel.
//
// Mostly all of the tile lies in each lane as it is, and so does each side and each corner of the frame in
// one neighbouring lane: nine regions, of which the first pixel and the halo tell all. A tile that stands
// over an edge, of the image or of what a lane holds of it, is irregular: read pixel by pixel.
#pragma once
#include <array>
#include <vector>

#include "simd.h"

namespace sparsepath {

template <int NY, int NX> class WinogradWindows {
    // One instruction reads any halo: asking first whether there is one would cost more.
    static constexpr bool ANY_HALO = WIDTH == LANES;
    static constexpr int REGIONS = 9, TILE = 4, PIXELS = NY * NX;
    using Pixels = std::array<Reach, PIXELS>;

    // Whether row or column k of n is before, in or behind the tile, and the first that is.
    static constexpr int side(int k, int n) { return n == 1 ? 1 : k == 0 ? 0 : k < n - 1 ? 1 : 2; }
    static constexpr int first(int k, int n) { return n == 1 || k == 0 ? 0 : k < n - 1 ? 1 : n - 1; }
    static constexpr int region(int r, int c) { return 3 * side(r, NY) + side(c, NX); }

  public:
    struct Window {
        bool regular;
        ptrdiff_t offset[REGIONS];   // of the first pixel, in floats from the beginning of the plane
        const Halo *halo[REGIONS];   // null if there is none
        int32_t kind[REGIONS];       // as in Reach
        size_t pixels;               // where those of an irregular one are
    };

    // Of down x across tiles, each of high x wide pixels.
    WinogradWindows(const sp_layout &source, const int32_t *padding, int down, int across, int high, int wide)
        : pitch_(source.tile_width * LANES) {
        Reaches reaches(source);
        std::vector<Pixels> windows;
        for (int i = 0; i < down; i++)
            for (int j = 0; j < across; j++) {
                Pixels pixels;
                for (int k = 0; k < PIXELS; k++)
                    pixels[k] = reaches.find(reaches.row(high * i - padding[0] + k / NX),
                                             reaches.column(wide * j - padding[1] + k % NX));
                windows.push_back(pixels);
            }
        for (Pixels &pixels : windows) {
            const bool regular = is_regular(pixels);
            if (ANY_HALO)
                for (Reach &reach : pixels) reach = reaches.through_halo(reach);
            windows_.push_back({regular, {}, {}, {}, pixels_.size()});
            if (!regular) pixels_.insert(pixels_.end(), pixels.begin(), pixels.end());
        }
        halos_ = reaches.halos();
        for (size_t tile = 0; tile < windows.size(); tile++)
            for (int k = 0; k < PIXELS; k++) {
                const Reach begin = begin_of(windows[tile], k);
                const int to = region(k / NX, k % NX);
                windows_[tile].offset[to] = begin.offset, windows_[tile].kind[to] = begin.halo;
                windows_[tile].halo[to] = begin.halo < 0 ? nullptr : &halos_[begin.halo];
            }
    }
    WinogradWindows(const WinogradWindows &) = delete;

    const Window &operator[](int tile) const { return windows_[tile]; }

    // The pixel of row r and column c, or part of its lanes.
    template <bool REGULAR>
    SP_INLINE vec load_pixel(const float *plane, const Window &window, int r, int c, int part) const {
        if (!REGULAR) {
            const Reach reach = pixels_[window.pixels + r * NX + c];
            if (ANY_HALO) return load_halo(plane + reach.offset, halos_[reach.halo], part, 0);
            return load(plane, reach, halos_.data(), part);
        }
        const int from = region(r, c);
        const float *at = plane + window.offset[from] + within(r, c);
        if (from == TILE) return load(at + part * WIDTH);
        if (ANY_HALO) return load_halo(at, *window.halo[from], part, 0);
        return load(at, {0, window.kind[from]}, halos_.data(), part);
    }

    // Fetch a regular tile into the second cache, with the rows above and below; what is beside it belongs
    // to its neighbours.
    SP_INLINE void fetch(const float *plane, const Window &window) const {
        constexpr int WIDE = NX == 1 ? 1 : NX - 2;
        for (int r = 0; r < NY; r++)
            for (int c = 0; c < WIDE; c++)
                __builtin_prefetch(plane + window.offset[region(r, NX > 1)] + within(r, 0) + c * LANES, 0, 2);
    }

  private:
    const ptrdiff_t pitch_;  // floats from row to row
    std::vector<Window> windows_;
    std::vector<Reach> pixels_;
    std::vector<Halo> halos_;

    // Floats from the first pixel of a region to another.
    SP_INLINE ptrdiff_t within(int r, int c) const {
        return (r - first(r, NY)) * pitch_ + (c - first(c, NX)) * LANES;
    }
    // The first pixel of the region of pixel k.
    static Reach begin_of(const Pixels &pixels, int k) {
        return pixels[first(k / NX, NY) * NX + first(k % NX, NX)];
    }

    // Where every lane holds all of the tile, a side's pixels are all in one neighbour, found by the same lanes.
    static bool is_regular(const Pixels &pixels) {
        for (int k = 0; k < PIXELS; k++)
            if (region(k / NX, k % NX) == TILE && pixels[k].halo != Reach::PLAIN) return false;
        return true;
    }
};

}  // namespace sparsepath
