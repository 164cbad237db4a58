/* The module: its types, what they need before the first of them is made, and its functions. */

#include "hot.h"

#define EDITION 11 /* as in lane.py: what was built from another source is not used */

static PyMethodDef functions[] = {
    {"read_dump", read_dump, METH_O, NULL},
    {"print_of", print_in, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef hot = {PyModuleDef_HEAD_INIT, .m_name = "hot", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit_hot(void) {
    if (make_names_of_arguments() < 0 || make_names_of_state() < 0 || make_names_of_issued() < 0) return NULL;
    if (make_names_of_memory() < 0) return NULL;
    make_crc_table();
    pthread_atfork(NULL, NULL, forget_thread); /* the thread that forks has another number in the child */
    PyObject *module = PyModule_Create(&hot);
    if (!module) return NULL;
    PyTypeObject *types[] = {&MappedType, &StencilType, &PostingType, &CallSitesType, &NumberingType, &WayType, &BeatenType, &IssuedType,
                             &HeldType, &WaitingType, &EntranceType, &GateType, &SuitedType, &InsideType, &WaitedType,
                             &DumpType};
    for (size_t each = 0; each < sizeof types / sizeof *types; each++)
        if (PyModule_AddType(module, types[each]) < 0) return NULL;
    if (PyModule_AddIntConstant(module, "EDITION", EDITION) < 0) return NULL;
    return module;
}
