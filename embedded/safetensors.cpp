// Reading safetensors: the header, then tensors that fill the rest without holes or overlaps.
#include "safetensors.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "json.h"

namespace sparsepath::embedded {
namespace {

constexpr size_t LONGEST_HEADER = 32 << 20;
const Type TYPES[] = {{"float32", "F32", 4},   {"float64", "F64", 8}, {"float16", "F16", 2},
                      {"bfloat16", "BF16", 2}, {"bool", "BOOL", 1},   {"uint8", "U8", 1},
                      {"int8", "I8", 1},       {"int16", "I16", 2},   {"int32", "I32", 4},
                      {"int64", "I64", 8}};

std::vector<uint8_t> read_bytes(const std::string &path, uint64_t limit) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) throw BadInput("it is no file");
    const uint64_t size = std::filesystem::file_size(path, error);
    if (error || size > limit) throw BadInput("it is larger than " + std::to_string(limit) + " bytes");
    std::vector<uint8_t> content(size);
    std::ifstream file(path, std::ios::binary);
    if (!file.read(reinterpret_cast<char *>(content.data()), static_cast<std::streamsize>(size)))
        throw BadInput("it cannot be read");
    return content;
}

uint64_t whole_number(const Json &json) {
    if (!json.is(Json::INTEGER) || json.integer < 0) throw BadInput("its header has no sane number");
    return static_cast<uint64_t>(json.integer);
}

const Type *type_coded(const Json &code) {
    for (const Type &type : TYPES)
        if (code.is(Json::TEXT) && code.text == type.code) return &type;
    throw BadInput("a tensor has the type " + shown(code.text) + ", which is not ours");
}

Stored read_tensor(const Json &about, const uint8_t *data, size_t room, uint64_t &begin) {
    const auto found = fields(about, {"dtype", "shape", "data_offsets"}, "a tensor of its header");
    Stored tensor{type_coded(*found[0]), {}, nullptr, 0};
    for (const Json &length : found[1]->list) tensor.shape.push_back(int64_t(whole_number(length)));
    const auto &offsets = found[2]->list;
    if (offsets.size() != 2 || !found[1]->is(Json::LIST)) throw BadInput("a tensor has no place");
    begin = whole_number(offsets[0]);
    const uint64_t end = whole_number(offsets[1]);
    if (begin > end || end > room) throw BadInput("a tensor lies beyond its end: it was cut off");
    tensor.data = data + begin;
    tensor.bytes = end - begin;
    if (elements(tensor.shape) != tensor.bytes / tensor.type->bytes || tensor.bytes % tensor.type->bytes)
        throw BadInput("a tensor has another size than its shape");
    return tensor;
}

}  // namespace

const Type *type_named(const std::string &name) {
    for (const Type &type : TYPES)
        if (name == type.name) return &type;
    return nullptr;
}

uint64_t elements(const Shape &shape) {
    uint64_t count = 1;
    for (int64_t length : shape) {
        if (length < 0 || __builtin_mul_overflow(count, uint64_t(length), &count) ||
            count > uint64_t(1) << 40)
            throw BadInput("a shape has more elements than any memory holds");
    }
    return count;
}

Safetensors read_safetensors(const std::string &path, uint64_t limit) {
    Safetensors file;
    file.content = read_bytes(path, limit);
    uint64_t length = 0;
    if (file.content.size() < 8) throw BadInput("it is too short to be one of ours");
    for (int k = 7; k >= 0; k--) length = length << 8 | file.content[k];
    if (length > LONGEST_HEADER || length > file.content.size() - 8)
        throw BadInput("its header is cut off or larger than any of ours");
    const auto *text = reinterpret_cast<const char *>(file.content.data()) + 8;
    const Json header = Json::parse({text, length});
    const uint8_t *data = file.content.data() + 8 + length;
    const size_t room = file.content.size() - 8 - length;
    std::vector<std::pair<uint64_t, uint64_t>> places;
    for (const auto &[name, about] : header.members) {
        if (name == "__metadata__") {
            for (const auto &[key, value] : about.members) file.texts[key] = value.text;
            continue;
        }
        uint64_t begin = 0;
        const Stored tensor = read_tensor(about, data, room, begin);
        file.tensors.emplace(name, tensor);
        places.emplace_back(begin, begin + tensor.bytes);
    }
    std::sort(places.begin(), places.end());
    uint64_t at = 0;
    for (const auto &[begin, end] : places) {
        if (begin != at) throw BadInput("its tensors overlap or leave holes");
        at = end;
    }
    if (at != room) throw BadInput("something follows its last tensor");
    return file;
}

}  // namespace sparsepath::embedded
