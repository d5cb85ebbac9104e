/* oneDNN's primitives: compiling one takes some tenths of a millisecond, and none needs another, so
 * the caller and some helpers each take the next that no thread has begun. A helper's CPU may be
 * taken by others: the caller waits for what one has begun, and for none that has not come yet,
 * which finds nothing to do and ends. So there is no helper to end at fork or exit. What a
 * primitive is compiled for depends on how many threads the team of the thread has that
 * compiles it, so helpers get that number. */
#include "primitives.h"

#include "number_buffers.h"
#include "teams/team.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#define MOST_HELPERS 7

static create_primitive_function create_primitive;
static destroy_primitive_function destroy_primitive;

void configure_primitives(create_primitive_function create, destroy_primitive_function destroy)
{
    create_primitive = create;
    destroy_primitive = destroy;
}

/* Shared by the caller and its helpers, of which the last one frees it. */
struct work {
    const int64_t *descs;
    int64_t *primitives;
    int64_t count;
    int threads;
    atomic_llong next;
    atomic_int status; /* of one that was refused; then no other is begun */
    atomic_int users;
    pthread_mutex_t lock;
    pthread_cond_t one_ended;
    int64_t ended_count; /* under the lock */
};

static struct work *new_work(const int64_t *descs, int64_t *primitives, int64_t count, int threads)
{
    struct work *work = calloc(1, sizeof *work);
    if (work == NULL)
        return NULL;
    work->descs = descs;
    work->primitives = primitives;
    work->count = count;
    work->threads = threads;
    atomic_init(&work->next, 0);
    atomic_init(&work->status, 0);
    atomic_init(&work->users, 1);
    pthread_mutex_init(&work->lock, NULL);
    pthread_cond_init(&work->one_ended, NULL);
    return work;
}

static void let_go(struct work *work)
{
    if (atomic_fetch_sub(&work->users, 1) > 1)
        return;
    pthread_cond_destroy(&work->one_ended);
    pthread_mutex_destroy(&work->lock);
    free(work);
}

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
        pthread_mutex_lock(&work->lock);
        work->ended_count++;
        pthread_cond_signal(&work->one_ended);
        pthread_mutex_unlock(&work->lock);
    }
}

static void *help(void *shared)
{
    struct work *work = shared;
    if (atomic_load(&work->next) < work->count) { /* else it comes too late */
        team_set_threads(work->threads);
        compile_all(work);
    }
    let_go(work);
    return NULL;
}

/* Signals are for the threads that Python knows. */
static void start_helpers(struct work *work, int count)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t helper;

    if (count == 0 || pthread_attr_init(&attributes) != 0)
        return;
    sigfillset(&all);
    if (pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0
        && pthread_sigmask(SIG_SETMASK, &all, &before) == 0) {
        for (int started = 0; started < count; started++) {
            atomic_fetch_add(&work->users, 1);
            if (pthread_create(&helper, &attributes, help, work) != 0) {
                atomic_fetch_sub(&work->users, 1);
                break;
            }
        }
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_attr_destroy(&attributes);
}

/* Have no thread begin another one, and wait for those that were begun. */
static void end_work(struct work *work)
{
    int64_t begun = (int64_t)atomic_exchange(&work->next, work->count);
    if (begun > work->count)
        begun = work->count;
    pthread_mutex_lock(&work->lock);
    while (work->ended_count < begun)
        pthread_cond_wait(&work->one_ended, &work->lock);
    pthread_mutex_unlock(&work->lock);
}

static int compile(struct work *work, int helper_count)
{
    start_helpers(work, helper_count);
    compile_all(work);
    end_work(work);
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
    held = hold_buffers(objects, views, 2);
    if (held < 2)
        goto release;
    if (create_primitive == NULL)
        PyErr_SetString(PyExc_RuntimeError, "configure() was not called");
    else if (views[0].len != views[1].len)
        PyErr_SetString(PyExc_ValueError, "descs and primitives differ in length");
    else if (helper_count < 0 || helper_count > MOST_HELPERS)
        PyErr_Format(PyExc_ValueError, "0 to %d helpers, not %d", MOST_HELPERS, helper_count);
    else {
        int64_t count = (int64_t)count_of(&views[0]);
        struct work *work = new_work(views[0].buf, views[1].buf, count, threads);
        if (work == NULL)
            PyErr_NoMemory();
        else {
            for (int64_t index = 0; index < count; index++)
                work->primitives[index] = 0;
            Py_BEGIN_ALLOW_THREADS
            status = compile(work, helper_count);
            let_go(work);
            Py_END_ALLOW_THREADS
        }
    }

release:
    release_buffers(views, held);
    return none_or_status(status);
}
