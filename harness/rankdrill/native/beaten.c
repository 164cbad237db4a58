/* As `plain_path` of boundary/beaten.py: a call from its arguments to its end, where nothing stands in its way. */

#include "hot.h"

#include <structmember.h>

/* A method of groups: in the place of `general`, which makes all calls that are not for this path. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *method, *general, *call_site, *learn, *failed, *own_patience;
    PyObject *work, *handle, *plainly, *by_tensor, *meet, *engine; /* of calls that torch does not wait for: see beaten.py */
    Asked asked;
    Py_ssize_t given; /* how many arguments such a call has */
} Beaten;

/* One call. */
typedef struct {
    PyObject *group, *const *args;
    Way *way;
    PyObject *handles, *under_way; /* None where there are none; a dictionary */
    int asynchronous, in_bucket, from_c10d;
    enum hand hand;
    Spans spans;
    PyObject *habit, *stencil;
} Making;

#define NAMES(X)                                                                                                       \
    X(way) X(in_use) X(under_way) X(suit) X(timeout) X(wait) X(issued) X(next_of) X(take_next) X(waits_at_the_end)     \
    X(expect_pass) X(global_ranks) X(__enter__) X(__exit__)
NAMES(DECLARE_NAME)

static PyObject *nobody; /* no ranks */

int make_names_of_state(void) {
    NAMES(MAKE_NAME)
    return (nobody = PyTuple_New(0)) ? 0 : -1;
}

enum { MOST_HELD = 40 }; /* one for each `hold` and `get` below, and some */

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

/* One that the boundary has now. */
static PyObject *field_of(Held *held, Way *way, int field) {
    PyObject *value = ((Gate *)way->boundary)->field[field];
    if (!value) PyErr_SetString(PyExc_AttributeError, "a boundary that is not made yet");
    return hold(held, Py_XNewRef(value));
}

static Inside *inside_of(Way *way) {
    PyObject *inside = ((Gate *)way->boundary)->field[GATE_INSIDE];
    return inside && Py_IS_TYPE(inside, &InsideType) ? (Inside *)inside : NULL;
}

/* Whether a call made now, on this thread, is a step of which nobody but ledger and watch is to be told. */
static int is_calm(Held *held, Making *making) {
    Way *way = making->way;
    PyObject *handled = PyErr_GetHandledException();
    Py_XDECREF(handled);
    if ((handled && handled != Py_None) || PyList_GET_SIZE(way->waiting)) return 0;
    PyObject *recorded = field_of(held, way, GATE_RECORDED), *interceptors = field_of(held, way, GATE_INTERCEPTORS);
    if (!recorded || !interceptors) return -1;
    if (recorded != Py_True || !PyTuple_CheckExact(interceptors) || PyTuple_GET_SIZE(interceptors)) return 0;
    const Inside *inside = inside_of(way);
    return inside && !Inside_depth(inside);
}

/* What is under way that somebody has a handle of; 0, or -1 with an exception. */
static int see_handles(Held *held, Making *making) {
    making->handles = field_of(held, making->way, GATE_HANDLES);
    if (!making->handles || making->handles == Py_None) return making->handles ? 0 : -1;
    making->under_way = get(held, making->handles, s_under_way);
    if (!making->under_way) return -1;
    int empty = PyObject_Not(making->under_way);
    if (empty) making->under_way = NULL;
    return empty < 0 ? -1 : 0;
}

/* Which bucket it is for, from 1 on, if a reducer calls; 0, or -1 with an exception, or -2 where it is the user's turn
   to be asked: see boundary/reducers.py. */
static long bucket_of(Beaten *self, Held *held, Making *making) {
    int unused = is_empty(making->way->buckets, s_in_use);
    if (unused || !self->asked.bucketed) return unused < 0 ? -1 : 0;
    if (passes_above(self->engine, self->call_site) != 1) return 0;
    PyObject *next = hold(held, PyObject_CallMethodOneArg(making->way->buckets, s_next_of, making->args[0]));
    long bucket = next ? PyLong_AsLong(next) : -1;
    if (bucket == -1 && PyErr_Occurred()) return -1;
    return bucket < 0 || !making->asynchronous ? -2 : bucket + 1;
}

/* The key, and which way the call goes on after it is issued, which is a word of it: 1, or 0 where it is not for this
   path, or -1 with an exception. */
static int key_here(Beaten *self, Held *held, Making *making, PyObject **site, Key *key) {
    making->asynchronous = is_asynchronous(&self->asked, making->args[self->given - 1]);
    if (making->asynchronous < 0) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError) && !PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
        PyErr_Clear(); /* a torch whose options are others, or somebody's own */
        return 0;
    }
    long bucket = bucket_of(self, held, making);
    if (bucket < 0) return bucket == -1 ? -1 : 0;
    *site = hold(held, site_and_hand(self->call_site, &making->hand, &making->from_c10d));
    if (!*site) return -1;
    if (bucket || !making->asynchronous) making->hand = KEPT;
    if (making->hand == UNCLEAR) return 0;
    if (making->hand == HANDED) { /* where torch waits by tensor, no handle gets to know */
        PyObject *by_tensor = hold(held, PyObject_CallNoArgs(self->by_tensor));
        if (by_tensor != Py_False) return by_tensor ? 0 : -1;
    }
    making->in_bucket = bucket > 0;
    making->spans.wanted = making->under_way || (making->hand == HANDED && making->handles != Py_None);
    uint64_t word = (uint64_t)making->asynchronous | (uint64_t)making->hand << 1 | (uint64_t)bucket << 8;
    Asking asking = {making->args, self->given, *site, making->way->place, word, &making->spans};
    return key_of(&self->asked, &asking, key);
}

/* The same, whatever modes of torch would make of looking at tensors, if anything under way has one laid. */
static int key_plainly(Beaten *self, Held *held, Making *making, PyObject **site, Key *key) {
    if (!making->under_way) return key_here(self, held, making, site, key);
    PyObject *plainly = hold(held, PyObject_CallNoArgs(self->plainly)), *type, *error, *traceback;
    if (!plainly || !hold(held, PyObject_CallMethodNoArgs(plainly, s___enter__))) return -1;
    int going = key_here(self, held, making, site, key);
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *left = PyObject_CallMethodObjArgs(plainly, s___exit__, Py_None, Py_None, Py_None, NULL);
    if (!left) PyErr_WriteUnraisable(plainly);
    Py_XDECREF(left);
    PyErr_Restore(type, error, traceback);
    return going;
}

/* The habit that is known by the key, or learned now. */
static PyObject *habit_by(Beaten *self, Held *held, Making *making, PyObject *site, const Key *by) {
    PyObject *key = hold(held, PyBytes_FromStringAndSize((char *)by->words, (by->end - by->words) * sizeof *by->words));
    PyObject *habit = key ? PyDict_GetItemWithError(making->way->by_key, key) : NULL;
    if (habit || PyErr_Occurred()) return hold(held, Py_XNewRef(habit));
    PyObject *given = hold(held, PyTuple_New(self->given));
    PyObject *hand = hold(held, PyLong_FromLong(making->asynchronous ? (long)making->hand : -1));
    if (!given || !hand) return NULL;
    for (Py_ssize_t each = 0; each < self->given; each++) PyTuple_SET_ITEM(given, each, Py_NewRef(making->args[each]));
    return hold(held, PyObject_CallFunctionObjArgs(self->learn, making->group, given, site, key, hand,
                                                   making->in_bucket ? Py_True : Py_False, NULL));
}

/* None where it is not for this path. */
static PyObject *habit_of(Beaten *self, Held *held, Making *making) {
    Key key;
    PyObject *site = NULL;
    int going = key_plainly(self, held, making, &site, &key);
    if (going != 1) return going ? NULL : Py_None;
    PyObject *habit = Way_recent(making->way, &key);
    if (habit) return hold(held, Py_NewRef(habit));
    habit = habit_by(self, held, making, site, &key);
    if (habit && habit != Py_None) Way_keep(making->way, &key, site, habit);
    return habit;
}

/* Where the call is written down, once it is sure that it is; None where that is not done in C. */
static PyObject *stencil_of(Held *held, PyObject *group, Way *way, PyObject *habit) {
    PyObject *ledger = field_of(held, way, GATE_LEDGER), *watch = field_of(held, way, GATE_WATCH);
    if (!PyObject_TypeCheck(habit, &SuitedType)) return PyErr_Format(PyExc_TypeError, "no such habit");
    PyObject **its = ((Suited *)habit)->field;
    if (!ledger || !watch) return NULL;
    if ((ledger != its[SUITED_LEDGER] || watch != its[SUITED_WATCH]) &&
        !hold(held, PyObject_CallMethodOneArg(habit, s_suit, group)))
        return NULL;
    PyObject *stencil = hold(held, Py_XNewRef(its[SUITED_STENCIL]));
    return stencil && Py_IS_TYPE(stencil, &StencilType) ? stencil : Py_None;
}

/* `failed` is told of the exception that is set, which stays so, but for one of a signal that came meanwhile. */
static void tell_failed(Beaten *self, PyObject *group, PyObject *habit, PyObject *number, PyObject *record, int issued) {
    Raised raised;
    put_aside(&raised);
    PyObject *told = PyObject_CallFunctionObjArgs(self->failed, group, habit, number, record, raised.error,
                                                  issued ? Py_True : Py_False, NULL);
    if (!told) PyErr_WriteUnraisable(self->failed);
    Py_XDECREF(told);
    set_again(&raised);
}

/* After how many milliseconds the backend gives up; asked once it is at it, when there is time. */
static PyObject *patience_of(Beaten *self, Held *held, PyObject *group, Way *way, PyObject *opts) {
    const Places *places = &self->asked.places;
    const char *lying = lying_at(places, opts, places->timeout);
    if (lying && word_at(lying) <= 0) return way->patience_ms; /* as `NO_TIMEOUT` of boundary/work.py, and less */
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

/* May raise where it uses memory that a call under way does. */
static int keep_apart(Beaten *self, Held *held, Making *making) {
    int met = making->under_way ? may_meet(making->under_way, &making->spans) : 0;
    if (met <= 0) return met;
    PyObject *given = hold(held, PyTuple_New(self->given));
    if (!given) return -1;
    for (Py_ssize_t each = 0; each < self->given; each++) PyTuple_SET_ITEM(given, each, Py_NewRef(making->args[each]));
    PyObject *asked = PyObject_CallFunctionObjArgs(self->meet, making->group, making->habit, given, NULL);
    return hold(held, asked) ? 0 : -1;
}

/* What becomes of a call that is issued, and that torch does not wait for: what is returned is its handle. */
static PyObject *follow(Beaten *self, Held *held, Making *making, PyObject *number, PyObject *record, PyObject *inner) {
    PyObject *patience = patience_of(self, held, making->group, making->way, making->args[self->given - 1]);
    PyObject *ledger = patience ? hold(held, Py_XNewRef(((Suited *)making->habit)->field[SUITED_LEDGER])) : NULL;
    if (!ledger || Stencil_note_issued(making->stencil, record) < 0) return NULL;
    Issued *issued = Issued_make(making->group, making->way->boundary, ledger, making->stencil, record, inner, patience);
    if (!hold(held, (PyObject *)issued)) return NULL;
    if (making->in_bucket) { /* the reducer asks for its future, and waits for that in C++ */
        PyObject *waits = get(held, making->group, s_waits_at_the_end);
        PyObject *expected = waits ? PyObject_CallMethodOneArg(waits, s_expect_pass, (PyObject *)issued) : NULL;
        return hold(held, expected) ? Py_NewRef(inner) : NULL;
    }
    PyObject *work = PyObject_CallNoArgs(self->work);
    int failed = !work || PyObject_SetAttr(work, s_issued, (PyObject *)issued) < 0;
    if (!failed && making->hand != KEPT && making->handles != Py_None) {
        PyObject *of_all = making->hand == RETURNED ? get(held, making->group, s_global_ranks) : nobody;
        if (making->hand == RETURNED) clear_spans(&making->spans); /* who uses what comes of it waits for it */
        failed = !of_all || Issued_hold(issued, self->handle, making->handles, making->habit, number, of_all,
                                        &making->spans) < 0;
    }
    if (failed) Py_CLEAR(work);
    return work;
}

/* The moment at which the group was last used, counted in calls of any group; see `MadeGroups.use`. */
static void note_use(Way *way) { ((Numbering *)way->used)->upcoming = ++((Numbering *)way->moments)->upcoming; }

/* From the record's beginning to its end, or to when it is issued; what is returned is the handle. */
static PyObject *make(Beaten *self, Held *held, Making *making) {
    Way *way = making->way;
    PyObject *const *args = making->args, *stencil = making->stencil, *work = NULL;
    PyObject *enter = hold(held, Py_XNewRef(((Suited *)making->habit)->field[SUITED_ENTER]));
    PyObject *number = enter ? hold(held, Numbering_take(way->sequence, NULL)) : NULL;
    PyObject *record = number ? hold(held, Stencil_begin(stencil, number)) : NULL;
    if (!record) return NULL;
    PyObject *given[8] = {way->inner};
    memcpy(given + 1, args, self->given * sizeof *args);
    if (!keep_apart(self, held, making) && (enter == Py_None || hold(held, PyObject_CallOneArg(enter, number))))
        work = PyObject_VectorcallMethod(self->method, given, (size_t)(self->given + 1), NULL);
    note_use(way);
    int issued = work != NULL, done = issued ? 0 : -1;
    if (issued && work != Py_None && making->asynchronous) {
        Py_SETREF(work, follow(self, held, making, number, record, work));
        if (!work) tell_failed(self, making->group, making->habit, number, record, issued);
        return work;
    }
    if (issued && work != Py_None)
        done = wait_for(self, held, making->group, way, args[self->given - 1], stencil, record, work);
    if (done < 0) tell_failed(self, making->group, making->habit, number, record, issued);
    else done = Stencil_note_ended(stencil, record);
    if (done < 0) Py_CLEAR(work);
    else if (work != Py_None && making->from_c10d) Py_SETREF(work, waited()); /* it waits once more, at no cost then */
    return work;
}

/* `make`, with the boundary closed, which was open. */
static PyObject *make_closed(Beaten *self, Held *held, Making *making) {
    PyObject *inside = hold(held, Py_XNewRef((PyObject *)inside_of(making->way))), *type, *error, *traceback;
    if (!inside) return PyErr_Format(PyExc_TypeError, "no such boundary");
    if (Inside_go((Inside *)inside, 1) < 0) return NULL;
    PyObject *work = make(self, held, making);
    PyErr_Fetch(&type, &error, &traceback);
    if (Inside_go((Inside *)inside, 0) < 0) PyErr_WriteUnraisable(inside);
    PyErr_Restore(type, error, traceback);
    return work;
}

/* The call; `Py_NotImplemented`, borrowed, where it is not for this path. */
static PyObject *attempt(Beaten *self, Held *held, Making *making) {
    Way *way = making->way = (Way *)get(held, making->group, s_way);
    if (!way || !Py_IS_TYPE(way, &WayType)) return way ? Py_NotImplemented : NULL;
    int calm = is_calm(held, making);
    if (calm != 1) return calm < 0 ? NULL : Py_NotImplemented;
    if (see_handles(held, making) < 0) return NULL;
    making->habit = habit_of(self, held, making);
    if (!making->habit || making->habit == Py_None) return making->habit ? Py_NotImplemented : NULL;
    making->stencil = stencil_of(held, making->group, way, making->habit);
    if (!making->stencil || making->stencil == Py_None) return making->stencil ? Py_NotImplemented : NULL;
    if (making->in_bucket && !hold(held, PyObject_CallMethodNoArgs(way->buckets, s_take_next))) return NULL;
    return make_closed(self, held, making);
}

static PyObject *Beaten_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
    Beaten *self = (Beaten *)object;
    if (PyVectorcall_NARGS(flags) == self->given + 1 && !names) {
        Held held;
        Making making;
        held.count = 0;
        memset(&making, 0, offsetof(Making, spans));
        making.spans.count = 0;
        making.group = args[0], making.args = args + 1;
        PyObject *work = attempt(self, &held, &making);
        clear_spans(&making.spans);
        while (held.count) Py_DECREF(held.held[--held.count]);
        if (work != Py_NotImplemented) return work;
    }
    return PyObject_Vectorcall(self->general, args, flags, names);
}

static PyObject *Beaten_get(PyObject *self, PyObject *group, PyObject *Py_UNUSED(type)) {
    return group && group != Py_None ? PyMethod_New(self, group) : Py_NewRef(self);
}

static void Beaten_dealloc(Beaten *self) {
    const Asked *asked = &self->asked;
    PyObject *held[] = {self->method, self->general, self->call_site, self->learn,   self->failed, self->own_patience,
                        self->work,   self->handle,  self->plainly,   self->by_tensor, self->meet, self->engine,
                        asked->op,    asked->tensor, asked->reduction, asked->no_timeout, (PyObject *)asked->places.type};
    for (size_t each = 0; each < sizeof held / sizeof *held; each++) Py_XDECREF(held[each]);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *Beaten_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *method, *general, *call_site, *learn, *failed, *own_patience;
    PyObject *work, *handle, *plainly, *by_tensor, *meet, *engine;
    Asked asked;
    Places *places = &asked.places;
    TensorPlaces *tensors = &asked.tensors;
    unsigned long long kind;
    Py_ssize_t given;
    if (kwargs && PyDict_GET_SIZE(kwargs)) return PyErr_Format(PyExc_TypeError, "Beaten takes no names");
    if (!PyArg_ParseTuple(args, "UOn(OO!O!O(O!nnnn)(nKnnn)pppppp)(O!OOOO)(O!O!OOO)", &method, &general, &given, &asked.op, &PyType_Type,
                          &asked.tensor, &PyType_Type, &asked.reduction, &asked.no_timeout, &PyType_Type, &places->type,
                          &places->asynchronous, &places->reduction, &places->root, &places->timeout, &tensors->pointer, &kind,
                          &tensors->dimensions, &tensors->strides, &tensors->dtype, &asked.reduces, &asked.rooted, &asked.minds_gaps, &asked.in_place, &asked.from_root, &asked.bucketed, &CallSitesType,
                          &call_site, &learn, &failed, &own_patience, &meet, &PyType_Type, &work, &PyType_Type, &handle,
                          &plainly, &by_tensor, &engine))
        return NULL;
    tensors->kind = kind;
    if (given < 1 || given > 7) return PyErr_Format(PyExc_ValueError, "1 to 7 arguments, not %zd", given);
    if (!PyType_IsSubtype((PyTypeObject *)handle, &HeldType)) return PyErr_Format(PyExc_TypeError, "no such handle");
    Beaten *self = (Beaten *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->vectorcall = Beaten_call;
    self->given = given;
    self->asked = asked;
    PyObject *taken[] = {method, general, call_site, learn,  failed,       own_patience,    work,            handle,
                         plainly, by_tensor, meet,  engine, asked.op, asked.tensor, asked.reduction, asked.no_timeout,
                         (PyObject *)places->type};
    for (size_t each = 0; each < sizeof taken / sizeof *taken; each++) Py_INCREF(taken[each]);
    self->method = method, self->general = general, self->call_site = call_site, self->learn = learn;
    self->failed = failed, self->own_patience = own_patience, self->work = work, self->handle = handle;
    self->plainly = plainly, self->by_tensor = by_tensor, self->meet = meet, self->engine = engine;
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
