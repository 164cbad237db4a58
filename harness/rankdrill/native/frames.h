/* The frames of a thread, from the innermost outward.

   Python's own calls for that make an object for each frame, which is new for each call of a function: of a watched
   call that is a fifth. Where this Python's layout is known they are looked at as they lie. They stay where they are
   until the call that looks at them is over. */

#ifndef RANKDRILL_FRAMES_H
#define RANKDRILL_FRAMES_H

#include "hot.h"

/* What says where a frame is: it is as far as that in that code, for as long as what it calls goes on. */
typedef struct {
    const void *code, *at;
} Spot;

#if PY_VERSION_HEX < 0x030E0000 && !defined(PYPY_VERSION) && !defined(Py_GIL_DISABLED) && defined(__has_include)
#if __has_include(<internal/pycore_frame.h>) /* not every system's Python comes with it */
#define FRAMES_LIE_OPEN 1
#endif
#endif

#ifdef FRAMES_LIE_OPEN
#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE

typedef _PyInterpreterFrame *Frame;

static inline Spot spot_of(Frame frame) {
#if PY_VERSION_HEX < 0x030D0000
    return (Spot){frame->f_code, frame->prev_instr};
#else
    return (Spot){frame->f_executable, frame->instr_ptr};
#endif
}

/* It may not have begun. */
static inline Frame newest(void) {
#if PY_VERSION_HEX < 0x030D0000
    return PyThreadState_Get()->cframe->current_frame;
#else
    return PyThreadState_Get()->current_frame;
#endif
}

static inline Frame complete(Frame frame) {
    while (frame && _PyFrame_IsIncomplete(frame)) frame = frame->previous;
    return frame;
}

static inline Frame innermost(void) { return complete(newest()); }

static inline Frame frame_behind(PyObject *object) { return ((PyFrameObject *)object)->f_frame; }
static inline Frame back_of(Frame frame) { return complete(frame->previous); }
static inline int lasti_of(Frame frame) { return _PyInterpreterFrame_LASTI(frame); }
static inline PyObject *object_known(Frame frame) { return (PyObject *)frame->frame_obj; }
static inline void hold_frame(Frame frame) { (void)frame; }
static inline void drop_frame(Frame frame) { (void)frame; }
static inline PyCodeObject *code_of(Frame frame) {
#if PY_VERSION_HEX < 0x030D0000
    return frame->f_code;
#else
    return _PyFrame_GetCode(frame);
#endif
}

#else

typedef PyFrameObject *Frame; /* held */

static inline Frame innermost(void) { return PyThreadState_GetFrame(PyThreadState_Get()); }
static inline Frame frame_behind(PyObject *object) { return (Frame)Py_NewRef(object); }
static inline Frame back_of(Frame frame) { return PyFrame_GetBack(frame); }
static inline int lasti_of(Frame frame) { return PyFrame_GetLasti(frame); }
static inline PyObject *object_known(Frame frame) { return (PyObject *)frame; }
static inline void hold_frame(Frame frame) { Py_INCREF(frame); }
static inline void drop_frame(Frame frame) { Py_XDECREF(frame); }
static inline PyCodeObject *code_of(Frame frame) { /* which its frame holds */
    PyCodeObject *code = PyFrame_GetCode(frame);
    Py_DECREF(code);
    return code;
}

#endif

#endif
