/* CRC-32 as zlib computes it, of memory and of parts of files, without the GIL.
 *
 * Four registers of 16 bytes go over the bytes side by side. To move a register on by some bytes is
 * to multiply what it holds by a power of x, modulo the polynomial; two carry-less products do that
 * but for the modulo, so each step adds them to the bytes that follow. The register that is left is
 * itself a message with the same remainder, which a table takes byte by byte. Bits are reflected:
 * the first byte has the highest powers. Source: Gopal et al., "Fast CRC Computation for Generic
 * Polynomials Using PCLMULQDQ Instruction", Intel, 2009.
 *
 * Where a processor has no such products the module says so, and zlib is to be asked. */
#include <pyconfig.h>
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAS_PRODUCTS 1
#else
#define HAS_PRODUCTS 0
#endif

#define POLYNOMIAL 0xEDB88320u
#define REGISTER_BYTES 16
#define STRIDE_BYTES (4 * REGISTER_BYTES)
#define CHUNK_BYTES (256 * 1024) /* of a file, read into memory that stays in the cache */

static uint32_t table[256];

static void fill_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t found = byte;
        for (int bit = 0; bit < 8; bit++)
            found = (found >> 1) ^ (found & 1 ? POLYNOMIAL : 0);
        table[byte] = found;
    }
}

/* The remainder behind these bytes; zlib gives and takes its complement. */
static uint32_t by_table(const uint8_t *bytes, size_t count, uint32_t found)
{
    for (size_t place = 0; place < count; place++)
        found = (found >> 8) ^ table[(found ^ bytes[place]) & 255];
    return found;
}

#if HAS_PRODUCTS
/* x to the power of the distance in bits plus and minus 32, modulo the polynomial, reflected. */
#define OVER_STRIDE _mm_set_epi64x(0x1c6e41596, 0x154442bd4)
#define OVER_REGISTER _mm_set_epi64x(0x0ccaa009e, 0x1751997d0)
#define LOAD(bytes) _mm_loadu_si128((const __m128i *)(bytes))

__attribute__((target("pclmul,sse2"))) static inline __m128i moved(__m128i held, __m128i powers,
                                                                   __m128i following)
{
    __m128i low = _mm_clmulepi64_si128(held, powers, 0x00);
    __m128i high = _mm_clmulepi64_si128(held, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), following);
}

__attribute__((target("pclmul,sse2"))) static uint32_t by_products(const uint8_t *bytes,
                                                                   size_t count, uint32_t found)
{
    if (count < STRIDE_BYTES)
        return by_table(bytes, count, found);
    __m128i held[4];
    for (int index = 0; index < 4; index++)
        held[index] = LOAD(bytes + index * REGISTER_BYTES);
    held[0] = _mm_xor_si128(held[0], _mm_cvtsi32_si128((int)found));
    size_t place = STRIDE_BYTES;
    for (; place + STRIDE_BYTES <= count; place += STRIDE_BYTES)
        for (int index = 0; index < 4; index++)
            held[index] =
                moved(held[index], OVER_STRIDE, LOAD(bytes + place + index * REGISTER_BYTES));
    for (int index = 1; index < 4; index++)
        held[index] = moved(held[index - 1], OVER_REGISTER, held[index]);
    uint8_t last[REGISTER_BYTES];
    _mm_storeu_si128((__m128i *)last, held[3]);
    found = by_table(last, REGISTER_BYTES, 0);
    return by_table(bytes + place, count - place, found);
}
#endif

static uint32_t crc32_of(const uint8_t *bytes, size_t count, uint32_t before)
{
#if HAS_PRODUCTS
    return ~by_products(bytes, count, ~before);
#else
    return ~by_table(bytes, count, ~before);
#endif
}

static PyObject *of_memory(PyObject *module, PyObject *args)
{
    Py_buffer view;
    unsigned int found = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*|I", &view, &found))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    found = crc32_of(view.buf, (size_t)view.len, found);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(found);
}

/* 0, or an errno; -1 where the file ends before that. */
static int read_all(int file, int64_t start, int64_t count, uint8_t *memory, uint32_t *found)
{
    while (count > 0) {
        size_t wanted = count < CHUNK_BYTES ? (size_t)count : CHUNK_BYTES;
        ssize_t had = pread(file, memory, wanted, (off_t)start);
        if (had < 0 && errno == EINTR)
            continue;
        if (had <= 0)
            return had < 0 ? errno : -1;
        *found = crc32_of(memory, (size_t)had, *found);
        start += had;
        count -= had;
    }
    return 0;
}

static PyObject *of_file(PyObject *module, PyObject *args)
{
    int file, status;
    long long start, count;
    uint32_t found = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "iLL", &file, &start, &count))
        return NULL;
    uint8_t *memory = malloc(CHUNK_BYTES);
    if (memory == NULL)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    status = read_all(file, start, count, memory, &found);
    Py_END_ALLOW_THREADS
    free(memory);
    if (status > 0) {
        errno = status;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    if (status < 0)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLong(found);
}

static PyMethodDef methods[] = {
    {"of_memory", of_memory, METH_VARARGS,
     "of_memory(buffer, before=0)\n\nThe CRC-32 of bytes behind others that gave before."},
    {"of_file", of_file, METH_VARARGS,
     "of_file(descriptor, start, count)\n\n"
     "The CRC-32 of a part of a file; None where it ends before that. Raises OSError."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_crc32", "CRC-32 by carry-less products; see crc32.c.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__crc32(void)
{
#if HAS_PRODUCTS
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("pclmul"))
        return PyErr_Format(PyExc_ImportError, "this processor has no carry-less products");
#else
    return PyErr_Format(PyExc_ImportError, "carry-less products are used on x86-64 only");
#endif
    fill_table();
    return PyModule_Create(&definition);
}
