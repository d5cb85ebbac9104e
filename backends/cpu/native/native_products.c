/* Products of small matrices, which are done before oneDNN has looked at its arguments. */
#include "steps.h"

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
    }
}

/* data: left (rows, inner), right (inner, columns), a bias of columns where there is one, target
 * (rows, columns), all float32 and row-major; the target overlaps nothing. parameters: rows, inner,
 * columns, whether there is a bias, whether results below zero become zero. */
static int small_product(char *const *data, const int64_t *parameters, const char *stop)
{
    int64_t has_bias = parameters[3];

    (void)stop; /* it is small */
    multiply((const float *)data[0], (const float *)data[1],
             has_bias ? (const float *)data[2] : NULL, (float *)data[has_bias ? 3 : 2],
             parameters[0], parameters[1], parameters[2], parameters[4]);
    return STATUS_OK;
}

const struct named_kernel product_kernels[] = {
    {"small_product", small_product},
    {NULL, NULL},
};
