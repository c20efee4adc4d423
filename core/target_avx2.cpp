#include "kernels.hpp"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace zerotail::avx2 {
#include "target.inl.hpp"
const Kernels kernels = table("avx2");
}  // namespace zerotail::avx2
