/* As `PlainPosting` of ledger/posting.py; the format is documented in ledger/board_format.py. */

#include "hot.h"

enum { HEADER_BYTES = 4096, BENT_OFFSET = 64, FIRSTS = 1024 };

typedef struct __attribute__((packed)) {
    uint32_t sum;
    uint16_t bytes, none;
    uint64_t group, call, digest; /* the digest begins what is told */
} Post;
enum { START_BYTES = 24 };

typedef struct __attribute__((packed)) {
    uint64_t group, call;
    uint32_t rank, sum;
} First;

static uint32_t crc_table[256];

void make_crc_table(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        crc_table[n] = c;
    }
}

static uint32_t crc32_of(const void *data, size_t size, uint32_t before) { /* as zlib.crc32 */
    const unsigned char *at = data;
    uint32_t c = ~before;
    while (size--) c = crc_table[(c ^ *at++) & 0xFF] ^ (c >> 8);
    return ~c;
}

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *mapped, *in_slots, *told; /* a list, one for each of this rank's slots; bytes */
    uint64_t rings, slots, slot_bytes, group, digest;
    uint32_t told_sum, rank, beside[2];
    Py_ssize_t members, least;
    uint32_t ranks[]; /* of the members */
} Posting;

static void Posting_dealloc(Posting *self) {
    Py_XDECREF(self->mapped);
    Py_XDECREF(self->in_slots);
    Py_XDECREF(self->told);
    PyObject_Free(self);
}

static char *slot_at(const Posting *self, char *map, uint32_t rank, uint64_t place) {
    return map + self->rings + (rank * self->slots + place) * self->slot_bytes;
}

static int differs(const Posting *self, char *map, uint32_t rank, uint64_t place, uint64_t number) {
    Post post;
    if (rank == self->rank) return 0;
    memcpy(&post, slot_at(self, map, rank, place), sizeof post);
    return post.call == number && post.group == self->group && post.digest != self->digest;
}

/* The member that came first; this rank, which notes it then, where there is none, or one that is no member. */
static uint32_t come(const Posting *self, char *map, uint64_t number) {
    uint64_t place = (self->group % FIRSTS + number % FIRSTS) % FIRSTS;
    First first, *there = (First *)(map + HEADER_BYTES) + place;
    const size_t summed = sizeof first - sizeof first.sum;
    memcpy(&first, there, sizeof first);
    if (first.call == number && first.group == self->group && first.sum == crc32_of(&first, summed, 0)) {
        for (Py_ssize_t each = 0; each < self->members; each++)
            if (self->ranks[each] == first.rank) return first.rank;
        return self->rank;
    }
    first = (First){self->group, number, self->rank, 0};
    first.sum = crc32_of(&first, summed, 0);
    memcpy(there, &first, sizeof first);
    return self->rank;
}

static PyObject *Posting_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
    Posting *self = (Posting *)object;
    if (PyVectorcall_NARGS(flags) != 1 || names) return PyErr_Format(PyExc_TypeError, "a posting takes a number");
    uint64_t number = PyLong_AsUnsignedLongLong(args[0]);
    if (number == (uint64_t)-1 && PyErr_Occurred()) return NULL;
    char *map = map_of(self->mapped, self->least);
    if (!map) return NULL;
    if (map[BENT_OFFSET]) Py_RETURN_FALSE;
    uint64_t place = (self->group % self->slots + number % self->slots) % self->slots;
    Py_ssize_t told = PyBytes_GET_SIZE(self->told);
    Post post = {0, (uint16_t)(START_BYTES + told), 0, self->group, number, 0};
    post.sum = crc32_of((char *)&post + sizeof post.sum, START_BYTES - sizeof post.sum, self->told_sum);
    char *slot = slot_at(self, map, self->rank, place);
    int stands_there = PyList_GET_ITEM(self->in_slots, place) == self->told;
    memcpy(slot, &post, START_BYTES);
    if (!stands_there) memcpy(slot + START_BYTES, PyBytes_AS_STRING(self->told), told);
    uint32_t first = come(self, map, number);
    /* Each posts before it looks, so one of two neighbours always sees the other: also where a processor would
       rather look first. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    int differ = differs(self, map, self->beside[0], place, number) ||
                 differs(self, map, self->beside[1], place, number) || differs(self, map, first, place, number);
    if (!stands_there && PyList_SetItem(self->in_slots, place, Py_NewRef(self->told)) < 0) return NULL;
    return PyBool_FromLong(!differ);
}

/* What a rank does before such a call: posts it, and has `otherwise` look into it where it may not go on as it is, or
   where `told` has something in it, of which this rank has been told already. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *posting, *told, *otherwise;
} Entrance;

static PyObject *Entrance_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
    Entrance *self = (Entrance *)object;
    if (!PyList_GET_SIZE(self->told)) {
        PyObject *fits = PyObject_Vectorcall(self->posting, args, flags, names);
        Py_XDECREF(fits);
        if (!fits || fits == Py_True) return fits ? Py_NewRef(Py_None) : NULL;
    }
    return PyObject_Vectorcall(self->otherwise, args, flags, names);
}

static int Entrance_traverse(Entrance *self, visitproc visit, void *arg) {
    Py_VISIT(self->told);
    Py_VISIT(self->otherwise);
    return 0;
}

static void Entrance_dealloc(Entrance *self) {
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->posting);
    Py_XDECREF(self->told);
    Py_XDECREF(self->otherwise);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *Entrance_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *posting, *told, *otherwise;
    if (kwargs && PyDict_GET_SIZE(kwargs)) return PyErr_Format(PyExc_TypeError, "Entrance takes no names");
    if (!PyArg_ParseTuple(args, "O!O!O", &PostingType, &posting, &PyList_Type, &told, &otherwise)) return NULL;
    Entrance *self = (Entrance *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->vectorcall = Entrance_call;
    self->posting = Py_NewRef(posting);
    self->told = Py_NewRef(told);
    self->otherwise = Py_NewRef(otherwise);
    return (PyObject *)self;
}

PyTypeObject EntranceType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankdrill.native.hot.Entrance",
    .tp_basicsize = sizeof(Entrance),
    .tp_dealloc = (destructor)Entrance_dealloc,
    .tp_traverse = (traverseproc)Entrance_traverse,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Entrance, vectorcall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
    .tp_new = Entrance_new,
};

static PyObject *Posting_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *mapped, *ranks, *in_slots, *told;
    unsigned long long rings, slots, slot_bytes, group, digest;
    unsigned int told_sum;
    Py_ssize_t me;
    if (kwargs && PyDict_GET_SIZE(kwargs)) return PyErr_Format(PyExc_TypeError, "Posting takes no names");
    if (!PyArg_ParseTuple(args, "O!KKKKO!nO!SIK", &MappedType, &mapped, &rings, &slots, &slot_bytes, &group, &PyTuple_Type, &ranks,
                          &me, &PyList_Type, &in_slots, &told, &told_sum, &digest))
        return NULL;
    Py_ssize_t members = PyTuple_GET_SIZE(ranks), size = PyBytes_GET_SIZE(told);
    if (me < 0 || me >= members || !slots || (uint64_t)PyList_GET_SIZE(in_slots) != slots ||
        (uint64_t)(START_BYTES + size) > slot_bytes || size < 8 || START_BYTES + size > UINT16_MAX)
        return PyErr_Format(PyExc_ValueError, "no such posting");
    Posting *self = PyObject_Malloc(sizeof(Posting) + members * sizeof(uint32_t));
    if (!self) return PyErr_NoMemory();
    PyObject_Init((PyObject *)self, type);
    self->vectorcall = Posting_call;
    self->mapped = Py_NewRef(mapped);
    self->in_slots = Py_NewRef(in_slots);
    self->told = Py_NewRef(told);
    self->rings = rings, self->slots = slots, self->slot_bytes = slot_bytes;
    self->group = group, self->digest = digest, self->told_sum = told_sum;
    self->members = members;
    uint32_t most = 0;
    for (Py_ssize_t each = 0; each < members; each++) {
        unsigned long rank = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(ranks, each));
        if (PyErr_Occurred() || rank > 1u << 24) {
            Py_DECREF(self);
            return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "no such rank");
        }
        self->ranks[each] = (uint32_t)rank;
        most = self->ranks[each] > most ? self->ranks[each] : most;
    }
    self->rank = self->ranks[me];
    self->beside[0] = self->ranks[(me + members - 1) % members];
    self->beside[1] = self->ranks[(me + 1) % members];
    self->least = (Py_ssize_t)(rings + (most + 1) * slots * slot_bytes);
    return (PyObject *)self;
}

PyTypeObject PostingType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rankdrill.native.hot.Posting",
    .tp_basicsize = sizeof(Posting),
    .tp_dealloc = (destructor)Posting_dealloc,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Posting, vectorcall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = Posting_new,
};

