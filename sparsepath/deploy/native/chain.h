// 1x1 convolutions that follow a convolution at once: what one makes of a panel of pixels the next reads
// from the cache, and the maps in between are never written to memory.
#pragma once
#include "families.h"

namespace sparsepath {

class Chain {
  public:
    // The `head.tails` calls behind the head, on panels of P vectors.
    Chain(Team &team, const sp_call &head, int P) : team_(team), first_(&head + 1), count_(head.tails), P(P) {}

    bool empty() const { return count_ == 0; }

    // maps[channel][P][16] through all layers to out[filter], whose filters lie `stride` floats apart, or
    // with a null `out` to the place that is returned, [filter][P][16]. The blocks of each layer are
    // shared out in `parts`.
    const float *run(const float *maps, float *scratch, float *out, size_t stride, int parts) const;

    // What one thread needs.
    static size_t floats(const sp_call &head, int P);

  private:
    Team &team_;
    const sp_call *first_;
    int count_;
    const int P;
};

}  // namespace sparsepath
