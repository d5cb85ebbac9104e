/* The tiles of native_int8.c by AVX2: twelve vectors of sums, two of weights, one of data.
 *
 * The multiply-adds are written as instructions: left to themselves, compilers move the products
 * of a chunk together and have no registers for them.
 */

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

INLINE __m256i widened_tap(const char *from, int64_t is_signed)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)from);
    return is_signed ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes);
}

/* By vectors, the last of which may read and write more than there is to copy. */
INLINE char *copied_avx2(const struct product *p, char *to, const char *from, int64_t count)
{
    const __m128i flips = _mm_set1_epi8((char)p->flip);

    if (p->source_end - from < (count + PANEL - 1) / PANEL * PANEL)
        return copied_plain(p, to, from, count);
    for (int64_t index = 0; index < count; index += PANEL) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(from + index));
        _mm_storeu_si128((__m128i *)(void *)(to + index), _mm_xor_si128(bytes, flips));
    }
    return to + count;
}

INLINE void widen_row_avx2(char *row, int64_t count)
{
    for (int64_t index = 0; index < count; index += PANEL)
        _mm256_storeu_si256((__m256i *)(void *)(row + count + 2 * index),
                            widened_tap(row + index, 0));
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

/* The chunks of a list. */
#define ADD_LISTED(count, ADD, last)                                                              \
    for (; place < (last); place++, panel += 2) {                                                 \
        const char *from = tile->data + *place * (int64_t)CHUNK;                                  \
        ADD_CHUNK(count, ADD)                                                                     \
    }

#define BEGIN_TILE(count)                                                                         \
    const __m256i *from_starts = (const __m256i *)(const void *)tile->starts;                     \
    const __m256i starts[2] = {_mm256_loadu_si256(from_starts),                                   \
                               _mm256_loadu_si256(from_starts + 1)};                              \
    const __m256i *panel = (const __m256i *)(const void *)tile->weights;                          \
    const int64_t step = tile->step;                                                              \
    int64_t three_steps = 3 * step, five_steps = 5 * step;                                        \
    __asm__("" : "+r"(three_steps), "+r"(five_steps));                                            \
    EACH_OF_##count(BEGIN)

#define DEFINE_TILES(count)                                                                       \
    static void listed_tile_##count(const struct tile *tile, int32_t *sums)                       \
    {                                                                                             \
        const int32_t *place = tile->places;                                                      \
        BEGIN_TILE(count)                                                                         \
        ADD_LISTED(count, ADD_NARROW, tile->places + tile->narrow)                                \
        ADD_LISTED(count, ADD_WIDE, tile->places + tile->narrow + tile->wide)                     \
        EACH_OF_##count(END)                                                                      \
    }                                                                                             \
    static void wide_tile_##count(const struct tile *tile, int32_t *sums)                         \
    {                                                                                             \
        const char *from = tile->data, *const end = from + tile->wide * CHUNK;                    \
        BEGIN_TILE(count)                                                                         \
        for (; from < end; from += CHUNK, panel += 2) {                                           \
            ADD_CHUNK(count, ADD_WIDE)                                                            \
            from += CHUNK, panel += 2;                                                            \
            ADD_CHUNK(count, ADD_WIDE)                                                            \
        }                                                                                         \
        EACH_OF_##count(END)                                                                      \
    }

DEFINE_TILES(1)
DEFINE_TILES(2)
DEFINE_TILES(3)
DEFINE_TILES(4)
DEFINE_TILES(5)
DEFINE_TILES(6)

static void (*const tiles[2][TILE_ROWS])(const struct tile *, int32_t *) = {
    {listed_tile_1, listed_tile_2, listed_tile_3, listed_tile_4, listed_tile_5, listed_tile_6},
    {wide_tile_1, wide_tile_2, wide_tile_3, wide_tile_4, wide_tile_5, wide_tile_6},
};

INLINE void multiply_avx2(const struct tile *tile, int32_t *sums)
{
    tiles[tile->places == NULL][tile->rows - 1](tile, sums);
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

INLINE void scale_rows_avx2(float *numbers, const int32_t *sums, struct factors factors,
                            int64_t rows)
{
    for (int64_t index = 0; index < rows * PANEL; index += 8) {
        const __m256 scales = _mm256_loadu_ps(factors.scales + index % PANEL);
        const __m256 shifts = _mm256_loadu_ps(factors.shifts + index % PANEL);
        _mm256_store_ps(numbers + index, scaled_sums(sums + index, scales, shifts));
    }
}

/* Eight numbers from the one of that index on. */
INLINE __m256 numbers_avx2(const char *from, int64_t index, int64_t type)
{
    if (type == ELEMENT_F32)
        return _mm256_loadu_ps((const float *)(const void *)from + index);
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(from + index));
    return _mm256_cvtepi32_ps(type == ELEMENT_U8 ? _mm256_cvtepu8_epi32(bytes)
                                                 : _mm256_cvtepi8_epi32(bytes));
}

INLINE void load_panel_avx2(float *numbers, const char *from, int64_t type)
{
    _mm256_store_ps(numbers, numbers_avx2(from, 0, type));
    _mm256_store_ps(numbers + 8, numbers_avx2(from, 8, type));
}

/* A panel as words, which bytes are made of that are the nearest in range: what is too low, or no
 * number, becomes the lowest; so would what is too high for 32 bits. */
INLINE __m256i rounded_panel(__m256 left, __m256 right)
{
    const __m256 high = _mm256_set1_ps(255.0f);

    return _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_min_ps(high, left)),
                              _mm256_cvtps_epi32(_mm256_min_ps(high, right)));
}

/* Two panels of words, which come out in order. */
INLINE __m256i packed_panels(__m256i first, __m256i second, int64_t type)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);

    return _mm256_permutevar8x32_epi32(type == ELEMENT_U8 ? _mm256_packus_epi16(first, second)
                                                          : _mm256_packs_epi16(first, second),
                                       order);
}

INLINE void store_panel_avx2(char *to, const float *numbers, int64_t type)
{
    if (type == ELEMENT_F32) {
        memcpy(to, numbers, PANEL * sizeof *numbers);
        return;
    }
    const __m256i words = rounded_panel(_mm256_load_ps(numbers), _mm256_load_ps(numbers + 8));
    _mm_storeu_si128((__m128i *)(void *)to,
                     _mm256_castsi256_si128(packed_panels(words, words, type)));
}

#define EACH_REGISTER(expression)                                                                 \
    for (int64_t index = 0; index < 2 * rows; index++) {                                          \
        const __m256 x = numbers[index];                                                          \
        numbers[index] = (expression);                                                            \
    }                                                                                             \
    break
#define OTHER                                                                                     \
    numbers_avx2(from + index / 2 * all * item_of(type), column + index % 2 * 8, type)

/* One or two rows of a whole panel, from sums to results without a way through memory. */
INLINE void store_rows(const struct product *p, struct factors factors, const int32_t *sums,
                       int64_t row, int64_t column, const int64_t rows)
{
    const int64_t all = p->groups * p->columns, result = p->result_type;
    char *to = p->result + (row * all + column) * item_of(result);
    __m256 numbers[4];

    for (int64_t index = 0; index < 2 * rows; index++)
        numbers[index] =
            scaled_sums(sums + 8 * index, _mm256_loadu_ps(factors.scales + index % 2 * 8),
                        _mm256_loadu_ps(factors.shifts + index % 2 * 8));
    for (int64_t each = 0; each < p->step_count; each++) {
        const struct result_step *step = &p->steps[each];
        const __m256 alpha = _mm256_set1_ps(step->alpha), beta = _mm256_set1_ps(step->beta);
        const int64_t type = step->other > 0 ? p->other_types[step->other - 1] : 0;
        const char *from =
            step->other > 0 ? p->others[step->other - 1] + row * all * item_of(type) : NULL;
        switch (step->number) {
        case FLOAT_STEP_LINEAR:
            EACH_REGISTER(_mm256_add_ps(_mm256_mul_ps(alpha, x), beta));
        case FLOAT_STEP_CLIP:
            EACH_REGISTER(_mm256_min_ps(beta, _mm256_max_ps(alpha, x)));
        case FLOAT_STEP_ROUND:
            EACH_REGISTER(_mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
        default: /* FLOAT_STEP_ADD */
            EACH_REGISTER(_mm256_add_ps(x, OTHER));
        }
    }
    if (result == ELEMENT_F32) {
        for (int64_t index = 0; index < 2 * rows; index++)
            _mm256_storeu_ps((float *)(void *)to + index / 2 * all + index % 2 * 8, numbers[index]);
        return;
    }
    const __m256i first = rounded_panel(numbers[0], numbers[1]);
    const __m256i second = rows > 1 ? rounded_panel(numbers[2], numbers[3]) : first;
    const __m256i packed = packed_panels(first, second, result);
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(packed));
    if (rows > 1)
        _mm_storeu_si128((__m128i *)(void *)(to + all), _mm256_extracti128_si256(packed, 1));
}

/* True if rows have been finished: those of a whole panel that no other steps follow. */
INLINE int64_t are_stored_avx2(const struct product *p, struct factors factors, const int32_t *sums,
                               int64_t row, int64_t rows, int64_t column, int64_t count)
{
    int64_t place = 0;

    if (!p->is_simple || count < PANEL)
        return 0;
    for (; place + 2 <= rows; place += 2)
        store_rows(p, factors, sums + place * PANEL, row + place, column, 2);
    if (place < rows)
        store_rows(p, factors, sums + place * PANEL, row + place, column, 1);
    return 1;
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
