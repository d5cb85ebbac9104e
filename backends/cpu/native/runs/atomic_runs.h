/* Runs that one call begins, computes and ends: see atomic_runs.c, and run_addresses in steps.c. */
#ifndef AIOINFER_CPU_ATOMIC_RUNS_H
#define AIOINFER_CPU_ATOMIC_RUNS_H

#include "../python_api.h"

#include <stdint.h>

/* A reading of the clock that time.perf_counter_ns reads. */
int64_t monotonic_ns(void);

/* Runs a table on the buffers at these addresses, and keeps whatever lock its caller has: its
 * status. Only the table is looked at, so that what is at the addresses is as it says. */
int run_addresses(const Py_buffer *table, char *const *addresses, int64_t count, int threads);

/* The length in bytes of a buffer that a table asks for; -1 if it has no such buffer. */
int64_t buffer_length(const Py_buffer *table, int64_t count, int64_t index);

/* Adds the type AtomicRuns to the module; -1 with an exception. */
int add_atomic_runs(PyObject *module);

#endif
