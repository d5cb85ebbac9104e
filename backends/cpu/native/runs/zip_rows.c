/* A dict for each row of a tensor, from a key to the number in its column: what ZipMap makes. */
#include "zip_rows.h"

static PyObject *zip_row(PyObject *keys, const float *row, Py_ssize_t count)
{
    PyObject *made = PyDict_New();
    for (Py_ssize_t column = 0; made != NULL && column < count; column++) {
        PyObject *number = PyFloat_FromDouble(row[column]);
        int status = number == NULL
            ? -1
            : PyDict_SetItem(made, PyTuple_GetItem(keys, column), number);
        Py_XDECREF(number);
        if (status < 0)
            Py_CLEAR(made);
    }
    return made;
}

PyObject *zip_rows(PyObject *module, PyObject *args)
{
    PyObject *keys, *array;
    Py_buffer view;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!O", &PyTuple_Type, &keys, &array))
        return NULL;
    if (PyObject_GetBuffer(array, &view, PyBUF_ND | PyBUF_FORMAT) < 0)
        return NULL;
    Py_ssize_t count = PyTuple_Size(keys);
    PyObject *rows = NULL;
    if (view.ndim != 2 || view.shape[1] != count || view.itemsize != sizeof(float)
        || view.format == NULL || view.format[0] != 'f') {
        PyErr_Format(PyExc_ValueError, "%zd keys want a float32 tensor of as many columns", count);
        goto release;
    }
    rows = PyList_New(view.shape[0]);
    for (Py_ssize_t index = 0; rows != NULL && index < view.shape[0]; index++) {
        PyObject *row = zip_row(keys, (const float *)view.buf + index * count, count);
        if (row == NULL || PyList_SetItem(rows, index, row) < 0)
            Py_CLEAR(rows);
    }
release:
    PyBuffer_Release(&view);
    return rows;
}
