// What is used of PyTorch: the stable C functions that libtorch exports, and a tensor's handle that frees itself.
//
// No header of torch is read and nothing is linked: Python passes the addresses once torch is imported.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "sparsemax.hpp"

namespace zerotail {

struct OpaqueTensor;
struct OpaqueLibrary;
using Handle = OpaqueTensor*;
using Library = OpaqueLibrary*;
using Value = std::uint64_t;  // a handle or a number: one argument or result of a kernel
using Status = std::int32_t;  // 0 is success
using Kernel = void (*)(Value* stack, std::uint64_t inputs, std::uint64_t outputs);

// What is used of libtorch. Each name is that of the function without its prefix, `aoti_torch_` or `torch_`.
struct Functions {
    Status (*get_data_ptr)(Handle, void**);
    Status (*get_dim)(Handle, std::int64_t*);
    Status (*get_sizes)(Handle, std::int64_t**);
    Status (*get_strides)(Handle, std::int64_t**);
    Status (*get_dtype)(Handle, std::int32_t*);
    Status (*is_contiguous)(Handle, bool*);
    Status (*empty_strided)(std::int64_t dims, const std::int64_t* sizes, const std::int64_t* strides,
                            std::int32_t dtype, std::int32_t device_type, std::int32_t device_index, Handle*);
    Status (*create_tensor_from_blob)(void* data, std::int64_t dims, const std::int64_t* sizes,
                                      const std::int64_t* strides, std::int64_t offset, std::int32_t dtype,
                                      std::int32_t device_type, std::int32_t device_index, Handle*);
    Status (*cpu_addmm_out)(Handle out, Handle self, Handle a, Handle b, double beta, double alpha);
    Status (*delete_tensor_object)(Handle);
    std::int32_t (*device_type_cpu)();
    std::int32_t (*memory_format_contiguous_format)();
    std::int32_t (*dtype_float32)();
    std::int32_t (*dtype_float64)();
    std::int32_t (*dtype_float16)();
    std::int32_t (*dtype_bfloat16)();
    std::int32_t (*dtype_int64)();
    std::int32_t (*dtype_int32)();
    std::int32_t (*dtype_bool)();
    std::uint64_t (*abi_version)();
    Status (*library_init_impl)(const char* space, const char* key, const char* file, std::uint32_t line, Library*);
    Status (*library_impl)(Library, const char* name, Kernel, std::uint64_t version);
    Status (*call_dispatcher)(const char* name, const char* overload, Value* stack, std::uint64_t version);
    Status (*parallel_for)(std::int64_t begin, std::int64_t end, std::int64_t grain,
                           void (*)(std::int64_t begin, std::int64_t end, void*), void*);
};
inline Functions torch;

inline void must(Status status, const char* what) {
    if (status != 0) throw std::runtime_error(std::string("zerotail: torch could not ") + what);
}

// Torch numbers its types; the four that the core reads, and those of labels, indices and masks.
struct Types { std::int32_t of[4], int64, int32, boolean; };
inline Types types;

inline constexpr std::size_t most_dims = 64;
inline constexpr std::int64_t release_gil_above = 1 << 14;

class Tensor {
public:
    // Takes what the dispatcher gives: the kernel owns its arguments.
    static Tensor argument(Value value) {
        Tensor given(reinterpret_cast<Handle>(value));
        bool dense = false;
        must(torch.is_contiguous(given.handle, &dense), "ask for a layout");
        if (dense) return given;
        std::array<Value, 2> stack{value, static_cast<Value>(torch.memory_format_contiguous_format())};
        given.handle = nullptr;  // goes to the callee
        must(torch.call_dispatcher("aten::contiguous", "", stack.data(), torch.abi_version()), "copy a tensor");
        return Tensor(reinterpret_cast<Handle>(stack[0]));
    }
    // The same, at any strides.
    static Tensor as_it_lies(Value value) { return Tensor(reinterpret_cast<Handle>(value)); }
    // Memory of somebody else's as a tensor of two dimensions.
    static Tensor borrowed(void* data, std::int32_t dtype, const std::int64_t* sizes, const std::int64_t* strides) {
        Handle made = nullptr;
        must(torch.create_tensor_from_blob(data, 2, sizes, strides, 0, dtype, torch.device_type_cpu(), 0, &made),
             "view memory");
        return Tensor(made);
    }
    static Tensor strided(std::int32_t dtype, const std::int64_t* sizes, const std::int64_t* strides,
                          std::size_t dims) {
        Handle made = nullptr;
        must(torch.empty_strided(static_cast<std::int64_t>(dims), sizes, strides, dtype, torch.device_type_cpu(), 0,
                                 &made),
             "make a tensor");
        return Tensor(made);
    }
    static Tensor empty(std::int32_t dtype, const std::int64_t* sizes, std::size_t dims) {
        if (dims > most_dims) throw std::runtime_error("zerotail: a tensor must have at most 64 dimensions");
        std::array<std::int64_t, most_dims> strides;
        std::int64_t step = 1;
        for (std::size_t i = dims; i-- > 0; step *= sizes[i] > 1 ? sizes[i] : 1) strides[i] = step;
        return strided(dtype, sizes, strides.data(), dims);
    }
    Tensor like() const { return empty(dtype(), sizes(), dims()); }

    Tensor(Tensor&& other) noexcept : handle(other.handle) { other.handle = nullptr; }
    Tensor(const Tensor&) = delete;
    Tensor& operator=(const Tensor&) = delete;
    Tensor& operator=(Tensor&&) = delete;
    ~Tensor() {
        if (handle) torch.delete_tensor_object(handle);
    }

    Value give() {
        const Handle given = handle;
        handle = nullptr;
        return reinterpret_cast<Value>(given);
    }
    void* data() const {
        void* at = nullptr;
        must(torch.get_data_ptr(handle, &at), "find a tensor's numbers");
        return at;
    }
    std::size_t dims() const {
        std::int64_t n = 0;
        must(torch.get_dim(handle, &n), "count dimensions");
        return static_cast<std::size_t>(n);
    }
    const std::int64_t* strides() const {
        std::int64_t* at = nullptr;
        must(torch.get_strides(handle, &at), "find a tensor's strides");
        return at;
    }
    const std::int64_t* sizes() const {
        std::int64_t* at = nullptr;
        must(torch.get_sizes(handle, &at), "find a tensor's shape");
        return at;
    }
    std::int32_t dtype() const {
        std::int32_t code = 0;
        must(torch.get_dtype(handle, &code), "find a tensor's type");
        return code;
    }
    Type type() const {
        const std::int32_t code = dtype();
        for (int i = 0; i < 4; ++i)
            if (types.of[i] == code) return static_cast<Type>(i);
        throw std::runtime_error("zerotail: input must be float32, float64, float16 or bfloat16");
    }
    std::int32_t compute_dtype() const {
        return types.of[static_cast<int>(type() == Type::f64 ? Type::f64 : Type::f32)];
    }
    void must_be_like(const Tensor& other, const char* name) const {
        bool same = dtype() == other.dtype() && dims() == other.dims();
        for (std::size_t i = 0; same && i < dims(); ++i) same = sizes()[i] == other.sizes()[i];
        if (!same)
            throw std::runtime_error(std::string("zerotail: ") + name + " must have the shape and type of input");
    }

    // *this = alpha a b + beta *this.
    void product(const Tensor& a, const Tensor& b, double beta, double alpha) {
        must(torch.cpu_addmm_out(handle, handle, a.handle, b.handle, beta, alpha), "multiply matrices");
    }

private:
    explicit Tensor(Handle owned) : handle(owned) {}
    Handle handle;
};

// Torch's threads. Groups of rows stay whole where the core asks for groups.
inline Parallel threads() {
    return {[](void*, std::int64_t size, std::int64_t grain, Body body, void* context) {
                struct Work {
                    Body body;
                    void* context;
                    std::int64_t size, group;
                } work{body, context, size, grain % 16 == 0 ? 16 : 1};
                must(torch.parallel_for(
                         0, (size + work.group - 1) / work.group, grain / work.group,
                         [](std::int64_t begin, std::int64_t end, void* at) {
                             const Work& w = *static_cast<Work*>(at);
                             end *= w.group;
                             w.body(w.context, begin * w.group, end < w.size ? end : w.size);
                         },
                         &work),
                     "run in parallel");
            },
            nullptr};
}

}  // namespace zerotail
