/* A compiled network as a table of steps, run by one call that releases the GIL once.
 *
 * The table is an array of 64-bit words that the plan's program wrote (program.py):
 *
 *   buffer count, how many of them are inputs, then for each buffer its bytes
 *   binding count, then for each binding: oneDNN memory object, reference
 *   steps:   kind, word count of the step, payload
 *
 * A call may come with a stop word: one byte that any thread may set to end the run. It is looked at
 * before every step, before every part of a step that goes by parts, and by native kernels between
 * their rows; a call that finds it set leaves the rest undone. A primitive cannot be interrupted.
 *
 * Offsets and lengths in steps are right for buffers of these bytes, so a call with others is refused
 * before anything runs. All but inputs are written to.
 *
 * A reference is two words: (0, address), or (k, offset) into the k-th buffer of the call.
 * Kinds: 0 ends the table; 1 executes a primitive (primitive, argument count, arguments); 2 executes
 * one part by part (the same, then part count, and for each argument that moves: oneDNN memory object,
 * reference of the first part, bytes to the next one); from 3 on, native kernels (reference count,
 * references, parameters), numbered as `kernels` says.
 */
#include "python_api.h"

#include <time.h>

#include "teams/adopted_library.h"
#include "runs/atomic_runs.h"
#include "box_suppression.h"
#include "float_order.h"
#include "memories.h"
#include "primitives.h"
#include "steps.h"
#include "stop_words.h"
#include "teams/team.h"
#include "runs/zip_rows.h"

#include <errno.h>

#define KIND_END 0
#define KIND_PRIMITIVE 1
#define KIND_PARTS 2
#define KIND_KERNEL 3
#define PARTS_WORDS 6 /* of such a step, before what moves */
#define MOVE_WORDS 4
#define MAX_KERNELS 128
#define MAX_REFERENCES 64
#define MAX_BUFFERS 1024

/* Counted up, here and in step_runner.py, with each change of what functions or tables take. */
#define INTERFACE 17

typedef int (*execute_function)(const void *primitive, void *stream, int count, const void *args);
typedef int (*set_handle_function)(void *memory, void *address);

static execute_function execute_primitive;
static set_handle_function set_data_handle;
static void *stream;

static const struct named_kernel *kernels[MAX_KERNELS];
static int64_t kernel_count;

static void list_kernels(void)
{
    const struct named_kernel *const files[] = {
        movement_kernels, elementwise_kernels, reduction_kernels,    position_kernels, row_kernels,
        matmul_kernels,   packed_kernels,      quantization_kernels, pool_kernels,     tree_kernels,
        packed_int8_kernels, half_kernels, recurrent_kernels, region_kernels, vector_kernels,
        int8_kernels, column_kernels, sample_kernels, cell_kernels, rotary_kernels,
    };
    kernel_count = 0;
    for (size_t file = 0; file < sizeof files / sizeof files[0]; file++)
        for (const struct named_kernel *kernel = files[file]; kernel->name != NULL; kernel++)
            if (kernel_count < MAX_KERNELS)
                kernels[kernel_count++] = kernel;
}

static int64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* What one run gets; both lists hold as many as their counts say. */
struct call {
    char *const *buffers;
    int64_t buffer_count;
    int64_t *times; /* one clock reading before the first step and one after each; or NULL */
    int64_t time_count;
    const char *stop; /* set to anything but 0 by another thread when the run is to end; or NULL */
};

static inline int resolve(const int64_t *reference, const struct call *call, char **address)
{
    if (reference[0] < 0 || reference[0] > call->buffer_count)
        return STATUS_TABLE;
    if (reference[0] == 0)
        *address = (char *)(intptr_t)reference[1];
    else
        *address = call->buffers[reference[0] - 1] + reference[1];
    return STATUS_OK;
}

static inline void read_clock(struct call *call)
{
    if (call->time_count > 0) {
        call->time_count--;
        *call->times++ = now_ns(CLOCK_MONOTONIC);
    }
}

static int bind(const int64_t *word, int64_t count, const struct call *call)
{
    for (; count > 0; count--, word += 3) {
        char *address = NULL;
        int status = resolve(word + 1, call, &address);
        if (status == STATUS_OK)
            status = set_data_handle((void *)(intptr_t)word[0], address);
        if (status)
            return status;
    }
    return STATUS_OK;
}

/* Payload: reference count, references, parameters. */
static int run_kernel(int64_t kind, const int64_t *payload, int64_t length, const struct call *call)
{
    char *data[MAX_REFERENCES];
    int64_t count = length > 0 ? payload[0] : -1;
    if (kind < 0 || kind >= kernel_count || count < 0 || count > MAX_REFERENCES
        || 1 + 2 * count > length)
        return STATUS_TABLE;
    for (int64_t index = 0; index < count; index++)
        if (resolve(payload + 1 + 2 * index, call, &data[index]))
            return STATUS_TABLE;
    int status = kernels[kind]->function(data, payload + 1 + 2 * count, call->stop);
    return status == STATUS_OK && is_stopped(call->stop) ? STATUS_STOPPED : status;
}

/* Execute a primitive on each part in turn: those of an operand lie one behind the other. */
static int run_parts(const int64_t *word, const struct call *call)
{
    const int64_t *end = word + word[1];
    for (int64_t part = 0; part < word[5]; part++) {
        if (part > 0 && is_stopped(call->stop))
            return STATUS_STOPPED;
        for (const int64_t *move = word + PARTS_WORDS; move < end; move += MOVE_WORDS) {
            char *address = NULL;
            int status = resolve(move + 1, call, &address);
            if (status == STATUS_OK)
                status = set_data_handle((void *)(intptr_t)move[0], address + part * move[3]);
            if (status)
                return status;
        }
        int status = execute_primitive((const void *)(intptr_t)word[2], stream, (int)word[3],
                                       (const void *)(intptr_t)word[4]);
        if (status)
            return status;
    }
    return STATUS_OK;
}

/* Whether the words of a step, which are there, are as many as its kind has. */
static int has_its_words(const int64_t *word)
{
    if (word[0] == KIND_PRIMITIVE)
        return word[1] == 5;
    return word[0] != KIND_PARTS
        || (word[1] >= PARTS_WORDS && (word[1] - PARTS_WORDS) % MOVE_WORDS == 0);
}

/* How many words a table begins with before its bindings; 0 if they are not there. */
static int64_t head_length(const int64_t *word, int64_t length)
{
    if (length < 2 || word[0] < 0 || word[0] > MAX_BUFFERS || word[0] > length - 2)
        return 0;
    return 2 + word[0];
}

/* Run a table, `length` words behind its head; `step` is the index of the one that runs. */
static int run_table(const int64_t *word, int64_t length, struct call *call, int64_t *step)
{
    const int64_t *end = word + length;
    int64_t bindings = length > 0 ? *word++ : -1;
    if (bindings < 0 || bindings > (end - word) / 3)
        return STATUS_TABLE;
    int status = bind(word, bindings, call);
    if (status)
        return status;
    word += 3 * bindings;
    read_clock(call);
    for (;; word += word[1], (*step)++) {
        if (end - word < 2)
            return STATUS_TABLE;
        if (word[0] == KIND_END)
            return STATUS_OK;
        if (is_stopped(call->stop))
            return STATUS_STOPPED;
        if (word[1] < 2 || word[1] > end - word || !has_its_words(word))
            return STATUS_TABLE;
        if (word[0] == KIND_PRIMITIVE)
            status = execute_primitive((const void *)(intptr_t)word[2], stream, (int)word[3],
                                       (const void *)(intptr_t)word[4]);
        else if (word[0] == KIND_PARTS)
            status = run_parts(word, call);
        else
            status = run_kernel(word[0] - KIND_KERNEL, word + 2, word[1] - 2, call);
        if (status)
            return status;
        read_clock(call);
    }
}

static PyObject *configure(PyObject *module, PyObject *args)
{
    unsigned long long execute, set_handle, stream_address, create, destroy, compile, release;
    (void)module;
    if (!PyArg_ParseTuple(args, "KKKKKKK", &execute, &set_handle, &stream_address, &create, &destroy,
                          &compile, &release))
        return NULL;
    execute_primitive = (execute_function)(uintptr_t)execute;
    set_data_handle = (set_handle_function)(uintptr_t)set_handle;
    stream = (void *)(uintptr_t)stream_address;
    configure_memories((create_memory_function)(uintptr_t)create,
                       (destroy_memory_function)(uintptr_t)destroy);
    configure_primitives((create_primitive_function)(uintptr_t)compile,
                         (destroy_primitive_function)(uintptr_t)release);
    Py_RETURN_NONE;
}

static PyObject *get_team_threads(PyObject *module, PyObject *args)
{
    (void)module;
    (void)args;
    return PyLong_FromLong(team_threads());
}

static PyObject *set_team_threads(PyObject *module, PyObject *args)
{
    int count;
    (void)module;
    if (!PyArg_ParseTuple(args, "i", &count))
        return NULL;
    team_set_threads(count);
    Py_RETURN_NONE;
}

static PyObject *start_team(PyObject *module, PyObject *args)
{
    int count, status;
    (void)module;
    if (!PyArg_ParseTuple(args, "i", &count))
        return NULL;
    status = team_start(count);
    if (status != 0) {
        errno = status;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

int64_t monotonic_ns(void)
{
    return now_ns(CLOCK_MONOTONIC);
}

int64_t buffer_length(const Py_buffer *table, int64_t count, int64_t index)
{
    const int64_t *words = table->buf;
    int64_t head = head_length(words, (int64_t)(table->len / (Py_ssize_t)sizeof *words));
    return head == 0 || count != words[0] || index >= count ? -1 : words[2 + index];
}

int run_addresses(const Py_buffer *table, char *const *addresses, int64_t count, int threads)
{
    const int64_t *words = table->buf;
    int64_t length = (int64_t)(table->len / (Py_ssize_t)sizeof *words);
    int64_t head = head_length(words, length), step = 0;
    if (execute_primitive == NULL || head == 0 || count != words[0])
        return STATUS_TABLE;
    struct call call = {addresses, count, NULL, 0, NULL};
    int before = team_threads();
    team_set_threads(threads);
    int status = run_table(words + head, length - head, &call, &step);
    team_set_threads(before);
    return status;
}

/* Run a table on a tuple of arrays, with the GIL released: its status, and the index of what has
 * failed, or -1 with an exception. times and spent may be NULL. */
static int run_buffers(const Py_buffer *table, PyObject *arrays, int threads, const char *stop,
                       const Py_buffer *times, const Py_buffer *spent, int64_t *step)
{
    Py_buffer views[16], *view = views;
    char *addresses[16], **address = addresses;
    Py_ssize_t count = PyTuple_Size(arrays), held = 0;
    int status = STATUS_OK, is_raised = 0;
    const int64_t *words = table->buf;
    int64_t length = (int64_t)(table->len / (Py_ssize_t)sizeof *words);
    int64_t head = head_length(words, length);

    if (execute_primitive == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "configure() was not called");
        return -1;
    }
    if (count > MAX_BUFFERS) {
        PyErr_Format(PyExc_ValueError, "at most %d buffers, not %zd", MAX_BUFFERS, count);
        return -1;
    }
    if (head == 0)
        return STATUS_TABLE;
    if (count > 16) {
        view = PyMem_Malloc((size_t)count * sizeof *view);
        address = PyMem_Malloc((size_t)count * sizeof *address);
        if (view == NULL || address == NULL) {
            PyErr_NoMemory();
            is_raised = 1;
            goto release;
        }
    }
    for (; held < count; held++) {
        PyObject *item = PyTuple_GetItem(arrays, held);
        int flags = held < words[1] ? PyBUF_SIMPLE : PyBUF_WRITABLE;
        if (item == NULL || PyObject_GetBuffer(item, &view[held], flags) < 0) {
            is_raised = 1;
            goto release;
        }
        address[held] = view[held].buf;
        if (held < words[0] && view[held].len != words[2 + held] && status == STATUS_OK) {
            status = STATUS_BUFFER;
            *step = held;
        }
    }
    if (count != words[0] && status == STATUS_OK) {
        status = STATUS_BUFFER;
        *step = count < words[0] ? count : words[0];
    }
    if (status != STATUS_OK)
        goto release;

    Py_BEGIN_ALLOW_THREADS
    {
        int before = team_threads();
        team_set_threads(threads);
        int64_t *spent_ns = spent == NULL ? NULL : spent->buf;
        if (spent_ns != NULL)
            *spent_ns -= now_ns(CLOCK_THREAD_CPUTIME_ID);
        int64_t *readings = times == NULL ? NULL : times->buf;
        struct call call = {address, count, readings,
                            readings == NULL ? 0 : (int64_t)(times->len / 8), stop};
        status = run_table(words + head, length - head, &call, step);
        if (spent_ns != NULL)
            *spent_ns += now_ns(CLOCK_THREAD_CPUTIME_ID);
        team_set_threads(before);
    }
    Py_END_ALLOW_THREADS

release:
    while (held > 0)
        PyBuffer_Release(&view[--held]);
    if (view != views)
        PyMem_Free(view);
    if (address != addresses)
        PyMem_Free(address);
    return is_raised ? -1 : status;
}

static PyObject *run(PyObject *module, PyObject *args)
{
    PyObject *table_object, *arrays, *stop_word = Py_None;
    PyObject *times_object = Py_None, *spent_object = Py_None;
    const char *stop;
    int threads, status = -1;
    Py_buffer table, times, spent;
    int64_t step = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO!i|OOO", &table_object, &PyTuple_Type, &arrays, &threads,
                          &stop_word, &times_object, &spent_object))
        return NULL;
    if (!read_stop(stop_word, &stop))
        return NULL;
    if (PyObject_GetBuffer(table_object, &table, PyBUF_SIMPLE) < 0)
        return NULL;
    times.buf = spent.buf = NULL;
    if (times_object != Py_None
        && PyObject_GetBuffer(times_object, &times, PyBUF_SIMPLE | PyBUF_WRITABLE) < 0)
        goto release;
    if (spent_object != Py_None
        && PyObject_GetBuffer(spent_object, &spent, PyBUF_SIMPLE | PyBUF_WRITABLE) < 0)
        goto release;
    if (spent.buf != NULL && spent.len < (Py_ssize_t)sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "spent needs room for a number");
        goto release;
    }
    status = run_buffers(&table, arrays, threads, stop, times.buf == NULL ? NULL : &times,
                         spent.buf == NULL ? NULL : &spent, &step);

release:
    if (times.buf != NULL)
        PyBuffer_Release(&times);
    if (spent.buf != NULL)
        PyBuffer_Release(&spent);
    PyBuffer_Release(&table);
    if (status < 0)
        return NULL;
    if (status == STATUS_OK)
        Py_RETURN_NONE;
    return Py_BuildValue("iL", status, (long long)step);
}

static PyMethodDef methods[] = {
    {"configure", configure, METH_VARARGS,
     "configure(execute, set_data_handle, stream, create_memory, destroy_memory, create_primitive,\n"
     "          destroy_primitive)\n\n"
     "Set the addresses of oneDNN's functions; once, before the first run."},
    {"adopt_library", adopt_library, METH_VARARGS,
     "adopt_library(handle)\n\n"
     "Have our own teams compute what a loaded library, by its dlopen handle, calls OpenMP for. None, or\n"
     "the name of a call that they do not know: then nothing is changed."},
    {"team_threads", get_team_threads, METH_NOARGS,
     "team_threads()\n\nHow many threads this thread's regions and new primitives are for."},
    {"set_team_threads", set_team_threads, METH_VARARGS,
     "set_team_threads(count)\n\nSay how many they are for from now on."},
    {"start_team", start_team, METH_VARARGS,
     "start_team(count)\n\n"
     "Have the threads of a team that large for this thread; OSError where they cannot be started."},
    {"run", run, METH_VARARGS,
     "run(table, buffers, threads, stop=None, times=None, spent=None)\n\n"
     "Run a table without the GIL; None, or (status, index of the step) of what failed. Once the\n"
     "byte of stop, a bytearray, is set, (1005, index of the step that it was seen before or in). Of\n"
     "buffers that are not as the table says, (1004, index of the first). To the number of spent it adds the\n"
     "nanoseconds that this thread had a CPU."},
    {"make_memories", make_memories, METH_VARARGS,
     "make_memories(engine, descs, addresses, handles)\n\n"
     "Make oneDNN's memory objects and write their handles; the arguments but the first are arrays of\n"
     "64-bit integers. None, or the status of the first that is refused: then none is left."},
    {"free_memories", free_memories, METH_VARARGS,
     "free_memories(handles)\n\nFree what make_memories made."},
    {"describe_memory", describe_memory, METH_VARARGS,
     "describe_memory(query, desc)\n\n"
     "Ask a memory descriptor for (dims, dtype, format, offset, strides, axes of blocks, lengths of\n"
     "blocks) by the address of dnnl_memory_desc_query; strides and blocks are empty where the format\n"
     "has none. The number of the first question that the library does not answer, if there is one."},
    {"make_primitives", make_primitives, METH_VARARGS,
     "make_primitives(descs, primitives, threads, helper_count)\n\n"
     "Compile primitives for teams of that many threads, which this one is set to, without the GIL and\n"
     "with helper_count threads beside the caller; write their handles. The first two arguments are\n"
     "arrays of 64-bit integers. None, or the status of one that is refused: then none is left."},
    {"suppress_boxes", suppress_boxes, METH_VARARGS,
     "suppress_boxes(most_overlap, corners, order, kept, stop=None)\n\n"
     "Take boxes in an order, each unless it overlaps one that was taken before by more than that share\n"
     "of their union; without the GIL. Corners are rows of four float32 (least, then greatest), order and\n"
     "kept arrays of 64-bit integers. Return how many are kept, at most as many as fit there, or None\n"
     "once the byte of stop is set: it is looked at before each box."},
    {"zip_rows", zip_rows, METH_VARARGS,
     "zip_rows(keys, array)\n\n"
     "Return a dict of the keys and the numbers of each row of a float32 array (rows, keys)."},
    {"order_floats", order_floats, METH_VARARGS,
     "order_floats(bound, falls, nan_last, rows, values, places, stop=None)\n\n"
     "Write the places of the first float32 numbers of each row in rising or falling order, equal ones in\n"
     "theirs and NaN last or first, without the GIL. Only those above the bound count, or all if it is\n"
     "NaN. Places, 64-bit integers, are as many rows. Return how many were written, of all rows, or None\n"
     "once the byte of stop is set: it is looked at between rows, and between walks over one."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_steps", "Runs step tables; see steps.c.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__steps(void)
{
    PyObject *module, *names;

    list_kernels();
    module = PyModule_Create(&definition);
    names = PyTuple_New((Py_ssize_t)kernel_count);
    if (module == NULL || names == NULL)
        goto fail;
    for (int64_t index = 0; index < kernel_count; index++) {
        PyObject *name = PyUnicode_FromString(kernels[index]->name);
        if (name == NULL || PyTuple_SetItem(names, (Py_ssize_t)index, name) < 0)
            goto fail;
    }
    if (PyModule_AddObjectRef(module, "kernels", names) < 0 || add_atomic_runs(module) < 0
        || PyModule_AddIntConstant(module, "interface", INTERFACE) < 0)
        goto fail;
    Py_DECREF(names);
    return module;

fail:
    Py_XDECREF(module);
    Py_XDECREF(names);
    return NULL;
}
