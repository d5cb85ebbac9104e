/* oneDNN's primitives, compiled many at a time and by several threads. */
#ifndef AIOINFER_CPU_PRIMITIVES_H
#define AIOINFER_CPU_PRIMITIVES_H

#include "python_api.h"

typedef int (*create_primitive_function)(void **primitive, const void *desc);
typedef int (*destroy_primitive_function)(void *primitive);

void configure_primitives(create_primitive_function create, destroy_primitive_function destroy);

PyObject *make_primitives(PyObject *module, PyObject *args);

#endif
