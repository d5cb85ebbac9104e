/* Python's stable ABI, which a free-threaded interpreter does not have. To be included first. */
#ifndef AIOINFER_CPU_PYTHON_API_H
#define AIOINFER_CPU_PYTHON_API_H

#include <pyconfig.h>
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#endif
