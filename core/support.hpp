// Rows by their supports: lists of what is not zero, and sums over them. The part of the core's API that makes a layer
// cost O(|S|) after its scores. All in the calling thread, on float (Type::f32) or double (Type::f64).
#pragma once

#include <cstddef>
#include <cstdint>

#include "sparsemax.hpp"

namespace zerotail {

// Row r holds the entries [offsets[r], offsets[r + 1]), each of a column, in order.
struct Lists {
    const std::int64_t* offsets;
    const std::int32_t* indices;
};

// Rows of `cols` numbers, `stride` numbers apart.
struct Table {
    const void* data;
    std::int64_t stride, cols;
};
struct TableOut {
    void* data;
    std::int64_t stride;
};

// Where support() writes: one number a row, and `room` entries.
struct SupportOut {
    void *hi, *lo;
    std::int64_t* size;
    void* values;
    std::int32_t* indices;
    std::int64_t room;
};

// tau = hi + lo of each of `rows` rows (Eq. 4), the size of its support and its entries, row after row without a gap.
// Returns the number of all entries: the lists are whole if that and another `support_spare` fit into the room. A row
// without a threshold (NaN, +inf, nothing finite, no columns) has hi = NaN and no entry.
inline constexpr std::int64_t support_spare = 16;
std::int64_t support(Type type, const void* z, const SupportOut& out, std::int64_t rows, std::int64_t cols);

// p = [z - tau]_+ (Eq. 3). p may be z.
void above(Type type, const void* z, const void* hi, const void* lo, void* p, std::int64_t rows, std::int64_t cols);

// One row of scores: -inf where it does not take part; x added, and -inf where that is -inf.
void exclude(Type type, void* z, const bool* takes_part, std::int64_t cols);
void add(Type type, void* z, const void* x, std::int64_t cols);

// out[r] = sum over the entries e of row r of weights[e] * table[indices[e]], or that much more, for rows [begin, end).
void combine(Type type, const Lists& lists, const void* weights, Table table, TableOut out, std::int64_t begin,
             std::int64_t end, bool add);

// out[e] = scale * (g_e - mean of g over the row), g_e = x[r] . table[indices[e]]: Eq. 14 on the support.
void slopes(Type type, const Lists& lists, Table table, Table x, void* out, double scale, std::int64_t begin,
            std::int64_t end);

// Rows [begin, end) of lists turned over, for columns [first, first + cols): the list of a column holds rows, in order.
// Entry e of row r becomes put(at, e, r); column first + j has those of at in [offsets[j], offsets[j + 1]). Returns their
// number; room for offsets is cols + 1, and for the entries what the first pass, reserve(number), is told.
template <class Reserve, class Put>
std::int64_t turn_over(const Lists& lists, std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t cols,
                       std::int64_t* offsets, Reserve&& reserve, Put&& put) {
    for (std::int64_t j = 0; j <= cols; ++j) offsets[j] = 0;
    std::int64_t all = 0;
    for (std::int64_t e = lists.offsets[begin]; e < lists.offsets[end]; ++e) {
        const std::int64_t j = lists.indices[e] - first;
        if (j < 0 || j >= cols) continue;
        ++all;
        if (j + 2 <= cols) ++offsets[j + 2];
    }
    reserve(all);
    // offsets[j + 1] begins as the start of column j and is moved on to its end.
    for (std::int64_t j = 1; j <= cols; ++j) offsets[j] += offsets[j - 1];
    for (std::int64_t row = begin; row < end; ++row)
        for (std::int64_t e = lists.offsets[row]; e < lists.offsets[row + 1]; ++e) {
            const std::int64_t j = lists.indices[e] - first;
            if (j >= 0 && j < cols) put(offsets[j + 1]++, e, row);
        }
    return all;
}

}  // namespace zerotail
