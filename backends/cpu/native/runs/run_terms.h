/* When a run may be atomic, and what is noted of it: the AtomicTerms of runtime/runs/atomic_run.py.
 *
 * Nothing here runs Python, nor makes an object that the garbage collector counts, but make_record.
 */
#ifndef AIOINFER_CPU_RUN_TERMS_H
#define AIOINFER_CPU_RUN_TERMS_H

#include "../python_api.h"

#include <stdint.h>

/* The terms, whose references their owner has. */
struct run_terms {
    PyObject *same, *calls, *owner_type, *owner_same, *owner_lock, *owner_run, *owner_id;
    PyObject *run_ids, *ages, *make_run, *place, *lane, *part;
    PyObject *note_latency, *note_span, *notes, *counters;
};

/* The objects that tell of one run: itself, and its span with the mark in it. */
struct run_record {
    PyObject *run, *mark, *span;
};

/* Reads them from the tuple: 0 with an exception. */
int read_terms(PyObject *given, struct run_terms *terms);

/* A new tuple that the garbage collector shows nobody before it is filled. */
PyObject *hidden_tuple(Py_ssize_t count);

/* Makes the objects of a run, empty: -1 with an exception. */
int make_record(const struct run_terms *terms, struct run_record *record);

/* Whether a run may be, for this owner (None: it has none): 1, 0, or -1 with an exception. */
int may_run(const struct run_terms *terms, PyObject *owner);

/* Fills in what is told of a run: a new number, its duration, or NULL with an exception. */
PyObject *describe(const struct run_terms *terms, struct run_record *record, PyObject *owner,
                   int64_t arrived, int64_t started, int64_t ended);

/* Notes a run wherever it is counted. */
void note_run(const struct run_terms *terms, struct run_record *record, PyObject *duration);

/* Once, before the rest: -1 with an exception. */
int name_attributes(void);

#endif
