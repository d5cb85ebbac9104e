/* Work on rows: softmax, attention's probabilities, layer and RMS normalisation.
 *
 * A row is read twice or three times and stays in the cache meanwhile. Sums are taken in the order
 * that the vector width, or a number of lanes, gives, so they are the same in every run on one
 * machine.
 */
#include "steps.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=fast") /* the exponential is a chain of multiply-adds */
#endif

#include "vector_math.h"

#define COLUMNS 64 /* columns that are worked on together where rows are not contiguous */

enum element { FLOAT32 = 0, BFLOAT16 = 1 };

static inline float load_float(const float *source)
{
    return *source;
}

static inline float load_bfloat(const uint16_t *source)
{
    return float_of_bits((int32_t)((uint32_t)*source << 16));
}

static inline void store_float(float *target, float value)
{
    *target = value;
}

/* Round to the nearest, ties to even; a NaN stays one. */
static inline void store_bfloat(uint16_t *target, float value)
{
    uint32_t bits = (uint32_t)bits_of_float(value);
    uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    *target = (uint16_t)(value != value ? 0x7FC0 : rounded);
}

/* e to the power of a number that is not above 0, to 2 units in the last place; 0 below -87.3,
 * NaN for NaN. Source of the polynomial: Cephes, expf. */
static inline float exponential(float x)
{
    const float shifter = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float bounded = x < -88.0f ? -88.0f : x;
    float shifted = bounded * 1.44269504088896341f + shifter;
    float whole = shifted - shifter;
    float rest = bounded - whole * 0.693359375f + whole * 2.12194440e-4f;
    float sum = 1.9875691500e-4f;
    sum = sum * rest + 1.3981999507e-3f;
    sum = sum * rest + 8.3334519073e-3f;
    sum = sum * rest + 4.1665795894e-2f;
    sum = sum * rest + 1.6666665459e-1f;
    sum = sum * rest + 5.0000001201e-1f;
    sum = sum * rest * rest + rest + 1.0f;
    uint32_t exponent = (uint32_t)bits_of_float(shifted) << 23;
    float power = sum * float_of_bits((int32_t)(exponent + 0x3F800000));
    return x < -87.3f ? 0.0f : power;
}

/* Softmax of a contiguous row, which may be in place. */
#define SOFTMAX_ROW(name, type, load, store)                                                       \
    VECTOR_CLONES static void name(const type *source, type *target, int64_t length, int is_log)   \
    {                                                                                              \
        float largest = -INFINITY, sum = 0.0f;                                                     \
        _Pragma("omp simd reduction(max : largest)")                                               \
        for (int64_t index = 0; index < length; index++) {                                         \
            float value = load(source + index);                                                    \
            largest = value > largest ? value : largest;                                           \
        }                                                                                          \
        if (is_log) {                                                                              \
            _Pragma("omp simd reduction(+ : sum)")                                                 \
            for (int64_t index = 0; index < length; index++)                                       \
                sum += exponential(load(source + index) - largest);                                \
            float shift = largest + logf(sum);                                                     \
            _Pragma("omp simd")                                                                    \
            for (int64_t index = 0; index < length; index++)                                       \
                store(target + index, load(source + index) - shift);                               \
            return;                                                                                \
        }                                                                                          \
        _Pragma("omp simd reduction(+ : sum)")                                                     \
        for (int64_t index = 0; index < length; index++) {                                         \
            float value = exponential(load(source + index) - largest);                             \
            sum += value;                                                                          \
            store(target + index, value);                                                          \
        }                                                                                          \
        float inverse = 1.0f / sum;                                                                \
        _Pragma("omp simd")                                                                        \
        for (int64_t index = 0; index < length; index++)                                           \
            store(target + index, load(target + index) * inverse);                                 \
    }

SOFTMAX_ROW(softmax_row_float, float, load_float, store_float)
SOFTMAX_ROW(softmax_row_bfloat, uint16_t, load_bfloat, store_bfloat)

/* Softmax down up to COLUMNS columns, `pitch` elements from row to row; may be in place. */
#define SOFTMAX_COLUMNS(name, type, load, store)                                                   \
    VECTOR_CLONES static void name(const type *source, type *target, int64_t length,               \
                                   int64_t pitch, int64_t width, int is_log)                       \
    {                                                                                              \
        float largest[COLUMNS], sum[COLUMNS];                                                      \
        _Pragma("omp simd")                                                                        \
        for (int64_t column = 0; column < width; column++) {                                       \
            largest[column] = -INFINITY;                                                           \
            sum[column] = 0.0f;                                                                    \
        }                                                                                          \
        for (int64_t row = 0; row < length; row++)                                                 \
            _Pragma("omp simd")                                                                    \
            for (int64_t column = 0; column < width; column++) {                                   \
                float value = load(source + row * pitch + column);                                 \
                largest[column] = value > largest[column] ? value : largest[column];               \
            }                                                                                      \
        for (int64_t row = 0; row < length; row++)                                                 \
            _Pragma("omp simd")                                                                    \
            for (int64_t column = 0; column < width; column++)                                     \
                sum[column] += exponential(load(source + row * pitch + column) - largest[column]); \
        _Pragma("omp simd")                                                                        \
        for (int64_t column = 0; column < width; column++)                                         \
            sum[column] = is_log ? logf(sum[column]) : 1.0f / sum[column];                         \
        for (int64_t row = 0; row < length; row++)                                                 \
            _Pragma("omp simd")                                                                    \
            for (int64_t column = 0; column < width; column++) {                                   \
                float value = load(source + row * pitch + column) - largest[column];               \
                value = is_log ? value - sum[column] : exponential(value) * sum[column];           \
                store(target + row * pitch + column, value);                                       \
            }                                                                                      \
    }

SOFTMAX_COLUMNS(softmax_columns_float, float, load_float, store_float)
SOFTMAX_COLUMNS(softmax_columns_bfloat, uint16_t, load_bfloat, store_bfloat)

/* data: source, target; may be the same. parameters: element type, outer count, length of the axis,
 * inner count, 1 for the logarithm of the softmax. */
static int softmax(char *const *data, const int64_t *parameters, const char *stop)
{
    int64_t type = parameters[0], outer = parameters[1], length = parameters[2];
    int64_t inner = parameters[3], blocks = (inner + COLUMNS - 1) / COLUMNS;
    int is_log = (int)parameters[4];
    size_t item = type == BFLOAT16 ? sizeof(uint16_t) : sizeof(float);

#pragma omp parallel for schedule(static) if (outer * length * inner >= PARALLEL_ELEMENTS)
    for (int64_t task = 0; task < outer * blocks; task++) {
        if (is_stopped(stop))
            continue;
        int64_t first = task % blocks * COLUMNS;
        int64_t width = inner - first < COLUMNS ? inner - first : COLUMNS;
        size_t place = (size_t)(task / blocks * length * inner + first) * item;
        void *source = data[0] + place, *target = data[1] + place;
        if (type == BFLOAT16 && inner == 1)
            softmax_row_bfloat(source, target, length, is_log);
        else if (type == BFLOAT16)
            softmax_columns_bfloat(source, target, length, inner, width, is_log);
        else if (inner == 1)
            softmax_row_float(source, target, length, is_log);
        else
            softmax_columns_float(source, target, length, inner, width, is_log);
    }
    return STATUS_OK;
}

/* Scale and mask a row of scores, and leave the exponentials there; returns 1 over their sum. */
VECTOR_CLONES static float exponential_row(float *scores, const float *mask, int64_t length,
                                           float scale)
{
    float largest = -INFINITY, sum = 0.0f;
    if (mask != NULL) {
#pragma omp simd reduction(max : largest)
        for (int64_t index = 0; index < length; index++) {
            float value = scores[index] * scale + mask[index];
            scores[index] = value;
            largest = value > largest ? value : largest;
        }
    } else {
#pragma omp simd reduction(max : largest)
        for (int64_t index = 0; index < length; index++) {
            float value = scores[index] * scale;
            scores[index] = value;
            largest = value > largest ? value : largest;
        }
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t index = 0; index < length; index++) {
        float value = exponential(scores[index] - largest);
        scores[index] = value;
        sum += value;
    }
    return 1.0f / sum;
}

VECTOR_CLONES static void scale_float(const float *source, float *target, int64_t length,
                                      float factor)
{
#pragma omp simd
    for (int64_t index = 0; index < length; index++)
        target[index] = source[index] * factor;
}

VECTOR_CLONES static void scale_bfloat(const float *source, uint16_t *target, int64_t length,
                                       float factor)
{
#pragma omp simd
    for (int64_t index = 0; index < length; index++)
        store_bfloat(target + index, source[index] * factor);
}

/* Attention's probabilities: softmax of scores * scale + mask, row by row.
 *
 * data: scores (float32, overwritten), probabilities (may be the scores if they are float32), and
 * the mask (float32, its last axis contiguous) if there is one. parameters: element type of the
 * probabilities, batch, heads, rows, length of a row, the bits of the scale as a double, 1 if there
 * is a mask, its strides for batch, heads and rows in elements, 1 to give zeros where a row would
 * be NaN, as one that is masked whole. */
static int attention_probabilities(char *const *data, const int64_t *parameters,
                                   const char *stop)
{
    int64_t type = parameters[0], heads = parameters[2], rows = parameters[3];
    int64_t count = parameters[1] * heads * rows, length = parameters[4];
    const int64_t *strides = parameters + 7;
    size_t item = type == BFLOAT16 ? sizeof(uint16_t) : sizeof(float);
    double scale;

    memcpy(&scale, parameters + 5, sizeof scale);
#pragma omp parallel for schedule(static) if (count * length >= PARALLEL_ELEMENTS)
    for (int64_t row = 0; row < count; row++) {
        float *scores = (float *)data[0] + row * length;
        const float *mask = NULL;
        if (is_stopped(stop))
            continue;
        if (parameters[6])
            mask = (const float *)data[2] + row / (heads * rows) * strides[0]
                   + row / rows % heads * strides[1] + row % rows * strides[2];
        float factor = exponential_row(scores, mask, length, (float)scale);
        if (factor != factor && parameters[10])
            memset(data[1] + (size_t)(row * length) * item, 0, (size_t)length * item);
        else if (type == BFLOAT16)
            scale_bfloat(scores, (uint16_t *)data[1] + row * length, length, factor);
        else
            scale_float(scores, (float *)data[1] + row * length, length, factor);
    }
    return STATUS_OK;
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi" /* how vectors are passed: these functions are inlined */
#endif

#define LANES 16

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef float half_lanes __attribute__((vector_size(LANES / 2 * sizeof(float))));
typedef float quarter_lanes __attribute__((vector_size(LANES / 4 * sizeof(float))));
typedef uint16_t short_lanes __attribute__((vector_size(LANES * sizeof(uint16_t))));
typedef uint32_t bit_lanes __attribute__((vector_size(LANES * sizeof(uint32_t))));

INLINE lanes lanes_of_float(const float *source)
{
    lanes loaded;
    memcpy(&loaded, source, sizeof loaded);
    return loaded;
}

INLINE lanes lanes_of_bfloat(const uint16_t *source)
{
    short_lanes loaded;
    lanes numbers;
    memcpy(&loaded, source, sizeof loaded);
    bit_lanes bits = __builtin_convertvector(loaded, bit_lanes) << 16;
    memcpy(&numbers, &bits, sizeof numbers);
    return numbers;
}

INLINE float sum_of_lanes(const lanes *all)
{
    half_lanes halves[2];
    quarter_lanes quarters[2];
    memcpy(halves, all, sizeof halves);
    halves[0] += halves[1];
    memcpy(quarters, halves, sizeof quarters);
    quarters[0] += quarters[1];
    return quarters[0][0] + quarters[0][2] + (quarters[0][1] + quarters[0][3]);
}

/* A row is summed up in four vectors side by side: one would wait for itself at each step. */
#define ROW_SUM(result, length, load, load_lanes, of)                                              \
    {                                                                                              \
        lanes a = {0}, b = {0}, c = {0}, d = {0};                                                  \
        int64_t index = 0;                                                                         \
        float rest = 0.0f;                                                                         \
        for (; index + 4 * LANES <= length; index += 4 * LANES) {                                  \
            a += of(load_lanes(source + index));                                                   \
            b += of(load_lanes(source + index + LANES));                                           \
            c += of(load_lanes(source + index + 2 * LANES));                                       \
            d += of(load_lanes(source + index + 3 * LANES));                                       \
        }                                                                                          \
        for (; index + LANES <= length; index += LANES)                                            \
            a += of(load_lanes(source + index));                                                   \
        for (; index < length; index++)                                                            \
            rest += of(load(source + index));                                                      \
        a += b + (c + d);                                                                          \
        result = sum_of_lanes(&a) + rest;                                                          \
    }

#define AS_IT_IS(value) (value)
#define FROM_MEAN_SQUARED(value) (((value)-mean) * ((value)-mean))

#define LAYER_ROW(name, type, load, load_lanes, store)                                             \
    VECTOR_CLONES static void name(const type *source, const float *factors, const float *shifts,  \
                                   type *target, int64_t length, float epsilon, float *statistics) \
    {                                                                                              \
        float sum, square;                                                                         \
        ROW_SUM(sum, length, load, load_lanes, AS_IT_IS)                                           \
        const float mean = sum / (float)length;                                                    \
        ROW_SUM(square, length, load, load_lanes, FROM_MEAN_SQUARED)                               \
        const float inverse = 1.0f / sqrtf(square / (float)length + epsilon);                      \
        statistics[0] = mean;                                                                      \
        statistics[1] = inverse;                                                                   \
        if (shifts == NULL) {                                                                      \
            _Pragma("omp simd")                                                                    \
            for (int64_t index = 0; index < length; index++)                                       \
                store(target + index, (load(source + index) - mean) * inverse * factors[index]);   \
        } else {                                                                                   \
            _Pragma("omp simd")                                                                    \
            for (int64_t index = 0; index < length; index++)                                       \
                store(target + index,                                                              \
                      (load(source + index) - mean) * inverse * factors[index] + shifts[index]);   \
        }                                                                                          \
    }

LAYER_ROW(layer_row_float, float, load_float, lanes_of_float, store_float)
LAYER_ROW(layer_row_bfloat, uint16_t, load_bfloat, lanes_of_bfloat, store_bfloat)

/* data: source, factors (float32, one row), shifts (the same) where there are some, target; then,
 * where they are asked for, the mean and one over the deviation of each row, float32. Source and
 * target may be the same. parameters: element type, rows, length of a row, the bits of epsilon as a
 * double, whether there are shifts, how many statistics there are. */
static int layer_norm(char *const *data, const int64_t *parameters, const char *stop)
{
    int64_t type = parameters[0], rows = parameters[1], length = parameters[2];
    int64_t has_shifts = parameters[4], kept = parameters[5];
    char *const *results = data + 2 + has_shifts;
    const float *factors = (const float *)data[1];
    const float *shifts = has_shifts ? (const float *)data[2] : NULL;
    double epsilon;

    memcpy(&epsilon, parameters + 3, sizeof epsilon);
#pragma omp parallel for schedule(static) if (rows * length >= PARALLEL_ELEMENTS)
    for (int64_t row = 0; row < rows; row++) {
        size_t place = (size_t)(row * length);
        float statistics[2];
        if (is_stopped(stop))
            continue;
        if (type == BFLOAT16)
            layer_row_bfloat((const uint16_t *)data[0] + place, factors, shifts,
                             (uint16_t *)results[0] + place, length, (float)epsilon, statistics);
        else
            layer_row_float((const float *)data[0] + place, factors, shifts,
                            (float *)results[0] + place, length, (float)epsilon, statistics);
        for (int64_t index = 0; index < kept; index++)
            ((float *)results[1 + index])[row] = statistics[index];
    }
    return STATUS_OK;
}

#define RMS_ROW(name, type, load, store)                                                           \
    VECTOR_CLONES static void name(const type *source, const float *factors, type *target,         \
                                   int64_t length, float epsilon)                                  \
    {                                                                                              \
        float sum = 0.0f;                                                                          \
        _Pragma("omp simd reduction(+ : sum)")                                                     \
        for (int64_t index = 0; index < length; index++) {                                         \
            float value = load(source + index);                                                    \
            sum += value * value;                                                                  \
        }                                                                                          \
        float inverse = 1.0f / sqrtf(sum / (float)length + epsilon);                               \
        _Pragma("omp simd")                                                                        \
        for (int64_t index = 0; index < length; index++)                                           \
            store(target + index, load(source + index) * inverse * factors[index]);                \
    }

RMS_ROW(rms_row_float, float, load_float, store_float)
RMS_ROW(rms_row_bfloat, uint16_t, load_bfloat, store_bfloat)

/* data: source, factors (float32, one row), target; source and target may be the same. parameters:
 * element type, rows, length of a row, the bits of epsilon as a double. */
static int rms_norm(char *const *data, const int64_t *parameters, const char *stop)
{
    int64_t type = parameters[0], rows = parameters[1], length = parameters[2];
    const float *factors = (const float *)data[1];
    double epsilon;

    memcpy(&epsilon, parameters + 3, sizeof epsilon);
#pragma omp parallel for schedule(static) if (rows * length >= PARALLEL_ELEMENTS)
    for (int64_t row = 0; row < rows; row++) {
        size_t place = (size_t)(row * length);
        if (is_stopped(stop))
            continue;
        if (type == BFLOAT16)
            rms_row_bfloat((const uint16_t *)data[0] + place, factors, (uint16_t *)data[2] + place,
                           length, (float)epsilon);
        else
            rms_row_float((const float *)data[0] + place, factors, (float *)data[2] + place,
                          length, (float)epsilon);
    }
    return STATUS_OK;
}

const struct named_kernel row_kernels[] = {
    {"attention_probabilities", attention_probabilities},
    {"layer_norm", layer_norm},
    {"rms_norm", rms_norm},
    {"softmax", softmax},
    {NULL, NULL},
};
