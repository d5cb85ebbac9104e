/* oneDNN's memory objects: a program has some hundreds, each of which is made in less time than a
 * call from Python takes. */
#include "memories.h"

#include "number_buffers.h"

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
