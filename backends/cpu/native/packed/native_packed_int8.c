/* Matmuls of weights of 4 or 8 bits with data that are rounded to 8 bits for that.
 *
 * Each 32 numbers of data in a row are a block, which is stored by a scale of its own, the largest
 * of them by 127. Weights lie as native_packed.c has them. So 32 bytes of 4 bits are a chunk of two
 * blocks: the lower halves of its bytes are the numbers at even places, the upper ones those at odd
 * places, and data are stored in that order. A product of a weight, 0 to 15, and a number of data, up
 * to 127, fits 16 bits with three others. What weights count from is taken out of a block's sum with
 * the sum of its data.
 */
#include <math.h>
#include <string.h>

#include "../avx2.h"
#include "../steps.h"
#include "../vector_math.h"

#define BLOCK 32
#define CHUNK 64 /* numbers in 32 bytes */
#define CHUNK_BYTES 32
#define MIDDLE_OF_HALVES 8.0f
#define MIDDLE_OF_BYTES 128.0f
#define COLUMNS_BETWEEN_LOOKS 16

/* Where the number at a place of a block is stored, from the block's first place on. */
INLINE int64_t stored_place(int64_t index, int64_t bits)
{
    return bits == 4 ? index / 2 + index % 2 * BLOCK : index;
}

INLINE int64_t stored_start(int64_t block, int64_t bits)
{
    return bits == 4 ? block / 2 * CHUNK + block % 2 * BLOCK / 2 : block * BLOCK;
}

INLINE void quantize_block(int8_t *target, const float *source, float *scale, float *total,
                           int64_t bits)
{
    float most = 0.0f, sum = 0.0f;

    for (int64_t index = 0; index < BLOCK; index++) {
        const float size = fabsf(source[index]);
        most = size > most || size != size ? size : most;
    }
    const float factor = most > 0.0f ? 127.0f / most : 0.0f;
    for (int64_t index = 0; index < BLOCK; index++) {
        const float number = rintf(source[index] * factor);
        const float kept = number >= -127.0f && number <= 127.0f ? number : 0.0f;
        target[stored_place(index, bits)] = (int8_t)kept;
        sum += kept;
    }
    *scale = most / 127.0f;
    *total = sum;
}

/* data: rows (rows, inner) in float32; what is stored (rows, inner) in int8, scales and sums of
 * blocks (rows, blocks) in float32. parameters: rows, inner, which is whole chunks of 4 bits or
 * blocks, bits of the weights, parts. */
static int quantize_rows(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t blocks = parameters[0] * parameters[1] / BLOCK, bits = parameters[2];
    const int64_t parts = parameters[3];

#pragma omp parallel for schedule(static) if (parts > 1)
    for (int64_t block = 0; block < blocks; block++) {
        const float *source = (const float *)data[0] + block * BLOCK;
        int8_t *target = (int8_t *)data[1] + stored_start(block, bits);
        float *scale = (float *)data[2] + block, *sum = (float *)data[3] + block;
        if (is_stopped(stop))
            continue;
        if (bits == 4)
            quantize_block(target, source, scale, sum, 4);
        else
            quantize_block(target, source, scale, sum, 8);
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
                        int64_t last, int64_t bits)
{
    float total = 0.0f;

    for (int64_t block = first; block < last; block++) {
        const uint8_t *bytes = column->bytes + block * BLOCK * bits / 8;
        const int8_t *numbers = row->numbers + stored_start(block, bits);
        const int64_t place = block / column->span;
        const float zero = column->zeros == NULL ? 0.0f : column->zeros[place];
        const float middle = zero + (bits == 4 ? MIDDLE_OF_HALVES : MIDDLE_OF_BYTES);
        int32_t sum = 0;
        if (bits == 4)
            for (int64_t index = 0; index < BLOCK / 2; index++)
                sum += (bytes[index] & 15) * numbers[index]
                       + (bytes[index] >> 4) * numbers[index + BLOCK];
        else
            for (int64_t index = 0; index < BLOCK; index++)
                sum += bytes[index] * numbers[index];
        total += ((float)sum - middle * row->sums[block]) * (row->scales[block] * column->scales[place]);
    }
    return total;
}

static float dot_plain(const struct stored_row *row, const struct column *column, int64_t blocks,
                       int64_t bits)
{
    return bits == 4 ? dot_blocks(row, column, 0, blocks, 4) : dot_blocks(row, column, 0, blocks, 8);
}

#if COMPILES_AVX2
#include "dots_avx2.h"
#include "dots_vnni.h"
#endif

enum set { PLAIN, AVX2, VNNI };

static float dot(const struct stored_row *row, const struct column *column, int64_t blocks,
                 int64_t bits, enum set set)
{
#if COMPILES_AVX2
    if (set == VNNI)
        return dot_vnni(row, column, blocks, bits);
    if (set == AVX2)
        return dot_avx2(row, column, 0, blocks, bits);
#endif
    (void)set;
    return dot_plain(row, column, blocks, bits);
}

/* data: what quantize_rows has made; weights (columns, bytes of a row), scales (columns, blocks) in
 * float32, zero points (columns, blocks) in int8 and a bias of columns where there are some, target
 * (rows, columns) in float32. parameters: rows, inner, columns, numbers in a block of weights, which
 * divides inner, bits, whether there are zero points, whether there is a bias, parts. */
static int packed_matmul_int8(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t rows = parameters[0], inner = parameters[1], columns = parameters[2];
    const int64_t span = parameters[3] / BLOCK, bits = parameters[4], has_zeros = parameters[5];
    const int64_t has_bias = parameters[6], parts = parameters[7], blocks = inner / BLOCK;
    const enum set set = HAS_VNNI ? VNNI : HAS_AVX2 ? AVX2 : PLAIN;
    const float *bias = has_bias ? (const float *)data[5 + has_zeros] : NULL;
    float *target = (float *)data[5 + has_zeros + has_bias];

#pragma omp parallel for schedule(static) if (parts > 1)
    for (int64_t part = 0; part < parts; part++)
        for (int64_t index = columns * part / parts; index < columns * (part + 1) / parts; index++) {
            const struct column column = {
                (const uint8_t *)data[3] + index * inner * bits / 8,
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
                const float sum = dot(&row, &column, blocks, bits, set);
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
