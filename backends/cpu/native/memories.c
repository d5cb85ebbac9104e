/* oneDNN's memory objects: a program has some hundreds, each of which is made in less time than a
 * call from Python takes. So it is with what there is to ask of a memory descriptor.
 *
 * Source of the numbers: dnnl_types.h of oneDNN 3.2, stable within 3.x. */
#include "memories.h"

#include "number_buffers.h"

enum { RANK = 256, DIMS, DTYPE, OFFSET, FORMAT = 262, BLOCK_COUNT, BLOCK_LENGTHS, BLOCK_AXES };
enum { STRIDES = 14 };
enum { FORMAT_BLOCKED = 2 };

typedef int (*query_function)(const void *desc, int what, void *result);

static create_memory_function create_memory;
static destroy_memory_function destroy_memory;

void configure_memories(create_memory_function create, destroy_memory_function destroy)
{
    create_memory = create;
    destroy_memory = destroy;
}

static void destroy_all(const int64_t *handles, Py_ssize_t count)
{
    for (Py_ssize_t index = 0; index < count; index++)
        destroy_memory((void *)(intptr_t)handles[index]);
}

/* make_memories(engine, descs, addresses, handles): handles is written. None, or the status of the
 * first that oneDNN refuses; then none is left. */
PyObject *make_memories(PyObject *module, PyObject *args)
{
    unsigned long long engine;
    PyObject *objects[3];
    Py_buffer views[3];
    int held = 0, status = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "KOOO", &engine, &objects[0], &objects[1], &objects[2]))
        return NULL;
    held = hold_buffers(objects, views, 3);
    if (held < 3)
        goto release;
    if (create_memory == NULL)
        PyErr_SetString(PyExc_RuntimeError, "configure() was not called");
    else if (views[0].len != views[1].len || views[0].len != views[2].len)
        PyErr_SetString(PyExc_ValueError, "descs, addresses and handles differ in length");
    else {
        const int64_t *descs = views[0].buf, *addresses = views[1].buf;
        int64_t *handles = views[2].buf;
        Py_ssize_t count = count_of(&views[0]), made = 0;
        for (; made < count && status == 0; made++) {
            void *memory = NULL;
            status = create_memory(&memory, (const void *)(intptr_t)descs[made],
                                   (void *)(intptr_t)engine, (void *)(intptr_t)addresses[made]);
            handles[made] = (int64_t)(intptr_t)memory;
        }
        if (status != 0)
            destroy_all(handles, made - 1);
    }

release:
    release_buffers(views, held);
    return none_or_status(status);
}

/* free_memories(handles): those that make_memories wrote. */
PyObject *free_memories(PyObject *module, PyObject *args)
{
    PyObject *object;
    Py_buffer view;

    (void)module;
    if (!PyArg_ParseTuple(args, "O", &object) || PyObject_GetBuffer(object, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    destroy_all(view.buf, count_of(&view));
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

static PyObject *tuple_of(const int64_t *numbers, int count)
{
    PyObject *made = PyTuple_New(count);
    for (int index = 0; made != NULL && index < count; index++) {
        PyObject *number = PyLong_FromLongLong(numbers[index]);
        if (number == NULL || PyTuple_SetItem(made, index, number) < 0)
            Py_CLEAR(made);
    }
    return made;
}

/* describe_memory(query, desc): (dims, dtype, format, offset, strides, axes and lengths of blocks) as
 * the library has them; the last three are empty where memory is not in the blocked format, nor dims
 * asked for where there are none. The number of the first query that it does not answer. */
PyObject *describe_memory(PyObject *module, PyObject *args)
{
    unsigned long long address, handle;
    int rank = 0, dtype = 0, format = 0, block_count = 0, failed = 0;
    int64_t offset = 0;
    const int64_t *dims = NULL, *strides = NULL, *axes = NULL, *lengths = NULL;

    (void)module;
    if (!PyArg_ParseTuple(args, "KK", &address, &handle))
        return NULL;
    query_function query = (query_function)(uintptr_t)address;
    const void *desc = (const void *)(uintptr_t)handle;
    struct {
        int what;
        void *result;
    } asked[] = {{RANK, &rank},       {FORMAT, &format},           {DIMS, &dims},
                 {DTYPE, &dtype},     {OFFSET, &offset},           {STRIDES, &strides},
                 {BLOCK_COUNT, &block_count}, {BLOCK_AXES, &axes}, {BLOCK_LENGTHS, &lengths}};
    for (size_t index = 0; index < sizeof asked / sizeof *asked; index++) {
        if (index >= 2 && rank == 0)
            break;
        if (index >= 5 && format != FORMAT_BLOCKED)
            break;
        if (query(desc, asked[index].what, asked[index].result) != 0) {
            failed = asked[index].what;
            break;
        }
    }
    if (failed != 0)
        return PyLong_FromLong(failed);
    int stride_count = strides == NULL ? 0 : rank;
    return Py_BuildValue("NiiLNNN", tuple_of(dims, rank), dtype, format, (long long)offset,
                         tuple_of(strides, stride_count), tuple_of(axes, block_count),
                         tuple_of(lengths, block_count));
}
