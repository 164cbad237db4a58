/* As `plain_vet` of explain/flight/opcodes.py, of pickles with nothing to say against them. */

#include "hot.h"

enum { MOST_DIGITS = 32, MOST_ODD_TUPLES = 1000, PROTO = 0x80, STOP = 0x2E, TUPLE2 = 0x86 };

/* How long opcodes are that never vary, 0 for others; `GUARDED` are looked at closer. */
enum { GUARDED = 0xFF };
static const uint8_t length_of[256] = {
    ['('] = 1, [']'] = 1, ['e'] = 1, ['u'] = 1, ['}'] = 1, ['N'] = 1, [0x88] = 1, [0x89] = 1, ['a'] = 1, [0x94] = 1, ['s'] = 1,
    ['K'] = 2, ['q'] = 2, ['M'] = 3, ['J'] = 5, ['G'] = 9, [0x95] = 9,
    ['h'] = 2, ['j'] = GUARDED, ['r'] = GUARDED,
};

/* In how many bytes one says how much it carries; 0 where it carries nothing. */
static int length_bytes_of(uint8_t code) {
    switch (code) {
        case 0x8C: case 'C': case 0x8A: return 1;
        case 'X': case 'B': return 4;
        case 0x8D: return 8;
        default: return 0;
    }
}

typedef struct {
    const uint8_t *at, *end;
    int odd_tuples, quick;
} Vetting;

static int is_tuple(uint8_t code) { return code == ')' || code == 't' || code == 0x85 || code == TUPLE2 || code == 0x87; }

/* Whether a tuple of two that ends here may be kept from now on, or become the first half of the next. */
static int leads_on(const uint8_t *after, const uint8_t *end) {
    Py_ssize_t left = end - after;
    if (left < 1) return 0;
    switch (*after) {
        case 'q': case 0x94: case 'r': case '(': case 0x95: return 1;
        case 'h': return left > 2 && after[2] == TUPLE2;
        case 'j': return left > 5 && after[5] == TUPLE2;
        default: return 0;
    }
}

/* What was kept is asked for, and with it a tuple of two may end. */
static void pass_memo(Vetting *self, Py_ssize_t length) {
    self->at += length;
    if (self->at < self->end && *self->at == TUPLE2 && !leads_on(self->at + 1, self->end)) self->at++;
}

static void pass_tuple(Vetting *self) {
    uint8_t next = self->at + 1 < self->end ? self->at[1] : 0;
    self->odd_tuples += self->odd_tuples <= MOST_ODD_TUPLES;
    self->quick = self->quick && *self->at == TUPLE2 && next != 'q' && next != 'r' && next != 0x94;
    self->at++;
}

/* Past the opcode at hand; 0 where it may not stand there, or not all of it does. */
static int pass(Vetting *self) {
    Py_ssize_t left = self->end - self->at, length = length_of[*self->at];
    if (is_tuple(*self->at)) return pass_tuple(self), 1;
    if (length == GUARDED) { /* an index of four bytes, which must not be high */
        if (left < 5 || self->at[3] > 0x3F || self->at[4]) return 0;
        length = 5;
    }
    int length_bytes = length_bytes_of(*self->at);
    if (length_bytes) {
        if (left < 1 + length_bytes) return 0;
        uint64_t carried = 0;
        memcpy(&carried, self->at + 1, length_bytes);
        if (carried > (uint64_t)(left - 1 - length_bytes) || (*self->at == 0x8A && carried > MOST_DIGITS)) return 0;
        length = 1 + length_bytes + (Py_ssize_t)carried;
    }
    if (!length || length > left) return 0;
    if (*self->at == 'h' || *self->at == 'j') pass_memo(self, length);
    else self->at += length;
    return 1;
}

PyObject *vet(PyObject *Py_UNUSED(module), PyObject *raw) {
    if (!PyBytes_Check(raw)) return PyErr_Format(PyExc_TypeError, "a pickle is bytes");
    const uint8_t *start = (const uint8_t *)PyBytes_AS_STRING(raw);
    Vetting self = {start + 2, start + PyBytes_GET_SIZE(raw), 0, 1};
    if (PyBytes_GET_SIZE(raw) < 2 || start[0] != PROTO || start[1] < 2 || start[1] > 5) Py_RETURN_NONE;
    while (self.at < self.end) {
        if (*self.at == STOP) return PyBool_FromLong(self.quick && self.odd_tuples <= MOST_ODD_TUPLES);
        if (!pass(&self)) Py_RETURN_NONE;
    }
    Py_RETURN_NONE;
}
