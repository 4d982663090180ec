// Every layout, and the plain one, is a sum: image + channel + row[y] + column[x].
#include "pixels.h"

#include <algorithm>
#include <cstring>

namespace sparsepath {
namespace {

struct Addresses {
    float *base;
    int images = 1;          // images whose pixels lie in one another's gaps
    size_t group, inside;    // floats from one such set of images to the next, from image to image
    size_t channel;
    std::vector<size_t> row, column;

    Addresses(const sp_map &map, float *const *slots) : base(slots[map.slot]) {
        const sp_layout &l = map.layout;
        const bool plain = l.grid == 0;
        if (plain) {
            channel = size_t(l.height) * l.width;
            group = inside = channel * map.total;
        } else {
            channel = size_t(positions(l)) * LANES;
            group = channel * map.total;
            inside = tiles(l);
            images = images_per_vector(l);
        }
        base += channel * map.first;
        for (int y = 0; y < l.height; y++)
            row.push_back(plain ? size_t(y) * l.width
                                : size_t(y % l.tile_height) * l.tile_width * LANES +
                                      size_t(y / l.tile_height) * l.grid);
        for (int x = 0; x < l.width; x++)
            column.push_back(plain ? x : size_t(x % l.tile_width) * LANES + x / l.tile_width);
    }
    float *at(int image, int c) const {
        return base + image / images * group + image % images * inside + c * channel;
    }
};

// Some lanes of the last vector, or of tiles over the edge, are given no pixel.
bool leaves_gaps(const sp_layout &l, int batch) {
    return batch % images_per_vector(l) || l.tile_height * l.grid != l.height ||
           l.tile_width * l.grid != l.width;
}

}  // namespace

void copy_pixels(Team &team, const sp_map &source, const sp_map &target, float *const *slots, int batch) {
    const Addresses from(source, slots), to(target, slots);
    const int height = source.layout.height, width = source.layout.width, channels = source.channels;
    // Images that share vectors are copied together, row by row, while those vectors are in the cache.
    const int together = std::max(from.images, to.images), groups = divide_up(batch, together);
    const bool gaps = target.layout.grid && leaves_gaps(target.layout, batch);
    team.each(groups * channels, [&](int item, int) {
        const int first = item / channels * together, c = item % channels;
        const int last = std::min(batch, first + together);
        if (gaps)  // with anything finite: nobody reads it, but everybody computes with it
            for (int n = first; n < last; n += to.images)
                std::memset(to.at(n, c), 0, sizeof(float) * to.channel);
        for (int y = 0; y < height; y++)
            for (int n = first; n < last; n++) {
                const float *in = from.at(n, c) + from.row[y];
                float *out = to.at(n, c) + to.row[y];
                for (int x = 0; x < width; x++) out[to.column[x]] = in[from.column[x]];
            }
    });
}

}  // namespace sparsepath
