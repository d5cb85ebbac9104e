/* Points of images at places that the run gives: what lies between the elements (GridSample).
 *
 * A point is a weighted sum of elements, its taps: one, two or four along each axis. They are made
 * once for a block of points and serve many channels. A place may be any number, also NaN: what it
 * is made of is brought between the first and the last element before it becomes an address.
 */
#include <math.h>

#include "steps.h"
#include "vector_math.h"

#define MOST_AXES 3
#define BLOCK_TAPS 2048 /* of a block of points, all together, and along all axes as well */
#define BLOCK_POINTS 512
#define MOST_ELEMENTS (1 << 29) /* of an image, so that twice as many have a number of 32 bits */
#define CHANNELS 64     /* that one making of taps serves */
#define SIDE_BY_SIDE 4  /* channels that are computed together */
#define FAR 3           /* places that are further outside have no neighbour inside */
#define OUTSIDE (-1)
#define SHARPNESS (-0.75f)

enum form { FORM_NEAREST = 0, FORM_LINEAR = 1, FORM_CUBIC = 2 };
enum padding { PADDING_ZEROS = 0, PADDING_BORDER = 1, PADDING_REFLECTION = 2 };

struct sampling {
    int64_t axes, form, padding, is_aligned;
    int64_t lengths[MOST_AXES];
};

/* A block of points: their taps along each axis, and what these are together. Those of the first tap
 * lie before those of the second; an offset that is OUTSIDE has the weight 0. */
struct block {
    int32_t places[BLOCK_TAPS], offsets[BLOCK_TAPS];
    float shares[BLOCK_TAPS], weights[BLOCK_TAPS], numbers[BLOCK_POINTS];
};

INLINE float place_of(float number, int64_t length, int64_t is_aligned)
{
    if (is_aligned)
        return (number + 1.0f) / 2.0f * (float)(length - 1);
    return ((number + 1.0f) * (float)length - 1.0f) / 2.0f;
}

static float remainder_of(float number, float period)
{
    const float rest = fmodf(number, period);
    return rest < 0.0f ? rest + period : rest;
}

/* Fold a place at the first and the last element, or at the edges of these. */
static float mirrored_place(float place, int64_t length, int64_t is_aligned)
{
    const float low = is_aligned ? 0.0f : -0.5f, span = (float)(is_aligned ? length - 1 : length);

    if (place >= low && place <= low + span)
        return place;
    if (span == 0.0f)
        return low;
    const float folded = remainder_of(place - low, 2.0f * span);
    return low + (folded < 2.0f * span - folded ? folded : 2.0f * span - folded);
}

static int64_t mirror_period(int64_t length, int64_t is_aligned)
{
    if (!is_aligned)
        return 2 * length;
    return length > 1 ? 2 * (length - 1) : 1;
}

/* Which element stands for one that is outside of an axis that is mirrored. */
static int32_t mirrored_element(int64_t whole, int64_t length, int64_t is_aligned)
{
    const int64_t period = mirror_period(length, is_aligned);
    const int64_t rest = whole % period, folded = rest < 0 ? rest + period : rest;
    const int64_t other = (is_aligned ? period : period - 1) - folded;
    const int64_t found = folded < other ? folded : other;
    return (int32_t)(found < length ? found : length - 1);
}

INLINE float near_weight(float distance)
{
    return ((SHARPNESS + 2.0f) * distance - (SHARPNESS + 3.0f)) * distance * distance + 1.0f;
}

INLINE float far_weight(float distance)
{
    return ((SHARPNESS * distance - 5.0f * SHARPNESS) * distance + 8.0f * SHARPNESS) * distance
           - 4.0f * SHARPNESS;
}

/* How many taps along an axis there are, as a power of two. */
static int bits_of(const struct sampling *sampling)
{
    return sampling->form == FORM_NEAREST ? 0 : sampling->form == FORM_LINEAR ? 1 : 2;
}

/* Find the places of points along an axis, none of which is NaN or infinite then. */
VECTOR_CLONES
static void place_points(float *restrict places, const float *restrict grid, int64_t count,
                         int64_t step, int64_t length, int64_t is_aligned)
{
    const float edge = is_aligned ? 0.0f : -0.5f;

    for (int64_t point = 0; point < count; point++) {
        const float place = place_of(grid[point * step], length, is_aligned);
        const float known = place != place ? edge : place;
        places[point] = kept_between(known, -(float)FAR, (float)(length - 1 + FAR));
    }
}

/* The same, where what is outside is folded back: a nearest element is a whole number then. */
static void fold_points(float *restrict places, const float *restrict grid, int64_t count,
                        int64_t step, int64_t length, const struct sampling *sampling)
{
    const int64_t is_aligned = sampling->is_aligned;
    const float period = (float)mirror_period(length, is_aligned);

    for (int64_t point = 0; point < count; point++) {
        float place = place_of(grid[point * step], length, is_aligned);
        if (!isfinite(place))
            place = is_aligned ? 0.0f : -0.5f;
        places[point] = sampling->form == FORM_NEAREST ? remainder_of(rintf(place), period)
                                                       : mirrored_place(place, length, is_aligned);
    }
}

/* Find one tap of each point: `past` elements behind the place rounded down, or the nearest one. */
VECTOR_CLONES
static void find_taps(int32_t *restrict places, float *restrict shares,
                      const float *restrict numbers, int64_t count, int64_t form, int64_t past)
{
    if (form == FORM_NEAREST) {
        for (int64_t point = 0; point < count; point++) {
            places[point] = (int32_t)rintf(numbers[point]);
            shares[point] = 1.0f;
        }
        return;
    }
    for (int64_t point = 0; point < count; point++) {
        const float first = floorf(numbers[point]), share = numbers[point] - first;
        const float distance = past > 0 ? (float)past - share : share - (float)past;
        places[point] = (int32_t)first + (int32_t)past;
        if (form == FORM_LINEAR)
            shares[point] = 1.0f - distance;
        else
            shares[point] = past == 0 || past == 1 ? near_weight(distance) : far_weight(distance);
    }
}

/* Bring places to elements. */
VECTOR_CLONES
static void bring_inside(int32_t *restrict places, int64_t count, int32_t last, int is_border)
{
    for (int64_t point = 0; point < count; point++) {
        const int32_t place = places[point], raised = place < 0 ? 0 : place;
        const int32_t found = raised > last ? last : raised;
        places[point] = is_border || found == place ? found : OUTSIDE;
    }
}

/* Add the taps of one more axis to those of the axes before. */
VECTOR_CLONES
static void join_axis(int32_t *restrict offsets, float *restrict weights,
                      const int32_t *restrict places, const float *restrict shares, int64_t count,
                      int32_t length)
{
    for (int64_t point = 0; point < count; point++) {
        const int is_outside = (offsets[point] | places[point]) < 0;
        offsets[point] = is_outside ? OUTSIDE : offsets[point] * length + places[point];
        weights[point] = is_outside ? 0.0f : weights[point] * shares[point];
    }
}

static void make_taps(struct block *block, const struct sampling *sampling, const float *grid,
                      int64_t count)
{
    const int bits = bits_of(sampling), axes = (int)sampling->axes, each = 1 << bits;

    for (int axis = 0; axis < axes; axis++) {
        const int64_t length = sampling->lengths[axis];
        const float *numbers = grid + axes - 1 - axis;
        if (sampling->padding == PADDING_REFLECTION)
            fold_points(block->numbers, numbers, count, axes, length, sampling);
        else
            place_points(block->numbers, numbers, count, axes, length, sampling->is_aligned);
        for (int tap = 0; tap < each; tap++) {
            int32_t *places = block->places + (axis * each + tap) * count;
            float *shares = block->shares + (axis * each + tap) * count;
            find_taps(places, shares, block->numbers, count, sampling->form,
                      tap - (each / 2 - 1) * (each > 1));
            for (int64_t point = 0;
                 sampling->padding == PADDING_REFLECTION && point < count; point++)
                places[point]
                    = mirrored_element(places[point], length, sampling->is_aligned);
            bring_inside(places, count, (int32_t)(length - 1),
                         sampling->padding != PADDING_ZEROS);
        }
    }
    for (int tap = 0; tap < 1 << bits * axes; tap++) {
        int32_t *offsets = block->offsets + tap * count;
        float *weights = block->weights + tap * count;
        for (int64_t point = 0; point < count; point++) {
            offsets[point] = 0;
            weights[point] = 1.0f;
        }
        for (int axis = 0; axis < axes; axis++) {
            const int part = axis * each + (tap >> bits * (axes - 1 - axis) & (each - 1));
            join_axis(offsets, weights, block->places + part * count, block->shares + part * count,
                      count, (int32_t)sampling->lengths[axis]);
        }
    }
}

/* An element, or the first one for what is OUTSIDE. */
INLINE float element_at(const float *image, int32_t offset)
{
    return image[offset < 0 ? 0 : offset];
}

/* Add up taps, of which those OUTSIDE count as the first element times 0. */
VECTOR_CLONES
static void mix(float *restrict target, const float *restrict image,
                const int32_t *restrict offsets, const float *restrict weights, int64_t count,
                int64_t taps)
{
    if (taps == 1) {
        for (int64_t point = 0; point < count; point++)
            target[point] = offsets[point] < 0 ? 0.0f : element_at(image, offsets[point]);
        return;
    }
    for (int64_t point = 0; point < count; point++) {
        float sum = 0.0f;
        for (int64_t tap = 0; tap < taps; tap++)
            sum += weights[tap * count + point] * element_at(image, offsets[tap * count + point]);
        target[point] = sum;
    }
}

/* The same of several channels side by side. Single loads are faster than those of a vector. */
INLINE void mix_channels(float *restrict target, const float *restrict image,
                         const int32_t *restrict offsets, const float *restrict weights,
                         int64_t count, int64_t taps, int64_t points, int64_t plane)
{
    for (int64_t point = 0; point < count; point++) {
        float sums[SIDE_BY_SIDE] = {0};
        for (int64_t tap = 0; tap < taps; tap++) {
            const int32_t offset = offsets[tap * count + point];
            const float weight = weights[tap * count + point];
            const float *source = image + (offset < 0 ? 0 : offset);
            for (int channel = 0; channel < SIDE_BY_SIDE; channel++)
                sums[channel] += weight * source[channel * plane];
        }
        for (int channel = 0; channel < SIDE_BY_SIDE; channel++)
            target[channel * points + point] = sums[channel];
    }
}

static void mix_side_by_side(float *restrict target, const float *restrict image,
                             const int32_t *restrict offsets, const float *restrict weights,
                             int64_t count, int64_t taps, int64_t points, int64_t plane)
{
    if (taps == 4)
        mix_channels(target, image, offsets, weights, count, 4, points, plane);
    else
        mix_channels(target, image, offsets, weights, count, taps, points, plane);
}

/* The same where the first element is not finite, so that it is no zero after a multiplication. */
static void mix_with_care(float *restrict target, const float *restrict image,
                          const int32_t *restrict offsets, const float *restrict weights,
                          int64_t count, int64_t taps)
{
    for (int64_t point = 0; point < count; point++) {
        float sum = 0.0f;
        for (int64_t tap = 0; tap < taps; tap++) {
            const int32_t offset = offsets[tap * count + point];
            if (offset >= 0)
                sum += weights[tap * count + point] * image[offset];
        }
        target[point] = sum;
    }
}

struct work {
    struct sampling sampling;
    const float *images, *grid;
    float *target;
    int64_t channels, points, plane, most; /* of points in a block */
};

/* Compute a block of points of some channels of an image. */
static void sample_block(const struct work *work, int64_t image, int64_t first_point,
                         int64_t first_channel, const char *stop)
{
    const struct sampling *sampling = &work->sampling;
    const int64_t left = work->points - first_point, rest = work->channels - first_channel;
    const int64_t count = left < work->most ? left : work->most;
    const int64_t last = first_channel + (rest < CHANNELS ? rest : CHANNELS);
    const int64_t place = image * work->points + first_point;
    const int64_t taps = (int64_t)1 << bits_of(sampling) * sampling->axes;
    struct block block;

    make_taps(&block, sampling, work->grid + place * sampling->axes, count);
    for (int64_t channel = first_channel, step = 1; channel < last && !is_stopped(stop);
         channel += step) {
        const int64_t number = image * work->channels + channel;
        const float *source = work->images + number * work->plane;
        int are_finite = taps > 1 && channel + SIDE_BY_SIDE <= last;
        for (int next = 0; are_finite && next < SIDE_BY_SIDE; next++)
            are_finite = isfinite(source[next * work->plane]);
        step = are_finite ? SIDE_BY_SIDE : 1;
        if (are_finite)
            mix_side_by_side(work->target + number * work->points + first_point, source,
                             block.offsets, block.weights, count, taps, work->points, work->plane);
        else
            (isfinite(source[0]) ? mix : mix_with_care)(
                work->target + number * work->points + first_point, source, block.offsets,
                block.weights, count, taps);
    }
}

/* data: images (N, C, lengths), places (N, points, axes) with the last axis' first, result (N, C,
 * points), in float32. parameters: N, C, points, axes (one to three), form, padding, whether -1 and 1
 * are the first and the last element and not their edges, and three lengths, of which those behind the
 * axes are not read. */
static int sample_points(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t images = parameters[0];
    struct work work = {
        {parameters[3], parameters[4], parameters[5], parameters[6],
         {parameters[7], parameters[8], parameters[9]}},
        (const float *)data[0],
        (const float *)data[1],
        (float *)data[2],
        parameters[1],
        parameters[2],
        1,
        0,
    };

    for (int64_t axis = 0; axis < work.sampling.axes; axis++)
        work.plane *= work.sampling.lengths[axis];
    if (work.plane > MOST_ELEMENTS)
        return STATUS_TABLE;
    if (work.plane == 0) {
        for (int64_t at = 0; at < images * work.channels * work.points; at++)
            work.target[at] = 0.0f;
        return STATUS_OK;
    }
    work.most = BLOCK_TAPS >> bits_of(&work.sampling) * work.sampling.axes;
    if (work.most > BLOCK_POINTS)
        work.most = BLOCK_POINTS;
    const int64_t blocks = (work.points + work.most - 1) / work.most;
    const int64_t groups = (work.channels + CHANNELS - 1) / CHANNELS;
#pragma omp parallel for schedule(static) if (images * work.channels * work.points >= PARALLEL_ELEMENTS)
    for (int64_t part = 0; part < images * blocks * groups; part++)
        if (!is_stopped(stop))
            sample_block(&work, part / groups / blocks, part / groups % blocks * work.most,
                         part % groups * CHANNELS, stop);
    return STATUS_OK;
}

const struct named_kernel sample_kernels[] = {
    {"sample_points", sample_points},
    {NULL, NULL},
};
