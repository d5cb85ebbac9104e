/* The tiles of native_int8.c by AVX2: twelve vectors of sums, two of weights, one of data.
 *
 * The multiply-adds are written as instructions: left to themselves, compilers move the products
 * of a chunk together and have no registers for them.
 */
#include <immintrin.h>

static const _Alignas(32) int16_t ones[PANEL] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* Two products in 16 bits, two of these in 32, added to a vector of sums. */
INLINE __m256i narrow_sums(__m256i sums, __m256i data, __m256i weights)
{
    __m256i product;
    __asm__("vpmaddubsw %3, %2, %0\n\tvpmaddwd %4, %0, %0\n\tvpaddd %0, %1, %1"
            : "=&x"(product), "+x"(sums)
            : "x"(data), "x"(weights), "m"(ones));
    return sums;
}

INLINE __m256i wide_sums(__m256i sums, __m256i data, __m256i weights)
{
    __m256i product;
    __asm__("vpmaddwd %3, %2, %0\n\tvpaddd %0, %1, %1"
            : "=&x"(product), "+x"(sums)
            : "x"(data), "x"(weights));
    return sums;
}

/* By vectors, the last of which may read and write more than there is to copy. */
INLINE char *copied_avx2(const struct product *p, char *to, const char *from, int64_t count)
{
    const __m128i flips = _mm_set1_epi8((char)p->flip);

    if (p->source_end - from < (count + PANEL - 1) / PANEL * PANEL)
        return copied_plain(p, to, from, count);
    for (int64_t index = 0; index < count; index += PANEL) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(from + index));
        __m256i *wide = (__m256i *)(void *)(to + 2 * index);
        if (!p->is_wide)
            _mm_storeu_si128((__m128i *)(void *)(to + index), _mm_xor_si128(bytes, flips));
        else if (p->source_type == ELEMENT_U8)
            _mm256_storeu_si256(wide, _mm256_cvtepu8_epi16(bytes));
        else
            _mm256_storeu_si256(wide, _mm256_cvtepi8_epi16(bytes));
    }
    return to + count * (1 + p->is_wide);
}

INLINE __m256i repeated_chunk(const char *data)
{
    int32_t chunk;
    memcpy(&chunk, data, sizeof chunk);
    return _mm256_set1_epi32(chunk);
}

#define EACH_OF_1(DO) DO(0)
#define EACH_OF_2(DO) EACH_OF_1(DO) DO(1)
#define EACH_OF_3(DO) EACH_OF_2(DO) DO(2)
#define EACH_OF_4(DO) EACH_OF_3(DO) DO(3)
#define EACH_OF_5(DO) EACH_OF_4(DO) DO(4)
#define EACH_OF_6(DO) EACH_OF_5(DO) DO(5)

#define BEGIN(row) __m256i left##row = starts[0], right##row = starts[1];
#define ADD_NARROW(row)                                                                           \
    data = repeated_chunk(from + ROW_##row);                                                      \
    left##row = narrow_sums(left##row, data, weights[0]);                                         \
    right##row = narrow_sums(right##row, data, weights[1]);
#define ADD_WIDE(row)                                                                             \
    data = repeated_chunk(from + ROW_##row);                                                      \
    left##row = wide_sums(left##row, data, weights[0]);                                           \
    right##row = wide_sums(right##row, data, weights[1]);
#define END(row)                                                                                  \
    _mm256_storeu_si256((__m256i *)(void *)(sums + (row)*PANEL), left##row);                      \
    _mm256_storeu_si256((__m256i *)(void *)(sums + (row)*PANEL + PANEL / 2), right##row);

/* Where rows are: what an address of x86 holds, so that one counter serves all of them. */
#define ROW_0 0
#define ROW_1 step
#define ROW_2 step * 2
#define ROW_3 three_steps
#define ROW_4 step * 4
#define ROW_5 five_steps

#define ADD_CHUNK(count, ADD)                                                                     \
    {                                                                                             \
        const __m256i weights[2] = {_mm256_loadu_si256(panel), _mm256_loadu_si256(panel + 1)};    \
        __m256i data;                                                                             \
        EACH_OF_##count(ADD)                                                                      \
    }

#define DEFINE_TILE(kind, count, ADD)                                                             \
    static void kind##_tile_##count(const struct tile *tile, int32_t *sums)                       \
    {                                                                                             \
        const __m256i *from_starts = (const __m256i *)(const void *)tile->starts;                 \
        const __m256i starts[2] = {_mm256_loadu_si256(from_starts),                               \
                                   _mm256_loadu_si256(from_starts + 1)};                          \
        const int64_t step = tile->step;                                                          \
        int64_t three_steps = 3 * step, five_steps = 5 * step;                                    \
        const __m256i *panel = (const __m256i *)(const void *)tile->weights;                      \
        const char *from = tile->data, *const end = from + tile->chunks * CHUNK;                  \
        __asm__("" : "+r"(three_steps), "+r"(five_steps));                                        \
        EACH_OF_##count(BEGIN)                                                                    \
        for (; from + CHUNK < end; from += CHUNK, panel += 2) {                                   \
            ADD_CHUNK(count, ADD)                                                                 \
            from += CHUNK, panel += 2;                                                            \
            ADD_CHUNK(count, ADD)                                                                 \
        }                                                                                         \
        if (from < end) {                                                                         \
            ADD_CHUNK(count, ADD)                                                                 \
            panel += 2;                                                                           \
        }                                                                                         \
        for (int64_t index = 0; index < tile->again; index++, panel += 2) {                       \
            from = tile->data + tile->places[index] * (int64_t)CHUNK;                             \
            ADD_CHUNK(count, ADD)                                                                 \
        }                                                                                         \
        EACH_OF_##count(END)                                                                      \
    }

DEFINE_TILE(narrow, 1, ADD_NARROW)
DEFINE_TILE(narrow, 2, ADD_NARROW)
DEFINE_TILE(narrow, 3, ADD_NARROW)
DEFINE_TILE(narrow, 4, ADD_NARROW)
DEFINE_TILE(narrow, 5, ADD_NARROW)
DEFINE_TILE(narrow, 6, ADD_NARROW)
DEFINE_TILE(wide, 1, ADD_WIDE)
DEFINE_TILE(wide, 2, ADD_WIDE)
DEFINE_TILE(wide, 3, ADD_WIDE)
DEFINE_TILE(wide, 4, ADD_WIDE)
DEFINE_TILE(wide, 5, ADD_WIDE)
DEFINE_TILE(wide, 6, ADD_WIDE)

static void (*const tiles[2][TILE_ROWS])(const struct tile *, int32_t *) = {
    {narrow_tile_1, narrow_tile_2, narrow_tile_3, narrow_tile_4, narrow_tile_5, narrow_tile_6},
    {wide_tile_1, wide_tile_2, wide_tile_3, wide_tile_4, wide_tile_5, wide_tile_6},
};

INLINE void multiply_avx2(const struct tile *tile, int64_t is_wide, int32_t *sums)
{
    tiles[is_wide != 0][tile->rows - 1](tile, sums);
}

INLINE __m256i widened_tap(const char *from, int64_t is_signed)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)from);
    return is_signed ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes);
}

/* Sums of the taps of one place for a whole panel of channels. */
INLINE void add_panel_taps(const char **taps, int64_t column, int64_t chunks, int64_t is_signed,
                           const char *weights, int32_t *sums)
{
    const __m256i *pairs = (const __m256i *)(const void *)weights;
    __m256i low = _mm256_setzero_si256(), high = low;

    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const __m256i first = widened_tap(taps[2 * chunk] + column, is_signed);
        const __m256i second = widened_tap(taps[2 * chunk + 1] + column, is_signed);
        const __m256i lows = _mm256_unpacklo_epi16(first, second);
        const __m256i highs = _mm256_unpackhi_epi16(first, second);
        low = _mm256_add_epi32(low, _mm256_madd_epi16(lows, _mm256_loadu_si256(pairs + 2 * chunk)));
        high = _mm256_add_epi32(
            high, _mm256_madd_epi16(highs, _mm256_loadu_si256(pairs + 2 * chunk + 1)));
    }
    __m256i *to = (__m256i *)(void *)sums;
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(low, high, 0x31));
}

INLINE void add_taps_avx2(const struct product *p, const char **taps, int64_t column,
                          int64_t count, const char *weights, int32_t *sums)
{
    if (count < PANEL)
        add_taps_plain(p, taps, column, count, weights, sums);
    else if (p->source_type == ELEMENT_U8)
        add_panel_taps(taps, column, p->row_chunks, 0, weights, sums);
    else
        add_panel_taps(taps, column, p->row_chunks, 1, weights, sums);
}

INLINE __m256 scaled_sums(const int32_t *sums, __m256 scales, __m256 shifts)
{
    const __m256i whole = _mm256_loadu_si256((const __m256i *)(const void *)sums);
    return _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(whole), scales), shifts);
}

INLINE void load_panel_avx2(float *numbers, const char *from, int64_t type)
{
    if (type == ELEMENT_F32) {
        memcpy(numbers, from, PANEL * sizeof *numbers);
        return;
    }
    for (int64_t half = 0; half < 2; half++) {
        const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(from + 8 * half));
        const __m256i whole =
            type == ELEMENT_U8 ? _mm256_cvtepu8_epi32(bytes) : _mm256_cvtepi8_epi32(bytes);
        _mm256_store_ps(numbers + 8 * half, _mm256_cvtepi32_ps(whole));
    }
}

/* The order of operands has what is no number become the lowest. */
INLINE __m256i bounded_numbers(__m256 numbers, __m256 low, __m256 high)
{
    return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(numbers, low), high));
}

/* Two vectors of whole numbers, which are in range, as bytes. */
INLINE void store_bytes(char *to, __m256i left, __m256i right, int64_t type)
{
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(left, right), 0xd8);
    const __m128i front = _mm256_castsi256_si128(words), back = _mm256_extracti128_si256(words, 1);

    _mm_storeu_si128((__m128i *)(void *)to, type == ELEMENT_U8 ? _mm_packus_epi16(front, back)
                                                               : _mm_packs_epi16(front, back));
}

INLINE void store_panel_avx2(char *to, const float *numbers, int64_t type)
{
    const __m256 low = _mm256_set1_ps(type == ELEMENT_U8 ? 0.0f : -128.0f);
    const __m256 high = _mm256_set1_ps(type == ELEMENT_U8 ? 255.0f : 127.0f);

    if (type == ELEMENT_F32)
        memcpy(to, numbers, PANEL * sizeof *numbers);
    else
        store_bytes(to, bounded_numbers(_mm256_load_ps(numbers), low, high),
                    bounded_numbers(_mm256_load_ps(numbers + 8), low, high), type);
}

/* Rows of a whole panel that no step follows, `step` bytes apart. */
INLINE void store_sums_avx2(char *to, const int32_t *sums, struct factors factors, int64_t rows,
                            int64_t step, int64_t type)
{
    const __m256 low = _mm256_set1_ps(type == ELEMENT_U8 ? 0.0f : -128.0f);
    const __m256 high = _mm256_set1_ps(type == ELEMENT_U8 ? 255.0f : 127.0f);
    const __m256 scales[2] = {_mm256_loadu_ps(factors.scales), _mm256_loadu_ps(factors.scales + 8)};
    const __m256 shifts[2] = {_mm256_loadu_ps(factors.shifts), _mm256_loadu_ps(factors.shifts + 8)};

    for (int64_t row = 0; row < rows; row++, to += step, sums += PANEL) {
        const __m256 left = scaled_sums(sums, scales[0], shifts[0]);
        const __m256 right = scaled_sums(sums + 8, scales[1], shifts[1]);
        if (type == ELEMENT_F32) {
            _mm256_storeu_ps((float *)(void *)to, left);
            _mm256_storeu_ps((float *)(void *)to + 8, right);
        } else {
            store_bytes(to, bounded_numbers(left, low, high), bounded_numbers(right, low, high),
                        type);
        }
    }
}

INLINE void scale_rows_avx2(float *numbers, const int32_t *sums, struct factors factors,
                            int64_t rows)
{
    store_sums_avx2((char *)numbers, sums, factors, rows, PANEL * sizeof *numbers, ELEMENT_F32);
}

#define EACH_VECTOR(expression)                                                                   \
    for (int64_t index = 0; index < count; index += 8) {                                          \
        const __m256 x = _mm256_load_ps(numbers + index);                                         \
        _mm256_store_ps(numbers + index, expression);                                             \
    }                                                                                             \
    break

/* The most common steps are here, where they need no call. */
INLINE void apply_step_avx2(const struct result_step *step, float *numbers, const float *others,
                            int64_t count)
{
    const __m256 alpha = _mm256_set1_ps(step->alpha), beta = _mm256_set1_ps(step->beta);

    switch (step->number) {
    case FLOAT_STEP_LINEAR:
        EACH_VECTOR(_mm256_add_ps(_mm256_mul_ps(alpha, x), beta));
    case FLOAT_STEP_CLIP:
        EACH_VECTOR(_mm256_min_ps(beta, _mm256_max_ps(alpha, x)));
    case FLOAT_STEP_ROUND:
        EACH_VECTOR(_mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    case FLOAT_STEP_ADD:
        EACH_VECTOR(_mm256_add_ps(x, _mm256_load_ps(others + index)));
    default:
        float_step(step->number, numbers, numbers, others, count, step->alpha, step->beta);
    }
}
