// An artifact (docs/artifact.md): its arrays unpacked and its graph, once every byte is checked.
#pragma once
#include <map>
#include <memory>

#include "json.h"
#include "sparsepath_infer.h"

namespace sparsepath::embedded {

using Array = std::shared_ptr<const Tensor>;  // all types are float32 here
using Arrays = std::map<std::string, Array>;

struct Artifact {
    Json graph;
    Arrays arrays;
};

Artifact read_artifact(const std::string &path, uint64_t limit);

}  // namespace sparsepath::embedded
