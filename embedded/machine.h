// What a run works with: values, their memory, and the kernels with their threads and packed weights.
//
// A value is a plain row-major tensor, or maps in the kernels' lane layout (native/layout.h), or both:
// it is brought from one into the other when an operation asks, and stays there.
#pragma once
#include <functional>

#include "graph.h"
#include "kernels.h"
#include "memory.h"
#include "safetensors.h"

namespace sparsepath::embedded {

struct Value {
    Shape shape;
    Block plain;
    Block lanes;  // of (batch, channels, height, width)
    sp_layout layout{};

    int64_t axis(int64_t number) const;  // which axis a possibly negative number means
    uint64_t count() const { return elements(shape); }
};

sp_layout layout_of(int64_t height, int64_t width, int grid);
uint64_t lane_floats(const sp_layout &layout, int64_t channels, int64_t batch);

class Machine {
  public:
    explicit Machine(const Options &options);

    // Lay images out as fits their number: one is cut into tiles, many lie side by side.
    void prepare(int64_t batch) { grid_ = batch < 4 ? 4 : batch < 16 ? 2 : 1; }
    int grid() const { return grid_; }

    Value fresh(const Shape &shape);  // plain, its numbers still to be written
    Value fresh_lanes(const Shape &shape, const sp_layout &layout);
    const float *plain(Value &value);
    Value viewed(Value &value, const Shape &shape);  // the same numbers in another shape

    // A map for the kernels; `slot` is one of SOURCE, OTHER and TARGET.
    enum : int32_t { SOURCE, OTHER, TARGET };
    static sp_map map(const Value &value, int32_t slot);
    void into_lanes(Value &value);
    void relayout(Value &value, const sp_layout &layout);
    void call(const sp_call &call, const float *source, const float *other, float *target, int64_t batch);

    // Weights in the form that a method reads, packed when they are first asked for.
    const sp_weights *packed(const Node &node, int method, const std::function<sp_weights *()> &pack);
    const sp_kernels &kernels() const { return kernels_; }

  private:
    struct Deleter {
        const sp_kernels *kernels;
        void operator()(sp_engine *engine) const { kernels->engine_free(engine); }
        void operator()(sp_weights *weights) const { kernels->weights_free(weights); }
    };
    const sp_kernels &kernels_;
    int threads_, grid_ = 4;
    Memory memory_;
    std::unique_ptr<sp_engine, Deleter> engine_;
    std::map<std::pair<const Node *, int>, std::unique_ptr<sp_weights, Deleter>> packed_;
};

// A call of no weights, windows or clamp: what each kind needs is set by its caller.
sp_call empty_call(int kind);

}  // namespace sparsepath::embedded
