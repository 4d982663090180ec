// A row of positions holds, in each lane, a piece of a row of an image: moving pixels is transposing.
#include "pixels.h"

#include <algorithm>
#include <cstring>

namespace sparsepath {
namespace {

typedef float quad __attribute__((vector_size(16), aligned(4)));
typedef int32_t iquad __attribute__((vector_size(16)));

inline quad &at(float *p) { return *reinterpret_cast<quad *>(p); }
inline quad at(const float *p) { return *reinterpret_cast<const quad *>(p); }

inline void transpose(quad &a, quad &b, quad &c, quad &d) {
    const iquad low = {0, 4, 1, 5}, high = {2, 6, 3, 7}, first = {0, 1, 4, 5}, last = {2, 3, 6, 7};
    const quad ab = __builtin_shuffle(a, b, low), cd = __builtin_shuffle(c, d, low);
    const quad ab2 = __builtin_shuffle(a, b, high), cd2 = __builtin_shuffle(c, d, high);
    a = __builtin_shuffle(ab, cd, first);
    b = __builtin_shuffle(ab, cd, last);
    c = __builtin_shuffle(ab2, cd2, first);
    d = __builtin_shuffle(ab2, cd2, last);
}

// Which tile of which image each lane holds: the same for all vectors.
struct Lanes {
    const sp_layout &layout;
    int image[LANES], y[LANES], x[LANES], length[LANES];

    explicit Lanes(const sp_layout &l) : layout(l) {
        for (int lane = 0; lane < LANES; lane++) {
            const int tile = lane % tiles(l);
            image[lane] = lane / tiles(l);
            y[lane] = tile / l.grid * l.tile_height;
            x[lane] = tile % l.grid * l.tile_width;
            length[lane] = std::clamp(l.width - x[lane], 0, l.tile_width);
        }
    }
};

// Where a lane's piece of a row lies in its plain image, and how much of it is inside.
template <typename Float> struct Piece {
    Float *at;
    int length;
};

// The pieces of position row py; images[i] is the plane of the vector's image i, null beyond the batch.
template <typename Float>
void find_pieces(const Lanes &lanes, int py, Float *const *images, Piece<Float> (&pieces)[LANES]) {
    for (int lane = 0; lane < LANES; lane++) {
        Float *image = images[lanes.image[lane]];
        const int y = lanes.y[lane] + py;
        if (image && y < lanes.layout.height)
            pieces[lane] = {image + size_t(y) * lanes.layout.width + lanes.x[lane], lanes.length[lane]};
        else
            pieces[lane] = {image, 0};
    }
}

template <typename Float> int shortest(const Piece<Float> *four) {
    return std::min(std::min(four[0].length, four[1].length), std::min(four[2].length, four[3].length));
}

// One channel of one vector.
void to_lanes(const Lanes &lanes, const float *const *images, float *plane) {
    const sp_layout &l = lanes.layout;
    Piece<const float> pieces[LANES];
    for (int py = 0; py < l.tile_height; py++) {
        find_pieces(lanes, py, images, pieces);
        float *row = plane + size_t(py) * l.tile_width * LANES;
        for (int lane = 0; lane < LANES; lane += 4) {
            const Piece<const float> *p = pieces + lane;
            int px = 0;
            for (const int whole = shortest(p) - 3; px < whole; px += 4) {
                quad a = at(p[0].at + px), b = at(p[1].at + px), c = at(p[2].at + px), d = at(p[3].at + px);
                transpose(a, b, c, d);
                float *out = row + size_t(px) * LANES + lane;
                at(out) = a, at(out + LANES) = b, at(out + 2 * LANES) = c, at(out + 3 * LANES) = d;
            }
            // A lane without a pixel gets a zero: nobody reads it, but everybody computes with it.
            for (; px < l.tile_width; px++)
                for (int k = 0; k < 4; k++)
                    row[size_t(px) * LANES + lane + k] = px < p[k].length ? p[k].at[px] : 0.0f;
        }
    }
}

void from_lanes(const Lanes &lanes, const float *plane, float *const *images) {
    const sp_layout &l = lanes.layout;
    Piece<float> pieces[LANES];
    for (int py = 0; py < l.tile_height; py++) {
        find_pieces(lanes, py, images, pieces);
        const float *row = plane + size_t(py) * l.tile_width * LANES;
        for (int lane = 0; lane < LANES; lane += 4) {
            const Piece<float> *p = pieces + lane;
            int px = 0;
            for (const int whole = shortest(p) - 3; px < whole; px += 4) {
                const float *in = row + size_t(px) * LANES + lane;
                quad a = at(in), b = at(in + LANES), c = at(in + 2 * LANES), d = at(in + 3 * LANES);
                transpose(a, b, c, d);
                at(p[0].at + px) = a, at(p[1].at + px) = b, at(p[2].at + px) = c, at(p[3].at + px) = d;
            }
            for (int k = 0; k < 4; k++)
                for (int x = px; x < p[k].length; x++) p[k].at[x] = row[size_t(x) * LANES + lane + k];
        }
    }
}

// The planes of one channel of a vector's images in a plain tensor.
template <typename Float>
void find_images(const View &view, Float *plain, int batch, int v, int channel, Float *(&images)[LANES]) {
    const int count = images_per_vector(view.layout);
    const size_t size = size_t(view.layout.height) * view.layout.width;
    for (int k = 0; k < count; k++) {
        const int n = v * count + k;
        images[k] = n < batch ? plain + (size_t(n) * view.channels + channel) * size : nullptr;
    }
}

}  // namespace

void import_pixels(Team &team, const float *plain, const View &target, int batch) {
    const Lanes lanes(target.layout);
    team.each(vectors(target.layout, batch) * target.channels, [&](int item, int) {
        const int v = item / target.channels, channel = item % target.channels;
        const float *images[LANES];
        find_images(target, plain, batch, v, channel, images);
        to_lanes(lanes, images, target.at(v, channel));
    });
}

void export_pixels(Team &team, const View &source, float *plain, int batch) {
    const Lanes lanes(source.layout);
    team.each(vectors(source.layout, batch) * source.channels, [&](int item, int) {
        const int v = item / source.channels, channel = item % source.channels;
        float *images[LANES];
        find_images(source, plain, batch, v, channel, images);
        from_lanes(lanes, source.at(v, channel), images);
    });
}

void relayout(Team &team, const View &source, const View &target, int batch) {
    const Lanes source_lanes(source.layout), target_lanes(target.layout);
    const int from = images_per_vector(source.layout), to = images_per_vector(target.layout);
    const int together = std::max(from, to), channels = source.channels;
    const size_t size = size_t(source.layout.height) * source.layout.width;
    team.each(divide_up(batch, together) * channels, [&](int item, int) {
        const int first = item / channels * together, channel = item % channels;
        std::vector<float> plain(size * together);
        float *images[LANES];
        for (int k = 0; k < together; k++)
            images[k] = first + k < batch ? plain.data() + size * k : nullptr;
        for (int k = 0; k < together && images[k]; k += from)
            from_lanes(source_lanes, source.at((first + k) / from, channel), images + k);
        for (int k = 0; k < together && images[k]; k += to)
            to_lanes(target_lanes, images + k, target.at((first + k) / to, channel));
    });
}

}  // namespace sparsepath
