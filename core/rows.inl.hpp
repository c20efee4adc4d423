// The row kernels, written once over vec.hpp and compiled for each CPU target.
//
// tau(z) (Eq. 4) is the root of f(t) = sum_j [z_j - t]_+ - 1, convex and decreasing. Newton's method from a lower bound
// only grows, the set {z_j > t} only shrinks, and a step that drops nothing has found the root. What makes it cheap is a
// good lower bound: max z - 1 is one, and so is the exact tau of any part of the row.
//
// tau is kept as hi + lo, and sums are taken in double (float) or compensated (double): the support's n entries share
// the error of tau, so one rounding of tau would move the sum of a row by n of them. `minus_lo` is stored because
// (z - hi) + minus_lo is then never -0.

template <class T> constexpr T epsilon = sizeof(T) == 4 ? T(0x1p-23) : T(0x1p-52);
template <class T> constexpr T infinity = T(__builtin_huge_val());

// Rows of at most this many columns are taken W at a time; longer ones, one at a time, in chunks.
template <class T> constexpr std::int64_t block_cols = 4096 / sizeof(T);
template <class T> constexpr std::int64_t chunk_cols = 16384 / sizeof(T);
// Rows with more candidates than this are solved across their candidates, others in the lanes of W rows.
constexpr int lane_candidates = 64;

// Sums of lanes: float in two vectors of double, double with the compensation of every addition.
template <class T> struct Sum;

template <> struct Sum<float> {
    D a = splat(0.0), b = splat(0.0);

    void add(F x) {
        a = a + low(x);
        b = b + high(x);
    }
    double total() const {
        double lanes[Lanes<double>::W];
        store(lanes, a + b);
        double sum = 0;
        for (double x : lanes) sum += x;
        return sum;
    }
    void each(double* out) const {
        store(out, a);
        store(out + Lanes<double>::W, b);
    }
};

template <> struct Sum<double> {
    D a = splat(0.0), b = splat(0.0);

    void add(D x) {
        const D sum = a + x, rest = sum - a;
        b = b + ((a - (sum - rest)) + (x - rest));
        a = sum;
    }
    // The sum less `shift`, rounded once.
    double total(double shift = 0) const {
        double lanes[Lanes<double>::W], sum = -shift, rest = 0;
        store(lanes, a);
        for (double x : lanes) {
            const double next = sum + x, part = next - sum;
            rest += (sum - (next - part)) + (x - part);
            sum = next;
        }
        store(lanes, b);
        for (double x : lanes) rest += x;
        return rest == rest ? sum + rest : sum;    // an infinite sum has no rest
    }
    void each(double* out) const { store(out, select(unordered(b, b), a, a + b)); }
};

inline double excess(const Sum<float>& sum) { return sum.total() - 1; }
inline double excess(const Sum<double>& sum) { return sum.total(1); }

// tau = hi - minus_lo; NaN and 0 for a row without one.
template <class T> struct Tau {
    T hi, minus_lo;
};

template <class T> constexpr Tau<T> no_tau{T(__builtin_nan("")), T(0)};

// tau + step, for a double `step` (float) or one in working precision (double).
inline Tau<float> moved(Tau<float> tau, double step) {
    const double lo = step - static_cast<double>(tau.minus_lo), hi = static_cast<double>(tau.hi);
    const float top = static_cast<float>(hi + lo);
    return {top, static_cast<float>(0.0 - ((hi - static_cast<double>(top)) + lo))};
}
inline Tau<double> moved(Tau<double> tau, double step) {
    const double lo = step - tau.minus_lo, top = tau.hi + lo, part = top - tau.hi;
    return {top, 0.0 - ((tau.hi - (top - part)) + (lo - part))};
}

// The same in lanes.
template <class T> struct TauLanes {
    Vec<T> hi, minus_lo;

    Vec<T> above(Vec<T> z) const { return (z - hi) + minus_lo; }
};

inline TauLanes<float> moved(const TauLanes<float>& tau, const Sum<float>& sum, F size) {
    const D one = splat(1.0);
    const D lo_a = (sum.a - one) / low(size) - low(tau.minus_lo), lo_b = (sum.b - one) / high(size) - high(tau.minus_lo);
    const D hi_a = low(tau.hi), hi_b = high(tau.hi);
    const F top = join(hi_a + lo_a, hi_b + lo_b);
    const D zero = splat(0.0);
    return {top, join(zero - ((hi_a - low(top)) + lo_a), zero - ((hi_b - high(top)) + lo_b))};
}
inline TauLanes<double> moved(const TauLanes<double>& tau, const Sum<double>& sum, D size) {
    const D lo = ((sum.a - splat(1.0)) + sum.b) / size - tau.minus_lo;
    const D top = tau.hi + lo, part = top - tau.hi;
    return {top, splat(0.0) - ((tau.hi - (top - part)) + (lo - part))};
}

// A lower bound of tau: max + below, -1 <= below <= 0. `below` has room for the rounding of the few numbers it is from.
template <class T> struct BoundLanes {
    Vec<T> max, below;

    // What is not above this is not in the support.
    Vec<T> filter() const {
        const Vec<T> t = max + below;
        return t - abs(t) * splat(epsilon<T>);
    }
};

// The bound of W rows from `count` numbers of each: a few steps of Newton's method in working precision.
template <class T> BoundLanes<T> bound(const Vec<T>* z, int count) {
    Vec<T> m = z[0];
    for (int j = 1; j < count; ++j) m = max(m, z[j]);
    const Vec<T> one = splat(T(1));
    Vec<T> t = splat(T(-1));
    for (int step = 0; step < 3; ++step) {
        Vec<T> sum = splat(T(0)), size = splat(T(0));
        for (int j = 0; j < count; ++j) {
            const Vec<T> d = z[j] - m;
            const Mask<T> k = gt(d, t);
            sum = add_if(k, sum, d);
            size = add_if(k, size, one);
        }
        t = max((sum - one) / size, t);
    }
    return {m, t - splat(T(4 * Lanes<T>::W) * epsilon<T>)};
}

// tau of W rows, whose candidates are the lanes of z[0..count), -inf where a row has fewer.
template <class T> TauLanes<T> solve_lanes(const Vec<T>* z, int count, const BoundLanes<T>& from) {
    const Vec<T> one = splat(T(1)), zero = splat(T(0)), inf = splat(infinity<T>);
    TauLanes<T> tau;
    tau.hi = from.max + from.below;
    tau.minus_lo = zero - ((from.max - tau.hi) + from.below);
    Vec<T> left = inf;
    Mask<T> moving = gt(inf, zero);
    while (any(moving)) {
        Sum<T> sum;
        Vec<T> size = zero;
        for (int j = 0; j < count; ++j) {
            const Vec<T> above = tau.above(z[j]);
            const Mask<T> k = gt(above, zero);
            sum.add(only(k, above));
            size = add_if(k, size, one);
        }
        const TauLanes<T> next = moved(tau, sum, size);
        tau.hi = select(moving, next.hi, tau.hi);
        tau.minus_lo = select(moving, next.minus_lo, tau.minus_lo);
        moving = both(moving, gt(left, size));
        left = size;
    }
    const Mask<T> finite = both(gt(inf, from.max), gt(from.max, zero - inf));
    Mask<T> nan = gt(zero, zero);
    for (int j = 0; j < count; ++j) nan = either(nan, unordered(z[j], z[j]));
    tau.hi = select(nan, splat(no_tau<T>.hi), select(finite, tau.hi, splat(no_tau<T>.hi)));
    tau.minus_lo = only(finite, select(nan, zero, tau.minus_lo));
    return tau;
}

// What is known of W rows once they are solved. The lanes of absent rows repeat the first.
template <class T> struct Solved {
    static constexpr int W = Lanes<T>::W;
    T hi[W], minus_lo[W];

    void set(int i, Tau<T> tau) {
        hi[i] = tau.hi;
        minus_lo[i] = tau.minus_lo;
    }
    void set(const TauLanes<T>& tau) {
        store(hi, tau.hi);
        store(minus_lo, tau.minus_lo);
    }
    TauLanes<T> one(int i) const { return {splat(hi[i]), splat(minus_lo[i])}; }
    TauLanes<T> all() const { return {load(hi), load(minus_lo)}; }
};

// tau of a row from n candidates, a lower bound of it, and room for a vector behind them. Keeps only what is above, in
// order, and takes `index` along where it is not null. Two steps that keep the same set end it: the last of them sums
// numbers that add up to nearly 1.
template <class T> Tau<T> solve_row(T* z, std::int32_t* index, std::int64_t& n, Tau<T> tau) {
    constexpr int W = Lanes<T>::W;
    constexpr unsigned all = (1u << W) - 1;
    for (std::int64_t before = 0;;) {
        store(z + n, splat(-infinity<T>));
        const TauLanes<T> at{splat(tau.hi), splat(tau.minus_lo)};
        Sum<T> sum;
        std::int64_t kept = 0;
        for (std::int64_t i = 0; i < n; i += W) {
            const Vec<T> v = load(z + i), above = at.above(v);
            const Mask<T> k = gt(above, splat(T(0)));
            sum.add(only(k, above));
            if (kept == i && bits(k) == all) {
                kept += W;
                continue;
            }
            if (index) compress_index(index + kept, k, index + i);
            kept += compress(z + kept, k, v);
        }
        if (kept == 0) return tau;
        tau = moved(tau, excess(sum) / static_cast<double>(kept));
        n = kept;
        if (kept == before) return tau;
        before = kept;
    }
}

// Solves W rows of at most block_cols columns at a time.
template <class S> struct BlockSolver {
    using T = Compute<S>;
    static constexpr int W = Lanes<T>::W;
    static std::size_t space(std::int64_t cols) { return sizeof(T) * W * static_cast<std::size_t>(cols + 2 * W); }

    T* candidates;    // of W rows, `stride` apart
    std::int64_t cols, stride;

    BlockSolver(void* space, std::int64_t columns)
        : candidates(static_cast<T*>(space)), cols(columns), stride(columns + 2 * W) {}

    void solve(const S* const* rows, Solved<T>& out) {
        Vec<T> z[lane_candidates];
        if (cols <= W) {
            const int n = static_cast<int>(cols);
            for (int i = 0; i < W; ++i) z[i] = n == W ? load(rows[i]) : load_n(rows[i], n, -infinity<T>);
            transpose<T>(z);
            out.set(solve_lanes<T>(z, n, bound<T>(z, n)));
            return;
        }
        // The largest of every W-th number of a row: W numbers, whose exact tau is a lower bound of the row's.
        for (int i = 0; i < W; ++i) z[i] = largest(rows[i]);
        transpose<T>(z);
        const BoundLanes<T> from = bound<T>(z, W);
        T filter[W];
        store(filter, from.filter());
        std::int64_t sizes[W];
        std::int64_t deepest = 0;
        for (int i = 0; i < W; ++i) {
            sizes[i] = collect(rows[i], candidates + i * stride, filter[i]);
            if (sizes[i] <= lane_candidates && sizes[i] > deepest) deepest = sizes[i];
        }
        for (int i = 0; i < W; ++i)
            for (std::int64_t j = sizes[i]; j < deepest; j += W) store(candidates + i * stride + j, splat(-infinity<T>));
        for (std::int64_t j = 0; j < deepest; j += W) {
            for (int i = 0; i < W; ++i) z[j + i] = load(candidates + i * stride + j);
            transpose<T>(z + j);
        }
        out.set(solve_lanes<T>(z, static_cast<int>(deepest), from));
        T top[W], below[W];
        store(top, from.max);
        store(below, from.below);
        for (int i = 0; i < W; ++i)
            if (sizes[i] > lane_candidates) out.set(i, solve_many(candidates + i * stride, sizes[i], top[i], below[i]));
    }

private:
    Vec<T> largest(const S* row) const {
        Vec<T> m = load(row);
        std::int64_t j = W;
        for (; j + W <= cols; j += W) m = max(load(row + j), m);
        return j < cols ? max(load_n(row + j, static_cast<int>(cols - j), -infinity<T>), m) : m;
    }

    // Also takes what is NaN: a row that holds one is told by its candidates.
    std::int64_t collect(const S* row, T* to, T filter) const {
        const Vec<T> t = splat(filter);
        std::int64_t n = 0, j = 0;
        for (; j + W <= cols; j += W) {
            const Vec<T> v = load(row + j);
            n += compress(to + n, not_le(v, t), v);
        }
        if (j < cols) {
            const Vec<T> v = load_n(row + j, static_cast<int>(cols - j), -infinity<T>);
            n += compress(to + n, not_le(v, t), v);
        }
        return n;
    }

    static Tau<T> solve_many(T* z, std::int64_t n, T top, T below) {
        if (!(top > -infinity<T> && top < infinity<T>)) return no_tau<T>;
        for (std::int64_t j = 0; j < n; ++j)
            if (z[j] != z[j]) return no_tau<T>;
        const T hi = top + below;
        return solve_row<T>(z, nullptr, n, {hi, 0 - ((top - hi) + below)});
    }
};

template <class T> T largest_lane(Vec<T> v) {
    T lanes[Lanes<T>::W], top = -infinity<T>;
    store(lanes, v);
    for (T x : lanes) top = x > top ? x : top;
    return top;
}

// One long row, read once, in chunks. What exceeds the lower bound so far is kept with its index, and the bound rises with
// what is kept: the candidates are few unless the row's support is large.
template <class S> struct LongSolver {
    using T = Compute<S>;
    static constexpr int W = Lanes<T>::W;
    static std::size_t space(std::int64_t cols) {
        return (sizeof(T) + sizeof(std::int32_t)) * static_cast<std::size_t>(cols + 2 * W);
    }

    T* z;                  // the candidates
    std::int32_t* index;   // wraps in rows of 2^31 columns and more: not for use there
    std::int64_t n = 0, limit = 512;
    T filter = -infinity<T>;
    bool nan = false;

    LongSolver(void* space, std::int64_t cols)
        : z(static_cast<T*>(space)), index(reinterpret_cast<std::int32_t*>(z + cols + 2 * W)) {}

    // The next `count` columns, the first of which is column `at`.
    void take(const S* row, std::int64_t at, std::int64_t count) {
        if (nan) return;
        const Vec<T> lowest = splat(-infinity<T>);
        Vec<T> m[4] = {lowest, lowest, lowest, lowest};
        Mask<T> bad = gt(lowest, lowest);
        std::int64_t j = 0;
        for (; j + 4 * W <= count; j += 4 * W) {
            const Vec<T> a = load(row + j), b = load(row + j + W), c = load(row + j + 2 * W), d = load(row + j + 3 * W);
            m[0] = max(a, m[0]);
            m[1] = max(b, m[1]);
            m[2] = max(c, m[2]);
            m[3] = max(d, m[3]);
            bad = either(bad, either(unordered(a, b), unordered(c, d)));
        }
        for (; j < count; j += W) {
            const Vec<T> v = some(row + j, count - j);
            m[0] = max(v, m[0]);
            bad = either(bad, unordered(v, v));
        }
        const Vec<T> lanes = max(max(m[0], m[1]), max(m[2], m[3]));
        const T top = largest_lane<T>(lanes);
        nan = any(bad) || top == infinity<T>;
        if (nan || !(top > filter)) return;
        raise(bound_of(lanes, top));
        collect(row, at, count);
        if (n > limit) {
            const Tau<T> tau = solve_row<T>(z, index, n, {filter, T(0)});
            raise(tau.hi - 4 * epsilon<T> / static_cast<T>(n));
            limit = 2 * n > 512 ? 2 * n : 512;
        }
    }

    Tau<T> solve() {
        if (nan || n == 0) return no_tau<T>;
        return solve_row<T>(z, index, n, {filter, T(0)});
    }

private:
    static Vec<T> some(const S* p, std::int64_t n) {
        return n >= W ? load(p) : load_n(p, static_cast<int>(n), -infinity<T>);
    }

    void raise(T t) {
        t -= (t < 0 ? -t : t) * epsilon<T>;
        if (t > filter) filter = t;
    }

    // A lower bound of the tau of W numbers, whose largest is `top`.
    static T bound_of(Vec<T> lanes, T top) {
        const Vec<T> d = lanes - splat(top);
        T t = -1;
        int before = 0;
        for (int step = 0; step < 3; ++step) {
            const Mask<T> k = gt(d, splat(t));
            T above[W], sum = 0;
            store(above, only(k, d));
            for (T x : above) sum += x;
            const int size = __builtin_popcount(bits(k));
            if (size == before) break;
            before = size;
            const T next = (sum - 1) / static_cast<T>(size);
            if (next > t) t = next;
        }
        return top + (t - T(4 * W) * epsilon<T>);
    }

    void keep(Vec<T> v, Mask<T> k, std::int64_t at) {
        compress_index(index + n, k, static_cast<std::int32_t>(at));
        n += compress(z + n, k, v);
    }

    void collect(const S* row, std::int64_t at, std::int64_t count) {
        const Vec<T> t = splat(filter);
        std::int64_t j = 0;
        for (; j + 4 * W <= count; j += 4 * W) {
            const Vec<T> a = load(row + j), b = load(row + j + W), c = load(row + j + 2 * W), d = load(row + j + 3 * W);
            const Mask<T> ka = gt(a, t), kb = gt(b, t), kc = gt(c, t), kd = gt(d, t);
            if (!any(either(either(ka, kb), either(kc, kd)))) continue;
            keep(a, ka, at + j);
            keep(b, kb, at + j + W);
            keep(c, kc, at + j + 2 * W);
            keep(d, kd, at + j + 3 * W);
        }
        for (; j < count; j += W) {
            const Vec<T> v = some(row + j, count - j);
            keep(v, gt(v, t), at + j);
        }
    }
};
