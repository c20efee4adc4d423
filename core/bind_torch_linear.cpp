// A linear layer and its loss (Eq. 20) by supports: logits live for a chunk of rows, then only p - q where it is not zero.
//
// A chunk whose supports are large, or that holds a row of NaN, is dense: its gradients are matrix products. They are taken
// at once if all rows will weigh the same; else its thresholds are kept, and its logits are made again.
#include <algorithm>
#include <utility>
#include <vector>

#include "torch_blocks.hpp"

namespace zerotail {
namespace {

// Classes of one matrix product, and rows of one list: whatever the number of threads.
constexpr std::int64_t tile_classes = 2048, list_rows = 16, tile_features = 128, class_ranges = 16;

enum Wanted { want_input = 1, want_weight = 2, want_bias = 4 };

template <class T> Matrix<T> matrix(const Tensor& x) {
    return {numbers<T>(x), x.sizes()[0], x.sizes()[1], x.strides()[0]};
}

template <class T> struct Layer {
    Matrix<T> input, weight;
    const T* bias;  // or null
    const std::int64_t* target;
    std::int64_t chunk_rows;

    static constexpr Type type = type_of<T>;
    std::int64_t rows() const { return input.rows; }
    std::int64_t classes() const { return weight.rows; }
    std::int64_t chunks() const { return (rows() + chunk_rows - 1) / chunk_rows; }
    std::int64_t begin(std::int64_t chunk) const { return chunk * chunk_rows; }
    std::int64_t count(std::int64_t chunk) const {
        return rows() - begin(chunk) < chunk_rows ? rows() - begin(chunk) : chunk_rows;
    }
    std::int64_t tiles() const { return (classes() + tile_classes - 1) / tile_classes; }
    std::int64_t tile_size(std::int64_t tile) const {
        return classes() - tile * tile_classes < tile_classes ? classes() - tile * tile_classes : tile_classes;
    }
    Tensor space() const { return matrix_of(types.of[sizeof(T) == 8], std::min(chunk_rows, rows()), classes()); }
    LossTarget labels_of(std::int64_t chunk) const { return labels(target + begin(chunk)); }

    Matrix<T> logits(std::int64_t chunk, const Tensor& space) const {
        const Matrix<T> z{numbers<T>(space), count(chunk), classes(), classes()};
        const Matrix<T> x = input.from(begin(chunk), z.rows);
        on_threads(tiles(), 1, [&](std::int64_t from, std::int64_t end) {
            for (std::int64_t t = from; t < end; ++t) {
                const std::int64_t first = t * tile_classes, n = tile_size(t);
                const Matrix<T> to = z.columns(first, n);
                for (std::int64_t r = 0; bias && r < z.rows; ++r)
                    std::memcpy(to.data + r * to.row_step, bias + first, sizeof(T) * static_cast<std::size_t>(n));
                product(to, x, weight.from(first, n).t(), bias ? 1 : 0);
            }
        });
        return z;
    }
};

// ---- dense chunks ---------------------------------------------------------------------------------------------------

// Where gradients go; what has no columns is not wanted.
template <class T> struct Targets {
    Matrix<T> input, weight;
    T* bias;
};

// The gradients of a dense chunk from z, its logits, which are overwritten; rows are weighed by v. The first chunk writes
// the gradients of weight and bias, others add to them.
template <class T>
void dense_chunk(const Layer<T>& layer, std::int64_t chunk, const Matrix<T>& z, const T* hi, const T* lo, const T* v,
                 const Targets<T>& to, bool first) {
    const std::int64_t row = layer.begin(chunk);
    loss_gradient(layer.type, z.data, layer.labels_of(chunk), hi + row, lo + row, v, z.data, {z.rows, z.cols, 1},
                  threads());
    const std::int64_t parts = to.input.rows ? (to.input.cols + tile_features - 1) / tile_features : 0;
    on_threads(parts, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t at = begin * tile_features; at < std::min(end * tile_features, to.input.cols);
             at += tile_features) {
            const std::int64_t n = std::min(to.input.cols - at, tile_features);
            product(to.input.from(row, z.rows).columns(at, n), z, layer.weight.columns(at, n));
        }
    });
    on_threads(layer.tiles(), 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
            const std::int64_t from = t * tile_classes, n = layer.tile_size(t);
            const Matrix<T> slope = z.columns(from, n);
            if (to.weight.rows)
                product(to.weight.from(from, n), slope.t(), layer.input.from(row, z.rows), first ? 0 : 1);
            for (std::int64_t r = 0; to.bias && r < z.rows; ++r)
                for (std::int64_t j = 0; j < n; ++j) {
                    const T x = slope.data[r * slope.row_step + j];
                    to.bias[from + j] = r == 0 && first ? x : to.bias[from + j] + x;
                }
        }
    });
}

// Gradients as tensors, of no rows where they are not wanted.
template <class T> struct Results {
    Tensor input, weight, bias;

    Results(const Layer<T>& layer, std::int64_t wanted)
        : input(matrix_of(types.of[sizeof(T) == 8], wanted & want_input ? layer.rows() : 0, layer.input.cols)),
          weight(matrix_of(types.of[sizeof(T) == 8], wanted & want_weight ? layer.classes() : 0, layer.input.cols)),
          bias(vector_of(types.of[sizeof(T) == 8], wanted & want_bias ? layer.classes() : 0)) {}

    Targets<T> targets() const {
        return {matrix<T>(input), matrix<T>(weight), bias.sizes()[0] ? numbers<T>(bias) : nullptr};
    }
};

// ---- the loss -------------------------------------------------------------------------------------------------------

template <class T> class LossLists {
public:
    LossLists(const Layer<T>& layer_, double density_, T* loss_, T* hi_, T* lo_, std::int64_t* sizes_)
        : layer(layer_),
          density(density_),
          loss(loss_),
          hi(hi_),
          lo(lo_),
          sizes(sizes_),
          parts(static_cast<std::size_t>(layer_.chunks() * lists_of_chunk())) {}

    // False for a chunk that is better kept dense.
    bool take(std::int64_t chunk, const Matrix<T>& z) {
        const std::int64_t lists = (z.rows + list_rows - 1) / list_rows;
        std::vector<char> fits(static_cast<std::size_t>(lists));
        on_threads(lists, 1, [&](std::int64_t begin, std::int64_t end) {
            const std::int64_t room =
                static_cast<std::int64_t>(density * static_cast<double>(list_rows * z.cols)) + support_spare;
            std::unique_ptr<T[]> values(new T[static_cast<std::size_t>(room)]);
            std::unique_ptr<std::int32_t[]> indices(new std::int32_t[static_cast<std::size_t>(room)]);
            for (std::int64_t i = begin; i < end; ++i) {
                const std::int64_t from = i * list_rows, n = z.rows - from < list_rows ? z.rows - from : list_rows;
                const std::int64_t row = layer.begin(chunk) + from;
                const SupportOut out{hi + row, lo + row, sizes + row, values.get(), indices.get(), room};
                const std::int64_t used = support(type_of<T>, z.from(from, n).data, out, n, z.cols);
                bool whole = used + support_spare <= room;
                for (std::int64_t r = row; r < row + n; ++r) whole = whole && !is_nan(hi[r]);
                fits[static_cast<std::size_t>(i)] = whole;
                if (whole) less_target(part(chunk, i), row, n, z.from(from, n), values.get(), indices.get(), used);
            }
        });
        for (const char whole : fits)
            if (!whole) return false;
        return true;
    }

    void drop(std::int64_t chunk) {
        for (std::int64_t i = 0; i < lists_of_chunk(); ++i) part(chunk, i) = Part<T>();
        for (std::int64_t r = 0; r < layer.count(chunk); ++r) sizes[layer.begin(chunk) + r] = 0;
    }

    void gather(const std::int64_t* offsets, T* values, std::int32_t* indices) {
        for (std::int64_t chunk = 0; chunk < layer.chunks(); ++chunk)
            for (std::int64_t i = 0; i < lists_of_chunk() && i * list_rows < layer.count(chunk); ++i) {
                const std::int64_t at = offsets[layer.begin(chunk) + i * list_rows];
                part(chunk, i).move_to(values + at, indices + at);
            }
    }

private:
    const Layer<T>& layer;
    double density;
    T *loss, *hi, *lo;
    std::int64_t* sizes;
    std::vector<Part<T>> parts;

    std::int64_t lists_of_chunk() const { return (layer.chunk_rows + list_rows - 1) / list_rows; }
    Part<T>& part(std::int64_t chunk, std::int64_t i) {
        return parts[static_cast<std::size_t>(chunk * lists_of_chunk() + i)];
    }

    // p - q of `n` rows from p, and their losses: those of core/loss.inl.hpp.
    void less_target(Part<T>& to, std::int64_t row, std::int64_t n, const Matrix<T>& z, const T* p,
                     const std::int32_t* index, std::int64_t used) {
        to.values.reset(new T[static_cast<std::size_t>(used + n)]);
        to.indices.reset(new std::int32_t[static_cast<std::size_t>(used + n)]);
        std::size_t at = 0;
        for (std::int64_t r = 0; r < n; ++r) {
            const std::size_t first = at;
            const std::int64_t label = layer.target[row + r];
            double others = 0;
            T own = 0;
            for (std::int64_t e = 0; e < sizes[row + r]; ++e) {
                if (index[e] == label) {
                    own = p[e];
                    continue;
                }
                others += static_cast<double>(p[e]) * static_cast<double>(p[e]);
                to.values[at] = p[e];
                to.indices[at++] = index[e];
            }
            p += sizes[row + r];
            index += sizes[row + r];
            if (own != 1) {
                to.values[at] = own - 1;
                to.indices[at++] = static_cast<std::int32_t>(label);
            }
            const double rest = 1 - static_cast<double>(own);
            double value = 0.5 * others + 0.5 * rest * rest;
            if (!(own > 0))
                value += (static_cast<double>(hi[row + r]) - static_cast<double>(z.data[r * z.row_step + label])) +
                         static_cast<double>(lo[row + r]);
            loss[row + r] = static_cast<T>(value);
            sizes[row + r] = static_cast<std::int64_t>(at - first);
        }
        to.used = static_cast<std::int64_t>(at);
    }
};

// `ahead`: the gradients of dense chunks that are taken at once, for rows of weight 1.
template <class T>
void forward(Value* stack, const Layer<T>& layer, double density, bool keep, std::int64_t ahead) {
    const std::int32_t dtype = types.of[sizeof(T) == 8];
    const std::int64_t rows = layer.rows();
    Tensor loss_ = vector_of(dtype, rows), hi = vector_of(dtype, rows), lo = vector_of(dtype, rows);
    Tensor offsets = vector_of(types.int64, rows + 1), dense = vector_of(types.int64, layer.chunks());
    std::int64_t* const at_row = numbers<std::int64_t>(offsets);
    LossLists<T> lists(layer, density, numbers<T>(loss_), numbers<T>(hi), numbers<T>(lo), at_row + 1);
    std::unique_ptr<Results<T>> results;
    {
        const Tensor space = layer.space();
        const std::vector<T> ones(static_cast<std::size_t>(layer.chunk_rows), T(1));
        for (std::int64_t chunk = 0; chunk < layer.chunks(); ++chunk) {
            const Matrix<T> z = layer.logits(chunk, space);
            const bool sparse = keep && lists.take(chunk, z);
            numbers<std::int64_t>(dense)[chunk] = !sparse;
            if (sparse) continue;
            lists.drop(chunk);
            const std::int64_t row = layer.begin(chunk);
            loss(layer.type, z.data, layer.labels_of(chunk),
                 {numbers<T>(loss_) + row, nullptr, numbers<T>(hi) + row, numbers<T>(lo) + row}, {z.rows, z.cols, 1},
                 threads());
            if (!keep || !ahead) continue;
            const bool first = !results;
            if (first) results = std::make_unique<Results<T>>(layer, ahead);
            dense_chunk(layer, chunk, z, numbers<T>(hi), numbers<T>(lo), ones.data(), results->targets(), first);
        }
    }
    if (!results) results = std::make_unique<Results<T>>(layer, 0);
    const std::int64_t all = add_up(at_row, rows);
    Tensor indices = vector_of(types.int32, all), slopes_ = vector_of(dtype, all);
    lists.gather(at_row, numbers<T>(slopes_), numbers<std::int32_t>(indices));
    Value given[] = {loss_.give(),           offsets.give(),      hi.give(),      lo.give(),
                     dense.give(),           indices.give(),      slopes_.give(), results->input.give(),
                     results->weight.give(), results->bias.give()};
    std::memcpy(stack, given, sizeof given);
}

// ---- its gradients --------------------------------------------------------------------------------------------------

template <class T> class Gradients {
public:
    Gradients(const Layer<T>& layer_, const T* v_, const Tensor& offsets, const Tensor& indices, const Tensor& p_less_q,
              const std::int64_t* dense_)
        : layer(layer_),
          v(v_),
          lists{numbers<std::int64_t>(offsets), numbers<std::int32_t>(indices)},
          dense(dense_),
          slopes_(vector_of(dtype, p_less_q.sizes()[0])) {
        const T* from = numbers<T>(p_less_q);
        T* to = numbers<T>(slopes_);
        for (std::int64_t r = 0; r < layer.rows(); ++r)
            for (std::int64_t e = lists.offsets[r]; e < lists.offsets[r + 1]; ++e) to[e] = from[e] * v[r];
        for (std::int64_t chunk = 0; chunk < layer.chunks(); ++chunk) any_dense = any_dense || dense[chunk];
    }

    bool has_dense() const { return any_dense; }

    void of_input(const Matrix<T>& to) const {
        on_threads(layer.rows(), 8, [&](std::int64_t begin, std::int64_t end) {
            combine(layer.type, lists, slopes_.data(), layer.weight.table(), to.out(), begin, end, false);
        });
    }

    // All of both, but for the part of the dense chunks that is there already.
    void of_classes(const Matrix<T>* weight, T* bias) const {
        on_threads(class_ranges, 1, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {
                const std::int64_t first = layer.classes() * i / class_ranges;
                const std::int64_t count = layer.classes() * (i + 1) / class_ranges - first;
                if (count == 0) continue;
                const Turned turned(*this, first, count);
                if (weight)
                    combine(layer.type, turned.lists(), turned.slopes.get(), layer.input.table(),
                            weight->from(first, count).out(), 0, count, any_dense);
                if (bias) turned.sums(bias + first, count, any_dense);
            }
        });
    }

    // The rows of the weight's gradient that are not zero, and their classes.
    std::pair<Tensor, Tensor> of_some_classes(T* bias) const {
        const Turned turned(*this, 0, layer.classes());
        std::vector<std::int64_t> used, offsets;
        for (std::int64_t j = 0; j < layer.classes(); ++j)
            if (turned.offsets[static_cast<std::size_t>(j)] != turned.offsets[static_cast<std::size_t>(j) + 1]) {
                used.push_back(j);
                offsets.push_back(turned.offsets[static_cast<std::size_t>(j)]);
            }
        offsets.push_back(turned.offsets[static_cast<std::size_t>(layer.classes())]);
        const std::int64_t n = static_cast<std::int64_t>(used.size());
        Tensor index = vector_of(types.int64, n), weight = matrix_of(dtype, n, layer.input.cols);
        std::memcpy(index.data(), used.data(), used.size() * sizeof(std::int64_t));
        const Matrix<T> to = matrix<T>(weight);
        on_threads(n, 64, [&](std::int64_t begin, std::int64_t end) {
            combine(layer.type, {offsets.data(), turned.rows.get()}, turned.slopes.get(), layer.input.table(), to.out(),
                    begin, end, false);
        });
        if (bias) turned.sums(bias, layer.classes(), false);
        return {std::move(weight), std::move(index)};
    }

    // Of dense chunks, whose logits are made again.
    void of_dense_chunks(const T* hi, const T* lo, const Targets<T>& to) const {
        const Tensor space = layer.space();
        bool first = true;
        for (std::int64_t chunk = 0; chunk < layer.chunks(); ++chunk) {
            if (!dense[chunk]) continue;
            dense_chunk(layer, chunk, layer.logits(chunk, space), hi, lo, v + layer.begin(chunk), to, first);
            first = false;
        }
    }

    // Of dense chunks, taken ahead for rows of weight 1.
    void of_dense_chunks(const Targets<T>& ahead, const Targets<T>& to) const {
        const T scale = layer.rows() ? v[0] : T(0);
        const auto scaled = [=](const T* from, T* into, std::int64_t n) {
            for (std::int64_t j = 0; j < n; ++j) into[j] = scale * from[j];
        };
        for (std::int64_t chunk = 0; to.input.rows && chunk < layer.chunks(); ++chunk)
            if (dense[chunk])
                scaled(ahead.input.from(layer.begin(chunk), 0).data, to.input.from(layer.begin(chunk), 0).data,
                       layer.count(chunk) * to.input.cols);
        if (to.weight.rows)
            on_threads(layer.classes(), tile_classes, [&](std::int64_t begin, std::int64_t end) {
                scaled(ahead.weight.from(begin, 0).data, to.weight.from(begin, 0).data, (end - begin) * to.weight.cols);
            });
        if (to.bias) scaled(ahead.bias, to.bias, layer.classes());
    }

private:
    const std::int32_t dtype = types.of[sizeof(T) == 8];

    const Layer<T>& layer;
    const T* v;
    const Lists lists;
    const std::int64_t* dense;
    Tensor slopes_;  // v (p - q) of each entry
    bool any_dense = false;

    // The lists of a range of classes.
    struct Turned {
        std::unique_ptr<std::int64_t[]> offsets;
        std::unique_ptr<std::int32_t[]> rows;
        std::unique_ptr<T[]> slopes;

        Turned(const Gradients& of, std::int64_t first, std::int64_t count)
            : offsets(new std::int64_t[static_cast<std::size_t>(count) + 1]) {
            const T* from = numbers<T>(of.slopes_);
            turn_over(
                of.lists, 0, of.layer.rows(), first, count, offsets.get(),
                [&](std::int64_t n) {
                    rows.reset(new std::int32_t[static_cast<std::size_t>(n)]);
                    slopes.reset(new T[static_cast<std::size_t>(n)]);
                },
                [&](std::int64_t to, std::int64_t e, std::int64_t row) {
                    rows[static_cast<std::size_t>(to)] = static_cast<std::int32_t>(row);
                    slopes[static_cast<std::size_t>(to)] = from[e];
                });
        }
        Lists lists() const { return {offsets.get(), rows.get()}; }
        void sums(T* to, std::int64_t count, bool add) const {
            for (std::int64_t j = 0; j < count; ++j) {
                double sum = add ? static_cast<double>(to[j]) : 0;
                for (std::int64_t e = offsets[static_cast<std::size_t>(j)];
                     e < offsets[static_cast<std::size_t>(j) + 1]; ++e)
                    sum += static_cast<double>(slopes[static_cast<std::size_t>(e)]);
                to[j] = static_cast<T>(sum);
            }
        }
    };
};

template <class T> Layer<T> layer_of(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& target,
                                     std::int64_t chunk) {
    return {matrix<T>(x), matrix<T>(weight), bias.sizes()[0] ? numbers<T>(bias) : nullptr,
            numbers<std::int64_t>(target), chunk};
}

template <class T>
void backward(Value* stack, const Tensor* given, const Layer<T>& layer, std::int64_t wanted, bool sparse) {
    const Tensor &v = given[0], &offsets = given[5], &hi = given[6], &lo = given[7], &dense = given[8],
                 &indices = given[9], &p_less_q = given[10];
    const Targets<T> ahead{matrix<T>(given[11]), matrix<T>(given[12]), numbers<T>(given[13])};
    const Gradients<T> gradients(layer, numbers<T>(v), offsets, indices, p_less_q, numbers<std::int64_t>(dense));
    const bool in_rows = sparse && wanted & want_weight && !gradients.has_dense();
    Results<T> results(layer, in_rows ? wanted & ~want_weight : wanted);
    const Targets<T> to = results.targets();
    if (wanted & want_input) gradients.of_input(to.input);
    if (gradients.has_dense()) {
        const bool is_ahead = given[11].sizes()[0] || given[12].sizes()[0] || given[13].sizes()[0];
        if (is_ahead) gradients.of_dense_chunks(ahead, to);
        else gradients.of_dense_chunks(numbers<T>(hi), numbers<T>(lo), to);
    }
    if (in_rows) {
        auto [rows, classes] = gradients.of_some_classes(to.bias);
        stack[1] = rows.give();
        stack[2] = classes.give();
    } else {
        if (wanted & (want_weight | want_bias)) gradients.of_classes(to.weight.rows ? &to.weight : nullptr, to.bias);
        stack[1] = results.weight.give();
        stack[2] = vector_of(types.int64, 0).give();
    }
    stack[0] = results.input.give();
    stack[3] = results.bias.give();
}

}  // namespace

// (input, weight, bias, target, int chunk_rows, float density, bool keep, int ahead) -> (losses, what is kept, gradients of
// dense chunks)
void op_linear_loss(Value* stack, std::uint64_t, std::uint64_t) {
    const Tensor x = Tensor::argument(stack[0]), weight = Tensor::as_it_lies(stack[1]),
                 bias = Tensor::argument(stack[2]), target = Tensor::argument(stack[3]);
    const std::int64_t chunk = static_cast<std::int64_t>(stack[4]);
    const double density = number(stack[5]);
    const bool keep = (stack[6] & 1) != 0;
    const std::int64_t ahead = static_cast<std::int64_t>(stack[7]);
    if (x.type() == Type::f64) forward(stack, layer_of<double>(x, weight, bias, target, chunk), density, keep, ahead);
    else forward(stack, layer_of<float>(x, weight, bias, target, chunk), density, keep, ahead);
}

// (v, input, weight, bias, target, what is kept, gradients of dense chunks, int chunk_rows, int wanted, bool sparse)
//   -> (gradient of input, of weight: all or the rows of these classes, classes, of bias)
void op_linear_loss_backward(Value* stack, std::uint64_t, std::uint64_t) {
    const Tensor given[] = {Tensor::argument(stack[0]),  Tensor::argument(stack[1]),  Tensor::as_it_lies(stack[2]),
                            Tensor::argument(stack[3]),  Tensor::argument(stack[4]),  Tensor::argument(stack[5]),
                            Tensor::argument(stack[6]),  Tensor::argument(stack[7]),  Tensor::argument(stack[8]),
                            Tensor::argument(stack[9]),  Tensor::argument(stack[10]), Tensor::argument(stack[11]),
                            Tensor::argument(stack[12]), Tensor::argument(stack[13])};
    const std::int64_t chunk = static_cast<std::int64_t>(stack[14]), wanted = static_cast<std::int64_t>(stack[15]);
    const bool sparse = (stack[16] & 1) != 0;
    const Tensor &x = given[1], &weight = given[2], &bias = given[3], &target = given[4];
    if (x.type() == Type::f64) backward(stack, given, layer_of<double>(x, weight, bias, target, chunk), wanted, sparse);
    else backward(stack, given, layer_of<float>(x, weight, bias, target, chunk), wanted, sparse);
}

}  // namespace zerotail
