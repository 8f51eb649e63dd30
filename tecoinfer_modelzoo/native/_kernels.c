/* Resize with Pillow's antialiasing filters, crop, and look up normalised values, bit by bit as Pillow and NumPy do.

The optional extension of tecoinfer_modelzoo.native. It is built with the package where there is a C compiler, and used on x86-64
only: Pillow's wheels for other processors may fuse multiplications and additions when they compute weights.

What is computed (after Pillow's documentation and behaviour; utils/preprocess/image/kernels.py compares both before the first use):
- Along an axis, sample i of the resized image is a weighted sum of source samples around in0 + (i + 0.5) * scale. The
  weights are computed as float64, divided by their sum, multiplied by 2^22 and rounded half away from zero.
- A sum of products starts at 2^21 and is shifted right by 22 bits, then clipped to 0..255. The axes are resized one
  after the other, with 8-bit samples in between.
- Every sample of the result depends on its own weights only, so only those of the crop are computed.

Why pmaddwd gives the same bits: it multiplies signed 16-bit numbers and adds pairs of products as 32-bit numbers. A
weight k of up to 26 bits is split into k = high * 2^11 + low with 0 <= low < 2^11 and |high| < 2^15, so both halves fit
in 16 bits, as does a sample. The two sums, of sample * high and of sample * low, are exact: |sample * low| < 2^19, and
the sum of |sample * high| stays below 2^8 times the sum of |k| / 2^11 + 1. They are combined as high * 2^11 + low modulo
2^32, which equals Pillow's 32-bit sum of sample * k modulo 2^32. Axes with a larger weight use the plain loops. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && FLT_EVAL_METHOD == 0
#define HAS_AVX2 1
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx2,avx512f,avx512bw")))
#endif

#define INTERFACE 1 /* of native/__init__.py; raised when arguments or results change */
#define BITS 22
#define HALF (1 << (BITS - 1))
#define LOW_BITS 11
#define ROWS 16 /* rows that a horizontal pass resizes at once */

static const double PI = 3.14159265358979323846;

enum level { PLAIN, WITH_AVX2, WITH_AVX512 };

/* ---- filters: the weight at a distance x from the centre, in resized samples where the image shrinks ---- */

static double box_weight(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

static double bilinear_weight(double x) {
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double hamming_weight(double x) {
    x = fabs(x);
    if (x == 0.0) return 1.0;
    if (x >= 1.0) return 0.0;
    x *= PI;
    return sin(x) / x * (0.54f + 0.46f * cos(x));
}

static double bicubic_weight(double x) { /* Keys' cubic convolution with a = -0.5 */
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

static double sinc(double x) {
    if (x == 0.0) return 1.0;
    x *= PI;
    return sin(x) / x;
}

static double lanczos_weight(double x) { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

typedef struct {
    double (*weight)(double);
    double support;
} filter_t;

/* By Pillow's numbers of its filters (PIL.Image.Resampling): LANCZOS 1, BILINEAR 2, BICUBIC 3, BOX 4, HAMMING 5. */
static const filter_t FILTERS[] = {
    {NULL, 0.0}, {lanczos_weight, 3.0}, {bilinear_weight, 1.0}, {bicubic_weight, 2.0}, {box_weight, 0.5}, {hamming_weight, 1.0},
};

/* ---- one axis ---- */

typedef struct {
    int changes;       /* whether this axis is resized at all */
    int count;         /* resized samples that are kept */
    int first;         /* of them in the resized image */
    int low, high;     /* range of source samples that they depend on */
    int stride;        /* weights per sample, a multiple of 4; those not needed are 0 */
    int small;         /* whether every weight fits the split into two halves */
    int *start;        /* first source sample of each */
    int *taps;         /* number of source samples of each */
    int32_t *weights;  /* count x stride */
    int32_t *pairs;    /* count x stride: for two weights, their high halves as 16-bit numbers, then their low halves */
} axis_t;

static void axis_free(axis_t *axis) {
    free(axis->start);
    free(axis->taps);
    free(axis->weights);
    free(axis->pairs);
}

static int32_t rounded(double weight) {
    return (int32_t)(weight < 0 ? weight * (1 << BITS) - 0.5 : weight * (1 << BITS) + 0.5);
}

static int32_t two_words(int32_t a, int32_t b) { return (int32_t)(((uint32_t)b << 16) | ((uint32_t)a & 0xffff)); }

static void split(axis_t *axis) {
    size_t total = (size_t)axis->count * axis->stride;
    axis->small = 1;
    for (size_t i = 0; i < total; i += 2) {
        int32_t a = axis->weights[i], b = axis->weights[i + 1];
        int32_t a_high = a >> LOW_BITS, b_high = b >> LOW_BITS;
        if (a_high != (int16_t)a_high || b_high != (int16_t)b_high) axis->small = 0;
        axis->pairs[i] = two_words(a_high, b_high);
        axis->pairs[i + 1] = two_words(a & ((1 << LOW_BITS) - 1), b & ((1 << LOW_BITS) - 1));
    }
}

/* Find the source samples of each kept sample, and the number of weights to hold for each. */
static void find_bounds(axis_t *axis, int old, float in0, double scale, double support) {
    int most = 1;
    axis->low = INT_MAX;
    axis->high = 0;
    for (int i = 0; i < axis->count; i++) {
        double center = in0 + (axis->first + i + 0.5) * scale;
        int low = (int)(center - support + 0.5), high = (int)(center + support + 0.5);
        if (low < 0) low = 0;
        if (high > old) high = old;
        axis->start[i] = low;
        axis->taps[i] = high - low;
        if (high - low > most) most = high - low;
        if (low < axis->low) axis->low = low;
        if (high > axis->high) axis->high = high;
    }
    axis->stride = (most + 3) & ~3;
}

/* Compute the weights of the kept samples; 0 if memory does not suffice. */
static int axis_init(axis_t *axis, int old, float in0, float in1, int size, int first, int end, const filter_t *filter) {
    memset(axis, 0, sizeof *axis);
    axis->first = first;
    axis->count = end - first;
    axis->low = first;
    axis->high = end;
    axis->changes = size != old || in0 != 0 || in1 != size;
    if (!axis->changes) return 1;
    double scale = (double)(in1 - in0) / size, shrink = scale < 1.0 ? 1.0 : scale, step = 1.0 / shrink;
    axis->start = malloc(axis->count * sizeof(int));
    axis->taps = malloc(axis->count * sizeof(int));
    if (!axis->start || !axis->taps) return 0;
    find_bounds(axis, old, in0, scale, filter->support * shrink);
    if ((size_t)axis->count > SIZE_MAX / 16 / axis->stride) return 0;
    size_t total = (size_t)axis->count * axis->stride;
    axis->weights = calloc(total, sizeof(int32_t));
    axis->pairs = malloc(total * sizeof(int32_t));
    double *weights = malloc(axis->stride * sizeof(double));
    if (!axis->weights || !axis->pairs || !weights) {
        free(weights);
        return 0;
    }
    for (int i = 0; i < axis->count; i++) {
        double center = in0 + (first + i + 0.5) * scale, sum = 0.0;
        for (int x = 0; x < axis->taps[i]; x++) {
            weights[x] = filter->weight((x + axis->start[i] - center + 0.5) * step);
            sum += weights[x];
        }
        for (int x = 0; x < axis->taps[i]; x++) {
            if (sum != 0.0) weights[x] /= sum;
            axis->weights[(size_t)i * axis->stride + x] = rounded(weights[x]);
        }
    }
    free(weights);
    split(axis);
    return 1;
}

/* ---- plain loops: the definition ---- */

static uint8_t clipped(uint32_t sum) {
    int32_t level = (int32_t)sum >> BITS;
    return level < 0 ? 0 : level > 255 ? 255 : (uint8_t)level;
}

static void across_plain(const axis_t *axis, int channels, const uint8_t *row, uint8_t *out) {
    for (int i = 0; i < axis->count; i++, out += channels) {
        const int32_t *weights = axis->weights + (size_t)i * axis->stride;
        const uint8_t *from = row + (size_t)axis->start[i] * channels;
        uint32_t one = HALF, two = HALF, three = HALF;
        if (channels == 1) {
            for (int x = 0; x < axis->taps[i]; x++) one += from[x] * (uint32_t)weights[x];
            out[0] = clipped(one);
            continue;
        }
        for (int x = 0; x < axis->taps[i]; x++, from += 4) {
            one += from[0] * (uint32_t)weights[x];
            two += from[1] * (uint32_t)weights[x];
            three += from[2] * (uint32_t)weights[x];
        }
        out[0] = clipped(one);
        out[1] = clipped(two);
        out[2] = clipped(three);
        out[3] = 0;
    }
}

static void down_plain(const axis_t *axis, int i, const uint8_t *from, size_t stride, int width, uint8_t *out) {
    const int32_t *weights = axis->weights + (size_t)i * axis->stride;
    for (int block = 0; block < width; block += 256) {
        uint32_t sums[256];
        int length = width - block < 256 ? width - block : 256;
        for (int x = 0; x < length; x++) sums[x] = HALF;
        for (int y = 0; y < axis->taps[i]; y++) {
            const uint8_t *row = from + (size_t)y * stride + block;
            uint32_t weight = (uint32_t)weights[y];
            for (int x = 0; x < length; x++) sums[x] += row[x] * weight;
        }
        for (int x = 0; x < length; x++) out[block + x] = clipped(sums[x]);
    }
}

/* ---- AVX2 ---- */

#ifdef HAS_AVX2

AVX2 static inline __m256i combined(__m256i high, __m256i low) {
    return _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(high, LOW_BITS), low), BITS);
}

/* Return the four channels of one resized sample of two rows, one in each half. */
AVX2 static inline __m256i sample_of_two(const axis_t *axis, int i, int groups, int last, const uint8_t *a, const uint8_t *b) {
    const __m256i first_two = _mm256_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1,
                                               0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1);
    const __m256i next_two = _mm256_setr_epi8(8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1,
                                              8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1);
    const int32_t *pairs = axis->pairs + (size_t)i * axis->stride;
    int start = axis->start[i];
    __m256i high = _mm256_setzero_si256(), low = _mm256_set1_epi32(HALF);
    for (int g = 0; g < groups; g++, pairs += 4) {
        /* Past the row's end there are weights of 0 only: read less far, and shift the samples to their places. */
        int at = start + 4 * g;
        __m256i four;
        if (at <= last) {
            four = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(a + 4 * at))),
                                           _mm_loadu_si128((const __m128i *)(b + 4 * at)), 1);
        } else {
            uint8_t held[32] = {0};
            int left = last + 4 - at;
            if (left > 0) {
                memcpy(held, a + 4 * at, 4 * left);
                memcpy(held + 16, b + 4 * at, 4 * left);
            }
            four = _mm256_loadu_si256((const __m256i *)held);
        }
        __m256i one = _mm256_shuffle_epi8(four, first_two), two = _mm256_shuffle_epi8(four, next_two);
        high = _mm256_add_epi32(high, _mm256_madd_epi16(one, _mm256_set1_epi32(pairs[0])));
        low = _mm256_add_epi32(low, _mm256_madd_epi16(one, _mm256_set1_epi32(pairs[1])));
        high = _mm256_add_epi32(high, _mm256_madd_epi16(two, _mm256_set1_epi32(pairs[2])));
        low = _mm256_add_epi32(low, _mm256_madd_epi16(two, _mm256_set1_epi32(pairs[3])));
    }
    return combined(high, low);
}

/* Resize two rows of four channels; ``last``: the last source sample from which four can be read. */
AVX2 static inline void across_two(const axis_t *axis, int groups, int last, const uint8_t *a, const uint8_t *b, uint8_t *to_a, uint8_t *to_b) {
    int i = 0;
    for (; i + 4 <= axis->count; i += 4) {
        __m256i one = _mm256_packs_epi32(sample_of_two(axis, i, groups, last, a, b), sample_of_two(axis, i + 1, groups, last, a, b));
        __m256i two = _mm256_packs_epi32(sample_of_two(axis, i + 2, groups, last, a, b), sample_of_two(axis, i + 3, groups, last, a, b));
        __m256i levels = _mm256_packus_epi16(one, two);
        _mm_storeu_si128((__m128i *)(to_a + 4 * i), _mm256_castsi256_si128(levels));
        _mm_storeu_si128((__m128i *)(to_b + 4 * i), _mm256_extracti128_si256(levels, 1));
    }
    for (; i < axis->count; i++) {
        __m256i one = sample_of_two(axis, i, groups, last, a, b);
        __m256i levels = _mm256_packus_epi16(_mm256_packs_epi32(one, one), one);
        int32_t pixel = _mm_cvtsi128_si32(_mm256_castsi256_si128(levels));
        memcpy(to_a + 4 * i, &pixel, 4);
        pixel = _mm_cvtsi128_si32(_mm256_extracti128_si256(levels, 1));
        memcpy(to_b + 4 * i, &pixel, 4);
    }
}

AVX2 static void across_avx2(const axis_t *axis, int last, const uint8_t *a, const uint8_t *b, uint8_t *to_a, uint8_t *to_b) {
    if (axis->stride == 4) across_two(axis, 1, last, a, b, to_a, to_b);
    else across_two(axis, axis->stride / 4, last, a, b, to_a, to_b);
}

/* Resize 32 columns of bytes to one row. */
AVX2 static inline void down_32(const int32_t *pairs, int taps, const uint8_t *from, size_t stride, uint8_t *out) {
    const __m256i zero = _mm256_setzero_si256(), half = _mm256_set1_epi32(HALF);
    __m256i high[4] = {zero, zero, zero, zero}, low[4] = {half, half, half, half};
    for (int y = 0; y < taps; y += 2, pairs += 2) {
        __m256i a = _mm256_loadu_si256((const __m256i *)from);
        __m256i b = y + 1 < taps ? _mm256_loadu_si256((const __m256i *)(from + stride)) : zero;
        __m256i front = _mm256_unpacklo_epi8(a, b), back = _mm256_unpackhi_epi8(a, b);
        __m256i words[4] = {_mm256_unpacklo_epi8(front, zero), _mm256_unpackhi_epi8(front, zero),
                            _mm256_unpacklo_epi8(back, zero), _mm256_unpackhi_epi8(back, zero)};
        __m256i highs = _mm256_set1_epi32(pairs[0]), lows = _mm256_set1_epi32(pairs[1]);
        for (int j = 0; j < 4; j++) {
            high[j] = _mm256_add_epi32(high[j], _mm256_madd_epi16(words[j], highs));
            low[j] = _mm256_add_epi32(low[j], _mm256_madd_epi16(words[j], lows));
        }
        from += 2 * stride;
    }
    __m256i one = _mm256_packs_epi32(combined(high[0], low[0]), combined(high[1], low[1]));
    __m256i two = _mm256_packs_epi32(combined(high[2], low[2]), combined(high[3], low[3]));
    _mm256_storeu_si256((__m256i *)out, _mm256_packus_epi16(one, two));
}

AVX2 static void down_avx2(const axis_t *axis, int i, const uint8_t *from, size_t stride, int width, uint8_t *out) {
    const int32_t *pairs = axis->pairs + (size_t)i * axis->stride;
    int taps = axis->taps[i];
    for (int x = 0; x + 32 <= width; x += 32) down_32(pairs, taps, from + x, stride, out + x);
    if (width & 31) down_32(pairs, taps, from + width - 32, stride, out + width - 32);
}

/* ---- AVX-512: the same with four rows, and with 64 columns ---- */

AVX512 static inline __m512i combined_512(__m512i high, __m512i low) {
    return _mm512_srai_epi32(_mm512_add_epi32(_mm512_slli_epi32(high, LOW_BITS), low), BITS);
}

AVX512 static inline __m512i four_rows(const uint8_t *const rows[4], size_t at) {
    __m512i found = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(rows[0] + at)));
    found = _mm512_inserti32x4(found, _mm_loadu_si128((const __m128i *)(rows[1] + at)), 1);
    found = _mm512_inserti32x4(found, _mm_loadu_si128((const __m128i *)(rows[2] + at)), 2);
    return _mm512_inserti32x4(found, _mm_loadu_si128((const __m128i *)(rows[3] + at)), 3);
}

/* Return the four channels of one resized sample of four rows, one in each quarter. */
AVX512 static inline __m512i sample_of_four(const axis_t *axis, int i, int groups, int last, const uint8_t *const rows[4]) {
    const __m512i first_two = _mm512_broadcast_i32x4(_mm_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1));
    const __m512i next_two = _mm512_broadcast_i32x4(_mm_setr_epi8(8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1));
    const int32_t *pairs = axis->pairs + (size_t)i * axis->stride;
    __m512i high = _mm512_setzero_si512(), low = _mm512_set1_epi32(HALF);
    for (int g = 0; g < groups; g++, pairs += 4) {
        int at = axis->start[i] + 4 * g;
        __m512i four;
        if (at <= last) {
            four = four_rows(rows, 4 * (size_t)at);
        } else {
            uint8_t held[64] = {0};
            int left = last + 4 - at;
            for (int y = 0; y < 4 && left > 0; y++) memcpy(held + 16 * y, rows[y] + 4 * (size_t)at, 4 * left);
            four = _mm512_loadu_si512(held);
        }
        __m512i one = _mm512_shuffle_epi8(four, first_two), two = _mm512_shuffle_epi8(four, next_two);
        high = _mm512_add_epi32(high, _mm512_madd_epi16(one, _mm512_set1_epi32(pairs[0])));
        low = _mm512_add_epi32(low, _mm512_madd_epi16(one, _mm512_set1_epi32(pairs[1])));
        high = _mm512_add_epi32(high, _mm512_madd_epi16(two, _mm512_set1_epi32(pairs[2])));
        low = _mm512_add_epi32(low, _mm512_madd_epi16(two, _mm512_set1_epi32(pairs[3])));
    }
    return combined_512(high, low);
}

AVX512 static inline void across_four(const axis_t *axis, int groups, int last, const uint8_t *const rows[4], uint8_t *const to[4]) {
    __m128i quarters[4];
    for (int i = 0; i < axis->count; i += 4) {
        int left = axis->count - i < 4 ? axis->count - i : 4; /* the last samples are repeated, and not stored */
        __m512i sums[4];
        for (int j = 0; j < 4; j++) sums[j] = sample_of_four(axis, i + (j < left ? j : left - 1), groups, last, rows);
        __m512i levels = _mm512_packus_epi16(_mm512_packs_epi32(sums[0], sums[1]), _mm512_packs_epi32(sums[2], sums[3]));
        quarters[0] = _mm512_castsi512_si128(levels);
        quarters[1] = _mm512_extracti32x4_epi32(levels, 1);
        quarters[2] = _mm512_extracti32x4_epi32(levels, 2);
        quarters[3] = _mm512_extracti32x4_epi32(levels, 3);
        for (int y = 0; y < 4; y++) {
            if (left == 4) _mm_storeu_si128((__m128i *)(to[y] + 4 * (size_t)i), quarters[y]);
            else memcpy(to[y] + 4 * (size_t)i, &quarters[y], 4 * left);
        }
    }
}

AVX512 static void across_avx512(const axis_t *axis, int last, const uint8_t *const rows[4], uint8_t *const to[4]) {
    if (axis->stride == 4) across_four(axis, 1, last, rows, to);
    else across_four(axis, axis->stride / 4, last, rows, to);
}

AVX512 static inline void down_64(const int32_t *pairs, int taps, const uint8_t *from, size_t stride, uint8_t *out) {
    const __m512i zero = _mm512_setzero_si512(), half = _mm512_set1_epi32(HALF);
    __m512i high[4] = {zero, zero, zero, zero}, low[4] = {half, half, half, half};
    for (int y = 0; y < taps; y += 2, pairs += 2, from += 2 * stride) {
        __m512i a = _mm512_loadu_si512(from), b = y + 1 < taps ? _mm512_loadu_si512(from + stride) : zero;
        __m512i front = _mm512_unpacklo_epi8(a, b), back = _mm512_unpackhi_epi8(a, b);
        __m512i words[4] = {_mm512_unpacklo_epi8(front, zero), _mm512_unpackhi_epi8(front, zero),
                            _mm512_unpacklo_epi8(back, zero), _mm512_unpackhi_epi8(back, zero)};
        __m512i highs = _mm512_set1_epi32(pairs[0]), lows = _mm512_set1_epi32(pairs[1]);
        for (int j = 0; j < 4; j++) {
            high[j] = _mm512_add_epi32(high[j], _mm512_madd_epi16(words[j], highs));
            low[j] = _mm512_add_epi32(low[j], _mm512_madd_epi16(words[j], lows));
        }
    }
    __m512i one = _mm512_packs_epi32(combined_512(high[0], low[0]), combined_512(high[1], low[1]));
    __m512i two = _mm512_packs_epi32(combined_512(high[2], low[2]), combined_512(high[3], low[3]));
    _mm512_storeu_si512(out, _mm512_packus_epi16(one, two));
}

AVX512 static void down_avx512(const axis_t *axis, int i, const uint8_t *from, size_t stride, int width, uint8_t *out) {
    const int32_t *pairs = axis->pairs + (size_t)i * axis->stride;
    int taps = axis->taps[i];
    for (int x = 0; x + 64 <= width; x += 64) down_64(pairs, taps, from + x, stride, out + x);
    if (width & 63) down_64(pairs, taps, from + width - 64, stride, out + width - 64);
}

#endif

static enum level best_level(void) {
#ifdef HAS_AVX2
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") ? WITH_AVX512 : WITH_AVX2;
#endif
    return PLAIN;
}

/* ---- the resize of a crop ---- */

typedef struct {
    int channels;          /* bytes per pixel of the source: 1 or 4, of which the last is not used */
    enum level level;
    axis_t across, down;
    uint8_t *scratch;      /* interleaved rows of grey, before and after they are resized */
    int left, top;         /* of the computed part in the result */
    int height, width;     /* of the result */
    int item;              /* bytes of a sample of the result */
    const uint8_t *table;  /* 3 x 256 values, or NULL: levels */
    uint8_t *out;
} job_t;

#ifdef HAS_AVX2

/* Resize rows of four channels horizontally; ``length``: pixels in a row, at least 4. */
static void across_vectors(const job_t *job, const uint8_t *from, size_t stride, int rows, int length, uint8_t *to, size_t to_stride) {
    int last = length - 4, together = job->level == WITH_AVX512 ? 4 : 2;
    for (int y = 0; y < rows; y += together) {
        const uint8_t *sources[4];
        uint8_t *results[4];
        for (int j = 0; j < together; j++) { /* the last row is repeated */
            int row = y + j < rows ? y + j : rows - 1;
            sources[j] = from + row * stride;
            results[j] = to + row * to_stride;
        }
        if (together == 4) across_avx512(&job->across, last, sources, results);
        else across_avx2(&job->across, last, sources[0], sources[1], results[0], results[1]);
    }
}

/* Write the bytes ``low`` to ``high`` of four rows as pixels of four channels, to the same pixels of ``to``. */
AVX2 static void interleave(const uint8_t *const rows[4], int low, int high, uint8_t *to) {
    int x = low;
    for (; x + 16 <= high; x += 16) {
        __m128i a = _mm_loadu_si128((const __m128i *)(rows[0] + x)), b = _mm_loadu_si128((const __m128i *)(rows[1] + x));
        __m128i c = _mm_loadu_si128((const __m128i *)(rows[2] + x)), d = _mm_loadu_si128((const __m128i *)(rows[3] + x));
        __m128i ab = _mm_unpacklo_epi8(a, b), cd = _mm_unpacklo_epi8(c, d);
        __m128i more_ab = _mm_unpackhi_epi8(a, b), more_cd = _mm_unpackhi_epi8(c, d);
        __m128i *place = (__m128i *)(to + 4 * (size_t)x);
        _mm_storeu_si128(place, _mm_unpacklo_epi16(ab, cd));
        _mm_storeu_si128(place + 1, _mm_unpackhi_epi16(ab, cd));
        _mm_storeu_si128(place + 2, _mm_unpacklo_epi16(more_ab, more_cd));
        _mm_storeu_si128(place + 3, _mm_unpackhi_epi16(more_ab, more_cd));
    }
    for (; x < high; x++)
        for (int y = 0; y < 4; y++) to[4 * (size_t)x + y] = rows[y][x];
}

/* Write the four channels of ``count`` pixels to up to four rows. */
AVX2 static void separate(const uint8_t *pixels, int count, int rows, uint8_t *to, size_t stride) {
    const __m128i by_channel = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    int x = 0;
    for (; x + 16 <= count; x += 16) {
        __m128i four[4], done[4];
        for (int j = 0; j < 4; j++)
            four[j] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(pixels + 4 * (size_t)x) + j), by_channel);
        __m128i front = _mm_unpacklo_epi32(four[0], four[1]), back = _mm_unpacklo_epi32(four[2], four[3]);
        done[0] = _mm_unpacklo_epi64(front, back);
        done[1] = _mm_unpackhi_epi64(front, back);
        front = _mm_unpackhi_epi32(four[0], four[1]);
        back = _mm_unpackhi_epi32(four[2], four[3]);
        done[2] = _mm_unpacklo_epi64(front, back);
        done[3] = _mm_unpackhi_epi64(front, back);
        for (int y = 0; y < rows; y++) _mm_storeu_si128((__m128i *)(to + y * stride + x), done[y]);
    }
    for (; x < count; x++)
        for (int y = 0; y < rows; y++) to[y * stride + x] = pixels[4 * (size_t)x + y];
}

/* Resize rows of grey horizontally: four of them as one row of four channels. */
static void across_gray(const job_t *job, const uint8_t *from, size_t stride, int rows, int length, uint8_t *to, size_t to_stride) {
    const axis_t *axis = &job->across;
    size_t wide = (size_t)length * 4, result = (size_t)axis->count * 4;
    uint8_t *done = job->scratch + ROWS / 4 * wide;
    for (int y = 0; y < ROWS; y += 4) {
        const uint8_t *sources[4];
        for (int j = 0; j < 4; j++) sources[j] = from + (size_t)(y + j < rows ? y + j : rows - 1) * stride;
        interleave(sources, axis->low, axis->high, job->scratch + y / 4 * wide);
    }
    across_vectors(job, job->scratch, wide, (rows + 3) / 4, length, done, result);
    for (int y = 0; y < rows; y += 4)
        separate(done + y / 4 * result, axis->count, rows - y < 4 ? rows - y : 4, to + y * to_stride, to_stride);
}

#endif

/* Resize up to ROWS rows horizontally; ``from``: the source's first column, ``length``: pixels in a row. */
static void across_rows(const job_t *job, const uint8_t *from, size_t stride, int rows, int length, uint8_t *to, size_t to_stride) {
    const axis_t *axis = &job->across;
#ifdef HAS_AVX2
    if (job->level >= WITH_AVX2 && axis->small && length >= 4 && (job->channels == 4 || rows > 1)) {
        if (job->channels == 4) across_vectors(job, from, stride, rows, length, to, to_stride);
        else across_gray(job, from, stride, rows, length, to, to_stride);
        return;
    }
#endif
    (void)length;
    for (int y = 0; y < rows; y++) across_plain(axis, job->channels, from + y * stride, to + y * to_stride);
}

/* Resize ``width`` bytes vertically to row i; ``from`` is source row number ``base``. */
static void down_row(const job_t *job, int i, const uint8_t *from, int base, size_t stride, int width, uint8_t *to) {
    const axis_t *axis = &job->down;
    from += (size_t)(axis->start[i] - base) * stride;
#ifdef HAS_AVX2
    if (job->level == WITH_AVX512 && axis->small && width >= 64) {
        down_avx512(axis, i, from, stride, width, to);
        return;
    }
    if (job->level >= WITH_AVX2 && axis->small && width >= 32) {
        down_avx2(axis, i, from, stride, width, to);
        return;
    }
#endif
    down_plain(axis, i, from, stride, width, to);
}

#ifdef HAS_AVX2

/* Look up the 32-bit values of a row of one or four channels, and return the number of pixels done. */
AVX2 static int look_up_avx2(const uint32_t *table, const uint8_t *row, int gray, int count, uint32_t *to, size_t plane) {
    const __m256i byte = _mm256_set1_epi32(255);
    int x = 0;
    for (; x + 8 <= count; x += 8) {
        __m256i red, green, blue;
        if (gray) {
            red = green = blue = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(row + x)));
        } else {
            __m256i pixels = _mm256_loadu_si256((const __m256i *)(row + 4 * (size_t)x));
            red = _mm256_and_si256(pixels, byte);
            green = _mm256_and_si256(_mm256_srli_epi32(pixels, 8), byte);
            blue = _mm256_and_si256(_mm256_srli_epi32(pixels, 16), byte);
        }
        _mm256_storeu_si256((__m256i *)(to + x), _mm256_i32gather_epi32((const int *)table, red, 4));
        _mm256_storeu_si256((__m256i *)(to + plane + x), _mm256_i32gather_epi32((const int *)table + 256, green, 4));
        _mm256_storeu_si256((__m256i *)(to + 2 * plane + x), _mm256_i32gather_epi32((const int *)table + 512, blue, 4));
    }
    return x;
}

/* Drop the fourth channel of a row, and return the number of pixels done; 4 bytes behind them are overwritten. */
AVX2 static int pack_avx2(const uint8_t *row, int count, uint8_t *to) {
    const __m128i three = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    int x = 0;
    for (; x + 6 <= count; x += 4) /* 2 more pixels hold the 4 bytes */
        _mm_storeu_si128((__m128i *)(to + 3 * x), _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(row + 4 * x)), three));
    return x;
}

#endif

/* Write row y of the computed part to the result. */
static void emit(const job_t *job, int y, const uint8_t *row) {
    int count = job->across.count, gray = job->channels == 1;
    size_t at = (size_t)(job->top + y) * job->width + job->left;
    if (!job->table) {
        uint8_t *to = job->out + at * (gray ? 1 : 3);
        int x = 0;
        if (gray) {
            memcpy(to, row, count);
            return;
        }
#ifdef HAS_AVX2
        if (job->level >= WITH_AVX2) x = pack_avx2(row, count, to);
#endif
        for (; x < count; x++) memcpy(to + 3 * x, row + 4 * x, 3);
        return;
    }
    size_t plane = (size_t)job->height * job->width;
    int done = 0;
#ifdef HAS_AVX2
    if (job->level >= WITH_AVX2 && job->item == 4)
        done = look_up_avx2((const uint32_t *)job->table, row, gray, count, (uint32_t *)job->out + at, plane);
#endif
    for (int c = 0; c < 3; c++) {
        const uint8_t *from = gray ? row : row + c;
        int step = gray ? 1 : 4;
        if (job->item == 4) {
            const uint32_t *table = (const uint32_t *)job->table + 256 * c;
            uint32_t *to = (uint32_t *)job->out + c * plane + at;
            for (int x = done; x < count; x++) to[x] = table[from[x * step]];
        } else {
            const uint16_t *table = (const uint16_t *)job->table + 256 * c;
            uint16_t *to = (uint16_t *)job->out + c * plane + at;
            for (int x = done; x < count; x++) to[x] = table[from[x * step]];
        }
    }
}

/* Fill the result with the value of black. */
static void fill_black(const job_t *job) {
    size_t plane = (size_t)job->height * job->width;
    if (!job->table) {
        memset(job->out, 0, plane * (job->channels == 1 ? 1 : 3));
        return;
    }
    for (size_t i = 0; i < 3 * plane; i++)
        memcpy(job->out + i * job->item, job->table + (i / plane) * 256 * job->item, job->item);
}

/* Horizontal first: rows are resized when the vertical pass needs them. 0 if memory does not suffice. */
static int across_first(const job_t *job, const uint8_t *source, size_t stride, int length) {
    const axis_t *across = &job->across, *down = &job->down;
    size_t width = (size_t)across->count * job->channels, held_stride = stride;
    uint8_t *held = NULL, *one = malloc(width);
    const uint8_t *rows = source + (size_t)across->first * job->channels; /* the vertical pass' source */
    int base = 0, done = down->low;
    if (across->changes) {
        held = malloc((size_t)(down->high - down->low) * width);
        rows = held;
        held_stride = width;
        base = down->low;
    }
    if (!one || !rows) {
        free(one);
        free(held);
        return 0;
    }
    for (int y = 0; y < down->count; y++) {
        int needed = down->changes ? down->start[y] + down->taps[y] : down->first + y + 1;
        while (across->changes && done < needed) {
            int count = down->high - done < ROWS ? down->high - done : ROWS;
            across_rows(job, source + done * stride, stride, count, length, held + (done - base) * width, width);
            done += count;
        }
        if (down->changes) down_row(job, y, rows, base, held_stride, (int)width, one);
        emit(job, y, down->changes ? one : rows + (size_t)(down->first + y - base) * held_stride);
    }
    free(one);
    free(held);
    return 1;
}

/* Vertical first; both axes change. 0 if memory does not suffice. */
static int down_first(const job_t *job, const uint8_t *source, size_t stride, int length) {
    const axis_t *across = &job->across, *down = &job->down;
    size_t width = (size_t)across->count * job->channels, row_bytes = (size_t)length * job->channels;
    size_t low = (size_t)across->low * job->channels;
    int needed = (across->high - across->low) * job->channels;
    /* Samples outside low to high are read, and multiplied by 0, but never computed. */
    uint8_t *between = calloc(ROWS, row_bytes), *done = malloc(ROWS * width);
    int found = between && done;
    for (int y = 0; found && y < down->count; y += ROWS) {
        int count = down->count - y < ROWS ? down->count - y : ROWS;
        for (int r = 0; r < count; r++) down_row(job, y + r, source + low, 0, stride, needed, between + r * row_bytes + low);
        across_rows(job, between, row_bytes, count, length, done, width);
        for (int r = 0; r < count; r++) emit(job, y + r, done + r * width);
    }
    free(between);
    free(done);
    return found;
}

/* ---- Python ---- */

/* The array of the Arrow C data interface (arrow.apache.org/docs/format/CDataInterface.html). */
struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

/* Return the bytes of a Pillow image's Arrow array, or NULL with an exception. */
static const uint8_t *arrow_bytes(PyObject *capsule, int64_t bytes) {
    const struct ArrowArray *array = PyCapsule_GetPointer(capsule, "arrow_array");
    if (!array) return NULL;
    if (array->n_children == 1) array = array->children[0];
    if (array->n_buffers != 2 || array->offset != 0 || array->length != bytes || !array->buffers[1]) {
        PyErr_SetString(PyExc_ValueError, "the Arrow array does not hold the pixels of an image of this size");
        return NULL;
    }
    return array->buffers[1];
}

typedef struct {
    int channels, width, height;         /* of the source, in pixels */
    float box[4];                        /* part of the source to resize */
    int size[2];                         /* of the resized box: width, height */
    int crop[4];                         /* part of it to return; outside it is black */
    int filter, vertical_first, level;
} request_t;

static const char *request_error(const request_t *r) {
    if (r->channels != 1 && r->channels != 4) return "channels must be 1 or 4";
    if (r->width < 1 || r->height < 1 || r->size[0] < 1 || r->size[1] < 1) return "a side is below 1 pixel";
    if (r->width > INT_MAX / 8 || r->height > INT_MAX / 8 || r->size[0] > INT_MAX / 8 || r->size[1] > INT_MAX / 8)
        return "a side is too long";
    if (!(r->box[0] >= 0 && r->box[0] <= r->box[2] && r->box[2] <= r->width)) return "the box exceeds the image's width";
    if (!(r->box[1] >= 0 && r->box[1] <= r->box[3] && r->box[3] <= r->height)) return "the box exceeds the image's height";
    if (r->crop[0] >= r->crop[2] || r->crop[1] >= r->crop[3]) return "the crop is empty";
    if (r->filter < 1 || r->filter > 5) return "unknown filter";
    if (r->level < PLAIN || r->level > (int)best_level()) return "this processor lacks the instructions of the level";
    return NULL;
}

/* Compute the result; 0 if memory does not suffice. */
static int compute(const request_t *r, const uint8_t *source, job_t *job) {
    const filter_t *filter = &FILTERS[r->filter];
    int left = r->crop[0] > 0 ? r->crop[0] : 0, top = r->crop[1] > 0 ? r->crop[1] : 0;
    int right = r->crop[2] < r->size[0] ? r->crop[2] : r->size[0];
    int bottom = r->crop[3] < r->size[1] ? r->crop[3] : r->size[1];
    if (right - left < job->width || bottom - top < job->height) fill_black(job);
    if (right <= left || bottom <= top) return 1;
    job->left = left - r->crop[0];
    job->top = top - r->crop[1];
    size_t stride = (size_t)r->width * r->channels;
    int found = axis_init(&job->across, r->width, r->box[0], r->box[2], r->size[0], left, right, filter)
                && axis_init(&job->down, r->height, r->box[1], r->box[3], r->size[1], top, bottom, filter);
    if (found && r->channels == 1) {
        job->scratch = calloc(ROWS, (size_t)r->width + job->across.count);
        found = job->scratch != NULL;
    }
    if (found && r->vertical_first && job->across.changes && job->down.changes)
        found = down_first(job, source, stride, r->width);
    else if (found)
        found = across_first(job, source, stride, r->width);
    axis_free(&job->across);
    axis_free(&job->down);
    free(job->scratch);
    return found;
}

/* Check the table and the result against the request, and compute. */
static PyObject *compute_into(const request_t *r, const uint8_t *source, const Py_buffer *table, const Py_buffer *out) {
    job_t job = {.channels = r->channels, .level = (enum level)r->level, .out = out->buf};
    int64_t width = (int64_t)r->crop[2] - r->crop[0], height = (int64_t)r->crop[3] - r->crop[1];
    int64_t samples = r->channels == 1 && !table ? 1 : 3;
    job.item = table ? (int)(table->len / (3 * 256)) : 1;
    if (table && ((job.item != 2 && job.item != 4) || table->len != 3 * 256 * job.item)) {
        PyErr_SetString(PyExc_ValueError, "the table must hold 3 x 256 values of 2 or 4 bytes");
        return NULL;
    }
    if (width > INT_MAX / 8 || height > INT_MAX / 8 || out->len != width * height * samples * job.item) {
        PyErr_SetString(PyExc_ValueError, "the result has another size than the crop");
        return NULL;
    }
    if ((uintptr_t)out->buf % job.item || (table && (uintptr_t)table->buf % job.item)) {
        PyErr_SetString(PyExc_ValueError, "the result or the table is not aligned");
        return NULL;
    }
    job.width = (int)width;
    job.height = (int)height;
    job.table = table ? table->buf : NULL;
    int found;
    Py_BEGIN_ALLOW_THREADS
    found = compute(r, source, &job);
    Py_END_ALLOW_THREADS
    if (!found) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *resample(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *source_object, *table_object, *out_object, *done = NULL;
    request_t r;
    if (!PyArg_ParseTuple(args, "Oi(ii)(ffff)(ii)(iiii)ipiOO", &source_object, &r.channels, &r.width, &r.height, &r.box[0],
                          &r.box[1], &r.box[2], &r.box[3], &r.size[0], &r.size[1], &r.crop[0], &r.crop[1], &r.crop[2],
                          &r.crop[3], &r.filter, &r.vertical_first, &r.level, &table_object, &out_object))
        return NULL;
    const char *error = request_error(&r);
    if (error) {
        PyErr_SetString(PyExc_ValueError, error);
        return NULL;
    }
    Py_buffer source = {0}, table = {0}, out = {0};
    int64_t bytes = (int64_t)r.width * r.height * r.channels;
    const uint8_t *pixels;
    if (PyCapsule_CheckExact(source_object)) {
        pixels = arrow_bytes(source_object, bytes);
    } else {
        if (PyObject_GetBuffer(source_object, &source, PyBUF_SIMPLE)) return NULL;
        pixels = source.buf;
        if (source.len != bytes) {
            PyErr_SetString(PyExc_ValueError, "the source has another size than the image");
            pixels = NULL;
        }
    }
    if (pixels && (table_object == Py_None || !PyObject_GetBuffer(table_object, &table, PyBUF_SIMPLE))
        && !PyObject_GetBuffer(out_object, &out, PyBUF_WRITABLE))
        done = compute_into(&r, pixels, table_object == Py_None ? NULL : &table, &out);
    if (out.obj) PyBuffer_Release(&out);
    if (table.obj) PyBuffer_Release(&table);
    if (source.obj) PyBuffer_Release(&source);
    return done;
}

static PyObject *level(PyObject *self, PyObject *args) {
    (void)self;
    (void)args;
    return PyLong_FromLong(best_level());
}

static PyObject *interface(PyObject *self, PyObject *args) {
    (void)self;
    (void)args;
    return PyLong_FromLong(INTERFACE);
}

static PyMethodDef METHODS[] = {
    {"interface", interface, METH_NOARGS, "Return the number of this interface."},
    {"resample", resample, METH_VARARGS,
     "resample(source, channels, (width, height), box, (width, height), crop, filter, vertical_first, level, table, out)"},
    {"level", level, METH_NOARGS, "Return the highest level of this processor: 0 for plain C, 1 for AVX2, 2 for AVX-512."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef_Slot SLOTS[] = {
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_kernels", "Kernels of tecoinfer_modelzoo.native.", 0, METHODS, SLOTS, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModuleDef_Init(&MODULE); }
