/* Moving data: elements of 1, 2, 4 or 8 bytes are copied without looking at what they mean. */
#include <string.h>

#include "steps.h"

#define TILE 16
#define MIN_PARTS 16
#define FILL_BLOCK 8192 /* elements between two looks at the stop word */

/* Copy one row of `count` elements of `item` bytes; strides in bytes. */
static void copy_row(char *target, int64_t target_stride, const char *source,
                     int64_t source_stride, int64_t count, int64_t item)
{
    if (target_stride == item && source_stride == item) {
        memcpy(target, source, (size_t)(count * item));
        return;
    }
#define COPY(type)                                                                                \
    for (int64_t index = 0; index < count; index++)                                               \
        memcpy(target + index * target_stride, source + index * source_stride, sizeof(type));     \
    return
    switch (item) {
    case 1:
        COPY(uint8_t);
    case 2:
        COPY(uint16_t);
    case 4:
        COPY(uint32_t);
    default:
        COPY(uint64_t);
    }
#undef COPY
}

/* Copy a plane of two axes: by tiles, so that both sides use what they have fetched. */
static void copy_plane(char *target, const char *source, const int64_t *outer,
                       const int64_t *inner, int64_t item, const char *stop)
{
    int64_t rows = outer[0], columns = inner[0];

    if (inner[1] == item || (outer[1] != item && outer[2] != item)) {
        for (int64_t row = 0; row < rows && !is_stopped(stop); row++)
            copy_row(target + row * outer[2], inner[2], source + row * outer[1], inner[1], columns,
                     item);
        return;
    }
    for (int64_t column = 0; column < columns && !is_stopped(stop); column += TILE) {
        int64_t wide = columns - column < TILE ? columns - column : TILE;
        for (int64_t row = 0; row < rows; row++)
            copy_row(target + row * outer[2] + column * inner[2], inner[2],
                     source + row * outer[1] + column * inner[1], inner[1], wide, item);
    }
}

/* data: source, target. parameters: item bytes, rank, then for each axis: length, stride in the
 * source, stride in the target, in bytes. A stride of 0 in the source repeats it. */
static int copy(char *const *data, const int64_t *parameters, const char *stop)
{
    static const int64_t one[3] = {1, 0, 0};
    int64_t item = parameters[0], rank = parameters[1];
    const int64_t *axes = parameters + 2;
    const int64_t *last = rank > 0 ? axes + 3 * (rank - 1) : one;
    const int64_t *before = rank > 1 ? axes + 3 * (rank - 2) : one;
    int64_t planes = 1, parts = 1, step;

    if (data[0] == data[1]) /* a state that grows behind itself: it is there already */
        return STATUS_OK;
    for (int64_t axis = 0; axis < rank - 2; axis++)
        planes *= axes[3 * axis];
    /* Few large planes are divided, so that there is work for every thread. */
    while (parts * planes < MIN_PARTS && 2 * parts <= before[0])
        parts *= 2;
    step = (before[0] + parts - 1) / parts;
#pragma omp parallel for schedule(static)                                                         \
    if (planes * parts > 1 && planes * before[0] * last[0] >= PARALLEL_ELEMENTS)
    for (int64_t work = 0; work < planes * parts; work++) {
        if (is_stopped(stop))
            continue;
        int64_t rest = work / parts, first = work % parts * step, from = 0, to = 0;
        int64_t left = before[0] - first;
        int64_t rows[3] = {left < step ? left : step, before[1], before[2]};
        for (int64_t axis = rank - 3; axis >= 0; axis--) {
            int64_t place = rest % axes[3 * axis];
            rest /= axes[3 * axis];
            from += place * axes[3 * axis + 1];
            to += place * axes[3 * axis + 2];
        }
        copy_plane(data[1] + to + first * before[2], data[0] + from + first * before[1], rows, last,
                   item, stop);
    }
    return STATUS_OK;
}

/* data: source, indices, target. parameters: outer count, length of the axis, index count, bytes of
 * one taken part, bytes of one index (4 or 8). A negative index counts from the end. Each is read
 * once: it may lie in a caller's array, which another thread may write. */
static int gather(char *const *data, const int64_t *parameters, const char *stop)
{
    int64_t outer = parameters[0], length = parameters[1], count = parameters[2];
    int64_t part = parameters[3], wide = parameters[4] == 8;
    int64_t items = outer ? outer * count : count; /* indices count where nothing is moved, too */
    int failed = 0;

#pragma omp parallel for schedule(static) reduction(|: failed) if (items * part >= 1 << 18)
    for (int64_t item = 0; item < items; item++) {
        if (is_stopped(stop))
            continue;
        int64_t block = item / count, place = item % count;
        int64_t index = wide ? ((const volatile int64_t *)data[1])[place]
                             : ((const volatile int32_t *)data[1])[place];
        if (index < 0)
            index += length;
        if (index < 0 || index >= length) {
            failed = 1;
            continue;
        }
        if (!outer)
            continue;
        if (part == 4)
            memcpy(data[2] + item * 4, data[0] + (block * length + index) * 4, 4);
        else
            memcpy(data[2] + item * part, data[0] + (block * length + index) * part, (size_t)part);
    }
    return failed ? STATUS_INDEX : STATUS_OK;
}

/* data: target. parameters: item bytes, count, the item's bytes in the low end of a word. */
static int fill(char *const *data, const int64_t *parameters, const char *stop)
{
    int64_t item = parameters[0], count = parameters[1];
    const char *value = (const char *)&parameters[2];

#define FILL(type)                                                                                \
    do {                                                                                          \
        type *target = (type *)(void *)data[0], one;                                              \
        memcpy(&one, value, sizeof one);                                                          \
        _Pragma("omp parallel for schedule(static) if (count >= PARALLEL_ELEMENTS)")              \
        for (int64_t start = 0; start < count; start += FILL_BLOCK) {                             \
            int64_t end = count - start < FILL_BLOCK ? count : start + FILL_BLOCK;                \
            if (is_stopped(stop))                                                                 \
                continue;                                                                         \
            for (int64_t index = start; index < end; index++)                                     \
                target[index] = one;                                                              \
        }                                                                                         \
        return STATUS_OK;                                                                         \
    } while (0)
    switch (item) {
    case 1:
        FILL(uint8_t);
    case 2:
        FILL(uint16_t);
    case 4:
        FILL(uint32_t);
    default:
        FILL(uint64_t);
    }
#undef FILL
}

/* True if no index reaches out of an axis; it costs nothing beside what the indices fetch. */
static int are_inside(const int32_t *indices, int64_t count, int64_t length)
{
    int64_t outside = 0;
    for (int64_t place = 0; place < count; place++)
        outside |= indices[place] < 0 || indices[place] >= length;
    return !outside;
}

/* Take parts of one row by index. */
static inline void pick_row(char *target, const char *source, const int32_t *indices,
                            int64_t count, int64_t part)
{
#define PICK(type)                                                                                \
    for (int64_t place = 0; place < count; place++)                                               \
        memcpy(target + place * (int64_t)sizeof(type),                                            \
               source + indices[place] * (int64_t)sizeof(type), sizeof(type));                    \
    return
    switch (part) {
    case 1:
        PICK(uint8_t);
    case 2:
        PICK(uint16_t);
    case 4:
        PICK(uint32_t);
    case 8:
        PICK(uint64_t);
    default:
        for (int64_t place = 0; place < count; place++)
            memcpy(target + place * part, source + indices[place] * part, (size_t)part);
    }
#undef PICK
}

/* data: source, row indices, column indices (both 32 bits), target. parameters: outer count, rows
 * and columns of the source, rows and columns of the target, bytes of one taken part. A row that is
 * the same as the one before is copied as a whole. */
static int sample_grid(char *const *data, const int64_t *parameters, const char *stop)
{
    int64_t outer = parameters[0], in_rows = parameters[1], in_columns = parameters[2];
    int64_t rows = parameters[3], columns = parameters[4], part = parameters[5];
    const int32_t *row_indices = (const int32_t *)data[1];
    const int32_t *column_indices = (const int32_t *)data[2];
    int64_t width = columns * part;

    if (!are_inside(row_indices, rows, in_rows) || !are_inside(column_indices, columns, in_columns))
        return STATUS_INDEX;
#pragma omp parallel for collapse(2) schedule(static) if (outer * rows * width >= 1 << 18)
    for (int64_t block = 0; block < outer; block++)
        for (int64_t half = 0; half < 2; half++)
            for (int64_t row = half * rows / 2; row < (half + 1) * rows / 2; row++) {
                if (is_stopped(stop))
                    break;
                char *target = data[3] + (block * rows + row) * width;
                if (row > half * rows / 2 && row_indices[row] == row_indices[row - 1])
                    memcpy(target, target - width, (size_t)width);
                else
                    pick_row(target,
                             data[0] + (block * in_rows + row_indices[row]) * in_columns * part,
                             column_indices, columns, part);
            }
    return STATUS_OK;
}

/* One row of elements that lie side by side: a weighted sum of rows. */
VECTOR_CLONES
static void weigh_rows(float *restrict target, const float *restrict source,
                       const int32_t *indices, const float *weights, float offset, int64_t taps,
                       int64_t inner)
{
    for (int64_t start = 0; start < inner; start += 256) {
        int64_t stop = inner - start < 256 ? inner : start + 256;
        for (int64_t place = start; place < stop; place++)
            target[place] = offset;
        for (int64_t tap = 0; tap < taps; tap++) {
            const float *row = source + indices[tap] * inner;
            float weight = weights[tap];
            if (weight != 0.0f)
                for (int64_t place = start; place < stop; place++)
                    target[place] += weight * row[place];
        }
    }
}

/* A row of elements: each a weighted sum of elements of a row. */
VECTOR_CLONES
static void weigh_elements(float *restrict target, const float *restrict source,
                           const int32_t *restrict indices, const float *restrict weights,
                           const float *restrict offsets, int64_t taps, int64_t count)
{
    for (int64_t place = 0; place < count && taps == 2; place++) {
        float first = weights[2 * place], second = weights[2 * place + 1];
        float sum = offsets[place];
        sum += first != 0.0f ? first * source[indices[2 * place]] : 0.0f;
        target[place] = sum + (second != 0.0f ? second * source[indices[2 * place + 1]] : 0.0f);
    }
    for (int64_t place = 0; place < count && taps != 2; place++) {
        float sum = offsets[place];
        for (int64_t tap = place * taps; tap < (place + 1) * taps; tap++)
            if (weights[tap] != 0.0f)
                sum += weights[tap] * source[indices[tap]];
        target[place] = sum;
    }
}

/* data: source, indices (32 bits), weights, offsets, target; floats. parameters: outer count,
 * length of the axis in the source and in the target, elements of one part, taps of one element. */
static int resample(char *const *data, const int64_t *parameters, const char *stop)
{
    int64_t outer = parameters[0], length = parameters[1], count = parameters[2];
    int64_t inner = parameters[3], taps = parameters[4];
    const int32_t *indices = (const int32_t *)data[1];
    const float *weights = (const float *)data[2], *offsets = (const float *)data[3];

    int is_parallel = outer * count * inner * taps >= PARALLEL_ELEMENTS;

    if (!are_inside(indices, count * taps, length))
        return STATUS_INDEX;
    if (inner == 1) {
#pragma omp parallel for schedule(static) if (is_parallel)
        for (int64_t row = 0; row < outer; row++)
            if (!is_stopped(stop))
                weigh_elements((float *)data[4] + row * count,
                               (const float *)data[0] + row * length, indices, weights, offsets,
                               taps, count);
        return STATUS_OK;
    }
#pragma omp parallel for schedule(static) if (is_parallel)
    for (int64_t item = 0; item < outer * count; item++) {
        if (is_stopped(stop))
            continue;
        int64_t block = item / count, place = item % count;
        weigh_rows((float *)data[4] + item * inner,
                   (const float *)data[0] + block * length * inner, indices + place * taps,
                   weights + place * taps, offsets[place], taps, inner);
    }
    return STATUS_OK;
}

const struct named_kernel movement_kernels[] = {
    {"copy", copy},
    {"fill", fill},
    {"gather", gather},
    {"resample", resample},
    {"sample_grid", sample_grid},
    {NULL, NULL},
};
