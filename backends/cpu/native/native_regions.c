/* Regions of images as bins: the mean, or the greatest, of points between the elements (RoiAlign).
 *
 * A mean is a weighted sum of rows, and of it a weighted sum of columns, by the taps of region_taps.h,
 * which are made once for a region and serve all of its channels.
 *
 * Small regions have few elements along an axis, so there the channels are what lies side by side: what
 * is seen of as many of them as a vector holds is copied so, and results are put back in order.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "region_taps.h"
#include "steps.h"
#include "vector_math.h"

#define MOST_VALUES (1 << 28) /* that are compared one by one, of all channels of a region */
#define MOST_EACH 64 /* of them for each element of the result, if MOST_VALUES are too few for all */
#define CHANNELS 64           /* of a region that one part of the work computes, if taps are few */
#define LANES 16              /* channels that are computed side by side */
#define MOST_SEEN 1024        /* elements of a channel, or bins, for which that is done */

enum form { FORM_MEAN = 0, FORM_MAX = 1 };

/* One channel of a region; `sums` has room for a row of the image. */
VECTOR_CLONES
static void mean_of_channel(float *target, const float *image, float *restrict sums, int64_t width,
                            const struct taps *rows, const struct taps *columns, int64_t row_bins,
                            int64_t column_bins)
{
    const int64_t first = columns->first, length = columns->last - columns->first + 1;

    for (int64_t bin = 0; bin < row_bins; bin++) {
        const int64_t *places = rows->places + bin * rows->capacity;
        const float *weights = rows->weights + bin * rows->capacity;
        for (int64_t tap = 0; tap < rows->counts[bin]; tap++) {
            const float *row = image + places[tap] * width + first;
            const float weight = weights[tap];
            for (int64_t at = 0; at < length; at++)
                sums[at] = (tap ? sums[at] : 0.0f) + weight * row[at];
        }
        for (int64_t column = 0; column < column_bins; column++) {
            const int64_t *sources = columns->places + column * columns->capacity;
            const float *shares = columns->weights + column * columns->capacity;
            float sum = 0.0f;
            for (int64_t tap = 0; tap < columns->counts[column]; tap++)
                sum += shares[tap] * sums[sources[tap] - first];
            target[bin * column_bins + column] = sum;
        }
    }
}

/* As many channels as a vector holds, `plane` elements from each to the next, as mean_of_channel has
 * one. `room` is for what is seen of an image, for a row of it and for all bins, of each channel. */
VECTOR_CLONES
static void mean_of_lanes(float *restrict target, const float *restrict image, float *restrict room,
                          int64_t plane, int64_t width, const struct taps *rows,
                          const struct taps *columns, int64_t row_bins, int64_t column_bins)
{
    const int64_t height = seen_of(rows), length = seen_of(columns), bins = row_bins * column_bins;
    float *const sums = room + height * length * LANES, *const means = sums + length * LANES;

    for (int64_t lane = 0; lane < LANES; lane++)
        for (int64_t row = 0; row < height; row++) {
            const float *source
                = image + lane * plane + (rows->first + row) * width + columns->first;
            for (int64_t at = 0; at < length; at++)
                room[(row * length + at) * LANES + lane] = source[at];
        }
    for (int64_t bin = 0; bin < bins; bin++) {
        const int64_t row_bin = bin / column_bins, column = bin % column_bins;
        const int64_t *places = rows->places + row_bin * rows->capacity;
        const float *weights = rows->weights + row_bin * rows->capacity;
        const int64_t *sources = columns->places + column * columns->capacity;
        const float *shares = columns->weights + column * columns->capacity;
        float sum[LANES] = {0};
        for (int64_t tap = 0; column == 0 && tap < rows->counts[row_bin]; tap++) {
            const float *row = room + (places[tap] - rows->first) * length * LANES;
            for (int64_t at = 0; at < length * LANES; at++)
                sums[at] = (tap ? sums[at] : 0.0f) + weights[tap] * row[at];
        }
        for (int64_t tap = 0; tap < columns->counts[column]; tap++)
            for (int64_t lane = 0; lane < LANES; lane++)
                sum[lane]
                    += shares[tap] * sums[(sources[tap] - columns->first) * LANES + lane];
        memcpy(means + bin * LANES, sum, sizeof sum);
    }
    for (int64_t lane = 0; lane < LANES; lane++)
        for (int64_t bin = 0; bin < bins; bin++)
            target[lane * bins + bin] = means[bin * LANES + lane];
}

/* Memory for mean_of_lanes; NULL where it is not to be used, or there is none. */
static float *hold_lanes(const struct taps *rows, const struct taps *columns, int64_t bins)
{
    const int64_t length = seen_of(columns), seen = seen_of(rows) * length;

    if (seen > MOST_SEEN || bins > MOST_SEEN)
        return NULL;
    return malloc((size_t)((seen + length + bins) * LANES) * sizeof(float));
}

/* What is no number is the greatest, as numpy has it. */
INLINE float greater(float best, float x)
{
    return x > best || x != x ? x : best;
}

static void greatest_of_channel(float *target, const float *image, const struct axis *rows,
                                const struct axis *columns, const char *stop)
{
    const int64_t width = columns->length;

    for (int64_t bin = 0; bin < rows->bins * columns->bins; bin++) {
        const int64_t row_bin = bin / columns->bins, column_bin = bin % columns->bins;
        float best = -INFINITY;
        for (int64_t row = 0; row < rows->count && !is_stopped(stop); row++) {
            const struct point y = point_of(rows, row_bin, row);
            const float *low = image + y.low * width, *high = image + y.high * width;
            for (int64_t column = 0; column < columns->count; column++) {
                const struct point x = point_of(columns, column_bin, column);
                best = greater(best, low[x.low] * (y.low_weight * x.low_weight));
                best = greater(best, low[x.high] * (y.low_weight * x.high_weight));
                best = greater(best, high[x.low] * (y.high_weight * x.low_weight));
                best = greater(best, high[x.high] * (y.high_weight * x.high_weight));
            }
        }
        target[bin] = best;
    }
}

struct work {
    const float *images, *regions;
    const char *batches;
    float *target;
    int64_t count, channels, height, width, row_bins, column_bins, ratio, form, is_half;
    float scale;
    int64_t part_channels; /* of a region, for which its taps are made once */
};

/* Place the points of a region. Means have taps; what is compared one by one may be too much. */
static enum found place_region(const struct work *work, int64_t region, struct axis *rows,
                               struct axis *columns)
{
    const volatile float *corners = work->regions + region * 4;
    const float shift = work->is_half ? 0.5f : 0.0f;
    float ends[4];
    enum found found[2];

    for (int64_t end = 0; end < 4; end++)
        ends[end] = corners[end] * work->scale - shift;
    found[0] = place_axis(rows, ends[1], ends[3], work->row_bins, work->height, work->ratio,
                          work->is_half != 0);
    found[1] = place_axis(columns, ends[0], ends[2], work->column_bins, work->width, work->ratio,
                          work->is_half != 0);
    if (found[0] == TOO_MANY || found[1] == TOO_MANY)
        return TOO_MANY;
    if (found[0] == NO_POINTS || found[1] == NO_POINTS)
        return NO_POINTS;
    const int64_t points = rows->bins * rows->count * (columns->bins * columns->count);
    return work->form == FORM_MAX && points > MOST_VALUES / work->channels ? TOO_MANY : POINTS;
}

/* How much one request has to do, of `elements`: values to compare, or for means points along axes.
 * Returns -1 if that is too much. */
static int64_t count_values(const struct work *work, int64_t regions, int64_t elements)
{
    const int64_t most = elements > MOST_VALUES / MOST_EACH ? elements * MOST_EACH : MOST_VALUES;
    struct axis rows, columns;
    int64_t values = 0;

    if (elements == 0 || work->height * work->width == 0)
        return 0;
    for (int64_t region = 0; region < regions && values <= most; region++) {
        const enum found found = place_region(work, region, &rows, &columns);
        if (found == TOO_MANY)
            return -1;
        if (found == NO_POINTS)
            continue;
        const int64_t along[2] = {rows.bins * rows.count, columns.bins * columns.count};
        values += work->form == FORM_MAX ? along[0] * along[1] * work->channels
                                         : along[0] + along[1];
    }
    return values > most ? -1 : values;
}

/* Compute channels from `first` on of a region. */
static int align_channels(const struct work *work, int64_t region, int64_t first, const char *stop)
{
    const int64_t image = ((const volatile int64_t *)work->batches)[region];
    const int64_t left = work->channels - first, plane = work->height * work->width;
    const int64_t channels = left < work->part_channels ? left : work->part_channels;
    const int64_t bins = work->row_bins * work->column_bins;
    float *target = work->target + (region * work->channels + first) * bins, *sums;
    struct axis rows, columns;
    struct taps row_taps, column_taps;
    enum found found;
    void *held;

    if (image < 0 || image >= work->count)
        return STATUS_INDEX;
    found = plane == 0 ? NO_POINTS : place_region(work, region, &rows, &columns);
    if (found == TOO_MANY)
        return STATUS_REGION;
    if (found == NO_POINTS) {
        memset(target, 0, (size_t)(channels * bins) * sizeof *target);
        return STATUS_OK;
    }
    const float *source = work->images + (image * work->channels + first) * plane;
    if (work->form == FORM_MAX) {
        for (int64_t channel = 0; channel < channels && !is_stopped(stop); channel++)
            greatest_of_channel(target + channel * bins, source + channel * plane, &rows, &columns,
                                stop);
        return STATUS_OK;
    }
    held = hold_taps(&row_taps, &column_taps, &sums, &rows, &columns);
    if (held == NULL)
        return STATUS_MEMORY;
    make_taps(&row_taps, &rows);
    make_taps(&column_taps, &columns);
    float *const lanes = channels < LANES ? NULL : hold_lanes(&row_taps, &column_taps, bins);
    int64_t channel = 0;
    for (; lanes != NULL && channel + LANES <= channels && !is_stopped(stop); channel += LANES)
        mean_of_lanes(target + channel * bins, source + channel * plane, lanes, plane, work->width,
                      &row_taps, &column_taps, work->row_bins, work->column_bins);
    for (; channel < channels && !is_stopped(stop); channel++)
        mean_of_channel(target + channel * bins, source + channel * plane, sums, work->width,
                        &row_taps, &column_taps, work->row_bins, work->column_bins);
    free(lanes);
    free(held);
    return STATUS_OK;
}

/* data: images (N, C, H, W) and regions (R, 4) in float32, the image of each region in int64,
 * result (R, C, row bins, column bins) in float32. parameters: N, C, H, W, R, row bins, column
 * bins, points of a bin along an axis (0: as many as elements), whether the greatest is taken,
 * whether elements lie at halves, and a double that the regions are multiplied by. */
static int align_regions(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t regions = parameters[4];
    struct work work = {
        (const float *)data[0],
        (const float *)data[1],
        data[2],
        (float *)data[3],
        parameters[0],
        parameters[1],
        parameters[2],
        parameters[3],
        parameters[5],
        parameters[6],
        parameters[7],
        parameters[8],
        parameters[9],
        0.0f,
        CHANNELS,
    };
    const int64_t elements = regions * work.channels * work.row_bins * work.column_bins;
    int64_t parts = (work.channels + CHANNELS - 1) / CHANNELS, values;
    double scale;
    int status = STATUS_OK;

    memcpy(&scale, parameters + 10, sizeof scale);
    work.scale = (float)scale;
    values = count_values(&work, regions, elements);
    if (values < 0)
        return STATUS_REGION;
    if (work.form != FORM_MAX && values * (parts - 1) > elements) {
        work.part_channels = work.channels;
        parts = 1;
    }
#pragma omp parallel for schedule(static) reduction(max : status) if (regions * parts > 1)
    for (int64_t part = 0; part < regions * parts; part++) {
        if (is_stopped(stop))
            continue;
        const int failed = align_channels(&work, part / parts, part % parts * CHANNELS, stop);
        status = failed > status ? failed : status;
    }
    return status;
}

const struct named_kernel region_kernels[] = {
    {"align_regions", align_regions},
    {NULL, NULL},
};
