/* Pairs of numbers of each head, turned by the angle of its place (RotaryEmbedding). */
#include <string.h>

#include "steps.h"

struct work {
    const float *source, *cosines, *sines;
    const char *positions; /* int64 for each place; NULL: the tables have a row for each */
    float *target;
    int64_t heads, places, size, half, is_rows, is_interleaved, table_rows;
};

VECTOR_CLONES
static void turn_head(float *restrict target, const float *restrict source,
                      const float *restrict cosines, const float *restrict sines, int64_t size,
                      int64_t half, int64_t is_interleaved)
{
    if (is_interleaved)
        for (int64_t pair = 0; pair < half; pair++) {
            const float one = source[2 * pair], other = source[2 * pair + 1];
            target[2 * pair] = one * cosines[pair] - other * sines[pair];
            target[2 * pair + 1] = one * sines[pair] + other * cosines[pair];
        }
    else
        for (int64_t pair = 0; pair < half; pair++) {
            const float one = source[pair], other = source[half + pair];
            target[pair] = one * cosines[pair] - other * sines[pair];
            target[half + pair] = one * sines[pair] + other * cosines[pair];
        }
    memcpy(target + 2 * half, source + 2 * half, (size_t)(size - 2 * half) * sizeof *target);
}

/* Turn all heads of a place of a sequence. */
static int turn_place(const struct work *work, int64_t sequence, int64_t place)
{
    const int64_t number = sequence * work->places + place;
    const int64_t step = work->is_rows ? work->size : work->places * work->size;
    const int64_t start = work->is_rows ? number * work->heads * work->size
                                        : (sequence * work->heads * work->places + place) * work->size;
    int64_t row = number;

    if (work->positions != NULL)
        row = ((const volatile int64_t *)work->positions)[number];
    if (row < 0 || row >= work->table_rows)
        return STATUS_INDEX;
    for (int64_t head = 0; head < work->heads; head++)
        turn_head(work->target + start + head * step, work->source + start + head * step,
                  work->cosines + row * work->half, work->sines + row * work->half, work->size,
                  work->half, work->is_interleaved);
    return STATUS_OK;
}

/* data: heads (sequences, heads, places, size), or with is_rows (sequences, places, heads, size),
 * cosines and sines (table rows, half), in float32, if has_positions the row of each place in int64,
 * result. parameters: sequences, heads, places, size, half, is_rows, is_interleaved, has_positions,
 * table rows. */
static int turn_pairs(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t count = parameters[0] * parameters[2];
    const struct work work = {
        (const float *)data[0],
        (const float *)data[1],
        (const float *)data[2],
        parameters[7] ? data[3] : NULL,
        (float *)data[parameters[7] ? 4 : 3],
        parameters[1],
        parameters[2],
        parameters[3],
        parameters[4],
        parameters[5],
        parameters[6],
        parameters[8],
    };
    int status = STATUS_OK;

#pragma omp parallel for schedule(static) reduction(max : status)                                  \
    if (count * parameters[1] * parameters[3] >= PARALLEL_ELEMENTS)
    for (int64_t number = 0; number < count; number++) {
        if (is_stopped(stop))
            continue;
        const int failed = turn_place(&work, number / work.places, number % work.places);
        status = failed > status ? failed : status;
    }
    return status;
}

const struct named_kernel rotary_kernels[] = {
    {"turn_pairs", turn_pairs},
    {NULL, NULL},
};
