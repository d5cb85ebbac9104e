/* Where the largest or smallest elements along an axis are.
 *
 * What is no number counts as the largest of all for ArgMax, ArgMin and TopK of the largest, and as
 * the last for TopK of the smallest; of equal elements the one with the lower index comes first, as
 * numpy has it.
 */
#include "steps.h"
#include "vector_math.h"

#define BLOCK 256 /* results that are looked for side by side */

INLINE int is_nan(float x)
{
    return x != x;
}

/* True if x takes the place of the best so far, which stands before it. */
INLINE int is_better(float x, float best, int wants_largest, int wants_last)
{
    if (is_nan(best))
        return wants_last && is_nan(x);
    if (is_nan(x) || (wants_last && x == best))
        return 1;
    return wants_largest ? x > best : x < best;
}

/* One row: its extreme first, which vectors find, and then where that is. */
INLINE int64_t place_in_row(const float *row, int64_t length, int wants_largest, int wants_last)
{
    float best = row[0];
    int has_nan = 0;

#pragma omp simd reduction(| : has_nan)
    for (int64_t index = 0; index < length; index++)
        has_nan |= row[index] != row[index];
    if (!has_nan && wants_largest) {
#pragma omp simd reduction(max : best)
        for (int64_t index = 0; index < length; index++)
            best = row[index] > best ? row[index] : best;
    } else if (!has_nan) {
#pragma omp simd reduction(min : best)
        for (int64_t index = 0; index < length; index++)
            best = row[index] < best ? row[index] : best;
    }
    for (int64_t count = 0; count < length; count++) {
        const int64_t index = wants_last ? length - 1 - count : count;
        if (has_nan ? is_nan(row[index]) : row[index] == best)
            return index;
    }
    return 0;
}

VECTOR_CLONES
static int64_t row_place(const float *row, int64_t length, int wants_largest, int wants_last)
{
    return wants_largest ? place_in_row(row, length, 1, wants_last)
                         : place_in_row(row, length, 0, wants_last);
}

INLINE void column_places(const float *source, int64_t *target, int64_t length, int64_t inner,
                          int64_t count, int wants_largest, int wants_last, const char *stop)
{
    float best[BLOCK];

    for (int64_t column = 0; column < count; column++) {
        best[column] = source[column];
        target[column] = 0;
    }
    for (int64_t index = 1; index < length && !is_stopped(stop); index++)
        for (int64_t column = 0; column < count; column++) {
            const float x = source[index * inner + column];
            const int moves = is_better(x, best[column], wants_largest, wants_last);
            best[column] = moves ? x : best[column];
            target[column] = moves ? index : target[column];
        }
}

/* data: source (outer, length, inner) in float32, result (outer, inner) in int64. parameters: outer,
 * length, which is not 0, inner, whether the largest is looked for, whether the last of equal ones. */
static int find_extremes(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t outer = parameters[0], length = parameters[1], inner = parameters[2];
    const int wants_largest = parameters[3] != 0, wants_last = parameters[4] != 0;
    const int64_t blocks = (inner + BLOCK - 1) / BLOCK;

#pragma omp parallel for schedule(static) if (outer * length * inner >= PARALLEL_ELEMENTS)
    for (int64_t number = 0; number < outer * blocks; number++) {
        const int64_t row = number / blocks, first = number % blocks * BLOCK;
        const float *source = (const float *)data[0] + row * length * inner + first;
        int64_t *target = (int64_t *)data[1] + row * inner + first;
        if (is_stopped(stop))
            continue;
        if (inner == 1)
            *target = row_place(source, length, wants_largest, wants_last);
        else
            column_places(source, target, length, inner,
                          inner - first < BLOCK ? inner - first : BLOCK, wants_largest, wants_last,
                          stop);
    }
    return STATUS_OK;
}

/* The elements that are kept of one row: a heap whose first is the one that goes next. They lie at
 * `step` in the results themselves, so that no other memory is needed. */
struct heap {
    float *numbers;
    int64_t *places;
    int64_t step;
};

/* True if x comes before y, whose index is `after` that of x. */
INLINE int comes_first(float x, float y, int is_before, int wants_largest)
{
    if (is_nan(x) || is_nan(y)) {
        if (is_nan(x) && is_nan(y))
            return is_before;
        return wants_largest ? is_nan(x) : is_nan(y);
    }
    if (x == y)
        return is_before;
    return wants_largest ? x > y : x < y;
}

/* Move an element down to where all below it come before it. */
INLINE void sink(const struct heap *heap, int64_t count, int64_t at, float number, int64_t place,
                 int wants_largest)
{
    const int64_t step = heap->step;
    int64_t below;

    while ((below = 2 * at + 1) < count) {
        if (below + 1 < count
            && comes_first(heap->numbers[below * step], heap->numbers[(below + 1) * step],
                           heap->places[below * step] < heap->places[(below + 1) * step],
                           wants_largest))
            below++;
        if (!comes_first(number, heap->numbers[below * step], place < heap->places[below * step],
                         wants_largest))
            break;
        heap->numbers[at * step] = heap->numbers[below * step];
        heap->places[at * step] = heap->places[below * step];
        at = below;
    }
    heap->numbers[at * step] = number;
    heap->places[at * step] = place;
}

INLINE void select_row(const struct heap *heap, const float *source, int64_t length, int64_t count,
                       int wants_largest, const char *stop)
{
    const int64_t step = heap->step;

    for (int64_t index = 0; index < count; index++) {
        heap->numbers[index * step] = source[index * step];
        heap->places[index * step] = index;
    }
    for (int64_t at = count / 2 - 1; at >= 0; at--)
        sink(heap, count, at, heap->numbers[at * step], heap->places[at * step], wants_largest);
    for (int64_t index = count; index < length; index++) {
        const float x = source[index * step];
        if (index % 4096 == 0 && is_stopped(stop))
            return;
        if (wants_largest ? x <= heap->numbers[0] : x >= heap->numbers[0])
            continue;
        if (comes_first(x, heap->numbers[0], 0, wants_largest))
            sink(heap, count, 0, x, index, wants_largest);
    }
    for (int64_t last = count - 1; last > 0 && !is_stopped(stop); last--) {
        const float number = heap->numbers[last * step];
        const int64_t place = heap->places[last * step];
        heap->numbers[last * step] = heap->numbers[0];
        heap->places[last * step] = heap->places[0];
        sink(heap, last, 0, number, place, wants_largest);
    }
}

/* data: source (outer, length, inner) in float32, numbers in float32 and places in int64 (outer,
 * count, inner). parameters: outer, length, inner, count of what is kept, from 1 to length, whether
 * the largest are. What is kept is in order. */
static int select_top(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t outer = parameters[0], length = parameters[1], inner = parameters[2];
    const int64_t count = parameters[3], wants_largest = parameters[4];

#pragma omp parallel for schedule(static) if (outer * length * inner >= PARALLEL_ELEMENTS)
    for (int64_t number = 0; number < outer * inner; number++) {
        const int64_t row = number / inner, column = number % inner;
        const float *source = (const float *)data[0] + row * length * inner + column;
        const struct heap heap = {
            (float *)data[1] + row * count * inner + column,
            (int64_t *)data[2] + row * count * inner + column,
            inner,
        };
        if (is_stopped(stop))
            continue;
        if (wants_largest)
            select_row(&heap, source, length, count, 1, stop);
        else
            select_row(&heap, source, length, count, 0, stop);
    }
    return STATUS_OK;
}

const struct named_kernel position_kernels[] = {
    {"find_extremes", find_extremes},
    {"select_top", select_top},
    {NULL, NULL},
};
