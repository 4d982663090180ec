// Memory of a run: blocks that go round among its values, never more than a limit together.
#pragma once
#include <map>
#include <memory>

#include "sparsepath_infer.h"

namespace sparsepath::embedded {

using Block = std::shared_ptr<float>;  // aligned to 64 bytes; back in the memory when nobody holds it

class Memory {
  public:
    explicit Memory(uint64_t limit);
    Block take(uint64_t floats);

  private:
    struct Store;
    std::shared_ptr<Store> store_;
};

}  // namespace sparsepath::embedded
