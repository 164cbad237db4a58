/* A flight recorder's dump, read in one go: what explain/flight/columns.py makes of the data that a pickle builds.

   Nothing is built of what the file holds but what is asked for afterwards. Values are kept as 64 bits: numbers as they
   are, everything else by its place in one of three tables. Whatever is not as torch writes it is left to Python, which
   says what is wrong with it: so nothing here has to be told apart from an error. What a file can make this take is
   bounded by its own length, and by MOST of each; how long it takes, by a multiple of it: what is in a file once may
   stand in many places. */

#include "hot.h"

typedef uint64_t Value;
enum { NUMBER, TEXT, BOX, OTHER };        /* the two lowest bits; the rest is the number, or a place in the table */
enum { NONE, TRUE, FALSE, FIRST_OTHER };  /* places of OTHER that are taken */
enum { LIST, TUPLE, DICT };               /* kinds of BOX */
enum { MOST = 1 << 24, MOST_DIGITS = 8 }; /* of anything that is kept, or looked at; bytes of a number */
enum { FREE = 1 << 20 };                  /* that may be looked at in the smallest file */

#define value_of(kind, place) ((Value)(place) << 2 | (kind))
#define kind_of(value) ((int)((value) & 3))
#define place_of(value) ((uint32_t)((value) >> 2))

/* The fields of an entry, and those of a dump. */
#define FIELDS(X)                                                                                                      \
    X(process_group) X(profiling_name) X(collective_seq_id) X(record_id) X(time_created_ns) X(state) X(retired) X(is_p2p)\
    X(input_sizes) X(output_sizes) X(input_dtypes) X(output_dtypes) X(frames)
#define ENUMERATE(name) F_##name,
enum { NO_FIELD, FIELDS(ENUMERATE) FIELD_COUNT };
#define SPELL(name) #name,
static const char *const field_names[] = {"", FIELDS(SPELL)};

typedef struct {
    uint32_t at, length;
    uint64_t hash;
    int field;
    PyObject *made;
} Text;

typedef struct {
    uint32_t start, count, room; /* among the items */
    int kind;
    PyObject *made;
} Box;

enum { WIDE, REAL, BYTES }; /* kinds of OTHER */
typedef struct {
    uint32_t at, length;
    int kind;
    int64_t number; /* one of more than 62 bits */
} Other;

/* Things of one size, one after the other. */
typedef struct {
    void *data;
    uint32_t count, room;
} Table;

enum { TABLES = 7 };
typedef struct {
    PyObject_HEAD
    PyObject *raw;
    const uint8_t *bytes;
    Py_ssize_t at, end;
    union {
        struct {
            Table texts, boxes, others, items, stack, marks, memo;
        };
        Table tables[TABLES];
    };
    int64_t steps; /* that are left */
    uint32_t kept; /* how many places of the memo are taken */
    Value root;
} Dump;

/* Room for `more` things behind those that are there; NULL where that is too much. */
static void *add(Table *table, size_t size, uint32_t more) {
    if (more > MOST || table->count > MOST - more) return NULL;
    if (table->count + more > table->room) {
        uint32_t room = table->room * 2 > table->count + more ? table->room * 2 : table->count + more + 64;
        void *data = PyMem_Realloc(table->data, room * size);
        if (!data) return NULL;
        table->data = data, table->room = room;
    }
    table->count += more;
    return (char *)table->data + (size_t)(table->count - more) * size;
}

#define AT(table, Type, place) (((Type *)(table).data)[place])

/* ------------------------------------------------------------------------------------------ what opcodes do
   Each returns 1, or 0 where it is not for this. */

static int push(Dump *self, Value value) {
    Value *slot = add(&self->stack, sizeof value, 1);
    if (slot) *slot = value;
    return slot != NULL;
}

static uint32_t fence(const Dump *self) {
    return self->marks.count ? AT(self->marks, uint32_t, self->marks.count - 1) : 0;
}

static int holds(const Dump *self, uint32_t count) { return self->stack.count - fence(self) >= count; }

static int push_number(Dump *self, int64_t number) {
    if (number < (INT64_MAX >> 2) && number > (INT64_MIN >> 2)) return push(self, (Value)number << 2 | NUMBER);
    Other *other = add(&self->others, sizeof *other, 1);
    if (!other) return 0;
    *other = (Other){.kind = WIDE, .number = number};
    return push(self, value_of(OTHER, self->others.count - 1 + FIRST_OTHER));
}

static int is_a_number(const Dump *self, Value value, int64_t *number) {
    if (kind_of(value) == NUMBER) return *number = (int64_t)value >> 2, 1;
    if (kind_of(value) != OTHER || place_of(value) < FIRST_OTHER) return 0;
    const Other *other = &AT(self->others, Other, place_of(value) - FIRST_OTHER);
    *number = other->number;
    return other->kind == WIDE;
}

static int push_other(Dump *self, int kind, uint32_t length) {
    Other *other = add(&self->others, sizeof *other, 1);
    if (!other) return 0;
    *other = (Other){.kind = kind, .at = (uint32_t)self->at, .length = length};
    return push(self, value_of(OTHER, self->others.count - 1 + FIRST_OTHER));
}

static uint64_t mixed(uint64_t number) {
    number *= 0x9E3779B97F4A7C15u;
    number ^= number >> 29;
    number *= 0x9E3779B97F4A7C15u;
    return number ^ (number >> 32);
}

static int field_named(const uint8_t *text, uint32_t length) {
    for (int field = 1; field < FIELD_COUNT; field++)
        if (strlen(field_names[field]) == length && !memcmp(text, field_names[field], length)) return field;
    return NO_FIELD;
}

static PyObject *text_made(Dump *self, Text *text) {
    if (!text->made) text->made = PyUnicode_DecodeUTF8((const char *)self->bytes + text->at, text->length, "surrogatepass");
    return Py_XNewRef(text->made);
}

static int push_text(Dump *self, uint32_t length) {
    Text *text = add(&self->texts, sizeof *text, 1);
    const uint8_t *from = self->bytes + self->at;
    if (!text) return 0;
    *text = (Text){.at = (uint32_t)self->at, .length = length, .field = field_named(from, length), .hash = length};
    uint8_t high = 0;
    for (uint32_t each = 0; each < length; each++) {
        text->hash = (text->hash ^ from[each]) * 0x100000001B3u;
        high |= from[each];
    }
    text->hash = mixed(text->hash);
    if (high & 0x80) { /* is it one? */
        PyObject *made = text_made(self, text);
        if (!made) return PyErr_Clear(), 0;
        Py_DECREF(made);
    }
    return push(self, value_of(TEXT, self->texts.count - 1));
}

static int push_box(Dump *self, int kind) {
    Box *box = add(&self->boxes, sizeof *box, 1);
    if (!box) return 0;
    *box = (Box){.kind = kind};
    return push(self, value_of(BOX, self->boxes.count - 1));
}

/* Moves the topmost `count` of the stack into a box, behind what is there. */
static int fill(Dump *self, Box *box, uint32_t count) {
    if (!count) return 1;
    if (box->count + count > box->room) {
        int is_last = box->start + box->room == self->items.count;
        uint32_t twice = (box->count > count ? box->count : count) * 2; /* of one that is moved, there may be more to come */
        uint32_t room = is_last || !box->count ? box->count + count : twice;
        if (room > MOST || !add(&self->items, sizeof(Value), is_last ? room - box->room : room)) return 0;
        if (!is_last) {
            Value *items = self->items.data;
            uint32_t start = self->items.count - room;
            memmove(items + start, items + box->start, box->count * sizeof *items);
            box->start = start;
        }
        box->room = room;
    }
    self->stack.count -= count;
    memcpy(&AT(self->items, Value, box->start + box->count), &AT(self->stack, Value, self->stack.count), count * sizeof(Value));
    box->count += count;
    return 1;
}

/* How much lies above the last mark, which is taken away. */
static int take_mark(Dump *self, uint32_t *count) {
    if (!self->marks.count) return 0;
    *count = self->stack.count - fence(self);
    self->marks.count--;
    return 1;
}

static int push_tuple(Dump *self, uint32_t count) {
    if (!holds(self, count) || !push_box(self, TUPLE)) return 0;
    Value tuple = AT(self->stack, Value, --self->stack.count);
    return fill(self, &AT(self->boxes, Box, place_of(tuple)), count) && push(self, tuple);
}

static int fill_below(Dump *self, uint32_t count, int kind) {
    if (!holds(self, count + 1)) return 0;
    Value below = AT(self->stack, Value, self->stack.count - count - 1);
    if (kind_of(below) != BOX) return 0;
    Box *box = &AT(self->boxes, Box, place_of(below));
    if (box->kind != kind || (kind == DICT && count % 2)) return 0;
    for (uint32_t each = 0; kind == DICT && each < count; each += 2)
        if (kind_of(AT(self->stack, Value, self->stack.count - count + each)) != TEXT) return 0;
    return fill(self, box, count);
}

static int keep(Dump *self, uint32_t place) {
    if (!holds(self, 1) || (Py_ssize_t)place > self->end) return 0;
    while (self->memo.count <= place) {
        Value *slot = add(&self->memo, sizeof *slot, 1);
        if (!slot) return 0;
        *slot = UINT64_MAX;
    }
    Value *slot = &AT(self->memo, Value, place);
    self->kept += *slot == UINT64_MAX;
    *slot = AT(self->stack, Value, self->stack.count - 1);
    return 1;
}

static int push_kept(Dump *self, uint32_t place) {
    if (place >= self->memo.count || AT(self->memo, Value, place) == UINT64_MAX) return 0;
    return push(self, AT(self->memo, Value, place));
}

/* ------------------------------------------------------------------------------------------ opcodes */

/* A number of `size` bytes that stands next, which is passed; 0 where it is cut off. */
static int take(Dump *self, int size, uint64_t *number) {
    if (self->end - self->at < size) return 0;
    *number = 0;
    memcpy(number, self->bytes + self->at, size);
    self->at += size;
    return 1;
}

static int do_number(Dump *self, uint8_t code) {
    uint64_t number, size = code == 'K' ? 1 : code == 'M' ? 2 : 4;
    if (code == 0x8A && (!take(self, 1, &size) || size > MOST_DIGITS)) return 0;
    if (!take(self, (int)size, &number)) return 0;
    int shift = 64 - 8 * (int)size, has_sign = code == 'J' || code == 0x8A;
    if (!size) return push_number(self, 0);
    return push_number(self, has_sign ? (int64_t)(number << shift) >> shift : (int64_t)number);
}

/* What says its own length in `size` bytes; a number with a fraction has eight. */
static int do_content(Dump *self, uint8_t code, int size) {
    uint64_t length = 8;
    if (code != 'G' && !take(self, size, &length)) return 0;
    if (length > (uint64_t)(self->end - self->at)) return 0;
    int is_text = code == 'X' || code == 0x8C || code == 0x8D;
    int kind = code == 'G' ? REAL : BYTES;
    int done = is_text ? push_text(self, (uint32_t)length) : push_other(self, kind, (uint32_t)length);
    self->at += (Py_ssize_t)length;
    return done;
}

static int do_memo(Dump *self, uint8_t code) {
    uint64_t place;
    if (!take(self, code == 'q' || code == 'h' ? 1 : 4, &place)) return 0;
    return code == 'q' || code == 'r' ? keep(self, (uint32_t)place) : push_kept(self, (uint32_t)place);
}

static int do_next(Dump *self, uint8_t code) {
    uint32_t count;
    switch (code) {
    case 'N': return push(self, value_of(OTHER, NONE));
    case 0x88: return push(self, value_of(OTHER, TRUE));
    case 0x89: return push(self, value_of(OTHER, FALSE));
    case 'K': case 'M': case 'J': case 0x8A: return do_number(self, code);
    case 'X': case 'B': return do_content(self, code, 4);
    case 0x8C: case 'C': return do_content(self, code, 1);
    case 0x8D: return do_content(self, code, 8);
    case 'G': return do_content(self, code, 0);
    case ']': return push_box(self, LIST);
    case '}': return push_box(self, DICT);
    case ')': return push_box(self, TUPLE);
    case 0x85: case 0x86: case 0x87: return push_tuple(self, code - 0x84);
    case 't': return take_mark(self, &count) && push_tuple(self, count);
    case 'a': return fill_below(self, 1, LIST);
    case 's': return fill_below(self, 2, DICT);
    case 'e': return take_mark(self, &count) && fill_below(self, count, LIST);
    case 'u': return take_mark(self, &count) && fill_below(self, count, DICT);
    case 0x94: return keep(self, self->kept);
    case 'q': case 'r': case 'h': case 'j': return do_memo(self, code);
    case 0x95: return self->at += 8, self->at <= self->end;
    case '(': {
        uint32_t *mark = add(&self->marks, sizeof *mark, 1);
        if (mark) *mark = self->stack.count;
        return mark != NULL;
    }
    default: return 0;
    }
}

static int read_all(Dump *self) {
    if (self->end < 2 || self->bytes[0] != 0x80 || self->bytes[1] < 2 || self->bytes[1] > 5) return 0;
    for (self->at = 2; self->at < self->end;) {
        uint8_t code = self->bytes[self->at++];
        if (code == '.') {
            if (!holds(self, 1)) return 0;
            self->root = AT(self->stack, Value, self->stack.count - 1);
            return 1;
        }
        if (!do_next(self, code)) return 0;
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------ as Python's */

static PyObject *make(Dump *self, Value value);

static PyObject *make_box(Dump *self, uint32_t place) {
    Box box = AT(self->boxes, Box, place);
    if (box.made) return Py_NewRef(box.made);
    if (Py_EnterRecursiveCall(" in a dump")) return NULL;
    PyObject *made = box.kind == LIST ? PyList_New(0) : box.kind == DICT ? PyDict_New() : PyTuple_New(box.count);
    int failed = !made;
    if (made && box.kind != TUPLE) AT(self->boxes, Box, place).made = Py_NewRef(made); /* it may be in itself */
    for (uint32_t each = 0; !failed && each < box.count; each += 1 + (box.kind == DICT)) {
        PyObject *item = make(self, AT(self->items, Value, box.start + each));
        PyObject *belongs = item && box.kind == DICT ? make(self, AT(self->items, Value, box.start + each + 1)) : NULL;
        failed = !item || (box.kind == DICT && !belongs);
        if (!failed && box.kind == LIST) failed = PyList_Append(made, item) < 0;
        if (!failed && box.kind == DICT) failed = PyDict_SetItem(made, item, belongs) < 0;
        if (!failed && box.kind == TUPLE) PyTuple_SET_ITEM(made, each, Py_NewRef(item));
        Py_XDECREF(item);
        Py_XDECREF(belongs);
    }
    Py_LeaveRecursiveCall();
    if (!failed && box.kind == TUPLE && !AT(self->boxes, Box, place).made) AT(self->boxes, Box, place).made = Py_NewRef(made);
    if (failed) Py_CLEAR(made);
    return made;
}

static PyObject *make_other(Dump *self, uint32_t place) {
    if (place == NONE) Py_RETURN_NONE;
    if (place < FIRST_OTHER) return PyBool_FromLong(place == TRUE);
    const Other *other = &AT(self->others, Other, place - FIRST_OTHER);
    const char *at = (const char *)self->bytes + other->at;
    if (other->kind == BYTES) return PyBytes_FromStringAndSize(at, other->length);
    if (other->kind == WIDE) return PyLong_FromLongLong(other->number);
    double real = PyFloat_Unpack8(at, 0);
    return real == -1.0 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(real);
}

static PyObject *make(Dump *self, Value value) {
    switch (kind_of(value)) {
    case NUMBER: return PyLong_FromLongLong((int64_t)value >> 2);
    case TEXT: return text_made(self, &AT(self->texts, Text, place_of(value)));
    case BOX: return make_box(self, place_of(value));
    default: return make_other(self, place_of(value));
    }
}

/* ------------------------------------------------------------------------------------------ entries */

/* What stands under `name` in a dict, the last of it; 0 where nothing does. */
static int find(const Dump *self, Value dict, const char *name, Value *found) {
    if (kind_of(dict) != BOX || AT(self->boxes, Box, place_of(dict)).kind != DICT) return 0;
    const Box *box = &AT(self->boxes, Box, place_of(dict));
    for (uint32_t each = box->count; each; each -= 2) {
        const Text *key = &AT(self->texts, Text, place_of(AT(self->items, Value, box->start + each - 2)));
        if (key->length != strlen(name) || memcmp(self->bytes + key->at, name, key->length)) continue;
        *found = AT(self->items, Value, box->start + each - 1);
        return 1;
    }
    return 0;
}

/* Whether `count` more things may be looked at. */
static int may_look(Dump *self, uint32_t count) { return (self->steps -= (int64_t)count + 1) >= 0; }

static const Box *list_of(const Dump *self, Value value, int or_tuple) {
    if (kind_of(value) != BOX) return NULL;
    const Box *box = &AT(self->boxes, Box, place_of(value));
    return box->kind == LIST || (or_tuple && box->kind == TUPLE) ? box : NULL;
}

static const Text *text_of(const Dump *self, Value value) {
    return kind_of(value) == TEXT ? &AT(self->texts, Text, place_of(value)) : NULL;
}

/* The functions below go on with a number that is made of all that came before; each returns 0 for what is no such. */

static void follow(uint64_t *number, uint64_t next) { *number = mixed(*number + next); }

static int follow_texts(Dump *self, Value value, uint64_t *number) {
    const Box *box = list_of(self, value, 1);
    if (!box || !may_look(self, box->count)) return 0;
    follow(number, box->count);
    for (uint32_t each = 0; each < box->count; each++) {
        const Text *text = text_of(self, AT(self->items, Value, box->start + each));
        if (!text) return 0;
        if (!may_look(self, text->length)) return 0; /* Python puts them side by side */
        follow(number, text->hash);
    }
    return 1;
}

static int follow_sizes(Dump *self, Value value, uint64_t *number) {
    const Box *tensors = list_of(self, value, 0);
    if (!tensors || !may_look(self, tensors->count)) return 0;
    follow(number, tensors->count);
    for (uint32_t each = 0; each < tensors->count; each++) {
        const Box *sizes = list_of(self, AT(self->items, Value, tensors->start + each), 0);
        if (!sizes || !may_look(self, sizes->count)) return 0;
        follow(number, sizes->count);
        for (uint32_t size = 0; size < sizes->count; size++) {
            int64_t told;
            if (!is_a_number(self, AT(self->items, Value, sizes->start + size), &told)) return 0;
            follow(number, (uint64_t)told);
        }
    }
    return 1;
}

static int follow_frames(Dump *self, Value value, uint64_t *number) {
    const Box *frames = list_of(self, value, 0);
    if (!frames || !may_look(self, frames->count)) return 0;
    follow(number, frames->count);
    for (uint32_t each = 0; each < frames->count; each++) follow(number, AT(self->items, Value, frames->start + each));
    return 1;
}

static int state_of(const Dump *self, Value value, uint8_t *state) {
    static const char *const states[] = {"scheduled", "started", "completed"}; /* as in columns.py */
    const Text *text = text_of(self, value);
    for (*state = 0; text && *state < 3; ++*state)
        if (strlen(states[*state]) == text->length && !memcmp(self->bytes + text->at, states[*state], text->length)) return 1;
    return 0;
}

static int truth_of(Value value, uint8_t *truth) {
    *truth = value == value_of(OTHER, TRUE);
    return *truth || value == value_of(OTHER, FALSE);
}

enum { GROUP, CALL, SITE, SEQ, RECORD, CREATED, WORD_COUNT };
enum { STATE, RETIRED, P2P, BYTE_COUNT };

static int read_entry(Dump *self, Value entry, uint64_t *word, uint8_t *byte) {
    Value field[FIELD_COUNT];
    unsigned has = 0;
    int64_t told[3];
    if (kind_of(entry) != BOX || AT(self->boxes, Box, place_of(entry)).kind != DICT) return 0;
    const Box *box = &AT(self->boxes, Box, place_of(entry));
    if (!may_look(self, box->count)) return 0;
    for (uint32_t each = 0; each < box->count; each += 2) {
        int name = AT(self->texts, Text, place_of(AT(self->items, Value, box->start + each))).field;
        field[name] = AT(self->items, Value, box->start + each + 1);
        has |= 1u << name;
    }
    if ((has | 1u) != (1u << FIELD_COUNT) - 1) return 0; /* of another version */
    const Text *op = text_of(self, field[F_profiling_name]);
    if (!op) return 0;
    word[GROUP] = word[SITE] = 0;
    word[CALL] = op->hash;
    int whole = follow_texts(self, field[F_process_group], &word[GROUP]) &&
                follow_sizes(self, field[F_input_sizes], &word[CALL]) &&
                follow_sizes(self, field[F_output_sizes], &word[CALL]) &&
                follow_texts(self, field[F_input_dtypes], &word[CALL]) &&
                follow_texts(self, field[F_output_dtypes], &word[CALL]) && follow_frames(self, field[F_frames], &word[SITE]) &&
                is_a_number(self, field[F_collective_seq_id], &told[0]) && is_a_number(self, field[F_record_id], &told[1]) &&
                is_a_number(self, field[F_time_created_ns], &told[2]) && state_of(self, field[F_state], &byte[STATE]) &&
                truth_of(field[F_retired], &byte[RETIRED]) && truth_of(field[F_is_p2p], &byte[P2P]);
    for (int each = 0; whole && each < 3; each++) word[SEQ + each] = (uint64_t)told[each];
    return whole;
}

static const Box *entries_of(const Dump *self) {
    Value entries;
    return find(self, self->root, "entries", &entries) ? list_of(self, entries, 0) : NULL;
}

/* Nine columns, in bytes; None where an entry is not as it should be. */
static PyObject *Dump_columns(Dump *self, PyObject *Py_UNUSED(unused)) {
    const Box *entries = entries_of(self);
    PyObject *columns = entries ? PyTuple_New(WORD_COUNT + BYTE_COUNT) : Py_NewRef(Py_None);
    uint64_t *words[WORD_COUNT], word[WORD_COUNT];
    uint8_t *bytes[BYTE_COUNT], byte[BYTE_COUNT];
    if (!columns || !entries) return columns;
    self->steps = FREE + 4 * (int64_t)self->end;
    if (self->steps > MOST) self->steps = MOST; /* no more than Python looks at */
    for (int each = 0; each < WORD_COUNT + BYTE_COUNT; each++) {
        PyObject *column = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)entries->count * (each < WORD_COUNT ? 8 : 1));
        if (!column) return Py_DECREF(columns), NULL;
        PyTuple_SET_ITEM(columns, each, column);
        if (each < WORD_COUNT) words[each] = (uint64_t *)PyBytes_AS_STRING(column);
        else bytes[each - WORD_COUNT] = (uint8_t *)PyBytes_AS_STRING(column);
    }
    for (uint32_t place = 0; place < entries->count; place++) {
        if (!read_entry(self, AT(self->items, Value, entries->start + place), word, byte)) {
            Py_DECREF(columns);
            Py_RETURN_NONE;
        }
        for (int each = 0; each < WORD_COUNT; each++) memcpy(words[each] + place, &word[each], sizeof *word);
        for (int each = 0; each < BYTE_COUNT; each++) bytes[each][place] = byte[each];
    }
    return columns;
}

static PyObject *Dump_entry(Dump *self, PyObject *number) {
    const Box *entries = entries_of(self);
    Py_ssize_t place = PyLong_AsSsize_t(number);
    if (place == -1 && PyErr_Occurred()) return NULL;
    if (!entries || place < 0 || place >= (Py_ssize_t)entries->count) return PyErr_Format(PyExc_IndexError, "no such entry");
    return make(self, AT(self->items, Value, entries->start + place));
}

static PyObject *Dump_get(Dump *self, PyObject *name) {
    const char *text = PyUnicode_AsUTF8(name);
    Value found;
    if (!text) return NULL;
    if (!find(self, self->root, text, &found)) Py_RETURN_NONE;
    return make(self, found);
}

/* ------------------------------------------------------------------------------------------ Dump */

/* Memory of the dump before, for the next: what is given back to the system is costly to get again. */
static Table spare[TABLES];
enum { MOST_SPARE = 1 << 20 }; /* things of a table */

static void take_spare(Dump *self) {
    for (int each = 0; each < TABLES; each++) {
        self->tables[each] = spare[each];
        spare[each] = (Table){0};
    }
}

static void let_go(Table *table, Table *kept) {
    table->count = 0;
    if (!kept->data && table->room <= MOST_SPARE) *kept = *table;
    else PyMem_Free(table->data);
}

static void Dump_dealloc(Dump *self) {
    for (uint32_t each = 0; each < self->texts.count; each++) Py_XDECREF(AT(self->texts, Text, each).made);
    for (uint32_t each = 0; each < self->boxes.count; each++) Py_XDECREF(AT(self->boxes, Box, each).made);
    for (int each = 0; each < TABLES; each++) let_go(&self->tables[each], &spare[each]);
    Py_XDECREF(self->raw);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef Dump_methods[] = {
    {"columns", (PyCFunction)Dump_columns, METH_NOARGS, NULL},
    {"entry", (PyCFunction)Dump_entry, METH_O, NULL},
    {"get", (PyCFunction)Dump_get, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

PyTypeObject DumpType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankdrill.native.hot.Dump",
    .tp_basicsize = sizeof(Dump),
    .tp_dealloc = (destructor)Dump_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = Dump_methods,
};

PyObject *read_dump(PyObject *Py_UNUSED(module), PyObject *raw) {
    if (!PyBytes_Check(raw)) return PyErr_Format(PyExc_TypeError, "a dump is bytes");
    if (PyBytes_GET_SIZE(raw) > INT32_MAX) Py_RETURN_NONE;
    Dump *self = (Dump *)DumpType.tp_alloc(&DumpType, 0); /* all zero */
    if (!self) return NULL;
    self->raw = Py_NewRef(raw);
    self->bytes = (const uint8_t *)PyBytes_AS_STRING(raw);
    self->end = PyBytes_GET_SIZE(raw);
    take_spare(self);
    if (read_all(self)) return (PyObject *)self;
    Py_DECREF(self);
    Py_RETURN_NONE;
}
