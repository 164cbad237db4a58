/* What each call looks at, where C finds it without asking for an attribute: see boundary/gate.py and boundary/habits.py.

   To Python these are classes to inherit from, with attributes as any others. */

#include "hot.h"

#include <structmember.h>

/* A class of objects of nothing but attributes, `Fields` of them, all in `members`. */
#define CLASS(Type, Struct, Fields, shown)                                                                             \
    static int Struct##_traverse(PyObject *self, visitproc visit, void *arg) {                                         \
        PyObject **field = ((Struct *)self)->field;                                                                    \
        for (int each = 0; each < Fields; each++) Py_VISIT(field[each]);                                               \
        return 0;                                                                                                      \
    }                                                                                                                  \
    static int Struct##_clear(PyObject *self) {                                                                        \
        PyObject **field = ((Struct *)self)->field;                                                                    \
        for (int each = 0; each < Fields; each++) Py_CLEAR(field[each]);                                               \
        return 0;                                                                                                      \
    }                                                                                                                  \
    static void Struct##_dealloc(PyObject *self) {                                                                     \
        PyObject_GC_UnTrack(self);                                                                                     \
        Struct##_clear(self);                                                                                          \
        Py_TYPE(self)->tp_free(self);                                                                                  \
    }                                                                                                                  \
    PyTypeObject Type = {                                                                                              \
        PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankdrill.native.hot." shown,                                        \
        .tp_basicsize = sizeof(Struct),                                                                                \
        .tp_dealloc = Struct##_dealloc,                                                                                \
        .tp_traverse = Struct##_traverse,                                                                              \
        .tp_clear = Struct##_clear,                                                                                    \
        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,                                     \
        .tp_members = Struct##_members,                                                                                \
        .tp_new = PyType_GenericNew,                                                                                   \
    };

#define FIELD(Struct, name, place) {name, T_OBJECT_EX, offsetof(Struct, field) + (place) * sizeof(PyObject *), 0, NULL}

static PyMemberDef Gate_members[] = {
    FIELD(Gate, "recorded", GATE_RECORDED), FIELD(Gate, "interceptors", GATE_INTERCEPTORS),
    FIELD(Gate, "inside", GATE_INSIDE),     FIELD(Gate, "ledger", GATE_LEDGER),
    FIELD(Gate, "watch", GATE_WATCH),       FIELD(Gate, "handles", GATE_HANDLES),
    {NULL, 0, 0, 0, NULL},
};

static PyMemberDef Suited_members[] = {
    FIELD(Suited, "ledger", SUITED_LEDGER),
    FIELD(Suited, "watch", SUITED_WATCH),
    FIELD(Suited, "stencil", SUITED_STENCIL),
    FIELD(Suited, "enter", SUITED_ENTER),
    {NULL, 0, 0, 0, NULL},
};

CLASS(GateType, Gate, GATE_FIELDS, "Gate")
CLASS(SuitedType, Suited, SUITED_FIELDS, "Suited")

/* ---------------------------------------------------------------------------------------------- Inside */

long Inside_depth(const Inside *self) { return (long)(intptr_t)pthread_getspecific(self->key); }

int Inside_go(const Inside *self, long depth) {
    if (!pthread_setspecific(self->key, (void *)(intptr_t)depth)) return 0;
    PyErr_NoMemory();
    return -1;
}

static PyObject *Inside_get(Inside *self, void *Py_UNUSED(unused)) { return PyLong_FromLong(Inside_depth(self)); }

static int Inside_set(Inside *self, PyObject *depth, void *Py_UNUSED(unused)) {
    long given = depth ? PyLong_AsLong(depth) : (PyErr_SetString(PyExc_AttributeError, "depth"), -1);
    return given == -1 && PyErr_Occurred() ? -1 : Inside_go(self, given);
}

static void Inside_dealloc(Inside *self) {
    if (self->has_key) pthread_key_delete(self->key);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *Inside_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs)) {
    Inside *self = (Inside *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->has_key = !pthread_key_create(&self->key, NULL);
    if (!self->has_key) {
        Py_DECREF(self);
        return PyErr_Format(PyExc_RuntimeError, "this process has no more keys for what is a thread's own");
    }
    return (PyObject *)self;
}

static PyGetSetDef Inside_attributes[] = {
    {"depth", (getter)Inside_get, (setter)Inside_set, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject InsideType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankdrill.native.hot.Inside",
    .tp_basicsize = sizeof(Inside),
    .tp_dealloc = (destructor)Inside_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_getset = Inside_attributes,
    .tp_new = Inside_new,
};
