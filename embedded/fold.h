// Passes that keep a graph's function and make it shorter: batch norm, activations and pools move into
// the layer that they alone read (sparsepath/deploy/graph/fold.py does the same).
#pragma once
#include "graph.h"

namespace sparsepath::embedded {

void fold(Graph &graph);

}  // namespace sparsepath::embedded
