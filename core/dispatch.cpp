// The API of sparsemax.hpp: one table of kernels, chosen once, and rows over threads.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "kernels.hpp"
#include "underflow.hpp"

namespace zerotail {
namespace {

bool always() { return true; }

#if defined(__x86_64__) || defined(_M_X64)
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
}
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

struct Target {
    const Kernels* kernels;
    bool (*runs_here)();
};

// Best first. The last runs everywhere.
constexpr Target all[] = {
#if defined(__x86_64__) || defined(_M_X64)
    {&avx512::kernels, has_avx512},
    {&avx2::kernels, has_avx2},
#endif
    {&baseline::kernels, always},
};
constexpr std::size_t all_count = sizeof all / sizeof *all;

const Kernels* named(const char* name) {
    for (const Target& target : all)
        if (target.runs_here() && std::strcmp(target.kernels->name, name) == 0) return target.kernels;
    return nullptr;
}

const Kernels* choose() {
    if (const char* name = std::getenv("ZEROTAIL_TARGET"))
        if (const Kernels* wanted = named(name)) return wanted;
    for (const Target& target : all)
        if (target.runs_here()) return target.kernels;
    return &baseline::kernels;
}

std::atomic<const Kernels*> chosen{nullptr};

const Kernels& kernels() {
    const Kernels* table = chosen.load(std::memory_order_relaxed);
    if (!table) chosen.store(table = choose(), std::memory_order_relaxed);
    return *table;
}

// Below this many numbers a thread is not worth its while.
constexpr std::int64_t grain_numbers = 1 << 15;

// work(begin, end) on ranges that cover [0, size). What one throws is thrown here, when all are done.
template <class F> void for_ranges(std::int64_t size, std::int64_t grain, const Parallel& parallel, const F& work) {
    struct Context {
        const F& work;
        std::atomic<bool> failed{false};
        std::exception_ptr error{};
    } context{work};
    parallel.run(
        parallel.self, size, grain,
        [](void* at, std::int64_t begin, std::int64_t end) noexcept {
            Context& c = *static_cast<Context*>(at);
            const GradualUnderflow here;
            try {
                c.work(begin, end);
            } catch (...) {
                if (!c.failed.exchange(true)) c.error = std::current_exception();
            }
        },
        &context);
    if (context.error) std::rethrow_exception(context.error);
}

template <class F> void for_rows(const Shape& shape, const Parallel& parallel, F work) {
    const std::int64_t rows = shape.rows();
    if (rows <= 0) return;
    // Whole groups of lanes.
    const std::int64_t grain = (grain_numbers / (shape.cols > 0 ? shape.cols : 1) / 16 + 1) * 16;
    const std::int64_t least = shape.cols >= grain_numbers ? 1 : grain;
    const auto range = [&](std::int64_t begin, std::int64_t end) { work(Rows{shape, begin, end}); };
    for_ranges(rows, least, rows <= least ? sequential() : parallel, range);
}

// Small memory stays with its thread, large memory goes back.
constexpr std::size_t kept_bytes = 1 << 20;

struct Kept {
    void* data = nullptr;
    std::size_t bytes = 0;
    bool in_use = false;
    ~Kept() { ::operator delete(data, std::align_val_t{64}); }
};
thread_local Kept kept;

}  // namespace

Scratch::Scratch(std::size_t bytes) {
    if (bytes > kept_bytes || kept.in_use) {
        data = ::operator new(bytes, std::align_val_t{64});
        return;
    }
    if (kept.bytes < bytes) {
        ::operator delete(kept.data, std::align_val_t{64});
        kept.data = nullptr;
        kept.bytes = 0;
        kept.data = ::operator new(bytes, std::align_val_t{64});
        kept.bytes = bytes;
    }
    kept.in_use = true;
    data = kept.data;
}

Scratch::~Scratch() {
    if (data == kept.data) kept.in_use = false;
    else ::operator delete(data, std::align_val_t{64});
}

void sparsemax(Type type, const void* z, void* p, Shape shape, const Parallel& parallel) {
    if (shape.cols == 0) return;
    const auto run = kernels().sparsemax[static_cast<int>(type)];
    for_rows(shape, parallel, [=](Rows rows) { run(z, p, rows); });
}

void threshold(Type type, const void* z, void* hi, void* lo, std::int64_t* size, Shape shape,
               const Parallel& parallel) {
    const auto run = kernels().threshold[static_cast<int>(type)];
    for_rows(shape, parallel, [=](Rows rows) { run(z, hi, lo, size, rows); });
}

void compact(Type type, const void* z, const void* hi, const void* lo, const std::int64_t* offsets, void* values,
             std::int32_t* indices, std::int64_t rows, std::int64_t cols, const Parallel& parallel) {
    const auto run = kernels().compact[static_cast<int>(type)];
    for_rows(Shape{rows, cols, 1}, parallel, [=](Rows range) { run(z, hi, lo, offsets, values, indices, range); });
}

void jvp(Type type, const void* p, const void* v, void* out, Shape shape, const Parallel& parallel) {
    if (shape.cols == 0) return;
    const auto run = kernels().jvp[static_cast<int>(type)];
    for_rows(shape, parallel, [=](Rows rows) { run(p, v, out, rows); });
}

void loss(Type type, const void* z, LossTarget target, LossRows out, Shape shape, const Parallel& parallel) {
    const auto run = kernels().loss[static_cast<int>(type)];
    for_rows(shape, parallel, [=](Rows rows) { run(z, target, out, rows); });
}

void loss_gradient(Type type, const void* z, LossTarget target, const void* hi, const void* lo, const void* v,
                   void* grad, Shape shape, const Parallel& parallel) {
    if (shape.cols == 0) return;
    const auto run = kernels().loss_gradient[static_cast<int>(type)];
    for_rows(shape, parallel, [=](Rows rows) { run(z, target, hi, lo, v, grad, rows); });
}

void csr_scores(Type type, const Csr& x, const void* weights, const void* bias, void* scores, std::int64_t rows,
                std::int64_t cols, const Parallel& parallel) {
    const auto run = kernels().csr_scores[static_cast<int>(type)];
    const auto offset = [&](std::int64_t row) {
        return x.wide ? static_cast<const std::int64_t*>(x.offsets)[row]
                      : static_cast<const std::int32_t*>(x.offsets)[row];
    };
    if (rows <= 0) return;
    // Every entry of x costs a row of weights.
    const std::int64_t entries = (offset(rows) - offset(0)) / rows + 1;
    for_ranges(rows, grain_numbers / (entries * (cols > 0 ? cols : 1)) + 1, parallel,
               [&](std::int64_t begin, std::int64_t end) {
                   run(x, weights, bias, scores, Rows{Shape{rows, cols, 1}, begin, end});
               });
}

void csr_gradient(Type type, const Csr& x, const void* g, double* gradient, std::int64_t rows, std::int64_t cols,
                  const std::int64_t* bounds, std::int64_t parts, const Parallel& parallel) {
    const auto run = kernels().csr_gradient[static_cast<int>(type)];
    for_ranges(parts, 1, parts == 1 ? sequential() : parallel, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t part = begin; part < end; ++part)
            run(x, g, gradient, rows, cols, parts == 1, bounds[part], bounds[part + 1]);
    });
}

std::int64_t support(Type type, const void* z, const SupportOut& out, std::int64_t rows, std::int64_t cols) {
    const GradualUnderflow here;
    return kernels().support[static_cast<int>(type)](z, out, rows, cols);
}

void above(Type type, const void* z, const void* hi, const void* lo, void* p, std::int64_t rows, std::int64_t cols) {
    const GradualUnderflow here;
    kernels().above[static_cast<int>(type)](z, hi, lo, p, rows, cols);
}

void exclude(Type type, void* z, const bool* takes_part, std::int64_t cols) {
    const GradualUnderflow here;
    kernels().exclude[static_cast<int>(type)](z, takes_part, cols);
}

void add(Type type, void* z, const void* x, std::int64_t cols) {
    const GradualUnderflow here;
    kernels().add[static_cast<int>(type)](z, x, cols);
}

void combine(Type type, const Lists& lists, const void* weights, Table table, TableOut out, std::int64_t begin,
             std::int64_t end, bool add) {
    const GradualUnderflow here;
    kernels().combine[static_cast<int>(type)](lists, weights, table, out, begin, end, add);
}

void slopes(Type type, const Lists& lists, Table table, Table x, void* out, double scale, std::int64_t begin,
            std::int64_t end) {
    const GradualUnderflow here;
    kernels().slopes[static_cast<int>(type)](lists, table, x, out, scale, begin, end);
}

const char* const* targets() {
    static const char* names[all_count + 1] = {};
    static const bool filled = [] {
        std::size_t n = 0;
        for (const Target& target : all)
            if (target.runs_here()) names[n++] = target.kernels->name;
        return true;
    }();
    static_cast<void>(filled);
    return names;
}

const char* target() { return kernels().name; }

bool use_target(const char* name) {
    const Kernels* table = named(name);
    if (table) chosen.store(table, std::memory_order_relaxed);
    return table != nullptr;
}

}  // namespace zerotail
