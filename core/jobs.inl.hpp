// The jobs of kernels.hpp, over the solvers of rows.inl.hpp: which rows lie where, and what is written.

// One row in vectors along itself, or up to W neighbouring columns with a vector across them: `count` vectors, `step`
// numbers apart, of `lanes` lanes each, `last` in the last one.
struct Line {
    std::int64_t count, step;
    int lanes, last;
};

template <class T> Line along(std::int64_t cols) {
    constexpr int W = Lanes<T>::W;
    const std::int64_t count = (cols + W - 1) / W;
    return {count, W, W, static_cast<int>(cols - (count - 1) * W)};
}
inline Line across(std::int64_t cols, std::int64_t inner, int lanes) { return {cols, inner, lanes, lanes}; }

struct Whole {};
struct Part { int n; };
template <class S> auto read(const S* p, Whole) { return load(p); }
template <class S> auto read(const S* p, Part part) { return load_n(p, part.n, Compute<S>(0)); }
template <class S, class V> void write(S* p, V v, Whole) { store(p, v); }
template <class S, class V> void write(S* p, V v, Part part) { store_n(p, v, part.n); }

// step(offset, Whole or Part) at every vector of a line. The line is copied: a store may alias what it is reached by.
template <class T, class F> [[gnu::always_inline]] inline void walk(const Line line, F&& step) {
    constexpr int W = Lanes<T>::W;
    if (line.count == 0) return;
    const std::int64_t end = (line.count - 1) * line.step;
    if (line.lanes == W)
        for (std::int64_t at = 0; at < end; at += line.step) step(at, Whole{});
    else
        for (std::int64_t at = 0; at < end; at += line.step) step(at, Part{line.lanes});
    if (line.last == W) step(end, Whole{});
    else step(end, Part{line.last});
}

template <class S> void write_one(S* p, Compute<S> x) { store_n(p, splat(x), 1); }
template <> inline void write_one(float* p, float x) { *p = x; }
template <> inline void write_one(double* p, double x) { *p = x; }
template <class S> Compute<S> read_one(const S* p) {
    Compute<S> lanes[Lanes<Compute<S>>::W];
    store(lanes, load_n(p, 1, Compute<S>(0)));
    return lanes[0];
}
template <> inline float read_one(const float* p) { return *p; }
template <> inline double read_one(const double* p) { return *p; }

// The largest probability that S rounds to zero.
template <class S> constexpr Compute<S> vanishing = 0;
template <> inline constexpr float vanishing<half> = 0x1p-25f;
template <> inline constexpr float vanishing<bfloat> = 0x1p-134f;

template <class S> Vec<Compute<S>> probability(const TauLanes<Compute<S>>& tau, Vec<Compute<S>> z) {
    return max(splat(Compute<S>(0)), tau.above(z));
}

// ---- where rows lie -------------------------------------------------------------------------------------------------

// Solves the rows of a range, W at a time, and hands each group over, as one of
//   job.row(row, z, solver, tau)              a long row: z at its start, its candidates in the solver
//   job.line(first row, z, line, tau, count)  a row along itself (count 1), or `count` columns, a lane each
template <class S, class Job> struct Solve {
    using T = Compute<S>;
    static constexpr int W = Lanes<T>::W;

    const S* z;
    Rows rows;
    Job& job;

    bool is_long() const { return rows.shape.cols > block_cols<T>; }

    void run() {
        if (rows.shape.inner == 1 && is_long()) run_long_rows();
        else if (rows.shape.inner == 1) run_rows();
        else run_columns();
    }

    void run_rows() {
        const std::int64_t cols = rows.shape.cols;
        const Scratch space(BlockSolver<S>::space(cols));
        BlockSolver<S> solver(space.data, cols);
        solver.ahead = W * cols;
        const Line line = along<T>(cols);
        for (std::int64_t row = rows.begin; row < rows.end; row += W) {
            const S* at[W];
            const int count = static_cast<int>(rows.end - row < W ? rows.end - row : W);
            for (int i = 0; i < W; ++i) at[i] = z + (row + (i < count ? i : 0)) * cols;
            Solved<T> solved;
            solver.solve(at, solved);
            for (int i = 0; i < count; ++i) job.line(row + i, (row + i) * cols, line, solved.one(i), 1);
        }
    }

    void run_long_rows() {
        const std::int64_t cols = rows.shape.cols;
        const Scratch space(LongSolver<S>::space(cols));
        for (std::int64_t row = rows.begin; row < rows.end; ++row) {
            LongSolver<S> solver(space.data, cols);
            const S* at = z + row * cols;
            for (std::int64_t j = 0; j < cols; j += chunk_cols<T>)
                solver.take(at + j, j, cols - j < chunk_cols<T> ? cols - j : chunk_cols<T>);
            const Tau<T> tau = solver.solve();
            job.row(row, row * cols, solver, tau);
        }
    }

    // W columns at a time, transposed into rows a tile at a time.
    void run_columns() {
        const std::int64_t cols = rows.shape.cols, inner = rows.shape.inner;
        const std::int64_t depth = is_long() ? chunk_cols<T> / W : cols, stride = depth + W;
        const std::size_t tile_bytes = (sizeof(T) * static_cast<std::size_t>(W * stride) + 63) / 64 * 64;
        const std::size_t each = (LongSolver<T>::space(cols) + 63) / 64 * 64;
        const Scratch space(tile_bytes + (is_long() ? each * W : BlockSolver<T>::space(cols)));
        T* const tile = static_cast<T*>(space.data);
        char* const rest = static_cast<char*>(space.data) + tile_bytes;
        for (std::int64_t row = rows.begin; row < rows.end;) {
            const std::int64_t column = row % inner, offset = row / inner * cols * inner + column;
            std::int64_t room = inner - column < rows.end - row ? inner - column : rows.end - row;
            const int lanes = static_cast<int>(room < W ? room : W);
            Solved<T> solved;
            if (cols <= lane_candidates) solve_in_lanes(offset, lanes, solved);
            else if (is_long()) solve_long_columns(offset, lanes, tile, depth, stride, rest, each, solved);
            else {
                fill(tile, stride, offset, 0, cols, lanes);
                const T* at[W];
                for (int i = 0; i < W; ++i) at[i] = tile + (i < lanes ? i : 0) * stride;
                BlockSolver<T>(rest, cols).solve(at, solved);
            }
            job.line(row, offset, across(cols, inner, lanes), solved.all(), lanes);
            row += lanes;
        }
    }

    // A few numbers down each column: they lie as the lanes want them.
    void solve_in_lanes(std::int64_t offset, int lanes, Solved<T>& solved) const {
        const int n = static_cast<int>(rows.shape.cols);
        Vec<T> v[lane_candidates];
        for (int j = 0; j < n; ++j) {
            const S* p = z + offset + j * rows.shape.inner;
            v[j] = lanes == W ? load(p) : load_n(p, lanes, -infinity<T>);
        }
        const int filled = filled_to_four<T>(v, n);
        solved.set(solve_lanes<T>(v, filled, bound<T>(v, filled)));
    }

    void solve_long_columns(std::int64_t offset, int lanes, T* tile, std::int64_t depth, std::int64_t stride,
                            char* rest, std::size_t each, Solved<T>& solved) {
        alignas(LongSolver<T>) char memory[W * sizeof(LongSolver<T>)];
        LongSolver<T>* solvers = reinterpret_cast<LongSolver<T>*>(memory);
        for (int i = 0; i < lanes; ++i)
            solvers[i] = LongSolver<T>(rest + static_cast<std::size_t>(i) * each, rows.shape.cols);
        for (std::int64_t j = 0; j < rows.shape.cols; j += depth) {
            const std::int64_t count = rows.shape.cols - j < depth ? rows.shape.cols - j : depth;
            fill(tile, stride, offset, j, count, lanes);
            for (int i = 0; i < lanes; ++i) solvers[i].take(tile + i * stride, j, count);
        }
        for (int i = 0; i < W; ++i) solved.set(i, i < lanes ? solvers[i].solve() : no_tau<T>);
    }

    // tile[lane * stride + j] = the number `from + j` down the column `lane`.
    void fill(T* tile, std::int64_t stride, std::int64_t offset, std::int64_t from, std::int64_t count,
              int lanes) const {
        const std::int64_t inner = rows.shape.inner;
        const S* at = z + offset + from * inner;
        for (std::int64_t j = 0; j < count; j += W) {
            Vec<T> v[W];
            for (int i = 0; i < W; ++i) {
                const S* p = at + (j + i) * inner;
                v[i] = j + i >= count ? splat(T(0)) : lanes == W ? load(p) : load_n(p, lanes, T(0));
            }
            transpose<T>(v);
            for (int i = 0; i < lanes; ++i) store(tile + i * stride + j, v[i]);
        }
    }
};

template <class S, class Job> void solve(const S* z, const Rows& rows, Job& job) { Solve<S, Job>{z, rows, job}.run(); }

// ---- sparsemax (Eq. 2) ----------------------------------------------------------------------------------------------

template <class S> struct SparsemaxJob {
    using T = Compute<S>;
    const S* z;
    S* p;
    std::int64_t cols;

    void line(std::int64_t, std::int64_t at, const Line& line, const TauLanes<T>& tau, int) {
        walk<T>(line, [&](std::int64_t i, auto part) {
            write(p + at + i, probability<S>(tau, read(z + at + i, part)), part);
        });
    }

    void row(std::int64_t number, std::int64_t at, const LongSolver<S>& solver, Tau<T> tau) {
        if (!solver.sparse || tau.hi != tau.hi)
            return line(number, at, along<T>(cols), {splat(tau.hi), splat(tau.minus_lo)}, 1);
        __builtin_memset(p + at, 0, sizeof(S) * static_cast<std::size_t>(cols));
        for (std::int64_t i = 0; i < solver.n; ++i) {
            const T x = (solver.z[i] - tau.hi) + tau.minus_lo;
            if (x > 0) write_one(p + at + solver.index[i], x);
        }
    }
};

template <class S> void run_sparsemax(const void* z, void* p, Rows rows) {
    SparsemaxJob<S> job{static_cast<const S*>(z), static_cast<S*>(p), rows.shape.cols};
    solve(job.z, rows, job);
}

// ---- tau (Eq. 4) and the size of the support ------------------------------------------------------------------------

template <class S> struct ThresholdJob {
    using T = Compute<S>;
    const S* z;
    T *hi, *lo;
    std::int64_t* size;
    std::int64_t cols;

    void put(std::int64_t row, T h, T minus_lo, std::int64_t n) {
        if (hi) hi[row] = h;
        if (lo) lo[row] = 0 - minus_lo;
        if (size) size[row] = n;
    }

    void line(std::int64_t row, std::int64_t at, const Line& line, const TauLanes<T>& tau, int count) {
        constexpr int W = Lanes<T>::W;
        T h[W], l[W];
        store(h, tau.hi);
        store(l, tau.minus_lo);
        std::int64_t sizes[W] = {};
        if (size)
            walk<T>(line,
                    [&](std::int64_t i, auto part) { tally(tau.above(read(z + at + i, part)), part, sizes, count); });
        for (int i = 0; i < count; ++i) put(row + i, h[i], l[i], sizes[i]);
    }

    void row(std::int64_t number, std::int64_t, const LongSolver<S>& solver, Tau<T> tau) {
        std::int64_t n = 0;
        for (std::int64_t i = 0; size && i < solver.n; ++i) n += (solver.z[i] - tau.hi) + tau.minus_lo > vanishing<S>;
        put(number, tau.hi, tau.minus_lo, n);
    }

private:
    static unsigned valid(Whole) { return (1u << Lanes<T>::W) - 1; }
    static unsigned valid(Part part) { return (1u << part.n) - 1; }

    template <class P> static void tally(Vec<T> above, P part, std::int64_t* sizes, int count) {
        const unsigned set = bits(gt(above, splat(vanishing<S>))) & valid(part);
        if (count == 1) sizes[0] += __builtin_popcount(set);
        else
            for (int i = 0; i < count; ++i) sizes[i] += set >> i & 1u;
    }
};

template <class S> void run_threshold(const void* z, void* hi, void* lo, std::int64_t* size, Rows rows) {
    using T = Compute<S>;
    ThresholdJob<S> job{static_cast<const S*>(z), static_cast<T*>(hi), static_cast<T*>(lo), size, rows.shape.cols};
    solve(job.z, rows, job);
}

template <class S>
void run_compact(const void* z_, const void* hi, const void* lo, const std::int64_t* offsets, void* values_,
                 std::int32_t* indices, Rows rows) {
    using T = Compute<S>;
    const S* z = static_cast<const S*>(z_);
    S* values = static_cast<S*>(values_);
    const std::int64_t cols = rows.shape.cols;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
        const TauLanes<T> tau{splat(static_cast<const T*>(hi)[row]), splat(0 - static_cast<const T*>(lo)[row])};
        std::int64_t at = offsets[row];
        const std::int64_t end = offsets[row + 1];
        const S* from = z + row * cols;
        for (std::int64_t j = 0; j < cols && at < end; j += Lanes<T>::W) {
            const std::int64_t left = cols - j;
            const Vec<T> above = tau.above(
                left >= Lanes<T>::W ? load(from + j) : load_n(from + j, static_cast<int>(left), -infinity<T>));
            unsigned set = bits(gt(above, splat(vanishing<S>)));
            if (!set) continue;
            T lanes[Lanes<T>::W];
            store(lanes, above);
            for (; set && at < end; set &= set - 1, ++at) {
                const int lane = __builtin_ctz(set);
                write_one(values + at, lanes[lane]);
                indices[at] = static_cast<std::int32_t>(j + lane);
            }
        }
    }
}

// ---- the Jacobian-vector product (Eq. 14) ---------------------------------------------------------------------------

// From here on it pays to look for a small support first.
constexpr std::int64_t sparse_cols = 2048;

template <class S> struct JvpJob {
    using T = Compute<S>;
    static constexpr int W = Lanes<T>::W;
    const S *p, *v;
    S* out;

    static Vec<T> value(Vec<T> prob, Vec<T> tangent, Vec<T> mean) {
        const Vec<T> zero = splat(T(0));
        return select(gt(prob, zero), tangent - mean, prob * zero);  // NaN stays NaN
    }

    void write_line(std::int64_t at, const Line& line, Vec<T> mean) {
        const S *const prob = p + at, *const tangent = v + at;
        S* const to = out + at;
        walk<T>(line, [=](std::int64_t i, auto part) {
            write(to + i, value(read(prob + i, part), read(tangent + i, part), mean), part);
        });
    }

    // The tangents on the support of a row, summed into W lanes, and the size of the support.
    static Vec<T> sums(const S* prob, const S* tangent, std::int64_t cols, std::int32_t& size) {
        const Vec<T> zero = splat(T(0));
        std::int64_t j = 0;
        unsigned n = 0;
        Vec<T> rest = zero;
        Sum<T> sum;
        if (cols > 4 * W) {
            for (; j + 4 * W <= cols; j += 4 * W) {
                Vec<T> x[4];
                for (int i = 0; i < 4; ++i) {
                    const Mask<T> k = gt(load(prob + j + i * W), zero);
                    x[i] = only(k, load(tangent + j + i * W));
                    n += static_cast<unsigned>(__builtin_popcount(bits(k)));
                }
                sum.add(x);
            }
            rest = sum.value();
        }
        for (; j + W <= cols; j += W) {
            const Mask<T> k = gt(load(prob + j), zero);
            rest = add_if(k, rest, load(tangent + j));
            n += static_cast<unsigned>(__builtin_popcount(bits(k)));
        }
        if (j < cols) {
            const int left = static_cast<int>(cols - j);
            const Mask<T> k = gt(load_n(prob + j, left, T(0)), zero);
            rest = add_if(k, rest, load_n(tangent + j, left, T(0)));
            n += static_cast<unsigned>(__builtin_popcount(bits(k)));
        }
        size = static_cast<std::int32_t>(n);
        return rest;
    }

    // Rows at a time that stay in the first cache between the sums and the result; at most W.
    static int together(std::int64_t cols) {
        const std::int64_t fit = 8192 / static_cast<std::int64_t>(sizeof(S)) / (cols > 0 ? cols : 1);
        return fit < 1 ? 1 : fit < W ? static_cast<int>(fit) : W;
    }

    // Up to W rows: their lanes are transposed and added, so that no row waits for a sum across its own.
    void rows(std::int64_t begin, int count, std::int64_t cols, const Line& line) {
        Vec<T> lanes[W];
        std::int32_t sizes[W] = {};
        T counts[W], means[W];
        const S *const prob = p + begin * cols, *const tangent = v + begin * cols;
        const bool single = line.count == 1;  // a vector holds the row
        if (single)
            whole_or_part(line, [&](auto part) {
                for (int i = 0; i < count; ++i) {
                    const Mask<T> k = gt(read(prob + i * cols, part), splat(T(0)));
                    lanes[i] = only(k, read(tangent + i * cols, part));
                    sizes[i] = __builtin_popcount(bits(k));
                }
            });
        else
            for (int i = 0; i < count; ++i) lanes[i] = sums(prob + i * cols, tangent + i * cols, cols, sizes[i]);
        for (int i = count; i < W; ++i) lanes[i] = splat(T(0));
        transpose<T>(lanes);
        for (int n = W / 2; n > 0; n /= 2)
            for (int i = 0; i < n; ++i) lanes[i] = lanes[i] + lanes[i + n];
        for (int i = 0; i < W; ++i) counts[i] = static_cast<T>(sizes[i]);
        store(means, lanes[0] / max(load(counts), splat(T(1))));
        if (!single) {
            for (int i = 0; i < count; ++i) write_line((begin + i) * cols, line, splat(means[i]));
            return;
        }
        S* const to = out + begin * cols;
        whole_or_part(line, [&](auto part) {
            for (int i = 0; i < count; ++i) {
                const std::int64_t at = i * cols;
                write(to + at, value(read(prob + at, part), read(tangent + at, part), splat(means[i])), part);
            }
        });
    }

    void columns(std::int64_t at, const Line& line) {
        Sum<T> sum;
        Vec<T> size = splat(T(0));
        const Vec<T> one = splat(T(1));
        walk<T>(line, [&](std::int64_t i, auto part) {
            const Mask<T> k = gt(read(p + at + i, part), splat(T(0)));
            sum.add(only(k, read(v + at + i, part)));
            size = add_if(k, size, one);
        });
        write_line(at, line, mean_of(sum, max(size, one)));
    }

    // A long row whose support is small: only there v is read. False where there is more than `room` of it.
    bool sparse_row(std::int64_t at, std::int64_t cols, T* tangents, std::int32_t* index, std::int64_t room) {
        const Vec<T> zero = splat(T(0));
        std::int64_t n = 0, j = 0;
        for (; j + 4 * W <= cols; j += 4 * W) {
            const S* from = p + at + j;
            const Mask<T> a = not_le(load(from), zero), b = not_le(load(from + W), zero);
            const Mask<T> c = not_le(load(from + 2 * W), zero), d = not_le(load(from + 3 * W), zero);
            if (!any(either(either(a, b), either(c, d)))) continue;
            if (n > room) return false;
            const Mask<T> k[4] = {a, b, c, d};
            for (int i = 0; i < 4; ++i) {
                compress_index(index + n, k[i], static_cast<std::int32_t>(j + i * W));
                n += __builtin_popcount(bits(k[i]));
            }
        }
        for (; j < cols; ++j)
            if (!(read_one(p + at + j) <= 0)) index[n++] = static_cast<std::int32_t>(j);
        Sum<T> sum;
        T lanes[W];
        for (std::int64_t i = 0; i < n; i += W) {
            for (int lane = 0; lane < W; ++lane) {
                const bool on = i + lane < n;
                lanes[lane] = on ? read_one(v + at + index[i + lane]) : T(0);
                if (on && !(read_one(p + at + index[i + lane]) > 0)) return false;
                tangents[i + lane] = lanes[lane];
            }
            sum.add(load(lanes));
        }
        const T mean = static_cast<T>(sum.total() / static_cast<double>(n ? n : 1));
        __builtin_memset(out + at, 0, sizeof(S) * static_cast<std::size_t>(cols));
        for (std::int64_t i = 0; i < n; ++i) write_one(out + at + index[i], tangents[i] - mean);
        return true;
    }

private:
    template <class F_> static void whole_or_part(const Line& line, F_&& body) {
        if (line.last == W) body(Whole{});
        else body(Part{line.last});
    }
    static F mean_of(const Sum<float>& sum, F size) { return join(sum.a / low(size), sum.b / high(size)); }
    static D mean_of(const Sum<double>& sum, D size) { return (sum.a + sum.b) / size; }
};

template <class S> void run_jvp(const void* p, const void* v, void* out, Rows rows) {
    using T = Compute<S>;
    constexpr int W = Lanes<T>::W;
    JvpJob<S> job{static_cast<const S*>(p), static_cast<const S*>(v), static_cast<S*>(out)};
    const std::int64_t cols = rows.shape.cols, inner = rows.shape.inner;
    if (inner == 1) {
        const Line line = along<T>(cols);
        const std::int64_t room = cols / 16;
        const bool sparse = cols >= sparse_cols && cols <= INT32_MAX;
        const Scratch space(sparse ? (sizeof(T) + sizeof(std::int32_t)) * static_cast<std::size_t>(room + 8 * W) : 0);
        T* const tangents = static_cast<T*>(space.data);
        std::int32_t* const index = reinterpret_cast<std::int32_t*>(tangents + (sparse ? room + 8 * W : 0));
        if (!sparse) {
            const int most = JvpJob<S>::together(cols);
            for (std::int64_t row = rows.begin; row < rows.end; row += most)
                job.rows(row, static_cast<int>(rows.end - row < most ? rows.end - row : most), cols, line);
            return;
        }
        for (std::int64_t row = rows.begin; row < rows.end; ++row)
            if (!job.sparse_row(row * cols, cols, tangents, index, room)) job.rows(row, 1, cols, line);
        return;
    }
    for (std::int64_t row = rows.begin; row < rows.end;) {
        const std::int64_t column = row % inner;
        const std::int64_t room = inner - column < rows.end - row ? inner - column : rows.end - row;
        const int lanes = static_cast<int>(room < W ? room : W);
        job.columns(row / inner * cols * inner + column, across(cols, inner, lanes));
        row += lanes;
    }
}
