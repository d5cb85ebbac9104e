/* The places of the first float32 numbers in rising or falling order; of equal ones, zeros of both
 * signs too, the one with the lower place comes first.
 *
 * Numbers become keys, whole numbers without a sign that rise in the order that is wanted. Where few
 * of many are wanted, digit by digit of the keys it is found which is the last of them, and what is
 * behind that is left out. The rest is sorted by digits from the lowest on, each time in a way that
 * keeps equal ones in order.
 */
#include "float_order.h"

#include <stdlib.h>
#include <string.h>

#include "number_buffers.h"
#include "steps.h"

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

/* Write the items of numbers above a bound, or of all where it is NaN; returns how many there are. */
static int64_t list_items(const float *values, int64_t count, float bound, int falls, int nan_last,
                          struct item *items)
{
    int64_t found = 0;

    for (int64_t place = 0; place < count; place++) {
        items[found].key = key_of(values[place], falls, nan_last);
        items[found].place = (uint32_t)place;
        found += bound != bound || values[place] > bound;
    }
    return found;
}

/* Keep the first `limit` items of fewer than `count`, in the order in which they stand. */
static void select_items(struct item *items, int64_t count, int64_t limit)
{
    uint32_t last = 0, mask = 0; /* the digits that are known of the last key that is kept */
    int64_t rank = limit;        /* which one it is, of those with these digits */

    for (int digit = DIGITS - 1; digit >= 0; digit--) {
        int64_t counts[VALUES] = {0};
        uint32_t value = 0;
        for (int64_t at = 0; at < count; at++)
            if (((items[at].key ^ last) & mask) == 0)
                counts[digit_of(items[at].key, digit)]++;
        while (counts[value] < rank)
            rank -= counts[value++];
        last |= value << (digit * DIGIT_BITS);
        mask |= (uint32_t)(VALUES - 1) << (digit * DIGIT_BITS);
    }
    for (int64_t at = 0, kept = 0; kept < limit; at++) {
        if (items[at].key > last || (items[at].key == last && rank-- <= 0))
            continue;
        items[kept++] = items[at];
    }
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

/* Sort items with as much room beside them; returns where they are then. */
static struct item *sort_items(struct item *items, struct item *room, int64_t count)
{
    if (count <= FEW) {
        sort_few(items, count);
        return items;
    }
    for (int digit = 0; digit < DIGITS; digit++) {
        int64_t ends[VALUES] = {0}, end = 0;
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

/* Write the places of a row, `limit` at most; returns how many there are. */
static int64_t order_row(const float *values, int64_t count, float bound, int falls, int nan_last,
                         struct item *items, int64_t limit, int64_t *places)
{
    int64_t found = list_items(values, count, bound, falls, nan_last, items);

    if (found > limit && limit > 0)
        select_items(items, found, limit);
    found = found < limit ? found : limit;
    const struct item *const sorted = sort_items(items, items + count, found);
    for (int64_t at = 0; at < found; at++)
        places[at] = sorted[at].place;
    return found;
}

/* order_floats(bound, falls, nan_last, rows, values, places): see `methods` in steps.c. */
PyObject *order_floats(PyObject *module, PyObject *args)
{
    double bound;
    int falls, nan_last, held;
    long long rows;
    PyObject *objects[2];
    Py_buffer views[2];
    int64_t found = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "dppLOO", &bound, &falls, &nan_last, &rows, &objects[0],
                          &objects[1]))
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
    struct item *items = malloc((size_t)(2 * count + 1) * sizeof *items);
    if (items == NULL) {
        PyErr_NoMemory();
        goto release;
    }
    Py_BEGIN_ALLOW_THREADS
    for (int64_t row = 0; row < rows; row++)
        found += order_row((const float *)views[0].buf + row * count, count, (float)bound, falls,
                           nan_last, items, limit, (int64_t *)views[1].buf + row * limit);
    Py_END_ALLOW_THREADS
    free(items);

release:
    release_buffers(views, held);
    return PyErr_Occurred() ? NULL : PyLong_FromLongLong(found);
}
