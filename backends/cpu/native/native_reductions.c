/* Reductions over any axes of a strided operand.
 *
 * Sums are kept in double precision, so that their order does not show; the order is fixed anyway.
 * Where the innermost axis stays, a block of results is accumulated side by side; where it is
 * reduced, a row at a time.
 */
#include <math.h>

#include "elements.h"
#include "steps.h"
#include "vector_math.h"

#define MAX_REDUCTION_RANK 24
#define BLOCK 512
#define LANES 32

enum reduction { SUM, MEAN, MAX, MIN, PROD, L1, L2, SUM_SQUARE, LOG_SUM, LOG_SUM_EXP };

/* Parameters: reduction, element types of source and result, count of kept axes, count of reduced
 * axes, length of the inner axis, its strides in source and result (0 if it is reduced), then for
 * each kept axis length, stride in the source and in the result, and for each reduced axis length
 * and stride; strides in bytes. The inner axis is in neither list. */
struct reduction_plan {
    int64_t kind, source_element, result_element, kept_count, reduced_count;
    int64_t length, source_stride, result_stride;
    const int64_t *kept, *reduced;
    int64_t kept_total, reduced_total;
    const char *stop; /* the run's stop word, which every reduced row looks at */
};

static int read_plan(struct reduction_plan *plan, const int64_t *parameters, const char *stop)
{
    plan->stop = stop;
    plan->kind = parameters[0];
    plan->source_element = parameters[1];
    plan->result_element = parameters[2];
    plan->kept_count = parameters[3];
    plan->reduced_count = parameters[4];
    plan->length = parameters[5];
    plan->source_stride = parameters[6];
    plan->result_stride = parameters[7];
    plan->kept = parameters + 8;
    plan->reduced = plan->kept + 3 * plan->kept_count;
    plan->kept_total = plan->reduced_total = 1;
    for (int64_t axis = 0; axis < plan->kept_count; axis++)
        plan->kept_total *= plan->kept[3 * axis];
    for (int64_t axis = 0; axis < plan->reduced_count; axis++)
        plan->reduced_total *= plan->reduced[2 * axis];
    return plan->kept_count > MAX_REDUCTION_RANK || plan->reduced_count > MAX_REDUCTION_RANK
               ? STATUS_TABLE
               : STATUS_OK;
}

static int64_t reduced_offset(const struct reduction_plan *plan, int64_t number)
{
    int64_t offset = 0;
    for (int64_t axis = plan->reduced_count - 1; axis >= 0; axis--) {
        offset += number % plan->reduced[2 * axis] * plan->reduced[2 * axis + 1];
        number /= plan->reduced[2 * axis];
    }
    return offset;
}

static double start_of(int64_t kind)
{
    return kind == PROD ? 1.0 : kind == MAX ? -INFINITY : kind == MIN ? INFINITY : 0.0;
}

/* NaN stays, whichever side it is on. */
INLINE double larger(double a, double b)
{
    return a > b || a != a ? a : b;
}

INLINE double smaller(double a, double b)
{
    return a < b || a != a ? a : b;
}

/* Add `count` numbers to as many totals, side by side. `shifts` are what LOG_SUM_EXP subtracts. */
INLINE void accumulate(int64_t kind, double *totals, const float *numbers, const float *shifts,
                       int64_t count)
{
#define EACH(expression)                                                                          \
    for (int64_t index = 0; index < count; index++) {                                             \
        const double total = totals[index];                                                       \
        const float x = numbers[index];                                                           \
        totals[index] = (expression);                                                             \
    }                                                                                             \
    return
    switch (kind) {
    case MAX:
        EACH(larger(total, x));
    case MIN:
        EACH(smaller(total, x));
    case PROD:
        EACH(total * x);
    case L1:
        EACH(total + fabsf(x));
    case L2:
    case SUM_SQUARE:
        EACH(total + (double)x * x);
    case LOG_SUM_EXP:
        EACH(total + fast_exp(x - shifts[index]));
    default:
        EACH(total + x);
    }
#undef EACH
}

VECTOR_CLONES
static void accumulate_columns(int64_t kind, double *totals, const float *numbers,
                               const float *shifts, int64_t count)
{
    accumulate(kind, totals, numbers, shifts, count);
}

INLINE double combined(int64_t kind, double a, double b)
{
    switch (kind) {
    case MAX:
        return larger(a, b);
    case MIN:
        return smaller(a, b);
    case PROD:
        return a * b;
    default:
        return a + b;
    }
}

static float finished(const struct reduction_plan *plan, double total, float shift,
                      int64_t reduced_count)
{
    switch (plan->kind) {
    case MEAN:
        return reduced_count ? (float)(total / (double)reduced_count) : 0.0f;
    case L2:
        return (float)sqrt(total);
    case LOG_SUM:
        return (float)log(total);
    case LOG_SUM_EXP:
        return (float)(log(total) + (double)shift);
    default:
        return (float)total;
    }
}

static const float *loaded(const struct reduction_plan *plan, const char *data, int64_t count,
                           float *buffer)
{
    if (plan->source_element == ELEMENT_F32 && plan->source_stride == (int64_t)sizeof(float))
        return (const float *)(const void *)data;
    return load_floats(buffer, data, plan->source_stride, count, plan->source_element) ? NULL
                                                                                       : buffer;
}

/* What is subtracted before exp: the largest number if it is finite. */
static float shift_of(double largest)
{
    return largest > -INFINITY && largest < INFINITY ? (float)largest : 0.0f;
}

/* Reduce columns: `count` results side by side. */
static int reduce_columns(const struct reduction_plan *plan, int64_t kind, const char *source,
                          int64_t count, double *totals, const float *shifts)
{
    float buffer[BLOCK];
    for (int64_t index = 0; index < count; index++)
        totals[index] = start_of(kind);
    for (int64_t number = 0; number < plan->reduced_total && !is_stopped(plan->stop); number++) {
        const float *numbers =
            loaded(plan, source + reduced_offset(plan, number), count, buffer);
        if (numbers == NULL)
            return STATUS_TABLE;
        accumulate_columns(kind, totals, numbers, shifts, count);
    }
    return STATUS_OK;
}

static int columns(const struct reduction_plan *plan, const char *source, char *result,
                   int64_t count)
{
    double totals[BLOCK];
    float numbers[BLOCK], shifts[BLOCK] = {0};

    if (plan->kind == LOG_SUM_EXP) {
        if (reduce_columns(plan, MAX, source, count, totals, shifts))
            return STATUS_TABLE;
        for (int64_t index = 0; index < count; index++)
            shifts[index] = shift_of(totals[index]);
    }
    if (reduce_columns(plan, plan->kind, source, count, totals, shifts))
        return STATUS_TABLE;
    for (int64_t index = 0; index < count; index++)
        numbers[index] = finished(plan, totals[index], shifts[index], plan->reduced_total);
    return store_floats(result, plan->result_stride, numbers, count, plan->result_element)
               ? STATUS_TABLE
               : STATUS_OK;
}

/* Reduce rows of the inner axis to one number, in lanes that are combined at the end. */
INLINE int reduce_lanes(const struct reduction_plan *plan, int64_t kind, const char *source,
                        double *total, float shift)
{
    double lanes[LANES];
    float buffer[BLOCK], shifts[LANES];

    for (int lane = 0; lane < LANES; lane++) {
        lanes[lane] = start_of(kind);
        shifts[lane] = shift;
    }
    for (int64_t number = 0; number < plan->reduced_total && !is_stopped(plan->stop); number++) {
        const char *row = source + reduced_offset(plan, number);
        for (int64_t start = 0; start < plan->length; start += BLOCK) {
            int64_t count = plan->length - start < BLOCK ? plan->length - start : BLOCK;
            const float *numbers = loaded(plan, row + start * plan->source_stride, count, buffer);
            if (numbers == NULL)
                return STATUS_TABLE;
            for (; count >= LANES; count -= LANES, numbers += LANES)
                accumulate(kind, lanes, numbers, shifts, LANES);
            accumulate(kind, lanes, numbers, shifts, count);
        }
    }
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int lane = 0; lane < width; lane++)
            lanes[lane] = combined(kind, lanes[lane], lanes[lane + width]);
    *total = lanes[0];
    return STATUS_OK;
}

/* The kind is known where the loops are compiled. */
VECTOR_CLONES
static int reduce_rows(const struct reduction_plan *plan, int64_t kind, const char *source,
                       double *total, float shift)
{
    switch (kind) {
    case MAX:
        return reduce_lanes(plan, MAX, source, total, shift);
    case MIN:
        return reduce_lanes(plan, MIN, source, total, shift);
    case PROD:
        return reduce_lanes(plan, PROD, source, total, shift);
    case L1:
        return reduce_lanes(plan, L1, source, total, shift);
    case L2:
    case SUM_SQUARE:
        return reduce_lanes(plan, SUM_SQUARE, source, total, shift);
    case LOG_SUM_EXP:
        return reduce_lanes(plan, LOG_SUM_EXP, source, total, shift);
    default:
        return reduce_lanes(plan, SUM, source, total, shift);
    }
}

static int row(const struct reduction_plan *plan, const char *source, char *result)
{
    double total;
    float shift = 0.0f, made;

    if (plan->kind == LOG_SUM_EXP) {
        if (reduce_rows(plan, MAX, source, &total, shift))
            return STATUS_TABLE;
        shift = shift_of(total);
    }
    if (reduce_rows(plan, plan->kind, source, &total, shift))
        return STATUS_TABLE;
    made = finished(plan, total, shift, plan->reduced_total * plan->length);
    return store_floats(result, 0, &made, 1, plan->result_element) ? STATUS_TABLE : STATUS_OK;
}

/* data: source, result. parameters: struct reduction_plan. */
static int reduce(char *const *data, const int64_t *parameters, const char *stop)
{
    struct reduction_plan plan;
    int status = read_plan(&plan, parameters, stop), keeps_inner = parameters[7] != 0;
    int64_t blocks = keeps_inner ? (plan.length + BLOCK - 1) / BLOCK : 1;
    int64_t tasks = plan.kept_total * blocks;
    int64_t work = plan.kept_total * plan.reduced_total * plan.length;

    if (status != STATUS_OK)
        return status;
#pragma omp parallel for schedule(static) reduction(max : status) if (work >= PARALLEL_ELEMENTS)
    for (int64_t task = 0; task < tasks; task++) {
        int64_t rest = task / blocks, start = task % blocks * BLOCK;
        const char *from = data[0] + start * plan.source_stride;
        char *to = data[1] + start * plan.result_stride;
        int found;
        if (is_stopped(stop))
            continue;
        for (int64_t axis = plan.kept_count - 1; axis >= 0; axis--) {
            const int64_t *words = plan.kept + 3 * axis;
            from += rest % words[0] * words[1];
            to += rest % words[0] * words[2];
            rest /= words[0];
        }
        if (keeps_inner)
            found = columns(&plan, from, to,
                            plan.length - start < BLOCK ? plan.length - start : BLOCK);
        else
            found = row(&plan, from, to);
        status = found > status ? found : status;
    }
    return status;
}

const struct named_kernel reduction_kernels[] = {
    {"reduce", reduce},
    {NULL, NULL},
};
