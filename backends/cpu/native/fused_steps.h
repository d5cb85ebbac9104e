/* The steps of fused elementwise groups, numbered as elementwise_parameters.py lists them. */
#ifndef AIOINFER_CPU_FUSED_STEPS_H
#define AIOINFER_CPU_FUSED_STEPS_H

#include <stdint.h>
#include <string.h>

/* Those that others compute in loops of their own. */
#define FLOAT_STEP_LINEAR 6
#define FLOAT_STEP_CLIP 14
#define FLOAT_STEP_ROUND 17
#define FLOAT_STEP_THRESHOLDED 38
#define FLOAT_STEP_ADD 42
#define FLOAT_STEP_SUB 43
#define FLOAT_STEP_MUL 44
#define FLOAT_STEP_DIV 45

/* From these on they take an operand. */
#define FIRST_BINARY_FLOAT_STEP 42
#define FIRST_BINARY_INTEGER_STEP 6

/* One step on `count` numbers; `out` may be `in`. A binary step has `in` on its left and `other` on
 * its right. Returns 0, or -1 for an unknown number. */
int float_step(int64_t number, float *out, const float *in, const float *other, int64_t count,
               float alpha, float beta);
int integer_step(int64_t number, int64_t *out, const int64_t *in, const int64_t *other,
                 int64_t count, int64_t alpha);

/* A number of a step, as its parameters hold it. */
static inline float float_of_double_bits(int64_t bits)
{
    double number;
    memcpy(&number, &bits, sizeof number);
    return (float)number;
}

#endif
