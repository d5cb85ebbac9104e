/* oneDNN's primitives: compiling one takes some tenths of a millisecond, and none needs another, so
 * the caller and some helpers each take the next that nobody has begun. Helpers live for one call:
 * there is none to end at fork or exit. What a primitive is compiled for depends on how many threads
 * OpenMP would use on the thread that compiles it, so they are told. */
#include "primitives.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

#define MOST_HELPERS 7

static create_primitive_function create_primitive;
static destroy_primitive_function destroy_primitive;
static void (*set_num_threads)(int);

void configure_primitives(create_primitive_function create, destroy_primitive_function destroy,
                          void (*set_threads)(int))
{
    create_primitive = create;
    destroy_primitive = destroy;
    set_num_threads = set_threads;
}

struct work {
    const int64_t *descs;
    int64_t *primitives;
    int64_t count;
    int threads;
    atomic_llong next;
    atomic_int status; /* of one that was refused; then no other is begun */
};

static void compile_all(struct work *work)
{
    while (atomic_load(&work->status) == 0) {
        int64_t index = (int64_t)atomic_fetch_add(&work->next, 1);
        if (index >= work->count)
            return;
        void *primitive = NULL;
        int status = create_primitive(&primitive, (const void *)(intptr_t)work->descs[index]);
        if (status != 0)
            atomic_store(&work->status, status);
        else
            work->primitives[index] = (int64_t)(intptr_t)primitive;
    }
}

static void *help(void *work)
{
    set_num_threads(((struct work *)work)->threads);
    compile_all(work);
    return NULL;
}

/* Signals are for the threads that Python knows. */
static int start_helpers(struct work *work, int count, pthread_t *helpers)
{
    sigset_t all, before;
    int started = 0;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return 0;
    while (started < count && pthread_create(&helpers[started], NULL, help, work) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static int compile(struct work *work, int helper_count)
{
    pthread_t helpers[MOST_HELPERS];
    int started = start_helpers(work, helper_count, helpers);
    compile_all(work);
    while (started > 0)
        pthread_join(helpers[--started], NULL);
    int status = atomic_load(&work->status);
    for (int64_t index = 0; status != 0 && index < work->count; index++)
        if (work->primitives[index] != 0) {
            destroy_primitive((void *)(intptr_t)work->primitives[index]);
            work->primitives[index] = 0;
        }
    return status;
}

/* make_primitives(descs, primitives, threads, helper_count): primitives is written. None, or the
 * status of one that oneDNN refuses; then none is left. */
PyObject *make_primitives(PyObject *module, PyObject *args)
{
    PyObject *objects[2];
    Py_buffer views[2];
    int threads, helper_count, held = 0, status = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "OOii", &objects[0], &objects[1], &threads, &helper_count))
        return NULL;
    for (; held < 2; held++)
        if (PyObject_GetBuffer(objects[held], &views[held],
                               held == 1 ? PyBUF_WRITABLE : PyBUF_SIMPLE)
            < 0)
            goto release;
    if (create_primitive == NULL)
        PyErr_SetString(PyExc_RuntimeError, "configure() was not called");
    else if (views[0].len != views[1].len)
        PyErr_SetString(PyExc_ValueError, "descs and primitives differ in length");
    else if (helper_count < 0 || helper_count > MOST_HELPERS)
        PyErr_Format(PyExc_ValueError, "0 to %d helpers, not %d", MOST_HELPERS, helper_count);
    else {
        struct work work = {
            .descs = views[0].buf,
            .primitives = views[1].buf,
            .count = (int64_t)(views[0].len / (Py_ssize_t)sizeof(int64_t)),
            .threads = threads,
        };
        for (int64_t index = 0; index < work.count; index++)
            work.primitives[index] = 0;
        Py_BEGIN_ALLOW_THREADS
        status = compile(&work, helper_count);
        Py_END_ALLOW_THREADS
    }

release:
    while (held > 0)
        PyBuffer_Release(&views[--held]);
    if (PyErr_Occurred())
        return NULL;
    if (status == 0)
        Py_RETURN_NONE;
    return PyLong_FromLong(status);
}
