// The loss (Eqs. 20 and 26) and its gradient p - q, as a sum of nonnegative terms:
//
//   L(z; q) = 1/2 |p - q|^2 + sum over j outside of the support of q_j (tau - z_j), 0 where q_j = 0.
//
// For a label y: 1/2 (|p|^2 - p_y^2) + 1/2 (1 - p_y)^2 + [tau - z_y]_+.

// tau - x, with the range of double.
template <class T> double short_of(T hi, T minus_lo, T x) {
    return (static_cast<double>(hi) - static_cast<double>(x)) - static_cast<double>(minus_lo);
}

template <class S> struct LabelLoss {
    using T = Compute<S>;
    static constexpr int W = Lanes<T>::W;
    const S* z;
    const std::int64_t* labels;
    std::int64_t ignore;
    T* loss;
    S* grad;
    Shape shape;

    // `stride` numbers from one entry of the row to the next.
    void finish(std::int64_t row, std::int64_t at, std::int64_t stride, T hi, T minus_lo, double squares, T score) {
        const std::int64_t label = labels[row];
        if (label == ignore && ignore != no_label) return fill(row, at, stride, T(0));
        if (label < 0 || label >= shape.cols || hi != hi) return fill(row, at, stride, no_tau<T>.hi);
        const T above = (score - hi) + minus_lo, p = above > 0 ? above : T(0);
        const double own = static_cast<double>(p), others = squares - own * own;
        double value = 0.5 * (others > 0 ? others : 0) + 0.5 * (1 - own) * (1 - own);
        if (!(above > 0)) value += short_of(hi, minus_lo, score);
        loss[row] = static_cast<T>(value);
        if (grad) write_one(grad + at + label * stride, p - 1);
    }

    // The score of the label, to be read before the gradient is written: it may be written over the scores.
    T score(std::int64_t row, std::int64_t at, std::int64_t stride) const {
        const std::int64_t label = labels[row];
        return label < 0 || label >= shape.cols ? T(0) : read_one(z + at + label * stride);
    }

    void fill(std::int64_t row, std::int64_t at, std::int64_t stride, T x) {
        loss[row] = x;
        for (std::int64_t j = 0; grad && j < shape.cols; ++j) write_one(grad + at + j * stride, x);
    }

    void line(std::int64_t row, std::int64_t at, const Line& line, const TauLanes<T>& tau, int count) {
        const std::int64_t stride = shape.inner;
        T scores[W], hi[W], minus_lo[W];
        double squares[W] = {};
        for (int i = 0; i < count; ++i) scores[i] = score(row + i, at + i, stride);
        store(hi, tau.hi);
        store(minus_lo, tau.minus_lo);
        Sum<T> sum;
        walk<T>(line, [&](std::int64_t i, auto part) {
            const Vec<T> p = probability<S>(tau, padded(z + at + i, part));
            sum.add(p * p);
            if (grad) write(grad + at + i, p, part);
        });
        if (stride == 1) squares[0] = sum.total();
        else sum.each(squares);
        for (int i = 0; i < count; ++i) finish(row + i, at + i, stride, hi[i], minus_lo[i], squares[i], scores[i]);
    }

    void row(std::int64_t number, std::int64_t at, LongSolver<S>& solver, Tau<T> tau) {
        const T own = score(number, at, 1);
        Sum<T> sum;
        store(solver.z + solver.n, splat(-infinity<T>));
        const TauLanes<T> lanes{splat(tau.hi), splat(tau.minus_lo)};
        for (std::int64_t i = 0; i < solver.n; i += W) {
            const Vec<T> p = probability<S>(lanes, load(solver.z + i));
            sum.add(p * p);
        }
        if (grad) SparsemaxJob<S>{z, grad, shape.cols}.row(number, at, solver, tau);
        finish(number, at, 1, tau.hi, tau.minus_lo, sum.total(), own);
    }

private:
    static Vec<T> padded(const S* p, Whole) { return load(p); }
    static Vec<T> padded(const S* p, Part part) { return load_n(p, part.n, -infinity<T>); }
};

template <class S> struct TargetLoss {
    using T = Compute<S>;
    static constexpr int W = Lanes<T>::W;
    const S *z, *q;
    T* loss;
    S* grad;
    Shape shape;

    void line(std::int64_t row, std::int64_t at, const Line& line, const TauLanes<T>& tau, int count) {
        const Vec<T> zero = splat(T(0)), half_ = splat(T(0.5));
        const TauLanes<T> halves{tau.hi * half_, tau.minus_lo * half_};
        Sum<T> sum;
        walk<T>(line, [&](std::int64_t i, auto part) {
            const Vec<T> score = read(z + at + i, part), above = tau.above(score), target = read(q + at + i, part);
            const Vec<T> p = max(zero, above), rest = p - target;
            // Off the support p is 0: 1/2 q^2 + q (tau - z), where q is not 0. Halves of the far ends of T's range have a
            // difference in that range.
            const Mask<T> off = both(gt(zero, above), not_le(abs(target), zero));
            const Vec<T> term = rest * rest * half_;
            const Vec<T> far = target * select(off, halves.above(score * half_), zero);
            sum.add(kept(select(off, term - (far + far), term), part));
            if (grad) write(grad + at + i, rest, part);
        });
        if (shape.inner == 1) loss[row] = static_cast<T>(sum.total());
        else {
            double lanes[W];
            sum.each(lanes);
            for (int i = 0; i < count; ++i) loss[row + i] = static_cast<T>(lanes[i]);
        }
    }

    void row(std::int64_t number, std::int64_t at, const LongSolver<S>&, Tau<T> tau) {
        line(number, at, along<T>(shape.cols), {splat(tau.hi), splat(tau.minus_lo)}, 1);
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

template <class S>
void run_loss(const void* z, const void* target, bool labels, std::int64_t ignore, void* loss, void* grad, Rows rows) {
    using T = Compute<S>;
    if (labels) {
        LabelLoss<S> job{static_cast<const S*>(z),
                         static_cast<const std::int64_t*>(target),
                         ignore,
                         static_cast<T*>(loss),
                         static_cast<S*>(grad),
                         rows.shape};
        solve(job.z, rows, job);
    } else {
        TargetLoss<S> job{static_cast<const S*>(z), static_cast<const S*>(target), static_cast<T*>(loss),
                          static_cast<S*>(grad), rows.shape};
        solve(job.z, rows, job);
    }
}
