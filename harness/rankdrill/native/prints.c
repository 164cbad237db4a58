/* As boundary/prints.py: by what is in memory that nobody is to change it shows later whether somebody has. */

#include "hot.h"

#define NAMES(X) X(is_cpu) X(data_ptr)
NAMES(DECLARE_NAME)

int make_names_of_memory(void) {
    NAMES(MAKE_NAME)
    return 0;
}

enum { MOST_READ = 1 << 14, WINDOW = 64, WINDOWS = MOST_READ / WINDOW };

static uint64_t mix(uint64_t seen, const char *from, uint64_t bytes) {
    uint64_t lane[4] = {seen, ~seen, seen + 1, seen + 2}, word;
    for (; bytes >= 4 * sizeof word; bytes -= 4 * sizeof word)
        for (int each = 0; each < 4; each++, from += sizeof word) {
            memcpy(&word, from, sizeof word);
            lane[each] = (lane[each] ^ word) * 0x9E3779B97F4A7C15u;
            lane[each] ^= lane[each] >> 29;
        }
    for (; bytes; bytes--) lane[0] = (lane[0] ^ (unsigned char)*from++) * 0x100000001B3u;
    for (int each = 1; each < 4; each++) lane[0] = (lane[0] ^ lane[each]) * 0x9E3779B97F4A7C15u;
    return lane[0] ^ lane[0] >> 32;
}

uint64_t print_of(uint64_t start, uint64_t end) {
    const char *memory = (const char *)(uintptr_t)start;
    uint64_t bytes = end - start, seen = bytes;
    if (bytes <= MOST_READ) return mix(seen, memory, bytes) | 1;
    for (uint64_t each = 0; each < WINDOWS; each++)
        seen = mix(seen, memory + (bytes - WINDOW) * each / (WINDOWS - 1), WINDOW);
    return seen | 1;
}

static int is_on_cpu(PyObject *tensor) {
    PyObject *told = PyObject_GetAttr(tensor, s_is_cpu);
    if (!told) PyErr_Clear();
    Py_XDECREF(told);
    return told == Py_True;
}

static uint64_t address_of(PyObject *tensor) { /* 0 where it has none any more */
    PyObject *told = PyObject_CallMethodNoArgs(tensor, s_data_ptr);
    uint64_t found = told ? PyLong_AsUnsignedLongLong(told) : 0;
    Py_XDECREF(told);
    if (PyErr_Occurred()) PyErr_Clear();
    return found;
}

static int is_written(const Span *one, const Span *spans, Py_ssize_t count) {
    for (const Span *other = spans; other < spans + count; other++)
        if (other->written && one->start < other->end && other->start < one->end) return 1;
    return 0;
}

void take_prints(Span *spans, Py_ssize_t count) {
    for (Span *one = spans; one < spans + count; one++) {
        one->on_cpu = (char)is_on_cpu(one->tensor);
        if (one->on_cpu && !is_written(one, spans, count)) one->print = print_of(one->start, one->end);
    }
}

int look_again(const Span *one) {
    if (!one->on_cpu || !one->tensor) return AS_IT_WAS;
    uint64_t now = address_of(one->tensor);
    if (now != one->start) return now ? MOVED : FREED;
    return one->print && print_of(one->start, one->end) != one->print ? CHANGED : AS_IT_WAS;
}

PyObject *print_in(PyObject *Py_UNUSED(module), PyObject *args) {
    unsigned long long start, end;
    if (!PyArg_ParseTuple(args, "KK", &start, &end)) return NULL;
    return PyLong_FromUnsignedLongLong(print_of(start, end));
}
