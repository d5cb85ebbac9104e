/* Elements in memory as the numbers that kernels compute with, and back.
 *
 * Types are numbered as ONNX does. A row is `count` elements at a stride in bytes; stride 0 repeats
 * one element.
 */
#ifndef AIOINFER_CPU_ELEMENTS_H
#define AIOINFER_CPU_ELEMENTS_H

#include <stdint.h>

enum element {
    ELEMENT_F32 = 1,
    ELEMENT_U8 = 2,
    ELEMENT_I8 = 3,
    ELEMENT_U16 = 4,
    ELEMENT_I16 = 5,
    ELEMENT_I32 = 6,
    ELEMENT_I64 = 7,
    ELEMENT_BOOL = 9,
    ELEMENT_F16 = 10,
    ELEMENT_F64 = 11,
    ELEMENT_U32 = 12,
    ELEMENT_BF16 = 16,
};

/* All return 0, or -1 for a type that is not listed above. */
int load_floats(float *numbers, const char *row, int64_t stride, int64_t count, int64_t element);
int store_floats(char *row, int64_t stride, const float *numbers, int64_t count, int64_t element);
int load_integers(int64_t *numbers, const char *row, int64_t stride, int64_t count,
                  int64_t element);
int store_integers(char *row, int64_t stride, const int64_t *numbers, int64_t count,
                   int64_t element);

#endif
