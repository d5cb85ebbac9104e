/* Convolutions and matmuls of numbers of 8 bits, exact on processors that sum up products in 16.
 *
 * A convolution is a matmul whose rows are the windows of the places of the result. Tiles of some
 * rows and PANEL columns are summed up in registers, and go from there through scales, shifts and
 * steps into the result.
 *
 * Weights are chunks of four numbers for each column of a panel. Narrow chunks stay in 8 bits. Two
 * products of them are summed up in 16 bits (vpmaddubsw), which is exact for data of 0 to 255 where
 * the sizes of both weights come to 128 at most. Chunks in which they come to more are there twice,
 * with half of each weight, or are two wide ones, of two numbers in 16 bits (vpmaddwd): rows of data
 * then hold their numbers in both sizes. So weights have a list of which chunk of a row of data each
 * of theirs is multiplied with. Data of -128 to 127 are moved by 128, which sums start without.
 *
 * Sums wrap around in between; those that are left fit 32 bits.
 */
#include <math.h>
#include <string.h>

#include "elements.h"
#include "fused_steps.h"
#include "int8_product.h"
#include "steps.h"
#include "vector_math.h"

INLINE int64_t between(int64_t number, int64_t low, int64_t high)
{
    return number < low ? low : number > high ? high : number;
}

INLINE int64_t item_of(int64_t type)
{
    return type == ELEMENT_F32 ? (int64_t)sizeof(float) : 1;
}

/* Copy numbers of 8 bits as those of 0 to 255. */
static char *copied_plain(const struct product *p, char *to, const char *from, int64_t count)
{
    for (int64_t index = 0; index < count; index++)
        to[index] = (char)(from[index] ^ p->flip);
    return to + count;
}

/* Write the bytes of a row behind them, in 16 bits each. */
static void widen_row_plain(char *row, int64_t count)
{
    for (int64_t index = 0; index < count; index++)
        ((int16_t *)(void *)(row + count))[index] = *(const uint8_t *)(row + index);
}

static void multiply_plain(const struct tile *tile, int32_t *sums)
{
    for (int64_t row = 0; row < tile->rows; row++) {
        const char *data = tile->data + row * tile->step;
        uint32_t made[PANEL];
        for (int64_t column = 0; column < PANEL; column++)
            made[column] = (uint32_t)tile->starts[column];
        for (int64_t chunk = 0; chunk < tile->narrow + tile->wide; chunk++) {
            const char *from = data + (tile->places ? tile->places[chunk] : chunk) * CHUNK;
            const char *weights = tile->weights + chunk * CHUNK_WEIGHTS;
            const int64_t is_wide = chunk >= tile->narrow, numbers = is_wide ? 2 : 4;
            for (int64_t index = 0; index < PANEL * numbers; index++) {
                const int64_t place = index % numbers;
                const int32_t product =
                    is_wide ? ((const int16_t *)(const void *)from)[place]
                                  * ((const int16_t *)(const void *)weights)[index]
                            : ((const uint8_t *)from)[place] * ((const int8_t *)weights)[index];
                made[index / numbers] += (uint32_t)product;
            }
        }
        memcpy(sums + row * PANEL, made, sizeof made);
    }
}

INLINE int32_t tap_number(const struct product *p, const char *from)
{
    return p->source_type == ELEMENT_U8 ? *(const uint8_t *)from : *(const int8_t *)from;
}

/* What four places become that are one axis of a square. */
INLINE void spread(int32_t *made, int32_t first, int32_t second, int32_t third, int32_t fourth)
{
    made[0] = first - third;
    made[1] = second + third;
    made[2] = third - second;
    made[3] = second - fourth;
}

/* How two taps of a panel lie in weights: as words of 16 bits that instructions interleave. */
INLINE int64_t word_of(int64_t column)
{
    return column / 4 % 2 * PANEL + (column / 8 * 4 + column % 4) * 2;
}

static void add_taps_plain(const struct product *p, const char **taps, int64_t column,
                           int64_t count, const char *weights, int32_t *sums)
{
    const int16_t *pairs = (const int16_t *)(const void *)weights;

    memset(sums, 0, PANEL * sizeof *sums);
    for (int64_t chunk = 0; chunk < p->row_chunks; chunk++)
        for (int64_t index = 0; index < count; index++)
            for (int64_t other = 0; other < 2; other++)
                sums[index] += tap_number(p, taps[2 * chunk + other] + column + index)
                               * pairs[chunk * 2 * PANEL + word_of(index) + other];
}

static void spread_square_plain(const struct product *p, const char *const *from, int64_t channel,
                                char *to, int64_t step)
{
    for (int64_t index = channel; index < channel + PANEL; index++) {
        int32_t across[SQUARE][SQUARE];
        for (int64_t row = 0; row < SQUARE; row++) {
            int32_t data[SQUARE];
            for (int64_t place = 0; place < SQUARE; place++)
                data[place] = tap_number(p, from[row * SQUARE + place] + index);
            spread(across[row], data[0], data[1], data[2], data[3]);
        }
        for (int64_t place = 0; place < SQUARE; place++) {
            int32_t made[SQUARE];
            spread(made, across[0][place], across[1][place], across[2][place], across[3][place]);
            for (int64_t row = 0; row < SQUARE; row++)
                ((int16_t *)(void *)(to + (row * SQUARE + place) * step))[index] =
                    (int16_t)made[row];
        }
    }
}

static void gather_square_plain(const int32_t *sums, int64_t step, int32_t *upper, int32_t *lower)
{
    for (int64_t column = 0; column < PANEL; column++, sums++) {
        uint32_t down[2][SQUARE];
        for (int64_t index = 0; index < SQUARE; index++) {
            uint32_t row[SQUARE];
            for (int64_t place = 0; place < SQUARE; place++)
                row[place] = (uint32_t)sums[(place * SQUARE + index) * step];
            down[0][index] = row[0] + row[1] + row[2];
            down[1][index] = row[1] - row[2] - row[3];
        }
        for (int64_t line = 0; line < 2; line++) {
            int32_t *to = (line == 0 ? upper : lower) + column;
            to[0] = (int32_t)(down[line][0] + down[line][1] + down[line][2]) / 4;
            to[PANEL] = (int32_t)(down[line][1] - down[line][2] - down[line][3]) / 4;
        }
    }
}

static void scale_rows_plain(float *numbers, const int32_t *sums, struct factors factors,
                             int64_t rows)
{
    for (int64_t index = 0; index < rows * PANEL; index++)
        numbers[index] = (float)sums[index] * factors.scales[index % PANEL]
                         + factors.shifts[index % PANEL];
}

static void load_panel_plain(float *numbers, const char *from, int64_t type)
{
    load_floats(numbers, from, item_of(type), PANEL, type);
}

/* Rounded to even and kept in range; what is no number is the lowest. */
static void store_panel_plain(char *to, const float *numbers, int64_t type)
{
    const float low = type == ELEMENT_U8 ? 0.0f : -128.0f, high = low + 255.0f;

    if (type == ELEMENT_F32)
        memcpy(to, numbers, PANEL * sizeof *numbers);
    else
        for (int64_t index = 0; index < PANEL; index++) {
            const float raised = numbers[index] > low ? numbers[index] : low;
            to[index] = (char)(int32_t)rintf(raised < high ? raised : high);
        }
}

#define are_stored_plain(...) 0

static void apply_step_plain(const struct result_step *step, float *numbers, const float *others,
                             int64_t count)
{
    float_step(step->number, numbers, numbers, others, count, step->alpha, step->beta);
}

#define FOR(name) name##_plain
#include "int8_loops.h"
#include "int8_squares.h"
#undef FOR

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#include "int8_avx2.h"
#include "int8_squares_avx2.h"
#define FOR(name) name##_avx2
#include "int8_loops.h"
#include "int8_squares.h"
#undef FOR
#pragma GCC pop_options
#define HAS_AVX2 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#else
#define HAS_AVX2 0
#define product_part_avx2 product_part_plain
#define depthwise_part_avx2 depthwise_part_plain
#define squares_part_avx2 squares_part_plain
#endif

/* Those that sets of instructions may compute in registers. */
static int is_simple(int64_t number)
{
    return number == FLOAT_STEP_LINEAR || number == FLOAT_STEP_CLIP || number == FLOAT_STEP_ROUND
           || number == FLOAT_STEP_ADD;
}

/* parameters: images, height and width of the source and of the result, then height and width of the
 * window, its strides, dilations and pads in front; the stored number that stands for 0; groups, channels
 * and columns of a group; element types of source and result; whether rows hold their numbers in both
 * sizes; chunks of all weights; scales; rows of a block; parts; other operands, steps; then the element type of each other
 * operand, and for each step number, operand (from 1 on, or 0), alpha and beta. */
static int read_product(struct product *p, const int64_t *parameters)
{
    const int64_t *word = parameters;

    p->images = *word++;
    p->height = *word++;
    p->width = *word++;
    p->made_height = *word++;
    p->made_width = *word++;
    for (int64_t axis = 0; axis < 2; axis++) {
        p->window[axis] = word[axis];
        p->strides[axis] = word[2 + axis];
        p->dilations[axis] = word[4 + axis];
        p->pads[axis] = word[6 + axis];
    }
    word += 8;
    p->pad = *word++;
    p->groups = *word++;
    p->channels = *word++;
    p->columns = *word++;
    p->source_type = *word++;
    p->result_type = *word++;
    p->is_mixed = *word++;
    p->chunk_count = *word++;
    p->scale_count = *word++;
    p->block_rows = *word++;
    p->parts = *word++;
    p->other_count = *word++;
    p->step_count = *word++;
    if (p->other_count < 0 || p->other_count > MAX_OTHERS || p->step_count < 0
        || p->step_count > MAX_STEPS)
        return STATUS_TABLE;
    for (int64_t index = 0; index < p->other_count; index++)
        p->other_types[index] = *word++;
    p->is_simple = 1;
    for (int64_t index = 0; index < p->step_count; index++, word += 4) {
        const struct result_step step = {word[0], word[1], float_of_double_bits(word[2]),
                                         float_of_double_bits(word[3])};
        const int64_t takes_other = step.number >= FIRST_BINARY_FLOAT_STEP;
        if (step.other < 0 || step.other > p->other_count || (takes_other && step.other == 0))
            return STATUS_TABLE;
        p->steps[index] = step;
        p->is_simple &= is_simple(step.number);
    }
    p->rows = p->images * p->made_height * p->made_width;
    p->row_numbers = p->window[0] * p->window[1] * p->channels;
    p->row_chunks = (p->row_numbers + CHUNK - 1) / CHUNK;
    p->row_bytes = p->row_chunks * CHUNK * (p->is_mixed ? 3 : 1);
    p->panels = (p->columns + PANEL - 1) / PANEL;
    p->squares[0] = (p->made_height + 1) / 2;
    p->squares[1] = (p->made_width + 1) / 2;
    p->flip = p->source_type == ELEMENT_I8 ? 0x80 : 0;
    return STATUS_OK;
}

static int is_pointwise(const struct product *p)
{
    for (int64_t axis = 0; axis < 2; axis++)
        if (p->window[axis] != 1 || p->strides[axis] != 1 || p->pads[axis] != 0)
            return 0;
    return p->height == p->made_height && p->width == p->made_width;
}

/* Whether the chunks of a row that weights name are there, panel by panel. */
static int has_places(const struct product *p)
{
    const int64_t panels = p->groups * p->panels;
    const int32_t *ends = p->places, *places = ends + 2 * panels + 1;
    int is_inside = ends[0] == 0 && ends[2 * panels] <= p->chunk_count;

    for (int64_t end = 0; end < 2 * panels; end++)
        is_inside &= ends[end] <= ends[end + 1];
    for (int64_t index = 0; index < p->chunk_count; index++)
        is_inside &= places[index] >= 0 && places[index] < p->row_bytes / CHUNK;
    return is_inside;
}

static void read_operands(struct product *p, char *const *data, int has_places_too)
{
    p->source = *data++;
    p->source_end =
        p->source + p->images * p->height * p->width * p->groups * p->channels;
    p->weights = *data++;
    if (has_places_too) {
        p->places = (const int32_t *)(const void *)*data++;
        p->starts = (const int32_t *)(const void *)*data++;
    }
    p->scales = (const float *)(const void *)*data++;
    p->shifts = (const float *)(const void *)*data++;
    for (int64_t index = 0; index < p->other_count; index++)
        p->others[index] = *data++;
    p->scratch = *data++;
    p->result = *data++;
}

/* data: source (images, height, width, channels of all groups) in 8 bits; weights, panel by
 * panel, CHUNK_WEIGHTS bytes for each chunk: of each column of a panel the numbers that go with it, first
 * those of the narrow chunks; int32 places, which are for each panel the ends of its narrow and of its wide
 * chunks, with 0 before the first, and then the chunk of a row of data that each goes with; int32 starts of the sums, PANEL for each panel; scales and shifts of the columns in float32;
 * other operands, which lie as the result does; scratch for a block of rows and SLACK bytes for each
 * part; result (images, height, width, columns of all groups). parameters: see read_product. */
static int int8_product(char *const *data, const int64_t *parameters, const char *stop)
{
    struct product product = {0};
    const int64_t has_avx2 = HAS_AVX2;
    int status = read_product(&product, parameters);

    if (status != STATUS_OK)
        return status;
    read_operands(&product, data, 1);
    if (!has_places(&product))
        return STATUS_INDEX;
    product.is_pointwise = is_pointwise(&product);
    product.is_direct = product.is_pointwise && !product.is_mixed && product.flip == 0
                        && product.groups == 1 && product.channels % CHUNK == 0;
#pragma omp parallel for schedule(static) if (product.parts > 1)
    for (int64_t part = 0; part < product.parts; part++)
        (has_avx2 ? product_part_avx2 : product_part_plain)(&product, part, stop);
    return STATUS_OK;
}

/* The same where each channel is a group of its own, with one column. Weights are wide and have all
 * chunks in order; for each of them, of two taps, the words of a panel as word_of says. No places, no
 * starts; scratch for one place of the source. */
static int int8_depthwise(char *const *data, const int64_t *parameters, const char *stop)
{
    struct product product = {0};
    const int64_t has_avx2 = HAS_AVX2;
    int status = read_product(&product, parameters);

    if (status != STATUS_OK)
        return status;
    if (product.row_numbers > MOST_TAPS)
        return STATUS_TABLE;
    read_operands(&product, data, 0);
    product.row_chunks = (product.row_numbers + 1) / 2;
    memset(product.scratch, (int)product.pad & 0xff, (size_t)product.groups);
#pragma omp parallel for schedule(static) if (product.parts > 1)
    for (int64_t part = 0; part < product.parts; part++)
        (has_avx2 ? depthwise_part_avx2 : depthwise_part_plain)(&product, part, stop);
    return STATUS_OK;
}

/* The same for one group, a window of 3 x 3 with strides and dilations of 1, and whole panels of channels.
 * Weights are wide: panel by panel, for each of 16 places of a square the chunks of all channels. No places,
 * no starts; scratch, for each part, for the sums and the data of block_rows squares, and one place of the
 * source. */
static int int8_squares(char *const *data, const int64_t *parameters, const char *stop)
{
    struct product product = {0};
    const int64_t has_avx2 = HAS_AVX2;
    int status = read_product(&product, parameters);

    if (status != STATUS_OK)
        return status;
    read_operands(&product, data, 0);
    const int64_t square_bytes = SQUARE * SQUARE * (product.channels * 2 + PANEL * 4);
    memset(product.scratch
               + product.parts * (product.block_rows * square_bytes + SQUARE * SQUARE * SQUARE_SLACK),
           (int)product.pad & 0xff, (size_t)product.channels);
#pragma omp parallel for schedule(static) if (product.parts > 1)
    for (int64_t part = 0; part < product.parts; part++)
        (has_avx2 ? squares_part_avx2 : squares_part_plain)(&product, part, stop);
    return STATUS_OK;
}

const struct named_kernel int8_kernels[] = {
    {"int8_depthwise", int8_depthwise},
    {"int8_product", int8_product},
    {"int8_squares", int8_squares},
    {NULL, NULL},
};
