/* The maps of ledgers and boards. */

#include "hot.h"

/* The map of a file, for the duration of one call: it may be closed between two, and a closed one says so. */
char *map_of(PyObject *memory, Py_buffer *view, Py_ssize_t least) {
    if (PyObject_GetBuffer(memory, view, PyBUF_WRITABLE) < 0) return NULL;
    if (view->len >= least) return view->buf;
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_ValueError, "the file is too short");
    return NULL;
}
