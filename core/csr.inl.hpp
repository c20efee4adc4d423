// The two products of a linear model with rows of compressed sparse features (CSR): scores z_i = W' x_i + b, and the
// gradient of the weights, sum over i of x_i g_i'. Every entry is summed in the order of the rows and of the features in
// them, whatever the CPU target and the threads.

// out[i] = bias + sum over j of x_ij weights[position[j]], for the rows [begin, end).
//
// Four features at a time, so that a score is loaded and stored once for four additions.
template <class T, class I>
void csr_scores_of(const Csr& x, const T* weights, const T* bias, T* out, std::int64_t cols, std::int64_t begin,
                   std::int64_t end) {
    const T* const values = static_cast<const T*>(x.values);
    const I *const indices = static_cast<const I*>(x.indices), *const offsets = static_cast<const I*>(x.offsets);
    const std::int64_t* const position = x.position;
    for (std::int64_t row = begin; row < end; ++row) {
        T* const __restrict z = out + row * cols;
        for (std::int64_t k = 0; k < cols; ++k) z[k] = bias[k];
        I at = offsets[row];
        const I last = offsets[row + 1];
        for (; last - at >= 4; at += 4) {
            const T *const a = weights + position[indices[at]] * cols,
                           *const b = weights + position[indices[at + 1]] * cols,
                           *const c = weights + position[indices[at + 2]] * cols,
                           *const d = weights + position[indices[at + 3]] * cols;
            const T s = values[at], t = values[at + 1], u = values[at + 2], v = values[at + 3];
            for (std::int64_t k = 0; k < cols; ++k) z[k] = (((z[k] + s * a[k]) + t * b[k]) + u * c[k]) + v * d[k];
        }
        for (; at < last; ++at) {
            const T* const a = weights + position[indices[at]] * cols;
            const T s = values[at];
            for (std::int64_t k = 0; k < cols; ++k) z[k] += s * a[k];
        }
    }
}

// The first entry of a row, from `at` on, whose feature is not below `feature`.
template <class I> I csr_find(const I* indices, I at, I last, std::int64_t feature) {
    while (at < last) {
        const I middle = at + (last - at) / 2;
        if (indices[middle] < feature) at = middle + 1;
        else last = middle;
    }
    return at;
}

// gradient[position[j]] += x_ij g_i over all rows, for the features j in [first, past). A row of g that is mostly zeros,
// as the sparsemax loss's are, costs what is not zero.
template <class T, class I>
void csr_gradient_of(const Csr& x, const T* g, double* gradient, std::int64_t rows, std::int64_t cols, bool whole,
                     std::int64_t first, std::int64_t past) {
    const T* const values = static_cast<const T*>(x.values);
    const I *const indices = static_cast<const I*>(x.indices), *const offsets = static_cast<const I*>(x.offsets);
    const std::int64_t most = cols / 4;
    const Scratch space((sizeof(double) + sizeof(std::int64_t)) * static_cast<std::size_t>(cols + 1));
    double* const entry = static_cast<double*>(space.data);
    std::int64_t* const label = reinterpret_cast<std::int64_t*>(entry + cols + 1);
    for (std::int64_t row = 0; row < rows; ++row) {
        const T* const from = g + row * cols;
        std::int64_t size = 0;
        for (std::int64_t k = 0; k < cols; ++k) {
            label[size] = k;
            entry[size] = static_cast<double>(from[k]);
            size += from[k] != 0;
        }
        if (size == 0) continue;
        I at = offsets[row], last = offsets[row + 1];
        if (!whole) {
            at = csr_find(indices, at, last, first);
            last = csr_find(indices, at, last, past);
        }
        for (; at < last; ++at) {
            double* const __restrict to = gradient + x.position[indices[at]] * cols;
            const double s = static_cast<double>(values[at]);
            if (size <= most)
                for (std::int64_t i = 0; i < size; ++i) to[label[i]] += s * entry[i];
            else
                for (std::int64_t k = 0; k < cols; ++k) to[k] += s * static_cast<double>(from[k]);
        }
    }
}

template <class T>
void run_csr_scores(const Csr& x, const void* weights, const void* bias, void* out, Rows rows) {
    const T *w = static_cast<const T*>(weights), *b = static_cast<const T*>(bias);
    T* z = static_cast<T*>(out);
    if (x.wide) csr_scores_of<T, std::int64_t>(x, w, b, z, rows.shape.cols, rows.begin, rows.end);
    else csr_scores_of<T, std::int32_t>(x, w, b, z, rows.shape.cols, rows.begin, rows.end);
}

template <class T>
void run_csr_gradient(const Csr& x, const void* g_, double* gradient, std::int64_t rows, std::int64_t cols, bool whole,
                      std::int64_t first, std::int64_t past) {
    const T* g = static_cast<const T*>(g_);
    if (x.wide) csr_gradient_of<T, std::int64_t>(x, g, gradient, rows, cols, whole, first, past);
    else csr_gradient_of<T, std::int32_t>(x, g, gradient, rows, cols, whole, first, past);
}
