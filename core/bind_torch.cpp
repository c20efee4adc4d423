// PyTorch's CPU kernels, registered through the stable C functions that libtorch exports.
//
// No header of torch is read and nothing is linked: Python passes the addresses once torch is imported, so one extension
// serves NumPy alone and torch, at any version that has these functions. The operators' schemas are in torch/_ops.py.
#include "bind_torch.hpp"

#include <nanobind/ndarray.h>

#include <array>
#include <stdexcept>
#include <string>

#include "sparsemax.hpp"
#include "torch_abi.hpp"
#include "torch_blocks.hpp"

namespace nb = nanobind;

namespace zerotail {
namespace {

Shape along(const Tensor& tensor, std::int64_t dim) {
    const auto dims = static_cast<std::int64_t>(tensor.dims());
    if (dims == 0) return {1, 1, 1};
    const std::int64_t* sizes = tensor.sizes();
    if (dim < 0) dim += dims;
    if (dim < 0 || dim >= dims) throw std::runtime_error("zerotail: dim is out of range");
    Shape shape{1, sizes[dim], 1};
    for (std::int64_t i = 0; i < dim; ++i) shape.outer *= sizes[i];
    for (std::int64_t i = dim + 1; i < dims; ++i) shape.inner *= sizes[i];
    return shape;
}

// One number a row, of the shape of `tensor` without `dim`.
Tensor a_row(const Tensor& tensor, std::int64_t dim) {
    std::array<std::int64_t, most_dims> sizes;
    const std::int64_t* all = tensor.sizes();
    std::size_t n = 0;
    const auto dims = static_cast<std::int64_t>(tensor.dims());
    for (std::int64_t i = 0; i < dims && n < most_dims; ++i)
        if (i != (dim < 0 ? dim + dims : dim)) sizes[n++] = all[i];
    return Tensor::empty(tensor.compute_dtype(), sizes.data(), n);
}

// sparsemax(Tensor input, int dim) -> Tensor
void op_sparsemax(Value* stack, std::uint64_t, std::uint64_t) {
    const Tensor z = Tensor::argument(stack[0]);
    const auto dim = static_cast<std::int64_t>(stack[1]);
    Tensor p = z.like();
    sparsemax(z.type(), z.data(), p.data(), along(z, dim), threads());
    stack[0] = p.give();
}

// sparsemax_jvp(Tensor p, Tensor v, int dim) -> Tensor
void op_jvp(Value* stack, std::uint64_t, std::uint64_t) {
    const Tensor p = Tensor::argument(stack[0]), v = Tensor::argument(stack[1]);
    const auto dim = static_cast<std::int64_t>(stack[2]);
    v.must_be_like(p, "v");
    Tensor out = p.like();
    jvp(p.type(), p.data(), v.data(), out.data(), along(p, dim), threads());
    stack[0] = out.give();
}

// threshold(Tensor input, int dim) -> (Tensor hi, Tensor lo)
void op_threshold(Value* stack, std::uint64_t, std::uint64_t) {
    const Tensor z = Tensor::argument(stack[0]);
    const auto dim = static_cast<std::int64_t>(stack[1]);
    Tensor hi = a_row(z, dim), lo = a_row(z, dim);
    threshold(z.type(), z.data(), hi.data(), lo.data(), nullptr, along(z, dim), threads());
    stack[0] = hi.give();
    stack[1] = lo.give();
}

LossTarget wanted(const Tensor& z, const Tensor& target, const Shape& shape, std::int64_t ignore) {
    if (target.dtype() != types.int64) {
        target.must_be_like(z, "target");
        return distribution(target.data());
    }
    const auto* values = static_cast<const std::int64_t*>(target.data());
    std::int64_t count = 1;
    for (std::size_t i = 0; i < target.dims(); ++i) count *= target.sizes()[i];
    if (count != shape.rows()) throw std::runtime_error("zerotail: target must be one label a row");
    for (std::int64_t i = 0; i < count; ++i)
        if (values[i] != ignore && (values[i] < 0 || values[i] >= shape.cols))
            throw std::out_of_range("target must be labels in [0, " + std::to_string(shape.cols) +
                                    ") or ignore_index=" + std::to_string(ignore) + "; got " +
                                    std::to_string(values[i]));
    return labels(values, ignore);
}

// sparsemax_loss(Tensor input, Tensor target, int dim, int ignore_index) -> (Tensor loss, Tensor hi, Tensor lo)
void op_loss(Value* stack, std::uint64_t, std::uint64_t) {
    const Tensor z = Tensor::argument(stack[0]), target = Tensor::argument(stack[1]);
    const auto dim = static_cast<std::int64_t>(stack[2]), ignore = static_cast<std::int64_t>(stack[3]);
    const Shape shape = along(z, dim);
    const LossTarget q = wanted(z, target, shape, ignore);
    Tensor value = a_row(z, dim), hi = a_row(z, dim), lo = a_row(z, dim);
    loss(z.type(), z.data(), q, {value.data(), nullptr, hi.data(), lo.data()}, shape, threads());
    stack[0] = value.give();
    stack[1] = hi.give();
    stack[2] = lo.give();
}

// sparsemax_loss_gradient(Tensor input, Tensor target, Tensor hi, Tensor lo, Tensor v, int dim, int ignore_index) -> Tensor
void op_loss_gradient(Value* stack, std::uint64_t, std::uint64_t) {
    const Tensor z = Tensor::argument(stack[0]), target = Tensor::argument(stack[1]), hi = Tensor::argument(stack[2]),
                 lo = Tensor::argument(stack[3]), v = Tensor::argument(stack[4]);
    const auto dim = static_cast<std::int64_t>(stack[5]), ignore = static_cast<std::int64_t>(stack[6]);
    const Shape shape = along(z, dim);
    const LossTarget q = wanted(z, target, shape, ignore);
    const Tensor rows = a_row(z, dim);
    hi.must_be_like(rows, "hi"), lo.must_be_like(rows, "lo"), v.must_be_like(rows, "v");
    Tensor grad = z.like();
    loss_gradient(z.type(), z.data(), q, hi.data(), lo.data(), v.data(), grad.data(), shape, threads());
    stack[0] = grad.give();
}

template <class F> void find(const nb::callable& address, const char* name, F& function) {
    function = reinterpret_cast<F>(nb::cast<std::uintptr_t>(address(name)));
}

// address(name): where a function of libtorch is. Once a process.
void register_kernels(const nb::callable& address) {
#define FIND(prefix, name) find(address, prefix #name, torch.name)
    FIND("aoti_torch_", get_data_ptr);
    FIND("aoti_torch_", get_dim);
    FIND("aoti_torch_", get_sizes);
    FIND("aoti_torch_", get_strides);
    FIND("aoti_torch_", get_dtype);
    FIND("aoti_torch_", is_contiguous);
    FIND("aoti_torch_", empty_strided);
    FIND("aoti_torch_", create_tensor_from_blob);
    FIND("aoti_torch_", cpu_addmm_out);
    FIND("aoti_torch_", delete_tensor_object);
    FIND("aoti_torch_", device_type_cpu);
    FIND("aoti_torch_", memory_format_contiguous_format);
    FIND("aoti_torch_", dtype_float32);
    FIND("aoti_torch_", dtype_float64);
    FIND("aoti_torch_", dtype_float16);
    FIND("aoti_torch_", dtype_bfloat16);
    FIND("aoti_torch_", dtype_int64);
    FIND("aoti_torch_", dtype_int32);
    FIND("aoti_torch_", dtype_bool);
    FIND("aoti_torch_", abi_version);
    FIND("aoti_torch_", library_init_impl);
    FIND("torch_", library_impl);
    FIND("torch_", call_dispatcher);
    FIND("torch_", parallel_for);
#undef FIND
    types = {{torch.dtype_float32(), torch.dtype_float64(), torch.dtype_float16(), torch.dtype_bfloat16()},
             torch.dtype_int64(),
             torch.dtype_int32(),
             torch.dtype_bool()};
    constexpr std::pair<const char*, Kernel> ops[] = {{"sparsemax", op_sparsemax},
                                                      {"sparsemax_jvp", op_jvp},
                                                      {"threshold", op_threshold},
                                                      {"sparsemax_loss", op_loss},
                                                      {"sparsemax_loss_gradient", op_loss_gradient},
                                                      {"support_attention", op_attention},
                                                      {"support_attention_backward", op_attention_backward},
                                                      {"support_sum", op_sum},
                                                      {"support_sum_backward", op_sum_backward},
                                                      {"support_linear_loss", op_linear_loss},
                                                      {"support_linear_loss_backward", op_linear_loss_backward}};
    static Library library = nullptr;  // the registration lasts as long as this does
    must(torch.library_init_impl("zerotail", "CPU", "bind_torch.cpp", 0, &library), "open a library");
    for (const auto& [name, kernel] : ops)
        must(torch.library_impl(library, name, kernel, torch.abi_version()), "register a kernel");
}

// ---- the direct call ------------------------------------------------------------------------------------------------
//
// The dispatcher costs more than a small row. A plain tensor outside of every mode and transform needs none of it: torch
// offers a table of functions that show a tensor's memory and make a new tensor (DLPack's exchange API).

using DLTensor = nb::dlpack::dltensor;

struct ManagedTensor {
    std::uint32_t major, minor;
    void* context;
    void (*deleter)(ManagedTensor*);
    std::uint64_t flags;
    DLTensor tensor;
};

struct Exchange {
    std::uint32_t major, minor;
    Exchange* older;
    int (*make)(DLTensor* prototype, ManagedTensor** out, void* context,
                void (*fail)(void* context, const char* kind, const char* message));
    int (*managed)(void* object, ManagedTensor** out);
    int (*wrap)(ManagedTensor* tensor, void** out);
    int (*view)(void* object, DLTensor* out);
    int (*stream)(std::int32_t device_type, std::int32_t device, void** out);
};

// Of the module torch and what it holds: alive as long as the process.
struct Direct {
    const Exchange* exchange = nullptr;
    PyObject *tensor, *transforms, *modes, *tracing, *grad_enabled, *forward_mode;
    PyObject *requires_grad, *is_neg, *is_zero, *level;
};
Direct direct;

bool is_true(PyObject* owned) {
    const bool yes = owned == Py_True;
    Py_XDECREF(owned);
    return yes;
}
bool is_none(PyObject* owned) {
    const bool yes = owned == Py_None;
    Py_XDECREF(owned);
    return yes;
}
bool is_number(PyObject* owned, long n) {
    const bool yes = owned && PyLong_CheckExact(owned) && PyLong_AsLong(owned) == n;
    Py_XDECREF(owned);
    return yes;
}

// Outside of every transform and mode, torch is asked for nothing more than a result.
bool is_quiet() {
    return is_none(PyObject_CallNoArgs(direct.transforms)) && is_number(PyObject_CallNoArgs(direct.modes), 0) &&
           is_none(PyObject_CallNoArgs(direct.tracing)) &&
           is_number(PyObject_GetAttr(direct.forward_mode, direct.level), -1);
}

// A tensor whose memory holds its numbers.
bool is_plain(PyObject* x) {
    return Py_TYPE(x) == reinterpret_cast<PyTypeObject*>(direct.tensor) &&
           !is_true(PyObject_CallMethodNoArgs(x, direct.is_neg)) &&
           !is_true(PyObject_CallMethodNoArgs(x, direct.is_zero));
}

bool wants_gradient(PyObject* x) {
    return is_true(PyObject_GetAttr(x, direct.requires_grad)) && is_true(PyObject_CallNoArgs(direct.grad_enabled));
}

bool type_of(nb::dlpack::dtype dtype, Type& type) {
    using Code = nb::dlpack::dtype_code;
    if (dtype.lanes != 1) return false;
    if (dtype.code == static_cast<std::uint8_t>(Code::Float)) {
        if (dtype.bits == 32) return type = Type::f32, true;
        if (dtype.bits == 64) return type = Type::f64, true;
        if (dtype.bits == 16) return type = Type::f16, true;
    }
    if (dtype.code == static_cast<std::uint8_t>(Code::Bfloat) && dtype.bits == 16) return type = Type::bf16, true;
    return false;
}

bool is_dense(const DLTensor& x) {
    std::int64_t step = 1;
    for (std::int32_t i = x.ndim; i-- > 0; step *= x.shape[i])
        if (x.shape[i] != 1 && x.strides[i] != step) return false;
    return true;
}

// A plain dense tensor on the CPU, as rows along dim.
struct Plain {
    DLTensor tensor;
    Type type;
    Shape shape;

    bool take(nb::handle x, nb::handle dimension) {
        if (!PyLong_CheckExact(dimension.ptr()) || !is_plain(x.ptr())) return false;
        Py_ssize_t dim = PyLong_AsSsize_t(dimension.ptr());
        if (PyErr_Occurred() || direct.exchange->view(x.ptr(), &tensor) != 0) {
            PyErr_Clear();
            return false;
        }
        if (dim < 0) dim += tensor.ndim;
        if (tensor.device.device_type != nb::device::cpu::value || !type_of(tensor.dtype, type) || !is_dense(tensor) ||
            dim < 0 || dim >= tensor.ndim)
            return false;
        shape = {1, tensor.shape[dim], 1};
        for (Py_ssize_t i = 0; i < dim; ++i) shape.outer *= tensor.shape[i];
        for (Py_ssize_t i = dim + 1; i < tensor.ndim; ++i) shape.inner *= tensor.shape[i];
        return true;
    }
    bool same_kind(const Plain& other) const {
        bool same = type == other.type && tensor.ndim == other.tensor.ndim;
        for (std::int32_t i = 0; same && i < tensor.ndim; ++i) same = tensor.shape[i] == other.tensor.shape[i];
        return same;
    }
    const void* data() const { return static_cast<const char*>(tensor.data) + tensor.byte_offset; }

    // work(out), where out is the memory of a new tensor like this one, which is returned.
    template <class F> nb::object into_new(F&& work) {
        ManagedTensor* made = nullptr;
        const auto fail = [](void*, const char*, const char* message) { PyErr_SetString(PyExc_RuntimeError, message); };
        if (direct.exchange->make(&tensor, &made, nullptr, fail) != 0) throw nb::python_error();
        void* const out = static_cast<char*>(made->tensor.data) + made->tensor.byte_offset;
        if (shape.rows() * shape.cols > release_gil_above) {
            nb::gil_scoped_release nogil;
            work(out);
        } else {
            work(out);
        }
        void* object = nullptr;
        if (direct.exchange->wrap(made, &object) != 0) throw nb::python_error();
        return nb::steal(static_cast<PyObject*>(object));
    }
};

// sparsemax(input, dim); None where the operator is to be called, and says what is wrong if that is why; True where the
// same input without its wish for a gradient would do.
nb::object direct_sparsemax(nb::handle input, nb::handle dim) {
    Plain z;
    if (!direct.exchange || !is_quiet() || !z.take(input, dim)) return nb::none();
    if (wants_gradient(input.ptr())) return nb::bool_(true);
    return z.into_new([&](void* p) { sparsemax(z.type, z.data(), p, z.shape, threads()); });
}

// sparsemax_jvp(p, v, dim), or None where the operator is to be called.
nb::object direct_jvp(nb::handle p, nb::handle v, nb::handle dim) {
    Plain on, along;
    if (!direct.exchange || !is_quiet() || !on.take(p, dim) || !along.take(v, dim) || !on.same_kind(along) ||
        wants_gradient(v.ptr()))
        return nb::none();
    return on.into_new([&](void* out) { jvp(on.type, on.data(), along.data(), out, on.shape, threads()); });
}

// What the direct call asks of torch; without it, or with another version of the table, there is none.
void enable_direct(nb::handle torch_module) {
    const nb::object type = torch_module.attr("Tensor"), c = torch_module.attr("_C");
    const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
    if (!PyCapsule_CheckExact(capsule.ptr())) return;
    const auto* exchange = static_cast<const Exchange*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    if (!exchange) throw nb::python_error();
    if (exchange->major != 1 || !exchange->view) return;
    direct.tensor = nb::object(type).release().ptr();
    direct.transforms = nb::object(c.attr("_functorch").attr("peek_interpreter_stack")).release().ptr();
    direct.modes = nb::object(c.attr("_len_torch_dispatch_stack")).release().ptr();
    direct.tracing = nb::object(c.attr("_get_tracing_state")).release().ptr();
    direct.grad_enabled = nb::object(torch_module.attr("is_grad_enabled")).release().ptr();
    direct.forward_mode = nb::object(torch_module.attr("autograd").attr("forward_ad")).release().ptr();
    direct.requires_grad = PyUnicode_InternFromString("requires_grad");
    direct.is_neg = PyUnicode_InternFromString("is_neg");
    direct.is_zero = PyUnicode_InternFromString("_is_zerotensor");
    direct.level = PyUnicode_InternFromString("_current_level");
    direct.exchange = exchange;
}

}  // namespace

void bind_torch(nb::module_& module) {
    module.def("register_torch", [](nb::handle torch_module, const nb::callable& address) {
        register_kernels(address);
        enable_direct(torch_module);
    });
    module.def("torch_sparsemax", &direct_sparsemax);
    module.def("torch_jvp", &direct_jvp);
}

}  // namespace zerotail
