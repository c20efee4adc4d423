// The whole C++ API of zerotail's core: rows of numbers, no framework.
//
// Every array is dense in C order. A problem is `outer` x `cols` x `inner` numbers and a row runs along the middle
// axis: inner == 1 is the last axis, anything else is another axis of the same array, read where it lies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "parallel.hpp"

namespace zerotail {

// What the arrays hold. Half types are read as float, and rounded once, at the end.
enum class Type : int { f32 = 0, f64 = 1, f16 = 2, bf16 = 3 };

struct Shape {
    std::int64_t outer, cols, inner;
    std::int64_t rows() const { return outer * inner; }
};

// What a loss compares with: one label a row, or a distribution of the type and shape of the scores.
struct LossTarget {
    const void* values;
    bool labels;
    std::int64_t ignore;
};

// Marks LossTarget::ignore as unused.
inline constexpr std::int64_t no_label = INT64_MIN;

inline LossTarget labels(const std::int64_t* values, std::int64_t ignore = no_label) { return {values, true, ignore}; }
inline LossTarget distribution(const void* values) { return {values, false, no_label}; }

// p = sparsemax(z) (Eq. 2). p may be z itself.
void sparsemax(Type type, const void* z, void* p, Shape shape, const Parallel& parallel);

// tau(z) (Eq. 4) of each row as hi + lo, in the compute type (float for half types), and |S(z)|. Each output may be
// null. A row without a threshold (NaN, +inf, nothing finite, no columns) has hi = NaN, lo = 0 and size 0.
void threshold(Type type, const void* z, void* hi, void* lo, std::int64_t* size, Shape shape, const Parallel& parallel);

// The support of each row of contiguous rows, in order of columns: `values` (of `type`) and `indices`, from
// offsets[row] on. hi, lo and offsets come from threshold().
void compact(Type type, const void* z, const void* hi, const void* lo, const std::int64_t* offsets, void* values,
             std::int32_t* indices, std::int64_t rows, std::int64_t cols, const Parallel& parallel);

// J(z) v from p = sparsemax(z) (Eq. 14). out may be p or v.
void jvp(Type type, const void* p, const void* v, void* out, Shape shape, const Parallel& parallel);

// The loss of Eqs. 20 and 26, one value a row, and what else is not null: its gradient p - q (Eqs. 19 and 27), and tau as
// hi + lo. `grad` is of `type` and may be z or q, the others are of the compute type. A label outside of [0, cols) gives
// a NaN row. A row that does not count, of the label `ignore` or a target of zeros, has loss and gradient 0 and hi = inf.
struct LossRows { void *loss, *grad, *hi, *lo; };
void loss(Type type, const void* z, LossTarget target, LossRows out, Shape shape, const Parallel& parallel);

// v (p - q), the gradient of losses times v, one number of the compute type a row; hi and lo come from loss(). `grad`
// may be z or q.
void loss_gradient(Type type, const void* z, LossTarget target, const void* hi, const void* lo, const void* v,
                   void* grad, Shape shape, const Parallel& parallel);

// Rows of sparse features: values of `type` (f32 or f64), column indices and row offsets, both int32 or, where `wide`,
// int64. position[j] is the row of the weights that belongs to feature j.
struct Csr {
    const void *values, *indices, *offsets;
    bool wide;
    const std::int64_t* position;
};

// scores[i] = bias + sum over j of x_ij weights[position[j]]: `rows` of `cols` numbers.
void csr_scores(Type type, const Csr& x, const void* weights, const void* bias, void* scores, std::int64_t rows,
                std::int64_t cols, const Parallel& parallel);

// gradient[position[j]] += sum over i of x_ij g_i. The features are shared out at bounds[0] <= ... <= bounds[parts], and
// each thread takes some parts; with more than one part the indices of a row must ascend.
void csr_gradient(Type type, const Csr& x, const void* g, double* gradient, std::int64_t rows, std::int64_t cols,
                  const std::int64_t* bounds, std::int64_t parts, const Parallel& parallel);

// The CPU targets that this machine can run, best first; null at the end.
const char* const* targets();
const char* target();
// False where this machine has no such target. For tests; not to be called while a kernel runs.
bool use_target(const char* name);

}  // namespace zerotail
