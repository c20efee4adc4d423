// Attention and weighted sums by supports: scores live for a block of queries, then only what is not zero is kept.
//
// A block whose supports are large is kept as its thresholds alone, and multiplied as a whole: its scores are made again
// for the gradient. So no case costs much more than dense matrices, and none needs their memory.
//
// The parts of the work are those of the problem and never those of the threads: so is every sum.
#include <algorithm>
#include <vector>

#include "torch_blocks.hpp"

namespace zerotail {
namespace {

// Parts of the work of one group at the backward pass, when there are few groups.
constexpr std::int64_t parts_of_all = 8;

// A tensor of batch x heads x rows x cols whose last dimension is dense.
template <class T> struct View {
    T* data;
    std::int64_t batch, heads, rows, cols, step_batch, step_head, step_row;

    explicit View(const Tensor& tensor) : data(numbers<T>(tensor)) {
        const std::int64_t *sizes = tensor.sizes(), *strides = tensor.strides();
        batch = sizes[0], heads = sizes[1], rows = sizes[2], cols = sizes[3];
        step_batch = strides[0], step_head = strides[1], step_row = strides[2];
    }
    Matrix<T> of(std::int64_t b, std::int64_t h) const {
        return {data + b * step_batch + h * step_head, rows, cols, step_row};
    }
};

// A new tensor in the order of dimensions of another.
Tensor laid_out_like(const Tensor& like, std::int64_t cols) {
    const std::int64_t *s = like.sizes(), *steps = like.strides();
    const std::int64_t sizes[4] = {s[0], s[1], s[2], cols};
    const bool heads_inside = steps[1] < steps[2];
    const std::int64_t head = heads_inside ? cols : s[2] * cols, row = heads_inside ? s[1] * cols : cols;
    const std::int64_t strides[4] = {s[1] * s[2] * cols, head, row, 1};
    return Tensor::strided(like.dtype(), sizes, strides, 4);
}

struct Mask {
    const char* data = nullptr;
    std::int64_t step[4] = {};
    bool is_bool = false;
    std::size_t size = 1;

    explicit Mask(const Tensor& tensor) {
        if (tensor.dims() != 4) return;  // there is none
        data = static_cast<const char*>(tensor.data());
        is_bool = tensor.dtype() == types.boolean;
        for (int i = 0; i < 4; ++i) step[i] = tensor.sizes()[i] == 1 ? 0 : tensor.strides()[i];
    }

    template <class T> const T* row(std::int64_t b, std::int64_t h, std::int64_t i) const {
        return reinterpret_cast<const T*>(data) + b * step[0] + h * step[1] + i * step[2];
    }
    // Whether the mask leaves anything of a row.
    template <class T> bool leaves(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t cols) const {
        for (std::int64_t j = 0; j < cols; ++j)
            if (is_bool ? row<bool>(b, h, i)[j * step[3]]
                        : row<T>(b, h, i)[j * step[3]] != -std::numeric_limits<T>::infinity())
                return true;
        return false;
    }
    template <class T> void apply(T* z, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t cols) const {
        if (is_bool && step[3] == 1) return exclude(type_of<T>, z, row<bool>(b, h, i), cols);
        if (!is_bool && step[3] == 1) return add(type_of<T>, z, row<T>(b, h, i), cols);
        const T none = -std::numeric_limits<T>::infinity();
        if (is_bool) {
            for (std::int64_t j = 0; j < cols; ++j) z[j] = row<bool>(b, h, i)[j * step[3]] ? z[j] : none;
        } else {
            for (std::int64_t j = 0; j < cols; ++j) {
                const T x = row<T>(b, h, i)[j * step[3]];
                z[j] = x == none ? x : z[j] + x;
            }
        }
    }
};

// Queries [i, i + rows) of one head, which see the first `cols` keys.
struct Block { std::int64_t b, h, i, rows, cols; };

// Where scores come from: products of query and key, or a tensor of them.
template <class T> struct Scores {
    const View<T> query;  // or the scores themselves
    const View<T>* key;
    Mask mask;
    double scale;
    bool causal;
    std::int64_t block, kv_heads, keys;

    std::int64_t heads() const { return query.heads; }
    std::int64_t rows() const { return query.rows; }
    std::int64_t group() const { return kv_heads ? heads() / kv_heads : 1; }
    std::int64_t blocks_of_head() const { return (rows() + block - 1) / block; }
    std::int64_t blocks() const { return query.batch * heads() * blocks_of_head(); }

    Block at(std::int64_t t) const {
        const std::int64_t each = blocks_of_head(), head = t / each, n_th = t % each;
        // Long and short ones in turn, so that threads that share a head have as much to do.
        const std::int64_t i = (!causal ? n_th : n_th % 2 ? each - 1 - n_th / 2 : n_th / 2) * block;
        const std::int64_t n = rows() - i < block ? rows() - i : block;
        return {head / heads(), head % heads(), i, n, causal && i + n < keys ? i + n : keys};
    }
    std::int64_t first_row(const Block& at) const { return (at.b * heads() + at.h) * rows() + at.i; }

    // The block's scores, dense: in `space`, or where they lie.
    T* make(const Block& at, T* space) const {
        const Matrix<T> own = query.of(at.b, at.h).from(at.i, at.rows);
        const bool in_place = !key && !mask.data && own.row_step == keys;
        if (in_place) return own.data;
        const Matrix<T> z{space, at.rows, at.cols, at.cols};
        if (key) product(z, own, key->of(at.b, at.h / group()).from(0, at.cols).t(), 0, scale);
        for (std::int64_t r = 0; r < at.rows; ++r) {
            T* row = space + r * at.cols;
            if (!key) std::memcpy(row, own.data + r * own.row_step, sizeof(T) * static_cast<std::size_t>(at.cols));
            if (mask.data) mask.apply(row, at.b, at.h, at.i + r, at.cols);
            if (causal)
                for (std::int64_t j = at.i + r + 1; j < at.cols; ++j) row[j] = -std::numeric_limits<T>::infinity();
        }
        return space;
    }
    std::int64_t space() const { return block * keys; }
};

// What is kept of the scores: lists, or of a dense block the thresholds of its rows.
struct Kept {
    Tensor offsets, hi, lo, dense, indices, values;

    Lists lists() const { return {numbers<std::int64_t>(offsets), numbers<std::int32_t>(indices)}; }
    bool is_dense(std::int64_t t) const { return numbers<std::int64_t>(dense)[t] != 0; }
    bool any_dense() const {
        for (std::int64_t t = 0; t < dense.sizes()[0]; ++t)
            if (is_dense(t)) return true;
        return false;
    }
};

// The support of one block at a time, and the sums over it.
template <class T> class BlockSupport {
public:
    BlockSupport(const Scores<T>& scores_, const View<T>& value_, double density_)
        : scores(scores_),
          value(value_),
          density(density_),
          space(vector_of(types.of[sizeof(T) == 8], scores_.space())) {
        need(room_of(scores.space()));
    }

    // Writes hi, lo and sizes of the rows, which begin at the block's first; false for a dense block.
    bool solve(const Block& at, T* hi, T* lo, std::int64_t* sizes) {
        z = scores.make(at, numbers<T>(space));
        std::int64_t room = room_of(at.rows * at.cols);
        used = support(type_of<T>, z, {hi, lo, sizes, values.get(), indices.get(), room}, at.rows, at.cols);
        if (used + support_spare > room) {
            if (finite(value.of(at.b, at.h / scores.group()))) {
                empty_rows(at, hi, lo);
                for (std::int64_t r = 0; r < at.rows; ++r) sizes[r] = 0;
                return false;
            }
            // A value that is not finite must not meet a probability of 0.
            need(room = used + support_spare);
            support(type_of<T>, z, {hi, lo, sizes, values.get(), indices.get(), room}, at.rows, at.cols);
        }
        empty_rows(at, hi, lo);
        rows_of_nan(at, hi, sizes);
        return true;
    }

    void add_up_rows(const Block& at, const std::int64_t* sizes, const Matrix<T>& out) {
        offsets.resize(static_cast<std::size_t>(at.rows) + 1);
        for (std::int64_t r = 0; r < at.rows; ++r)
            offsets[static_cast<std::size_t>(r) + 1] = offsets[static_cast<std::size_t>(r)] + sizes[r];
        combine(type_of<T>, {offsets.data(), indices.get()}, values.get(),
                value.of(at.b, at.h / scores.group()).table(), out.out(), 0, at.rows, false);
    }
    void multiply(const Block& at, const T* hi, const T* lo, const Matrix<T>& out) {
        const Matrix<T> p{numbers<T>(space), at.rows, at.cols, at.cols};
        above(type_of<T>, z, hi, lo, p.data, at.rows, at.cols);
        product(out, p, value.of(at.b, at.h / scores.group()).from(0, at.cols));
    }
    void keep(Part<T>& part) const { part.copy(values.get(), indices.get(), used); }

private:
    const Scores<T>& scores;
    const View<T>& value;
    double density;
    Tensor space;
    T* z = nullptr;
    std::unique_ptr<T[]> values;
    std::unique_ptr<std::int32_t[]> indices;
    std::vector<std::int64_t> offsets;
    std::int64_t used = 0, owned = 0;

    std::int64_t room_of(std::int64_t cells) const {
        return static_cast<std::int64_t>(density * static_cast<double>(cells)) + support_spare;
    }
    void need(std::int64_t room) {
        if (room <= owned) return;
        owned = room;
        values.reset(new T[static_cast<std::size_t>(room)]);
        indices.reset(new std::int32_t[static_cast<std::size_t>(room)]);
    }

    // No score is above an infinite tau: a row that its mask empties is zeros.
    void empty_rows(const Block& at, T* hi, T* lo) const {
        for (std::int64_t r = 0; scores.mask.data && r < at.rows; ++r)
            if (is_nan(hi[r]) && !scores.mask.template leaves<T>(at.b, at.h, at.i + r, at.cols)) {
                hi[r] = std::numeric_limits<T>::infinity();
                lo[r] = 0;
            }
    }

    // A row without tau is NaN wherever it takes part.
    void rows_of_nan(const Block& at, const T* hi, std::int64_t* sizes) {
        std::int64_t more = 0;
        for (std::int64_t r = 0; r < at.rows; ++r) more += is_nan(hi[r]) ? at.cols : 0;
        if (!more) return;
        std::unique_ptr<T[]> old = std::move(values);
        std::unique_ptr<std::int32_t[]> old_indices = std::move(indices);
        need(std::max(owned + 1, used + more));
        std::int64_t from = 0, to = 0;
        for (std::int64_t r = 0; r < at.rows; ++r) {
            const std::int64_t n = is_nan(hi[r]) ? at.cols : sizes[r];
            for (std::int64_t e = 0; e < n; ++e, ++to) {
                values[static_cast<std::size_t>(to)] = is_nan(hi[r]) ? hi[r] : old[static_cast<std::size_t>(from + e)];
                indices[static_cast<std::size_t>(to)] =
                    is_nan(hi[r]) ? static_cast<std::int32_t>(e) : old_indices[static_cast<std::size_t>(from + e)];
            }
            from += sizes[r];
            sizes[r] = n;
        }
        used = to;
    }
};

struct Result {
    Tensor out;
    Kept kept;

    void give(Value* stack) {
        Value given[] = {out.give(),        kept.offsets.give(), kept.hi.give(),    kept.lo.give(),
                         kept.dense.give(), kept.indices.give(), kept.values.give()};
        std::memcpy(stack, given, sizeof given);
    }
};

template <class T>
Result forward(const Scores<T>& scores, const View<T>& value, const Tensor& like, double density) {
    const std::int64_t rows = scores.query.batch * scores.heads() * scores.rows(), blocks = scores.blocks();
    const std::int32_t dtype = types.of[sizeof(T) == 8];
    Tensor out = laid_out_like(like, value.cols), hi = vector_of(dtype, rows), lo = vector_of(dtype, rows);
    Tensor offsets = vector_of(types.int64, rows + 1), dense = vector_of(types.int64, blocks);
    const View<T> to(out);
    std::int64_t* const at_row = numbers<std::int64_t>(offsets);
    std::vector<Part<T>> parts(static_cast<std::size_t>(blocks));
    on_threads(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
        BlockSupport<T> block(scores, value, density);
        for (std::int64_t t = begin; t < end; ++t) {
            const Block at = scores.at(t);
            const std::int64_t first = scores.first_row(at);
            T *const top = numbers<T>(hi) + first, *const rest = numbers<T>(lo) + first;
            const Matrix<T> result = to.of(at.b, at.h).from(at.i, at.rows);
            const bool sparse = block.solve(at, top, rest, at_row + 1 + first);
            numbers<std::int64_t>(dense)[t] = !sparse;
            if (sparse) {
                block.add_up_rows(at, at_row + 1 + first, result);
                block.keep(parts[static_cast<std::size_t>(t)]);
            } else {
                block.multiply(at, top, rest, result);
            }
        }
    });
    const std::int64_t all = add_up(at_row, rows);
    Tensor indices = vector_of(types.int32, all), values = vector_of(dtype, all);
    on_threads(blocks, 64, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
            const std::int64_t at = at_row[scores.first_row(scores.at(t))];
            parts[static_cast<std::size_t>(t)].move_to(numbers<T>(values) + at, numbers<std::int32_t>(indices) + at);
        }
    });
    return {
        std::move(out),
        {std::move(offsets), std::move(hi), std::move(lo), std::move(dense), std::move(indices), std::move(values)}};
}

// ---- gradients ------------------------------------------------------------------------------------------------------

// What the gradients of keys and values become, in parts that are added up in order.
template <class T> class Backward {
public:
    Backward(const Scores<T>& scores_, const View<T>& value_, const View<T>& v_, const Kept& kept_)
        : scores(scores_),
          value(value_),
          v(v_),
          kept(kept_),
          lists(kept_.lists()),
          any_dense(kept_.any_dense()),
          slope(vector_of(dtype, kept_.values.sizes()[0])) {}

    // `in_query` is the gradient of the scores where there are no keys.
    void run(const View<T>& in_query, const View<T>* in_key, const View<T>& in_value) {
        rows_of_queries(in_query);
        if (any_dense) dense_blocks(in_query, in_key);
        const std::int64_t ranges = ranges_of_group();
        on_threads(groups() * ranges, 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t t = begin; t < end; ++t) keys_of(t / ranges, t % ranges, ranges, in_key, in_value);
        });
    }

private:
    const std::int32_t dtype = types.of[sizeof(T) == 8];

    const Scores<T>& scores;
    const View<T>&value, &v;
    const Kept& kept;
    const Lists lists;
    const bool any_dense;
    Tensor slope;              // of each entry, Eq. 14
    std::vector<Tensor> sums;  // of dense blocks: keys' and values' gradients of each part of a group

    std::int64_t groups() const { return value.batch * value.heads; }
    std::int64_t ranges_of_group() const {
        const std::int64_t most = (scores.keys + 63) / 64, wanted = (parts_of_all + groups() - 1) / groups();
        return most < wanted ? (most > 0 ? most : 1) : wanted;
    }

    // Along rows: slopes, and the gradient of the query, or of the scores.
    void rows_of_queries(const View<T>& in_query) {
        on_threads(scores.blocks(), 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t t = begin; t < end; ++t) {
                if (kept.is_dense(t)) continue;
                const Block at = scores.at(t);
                const std::int64_t first = scores.first_row(at), kv = at.h / scores.group();
                const Matrix<T> to = in_query.of(at.b, at.h).from(at.i, at.rows);
                const Lists own{lists.offsets + first, lists.indices};
                slopes(type_of<T>, own, value.of(at.b, kv).table(), v.of(at.b, at.h).from(at.i, at.rows).table(),
                       slope.data(), scores.scale, 0, at.rows);
                for (std::int64_t r = 0; r < at.rows; ++r)
                    if (is_nan(numbers<T>(kept.hi)[first + r]))
                        for (std::int64_t e = own.offsets[r]; e < own.offsets[r + 1]; ++e)
                            numbers<T>(slope)[e] = numbers<T>(kept.hi)[first + r];
                if (scores.key)
                    combine(type_of<T>, own, slope.data(), scores.key->of(at.b, kv).table(), to.out(), 0, at.rows,
                            false);
                else scatter(own, to);
            }
        });
    }
    void scatter(const Lists& own, const Matrix<T>& to) const {
        const T* from = numbers<T>(slope);
        for (std::int64_t r = 0; r < to.rows; ++r) {
            T* row = to.data + r * to.row_step;
            std::memset(row, 0, sizeof(T) * static_cast<std::size_t>(to.cols));
            for (std::int64_t e = own.offsets[r]; e < own.offsets[r + 1]; ++e) row[own.indices[e]] = from[e];
        }
    }

    // Blocks that were multiplied as a whole: their scores are made again.
    void dense_blocks(const View<T>& in_query, const View<T>* in_key) {
        const std::int64_t ranges = ranges_of_group(), each = scores.group() * scores.blocks_of_head();
        for (std::int64_t i = 0; i < groups() * ranges; ++i) {
            sums.push_back(matrix_of(dtype, in_key ? scores.keys : 0, in_key ? in_key->cols : 0));
            sums.push_back(matrix_of(dtype, scores.keys, value.cols));
        }
        on_threads(groups() * ranges, 1, [&](std::int64_t begin, std::int64_t end) {
            Tensor space = vector_of(dtype, scores.space()), other = vector_of(dtype, scores.space());
            for (std::int64_t t = begin; t < end; ++t) {
                const std::size_t own = static_cast<std::size_t>(2 * t);
                std::memset(sums[own].data(), 0, bytes(sums[own]));
                std::memset(sums[own + 1].data(), 0, bytes(sums[own + 1]));
                const std::int64_t group = t / ranges, part = t % ranges;
                for (std::int64_t n = each * part / ranges; n < each * (part + 1) / ranges; ++n)
                    if (kept.is_dense(group * each + n))
                        one(scores.at(group * each + n), numbers<T>(space), numbers<T>(other), in_query, in_key,
                            part_of(sums[own]), part_of(sums[own + 1]));
            }
        });
    }
    static std::size_t bytes(const Tensor& x) {
        return sizeof(T) * static_cast<std::size_t>(x.sizes()[0] * x.sizes()[1]);
    }
    static Matrix<T> part_of(const Tensor& x) { return {numbers<T>(x), x.sizes()[0], x.sizes()[1], x.sizes()[1]}; }

    void one(const Block& at, T* space, T* other, const View<T>& in_query, const View<T>* in_key,
             const Matrix<T>& key_sum, const Matrix<T>& value_sum) {
        const std::int64_t first = scores.first_row(at), kv = at.h / scores.group();
        const Matrix<T> p{space, at.rows, at.cols, at.cols}, slope_{other, at.rows, at.cols, at.cols};
        const Matrix<T> own_v = v.of(at.b, at.h).from(at.i, at.rows), to = in_query.of(at.b, at.h).from(at.i, at.rows);
        above(type_of<T>, scores.make(at, space), numbers<T>(kept.hi) + first, numbers<T>(kept.lo) + first, p.data,
              at.rows, at.cols);
        product(slope_, own_v, value.of(at.b, kv).from(0, at.cols).t());
        jvp(type_of<T>, p.data, slope_.data, slope_.data, {at.rows, at.cols, 1}, sequential());
        product(value_sum.from(0, at.cols), p.t(), own_v, 1);
        if (!in_key) {
            for (std::int64_t r = 0; r < at.rows; ++r)
                std::memcpy(to.data + r * to.row_step, slope_.data + r * at.cols,
                            sizeof(T) * static_cast<std::size_t>(at.cols));
            return;
        }
        product(to, slope_, scores.key->of(at.b, kv).from(0, at.cols), 0, scores.scale);
        product(key_sum.from(0, at.cols), slope_.t(), scores.query.of(at.b, at.h).from(at.i, at.rows), 1, scores.scale);
    }

    // Along columns: the gradients of a range of one group's keys and values.
    void keys_of(std::int64_t group, std::int64_t range, std::int64_t ranges, const View<T>* in_key,
                 const View<T>& in_value) {
        const std::int64_t b = group / value.heads, kv = group % value.heads, first = scores.keys * range / ranges;
        const std::int64_t count = scores.keys * (range + 1) / ranges - first;
        const std::int64_t rows = scores.group() * scores.rows(), begin = group * rows;
        std::unique_ptr<std::int64_t[]> offsets(new std::int64_t[static_cast<std::size_t>(count) + 1]);
        std::unique_ptr<std::int32_t[]> row;
        std::unique_ptr<T[]> p, slopes_;
        const T *const from_p = numbers<T>(kept.values), *const from_slope = numbers<T>(slope);
        turn_over(
            lists, begin, begin + rows, first, count, offsets.get(),
            [&](std::int64_t n) {
                row.reset(new std::int32_t[static_cast<std::size_t>(n)]);
                p.reset(new T[static_cast<std::size_t>(n)]);
                slopes_.reset(new T[static_cast<std::size_t>(n)]);
            },
            [&](std::int64_t to, std::int64_t e, std::int64_t r) {
                row[static_cast<std::size_t>(to)] = static_cast<std::int32_t>(r - begin);
                p[static_cast<std::size_t>(to)] = from_p[e];
                slopes_[static_cast<std::size_t>(to)] = from_slope[e];
            });
        const Lists turned{offsets.get(), row.get()};
        const std::int64_t query_head = kv * scores.group();
        sum_into(in_value.of(b, kv).from(first, count), turned, p.get(), v.of(b, query_head).table(), group, ranges, 1,
                 first);
        if (in_key)
            sum_into(in_key->of(b, kv).from(first, count), turned, slopes_.get(),
                     scores.query.of(b, query_head).table(), group, ranges, 0, first);
    }

    void sum_into(const Matrix<T>& to, const Lists& turned, const T* weights, const Table& table, std::int64_t group,
                  std::int64_t ranges, std::size_t which, std::int64_t first) {
        for (std::int64_t i = 0; any_dense && i < ranges; ++i) {
            const Matrix<T> part = part_of(sums[static_cast<std::size_t>(2 * (group * ranges + i)) + which]);
            for (std::int64_t j = 0; j < to.rows; ++j) {
                T* row = to.data + j * to.row_step;
                const T* from = part.data + (first + j) * part.row_step;
                for (std::int64_t c = 0; c < to.cols; ++c) row[c] = i == 0 ? from[c] : row[c] + from[c];
            }
        }
        combine(type_of<T>, turned, weights, table, to.out(), 0, to.rows, any_dense);
    }
};

template <class F> void of_type(const Tensor& x, F&& run) {
    if (x.type() == Type::f64) run(double());
    else if (x.type() == Type::f32) run(float());
    else throw std::runtime_error("zerotail: input must be float32 or float64");
}

Kept kept_in(Value* stack) {
    return {Tensor::argument(stack[0]), Tensor::argument(stack[1]), Tensor::argument(stack[2]),
            Tensor::argument(stack[3]), Tensor::argument(stack[4]), Tensor::argument(stack[5])};
}

Tensor contiguous_like(const Tensor& x) { return Tensor::empty(x.dtype(), x.sizes(), x.dims()); }

}  // namespace

// (query, key, value, mask, float scale, bool causal, int block, float density) -> (output, what is kept)
void op_attention(Value* stack, std::uint64_t, std::uint64_t) {
    const Tensor query = Tensor::as_it_lies(stack[0]), key = Tensor::as_it_lies(stack[1]),
                 value = Tensor::as_it_lies(stack[2]), mask = Tensor::as_it_lies(stack[3]);
    of_type(query, [&](auto zero) {
        using T = decltype(zero);
        const View<T> q(query), k(key), x(value);
        const Scores<T> scores{
            q,       &k,    Mask(mask), number(stack[4]), (stack[5] & 1) != 0, static_cast<std::int64_t>(stack[6]),
            k.heads, k.rows};
        forward(scores, x, query, number(stack[7])).give(stack);
    });
}

// (v, query, key, value, mask, what is kept, float scale, bool causal, int block) -> (gradients of query, key, value)
void op_attention_backward(Value* stack, std::uint64_t, std::uint64_t) {
    const Tensor along = Tensor::as_it_lies(stack[0]), query = Tensor::as_it_lies(stack[1]),
                 key = Tensor::as_it_lies(stack[2]), value = Tensor::as_it_lies(stack[3]),
                 mask = Tensor::as_it_lies(stack[4]);
    const Kept kept = kept_in(stack + 5);
    Tensor in_query = laid_out_like(query, query.sizes()[3]), in_key = laid_out_like(key, key.sizes()[3]),
           in_value = laid_out_like(value, value.sizes()[3]);
    of_type(query, [&](auto zero) {
        using T = decltype(zero);
        const View<T> v(along), q(query), k(key), x(value), to_query(in_query), to_key(in_key), to_value(in_value);
        const Scores<T> scores{
            q,       &k,    Mask(mask), number(stack[11]), (stack[12] & 1) != 0, static_cast<std::int64_t>(stack[13]),
            k.heads, k.rows};
        Backward<T>(scores, x, v, kept).run(to_query, &to_key, to_value);
    });
    stack[0] = in_query.give();
    stack[1] = in_key.give();
    stack[2] = in_value.give();
}

// (scores, value, mask, int block, float density) -> (output, what is kept)
void op_sum(Value* stack, std::uint64_t, std::uint64_t) {
    const Tensor given = Tensor::as_it_lies(stack[0]), value = Tensor::as_it_lies(stack[1]),
                 mask = Tensor::as_it_lies(stack[2]);
    of_type(given, [&](auto zero) {
        using T = decltype(zero);
        const View<T> z(given), x(value);
        const Scores<T> scores{z,       nullptr, Mask(mask), 1.0, false, static_cast<std::int64_t>(stack[3]),
                               x.heads, x.rows};
        forward(scores, x, given, number(stack[4])).give(stack);
    });
}

// (v, scores, value, mask, what is kept, int block) -> (gradients of scores and value)
void op_sum_backward(Value* stack, std::uint64_t, std::uint64_t) {
    const Tensor along = Tensor::as_it_lies(stack[0]), given = Tensor::as_it_lies(stack[1]),
                 value = Tensor::as_it_lies(stack[2]), mask = Tensor::as_it_lies(stack[3]);
    const Kept kept = kept_in(stack + 4);
    Tensor in_scores = contiguous_like(given), in_value = laid_out_like(value, value.sizes()[3]);
    of_type(given, [&](auto zero) {
        using T = decltype(zero);
        const View<T> v(along), z(given), x(value), to_scores(in_scores), to_value(in_value);
        const Scores<T> scores{z,       nullptr, Mask(mask), 1.0, false, static_cast<std::int64_t>(stack[10]),
                               x.heads, x.rows};
        Backward<T>(scores, x, v, kept).run(to_scores, nullptr, to_value);
    });
    stack[0] = in_scores.give();
    stack[1] = in_value.give();
}

}  // namespace zerotail
