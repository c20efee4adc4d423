// The NumPy front end's door to the core: plain buffers in, plain buffers out.
//
// Every function returns False, and does nothing, where an argument is not what the core reads as it is (C order, a
// known type, equal shapes, writable, no partial overlap). The Python side then prepares its arguments, or says what is
// wrong with them; the common call pays for no check twice.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstring>

#include "bind_torch.hpp"
#include "pool.hpp"
#include "sparsemax.hpp"

namespace nb = nanobind;
using namespace zerotail;

namespace {

constexpr std::int64_t release_gil_above = 1 << 14;

// A view on an object's buffer, or nothing where it has no C-ordered one.
struct View {
    Py_buffer buffer{};
    bool held = false;

    View(nb::handle object, bool writable) {
        if (object.is_none()) return;
        const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
        held = PyObject_GetBuffer(object.ptr(), &buffer, flags) == 0;
        if (!held) PyErr_Clear();
    }
    ~View() {
        if (held) PyBuffer_Release(&buffer);
    }
    View(const View&) = delete;
    View& operator=(const View&) = delete;

    bool holds(char code) const { return held && buffer.format && buffer.format[0] == code && !buffer.format[1]; }
    bool holds_int64() const { return (holds('l') || holds('q')) && buffer.itemsize == 8; }
    // bfloat16 has no code of its own: the front end passes its bits as uint16.
    bool type(Type& out) const {
        if (holds('f')) out = Type::f32;
        else if (holds('d')) out = Type::f64;
        else if (holds('e')) out = Type::f16;
        else if (holds('H')) out = Type::bf16;
        else return false;
        return true;
    }
    bool same_shape(const View& other) const {
        return buffer.ndim == other.buffer.ndim &&
               (buffer.ndim == 0 || std::memcmp(buffer.shape, other.buffer.shape,
                                                static_cast<std::size_t>(buffer.ndim) * sizeof(Py_ssize_t)) == 0);
    }
    std::int64_t size() const { return buffer.itemsize ? buffer.len / buffer.itemsize : 0; }
    void* data() const { return buffer.buf; }
};

bool same_kind(const View& a, const View& b) {
    return a.held && b.held && std::strcmp(a.buffer.format, b.buffer.format) == 0 && a.same_shape(b);
}

// Rows are read before they are written, so the very same array may be input and output; a shifted one may not.
bool overlap_is_safe(const View& in, const View& out) {
    const char* a = static_cast<const char*>(in.data());
    const char* b = static_cast<const char*>(out.data());
    return a == b || a + in.buffer.len <= b || b + out.buffer.len <= a;
}

bool disjoint(const View& in, const View& out) { return in.data() != out.data() && overlap_is_safe(in, out); }

bool shape_along(const View& view, Py_ssize_t axis, Shape& out) {
    const int ndim = view.buffer.ndim;
    if (axis < 0) axis += ndim;
    if (axis < 0 || axis >= ndim) return false;
    out = {1, view.buffer.shape[axis], 1};
    for (Py_ssize_t i = 0; i < axis; ++i) out.outer *= view.buffer.shape[i];
    for (Py_ssize_t i = axis + 1; i < ndim; ++i) out.inner *= view.buffer.shape[i];
    return true;
}

template <class F>
void run(std::int64_t size, F&& work) {
    if (size > release_gil_above) {
        nb::gil_scoped_release nogil;
        work();
    } else {
        work();
    }
}

bool py_sparsemax(nb::handle scores, nb::handle out, Py_ssize_t axis) {
    const View z(scores, false), p(out, true);
    Type type;
    Shape shape;
    if (!same_kind(z, p) || !z.type(type) || !shape_along(z, axis, shape) || !overlap_is_safe(z, p)) return false;
    run(z.size(), [&] { sparsemax(type, z.data(), p.data(), shape, pool()); });
    return true;
}

// hi and lo (which may be None) hold one number of the compute type a row, size (or None) one int64.
bool py_threshold(nb::handle scores, nb::handle hi, nb::handle lo, nb::handle size, Py_ssize_t axis) {
    const View z(scores, false), h(hi, true), l(lo, true), s(size, true);
    Type type;
    Shape shape;
    if (!z.type(type) || !shape_along(z, axis, shape)) return false;
    const char compute = type == Type::f64 ? 'd' : 'f';
    const auto fits = [&](nb::handle object, const View& v, bool kind) {
        return object.is_none() || (v.held && kind && v.size() == shape.rows() && disjoint(z, v));
    };
    if (!fits(hi, h, h.holds(compute)) || !fits(lo, l, l.holds(compute)) || !fits(size, s, s.holds_int64()))
        return false;
    run(z.size(),
        [&] { threshold(type, z.data(), h.data(), l.data(), static_cast<std::int64_t*>(s.data()), shape, pool()); });
    return true;
}

bool py_compact(nb::handle scores, nb::handle hi, nb::handle lo, nb::handle offsets, nb::handle values,
                nb::handle indices) {
    const View z(scores, false), h(hi, false), l(lo, false), o(offsets, false), v(values, true), i(indices, true);
    Type type;
    if (!z.type(type) || z.buffer.ndim != 2) return false;
    const std::int64_t rows = z.buffer.shape[0], cols = z.buffer.shape[1];
    const char compute = type == Type::f64 ? 'd' : 'f';
    if (!h.holds(compute) || !l.holds(compute) || !o.holds_int64() || !v.held || !i.holds('i') ||
        std::strcmp(v.buffer.format, z.buffer.format) != 0 || h.size() != rows || l.size() != rows ||
        o.size() != rows + 1 || cols > INT32_MAX)
        return false;
    const auto* offset = static_cast<const std::int64_t*>(o.data());
    if (v.size() != offset[rows] || i.size() != offset[rows] || !disjoint(z, v)) return false;
    run(z.size(), [&] {
        compact(type, z.data(), h.data(), l.data(), offset, v.data(), static_cast<std::int32_t*>(i.data()), rows, cols,
                pool());
    });
    return true;
}

bool py_jvp(nb::handle p, nb::handle v, nb::handle out, Py_ssize_t axis) {
    const View probabilities(p, false), tangent(v, false), result(out, true);
    Type type;
    Shape shape;
    if (!same_kind(probabilities, tangent) || !same_kind(probabilities, result) || !probabilities.type(type) ||
        !shape_along(probabilities, axis, shape) || !overlap_is_safe(probabilities, result) ||
        !overlap_is_safe(tangent, result))
        return false;
    run(result.size(), [&] { jvp(type, probabilities.data(), tangent.data(), result.data(), shape, pool()); });
    return true;
}

// target: one int64 label a row, or a distribution of the type and shape of scores. loss: the compute type, one a row.
bool py_loss(nb::handle scores, nb::handle target, nb::handle value, nb::handle grad, Py_ssize_t axis) {
    const View z(scores, false), q(target, false), l(value, true), g(grad, true);
    Type type;
    Shape shape;
    if (!z.type(type) || !shape_along(z, axis, shape)) return false;
    if (!l.holds(type == Type::f64 ? 'd' : 'f') || l.size() != shape.rows() || !disjoint(z, l)) return false;
    if (!grad.is_none() && (!same_kind(z, g) || !overlap_is_safe(z, g) || !disjoint(l, g))) return false;
    LossTarget wanted = distribution(q.data());
    if (q.holds_int64() && q.size() == shape.rows()) wanted = labels(static_cast<const std::int64_t*>(q.data()));
    else if (!same_kind(z, q) || (g.held && !overlap_is_safe(q, g))) return false;
    run(z.size(), [&] { loss(type, z.data(), wanted, {l.data(), g.data(), nullptr, nullptr}, shape, pool()); });
    return true;
}

// Rows [first, first + rows of scores) of a CSR matrix, as scipy.sparse holds it.
bool csr_rows(const View& values, const View& indices, const View& offsets, const View& position, Py_ssize_t first,
              Py_ssize_t rows, Csr& out) {
    const bool wide = indices.holds_int64() && offsets.holds_int64();
    if (!wide && !(indices.holds('i') && offsets.holds('i'))) return false;
    if (!position.holds_int64() || first < 0 || rows < 0 || first + rows >= offsets.size()) return false;
    if (values.size() != indices.size()) return false;
    const auto bytes = static_cast<std::size_t>(first) * static_cast<std::size_t>(offsets.buffer.itemsize);
    out = {values.data(), indices.data(), static_cast<const char*>(offsets.data()) + bytes, wide,
           static_cast<const std::int64_t*>(position.data())};
    return true;
}

// f32 or f64 throughout.
bool single_or_double(const View& view, Type& type) {
    return view.type(type) && (type == Type::f32 || type == Type::f64);
}

bool py_csr_scores(nb::handle values, nb::handle indices, nb::handle offsets, nb::handle position, nb::handle weights,
                   nb::handle bias, nb::handle scores, Py_ssize_t first) {
    const View x(values, false), i(indices, false), o(offsets, false), at(position, false);
    const View w(weights, false), b(bias, false), z(scores, true);
    Type type;
    Csr csr;
    if (!single_or_double(x, type) || !w.holds(x.buffer.format[0]) || !b.holds(x.buffer.format[0]) ||
        !z.holds(x.buffer.format[0]) || w.buffer.ndim != 2 || z.buffer.ndim != 2)
        return false;
    const Py_ssize_t rows = z.buffer.shape[0], cols = z.buffer.shape[1];
    if (w.buffer.shape[1] != cols || b.size() != cols || !disjoint(w, z) || !csr_rows(x, i, o, at, first, rows, csr))
        return false;
    nb::gil_scoped_release nogil;
    csr_scores(type, csr, w.data(), b.data(), z.data(), rows, cols, pool());
    return true;
}

bool py_csr_gradient(nb::handle values, nb::handle indices, nb::handle offsets, nb::handle position, nb::handle g,
                     nb::handle gradient, Py_ssize_t first, nb::handle bounds) {
    const View x(values, false), i(indices, false), o(offsets, false), at(position, false);
    const View from(g, false), to(gradient, true), parts(bounds, false);
    Type type;
    Csr csr;
    if (!single_or_double(x, type) || !from.holds(x.buffer.format[0]) || !to.holds('d') || !parts.holds_int64() ||
        from.buffer.ndim != 2 || to.buffer.ndim != 2 || parts.size() < 2)
        return false;
    const Py_ssize_t rows = from.buffer.shape[0], cols = from.buffer.shape[1];
    if (to.buffer.shape[1] != cols || !disjoint(from, to) || !csr_rows(x, i, o, at, first, rows, csr)) return false;
    nb::gil_scoped_release nogil;
    csr_gradient(type, csr, from.data(), static_cast<double*>(to.data()), rows, cols,
                 static_cast<const std::int64_t*>(parts.data()), parts.size() - 1, pool());
    return true;
}

nb::list py_targets() {
    nb::list names;
    for (const char* const* name = targets(); *name; ++name) names.append(*name);
    return names;
}

}  // namespace

NB_MODULE(_core, m) {
    m.def("sparsemax", &py_sparsemax);
    m.def("threshold", &py_threshold, nb::arg("scores"), nb::arg("hi").none(), nb::arg("lo").none(),
          nb::arg("size").none(), nb::arg("axis"));
    m.def("compact", &py_compact);
    m.def("jvp", &py_jvp);
    m.def("loss", &py_loss, nb::arg("scores"), nb::arg("target"), nb::arg("loss"), nb::arg("grad").none(),
          nb::arg("axis"));
    m.def("csr_scores", &py_csr_scores);
    m.def("csr_gradient", &py_csr_gradient);
    m.def("targets", &py_targets);
    m.def("target", &target);
    m.def("use_target", &use_target);
    m.def("set_num_threads", &set_num_threads);
    m.def("get_num_threads", &get_num_threads);
    bind_torch(m);
}
