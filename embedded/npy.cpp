// The .npy format, versions 1 to 3, in C order.
#include "npy.h"

#include <cstring>
#include <filesystem>
#include <fstream>

#include "output.h"
#include "safetensors.h"

namespace sparsepath::embedded {
namespace {

const std::string MAGIC = "\x93NUMPY";

// What follows `'key':` in the header's dictionary.
std::string after(const std::string &header, const std::string &key) {
    const size_t at = header.find("'" + key + "':");
    if (at == header.npos) throw BadInput("its header lacks " + key);
    const size_t begin = header.find_first_not_of(' ', at + key.size() + 3);
    return begin == header.npos ? "" : header.substr(begin);
}

Shape read_shape(const std::string &text) {
    Shape shape;
    size_t at = 1;
    if (text.empty() || text[0] != '(') throw BadInput("its header has no shape");
    for (;;) {
        at = text.find_first_not_of(" ,", at);
        if (at == text.npos) throw BadInput("its header has no shape");
        if (text[at] == ')') return shape;
        const size_t end = text.find_first_not_of("0123456789", at);
        if (end == at || end == text.npos || end - at > 15) throw BadInput("its header has no shape");
        shape.push_back(std::stoll(text.substr(at, end - at)));
        at = end;
    }
}

Tensor read(const std::string &path, uint64_t limit) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) throw BadInput("it is no file");
    const uint64_t size = std::filesystem::file_size(path, error);
    if (error || size > limit) throw BadInput("it is larger than " + std::to_string(limit) + " bytes");
    std::string content(size, '\0');
    std::ifstream file(path, std::ios::binary);
    if (!file.read(content.data(), std::streamsize(size))) throw BadInput("it cannot be read");
    if (size < 12 || content.compare(0, MAGIC.size(), MAGIC) != 0)
        throw BadInput("it does not begin like one");
    const bool wide = content[6] != 1;  // later versions have a longer length
    size_t length = 0;
    for (int k = wide ? 3 : 1; k >= 0; k--) length = length << 8 | uint8_t(content[8 + k]);
    const size_t begin = (wide ? 12 : 10) + length;
    if (begin > size) throw BadInput("it is cut off");
    const std::string header = content.substr(wide ? 12 : 10, length);
    if (after(header, "descr").compare(0, 5, "'<f4'") != 0)
        throw BadInput("it holds no float32: save x.astype('float32')");
    if (after(header, "fortran_order").compare(0, 5, "False") != 0)
        throw BadInput("it is in Fortran order");
    Tensor tensor{read_shape(after(header, "shape")), {}};
    const uint64_t count = elements(tensor.shape);
    if (count != (size - begin) / 4 || (size - begin) % 4)
        throw BadInput("it has another size than its shape");
    tensor.data.resize(count);
    if (count) std::memcpy(tensor.data.data(), content.data() + begin, 4 * count);
    return tensor;
}

}  // namespace

Tensor read_npy(const std::string &path, uint64_t limit) {
    try {
        return read(path, limit);
    } catch (const BadInput &error) {
        throw BadInput("'" + path + "' is no .npy file to infer from: " + error.what() + ".");
    }
}

void write_npy(const std::string &path, const Tensor &tensor) {
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
    for (int64_t length : tensor.shape) header += std::to_string(length) + ", ";
    header += "), }";
    header += std::string(63 - (10 + header.size()) % 64, ' ') + "\n";
    const std::string begin =
        MAGIC + '\x01' + '\0' + char(header.size() & 255) + char(header.size() >> 8) + header;
    write_whole(path, {begin, {reinterpret_cast<const char *>(tensor.data.data()), 4 * tensor.data.size()}});
}

}  // namespace sparsepath::embedded
