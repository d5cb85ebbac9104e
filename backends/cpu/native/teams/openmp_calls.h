/* OpenMP by our own teams. */
#ifndef AIOINFER_CPU_OPENMP_CALLS_H
#define AIOINFER_CPU_OPENMP_CALLS_H

/* Whether a name is one that compilers call for OpenMP. */
int is_openmp_call(const char *name);

/* The function that stands for it here; NULL for one that has none. */
void *openmp_call(const char *name);

#endif
