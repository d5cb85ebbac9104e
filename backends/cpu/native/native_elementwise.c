/* Fused elementwise operators over strided operands: everything that broadcasts.
 *
 * The result's axes are walked in blocks of the last two, small enough to stay in the first cache.
 * Operands of a block are loaded as floats (or as 64-bit integers), all steps run on these dense
 * numbers, and the result is stored in its own type: a group reads and writes memory once, and no
 * step knows of layouts or types. Steps that dequantise, round or quantise by one scale are known
 * by their order, and are one walk each.
 */
#include <string.h>

#include "fused_steps.h"
#include "elements.h"
#include "steps.h"
#include "stored_steps.h"
#include "vector_math.h"

#define MAX_GROUP_OPERANDS 32
#define MAX_GROUP_RANK 24
#define WHERE_BLOCK 8192 /* elements between two looks at the stop word */
#define ROUNDING_STEPS 4
#define MAX_ROUNDINGS 6 /* others are done step by step */
#define BLOCK 512 /* numbers: three blocks of 64-bit integers fit into half of a 32 KB cache */

/* A group's parameters: operand count, rank (2 or more), step count; the result's lengths; for each
 * operand its element type and its strides in bytes; for each step its number, the index of its
 * operand (0 if unary) and two numbers: bits of doubles, or integers. Operand 0 is what the group
 * begins with, the last one is the result. A stride of 0 repeats. */
struct group {
    int is_float; /* else 64-bit integers */
    int64_t loading_steps, storing_steps; /* that are done with the first operand and the result */
    struct dequantization dequantization;
    struct quantization quantization;
    int64_t rounding_count, rounding_steps[MAX_ROUNDINGS]; /* the first step of each */
    struct rounding roundings[MAX_ROUNDINGS];
    int64_t operand_count, rank, step_count;
    char *const *data;
    const int64_t *lengths, *operands, *steps;
    int64_t rows, columns; /* of the last two axes */
    int64_t block_rows, block_columns, row_blocks, column_blocks, block_count;
};

struct block {
    char *data[MAX_GROUP_OPERANDS];
    int64_t rows, columns;
};

static int read_group(struct group *group, int is_float, const int64_t *parameters)
{
    int64_t outer = 1;
    group->is_float = is_float;
    group->loading_steps = group->storing_steps = group->rounding_count = 0;
    group->operand_count = parameters[0];
    group->rank = parameters[1];
    group->step_count = parameters[2];
    if (group->operand_count < 2 || group->operand_count > MAX_GROUP_OPERANDS || group->rank < 2
        || group->rank > MAX_GROUP_RANK)
        return STATUS_TABLE;
    group->lengths = parameters + 3;
    group->operands = group->lengths + group->rank;
    group->steps = group->operands + group->operand_count * (1 + group->rank);
    for (int64_t axis = 0; axis < group->rank - 2; axis++)
        outer *= group->lengths[axis];
    group->rows = group->lengths[group->rank - 2];
    group->columns = group->lengths[group->rank - 1];
    group->block_count = 0;
    if (outer < 1 || group->rows < 1 || group->columns < 1)
        return STATUS_OK;
    group->block_columns = group->columns < BLOCK ? group->columns : BLOCK;
    group->block_rows = BLOCK / group->block_columns;
    if (group->block_rows > group->rows)
        group->block_rows = group->rows;
    group->row_blocks = (group->rows + group->block_rows - 1) / group->block_rows;
    group->column_blocks = (group->columns + group->block_columns - 1) / group->block_columns;
    group->block_count = outer * group->row_blocks * group->column_blocks;
    return STATUS_OK;
}

static inline const int64_t *operand_of(const struct group *group, int64_t index)
{
    return group->operands + index * (1 + group->rank);
}

static inline const int64_t *step_of(const struct group *group, int64_t index)
{
    return group->steps + 4 * index;
}

static inline int is_byte(int64_t element)
{
    return element == ELEMENT_U8 || element == ELEMENT_I8;
}

/* True if a step has this number and an operand that is one number, which is read. */
static int is_by_number(const struct group *group, int64_t index, int64_t number,
                        float *operand)
{
    const int64_t *words = step_of(group, index), *place;
    if (index < 0 || index >= group->step_count || words[0] != number || words[1] < 1
        || words[1] >= group->operand_count - 1)
        return 0;
    place = operand_of(group, words[1]);
    for (int64_t axis = 0; axis < group->rank; axis++)
        if (place[1 + axis] != 0 && group->lengths[axis] != 1)
            return 0;
    return load_floats(operand, group->data[words[1]], 0, 1, place[0]) == 0;
}

static inline int is_step(const struct group *group, int64_t index, int64_t number)
{
    return index >= 0 && index < group->step_count && step_of(group, index)[0] == number;
}

/* Find the steps that the first operand is loaded with: minus a number, times a number. */
static void find_loading_steps(struct group *group)
{
    const int64_t *operand = operand_of(group, 0);
    struct dequantization *found = &group->dequantization;
    int64_t index;

    found->zero = 0.0f;
    if (!is_byte(operand[0]) || operand[group->rank] != 1)
        return;
    index = is_by_number(group, 0, FLOAT_STEP_SUB, &found->zero);
    if (is_by_number(group, index, FLOAT_STEP_MUL, &found->scale))
        group->loading_steps = index + 1;
}

/* Find those that the result is stored with: by a number, rounded, plus a number, bounded; and
 * whether NaN is made the lower bound before, as its cast leaves 0 of it. */
static void find_storing_steps(struct group *group)
{
    const int64_t *operand = operand_of(group, group->operand_count - 1), *words;
    struct quantization *found = &group->quantization;
    int64_t index = group->step_count - 1;

    found->zero = 0.0f;
    if (!is_byte(operand[0]) || operand[group->rank] != 1 || !is_step(group, index, FLOAT_STEP_CLIP))
        return;
    words = step_of(group, index);
    found->low = float_of_double_bits(words[2]);
    found->high = float_of_double_bits(words[3]);
    found->nan_is_low = is_step(group, index - 1, FLOAT_STEP_THRESHOLDED)
                        && words[2 - 4] == words[2] && words[3 - 4] == words[2];
    index -= found->nan_is_low;
    if (is_by_number(group, index - 1, FLOAT_STEP_ADD, &found->zero))
        index--;
    if (index - 2 >= group->loading_steps && is_step(group, index - 1, FLOAT_STEP_ROUND)
        && is_by_number(group, index - 2, FLOAT_STEP_DIV, &found->scale))
        group->storing_steps = group->step_count - (index - 2);
}

/* True if these four steps round numbers to what 8 bits hold. */
static int rounds(const struct group *group, int64_t index, struct rounding *found)
{
    const int64_t *words = step_of(group, index);

    if (index + ROUNDING_STEPS > group->step_count - group->storing_steps
        || !is_step(group, index + 1, FLOAT_STEP_CLIP)
        || !is_step(group, index + 2, FLOAT_STEP_ROUND)
        || !is_step(group, index + 3, FLOAT_STEP_LINEAR))
        return 0;
    found->divisor = 0.0f;
    if (words[0] == FLOAT_STEP_LINEAR && float_of_double_bits(words[3]) == 0.0f)
        found->factor = float_of_double_bits(words[2]);
    else if (!is_by_number(group, index, FLOAT_STEP_DIV, &found->divisor)
             || found->divisor == 0.0f)
        return 0;
    found->low = float_of_double_bits(words[4 + 2]);
    found->high = float_of_double_bits(words[4 + 3]);
    found->scale = float_of_double_bits(words[12 + 2]);
    found->shift = float_of_double_bits(words[12 + 3]);
    return 1;
}

static void find_roundings(struct group *group)
{
    int64_t index = group->loading_steps;

    while (index < group->step_count && group->rounding_count < MAX_ROUNDINGS)
        if (rounds(group, index, &group->roundings[group->rounding_count])) {
            group->rounding_steps[group->rounding_count++] = index;
            index += ROUNDING_STEPS;
        } else {
            index++;
        }
}

static void find_stored_steps(struct group *group)
{
    find_loading_steps(group);
    find_storing_steps(group);
    find_roundings(group);
}

static void find_block(struct block *block, const struct group *group, char *const *data,
                       int64_t number)
{
    int64_t place[MAX_GROUP_RANK];
    int64_t last = group->rank - 1;

    place[last] = number % group->column_blocks * group->block_columns;
    number /= group->column_blocks;
    place[last - 1] = number % group->row_blocks * group->block_rows;
    number /= group->row_blocks;
    for (int64_t axis = last - 2; axis >= 0; axis--) {
        place[axis] = number % group->lengths[axis];
        number /= group->lengths[axis];
    }
    block->rows = group->rows - place[last - 1];
    if (block->rows > group->block_rows)
        block->rows = group->block_rows;
    block->columns = group->columns - place[last];
    if (block->columns > group->block_columns)
        block->columns = group->block_columns;
    for (int64_t index = 0; index < group->operand_count; index++) {
        const int64_t *strides = operand_of(group, index) + 1;
        int64_t offset = 0;
        for (int64_t axis = 0; axis <= last; axis++)
            offset += place[axis] * strides[axis];
        block->data[index] = data[index] + offset;
    }
}

/* True if a block of an operand lies as the numbers themselves do. */
static int is_dense(const struct group *group, const struct block *block, int64_t index)
{
    const int64_t *operand = operand_of(group, index), *strides = operand + group->rank - 1;
    int64_t item = group->is_float ? sizeof(float) : sizeof(int64_t);
    return operand[0] == (group->is_float ? ELEMENT_F32 : ELEMENT_I64)
           && (block->columns == 1 || strides[1] == item)
           && (block->rows == 1 || strides[0] == block->columns * item);
}

/* Count rows, and their columns: one where they follow each other in memory. */
static int64_t joined_rows(const struct block *block, const int64_t *strides, int64_t *columns)
{
    int is_one = block->rows == 1 || strides[0] == block->columns * strides[1];
    *columns = is_one ? block->columns * block->rows : block->columns;
    return is_one ? 1 : block->rows;
}

static int load(const struct group *group, const struct block *block, int64_t index,
                char *numbers)
{
    const int64_t *operand = operand_of(group, index), *strides = operand + group->rank - 1;
    int64_t row_bytes = block->columns * (group->is_float ? sizeof(float) : sizeof(int64_t));
    int64_t columns, rows = joined_rows(block, strides, &columns);

    for (int64_t row = 0; row < rows; row++) {
        char *to = numbers + row * row_bytes;
        const char *from = block->data[index] + row * strides[0];
        int failure = 0;
        if (row > 0 && strides[0] == 0)
            memcpy(to, numbers, (size_t)row_bytes);
        else if (index == 0 && group->loading_steps > 0)
            dequantize_row((float *)(void *)to, from, columns, operand[0], group->dequantization);
        else if (group->is_float)
            failure = load_floats((float *)(void *)to, from, strides[1], columns, operand[0]);
        else
            failure = load_integers((int64_t *)(void *)to, from, strides[1], columns, operand[0]);
        if (failure)
            return STATUS_TABLE;
    }
    return STATUS_OK;
}

static int store(const struct group *group, const struct block *block, const char *numbers)
{
    int64_t result = group->operand_count - 1;
    const int64_t *operand = operand_of(group, result), *strides = operand + group->rank - 1;
    int64_t row_bytes = block->columns * (group->is_float ? sizeof(float) : sizeof(int64_t));
    int64_t columns, rows = joined_rows(block, strides, &columns);

    for (int64_t row = 0; row < rows; row++) {
        const void *from = numbers + row * row_bytes;
        char *to = block->data[result] + row * strides[0];
        int failure = 0;
        if (group->storing_steps > 0)
            quantize_row(to, from, columns, operand[0], group->quantization);
        else if (group->is_float)
            failure = store_floats(to, strides[1], from, columns, operand[0]);
        else
            failure = store_integers(to, strides[1], from, columns, operand[0]);
        if (failure)
            return STATUS_TABLE;
    }
    return STATUS_OK;
}

static int takes_operand(const struct group *group, int64_t step)
{
    return step >= (group->is_float ? FIRST_BINARY_FLOAT_STEP : FIRST_BINARY_INTEGER_STEP);
}

static int run_step(const struct group *group, const int64_t *words, char *own, const char *from,
                    const char *other, int64_t count)
{
    int failure =
        group->is_float
            ? float_step(words[0], (float *)(void *)own, (const float *)(const void *)from,
                         (const float *)(const void *)other, count,
                         float_of_double_bits(words[2]), float_of_double_bits(words[3]))
            : integer_step(words[0], (int64_t *)(void *)own, (const int64_t *)(const void *)from,
                           (const int64_t *)(const void *)other, count, words[2]);
    return failure ? STATUS_TABLE : STATUS_OK;
}

/* Operands that lie as numbers are read where they are, and the last step writes into a result that
 * does; all others go through a block of numbers. */
static int run_block(const struct group *group, const struct block *block)
{
    _Alignas(64) char numbers[BLOCK * sizeof(int64_t)];
    _Alignas(64) char others[BLOCK * sizeof(int64_t)];
    int64_t result = group->operand_count - 1, count = block->rows * block->columns;
    int64_t index = group->loading_steps, last = group->step_count - group->storing_steps;
    int is_direct = group->step_count > 0 && is_dense(group, block, result);
    const char *from = block->data[0];
    int64_t rounded = 0;
    int status = STATUS_OK;

    if (index > 0 || !is_dense(group, block, 0)) {
        char *own = is_direct && index == last ? block->data[result] : numbers;
        status = load(group, block, 0, own);
        from = own;
    }
    while (index < last && status == STATUS_OK) {
        const int64_t *words = step_of(group, index);
        int is_rounding =
            rounded < group->rounding_count && group->rounding_steps[rounded] == index;
        index += is_rounding ? ROUNDING_STEPS : 1;
        char *own = is_direct && index == last ? block->data[result] : numbers;
        const char *other = others;
        if (is_rounding) {
            round_numbers((float *)(void *)own, (const float *)(const void *)from, count,
                          group->roundings[rounded++]);
            from = own;
            continue;
        }
        if (words[1] < 0 || words[1] >= result || (words[1] == 0 && takes_operand(group, words[0])))
            return STATUS_TABLE;
        if (words[1] > 0) {
            if (is_dense(group, block, words[1]))
                other = block->data[words[1]];
            else
                status = load(group, block, words[1], others);
        }
        if (status == STATUS_OK)
            status = run_step(group, words, own, from, other, count);
        from = own;
    }
    return status == STATUS_OK && !is_direct ? store(group, block, from) : status;
}

static int run_group(int is_float, char *const *data, const int64_t *parameters,
                     const char *stop)
{
    struct group group;
    int status = read_group(&group, is_float, parameters);
    int64_t work;

    if (status != STATUS_OK)
        return status;
    if (group.block_count == 0)
        return STATUS_OK;
    group.data = data;
    if (is_float)
        find_stored_steps(&group);
    work = group.block_count * group.block_rows * group.block_columns;
#pragma omp parallel for schedule(static) reduction(max : status) if (work >= PARALLEL_ELEMENTS)
    for (int64_t number = 0; number < group.block_count; number++) {
        struct block block;
        int found;
        if (is_stopped(stop))
            continue;
        find_block(&block, &group, data, number);
        found = run_block(&group, &block);
        status = found > status ? found : status;
    }
    return status;
}

/* data: operands, result. parameters: struct group. Numbers are float32: for all types but 64-bit
 * integers exactly what the operands hold. */
static int float_elementwise(char *const *data, const int64_t *parameters, const char *stop)
{
    return run_group(1, data, parameters, stop);
}

/* The same for integers and truth values; a result may be of any type. */
static int integer_elementwise(char *const *data, const int64_t *parameters, const char *stop)
{
    return run_group(0, data, parameters, stop);
}

/* Strides in elements; where they are constants the compiler makes vectors of the loop. */
#define DEFINE_CHOOSE(type)                                                                       \
    INLINE void choose_strided_##type(char *to, const char *condition, const char *yes,           \
                                      const char *no, const int64_t *strides, int64_t count)      \
    {                                                                                             \
        for (int64_t index = 0; index < count; index++) {                                         \
            const char *chosen = condition[index * strides[0]] ? yes + index * strides[1]         \
                                                               : no + index * strides[2];         \
            memcpy(to + index * strides[3], chosen, sizeof(type));                                \
        }                                                                                         \
    }                                                                                             \
                                                                                                  \
    INLINE void choose_dense_##type(type *to, const char *condition, const type *yes,             \
                                    const type *no, int64_t yes_step, int64_t no_step,            \
                                    int64_t count)                                                \
    {                                                                                             \
        INDEPENDENT                                                                               \
        for (int64_t index = 0; index < count; index++) {                                         \
            type a = yes[index * yes_step], b = no[index * no_step];                              \
            to[index] = condition[index] ? a : b;                                                 \
        }                                                                                         \
    }                                                                                             \
                                                                                                  \
    VECTOR_CLONES                                                                                 \
    static void choose_##type(char *to, const char *condition, const char *yes, const char *no,   \
                              const int64_t *strides, int64_t count)                              \
    {                                                                                             \
        const int64_t item = sizeof(type);                                                        \
        const type *a = (const type *)(const void *)yes, *b = (const type *)(const void *)no;     \
        type *made = (type *)(void *)to;                                                          \
        int is_dense_row = strides[0] == 1 && strides[3] == item;                                 \
        if (is_dense_row && strides[1] == item && strides[2] == item)                             \
            choose_dense_##type(made, condition, a, b, 1, 1, count);                              \
        else if (is_dense_row && strides[1] == item && strides[2] == 0)                           \
            choose_dense_##type(made, condition, a, b, 1, 0, count);                              \
        else if (is_dense_row && strides[1] == 0 && strides[2] == item)                           \
            choose_dense_##type(made, condition, a, b, 0, 1, count);                              \
        else                                                                                      \
            choose_strided_##type(to, condition, yes, no, strides, count);                        \
    }

DEFINE_CHOOSE(uint8_t)
DEFINE_CHOOSE(uint16_t)
DEFINE_CHOOSE(uint32_t)
DEFINE_CHOOSE(uint64_t)

typedef void (*choose_function)(char *, const char *, const char *, const char *, const int64_t *,
                                int64_t);

static choose_function choose_of(int64_t item)
{
    switch (item) {
    case 1:
        return choose_uint8_t;
    case 2:
        return choose_uint16_t;
    case 4:
        return choose_uint32_t;
    case 8:
        return choose_uint64_t;
    }
    return NULL;
}

/* data: condition (bytes), then what is taken where it is true, where it is false, and the result.
 * parameters: item bytes, rank (1 or more), the result's lengths, then for each axis four strides
 * in bytes. */
static int where(char *const *data, const int64_t *parameters, const char *stop)
{
    int64_t item = parameters[0], rank = parameters[1], rows = 1;
    const int64_t *lengths = parameters + 2, *strides = lengths + rank;
    choose_function choose = choose_of(item);

    if (choose == NULL || rank < 1 || rank > MAX_GROUP_RANK)
        return STATUS_TABLE;
    for (int64_t axis = 0; axis < rank - 1; axis++)
        rows *= lengths[axis];
    const int64_t length = lengths[rank - 1], *last = strides + 4 * (rank - 1);
#pragma omp parallel for schedule(static) if (rows * length >= PARALLEL_ELEMENTS)
    for (int64_t row = 0; row < rows; row++) {
        char *place[4] = {data[0], data[1], data[2], data[3]};
        int64_t rest = row;
        for (int64_t axis = rank - 2; axis >= 0; axis--) {
            for (int operand = 0; operand < 4; operand++)
                place[operand] += rest % lengths[axis] * strides[4 * axis + operand];
            rest /= lengths[axis];
        }
        for (int64_t start = 0; start < length && !is_stopped(stop); start += WHERE_BLOCK) {
            int64_t count = length - start < WHERE_BLOCK ? length - start : WHERE_BLOCK;
            choose(place[3] + start * last[3], place[0] + start * last[0],
                   place[1] + start * last[1], place[2] + start * last[2], last, count);
        }
    }
    return STATUS_OK;
}

const struct named_kernel elementwise_kernels[] = {
    {"float_elementwise", float_elementwise},
    {"integer_elementwise", integer_elementwise},
    {"where", where},
    {NULL, NULL},
};
