#include "pool.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if !defined(_WIN32)
#include <pthread.h>
#endif
#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace zerotail {
namespace {

void relax() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

int cores() {
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Where a helper may run. Linux may wake a sleeping thread on the very core of its caller, even with another one idle, and
// then it waits there until the caller is done: so it is told to wake elsewhere, and once awake may run anywhere again.
#if defined(__linux__)
class Place {
public:
    void here() {
        thread = static_cast<pid_t>(syscall(SYS_gettid));
        known = sched_getaffinity(0, sizeof all, &all) == 0;
    }
    void anywhere() const {
        if (known) sched_setaffinity(0, sizeof all, &all);
    }
    void not_with_caller() const {
        cpu_set_t mine;
        const int core = sched_getcpu();
        if (!known || core < 0 || sched_getaffinity(0, sizeof mine, &mine) != 0) return;
        CPU_CLR(core, &mine);
        if (CPU_COUNT(&mine) > 0) sched_setaffinity(thread, sizeof mine, &mine);
    }

private:
    cpu_set_t all;
    pid_t thread = 0;
    bool known = false;
};
#else
struct Place {
    void here() {}
    void anywhere() const {}
    void not_with_caller() const {}
};
#endif

int default_threads() {
    for (const char* name : {"ZEROTAIL_NUM_THREADS", "OMP_NUM_THREADS"})
        if (const char* text = std::getenv(name)) {
            const long n = std::strtol(text, nullptr, 10);
            if (n > 0) return static_cast<int>(std::min(n, 1024L));
        }
    return cores();
}

// One piece of work at a time. The ranges are handed out through a counter, so a thread that comes late finds less to do
// or nothing, and the caller never waits for one that did not come.
class Pool {
public:
    void run(std::int64_t size, std::int64_t grain, Body body, void* context) {
        const std::int64_t pieces = (size + grain - 1) / grain;
        const std::int64_t wanted = std::min<std::int64_t>(threads.load(std::memory_order_relaxed), pieces);
        std::unique_lock<std::mutex> turn(busy, std::defer_lock);
        if (wanted <= 1 || !turn.try_lock()) return body(context, 0, size);
        // Four pieces a thread even out what the threads get of their cores; grains stay whole.
        const std::int64_t step = (pieces + 4 * wanted - 1) / (4 * wanted) * grain;
        const auto helpers = static_cast<int>(wanted - 1);
        bool asleep = false;
        {
            std::lock_guard<std::mutex> hold(lock);
            work = {body, context, size, step};
            next.store(0, std::memory_order_relaxed);
            open = helpers;
            while (static_cast<int>(crew.size()) < helpers && start()) {
            }
            for (const Helper& helper : crew)
                if (helper.asleep) helper.place.not_with_caller(), asleep = true;
            generation.fetch_add(1, std::memory_order_release);
        }
        if (asleep) wake.notify_all();
        take(work);
        // Nobody may join any more; those who did are nearly done.
        {
            std::lock_guard<std::mutex> hold(lock);
            open = 0;
        }
        while (active.load(std::memory_order_acquire) > 0) relax();
    }

    std::atomic<int> threads{default_threads()};

private:
    struct Work {
        Body body;
        void* context;
        std::int64_t size, step;
    };

    void take(const Work& job) {
        for (;;) {
            const std::int64_t begin = next.fetch_add(job.step, std::memory_order_relaxed);
            if (begin >= job.size) return;
            job.body(job.context, begin, std::min(begin + job.step, job.size));
        }
    }

    struct Helper {
        Place place;
        bool asleep = false;
    };

    bool start() {
        const std::size_t before = crew.size();
        try {
            std::thread([this, &self = crew.emplace_back()] { serve(self); }).detach();
        } catch (const std::exception&) {
            crew.resize(before);
            return false;  // fewer threads, the same result
        }
        return true;
    }

    void serve(Helper& self) {
        std::uint64_t seen = 0;
        self.place.here();
        for (;;) {
            // A short while awake: the next call often follows at once.
            for (int i = 0; i < spins && generation.load(std::memory_order_acquire) == seen; ++i) relax();
            Work job;
            {
                std::unique_lock<std::mutex> hold(lock);
                if (generation.load() == seen) {
                    self.asleep = true;
                    wake.wait(hold, [&] { return generation.load() != seen; });
                    self.asleep = false;
                    self.place.anywhere();
                }
                seen = generation.load();
                if (open <= 0) continue;
                --open;
                active.fetch_add(1, std::memory_order_relaxed);
                job = work;
            }
            take(job);
            active.fetch_sub(1, std::memory_order_release);
        }
    }

    static constexpr int spins = 2000;

    std::mutex busy, lock;
    std::condition_variable wake;
    Work work{};
    std::atomic<std::int64_t> next{0};
    std::atomic<std::uint64_t> generation{0};
    std::atomic<int> active{0};
    std::deque<Helper> crew;  // they stay where they are
    int open = 0;
};

// Never destroyed: its threads outlive main.
alignas(Pool) unsigned char memory[sizeof(Pool)];
Pool* the_pool = nullptr;
std::once_flag once;

Pool& get() {
    std::call_once(once, [] {
        the_pool = new (memory) Pool;
#if !defined(_WIN32)
        // A child has the memory but not the threads, and perhaps a locked lock: it begins anew.
        pthread_atfork(nullptr, nullptr, [] {
            const int n = the_pool->threads.load();
            the_pool = new (memory) Pool;
            the_pool->threads.store(n);
        });
#endif
    });
    return *the_pool;
}

}  // namespace

Parallel pool() {
    return {[](void*, std::int64_t size, std::int64_t grain, Body body, void* context) {
                get().run(size, grain, body, context);
            },
            nullptr};
}

void set_num_threads(int n) { get().threads.store(std::max(1, n)); }
int get_num_threads() { return get().threads.load(); }

}  // namespace zerotail
