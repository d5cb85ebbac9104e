/* The stop word of a run, as Python gives it to a call: see steps.h. */
#ifndef AIOINFER_CPU_STOP_WORDS_H
#define AIOINFER_CPU_STOP_WORDS_H

#include "python_api.h"

#include "steps.h"

/* Finds the word, which is never resized and which the caller holds; None is a run without one.
 * Returns 0 with an exception set for what is no such word. */
static inline int read_stop(PyObject *object, const char **stop)
{
    *stop = NULL;
    if (object == Py_None)
        return 1;
    if (!PyByteArray_Check(object) || PyByteArray_Size(object) < 1) {
        PyErr_SetString(PyExc_TypeError, "a stop word is a bytearray of one byte");
        return 0;
    }
    *stop = PyByteArray_AsString(object);
    return 1;
}

/* What a call that counts returns: NULL for an exception, None once the word is set. */
static inline PyObject *count_or_none(int64_t count, const char *stop)
{
    if (PyErr_Occurred())
        return NULL;
    if (is_stopped(stop))
        Py_RETURN_NONE;
    return PyLong_FromLongLong(count);
}

#endif
