/* As boundary/work.py and boundary/handles.py: a call that is not over when it is issued, until somebody has waited. */

#include "hot.h"

#include <structmember.h>

/* What the rank knows of a call that somebody is to wait for; `lost` once nobody can any more. */
typedef struct Held {
    PyObject_VAR_HEAD
    PyObject *number, *habit, *sequence, *of_all, *handles, *found; /* the last is for Python to keep there */
    char lost, settled;
    Span spans[];
} Held;

/* The method `wait` of a handle in Python, which holds what is `Issued`. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *within, *no_timeout; /* what waits for as long as it is told, and torch's word for the group's own */
} Waiting;

#define NAMES(X)                                                                                                       \
    X(issued) X(wait) X(is_completed) X(fail) X(numbers) X(unsettled) X(under_way) X(watch) X(begin) X(end)            \
    X(loosen) X(trim) X(modes) X(depth)
NAMES(DECLARE_NAME)

int make_names_of_issued(void) {
    NAMES(MAKE_NAME)
    return 0;
}

enum { MOST_WATCHED = 256 }; /* as in boundary/handles.py */

/* ---------------------------------------------------------------------------------------------- Held */

static void let_go_of_tensors(Held *self) {
    for (Py_ssize_t count = Py_SIZE(self); count--;) Py_CLEAR(self->spans[count].tensor);
}

/* Takes it out of a dictionary of the handles; 1 if nothing is left there, 0 if something is, -1 with an exception. */
static int drop(Held *self, PyObject *name) {
    PyObject *among = PyObject_GetAttr(self->handles, name);
    if (!among) return -1;
    int there = PyDict_Check(among) ? PyDict_Contains(among, self->number) : 0;
    int left = there > 0 ? PyDict_DelItem(among, self->number) : there;
    if (!left) left = there && !PyDict_GET_SIZE(among);
    Py_DECREF(among);
    return left;
}

/* As `AccessWatch.begin` and `end`, where the mode is the only one of its thread or there is none: torch's functions for
   its stack, and how deep the thread is in calls for which it takes that off, are `modes`. */
static int depth_of(PyObject *modes) {
    PyObject *depth = PyTuple_Check(modes) && PyTuple_GET_SIZE(modes) == 4
                          ? PyObject_CallNoArgs(PyTuple_GET_ITEM(modes, 0))
                          : PyErr_Format(PyExc_TypeError, "no such modes");
    int found = depth ? (int)PyLong_AsLong(depth) : -1;
    Py_XDECREF(depth);
    return found;
}

static int call_watch(PyObject *handles, PyObject *name) {
    PyObject *watch = PyObject_GetAttr(handles, s_watch);
    PyObject *done = watch ? PyObject_CallMethodNoArgs(watch, name) : NULL;
    Py_XDECREF(watch);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int watch_from_here(PyObject *handles) {
    PyObject *modes = PyObject_GetAttr(handles, s_modes), *inside = NULL, *watch = NULL, *done = NULL;
    int modes_on = modes ? depth_of(modes) : -1;
    if (!modes_on) inside = PyObject_GetAttr(PyTuple_GET_ITEM(modes, 3), s_depth);
    int off = inside ? PyObject_IsTrue(inside) : -1;
    if (!off && (watch = PyObject_GetAttr(handles, s_watch))) done = PyObject_CallOneArg(PyTuple_GET_ITEM(modes, 1), watch);
    int failed = modes_on < 0 || (!modes_on && (off < 0 || (!off && !done)));
    Py_XDECREF(modes);
    Py_XDECREF(inside);
    Py_XDECREF(watch);
    Py_XDECREF(done);
    return failed ? -1 : modes_on ? call_watch(handles, s_begin) : 0;
}

static int watch_no_more(PyObject *handles) {
    PyObject *modes = PyObject_GetAttr(handles, s_modes), *watch = NULL, *only = NULL;
    int modes_on = modes ? depth_of(modes) : -1, failed = modes_on < 0;
    if (modes_on == 1) {
        watch = PyObject_GetAttr(handles, s_watch);
        only = watch ? PyObject_CallNoArgs(PyTuple_GET_ITEM(modes, 2)) : NULL;
        failed = !only;
        if (only && only != watch) { /* the user's own */
            PyObject *done = PyObject_CallOneArg(PyTuple_GET_ITEM(modes, 1), only);
            failed = !done;
            Py_XDECREF(done);
        }
    }
    Py_XDECREF(modes);
    Py_XDECREF(watch);
    Py_XDECREF(only);
    return failed ? -1 : modes_on > 1 ? call_watch(handles, s_end) : 0;
}

/* Of what nobody watches any more nothing is told: there was something else wrong, or the body is over. */
static int is_watched(Held *self) {
    PyObject *among = PyObject_GetAttr(self->handles, s_under_way);
    int there = among && PyDict_Check(among) ? PyDict_Contains(among, self->number) : among ? 0 : -1;
    Py_XDECREF(among);
    return there;
}

static int tell_of_change(Held *self, int how, int written) {
    PyObject *told = PyObject_CallMethod(self->handles, "changed", "Oii", self, how, written);
    Py_XDECREF(told);
    return told ? 0 : -1;
}

static int settle(Held *self) {
    int how = AS_IT_WAS, written = 0, watched = 0;
    if (!self || self->settled) return 0;
    self->settled = 1;
    for (Py_ssize_t each = 0; !how && each < Py_SIZE(self); each++) {
        how = look_again(&self->spans[each]);
        written = self->spans[each].written;
    }
    if (how) watched = is_watched(self);
    int last = watched < 0 || drop(self, s_unsettled) < 0 ? -1 : Py_SIZE(self) ? drop(self, s_under_way) : 0;
    let_go_of_tensors(self);
    if (last > 0) last = watch_no_more(self->handles);
    return last < 0 ? last : watched ? tell_of_change(self, how, written) : 0;
}

/* Nobody has waited, and nobody can any more: only their memory is of interest, for as long as it is theirs. */
static void lose(Held *self) {
    PyObject *type, *error, *traceback;
    if (self->settled || self->lost) return;
    PyErr_Fetch(&type, &error, &traceback);
    self->lost = 1;
    PyObject *done = PyObject_CallMethodNoArgs((PyObject *)self, s_loosen);
    if (!done) PyErr_WriteUnraisable((PyObject *)self);
    Py_XDECREF(done);
    let_go_of_tensors(self);
    PyErr_Restore(type, error, traceback);
}

int may_meet(PyObject *under_way, const Spans *spans) {
    PyObject *handle;
    Py_ssize_t at = 0;
    if (!PyDict_Check(under_way)) return 1;
    while (PyDict_Next(under_way, &at, NULL, &handle)) {
        Held *held = (Held *)handle;
        if (!PyObject_TypeCheck(handle, &HeldType) || held->lost) return 1;
        for (Py_ssize_t theirs = 0; theirs < Py_SIZE(held); theirs++)
            for (int ours = 0; ours < spans->count; ours++) {
                const Span *one = &held->spans[theirs], *other = &spans->span[ours];
                if ((one->written || other->written) && one->start < other->end && other->start < one->end) return 1;
            }
    }
    return 0;
}

static Held *make_held(PyObject *type, PyObject *handles, PyObject *habit, PyObject *sequence, PyObject *of_all,
                       Spans *spans) {
    PyObject *numbers = PyObject_GetAttr(handles, s_numbers), *number = NULL;
    if (numbers && Py_IS_TYPE(numbers, &NumberingType)) number = Numbering_take(numbers, NULL);
    else if (numbers) PyErr_SetString(PyExc_TypeError, "handles are numbered in C");
    Py_XDECREF(numbers);
    Held *held = number ? (Held *)((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, spans->count) : NULL;
    if (!held) {
        Py_XDECREF(number);
        return NULL;
    }
    held->number = number;
    held->habit = Py_NewRef(habit);
    held->sequence = Py_NewRef(sequence);
    held->of_all = Py_NewRef(of_all);
    held->handles = Py_NewRef(handles);
    memcpy(held->spans, spans->span, spans->count * sizeof *spans->span);
    take_prints(held->spans, Py_SIZE(held));
    spans->count = 0;
    return held;
}

/* Notes it among the handles; `watched` is whether its memory is. */
static int note_held(Held *held, PyObject *name, int watched) {
    PyObject *among = PyObject_GetAttr(held->handles, name), *done = NULL;
    int noted = among ? PyDict_SetItem(among, held->number, (PyObject *)held) : -1;
    Py_ssize_t count = noted < 0 ? 0 : PyDict_GET_SIZE(among);
    Py_XDECREF(among);
    if (noted < 0 || !watched) return noted;
    if (count > MOST_WATCHED) {
        done = PyObject_CallMethodNoArgs(held->handles, s_trim);
        if (!done) return -1;
        Py_DECREF(done);
    }
    return watch_from_here(held->handles);
}

int Issued_hold(Issued *issued, PyObject *type, PyObject *handles, PyObject *habit, PyObject *sequence,
                PyObject *of_all, Spans *spans) {
    Held *held = make_held(type, handles, habit, sequence, of_all, spans);
    if (!held) return -1;
    issued->handle = held;
    int noted = note_held(held, s_unsettled, 0);
    if (!noted && Py_SIZE(held)) noted = note_held(held, s_under_way, 1);
    return noted;
}

static PyObject *Held_spans(Held *self, PyObject *Py_UNUSED(unused)) {
    PyObject *found = PyList_New(0);
    for (Py_ssize_t each = 0; found && each < Py_SIZE(self); each++) {
        Span *one = &self->spans[each];
        if (!one->tensor) continue;
        PyObject *told = Py_BuildValue("(KKON)", one->start, one->end, one->tensor, PyBool_FromLong(one->written));
        if (!told || PyList_Append(found, told) < 0) Py_CLEAR(found);
        Py_XDECREF(told);
    }
    return found;
}

static PyObject *Held_settle(Held *self, PyObject *Py_UNUSED(unused)) {
    return settle(self) < 0 ? NULL : Py_NewRef(Py_None);
}

static int Held_traverse(Held *self, visitproc visit, void *arg) {
    Py_VISIT(self->habit);
    Py_VISIT(self->of_all);
    Py_VISIT(self->handles);
    Py_VISIT(self->found);
    for (Py_ssize_t each = 0; each < Py_SIZE(self); each++) Py_VISIT(self->spans[each].tensor);
    return 0;
}

static void Held_dealloc(Held *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    let_go_of_tensors(self);
    PyObject *held[] = {self->number, self->habit, self->sequence, self->of_all, self->handles, self->found};
    for (size_t each = 0; each < sizeof held / sizeof *held; each++) Py_XDECREF(held[each]);
    type->tp_free((PyObject *)self);
}

static PyMethodDef Held_methods[] = {
    {"settle", (PyCFunction)Held_settle, METH_NOARGS, NULL},
    {"spans", (PyCFunction)Held_spans, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef Held_members[] = {
    {"number", T_OBJECT_EX, offsetof(Held, number), READONLY, NULL},
    {"habit", T_OBJECT_EX, offsetof(Held, habit), READONLY, NULL},
    {"sequence", T_OBJECT_EX, offsetof(Held, sequence), READONLY, NULL},
    {"of_all", T_OBJECT_EX, offsetof(Held, of_all), READONLY, NULL},
    {"lost", T_BOOL, offsetof(Held, lost), READONLY, NULL},
    {"found", T_OBJECT, offsetof(Held, found), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject HeldType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankdrill.native.hot.Held",
    .tp_basicsize = offsetof(Held, spans),
    .tp_itemsize = sizeof(Span),
    .tp_dealloc = (destructor)Held_dealloc,
    .tp_traverse = (traverseproc)Held_traverse,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_methods = Held_methods,
    .tp_members = Held_members,
};

/* ---------------------------------------------------------------------------------------------- Issued */

Issued *Issued_make(PyObject *group, PyObject *boundary, PyObject *ledger, PyObject *stencil, PyObject *record,
                    PyObject *inner, PyObject *patience) {
    Issued *self = (Issued *)IssuedType.tp_alloc(&IssuedType, 0);
    if (!self) return NULL;
    self->group = Py_NewRef(group);
    self->boundary = Py_NewRef(boundary);
    self->ledger = Py_NewRef(ledger);
    self->stencil = Py_NewRef(stencil);
    self->record = Py_NewRef(record);
    self->inner = Py_NewRef(inner);
    self->patience = Py_NewRef(patience);
    return self;
}

/* Notes how far it got, unless the boundary has another ledger by now, or none, as in a child of the rank. */
static int note_in_ledger(Issued *self, int (*note)(PyObject *, PyObject *)) {
    if (((Gate *)self->boundary)->field[GATE_LEDGER] != self->ledger) return 0;
    return note ? note(self->stencil, self->record) : Stencil_note_waiting(self->stencil, self->record, self->patience);
}

static void tell_of_failure(Issued *self) {
    Raised raised;
    put_aside(&raised);
    PyObject *told = PyObject_CallMethodObjArgs(self->boundary, s_fail, self->record, raised.error, NULL);
    if (!told) PyErr_WriteUnraisable(self->boundary);
    Py_XDECREF(told);
    set_again(&raised);
}

static PyObject *wait_for(Issued *self) {
    if (settle(self->handle) < 0) return NULL;
    if (!self->over && note_in_ledger(self, NULL) < 0) return NULL;
    PyObject *done = PyObject_CallMethodNoArgs(self->inner, s_wait);
    int is_done = done ? PyObject_IsTrue(done) : -1;
    Py_XDECREF(done);
    if (is_done < 0) {
        tell_of_failure(self);
        return NULL;
    }
    return note_in_ledger(self, Stencil_note_ended) < 0 ? NULL : PyBool_FromLong(is_done);
}

/* 1 or 0, -1 with an exception; what is over is written down as that. */
static int is_over(Issued *self) {
    PyObject *done = PyObject_CallMethodNoArgs(self->inner, s_is_completed);
    int is_done = done ? PyObject_IsTrue(done) : -1;
    Py_XDECREF(done);
    if (is_done == 1 && !self->over) {
        self->over = 1;
        if (note_in_ledger(self, Stencil_note_ended) < 0) return -1;
    }
    return is_done;
}

static PyObject *Issued_begin_waiting(Issued *self, PyObject *Py_UNUSED(unused)) {
    int over = is_over(self);
    return over < 0 || (!over && note_in_ledger(self, NULL) < 0) ? NULL : Py_NewRef(Py_None);
}

static PyObject *Issued_stop_waiting(Issued *self, PyObject *Py_UNUSED(unused)) {
    int over = is_over(self);
    return over < 0 || (!over && note_in_ledger(self, Stencil_note_issued) < 0) ? NULL : Py_NewRef(Py_None);
}

static PyObject *Issued_settle(Issued *self, PyObject *Py_UNUSED(unused)) {
    return settle(self->handle) < 0 ? NULL : Py_NewRef(Py_None);
}

static int Issued_traverse(Issued *self, visitproc visit, void *arg) {
    Py_VISIT(self->inner);
    Py_VISIT(self->boundary);
    Py_VISIT(self->ledger);
    Py_VISIT(self->group);
    Py_VISIT((PyObject *)self->handle);
    return 0;
}

static void Issued_dealloc(Issued *self) {
    PyObject_GC_UnTrack(self);
    if (self->handle) lose(self->handle);
    PyObject *held[] = {self->inner,  self->stencil, self->record, self->patience, self->boundary,
                        self->ledger, self->group,   (PyObject *)self->handle};
    for (size_t each = 0; each < sizeof held / sizeof *held; each++) Py_XDECREF(held[each]);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef Issued_methods[] = {
    {"begin_waiting", (PyCFunction)Issued_begin_waiting, METH_NOARGS, NULL},
    {"stop_waiting", (PyCFunction)Issued_stop_waiting, METH_NOARGS, NULL},
    {"settle", (PyCFunction)Issued_settle, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef Issued_members[] = {
    {"inner", T_OBJECT_EX, offsetof(Issued, inner), READONLY, NULL},
    {"boundary", T_OBJECT_EX, offsetof(Issued, boundary), READONLY, NULL},
    {"record", T_OBJECT_EX, offsetof(Issued, record), READONLY, NULL},
    {"group", T_OBJECT_EX, offsetof(Issued, group), READONLY, NULL},
    {"patience_ms", T_OBJECT_EX, offsetof(Issued, patience), READONLY, NULL},
    {"over", T_BOOL, offsetof(Issued, over), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject IssuedType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankdrill.native.hot.Issued",
    .tp_basicsize = sizeof(Issued),
    .tp_dealloc = (destructor)Issued_dealloc,
    .tp_traverse = (traverseproc)Issued_traverse,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_methods = Issued_methods,
    .tp_members = Issued_members,
};

/* ---------------------------------------------------------------------------------------------- Waiting */

static PyObject *Waiting_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
    Waiting *self = (Waiting *)object;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    int own = count == 1 || count == 2 ? !names : 0;
    if (own && count == 2) own = PyObject_RichCompareBool(args[1], self->no_timeout, Py_EQ); /* as C++ asks */
    if (own < 0) return NULL;
    if (!own) return PyObject_Vectorcall(self->within, args, flags, names);
    PyObject *issued = PyObject_GetAttr(args[0], s_issued), *done = NULL;
    if (issued && Py_IS_TYPE(issued, &IssuedType)) done = wait_for((Issued *)issued);
    else if (issued) PyErr_SetString(PyExc_TypeError, "nothing was issued");
    Py_XDECREF(issued);
    return done;
}

static PyObject *Waiting_get(PyObject *self, PyObject *work, PyObject *Py_UNUSED(type)) {
    return work && work != Py_None ? PyMethod_New(self, work) : Py_NewRef(self);
}

/* What functions are asked for by those that wrap them, `functools.wraps` and others. */
static PyObject *Waiting_told(PyObject *self, void *name) {
    return PyObject_GetAttrString(((Waiting *)self)->within, name);
}

static PyGetSetDef Waiting_getset[] = {
    {"__name__", Waiting_told, NULL, NULL, "__name__"},
    {"__qualname__", Waiting_told, NULL, NULL, "__qualname__"},
    {"__module__", Waiting_told, NULL, NULL, "__module__"},
    {"__doc__", Waiting_told, NULL, NULL, "__doc__"},
    {NULL, NULL, NULL, NULL, NULL},
};

static void Waiting_dealloc(Waiting *self) {
    Py_XDECREF(self->within);
    Py_XDECREF(self->no_timeout);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *Waiting_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *within, *no_timeout;
    if (kwargs && PyDict_GET_SIZE(kwargs)) return PyErr_Format(PyExc_TypeError, "Waiting takes no names");
    if (!PyArg_ParseTuple(args, "OO", &within, &no_timeout)) return NULL;
    Waiting *self = (Waiting *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->vectorcall = Waiting_call;
    self->within = Py_NewRef(within);
    self->no_timeout = Py_NewRef(no_timeout);
    return (PyObject *)self;
}

PyTypeObject WaitingType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankdrill.native.hot.Waiting",
    .tp_basicsize = sizeof(Waiting),
    .tp_dealloc = (destructor)Waiting_dealloc,
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = Waiting_get,
    .tp_vectorcall_offset = offsetof(Waiting, vectorcall),
    .tp_getset = Waiting_getset,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = Waiting_new,
};
