// The few vector operations that the row kernels use, for the instruction set that this file is compiled for.
//
// Included inside of a target's namespace, so it includes nothing itself and uses no template of the standard library:
// a shared weak symbol compiled for a wider instruction set would reach machines that lack it.
//
// V is a vector of W lanes of T (float or double), M a mask of as many lanes. AVX-512 has its own section; everything
// else is written over the vector extensions of GCC and Clang, with intrinsics where the compilers need help.

struct half { std::uint16_t bits; };    // IEEE binary16
struct bfloat { std::uint16_t bits; };  // the upper half of a float

template <class S> struct ComputeOf { using T = float; };
template <> struct ComputeOf<double> { using T = double; };
// The type that rows of S are computed in.
template <class S> using Compute = typename ComputeOf<S>::T;

template <class T> struct Lanes;
struct CountF;
struct CountD;

#if defined(__AVX512F__)

template <> struct Lanes<float> {
    using V = __m512;
    using M = __mmask16;
    using Count = CountF;
    static constexpr int W = 16;
};
template <> struct Lanes<double> {
    using V = __m512d;
    using M = __mmask8;
    using Count = CountD;
    static constexpr int W = 8;
};
using F = __m512;
using D = __m512d;
using MF = __mmask16;
using MD = __mmask8;

inline F splat(float x) { return _mm512_set1_ps(x); }
inline D splat(double x) { return _mm512_set1_pd(x); }

inline MF first(int n, float) { return static_cast<MF>((1u << n) - 1); }
inline MD first(int n, double) { return static_cast<MD>((1u << n) - 1); }

inline F load(const float* p) { return _mm512_loadu_ps(p); }
inline D load(const double* p) { return _mm512_loadu_pd(p); }
inline F load_n(const float* p, int n, float fill) { return _mm512_mask_loadu_ps(splat(fill), first(n, 0.f), p); }
inline D load_n(const double* p, int n, double fill) { return _mm512_mask_loadu_pd(splat(fill), first(n, 0.), p); }
inline void store(float* p, F v) { _mm512_storeu_ps(p, v); }
inline void store(double* p, D v) { _mm512_storeu_pd(p, v); }
inline void store_n(float* p, F v, int n) { _mm512_mask_storeu_ps(p, first(n, 0.f), v); }
inline void store_n(double* p, D v, int n) { _mm512_mask_storeu_pd(p, first(n, 0.), v); }

inline F widen(__m256i x, half) { return _mm512_cvtph_ps(x); }
inline F widen(__m256i x, bfloat) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
inline __m256i narrow(F v, half) { return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT); }
inline __m256i narrow(F v, bfloat) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const MF nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    rounded = _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7fc00000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}
template <class S> F load(const S* p) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), S{}); }
template <class S> F load_n(const S* p, int n, float fill) {
    const MF k = first(n, 0.f);
    return _mm512_mask_mov_ps(splat(fill), k, widen(_mm256_maskz_loadu_epi16(k, p), S{}));
}
template <class S> void store(S* p, F v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(v, S{})); }
template <class S> void store_n(S* p, F v, int n) { _mm256_mask_storeu_epi16(p, first(n, 0.f), narrow(v, S{})); }

// b where either is NaN.
inline F max(F a, F b) { return _mm512_max_ps(a, b); }
inline D max(D a, D b) { return _mm512_max_pd(a, b); }
inline F min_if(MF k, F least, F a) { return _mm512_mask_min_ps(least, k, least, a); }
inline D min_if(MD k, D least, D a) { return _mm512_mask_min_pd(least, k, least, a); }
inline F abs(F a) { return _mm512_abs_ps(a); }
inline D abs(D a) { return _mm512_abs_pd(a); }

inline MF gt(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
inline MD gt(D a, D b) { return _mm512_cmp_pd_mask(a, b, _CMP_GT_OQ); }
// Not (a <= b): true where either is NaN.
inline MF not_le(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ); }
inline MD not_le(D a, D b) { return _mm512_cmp_pd_mask(a, b, _CMP_NLE_UQ); }
inline MF unordered(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }
inline MD unordered(D a, D b) { return _mm512_cmp_pd_mask(a, b, _CMP_UNORD_Q); }

inline MF either(MF a, MF b) { return static_cast<MF>(a | b); }
inline MD either(MD a, MD b) { return static_cast<MD>(a | b); }
inline MF both(MF a, MF b) { return static_cast<MF>(a & b); }
inline MD both(MD a, MD b) { return static_cast<MD>(a & b); }
inline unsigned bits(MF k) { return k; }
inline unsigned bits(MD k) { return k; }

inline F select(MF k, F a, F b) { return _mm512_mask_mov_ps(b, k, a); }
inline D select(MD k, D a, D b) { return _mm512_mask_mov_pd(b, k, a); }
inline F only(MF k, F a) { return _mm512_maskz_mov_ps(k, a); }
inline D only(MD k, D a) { return _mm512_maskz_mov_pd(k, a); }
inline F add_if(MF k, F sum, F a) { return _mm512_mask_add_ps(sum, k, sum, a); }
inline D add_if(MD k, D sum, D a) { return _mm512_mask_add_pd(sum, k, sum, a); }

// How often each lane was on.
struct CountF {
    __m512i n = _mm512_setzero_si512();
    void add(MF k) { n = _mm512_mask_sub_epi32(n, k, n, _mm512_set1_epi32(-1)); }
    F value() const { return _mm512_cvtepi32_ps(n); }
};
struct CountD {
    __m512i n = _mm512_setzero_si512();
    void add(MD k) { n = _mm512_mask_sub_epi64(n, k, n, _mm512_set1_epi64(-1)); }
    D value() const { return _mm512_cvtepi64_pd(n); }
};

// The lanes of k, packed, at p, where room for a whole vector is; their number is the result.
inline int compress(float* p, MF k, F v) {
    _mm512_storeu_ps(p, _mm512_maskz_compress_ps(k, v));
    return _mm_popcnt_u32(k);
}
inline int compress(double* p, MD k, D v) {
    _mm512_storeu_pd(p, _mm512_maskz_compress_pd(k, v));
    return _mm_popcnt_u32(k);
}
// base + the numbers of the lanes of k, packed, with room for a whole vector.
inline void compress_index(std::int32_t* p, MF k, std::int32_t base) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi32(k, _mm512_add_epi32(lane, _mm512_set1_epi32(base))));
}
inline void compress_index(std::int32_t* p, MD k, std::int32_t base) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm256_maskz_compress_epi32(k, _mm256_add_epi32(lane, _mm256_set1_epi32(base))));
}
// The lanes of k of the numbers at `from`.
inline void compress_index(std::int32_t* p, MF k, const std::int32_t* from) {
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi32(k, _mm512_loadu_si512(from)));
}
inline void compress_index(std::int32_t* p, MD k, const std::int32_t* from) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm256_maskz_compress_epi32(k, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
}

// a0 b0 a1 b1 ...: the lower halves of a and b, and the upper halves.
inline F zip_low(F a, F b) {
    const __m512i at = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(a, at, b);
}
inline F zip_high(F a, F b) {
    const __m512i at = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    return _mm512_permutex2var_ps(a, at, b);
}
inline D zip_low(D a, D b) { return _mm512_permutex2var_pd(a, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), b); }
inline D zip_high(D a, D b) { return _mm512_permutex2var_pd(a, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), b); }

inline D low(F v) { return _mm512_cvtps_pd(_mm512_castps512_ps256(v)); }
inline D high(F v) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)); }
inline F join(D a, D b) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(a)), _mm512_cvtpd_ps(b), 1);
}

#else

#if defined(__AVX2__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

typedef float F __attribute__((vector_size(vector_bytes)));
typedef double D __attribute__((vector_size(vector_bytes)));
typedef std::int32_t MF __attribute__((vector_size(vector_bytes)));
typedef std::int64_t MD __attribute__((vector_size(vector_bytes)));
typedef std::uint32_t U __attribute__((vector_size(vector_bytes)));
typedef std::uint16_t H __attribute__((vector_size(vector_bytes / 2)));
typedef float HF __attribute__((vector_size(vector_bytes / 2)));

template <> struct Lanes<float> {
    using V = F;
    using M = MF;
    using Count = CountF;
    static constexpr int W = vector_bytes / 4;
};
template <> struct Lanes<double> {
    using V = D;
    using M = MD;
    using Count = CountD;
    static constexpr int W = vector_bytes / 8;
};

inline F splat(float x) { return F{} + x; }
inline D splat(double x) { return D{} + x; }

template <class To, class From> To read(const From* p) {
    To v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
template <class To, class From> To cast(From v) {
    static_assert(sizeof(To) == sizeof(From));
    return read<To>(&v);
}

inline F load(const float* p) { return read<F>(p); }
inline D load(const double* p) { return read<D>(p); }
inline void store(float* p, F v) { __builtin_memcpy(p, &v, sizeof v); }
inline void store(double* p, D v) { __builtin_memcpy(p, &v, sizeof v); }

inline F choose(MF k, F a, F b) { return cast<F>((k & cast<MF>(a)) | (~k & cast<MF>(b))); }
inline D choose(MD k, D a, D b) { return cast<D>((k & cast<MD>(a)) | (~k & cast<MD>(b))); }
inline U choose(U k, U a, U b) { return (k & a) | (~k & b); }

inline F widen(H x, bfloat) { return cast<F>(__builtin_convertvector(x, U) << 16); }
inline H narrow(F v, bfloat) {
    const U b = cast<U>(v);
    const U nan = cast<U>(v != v);
    return __builtin_convertvector(choose(nan, U{} + 0x7fc0u, (b + 0x7fffu + ((b >> 16) & 1u)) >> 16), H);
}
#if defined(__F16C__)
inline F widen(H x, half) { return _mm256_cvtph_ps(cast<__m128i>(x)); }
inline H narrow(F v, half) { return cast<H>(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)); }
#else
inline F widen(H x, half) {
    const U h = __builtin_convertvector(x, U);
    const U magnitude = (h & 0x7fffu) << 13;
    // The exponent's bias differs by 112; the product is right for subnormal numbers as well.
    const U finite = cast<U>(cast<F>(magnitude) * 0x1p112f);
    const U special = cast<U>((h & 0x7c00u) == (U{} + 0x7c00u));
    return cast<F>(choose(special, magnitude | 0x7f800000u, finite) | ((h & 0x8000u) << 16));
}
inline H narrow(F v, half) {
    const U b = cast<U>(v), sign = (b >> 16) & 0x8000u, a = b & 0x7fffffffu;
    const U normal = (a + 0xc8000fffu + ((a >> 13) & 1u)) >> 13;   // rebias by -112 and round to even
    const U subnormal = cast<U>(cast<F>(a) + 0.5f) - 0x3f000000u;  // 0.5 has the unit of half's smallest
    const U big = choose(cast<U>(a > (U{} + 0x7f800000u)), U{} + 0x7e00u, U{} + 0x7c00u);
    const U small_or_normal = choose(cast<U>(a < (U{} + 0x38800000u)), subnormal, normal);
    return __builtin_convertvector(choose(cast<U>(a >= (U{} + 0x47800000u)), big, small_or_normal) | sign, H);
}
#endif
template <class S> F load(const S* p) { return widen(read<H>(p), S{}); }
template <class S> void store(S* p, F v) {
    const H h = narrow(v, S{});
    __builtin_memcpy(p, &h, sizeof h);
}
template <class S> auto load_n(const S* p, int n, Compute<S> fill) {
    constexpr int W = Lanes<Compute<S>>::W;
    S lanes[W] = {};
    for (int i = 0; i < n; ++i) lanes[i] = p[i];
    auto v = load(lanes);
    for (int i = n; i < W; ++i) v[i] = fill;
    return v;
}
template <class S, class V> void store_n(S* p, V v, int n) {
    S lanes[Lanes<Compute<S>>::W];
    store(lanes, v);
    for (int i = 0; i < n; ++i) p[i] = lanes[i];
}

// b where either is NaN.
#if defined(__AVX2__)
inline F max(F a, F b) { return _mm256_max_ps(a, b); }
inline D max(D a, D b) { return _mm256_max_pd(a, b); }
#elif defined(__SSE2__)
inline F max(F a, F b) { return _mm_max_ps(a, b); }
inline D max(D a, D b) { return _mm_max_pd(a, b); }
#else
inline F max(F a, F b) { return choose(a > b, a, b); }
inline D max(D a, D b) { return choose(a > b, a, b); }
#endif
inline F abs(F a) { return cast<F>(cast<U>(a) & 0x7fffffffu); }
inline D abs(D a) { return cast<D>(cast<MD>(a) & 0x7fffffffffffffff); }

// Not (a <= b): true where either is NaN.
#if defined(__AVX2__)
inline MF gt(F a, F b) { return cast<MF>(_mm256_cmp_ps(a, b, _CMP_GT_OQ)); }
inline MD gt(D a, D b) { return cast<MD>(_mm256_cmp_pd(a, b, _CMP_GT_OQ)); }
inline MF not_le(F a, F b) { return cast<MF>(_mm256_cmp_ps(a, b, _CMP_NLE_UQ)); }
inline MD not_le(D a, D b) { return cast<MD>(_mm256_cmp_pd(a, b, _CMP_NLE_UQ)); }
inline MF unordered(F a, F b) { return cast<MF>(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)); }
inline MD unordered(D a, D b) { return cast<MD>(_mm256_cmp_pd(a, b, _CMP_UNORD_Q)); }
#elif defined(__SSE2__)
inline MF gt(F a, F b) { return cast<MF>(_mm_cmpgt_ps(a, b)); }
inline MD gt(D a, D b) { return cast<MD>(_mm_cmpgt_pd(a, b)); }
inline MF not_le(F a, F b) { return cast<MF>(_mm_cmpnle_ps(a, b)); }
inline MD not_le(D a, D b) { return cast<MD>(_mm_cmpnle_pd(a, b)); }
inline MF unordered(F a, F b) { return cast<MF>(_mm_cmpunord_ps(a, b)); }
inline MD unordered(D a, D b) { return cast<MD>(_mm_cmpunord_pd(a, b)); }
#else
inline MF gt(F a, F b) { return a > b; }
inline MD gt(D a, D b) { return a > b; }
inline MF not_le(F a, F b) { return ~(a <= b); }
inline MD not_le(D a, D b) { return ~(a <= b); }
inline MF unordered(F a, F b) { return (a != a) | (b != b); }
inline MD unordered(D a, D b) { return (a != a) | (b != b); }
#endif
inline MF either(MF a, MF b) { return a | b; }
inline MD either(MD a, MD b) { return a | b; }
inline MF both(MF a, MF b) { return a & b; }
inline MD both(MD a, MD b) { return a & b; }

#if defined(__AVX2__)
inline unsigned bits(MF k) { return static_cast<unsigned>(_mm256_movemask_ps(cast<F>(k))); }
inline unsigned bits(MD k) { return static_cast<unsigned>(_mm256_movemask_pd(cast<D>(k))); }
#elif defined(__SSE2__)
inline unsigned bits(MF k) { return static_cast<unsigned>(_mm_movemask_ps(cast<F>(k))); }
inline unsigned bits(MD k) { return static_cast<unsigned>(_mm_movemask_pd(cast<D>(k))); }
#else
inline unsigned bits(MF k) {
    const MF b = k & MF{1, 2, 4, 8};
    return static_cast<unsigned>(b[0] | b[1] | b[2] | b[3]);
}
inline unsigned bits(MD k) { return static_cast<unsigned>((k[0] & 1) | (k[1] & 2)); }
#endif

inline F select(MF k, F a, F b) { return choose(k, a, b); }
inline D select(MD k, D a, D b) { return choose(k, a, b); }
inline F only(MF k, F a) { return cast<F>(k & cast<MF>(a)); }
inline D only(MD k, D a) { return cast<D>(k & cast<MD>(a)); }
inline F min_if(MF k, F least, F a) { return choose(k & gt(least, a), a, least); }
inline D min_if(MD k, D least, D a) { return choose(k & gt(least, a), a, least); }
// Adding +0 changes no sum that began with +0.
inline F add_if(MF k, F sum, F a) { return sum + only(k, a); }
inline D add_if(MD k, D sum, D a) { return sum + only(k, a); }

// How often each lane was on.
struct CountF {
    MF n = {};
    void add(MF k) { n -= k; }
    F value() const { return __builtin_convertvector(n, F); }
};
struct CountD {
    MD n = {};
    void add(MD k) { n -= k; }
    D value() const { return __builtin_convertvector(n, D); }
};

#if defined(__AVX2__)
// For each set of lanes, their numbers packed, a byte each.
struct PackTable {
    std::uint64_t of[256];
    constexpr PackTable() : of{} {
        for (unsigned set = 0; set < 256; ++set) {
            int at = 0;
            for (unsigned lane = 0; lane < 8; ++lane)
                if (set >> lane & 1u) of[set] |= static_cast<std::uint64_t>(lane) << (8 * at++);
        }
    }
};
inline constexpr PackTable pack_table;
inline __m256i pack_order(unsigned set) {
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<std::int64_t>(pack_table.of[set])));
}
// Lane pairs of a double, from the bits of its mask.
inline unsigned in_pairs(unsigned k) { return (k & 1) * 3 | (k & 2) * 6 | (k & 4) * 12 | (k & 8) * 24; }

inline int compress(float* p, MF k, F v) {
    store(p, cast<F>(_mm256_permutevar8x32_ps(v, pack_order(bits(k)))));
    return __builtin_popcount(bits(k));
}
inline int compress(double* p, MD k, D v) {
    store(p, cast<D>(_mm256_permutevar8x32_ps(cast<__m256>(v), pack_order(in_pairs(bits(k))))));
    return __builtin_popcount(bits(k));
}
#else
template <class T, class M, class V> int compress(T* p, M k, V v) {
    int n = 0;
    const unsigned set = bits(k);
    for (int i = 0; i < Lanes<T>::W; ++i) {
        p[n] = v[i];
        n += static_cast<int>(set >> i & 1u);
    }
    return n;
}
#endif
template <class M> void compress_index(std::int32_t* p, M k, std::int32_t base) {
    for (unsigned set = bits(k); set; set &= set - 1) *p++ = base + __builtin_ctz(set);
}
template <class M> void compress_index(std::int32_t* p, M k, const std::int32_t* from) {
    for (unsigned set = bits(k); set; set &= set - 1) *p++ = from[__builtin_ctz(set)];
}

#if defined(__AVX2__)
inline F zip_low(F a, F b) { return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20); }
inline F zip_high(F a, F b) { return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31); }
inline D zip_low(D a, D b) { return _mm256_permute2f128_pd(_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b), 0x20); }
inline D zip_high(D a, D b) { return _mm256_permute2f128_pd(_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b), 0x31); }
#else
inline F zip_low(F a, F b) { return F{a[0], b[0], a[1], b[1]}; }
inline F zip_high(F a, F b) { return F{a[2], b[2], a[3], b[3]}; }
inline D zip_low(D a, D b) { return D{a[0], b[0]}; }
inline D zip_high(D a, D b) { return D{a[1], b[1]}; }
#endif

inline D low(F v) { return __builtin_convertvector(read<HF>(&v), D); }
inline D high(F v) {
    return __builtin_convertvector(read<HF>(reinterpret_cast<const char*>(&v) + vector_bytes / 2), D);
}
inline F join(D a, D b) {
    const HF halves[2] = {__builtin_convertvector(a, HF), __builtin_convertvector(b, HF)};
    return read<F>(halves);
}

#endif

template <class T> using Vec = typename Lanes<T>::V;
template <class T> using Mask = typename Lanes<T>::M;
template <class T> using Count = typename Lanes<T>::Count;

template <class M> bool any(M k) { return bits(k) != 0; }

// The matrix whose rows are v[0..W), transposed: each step is a perfect shuffle of the rows' halves.
template <class T> void transpose(Vec<T>* v) {
    constexpr int W = Lanes<T>::W;
    Vec<T> other[W];
    Vec<T>*from = v, *to = other;
    int steps = 0;
    for (int n = 1; n < W; n *= 2, ++steps) {
        for (int i = 0; i < W / 2; ++i) {
            to[2 * i] = zip_low(from[i], from[i + W / 2]);
            to[2 * i + 1] = zip_high(from[i], from[i + W / 2]);
        }
        Vec<T>* swap = from;
        from = to;
        to = swap;
    }
    if (steps % 2)
        for (int i = 0; i < W; ++i) v[i] = other[i];
}
