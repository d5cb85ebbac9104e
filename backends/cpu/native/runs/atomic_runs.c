/* Runs of one table that are like one that was run before, each from its beginning to its end in
 * one call that keeps the interpreter's lock.
 *
 * While a thread has that lock, and until it runs Python or gives memory back, no other thread sees
 * or changes anything of Python's. So a lock of threading that is free when it is looked at stays
 * free until the call returns, which may read and write what it guards; nobody can cancel a run that
 * is begun and ended meanwhile, or close what it uses, or interrupt it; and what is counted of it is
 * counted at once.
 *
 *   AtomicRuns(table, threads, inputs, outputs, results, array_type, make_array, terms)
 *
 * inputs: ((name, dtype, shape), ...); outputs: (arguments of make_array, ...), as the table has its
 * buffers; results: ((name, output, call of C that makes it of the output's array, or None), ...),
 * in order. terms are those of runtime/runs/atomic_run.py: when such a run may be, and what
 * is noted of it. Whatever is not exactly so is not taken: Python looks at it then, and says what is
 * wrong with it.
 *
 * The order is what makes it so. First comes all that may run Python: making the arrays, and objects
 * that the garbage collector counts, as that may call anything. Then the terms are looked at, the
 * table is run, and what is noted is noted, with numbers as the only new objects. Where results are
 * made of arrays, that comes before the notes, and the terms are looked at once more. What is
 * replaced is let go at the very end.
 */
#include "atomic_runs.h"

#include "run_terms.h"

enum { MAX_ARRAYS = 16 };

struct input {
    PyObject *name, *dtype; /* here and below: of `given`, which has the references */
    Py_ssize_t *shape;
    int rank;
};

struct atomic_runs {
    PyObject_HEAD
    PyObject *given; /* the arguments */
    Py_buffer table;
    int threads;
    Py_ssize_t input_count, output_count;
    struct input inputs[MAX_ARRAYS];
    PyObject *outputs, *results, *array_type, *make_array;
    int has_makers;
    struct run_terms terms;
};

static PyObject *dtype_text, *results_text;

static int clear_atomic(PyObject *object)
{
    struct atomic_runs *self = (struct atomic_runs *)object;
    PyObject *given = self->given;

    self->given = NULL;
    Py_XDECREF(given);
    return 0;
}

static int visit_atomic(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((struct atomic_runs *)object)->given);
    return 0;
}

static void free_atomic(PyObject *object)
{
    struct atomic_runs *self = (struct atomic_runs *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    PyObject_GC_UnTrack(object);
    for (int index = 0; index < MAX_ARRAYS; index++)
        PyMem_Free(self->inputs[index].shape);
    if (self->table.obj != NULL)
        PyBuffer_Release(&self->table);
    clear_atomic(object);
    release(object);
    Py_DECREF(type);
}

static int read_input(PyObject *row, struct input *input)
{
    PyObject *shape;

    if (!PyArg_ParseTuple(row, "O!OO!", &PyUnicode_Type, &input->name, &input->dtype,
                          &PyTuple_Type, &shape))
        return -1;
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

/* Sees to it that each result is of an output that there is. */
static int read_results(struct atomic_runs *self)
{
    for (Py_ssize_t row = 0; row < PyTuple_Size(self->results); row++) {
        PyObject *name, *make;
        Py_ssize_t output;
        if (!PyArg_ParseTuple(PyTuple_GetItem(self->results, row), "O!nO", &PyUnicode_Type, &name,
                              &output, &make))
            return -1;
        if (output < 0 || output >= self->output_count) {
            PyErr_SetString(PyExc_ValueError, "a result is of no output");
            return -1;
        }
        self->has_makers |= make != Py_None;
    }
    return 0;
}

static PyObject *new_atomic(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *table, *inputs, *terms;

    (void)keywords;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct atomic_runs *self = (struct atomic_runs *)allocate(type, 0);
    if (self == NULL)
        return NULL;
    self->given = Py_NewRef(args);
    if (!PyArg_ParseTuple(args, "OiO!O!O!OOO!", &table, &self->threads, &PyTuple_Type, &inputs,
                          &PyTuple_Type, &self->outputs, &PyTuple_Type, &self->results,
                          &self->array_type, &self->make_array, &PyTuple_Type, &terms)
        || !read_terms(terms, &self->terms))
        goto fail;
    self->input_count = PyTuple_Size(inputs);
    self->output_count = PyTuple_Size(self->outputs);
    if (self->input_count + self->output_count > MAX_ARRAYS) {
        PyErr_Format(PyExc_ValueError, "at most %d arrays", MAX_ARRAYS);
        goto fail;
    }
    if (read_results(self) < 0 || PyObject_GetBuffer(table, &self->table, PyBUF_SIMPLE) < 0)
        goto fail;
    for (Py_ssize_t index = 0; index < self->input_count; index++)
        if (read_input(PyTuple_GetItem(inputs, index), &self->inputs[index]) < 0)
            goto fail;
    return (PyObject *)self;

fail:
    Py_DECREF(self);
    return NULL;
}

/* What a run has until it is noted: objects of its own, and views of its arrays. */
struct attempt {
    Py_buffer views[MAX_ARRAYS];
    char *addresses[MAX_ARRAYS];
    Py_ssize_t held;
    PyObject *results, *outputs;
    struct run_record record;
};

/* Views an array whose bytes lie side by side: 1, 0 for another, -1 with an exception. */
static int view_array(const struct atomic_runs *self, struct attempt *attempt, PyObject *array,
                      int flags)
{
    Py_buffer *view = &attempt->views[attempt->held];
    Py_ssize_t count = self->input_count + self->output_count;

    if (PyObject_GetBuffer(array, view, flags) < 0) {
        if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_ValueError))
            return -1;
        PyErr_Clear(); /* there are gaps between its elements */
        return 0;
    }
    attempt->addresses[attempt->held] = view->buf;
    attempt->held++;
    return view->len == buffer_length(&self->table, count, attempt->held - 1);
}

/* Views the inputs if they are exactly as they were: 1; 0 if not, -1 with an exception. */
static int take_inputs(const struct atomic_runs *self, PyObject *given, struct attempt *attempt)
{
    if (!PyDict_CheckExact(given) || PyDict_Size(given) != self->input_count)
        return 0;
    for (Py_ssize_t index = 0; index < self->input_count; index++) {
        const struct input *input = &self->inputs[index];
        PyObject *array = PyDict_GetItemWithError(given, input->name);
        if (array == NULL || (PyObject *)Py_TYPE(array) != self->array_type)
            return PyErr_Occurred() ? -1 : 0;
        PyObject *dtype = PyObject_GetAttr(array, dtype_text);
        int is_alike = dtype == NULL ? -1 : dtype == input->dtype;
        if (is_alike == 0)
            is_alike = PyObject_RichCompareBool(dtype, input->dtype, Py_EQ);
        Py_XDECREF(dtype);
        if (is_alike > 0)
            is_alike = view_array(self, attempt, array, PyBUF_ND);
        if (is_alike <= 0)
            return is_alike;
        const Py_buffer *view = &attempt->views[index];
        if (view->ndim != input->rank
            || (view->itemsize > 0 && (uintptr_t)view->buf % (uintptr_t)view->itemsize != 0))
            return 0;
        for (int axis = 0; axis < view->ndim; axis++)
            if (view->shape[axis] != input->shape[axis])
                return 0;
    }
    return 1;
}

/* Puts the results in order into the dictionary, those that are made of arrays as None, or, where
 * `is_run`, as what they are: 1, or -1 with an exception. */
static int fill_results(const struct atomic_runs *self, struct attempt *attempt, int is_run)
{
    for (Py_ssize_t row = 0; row < PyTuple_Size(self->results); row++) {
        PyObject *result = PyTuple_GetItem(self->results, row), *made;
        PyObject *make = PyTuple_GetItem(result, 2);
        Py_ssize_t output = PyLong_AsSsize_t(PyTuple_GetItem(result, 1));
        PyObject *array = PyTuple_GetItem(attempt->outputs, output);
        if (is_run && make == Py_None)
            continue;
        if (make == Py_None)
            made = Py_NewRef(array);
        else
            made = is_run ? PyObject_CallFunctionObjArgs(make, array, NULL) : Py_NewRef(Py_None);
        int status = -1;
        if (made != NULL)
            status = PyDict_SetItem(attempt->results, PyTuple_GetItem(result, 0), made);
        Py_XDECREF(made);
        if (status < 0)
            return -1;
    }
    return 1;
}

/* Makes the objects of a run, and an array for each output: 1; 0 where an array is not as the table
 * has it, -1 with an exception. */
static int make_objects(const struct atomic_runs *self, struct attempt *attempt)
{
    attempt->results = PyDict_New();
    attempt->outputs = hidden_tuple(self->output_count);
    if (attempt->results == NULL || attempt->outputs == NULL
        || make_record(&self->terms, &attempt->record) < 0
        || PyObject_SetAttr(attempt->record.run, results_text, attempt->results) < 0)
        return -1;
    for (Py_ssize_t index = 0; index < self->output_count; index++) {
        PyObject *array = PyObject_Call(self->make_array, PyTuple_GetItem(self->outputs, index), NULL);
        if (array == NULL || PyTuple_SetItem(attempt->outputs, index, array) < 0)
            return -1;
        int status = view_array(self, attempt, array, PyBUF_WRITABLE);
        if (status <= 0)
            return status;
    }
    return fill_results(self, attempt, 0);
}

/* What has failed is left to the usual way, but for what ends a thread: 0, or -1 with that. */
static int not_taken(void)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1;
    PyErr_Clear();
    return 0;
}

/* Runs it if it may be run: 1; 0 with nothing noted, -1 so with an exception. `before` gets the run
 * that its owner had. */
static int run_whole(const struct atomic_runs *self, struct attempt *attempt, PyObject *owner,
                     int64_t arrived, PyObject **before)
{
    int answer = may_run(&self->terms, owner);
    if (answer <= 0)
        return answer;
    int64_t started = monotonic_ns();
    if (run_addresses(&self->table, attempt->addresses, attempt->held, self->threads) != 0)
        return 0; /* the usual way finds it, too, and says what it is */
    if (self->has_makers) {
        if (fill_results(self, attempt, 1) < 0)
            return not_taken(); /* as above */
        answer = may_run(&self->terms, owner);
        if (answer <= 0)
            return answer;
    }
    PyObject *duration = describe(&self->terms, &attempt->record, owner, arrived, started, monotonic_ns());
    if (duration == NULL)
        return not_taken();
    if (owner != Py_None) {
        *before = PyObject_GetAttr(owner, self->terms.owner_run);
        if (*before == NULL
            || PyObject_SetAttr(owner, self->terms.owner_run, attempt->record.run) < 0) {
            Py_DECREF(duration);
            return not_taken();
        }
    }
    note_run(&self->terms, &attempt->record, duration);
    Py_DECREF(duration);
    return 1;
}

static PyObject *attempt_run(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    const struct atomic_runs *self = (struct atomic_runs *)object;
    struct attempt attempt;
    PyObject *before = NULL;
    int64_t arrived = monotonic_ns();

    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "attempt(inputs, owner)");
        return NULL;
    }
    if (self->given == NULL) /* the garbage collector has it */
        Py_RETURN_NONE;
    attempt.held = 0;
    attempt.results = attempt.outputs = NULL;
    attempt.record = (struct run_record){NULL, NULL, NULL};
    int answer = take_inputs(self, args[0], &attempt);
    if (answer > 0)
        answer = make_objects(self, &attempt);
    if (answer > 0)
        answer = run_whole(self, &attempt, args[1], arrived, &before);
    if (answer < 0)
        answer = not_taken();
    while (attempt.held > 0)
        PyBuffer_Release(&attempt.views[--attempt.held]);
    Py_XDECREF(attempt.outputs);
    Py_XDECREF(attempt.results);
    Py_XDECREF(attempt.record.mark);
    Py_XDECREF(attempt.record.span);
    Py_XDECREF(before);
    if (answer > 0)
        return attempt.record.run;
    Py_XDECREF(attempt.record.run);
    if (answer < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"attempt", (PyCFunction)(void (*)(void))attempt_run, METH_FASTCALL,
     "attempt(inputs, owner)\n\n"
     "Run the table on the arrays of a dictionary and return the run, ended and noted; None, with\n"
     "nothing noted, if arrays or terms are not exactly as they have to be."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "What runs a table on arrays that are like those before; see atomic_runs.c."},
    {Py_tp_new, new_atomic},
    {Py_tp_dealloc, free_atomic},
    {Py_tp_traverse, visit_atomic},
    {Py_tp_clear, clear_atomic},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "_steps.AtomicRuns",
    .basicsize = sizeof(struct atomic_runs),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};

int add_atomic_runs(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    int status = type == NULL ? -1 : PyModule_AddObjectRef(module, "AtomicRuns", type);
    Py_XDECREF(type);
    dtype_text = PyUnicode_InternFromString("dtype");
    results_text = PyUnicode_InternFromString("results");
    if (dtype_text == NULL || results_text == NULL || name_attributes() < 0)
        return -1;
    return status;
}
