// Unpacking: which blocks are kept, what their weights are, and both put together.
#include "unpack.h"

#include <cmath>
#include <cstring>

#include "inflate.h"
#include "json.h"

namespace sparsepath::embedded {
namespace {

// A tensor of the file after inflating.
struct Part {
    std::vector<uint8_t> own;
    const uint8_t *data = nullptr;
    size_t bytes = 0;
};

// The little-endian number at some bytes, as float32.
float number(const Type &type, const uint8_t *at) {
    uint64_t bits = 0;
    for (int k = type.bytes - 1; k >= 0; k--) bits = bits << 8 | at[k];
    const std::string name = type.name;
    if (name == "float32" || name == "bfloat16") {
        const uint32_t wide = static_cast<uint32_t>(name == "float32" ? bits : bits << 16);
        float x;
        std::memcpy(&x, &wide, sizeof x);
        return x;
    }
    if (name == "float64") {
        double x;
        std::memcpy(&x, &bits, sizeof x);
        return static_cast<float>(x);
    }
    if (name == "float16") {
        const int exponent = bits >> 10 & 31, fraction = bits & 1023;
        const float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                           : exponent     ? std::ldexp(float(fraction + 1024), exponent - 25)
                                          : std::ldexp(float(fraction), -24);
        return bits >> 15 ? -size : size;
    }
    if (name == "bool" || name == "uint8") return static_cast<float>(bits);
    const int unused = 64 - 8 * type.bytes;
    return static_cast<float>(static_cast<int64_t>(bits << unused) >> unused);
}

// Floats are nearly all there is: they are copied, not read byte by byte.
std::vector<float> numbers(const Type &type, const Part &part) {
    std::vector<float> found(part.bytes / type.bytes);
    if (type.name == std::string("float32") && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) {
        if (part.bytes) std::memcpy(found.data(), part.data, part.bytes);
        return found;
    }
    for (size_t k = 0; k < found.size(); k++) found[k] = number(type, part.data + k * type.bytes);
    return found;
}

[[noreturn]] void refuse_count(uint64_t given, uint64_t wanted) {
    throw BadInput(std::to_string(given) + " stored values are not the " + std::to_string(wanted) +
                   " that it should have");
}

int bits_of(const std::string &code) {  // of a codebook's indices; 0 for another code
    if (code.size() != 9 || code.compare(0, 8, "codebook") != 0) return 0;
    return code[8] >= '1' && code[8] <= '8' ? code[8] - '0' : 0;
}

const Type &stored_type(const Entry &entry) {
    return entry.code == "plain" ? *entry.type : *type_named(entry.code == "levels" ? "int8" : "uint8");
}

// The tensor of a kind, inflated, once its type and number of axes are known to be right.
Part part_of(const Entry &entry, const Parts &parts, const std::string &kind, const Type &type) {
    const auto found = parts.find(kind);
    if (found == parts.end()) throw BadInput("its " + kind + " are missing");
    const Stored &stored = found->second;
    const auto size = entry.deflated.find(kind);
    const bool deflated = size != entry.deflated.end();
    const bool whole = kind == "values" && entry.how == "dense" && entry.code == "plain" && !deflated;
    if (stored.type != (deflated ? type_named("uint8") : &type))
        throw BadInput("its " + kind + " are " + stored.type->name);
    if (whole ? stored.shape != entry.shape : stored.shape.size() != 1)
        throw BadInput("its " + kind + " have another shape");
    Part part;
    if (!deflated) {
        part.data = stored.data;
        part.bytes = stored.bytes;
        return part;
    }
    const uint64_t most = elements(entry.shape) * entry.type->bytes, wanted = size->second;
    if (wanted > most || wanted % type.bytes) throw BadInput("its deflated " + kind + " do not fit it");
    part.own = inflated(stored.data, stored.bytes, wanted);
    part.data = part.own.data();
    part.bytes = part.own.size();
    return part;
}

// The numbers of the kept blocks, rising.
std::vector<int64_t> kept_blocks(const std::string &how, const Part &where, int64_t blocks) {
    std::vector<int64_t> kept;
    const auto keep = [&](int64_t block) {
        if (block >= blocks)
            throw BadInput("it keeps block " + std::to_string(block) + " of " + std::to_string(blocks));
        kept.push_back(block);
    };
    if (how == "mask") {
        if (where.bytes != size_t(blocks + 7) / 8) throw BadInput("its mask has another number of bits");
        for (size_t k = 0; k < where.bytes; k++)
            for (int bit = 0; bit < 8; bit++)
                if (where.data[k] >> bit & 1) keep(int64_t(k) * 8 + bit);
        return kept;
    }
    const int bits = how == "gaps4" ? 4 : 8, more = (1 << bits) - 1;
    int64_t next = 0;
    for (size_t k = 0; k < where.bytes; k++)
        for (int shift = 0; shift < 8; shift += bits) {
            const int code = where.data[k] >> shift & more;
            next += code;
            if (code < more) keep(next++);
        }
    return kept;
}

std::vector<float> from_codebook(const Entry &entry, const Parts &parts, const Part &values,
                                 uint64_t count) {
    const std::vector<float> book = numbers(*entry.type, part_of(entry, parts, "codebook", *entry.type));
    const int bits = bits_of(entry.code);
    if (book.empty() || book.size() > size_t(1) << bits) throw BadInput("its codebook has another size");
    if (values.bytes != (count * bits + 7) / 8) refuse_count(values.bytes, (count * bits + 7) / 8);
    std::vector<float> found(count);
    uint32_t held = 0, room = 0;
    const uint8_t *at = values.data;
    for (uint64_t k = 0; k < count; k++) {
        for (; int(room) < bits; room += 8) held |= uint32_t(*at++) << room;
        const uint32_t index = held & ((1u << bits) - 1);
        held >>= bits;
        room -= bits;
        if (index >= book.size()) throw BadInput("it reads beyond its codebook");
        found[k] = book[index];
    }
    if (held) throw BadInput("its codes have bits left over");
    return found;
}

// Whether there may be so many scales: one for all, for each slice of the first axis, or for each channel
// of a transposed convolution's groups.
bool fits(size_t scales, const Entry &entry) {
    const size_t axis = size_t(entry.axis);
    if (entry.shape.size() <= axis) return false;
    const size_t channels = size_t(entry.shape[axis]);
    if (!axis) return scales == 1 || scales == channels;
    return channels && scales && scales % channels == 0 && size_t(entry.shape[0]) % (scales / channels) == 0;
}

void scale(const Entry &entry, const Parts &parts, std::vector<float> &levels) {
    const Type &float32 = *type_named("float32");
    const std::vector<float> scales = numbers(float32, part_of(entry, parts, "scales", float32));
    if (entry.type != &float32 || !fits(scales.size(), entry)) throw BadInput("its scales do not fit it");
    for (float scale : scales)
        if (!std::isfinite(scale) || scale <= 0) throw BadInput("its scales are not all above zero");
    if (levels.empty()) return;
    // Channels lie behind each other within a slice of the first axis, and groups of slices share theirs.
    const size_t channels = entry.axis ? size_t(entry.shape[1]) : scales.size();
    const size_t slice = entry.axis ? levels.size() / size_t(entry.shape[0]) : levels.size();
    const size_t group = levels.size() / (scales.size() / channels), each = slice / channels;
    for (size_t k = 0; k < levels.size(); k++)
        levels[k] = levels[k] * scales[k / group * channels + k / each % channels];
}

}  // namespace

bool known_way(const Entry &entry) {
    for (const auto &[kind, size] : entry.deflated)
        if (kind != "values" && kind != "where") return false;
    if (entry.axis > (entry.code == "levels" ? 1 : 0)) return false;
    const bool how =
        entry.how == "dense" || entry.how == "mask" || entry.how == "gaps4" || entry.how == "gaps8";
    return how && (entry.code == "plain" || entry.code == "levels" || bits_of(entry.code));
}

Tensor unpacked(const Entry &entry, const Parts &parts) {
    const uint64_t count = elements(entry.shape);
    if (entry.block < 1 || count % entry.block)
        throw BadInput("blocks of " + std::to_string(entry.block) + " do not divide " +
                       std::to_string(count) + " weights");
    const bool dense = entry.how == "dense";
    std::vector<int64_t> kept;
    if (!dense)
        kept = kept_blocks(entry.how, part_of(entry, parts, "where", *type_named("uint8")),
                           int64_t(count) / entry.block);
    const uint64_t wanted = dense ? count : kept.size() * uint64_t(entry.block);
    const Type &type = stored_type(entry);
    const Part values = part_of(entry, parts, "values", type);
    std::vector<float> told;
    if (bits_of(entry.code)) {
        told = from_codebook(entry, parts, values, wanted);
    } else {
        if (values.bytes / type.bytes != wanted) refuse_count(values.bytes / type.bytes, wanted);
        told = numbers(type, values);
    }
    Tensor array{entry.shape, {}};
    if (dense) {
        array.data = std::move(told);
    } else {
        array.data.assign(count, 0.0f);
        for (size_t k = 0; k < kept.size(); k++)
            std::memcpy(&array.data[kept[k] * entry.block], &told[k * entry.block], 4 * entry.block);
    }
    if (entry.code == "levels") scale(entry, parts, array.data);
    return array;
}

}  // namespace sparsepath::embedded
