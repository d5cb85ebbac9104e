/* oneDNN's memory objects, made and freed many at a time, and what its descriptors say. */
#ifndef AIOINFER_CPU_MEMORIES_H
#define AIOINFER_CPU_MEMORIES_H

#include "python_api.h"

#include <stdint.h>

typedef int (*create_memory_function)(void **memory, const void *desc, void *engine, void *address);
typedef int (*destroy_memory_function)(void *memory);

void configure_memories(create_memory_function create, destroy_memory_function destroy);

PyObject *make_memories(PyObject *module, PyObject *args);
PyObject *free_memories(PyObject *module, PyObject *args);
PyObject *describe_memory(PyObject *module, PyObject *args);

#endif
