/* Sums of taps by AVX-512 with VNNI: four taps of a number are the bytes of a word. */
#define FEW_QUADS 3 /* whose weights registers hold */
#define filled_vnni filled_avx2
#define load_panel_vnni load_panel_avx2
#define store_panel_vnni store_panel_avx2
#define apply_step_vnni apply_step_avx2

static void finish_flat_vnni(const struct product *p, float *numbers, int64_t at, int64_t count);

/* The same as copied_plain, but up to FLAT bytes are written behind the last. */
INLINE char *copied_vnni(const struct product *p, char *to, const char *from, int64_t count)
{
    const __m512i flips = _mm512_set1_epi8((char)p->flip);
    int64_t index = 0;

    for (; index + FLAT <= count; index += FLAT)
        _mm512_storeu_si512(to + index, _mm512_xor_si512(flips, _mm512_loadu_si512(from + index)));
    if (index < count) {
        const __mmask64 mask = ((__mmask64)1 << (count - index)) - 1;
        const __m512i bytes = _mm512_maskz_loadu_epi8(mask, from + index);
        _mm512_storeu_si512(to + index, _mm512_xor_si512(flips, bytes));
    }
    return to + count;
}

INLINE __m512i flat_bytes(const char *from)
{
    return _mm512_loadu_si512(from);
}

/* Add four taps, or one, to the sums of FLAT numbers. */
INLINE void add_quad(__m512i *sums, const char **taps, int64_t at, const __m512i *weights,
                     const int64_t is_single)
{
    const __m512i none = _mm512_setzero_si512(), a = flat_bytes(taps[0] + at);
    const __m512i b = is_single ? none : flat_bytes(taps[1] + at);
    const __m512i low = _mm512_unpacklo_epi8(a, b), high = _mm512_unpackhi_epi8(a, b);
    __m512i lows = none, highs = none;

    if (!is_single) {
        const __m512i c = flat_bytes(taps[2] + at), d = flat_bytes(taps[3] + at);
        lows = _mm512_unpacklo_epi8(c, d);
        highs = _mm512_unpackhi_epi8(c, d);
    }
    sums[0] = _mm512_dpbusd_epi32(sums[0], _mm512_unpacklo_epi16(low, lows), weights[0]);
    sums[1] = _mm512_dpbusd_epi32(sums[1], _mm512_unpackhi_epi16(low, lows), weights[1]);
    sums[2] = _mm512_dpbusd_epi32(sums[2], _mm512_unpacklo_epi16(high, highs), weights[2]);
    sums[3] = _mm512_dpbusd_epi32(sums[3], _mm512_unpackhi_epi16(high, highs), weights[3]);
}

/* What is too high for 32 bits stays high; what is no number, or too low, becomes the lowest. */
INLINE __m512i rounded_numbers(__m512 numbers)
{
    return _mm512_cvtps_epi32(_mm512_min_ps(_mm512_set1_ps(32767.0f), numbers));
}

/* Bytes of the lanes that are four vectors of numbers, `count` of them. */
INLINE void store_flat(const struct product *p, const __m512 *numbers, char *to, int64_t count)
{
    const __m512i low = _mm512_packs_epi32(rounded_numbers(numbers[0]), rounded_numbers(numbers[1]));
    const __m512i high = _mm512_packs_epi32(rounded_numbers(numbers[2]), rounded_numbers(numbers[3]));
    const __m512i bytes = p->result_type == ELEMENT_U8 ? _mm512_packus_epi16(low, high)
                                                       : _mm512_packs_epi16(low, high);

    if (count >= FLAT)
        _mm512_storeu_si512(to, bytes);
    else
        _mm512_mask_storeu_epi8(to, ((__mmask64)1 << count) - 1, bytes);
}

/* The same where steps follow, or results are float32. */
static void finish_numbers(const struct product *p, const __m512 *made, int64_t at, int64_t count)
{
    _Alignas(64) float numbers[FLAT];

    for (int64_t index = 0; index < 4; index++) {
        float *to = numbers + 4 * index;
        _mm_store_ps(to, _mm512_castps512_ps128(made[index]));
        _mm_store_ps(to + 16, _mm512_extractf32x4_ps(made[index], 1));
        _mm_store_ps(to + 32, _mm512_extractf32x4_ps(made[index], 2));
        _mm_store_ps(to + 48, _mm512_extractf32x4_ps(made[index], 3));
    }
    finish_flat_vnni(p, numbers, at, count);
}

/* All numbers of a row that have the same channels. What is asked of constants has the weights of few
 * taps stay in registers, which a call in the loop would not leave them in. */
INLINE void sum_turn(const struct product *p, const char **taps, int64_t row, int64_t count,
                     int64_t turn, const int64_t quads, const int64_t is_single,
                     const int64_t is_stored)
{
    const int64_t step = period_of(p->groups) * FLAT;
    const char *weights = p->weights + turn * quads * FLAT * CHUNK;
    const char *from[FEW_QUADS * CHUNK];
    char *const to = p->result + row;
    __m512i starts[4], held[FEW_QUADS * CHUNK];
    __m512 scales[4], shifts[4];

    if (quads <= FEW_QUADS)
        _Pragma("GCC unroll 12") for (int64_t index = 0; index < quads * CHUNK; index++)
        {
            held[index] = _mm512_loadu_si512(weights + index * FLAT);
            from[index] = taps[index];
        }
    _Pragma("GCC unroll 4") for (int64_t index = 0; index < 4; index++)
    {
        starts[index] = _mm512_loadu_si512(p->starts + turn * FLAT + index * 16);
        scales[index] = _mm512_loadu_ps(p->scales + turn * FLAT + index * 16);
        shifts[index] = _mm512_loadu_ps(p->shifts + turn * FLAT + index * 16);
    }
    for (int64_t first = turn * FLAT; first < count; first += step) {
        __m512i sums[4] = {starts[0], starts[1], starts[2], starts[3]};
        __m512 made[4];
        const int64_t rest = count - first;
        _Pragma("GCC unroll 8") for (int64_t quad = 0; quad < quads; quad++)
        {
            __m512i own[CHUNK];
            _Pragma("GCC unroll 4") for (int64_t index = 0; index < CHUNK; index++)
                own[index] = quads <= FEW_QUADS
                                 ? held[quad * CHUNK + index]
                                 : _mm512_loadu_si512(weights + (quad * CHUNK + index) * FLAT);
            add_quad(sums, (quads <= FEW_QUADS ? from : taps) + quad * CHUNK, first, own,
                     is_single && quad == quads - 1);
        }
        _Pragma("GCC unroll 4") for (int64_t index = 0; index < 4; index++)
            made[index] =
                _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[index]), scales[index], shifts[index]);
        if (is_stored)
            store_flat(p, made, to + first, rest);
        else
            finish_numbers(p, made, row + first, rest < FLAT ? rest : FLAT);
    }
}

static void sum_taps_vnni(const struct product *p, const char **taps, int64_t row, int64_t count)
{
    const int64_t period = period_of(p->groups), quads = p->row_chunks;
    const int64_t is_stored = p->step_count == 0 && p->result_type != ELEMENT_F32;

    for (int64_t turn = 0; turn < period && turn * FLAT < count; turn++)
        if (is_stored && p->row_numbers == 9)
            sum_turn(p, taps, row, count, turn, 3, 1, 1);
        else if (is_stored && p->row_numbers == 25)
            sum_turn(p, taps, row, count, turn, 7, 1, 1);
        else if (is_stored)
            sum_turn(p, taps, row, count, turn, quads, 0, 1);
        else
            sum_turn(p, taps, row, count, turn, quads, 0, 0);
}
#undef FEW_QUADS
