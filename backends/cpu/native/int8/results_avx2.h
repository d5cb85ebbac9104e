/* From sums to results by AVX2, by panels of columns or halves of them. */

INLINE __m256 scaled_sums(const int32_t *sums, __m256 scales, __m256 shifts)
{
    const __m256i whole = _mm256_loadu_si256((const __m256i *)(const void *)sums);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole), scales, shifts);
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
    _Pragma("GCC unroll 12") for (int64_t index = 0; index < halves * rows; index++)              \
    {                                                                                             \
        const __m256 x = numbers[index];                                                          \
        numbers[index] = (expression);                                                            \
    }                                                                                             \
    break
#define OTHER                                                                                     \
    numbers_avx2(from + index / halves * all * item_of(type), column + index % halves * 8, type)

/* Bytes of two rows of a panel, or of half of one; of the last row alone where there is no other. */
INLINE void store_bytes(char *to, int64_t step, const __m256 *numbers, int64_t type,
                        const int64_t halves, const int64_t rows)
{
    const int64_t second = rows > 1 ? halves : 0;
    const __m256i words = rounded_panel(numbers[0], numbers[halves > 1 ? 1 : second]);
    const __m256i others =
        halves > 1 && rows > 1 ? rounded_panel(numbers[second], numbers[second + 1]) : words;
    const __m256i packed = packed_panels(words, others, type);
    const __m128i low = _mm256_castsi256_si128(packed);

    if (halves > 1) {
        _mm_storeu_si128((__m128i *)(void *)to, low);
        if (rows > 1)
            _mm_storeu_si128((__m128i *)(void *)(to + step), _mm256_extracti128_si256(packed, 1));
    } else {
        _mm_storel_epi64((__m128i *)(void *)to, low);
        if (rows > 1)
            _mm_storel_epi64((__m128i *)(void *)(to + step), _mm_unpackhi_epi64(low, low));
    }
}

/* Some rows of one or both halves of a panel, from numbers in registers to results. */
INLINE void store_numbers(const struct product *p, __m256 *numbers, int64_t row, int64_t column,
                          const int64_t halves, const int64_t rows)
{
    const int64_t all = p->groups * p->columns, result = p->result_type;
    char *to = p->result + (row * all + column) * item_of(result);

    for (int64_t each = 0; each < p->step_count; each++) {
        const struct result_step *step = &p->steps[each];
        const __m256 alpha = _mm256_set1_ps(step->alpha), beta = _mm256_set1_ps(step->beta);
        const int64_t type = step->other > 0 ? p->other_types[step->other - 1] : 0;
        const char *from =
            step->other > 0 ? p->others[step->other - 1] + row * all * item_of(type) : NULL;
        switch (step->number) {
        case FLOAT_STEP_LINEAR:
            EACH_REGISTER(_mm256_fmadd_ps(alpha, x, beta));
        case FLOAT_STEP_CLIP:
            EACH_REGISTER(_mm256_min_ps(beta, _mm256_max_ps(alpha, x)));
        case FLOAT_STEP_ROUND:
            EACH_REGISTER(_mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
        default: /* FLOAT_STEP_ADD */
            EACH_REGISTER(_mm256_add_ps(x, OTHER));
        }
    }
    if (result == ELEMENT_F32)
        _Pragma("GCC unroll 12") for (int64_t index = 0; index < halves * rows; index++)
            _mm256_storeu_ps((float *)(void *)to + index / halves * all + index % halves * 8,
                             numbers[index]);
    else
        _Pragma("GCC unroll 3") for (int64_t place = 0; place < rows; place += 2)
            store_bytes(to + place * all, all, numbers + place * halves, result, halves,
                        rows - place);
}

/* The same from sums. */
INLINE void store_rows(const struct product *p, struct factors factors, const int32_t *sums,
                       int64_t row, int64_t column, const int64_t halves, const int64_t rows)
{
    __m256 numbers[2 * TILE_ROWS];

    _Pragma("GCC unroll 12") for (int64_t index = 0; index < halves * rows; index++)
        numbers[index] = scaled_sums(sums + index / halves * PANEL + index % halves * 8,
                                     _mm256_loadu_ps(factors.scales + index % halves * 8),
                                     _mm256_loadu_ps(factors.shifts + index % halves * 8));
    store_numbers(p, numbers, row, column, halves, rows);
}

/* True if rows have been finished: those of a panel or half of one that no other steps follow. */
INLINE int64_t are_stored_avx2(const struct product *p, struct factors factors, const int32_t *sums,
                               int64_t row, int64_t rows, int64_t column, int64_t count)
{
    if (!p->is_simple || (count != PANEL && count != PANEL / 2))
        return 0;
    if (count == PANEL && rows == TILE_ROWS)
        store_rows(p, factors, sums, row, column, 2, TILE_ROWS);
    else if (count == PANEL)
        for (int64_t place = 0; place < rows; place++)
            store_rows(p, factors, sums + place * PANEL, row + place, column, 2, 1);
    else if (rows == TILE_ROWS)
        store_rows(p, factors, sums, row, column, 1, TILE_ROWS);
    else
        for (int64_t place = 0; place < rows; place++)
            store_rows(p, factors, sums + place * PANEL, row + place, column, 1, 1);
    return 1;
}

#define SCALE(row)                                                                                \
    numbers[2 * (row)] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(left##row), scales[0], shifts[0]);    \
    numbers[2 * (row) + 1] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(right##row), scales[1], shifts[1]);

/* A whole tile of simple steps, whose sums never leave the registers. */
static void finish_tile(const struct product *p, const struct tile *tile, struct factors factors,
                        int64_t row, int64_t column)
{
    const int32_t *place = tile->places;
    __m256 numbers[2 * TILE_ROWS];

    BEGIN_TILE(6, BEGIN)
    ADD_LISTED(6, ADD_NARROW, tile->places + tile->narrow)
    ADD_LISTED(6, ADD_WIDE, tile->places + tile->narrow + tile->wide)
    const __m256 scales[2] = {_mm256_loadu_ps(factors.scales), _mm256_loadu_ps(factors.scales + 8)};
    const __m256 shifts[2] = {_mm256_loadu_ps(factors.shifts), _mm256_loadu_ps(factors.shifts + 8)};
    EACH_OF_6(SCALE)
    store_numbers(p, numbers, row, column, 2, TILE_ROWS);
}

INLINE int64_t is_finished_avx2(const struct product *p, const struct tile *tile,
                                struct factors factors, int64_t row, int64_t column, int64_t count)
{
    if (!p->is_simple || count < PANEL || tile->rows < TILE_ROWS)
        return 0;
    finish_tile(p, tile, factors, row, column);
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
        EACH_VECTOR(_mm256_fmadd_ps(alpha, x, beta));
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
