// JAX's CPU kernels: handlers of XLA's foreign function interface, on XLA's own threads.
//
// XLA gives dense arrays in C order, of types and shapes that jax/_ops.py has chosen; the checks here are for callers who
// name a target themselves. Built where jaxlib's headers are.
#include <nanobind/nanobind.h>
#include <xla/ffi/api/ffi.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "sparsemax.hpp"

namespace nb = nanobind;
namespace ffi = xla::ffi;
using namespace zerotail;

namespace {

using In = ffi::AnyBuffer;
using Out = ffi::Result<ffi::AnyBuffer>;

// ---- threads --------------------------------------------------------------------------------------------------------

// Ranges of rows, handed out through a counter. A task that the pool starts late, even after the call is over, finds
// none and looks at nothing but this: so nobody waits for a task that has not begun, and a busy pool cannot deadlock.
struct Work {
    const Body body;
    void* const context;
    const std::int64_t size, step;
    std::atomic<std::int64_t> next{0}, left;

    Work(Body body_, void* context_, std::int64_t size_, std::int64_t step_)
        : body(body_), context(context_), size(size_), step(step_), left((size_ + step_ - 1) / step_) {}

    void take() {
        for (;;) {
            const std::int64_t begin = next.fetch_add(step, std::memory_order_relaxed);
            if (begin >= size) return;
            body(context, begin, std::min(begin + step, size));
            left.fetch_sub(1, std::memory_order_release);
        }
    }
};

void run_in_pool(void* self, std::int64_t size, std::int64_t grain, Body body, void* context) {
    ffi::ThreadPool& pool = *static_cast<ffi::ThreadPool*>(self);
    const std::int64_t pieces = (size + grain - 1) / grain, threads = std::min(pool.num_threads(), pieces);
    if (threads <= 1) return body(context, 0, size);
    // Four pieces a thread even out what the threads get of their cores; grains stay whole.
    const std::int64_t step = (pieces + 4 * threads - 1) / (4 * threads) * grain;
    const auto work = std::make_shared<Work>(body, context, size, step);
    for (std::int64_t i = 1; i < threads; ++i) pool.Schedule([work] { work->take(); });
    work->take();
    while (work->left.load(std::memory_order_acquire) > 0) std::this_thread::yield();
}

Parallel on(ffi::ThreadPool& pool) { return {run_in_pool, &pool}; }

// ---- arguments ------------------------------------------------------------------------------------------------------

std::optional<Type> type_of(const In& x) {
    switch (x.element_type()) {
        case ffi::DataType::F32:
            return Type::f32;
        case ffi::DataType::F64:
            return Type::f64;
        case ffi::DataType::F16:
            return Type::f16;
        case ffi::DataType::BF16:
            return Type::bf16;
        default:
            return std::nullopt;
    }
}

// Scores, as rows along `axis`.
struct Scores {
    Type type;
    Shape shape;

    static std::optional<Scores> of(const In& x, std::int64_t axis) {
        const auto dims = x.dimensions();
        const auto rank = static_cast<std::int64_t>(dims.size());
        const std::optional<Type> type = type_of(x);
        if (!type || axis < 0 || axis >= rank) return std::nullopt;
        Shape shape{1, 1, 1};
        for (std::int64_t i = 0; i < rank; ++i)
            (i < axis ? shape.outer : i > axis ? shape.inner : shape.cols) *= dims[static_cast<std::size_t>(i)];
        return Scores{*type, shape};
    }
    bool is_one_a_row(const In& x) const {
        const auto wanted = type == Type::f64 ? ffi::DataType::F64 : ffi::DataType::F32;
        return x.element_type() == wanted && static_cast<std::int64_t>(x.element_count()) == shape.rows();
    }
};

bool same_kind(const In& a, const In& b) {
    const auto x = a.dimensions(), y = b.dimensions();
    return a.element_type() == b.element_type() && std::equal(x.begin(), x.end(), y.begin(), y.end());
}

ffi::Error refused(const char* what) { return ffi::Error::InvalidArgument(what); }

// XLA knows no exceptions.
template <class F> ffi::Error guarded(F&& work) {
    try {
        work();
        return ffi::Error::Success();
    } catch (const std::exception& error) {
        return ffi::Error::Internal(error.what());
    }
}

// ---- handlers -------------------------------------------------------------------------------------------------------

ffi::Error handle_sparsemax(ffi::ThreadPool pool, In z, Out p, std::int64_t axis) {
    const auto scores = Scores::of(z, axis);
    if (!scores || !same_kind(z, *p)) return refused("zerotail_sparsemax: p must be like z, with a row along axis");
    return guarded([&] { sparsemax(scores->type, z.untyped_data(), p->untyped_data(), scores->shape, on(pool)); });
}

ffi::Error handle_jvp(ffi::ThreadPool pool, In p, In v, Out out, std::int64_t axis) {
    const auto scores = Scores::of(p, axis);
    if (!scores || !same_kind(p, v) || !same_kind(p, *out))
        return refused("zerotail_jvp: v and the result must be like p, with a row along axis");
    return guarded(
        [&] { jvp(scores->type, p.untyped_data(), v.untyped_data(), out->untyped_data(), scores->shape, on(pool)); });
}

ffi::Error handle_threshold(ffi::ThreadPool pool, In z, Out hi, Out lo, std::int64_t axis) {
    const auto scores = Scores::of(z, axis);
    if (!scores || !scores->is_one_a_row(*hi) || !scores->is_one_a_row(*lo))
        return refused("zerotail_threshold: hi and lo must have one number for each row of z along axis");
    return guarded([&] {
        threshold(scores->type, z.untyped_data(), hi->untyped_data(), lo->untyped_data(), nullptr, scores->shape,
                  on(pool));
    });
}

ffi::Error run_loss(ffi::ThreadPool& pool, const In& z, const In& target, const In& value, void* grad,
                    std::int64_t axis) {
    const auto scores = Scores::of(z, axis);
    if (!scores || !scores->is_one_a_row(value))
        return refused("zerotail_loss: the loss must have one number for each row of z along axis");
    const auto is_row_of = [&](ffi::DataType type) {
        return target.element_type() == type &&
               static_cast<std::int64_t>(target.element_count()) == scores->shape.rows();
    };
    if (!is_row_of(ffi::DataType::S32) && !is_row_of(ffi::DataType::S64) && !same_kind(z, target))
        return refused("zerotail_loss: target must be one label for each row of z along axis, or like z");
    return guarded([&] {
        std::vector<std::int64_t> wide;  // JAX's labels have 32 bits, unless it is told otherwise
        LossTarget wanted = distribution(target.untyped_data());
        if (target.element_type() == ffi::DataType::S32) {
            const auto* labels_ = target.typed_data<std::int32_t>();
            wide.assign(labels_, labels_ + scores->shape.rows());
            wanted = labels(wide.data());
        } else if (target.element_type() == ffi::DataType::S64) {
            wanted = labels(target.typed_data<std::int64_t>());
        }
        loss(scores->type, z.untyped_data(), wanted, {value.untyped_data(), grad, nullptr, nullptr}, scores->shape,
             on(pool));
    });
}

ffi::Error handle_loss(ffi::ThreadPool pool, In z, In target, Out value, std::int64_t axis) {
    return run_loss(pool, z, target, *value, nullptr, axis);
}

ffi::Error handle_loss_and_grad(ffi::ThreadPool pool, In z, In target, Out value, Out grad, std::int64_t axis) {
    if (!same_kind(z, *grad)) return refused("zerotail_loss_and_grad: the gradient must be like z");
    return run_loss(pool, z, target, *value, grad->untyped_data(), axis);
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    zerotail_sparsemax, handle_sparsemax,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<In>().Ret<ffi::AnyBuffer>().Attr<std::int64_t>("axis"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    zerotail_jvp, handle_jvp,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<In>().Arg<In>().Ret<ffi::AnyBuffer>().Attr<std::int64_t>("axis"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    zerotail_threshold, handle_threshold,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<In>().Ret<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>().Attr<std::int64_t>(
        "axis"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    zerotail_loss, handle_loss,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<In>().Arg<In>().Ret<ffi::AnyBuffer>().Attr<std::int64_t>("axis"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(zerotail_loss_and_grad, handle_loss_and_grad,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<In>()
                                  .Arg<In>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<std::int64_t>("axis"));

NB_MODULE(_ffi, m) {
    // What jax.ffi.register_ffi_target takes, by name.
    m.def("handlers", [] {
        nb::dict found;
        const auto add = [&](const char* name, XLA_FFI_Error* (*handler)(XLA_FFI_CallFrame*)) {
            found[name] = nb::capsule(reinterpret_cast<void*>(handler));
        };
        add("zerotail_sparsemax", zerotail_sparsemax);
        add("zerotail_jvp", zerotail_jvp);
        add("zerotail_threshold", zerotail_threshold);
        add("zerotail_loss", zerotail_loss);
        add("zerotail_loss_and_grad", zerotail_loss_and_grad);
        return found;
    });
    m.attr("api_version") = nb::make_tuple(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR);
    m.def("use_target", &use_target);
}
