/* When a run may be atomic, and what is noted of it: see run_terms.h. */
#include "run_terms.h"

static PyObject *locked_text, *duration_text;

int name_attributes(void)
{
    locked_text = PyUnicode_InternFromString("locked");
    duration_text = PyUnicode_InternFromString("duration_ns");
    return locked_text == NULL || duration_text == NULL ? -1 : 0;
}

int read_terms(PyObject *given, struct run_terms *terms)
{
    return PyArg_ParseTuple(
        given, "O!O!OO!OOOOOOOOOOOO!O!", &PyTuple_Type, &terms->same, &PyTuple_Type, &terms->calls,
        &terms->owner_type, &PyTuple_Type, &terms->owner_same, &terms->owner_lock, &terms->owner_run, &terms->owner_id,
        &terms->run_ids, &terms->ages, &terms->make_run, &terms->place, &terms->lane, &terms->part,
        &terms->note_latency, &terms->note_span, &PyTuple_Type, &terms->notes, &PyTuple_Type,
        &terms->counters);
}

PyObject *hidden_tuple(Py_ssize_t count)
{
    PyObject *made = PyTuple_New(count);
    if (made != NULL && count > 0)
        PyObject_GC_UnTrack(made);
    return made;
}

int make_record(const struct run_terms *terms, struct run_record *record)
{
    record->mark = hidden_tuple(3);
    record->span = hidden_tuple(7);
    record->run = PyObject_CallNoArgs(terms->make_run);
    return record->mark == NULL || record->span == NULL || record->run == NULL ? -1 : 0;
}

/* 1 if an attribute is this object. */
static int is_same(PyObject *object, PyObject *name, PyObject *wanted)
{
    PyObject *found = PyObject_GetAttr(object, name);
    int answer = found == NULL ? -1 : found == wanted;
    Py_XDECREF(found);
    return answer;
}

/* 1 if what a call returns is as true as this object. */
static int is_answered(PyObject *call, PyObject *wanted)
{
    PyObject *answer = PyObject_CallNoArgs(call);
    int truth = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return truth < 0 ? -1 : truth == (wanted == Py_True);
}

static int is_unlocked(PyObject *owner, PyObject *name)
{
    PyObject *lock = PyObject_GetAttr(owner, name);
    PyObject *answer = lock == NULL ? NULL : PyObject_CallMethodObjArgs(lock, locked_text, NULL);
    int result = answer == NULL ? -1 : answer == Py_False;
    Py_XDECREF(answer);
    Py_XDECREF(lock);
    return result;
}

/* Whether the owner's attributes are as they have to be. One of a class of a user's is none that is
 * known: an attribute of it may be anything. */
static int is_idle(const struct run_terms *terms, PyObject *owner)
{
    int answer = (PyObject *)Py_TYPE(owner) == terms->owner_type;

    for (Py_ssize_t index = 0; answer > 0 && index < PyTuple_Size(terms->owner_same); index++) {
        PyObject *term = PyTuple_GetItem(terms->owner_same, index);
        answer = is_same(owner, PyTuple_GetItem(term, 0), PyTuple_GetItem(term, 1));
    }
    return answer > 0 ? is_unlocked(owner, terms->owner_lock) : answer;
}

int may_run(const struct run_terms *terms, PyObject *owner)
{
    int answer = owner == Py_None ? 1 : is_idle(terms, owner);

    for (Py_ssize_t index = 0; answer > 0 && index < PyTuple_Size(terms->same); index++) {
        PyObject *term = PyTuple_GetItem(terms->same, index);
        answer = is_same(PyTuple_GetItem(term, 0), PyTuple_GetItem(term, 1),
                         PyTuple_GetItem(term, 2));
    }
    for (Py_ssize_t index = 0; answer > 0 && index < PyTuple_Size(terms->calls); index++) {
        PyObject *term = PyTuple_GetItem(terms->calls, index);
        answer = is_answered(PyTuple_GetItem(term, 0), PyTuple_GetItem(term, 1));
    }
    return answer;
}

/* Writes the items of a new tuple that nobody else has, and takes their references; -1 if one is
 * NULL. */
static int fill(PyObject *tuple, PyObject *const *items, Py_ssize_t count)
{
    int status = 0;

    for (Py_ssize_t index = 0; index < count; index++)
        if (items[index] == NULL || PyTuple_SetItem(tuple, index, items[index]) < 0)
            status = -1;
    return status;
}

PyObject *describe(const struct run_terms *terms, struct run_record *record, PyObject *owner,
                   int64_t arrived, int64_t started, int64_t ended)
{
    PyObject *mark[] = {
        owner == Py_None ? PyIter_Next(terms->run_ids) : PyObject_GetAttr(owner, terms->owner_id),
        PyIter_Next(terms->ages),
        PyLong_FromLongLong(arrived),
    };
    int status = fill(record->mark, mark, 3);
    PyObject *span[] = {
        Py_NewRef(record->mark),
        Py_NewRef(terms->place),
        Py_NewRef(terms->lane),
        PyLong_FromLongLong(arrived),
        PyLong_FromLongLong(started),
        PyLong_FromLongLong(ended),
        Py_NewRef(terms->part),
    };
    PyObject *duration = PyLong_FromLongLong(ended - arrived);

    if (fill(record->span, span, 7) == 0 && status == 0 && duration != NULL
        && PyObject_SetAttr(record->run, duration_text, duration) == 0) {
        PyObject_GC_Track(record->span); /* a mark, which has numbers alone, need not be */
        return duration;
    }
    Py_XDECREF(duration);
    return NULL;
}

static void call_with(PyObject *call, PyObject *argument)
{
    PyObject *answer = PyObject_CallFunctionObjArgs(call, argument, NULL);
    if (answer == NULL)
        PyErr_Clear(); /* no memory: the run has been, and is told of as far as can be */
    Py_XDECREF(answer);
}

static void count_one(PyObject *object, PyObject *name, PyObject *one)
{
    PyObject *before = PyObject_GetAttr(object, name);
    PyObject *after = before == NULL ? NULL : PyNumber_Add(before, one);
    if (after == NULL || PyObject_SetAttr(object, name, after) < 0)
        PyErr_Clear();
    Py_XDECREF(before);
    Py_XDECREF(after);
}

void note_run(const struct run_terms *terms, struct run_record *record, PyObject *duration)
{
    call_with(terms->note_latency, duration);
    call_with(terms->note_span, record->span);
    for (Py_ssize_t index = 0; index < PyTuple_Size(terms->notes); index++) {
        PyObject *term = PyTuple_GetItem(terms->notes, index);
        call_with(PyTuple_GetItem(term, 0), PyTuple_GetItem(term, 1));
    }
    if (PyTuple_Size(terms->counters) == 0)
        return;
    PyObject *one = PyLong_FromLong(1);
    for (Py_ssize_t index = 0; one != NULL && index < PyTuple_Size(terms->counters); index++) {
        PyObject *term = PyTuple_GetItem(terms->counters, index);
        count_one(PyTuple_GetItem(term, 0), PyTuple_GetItem(term, 1), one);
    }
    Py_XDECREF(one);
}
