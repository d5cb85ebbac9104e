/* What is stored in 8 bits.
 *
 * A quantisation whose scale the data give is one look for the range, and one to store. The numbers
 * are those of ONNX's DynamicQuantizeLinear in float32: the range holds 0, data without a range have
 * the scale 1, and what is no number is stored as 0.
 */
#include <math.h>

#include "avx2.h"
#include "steps.h"

#define BLOCK 8192 /* elements between two looks at the stop word */

VECTOR_CLONES static void find_range(const float *numbers, int64_t count, float *lowest,
                                     float *highest, int *has_nan)
{
    float low = *lowest, high = *highest;
    int found = 0;
#pragma omp simd reduction(min : low) reduction(max : high) reduction(| : found)
    for (int64_t index = 0; index < count; index++) {
        float x = numbers[index];
        low = x < low ? x : low;
        high = x > high ? x : high;
        found |= x != x;
    }
    *lowest = low;
    *highest = high;
    *has_nan |= found;
}

static inline float bounded(float x)
{
    float positive = x > 0.0f ? x : 0.0f; /* a NaN is 0 */
    return positive < 255.0f ? positive : 255.0f;
}

VECTOR_CLONES static void store(const float *numbers, uint8_t *target, int64_t count, float scale,
                                float zero)
{
#pragma omp simd
    for (int64_t index = 0; index < count; index++)
        target[index] = (uint8_t)(int32_t)bounded(rintf(numbers[index] / scale) + zero);
}

/* data: numbers (float32), what is stored (uint8), scale (float32), zero point (uint8); each in
 * memory of its own. parameters: how many numbers. */
static int dynamic_quantize(char *const *data, const int64_t *parameters, const char *stop)
{
    const float *numbers = (const float *)data[0];
    uint8_t *target = (uint8_t *)data[1];
    int64_t count = parameters[0], blocks = (count + BLOCK - 1) / BLOCK;
    float low = 0.0f, high = 0.0f;
    int has_nan = 0;

#pragma omp parallel for schedule(static) reduction(min : low) reduction(max : high) \
    reduction(| : has_nan) if (count >= PARALLEL_ELEMENTS)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t first = block * BLOCK, length = count - first < BLOCK ? count - first : BLOCK;
        if (!is_stopped(stop))
            find_range(numbers + first, length, &low, &high, &has_nan);
    }
    float range = has_nan ? NAN : high - low;
    float scale = range == 0.0f ? 1.0f : range / 255.0f;
    float zero = has_nan ? 0.0f : bounded(rintf(-low / scale));
    *(float *)data[2] = scale;
    *(uint8_t *)data[3] = (uint8_t)(int32_t)zero;

#pragma omp parallel for schedule(static) if (count >= PARALLEL_ELEMENTS)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t first = block * BLOCK, length = count - first < BLOCK ? count - first : BLOCK;
        if (!is_stopped(stop))
            store(numbers + first, target + first, length, scale, zero);
    }
    return STATUS_OK;
}

static void look_up_plain(const uint8_t *bytes, const uint8_t *table, uint8_t *target, int64_t count)
{
    for (int64_t index = 0; index < count; index++)
        target[index] = table[bytes[index]];
}

#if COMPILES_AVX2
BEGIN_VBMI
/* A quarter of the table is a vector: two instructions look into halves, and the sign chooses. */
static void look_up_vbmi(const uint8_t *bytes, const uint8_t *table, uint8_t *target, int64_t count)
{
    const __m512i quarters[4] = {_mm512_loadu_si512(table), _mm512_loadu_si512(table + 64),
                                 _mm512_loadu_si512(table + 128), _mm512_loadu_si512(table + 192)};

    for (int64_t index = 0; index < count; index += 64) {
        const int64_t rest = count - index;
        const __mmask64 mask = rest < 64 ? ((__mmask64)1 << rest) - 1 : ~(__mmask64)0;
        const __m512i places = _mm512_maskz_loadu_epi8(mask, bytes + index);
        const __m512i low = _mm512_permutex2var_epi8(quarters[0], places, quarters[1]);
        const __m512i high = _mm512_permutex2var_epi8(quarters[2], places, quarters[3]);
        const __m512i found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(places), low, high);
        if (rest < 64)
            _mm512_mask_storeu_epi8(target + index, mask, found);
        else
            _mm512_storeu_si512(target + index, found);
    }
}
END_VBMI
#else
#define look_up_vbmi look_up_plain
#endif

/* data: bytes, a table of 256, what it holds for each of them. parameters: how many bytes. */
static int look_up(char *const *data, const int64_t *parameters, const char *stop)
{
    const uint8_t *bytes = (const uint8_t *)data[0], *table = (const uint8_t *)data[1];
    uint8_t *target = (uint8_t *)data[2];
    const int64_t count = parameters[0], blocks = (count + BLOCK - 1) / BLOCK;
    const int has_vbmi = HAS_VBMI;

#pragma omp parallel for schedule(static) if (count >= PARALLEL_ELEMENTS)
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t first = block * BLOCK, rest = count - first;
        if (is_stopped(stop))
            continue;
        (has_vbmi ? look_up_vbmi : look_up_plain)(bytes + first, table, target + first,
                                                  rest < BLOCK ? rest : BLOCK);
    }
    return STATUS_OK;
}

const struct named_kernel quantization_kernels[] = {
    {"dynamic_quantize", dynamic_quantize},
    {"look_up", look_up},
    {NULL, NULL},
};
