#include "kernels.hpp"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace zerotail::baseline {
#include "target.inl.hpp"
const Kernels kernels = table("baseline");
}  // namespace zerotail::baseline
