// A store of free blocks by size: the smallest that is large enough, but not much too large.
#include "memory.h"

#include <cstdlib>

namespace sparsepath::embedded {

struct Memory::Store {
    uint64_t limit, held = 0;  // bytes, of all blocks whether free or not
    std::multimap<uint64_t, float *> free;

    explicit Store(uint64_t most) : limit(most) {}
    ~Store() { clear(); }

    void clear() {
        for (const auto &[bytes, at] : free) {
            std::free(at);
            held -= bytes;
        }
        free.clear();
    }
};

Memory::Memory(uint64_t limit) : store_(std::make_shared<Store>(limit)) {}

Block Memory::take(uint64_t floats) {
    Store &store = *store_;
    if (floats > store.limit / sizeof(float))
        throw BadInput("a value would take more than " + std::to_string(store.limit) + " bytes of memory");
    uint64_t bytes = (floats * sizeof(float) + 64) / 64 * 64;
    float *at = nullptr;
    const auto found = store.free.lower_bound(bytes);
    if (found != store.free.end() && found->first <= 2 * bytes) {
        bytes = found->first;
        at = found->second;
        store.free.erase(found);
    } else {
        if (store.held + bytes > store.limit) store.clear();
        if (store.held + bytes > store.limit)
            throw BadInput("all values together would take more than " + std::to_string(store.limit) +
                           " bytes of memory");
        at = static_cast<float *>(std::aligned_alloc(64, bytes));
        if (!at) throw BadInput("there are no " + std::to_string(bytes) + " bytes of memory left");
        store.held += bytes;
    }
    return Block(at, [store = store_, bytes](float *block) { store->free.emplace(bytes, block); });
}

}  // namespace sparsepath::embedded
