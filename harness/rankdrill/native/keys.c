/* As `plain_keys_of` of boundary/habits.py. A key is 64-bit words: what is known by identity as its address. */

#include "hot.h"

#define NAMES(X) X(asyncOp) X(reduceOp) X(rootRank) X(dtype) X(shape) X(is_contiguous) X(data_ptr) X(nbytes)
NAMES(DECLARE_NAME)

int make_names_of_arguments(void) {
    NAMES(MAKE_NAME)
    return 0;
}

/* The functions below return 0 where there is no key, 1 where it goes on, and -1 with an exception. */

static int add(Key *key, uint64_t word) {
    if (key->end == key->words + MOST_WORDS) return 0;
    *key->end++ = word;
    return 1;
}

static int add_number(Key *key, PyObject *number) {
    long long word = number ? PyLong_AsLongLong(number) : -1;
    return word == -1 && PyErr_Occurred() ? -1 : add(key, (uint64_t)word);
}

/* Where the C++ part lies of a tensor which is no more than that; NULL where it has to be asked what it is. */
static const char *lying_of(const Asked *asked, PyObject *tensor) {
    const TensorPlaces *places = &asked->tensors;
    if (!places->kind || !Py_IS_TYPE(tensor, (PyTypeObject *)asked->tensor)) return NULL;
    const char *lying = *(const char **)((char *)tensor + places->pointer);
    if (!lying || (uint64_t)word_at(lying) != places->kind) return NULL;
    int64_t dimensions = word_at(lying + places->dimensions);
    return dimensions < 0 || dimensions > MOST_DIMENSIONS ? NULL : lying;
}

static int add_plain(const TensorPlaces *places, Key *key, const char *lying) {
    int64_t dimensions = word_at(lying + places->dimensions);
    uint16_t dtype;
    memcpy(&dtype, lying + places->dtype, sizeof dtype);
    int going = add(key, dtype); /* no address is so small */
    for (int64_t each = 0; going == 1 && each <= dimensions; each++)
        going = add(key, (uint64_t)word_at(lying + places->dimensions + each * (int64_t)sizeof each));
    return going;
}

static int add_tensor(Key *key, PyObject *tensor) {
    PyObject *dtype = PyObject_GetAttr(tensor, s_dtype);
    if (!dtype) return -1;
    int going = add(key, (uint64_t)(uintptr_t)dtype); /* torch keeps each for ever */
    Py_DECREF(dtype);
    PyObject *shape = going == 1 ? PyObject_GetAttr(tensor, s_shape) : NULL;
    if (!shape) return going == 1 ? -1 : going;
    going = PyTuple_Check(shape) ? add(key, (uint64_t)PyTuple_GET_SIZE(shape)) : 0;
    for (Py_ssize_t each = 0; going == 1 && each < PyTuple_GET_SIZE(shape); each++)
        going = PyLong_Check(PyTuple_GET_ITEM(shape, each)) ? add_number(key, PyTuple_GET_ITEM(shape, each)) : 0;
    Py_DECREF(shape);
    return going;
}

/* As torch's `is_contiguous`, of one whose C++ part lies there. */
static int is_contiguous(const TensorPlaces *places, const char *lying) {
    const char *sizes = lying + places->dimensions + sizeof(int64_t), *strides = lying + places->strides;
    int64_t expected = 1, in_order = 1;
    for (int64_t each = word_at(lying + places->dimensions) - 1; each >= 0; each--) {
        int64_t size = word_at(sizes + each * (int64_t)sizeof size);
        if (!size) return 1; /* of nothing */
        if (size != 1 && word_at(strides + each * (int64_t)sizeof size) != expected) in_order = 0;
        expected *= size;
    }
    return in_order;
}

static int lies_in_order(PyObject *tensor) {
    PyObject *in_order = PyObject_CallMethodNoArgs(tensor, s_is_contiguous);
    if (!in_order) PyErr_Clear(); /* one that is sparse, say */
    int going = in_order == Py_True;
    Py_XDECREF(in_order);
    return going;
}

void clear_spans(Spans *spans) {
    while (spans->count) Py_DECREF(spans->span[--spans->count].tensor);
}

static uint64_t number_of(PyObject *number) { /* 0 where there is none */
    uint64_t found = number ? PyLong_AsUnsignedLongLong(number) : 0;
    Py_XDECREF(number);
    if (PyErr_Occurred()) {
        PyErr_Clear(); /* of a tensor without memory of its own */
        return 0;
    }
    return found;
}

/* Of a tensor that lies in order. */
static int add_span(Spans *spans, PyObject *tensor, int written) {
    uint64_t start = number_of(PyObject_CallMethodNoArgs(tensor, s_data_ptr));
    uint64_t bytes = number_of(PyObject_GetAttr(tensor, s_nbytes));
    if (!start || !bytes) return 1;
    if (spans->count == MOST_SPANS) return 0;
    spans->span[spans->count++] = (Span){start, start + bytes, Py_NewRef(tensor), written, 0, 0};
    return 1;
}

static int add_tensors(const Asked *asked, Key *key, PyObject *given, int deep, uint64_t *count, Spans *spans, int written) {
    int is_plain = Py_IS_TYPE(given, (PyTypeObject *)asked->tensor), is_list = PyList_CheckExact(given);
    int is_tensor = is_plain || is_list ? is_plain : PyObject_IsInstance(given, asked->tensor);
    if (is_tensor) {
        ++*count;
        int going = is_tensor < 0 ? -1 : 1;
        const char *lying = lying_of(asked, given);
        if (going == 1 && (asked->minds_gaps || spans->wanted))
            going = lying ? is_contiguous(&asked->tensors, lying) : lies_in_order(given);
        if (going == 1 && spans->wanted) going = is_plain ? add_span(spans, given, written) : 0;
        if (going != 1) return going;
        return lying ? add_plain(&asked->tensors, key, lying) : add_tensor(key, given);
    }
    if (!is_list || deep > 2) return 0;
    int going = 1;
    for (Py_ssize_t each = 0; going == 1 && each < PyList_GET_SIZE(given); each++) {
        PyObject *item = Py_NewRef(PyList_GET_ITEM(given, each));
        int again = each && item == PyList_GET_ITEM(given, each - 1); /* see boundary/shared_outputs.py */
        going = again ? 0 : add_tensors(asked, key, item, deep + 1, count, spans, written);
        Py_DECREF(item);
    }
    return going;
}

int is_asynchronous(const Asked *asked, PyObject *opts) {
    const char *lying = lying_at(&asked->places, opts, asked->places.asynchronous);
    if (lying) return *lying != 0;
    PyObject *async_op = PyObject_GetAttr(opts, s_asyncOp);
    int answer = async_op ? PyObject_IsTrue(async_op) : -1;
    Py_XDECREF(async_op);
    return answer;
}

static int add_reduction(const Asked *asked, Key *key, PyObject *opts) {
    const char *lying = lying_at(&asked->places, opts, asked->places.reduction);
    if (lying) return add(key, *(const uint8_t *)lying);
    PyObject *reduction = PyObject_GetAttr(opts, s_reduceOp);
    if (!reduction) return -1;
    int known = Py_IS_TYPE(reduction, (PyTypeObject *)asked->reduction);
    Py_hash_t number = known ? PyObject_Hash(reduction) : -1; /* its number, in torch's enum */
    Py_DECREF(reduction);
    if (number == -1) return PyErr_Occurred() ? -1 : 0;
    return add(key, (uint64_t)number);
}

static int add_root(const Asked *asked, Key *key, PyObject *opts) {
    const char *lying = lying_at(&asked->places, opts, asked->places.root);
    if (lying) return add(key, (uint64_t)word_at(lying));
    PyObject *root = PyObject_GetAttr(opts, s_rootRank);
    int going = root ? add_number(key, root) : -1;
    Py_XDECREF(root);
    return going;
}

static int add_options(const Asked *asked, Key *key, PyObject *opts, long long *root_rank) {
    int going = asked->reduces ? add_reduction(asked, key, opts) : 1;
    if (!asked->rooted || going != 1) return going;
    going = add_root(asked, key, opts);
    if (going == 1) *root_rank = (long long)key->end[-1];
    return going;
}

int key_of(const Asked *asked, const Asking *asking, Key *key) {
    key->end = key->words;
    long long root = asking->place;
    Py_ssize_t last = asking->count - 1;
    add(key, (uint64_t)(uintptr_t)asked->op);
    add(key, (uint64_t)(uintptr_t)asking->site);
    add(key, asking->way);
    int going = add_options(asked, key, asking->args[last], &root);
    int in_place = asked->in_place || (asked->from_root && root != asking->place);
    for (Py_ssize_t each = 0; going == 1 && each < last; each++) {
        uint64_t *tensors = key->end;
        going = add(key, 0);
        int written = in_place || each < last - 1; /* outputs come first */
        if (going == 1) going = add_tensors(asked, key, asking->args[each], 0, tensors, asking->spans, written);
    }
    if (going >= 0) return going;
    if (!PyErr_ExceptionMatches(PyExc_AttributeError) && !PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
    PyErr_Clear();
    return 0;
}
