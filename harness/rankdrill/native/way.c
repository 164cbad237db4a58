/* Of one group, what its calls look at each time, and which habits they had of late: see `way_of` of boundary/beaten.py. */

#include "hot.h"

static Recent *place_of(Way *way, const Key *key) {
    uint64_t number = 0;
    for (const uint64_t *word = key->words; word < key->end; word++) number = (number ^ *word) * 0x9E3779B97F4A7C15u;
    return &way->recent[number >> 59];
}

static int is_of(const Recent *recent, const Key *key) {
    Py_ssize_t count = key->end - key->words;
    return recent->habit && recent->count == count && !memcmp(recent->words, key->words, count * sizeof *key->words);
}

PyObject *Way_recent(Way *way, const Key *key) {
    const Recent *recent = place_of(way, key);
    return is_of(recent, key) ? recent->habit : NULL;
}

void Way_keep(Way *way, const Key *key, PyObject *site, PyObject *habit) {
    Recent *recent = place_of(way, key);
    Py_ssize_t count = key->end - key->words;
    if (count > MOST_RECENT_WORDS) return;
    PyObject *habit_before = recent->habit, *site_before = recent->site;
    recent->habit = Py_NewRef(habit), recent->site = Py_NewRef(site), recent->count = count;
    memcpy(recent->words, key->words, count * sizeof *key->words);
    Py_XDECREF(habit_before);
    Py_XDECREF(site_before);
}

/* The collector has to see through it: a boundary knows of groups. */
static int Way_traverse(Way *self, visitproc visit, void *arg) {
    Py_VISIT(self->boundary);
    Py_VISIT(self->moments);
    Py_VISIT(self->used);
    Py_VISIT(self->buckets);
    Py_VISIT(self->waiting);
    Py_VISIT(self->by_key);
    Py_VISIT(self->inner);
    Py_VISIT(self->sequence);
    Py_VISIT(self->patience_ms);
    for (int each = 0; each < RECENT; each++) {
        Py_VISIT(self->recent[each].habit);
        Py_VISIT(self->recent[each].site);
    }
    return 0;
}

static void Way_dealloc(Way *self) {
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->boundary);
    Py_XDECREF(self->moments);
    Py_XDECREF(self->used);
    Py_XDECREF(self->buckets);
    Py_XDECREF(self->waiting);
    Py_XDECREF(self->by_key);
    Py_XDECREF(self->inner);
    Py_XDECREF(self->sequence);
    Py_XDECREF(self->patience_ms);
    for (int each = 0; each < RECENT; each++) {
        Py_XDECREF(self->recent[each].habit);
        Py_XDECREF(self->recent[each].site);
    }
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *Way_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *boundary, *moments, *used, *buckets, *waiting, *by_key, *inner, *sequence, *patience_ms;
    long long place;
    if (kwargs && PyDict_GET_SIZE(kwargs)) return PyErr_Format(PyExc_TypeError, "Way takes no names");
    if (!PyArg_ParseTuple(args, "O!O!O!OO!O!OO!O!L", &GateType, &boundary, &NumberingType, &moments, &NumberingType,
                          &used, &buckets, &PyList_Type, &waiting, &PyDict_Type, &by_key, &inner, &NumberingType,
                          &sequence, &PyLong_Type, &patience_ms, &place))
        return NULL;
    Way *self = (Way *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->boundary = Py_NewRef(boundary);
    self->moments = Py_NewRef(moments);
    self->used = Py_NewRef(used);
    self->buckets = Py_NewRef(buckets);
    self->waiting = Py_NewRef(waiting);
    self->by_key = Py_NewRef(by_key);
    self->inner = Py_NewRef(inner);
    self->sequence = Py_NewRef(sequence);
    self->patience_ms = Py_NewRef(patience_ms);
    self->place = place;
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
