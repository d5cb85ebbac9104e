/* Matmuls of few rows with weights of float16 or bfloat16, which are widened in registers.
 *
 * A row of weights is one column of the result. Every product is one of float32 numbers, and so are
 * the sums. Two columns are read at a time, so that rows of data pass the first cache half as often: four
 * long ones are more than it holds.
 */
#include <string.h>

#include "../avx2.h"
#include "../elements.h"
#include "../steps.h"
#include "../vector_math.h"

#define LANES 8
#define STEP 32 /* numbers of a column between two requests of memory: a line of 64 bytes */
#define BLOCK 128 /* numbers that are widened in memory at a time, where registers cannot */
#define COLUMNS_BETWEEN_LOOKS 16
#define AHEAD 1024 /* numbers of a column that are asked of memory before they are read: 2 KiB */

/* Some of the columns, for all rows. */
struct half_part {
    const float *data, *bias;
    const uint16_t *weights;
    float *target;
    int64_t rows, inner, columns, element, first, last;
};

static void put(const struct half_part *part, int64_t row, int64_t column, float sum)
{
    part->target[row * part->columns + column] =
        sum + (part->bias == NULL ? 0.0f : part->bias[column]);
}

static void multiply_plain(const struct half_part *part, const char *stop)
{
    float wide[BLOCK];

    for (int64_t column = part->first; column < part->last; column++) {
        const uint16_t *weights = part->weights + column * part->inner;
        if ((column - part->first) % COLUMNS_BETWEEN_LOOKS == 0 && is_stopped(stop))
            return;
        for (int64_t row = 0; row < part->rows; row++) {
            const float *data = part->data + row * part->inner;
            float sum = 0.0f;
            for (int64_t begin = 0; begin < part->inner; begin += BLOCK) {
                const int64_t rest = part->inner - begin, count = rest < BLOCK ? rest : BLOCK;
                load_floats(wide, (const char *)(weights + begin), 2, count, part->element);
                for (int64_t index = 0; index < count; index++)
                    sum += data[begin + index] * wide[index];
            }
            put(part, row, column, sum);
        }
    }
}

#if COMPILES_AVX2
BEGIN_F16C
INLINE __m256 widened(const uint16_t *weights, int64_t element)
{
    const __m128i stored = _mm_loadu_si128((const __m128i *)(const void *)weights);
    if (element == ELEMENT_F16)
        return _mm256_cvtph_ps(stored);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(stored), 16));
}

INLINE float sum_of(__m256 numbers)
{
    const __m128 four =
        _mm_add_ps(_mm256_castps256_ps128(numbers), _mm256_extractf128_ps(numbers, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* Adds what is behind the whole steps of a tile, and writes its results. It is no part of the loop: a call
 * there would have sums in memory. */
static __attribute__((noinline)) void finish_tile(const struct half_part *part, int64_t row,
                                                  int64_t column, int64_t whole, int rows,
                                                  int width, const float *sums)
{
    const int64_t inner = part->inner;
    float rest[STEP];

    for (int side = 0; side < width; side++) {
        const uint16_t *weights = part->weights + (column + side) * inner + whole;
        if (whole < inner)
            load_floats(rest, (const char *)weights, 2, inner - whole, part->element);
        for (int item = 0; item < rows; item++) {
            const float *data = part->data + (row + item) * inner + whole;
            float sum = sums[item * width + side];
            for (int64_t index = 0; index < inner - whole; index++)
                sum += data[index] * rest[index];
            put(part, row + item, column + side, sum);
        }
    }
}

/* `width` columns from `column` on, for `rows` rows from `row` on; few of both have `sets` sums each, for
 * multiply-adds that need not wait for each other. */
INLINE void multiply_tile(const struct half_part *part, int64_t row, int64_t column, int64_t element,
                          int rows, int width, int sets)
{
    const int64_t inner = part->inner, whole = inner - inner % STEP;
    const uint16_t *weights = part->weights + column * inner;
    const float *data = part->data + row * inner;
    __m256 sums[4][2][4], wide[2];
    float totals[4 * 2];

#pragma GCC unroll 4
    for (int item = 0; item < rows; item++)
#pragma GCC unroll 2
        for (int side = 0; side < width; side++)
#pragma GCC unroll 4
            for (int set = 0; set < sets; set++)
                sums[item][side][set] = _mm256_setzero_ps();
    for (int64_t first = 0; first < whole; first += STEP) {
#pragma GCC unroll 2
        for (int side = 0; side < width; side++)
            _mm_prefetch((const char *)(weights + side * inner + first + AHEAD), _MM_HINT_T0);
#pragma GCC unroll 4
        for (int vector = 0; vector < STEP / LANES; vector++) {
            const int64_t place = first + vector * LANES;
#pragma GCC unroll 2
            for (int side = 0; side < width; side++)
                wide[side] = widened(weights + side * inner + place, element);
#pragma GCC unroll 4
            for (int item = 0; item < rows; item++) {
                const __m256 numbers = _mm256_loadu_ps(data + item * inner + place);
#pragma GCC unroll 2
                for (int side = 0; side < width; side++)
                    sums[item][side][vector % sets] =
                        _mm256_fmadd_ps(numbers, wide[side], sums[item][side][vector % sets]);
            }
        }
    }
#pragma GCC unroll 4
    for (int item = 0; item < rows; item++)
#pragma GCC unroll 2
        for (int side = 0; side < width; side++) {
            __m256 total = sums[item][side][0];
#pragma GCC unroll 3
            for (int set = 1; set < sets; set++)
                total = _mm256_add_ps(total, sums[item][side][set]);
            totals[item * width + side] = sum_of(total);
        }
    finish_tile(part, row, column, whole, rows, width, totals);
}

INLINE void multiply_rows(const struct half_part *part, int64_t column, int64_t element, int width)
{
    int64_t row = 0;

    for (; part->rows - row >= 4; row += 4)
        multiply_tile(part, row, column, element, 4, width, 1);
    if (part->rows - row == 3)
        multiply_tile(part, row, column, element, 3, width, 1);
    else if (part->rows - row == 2)
        multiply_tile(part, row, column, element, 2, width, 2);
    else if (part->rows - row == 1)
        multiply_tile(part, row, column, element, 1, width, 4);
}

INLINE void multiply_columns(const struct half_part *part, int64_t element, const char *stop)
{
    for (int64_t column = part->first; column < part->last; column += 2) {
        if ((column - part->first) % COLUMNS_BETWEEN_LOOKS == 0 && is_stopped(stop))
            return;
        if (part->last - column > 1)
            multiply_rows(part, column, element, 2);
        else
            multiply_rows(part, column, element, 1);
    }
}

static void multiply_f16c(const struct half_part *part, const char *stop)
{
    if (part->element == ELEMENT_F16)
        multiply_columns(part, ELEMENT_F16, stop);
    else
        multiply_columns(part, ELEMENT_BF16, stop);
}
END_F16C
#else
#define multiply_f16c multiply_plain
#endif

/* data: rows (rows, inner) in float32; weights (columns, inner) in 16 bits, a bias of columns where there
 * is one, target (rows, columns) in float32. parameters: rows, inner, columns, ONNX's number of what
 * the weights are, whether there is a bias, parts. */
static int half_matmul(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t columns = parameters[2], has_bias = parameters[4], parts = parameters[5];
    const int64_t has_f16c = HAS_F16C;

#pragma omp parallel for schedule(static) if (parts > 1)
    for (int64_t number = 0; number < parts; number++) {
        const struct half_part part = {
            .data = (const float *)data[0],
            .bias = has_bias ? (const float *)data[2] : NULL,
            .weights = (const uint16_t *)data[1],
            .target = (float *)data[2 + has_bias],
            .rows = parameters[0],
            .inner = parameters[1],
            .columns = columns,
            .element = parameters[3],
            .first = columns * number / parts,
            .last = columns * (number + 1) / parts,
        };
        if (has_f16c)
            multiply_f16c(&part, stop);
        else
            multiply_plain(&part, stop);
    }
    return STATUS_OK;
}

const struct named_kernel half_kernels[] = {
    {"half_matmul", half_matmul},
    {NULL, NULL},
};
