/* As `plain_call_site` of boundary/callsites.py. */

#include "hot.h"

enum { USER, LIBRARY, TORCH, OURS }; /* as whose.Whose */
enum { MOST_FRAMES = 200, MOST_CALLERS = 3, MOST_BETWEEN = 12 };
enum { C10D = 1, FUNCTIONAL = 2, BETWEEN = 4, MOST_TO_FUNCTIONAL = 6 }; /* as boundary/layers.py */
enum { CODES = 4096 };

typedef struct {
    PyCodeObject *code; /* held, so that no other is ever found in its place */
    uint8_t whose, tells, runs_tests, layer;
} Known;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *classify, *meet, *sites, *passes;
    Known known[CODES];
} CallSites;

static void CallSites_dealloc(CallSites *self) {
    for (int each = 0; each < CODES; each++) Py_XDECREF(self->known[each].code);
    Py_XDECREF(self->classify);
    Py_XDECREF(self->meet);
    Py_XDECREF(self->sites);
    Py_XDECREF(self->passes);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* What is known of a function's code; asks `classify` of one that is new, or that another has taken the place of. */
static int know(CallSites *self, PyCodeObject *code, Known *found) {
    Known *known = &self->known[((uintptr_t)code >> 5) % CODES];
    if (known->code != code) {
        PyObject *told = PyObject_CallOneArg(self->classify, (PyObject *)code);
        if (!told) return -1;
        long bits = PyLong_AsLong(told); /* whose it is, how much it tells, whether it runs tests */
        Py_DECREF(told);
        if (bits == -1 && PyErr_Occurred()) return -1;
        PyCodeObject *before = known->code;
        *known = (Known){(PyCodeObject *)Py_NewRef(code), bits & 3, (bits >> 2) & 3, (bits >> 4) & 1, (bits >> 5) & 7};
        *found = *known;
        Py_XDECREF(before);
        return 0;
    }
    *found = *known;
    return 0;
}

static int is_the_template(PyFrameObject *frame, PyCodeObject *code) {
    PyFrameObject *back = PyFrame_GetBack(frame);
    Py_XDECREF(back);
    return !back && PyUnicode_CompareWithASCIIString(code->co_filename, "<string>") == 0;
}

/* As `handed_to_user` and `returned_to_user` of boundary/handed.py, which look at the same frames. */
typedef struct {
    int public, handed, knows_handed, inside, returned, knows_returned, from_c10d;
} Look;

static void look_at(Look *look, const Known *known, long number) {
    int between = known->layer & BETWEEN;
    if (known->layer & C10D) look->public = 1;
    else if (!look->knows_handed && !between && (look->public || known->whose != OURS)) {
        look->handed = look->public && known->whose == USER;
        look->knows_handed = 1;
    }
    if (known->layer & FUNCTIONAL) look->inside = 1;
    else if (!look->knows_returned && (look->inside ? !between : number >= MOST_TO_FUNCTIONAL)) {
        look->returned = look->inside && known->whose == USER;
        look->knows_returned = 1;
    }
}

typedef struct {
    PyFrameObject *user, *callers[MOST_CALLERS];
    PyCodeObject *via;
    Py_ssize_t count;
    Look look;
} Found; /* all of them held */

static enum hand hand_of(const Found *found) {
    const Look *look = &found->look;
    if (look->handed || look->returned) return look->handed ? HANDED : RETURNED;
    int unclear = !look->knows_handed || (look->inside && !look->knows_returned);
    return found->user && unclear ? UNCLEAR : KEPT; /* a function of the user's may be called as those in between are */
}

static void let_go(Found *found) {
    Py_CLEAR(found->user);
    Py_CLEAR(found->via);
    while (found->count) Py_DECREF(found->callers[--found->count]);
}

/* What goes on below the last frame of a thread that C++ has made for a backward pass: what runs the innermost of the
   first `left` passes; else NULL. */
static PyFrameObject *frame_of_pass(CallSites *self, Py_ssize_t left) {
    if (left > PyList_GET_SIZE(self->passes)) left = PyList_GET_SIZE(self->passes);
    return left > 0 ? (PyFrameObject *)Py_NewRef(PyList_GET_ITEM(self->passes, left - 1)) : NULL;
}

/* How many passes are left that the walk has not come to, now that it is at `frame`. */
static Py_ssize_t passes_left(CallSites *self, Py_ssize_t left, PyFrameObject *frame) {
    for (Py_ssize_t each = 0; each < left && each < PyList_GET_SIZE(self->passes); each++)
        if (PyList_GET_ITEM(self->passes, each) == (PyObject *)frame) return each;
    return left;
}

/* The user's frames around that of the user's; see `callsites._callers_of`. */
static int find_callers(CallSites *self, Found *found) {
    PyFrameObject *frame = PyFrame_GetBack(found->user);
    Py_ssize_t left = PyList_GET_SIZE(self->passes);
    for (int between = 0, library = 0; between < MOST_BETWEEN && found->count < MOST_CALLERS;) {
        if (!frame && !library) frame = frame_of_pass(self, left); /* in a thread of the engine's own */
        if (!frame) break;
        Py_ssize_t before = left;
        left = passes_left(self, left, frame);
        PyCodeObject *code = PyFrame_GetCode(frame);
        Known known;
        int failed = know(self, code, &known);
        int ours = known.whose == OURS && left == before; /* who begins a backward pass is the user */
        int stop = failed || ours || (known.whose == LIBRARY && known.runs_tests) ||
                   (known.whose == USER && is_the_template(frame, code));
        Py_DECREF(code);
        if (stop) {
            Py_DECREF(frame);
            return failed;
        }
        PyFrameObject *back = PyFrame_GetBack(frame);
        if (known.whose == USER) {
            found->callers[found->count++] = frame;
            between = 0;
        } else {
            library = library || known.whose == LIBRARY;
            Py_DECREF(frame);
            between++;
        }
        frame = back;
    }
    Py_XDECREF(frame);
    return 0;
}

/* The user's frame, or else the first of a library's, and which function of torch's, or gather, was called there. */
static int find_frames(CallSites *self, long depth, Found *found) {
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get()), *library = NULL;
    Py_ssize_t left = PyList_GET_SIZE(self->passes);
    int telling = 0, failed = 0, below = !frame;
    if (below) frame = frame_of_pass(self, left);
    for (long looked = below ? 0 : 1 - depth; frame && looked < MOST_FRAMES; looked++) {
        if (left) left = passes_left(self, left, frame);
        PyFrameObject *back;
        if (looked >= 0) {
            PyCodeObject *code = PyFrame_GetCode(frame);
            Known known;
            failed = know(self, code, &known);
            if (!failed) look_at(&found->look, &known, looked + depth);
            if (!failed && !looked) found->look.from_c10d = known.layer == C10D;
            if (failed || known.whose == USER) {
                if (!failed && !is_the_template(frame, code)) {
                    found->user = (PyFrameObject *)Py_NewRef(frame);
                    failed = find_callers(self, found);
                }
                Py_DECREF(code);
                break;
            }
            if (known.whose == LIBRARY && !library) {
                library = (PyFrameObject *)Py_NewRef(frame);
            } else if (!library && known.tells && known.tells >= telling) {
                Py_XSETREF(found->via, (PyCodeObject *)Py_NewRef(code));
                telling = known.tells;
            }
            Py_DECREF(code);
        }
        back = PyFrame_GetBack(frame);
        if (!back && !library) {
            back = frame_of_pass(self, left);
            looked = looked < 0 ? -1 : looked;
        }
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    if (!found->user && !failed) {
        found->user = library;
        library = NULL;
    }
    Py_XDECREF(library);
    return failed;
}

static uint64_t *add_frame(uint64_t *key, PyFrameObject *frame) {
    PyCodeObject *code = PyFrame_GetCode(frame); /* held by its frame, and by the site once it is known */
    *key++ = (uint64_t)(uintptr_t)code;
    *key++ = (uint64_t)PyFrame_GetLasti(frame);
    Py_DECREF(code);
    return key;
}

static PyObject *site_of(CallSites *self, Found *found) {
    uint64_t key[3 + 2 * MOST_CALLERS], *end = add_frame(key, found->user);
    *end++ = (uint64_t)(uintptr_t)found->via;
    for (Py_ssize_t each = 0; each < found->count; each++) end = add_frame(end, found->callers[each]);
    PyObject *bytes = PyBytes_FromStringAndSize((char *)key, (end - key) * sizeof *key);
    if (!bytes) return NULL;
    PyObject *known = PyDict_GetItemWithError(self->sites, bytes), *site = NULL;
    if (known && PyTuple_Check(known) && PyTuple_GET_SIZE(known)) {
        site = Py_NewRef(PyTuple_GET_ITEM(known, 0));
    } else if (!PyErr_Occurred()) {
        PyObject *callers = PyTuple_New(found->count);
        for (Py_ssize_t each = 0; callers && each < found->count; each++)
            PyTuple_SET_ITEM(callers, each, Py_NewRef(found->callers[each]));
        PyObject *via = found->via ? (PyObject *)found->via : Py_None;
        if (callers) site = PyObject_CallFunctionObjArgs(self->meet, bytes, found->user, via, callers, NULL);
        Py_XDECREF(callers);
    }
    Py_DECREF(bytes);
    return site;
}

PyObject *site_and_hand(PyObject *call_sites, enum hand *hand, int *from_c10d) {
    CallSites *self = (CallSites *)call_sites;
    Found found = {0};
    PyObject *site = NULL;
    if (!find_frames(self, 1, &found)) {
        *hand = hand_of(&found);
        *from_c10d = found.look.from_c10d;
        site = found.user ? site_of(self, &found) : Py_NewRef(Py_None);
    }
    let_go(&found);
    return site;
}

/* How many backward passes the call was made in, one within the other, if it was C++ that made it there; else 0. */
int passes_above(PyObject *engine, PyObject *call_sites) {
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    if (!frame) return (int)PyList_GET_SIZE(((CallSites *)call_sites)->passes); /* in a thread of the engine's own */
    int passes = 0;
    for (int looked = 0; frame && looked < MOST_FRAMES; looked++) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        int runs_backward = (PyObject *)code == engine;
        Py_DECREF(code);
        passes += runs_backward;
        PyFrameObject *back = looked || runs_backward ? PyFrame_GetBack(frame) : NULL;
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    Py_ssize_t all = PyList_GET_SIZE(((CallSites *)call_sites)->passes);
    return passes && all > passes ? (int)all : passes;
}

static PyObject *CallSites_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (names || count > 1) return PyErr_Format(PyExc_TypeError, "call_site(depth)");
    long depth = count ? PyLong_AsLong(args[0]) : 1;
    if (depth == -1 && PyErr_Occurred()) return NULL;
    CallSites *self = (CallSites *)object;
    Found found = {0};
    PyObject *site = NULL;
    if (!find_frames(self, depth, &found)) site = found.user ? site_of(self, &found) : Py_NewRef(Py_None);
    let_go(&found);
    return site;
}

static PyObject *CallSites_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *classify, *meet, *sites, *passes;
    if (kwargs && PyDict_GET_SIZE(kwargs)) return PyErr_Format(PyExc_TypeError, "CallSites takes no names");
    if (!PyArg_ParseTuple(args, "OOO!O!", &classify, &meet, &PyDict_Type, &sites, &PyList_Type, &passes)) return NULL;
    CallSites *self = (CallSites *)type->tp_alloc(type, 0); /* all zero */
    if (!self) return NULL;
    self->vectorcall = CallSites_call;
    self->classify = Py_NewRef(classify);
    self->meet = Py_NewRef(meet);
    self->sites = Py_NewRef(sites);
    self->passes = Py_NewRef(passes);
    return (PyObject *)self;
}

PyTypeObject CallSitesType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankdrill.native.hot.CallSites",
    .tp_basicsize = sizeof(CallSites),
    .tp_dealloc = (destructor)CallSites_dealloc,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(CallSites, vectorcall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = CallSites_new,
};

