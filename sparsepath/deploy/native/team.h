// A team of threads that share out the parts of one job after another.
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace sparsepath {

class Team {
  public:
    explicit Team(int threads);
    ~Team();
    Team(const Team &) = delete;
    Team &operator=(const Team &) = delete;

    // A process that was forked has the team, but none of its threads: it must neither run nor end it.
    bool here() const;

    int threads() const { return static_cast<int>(workers_.size()) + 1; }

    // job(part, thread) for every part below `parts`, each once; returns when all are done.
    template <typename Job> void each(int parts, Job &&job) {
        if (workers_.empty() || parts <= 1) {
            for (int part = 0; part < parts; part++) job(part, 0);
            return;
        }
        run([](void *context, int part, int thread) { (*static_cast<Job *>(context))(part, thread); },
            const_cast<void *>(static_cast<const void *>(&job)), parts);
    }

  private:
    using Call = void (*)(void *context, int part, int thread);
    void run(Call call, void *context, int parts);
    void announce();
    void end();
    void work(int thread);
    void take_parts(int thread);

    const unsigned home_;  // forks that led to the process it began in
    std::vector<std::thread> workers_;
    Call call_ = nullptr;
    void *context_ = nullptr;
    int parts_ = 0;
    std::atomic<int> next_{0};        // the next part that nobody has taken
    std::atomic<int> inside_{0};      // workers that look at the job
    std::atomic<bool> open_{false};   // whether more of them may
    std::atomic<unsigned> jobs_{0};   // jobs so far
    std::atomic<bool> ending_{false};
    std::atomic<bool> failed_{false};  // a part found no memory
    std::mutex mutex_;                // of those who sleep
    std::condition_variable wake_;
    int sleepers_ = 0;
};

}  // namespace sparsepath
