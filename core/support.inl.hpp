// Work on supports alone: the entries of each row that are not zero, as lists, and sums over them.
//
// What follows the scores costs O(|S|) a row: a row of the output is a sum of |S| rows of a table, and each gradient is
// one too, along the lists or along the lists turned over.

// tau of each row, and its support appended to the lists, while there is room; beyond, only counted.
template <class T> struct SupportJob {
    static constexpr int W = Lanes<T>::W;
    const T* z;
    SupportOut out;
    std::int64_t cols, used = 0;

    void put(std::int64_t row, T hi, T minus_lo, std::int64_t size) {
        static_cast<T*>(out.hi)[row] = hi;
        static_cast<T*>(out.lo)[row] = 0 - minus_lo;
        out.size[row] = size;
        used += size;
    }
    T* values() const { return static_cast<T*>(out.values); }
    // Vectors are stored whole: what the last one writes beyond its entries must be in the lists, too.
    bool has_room(std::int64_t more) const { return used + more <= out.room; }

    void line(std::int64_t row, std::int64_t at, const Line&, const TauLanes<T>& tau, int) {
        const T* from = z + at;
        std::int64_t n = 0;
        for (std::int64_t j = 0; j < cols; j += W) {
            const std::int64_t left = cols - j;
            const Vec<T> above =
                tau.above(left >= W ? load(from + j) : load_n(from + j, static_cast<int>(left), -infinity<T>));
            const Mask<T> k = gt(above, splat(T(0)));
            if (!any(k)) continue;
            if (has_room(n + W)) {
                compress_index(out.indices + used + n, k, static_cast<std::int32_t>(j));
                n += compress(values() + used + n, k, above);
            } else {
                n += __builtin_popcount(bits(k));
            }
        }
        T hi[W], minus_lo[W];
        store(hi, tau.hi);
        store(minus_lo, tau.minus_lo);
        put(row, hi[0], minus_lo[0], n);
    }

    void row(std::int64_t number, std::int64_t at, const LongSolver<T>& solver, Tau<T> tau) {
        if (!solver.sparse || tau.hi != tau.hi) return line(number, at, {}, {splat(tau.hi), splat(tau.minus_lo)}, 1);
        std::int64_t n = 0;
        for (std::int64_t i = 0; i < solver.n; ++i) {
            const T p = (solver.z[i] - tau.hi) + tau.minus_lo;
            if (!(p > 0)) continue;
            if (has_room(n + 1)) {
                values()[used + n] = p;
                out.indices[used + n] = solver.index[i];
            }
            ++n;
        }
        put(number, tau.hi, tau.minus_lo, n);
    }
};

template <class T> std::int64_t run_support(const void* z, const SupportOut& out, std::int64_t rows,
                                            std::int64_t cols) {
    SupportJob<T> job{static_cast<const T*>(z), out, cols};
    solve(job.z, Rows{{rows, cols, 1}, 0, rows}, job);
    return job.used;
}

// p = [z - tau]_+ of each row (Eq. 3). p may be z.
template <class T>
void run_above(const void* z_, const void* hi, const void* lo, void* p_, std::int64_t rows, std::int64_t cols) {
    const T* z = static_cast<const T*>(z_);
    T* p = static_cast<T*>(p_);
    const Line line = along<T>(cols);
    for (std::int64_t row = 0; row < rows; ++row, z += cols, p += cols) {
        const TauLanes<T> tau{splat(static_cast<const T*>(hi)[row]), splat(0 - static_cast<const T*>(lo)[row])};
        walk<T>(line, [&](std::int64_t i, auto part) { write(p + i, probability<T>(tau, read(z + i, part)), part); });
    }
}

// Scores that do not take part become -inf, or have a number added.
template <class T> void run_exclude(void* z_, const bool* takes_part, std::int64_t cols) {
    T* z = static_cast<T*>(z_);
    for (std::int64_t j = 0; j < cols; ++j) z[j] = takes_part[j] ? z[j] : -infinity<T>;
}
template <class T> void run_add(void* z_, const void* x_, std::int64_t cols) {
    T* z = static_cast<T*>(z_);
    const T* x = static_cast<const T*>(x_);
    for (std::int64_t j = 0; j < cols; ++j) z[j] = x[j] == -infinity<T> ? x[j] : z[j] + x[j];
}

template <class T> T total(Vec<T> v) {
    constexpr int W = Lanes<T>::W;
    T lanes[W];
    store(lanes, v);
    for (int n = W / 2; n > 0; n /= 2)
        for (int i = 0; i < n; ++i) lanes[i] = lanes[i] + lanes[i + n];
    return lanes[0];
}

// Sums of many rows are taken in parts of this many, so that rounding does not grow with their number.
constexpr std::int64_t sum_part = 64;

// V vectors (the last may be a part) of the sum of weights[e] * table[index[e]].
template <class T, int V, class P>
void combine_tile(const T* weights, const std::int32_t* index, std::int64_t n, const T* table, std::int64_t stride,
                  T* out, P part, bool add) {
    constexpr int W = Lanes<T>::W;
    Vec<T> all[V];
    for (int i = 0; i < V; ++i) all[i] = splat(T(0));
    for (std::int64_t from = 0; from < n; from += sum_part) {
        const std::int64_t end = n - from < sum_part ? n : from + sum_part;
        Vec<T> sum[V];
        for (int i = 0; i < V; ++i) sum[i] = splat(T(0));
        for (std::int64_t e = from; e < end; ++e) {
            const T* row = table + index[e] * stride;
            if (e + 2 < n)
                for (int i = 0; i < V; ++i) __builtin_prefetch(table + index[e + 2] * stride + i * W);
            const Vec<T> w = splat(weights[e]);
            for (int i = 0; i < V - 1; ++i) sum[i] = sum[i] + w * load(row + i * W);
            sum[V - 1] = sum[V - 1] + w * read(row + (V - 1) * W, part);
        }
        for (int i = 0; i < V; ++i) all[i] = all[i] + sum[i];
    }
    for (int i = 0; i < V - 1; ++i) store(out + i * W, add ? load(out + i * W) + all[i] : all[i]);
    T* last = out + (V - 1) * W;
    write(last, add ? read(last, part) + all[V - 1] : all[V - 1], part);
}

template <class T>
void run_combine(const Lists& lists, const void* weights_, Table table, TableOut to, std::int64_t begin,
                 std::int64_t end, bool add) {
    constexpr int W = Lanes<T>::W;
    const T* from = static_cast<const T*>(table.data);
    for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t at = lists.offsets[row], n = lists.offsets[row + 1] - at;
        T* out = static_cast<T*>(to.data) + row * to.stride;
        const T* weights = static_cast<const T*>(weights_) + at;
        const std::int32_t* index = lists.indices + at;
        if (n == 0) {
            if (!add) __builtin_memset(out, 0, sizeof(T) * static_cast<std::size_t>(table.cols));
            continue;
        }
        std::int64_t j = 0;
        for (; j + 8 * W <= table.cols; j += 8 * W)
            combine_tile<T, 8>(weights, index, n, from + j, table.stride, out + j, Whole{}, add);
        for (; j + 4 * W <= table.cols; j += 4 * W)
            combine_tile<T, 4>(weights, index, n, from + j, table.stride, out + j, Whole{}, add);
        for (; j + W <= table.cols; j += W)
            combine_tile<T, 1>(weights, index, n, from + j, table.stride, out + j, Whole{}, add);
        if (j < table.cols)
            combine_tile<T, 1>(weights, index, n, from + j, table.stride, out + j,
                               Part{static_cast<int>(table.cols - j)}, add);
    }
}

template <class T> T dot(const T* a, const T* b, std::int64_t n) {
    constexpr int W = Lanes<T>::W;
    const Vec<T> zero = splat(T(0));
    Vec<T> sum[4] = {zero, zero, zero, zero};
    std::int64_t j = 0;
    for (; j + 4 * W <= n; j += 4 * W)
        for (int i = 0; i < 4; ++i) sum[i] = sum[i] + load(a + j + i * W) * load(b + j + i * W);
    for (; j + W <= n; j += W) sum[0] = sum[0] + load(a + j) * load(b + j);
    if (j < n) {
        const int left = static_cast<int>(n - j);
        sum[1] = sum[1] + load_n(a + j, left, T(0)) * load_n(b + j, left, T(0));
    }
    return total<T>((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

// What Eq. 14 makes of the products of x's rows with those of the table: each less their mean over the support.
template <class T>
void run_slopes(const Lists& lists, Table table, Table x, void* out_, double scale, std::int64_t begin,
                std::int64_t end) {
    const T* from = static_cast<const T*>(table.data);
    for (std::int64_t row = begin; row < end; ++row) {
        const T* own = static_cast<const T*>(x.data) + row * x.stride;
        T* out = static_cast<T*>(out_);
        double sum = 0;
        const std::int64_t at = lists.offsets[row], to = lists.offsets[row + 1];
        for (std::int64_t e = at; e < to; ++e) {
            if (e + 2 < to)
                for (std::int64_t j = 0; j < x.cols; j += 64 / static_cast<std::int64_t>(sizeof(T)))
                    __builtin_prefetch(from + lists.indices[e + 2] * table.stride + j);
            out[e] = dot<T>(own, from + lists.indices[e] * table.stride, x.cols);
            sum += static_cast<double>(out[e]);
        }
        const T mean = static_cast<T>(sum / static_cast<double>(to - at > 0 ? to - at : 1));
        for (std::int64_t e = at; e < to; ++e) out[e] = (out[e] - mean) * static_cast<T>(scale);
    }
}
