// Threads that wait actively for a moment, then sleep: layers follow each other within microseconds.
#include "team.h"

namespace sparsepath {
namespace {

constexpr int SPINS = 4000;

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    std::this_thread::yield();
#endif
}

}  // namespace

Team::Team(int threads) {
    for (int thread = 1; thread < threads; thread++)
        workers_.emplace_back([this, thread] { work(thread); });
}

Team::~Team() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        ending_ = true;
        job_++;
    }
    wake_.notify_all();
    for (auto &worker : workers_) worker.join();
}

void Team::take_parts(int thread) {
    for (int part; (part = next_.fetch_add(1)) < parts_;) call_(context_, part, thread);
}

void Team::run(Call call, void *context, int parts) {
    call_ = call, context_ = context, parts_ = parts;
    next_ = 0;
    busy_ = static_cast<int>(workers_.size());
    {
        std::lock_guard<std::mutex> lock(mutex_);
        job_++;
    }
    wake_.notify_all();
    take_parts(0);
    // Every worker must have left the job before the next one may be described.
    for (int spin = 0; busy_.load() > 0; spin++) spin < SPINS ? relax() : std::this_thread::yield();
}

void Team::work(int thread) {
    for (unsigned seen = 0;;) {
        for (int spin = 0; spin < SPINS && job_.load() == seen; spin++) relax();
        if (job_.load() == seen) {
            std::unique_lock<std::mutex> lock(mutex_);
            wake_.wait(lock, [&] { return job_.load() != seen; });
        }
        seen = job_.load();
        if (ending_) return;
        take_parts(thread);
        busy_--;
    }
}

}  // namespace sparsepath
