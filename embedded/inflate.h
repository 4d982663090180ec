// Raw deflate (RFC 1951) back into a number of bytes that is known before.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sparsepath::embedded {

// Exactly `size` bytes from the whole of a stream; BadInput if it gives others or is longer.
std::vector<uint8_t> inflated(const uint8_t *stream, size_t bytes, size_t size);

}  // namespace sparsepath::embedded
