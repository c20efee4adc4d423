// Numbers near zero: a thread may have been told to take the smallest ones for zero, by a framework or by a library that
// was built with -ffast-math. The kernels do not: float16 has such numbers where float32 is read as bits.
#pragma once

#include <cstdint>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace zerotail {

// While it lives, its thread computes with subnormal numbers. It must outlive a call that the compiler cannot look into.
class GradualUnderflow {
public:
    GradualUnderflow() {
        if (found & flush) set(found & ~flush);
    }
    ~GradualUnderflow() {
        if (found & flush) set(found);
    }
    GradualUnderflow(const GradualUnderflow&) = delete;
    GradualUnderflow& operator=(const GradualUnderflow&) = delete;

private:
#if defined(__x86_64__) || defined(_M_X64)
    using Word = unsigned;
    static constexpr Word flush = 0x8000 | 0x0040;  // of results, and of arguments
    static Word get() { return _mm_getcsr(); }
    static void set(Word word) { _mm_setcsr(word); }
#elif defined(__aarch64__)
    using Word = std::uint64_t;
    static constexpr Word flush = 1u << 24 | 1u << 19;  // of all types but half, and of half
    static Word get() {
        Word word;
        __asm__ volatile("mrs %0, fpcr" : "=r"(word));
        return word;
    }
    static void set(Word word) { __asm__ volatile("msr fpcr, %0" : : "r"(word)); }
#else
    using Word = unsigned;
    static constexpr Word flush = 0;
    static Word get() { return 0; }
    static void set(Word) {}
#endif
    const Word found = get();
};

}  // namespace zerotail
