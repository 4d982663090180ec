// Threads that wait actively for a moment, then sleep: layers follow each other within microseconds, and
// one image the next within a tenth of a millisecond.
#include "team.h"

#include <pthread.h>

#include <chrono>
#include <new>

namespace sparsepath {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto PATIENCE = std::chrono::milliseconds(1);
constexpr int SPINS = 64;  // about a microsecond

// Forks that led to this process. To ask the system who we are would take as long as a small layer.
unsigned forks = 0;
[[maybe_unused]] const int told = pthread_atfork(nullptr, nullptr, [] { forks++; });

// One moment of active waiting. Where the other cores are busy, a worker runs on the core of the thread
// that it waits for, or the other way round: so whoever waits gives its core away again and again.
inline void relax(int spin) {
#if defined(__x86_64__) || defined(__i386__)
    if (spin % SPINS) return __builtin_ia32_pause();
#else
    (void)spin;
#endif
    std::this_thread::yield();
}

}  // namespace

Team::Team(int threads) : home_(forks) {
    try {
        for (int thread = 1; thread < threads; thread++)
            workers_.emplace_back([this, thread] { work(thread); });
    } catch (...) {  // the system gives no more
        end();
        throw;
    }
}

Team::~Team() { end(); }

bool Team::here() const { return home_ == forks; }

void Team::end() {
    ending_ = true;
    announce();
    for (auto &worker : workers_) worker.join();
}

// Tell the workers that there is something new.
void Team::announce() {
    std::lock_guard<std::mutex> lock(mutex_);
    jobs_++;
    if (sleepers_) wake_.notify_all();
}

// What a job throws waits until nobody is at the job any more.
void Team::take_parts(int thread) {
    try {
        for (int part; (part = next_.fetch_add(1)) < parts_;) call_(context_, part, thread);
    } catch (const std::bad_alloc &) {
        failed_ = true;
    }
}

// A worker that comes late finds the job closed: nobody waits for a thread that has not begun.
void Team::run(Call call, void *context, int parts) {
    call_ = call, context_ = context, parts_ = parts;
    next_ = 0;
    open_ = true;
    announce();
    take_parts(0);
    open_ = false;
    for (int spin = 1; inside_.load() > 0; spin++) relax(spin);
    if (failed_.exchange(false)) throw std::bad_alloc();
}

void Team::work(int thread) {
    for (unsigned seen = 0;;) {
        const auto end = Clock::now() + PATIENCE;
        for (int spin = 1; jobs_.load() == seen; spin++) {
            if (spin % SPINS == 0 && Clock::now() > end) break;
            relax(spin);
        }
        if (jobs_.load() == seen) {
            std::unique_lock<std::mutex> lock(mutex_);
            sleepers_++;
            wake_.wait(lock, [&] { return jobs_.load() != seen; });
            sleepers_--;
        }
        seen = jobs_.load();
        if (ending_) return;
        inside_++;  // before the look at `open_`: either it is seen here, or `run` sees us inside
        if (open_.load()) take_parts(thread);
        inside_--;
    }
}

}  // namespace sparsepath
