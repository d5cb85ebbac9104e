/* Squares of native_int8.c by AVX2: 16 channels of the data, or 16 columns of the result, at once. */

/* Turn four rows of four into the sums and differences that are multiplied with weights. */
INLINE void spread_square_avx2(const struct product *p, const char *const *from, int64_t channel,
                               char *to, int64_t step)
{
    __m256i across[SQUARE][SQUARE];

    for (int64_t row = 0; row < SQUARE; row++) {
        __m256i data[SQUARE];
        for (int64_t index = 0; index < SQUARE; index++)
            data[index] =
                widened_tap(from[row * SQUARE + index] + channel, p->source_type == ELEMENT_I8);
        across[row][0] = _mm256_sub_epi16(data[0], data[2]);
        across[row][1] = _mm256_add_epi16(data[1], data[2]);
        across[row][2] = _mm256_sub_epi16(data[2], data[1]);
        across[row][3] = _mm256_sub_epi16(data[1], data[3]);
    }
    for (int64_t index = 0; index < SQUARE; index++) {
        const __m256i made[SQUARE] = {
            _mm256_sub_epi16(across[0][index], across[2][index]),
            _mm256_add_epi16(across[1][index], across[2][index]),
            _mm256_sub_epi16(across[2][index], across[1][index]),
            _mm256_sub_epi16(across[1][index], across[3][index]),
        };
        for (int64_t row = 0; row < SQUARE; row++)
            _mm256_storeu_si256(
                (__m256i *)(void *)(to + (row * SQUARE + index) * step + channel * 2), made[row]);
    }
}

/* Turn the 16 sums of a square into four results, whose fourfold they hold. */
INLINE void gather_square_avx2(const int32_t *sums, int64_t step, int32_t *upper, int32_t *lower)
{
    for (int64_t half = 0; half < PANEL; half += 8) {
        __m256i down[2][SQUARE];
        for (int64_t index = 0; index < SQUARE; index++) {
            __m256i row[SQUARE];
            for (int64_t place = 0; place < SQUARE; place++)
                row[place] = _mm256_loadu_si256((const __m256i *)(const void *)(
                    sums + (place * SQUARE + index) * step + half));
            down[0][index] = _mm256_add_epi32(_mm256_add_epi32(row[0], row[1]), row[2]);
            down[1][index] = _mm256_sub_epi32(_mm256_sub_epi32(row[1], row[2]), row[3]);
        }
        for (int64_t line = 0; line < 2; line++) {
            const __m256i *row = down[line];
            const __m256i first = _mm256_add_epi32(_mm256_add_epi32(row[0], row[1]), row[2]);
            const __m256i second = _mm256_sub_epi32(_mm256_sub_epi32(row[1], row[2]), row[3]);
            int32_t *to = (line == 0 ? upper : lower) + half;
            _mm256_storeu_si256((__m256i *)(void *)to, _mm256_srai_epi32(first, 2));
            _mm256_storeu_si256((__m256i *)(void *)(to + PANEL), _mm256_srai_epi32(second, 2));
        }
    }
}
