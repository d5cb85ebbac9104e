/* The same for AVX-512 with VNNI, which sums up four products in 32 bits: 16 blocks at a time. */
BEGIN_VNNI
#define GROUP 16 /* blocks, whose scales are one vector */

/* Of four blocks of weights of 4 bits, in 64 bytes: four lanes for each. */
static inline __m512 vnni_of_halves(const int8_t *numbers, const uint8_t *bytes)
{
    const __m512i low = _mm512_set1_epi8(15), both = _mm512_loadu_si512(bytes);
    const __m256i *data = (const __m256i *)(const void *)numbers;
    const __m512i evens = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(data)),
                                             _mm256_loadu_si256(data + 2), 1);
    const __m512i odds = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(data + 1)),
                                            _mm256_loadu_si256(data + 3), 1);
    const __m512i sums =
        _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_and_si512(both, low), evens);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    return _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(sums, odd, odds));
}

/* Of two blocks of weights of 8 bits, in 64 bytes, counted from 0: eight lanes for each. */
static inline __m512 vnni_of_bytes(const int8_t *numbers, const uint8_t *bytes)
{
    return _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(
        _mm512_setzero_si512(), _mm512_loadu_si512(bytes), _mm512_loadu_si512(numbers)));
}

/* The scales, or zero points, of 16 blocks, of which `span` have one. */
struct spread {
    __mmask16 mask;
    __m512i lanes;
};

static inline struct spread spread_of(int64_t span)
{
    const int64_t count = span < GROUP ? GROUP / span : 1;
    const __m512i order = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const int32_t shift = span == 1 ? 0 : span == 2 ? 1 : span == 4 ? 2 : span == 8 ? 3 : 4;
    return (struct spread){(__mmask16)((1u << count) - 1),
                           _mm512_srlv_epi32(order, _mm512_set1_epi32(shift))};
}

INLINE float vnni_groups(const struct stored_row *row, const struct column *column, int64_t blocks,
                         int bits)
{
    const int64_t whole = blocks - blocks % GROUP, span = column->span;
    const int64_t is_regular = GROUP % span == 0 || span % GROUP == 0;
    const int64_t count = span < GROUP ? GROUP / span : 1, apart = span > GROUP ? span / GROUP : 1;
    const struct spread spread = spread_of(span);
    const int step = bits == 4 ? 4 : 2, parts = GROUP / step; /* blocks in 64 bytes */
    const __m512i own = bits == 4 ? _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3)
                                  : _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const float middle = bits == 4 ? MIDDLE_OF_HALVES : MIDDLE_OF_BYTES;
    __m512 total = _mm512_setzero_ps(), other = total;
    int64_t place = 0, left = apart;

    for (int64_t first = 0; first < whole; first += GROUP) {
        const int8_t *numbers = row->numbers + first * BLOCK;
        const uint8_t *bytes = column->bytes + first * BLOCK * bits / 8;
        __m512 scales, middles = _mm512_set1_ps(middle);
        if (is_regular) {
            scales = _mm512_permutexvar_ps(
                spread.lanes, _mm512_maskz_loadu_ps(spread.mask, column->scales + place));
            if (column->zeros != NULL) {
                const __m512i zeros = _mm512_cvtepi8_epi32(
                    _mm_maskz_loadu_epi8(spread.mask, column->zeros + place));
                middles = _mm512_add_ps(
                    middles, _mm512_cvtepi32_ps(_mm512_permutexvar_epi32(spread.lanes, zeros)));
            }
        } else {
            float found[GROUP], moved[GROUP];
            for (int64_t index = 0; index < GROUP; index++) {
                const int64_t one = (first + index) / span;
                found[index] = column->scales[one];
                moved[index] = column->zeros == NULL ? 0.0f : column->zeros[one];
            }
            scales = _mm512_loadu_ps(found);
            middles = _mm512_add_ps(middles, _mm512_loadu_ps(moved));
        }
        const __m512 factors = _mm512_mul_ps(scales, _mm512_loadu_ps(row->scales + first));
        middles = _mm512_mul_ps(middles, _mm512_loadu_ps(row->sums + first));
#pragma GCC unroll 8
        for (int part = 0; part < parts; part++) {
            const __m512i lanes = _mm512_add_epi32(own, _mm512_set1_epi32(part * step));
            const __m512 sums = bits == 4 ? vnni_of_halves(numbers + part * 128, bytes + part * 64)
                                          : vnni_of_bytes(numbers + part * 64, bytes + part * 64);
            _mm_prefetch((const char *)bytes + 2048 + part * 64, _MM_HINT_T0);
            if (part % 2 == 0)
                total = _mm512_fmadd_ps(sums, _mm512_permutexvar_ps(lanes, factors), total);
            else
                other = _mm512_fmadd_ps(sums, _mm512_permutexvar_ps(lanes, factors), other);
        }
        total = _mm512_fnmadd_ps(middles, factors, total);
        if (--left == 0) {
            place += count;
            left = apart;
        }
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(total, other))
           + dot_avx2(row, column, whole, blocks, bits);
}
#undef GROUP

static float dot_vnni(const struct stored_row *row, const struct column *column, int64_t blocks,
                      int64_t bits)
{
    return bits == 4 ? vnni_groups(row, column, blocks, 4) : vnni_groups(row, column, blocks, 8);
}
END_VNNI
