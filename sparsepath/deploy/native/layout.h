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

// Finds reaches in one layout, and keeps the few distinct halos that they need.
class Reaches {
  public:
    explicit Reaches(const sp_layout &layout)
        : layout_(layout), whole_(layout.tile_height * layout.grid == layout.height &&
                                  layout.tile_width * layout.grid == layout.width) {}
    // The pixel at (y, x) counted from the corner of the tile, in either direction.
    Reach find(int y, int x);
    const std::vector<Halo> &halos() const { return halos_; }
    // The same reach as a halo in any case, so that it can be read without a question.
    Reach through_halo(Reach reach);

  private:
    uint32_t valid_lanes(int shift_y, int shift_x, int py, int px) const;
    sp_layout layout_;
    bool whole_;  // no tile stands over the edge of the image
    struct Key {
        int shift_y, shift_x;
        uint32_t valid;
    };
    int32_t halo(const Key &key);
    std::vector<Key> keys_;
    std::vector<Halo> halos_;
};

}  // namespace sparsepath
