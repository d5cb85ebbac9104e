#include "fused_steps.h"

#include "steps.h"
#include "vector_math.h"

#define UNARY(number, expression)                                                                 \
    case number:                                                                                  \
        INDEPENDENT                                                                               \
        for (int64_t index = 0; index < count; index++) {                                         \
            const NUMBER x = in[index];                                                           \
            out[index] = (expression);                                                            \
        }                                                                                         \
        return 0

#define BINARY(number, expression)                                                                \
    case number:                                                                                  \
        INDEPENDENT                                                                               \
        for (int64_t index = 0; index < count; index++) {                                         \
            const NUMBER x = in[index], y = other[index];                                         \
            out[index] = (expression);                                                            \
        }                                                                                         \
        return 0

#define NUMBER float

#define EACH(expression)                                                                          \
    INDEPENDENT                                                                                   \
    for (int64_t index = 0; index < count; index++) {                                             \
        const float x = in[index];                                                                \
        out[index] = (expression);                                                                \
    }                                                                                             \
    return 0

/* a x + b; without b -0 stays what it is. */
INLINE int linear(float *out, const float *in, int64_t count, float a, float b)
{
    if (b == 0.0f) {
        EACH(a * x);
    }
    EACH(a * x + b);
}

/* a x^b; powf is no vector code, so exponents that are usual have loops of their own. */
INLINE int constant_power(float *out, const float *in, int64_t count, float a, float b)
{
    if (b == -1.0f) {
        EACH(a / x);
    }
    if (b == 2.0f) {
        EACH(a * (x * x));
    }
    if (b == 3.0f) {
        EACH(a * (x * x * x));
    }
    if (b == 0.5f) {
        EACH(a * sqrtf(x));
    }
    EACH(a * powf(x, b));
}

#undef EACH

/* What is below 0 times `alpha`; 0 itself for alpha 0, so that no infinity becomes NaN. */
INLINE float leaky(float x, float alpha)
{
    return x < 0.0f ? (alpha == 0.0f ? 0.0f : alpha * x) : x;
}

INLINE float sign_of(float x)
{
    return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x;
}

INLINE float shrunk(float x, float limit, float bias)
{
    return x < -limit ? x + bias : x > limit ? x - bias : 0.0f;
}

/* a: negative infinity counts; b: positive does. */
INLINE float is_infinite(float x, float negative, float positive)
{
    return (x == -INFINITY && negative != 0.0f) || (x == INFINITY && positive != 0.0f);
}

VECTOR_CLONES
int float_step(int64_t number, float *out, const float *in, const float *other, int64_t count,
               float a, float b)
{
    switch (number) {
        UNARY(0, leaky(x, a));
        UNARY(1, fast_tanh(x));
        UNARY(2, fast_elu(x, a));
        UNARY(3, x * x);
        UNARY(4, fabsf(x));
        UNARY(5, sqrtf(x));
    case 6:
        return linear(out, in, count, a, b);
        UNARY(7, a == 1.0f ? fast_softplus(x) : fast_softplus(a * x) / a);
        UNARY(8, kept_between(a * x + b, 0.0f, 1.0f));
        UNARY(9, fast_sigmoid(x));
        UNARY(10, fast_exp(x));
        UNARY(11, fast_gelu_tanh(x));
        UNARY(12, x * fast_sigmoid(a * x));
        UNARY(13, fast_log(x));
        UNARY(14, kept_between(x, a, b));
    case 15:
        return constant_power(out, in, count, a, b);
        UNARY(16, fast_gelu_erf(x));
        UNARY(17, rintf(x));
        UNARY(18, fast_mish(x));
        UNARY(19, x * kept_between(a * x + b, 0.0f, 1.0f));
        UNARY(20, floorf(x));
        UNARY(21, ceilf(x));
        UNARY(22, sign_of(x));
        UNARY(23, fast_erf(x));
        UNARY(24, sinf(x));
        UNARY(25, cosf(x));
        UNARY(26, tanf(x));
        UNARY(27, asinf(x));
        UNARY(28, acosf(x));
        UNARY(29, atanf(x));
        UNARY(30, sinhf(x));
        UNARY(31, coshf(x));
        UNARY(32, asinhf(x));
        UNARY(33, acoshf(x));
        UNARY(34, atanhf(x));
        UNARY(35, x / (1.0f + fabsf(x)));
        UNARY(36, (x < 0.0f ? 0.0f : x) + (x < 0.0f ? a * (fast_exp(x / a) - 1.0f) : 0.0f));
        UNARY(37, b * fast_elu(x, a));
        UNARY(38, x > a ? x : b); /* so is NaN */
        UNARY(39, shrunk(x, a, b));
        UNARY(40, x != x);
        UNARY(41, is_infinite(x, a, b));
        BINARY(42, x + y);
        BINARY(43, x - y);
        BINARY(44, x * y);
        BINARY(45, x / y);
        BINARY(46, x >= y || x != x ? x : y);
        BINARY(47, x <= y || x != x ? x : y);
        BINARY(48, y == 2.0f ? x * x : powf(x, y));
        BINARY(49, floored_remainder(x, y));
        BINARY(50, fmodf(x, y));
        BINARY(51, x < 0.0f ? x * y : x);
        BINARY(52, x == y);
        BINARY(53, x < y);
        BINARY(54, x <= y);
        BINARY(55, x > y);
        BINARY(56, x >= y);
    }
    return -1;
}

#undef NUMBER
#define NUMBER int64_t

/* Whole numbers wrap around, as those of the type that they are stored in. */
INLINE int64_t wrapped(uint64_t number)
{
    return (int64_t)number;
}

/* Cut towards zero; what is divided by 0 is 0. */
INLINE int64_t quotient(int64_t x, int64_t y)
{
    return y == 0 ? 0 : y == -1 ? wrapped(-(uint64_t)x) : x / y;
}

INLINE int64_t truncated_remainder(int64_t x, int64_t y)
{
    return y == 0 || y == -1 ? 0 : x % y;
}

INLINE int64_t floored_integer_remainder(int64_t x, int64_t y)
{
    int64_t rest = truncated_remainder(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

/* What 1 / x^n leaves is cut off; of 0 nothing is left. */
INLINE int64_t integer_power(int64_t x, int64_t exponent)
{
    if (exponent < 0)
        return x == 1 ? 1 : x != -1 ? 0 : exponent & 1 ? -1 : 1;
    uint64_t base = (uint64_t)x, made = 1;
    for (; exponent > 0; exponent >>= 1, base *= base)
        if (exponent & 1)
            made *= base;
    return wrapped(made);
}

INLINE int64_t shifted_left(int64_t x, int64_t y)
{
    return y < 0 || y > 63 ? 0 : wrapped((uint64_t)x << y);
}

INLINE int64_t shifted_right(int64_t x, int64_t y)
{
    return y < 0 || y > 63 ? 0 : x >> y;
}

VECTOR_CLONES
int integer_step(int64_t number, int64_t *out, const int64_t *in, const int64_t *other,
                 int64_t count, int64_t a)
{
    switch (number) {
        UNARY(0, x < 0 ? wrapped(-(uint64_t)x) : x);
        UNARY(1, wrapped(-(uint64_t)x));
        UNARY(2, (x > 0) - (x < 0));
        UNARY(3, ~x);
        UNARY(4, x == 0);
        UNARY(5, x < a ? a : x);
        BINARY(6, wrapped((uint64_t)x + (uint64_t)y));
        BINARY(7, wrapped((uint64_t)x - (uint64_t)y));
        BINARY(8, wrapped((uint64_t)x * (uint64_t)y));
        BINARY(9, quotient(x, y));
        BINARY(10, x > y ? x : y);
        BINARY(11, x < y ? x : y);
        BINARY(12, integer_power(x, y));
        BINARY(13, floored_integer_remainder(x, y));
        BINARY(14, truncated_remainder(x, y));
        BINARY(15, x < 0 ? wrapped((uint64_t)x * (uint64_t)y) : x);
        BINARY(16, x == y);
        BINARY(17, x < y);
        BINARY(18, x <= y);
        BINARY(19, x > y);
        BINARY(20, x >= y);
        BINARY(21, x & y);
        BINARY(22, x | y);
        BINARY(23, x ^ y);
        BINARY(24, shifted_left(x, y));
        BINARY(25, shifted_right(x, y));
    }
    return -1;
}
