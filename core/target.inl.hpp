// Everything that is compiled once for each CPU target, in an order that matters. Included inside of the target's
// namespace.
namespace {

#include "vec.hpp"

#include "rows.inl.hpp"

#include "jobs.inl.hpp"

#include "loss.inl.hpp"

#include "csr.inl.hpp"

#include "support.inl.hpp"

constexpr Kernels table(const char* name) {
    return {
        name,
        {run_sparsemax<float>, run_sparsemax<double>, run_sparsemax<half>, run_sparsemax<bfloat>},
        {run_threshold<float>, run_threshold<double>, run_threshold<half>, run_threshold<bfloat>},
        {run_compact<float>, run_compact<double>, run_compact<half>, run_compact<bfloat>},
        {run_jvp<float>, run_jvp<double>, run_jvp<half>, run_jvp<bfloat>},
        {run_loss<float>, run_loss<double>, run_loss<half>, run_loss<bfloat>},
        {run_loss_gradient<float>, run_loss_gradient<double>, run_loss_gradient<half>, run_loss_gradient<bfloat>},
        {run_csr_scores<float>, run_csr_scores<double>},
        {run_csr_gradient<float>, run_csr_gradient<double>},
        {run_support<float>, run_support<double>},
        {run_above<float>, run_above<double>},
        {run_exclude<float>, run_exclude<double>},
        {run_add<float>, run_add<double>},
        {run_combine<float>, run_combine<double>},
        {run_slopes<float>, run_slopes<double>},
    };
}

}  // namespace
