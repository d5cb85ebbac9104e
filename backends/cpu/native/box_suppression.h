/* What NonMaxSuppression keeps of the boxes of one class. */
#ifndef AIOINFER_CPU_BOX_SUPPRESSION_H
#define AIOINFER_CPU_BOX_SUPPRESSION_H

#include "python_api.h"

PyObject *suppress_boxes(PyObject *module, PyObject *args);

#endif
