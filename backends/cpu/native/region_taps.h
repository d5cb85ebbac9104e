/* Where the points of a region lie along an axis, and which elements they are made of.
 *
 * A point lies between two elements, of which it is a weighted sum. The points of a bin are a list of
 * taps: where an element is a neighbour of several, its taps are one; but not if a weight is zero, as an
 * infinity makes that one a NaN.
 */
#ifndef AIOINFER_CPU_REGION_TAPS_H
#define AIOINFER_CPU_REGION_TAPS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "vector_math.h"

#define MOST_POINTS (1 << 22) /* along an axis of a region, as operators/images has it */
#define LATEST 6 /* taps that may be of the same element: two of each that points lie between */

/* An axis of a region: `bins` with `count` points each, `step` from bin to bin. */
struct axis {
    float start, step;
    int64_t bins, count, length;
};

struct point {
    int64_t low, high;
    float low_weight, high_weight;
};

/* The taps of an axis by bin: `capacity` places and weights each, of which `counts` are used. */
struct taps {
    int64_t *places, *counts;
    float *weights;
    int64_t capacity, first, last;
};

enum found { NO_POINTS, POINTS, TOO_MANY };

static enum found place_axis(struct axis *axis, float start, float end, int64_t bins,
                             int64_t length, int64_t ratio, int is_half)
{
    const int64_t most = MOST_POINTS / bins;
    float size = end - start, count;

    if (!is_half && size < 1.0f)
        size = 1.0f;
    if (!isfinite(size))
        return NO_POINTS;
    count = ratio > 0 ? (float)ratio : ceilf(size / (float)bins);
    if (ratio > most || count > (float)most)
        return TOO_MANY;
    if (count <= 0)
        return NO_POINTS;
    *axis = (struct axis){start, size / (float)bins, bins, (int64_t)count, length};
    return POINTS;
}

INLINE struct point point_of(const struct axis *axis, int64_t bin, int64_t number)
{
    const float inside = ((float)number + 0.5f) * axis->step;
    const float last = (float)(axis->length - 1);
    float at = axis->start + (float)bin * axis->step + inside / (float)axis->count;
    const int is_outside = at < -1.0f || at > (float)axis->length;
    struct point made;

    at = at >= 0.0f ? at : 0.0f;
    at = at <= last ? at : last;
    made.low = (int64_t)at;
    if (made.low > axis->length - 1)
        made.low = axis->length - 1;
    made.high = made.low + 1 < axis->length ? made.low + 1 : made.low;
    made.high_weight = at - (float)made.low;
    made.low_weight = 1.0f - made.high_weight;
    if (is_outside)
        made.low_weight = made.high_weight = 0.0f;
    return made;
}

static int64_t capacity_of(const struct axis *axis)
{
    const int64_t of_points = 2 * axis->count, of_elements = 4 * axis->length + LATEST;
    return of_points < of_elements ? of_points : of_elements;
}

/* Returns how many taps there are then; a list that is full, which none becomes, stays. */
static int64_t add_tap(int64_t *places, float *weights, int64_t count, int64_t capacity,
                       int64_t place, float weight)
{
    for (int64_t tap = count - 1; tap >= 0 && tap >= count - LATEST; tap--)
        if (places[tap] == place && (weights[tap] == 0.0f) == (weight == 0.0f)) {
            weights[tap] += weight;
            return count;
        }
    if (count == capacity)
        return count;
    places[count] = place;
    weights[count] = weight;
    return count + 1;
}

static void make_taps(struct taps *taps, const struct axis *axis)
{
    taps->first = axis->length - 1;
    taps->last = 0;
    for (int64_t bin = 0; bin < axis->bins; bin++) {
        int64_t *places = taps->places + bin * taps->capacity, count = 0;
        float *weights = taps->weights + bin * taps->capacity;
        for (int64_t number = 0; number < axis->count; number++) {
            const struct point point = point_of(axis, bin, number);
            count = add_tap(places, weights, count, taps->capacity, point.low, point.low_weight);
            count = add_tap(places, weights, count, taps->capacity, point.high, point.high_weight);
        }
        taps->counts[bin] = count;
        for (int64_t tap = 0; tap < count; tap++) {
            weights[tap] /= (float)axis->count;
            taps->first = places[tap] < taps->first ? places[tap] : taps->first;
            taps->last = places[tap] > taps->last ? places[tap] : taps->last;
        }
    }
}

static int64_t seen_of(const struct taps *taps)
{
    return taps->last - taps->first + 1;
}

/* Memory for the taps of both axes and for a row; NULL if there is none. One call frees it. */
static void *hold_taps(struct taps *rows, struct taps *columns, float **sums,
                       const struct axis *of_rows, const struct axis *of_columns)
{
    rows->capacity = capacity_of(of_rows);
    columns->capacity = capacity_of(of_columns);
    const size_t row_taps = (size_t)(of_rows->bins * rows->capacity);
    const size_t column_taps = (size_t)(of_columns->bins * columns->capacity);
    const size_t integers = row_taps + column_taps + (size_t)(of_rows->bins + of_columns->bins);
    const size_t floats = row_taps + column_taps + (size_t)of_columns->length;
    int64_t *held = malloc(integers * sizeof *held + floats * sizeof **sums);

    if (held == NULL)
        return NULL;
    rows->places = held;
    columns->places = rows->places + row_taps;
    rows->counts = columns->places + column_taps;
    columns->counts = rows->counts + of_rows->bins;
    rows->weights = (float *)(columns->counts + of_columns->bins);
    columns->weights = rows->weights + row_taps;
    *sums = columns->weights + column_taps;
    return held;
}

#endif
