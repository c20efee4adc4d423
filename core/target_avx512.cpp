#include "kernels.hpp"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace zerotail::avx512 {
#include "target.inl.hpp"
const Kernels kernels = table("avx512");
}  // namespace zerotail::avx512
