/* The greatest element in each cell of a grid that is laid over a region of an image (MaxRoiPool). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "steps.h"
#include "vector_math.h"

#define REGION_NUMBERS 5 /* the image of a region, then left, top, right and bottom */
#define LANES 8          /* of a vector; wider ones take two */
#define CHANNELS 32      /* of a region that one part of the work computes */

/* Cells along an axis: `count` of `size` elements each, from `start` on. */
struct cells {
    double start;
    float size;
    int64_t count, length;
};

struct span {
    int64_t first, end;
};

static double double_of_bits(int64_t bits)
{
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* Edges are rounded with halves away from zero. Returns whether both are numbers, and not so far from
 * each other that a cell has no size that is one. */
static int lay_cells(struct cells *cells, float start, float end, int64_t count, int64_t length)
{
    if (!isfinite(start) || !isfinite(end))
        return 0;
    const double first = round((double)start), size = round((double)end) - first + 1.0;
    *cells = (struct cells){first, (float)(size > 1.0 ? size : 1.0) / (float)count, count, length};
    return isfinite(cells->size);
}

static int64_t inside(double place, int64_t length)
{
    if (!(place > 0.0)) /* nor for what is no number */
        return 0;
    return place >= (double)length ? length : (int64_t)place;
}

/* The elements of a cell: none where it is outside of the image. */
static struct span span_of(const struct cells *cells, int64_t cell)
{
    const double low = floor((double)((float)cell * cells->size));
    const double high = ceil((double)((float)(cell + 1) * cells->size));
    const struct span made = {inside(cells->start + low, cells->length),
                              inside(cells->start + high, cells->length)};
    return made;
}

/* What is no number is the greatest, as numpy has it. */
INLINE float greater(float best, float x)
{
    return x > best || x != x ? x : best;
}

struct work {
    const float *images, *regions;
    float *target;
    int64_t count, channels, height, width, rows, columns;
    float scale;
};

/* Widen a span to whole vectors, where the axis has so many elements: none of them is left over. */
static struct span in_vectors(struct span seen, int64_t length)
{
    const int64_t wanted = (seen.end - seen.first + LANES - 1) / LANES * LANES;

    if (wanted > length)
        return (struct span){0, length};
    return seen.first + wanted <= length ? (struct span){seen.first, seen.first + wanted}
                                         : (struct span){length - wanted, length};
}

/* The greatest of each column over some rows. */
INLINE void greatest_of_rows(float *restrict bests, const float *restrict image, int64_t width,
                             struct span rows, struct span columns)
{
    const float *source = image + rows.first * width;

    for (int64_t column = columns.first; column < columns.end; column++)
        bests[column] = source[column];
    for (int64_t row = rows.first + 1; row < rows.end; row++) {
        source = image + row * width;
        for (int64_t column = columns.first; column < columns.end; column++)
            bests[column] = greater(bests[column], source[column]);
    }
}

/* One channel of a region. `spans` are those of rows, then of columns; `bests` has room for a row of the
 * image. */
VECTOR_CLONES
static void pool_channel(float *restrict target, const float *restrict image, float *restrict bests,
                         const struct span *spans, const struct work *work)
{
    const struct span *across = spans + work->rows;
    const struct span all = {across[0].first, across[work->columns - 1].end};
    const struct span wide = in_vectors(all, work->width);

    for (int64_t row = 0; row < work->rows; row++) {
        const int has_rows = spans[row].first < spans[row].end;
        if (has_rows)
            greatest_of_rows(bests, image, work->width, spans[row], wide);
        for (int64_t column = 0; column < work->columns; column++) {
            const struct span seen = across[column];
            float best = 0.0f;
            if (has_rows && seen.first < seen.end) {
                best = bests[seen.first];
                for (int64_t at = seen.first + 1; at < seen.end; at++)
                    best = greater(best, bests[at]);
            }
            target[row * work->columns + column] = best;
        }
    }
}

/* Compute some channels of a region. */
static int pool_channels(const struct work *work, int64_t region, int64_t first, const char *stop)
{
    const volatile float *given = work->regions + region * REGION_NUMBERS;
    const int64_t cells = work->rows * work->columns, plane = work->height * work->width;
    const int64_t last = first + CHANNELS < work->channels ? first + CHANNELS : work->channels;
    const float image = given[0], left = given[1] * work->scale, top = given[2] * work->scale;
    const float right = given[3] * work->scale, bottom = given[4] * work->scale;
    struct cells down, across;
    struct span *spans;

    if (!(image > -1.0f && image < (float)work->count) || (int64_t)image >= work->count)
        return STATUS_INDEX;
    if (!lay_cells(&down, top, bottom, work->rows, work->height)
        || !lay_cells(&across, left, right, work->columns, work->width)) {
        memset(work->target + (region * work->channels + first) * cells, 0,
               (size_t)((last - first) * cells) * sizeof *work->target);
        return STATUS_OK;
    }
    spans = malloc((size_t)(work->rows + work->columns) * sizeof *spans
                   + (size_t)work->width * sizeof *work->target);
    if (spans == NULL)
        return STATUS_MEMORY;
    for (int64_t row = 0; row < work->rows; row++)
        spans[row] = span_of(&down, row);
    for (int64_t column = 0; column < work->columns; column++)
        spans[work->rows + column] = span_of(&across, column);
    for (int64_t channel = first; channel < last && !is_stopped(stop); channel++)
        pool_channel(work->target + (region * work->channels + channel) * cells,
                     work->images + ((int64_t)image * work->channels + channel) * plane,
                     (float *)(spans + work->rows + work->columns), spans, work);
    free(spans);
    return STATUS_OK;
}

/* data: images (N, C, H, W), regions (R, 5), result (R, C, rows, columns), in float32. parameters: N,
 * C, H, W, R, rows, columns, and a double that the regions are multiplied by. */
static int pool_regions(char *const *data, const int64_t *parameters, const char *stop)
{
    const struct work work = {
        (const float *)data[0], (const float *)data[1], (float *)data[2], parameters[0],
        parameters[1],          parameters[2],          parameters[3],    parameters[5],
        parameters[6],          (float)double_of_bits(parameters[7]),
    };
    const int64_t parts = (work.channels + CHANNELS - 1) / CHANNELS;
    int status = STATUS_OK;

#pragma omp parallel for schedule(static) reduction(max : status) if (parameters[4] * parts > 1)
    for (int64_t part = 0; part < parameters[4] * parts; part++) {
        if (is_stopped(stop))
            continue;
        const int failed = pool_channels(&work, part / parts, part % parts * CHANNELS, stop);
        status = failed > status ? failed : status;
    }
    return status;
}

const struct named_kernel cell_kernels[] = {
    {"pool_regions", pool_regions},
    {NULL, NULL},
};
