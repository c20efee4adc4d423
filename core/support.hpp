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

// One row of scores: -inf where it does not take part; x added.
void exclude(Type type, void* z, const bool* takes_part, std::int64_t cols);
void add(Type type, void* z, const void* x, std::int64_t cols);

// out[r] = sum over the entries e of row r of weights[e] * table[indices[e]], or that much more, for rows [begin, end).
void combine(Type type, const Lists& lists, const void* weights, Table table, TableOut out, std::int64_t begin,
             std::int64_t end, bool add);

// out[e] = scale * (g_e - mean of g over the row), g_e = x[r] . table[indices[e]]: Eq. 14 on the support.
void slopes(Type type, const Lists& lists, Table table, Table x, void* out, double scale, std::int64_t begin,
            std::int64_t end);

// Lists turned over: row j holds the rows of the entries whose column is j, in order, and `from`, their numbers.
// offsets has cols + 1 numbers, rows and from as many as there are entries in rows [begin, end).
inline void turn_over(const Lists& lists, std::int64_t begin, std::int64_t end, std::int64_t cols,
                      std::int64_t* offsets, std::int32_t* rows, std::int64_t* from) {
    for (std::int64_t j = 0; j <= cols; ++j) offsets[j] = 0;
    const std::int64_t first = lists.offsets[begin], last = lists.offsets[end];
    // Each offset is filled up to the next one, and so becomes it.
    for (std::int64_t e = first; e < last; ++e)
        if (lists.indices[e] + 2 <= cols) ++offsets[lists.indices[e] + 2];
    for (std::int64_t j = 1; j <= cols; ++j) offsets[j] += offsets[j - 1];
    for (std::int64_t row = begin; row < end; ++row)
        for (std::int64_t e = lists.offsets[row]; e < lists.offsets[row + 1]; ++e) {
            const std::int64_t at = offsets[lists.indices[e] + 1]++;
            rows[at] = static_cast<std::int32_t>(row - begin);
            from[at] = e;
        }
}

}  // namespace zerotail
