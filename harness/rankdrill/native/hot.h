/* What a watched call does each time, in C: see beaten.c, which is all of it, and the parts that it is made of; and what is
   done with a flight recorder's dumps, of whose entries a large job leaves millions: dumps.c.

   Each part has a twin in Python, which says what it is for, and which is used where this was not built. Whatever is
   not the usual case is handed back to Python: a call site met for the first time, a call of another shape, a post
   that does not fit, an error. */

#ifndef RANKDRILL_HOT_H
#define RANKDRILL_HOT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "ledgers and boards are little-endian"
#endif

#define HERE __attribute__((visibility("hidden")))

HERE extern PyTypeObject MappedType, WaitedType, StencilType, PostingType, CallSitesType, NumberingType, WayType, BeatenType, IssuedType, HeldType,
    WaitingType, EntranceType, GateType, SuitedType, InsideType, DumpType;

/* Names of attributes, each made once. */
#define DECLARE_NAME(name) static PyObject *s_##name;
#define MAKE_NAME(name)                                                                                                \
    if (!(s_##name = PyUnicode_InternFromString(#name))) return -1;

/* beaten.c */
HERE int make_names_of_state(void);

/* numbering.c: as `PlainNumbering` of boundary/numbering.py */
HERE PyObject *Numbering_take(PyObject *numbering, PyObject *unused);

typedef struct {
    PyObject_HEAD
    long long upcoming;
} Numbering;

/* looked.c: what `Gate` of boundary/gate.py, and `Habit` of boundary/habits.py, inherit */
enum { GATE_RECORDED, GATE_INTERCEPTORS, GATE_INSIDE, GATE_LEDGER, GATE_WATCH, GATE_HANDLES, GATE_FIELDS };
enum { SUITED_LEDGER, SUITED_WATCH, SUITED_STENCIL, SUITED_ENTER, SUITED_FIELDS };
typedef struct {
    PyObject_HEAD
    PyObject *field[GATE_FIELDS];
} Gate;
typedef struct {
    PyObject_HEAD
    PyObject *field[SUITED_FIELDS];
} Suited;
/* As `_Inside` of boundary/gate.py: a number that each thread has its own of. */
typedef struct {
    PyObject_HEAD
    pthread_key_t key;
    int has_key;
} Inside;
HERE long Inside_depth(const Inside *inside);
HERE int Inside_go(const Inside *inside, long depth);

/* stencil.c: as `PlainStencil` of ledger/stencil.py */
HERE void forget_thread(void);
HERE PyObject *Stencil_begin(PyObject *stencil, PyObject *sequence);
HERE int Stencil_note_waiting(PyObject *stencil, PyObject *index, PyObject *milliseconds);
HERE int Stencil_note_ended(PyObject *stencil, PyObject *index);
HERE int Stencil_note_issued(PyObject *stencil, PyObject *index);

/* callsites.c: as `plain_call_site` of boundary/callsites.py, and as boundary/handed.py */
enum hand { KEPT, HANDED, RETURNED, UNCLEAR }; /* who is to wait: whoever asked torch, the user, the user by its result */
HERE PyObject *site_and_hand(PyObject *call_sites, enum hand *hand, int *from_c10d); /* the last: right from there */
HERE int passes_above(PyObject *engine, PyObject *call_sites);

/* posting.c: as `PlainPosting` of ledger/posting.py */
HERE void make_crc_table(void);

/* keys.c: as `plain_keys_of` of boundary/habits.py */
enum { MOST_WORDS = 96 }; /* of calls with more tensors than make so many there is no key */
typedef struct {
    uint64_t words[MOST_WORDS], *end;
} Key;
/* Where options of that type have what is asked of them, as `Places` of boundary/options_seam.py; -1 is unknown. */
typedef struct {
    PyTypeObject *type;
    Py_ssize_t asynchronous, reduction, root, timeout;
} Places;
/* Where `place` of `options` is; NULL where Python has to be asked for it. */
static inline const char *lying_at(const Places *places, PyObject *options, Py_ssize_t place) {
    const char *laid = Py_TYPE(options) == places->type && place >= 0 ? *(const char **)((char *)options + sizeof(PyObject)) : NULL;
    return laid ? laid + place : NULL;
}
static inline int64_t word_at(const char *lying) {
    int64_t word;
    memcpy(&word, lying, sizeof word);
    return word;
}
/* Where a plain tensor has its sizes and its dtype, as `TensorPlaces` of boundary/tensor_seam.py; a `kind` of 0 is unknown. */
enum { MOST_DIMENSIONS = 5 }; /* that lie there */
typedef struct {
    uint64_t kind;
    Py_ssize_t pointer, dimensions, strides, dtype;
} TensorPlaces;
typedef struct {
    Places places;
    TensorPlaces tensors;
    PyObject *op, *tensor, *reduction, *no_timeout; /* torch's types, and its word for a group's own timeout */
    int reduces, rooted, minds_gaps;   /* whether the op has a reduce op, a root, and no patience with strides */
    int in_place, from_root, bucketed; /* whether it writes where it reads: everywhere, but at the root; DDP calls it */
} Asked;

/* The memory of one tensor, which is held. */
typedef struct {
    uint64_t start, end;
    PyObject *tensor;
    int written;
    char on_cpu;    /* whether it is known to be */
    uint64_t print; /* of what lies there, which nobody may change; 0 where that is not known */
} Span;
enum { MOST_SPANS = 32 }; /* of calls with more of them there is no key */
typedef struct {
    Span span[MOST_SPANS];
    int count, wanted;
} Spans;
HERE void clear_spans(Spans *spans);

/* Of one call, what its key is of; the last argument is the options. */
typedef struct {
    PyObject *const *args;
    Py_ssize_t count;
    PyObject *site;
    long long place; /* of this rank in the group */
    uint64_t way;    /* how it goes on after it is issued: 0 it is waited for at once */
    Spans *spans;    /* of its tensors, filled in if they are wanted */
} Asking;
HERE int make_names_of_arguments(void);
/* Whether torch does not wait for it: 1 or 0, -1 with an exception. */
HERE int is_asynchronous(const Asked *asked, PyObject *opts);
/* 1, or 0 where there is no key, or -1 with an exception. */
HERE int key_of(const Asked *asked, const Asking *asking, Key *key);

/* way.c */
/* A habit by its key, of those met of late: nothing has to be made, nor hashed, to find it. */
enum { RECENT = 32, MOST_RECENT_WORDS = 20 };
typedef struct {
    PyObject *habit, *site; /* held; the key tells the site by its address */
    Py_ssize_t count;
    uint64_t words[MOST_RECENT_WORDS];
} Recent;

/* Of one group, what its calls look at each time. What a key says never changes for as long as there is one. */
typedef struct {
    PyObject_HEAD
    PyObject *boundary, *moments, *used, *buckets, *waiting, *by_key, *inner, *sequence, *patience_ms;
    long long place; /* of this rank in the group */
    Recent recent[RECENT];
} Way;
HERE PyObject *Way_recent(Way *way, const Key *key); /* borrowed; NULL where it has not been met of late */
HERE void Way_keep(Way *way, const Key *key, PyObject *site, PyObject *habit);

/* issued.c: calls that are not over when they are issued, as boundary/work.py and boundary/handles.py */
struct Held;
typedef struct {
    PyObject_HEAD
    PyObject *inner, *stencil, *record, *patience, *boundary, *ledger, *group;
    struct Held *handle; /* NULL where nobody is to wait */
    char over;
} Issued;
HERE int make_names_of_issued(void);
HERE Issued *Issued_make(PyObject *group, PyObject *boundary, PyObject *ledger, PyObject *stencil, PyObject *record,
                         PyObject *inner, PyObject *patience);
/* Has `handles` know that somebody is to wait for `issued`, and watch the memory of its tensors, which it takes. */
HERE int Issued_hold(Issued *issued, PyObject *type, PyObject *handles, PyObject *habit, PyObject *sequence,
                     PyObject *of_all, Spans *spans);
/* Whether a call that works on these may get in the way of one under way: 1 or 0, -1 with an exception. */
HERE int may_meet(PyObject *under_way, const Spans *spans);

/* prints.c */
HERE int make_names_of_memory(void);
HERE uint64_t print_of(uint64_t start, uint64_t end); /* never 0 */
HERE PyObject *print_in(PyObject *module, PyObject *args);
/* Of what a call reads and does not write itself: it may be given both as one. */
HERE void take_prints(Span *spans, Py_ssize_t count);
/* What has become since of a tensor that nobody was to change: by `WAYS` of boundary/prints.py. */
enum { AS_IT_WAS, CHANGED, FREED, MOVED };
HERE int look_again(const Span *span);

/* waited.c: what torch's public function is given of a call that has been waited for, to wait for */
HERE PyObject *waited(void);

/* raised.c */
typedef struct {
    PyObject *type, *error, *traceback, *signal_type, *signal_error, *signal_traceback;
    int by_signal;
} Raised;
HERE void put_aside(Raised *raised);
HERE void set_again(Raised *raised);

/* dumps.c: a flight recorder's dump; None where it is not as torch writes it */
HERE PyObject *read_dump(PyObject *module, PyObject *raw);

/* memory.c: as `PlainMapped` of ledger/mapped.py */
typedef struct {
    PyObject_HEAD
    PyObject *memory;
    Py_buffer view; /* of no memory once it is released, as it is before the file is closed */
} Mapped;
/* Its memory, of at least so many bytes; NULL with an exception where it has not so many, or is closed. */
HERE char *map_of(PyObject *mapped, Py_ssize_t least);

#endif
