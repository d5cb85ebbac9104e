/* Columns folded into an image: what a matmul has made of each element for each place of a window
 * is added up where windows overlap (ConvTranspose).
 */
#include <string.h>

#include "steps.h"
#include "vector_math.h"

/* One axis: of `length` elements each writes a window of `kernel` places, `dilation` apart and
 * `stride` after the last one's; `pad` places are cut off at the beginning. */
struct fold {
    int64_t length, kernel, stride, dilation, pad;
};

/* Which element writes place `at` by this part of its window; -1: none. */
INLINE int64_t writer_of(const struct fold *fold, int64_t at, int64_t part)
{
    const int64_t distance = at + fold->pad - part * fold->dilation;
    const int64_t element = distance >= 0 ? distance / fold->stride : -1;

    if (element < 0 || element >= fold->length || element * fold->stride != distance)
        return -1;
    return element;
}

/* How many elements write to places before `at` by this part of their windows. */
INLINE int64_t writers_before(const struct fold *fold, int64_t at, int64_t part)
{
    const int64_t distance = at + fold->pad - part * fold->dilation;
    const int64_t count = distance > 0 ? (distance - 1) / fold->stride + 1 : 0;

    return count < fold->length ? count : fold->length;
}

/* A row of the result: (width, channels). */
VECTOR_CLONES
static void fold_row(float *restrict target, const float *restrict columns, const struct fold *rows,
                     const struct fold *across, int64_t row, int64_t width, int64_t channels)
{
    const int64_t window = rows->kernel * across->kernel * channels;

    memset(target, 0, (size_t)(width * channels) * sizeof *target);
    for (int64_t upper = 0; upper < rows->kernel; upper++) {
        const int64_t y = writer_of(rows, row, upper);
        for (int64_t left = 0; y >= 0 && left < across->kernel; left++) {
            const int64_t last = writers_before(across, width, left);
            for (int64_t x = writers_before(across, 0, left); x < last; x++) {
                const float *source = columns + (y * across->length + x) * window
                                      + (upper * across->kernel + left) * channels;
                float *place = target
                               + (x * across->stride + left * across->dilation - across->pad)
                                     * channels;
                for (int64_t channel = 0; channel < channels; channel++)
                    place[channel] += source[channel];
            }
        }
    }
}

/* data: columns (images, height, width, rows of a window, columns of it, channels), result (images,
 * rows, columns, channels), in float32. parameters: images, channels, rows and columns of the
 * result, and of rows, then of columns: elements, places of a window, stride, dilation, pad. */
static int fold_columns(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t images = parameters[0], channels = parameters[1];
    const int64_t height = parameters[2], width = parameters[3];
    const struct fold rows = {parameters[4], parameters[5], parameters[6], parameters[7],
                              parameters[8]};
    const struct fold across = {parameters[9], parameters[10], parameters[11], parameters[12],
                                parameters[13]};
    const int64_t image = rows.length * across.length * rows.kernel * across.kernel * channels;

#pragma omp parallel for schedule(static) if (images * height * width * channels >= PARALLEL_ELEMENTS)
    for (int64_t row = 0; row < images * height; row++)
        if (!is_stopped(stop))
            fold_row((float *)data[1] + row * width * channels,
                     (const float *)data[0] + row / height * image, &rows, &across, row % height,
                     width, channels);
    return STATUS_OK;
}

const struct named_kernel column_kernels[] = {
    {"fold_columns", fold_columns},
    {NULL, NULL},
};
