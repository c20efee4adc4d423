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
    // Two levels of a tree in working precision: what they round is within eps of what they sum.
    void add(const F* x) { add((x[0] + x[1]) + (x[2] + x[3])); }
    double total() const {
        double lanes[Lanes<double>::W];
        store(lanes, a + b);
        for (int n = Lanes<double>::W / 2; n > 0; n /= 2)
            for (int i = 0; i < n; ++i) lanes[i] += lanes[i + n];
        return lanes[0];
    }
    F value() const { return join(a, b); }  // a lane each, rounded once
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
    void add(const D* x) { add((x[0] + x[1]) + (x[2] + x[3])); }
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
        return rest == rest ? sum + rest : sum;  // an infinite sum has no rest
    }
    D value() const { return select(unordered(b, b), a, a + b); }
    void each(double* out) const { store(out, value()); }
};

inline double excess(const Sum<float>& sum) { return sum.total() - 1; }
inline double excess(const Sum<double>& sum) { return sum.total(1); }

// tau = hi - minus_lo; NaN and 0 for a row without one.
template <class T> struct Tau { T hi, minus_lo; };

template <class T> constexpr Tau<T> no_tau{T(__builtin_nan("")), T(0)};

// What is left of tau below hi; nothing where it is no more than the rounding of the step that led there. A score that
// equals tau is then at it to the last bit, and has probability 0.
inline double rest_of(double rest, double step) {
    const double noise = __builtin_fabs(step) * 0x1p-52;
    return rest > noise || -rest > noise ? 0 - rest : 0.0;
}
inline D rest_of(D rest, D step) { return only(gt(abs(rest), abs(step) * splat(0x1p-52)), splat(0.0) - rest); }

// tau + step.
inline Tau<float> moved(Tau<float> tau, double step) {
    const double lo = step - static_cast<double>(tau.minus_lo), hi = static_cast<double>(tau.hi);
    const float top = static_cast<float>(hi + lo);
    return {top, static_cast<float>(rest_of((hi - static_cast<double>(top)) + lo, lo))};
}
inline Tau<double> moved(Tau<double> tau, double step) {
    const double lo = step - tau.minus_lo, top = tau.hi + lo, part = top - tau.hi;
    return {top, rest_of((tau.hi - (top - part)) + (lo - part), lo)};
}

// top + below, of which the second is at most a few: at any magnitude of the first.
template <class T> Tau<T> below_top(T top, T below) {
    const T hi = top + below;
    return {hi, 0 - ((top - hi) + below)};
}

// The same in lanes.
template <class T> struct TauLanes {
    Vec<T> hi, minus_lo;

    Vec<T> above(Vec<T> z) const { return (z - hi) + minus_lo; }
};

// One step of Newton's method: (sum - 1) / size.
struct StepF {
    D a, b;
    F value() const { return join(a, b); }
};
struct StepD {
    D a;
    D value() const { return a; }
};
inline StepF newton(const Sum<float>& sum, F size) {
    const D one = splat(1.0);
    return {(sum.a - one) / low(size), (sum.b - one) / high(size)};
}
inline StepD newton(const Sum<double>& sum, D size) { return {((sum.a - splat(1.0)) + sum.b) / size}; }

inline TauLanes<float> moved(const TauLanes<float>& tau, const StepF& step) {
    const D hi_a = low(tau.hi), hi_b = high(tau.hi);
    const D lo_a = step.a - low(tau.minus_lo), lo_b = step.b - high(tau.minus_lo);
    const F top = join(hi_a + lo_a, hi_b + lo_b);
    return {top, join(rest_of((hi_a - low(top)) + lo_a, lo_a), rest_of((hi_b - high(top)) + lo_b, lo_b))};
}
inline TauLanes<double> moved(const TauLanes<double>& tau, const StepD& step) {
    const D lo = step.a - tau.minus_lo, top = tau.hi + lo, part = top - tau.hi;
    return {top, rest_of((tau.hi - (top - part)) + (lo - part), lo)};
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

// Numbers in lanes are taken four vectors at a time: -inf up to the next multiple of four, and at least there.
template <class T> int filled_to_four(Vec<T>* z, int count) {
    for (; count % 4 || count == 0; ++count) z[count] = splat(-infinity<T>);
    return count;
}

// The bound of W rows from `count` numbers of each, a multiple of four: steps of Newton's method in working precision.
template <class T> BoundLanes<T> bound(const Vec<T>* z, int count) {
    Vec<T> top[4] = {z[0], z[1], z[2], z[3]}, d[lane_candidates];
    for (int j = 4; j < count; j += 4)
        for (int i = 0; i < 4; ++i) top[i] = max(z[j + i], top[i]);
    const Vec<T> m = max(max(top[0], top[1]), max(top[2], top[3])), one = splat(T(1)), zero = splat(T(0));
    for (int j = 0; j < count; ++j) d[j] = z[j] - m;
    Vec<T> t = splat(T(-1));
    for (int step = 0; step < 3; ++step) {
        Vec<T> sum[4] = {zero, zero, zero, zero};
        Count<T> size[2];
        for (int j = 0; j < count; j += 4)
            for (int i = 0; i < 4; ++i) {
                const Mask<T> k = gt(d[j + i], t);
                sum[i] = add_if(k, sum[i], d[j + i]);
                size[i % 2].add(k);
            }
        const Vec<T> n = size[0].value() + size[1].value();
        t = max((((sum[0] + sum[1]) + (sum[2] + sum[3])) - one) / n, t);
    }
    return {m, t - splat(T(4 * Lanes<T>::W) * epsilon<T>)};
}

// A probability that may be all of its row's: it is, if the largest score leads the second by 1.
template <class T> constexpr T nearly_one = T(1) - 4 * epsilon<T>;

// (top - second) - 1, whose sign is exact. NaN where there is no second.
template <class X> X lead(X top, X second, X one) {
    const X d = top - second, part = d - top, rest = (top - (d - part)) - (second + part);
    return (d - one) + rest;
}

// tau where the support is the largest score alone: minus_lo is such that (top - hi) + minus_lo is 1, and not its neighbour.
template <class T> Tau<T> tau_of_one(T top) {
    const T hi = top - 1;
    return {hi, 1 - (top - hi)};
}

// tau of W rows, whose candidates are the lanes of z[0..count), count a multiple of four, -inf where a row has fewer.
template <class T> TauLanes<T> solve_lanes(const Vec<T>* z, int count, const BoundLanes<T>& from) {
    const Vec<T> zero = splat(T(0)), inf = splat(infinity<T>);
    TauLanes<T> tau;
    tau.hi = from.max + from.below;
    tau.minus_lo = zero - ((from.max - tau.hi) + from.below);
    Mask<T> moving = gt(inf, zero);
    Vec<T> support = zero;  // its size: what the last step summed
    while (any(moving)) {
        Sum<T> sum;
        Count<T> size[2];
        Vec<T> least[2] = {inf, inf};
        for (int j = 0; j < count; j += 4) {
            Vec<T> above[4];
            for (int i = 0; i < 4; ++i) {
                above[i] = max(tau.above(z[j + i]), zero);
                const Mask<T> k = gt(above[i], zero);
                size[i % 2].add(k);
                least[i % 2] = min_if(k, least[i % 2], above[i]);
            }
            sum.add(above);
        }
        support = select(moving, size[0].value() + size[1].value(), support);
        const auto step = newton(sum, support);
        const TauLanes<T> next = moved(tau, step);
        tau.hi = select(moving, next.hi, tau.hi);
        tau.minus_lo = select(moving, next.minus_lo, tau.minus_lo);
        // A step is the last when it drops nothing, and what it summed was near 1.
        const Vec<T> by = step.value();
        moving =
            both(moving, either(either(not_le(by, least[0]), not_le(by, least[1])), not_le(sum.value(), splat(T(2)))));
    }
    const Vec<T> one = splat(T(1)), top = from.max;
    const Mask<T> close = both(gt(support, one), gt(tau.above(top), splat(nearly_one<T>)));
    if (any(close)) {
        Vec<T> second = zero - inf;
        for (int j = 0; j < count; ++j) second = max(select(gt(top, z[j]), z[j], second), second);
        const Vec<T> size = select(gt(zero, lead(top, second, one)), support, one);
        support = select(close, size, support);
    }
    const Mask<T> several = gt(support, one);
    tau.hi = select(several, tau.hi, top - one);
    tau.minus_lo = select(several, tau.minus_lo, one - (top - tau.hi));
    const Mask<T> finite = both(gt(inf, from.max), gt(from.max, zero - inf));
    Mask<T> nan = gt(zero, zero);
    for (int j = 0; j < count; j += 2) nan = either(nan, unordered(z[j], z[j + 1]));
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

// Vectors of room behind the candidates of a row.
constexpr int spare_vectors = 5;

// tau of a row from n candidates, a lower bound of their tau, and spare vectors behind them. Keeps only what is above, in order,
// and takes `index` along where it is not null. Two steps that keep the same set end it: the last of them sums numbers
// that add up to nearly 1.
template <class T> Tau<T> solve_row(T* z, std::int32_t* index, std::int64_t& n, Tau<T> tau) {
    constexpr int W = Lanes<T>::W;
    constexpr unsigned all = (1u << W) - 1;
    for (std::int64_t before = 0;;) {
        for (int i = 0; i < 4; ++i) store(z + n + i * W, splat(-infinity<T>));
        const TauLanes<T> at{splat(tau.hi), splat(tau.minus_lo)};
        Sum<T> sum;
        std::int64_t kept = 0;
        for (std::int64_t i = 0; i < n; i += 4 * W) {
            Vec<T> v[4], above[4];
            Mask<T> k[4];
            for (int u = 0; u < 4; ++u) {
                v[u] = load(z + i + u * W);
                above[u] = max(at.above(v[u]), splat(T(0)));
                k[u] = gt(above[u], splat(T(0)));
            }
            sum.add(above);
            if (kept == i && bits(both(both(k[0], k[1]), both(k[2], k[3]))) == all) {
                kept += 4 * W;
                continue;
            }
            for (int u = 0; u < 4; ++u) {
                if (index) compress_index(index + kept, k[u], index + i + u * W);
                kept += compress(z + kept, k[u], v[u]);
            }
        }
        tau = moved(tau, excess(sum) / static_cast<double>(kept));
        n = kept;
        if (kept == before) return tau;
        before = kept;
    }
}

// tau of n candidates whose largest is `top`, after solve_row.
template <class T> Tau<T> settled(const T* z, std::int64_t n, T top, Tau<T> tau) {
    if (!((top - tau.hi) + tau.minus_lo > nearly_one<T>)) return tau;
    T second = -infinity<T>;
    for (std::int64_t i = 0; i < n; ++i) second = z[i] < top && z[i] > second ? z[i] : second;
    return lead(top, second, T(1)) < 0 ? tau : tau_of_one(top);
}

// Solves W rows of at most block_cols columns at a time.
template <class S> struct BlockSolver {
    using T = Compute<S>;
    static constexpr int W = Lanes<T>::W;
    static std::size_t space(std::int64_t cols) {
        return sizeof(T) * W * static_cast<std::size_t>(cols + spare_vectors * W);
    }

    T* candidates;  // of W rows, `stride` apart
    std::int64_t cols, stride, ahead = 0;

    BlockSolver(void* space, std::int64_t columns)
        : candidates(static_cast<T*>(space)), cols(columns), stride(columns + spare_vectors * W) {}

    void solve(const S* const* rows, Solved<T>& out) {
        Vec<T> z[lane_candidates];
        if (cols <= lane_candidates) {
            const int n = static_cast<int>(cols);
            for (int j = 0; j < n; j += W) {
                for (int i = 0; i < W; ++i) {
                    __builtin_prefetch(rows[i] + j + ahead);
                    z[j + i] = n - j >= W ? load(rows[i] + j) : load_n(rows[i] + j, n - j, -infinity<T>);
                }
                transpose<T>(z + j);
            }
            const int filled = filled_to_four<T>(z, n);
            out.set(solve_lanes<T>(z, filled, bound<T>(z, filled)));
            return;
        }
        // The largest of every W-th number of a row: W numbers, whose exact tau is a lower bound of the row's.
        for (int i = 0; i < W; ++i) z[i] = largest(rows[i]);
        transpose<T>(z);
        const BoundLanes<T> from = bound<T>(z, filled_to_four<T>(z, W));
        T filter[W];
        store(filter, from.filter());
        std::int64_t sizes[W];
        std::int64_t deepest = 0;
        for (int i = 0; i < W; ++i) {
            sizes[i] = collect(rows[i], candidates + i * stride, filter[i]);
            if (sizes[i] <= lane_candidates && sizes[i] > deepest) deepest = sizes[i];
        }
        for (int i = 0; i < W; ++i)
            for (std::int64_t j = sizes[i]; j < deepest; j += W)
                store(candidates + i * stride + j, splat(-infinity<T>));
        for (std::int64_t j = 0; j < deepest; j += W) {
            for (int i = 0; i < W; ++i) z[j + i] = load(candidates + i * stride + j);
            transpose<T>(z + j);
        }
        out.set(solve_lanes<T>(z, filled_to_four<T>(z, static_cast<int>(deepest)), from));
        T top[W], below[W];
        store(top, from.max);
        store(below, from.below);
        for (int i = 0; i < W; ++i)
            if (sizes[i] > lane_candidates) out.set(i, solve_many(candidates + i * stride, sizes[i], top[i], below[i]));
    }

private:
    Vec<T> largest(const S* row) const {
        const Vec<T> lowest = splat(-infinity<T>);
        Vec<T> m[4] = {lowest, lowest, lowest, lowest};
        std::int64_t j = 0;
        for (; j + 4 * W <= cols; j += 4 * W)
            for (int i = 0; i < 4; ++i) m[i] = max(load(row + j + i * W), m[i]);
        for (; j + W <= cols; j += W) m[0] = max(load(row + j), m[0]);
        if (j < cols) m[1] = max(load_n(row + j, static_cast<int>(cols - j), -infinity<T>), m[1]);
        return max(max(m[0], m[1]), max(m[2], m[3]));
    }

    // Also takes what is NaN: a row that holds one is told by its candidates.
    std::int64_t collect(const S* row, T* to, T filter) const {
        const Vec<T> t = splat(filter);
        const std::int64_t whole = cols / W * W, left = cols - whole;
        const S* const next = row + ahead;
        T* end = to;
        for (std::int64_t j = 0; j < whole; j += W) {
            __builtin_prefetch(next + j);
            const Vec<T> v = load(row + j);
            end += compress(end, not_le(v, t), v);
        }
        if (left) {
            const Vec<T> v = load_n(row + whole, static_cast<int>(left), -infinity<T>);
            end += compress(end, not_le(v, t), v);
        }
        return end - to;
    }

    static Tau<T> solve_many(T* z, std::int64_t n, T top, T below) {
        if (!(top > -infinity<T> && top < infinity<T>)) return no_tau<T>;
        store(z + n, splat(T(0)));
        Mask<T> nan = gt(splat(T(0)), splat(T(0)));
        for (std::int64_t j = 0; j < n; j += W) nan = either(nan, unordered(load(z + j), load(z + j)));
        if (any(nan)) return no_tau<T>;
        const Tau<T> tau = solve_row<T>(z, nullptr, n, below_top(top, below));
        return settled(z, n, top, tau);
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
    // Indices are kept of up to this many candidates: with more, nothing is sparse.
    static std::int64_t room(std::int64_t cols) { return cols <= INT32_MAX ? cols / 16 : -1; }
    static std::size_t space(std::int64_t cols) {
        const std::size_t indices = static_cast<std::size_t>(cols / 16 + spare_vectors * W);
        return sizeof(T) * static_cast<std::size_t>(cols + spare_vectors * W) + sizeof(std::int32_t) * indices;
    }

    T* z;                 // the candidates
    std::int32_t* index;  // their columns, while `sparse`
    std::int64_t n = 0, limit = 512, most;
    T top = -infinity<T>, filter = -infinity<T>;
    bool nan = false, sparse;

    LongSolver(void* space, std::int64_t cols)
        : z(static_cast<T*>(space)),
          index(reinterpret_cast<std::int32_t*>(z + cols + spare_vectors * W)),
          most(room(cols)),
          sparse(most >= 0) {}

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
        const T here = largest_lane<T>(lanes);
        nan = any(bad) || here == infinity<T>;
        if (nan || !(here > filter)) return;
        if (n > limit) {
            const Tau<T> tau = settle();
            raise(tau.hi - 4 * epsilon<T> / static_cast<T>(n));
            limit = 4 * n > 512 ? 4 * n : 512;
        }
        if (here > top) top = here;
        raise(bound_of(lanes, here));
        collect(row, at, count);
    }

    Tau<T> solve() {
        if (nan || n == 0) return no_tau<T>;
        const Tau<T> tau = settle();
        return settled(z, n, top, tau);
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

    Tau<T> settle() {
        const T below = filter - top;
        return solve_row<T>(z, sparse ? index : nullptr, n, below_top<T>(top, below > -1 ? below : T(-1)));
    }

    void keep(Vec<T> v, Mask<T> k, std::int64_t at) {
        if (n > most) sparse = false;
        if (sparse) compress_index(index + n, k, static_cast<std::int32_t>(at));
        n += compress(z + n, k, v);
    }

    void collect(const S* row, std::int64_t at, std::int64_t count) {
        const Vec<T> t = splat(filter);
        std::int64_t j = 0;
        for (; j + 4 * W <= count; j += 4 * W) {
            const Vec<T> a = load(row + j), b = load(row + j + W), c = load(row + j + 2 * W), d = load(row + j + 3 * W);
            const Mask<T> ka = gt(a, t), kb = gt(b, t), kc = gt(c, t), kd = gt(d, t);
            if (!any(either(either(ka, kb), either(kc, kd)))) continue;
            if (bits(both(both(ka, kb), both(kc, kd))) == (1u << W) - 1 && !sparse) {
                store(z + n, a);
                store(z + n + W, b);
                store(z + n + 2 * W, c);
                store(z + n + 3 * W, d);
                n += 4 * W;
                continue;
            }
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
