/* The linked library as Python sees it: every entry kernel is a built-in function that checks its arguments.
 *
 * Object code has one entry point for each kernel and kind of CPU: words in, words out, and a status. `table.h`, which
 * `build` writes, says what each takes and gives. Only the stable ABI of Python and of numpy is used, so that one
 * library does for every Python from 3.11 and every numpy from 2.0 on.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>
#include <stdint.h>
#include <stdlib.h>

enum { NUMBER, TRUTH, BLOCK, ARRAY };
enum { GIVES_NONE, GIVES_TRUTH, GIVES_NUMBER, GIVES_TUPLE };

typedef struct {
    const char *name;
    int64_t layout; /* of a block; see hived/blocks.py */
    int is_written; /* an array */
    char kind;      /* of an array's elements, as in numpy */
    char how, size; /* one of the above; bytes of an element */
} Parameter;

/* numba's calling convention for a function of two pointers that returns 0; an exception is its place in ERRORS. */
typedef int32_t Translated(int64_t *zero, const int32_t **error, const int64_t *words, int64_t *results);
typedef Translated *Entry;

typedef struct {
    const char *name, *module;
    const Parameter *parameters;
    int parameter_count, gives, result_count;
} Kernel;

typedef struct {
    const char *module, *name, *text;
} Error;

typedef struct {
    const char *name;
    const Entry *entries;
} Variant;

/* KERNELS, KERNEL_COUNT, ERRORS, ERROR_COUNT, VARIANTS (the best one first), is_supported, MOST_WORDS, MOST_RESULTS */
#include "table.h"

enum { WORDS_OF_ARRAY = 2, RAISED = 1 };

typedef struct {
    const Kernel *kernel;
    Entry entry;
    PyMethodDef definition;
} Function;

static Function functions[VARIANT_COUNT][KERNEL_COUNT];
static PyObject *address_name;

/* Memory of arrays that kernels make, as numba's code expects it. */

typedef struct {
    size_t references;
    void (*destroy)(void *data, size_t size, void *info);
    void *info, *data;
    size_t size;
} Memory;

__attribute__((visibility("hidden"))) void *NRT_MemInfo_alloc_aligned(size_t size, unsigned alignment)
{
    Memory *memory = malloc(sizeof(Memory) + alignment + size);
    if (memory == NULL)
        return NULL;
    uintptr_t first = (uintptr_t)(memory + 1);
    memory->references = 1;
    memory->destroy = NULL;
    memory->info = NULL;
    memory->data = (void *)(first + (alignment - first % alignment) % alignment);
    memory->size = size;
    return memory;
}

__attribute__((visibility("hidden"))) void NRT_MemInfo_call_dtor(Memory *memory)
{
    free(memory);
}

/* Arguments. */

static PyObject *refuse(const Kernel *kernel, const Parameter *parameter, const char *wanted)
{
    PyErr_Format(PyExc_TypeError, "%s: %s is no %s", kernel->name, parameter->name, wanted);
    return NULL;
}

static int read_block(PyObject *value, int64_t layout, int64_t *word)
{
    PyObject *attribute = PyObject_GetAttr(value, address_name);
    if (attribute == NULL) {
        PyErr_Clear();
        return 0;
    }
    *word = PyLong_AsLongLong(attribute);
    Py_DECREF(attribute);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return *word != 0 && ((const int64_t *)*word)[-1] == layout;
}

static int read_array(PyObject *value, const Parameter *parameter, int64_t *words)
{
    if (!PyArray_Check(value))
        return 0;
    PyArrayObject *array = (PyArrayObject *)value;
    int flags = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | (parameter->is_written ? NPY_ARRAY_WRITEABLE : 0);
    if (PyArray_NDIM(array) != 1 || !PyArray_CHKFLAGS(array, flags) || !PyArray_ISNOTSWAPPED(array) ||
        PyArray_DESCR(array)->kind != parameter->kind || PyArray_ITEMSIZE(array) != parameter->size)
        return 0;
    words[0] = (int64_t)PyArray_DATA(array);
    words[1] = PyArray_DIM(array, 0);
    return 1;
}

static PyObject *result(const Kernel *kernel, const int64_t *results)
{
    switch (kernel->gives) {
    case GIVES_TRUTH:
        return PyBool_FromLong(results[0] & 1);
    case GIVES_NUMBER:
        return PyLong_FromLongLong(results[0]);
    case GIVES_TUPLE: {
        PyObject *tuple = PyTuple_New(kernel->result_count);
        for (int i = 0; tuple != NULL && i < kernel->result_count; i++) {
            PyObject *number = PyLong_FromLongLong(results[i]);
            if (number == NULL)
                Py_CLEAR(tuple);
            else
                PyTuple_SetItem(tuple, i, number);
        }
        return tuple;
    }
    default:
        Py_RETURN_NONE;
    }
}

static PyObject *raise(int32_t status, const int32_t *place)
{
    if (status != RAISED || *place < 0 || *place >= ERROR_COUNT) {
        PyErr_Format(PyExc_SystemError, "a linked kernel has ended with status %d", (int)status);
        return NULL;
    }
    const Error *error = &ERRORS[*place];
    PyObject *module = PyImport_ImportModule(error->module);
    PyObject *class = module == NULL ? NULL : PyObject_GetAttrString(module, error->name);
    if (class != NULL)
        PyErr_SetString(class, error->text);
    Py_XDECREF(class);
    Py_XDECREF(module);
    return NULL;
}

static PyObject *call(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    const Function *function = PyCapsule_GetPointer(self, NULL);
    if (function == NULL)
        return NULL;
    const Kernel *kernel = function->kernel;
    int64_t words[MOST_WORDS], results[MOST_RESULTS];
    int place = 0;
    if (count != kernel->parameter_count)
        return PyErr_Format(PyExc_TypeError, "%s takes %d arguments, not %zd", kernel->name, kernel->parameter_count,
                            count);
    for (int i = 0; i < count; i++) {
        const Parameter *parameter = &kernel->parameters[i];
        PyObject *value = arguments[i];
        switch (parameter->how) {
        case BLOCK:
            if (!read_block(value, parameter->layout, &words[place]))
                return refuse(kernel, parameter, "block of the right kind");
            place++;
            break;
        case ARRAY:
            if (!read_array(value, parameter, &words[place]))
                return refuse(kernel, parameter, "contiguous array of the right type in one dimension");
            place += WORDS_OF_ARRAY;
            break;
        case NUMBER:
            words[place] = PyLong_AsLongLong(value);
            if (words[place] == -1 && PyErr_Occurred())
                return NULL;
            place++;
            break;
        default:
            words[place] = PyObject_IsTrue(value);
            if (words[place++] < 0)
                return NULL;
        }
    }
    int64_t zero;
    const int32_t *error;
    int32_t status = function->entry(&zero, &error, words, results);
    return status == 0 ? result(kernel, results) : raise(status, error);
}

/* The module. */

static PyObject *variants(PyObject *module, PyObject *nothing)
{
    PyObject *names = PyList_New(0);
    for (int i = 0; names != NULL && i < VARIANT_COUNT; i++) {
        if (!is_supported(i))
            continue;
        PyObject *name = PyUnicode_FromString(VARIANTS[i].name);
        if (name == NULL || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

static int add_function(PyObject *found, Function *function)
{
    const Kernel *kernel = function->kernel;
    PyObject *capsule = PyCapsule_New(function, NULL, NULL);
    PyObject *module = PyUnicode_FromString(kernel->module);
    PyObject *key = PyUnicode_FromFormat("%s.%s", kernel->module, kernel->name);
    PyObject *value = NULL;
    int status = -1;
    if (capsule != NULL && module != NULL && key != NULL)
        value = PyCFunction_NewEx(&function->definition, capsule, module);
    if (value != NULL)
        status = PyDict_SetItem(found, key, value);
    Py_XDECREF(value);
    Py_XDECREF(key);
    Py_XDECREF(module);
    Py_XDECREF(capsule);
    return status;
}

static PyObject *kernels(PyObject *module, PyObject *name)
{
    for (int i = 0; i < VARIANT_COUNT; i++) {
        if (!is_supported(i) || PyUnicode_CompareWithASCIIString(name, VARIANTS[i].name) != 0)
            continue;
        PyObject *found = PyDict_New();
        for (int k = 0; found != NULL && k < KERNEL_COUNT; k++) {
            Function *function = &functions[i][k];
            function->kernel = &KERNELS[k];
            function->entry = VARIANTS[i].entries[k];
            function->definition.ml_name = KERNELS[k].name;
            function->definition.ml_meth = (PyCFunction)(void (*)(void))call;
            function->definition.ml_flags = METH_FASTCALL;
            if (add_function(found, function) < 0)
                Py_CLEAR(found);
        }
        return found;
    }
    PyErr_SetString(PyExc_ValueError, "this CPU has no such variant");
    return NULL;
}

static PyMethodDef methods[] = {
    {"variants", variants, METH_NOARGS, "Names of the variants that this CPU can run, the best one first."},
    {"kernels", kernels, METH_O, "The entry kernels of a variant, by module and name."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "hived._kernels", "Linked kernels of hived.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernels(void)
{
    import_array();
    if (address_name == NULL && (address_name = PyUnicode_InternFromString("_address")) == NULL)
        return NULL;
    return PyModule_Create(&definition);
}
