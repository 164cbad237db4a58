/* An exception put aside while somebody is told of it, and set again. */

#include "hot.h"

/* Who was sent a signal during the call gets it handled now: what its handler raises takes the exception's place, as it
   would in Python, and no telling swallows it. */
void put_aside(Raised *raised) {
    PyErr_Fetch(&raised->type, &raised->error, &raised->traceback);
    PyErr_NormalizeException(&raised->type, &raised->error, &raised->traceback);
    raised->by_signal = PyErr_CheckSignals() < 0;
    if (raised->by_signal)
        PyErr_Fetch(&raised->signal_type, &raised->signal_error, &raised->signal_traceback);
}

void set_again(Raised *raised) {
    if (!raised->by_signal) {
        PyErr_Restore(raised->type, raised->error, raised->traceback);
        return;
    }
    PyErr_NormalizeException(&raised->signal_type, &raised->signal_error, &raised->signal_traceback);
    if (raised->traceback) PyException_SetTraceback(raised->error, raised->traceback);
    Py_XDECREF(raised->type);
    Py_XDECREF(raised->traceback);
    if (raised->signal_error != raised->error) PyException_SetContext(raised->signal_error, raised->error); /* takes it */
    else Py_XDECREF(raised->error);
    PyErr_Restore(raised->signal_type, raised->signal_error, raised->signal_traceback);
}
