/* As `PlainNumbering` of boundary/numbering.py: the interpreter's lock is all it needs. */

#include "hot.h"

#include <structmember.h>

PyObject *Numbering_take(PyObject *self, PyObject *Py_UNUSED(unused)) {
    return PyLong_FromLongLong(((Numbering *)self)->upcoming++);
}

static PyObject *Numbering_give_back(PyObject *self, PyObject *number) {
    long long given = PyLong_AsLongLong(number);
    if (given == -1 && PyErr_Occurred()) return NULL;
    if (((Numbering *)self)->upcoming == given + 1) ((Numbering *)self)->upcoming = given;
    Py_RETURN_NONE;
}

static PyObject *Numbering_go_to(PyObject *self, PyObject *number) {
    long long given = PyLong_AsLongLong(number);
    if (given == -1 && PyErr_Occurred()) return NULL;
    ((Numbering *)self)->upcoming = given;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"take", Numbering_take, METH_NOARGS, NULL},
    {"give_back", Numbering_give_back, METH_O, NULL},
    {"go_to", Numbering_go_to, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"upcoming", T_LONGLONG, offsetof(Numbering, upcoming), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *Numbering_next(PyObject *self) { return Numbering_take(self, NULL); }

PyTypeObject NumberingType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankdrill.native.hot.Numbering",
    .tp_basicsize = sizeof(Numbering),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_iter = PyObject_SelfIter, /* for the ledger, which takes what comes next of an `itertools.count` too */
    .tp_iternext = Numbering_next,
    .tp_methods = methods,
    .tp_members = members,
    .tp_new = PyType_GenericNew,
};
