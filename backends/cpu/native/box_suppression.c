/* Of boxes in an order, those that overlap none that was kept before: as runtime/operators computes
 * it, number by number, but a block of kept boxes at once.
 *
 * A box without an area overlaps nothing: it is kept, and no other is held against it.
 */
#include "box_suppression.h"

#include <math.h>
#include <stdlib.h>

#include "number_buffers.h"
#include "steps.h"

#define BLOCK 64 /* kept boxes that a box is held against before anybody asks for the answer */
#define SIDES 4  /* top, left, bottom, right */

struct block {
    float sides[SIDES][BLOCK];
    float areas[BLOCK];
};

static inline float least(float one, float other)
{
    return other < one ? other : one;
}

static inline float greatest(float one, float other)
{
    return other > one ? other : one;
}

static inline __attribute__((always_inline)) int
overlaps_any(const struct block *block, const float *box, float area, float most_overlap)
{
    int touches = 0, found = 0;

    for (int index = 0; index < BLOCK; index++) {
        const float height = least(block->sides[2][index], box[2])
                             - greatest(block->sides[0][index], box[0]);
        const float width = least(block->sides[3][index], box[3])
                            - greatest(block->sides[1][index], box[1]);
        touches |= (height > 0) & (width > 0);
    }
    if (!touches)
        return 0;
    for (int index = 0; index < BLOCK; index++) {
        const float height = least(block->sides[2][index], box[2])
                             - greatest(block->sides[0][index], box[0]);
        const float width = least(block->sides[3][index], box[3])
                            - greatest(block->sides[1][index], box[1]);
        const float common = height * width;
        const float all = block->areas[index] + area - common;
        found |= (height > 0) & (width > 0) & (common > 0) & (all > 0)
                 & (common / all > most_overlap);
    }
    return found;
}

static void clear(struct block *block)
{
    for (int index = 0; index < BLOCK; index++) {
        block->sides[0][index] = block->sides[1][index] = INFINITY;
        block->sides[2][index] = block->sides[3][index] = -INFINITY;
        block->areas[index] = 0;
    }
}

/* Returns how many are kept, or -1 for an index that is out of range. `blocks` has room for `limit`
 * boxes, and `kept` as well. */
VECTOR_CLONES
static int64_t keep_boxes(const float *corners, int64_t count, const int64_t *order, int64_t length,
                          int64_t limit, float most_overlap, struct block *blocks, int64_t *kept)
{
    int64_t kept_count = 0, held_count = 0;

    for (int64_t place = 0; place < length && kept_count < limit; place++) {
        const int64_t number = order[place];
        if (number < 0 || number >= count)
            return -1;
        const float *box = corners + SIDES * number;
        const float area = (box[2] - box[0]) * (box[3] - box[1]);
        const int64_t block_count = (held_count + BLOCK - 1) / BLOCK;
        int is_gone = 0;
        if (area > 0)
            for (int64_t index = 0; index < block_count && !is_gone; index++)
                is_gone = overlaps_any(&blocks[index], box, area, most_overlap);
        if (is_gone)
            continue;
        kept[kept_count++] = number;
        if (!(area > 0))
            continue;
        struct block *last = &blocks[held_count / BLOCK];
        const int64_t rest = held_count++ % BLOCK;
        if (rest == 0)
            clear(last);
        for (int side = 0; side < SIDES; side++)
            last->sides[side][rest] = box[side];
        last->areas[rest] = area;
    }
    return kept_count;
}

/* suppress_boxes(most_overlap, corners, order, kept): as many are kept as `kept` has room for.
 * Returns how many there are; they stand in `kept`. */
PyObject *suppress_boxes(PyObject *module, PyObject *args)
{
    double most_overlap;
    PyObject *objects[3];
    Py_buffer views[3];
    int held = 0;
    int64_t found = -1;

    (void)module;
    if (!PyArg_ParseTuple(args, "dOOO", &most_overlap, &objects[0], &objects[1], &objects[2]))
        return NULL;
    held = hold_buffers(objects, views, 3);
    if (held < 3)
        goto release;
    const int64_t count = views[0].len / (int64_t)(SIDES * sizeof(float));
    const int64_t length = count_of(&views[1]), room = count_of(&views[2]);
    const int64_t limit = room < length ? room : length;
    struct block *blocks = malloc((size_t)(limit / BLOCK + 1) * sizeof *blocks);
    if (blocks == NULL) {
        PyErr_NoMemory();
        goto release;
    }
    Py_BEGIN_ALLOW_THREADS
    found = keep_boxes(views[0].buf, count, views[1].buf, length, limit, (float)most_overlap, blocks,
                       views[2].buf);
    Py_END_ALLOW_THREADS
    free(blocks);
    if (found < 0)
        PyErr_SetString(PyExc_IndexError, "the order names a box that is not there");

release:
    release_buffers(views, held);
    return PyErr_Occurred() ? NULL : PyLong_FromLongLong(found);
}
