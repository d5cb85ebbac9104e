/* Of boxes in an order, those that overlap none that was kept before: as runtime/operators computes
 * it, number by number, but a block of kept boxes at once.
 *
 * A box without an area overlaps nothing: it is kept, and no other is held against it. The same goes
 * for one whose area is infinite, of which any share is none, unless shares below none are asked for.
 *
 * Boxes are held against those near them alone. One axis is cut into stretches about as long as a box
 * is, and what is kept lies in each stretch that it reaches. A place never comes to a lower stretch than
 * one before it, so two boxes that share a place on the axis share its stretch: nothing is missed,
 * however lengths are rounded. As a stretch is no shorter than the mean of the boxes, each box lies in
 * three by the mean, at most.
 */
#include "box_suppression.h"

#include <math.h>
#include <stdlib.h>

#include "number_buffers.h"
#include "steps.h"
#include "stop_words.h"

#define BLOCK 16 /* kept boxes that a box is held against before anybody asks for the answer */
#define SIDES 4  /* top, left, bottom, right */
#define AXES 2
#define LEAST_EACH 8        /* boxes for each stretch: fewer are held against each other at once */
#define MOST_STRETCHES 4096

struct block {
    float sides[SIDES][BLOCK];
    float areas[BLOCK];
    int64_t count, before; /* boxes in it; the block of the same stretch that was filled before */
};

/* Stretches of an axis, and the blocks of what is kept. A stretch without boxes has the block -1. */
struct field {
    int axis;
    float origin, scale; /* a place lies in the stretch (place - origin) * scale */
    int64_t stretch_count, block_count;
    int64_t *latest;
    struct block *blocks;
};

static inline float least(float one, float other)
{
    return other < one ? other : one;
}

static inline float greatest(float one, float other)
{
    return other > one ? other : one;
}

static inline float area_of(const float *box)
{
    return (box[2] - box[0]) * (box[3] - box[1]);
}

/* True for a box that may overlap another one by more than `most_overlap`. */
static inline int may_overlap(float area, float most_overlap)
{
    return area > 0 && (area < INFINITY || most_overlap < 0);
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

static void clear(struct block *block, int64_t before)
{
    for (int index = 0; index < BLOCK; index++) {
        block->sides[0][index] = block->sides[1][index] = INFINITY;
        block->sides[2][index] = block->sides[3][index] = -INFINITY;
        block->areas[index] = 0;
    }
    block->count = 0;
    block->before = before;
}

/* The stretch of a place; what is beyond the axis, infinite too, lies in the first or the last one. */
static inline int64_t stretch_of(const struct field *field, float place)
{
    const float found = (place - field->origin) * field->scale;
    const float last = (float)(field->stretch_count - 1);
    return found > 0 ? (int64_t)(found < last ? found : last) : 0;
}

/* Choose the axis on which boxes are shorter, beside all of it, and how many stretches it has: one
 * where infinite boxes are held, which would lie in all of them. */
static void choose_axis(struct field *field, const float *corners, const int64_t *order,
                        int64_t length, float most_overlap)
{
    double most = 1;

    field->axis = 0, field->origin = field->scale = 0, field->stretch_count = 1;
    for (int axis = 0; axis < AXES && !(most_overlap < 0); axis++) {
        float low = INFINITY, high = -INFINITY;
        double sum = 0;
        int64_t count = 0;
        for (int64_t place = 0; place < length; place++) {
            const float *box = corners + SIDES * order[place];
            const float extent = box[axis + 2] - box[axis];
            if (!(extent > 0 && extent < INFINITY))
                continue;
            low = least(low, box[axis]);
            high = greatest(high, box[axis + 2]);
            sum += extent;
            count++;
        }
        const double mean = count > 0 ? sum / (double)count : 0;
        const double stretches = mean > 0 ? ((double)high - low) / mean : 0;
        const double few = (double)length / LEAST_EACH;
        const double found = fmin(fmin(stretches, few), MOST_STRETCHES);
        const float scale = (float)(floor(found) / ((double)high - low));
        if (!(found > most && scale > 0 && scale < INFINITY))
            continue;
        most = found;
        field->axis = axis, field->origin = low, field->scale = scale;
        field->stretch_count = (int64_t)found;
    }
}

/* Get memory for all boxes of an order; 0 if there is none. Freed by the caller, also then. */
static int make_room(struct field *field, const float *corners, const int64_t *order,
                     int64_t length, int64_t limit, float most_overlap)
{
    int64_t held = 0;

    for (int64_t place = 0; place < length; place++) {
        const float *box = corners + SIDES * order[place];
        if (!may_overlap(area_of(box), most_overlap))
            continue;
        const int64_t first = stretch_of(field, box[field->axis]);
        const int64_t last = stretch_of(field, box[field->axis + 2]);
        held += last < first ? 0 : last - first + 1;
    }
    if (held / field->stretch_count > limit)
        held = limit * field->stretch_count;
    field->block_count = 0;
    field->latest = malloc((size_t)field->stretch_count * sizeof *field->latest);
    field->blocks
        = malloc((size_t)(held / BLOCK + field->stretch_count + 1) * sizeof *field->blocks);
    if (field->latest == NULL || field->blocks == NULL)
        return 0;
    for (int64_t stretch = 0; stretch < field->stretch_count; stretch++)
        field->latest[stretch] = -1;
    return 1;
}

static void hold(struct field *field, const float *box, float area)
{
    const int64_t last = stretch_of(field, box[field->axis + 2]);

    for (int64_t stretch = stretch_of(field, box[field->axis]); stretch <= last; stretch++) {
        int64_t latest = field->latest[stretch];
        if (latest < 0 || field->blocks[latest].count == BLOCK) {
            clear(&field->blocks[field->block_count], latest);
            latest = field->latest[stretch] = field->block_count++;
        }
        struct block *block = &field->blocks[latest];
        for (int side = 0; side < SIDES; side++)
            block->sides[side][block->count] = box[side];
        block->areas[block->count++] = area;
    }
}

/* Returns how many are kept: `limit` at most, for which `kept` has room; fewer of a stopped run. */
VECTOR_CLONES
static int64_t keep_boxes(struct field *field, const float *corners, const int64_t *order,
                          int64_t length, int64_t limit, float most_overlap, int64_t *kept,
                          const char *stop)
{
    int64_t kept_count = 0;

    for (int64_t place = 0; place < length && kept_count < limit && !is_stopped(stop); place++) {
        const float *box = corners + SIDES * order[place];
        const float area = area_of(box);
        const int is_held = may_overlap(area, most_overlap);
        const int64_t last = is_held ? stretch_of(field, box[field->axis + 2]) : -1;
        int is_gone = 0;
        for (int64_t stretch = is_held ? stretch_of(field, box[field->axis]) : 0;
             stretch <= last && !is_gone; stretch++)
            for (int64_t block = field->latest[stretch]; block >= 0 && !is_gone;
                 block = field->blocks[block].before)
                is_gone = overlaps_any(&field->blocks[block], box, area, most_overlap);
        if (is_gone)
            continue;
        kept[kept_count++] = order[place];
        if (is_held)
            hold(field, box, area);
    }
    return kept_count;
}

/* True if an order names boxes that are there alone. */
static int is_of_boxes(const int64_t *order, int64_t length, int64_t count)
{
    for (int64_t place = 0; place < length; place++)
        if (order[place] < 0 || order[place] >= count)
            return 0;
    return 1;
}

/* suppress_boxes(most_overlap, corners, order, kept, stop): see `methods` in steps.c. Corners and order
 * are the call's own copies. */
PyObject *suppress_boxes(PyObject *module, PyObject *args)
{
    double most_overlap;
    PyObject *objects[3], *stop_word = Py_None;
    Py_buffer views[3];
    const char *stop;
    int held = 0, is_right = 0, has_room = 0;
    int64_t found = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "dOOO|O", &most_overlap, &objects[0], &objects[1], &objects[2],
                          &stop_word)
        || !read_stop(stop_word, &stop))
        return NULL;
    held = hold_buffers(objects, views, 3);
    if (held < 3)
        goto release;
    const float *corners = views[0].buf;
    const int64_t *order = views[1].buf;
    const int64_t count = views[0].len / (int64_t)(SIDES * sizeof(float));
    const int64_t length = count_of(&views[1]), room = count_of(&views[2]);
    const int64_t limit = room < length ? room : length;
    const float bound = (float)most_overlap;
    struct field field = {.latest = NULL, .blocks = NULL};
    Py_BEGIN_ALLOW_THREADS
    is_right = is_of_boxes(order, length, count);
    if (is_right) {
        choose_axis(&field, corners, order, length, bound);
        has_room = make_room(&field, corners, order, length, limit, bound);
    }
    if (has_room)
        found = keep_boxes(&field, corners, order, length, limit, bound, views[2].buf,
                           stop);
    free(field.latest);
    free(field.blocks);
    Py_END_ALLOW_THREADS
    if (!is_right)
        PyErr_SetString(PyExc_IndexError, "the order names a box that is not there");
    else if (!has_room)
        PyErr_NoMemory();

release:
    release_buffers(views, held);
    return count_or_none(found, stop);
}
