// A safetensors file: named tensors of bytes and texts, every place checked.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "sparsepath_infer.h"

namespace sparsepath::embedded {

// A type of number: as the manifest calls it, as safetensors does, and its bytes.
struct Type {
    const char *name, *code;
    int bytes;
};
const Type *type_named(const std::string &name);  // null where there is none

// Elements of a shape; BadInput if no memory could hold them.
uint64_t elements(const Shape &shape);

struct Stored {
    const Type *type;
    Shape shape;
    const uint8_t *data;
    size_t bytes;
};

struct Safetensors {
    std::vector<uint8_t> content;  // the whole file; tensors point into it
    std::map<std::string, std::string> texts;
    std::map<std::string, Stored> tensors;
};

Safetensors read_safetensors(const std::string &path, uint64_t limit);

}  // namespace sparsepath::embedded
