// What results are judged by: the four types in plain arithmetic, and Algorithm 1 of the paper in long double.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "sparsemax.hpp"

inline constexpr double inf = std::numeric_limits<double>::infinity();
inline constexpr double nan_ = std::numeric_limits<double>::quiet_NaN();

// A number of 16 bits: a sign, an exponent whose least is `emin`, and `m` bits of mantissa.
template <int m, int emin> struct Small { std::uint16_t bits; };
using Half = Small<10, -14>;
using Bfloat = Small<7, -126>;

// The type S: numbers as double, `eps` of its compute type, and the most that rounding to S adds to what was computed.
template <class S> struct Format;

template <> struct Format<float> {
    using Compute = float;
    static constexpr zerotail::Type type = zerotail::Type::f32;
    static constexpr const char* name = "f32";
    static constexpr double eps = FLT_EPSILON, largest = FLT_MAX, smallest = 0x1p-149;
    static double read(float x) { return static_cast<double>(x); }
    static float write(double x) { return static_cast<float>(x); }
    static double rounding(double) { return 0; }
};

template <> struct Format<double> {
    using Compute = double;
    static constexpr zerotail::Type type = zerotail::Type::f64;
    static constexpr const char* name = "f64";
    static constexpr double eps = DBL_EPSILON, largest = DBL_MAX, smallest = 0x1p-1074;
    static double read(double x) { return x; }
    static double write(double x) { return x; }
    static double rounding(double) { return 0; }
};

template <int m, int emin> struct Format<Small<m, emin>> {
    using Compute = float;
    static constexpr zerotail::Type type = m == 10 ? zerotail::Type::f16 : zerotail::Type::bf16;
    static constexpr const char* name = m == 10 ? "f16" : "bf16";
    static constexpr double eps = FLT_EPSILON;
    static constexpr double largest = m == 10 ? 0x1.ffcp15 : 0x1.fep127;
    static constexpr double smallest = m == 10 ? 0x1p-24 : 0x1p-133;

    static double read(Small<m, emin> x) {
        const int exponent = (x.bits & 0x7fff) >> m, fraction = x.bits & ((1 << m) - 1);
        double value = 0;
        if (exponent == 0x7fff >> m) value = fraction ? nan_ : inf;
        else value = std::ldexp(exponent ? fraction + (1 << m) : fraction, std::max(exponent, 1) - 1 + emin - m);
        return x.bits & 0x8000 ? -value : value;
    }
    static Small<m, emin> write(double x) {
        constexpr int infinite = 0x7fff >> m << m;
        int bits = infinite;
        if (std::isnan(x)) bits = infinite + 1;
        else if (x == 0) bits = 0;
        else if (std::fabs(x) <= 2 * largest) {
            const int exponent = std::max(std::ilogb(x), emin);
            const double mantissa = std::nearbyint(std::ldexp(std::fabs(x), m - exponent));
            bits = std::min(((exponent - emin) << m) + static_cast<int>(mantissa), infinite);
        }
        return {static_cast<std::uint16_t>(bits | (std::signbit(x) ? 0x8000 : 0))};
    }
    static double rounding(double x) {
        if (!std::isfinite(x)) return 0;
        return std::ldexp(0.5, (x == 0 ? emin : std::max(std::ilogb(x), emin)) - m);
    }
};

template <class S> using Compute = typename Format<S>::Compute;

// A sum of which nothing is lost: what an addition rounds off is added up as well.
struct Sum {
    long double sum = 0, rest = 0;

    void add(long double x) {
        const long double next = sum + x, part = next - sum;
        rest += (sum - (next - part)) + (x - part);
        sum = next;
    }
    long double value() const { return std::isfinite(sum) ? sum + rest : sum; }
};

// The projection of one row; `tau` is the threshold less the largest score. Not `solved`: every p is NaN.
struct Exact {
    bool solved = false;
    double top = -inf;
    long double tau = 0;
    std::vector<long double> p;

    Exact() = default;
    explicit Exact(const std::vector<double>& z) : p(z.size(), static_cast<long double>(nan_)) {
        bool bad = false;
        for (double x : z) {
            bad = bad || std::isnan(x) || x == inf;
            top = std::max(top, x);
        }
        solved = !bad && top > -inf;
        if (!solved) return;
        std::vector<long double> near;
        for (double x : z)
            if (below_top(x) > -1) near.push_back(below_top(x));
        std::sort(near.begin(), near.end(), std::greater<>());
        Sum sum;
        long double size = 0;
        for (long double x : near) {
            Sum more = sum;
            more.add(x);
            if (!(1 + (size + 1) * x > more.value())) break;
            sum = more;
            size += 1;
        }
        sum.add(-1);
        tau = sum.value() / size;
        for (std::size_t j = 0; j < z.size(); ++j) p[j] = std::max(0.0L, below_top(z[j]) - tau);
    }

    long double below_top(double x) const { return static_cast<long double>(x) - static_cast<long double>(top); }
};

// The loss of Eq. 26, summed as it is defined: 0 where there is nothing to sum.
inline long double loss(const std::vector<double>& z, const Exact& exact, const std::vector<double>& q) {
    if (!exact.solved && !z.empty()) return static_cast<long double>(nan_);
    Sum sum;
    for (std::size_t j = 0; j < z.size(); ++j) {
        const long double target = static_cast<long double>(q[j]), off = exact.p[j] - target;
        sum.add(off * off / 2);
        if (exact.p[j] == 0 && q[j] != 0) sum.add(target * (exact.tau - exact.below_top(z[j])));
    }
    return sum.value();
}

// J(z) v (Eq. 14), as a function of the probabilities.
inline std::vector<long double> jvp(const std::vector<double>& p, const std::vector<double>& v) {
    Sum sum;
    long double size = 0;
    for (std::size_t j = 0; j < p.size(); ++j)
        if (p[j] > 0) {
            sum.add(static_cast<long double>(v[j]));
            size += 1;
        }
    const long double mean = sum.value() / std::max(1.0L, size);
    std::vector<long double> out(p.size());
    for (std::size_t j = 0; j < p.size(); ++j)
        out[j] = p[j] > 0 ? static_cast<long double>(v[j]) - mean : static_cast<long double>(p[j] * 0);
    return out;
}

// How far `value` is from `exact`, as a part of what is allowed: at most 1 is right. NaN is right for NaN alone, and an
// infinity for the same one.
inline double off(double value, long double exact, double allowed) {
    if (std::isnan(exact)) return std::isnan(value) ? 0 : inf;
    if (static_cast<long double>(value) == exact) return 0;
    const double ratio = static_cast<double>(std::fabs(static_cast<long double>(value) - exact)) / allowed;
    return std::isnan(ratio) ? inf : ratio;
}

// A number of S that was computed within 4 eps (times `scale`) and rounded once.
template <class S> double off_entry(double value, long double exact, double scale = 1) {
    const double magnitude = std::max(std::fabs(value), static_cast<double>(std::fabs(exact)));
    return off(value, exact, 4 * Format<S>::eps * scale + Format<S>::rounding(magnitude));
}

// A loss: within 4 eps max(1, L). What is at the end of the range of its type may be infinite.
template <class S> double off_loss(double value, long double exact) {
    constexpr double largest = sizeof(Compute<S>) == 4 ? Format<float>::largest : DBL_MAX;
    const double part = 4 * Format<S>::eps;
    if (value == inf && exact > static_cast<long double>(largest * (1 - part))) return 0;
    return off(value, exact, part * std::max(1.0, static_cast<double>(std::fabs(exact))));
}
