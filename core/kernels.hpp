// What every CPU target offers: one function a job, for each type. A table of them is chosen once, in dispatch.cpp.
//
// Each works on a range of rows, in the calling thread. Rows are numbered outer-major: row r is the `inner` position
// r % inner of the outer block r / inner.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sparsemax.hpp"
#include "support.hpp"

namespace zerotail {

struct Rows {
    Shape shape;
    std::int64_t begin, end;
};

struct Kernels {
    const char* name;
    void (*sparsemax[4])(const void* z, void* p, Rows rows);
    void (*threshold[4])(const void* z, void* hi, void* lo, std::int64_t* size, Rows rows);
    void (*compact[4])(const void* z, const void* hi, const void* lo, const std::int64_t* offsets, void* values,
                       std::int32_t* indices, Rows rows);
    void (*jvp[4])(const void* p, const void* v, void* out, Rows rows);
    void (*loss[4])(const void* z, LossTarget target, LossRows out, Rows rows);
    void (*loss_gradient[4])(const void* z, LossTarget target, const void* hi, const void* lo, const void* v,
                             void* grad, Rows rows);
    void (*csr_scores[2])(const Csr& x, const void* weights, const void* bias, void* out, Rows rows);
    void (*csr_gradient[2])(const Csr& x, const void* g, double* gradient, std::int64_t rows, std::int64_t cols,
                            bool whole, std::int64_t first, std::int64_t past);
    // For float and double.
    std::int64_t (*support[2])(const void* z, const SupportOut& out, std::int64_t rows, std::int64_t cols);
    void (*above[2])(const void* z, const void* hi, const void* lo, void* p, std::int64_t rows, std::int64_t cols);
    void (*exclude[2])(void* z, const bool* takes_part, std::int64_t cols);
    void (*add[2])(void* z, const void* x, std::int64_t cols);
    void (*combine[2])(const Lists& lists, const void* weights, Table table, TableOut out, std::int64_t begin,
                       std::int64_t end, bool add);
    void (*slopes[2])(const Lists& lists, Table table, Table x, void* out, double scale, std::int64_t begin,
                      std::int64_t end);
};

namespace baseline { extern const Kernels kernels; }
namespace avx2 { extern const Kernels kernels; }
namespace avx512 { extern const Kernels kernels; }

// Memory for the length of one kernel, aligned for any vector. One at a time in a thread.
struct Scratch {
    void* data;

    explicit Scratch(std::size_t bytes);
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
};

}  // namespace zerotail
