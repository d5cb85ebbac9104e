/* Runs of one table whose arrays are like those of one that was run before.
 *
 * What a network asks of the arrays of each run (that they are plain ones, of these types and shapes,
 * side by side) is asked here in one call, and the arrays for the results are made in another, which
 * runs the table. Whatever is not exactly so is not taken: Python looks at it then, and says what is
 * wrong with it.
 *
 *   AlikeRuns(table, threads, inputs, outputs, array_type, make_array)
 *
 * inputs: ((name, dtype, shape), ...); outputs: ((name, arguments of make_array), ...), as the table
 * has its buffers. Nothing in it changes, so any thread may use it that may run the table.
 */
#include "alike_runs.h"

#include "stop_words.h"

struct input {
    PyObject *name, *dtype;
    Py_ssize_t *shape;
    int rank;
};

struct output {
    PyObject *name, *form;
};

struct alike_runs {
    PyObject_HEAD
    Py_buffer table;
    int threads;
    Py_ssize_t input_count, output_count;
    struct input *inputs;
    struct output *outputs;
    PyObject *array_type, *make_array, *dtype_text;
};

static void free_alike(PyObject *object)
{
    struct alike_runs *self = (struct alike_runs *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    for (Py_ssize_t index = 0; self->inputs != NULL && index < self->input_count; index++) {
        Py_XDECREF(self->inputs[index].name);
        Py_XDECREF(self->inputs[index].dtype);
        PyMem_Free(self->inputs[index].shape);
    }
    for (Py_ssize_t index = 0; self->outputs != NULL && index < self->output_count; index++) {
        Py_XDECREF(self->outputs[index].name);
        Py_XDECREF(self->outputs[index].form);
    }
    PyMem_Free(self->inputs);
    PyMem_Free(self->outputs);
    Py_XDECREF(self->array_type);
    Py_XDECREF(self->make_array);
    Py_XDECREF(self->dtype_text);
    if (self->table.obj != NULL)
        PyBuffer_Release(&self->table);
    release(object);
    Py_DECREF(type);
}

static int read_input(PyObject *row, struct input *input)
{
    PyObject *name, *dtype, *shape;

    if (!PyArg_ParseTuple(row, "O!OO!", &PyUnicode_Type, &name, &dtype, &PyTuple_Type, &shape))
        return -1;
    input->name = Py_NewRef(name);
    input->dtype = Py_NewRef(dtype);
    input->rank = (int)PyTuple_Size(shape);
    input->shape = PyMem_Calloc((size_t)input->rank + 1, sizeof *input->shape);
    if (input->shape == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int axis = 0; axis < input->rank; axis++)
        input->shape[axis] = PyLong_AsSsize_t(PyTuple_GetItem(shape, axis));
    return PyErr_Occurred() ? -1 : 0;
}

static int read_output(PyObject *row, struct output *output)
{
    PyObject *name, *form;

    if (!PyArg_ParseTuple(row, "O!O!", &PyUnicode_Type, &name, &PyTuple_Type, &form))
        return -1;
    output->name = Py_NewRef(name);
    output->form = Py_NewRef(form);
    return 0;
}

static PyObject *new_alike(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *table, *inputs, *outputs, *array_type, *make_array;
    int threads;

    (void)keywords;
    if (!PyArg_ParseTuple(args, "OiO!O!OO", &table, &threads, &PyTuple_Type, &inputs, &PyTuple_Type,
                          &outputs, &array_type, &make_array))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct alike_runs *self = (struct alike_runs *)allocate(type, 0);
    if (self == NULL)
        return NULL;
    self->threads = threads;
    self->input_count = PyTuple_Size(inputs);
    self->output_count = PyTuple_Size(outputs);
    self->inputs = PyMem_Calloc((size_t)self->input_count + 1, sizeof *self->inputs);
    self->outputs = PyMem_Calloc((size_t)self->output_count + 1, sizeof *self->outputs);
    self->array_type = Py_NewRef(array_type);
    self->make_array = Py_NewRef(make_array);
    self->dtype_text = PyUnicode_InternFromString("dtype");
    if (self->inputs == NULL || self->outputs == NULL) {
        PyErr_NoMemory();
        goto fail;
    }
    if (self->dtype_text == NULL || PyObject_GetBuffer(table, &self->table, PyBUF_SIMPLE) < 0)
        goto fail;
    for (Py_ssize_t index = 0; index < self->input_count; index++)
        if (read_input(PyTuple_GetItem(inputs, index), &self->inputs[index]) < 0)
            goto fail;
    for (Py_ssize_t index = 0; index < self->output_count; index++)
        if (read_output(PyTuple_GetItem(outputs, index), &self->outputs[index]) < 0)
            goto fail;
    return (PyObject *)self;

fail:
    Py_DECREF(self);
    return NULL;
}

/* 1 for an array of this type; 0 for another; -1 with an exception. */
static int has_dtype(const struct alike_runs *self, PyObject *array, PyObject *dtype)
{
    PyObject *given = PyObject_GetAttr(array, self->dtype_text);
    int is_same = given == NULL ? -1 : given == dtype;
    if (is_same == 0)
        is_same = PyObject_RichCompareBool(given, dtype, Py_EQ);
    Py_XDECREF(given);
    return is_same;
}

/* 1 for an array that lies side by side, at an address that suits its type, in this shape; else 0. */
static int has_shape(PyObject *array, const struct input *input)
{
    Py_buffer view;
    if (PyObject_GetBuffer(array, &view, PyBUF_ND) < 0) {
        PyErr_Clear(); /* there are gaps between its elements */
        return 0;
    }
    int is_same = view.ndim == input->rank
        && (view.itemsize == 0 || (uintptr_t)view.buf % (uintptr_t)view.itemsize == 0);
    for (int axis = 0; is_same && axis < view.ndim; axis++)
        is_same = view.shape[axis] == input->shape[axis];
    PyBuffer_Release(&view);
    return is_same;
}

static PyObject *take(PyObject *object, PyObject *given)
{
    const struct alike_runs *self = (struct alike_runs *)object;

    if (!PyDict_CheckExact(given) || PyDict_Size(given) != self->input_count)
        Py_RETURN_NONE;
    PyObject *taken = PyTuple_New(self->input_count);
    if (taken == NULL)
        return NULL;
    for (Py_ssize_t index = 0; index < self->input_count; index++) {
        const struct input *input = &self->inputs[index];
        PyObject *array = PyDict_GetItemWithError(given, input->name);
        int is_alike = array != NULL && (PyObject *)Py_TYPE(array) == self->array_type;
        Py_XINCREF(array);
        if (is_alike)
            is_alike = has_dtype(self, array, input->dtype);
        if (is_alike > 0)
            is_alike = has_shape(array, input);
        if (is_alike <= 0) {
            Py_XDECREF(array);
            Py_DECREF(taken);
            if (PyErr_Occurred())
                return NULL;
            Py_RETURN_NONE;
        }
        PyTuple_SetItem(taken, index, array); /* takes the reference over */
    }
    return taken;
}

/* Make an array for each output, in results by name and behind the inputs in arrays. */
static int make_outputs(const struct alike_runs *self, PyObject *results, PyObject *arrays)
{
    for (Py_ssize_t index = 0; index < self->output_count; index++) {
        const struct output *output = &self->outputs[index];
        PyObject *array = PyObject_Call(self->make_array, output->form, NULL);
        if (array == NULL)
            return -1;
        int status = PyDict_SetItem(results, output->name, array);
        if (PyTuple_SetItem(arrays, self->input_count + index, array) < 0 || status < 0)
            return -1;
    }
    return 0;
}

static PyObject *run_alike(PyObject *object, PyObject *args)
{
    const struct alike_runs *self = (struct alike_runs *)object;
    PyObject *taken, *results, *stop_word;
    const char *stop;
    int status = -1;
    int64_t step = 0;

    if (!PyArg_ParseTuple(args, "O!O!O", &PyTuple_Type, &taken, &PyDict_Type, &results, &stop_word))
        return NULL;
    if (!read_stop(stop_word, &stop))
        return NULL;
    if (PyTuple_Size(taken) != self->input_count) {
        PyErr_SetString(PyExc_ValueError, "these are not the arrays that take has returned");
        return NULL;
    }
    PyObject *arrays = PyTuple_New(self->input_count + self->output_count);
    if (arrays == NULL)
        return NULL;
    for (Py_ssize_t index = 0; index < self->input_count; index++)
        PyTuple_SetItem(arrays, index, Py_NewRef(PyTuple_GetItem(taken, index)));
    if (make_outputs(self, results, arrays) == 0)
        status = run_buffers(&self->table, arrays, self->threads, stop, NULL, NULL, &step);
    Py_DECREF(arrays);
    return run_result(status, step);
}

static PyMethodDef methods[] = {
    {"take", take, METH_O,
     "take(inputs)\n\n"
     "Return the arrays of a mapping as a tuple for run, or None if not all is exactly as it was."},
    {"run", run_alike, METH_VARARGS,
     "run(taken, results, stop)\n\n"
     "Run the table on such arrays, and put those of the results by name into a dictionary. None, or\n"
     "(status, index) as of the function run."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "What runs a table on arrays that are like those before; see alike_runs.c."},
    {Py_tp_new, new_alike},
    {Py_tp_dealloc, free_alike},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "_steps.AlikeRuns",
    .basicsize = sizeof(struct alike_runs),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int add_alike_runs(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    int status = type == NULL ? -1 : PyModule_AddObjectRef(module, "AlikeRuns", type);
    Py_XDECREF(type);
    return status;
}
