/* Compare a float32 tensor with its reference in one pass: the sums and ranges of engine/measures.py, in float64.

A second optional extension of tecoinfer_modelzoo.native, used on x86-64 only. NumPy needs a float64 copy of both tensors and about
twenty passes over blocks of them; here every element is read once. The sums are kept in four lanes, which are added at the
end: they differ from NumPy's in the order of summation only. A tensor with NaN or an infinity is left to NumPy. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define INTERFACE 1 /* of native/__init__.py; raised when arguments or results change */
#define LANES 4
#define FIGURES 14

enum figure { SQUARES, L1, L1_REFERENCE, L2_REFERENCE, L2_VALUE, DOT, RELATIVE, RELATIVE_MAX, LOW, HIGH, REFERENCE_LOW, REFERENCE_HIGH,
              SATURATED, FLUSHED };

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HAS_AVX2 1
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2")))
#endif

enum level { PLAIN, WITH_AVX2 };

/* Add the elements from `start` on, one at a time. */
static void add_rest(const float *values, const float *reference, Py_ssize_t start, Py_ssize_t count, double threshold, double top,
                     double *f) {
    for (Py_ssize_t i = start; i < count; i++) {
        double v = values[i], r = reference[i], error = v - r, far = fabs(error), size = fabs(r);
        double share = far / (size > threshold ? size : 1.0);
        f[SQUARES] += error * error;
        f[L1] += far;
        f[L1_REFERENCE] += size;
        f[L2_REFERENCE] += r * r;
        f[L2_VALUE] += v * v;
        f[DOT] += v * r;
        f[RELATIVE] += share;
        if (share > f[RELATIVE_MAX]) f[RELATIVE_MAX] = share;
        if (v < f[LOW]) f[LOW] = v;
        if (v > f[HIGH]) f[HIGH] = v;
        if (r < f[REFERENCE_LOW]) f[REFERENCE_LOW] = r;
        if (r > f[REFERENCE_HIGH]) f[REFERENCE_HIGH] = r;
        f[SATURATED] += fabs(v) >= top;
        f[FLUSHED] += v == 0.0 && r != 0.0;
    }
}

static void begin(double *f) {
    memset(f, 0, FIGURES * sizeof *f);
    f[LOW] = f[REFERENCE_LOW] = DBL_MAX;
    f[HIGH] = f[REFERENCE_HIGH] = -DBL_MAX;
}

#ifdef HAS_AVX2

AVX2 static double lane(__m256d of, int k) {
    double lanes[LANES];
    memcpy(lanes, &of, sizeof lanes);
    return lanes[k];
}

AVX2 static void add_avx2(const float *values, const float *reference, Py_ssize_t count, double threshold, double top, double *f) {
    const __m256d zero = _mm256_setzero_pd(), one = _mm256_set1_pd(1.0), sign = _mm256_set1_pd(-0.0);
    const __m256d limit = _mm256_set1_pd(threshold), full = _mm256_set1_pd(top);
    __m256d squares = zero, l1 = zero, l1_reference = zero, l2_reference = zero, l2_value = zero, dot = zero, relative = zero, most = zero;
    __m256d low = _mm256_set1_pd(DBL_MAX), high = _mm256_set1_pd(-DBL_MAX), reference_low = low, reference_high = high;
    __m256i saturated = _mm256_setzero_si256(), flushed = saturated;
    Py_ssize_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        __m256d v = _mm256_cvtps_pd(_mm_loadu_ps(values + i)), r = _mm256_cvtps_pd(_mm_loadu_ps(reference + i));
        __m256d error = _mm256_sub_pd(v, r), far = _mm256_andnot_pd(sign, error), size = _mm256_andnot_pd(sign, r);
        __m256d divisor = _mm256_blendv_pd(one, size, _mm256_cmp_pd(size, limit, _CMP_GT_OQ));
        __m256d share = _mm256_div_pd(far, divisor);
        squares = _mm256_add_pd(squares, _mm256_mul_pd(error, error));
        l1 = _mm256_add_pd(l1, far);
        l1_reference = _mm256_add_pd(l1_reference, size);
        l2_reference = _mm256_add_pd(l2_reference, _mm256_mul_pd(r, r));
        l2_value = _mm256_add_pd(l2_value, _mm256_mul_pd(v, v));
        dot = _mm256_add_pd(dot, _mm256_mul_pd(v, r));
        relative = _mm256_add_pd(relative, share);
        most = _mm256_max_pd(most, share);
        low = _mm256_min_pd(low, v);
        high = _mm256_max_pd(high, v);
        reference_low = _mm256_min_pd(reference_low, r);
        reference_high = _mm256_max_pd(reference_high, r);
        __m256d is_full = _mm256_cmp_pd(_mm256_andnot_pd(sign, v), full, _CMP_GE_OQ);
        __m256d is_flushed = _mm256_and_pd(_mm256_cmp_pd(v, zero, _CMP_EQ_OQ), _mm256_cmp_pd(r, zero, _CMP_NEQ_OQ));
        saturated = _mm256_sub_epi64(saturated, _mm256_castpd_si256(is_full)); /* a true lane is -1 */
        flushed = _mm256_sub_epi64(flushed, _mm256_castpd_si256(is_flushed));
    }
    int64_t full_counts[LANES], flushed_counts[LANES];
    memcpy(full_counts, &saturated, sizeof saturated);
    memcpy(flushed_counts, &flushed, sizeof flushed);
    for (int k = 0; k < LANES; k++) {
        const __m256d sums[] = {squares, l1, l1_reference, l2_reference, l2_value, dot, relative};
        for (int part = 0; part < RELATIVE_MAX; part++) f[part] += lane(sums[part], k);
        f[RELATIVE_MAX] = fmax(f[RELATIVE_MAX], lane(most, k));
        f[LOW] = fmin(f[LOW], lane(low, k));
        f[HIGH] = fmax(f[HIGH], lane(high, k));
        f[REFERENCE_LOW] = fmin(f[REFERENCE_LOW], lane(reference_low, k));
        f[REFERENCE_HIGH] = fmax(f[REFERENCE_HIGH], lane(reference_high, k));
        f[SATURATED] += (double)full_counts[k];
        f[FLUSHED] += (double)flushed_counts[k];
    }
    add_rest(values, reference, i, count, threshold, top, f);
}

static int best_level(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") ? WITH_AVX2 : PLAIN;
}

#else

static int best_level(void) { return PLAIN; }

#endif

static void add(int level, const float *v, const float *r, Py_ssize_t count, double threshold, double top, double *f) {
    begin(f);
#ifdef HAS_AVX2
    if (level == WITH_AVX2) {
        add_avx2(v, r, count, threshold, top, f);
        return;
    }
#endif
    (void)level;
    add_rest(v, r, 0, count, threshold, top, f);
}

static PyObject *figures(const double *f) {
    /* A NaN or an infinity in one of the tensors makes at least one of these sums not finite. */
    if (!isfinite(f[SQUARES]) || !isfinite(f[L2_VALUE]) || !isfinite(f[L2_REFERENCE])) Py_RETURN_NONE;
    PyObject *found = PyTuple_New(FIGURES);
    for (int i = 0; found && i < FIGURES; i++) {
        PyObject *one = PyFloat_FromDouble(f[i]);
        if (!one || PyTuple_SetItem(found, i, one)) {
            Py_DECREF(found);
            return NULL;
        }
    }
    return found;
}

static PyObject *compare(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *value_object, *reference_object, *done = NULL;
    double threshold, top;
    int level;
    if (!PyArg_ParseTuple(args, "OOddi", &value_object, &reference_object, &threshold, &top, &level)) return NULL;
    if (level < PLAIN || level > best_level()) {
        PyErr_SetString(PyExc_ValueError, "this processor does not have that level");
        return NULL;
    }
    Py_buffer value = {0}, reference = {0};
    if (PyObject_GetBuffer(value_object, &value, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) return NULL;
    if (!PyObject_GetBuffer(reference_object, &reference, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) {
        if (value.len != reference.len || strcmp(value.format, "f") || strcmp(reference.format, "f")) {
            PyErr_SetString(PyExc_ValueError, "both must be float32 and of one size");
        } else {
            double f[FIGURES];
            Py_BEGIN_ALLOW_THREADS
            add(level, value.buf, reference.buf, value.len / (Py_ssize_t)sizeof(float), threshold, top, f);
            Py_END_ALLOW_THREADS
            done = figures(f);
        }
        PyBuffer_Release(&reference);
    }
    PyBuffer_Release(&value);
    return done;
}

static PyObject *level(PyObject *self, PyObject *args) {
    (void)self;
    (void)args;
    return PyLong_FromLong(best_level());
}

static PyObject *interface(PyObject *self, PyObject *args) {
    (void)self;
    (void)args;
    return PyLong_FromLong(INTERFACE);
}

static PyMethodDef METHODS[] = {
    {"interface", interface, METH_NOARGS, "Return the number of this interface."},
    {"compare", compare, METH_VARARGS, "compare(value, reference, threshold, top, level)"},
    {"level", level, METH_NOARGS, "Return the highest level of this processor: 0 for plain C, 1 for AVX2."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef_Slot SLOTS[] = {
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_sums", "Sums of tensors and their references, for tecoinfer_modelzoo.native.", 0, METHODS, SLOTS, NULL, NULL,
    NULL,
};

PyMODINIT_FUNC PyInit__sums(void) { return PyModuleDef_Init(&MODULE); }
