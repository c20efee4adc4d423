// What the core is given: memory of exactly the size asked for, and rows of every kind.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <random>
#include <vector>

#include "exact.hpp"

// `size` numbers, poisoned. The allocation ends with the last of them, and starts `shift` numbers before the first: a
// sanitizer sees whatever is read or written outside, and the start is aligned to no vector.
template <class T> class Array {
public:
    explicit Array(std::int64_t size, int shift = 0)
        : front(static_cast<std::size_t>(shift)), count(static_cast<std::size_t>(size)) {
        memory = static_cast<T*>(std::malloc((front + count) * sizeof(T)));
        if (!memory && front + count) throw std::bad_alloc();
        if (memory) std::memset(static_cast<void*>(memory), poison, (front + count) * sizeof(T));
    }
    Array(const Array& other) : Array(static_cast<std::int64_t>(other.count), static_cast<int>(other.front)) {
        if (count) std::memcpy(static_cast<void*>(data()), other.data(), count * sizeof(T));
    }
    Array(Array&& other) noexcept : memory(other.memory), front(other.front), count(other.count) {
        other.memory = nullptr;
    }
    Array& operator=(const Array&) = delete;
    ~Array() { std::free(memory); }

    T* data() { return memory ? memory + front : nullptr; }
    const T* data() const { return memory ? memory + front : nullptr; }
    std::int64_t size() const { return static_cast<std::int64_t>(count); }
    T& operator[](std::int64_t i) { return data()[i]; }
    const T& operator[](std::int64_t i) const { return data()[i]; }

    // To the bit.
    bool operator==(const Array& other) const {
        return count == other.count && (count == 0 || std::memcmp(data(), other.data(), count * sizeof(T)) == 0);
    }
    // Nothing was written into the first n numbers, nor before them.
    bool untouched(std::int64_t n = 0) const {
        const auto* bytes = reinterpret_cast<const unsigned char*>(memory);
        const std::size_t end = (front + static_cast<std::size_t>(n)) * sizeof(T);
        return !memory || std::all_of(bytes, bytes + end, [](unsigned char byte) { return byte == poison; });
    }

private:
    // A large negative number in every type: no result is one.
    static constexpr unsigned char poison = 0xdb;
    T* memory;
    std::size_t front, count;
};

class Random {
public:
    explicit Random(std::uint64_t seed) : engine(seed) {}
    double normal() { return gauss(engine); }
    double uniform() { return static_cast<double>(engine() >> 11) * 0x1p-53; }
    // One of 0 .. n - 1, for positive n.
    std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(n)); }

private:
    std::mt19937_64 engine;
    std::normal_distribution<double> gauss;
};

// What a kind of row knows of its type.
struct Range { double largest, smallest, eps; };

using Numbers = std::vector<double>;

struct Kind {
    const char* name;
    void (*fill)(Numbers& z, Random& random, const Range& range);
};

inline void fill_normal(Numbers& z, Random& random, double scale, double shift = 0) {
    for (double& x : z) x = shift + scale * random.normal();
}
inline void put(Numbers& z, Random& random, double x) {
    if (!z.empty()) z[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(z.size())))] = x;
}
inline void put_late(Numbers& z, double x) {
    if (!z.empty()) z[z.size() * 7 / 8] = x;
}

inline constexpr Kind kinds[] = {
    {"normal, sd 0.001", [](Numbers& z, Random& r, const Range&) { fill_normal(z, r, 1e-3); }},
    {"normal, sd 0.1", [](Numbers& z, Random& r, const Range&) { fill_normal(z, r, 0.1); }},
    {"normal, sd 1", [](Numbers& z, Random& r, const Range&) { fill_normal(z, r, 1); }},
    {"normal, sd 5", [](Numbers& z, Random& r, const Range&) { fill_normal(z, r, 5); }},
    {"constant", [](Numbers& z, Random&, const Range&) { std::fill(z.begin(), z.end(), 0.7); }},
    {"-3, late a 0",
     [](Numbers& z, Random&, const Range&) {
         std::fill(z.begin(), z.end(), -3);
         put_late(z, 0);
     }},
    {"about -0.9, late a 0",
     [](Numbers& z, Random& r, const Range&) {
         fill_normal(z, r, 1e-4, -0.9);
         put_late(z, 0);
     }},
    {"at most eps from tau",
     [](Numbers& z, Random& r, const Range& range) {
         for (double& x : z) x = -1 + range.eps * static_cast<double>(r.below(3) - 1);
         put_late(z, 0);
     }},
    {"rising",
     [](Numbers& z, Random& r, const Range&) {
         fill_normal(z, r, 1);
         std::sort(z.begin(), z.end());
     }},
    {"falling",
     [](Numbers& z, Random& r, const Range&) {
         fill_normal(z, r, 1);
         std::sort(z.begin(), z.end(), std::greater<>());
     }},
    {"steps",
     [](Numbers& z, Random&, const Range&) {
         for (std::size_t j = 0; j < z.size(); ++j) z[j] = 0.01 * static_cast<double>(j / 64 + j % 3);
     }},
    {"-inf, then normal",
     [](Numbers& z, Random& r, const Range&) {
         fill_normal(z, r, 0.3);
         for (std::size_t j = 0; j < z.size() / 2; ++j) z[j] = -inf;
     }},
    {"normal, then -inf",
     [](Numbers& z, Random& r, const Range&) {
         fill_normal(z, r, 1);
         for (std::size_t j = (z.size() + 1) / 2; j < z.size(); ++j) z[j] = -inf;
     }},
    {"every other -inf",
     [](Numbers& z, Random& r, const Range&) {
         fill_normal(z, r, 0.1);
         for (std::size_t j = 1; j < z.size(); j += 2) z[j] = -inf;
     }},
    {"-inf but for one",
     [](Numbers& z, Random& r, const Range&) {
         std::fill(z.begin(), z.end(), -inf);
         put(z, r, 2);
     }},
    {"-inf", [](Numbers& z, Random&, const Range&) { std::fill(z.begin(), z.end(), -inf); }},
    {"a NaN",
     [](Numbers& z, Random& r, const Range&) {
         fill_normal(z, r, 1);
         put(z, r, nan_);
     }},
    {"-inf and a NaN at the end",
     [](Numbers& z, Random&, const Range&) {
         std::fill(z.begin(), z.end(), -inf);
         if (!z.empty()) z.back() = nan_;
     }},
    {"a +inf",
     [](Numbers& z, Random& r, const Range&) {
         fill_normal(z, r, 1);
         put(z, r, inf);
     }},
    {"ends of the range",
     [](Numbers& z, Random& r, const Range& range) {
         for (double& x : z) x = range.largest * (r.uniform() < 0.5 ? -1 : 1 - 0.5 * r.uniform());
         put(z, r, range.largest);
     }},
    {"equal and large",
     [](Numbers& z, Random&, const Range& range) { std::fill(z.begin(), z.end(), -0.9 * range.largest); }},
    {"smallest numbers and zeros",
     [](Numbers& z, Random& r, const Range& range) {
         for (double& x : z) x = range.smallest * static_cast<double>(r.below(5) - 2);
     }},
    {"normal, far from 0",
     [](Numbers& z, Random& r, const Range& range) { fill_normal(z, r, 1, range.largest > 1e6 ? 1e6 : 2e4); }},
};
inline constexpr std::int64_t kind_count = sizeof kinds / sizeof *kinds;

struct Row {
    const Kind* kind;
    Numbers z, q, v;
    Exact exact;
};

// Rows of all kinds in turn, with a target, a tangent and a label for each, and their projections.
template <class S> struct Problem {
    zerotail::Shape shape;
    int shift;
    std::vector<Row> rows;
    Array<S> z, q, v;
    Array<std::int64_t> labels;

    Problem(zerotail::Shape shape_, int shift_, std::uint64_t seed)
        : shape(shape_),
          shift(shift_),
          rows(static_cast<std::size_t>(shape.rows())),
          z(numbers(), shift),
          q(numbers(), shift),
          v(numbers(), shift),
          labels(shape.rows(), shift) {
        Random random(seed);
        for (std::int64_t r = 0; r < shape.rows(); ++r)
            fill(r, (r + static_cast<std::int64_t>(seed)) % kind_count, random);
    }

    std::int64_t numbers() const { return shape.rows() * shape.cols; }
    const Row& row(std::int64_t r) const { return rows[static_cast<std::size_t>(r)]; }
    // Where number j of row r lies.
    std::int64_t at(std::int64_t r, std::int64_t j) const {
        return (r / shape.inner * shape.cols + j) * shape.inner + r % shape.inner;
    }
    double read(const Array<S>& from, std::int64_t r, std::int64_t j) const { return Format<S>::read(from[at(r, j)]); }
    Numbers read(const Array<S>& from, std::int64_t r) const {
        Numbers out(static_cast<std::size_t>(shape.cols));
        for (std::size_t j = 0; j < out.size(); ++j) out[j] = read(from, r, static_cast<std::int64_t>(j));
        return out;
    }

private:
    Numbers& write(Array<S>& to, std::int64_t r, Numbers& x) {
        for (std::size_t j = 0; j < x.size(); ++j) {
            S& place = to[at(r, static_cast<std::int64_t>(j))];
            place = Format<S>::write(x[j]);
            x[j] = Format<S>::read(place);
        }
        return x;
    }

    void fill(std::int64_t r, std::int64_t kind, Random& random) {
        using F = Format<S>;
        const auto n = static_cast<std::size_t>(shape.cols);
        Row& row = rows[static_cast<std::size_t>(r)];
        row.kind = kinds + kind;
        row.z.resize(n);
        row.kind->fill(row.z, random, {F::largest, F::smallest, F::eps});
        row.exact = Exact(write(z, r, row.z));

        // Targets: all columns, one, or the projection itself; in most rows none where the score is -inf.
        row.q.assign(n, 0);
        const std::int64_t sort = random.below(3);
        if (sort == 1) put(row.q, random, 1);
        for (std::size_t j = 0; j < n; ++j) {
            if (sort == 0) row.q[j] = 2 * random.uniform() / static_cast<double>(n);
            if (sort == 2 && row.exact.solved) row.q[j] = static_cast<double>(row.exact.p[j]);
            if (row.z[j] == -inf && r % 4) row.q[j] = 0;
        }
        write(q, r, row.q);

        // Tangents: what is off the support beyond doubt may be anything.
        row.v.resize(n);
        for (std::size_t j = 0; j < n; ++j) {
            const bool out = row.exact.solved && row.exact.below_top(row.z[j]) < row.exact.tau - 0.01L;
            const double odd[] = {nan_, inf, -inf, random.normal()};
            row.v[j] = out && r % 2 ? odd[random.below(4)] : 3 * random.normal();
        }
        write(v, r, row.v);

        const std::int64_t cols = shape.cols;
        const auto best = std::max_element(row.z.begin(), row.z.end()) - row.z.begin();
        const std::int64_t choices[] = {best, cols - 1, 0, -100, -1, cols, zerotail::no_label, INT64_MAX};
        const std::int64_t choice = random.below(12);
        labels[r] = choice < 8 ? choices[choice] : cols ? random.below(cols) : 0;
    }
};
