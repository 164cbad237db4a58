/* The handle of a call that is over, for those that wait for it all the same, and ask nothing else of it. */

#include "hot.h"

static PyObject *Waited_wait(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused)) { Py_RETURN_TRUE; }

static PyMethodDef Waited_methods[] = {
    {"wait", Waited_wait, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

PyTypeObject WaitedType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankdrill.native.hot.Waited",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = Waited_methods,
};

/* There is one. */
PyObject *waited(void) {
    static PyObject *only;
    if (!only) only = WaitedType.tp_alloc(&WaitedType, 0);
    return Py_XNewRef(only);
}
