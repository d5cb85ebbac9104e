/* Another library's OpenMP calls, turned to our own teams. */
#ifndef AIOINFER_CPU_ADOPTED_LIBRARY_H
#define AIOINFER_CPU_ADOPTED_LIBRARY_H

#include "../python_api.h"

PyObject *adopt_library(PyObject *module, PyObject *args);

#endif
