// SHA-256 (FIPS 180-4), in hexadecimal.
#pragma once
#include <cstddef>
#include <string>

namespace sparsepath::embedded {

std::string sha256(const void *data, size_t bytes);

}  // namespace sparsepath::embedded
