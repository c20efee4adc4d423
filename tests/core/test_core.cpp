// The core's C++ API, on every CPU target of this machine, without Python. Made to run under sanitizers.
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if !defined(_WIN32)
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "pool.hpp"
#include "rows.hpp"
#include "support.hpp"

using zerotail::Body;
using zerotail::LossTarget;
using zerotail::no_label;
using zerotail::Parallel;
using zerotail::sequential;
using zerotail::Shape;

namespace {

// ---- checks ---------------------------------------------------------------------------------------------------------

std::int64_t checks = 0, failures = 0;
constexpr std::int64_t most_printed = 100;

// What is being checked, for the line that a failing check prints.
struct Where {
    const char* type = "";
    Shape shape{};
    int shift = 0;
    std::int64_t row = -1;
    const char* kind = "";
} where;

void check(bool right, const char* what, int line, const std::string& detail = "") {
    ++checks;
    if (right || ++failures > most_printed) return;
    std::string row = where.row < 0 ? "" : ", row " + std::to_string(where.row) + " (" + where.kind + ")";
    const auto [outer, cols, inner] = where.shape;
    std::printf("test_core.cpp:%d: %s%s [%s %s %lldx%lldx%lld, shift %d%s]\n", line, what, detail.c_str(),
                zerotail::target(), where.type, static_cast<long long>(outer), static_cast<long long>(cols),
                static_cast<long long>(inner), where.shift, row.c_str());
}

#define CHECK(condition) check(static_cast<bool>(condition), #condition, __LINE__)
// An error, as a part of what is allowed.
#define CHECK_ERROR(part, what) check((part) <= 1, what, __LINE__, ": " + std::to_string(part) + " of what is allowed")

template <class S> void enter(const Problem<S>& problem) {
    where = {Format<S>::name, problem.shape, problem.shift, -1, ""};
}
template <class S, class F> void for_each_row(const Problem<S>& problem, F&& judge) {
    for (std::int64_t r = 0; r < problem.shape.rows(); ++r) {
        where.row = r;
        where.kind = problem.row(r).kind->name;
        judge(r, problem.row(r));
    }
    where.row = -1;
}

// ---- one function of the API, in every way that it is called --------------------------------------------------------

// The probabilities of rows [begin, begin + n) of the last axis, or of n columns of one outer block, by themselves.
template <class S> Array<S> alone(const Problem<S>& problem, std::int64_t begin, std::int64_t n) {
    const Shape part = problem.shape.inner == 1 ? Shape{n, problem.shape.cols, 1} : Shape{1, problem.shape.cols, n};
    Array<S> z(n * part.cols), p(n * part.cols);
    for (std::int64_t r = 0; r < n; ++r)
        for (std::int64_t j = 0; j < part.cols; ++j)
            z[part.inner == 1 ? r * part.cols + j : j * n + r] = problem.z[problem.at(begin + r, j)];
    zerotail::sparsemax(Format<S>::type, z.data(), p.data(), part, sequential());
    return p;
}

template <class S> Array<S> check_sparsemax(const Problem<S>& problem) {
    const Shape shape = problem.shape;
    const std::int64_t cols = shape.cols;
    const Array<S> z = problem.z;
    Array<S> p(problem.numbers(), problem.shift), in_place = problem.z;
    zerotail::sparsemax(Format<S>::type, z.data(), p.data(), shape, sequential());
    zerotail::sparsemax(Format<S>::type, in_place.data(), in_place.data(), shape, sequential());
    CHECK(in_place == p);
    CHECK(z == problem.z && z.untouched() && p.untouched());

    for_each_row(problem, [&](std::int64_t r, const Row& row) {
        double worst = 0, slack = 4 * Format<S>::eps;
        Sum sum;
        sum.add(-1);
        bool negative = false;
        for (std::int64_t j = 0; j < cols; ++j) {
            const double x = problem.read(p, r, j);
            worst = std::max(worst, off_entry<S>(x, row.exact.p[static_cast<std::size_t>(j)]));
            negative = negative || (!std::isnan(x) && std::signbit(x));
            sum.add(static_cast<long double>(x));
            if (row.exact.p[static_cast<std::size_t>(j)] > 0) slack += Format<S>::rounding(x);
        }
        CHECK_ERROR(worst, "entries of p");
        CHECK(!negative);
        if (row.exact.solved) CHECK_ERROR(off(static_cast<double>(sum.value()), 0, slack), "the sum of p");
    });

    // A row does not know what is around it.
    const std::int64_t group = shape.inner == 1 ? 1 : 2, step = cols > 130 ? 5 : 1;
    for (std::int64_t r = 0; r + group <= shape.rows(); r += step) {
        if (shape.inner > 1 && r / shape.inner != (r + 1) / shape.inner) continue;
        const Array<S> part = alone(problem, r, group);
        bool same = true;
        for (std::int64_t j = 0; j < cols; ++j)
            for (std::int64_t i = 0; i < group; ++i)
                same = same && std::memcmp(&part[j * group + i], &p[problem.at(r + i, j)], sizeof(S)) == 0;
        CHECK(same);
    }
    return p;
}

// hi, lo and size of the rows.
template <class S> struct Thresholds {
    Array<Compute<S>> hi, lo;
    Array<std::int64_t> size;

    Thresholds(const Problem<S>& problem, const Parallel& parallel)
        : hi(problem.shape.rows(), problem.shift),
          lo(problem.shape.rows(), problem.shift),
          size(problem.shape.rows(), problem.shift) {
        zerotail::threshold(Format<S>::type, problem.z.data(), hi.data(), lo.data(), size.data(), problem.shape,
                            parallel);
    }
};

template <class S> void check_threshold(const Problem<S>& problem, const Array<S>& p, const Thresholds<S>& tau) {
    const Array<S> z = problem.z;
    for_each_row(problem, [&](std::int64_t r, const Row& row) {
        std::int64_t size = 0;
        for (std::int64_t j = 0; j < problem.shape.cols; ++j) size += problem.read(p, r, j) > 0;
        CHECK(tau.size[r] == size);
        const auto hi = static_cast<long double>(tau.hi[r]), lo = static_cast<long double>(tau.lo[r]);
        if (!row.exact.solved) {
            CHECK(std::isnan(hi) && lo == 0 && size == 0);
            return;
        }
        const long double top = static_cast<long double>(row.exact.top);
        CHECK_ERROR(off(static_cast<double>((hi - top) + lo), row.exact.tau, 4 * Format<S>::eps), "hi + lo");
        // hi is tau rounded: what is left is at most half of its last place.
        const auto size_of_hi = std::fabs(tau.hi[r]);
        CHECK(2 * std::fabs(tau.lo[r]) <= std::nextafter(size_of_hi, static_cast<Compute<S>>(inf)) - size_of_hi);
    });

    Array<Compute<S>> hi(tau.hi.size()), lo(tau.lo.size());
    Array<std::int64_t> size(tau.size.size());
    const auto ask = [&](void* h, void* l, std::int64_t* s) {
        zerotail::threshold(Format<S>::type, z.data(), h, l, s, problem.shape, sequential());
    };
    ask(hi.data(), nullptr, nullptr);
    ask(nullptr, lo.data(), nullptr);
    ask(nullptr, nullptr, size.data());
    CHECK(hi == tau.hi && lo == tau.lo && size == tau.size);
    CHECK(z == problem.z && tau.hi.untouched() && tau.lo.untouched() && tau.size.untouched());
}

// The support in rows, `front` numbers behind the start of the output.
template <class S> struct Support {
    Array<std::int64_t> offsets;
    Array<S> values;
    Array<std::int32_t> indices;

    Support(const Problem<S>& problem, const Thresholds<S>& tau, const Parallel& parallel, std::int64_t front = 0)
        : offsets(ends(tau.size, front)),
          values(offsets[tau.size.size()], problem.shift),
          indices(offsets[tau.size.size()], problem.shift) {
        zerotail::compact(Format<S>::type, problem.z.data(), tau.hi.data(), tau.lo.data(), offsets.data(),
                          values.data(), indices.data(), problem.shape.rows(), problem.shape.cols, parallel);
    }

private:
    static Array<std::int64_t> ends(const Array<std::int64_t>& sizes, std::int64_t front) {
        Array<std::int64_t> out(sizes.size() + 1);
        out[0] = front;
        for (std::int64_t r = 0; r < sizes.size(); ++r) out[r + 1] = out[r] + sizes[r];
        return out;
    }
};

template <class S> void check_compact(const Problem<S>& problem, const Array<S>& p, const Thresholds<S>& tau) {
    constexpr std::int64_t front = 3;
    const Support<S> support(problem, tau, sequential(), front);
    CHECK(support.values.untouched(front) && support.indices.untouched(front));
    for_each_row(problem, [&](std::int64_t r, const Row&) {
        std::int64_t at = support.offsets[r];
        bool same = true;
        for (std::int64_t j = 0; j < problem.shape.cols; ++j) {
            const S& x = p[problem.at(r, j)];
            if (!(Format<S>::read(x) > 0)) continue;
            same = same && at < support.offsets[r + 1] && support.indices[at] == j &&
                   std::memcmp(&support.values[at], &x, sizeof(S)) == 0;
            ++at;
        }
        CHECK(same && at == support.offsets[r + 1]);
    });
}

template <class S> void check_jvp(const Problem<S>& problem, const Array<S>& p) {
    const auto run = [&](const Array<S>& on, const Array<S>& tangents, Array<S>& to) {
        zerotail::jvp(Format<S>::type, on.data(), tangents.data(), to.data(), problem.shape, sequential());
    };
    const Array<S> v = problem.v;
    Array<S> probabilities = p, out(problem.numbers(), problem.shift);
    // A row that takes no part.
    if (problem.shape.rows() > 2)
        for (std::int64_t j = 0; j < problem.shape.cols; ++j) probabilities[problem.at(1, j)] = Format<S>::write(0);
    const Array<S> before = probabilities;
    Array<S> over_p = probabilities, over_v = v;
    run(probabilities, v, out);
    CHECK(v == problem.v && probabilities == before && out.untouched());
    for_each_row(problem, [&](std::int64_t r, const Row& row) {
        const Numbers on = problem.read(probabilities, r);
        const std::vector<long double> exact = jvp(on, row.v);
        double scale = DBL_MIN, worst = 0;
        for (std::size_t j = 0; j < on.size(); ++j)
            if (on[j] > 0) scale = std::max(scale, std::fabs(row.v[j]));
        for (std::size_t j = 0; j < on.size(); ++j)
            worst = std::max(worst, off_entry<S>(problem.read(out, r, static_cast<std::int64_t>(j)), exact[j], scale));
        CHECK_ERROR(worst, "J v");
    });
    run(over_p, v, over_p);
    run(probabilities, over_v, over_v);
    CHECK(over_p == out && over_v == out);
}

// The loss of each row, its gradient, tau, and the gradient once more, from tau and times a number a row.
template <class S> struct Loss {
    Array<Compute<S>> loss, hi, lo, v;
    Array<S> grad, product;

    Loss(const Problem<S>& problem, const LossTarget& target, const Parallel& parallel)
        : loss(problem.shape.rows(), problem.shift),
          hi(problem.shape.rows(), problem.shift),
          lo(problem.shape.rows(), problem.shift),
          v(problem.shape.rows(), problem.shift),
          grad(problem.numbers(), problem.shift),
          product(problem.numbers(), problem.shift) {
        constexpr Compute<S> factors[] = {1, Compute<S>(-0.3), 0, Compute<S>(2.5), Compute<S>(1e-6)};
        for (std::int64_t r = 0; r < v.size(); ++r) v[r] = factors[r % 5];
        zerotail::loss(Format<S>::type, problem.z.data(), target, {loss.data(), grad.data(), hi.data(), lo.data()},
                       problem.shape, parallel);
        multiply(problem, problem.z.data(), target, product.data(), parallel);
    }
    void multiply(const Problem<S>& problem, const S* z, const LossTarget& target, S* to,
                  const Parallel& parallel) const {
        zerotail::loss_gradient(Format<S>::type, z, target, hi.data(), lo.data(), v.data(), to, problem.shape,
                                parallel);
    }
    bool operator==(const Loss& other) const {
        return loss == other.loss && grad == other.grad && hi == other.hi && lo == other.lo && product == other.product;
    }
    bool untouched() const {
        return loss.untouched() && grad.untouched() && hi.untouched() && lo.untouched() && product.untouched();
    }
};

template <class S>
void check_loss(const Problem<S>& problem, const Loss<S>& result, const Thresholds<S>& tau, std::int64_t r,
                const Row& row, const Numbers& q) {
    double worst = 0, worst_product = 0;
    const auto v = static_cast<double>(result.v[r]);
    for (std::size_t j = 0; j < q.size(); ++j) {
        const auto at = static_cast<std::int64_t>(j);
        const long double exact = row.exact.p[j] - static_cast<long double>(q[j]);
        worst = std::max(worst, off_entry<S>(problem.read(result.grad, r, at), exact));
        worst_product =
            std::max(worst_product, off_entry<S>(problem.read(result.product, r, at),
                                                 static_cast<long double>(v) * exact, std::max(std::fabs(v), DBL_MIN)));
    }
    CHECK_ERROR(worst, "the gradient");
    CHECK_ERROR(worst_product, "the gradient times v");
    CHECK_ERROR(off_loss<S>(static_cast<double>(result.loss[r]), loss(row.z, row.exact, q)), "the loss");
    const bool same = std::memcmp(&result.hi[r], &tau.hi[r], sizeof tau.hi[r]) == 0 && result.lo[r] == tau.lo[r];
    CHECK(same);
}

// A row that does not count, or has no loss: one value everywhere.
template <class S, class F>
void check_flat(const Problem<S>& problem, const Loss<S>& result, std::int64_t r, F&& right, Compute<S> hi) {
    const Numbers grad = problem.read(result.grad, r), product = problem.read(result.product, r);
    CHECK(right(static_cast<double>(result.loss[r])));
    CHECK(std::all_of(grad.begin(), grad.end(), right) && std::all_of(product.begin(), product.end(), right));
    const bool same = std::isnan(hi) ? std::isnan(result.hi[r]) : result.hi[r] == hi;
    CHECK(same && result.lo[r] == 0);
}

bool is_nan(double x) { return std::isnan(x); }
bool is_zero(double x) { return x == 0 && !std::signbit(x); }

template <class S> void check_loss_labels(const Problem<S>& problem, const Thresholds<S>& tau, std::int64_t ignore) {
    Array<S> z = problem.z, over_z = problem.z;
    const Array<std::int64_t> labels = problem.labels;
    const LossTarget target = zerotail::labels(labels.data(), ignore);
    const Loss<S> result(problem, target, sequential());
    for_each_row(problem, [&](std::int64_t r, const Row& row) {
        const std::int64_t label = problem.labels[r];
        if (label == ignore && ignore != no_label) {
            check_flat(problem, result, r, is_zero, std::numeric_limits<Compute<S>>::infinity());
        } else if (label < 0 || label >= problem.shape.cols) {
            check_flat(problem, result, r, is_nan, std::numeric_limits<Compute<S>>::quiet_NaN());
        } else {
            Numbers q(row.z.size(), 0);
            q[static_cast<std::size_t>(label)] = 1;
            check_loss(problem, result, tau, r, row, q);
        }
    });
    Array<Compute<S>> loss(problem.shape.rows());
    const auto run = [&](S* grad) {
        zerotail::loss(Format<S>::type, z.data(), target, {loss.data(), grad, nullptr, nullptr}, problem.shape,
                       sequential());
    };
    run(nullptr);
    CHECK(loss == result.loss);
    CHECK(z == problem.z && labels == problem.labels && result.untouched());
    run(z.data());
    CHECK(loss == result.loss && z == result.grad);
    result.multiply(problem, over_z.data(), target, over_z.data(), sequential());
    CHECK(over_z == result.product);
}

template <class S> void check_loss_target(const Problem<S>& problem, const Thresholds<S>& tau) {
    const Array<S> z = problem.z, q = problem.q;
    Array<S> over_z = problem.z, over_q = problem.q;
    const Loss<S> result(problem, zerotail::distribution(q.data()), sequential());
    for_each_row(problem, [&](std::int64_t r, const Row& row) {
        const bool nothing = std::all_of(row.q.begin(), row.q.end(), is_zero);
        if (nothing) check_flat(problem, result, r, is_zero, std::numeric_limits<Compute<S>>::infinity());
        else check_loss(problem, result, tau, r, row, row.q);
    });
    Array<Compute<S>> loss(problem.shape.rows());
    const auto run = [&](const Array<S>& scores, const Array<S>& target, S* grad) {
        zerotail::loss(Format<S>::type, scores.data(), zerotail::distribution(target.data()),
                       {loss.data(), grad, nullptr, nullptr}, problem.shape, sequential());
        return loss == result.loss;
    };
    CHECK(run(z, q, nullptr));
    CHECK(z == problem.z && q == problem.q && result.untouched());
    CHECK(run(over_z, q, over_z.data()) && over_z == result.grad);
    CHECK(run(z, over_q, over_q.data()) && over_q == result.grad);
    Array<S> product_z = problem.z, product_q = q;
    result.multiply(problem, product_z.data(), zerotail::distribution(q.data()), product_z.data(), sequential());
    result.multiply(problem, z.data(), zerotail::distribution(product_q.data()), product_q.data(), sequential());
    CHECK(product_z == result.product && product_q == result.product);
}

template <class F> void for_each_target(F&& run) {
    for (const char* const* name = zerotail::targets(); *name; ++name) {
        CHECK(zerotail::use_target(*name));
        run();
    }
    CHECK(zerotail::use_target(*zerotail::targets()));
}

template <class S> void check_all(Shape shape, int shift, std::uint64_t seed) {
    const Problem<S> problem(shape, shift, seed);
    for_each_target([&] {
        enter(problem);
        const Array<S> p = check_sparsemax(problem);
        const Thresholds<S> tau(problem, sequential());
        check_threshold(problem, p, tau);
        if (shape.inner == 1) check_compact(problem, p, tau);
        check_jvp(problem, p);
        const std::array ignore{no_label, std::int64_t{-100}, std::int64_t{0}};
        check_loss_labels(problem, tau, ignore[seed % ignore.size()]);
        check_loss_target(problem, tau);
    });
}

// ---- rows over threads ----------------------------------------------------------------------------------------------

// Everything that the core says of a problem.
template <class S> struct Answers {
    Array<S> p, jvp;
    Thresholds<S> tau;
    std::vector<Support<S>> support;
    Loss<S> labels, target;

    Answers(const Problem<S>& problem, const Parallel& parallel)
        : p(problem.numbers()),
          jvp(problem.numbers()),
          tau(problem, parallel),
          labels(problem, zerotail::labels(problem.labels.data(), -100), parallel),
          target(problem, zerotail::distribution(problem.q.data()), parallel) {
        const auto type = Format<S>::type;
        zerotail::sparsemax(type, problem.z.data(), p.data(), problem.shape, parallel);
        zerotail::jvp(type, p.data(), problem.v.data(), jvp.data(), problem.shape, parallel);
        if (problem.shape.inner == 1) support.emplace_back(problem, tau, parallel);
    }
    bool operator==(const Answers& other) const {
        for (std::size_t i = 0; i < support.size(); ++i)
            if (!(support[i].values == other.support[i].values && support[i].indices == other.support[i].indices))
                return false;
        return p == other.p && jvp == other.jvp && tau.hi == other.tau.hi && tau.lo == other.tau.lo &&
               tau.size == other.tau.size && labels == other.labels && target == other.target;
    }
};

// Cuts rows into ranges that begin wherever they like, and takes the last one first, or each in a thread of its own.
struct Odd {
    bool threads;
    std::atomic<std::int64_t> calls{0}, wrong{0}, rows{0};

    explicit Odd(bool threads_) : threads(threads_) {}
    Parallel parallel() { return {&Odd::run, this}; }

    static void run(void* self, std::int64_t size, std::int64_t grain, Body body, void* context) {
        Odd& odd = *static_cast<Odd*>(self);
        ++odd.calls;
        if (size < 1 || grain < 1 || size != odd.rows) ++odd.wrong;
        std::vector<std::int64_t> ends{0};
        for (std::int64_t more = 1; ends.back() < size; more += 2)
            ends.push_back(std::min(size, ends.back() + grain + more));
        std::vector<std::thread> running;
        for (std::size_t i = ends.size() - 1; i > 0; --i) {
            if (odd.threads) running.emplace_back(body, context, ends[i - 1], ends[i]);
            else body(context, ends[i - 1], ends[i]);
        }
        for (std::thread& thread : running) thread.join();
    }
};

template <class S> void check_parallel(Shape shape, std::uint64_t seed) {
    const Problem<S> problem(shape, 0, seed);
    for_each_target([&] {
        enter(problem);
        const Answers<S> expected(problem, sequential());
        for (bool threads : {false, true}) {
            Odd odd(threads);
            odd.rows = shape.rows();
            const Answers<S> answers(problem, odd.parallel());
            CHECK(answers == expected);
            CHECK(odd.calls == (shape.inner == 1 ? 8 : 7) && odd.wrong == 0);
        }
    });
}

// What the pool promises of every piece of work: each row once, in ranges of at least `grain`, all done on return.
void check_ranges(std::int64_t size, std::int64_t grain) {
    struct Marks {
        std::vector<std::atomic<int>> rows;
        std::int64_t grain;
        std::atomic<int> small{0};
    } marks{std::vector<std::atomic<int>>(static_cast<std::size_t>(size)), grain};
    const Parallel pool = zerotail::pool();
    pool.run(
        pool.self, size, grain,
        [](void* context, std::int64_t begin, std::int64_t end) noexcept {
            Marks& m = *static_cast<Marks*>(context);
            // Whoever does not wait for this does not see it.
            std::this_thread::sleep_for(std::chrono::microseconds(200));
            if (end - begin < m.grain && end != static_cast<std::int64_t>(m.rows.size())) ++m.small;
            for (std::int64_t r = begin; r < end; ++r) ++m.rows[static_cast<std::size_t>(r)];
        },
        &marks);
    const bool once = std::all_of(marks.rows.begin(), marks.rows.end(), [](const auto& n) { return n == 1; });
    CHECK(once && marks.small == 0);
}

template <class S> void check_pool(Shape shape) {
    const Problem<S> problem(shape, 0, 1), other({shape.outer + 5, shape.cols - 1, shape.inner}, 0, 2);
    enter(problem);
    const Answers<S> expected(problem, sequential()), expected_other(other, sequential());
    for (int threads : {1, 2, 3, 7, 2}) {
        zerotail::set_num_threads(threads);
        CHECK(zerotail::get_num_threads() == threads);
        for (std::int64_t size : {1, 15, 16, 17, 1000})
            for (std::int64_t grain : {1, 16}) check_ranges(size, grain);
        for (int i = 0; i < 5; ++i) CHECK(Answers<S>(problem, zerotail::pool()) == expected);
    }
    zerotail::set_num_threads(-1);
    CHECK(zerotail::get_num_threads() == 1);

    // Callers that meet: one has the pool, the others work for themselves.
    zerotail::set_num_threads(3);
    std::atomic<int> wrong{0}, done{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller)
        callers.emplace_back([&, caller] {
            for (int i = 0; i < 8; ++i) {
                const bool right = caller % 2 ? Answers<S>(problem, zerotail::pool()) == expected
                                              : Answers<S>(other, zerotail::pool()) == expected_other;
                if (!right) ++wrong;
                ++done;
            }
        });
    for (int i = 0; done < 32; ++i) {
        zerotail::set_num_threads(1 + i % 4);
        std::this_thread::yield();
    }
    for (std::thread& caller : callers) caller.join();
    CHECK(wrong == 0);

#if !defined(_WIN32)
    // A child has none of its parent's threads.
    zerotail::set_num_threads(3);
    CHECK(Answers<S>(problem, zerotail::pool()) == expected);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        const bool right = zerotail::get_num_threads() == 3 && Answers<S>(problem, zerotail::pool()) == expected;
        _exit(right ? 0 : 1);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(Answers<S>(problem, zerotail::pool()) == expected);
#endif
}

// ---- products with sparse rows --------------------------------------------------------------------------------------

// Sums of at most `terms` products, from an exact one: a rounding each.
template <class T> bool sums_to(T got, double exact, double absolute, std::size_t terms) {
    const double eps = static_cast<double>(std::numeric_limits<T>::epsilon());
    return std::abs(static_cast<double>(got) - exact) <= static_cast<double>(terms + 2) * eps * absolute;
}

// `zeros` of 8 entries of g are 0, and so are whole rows of it.
template <class T, class I> void check_csr(std::int64_t rows, std::int64_t cols, unsigned zeros, std::uint64_t seed) {
    where = {Format<T>::name, {rows, cols, 1}, static_cast<int>(zeros), -1, ""};
    constexpr std::int64_t features = 97;
    std::mt19937_64 random(seed);
    const auto number = [&] { return static_cast<T>(static_cast<double>(random() % 2001) / 1000 - 1); };
    std::vector<T> values, weights(features * static_cast<std::size_t>(cols)), bias(static_cast<std::size_t>(cols));
    std::vector<I> indices, offsets{0};
    for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t j = 0; j < features; ++j)
            if (random() % 16 < static_cast<std::uint64_t>(r % 5)) {
                values.push_back(number());
                indices.push_back(static_cast<I>(j));
            }
        offsets.push_back(static_cast<I>(indices.size()));
    }
    for (T& w : weights) w = number();
    for (T& b : bias) b = number();
    std::array<std::int64_t, features> position;
    for (std::int64_t j = 0; j < features; ++j) position[static_cast<std::size_t>(j)] = (j * 31 + 5) % features;
    std::vector<T> g(static_cast<std::size_t>(rows * cols));
    for (std::size_t i = 0; i < g.size(); ++i)
        g[i] = random() % 8 < zeros || i / static_cast<std::size_t>(cols) % 3 == 1 ? T(0) : number();

    const zerotail::Csr x{values.data(), indices.data(), offsets.data(), sizeof(I) == 8, position.data()};
    const auto at = [&](std::int64_t row, std::int64_t k) { return static_cast<std::size_t>(row * cols + k); };
    std::vector<double> sums(weights.size()), sizes(weights.size());
    const auto scores = [&](const Parallel& parallel) {
        std::vector<T> z(g.size(), std::numeric_limits<T>::quiet_NaN());
        zerotail::csr_scores(Format<T>::type, x, weights.data(), bias.data(), z.data(), rows, cols, parallel);
        return z;
    };
    const auto gradient = [&](const std::vector<std::int64_t>& bounds, const Parallel& parallel) {
        std::vector<double> total(weights.size(), 0.5);
        zerotail::csr_gradient(Format<T>::type, x, g.data(), total.data(), rows, cols, bounds.data(),
                               static_cast<std::int64_t>(bounds.size()) - 1, parallel);
        return total;
    };
    const std::vector<T> z = scores(sequential());
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t k = 0; k < cols; ++k) {
            double sum = static_cast<double>(bias[static_cast<std::size_t>(k)]), size = std::abs(sum);
            for (I i = offsets[static_cast<std::size_t>(r)]; i < offsets[static_cast<std::size_t>(r) + 1]; ++i) {
                const std::size_t entry = static_cast<std::size_t>(i);
                const std::size_t w = at(position[static_cast<std::size_t>(indices[entry])], k);
                const double v = static_cast<double>(values[entry]);
                sum += v * static_cast<double>(weights[w]);
                size += std::abs(v * static_cast<double>(weights[w]));
                sums[w] += v * static_cast<double>(g[at(r, k)]);
                sizes[w] += std::abs(v * static_cast<double>(g[at(r, k)]));
            }
            CHECK(sums_to(z[at(r, k)], sum, size, features));
        }
    const std::vector<double> total = gradient({0, features}, sequential());
    for (std::size_t i = 0; i < total.size(); ++i)
        CHECK(sums_to(total[i], sums[i] + 0.5, sizes[i] + 0.5, static_cast<std::size_t>(rows)));
    // To the bit the same by any threads, and however the features are shared out.
    CHECK(scores(zerotail::pool()) == z);
    CHECK(gradient({0, 0, 40, 41, features}, zerotail::pool()) == total);
}

// ---- what is run ----------------------------------------------------------------------------------------------------

// ---- lists of supports ----------------------------------------------------------------------------------------------

// Lists hold what sparsemax has above 0, in memory that ends where the room does; sums over them are those of dense rows.
template <class T> void check_lists(std::int64_t rows, std::int64_t cols, std::int64_t features) {
    where = {sizeof(T) == 4 ? "f32" : "f64", {rows, cols, 1}, 0, -1, ""};
    const zerotail::Type type = sizeof(T) == 4 ? zerotail::Type::f32 : zerotail::Type::f64;
    const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    const auto fill = [&](std::int64_t n, unsigned seed) {
        std::vector<T> x(size(n));
        for (T& value : x) value = static_cast<T>((seed = seed * 1664525u + 1013904223u) >> 8) / T(1 << 22) - 2;
        return x;
    };
    const std::vector<T> z = fill(rows * cols, 1), table = fill(cols * features, 2), x = fill(rows * features, 3);
    std::vector<T> p(z.size()), hi(size(rows)), lo(size(rows)), above(z.size());
    zerotail::sparsemax(type, z.data(), p.data(), {rows, cols, 1}, sequential());
    std::vector<std::int64_t> offsets(size(rows + 1));
    std::int64_t all = 0;
    for (const T value : p) all += value > 0;
    const std::int64_t room = all + zerotail::support_spare;
    std::vector<T> values(size(room)), slopes(size(room));
    std::vector<std::int32_t> indices(size(room));
    const auto solve = [&](std::int64_t r) {
        return zerotail::support(
            type, z.data(), {hi.data(), lo.data(), offsets.data() + 1, values.data(), indices.data(), r}, rows, cols);
    };
    CHECK(solve(0) == all);  // counts where nothing fits
    CHECK(solve(room) == all);
    for (std::int64_t r = 0; r < rows; ++r) offsets[size(r + 1)] += offsets[size(r)];
    CHECK(offsets[size(rows)] == all);
    zerotail::above(type, z.data(), hi.data(), lo.data(), above.data(), rows, cols);
    CHECK(above == p);
    std::vector<T> sums(size(rows * features)), turned_sums(size(cols * features), T(1));
    const zerotail::Lists lists{offsets.data(), indices.data()};
    zerotail::combine(type, lists, values.data(), {table.data(), features, features}, {sums.data(), features}, 0, rows,
                      false);
    zerotail::slopes(type, lists, {table.data(), features, features}, {x.data(), features, features}, slopes.data(), 2,
                     0, rows);
    const double eps = (sizeof(T) == 4 ? 0x1p-23 : 0x1p-52) * static_cast<double>(16 + cols + features);
    std::vector<double> want(turned_sums.size(), 1.0);
    for (std::int64_t r = 0; r < rows; ++r) {
        std::int64_t e = offsets[size(r)];
        double mean = 0;
        std::vector<double> dots(size(cols));
        for (std::int64_t j = 0; j < cols; ++j) {
            if (!(p[size(r * cols + j)] > 0)) continue;
            CHECK(e < offsets[size(r + 1)] && indices[size(e)] == j && values[size(e)] == p[size(r * cols + j)]);
            ++e;
            for (std::int64_t c = 0; c < features; ++c) {
                const double y = static_cast<double>(table[size(j * features + c)]);
                dots[size(j)] += y * static_cast<double>(x[size(r * features + c)]);
                want[size(j * features + c)] +=
                    static_cast<double>(p[size(r * cols + j)]) * static_cast<double>(x[size(r * features + c)]);
            }
            mean += dots[size(j)];
        }
        mean /= static_cast<double>(e - offsets[size(r)]);
        for (e = offsets[size(r)]; e < offsets[size(r + 1)]; ++e)
            CHECK_ERROR(
                std::abs(static_cast<double>(slopes[size(e)]) - 2 * (dots[size(indices[size(e)])] - mean)) / (eps * 16),
                "a slope");
        for (std::int64_t c = 0; c < features; ++c) {
            double sum = 0;
            for (e = offsets[size(r)]; e < offsets[size(r + 1)]; ++e)
                sum += static_cast<double>(values[size(e)]) *
                       static_cast<double>(table[size(indices[size(e)] * features + c)]);
            CHECK_ERROR(std::abs(static_cast<double>(sums[size(r * features + c)]) - sum) / (eps * 4), "a sum");
        }
    }
    // Turned over in two ranges of columns, and added to what is there.
    for (const auto& [first, count] : {std::pair{std::int64_t(0), cols / 3}, std::pair{cols / 3, cols - cols / 3}}) {
        std::vector<std::int64_t> starts(size(count + 1));
        std::vector<std::int32_t> row;
        std::vector<T> weights;
        zerotail::turn_over(
            lists, 0, rows, first, count, starts.data(),
            [&, &row = row, &weights = weights](std::int64_t n) { row.resize(size(n)), weights.resize(size(n)); },
            [&, &row = row, &weights = weights](std::int64_t at, std::int64_t e, std::int64_t r) {
                row[size(at)] = static_cast<std::int32_t>(r);
                weights[size(at)] = values[size(e)];
            });
        zerotail::combine(type, {starts.data(), row.data()}, weights.data(), {x.data(), features, features},
                          {turned_sums.data() + first * features, features}, 0, count, true);
    }
    for (std::size_t i = 0; i < want.size(); ++i)
        CHECK_ERROR(std::abs(static_cast<double>(turned_sums[i]) - want[i]) / (eps * 16), "a sum of columns");
}

template <class T> void check_lists() {
    for (const char* const* name = zerotail::targets(); *name; ++name) {
        CHECK(zerotail::use_target(*name));
        for (const std::int64_t cols : {1, 5, 63, 64, 65, 300, 1025, 5000})
            for (const std::int64_t features : {1, 7, 16, 61, 128}) check_lists<T>(19, cols, features);
    }
    zerotail::use_target(*zerotail::targets());
}

void check_targets() {
    const char* const* names = zerotail::targets();
    std::vector<std::string> all;
    for (; *names; ++names) all.emplace_back(*names);
    CHECK(!all.empty() && all.back() == "baseline");
    CHECK(std::find(all.begin(), all.end(), zerotail::target()) != all.end());
    for (const std::string& name : all) CHECK(zerotail::use_target(name.c_str()) && name == zerotail::target());
    CHECK(!zerotail::use_target("none of them") && all.back() == zerotail::target());
}

template <class S> void check_type() {
    constexpr std::int64_t inners[] = {2, 3, 7, 16, 17, 40};
    const auto layouts = [&](std::int64_t cols, std::uint64_t seed, std::size_t first, std::size_t step) {
        check_all<S>({kind_count, cols, 1}, static_cast<int>(seed % 4), seed);
        for (std::size_t i = first % std::size(inners); i < std::size(inners); i += step)
            check_all<S>({(kind_count + inners[i] - 1) / inners[i], cols, inners[i]}, static_cast<int>((seed + i) % 3),
                         seed);
    };
    std::uint64_t seed = 0;
    for (std::int64_t cols = 0; cols <= 130; ++cols, ++seed) layouts(cols, seed, seed, cols % 8 < 2 ? 1 : 3);
    // About whole blocks and whole chunks of both compute types.
    for (std::int64_t cols : {257, 509, 511, 512, 513, 1023, 1024, 1025, 1026, 2047, 2048, 2049, 4097, 5000, 17000})
        layouts(cols, seed, seed, std::size(inners)), ++seed;
    for (Shape nothing : {Shape{0, 5, 1}, Shape{0, 2000, 1}, Shape{0, 0, 1}, Shape{3, 5, 0}, Shape{0, 5, 3}})
        check_all<S>(nothing, 0, 0);

    for (Shape shape : {Shape{33001, 1, 1}, Shape{11003, 3, 1}, Shape{701, 61, 1}, Shape{151, 300, 1},
                        Shape{41, 1500, 1}, Shape{23, 5000, 1}, Shape{5, 33000, 1}, Shape{101, 61, 7},
                        Shape{3, 300, 70}, Shape{1, 1500, 41}, Shape{7, 5000, 5}, Shape{2, 33000, 3}})
        check_parallel<S>(shape, ++seed);
}

}  // namespace

int main() {
    check_targets();
    check_type<float>();
    check_type<double>();
    check_type<Half>();
    check_type<Bfloat>();
    for (const char* const* name = zerotail::targets(); *name; ++name) {
        zerotail::use_target(*name);
        std::uint64_t seed = 0;
        for (std::int64_t cols : {1, 2, 3, 7, 8, 16, 31, 36, 101})
            for (unsigned zeros : {0u, 7u})
                for (std::int64_t rows : {0, 1, 5, 203}) {
                    check_csr<float, std::int32_t>(rows, cols, zeros, ++seed);
                    check_csr<double, std::int64_t>(rows, cols, zeros, ++seed);
                }
    }
    zerotail::use_target(*zerotail::targets());
    check_lists<float>();
    check_lists<double>();
    check_pool<float>({701, 61, 1});
    check_pool<double>({3, 300, 70});
    if (failures > most_printed) std::printf("... and %lld more\n", static_cast<long long>(failures - most_printed));
    std::printf("%lld checks passed, %lld failed\n", static_cast<long long>(checks - failures),
                static_cast<long long>(failures));
    return checks == 0 || failures > 0;
}
