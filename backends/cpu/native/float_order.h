/* The places of float32 numbers in order. */
#ifndef AIOINFER_CPU_FLOAT_ORDER_H
#define AIOINFER_CPU_FLOAT_ORDER_H

#include "python_api.h"

PyObject *order_floats(PyObject *module, PyObject *args);

#endif
