/* As `plain_path` of boundary/beaten.py: a call from its arguments to its end, where nothing stands in its way. */

#include "hot.h"

#include <structmember.h>

/* Of one group, what its calls look at each time. */
typedef struct {
    PyObject_HEAD
    PyObject *boundary, *inside, *made, *buckets, *waiting, *by_key, *inner, *sequence, *patience_ms;
} Way;

/* A method of groups: in the place of `general`, which makes all calls that are not for this path. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *method, *general, *call_site, *learn, *failed, *own_patience;
    Asked asked;
    Py_ssize_t given; /* how many arguments such a call has */
} Beaten;

#define NAMES(X)                                                                                                       \
    X(way) X(in_use) X(calls) X(last_used) X(recorded) X(depth) X(interceptors) X(handles) X(under_way) X(ledger)      \
    X(watch) X(suit) X(stencil) X(enter) X(timeout) X(wait)
NAMES(DECLARE_NAME)

static PyObject *one; /* as the depth of a boundary that is closed once */

int make_names_of_state(void) {
    NAMES(MAKE_NAME)
    return (one = PyLong_FromLong(1)) ? 0 : -1;
}

enum { MOST_HELD = 24 }; /* one for each `hold` and `get` below, and some */

/* What is looked at is held until the call is over: others may be put in its place meanwhile. */
typedef struct {
    PyObject *held[MOST_HELD];
    int count;
} Held;

static PyObject *hold(Held *held, PyObject *value) {
    if (value) held->held[held->count++] = value;
    return value;
}

static PyObject *get(Held *held, PyObject *of, PyObject *name) { return hold(held, PyObject_GetAttr(of, name)); }

/* Whether `of.name` is empty, false, zero or None: 1 or 0, -1 with an exception. */
static int is_empty(PyObject *of, PyObject *name) {
    PyObject *value = PyObject_GetAttr(of, name);
    int empty = value ? PyObject_Not(value) : -1;
    Py_XDECREF(value);
    return empty;
}

/* Whether a call made now, on this thread, is a step of which nobody but ledger and watch is to be told. */
static int is_calm(Held *held, Way *way) {
    PyObject *handled = PyErr_GetHandledException();
    Py_XDECREF(handled);
    if ((handled && handled != Py_None) || PyList_GET_SIZE(way->waiting)) return 0;
    int unrecorded = is_empty(way->boundary, s_recorded);
    if (unrecorded) return unrecorded < 0 ? -1 : 0;
    int calm = is_empty(way->boundary, s_interceptors);
    if (calm == 1) calm = is_empty(way->inside, s_depth);
    if (calm == 1) calm = is_empty(way->buckets, s_in_use); /* they are numbered as they come */
    if (calm != 1) return calm;
    PyObject *handles = get(held, way->boundary, s_handles);
    return !handles ? -1 : handles == Py_None ? 1 : is_empty(handles, s_under_way);
}

static PyObject *habit_of(Beaten *self, Held *held, PyObject *group, Way *way, PyObject *const *args) {
    PyObject *site = hold(held, PyObject_CallNoArgs(self->call_site));
    PyObject *key = site ? hold(held, key_of(&self->asked, args, self->given, site)) : NULL;
    if (!key || key == Py_None) return key;
    PyObject *habit = PyDict_GetItemWithError(way->by_key, key);
    if (habit || PyErr_Occurred()) return hold(held, Py_XNewRef(habit));
    PyObject *given = hold(held, PyTuple_New(self->given));
    if (!given) return NULL;
    for (Py_ssize_t each = 0; each < self->given; each++) PyTuple_SET_ITEM(given, each, Py_NewRef(args[each]));
    return hold(held, PyObject_CallFunctionObjArgs(self->learn, group, given, site, key, NULL));
}

/* Where the call is written down, once it is sure that it is; None where that is not done in C. */
static PyObject *stencil_of(Held *held, PyObject *group, Way *way, PyObject *habit) {
    PyObject *ledger = get(held, way->boundary, s_ledger), *watch = get(held, way->boundary, s_watch);
    PyObject *its_ledger = get(held, habit, s_ledger), *its_watch = get(held, habit, s_watch);
    if (!ledger || !watch || !its_ledger || !its_watch) return NULL;
    if ((ledger != its_ledger || watch != its_watch) && !hold(held, PyObject_CallMethodOneArg(habit, s_suit, group)))
        return NULL;
    PyObject *stencil = get(held, habit, s_stencil);
    return !stencil || Py_IS_TYPE(stencil, &StencilType) ? stencil : Py_None;
}

/* `failed` is told of the exception that is set, which stays set. */
static void tell_failed(Beaten *self, PyObject *group, PyObject *habit, PyObject *number, PyObject *record, int issued) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    PyObject *told = PyObject_CallFunctionObjArgs(self->failed, group, habit, number, record, error,
                                                  issued ? Py_True : Py_False, NULL);
    if (!told) PyErr_WriteUnraisable(self->failed);
    Py_XDECREF(told);
    PyErr_Restore(type, error, traceback);
}

/* After how many milliseconds the backend gives up; asked once it is at it, when there is time. */
static PyObject *patience_of(Beaten *self, Held *held, PyObject *group, Way *way, PyObject *opts) {
    PyObject *timeout = get(held, opts, s_timeout), *none = self->asked.no_timeout;
    int own = timeout ? PyObject_RichCompareBool(timeout, none, Py_GT) : -1;
    if (own <= 0) return own < 0 ? NULL : way->patience_ms;
    return hold(held, PyObject_CallFunctionObjArgs(self->own_patience, group, opts, NULL));
}

static int wait_for(Beaten *self, Held *held, PyObject *group, Way *way, PyObject *opts, PyObject *stencil,
                    PyObject *record, PyObject *work) {
    PyObject *patience = patience_of(self, held, group, way, opts);
    if (!patience || Stencil_note_waiting(stencil, record, patience) < 0) return -1;
    return hold(held, PyObject_CallMethodNoArgs(work, s_wait)) ? 0 : -1;
}

/* From the record's beginning to its end; what is returned is the backend's handle. */
static PyObject *make(Beaten *self, Held *held, PyObject *group, Way *way, PyObject *habit, PyObject *stencil,
                      PyObject *const *args) {
    PyObject *enter = get(held, habit, s_enter), *number = enter ? hold(held, Numbering_take(way->sequence, NULL)) : NULL;
    PyObject *record = number ? hold(held, Stencil_begin(stencil, number)) : NULL;
    if (!record) return NULL;
    PyObject *given[8] = {way->inner}, *work = NULL;
    memcpy(given + 1, args, self->given * sizeof *args);
    if (enter == Py_None || hold(held, PyObject_CallOneArg(enter, number)))
        work = PyObject_VectorcallMethod(self->method, given, (size_t)(self->given + 1), NULL);
    int issued = work != NULL, done = issued ? 0 : -1;
    if (issued && work != Py_None) done = wait_for(self, held, group, way, args[self->given - 1], stencil, record, work);
    if (done < 0) tell_failed(self, group, habit, number, record, issued);
    else done = Stencil_note_ended(stencil, record);
    if (done < 0) Py_CLEAR(work);
    return work;
}

/* The moment at which the group was last used, counted in calls of any group; see `MadeGroups.use`. */
static int note_use(PyObject *group, Way *way) {
    PyObject *before = PyObject_GetAttr(way->made, s_calls);
    PyObject *moment = before ? PyNumber_Add(before, one) : NULL;
    int set = moment ? PyObject_SetAttr(way->made, s_calls, moment) : -1;
    if (!set) set = PyObject_SetAttr(group, s_last_used, moment);
    Py_XDECREF(before);
    Py_XDECREF(moment);
    return set;
}

/* `make`, with the boundary closed, which was open. */
static PyObject *make_closed(Beaten *self, Held *held, PyObject *group, Way *way, PyObject *habit, PyObject *stencil,
                             PyObject *const *args) {
    PyObject *zero = get(held, way->inside, s_depth), *type, *error, *traceback;
    if (!zero || note_use(group, way) < 0 || PyObject_SetAttr(way->inside, s_depth, one) < 0) return NULL;
    PyObject *work = make(self, held, group, way, habit, stencil, args);
    PyErr_Fetch(&type, &error, &traceback);
    if (PyObject_SetAttr(way->inside, s_depth, zero) < 0) PyErr_WriteUnraisable(way->inside);
    PyErr_Restore(type, error, traceback);
    return work;
}

/* The call; `Py_NotImplemented`, borrowed, where it is not for this path. */
static PyObject *attempt(Beaten *self, Held *held, PyObject *group, PyObject *const *args) {
    Way *way = (Way *)get(held, group, s_way);
    if (!way || !Py_IS_TYPE(way, &WayType)) return way ? Py_NotImplemented : NULL;
    int calm = is_calm(held, way);
    if (calm != 1) return calm < 0 ? NULL : Py_NotImplemented;
    PyObject *habit = habit_of(self, held, group, way, args);
    if (!habit || habit == Py_None) return habit ? Py_NotImplemented : NULL;
    PyObject *stencil = stencil_of(held, group, way, habit);
    if (!stencil || stencil == Py_None) return stencil ? Py_NotImplemented : NULL;
    return make_closed(self, held, group, way, habit, stencil, args);
}

static PyObject *Beaten_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
    Beaten *self = (Beaten *)object;
    if (PyVectorcall_NARGS(flags) == self->given + 1 && !names) {
        Held held;
        held.count = 0;
        PyObject *work = attempt(self, &held, args[0], args + 1);
        while (held.count) Py_DECREF(held.held[--held.count]);
        if (work != Py_NotImplemented) return work;
    }
    return PyObject_Vectorcall(self->general, args, flags, names);
}

static PyObject *Beaten_get(PyObject *self, PyObject *group, PyObject *Py_UNUSED(type)) {
    return group && group != Py_None ? PyMethod_New(self, group) : Py_NewRef(self);
}

static void Beaten_dealloc(Beaten *self) {
    PyObject *held[] = {self->method,   self->general,      self->call_site,    self->learn,           self->failed,
                        self->asked.op, self->asked.tensor, self->own_patience, self->asked.reduction, self->asked.no_timeout};
    for (size_t each = 0; each < sizeof held / sizeof *held; each++) Py_XDECREF(held[each]);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *Beaten_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *method, *general, *op, *tensor, *reduction, *no_timeout, *call_site, *learn, *failed, *own_patience;
    int reduces, rooted, minds_gaps;
    Py_ssize_t given;
    if (kwargs && PyDict_GET_SIZE(kwargs)) return PyErr_Format(PyExc_TypeError, "Beaten takes no names");
    if (!PyArg_ParseTuple(args, "UOnOO!O!OpppOOOO", &method, &general, &given, &op, &PyType_Type, &tensor, &PyType_Type,
                          &reduction, &no_timeout, &reduces, &rooted, &minds_gaps, &call_site, &learn, &failed, &own_patience))
        return NULL;
    if (given < 1 || given > 7) return PyErr_Format(PyExc_ValueError, "1 to 7 arguments, not %zd", given);
    Beaten *self = (Beaten *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->vectorcall = Beaten_call;
    self->given = given;
    self->method = Py_NewRef(method);
    self->general = Py_NewRef(general);
    self->call_site = Py_NewRef(call_site);
    self->learn = Py_NewRef(learn);
    self->failed = Py_NewRef(failed);
    self->own_patience = Py_NewRef(own_patience);
    self->asked = (Asked){Py_NewRef(op), Py_NewRef(tensor), Py_NewRef(reduction), Py_NewRef(no_timeout), reduces, rooted, minds_gaps};
    return (PyObject *)self;
}

static PyMemberDef Beaten_members[] = {
    {"__name__", T_OBJECT, offsetof(Beaten, method), READONLY, NULL},
    {"__wrapped__", T_OBJECT, offsetof(Beaten, general), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject BeatenType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankdrill.native.hot.Beaten",
    .tp_basicsize = sizeof(Beaten),
    .tp_dealloc = (destructor)Beaten_dealloc,
    .tp_call = PyVectorcall_Call,
    .tp_descr_get = Beaten_get,
    .tp_members = Beaten_members,
    .tp_vectorcall_offset = offsetof(Beaten, vectorcall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = Beaten_new,
};

/* ---------------------------------------------------------------------------------------------- Way */

/* The collector has to see through it: a boundary knows of groups. */
static int Way_traverse(Way *self, visitproc visit, void *arg) {
    Py_VISIT(self->boundary);
    Py_VISIT(self->inside);
    Py_VISIT(self->made);
    Py_VISIT(self->buckets);
    Py_VISIT(self->waiting);
    Py_VISIT(self->by_key);
    Py_VISIT(self->inner);
    Py_VISIT(self->sequence);
    Py_VISIT(self->patience_ms);
    return 0;
}

static void Way_dealloc(Way *self) {
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->boundary);
    Py_XDECREF(self->inside);
    Py_XDECREF(self->made);
    Py_XDECREF(self->buckets);
    Py_XDECREF(self->waiting);
    Py_XDECREF(self->by_key);
    Py_XDECREF(self->inner);
    Py_XDECREF(self->sequence);
    Py_XDECREF(self->patience_ms);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *Way_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *boundary, *inside, *made, *buckets, *waiting, *by_key, *inner, *sequence, *patience_ms;
    if (kwargs && PyDict_GET_SIZE(kwargs)) return PyErr_Format(PyExc_TypeError, "Way takes no names");
    if (!PyArg_ParseTuple(args, "OOOOO!O!OO!O!", &boundary, &inside, &made, &buckets, &PyList_Type, &waiting,
                          &PyDict_Type, &by_key, &inner, &NumberingType, &sequence, &PyLong_Type, &patience_ms))
        return NULL;
    Way *self = (Way *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->boundary = Py_NewRef(boundary);
    self->inside = Py_NewRef(inside);
    self->made = Py_NewRef(made);
    self->buckets = Py_NewRef(buckets);
    self->waiting = Py_NewRef(waiting);
    self->by_key = Py_NewRef(by_key);
    self->inner = Py_NewRef(inner);
    self->sequence = Py_NewRef(sequence);
    self->patience_ms = Py_NewRef(patience_ms);
    return (PyObject *)self;
}

PyTypeObject WayType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankdrill.native.hot.Way",
    .tp_basicsize = sizeof(Way),
    .tp_dealloc = (destructor)Way_dealloc,
    .tp_traverse = (traverseproc)Way_traverse,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = Way_new,
};
