/* Dicts of the rows of a tensor: see zip_rows.c. */
#ifndef AIOINFER_CPU_ZIP_ROWS_H
#define AIOINFER_CPU_ZIP_ROWS_H

#include "../python_api.h"

PyObject *zip_rows(PyObject *module, PyObject *args);

#endif
