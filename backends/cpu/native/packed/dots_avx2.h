/* Sums of products of a stored row and a packed column, for AVX2: eight blocks at a time. */
BEGIN_AVX2
#define GROUP 8 /* blocks, whose scales are one vector */

/* Of two blocks of weights of 4 bits, in 32 bytes: four lanes for each. */
static inline __m256 sums_of_halves(const int8_t *numbers, const uint8_t *bytes)
{
    const __m256i low = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1);
    const __m256i both = _mm256_loadu_si256((const __m256i *)(const void *)bytes);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
    const __m256i *data = (const __m256i *)(const void *)numbers;
    const __m256i pairs =
        _mm256_add_epi16(_mm256_maddubs_epi16(_mm256_and_si256(both, low), _mm256_loadu_si256(data)),
                         _mm256_maddubs_epi16(odd, _mm256_loadu_si256(data + 1)));
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, one));
}

/* Of one block of weights of 8 bits, counted from the middle. Their sizes are up to 128, and those of
 * data up to 127: two products fit 16 bits. */
static inline __m256 sums_of_bytes(const int8_t *numbers, const uint8_t *bytes)
{
    const __m256i middle = _mm256_set1_epi8(-128), one = _mm256_set1_epi16(1);
    const __m256i weights =
        _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(const void *)bytes), middle);
    const __m256i data = _mm256_loadu_si256((const __m256i *)(const void *)numbers);
    const __m256i pairs =
        _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(data, weights));
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, one));
}

/* Up to eight zero points as numbers of 32 bits. */
static inline __m256i loaded_zeros(const int8_t *zeros, int64_t count)
{
    int64_t bytes = 0;
    switch (count) {
    case 1:
        bytes = *zeros;
        break;
    case 2:
        memcpy(&bytes, zeros, 2);
        break;
    case 4:
        memcpy(&bytes, zeros, 4);
        break;
    default:
        memcpy(&bytes, zeros, 8);
    }
    return _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(bytes));
}

/* How far the number of a block in a group is shifted to that of its scale: all the way from 8 on. */
static inline int32_t shift_of(int64_t span)
{
    return span == 1 ? 0 : span == 2 ? 1 : span == 4 ? 2 : 3;
}

INLINE float dot_groups(const struct stored_row *row, const struct column *column, int64_t begin,
                        int64_t blocks, int bits)
{
    const int64_t whole = blocks - (blocks - begin) % GROUP, span = column->span;
    const int64_t is_regular = GROUP % span == 0 || span % GROUP == 0;
    const int64_t count = span < GROUP ? GROUP / span : 1, apart = span > GROUP ? span / GROUP : 1;
    const __m256i order = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)count), order);
    const __m256i lanes = _mm256_srlv_epi32(order, _mm256_set1_epi32(shift_of(span)));
    const float middle = bits == 4 ? MIDDLE_OF_HALVES : 0.0f;
    __m256 total = _mm256_setzero_ps(), other = total;
    float sums[GROUP], sum;
    int64_t place = begin / span, left = apart - begin / GROUP % apart;

    for (int64_t first = begin; first < whole; first += GROUP) {
        const int8_t *numbers = row->numbers + first * BLOCK;
        const uint8_t *bytes = column->bytes + first * BLOCK * bits / 8;
        __m256 scales, middles = _mm256_set1_ps(middle);
        if (is_regular) {
            scales = _mm256_permutevar8x32_ps(_mm256_maskload_ps(column->scales + place, mask), lanes);
            if (column->zeros != NULL)
                middles = _mm256_add_ps(
                    middles, _mm256_cvtepi32_ps(_mm256_permutevar8x32_epi32(
                                 loaded_zeros(column->zeros + place, count), lanes)));
        } else {
            float found[GROUP], moved[GROUP];
            for (int64_t index = 0; index < GROUP; index++) {
                const int64_t one = (first + index) / column->span;
                found[index] = column->scales[one];
                moved[index] = column->zeros == NULL ? 0.0f : column->zeros[one];
            }
            scales = _mm256_loadu_ps(found);
            middles = _mm256_add_ps(middles, _mm256_loadu_ps(moved));
        }
        const __m256 factors = _mm256_mul_ps(scales, _mm256_loadu_ps(row->scales + first));
        middles = _mm256_mul_ps(middles, _mm256_loadu_ps(row->sums + first));
        for (int64_t line = 0; line < GROUP * BLOCK * bits / 8; line += 64)
            _mm_prefetch((const char *)bytes + 2048 + line, _MM_HINT_T0);
        if (bits == 4) {
#define ADD(target, place)                                                                        \
    target = _mm256_fmadd_ps(                                                                     \
        sums_of_halves(numbers + (place) * CHUNK, bytes + (place) * CHUNK_BYTES),                 \
        _mm256_permutevar8x32_ps(factors,                                                         \
                                 _mm256_setr_epi32(2 * (place), 2 * (place), 2 * (place),         \
                                                   2 * (place), 2 * (place) + 1,                  \
                                                   2 * (place) + 1, 2 * (place) + 1,              \
                                                   2 * (place) + 1)),                             \
        target)
            ADD(total, 0);
            ADD(other, 1);
            ADD(total, 2);
            ADD(other, 3);
#undef ADD
        } else {
#define ADD(target, place)                                                                        \
    target = _mm256_fmadd_ps(sums_of_bytes(numbers + (place) * BLOCK, bytes + (place) * BLOCK),   \
                             _mm256_permutevar8x32_ps(factors, _mm256_set1_epi32(place)), target)
            ADD(total, 0);
            ADD(other, 1);
            ADD(total, 2);
            ADD(other, 3);
            ADD(total, 4);
            ADD(other, 5);
            ADD(total, 6);
            ADD(other, 7);
#undef ADD
        }
        total = _mm256_fnmadd_ps(middles, factors, total);
        if (--left == 0) { /* the next group has scales of its own */
            place += count;
            left = apart;
        }
    }
    _mm256_storeu_ps(sums, _mm256_add_ps(total, other));
    sum = ((sums[0] + sums[4]) + (sums[2] + sums[6]))
          + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
    return sum + dot_blocks(row, column, whole, blocks, bits);
}
#undef GROUP

/* The blocks from `begin` on, which is a multiple of 8. */
static float dot_avx2(const struct stored_row *row, const struct column *column, int64_t begin,
                      int64_t blocks, int64_t bits)
{
    return bits == 4 ? dot_groups(row, column, begin, blocks, 4)
                     : dot_groups(row, column, begin, blocks, 8);
}
END_AVX2
