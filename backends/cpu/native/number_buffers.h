/* Arrays of 64-bit numbers that Python gives: held while they are used, the last one written. */
#ifndef AIOINFER_CPU_NUMBER_BUFFERS_H
#define AIOINFER_CPU_NUMBER_BUFFERS_H

#include "python_api.h"

#include <stdint.h>

/* Returns how many are held: fewer than count with an exception set. */
static inline int hold_buffers(PyObject *const *objects, Py_buffer *views, int count)
{
    int held = 0;

    while (held < count
           && PyObject_GetBuffer(objects[held], &views[held],
                                 held == count - 1 ? PyBUF_WRITABLE : PyBUF_SIMPLE)
                  >= 0)
        held++;
    return held;
}

static inline void release_buffers(Py_buffer *views, int held)
{
    while (held > 0)
        PyBuffer_Release(&views[--held]);
}

static inline Py_ssize_t count_of(const Py_buffer *buffer)
{
    return buffer->len / (Py_ssize_t)sizeof(int64_t);
}

/* What a call returns: NULL for an exception, None for 0, else oneDNN's status. */
static inline PyObject *none_or_status(int status)
{
    if (PyErr_Occurred())
        return NULL;
    if (status == 0)
        Py_RETURN_NONE;
    return PyLong_FromLong(status);
}

#endif
