/* Small matmuls, which are done before oneDNN has looked at its arguments; of few rows with many
 * matrices, which take as long as reading those does; and distances of all pairs of rows. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "steps.h"

#define OTHERS 256 /* rows that one row is measured against between two looks at the stop word */

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=fast") /* a row of sums is a chain of multiply-adds */
#endif

VECTOR_CLONES
static void multiply(const float *restrict left, const float *restrict right,
                     const float *restrict bias, float *restrict target, int64_t rows,
                     int64_t inner, int64_t columns, int64_t is_rectified)
{
    for (int64_t row = 0; row < rows; row++) {
        float *sums = target + row * columns;
        for (int64_t column = 0; column < columns; column++)
            sums[column] = bias == NULL ? 0.0f : bias[column];
        for (int64_t place = 0; place < inner; place++) {
            const float factor = left[row * inner + place];
            const float *line = right + place * columns;
            for (int64_t column = 0; column < columns; column++)
                sums[column] += factor * line[column];
        }
        if (is_rectified)
            for (int64_t column = 0; column < columns; column++)
                sums[column] = sums[column] < 0.0f ? 0.0f : sums[column]; /* a NaN stays one */
        if (is_rectified == 2)
            for (int64_t column = 0; column < columns; column++)
                sums[column] = sums[column] > FLT_MAX ? FLT_MAX : sums[column];
    }
}

/* data: left (rows, inner), right (inner, columns), a bias of columns where there is one, target
 * (rows, columns), all float32 and row-major; the target overlaps nothing. parameters: rows, inner,
 * columns, whether there is a bias, whether results below zero become zero (1), and infinity the
 * highest finite number, too (2). */
static int small_matmul(char *const *data, const int64_t *parameters, const char *stop)
{
    int64_t has_bias = parameters[3];

    (void)stop; /* it is small */
    multiply((const float *)data[0], (const float *)data[1],
             has_bias ? (const float *)data[2] : NULL, (float *)data[has_bias ? 3 : 2],
             parameters[0], parameters[1], parameters[2], parameters[4]);
    return STATUS_OK;
}

/* The words of thin_matmul. Strides are in elements. */
enum thin_word {
    THIN_IS_STANDING, /* 1: each column of the right matrix lies in one piece; 0: each row does */
    THIN_PARTS,       /* threads that it is worth waking */
    THIN_OUTER,
    THIN_PAIRS, /* there are outer * pairs matmuls, each of rows * inner by inner * columns */
    THIN_ROWS,
    THIN_INNER,
    THIN_COLUMNS,
    THIN_LEFT,       /* strides of outer, pairs and rows; a row of inner is in one piece */
    THIN_RIGHT = 10, /* strides of outer and pairs, and from one piece to the next */
    THIN_TARGET = 13, /* strides of outer, pairs and rows; a row of columns is in one piece */
    THIN_FACTOR = 16, /* the bits of a double, which results are multiplied by */
};

/* A part of a thin matmul: some columns of some matrices, for all rows. */
struct thin_part {
    const float *left, *right;
    float *target;
    const int64_t *words;
    int64_t first_matrix, matrices, first_column, columns;
    float factor;
};

/* Sixteen floats, wherever they lie, and their halves: the compiler makes registers of them. */
typedef float wide __attribute__((vector_size(64)));
typedef float half __attribute__((vector_size(32)));
typedef float quarter __attribute__((vector_size(16)));
#define WIDE 16

static inline __attribute__((always_inline)) void load_wide(wide *target, const float *source)
{
    memcpy(target, source, sizeof *target);
}

static inline __attribute__((always_inline)) float total_of(const wide *sums)
{
    half halves[2];
    quarter quarters[2];

    memcpy(halves, sums, sizeof halves);
    halves[0] += halves[1];
    memcpy(quarters, halves, sizeof quarters);
    quarters[0] += quarters[1];
    return (quarters[0][0] + quarters[0][2]) + (quarters[0][1] + quarters[0][3]);
}

/* Pieces that are multiplied together, so that what they share is read once. */
#define TOGETHER 4

/* Write matmuls of rows with `count` pieces from `place` on, at most TOGETHER. */
static inline __attribute__((always_inline)) void
standing(const float *restrict left, const float *restrict right, float *restrict target,
         const int64_t *words, int64_t place, int64_t count, float factor)
{
    const int64_t inner = words[THIN_INNER], step = words[THIN_RIGHT + 2];
    const float *pieces[TOGETHER];

    for (int64_t number = 0; number < TOGETHER; number++) /* the last one stands for those missing */
        pieces[number] = right + (place + (number < count ? number : count - 1)) * step;
    for (int64_t row = 0; row < words[THIN_ROWS]; row++) {
        const float *line = left + row * words[THIN_LEFT + 2];
        float *results = target + row * words[THIN_TARGET + 2] + place;
        wide sums[TOGETHER] = {{0.0f}}, factors, part;
        float totals[TOGETHER];
        int64_t index = 0;
        for (; index + WIDE <= inner; index += WIDE) {
            load_wide(&factors, line + index);
            for (int number = 0; number < TOGETHER; number++) {
                load_wide(&part, pieces[number] + index);
                sums[number] += factors * part;
            }
        }
        for (int number = 0; number < TOGETHER; number++)
            totals[number] = total_of(&sums[number]);
        for (; index < inner; index++)
            for (int number = 0; number < TOGETHER; number++)
                totals[number] += line[index] * pieces[number][index];
        for (int64_t number = 0; number < count; number++)
            results[number] = totals[number] * factor;
    }
}

/* Add products of rows with `count` pieces of `columns` from `place` on, at most TOGETHER. */
static inline __attribute__((always_inline)) void
lying(const float *restrict left, const float *restrict right, float *restrict target,
      const int64_t *words, int64_t place, int64_t count, int64_t columns, float factor)
{
    const int64_t step = words[THIN_RIGHT + 2];

    for (int64_t row = 0; row < words[THIN_ROWS]; row++) {
        const float *factors = left + row * words[THIN_LEFT + 2] + place;
        const float *piece = right + place * step;
        float *sums = target + row * words[THIN_TARGET + 2];
        if (place == 0)
            memset(sums, 0, (size_t)columns * sizeof *sums);
        if (count == TOGETHER) {
            const float a = factors[0] * factor, b = factors[1] * factor;
            const float c = factors[2] * factor, d = factors[3] * factor;
#pragma omp simd
            for (int64_t column = 0; column < columns; column++)
                sums[column] += (a * piece[column] + b * piece[step + column])
                                + (c * piece[2 * step + column] + d * piece[3 * step + column]);
        } else
            for (int64_t index = 0; index < count; index++)
                for (int64_t column = 0; column < columns; column++)
                    sums[column] += factors[index] * factor * piece[index * step + column];
    }
}

VECTOR_CLONES
static void thin_part(const struct thin_part *part, const char *stop)
{
    const int64_t *words = part->words;
    const int64_t is_standing = words[THIN_IS_STANDING], first = part->first_column;
    const int64_t pieces = is_standing ? part->columns : words[THIN_INNER];

    for (int64_t matrix = part->first_matrix; matrix < part->first_matrix + part->matrices;
         matrix++) {
        const int64_t outer = matrix / words[THIN_PAIRS], pair = matrix % words[THIN_PAIRS];
        const float *left = part->left + outer * words[THIN_LEFT] + pair * words[THIN_LEFT + 1];
        const float *right = part->right + outer * words[THIN_RIGHT]
                             + pair * words[THIN_RIGHT + 1]
                             + first * (is_standing ? words[THIN_RIGHT + 2] : 1);
        float *target = part->target + outer * words[THIN_TARGET] + pair * words[THIN_TARGET + 1]
                        + first;
        for (int64_t place = 0; place < pieces; place += TOGETHER) {
            const int64_t count = pieces - place < TOGETHER ? pieces - place : TOGETHER;
            if (is_stopped(stop))
                return;
            if (is_standing)
                standing(left, right, target, words, place, count, part->factor);
            else
                lying(left, right, target, words, place, count, part->columns, part->factor);
        }
    }
}

/* data: left, right, target, all float32; the target overlaps nothing. parameters: see thin_word.
 * inner is at least 1. */
static int thin_matmul(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t matrices = parameters[THIN_OUTER] * parameters[THIN_PAIRS];
    const int64_t columns = parameters[THIN_COLUMNS], parts = parameters[THIN_PARTS];
    double factor;

    memcpy(&factor, parameters + THIN_FACTOR, sizeof factor);
#pragma omp parallel for schedule(static) if (parts > 1)
    for (int64_t number = 0; number < parts; number++) {
        /* Threads take matrices of their own, or columns where there are fewer matrices. */
        const int64_t by_matrix = matrices >= parts, count = by_matrix ? matrices : columns;
        const int64_t first = count * number / parts, last = count * (number + 1) / parts;
        const struct thin_part part = {
            (const float *)data[0],       (const float *)data[1],       (float *)data[2],
            parameters,                   by_matrix ? first : 0,
            by_matrix ? last - first : matrices, by_matrix ? 0 : first,
            by_matrix ? columns : last - first, (float)factor,
        };
        thin_part(&part, stop);
    }
    return STATUS_OK;
}

enum distance { SUM_SQUARE, L2, L1 };

/* Eight sums side by side, which vectors hold; the rest of a row is added last. */
static inline __attribute__((always_inline)) float distance(const float *left, const float *right,
                                                            int64_t length, int64_t kind)
{
    float sums[8] = {0.0f}, total = 0.0f;
    const int64_t whole = length - length % 8;

    for (int64_t start = 0; start < whole; start += 8)
        for (int lane = 0; lane < 8; lane++) {
            const float x = left[start + lane] - right[start + lane];
            sums[lane] += kind == L1 ? fabsf(x) : x * x;
        }
    for (int64_t index = whole; index < length; index++) {
        const float x = left[index] - right[index];
        total += kind == L1 ? fabsf(x) : x * x;
    }
    for (int lane = 0; lane < 8; lane++)
        total += sums[lane];
    return kind == L2 ? sqrtf(total) : total;
}

VECTOR_CLONES
static void row_distances(const float *row, const float *others, float *target, int64_t count,
                          int64_t length, int64_t kind)
{
    for (int64_t other = 0; other < count; other++)
        target[other] = kind == L1 ? distance(row, others + other * length, length, L1)
                        : kind == L2
                            ? distance(row, others + other * length, length, L2)
                            : distance(row, others + other * length, length, SUM_SQUARE);
}

/* data: rows (rows, length), others (others, length), target (rows, others), all float32. parameters:
 * enum distance, rows, others, length. */
static int pair_distances(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t kind = parameters[0], rows = parameters[1], others = parameters[2];
    const int64_t length = parameters[3], blocks = (others + OTHERS - 1) / OTHERS;

#pragma omp parallel for schedule(static) if (rows * others * length >= PARALLEL_ELEMENTS)
    for (int64_t number = 0; number < rows * blocks; number++) {
        const int64_t row = number / blocks, first = number % blocks * OTHERS;
        if (!is_stopped(stop))
            row_distances((const float *)data[0] + row * length,
                          (const float *)data[1] + first * length,
                          (float *)data[2] + row * others + first,
                          others - first < OTHERS ? others - first : OTHERS, length, kind);
    }
    return STATUS_OK;
}

const struct named_kernel matmul_kernels[] = {
    {"pair_distances", pair_distances},
    {"small_matmul", small_matmul},
    {"thin_matmul", thin_matmul},
    {NULL, NULL},
};
