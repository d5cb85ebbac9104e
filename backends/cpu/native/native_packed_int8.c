/* Matmuls of weights of 4 bits with data that are rounded to 8 bits for that.
 *
 * Each 32 numbers of data in a row are a block, which is stored by a scale of its own, the largest
 * of them by 127. Weights lie as native_packed.c has them, so a chunk of 32 bytes is two blocks:
 * the lower halves of its bytes are the numbers at even places, the upper ones those at odd places,
 * and data are stored in that order. A product of a weight, 0 to 15, and a number of data, up to
 * 127, fits 16 bits with three others. What weights count from is taken out of a block's sum with
 * the sum of its data.
 */
#include <math.h>
#include <string.h>

#include "avx2.h"
#include "steps.h"
#include "vector_math.h"

#define BLOCK 32
#define CHUNK 64 /* numbers in 32 bytes */
#define CHUNK_BYTES 32
#define MIDDLE 8.0f
#define COLUMNS_BETWEEN_LOOKS 16

/* data: rows (rows, inner) in float32; what is stored (rows, inner) in int8, scales and sums of
 * blocks (rows, blocks) in float32. parameters: rows, inner, which is whole chunks, parts. */
static int quantize_rows(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t blocks = parameters[0] * parameters[1] / BLOCK, parts = parameters[2];

#pragma omp parallel for schedule(static) if (parts > 1)
    for (int64_t block = 0; block < blocks; block++) {
        const float *source = (const float *)data[0] + block * BLOCK;
        int8_t *target = (int8_t *)data[1] + block / 2 * CHUNK + block % 2 * BLOCK / 2;
        float most = 0.0f, sum = 0.0f;
        if (is_stopped(stop))
            continue;
        for (int64_t index = 0; index < BLOCK; index++) {
            const float size = fabsf(source[index]);
            most = size > most || size != size ? size : most;
        }
        const float scale = most / 127.0f, factor = most > 0.0f ? 127.0f / most : 0.0f;
        for (int64_t index = 0; index < BLOCK; index++) {
            const float number = rintf(source[index] * factor);
            const float kept = number >= -127.0f && number <= 127.0f ? number : 0.0f;
            target[index / 2 + index % 2 * BLOCK] = (int8_t)kept;
            sum += kept;
        }
        ((float *)data[2])[block] = scale;
        ((float *)data[3])[block] = sum;
    }
    return STATUS_OK;
}

struct stored_row {
    const int8_t *numbers;
    const float *scales, *sums;
};

/* A column of weights; `span` blocks of data have one scale, from 1 on. */
struct column {
    const uint8_t *bytes;
    const float *scales;
    const int8_t *zeros;
    int64_t span;
};

/* One block after another, from `first` to `last`. */
INLINE float dot_blocks(const struct stored_row *row, const struct column *column, int64_t first,
                        int64_t last)
{
    float total = 0.0f;

    for (int64_t block = first; block < last; block++) {
        const uint8_t *bytes = column->bytes + block * BLOCK / 2;
        const int8_t *evens = row->numbers + block / 2 * CHUNK + block % 2 * BLOCK / 2;
        const int64_t place = block / column->span;
        const float middle = MIDDLE + (column->zeros == NULL ? 0.0f : column->zeros[place]);
        int32_t sum = 0;
        for (int64_t index = 0; index < BLOCK / 2; index++)
            sum += (bytes[index] & 15) * evens[index] + (bytes[index] >> 4) * evens[index + BLOCK];
        total += ((float)sum - middle * row->sums[block]) * (row->scales[block] * column->scales[place]);
    }
    return total;
}

#if COMPILES_AVX2
BEGIN_AVX2
#define GROUP 8 /* blocks, whose scales are one vector */

static inline __m256 group_sums(const int8_t *numbers, const uint8_t *bytes)
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

static float dot_avx2(const struct stored_row *row, const struct column *column, int64_t blocks)
{
    const int64_t whole = blocks - blocks % GROUP, span = column->span;
    const int64_t is_regular = GROUP % span == 0 || span % GROUP == 0;
    const int64_t count = span < GROUP ? GROUP / span : 1, apart = span > GROUP ? span / GROUP : 1;
    const __m256i order = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)count), order);
    const __m256i lanes = _mm256_srlv_epi32(order, _mm256_set1_epi32(shift_of(span)));
    __m256 total = _mm256_setzero_ps(), other = total;
    float sums[GROUP], sum;
    int64_t place = 0, left = apart;

    for (int64_t first = 0; first < whole; first += GROUP) {
        const int8_t *numbers = row->numbers + first * BLOCK;
        const uint8_t *bytes = column->bytes + first * BLOCK / 2;
        __m256 scales, middles = _mm256_set1_ps(MIDDLE);
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
        _mm_prefetch((const char *)bytes + 2048, _MM_HINT_T0);
        _mm_prefetch((const char *)bytes + 2112, _MM_HINT_T0);
#define ADD(target, place)                                                                        \
    target = _mm256_fmadd_ps(                                                                     \
        group_sums(numbers + (place) * CHUNK, bytes + (place) * CHUNK_BYTES),                     \
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
        total = _mm256_fnmadd_ps(middles, factors, total);
        if (--left == 0) { /* the next group has scales of its own */
            place += count;
            left = apart;
        }
    }
    _mm256_storeu_ps(sums, _mm256_add_ps(total, other));
    sum = ((sums[0] + sums[4]) + (sums[2] + sums[6]))
          + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
    return sum + dot_blocks(row, column, whole, blocks);
}
END_AVX2
#else
#define dot_avx2(row, column, blocks) dot_blocks(row, column, 0, blocks)
#endif

/* data: what quantize_rows has made; weights (columns, bytes of a row), scales (columns, blocks) in
 * float32, zero points (columns, blocks) in int8 and a bias of columns where there are some, target
 * (rows, columns) in float32. parameters: rows, inner, columns, numbers in a block of weights, which
 * divides inner, whether there are zero points, whether there is a bias, parts. */
static int packed_matmul_int8(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t rows = parameters[0], inner = parameters[1], columns = parameters[2];
    const int64_t span = parameters[3] / BLOCK, has_zeros = parameters[4], has_bias = parameters[5];
    const int64_t parts = parameters[6], blocks = inner / BLOCK, has_avx2 = HAS_AVX2;
    const float *bias = has_bias ? (const float *)data[5 + has_zeros] : NULL;
    float *target = (float *)data[5 + has_zeros + has_bias];

#pragma omp parallel for schedule(static) if (parts > 1)
    for (int64_t part = 0; part < parts; part++)
        for (int64_t index = columns * part / parts; index < columns * (part + 1) / parts; index++) {
            const struct column column = {
                (const uint8_t *)data[3] + index * inner / 2,
                (const float *)data[4] + index * (blocks / span),
                has_zeros ? (const int8_t *)data[5] + index * (blocks / span) : NULL,
                span,
            };
            if (index % COLUMNS_BETWEEN_LOOKS == 0 && is_stopped(stop))
                break;
            for (int64_t number = 0; number < rows; number++) {
                const struct stored_row row = {
                    (const int8_t *)data[0] + number * inner,
                    (const float *)data[1] + number * blocks,
                    (const float *)data[2] + number * blocks,
                };
                const float sum = has_avx2 ? dot_avx2(&row, &column, blocks)
                                           : dot_blocks(&row, &column, 0, blocks);
                target[number * columns + index] = sum + (bias == NULL ? 0.0f : bias[index]);
            }
        }
    return STATUS_OK;
}

const struct named_kernel packed_int8_kernels[] = {
    {"packed_matmul_int8", packed_matmul_int8},
    {"quantize_rows", quantize_rows},
    {NULL, NULL},
};
