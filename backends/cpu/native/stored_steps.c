#include "stored_steps.h"

#include "elements.h"
#include "steps.h"
#include "vector_math.h"

#define DEFINE_ROWS(type)                                                                         \
    INLINE void dequantize_##type(float *restrict numbers, const type *restrict row,              \
                                  int64_t count, struct dequantization by)                        \
    {                                                                                             \
        for (int64_t index = 0; index < count; index++)                                           \
            numbers[index] = by.scale * ((float)row[index] - by.zero);                            \
    }                                                                                             \
                                                                                                  \
    INLINE void quantize_##type(type *restrict row, const float *restrict numbers, int64_t count, \
                                struct quantization by, int nan_is_low)                           \
    {                                                                                             \
        for (int64_t index = 0; index < count; index++) {                                         \
            float number = rintf(numbers[index] / by.scale) + by.zero;                            \
            if (nan_is_low)                                                                       \
                number = number > by.low ? number : by.low;                                       \
            row[index] = (type)int32_of_float(kept_between(number, by.low, by.high));             \
        }                                                                                         \
    }

DEFINE_ROWS(uint8_t)
DEFINE_ROWS(int8_t)

VECTOR_CLONES
void dequantize_row(float *numbers, const char *row, int64_t count, int64_t element,
                    struct dequantization by)
{
    if (element == ELEMENT_U8)
        dequantize_uint8_t(numbers, (const uint8_t *)row, count, by);
    else
        dequantize_int8_t(numbers, (const int8_t *)row, count, by);
}

VECTOR_CLONES
void quantize_row(char *row, const float *numbers, int64_t count, int64_t element,
                  struct quantization by)
{
    if (element == ELEMENT_U8)
        quantize_uint8_t((uint8_t *)row, numbers, count, by, 0); /* the cast of NaN is 0, too */
    else if (by.nan_is_low)
        quantize_int8_t((int8_t *)row, numbers, count, by, 1);
    else
        quantize_int8_t((int8_t *)row, numbers, count, by, 0);
}

INLINE void round_each(float *out, const float *in, int64_t count, struct rounding by,
                       int divides, int shifts)
{
    INDEPENDENT
    for (int64_t index = 0; index < count; index++) {
        float number = divides ? in[index] / by.divisor : by.factor * in[index];
        number = by.scale * rintf(kept_between(number, by.low, by.high));
        out[index] = shifts ? number + by.shift : number;
    }
}

VECTOR_CLONES
void round_numbers(float *out, const float *in, int64_t count, struct rounding by)
{
    const int divides = by.divisor != 0.0f, shifts = by.shift != 0.0f;
    if (divides && shifts)
        round_each(out, in, count, by, 1, 1);
    else if (divides)
        round_each(out, in, count, by, 1, 0);
    else if (shifts)
        round_each(out, in, count, by, 0, 1);
    else
        round_each(out, in, count, by, 0, 0);
}
