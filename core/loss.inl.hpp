// The loss (Eqs. 20 and 26) and its gradient p - q, as a sum of nonnegative terms:
//
//   L(z; q) = 1/2 |p - q|^2 + sum over j outside of the support of q_j (tau - z_j), 0 where q_j = 0.
//
// For a label y: 1/2 (|p|^2 - p_y^2) + 1/2 (1 - p_y)^2 + [tau - z_y]_+.
//
// A row that does not count has tau = inf: no score is above it, and p = 0.

// tau - x, with the range of double.
template <class T> double short_of(T hi, T minus_lo, T x) {
    return (static_cast<double>(hi) - static_cast<double>(x)) - static_cast<double>(minus_lo);
}

// The arrays of LossRows.
template <class S> struct LossOut {
    using T = Compute<S>;
    T* loss;
    S* grad;
    T *hi, *lo;
    Shape shape;

    LossOut(const LossRows& out, const Shape& shape_)
        : loss(static_cast<T*>(out.loss)),
          grad(static_cast<S*>(out.grad)),
          hi(static_cast<T*>(out.hi)),
          lo(static_cast<T*>(out.lo)),
          shape(shape_) {}

    void put(std::int64_t row, T value, T h, T minus_lo) const {
        loss[row] = value;
        if (hi) hi[row] = h;
        if (lo) lo[row] = 0 - minus_lo;
    }
    // The loss and all of the gradient of the row that begins at `at`.
    void fill(std::int64_t row, std::int64_t at, T x, T h) const {
        put(row, x, h, T(0));
        for (std::int64_t j = 0; grad && j < shape.cols; ++j) write_one(grad + at + j * shape.inner, x);
    }
};

template <class S> struct LabelLoss {
    using T = Compute<S>;
    static constexpr int W = Lanes<T>::W;
    const S* z;
    const std::int64_t* labels;
    std::int64_t ignore;
    LossOut<S> out;

    bool ignored(std::int64_t label) const { return label == ignore && ignore != no_label; }
    bool known(std::int64_t label) const { return label >= 0 && label < out.shape.cols; }

    void finish(std::int64_t row, std::int64_t at, T hi, T minus_lo, double squares, T score) {
        const std::int64_t label = labels[row];
        if (ignored(label)) return out.fill(row, at, T(0), infinity<T>);
        if (!known(label) || hi != hi) return out.fill(row, at, no_tau<T>.hi, no_tau<T>.hi);
        const T above = (score - hi) + minus_lo, p = above > 0 ? above : T(0);
        const double own = static_cast<double>(p), others = squares - own * own;
        double value = 0.5 * (others > 0 ? others : 0) + 0.5 * (1 - own) * (1 - own);
        if (!(above > 0)) value += short_of(hi, minus_lo, score);
        out.put(row, static_cast<T>(value), hi, minus_lo);
        if (out.grad) write_one(out.grad + at + label * out.shape.inner, p - 1);
    }

    // The score of the label, to be read before the gradient is written: it may be written over the scores.
    T score(std::int64_t row, std::int64_t at) const {
        const std::int64_t label = labels[row];
        return known(label) ? read_one(z + at + label * out.shape.inner) : T(0);
    }

    void line(std::int64_t row, std::int64_t at, const Line& line, const TauLanes<T>& tau, int count) {
        T scores[W], hi[W], minus_lo[W];
        double squares[W] = {};
        for (int i = 0; i < count; ++i) scores[i] = score(row + i, at + i);
        store(hi, tau.hi);
        store(minus_lo, tau.minus_lo);
        Sum<T> sum;
        walk<T>(line, [&](std::int64_t i, auto part) {
            const Vec<T> p = probability<S>(tau, padded(z + at + i, part));
            sum.add(p * p);
            if (out.grad) write(out.grad + at + i, p, part);
        });
        if (out.shape.inner == 1) squares[0] = sum.total();
        else sum.each(squares);
        for (int i = 0; i < count; ++i) finish(row + i, at + i, hi[i], minus_lo[i], squares[i], scores[i]);
    }

    void row(std::int64_t number, std::int64_t at, LongSolver<S>& solver, Tau<T> tau) {
        const T own = score(number, at);
        Sum<T> sum;
        store(solver.z + solver.n, splat(-infinity<T>));
        const TauLanes<T> lanes{splat(tau.hi), splat(tau.minus_lo)};
        for (std::int64_t i = 0; i < solver.n; i += W) {
            const Vec<T> p = probability<S>(lanes, load(solver.z + i));
            sum.add(p * p);
        }
        if (out.grad) SparsemaxJob<S>{z, out.grad, out.shape.cols}.row(number, at, solver, tau);
        finish(number, at, tau.hi, tau.minus_lo, sum.total(), own);
    }

private:
    static Vec<T> padded(const S* p, Whole) { return load(p); }
    static Vec<T> padded(const S* p, Part part) { return load_n(p, part.n, -infinity<T>); }
};

template <class S> struct TargetLoss {
    using T = Compute<S>;
    static constexpr int W = Lanes<T>::W;
    const S *z, *q;
    LossOut<S> out;

    void line(std::int64_t row, std::int64_t at, const Line& line, const TauLanes<T>& tau, int count) {
        const Vec<T> zero = splat(T(0)), half_ = splat(T(0.5));
        const TauLanes<T> halves{tau.hi * half_, tau.minus_lo * half_};
        Sum<T> sum;
        Mask<T> counts = gt(zero, zero);
        walk<T>(line, [&](std::int64_t i, auto part) {
            const Vec<T> score = read(z + at + i, part), above = tau.above(score), target = read(q + at + i, part);
            const Vec<T> p = max(zero, above), rest = p - target;
            // Off the support p is 0: 1/2 q^2 + q (tau - z), where q is not 0. Halves of the far ends of T's range have a
            // difference in that range.
            const Mask<T> some = not_le(abs(target), zero), off = both(gt(zero, above), some);
            const Vec<T> term = rest * rest * half_;
            const Vec<T> far = target * select(off, halves.above(score * half_), zero);
            sum.add(kept(select(off, term - (far + far), term), part));
            counts = either(counts, some);
            if (out.grad) write(out.grad + at + i, rest, part);
        });
        T hi[W], minus_lo[W];
        store(hi, tau.hi);
        store(minus_lo, tau.minus_lo);
        double values[W] = {};
        unsigned set = bits(counts);
        if (out.shape.inner == 1) values[0] = sum.total(), set = set != 0;
        else sum.each(values);
        for (int i = 0; i < count; ++i) {
            if (!(set >> i & 1u)) out.fill(row + i, at + i, T(0), infinity<T>);
            else out.put(row + i, static_cast<T>(values[i]), hi[i], minus_lo[i]);
        }
    }

    void row(std::int64_t number, std::int64_t at, const LongSolver<S>&, Tau<T> tau) {
        line(number, at, along<T>(out.shape.cols), {splat(tau.hi), splat(tau.minus_lo)}, 1);
    }

private:
    // Absent lanes were read as 0 and count for nothing.
    static Vec<T> kept(Vec<T> v, Whole) { return v; }
    static Vec<T> kept(Vec<T> v, Part part) {
        T lanes[W] = {}, on[W];
        store(on, v);
        for (int i = 0; i < part.n; ++i) lanes[i] = on[i];
        return load(lanes);
    }
};

template <class S> void run_loss(const void* z, LossTarget target, LossRows rows_out, Rows rows) {
    const S* scores = static_cast<const S*>(z);
    const LossOut<S> out(rows_out, rows.shape);
    if (target.labels) {
        LabelLoss<S> job{scores, static_cast<const std::int64_t*>(target.values), target.ignore, out};
        solve(scores, rows, job);
    } else {
        TargetLoss<S> job{scores, static_cast<const S*>(target.values), out};
        solve(scores, rows, job);
    }
}

// v (p - q) from tau, a line at a time. Where p - q is 0, so is the product, whatever v is.
template <class S> struct LossGradient {
    using T = Compute<S>;
    static constexpr int W = Lanes<T>::W;
    const S* z;
    LossTarget target;
    S* grad;
    Shape shape;

    static Vec<T> times(Vec<T> v, Vec<T> x, Mask<T> counts) {
        const Vec<T> zero = splat(T(0));
        return select(both(counts, not_le(abs(x), zero)), v * x, zero);
    }

    void line(std::int64_t row, std::int64_t at, const Line& line, const TauLanes<T>& tau, Vec<T> v, int count) {
        const Mask<T> counts = either(gt(splat(infinity<T>), tau.hi), unordered(tau.hi, tau.hi));
        if (!target.labels) {
            const S* q = static_cast<const S*>(target.values);
            return walk<T>(line, [&](std::int64_t i, auto part) {
                const Vec<T> p = probability<S>(tau, read(z + at + i, part));
                write(grad + at + i, times(v, p - read(q + at + i, part), counts), part);
            });
        }
        const std::int64_t* labels = static_cast<const std::int64_t*>(target.values) + row;
        T own[W] = {}, hi[W], minus_lo[W], scale[W];
        store(hi, tau.hi);
        store(minus_lo, tau.minus_lo);
        store(scale, v);
        for (int i = 0; i < count; ++i) {
            if (labels[i] < 0 || labels[i] >= shape.cols) continue;
            const T above = (read_one(z + at + i + labels[i] * shape.inner) - hi[i]) + minus_lo[i];
            own[i] = above > 0 ? above : T(0);
        }
        walk<T>(line, [&](std::int64_t i, auto part) {
            write(grad + at + i, times(v, probability<S>(tau, read(z + at + i, part)), counts), part);
        });
        for (int i = 0; i < count; ++i)
            if (labels[i] >= 0 && labels[i] < shape.cols && hi[i] < infinity<T>)
                write_one(grad + at + i + labels[i] * shape.inner, (own[i] - 1) * scale[i]);
    }
};

template <class S>
void run_loss_gradient(const void* z, LossTarget target, const void* hi_, const void* lo_, const void* v_, void* grad,
                       Rows rows) {
    using T = Compute<S>;
    constexpr int W = Lanes<T>::W;
    const T *hi = static_cast<const T*>(hi_), *lo = static_cast<const T*>(lo_), *v = static_cast<const T*>(v_);
    const Vec<T> zero = splat(T(0));
    LossGradient<S> job{static_cast<const S*>(z), target, static_cast<S*>(grad), rows.shape};
    const std::int64_t cols = rows.shape.cols, inner = rows.shape.inner;
    if (inner == 1) {
        const Line line = along<T>(cols);
        for (std::int64_t row = rows.begin; row < rows.end; ++row)
            job.line(row, row * cols, line, {splat(hi[row]), zero - splat(lo[row])}, splat(v[row]), 1);
        return;
    }
    for (std::int64_t row = rows.begin; row < rows.end;) {
        const std::int64_t column = row % inner;
        const std::int64_t room = inner - column < rows.end - row ? inner - column : rows.end - row;
        const int lanes = static_cast<int>(room < W ? room : W);
        const TauLanes<T> tau{load_n(hi + row, lanes, T(0)), zero - load_n(lo + row, lanes, T(0))};
        job.line(row, row / inner * cols * inner + column, across(cols, inner, lanes), tau,
                 load_n(v + row, lanes, T(0)), lanes);
        row += lanes;
    }
}
