/* What a watched call does each time, in C: see beaten.c, which is all of it, and the parts that it is made of.

   Each part has a twin in Python, which says what it is for, and which is used where this was not built. Whatever is
   not the usual case is handed back to Python: a call site met for the first time, a call of another shape, a post
   that does not fit, an error. */

#ifndef RANKDRILL_HOT_H
#define RANKDRILL_HOT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "ledgers and boards are little-endian"
#endif

#define HERE __attribute__((visibility("hidden")))

HERE extern PyTypeObject StencilType, PostingType, CallSitesType, NumberingType, WayType, BeatenType;

/* Names of attributes, each made once. */
#define DECLARE_NAME(name) static PyObject *s_##name;
#define MAKE_NAME(name)                                                                                                \
    if (!(s_##name = PyUnicode_InternFromString(#name))) return -1;

/* beaten.c */
HERE int make_names_of_state(void);

/* numbering.c: as `PlainNumbering` of boundary/numbering.py */
HERE PyObject *Numbering_take(PyObject *numbering, PyObject *unused);

/* stencil.c: as `PlainStencil` of ledger/stencil.py */
HERE void forget_thread(void);
HERE PyObject *Stencil_begin(PyObject *stencil, PyObject *sequence);
HERE int Stencil_note_waiting(PyObject *stencil, PyObject *index, PyObject *milliseconds);
HERE int Stencil_note_ended(PyObject *stencil, PyObject *index);

/* posting.c: as `PlainPosting` of ledger/posting.py */
HERE void make_crc_table(void);

/* keys.c: as `plain_keys_of` of boundary/habits.py */
enum { MOST_WORDS = 96 }; /* of calls with more tensors than make so many there is no key */
typedef struct {
    PyObject *op, *tensor, *reduction, *no_timeout; /* torch's types, and its word for a group's own timeout */
    int reduces, rooted, minds_gaps;   /* whether the op has a reduce op, a root, and no patience with strides */
} Asked;
HERE int make_names_of_arguments(void);
/* None where there is no key; the last argument is the options. */
HERE PyObject *key_of(const Asked *asked, PyObject *const *args, Py_ssize_t count, PyObject *site);

/* memory.c */
HERE char *map_of(PyObject *memory, Py_buffer *view, Py_ssize_t least);

#endif
