#include "kernels.hpp"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace zerotail::baseline {
namespace {
#include "vec.hpp"

#include "rows.inl.hpp"

#include "jobs.inl.hpp"

#include "loss.inl.hpp"
}  // namespace

#define ZEROTAIL_TYPES(run) {run<float>, run<double>, run<half>, run<bfloat>}
const Kernels kernels = {
    "baseline",
    ZEROTAIL_TYPES(run_sparsemax),
    ZEROTAIL_TYPES(run_threshold),
    ZEROTAIL_TYPES(run_compact),
    ZEROTAIL_TYPES(run_jvp),
    ZEROTAIL_TYPES(run_loss),
};
}  // namespace zerotail::baseline
