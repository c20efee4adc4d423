// Rows over threads, through a callback that the caller gives: the core starts no thread of its own.
#pragma once

#include <cstdint>

namespace zerotail {

// Work on rows [begin, end).
using Body = void (*)(void* context, std::int64_t begin, std::int64_t end) noexcept;

// Calls body on disjoint ranges that cover [0, size), each of at least `grain` rows but for the last; returns when all
// are done.
struct Parallel {
    void (*run)(void* self, std::int64_t size, std::int64_t grain, Body body, void* context);
    void* self;
};

// Everything in the calling thread.
inline Parallel sequential() {
    return {[](void*, std::int64_t size, std::int64_t, Body body, void* context) {
                if (size > 0) body(context, 0, size);
            },
            nullptr};
}

}  // namespace zerotail
