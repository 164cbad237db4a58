/* As `PlainStencil` of ledger/stencil.py; the format is documented in ledger/format.py. */

#include "hot.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { HEADER_BYTES = 4096, RECORD_BYTES = 288, KIND_BYTES = 222 };
enum { TOTAL_OFFSET = 64, STATE_OFFSET = 46, PATIENCE_OFFSET = 252 };
enum { ISSUED = 2, WAITING = 3, ENDED = 4 };

typedef struct __attribute__((packed)) {
    uint64_t index, begin, end, nbytes;
    int64_t sequence;
    uint32_t thread;
    uint16_t fault;
    char kind[KIND_BYTES];
    int32_t peer;
    uint32_t tag;
    int64_t number;
    uint32_t commit;
} Record;
_Static_assert(sizeof(Record) == RECORD_BYTES, "as format.RECORD");

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static __thread uint32_t thread_id; /* asked for once in each thread: it takes a system call */

void forget_thread(void) { thread_id = 0; }

static uint32_t this_thread(void) {
    if (!thread_id) thread_id = (uint32_t)syscall(SYS_gettid);
    return thread_id;
}

typedef struct {
    PyObject_HEAD
    PyObject *mapped, *numbers;
    uint64_t capacity;
    Record record; /* what never changes of it */
} Stencil;

static PyObject *Stencil_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *mapped, *numbers;
    const char *kind;
    Py_ssize_t kind_bytes;
    unsigned long long capacity, nbytes;
    if (kwargs && PyDict_GET_SIZE(kwargs)) return PyErr_Format(PyExc_TypeError, "Stencil takes no names");
    if (!PyArg_ParseTuple(args, "O!KO!y#K", &MappedType, &mapped, &capacity, &NumberingType, &numbers, &kind,
                          &kind_bytes, &nbytes)) return NULL;
    if (!capacity || kind_bytes != KIND_BYTES)
        return PyErr_Format(PyExc_ValueError, "no such stencil");
    Stencil *self = (Stencil *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->mapped = Py_NewRef(mapped);
    self->numbers = Py_NewRef(numbers);
    self->capacity = capacity;
    self->record.nbytes = nbytes;
    self->record.peer = -1;
    self->record.number = -1;
    memcpy(self->record.kind, kind, KIND_BYTES);
    return (PyObject *)self;
}

static void Stencil_dealloc(Stencil *self) {
    Py_XDECREF(self->mapped);
    Py_XDECREF(self->numbers);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static Record *slot_of(Stencil *self, char *map, uint64_t index) {
    return (Record *)(map + HEADER_BYTES + index % self->capacity * RECORD_BYTES);
}

static char *ring_of(Stencil *self) {
    return map_of(self->mapped, HEADER_BYTES + (Py_ssize_t)self->capacity * RECORD_BYTES);
}

PyObject *Stencil_begin(PyObject *stencil, PyObject *sequence) {
    Stencil *self = (Stencil *)stencil;
    long long number = PyLong_AsLongLong(sequence);
    if (number == -1 && PyErr_Occurred()) return NULL;
    char *map = ring_of(self);
    uint64_t index = (uint64_t)((Numbering *)self->numbers)->upcoming;
    PyObject *index_object = map ? Numbering_take(self->numbers, NULL) : NULL;
    if (!index_object) return NULL;
    const Record *record = &self->record;
    Record *slot = slot_of(self, map, index);
    /* The commit mark is stored last: what was killed half way carries that of the record before. */
    slot->index = index;
    __atomic_thread_fence(__ATOMIC_RELEASE);
    slot->begin = now_ns();
    slot->end = 0;
    slot->nbytes = record->nbytes;
    slot->sequence = number;
    slot->thread = this_thread();
    memcpy(&slot->fault, &record->fault, offsetof(Record, commit) - offsetof(Record, fault));
    __atomic_thread_fence(__ATOMIC_RELEASE);
    uint32_t commit = (uint32_t)(index + 1);
    slot->commit = commit ? commit : 1;
    __atomic_thread_fence(__ATOMIC_RELEASE);
    *(uint64_t *)(map + TOTAL_OFFSET) = index + 1;
    return index_object;
}

/* Notes how far record `index` got, unless a later one has its slot. */
static int note(PyObject *stencil, PyObject *index_object, char state, uint32_t patience) {
    Stencil *self = (Stencil *)stencil;
    uint64_t index = PyLong_AsUnsignedLongLong(index_object);
    if (index == (uint64_t)-1 && PyErr_Occurred()) return -1;
    char *map = ring_of(self);
    if (!map) return -1;
    Record *slot = slot_of(self, map, index);
    if (slot->index == index) {
        if (state == WAITING) memcpy((char *)slot + PATIENCE_OFFSET, &patience, sizeof patience);
        else if (state == ENDED) slot->end = now_ns();
        __atomic_thread_fence(__ATOMIC_RELEASE);
        ((char *)slot)[STATE_OFFSET] = state;
    }
    return 0;
}

int Stencil_note_waiting(PyObject *stencil, PyObject *index, PyObject *milliseconds) {
    unsigned long patience = PyLong_AsUnsignedLong(milliseconds);
    if (patience == (unsigned long)-1 && PyErr_Occurred()) return -1;
    return note(stencil, index, WAITING, (uint32_t)patience);
}

int Stencil_note_ended(PyObject *stencil, PyObject *index) { return note(stencil, index, ENDED, 0); }

int Stencil_note_issued(PyObject *stencil, PyObject *index) { return note(stencil, index, ISSUED, 0); }

static PyObject *Stencil_wait(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 2) return PyErr_Format(PyExc_TypeError, "wait(index, milliseconds)");
    return Stencil_note_waiting(self, args[0], args[1]) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *Stencil_end(PyObject *self, PyObject *index) {
    return Stencil_note_ended(self, index) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef Stencil_methods[] = {
    {"begin", (PyCFunction)Stencil_begin, METH_O, NULL},
    {"wait", (PyCFunction)(void (*)(void))Stencil_wait, METH_FASTCALL, NULL},
    {"end", (PyCFunction)Stencil_end, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

PyTypeObject StencilType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankdrill.native.hot.Stencil",
    .tp_basicsize = sizeof(Stencil),
    .tp_dealloc = (destructor)Stencil_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = Stencil_methods,
    .tp_new = Stencil_new,
};

