/* As `plain_of_shapes` and `plain_of_identities` of explain/flight/digests.py: 64-bit numbers, in bytes. */

#include "hot.h"

static const uint64_t ODD = 0x9E3779B97F4A7C15u;

static uint64_t mixed(uint64_t number) {
    number *= ODD;
    number ^= number >> 29;
    number *= ODD;
    return number ^ (number >> 29);
}

/* Of one list: its number is made of those of its parts, in their order. */
typedef uint64_t (*NumberOf)(PyObject *item, int *failed);

static uint64_t over(PyObject *list, const char *wrong, NumberOf number_of, int *failed) {
    if (!PyList_CheckExact(list)) {
        PyErr_SetString(PyExc_TypeError, wrong);
        *failed = 1;
        return 0;
    }
    uint64_t sum = 0;
    Py_ssize_t count = PyList_GET_SIZE(list);
    for (Py_ssize_t place = 0; place < count && !*failed; place++)
        sum += mixed(number_of(PyList_GET_ITEM(list, place), failed) ^ mixed((uint64_t)place + 1));
    return mixed(sum + (uint64_t)count);
}

static uint64_t of_size(PyObject *size, int *failed) {
    long long number = PyLong_Check(size) ? PyLong_AsLongLong(size) : -1;
    if (!PyLong_Check(size)) PyErr_SetString(PyExc_TypeError, "a size is no integer");
    *failed = number == -1 && PyErr_Occurred();
    return (uint64_t)number;
}

static uint64_t of_tensor(PyObject *sizes, int *failed) { return over(sizes, "sizes are no lists", of_size, failed); }

static uint64_t of_identity(PyObject *object, int *Py_UNUSED(failed)) { return (uint64_t)(uintptr_t)object; }

static PyObject *of_all(PyObject *column, const char *wrong, NumberOf number_of) {
    PyObject *fast = PySequence_Fast(column, "a column is a sequence");
    Py_ssize_t count = fast ? PySequence_Fast_GET_SIZE(fast) : 0;
    PyObject *numbers = fast ? PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(uint64_t)) : NULL;
    char *to = numbers ? PyBytes_AS_STRING(numbers) : NULL;
    int failed = !numbers;
    for (Py_ssize_t each = 0; each < count && !failed; each++) {
        uint64_t number = over(PySequence_Fast_GET_ITEM(fast, each), wrong, number_of, &failed);
        memcpy(to + each * (Py_ssize_t)sizeof number, &number, sizeof number);
    }
    if (failed) Py_CLEAR(numbers);
    Py_XDECREF(fast);
    return numbers;
}

PyObject *of_shapes(PyObject *Py_UNUSED(module), PyObject *column) {
    return of_all(column, "sizes are no lists", of_tensor);
}

PyObject *of_identities(PyObject *Py_UNUSED(module), PyObject *column) {
    return of_all(column, "frames are no list", of_identity);
}
