/* Steps in a row around numbers that are stored in 8 bits, in one walk.
 *
 * Results are those of the steps one after the other, bit for bit.
 */
#ifndef AIOINFER_CPU_STORED_STEPS_H
#define AIOINFER_CPU_STORED_STEPS_H

#include <stdint.h>

/* What is stored in 8 bits, minus a zero point, times a scale. */
struct dequantization {
    float zero, scale;
};

/* A number by a scale, rounded, plus a zero point, kept between bounds; NaN is `low` where
 * `nan_is_low`, else 0. */
struct quantization {
    float scale, zero, low, high;
    int nan_is_low;
};

/* A number times a factor, or by a divisor if that is not 0; bounded, rounded, times a scale, plus a
 * shift unless that is 0. */
struct rounding {
    float factor, divisor, low, high, scale, shift;
};

/* ELEMENT_U8, else ELEMENT_I8. Rows are dense. */
void dequantize_row(float *numbers, const char *row, int64_t count, int64_t element,
                    struct dequantization by);
void quantize_row(char *row, const float *numbers, int64_t count, int64_t element,
                  struct quantization by);

/* `out` may be `in`. */
void round_numbers(float *out, const float *in, int64_t count, struct rounding by);

#endif
