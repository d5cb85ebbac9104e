/* Runs that are like one before: see alike_runs.c, and run_buffers in steps.c. */
#ifndef AIOINFER_CPU_ALIKE_RUNS_H
#define AIOINFER_CPU_ALIKE_RUNS_H

#include "python_api.h"

#include <stdint.h>

/* Runs a table on a tuple of arrays, with the GIL released: its status, and the index of what has
 * failed, or -1 with an exception. times and spent may be NULL. */
int run_buffers(const Py_buffer *table, PyObject *arrays, int threads, const char *stop,
                const Py_buffer *times, const Py_buffer *spent, int64_t *step);

/* What a run returns to Python: None, or (status, index). */
static inline PyObject *run_result(int status, int64_t step)
{
    if (status < 0)
        return NULL;
    if (status == 0)
        Py_RETURN_NONE;
    return Py_BuildValue("iL", status, (long long)step);
}

/* Adds the type AlikeRuns to the module; -1 with an exception. */
int add_alike_runs(PyObject *module);

#endif
