// Values between plain tensors and lanes, and calls of the kernels.
#include "machine.h"

#include <cmath>

namespace sparsepath::embedded {

int64_t Value::axis(int64_t number) const {
    const int64_t rank = std::max<int64_t>(1, int64_t(shape.size()));
    if (number < -rank || number >= rank)
        throw BadInput("a value of " + std::to_string(shape.size()) + " axes has no axis " +
                       std::to_string(number));
    return number < 0 ? number + rank : number;
}

sp_layout layout_of(int64_t height, int64_t width, int grid) {
    const auto tile = [grid](int64_t side) { return int32_t((side + grid - 1) / grid); };
    return {int32_t(height), int32_t(width), grid, tile(height), tile(width)};
}

uint64_t lane_floats(const sp_layout &layout, int64_t channels, int64_t batch) {
    const uint64_t vectors = (uint64_t(batch) * layout.grid * layout.grid + 15) / 16;
    return vectors * channels * layout.tile_height * layout.tile_width * 16;
}

Machine::Machine(const Options &options)
    : kernels_(best_kernels()),
      threads_(options.threads),
      memory_(options.limit),
      engine_(kernels_.engine_create(options.threads), Deleter{&kernels_}) {
    if (!engine_)
        throw BadInput("The system does not give " + std::to_string(options.threads) +
                       " threads; ask for fewer.");
}

Value Machine::fresh(const Shape &shape) {
    Value value;
    value.shape = shape;
    value.plain = memory_.take(elements(shape));
    return value;
}

Value Machine::fresh_lanes(const Shape &shape, const sp_layout &layout) {
    // Kernels count the floats of a channel in 32 bits.
    if (int64_t(layout.tile_height) * layout.tile_width > 1 << 26)
        throw BadInput("maps of " + std::to_string(layout.height) + " x " + std::to_string(layout.width) +
                       " pixels are too large for it");
    Value value;
    value.shape = shape;
    value.layout = layout;
    value.lanes = memory_.take(lane_floats(layout, shape[1], shape[0]));
    return value;
}

sp_map Machine::map(const Value &value, int32_t slot) {
    const auto channels = int32_t(value.shape[1]);
    return {slot, 0, channels, channels, value.layout};
}

const float *Machine::plain(Value &value) {
    if (!value.plain) {
        value.plain = memory_.take(value.count());
        sp_call export_call = empty_call(SP_EXPORT);
        export_call.source = map(value, SOURCE);
        export_call.target.slot = TARGET;
        call(export_call, value.lanes.get(), nullptr, value.plain.get(), value.shape[0]);
    }
    return value.plain.get();
}

Value Machine::viewed(Value &value, const Shape &shape) {
    if (elements(shape) != value.count()) throw BadInput("its shape does not fit what it is given");
    plain(value);
    Value other;
    other.shape = shape;
    other.plain = value.plain;
    return other;
}

void Machine::into_lanes(Value &value) {
    if (value.lanes) return;
    const sp_layout layout = layout_of(value.shape[2], value.shape[3], grid_);
    Value maps = fresh_lanes(value.shape, layout);
    sp_call import_call = empty_call(SP_IMPORT);
    import_call.source.slot = SOURCE;
    import_call.target = map(maps, TARGET);
    call(import_call, value.plain.get(), nullptr, maps.lanes.get(), value.shape[0]);
    value.lanes = maps.lanes;
    value.layout = layout;
}

void Machine::relayout(Value &value, const sp_layout &layout) {
    Value maps = fresh_lanes(value.shape, layout);
    sp_call move = empty_call(SP_RELAYOUT);
    move.source = map(value, SOURCE);
    move.target = map(maps, TARGET);
    call(move, value.lanes.get(), nullptr, maps.lanes.get(), value.shape[0]);
    value.lanes = maps.lanes;
    value.layout = layout;
}

void Machine::call(const sp_call &call, const float *source, const float *other, float *target,
                   int64_t batch) {
    float *const slots[] = {const_cast<float *>(source), const_cast<float *>(other), target};
    const Block workspace = memory_.take(kernels_.workspace(&call, 1, int32_t(batch), threads_));
    if (!kernels_.run(engine_.get(), &call, 1, slots, int32_t(batch), workspace.get()))
        throw BadInput("there is not enough memory left to compute it");
}

const sp_weights *Machine::packed(const Node &node, int method, const std::function<sp_weights *()> &pack) {
    auto &found = packed_.try_emplace({&node, method}, nullptr, Deleter{&kernels_}).first->second;
    if (!found) found.reset(pack());
    return found.get();
}

sp_call empty_call(int kind) {
    sp_call call{};
    call.kind = kind;
    call.pool = 1;
    call.lower = -INFINITY;
    call.upper = INFINITY;
    return call;
}

}  // namespace sparsepath::embedded
