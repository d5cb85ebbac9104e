/* Functions of one float without branches, so that the compiler makes vectors of their loops.
 *
 * Errors are a few units in the last place of the result or, near zeros of a function, of 1. NaN and
 * infinities come out as C's own functions have them.
 */
#ifndef AIOINFER_CPU_VECTOR_MATH_H
#define AIOINFER_CPU_VECTOR_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

/* Operands in the same memory are the same elements: working in place is no dependence. */
#if defined(__GNUC__) && !defined(__clang__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

INLINE float float_of_bits(int32_t bits)
{
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

INLINE int32_t bits_of_float(float number)
{
    int32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

/* NaN if x is; `low` may be above `high`, which wins. */
INLINE float kept_between(float x, float low, float high)
{
    float raised = x < low ? low : x;
    return raised > high ? high : raised;
}

/* Out of range is as the processor has it; small types take the low bits of a larger one. */
INLINE int32_t int32_of_float(float number)
{
    return number >= -2147483648.0f && number < 2147483648.0f ? (int32_t)number : INT32_MIN;
}

/* 2^n for whole n from -252 to 254, as two factors that are floats themselves. */
INLINE float scaled(float x, int32_t n)
{
    int32_t half = n >> 1, rest = n - half;
    return x * float_of_bits((half + 127) << 23) * float_of_bits((rest + 127) << 23);
}

/* x = n ln 2 + r; the series of exp(r), up to r^7, is good to 5e-9 for |r| <= ln 2 / 2. */
INLINE float fast_exp(float x)
{
    const float to_whole = 12582912.0f; /* 1.5 * 2^23: adding it leaves no digits after the point */
    float bounded = x > 89.0f ? 89.0f : x < -104.0f ? -104.0f : x;
    float n = (bounded * 1.44269504f + to_whole) - to_whole;
    float r = (bounded - n * 0.693145752f) - n * 1.42860677e-6f;
    float sum = 1.0f / 5040.0f;
    sum = sum * r + 1.0f / 720.0f;
    sum = sum * r + 1.0f / 120.0f;
    sum = sum * r + 1.0f / 24.0f;
    sum = sum * r + 1.0f / 6.0f;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    return scaled(sum, (int32_t)(n == n ? n : 0.0f));
}

/* x = m 2^e with m about 1; log(m) = 2 artanh(s) with s = (m - 1) / (m + 1), |s| < 0.172. */
INLINE float fast_log(float x)
{
    const int32_t root_half = 0x3f3504f3;
    int is_small = x < 1.17549435e-38f;
    uint32_t all = (uint32_t)bits_of_float(is_small ? x * 8388608.0f : x);
    int32_t bits = (int32_t)(all - (uint32_t)root_half);
    float e = (float)((bits >> 23) - (is_small ? 23 : 0));
    float m = float_of_bits((bits & 0x7fffff) + root_half) - 1.0f;
    float s = m / (2.0f + m), z = s * s;
    float sum = 1.0f / 11.0f;
    sum = sum * z + 1.0f / 9.0f;
    sum = sum * z + 1.0f / 7.0f;
    sum = sum * z + 1.0f / 5.0f;
    sum = sum * z + 1.0f / 3.0f;
    sum = 2.0f * s * (sum * z + 1.0f);
    sum = e * 0.693145752f + (sum + e * 1.42860677e-6f);
    sum = x == 0.0f ? -INFINITY : x < 0.0f ? NAN : sum;
    return x > 3.4028235e38f || x != x ? x : sum;
}

/* log(1 + y) for 0 <= y <= 1. */
INLINE float log_of_one_plus(float y)
{
    float s = y / (2.0f + y), z = s * s;
    float sum = 1.0f / 17.0f;
    sum = sum * z + 1.0f / 15.0f;
    sum = sum * z + 1.0f / 13.0f;
    sum = sum * z + 1.0f / 11.0f;
    sum = sum * z + 1.0f / 9.0f;
    sum = sum * z + 1.0f / 7.0f;
    sum = sum * z + 1.0f / 5.0f;
    sum = sum * z + 1.0f / 3.0f;
    return 2.0f * s * (sum * z + 1.0f);
}

INLINE float fast_softplus(float x)
{
    float high = x < 0.0f ? 0.0f : x;
    return high + log_of_one_plus(fast_exp(-fabsf(x)));
}

INLINE float fast_sigmoid(float x)
{
    return 1.0f / (1.0f + fast_exp(-x));
}

/* Near 0 the series, elsewhere (1 - exp(-2x)) / (1 + exp(-2x)). */
INLINE float fast_tanh(float x)
{
    float z = x * x, e = fast_exp(-2.0f * fabsf(x));
    float near = -1382.0f / 155925.0f;
    near = near * z + 62.0f / 2835.0f;
    near = near * z - 17.0f / 315.0f;
    near = near * z + 2.0f / 15.0f;
    near = near * z - 1.0f / 3.0f;
    near = x + x * z * near;
    return z < 0.09f ? near : copysignf((1.0f - e) / (1.0f + e), x);
}

/* Up to 1 the series; from there on Abramowitz and Stegun, Handbook of Mathematical Functions,
 * 7.1.26, whose error is below 1.5e-7. */
INLINE float fast_erf(float x)
{
    float z = x * x, size = fabsf(x);
    float t = 1.0f / (1.0f + 0.3275911f * size);
    float near = -1.0f / 6894720.0f, far = 1.061405429f;
    near = near * z + 1.0f / 685440.0f;
    near = near * z - 1.0f / 75600.0f;
    near = near * z + 1.0f / 9360.0f;
    near = near * z - 1.0f / 1320.0f;
    near = near * z + 1.0f / 216.0f;
    near = near * z - 1.0f / 42.0f;
    near = near * z + 1.0f / 10.0f;
    near = near * z - 1.0f / 3.0f;
    near = 1.128379167f * (x + x * z * near);
    far = far * t - 1.453152027f;
    far = far * t + 1.421413741f;
    far = far * t - 0.284496736f;
    far = far * t + 0.254829592f;
    far = copysignf(1.0f - far * t * fast_exp(-z), x);
    return size < 1.0f ? near : far;
}

INLINE float fast_gelu_erf(float x)
{
    return 0.5f * x * (1.0f + fast_erf(x * 0.707106781f));
}

/* 1 + tanh(u) is 2 sigmoid(2u), which has no digits to lose near 0. */
INLINE float fast_gelu_tanh(float x)
{
    return x / (1.0f + fast_exp(-1.595769122f * (x + 0.044715f * x * x * x)));
}

/* tanh(log(1 + e)) = (e^2 + 2e) / (e^2 + 2e + 2); from 20 on that is 1. */
INLINE float fast_mish(float x)
{
    float e = fast_exp(x > 20.0f ? 20.0f : x), part = e * (e + 2.0f);
    return x * (part / (part + 2.0f));
}

INLINE float fast_elu(float x, float alpha)
{
    return x < 0.0f ? alpha * (fast_exp(x) - 1.0f) : x;
}

/* Python's remainder: it has the sign of the divisor. */
INLINE float floored_remainder(float x, float y)
{
    float rest = fmodf(x, y);
    return rest != 0.0f && (rest < 0.0f) != (y < 0.0f) ? rest + y : rest;
}

#endif
