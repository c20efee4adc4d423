// What the operators on supports share: blocks of scores that are made, used and forgotten, and lists that grow.
#pragma once

#include <cmath>
#include <limits>
#include <cstring>
#include <memory>
#include <type_traits>

#include "support.hpp"
#include "torch_abi.hpp"

namespace zerotail {

void op_attention(Value* stack, std::uint64_t, std::uint64_t);
void op_attention_backward(Value* stack, std::uint64_t, std::uint64_t);
void op_sum(Value* stack, std::uint64_t, std::uint64_t);
void op_sum_backward(Value* stack, std::uint64_t, std::uint64_t);
void op_linear_loss(Value* stack, std::uint64_t, std::uint64_t);
void op_linear_loss_backward(Value* stack, std::uint64_t, std::uint64_t);

inline double number(Value value) {
    double x;
    std::memcpy(&x, &value, sizeof x);
    return x;
}

inline Tensor vector_of(std::int32_t dtype, std::int64_t size) { return Tensor::empty(dtype, &size, 1); }
inline Tensor matrix_of(std::int32_t dtype, std::int64_t rows, std::int64_t cols) {
    const std::int64_t sizes[2] = {rows, cols};
    return Tensor::empty(dtype, sizes, 2);
}
template <class T> T* numbers(const Tensor& tensor) { return static_cast<T*>(tensor.data()); }

// body(begin, end) on ranges of [0, size), on torch's threads.
template <class F> void on_threads(std::int64_t size, std::int64_t grain, F&& body) {
    if (size <= 0) return;
    must(torch.parallel_for(
             0, size, grain, [](std::int64_t begin, std::int64_t end, void* at) { (*static_cast<F*>(at))(begin, end); },
             &body),
         "run in parallel");
}

// A matrix in somebody else's memory.
template <class T> struct Matrix {
    T* data;
    std::int64_t rows, cols, row_step, col_step = 1;

    Matrix t() const { return {data, cols, rows, col_step, row_step}; }
    Matrix from(std::int64_t row, std::int64_t count) const {
        return {data + row * row_step, count, cols, row_step, col_step};
    }
    Matrix columns(std::int64_t col, std::int64_t count) const {
        return {data + col * col_step, rows, count, row_step, col_step};
    }
    Tensor tensor() const {
        const std::int64_t sizes[2] = {rows, cols}, strides[2] = {row_step, col_step};
        using Plain = std::remove_const_t<T>;
        return Tensor::borrowed(const_cast<Plain*>(data), types.of[sizeof(T) == 8], sizes, strides);
    }
    Table table() const { return {data, row_step, cols}; }
    TableOut out() const { return {data, row_step}; }
};
template <class T> constexpr Type type_of = sizeof(T) == 8 ? Type::f64 : Type::f32;

// to = alpha a b + beta to. In the calling thread alone where it is one of torch's parallel region.
template <class T>
void product(const Matrix<T>& to, const Matrix<T>& a, const Matrix<T>& b, double beta = 0, double alpha = 1) {
    if (to.rows == 0 || to.cols == 0) return;
    to.tensor().product(a.tensor(), b.tensor(), beta, alpha);
}

// The entries of some rows, and where they will go.
template <class T> struct Part {
    std::unique_ptr<T[]> values;
    std::unique_ptr<std::int32_t[]> indices;
    std::int64_t used = 0;

    void copy(const T* from, const std::int32_t* index, std::int64_t n) {
        values.reset(new T[static_cast<std::size_t>(n)]);
        indices.reset(new std::int32_t[static_cast<std::size_t>(n)]);
        std::memcpy(values.get(), from, sizeof(T) * static_cast<std::size_t>(n));
        std::memcpy(indices.get(), index, sizeof(std::int32_t) * static_cast<std::size_t>(n));
        used = n;
    }
    void move_to(T* to, std::int32_t* index) {
        if (used) {
            std::memcpy(to, values.get(), sizeof(T) * static_cast<std::size_t>(used));
            std::memcpy(index, indices.get(), sizeof(std::int32_t) * static_cast<std::size_t>(used));
        }
        values.reset();
        indices.reset();
    }
};

template <class T> bool is_nan(T x) { return x != x; }

template <class T> bool finite(const Matrix<T>& x) {
    for (std::int64_t i = 0; i < x.rows; ++i) {
        T sum = 0;
        const T* row = x.data + i * x.row_step;
        for (std::int64_t j = 0; j < x.cols; ++j) sum += row[j] * T(0);
        if (is_nan(sum)) return false;
    }
    return true;
}

// offsets from sizes, which lie one place on: offsets[0] = 0.
inline std::int64_t add_up(std::int64_t* offsets, std::int64_t rows) {
    offsets[0] = 0;
    for (std::int64_t i = 0; i < rows; ++i) offsets[i + 1] += offsets[i];
    return offsets[rows];
}

}  // namespace zerotail
