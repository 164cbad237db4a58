/* As `plain_call_site` of boundary/callsites.py. */

#include "frames.h"

enum { USER, LIBRARY, TORCH, OURS }; /* as whose.Whose */
enum { MOST_FRAMES = 200, MOST_CALLERS = 12, MOST_BETWEEN = 40, MOST_OF_LIBRARIES = 40 };
enum { MOST_TOLD = MOST_OF_LIBRARIES + 1 + MOST_CALLERS };
enum { C10D = 1, FUNCTIONAL = 2, BETWEEN = 4, MOST_TO_FUNCTIONAL = 6 }; /* as boundary/layers.py */
enum { CODES = 4096, PLACES = 8 }; /* how many are known, and where each may be, from its own place on */

typedef struct {
    PyCodeObject *code; /* held, so that no other is ever found in its place */
    uint8_t whose, tells, runs_tests, layer;
} Known;

/* What a walk came to: whoever is in the same places again, frame by frame, would come to the same, and need not walk. */
enum { WALKS = 64, MOST_SPOTS = 64, TELLING_SPOTS = 3 };
typedef struct {
    Spot spots[MOST_SPOTS]; /* codes are held */
    int count, is_all;      /* whether there are no frames beyond */
    PyObject *site;
    enum hand hand;
    int from_c10d;
} Walk;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *classify, *meet, *sites, *passes;
    Known known[CODES];
    unsigned learned; /* how many in all */
    Walk walks[WALKS];
} CallSites;

static void forget(Walk *walk) {
    Walk before = *walk;
    walk->count = 0, walk->site = NULL;
    Py_XDECREF(before.site);
    while (before.count) Py_DECREF((PyObject *)before.spots[--before.count].code);
}

static void CallSites_dealloc(CallSites *self) {
    for (int each = 0; each < CODES; each++) Py_XDECREF(self->known[each].code);
    for (int each = 0; each < WALKS; each++) forget(&self->walks[each]);
    Py_XDECREF(self->classify);
    Py_XDECREF(self->meet);
    Py_XDECREF(self->sites);
    Py_XDECREF(self->passes);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

enum { FAILED = -1, WENT_ON, AGAIN }; /* of a walk */

/* The place that is free for a code, or has been taken the longest of those around, as good as: codes of one walk that
   share a place would drive each other out for ever. */
static Known *place_for(CallSites *self, size_t own) {
    for (size_t each = 0; each < PLACES; each++)
        if (!self->known[(own + each) % CODES].code) return &self->known[(own + each) % CODES];
    return &self->known[(own + self->learned++ % PLACES) % CODES];
}

static int learn(CallSites *self, PyCodeObject *code, size_t own, Known *found) {
    Py_ssize_t ran = PyList_GET_SIZE(self->passes);
    PyObject *told = PyObject_CallOneArg(self->classify, (PyObject *)code);
    if (!told) return FAILED;
    long bits = PyLong_AsLong(told); /* whose it is, how much it tells, whether it runs tests */
    Py_DECREF(told);
    if (bits == -1 && PyErr_Occurred()) return FAILED;
    Known *known = place_for(self, own); /* only now: asking may have taken one */
    PyCodeObject *before = known->code;
    *known = (Known){(PyCodeObject *)Py_NewRef(code), bits & 3, (bits >> 2) & 3, (bits >> 4) & 1, (bits >> 5) & 7};
    *found = *known;
    Py_XDECREF(before);
    return ran || PyList_GET_SIZE(self->passes) ? AGAIN : WENT_ON; /* a pass may have ended, and its frames be gone */
}

/* What is known of a function's code; asks `classify` of one that is new, or that another has taken the place of. */
static int know(CallSites *self, PyCodeObject *code, Known *found) {
    size_t own = ((uintptr_t)code >> 5) % CODES;
    for (size_t each = 0; each < PLACES; each++) {
        const Known *known = &self->known[(own + each) % CODES];
        if (known->code == code) {
            *found = *known;
            return WENT_ON;
        }
        if (!known->code) break; /* none is ever given up */
    }
    Py_INCREF(code);
    int going = learn(self, code, own, found);
    Py_DECREF(code);
    return going;
}

static int is_the_template(Frame frame, PyCodeObject *code) {
    Frame back = back_of(frame);
    drop_frame(back);
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
    Frame told[MOST_TOLD]; /* the user's, its callers, and those of libraries below and between them */
    Frame last;            /* that was looked at; not held */
    PyCodeObject *via;
    Py_ssize_t count, of_libraries;
    Look look;
} Found; /* all of them held */

static enum hand hand_of(const Found *found) {
    const Look *look = &found->look;
    if (look->handed || look->returned) return look->handed ? HANDED : RETURNED;
    int unclear = !look->knows_handed || (look->inside && !look->knows_returned);
    return found->count && unclear ? UNCLEAR : KEPT; /* a function of the user's may be called as those in between are */
}

static void keep_only(Found *found, Py_ssize_t count) {
    while (found->count > count) drop_frame(found->told[--found->count]);
}

static void let_go(Found *found) {
    Py_CLEAR(found->via);
    keep_only(found, 0);
}

/* One of a library's, if there is room. */
static void tell(Found *found, Frame frame) {
    if (found->of_libraries == MOST_OF_LIBRARIES) return;
    hold_frame(found->told[found->count++] = frame);
    found->of_libraries++;
}

/* What goes on below the last frame of a thread that C++ has made for a backward pass: what runs the innermost of the
   first `left` passes; else NULL. */
static Frame frame_of_pass(CallSites *self, Py_ssize_t left) {
    if (left > PyList_GET_SIZE(self->passes)) left = PyList_GET_SIZE(self->passes);
    return left > 0 ? frame_behind(PyList_GET_ITEM(self->passes, left - 1)) : NULL;
}

/* How many passes are left that the walk has not come to, now that it is at `frame`. */
static Py_ssize_t passes_left(CallSites *self, Py_ssize_t left, Frame frame) {
    for (Py_ssize_t each = 0; each < left && each < PyList_GET_SIZE(self->passes); each++)
        if (PyList_GET_ITEM(self->passes, each) == object_known(frame)) return each;
    return left;
}

/* The frames around that of the user's, the last that is told; see `callsites._callers_of`. */
static int find_callers(CallSites *self, Found *found) {
    Frame frame = back_of(found->told[found->count - 1]);
    Py_ssize_t left = PyList_GET_SIZE(self->passes), users_end = found->count;
    int failed = 0;
    for (int between = 0, library = 0, users = 0; between < MOST_BETWEEN && users < MOST_CALLERS;) {
        if (!frame && !library) frame = frame_of_pass(self, left); /* in a thread of the engine's own */
        if (!frame) break;
        Py_ssize_t before = left;
        left = passes_left(self, left, frame);
        PyCodeObject *code = code_of(found->last = frame);
        Known known;
        failed = know(self, code, &known);
        int ours = known.whose == OURS && left == before; /* who begins a backward pass is the user */
        if (failed || ours || (known.whose == LIBRARY && known.runs_tests) ||
            (known.whose == USER && is_the_template(frame, code)))
            break;
        Frame back = back_of(frame);
        if (known.whose == USER) {
            found->told[found->count++] = frame;
            users_end = found->count;
            between = 0, users++;
        } else {
            if (known.whose == LIBRARY) library = 1, tell(found, frame);
            drop_frame(frame);
            between++;
        }
        frame = back;
    }
    drop_frame(frame);
    keep_only(found, users_end);
    return failed;
}

static int find_frames(CallSites *self, long depth, Found *found) {
    Frame frame = innermost();
    Py_ssize_t left = PyList_GET_SIZE(self->passes);
    int telling = 0, failed = 0, user = 0, below = !frame;
    if (below) frame = frame_of_pass(self, left);
    for (long looked = below ? 0 : 1 - depth; frame && looked < MOST_FRAMES; looked++) {
        if (left) left = passes_left(self, left, frame);
        Frame back;
        if (looked >= 0) {
            PyCodeObject *code = code_of(found->last = frame);
            Known known;
            failed = know(self, code, &known);
            if (!failed) look_at(&found->look, &known, looked + depth);
            if (!failed && !looked) found->look.from_c10d = known.layer == C10D;
            if (failed || known.whose == USER) {
                user = !failed && !is_the_template(frame, code);
                if (user) {
                    hold_frame(found->told[found->count++] = frame);
                    failed = find_callers(self, found);
                }
                break;
            }
            if (known.whose == LIBRARY) {
                tell(found, frame);
            } else if (!found->count && known.tells && known.tells >= telling) {
                Py_XSETREF(found->via, (PyCodeObject *)Py_NewRef(code));
                telling = known.tells;
            }
        }
        back = back_of(frame);
        if (!back && !found->count) {
            back = frame_of_pass(self, left);
            looked = looked < 0 ? -1 : looked;
        }
        drop_frame(frame);
        frame = back;
    }
    drop_frame(frame);
    if (!user) keep_only(found, 1);
    return failed;
}

/* The user's frame, or else the first of a library's, and which function of torch's, or gather, was called there. */
static int find(CallSites *self, long depth, Found *found) {
    int going = AGAIN;
    for (int turn = 0; going == AGAIN && turn < MOST_FRAMES; turn++) { /* two codes may drive each other out for ever */
        let_go(found);
        *found = (Found){0};
        going = find_frames(self, depth, found);
    }
    if (going == AGAIN) let_go(found), *found = (Found){0};
    return going == FAILED ? -1 : 0;
}

static uint64_t *add_frame(uint64_t *key, Frame frame) {
    *key++ = (uint64_t)(uintptr_t)code_of(frame); /* held by its frame, and by the site once it is known */
    *key++ = (uint64_t)lasti_of(frame);
    return key;
}

/* Have Python make the objects of all frames from `frame` outward, which each keeps. */
static void walk(PyFrameObject *frame) {
    while (frame) {
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
}

static PyObject *object_of(CallSites *self, Frame frame) {
    if (!object_known(frame)) walk(PyThreadState_GetFrame(PyThreadState_Get()));
    for (Py_ssize_t each = 0; !object_known(frame) && each < PyList_GET_SIZE(self->passes); each++)
        walk((PyFrameObject *)Py_NewRef(PyList_GET_ITEM(self->passes, each)));
    PyObject *object = object_known(frame);
    return object ? Py_NewRef(object) : PyErr_Format(PyExc_SystemError, "a frame that Python does not come to");
}

/* A site that is new. */
static PyObject *meet(CallSites *self, Found *found, PyObject *key) {
    int collects = PyGC_Disable(); /* it might run anything, and a frame of another thread be gone by then */
    PyObject *frames = PyTuple_New(found->count), *site = NULL;
    for (Py_ssize_t each = 0; frames && each < found->count; each++) {
        PyObject *frame = object_of(self, found->told[each]);
        if (frame) PyTuple_SET_ITEM(frames, each, frame);
        else Py_CLEAR(frames);
    }
    if (collects) PyGC_Enable();
    PyObject *via = found->via ? (PyObject *)found->via : Py_None;
    if (frames) site = PyObject_CallFunctionObjArgs(self->meet, key, frames, via, NULL);
    Py_XDECREF(frames);
    return site;
}

static PyObject *site_of(CallSites *self, Found *found) {
    uint64_t key[1 + 2 * MOST_TOLD], *end = key;
    *end++ = (uint64_t)(uintptr_t)found->via;
    for (Py_ssize_t each = 0; each < found->count; each++) end = add_frame(end, found->told[each]);
    PyObject *bytes = PyBytes_FromStringAndSize((char *)key, (end - key) * sizeof *key);
    if (!bytes) return NULL;
    PyObject *known = PyDict_GetItemWithError(self->sites, bytes), *site = NULL;
    if (known && PyTuple_Check(known) && PyTuple_GET_SIZE(known)) {
        site = Py_NewRef(PyTuple_GET_ITEM(known, 0));
    } else if (!PyErr_Occurred()) {
        site = meet(self, found, bytes);
    }
    Py_DECREF(bytes);
    return site;
}

#ifdef FRAMES_LIE_OPEN
/* Where a walk from here is kept; NULL where none is: beyond a pass lie the frames of another thread. */
static Walk *walk_from(CallSites *self, Frame frame) {
    if (!frame || PyList_GET_SIZE(self->passes)) return NULL;
    uint64_t number = 0;
    for (int each = 0; frame && each < TELLING_SPOTS; each++, frame = frame->previous)
        number = (number ^ (uint64_t)(uintptr_t)spot_of(frame).at) * 0x9E3779B97F4A7C15u;
    return &self->walks[number >> 58];
}

static int is_there_again(const Walk *walk, Frame frame) {
    if (!walk->site) return 0;
    for (int each = 0; each < walk->count; each++, frame = frame->previous) {
        if (!frame) return 0;
        Spot spot = spot_of(frame);
        if (spot.code != walk->spots[each].code || spot.at != walk->spots[each].at) return 0;
    }
    return !walk->is_all || !frame;
}

/* As far as the walk went, and one frame more, of which was asked whether it is there. */
static void remember(Walk *walk, Frame frame, const Found *found, PyObject *site) {
    int beyond = 0;
    forget(walk);
    for (; frame && beyond < 2; frame = frame->previous) {
        Spot spot = spot_of(frame);
        if (walk->count == MOST_SPOTS || !spot.code) return forget(walk);
        walk->spots[walk->count++] = spot;
        Py_INCREF((PyObject *)spot.code);
        if (beyond && !_PyFrame_IsIncomplete(frame)) beyond = 2;
        else if (frame == found->last) beyond = 1;
    }
    if (!beyond) return forget(walk); /* it went on to a pass that has begun meanwhile */
    walk->is_all = !frame;
    walk->hand = hand_of(found), walk->from_c10d = found->look.from_c10d;
    walk->site = Py_NewRef(site);
}
#endif

PyObject *site_and_hand(PyObject *call_sites, enum hand *hand, int *from_c10d) {
    CallSites *self = (CallSites *)call_sites;
#ifdef FRAMES_LIE_OPEN
    Frame here = newest();
    Walk *walk = walk_from(self, here);
    if (walk && is_there_again(walk, here)) {
        *hand = walk->hand, *from_c10d = walk->from_c10d;
        return Py_NewRef(walk->site);
    }
#endif
    Found found = {0};
    PyObject *site = NULL;
    if (!find(self, 1, &found)) {
        *hand = hand_of(&found);
        *from_c10d = found.look.from_c10d;
        site = found.count ? site_of(self, &found) : Py_NewRef(Py_None);
    }
#ifdef FRAMES_LIE_OPEN
    if (site && found.count && walk) remember(walk, here, &found, site);
#endif
    let_go(&found);
    return site;
}

/* How many backward passes the call was made in, one within the other, if it was C++ that made it there; else 0. */
int passes_above(PyObject *engine, PyObject *call_sites) {
    Frame frame = innermost();
    if (!frame) return (int)PyList_GET_SIZE(((CallSites *)call_sites)->passes); /* in a thread of the engine's own */
    int passes = 0;
    for (int looked = 0; frame && looked < MOST_FRAMES; looked++) {
        int runs_backward = (PyObject *)code_of(frame) == engine;
        passes += runs_backward;
        Frame back = looked || runs_backward ? back_of(frame) : NULL;
        drop_frame(frame);
        frame = back;
    }
    drop_frame(frame);
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
    if (!find(self, depth, &found)) site = found.count ? site_of(self, &found) : Py_NewRef(Py_None);
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

