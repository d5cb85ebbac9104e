/* Matmuls with weights of 4 or 8 bits, which are read as they are packed.
 *
 * A row of weights is one column of the result: blocks of numbers, each with a scale and, where
 * there are some, a zero point. 32 bytes of it are a chunk: eight words of 32 bits, each of which
 * holds ELEMENTS numbers in a row, the lowest bits first. The numbers at the same place of each word
 * are a mask away, so a chunk becomes ELEMENTS vectors of eight numbers, at most places times a power
 * of two (scale_at). Data are put into that order first, once for all columns, and divided by it: in a
 * chunk, the first numbers of the eight words, then the second ones, and so on.
 *
 * Numbers are counted from the middle of their range, and so are zero points.
 */
#include <string.h>

#include "../avx2.h"
#include "../steps.h"
#include "../vector_math.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=fast") /* a column is a chain of multiply-adds */
#endif

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are only given to what is inlined */
#endif

#define LANES 8
#define CHUNK_BYTES 32
#define COLUMNS_BETWEEN_LOOKS 16
#define AHEAD_BYTES 2048 /* what is asked of memory before it is read */

typedef int32_t words __attribute__((vector_size(CHUNK_BYTES)));
typedef float floats __attribute__((vector_size(4 * LANES)));

/* How weights lie; all in numbers but for the bytes. */
struct packing {
    int64_t inner, length, bits;
    int64_t blocks, row_bytes, chunks, chunk;
};

static struct packing packing_of(int64_t inner, int64_t length, int64_t bits)
{
    struct packing made = {inner, length, bits, 0, 0, 0, 0};
    made.blocks = (inner + length - 1) / length;
    made.row_bytes = made.blocks * length * bits / 8;
    made.chunk = 8 * CHUNK_BYTES / bits;
    made.chunks = (inner + made.chunk - 1) / made.chunk;
    return made;
}

/* What numbers at a place of a word are times, as they are not shifted to the end of its half. */
static float scale_at(int64_t place, int64_t bits)
{
    return (float)(1 << bits * (place % (16 / bits)));
}

/* data: rows (rows, inner); result (rows, chunks, numbers of a chunk), both float32. parameters: rows,
 * inner, bits, parts. */
static int order_rows(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t rows = parameters[0], inner = parameters[1], bits = parameters[2];
    const int64_t parts = parameters[3];
    const struct packing packing = packing_of(inner, inner, bits);
    const int64_t elements = packing.chunk / LANES;
    const int64_t count = rows * packing.chunks;

#pragma omp parallel for schedule(static) if (parts > 1)
    for (int64_t number = 0; number < count; number++) {
        const int64_t row = number / packing.chunks, chunk = number % packing.chunks;
        const int64_t rest = inner - chunk * packing.chunk;
        const float *source = (const float *)data[0] + row * inner + chunk * packing.chunk;
        float *target = (float *)data[1] + number * packing.chunk;
        if (is_stopped(stop))
            continue;
        for (int64_t place = 0; place < elements; place++) {
            const float part = 1.0f / scale_at(place, bits);
            for (int64_t lane = 0; lane < LANES; lane++) {
                const int64_t index = lane * elements + place;
                target[place * LANES + lane] = index < rest ? source[index] * part : 0.0f;
            }
        }
    }
    return STATUS_OK;
}

/* What the last chunk of a row of weights has, where that ends before the chunk does. */
struct last_chunk {
    char bytes[CHUNK_BYTES];
    float scales[4];
    int8_t zeros[4];
};

INLINE int64_t smaller(int64_t left, int64_t right)
{
    return left < right ? left : right;
}

static void fill_last(struct last_chunk *last, const struct packing *packing, const char *row,
                      const float *scales, const int8_t *zeros)
{
    const int64_t done = (packing->chunks - 1) * CHUNK_BYTES;
    const int64_t first = (packing->chunks - 1) * packing->chunk / packing->length;
    const int64_t blocks = smaller(packing->blocks - first, 4);

    memset(last, 0, sizeof *last);
    memcpy(last->bytes, row + done, (size_t)smaller(CHUNK_BYTES, packing->row_bytes - done));
    memcpy(last->scales, scales + first, (size_t)blocks * sizeof *scales);
    if (zeros != NULL)
        memcpy(last->zeros, zeros + first, (size_t)blocks);
}

/* A part of a matmul: some of the columns, for all rows. */
struct packed_part {
    const float *data, *scales, *bias;
    const char *weights;
    const int8_t *zeros;
    float *target;
    int64_t rows, columns, first, last;
};

#define FOR(name) name##_plain
#include "packed_columns.h"
#undef FOR

#if COMPILES_AVX2
BEGIN_AVX2
#define FOR(name) name##_avx2
#include "packed_columns.h"
#undef FOR
END_AVX2
#else
#define packed_part_avx2 packed_part_plain
#define unpacked_row_avx2 unpacked_row_plain
#endif

/* data: rows in order and divided (see order_rows), weights (columns, bytes
 * of a row), scales (columns, blocks) in float32, zero points (columns, blocks) in int8 and a bias of
 * columns where there are some, target (rows, columns) in float32. parameters: rows, inner, columns,
 * numbers in a block, bits, whether there are zero points, whether there is a bias, parts.
 * A block has 16 or 32 numbers, or fills whole chunks, or is the only one. */
static int packed_matmul(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t columns = parameters[2], parts = parameters[7], has_avx2 = HAS_AVX2;
    const int64_t has_zeros = parameters[5], has_bias = parameters[6];
    const struct packing packing = packing_of(parameters[1], parameters[3], parameters[4]);

#pragma omp parallel for schedule(static) if (parts > 1)
    for (int64_t number = 0; number < parts; number++) {
        const struct packed_part part = {
            .data = (const float *)data[0],
            .weights = data[1],
            .scales = (const float *)data[2],
            .zeros = has_zeros ? (const int8_t *)data[3] : NULL,
            .bias = has_bias ? (const float *)data[3 + has_zeros] : NULL,
            .target = (float *)data[3 + has_zeros + has_bias],
            .rows = parameters[0],
            .columns = columns,
            .first = columns * number / parts,
            .last = columns * (number + 1) / parts,
        };
        if (has_avx2)
            packed_part_avx2(&part, &packing, stop);
        else
            packed_part_plain(&part, &packing, stop);
    }
    return STATUS_OK;
}

/* data: weights, scales and zero points as those of packed_matmul; target (count, numbers of whole
 * chunks) in float32: `count` rows from `first` on, in the order of order_rows, times
 * what rows are divided by there. parameters: inner,
 * columns, numbers in a block, bits, whether there are zero points, first, count, parts. */
static int unpack_weights(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t has_zeros = parameters[4], first = parameters[5], count = parameters[6];
    const int64_t parts = parameters[7], has_avx2 = HAS_AVX2;
    const struct packing packing = packing_of(parameters[0], parameters[2], parameters[3]);

#pragma omp parallel for schedule(static) if (parts > 1)
    for (int64_t number = 0; number < count; number++) {
        const int64_t column = first + number;
        const int8_t *zeros = has_zeros ? (const int8_t *)data[2] : NULL;
        if (is_stopped(stop))
            continue;
        (has_avx2 ? unpacked_row_avx2 : unpacked_row_plain)(
            (float *)data[2 + has_zeros] + number * packing.chunks * packing.chunk, &packing,
            data[0] + column * packing.row_bytes,
            (const float *)data[1] + column * packing.blocks,
            zeros == NULL ? NULL : zeros + column * packing.blocks);
    }
    return STATUS_OK;
}

const struct named_kernel packed_kernels[] = {
    {"order_rows", order_rows},
    {"packed_matmul", packed_matmul},
    {"unpack_weights", unpack_weights},
    {NULL, NULL},
};
