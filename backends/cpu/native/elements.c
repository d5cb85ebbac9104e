#include "elements.h"

#include <string.h>

#include "steps.h"
#include "vector_math.h"

INLINE float float_of_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = (uint32_t)(half & 0x7fff) << 13;
    float scaled = float_of_bits((int32_t)rest) * 5.19229686e33f; /* 2^112: the other bias */
    uint32_t bits = (uint32_t)bits_of_float(scaled);
    bits = rest >= 0x0f800000 ? rest | 0x7f800000 : bits;
    return float_of_bits((int32_t)(bits | sign));
}

/* Round to nearest, ties to even; 65520 and more is infinite. */
INLINE uint16_t half_of_float(float number)
{
    uint32_t bits = (uint32_t)bits_of_float(number), size = bits & 0x7fffffff;
    uint32_t sign = (bits >> 16) & 0x8000;
    /* Below 2^-14 the sum with 0.5 leaves just the digits that a half has there. */
    uint32_t small = (uint32_t)bits_of_float(float_of_bits((int32_t)size) + 0.5f) - 0x3f000000;
    uint32_t normal = (size - 0x38000000 + 0xfff + ((size >> 13) & 1)) >> 13;
    uint32_t made = size < 0x38800000 ? small : size >= 0x477ff000 ? 0x7c00 : normal;
    made = size > 0x7f800000 ? 0x7e00 : made;
    return (uint16_t)(made | sign);
}

INLINE float float_of_bfloat16(uint16_t bits)
{
    return float_of_bits((int32_t)((uint32_t)bits << 16));
}

INLINE uint16_t bfloat16_of_float(float number)
{
    uint32_t bits = (uint32_t)bits_of_float(number);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
}

/* As int32_of_float. */
INLINE int64_t int64_of_float(float number)
{
    const float limit = 9223372036854775808.0f;
    return number >= -limit && number < limit ? (int64_t)number : INT64_MIN;
}

#define SAME(number) (number)
#define IS_TRUE(number) ((number) != 0)

#define LOAD(type, convert)                                                                       \
    do {                                                                                          \
        if (stride == (int64_t)sizeof(type)) {                                                    \
            const type *from = (const type *)(const void *)row;                                   \
            for (int64_t index = 0; index < count; index++)                                       \
                numbers[index] = convert(from[index]);                                            \
        } else {                                                                                  \
            for (int64_t index = 0; index < count; index++)                                       \
                numbers[index] = convert(*(const type *)(const void *)(row + index * stride));    \
        }                                                                                         \
    } while (0)

#define STORE(type, convert)                                                                      \
    do {                                                                                          \
        if (stride == (int64_t)sizeof(type)) {                                                    \
            type *to = (type *)(void *)row;                                                       \
            for (int64_t index = 0; index < count; index++)                                       \
                to[index] = (type)convert(numbers[index]);                                        \
        } else {                                                                                  \
            for (int64_t index = 0; index < count; index++)                                       \
                *(type *)(void *)(row + index * stride) = (type)convert(numbers[index]);          \
        }                                                                                         \
    } while (0)

#define CASE(element, action)                                                                     \
    case element:                                                                                 \
        action;                                                                                   \
        return 0

#define REPEAT(load)                                                                              \
    do {                                                                                          \
        if (stride == 0 && count > 1) {                                                           \
            int status = load(numbers, row, 0, 1, element);                                       \
            for (int64_t index = 1; index < count; index++)                                       \
                numbers[index] = numbers[0];                                                      \
            return status;                                                                        \
        }                                                                                         \
    } while (0)

VECTOR_CLONES
int load_floats(float *numbers, const char *row, int64_t stride, int64_t count, int64_t element)
{
    REPEAT(load_floats);
    switch (element) {
        CASE(ELEMENT_F32, LOAD(float, SAME));
        CASE(ELEMENT_F16, LOAD(uint16_t, float_of_half));
        CASE(ELEMENT_BF16, LOAD(uint16_t, float_of_bfloat16));
        CASE(ELEMENT_F64, LOAD(double, (float)));
        CASE(ELEMENT_BOOL, LOAD(uint8_t, IS_TRUE));
        CASE(ELEMENT_U8, LOAD(uint8_t, SAME));
        CASE(ELEMENT_I8, LOAD(int8_t, SAME));
        CASE(ELEMENT_U16, LOAD(uint16_t, SAME));
        CASE(ELEMENT_I16, LOAD(int16_t, SAME));
        CASE(ELEMENT_U32, LOAD(uint32_t, (float)));
        CASE(ELEMENT_I32, LOAD(int32_t, (float)));
        CASE(ELEMENT_I64, LOAD(int64_t, (float)));
    }
    return -1;
}

VECTOR_CLONES
int store_floats(char *row, int64_t stride, const float *numbers, int64_t count, int64_t element)
{
    switch (element) {
        CASE(ELEMENT_F32, STORE(float, SAME));
        CASE(ELEMENT_F16, STORE(uint16_t, half_of_float));
        CASE(ELEMENT_BF16, STORE(uint16_t, bfloat16_of_float));
        CASE(ELEMENT_F64, STORE(double, SAME));
        CASE(ELEMENT_BOOL, STORE(uint8_t, IS_TRUE));
        CASE(ELEMENT_U8, STORE(uint8_t, int32_of_float));
        CASE(ELEMENT_I8, STORE(int8_t, int32_of_float));
        CASE(ELEMENT_U16, STORE(uint16_t, int32_of_float));
        CASE(ELEMENT_I16, STORE(int16_t, int32_of_float));
        CASE(ELEMENT_U32, STORE(uint32_t, int64_of_float));
        CASE(ELEMENT_I32, STORE(int32_t, int32_of_float));
        CASE(ELEMENT_I64, STORE(int64_t, int64_of_float));
    }
    return -1;
}

VECTOR_CLONES
int load_integers(int64_t *numbers, const char *row, int64_t stride, int64_t count,
                  int64_t element)
{
    REPEAT(load_integers);
    switch (element) {
        CASE(ELEMENT_BOOL, LOAD(uint8_t, IS_TRUE));
        CASE(ELEMENT_U8, LOAD(uint8_t, SAME));
        CASE(ELEMENT_I8, LOAD(int8_t, SAME));
        CASE(ELEMENT_U16, LOAD(uint16_t, SAME));
        CASE(ELEMENT_I16, LOAD(int16_t, SAME));
        CASE(ELEMENT_U32, LOAD(uint32_t, SAME));
        CASE(ELEMENT_I32, LOAD(int32_t, SAME));
        CASE(ELEMENT_I64, LOAD(int64_t, SAME));
    }
    return -1;
}

VECTOR_CLONES
int store_integers(char *row, int64_t stride, const int64_t *numbers, int64_t count,
                   int64_t element)
{
    switch (element) {
        CASE(ELEMENT_F32, STORE(float, (float)));
        CASE(ELEMENT_F16, STORE(uint16_t, half_of_float));
        CASE(ELEMENT_BF16, STORE(uint16_t, bfloat16_of_float));
        CASE(ELEMENT_F64, STORE(double, (double)));
        CASE(ELEMENT_BOOL, STORE(uint8_t, IS_TRUE));
        CASE(ELEMENT_U8, STORE(uint8_t, SAME));
        CASE(ELEMENT_I8, STORE(int8_t, SAME));
        CASE(ELEMENT_U16, STORE(uint16_t, SAME));
        CASE(ELEMENT_I16, STORE(int16_t, SAME));
        CASE(ELEMENT_U32, STORE(uint32_t, SAME));
        CASE(ELEMENT_I32, STORE(int32_t, SAME));
        CASE(ELEMENT_I64, STORE(int64_t, SAME));
    }
    return -1;
}
