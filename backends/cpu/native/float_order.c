/* The places of the first float32 numbers in rising or falling order; of equal ones, zeros of both
 * signs too, the one with the lower place comes first.
 *
 * Numbers become keys, whole numbers without a sign that rise in the order that is wanted. Where few
 * of many are wanted, it is found bit by bit which key is the last of them, by counting those below,
 * and what is behind that is left out. The rest is sorted by digits from the lowest on, each time in a
 * way that keeps equal ones in order.
 */
#include "float_order.h"

#include <stdlib.h>
#include <string.h>

#include "number_buffers.h"
#include "steps.h"
#include "stop_words.h"

#define DIGIT_BITS 11
#define DIGITS 3 /* the highest one has 10 bits */
#define VALUES (1 << DIGIT_BITS)
#define FEW 24 /* so many are put in order one by one */

struct item {
    uint32_t key, place;
};

static inline uint32_t digit_of(uint32_t key, int digit)
{
    return key >> (digit * DIGIT_BITS) & (VALUES - 1);
}

/* `nan_last` or first: what is no number has no place among others. */
static inline uint32_t key_of(float x, int falls, int nan_last)
{
    uint32_t bits;

    if (x != x)
        return nan_last ? UINT32_MAX : 0;
    x = x == 0 ? 0 : x;
    memcpy(&bits, &x, sizeof bits);
    bits ^= bits >> 31 ? UINT32_MAX : UINT32_C(1) << 31;
    return falls ? ~bits : bits;
}

/* The keys of numbers above a bound, or of all where it is NaN, and their places; returns how many
 * there are. */
VECTOR_CLONES
static int64_t list_keys(const float *restrict values, int64_t count, float bound, int falls,
                         int nan_last, uint32_t *restrict keys, uint32_t *restrict places)
{
    int64_t found = 0;

    if (bound != bound) {
        for (int64_t place = 0; place < count; place++) {
            keys[place] = key_of(values[place], falls, nan_last);
            places[place] = (uint32_t)place;
        }
        return count;
    }
    for (int64_t place = 0; place < count; place++) {
        keys[found] = key_of(values[place], falls, nan_last);
        places[found] = (uint32_t)place;
        found += values[place] > bound;
    }
    return found;
}

VECTOR_CLONES
static int64_t count_below(const uint32_t *keys, int64_t count, uint32_t bound)
{
    uint32_t found = 0;

    for (int64_t at = 0; at < count; at++)
        found += keys[at] < bound;
    return found;
}

/* Which key is the last of the first `limit` ones, bit by bit from the highest; limit > 0. Any key of
 * a stopped run. */
static uint32_t last_key(const uint32_t *keys, int64_t count, int64_t limit, const char *stop)
{
    uint32_t last = 0;

    for (int bit = 31; bit >= 0 && !is_stopped(stop); bit--) {
        const uint32_t next = last | UINT32_C(1) << bit;
        const int64_t below = count_below(keys, count, next);
        if (below == limit)
            return next - 1; /* no key lies between the last one and this */
        if (below < limit)
            last = next;
    }
    return last;
}

/* Write the items of the first keys, `limit` of fewer than `count` ones, in order of their places;
 * returns 0 of a stopped run, whose last key is not known. */
static int select_items(const uint32_t *keys, const uint32_t *places, int64_t count, int64_t limit,
                        struct item *items, const char *stop)
{
    const uint32_t last = last_key(keys, count, limit, stop);
    if (is_stopped(stop))
        return 0;
    int64_t rest = limit - count_below(keys, count, last), kept = 0; /* of keys that are the last */

    for (int64_t at = 0; kept < limit; at++) {
        const int is_last = keys[at] == last;
        items[kept] = (struct item){keys[at], places[at]};
        kept += keys[at] < last || (is_last && rest > 0);
        rest -= is_last;
    }
    return 1;
}

static void sort_few(struct item *items, int64_t count)
{
    for (int64_t at = 1; at < count; at++) {
        const struct item item = items[at];
        int64_t to = at;
        for (; to > 0 && items[to - 1].key > item.key; to--)
            items[to] = items[to - 1];
        items[to] = item;
    }
}

/* Sort items with as much room beside them; returns where they are then, NULL of a stopped run. */
static struct item *sort_items(struct item *items, struct item *room, int64_t count,
                               const char *stop)
{
    if (count <= FEW) {
        sort_few(items, count);
        return items;
    }
    for (int digit = 0; digit < DIGITS; digit++) {
        int64_t ends[VALUES] = {0}, end = 0;
        if (is_stopped(stop))
            return NULL;
        for (int64_t at = 0; at < count; at++)
            ends[digit_of(items[at].key, digit)]++;
        if (ends[digit_of(items[0].key, digit)] == count)
            continue;
        for (int value = 0; value < VALUES; value++) {
            const int64_t here = ends[value];
            ends[value] = end;
            end += here;
        }
        for (int64_t at = 0; at < count; at++)
            room[ends[digit_of(items[at].key, digit)]++] = items[at];
        struct item *const sorted = room;
        room = items;
        items = sorted;
    }
    return items;
}

/* Memory for a row: `keys` and `places` of all its numbers, and twice as many items as are wanted. */
struct room {
    uint32_t *keys, *places;
    struct item *items;
};

static void *hold_room(struct room *room, int64_t count, int64_t limit)
{
    room->items = malloc((size_t)(2 * limit + count + 1) * sizeof *room->items);
    room->keys = (uint32_t *)(room->items + 2 * limit);
    room->places = room->keys + count;
    return room->items;
}

/* Write the places of a row, `limit` at most; returns how many there are, of a stopped run none. */
static int64_t order_row(const float *values, int64_t count, float bound, int falls, int nan_last,
                         const struct room *room, int64_t limit, int64_t *places, const char *stop)
{
    int64_t found = list_keys(values, count, bound, falls, nan_last, room->keys, room->places);

    if (found > limit && limit > 0) {
        if (!select_items(room->keys, room->places, found, limit, room->items, stop))
            return 0;
    } else
        for (int64_t at = 0; at < found && at < limit; at++)
            room->items[at] = (struct item){room->keys[at], room->places[at]};
    found = found < limit ? found : limit;
    const struct item *const sorted = sort_items(room->items, room->items + limit, found, stop);
    if (sorted == NULL)
        return 0;
    for (int64_t at = 0; at < found; at++)
        places[at] = sorted[at].place;
    return found;
}

/* order_floats(bound, falls, nan_last, rows, values, places, stop): see `methods` in steps.c. */
PyObject *order_floats(PyObject *module, PyObject *args)
{
    double bound;
    int falls, nan_last, held;
    long long rows;
    PyObject *objects[2], *stop_word = Py_None;
    Py_buffer views[2];
    const char *stop;
    int64_t found = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "dppLOO|O", &bound, &falls, &nan_last, &rows, &objects[0],
                          &objects[1], &stop_word)
        || !read_stop(stop_word, &stop))
        return NULL;
    held = hold_buffers(objects, views, 2);
    if (held < 2)
        goto release;
    const int64_t all = views[0].len / (int64_t)sizeof(float);
    const int64_t count = rows > 0 ? all / rows : 0;
    const int64_t limit = rows > 0 ? count_of(&views[1]) / rows : 0;
    if (rows < 1 || count * rows != all || limit > count || count > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "rows of numbers, and no longer ones of places, are wanted");
        goto release;
    }
    struct room room;
    if (hold_room(&room, count, limit) == NULL) {
        PyErr_NoMemory();
        goto release;
    }
    Py_BEGIN_ALLOW_THREADS
    for (int64_t row = 0; row < rows && !is_stopped(stop); row++)
        found += order_row((const float *)views[0].buf + row * count, count, (float)bound, falls,
                           nan_last, &room, limit, (int64_t *)views[1].buf + row * limit,
                           stop);
    Py_END_ALLOW_THREADS
    free(room.items);

release:
    release_buffers(views, held);
    return count_or_none(found, stop);
}
