// How activations lie in memory, and how a kernel reads beyond the edge of a tile.
//
// Every activation is an array of vectors of 16 lanes: act[v][channel][position][lane]. An image is
// cut into grid x grid tiles of tile_height x tile_width pixels, and each lane holds one tile of one
// image, so a vector carries 16 / grid^2 images:
//
//     grid 1: 16 images, one lane each          (large batches; any height and width, no waste)
//     grid 2: 4 images, each in 2 x 2 tiles
//     grid 4: 1 image in 4 x 4 tiles            (batch 1 fills all lanes)
//
// A position is a pixel's place inside its tile. Lane (n % images) * grid^2 + ty * grid + tx at
// position (py, px) is pixel (ty * tile_height + py, tx * tile_width + px) of image n. The same
// arithmetic runs in all lanes, so a kernel need not know the grid, except where it reads a pixel
// outside the tile: that pixel lies in a neighbouring lane, or outside the image. `Reach` says where.
//
// Tiles may stand over the lower and right edge of the image, and the last vector over the end of the
// batch. Such lanes hold anything: whoever reads them through a Reach gets zeros, nobody else looks.
#pragma once
#include <cstdint>
#include <vector>

#include "sparsepath.h"

namespace sparsepath {

constexpr int LANES = 16;

inline int divide_up(int a, int b) { return (a + b - 1) / b; }
inline int divide_down(int a, int b) { return a >= 0 ? a / b : -divide_up(-a, b); }

inline int tiles(const sp_layout &l) { return l.grid * l.grid; }
inline int images_per_vector(const sp_layout &l) { return LANES / tiles(l); }
inline int vectors(const sp_layout &l, int batch) { return divide_up(batch, images_per_vector(l)); }
inline int positions(const sp_layout &l) { return l.tile_height * l.tile_width; }

// A map bound to its buffer: where channel c of vector v begins.
struct View {
    float *base;
    size_t plane;   // floats of one channel of one vector
    size_t vector;  // floats of one vector
    int channels;
    sp_layout layout;

    View(const sp_map &map, float *const *slots)
        : plane(static_cast<size_t>(positions(map.layout)) * LANES),
          vector(plane * map.total), channels(map.channels), layout(map.layout) {
        base = slots[map.slot] + plane * map.first;
    }
    float *at(int v, int channel) const { return base + v * vector + channel * plane; }
};

// Which lane of a vector each lane reads when it looks across the edge of its tile.
struct Halo {
    alignas(64) int32_t lane[LANES];   // 16 and more: the pixel is outside the image
    alignas(64) int32_t valid[LANES];  // all bits set, or none if it is outside
};

// Where a pixel beside the tile is: a vector of the plane, read as it is, as zeros or through a halo.
struct Reach {
    enum : int32_t { PLAIN = -1, ZERO = -2 };
    int32_t offset;  // floats from the beginning of the plane
    int32_t halo;    // PLAIN, ZERO or an index into Reaches::halos
};

// A coordinate counted from the corner of a tile, in either direction: which tile, and where in it.
struct Coordinate {
    int shift, place;
    Coordinate(int at, int tile) : shift(divide_down(at, tile)), place(at - shift * tile) {}
};

// Finds reaches in one layout, and keeps the few distinct halos that they need.
class Reaches {
  public:
    explicit Reaches(const sp_layout &layout);
    Coordinate row(int y) const { return {y, layout_.tile_height}; }
    Coordinate column(int x) const { return {x, layout_.tile_width}; }
    Reach find(Coordinate y, Coordinate x);
    // The same reach as a halo in any case, so that it can be read without a question.
    Reach through_halo(Reach reach);
    const std::vector<Halo> &halos() const { return halos_; }

  private:
    struct Key {
        int shift_y, shift_x;
        uint32_t valid;
    };
    uint32_t valid_lanes(Coordinate y, Coordinate x) const;
    int32_t halo(const Key &key);
    sp_layout layout_;
    bool whole_;  // no tile stands over the edge of the image
    std::vector<Key> keys_;
    std::vector<Halo> halos_;
};

// Where a window over the source finds its pixels, for every position of the target. A table of positions
// times taps could be far larger than the maps: unless it is small, rows and columns are looked up apart.
class Windows {
  public:
    const int taps;
    std::vector<char> plain;     // [position]: all its pixels can be read as they are
    std::vector<int32_t> ahead;  // [tap]: and this one then lies so many floats behind the first
    std::vector<Halo> halos;

    Windows(const sp_layout &source, const sp_layout &target, const int32_t *kernel,
            const int32_t *stride, const int32_t *padding, const int32_t *dilation);

    Reach reach(size_t position, int tap) const {
        return table_.empty() ? found(position, tap) : table_[position * taps + tap];
    }

  private:
    static constexpr size_t SMALL = 1 << 17;  // reaches: as many as the second cache holds
    struct Line {
        int32_t offset, kind;
    };
    struct Place {
        int32_t row, column;
    };
    std::vector<Line> rows_, columns_;   // of all that the windows of a tile look at
    std::vector<Place> begins_, taps_;   // of each position's window, and of each tap in it
    std::vector<int32_t> halo_;          // [kind of row + kind of column], as in Reach
    std::vector<Reach> table_;           // [position][tap], or empty

    Reach found(size_t position, int tap) const {
        const Line &row = rows_[begins_[position].row + taps_[tap].row];
        const Line &column = columns_[begins_[position].column + taps_[tap].column];
        return {row.offset + column.offset, halo_[row.kind + column.kind]};
    }
};

}  // namespace sparsepath
