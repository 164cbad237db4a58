/* As `PlainMapped` of ledger/mapped.py: a file's map, whose memory is found by one look. */

#include "hot.h"

#include <structmember.h>

char *map_of(PyObject *mapped, Py_ssize_t least) {
    const Py_buffer *view = &((Mapped *)mapped)->view;
    if (view->buf && view->len >= least) return view->buf;
    return PyErr_Format(PyExc_ValueError, view->buf ? "the file is too short" : "the file is closed"), NULL;
}

static PyObject *Mapped_release(Mapped *self, PyObject *Py_UNUSED(unused)) {
    if (self->view.buf) PyBuffer_Release(&self->view);
    self->view.buf = NULL;
    Py_RETURN_NONE;
}

static void Mapped_dealloc(Mapped *self) {
    Py_XDECREF(Mapped_release(self, NULL));
    Py_XDECREF(self->memory);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *Mapped_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *memory;
    if (kwargs && PyDict_GET_SIZE(kwargs)) return PyErr_Format(PyExc_TypeError, "Mapped takes no names");
    if (!PyArg_ParseTuple(args, "O", &memory)) return NULL;
    Mapped *self = (Mapped *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->memory = Py_NewRef(memory);
    if (!PyObject_GetBuffer(memory, &self->view, PyBUF_WRITABLE)) return (PyObject *)self;
    self->view.buf = NULL;
    Py_DECREF(self);
    return NULL;
}

static PyMethodDef methods[] = {
    {"release", (PyCFunction)Mapped_release, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"memory", T_OBJECT, offsetof(Mapped, memory), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject MappedType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankdrill.native.hot.Mapped",
    .tp_basicsize = sizeof(Mapped),
    .tp_dealloc = (destructor)Mapped_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = methods,
    .tp_members = members,
    .tp_new = Mapped_new,
};
