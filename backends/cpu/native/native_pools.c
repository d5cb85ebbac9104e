/* Pools: maxima and averages of windows, over up to three axes.
 *
 * A window is a box, so it is seen one axis at a time: the rows that it reads are joined, over as
 * many elements of the last axis as a chunk of results needs, and then elements of that row are.
 * What is not in the input is not seen; a maximum of NaN and anything is NaN.
 */
#include <math.h>
#include <stdlib.h>

#include "elements.h"
#include "steps.h"
#include "vector_math.h"

#define AXES 3
#define BUFFER 8192 /* floats: one chunk of joined rows */
#define CHANNELS 128
#define BLOCK 512
#define ROWS 8

enum pool { MAXIMUM, AVERAGE };

struct axis {
    int64_t length, count, size, stride, dilation, pad;
};

/* `counts` is how many elements of each window an average divides by: one number for each place of
 * each axis, which are multiplied. `block` channels are taken at once. */
struct pool_plan {
    int64_t kind, element, item, outer, inner, block;
    struct axis axes[AXES];
    const float *counts;
};

/* One row of results, or some channels of it. `first` is where its windows begin on the outer axes,
 * `share` the count of their elements there. */
struct row {
    const char *image;
    char *result;
    int64_t first[AXES - 1], channels;
    float share;
};

INLINE int64_t reach_of(const struct axis *axis)
{
    return (axis->size - 1) * axis->dilation + 1;
}

INLINE float start_of(const struct pool_plan *plan, int64_t kind)
{
    if (kind == AVERAGE)
        return 0.0f;
    return plan->element == ELEMENT_U8 ? 0.0f : plan->element == ELEMENT_I8 ? -128.0f : -INFINITY;
}

INLINE float joined(int64_t kind, float total, float number)
{
    if (kind == AVERAGE)
        return total + number;
    return number > total || number != number ? number : total;
}

INLINE void join(int64_t kind, float *restrict totals, const float *restrict numbers, int64_t count)
{
    for (int64_t index = 0; index < count; index++)
        totals[index] = joined(kind, totals[index], numbers[index]);
}

INLINE void fill(float *totals, float number, int64_t count)
{
    for (int64_t index = 0; index < count; index++)
        totals[index] = number;
}

/* Join `count` elements in memory to as many totals, which have no numbers yet if `is_first`. */
INLINE int join_memory(const struct pool_plan *plan, int64_t kind, float *restrict totals,
                       const char *memory, int64_t count, int is_first)
{
    float loaded[BLOCK], start = start_of(plan, kind);
    int is_loaded = plan->element != ELEMENT_F32;

    for (int64_t done = 0; done < count; done += BLOCK) {
        int64_t part = is_loaded && count - done > BLOCK ? BLOCK : count - done;
        const float *numbers = (const float *)(const void *)memory + done;
        if (is_loaded) {
            numbers = loaded;
            if (load_floats(loaded, memory + done * plan->item, plan->item, part, plan->element))
                return STATUS_TABLE;
        }
        if (is_first)
            for (int64_t index = 0; index < part; index++)
                totals[done + index] = joined(kind, start, numbers[index]);
        else
            join(kind, totals + done, numbers, part);
        if (!is_loaded)
            break;
    }
    return STATUS_OK;
}

/* Which taps of a window that begins at `first` are in the input: all from one up to another. */
INLINE void seen_taps(const struct axis *axis, int64_t first, int64_t *from, int64_t *to)
{
    int64_t dilation = axis->dilation, rest = axis->length - first;
    *from = first < 0 ? (dilation - 1 - first) / dilation : 0;
    *to = axis->size;
    if (rest < reach_of(axis))
        *to = rest > 0 ? (rest + dilation - 1) / dilation : 0;
}

/* Join all rows that the windows read, from one position of the last axis up to another. */
INLINE int join_rows(const struct pool_plan *plan, int64_t kind, const struct row *row,
                     float *restrict totals, int64_t from, int64_t to)
{
    const struct axis *outer = plan->axes, *middle = plan->axes + 1, *last = plan->axes + 2;
    int64_t stop = to > last->length ? last->length : to, start = from < 0 ? 0 : from;
    int64_t channels = row->channels, pitch = plan->inner * plan->item;
    int64_t step = channels == plan->inner ? stop - start : 1;
    int64_t deep, deepest, high, highest;
    float nothing = start_of(plan, kind);
    int is_first = 1;

    seen_taps(outer, row->first[0], &deep, &deepest);
    seen_taps(middle, row->first[1], &high, &highest);
    for (int64_t a = deep; a < deepest && start < stop; a++) {
        int64_t depth = row->first[0] + a * outer->dilation;
        for (int64_t b = high; b < highest; b++) {
            int64_t height = row->first[1] + b * middle->dilation;
            const char *memory =
                row->image + (depth * middle->length + height) * last->length * pitch;
            for (int64_t at = start; at < stop; at += step)
                if (join_memory(plan, kind, totals + (at - from) * channels, memory + at * pitch,
                                step * channels, is_first))
                    return STATUS_TABLE;
            is_first = 0;
        }
    }
    if (is_first)
        stop = start = from;
    fill(totals, nothing, (start - from) * channels);
    fill(totals + (stop - from) * channels, nothing, (to - stop) * channels);
    return STATUS_OK;
}

/* One result for each place: join elements of a row that lie at a stride. */
INLINE void join_places(int64_t kind, float *restrict made, const float *restrict totals,
                        const struct axis *axis, int64_t stride, int64_t count)
{
    for (int64_t place = 0; place < count; place++)
        made[place] = totals[place * stride];
    for (int64_t tap = 1; tap < axis->size; tap++) {
        const float *numbers = totals + tap * axis->dilation;
        for (int64_t place = 0; place < count; place++)
            made[place] = joined(kind, made[place], numbers[place * stride]);
    }
}

/* One result for each channel: join the channels of several elements of a row. */
INLINE void join_channels(int64_t kind, float *restrict made, const float *restrict totals,
                          const struct axis *axis, int64_t channels)
{
    const float *next = totals + (axis->size > 1 ? axis->dilation * channels : 0);
    for (int64_t channel = 0; channel < channels; channel++)
        made[channel] = axis->size > 1 ? joined(kind, totals[channel], next[channel])
                                       : totals[channel];
    for (int64_t tap = 2; tap < axis->size; tap++)
        join(kind, made, totals + tap * axis->dilation * channels, channels);
}

INLINE void divide(float *restrict made, const float *restrict counts, float share, int64_t count,
                   int64_t channels)
{
    if (channels == 1)
        for (int64_t place = 0; place < count; place++)
            made[place] /= share * counts[place];
    else
        for (int64_t place = 0; place < count; place++)
            for (int64_t channel = 0; channel < channels; channel++)
                made[place * channels + channel] /= share * counts[place];
}

/* `totals` holds `room` numbers, and all that one window spans. */
INLINE int pool_row(const struct pool_plan *plan, int64_t kind, const struct row *row,
                    float *totals, int64_t room)
{
    const struct axis *axis = plan->axes + 2;
    int64_t channels = row->channels, reach = reach_of(axis), pitch = plan->inner * plan->item;
    int64_t most = (room / channels - reach) / axis->stride + 1;
    int is_direct = plan->element == ELEMENT_F32 && channels == plan->inner;
    float made[BUFFER];

    for (int64_t first = 0; first < axis->count; first += most) {
        int64_t count = axis->count - first < most ? axis->count - first : most;
        int64_t from = first * axis->stride - axis->pad;
        char *result = row->result + first * pitch;
        float *target = is_direct ? (float *)(void *)result : made;
        if (join_rows(plan, kind, row, totals, from, from + (count - 1) * axis->stride + reach))
            return STATUS_TABLE;
        if (channels > 1)
            for (int64_t place = 0; place < count; place++)
                join_channels(kind, target + place * channels,
                              totals + place * axis->stride * channels, axis, channels);
        else if (axis->stride == 1)
            join_places(kind, target, totals, axis, 1, count);
        else if (axis->stride == 2)
            join_places(kind, target, totals, axis, 2, count);
        else
            join_places(kind, target, totals, axis, axis->stride, count);
        if (kind == AVERAGE)
            divide(target, plan->counts + plan->axes[0].count + plan->axes[1].count + first,
                   row->share, count, channels);
        for (int64_t place = 0; place < count && !is_direct; place++)
            if (store_floats(result + place * pitch, plan->item, made + place * channels, channels,
                             plan->element))
                return STATUS_TABLE;
    }
    return STATUS_OK;
}

/* Compute some rows of results; they are numbered through all outer places and blocks of channels. */
VECTOR_CLONES
static int pool_rows(const struct pool_plan *plan, char *const *data, int64_t first, int64_t last)
{
    const struct axis *axes = plan->axes;
    int64_t reach = reach_of(axes + 2), room = reach > BUFFER ? reach : BUFFER;
    int64_t block = plan->block, blocks = (plan->inner + block - 1) / block;
    int64_t rows = axes[0].count * axes[1].count, status = STATUS_OK;
    int64_t image = axes[0].length * axes[1].length * axes[2].length * plan->inner * plan->item;
    float buffer[BUFFER], *totals = buffer;

    if (reach > BUFFER && (totals = malloc((size_t)reach * sizeof *totals)) == NULL)
        return STATUS_MEMORY;
    for (; first < last && status == STATUS_OK; first++) {
        int64_t channel = first % blocks * block, number = first / blocks;
        int64_t depth = number % rows / axes[1].count, height = number % axes[1].count;
        int64_t place = number * axes[2].count * plan->inner + channel;
        struct row row = {
            .image = data[0] + number / rows * image + channel * plan->item,
            .first = {depth * axes[0].stride - axes[0].pad, height * axes[1].stride - axes[1].pad},
            .channels = plan->inner - channel < block ? plan->inner - channel : block,
        };
        if (plan->kind == AVERAGE) {
            row.result = data[2] + place * plan->item;
            row.share = plan->counts[depth] * plan->counts[axes[0].count + height];
            status = pool_row(plan, AVERAGE, &row, totals, room);
        } else {
            row.result = data[1] + place * plan->item;
            status = pool_row(plan, MAXIMUM, &row, totals, room);
        }
    }
    if (totals != buffer)
        free(totals);
    return (int)status;
}

/* How many channels are taken at once: one, or as many as have room for one window each. */
static int64_t channel_block(const struct pool_plan *plan)
{
    int64_t most = BUFFER / reach_of(plan->axes + 2);
    int64_t block = plan->inner < CHANNELS ? plan->inner : CHANNELS;
    return most < 1 ? 1 : block < most ? block : most;
}

/* True if its windows can slide: nothing below divides by zero. */
static int is_pool(const struct pool_plan *plan)
{
    for (const struct axis *axis = plan->axes; axis < plan->axes + AXES; axis++)
        if (axis->length < 0 || axis->count < 0 || axis->size < 1 || axis->stride < 1
            || axis->dilation < 1)
            return 0;
    return plan->inner >= 1 && plan->outer >= 0;
}

/* data: source, counts (floats; for an average), result; source and result are row-major (outer,
 * three axes, inner). parameters: kind, element type, its bytes, outer, inner, then for each axis
 * the members of struct axis. */
static int pool(char *const *data, const int64_t *parameters, const char *stop)
{
    struct pool_plan plan = {.kind = parameters[0], .element = parameters[1],
                             .item = parameters[2], .outer = parameters[3],
                             .inner = parameters[4]};
    int64_t status = STATUS_OK;

    for (int axis = 0; axis < AXES; axis++) {
        const int64_t *words = parameters + 5 + 6 * axis;
        plan.axes[axis] =
            (struct axis){words[0], words[1], words[2], words[3], words[4], words[5]};
    }
    if (!is_pool(&plan))
        return STATUS_TABLE;
    plan.counts = (const float *)(const void *)data[1];
    plan.block = channel_block(&plan);
    int64_t blocks = (plan.inner + plan.block - 1) / plan.block;
    int64_t rows = plan.outer * plan.axes[0].count * plan.axes[1].count * blocks;
    int64_t work = rows * plan.axes[2].count * plan.block;

#pragma omp parallel for schedule(static) reduction(max : status) if (work >= PARALLEL_ELEMENTS)
    for (int64_t first = 0; first < rows; first += ROWS) {
        if (is_stopped(stop))
            continue;
        int64_t last = first + ROWS < rows ? first + ROWS : rows;
        int64_t found = pool_rows(&plan, data, first, last);
        status = found > status ? found : status;
    }
    return (int)status;
}

const struct named_kernel pool_kernels[] = {
    {"pool", pool},
    {NULL, NULL},
};
