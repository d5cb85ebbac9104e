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
 *
 * Depthwise convolutions on processors with AVX-512 and VNNI are here, too: see taps.h.
 */
#include <string.h>

#include "../avx2.h"
#include "../elements.h"
#include "../fused_steps.h"
#include "../steps.h"
#include "../vector_math.h"
#include "product.h"

INLINE int64_t between(int64_t number, int64_t low, int64_t high)
{
    return number < low ? low : number > high ? high : number;
}

INLINE int64_t item_of(int64_t type)
{
    return type == ELEMENT_F32 ? (int64_t)sizeof(float) : 1;
}

#include "plain.h"
static void finish_flat_plain(const struct product *p, float *numbers, int64_t at, int64_t count);
#include "taps_plain.h"
#define FOR(name) name##_plain
#include "loops.h"
#include "squares.h"
#include "taps.h"
#undef FOR

#if COMPILES_AVX2
BEGIN_AVX2
#include "tiles_avx2.h"
#include "results_avx2.h"
#include "squares_avx2.h"
#define FOR(name) name##_avx2
#include "loops.h"
#include "squares.h"
#undef FOR
END_AVX2
BEGIN_VNNI
#include "taps_vnni.h"
#define FOR(name) name##_vnni
#include "taps.h"
#undef FOR
END_VNNI
#else
#define product_part_avx2 product_part_plain
#define depthwise_part_avx2 depthwise_part_plain
#define squares_part_avx2 squares_part_plain
#define taps_part_vnni taps_part_plain
#endif

/* Those that sets of instructions may compute in registers. */
static int is_simple(int64_t number)
{
    return number == FLOAT_STEP_LINEAR || number == FLOAT_STEP_CLIP || number == FLOAT_STEP_ROUND
           || number == FLOAT_STEP_ADD;
}

/* parameters: the words that struct product begins with; then the element type of each other operand, and for
 * each step number, operand (from 1 on, or 0), alpha and beta. */
static int read_product(struct product *p, const int64_t *parameters)
{
    const int64_t *word = parameters + PRODUCT_WORDS;

    memcpy(p, parameters, PRODUCT_WORDS * sizeof *parameters);
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

/* What all kernels begin with: read what they are given. */
static int begin(struct product *p, char *const *data, const int64_t *parameters, int has_places,
                 int has_starts)
{
    const int status = read_product(p, parameters);

    if (status != STATUS_OK)
        return status;
    p->source = *data++;
    p->source_end = p->source + p->images * p->height * p->width * p->groups * p->channels;
    p->weights = *data++;
    if (has_places)
        p->places = (const int32_t *)(const void *)*data++;
    if (has_starts)
        p->starts = (const int32_t *)(const void *)*data++;
    p->scales = (const float *)(const void *)*data++;
    p->shifts = (const float *)(const void *)*data++;
    for (int64_t index = 0; index < p->other_count; index++)
        p->others[index] = *data++;
    p->scratch = *data++;
    p->result = *data++;
    return STATUS_OK;
}

typedef void compute_part(const struct product *, int64_t, const char *);

/* What all kernels end with: compute all parts, by the better of two where the processor has it. */
static int compute(const struct product *p, compute_part *plain, compute_part *better,
                   int has_better, const char *stop)
{
    compute_part *const chosen = has_better ? better : plain;

#pragma omp parallel for schedule(static) if (p->parts > 1)
    for (int64_t part = 0; part < p->parts; part++)
        chosen(p, part, stop);
    return STATUS_OK;
}

/* Write the place of the source that is read for pads. */
static void fill_pads(const struct product *p, int64_t offset)
{
    memset(p->scratch + offset, (int)p->pad & 0xff, (size_t)(p->groups * p->channels));
}

/* data: source (images, height, width, channels of all groups) in 8 bits; weights, panel by panel,
 * CHUNK_WEIGHTS bytes for each chunk: of each column of a panel the numbers that go with it, first those
 * of the narrow chunks; int32 places, which are for each panel the ends of its narrow and of its wide
 * chunks, with 0 before the first, and then the chunk of a row of data that each goes with; int32 starts
 * of the sums, PANEL for each panel; scales and shifts of the columns in float32; other operands, which
 * lie as the result does; scratch for a block of rows and SLACK bytes for each part; result (images,
 * height, width, columns of all groups). parameters: see read_product. */
static int int8_product(char *const *data, const int64_t *parameters, const char *stop)
{
    struct product product = {0};
    const int status = begin(&product, data, parameters, 1, 1);

    if (status != STATUS_OK)
        return status;
    product.is_pointwise = is_pointwise(&product);
    product.is_direct = product.is_pointwise && !product.is_mixed && product.flip == 0
                        && product.groups == 1 && product.channels % CHUNK == 0;
    return compute(&product, product_part_plain, product_part_avx2, HAS_AVX2, stop);
}

/* The same where each channel is a group of its own, with one column. Weights are wide and have all
 * chunks in order; for each of them, of two taps, the words of a panel as word_of says. No places, no
 * starts; scratch for one place of the source. */
static int int8_depthwise(char *const *data, const int64_t *parameters, const char *stop)
{
    struct product product = {0};
    const int status = begin(&product, data, parameters, 0, 0);

    if (status != STATUS_OK)
        return status;
    if (product.row_numbers > MOST_TAPS || product.channels != 1)
        return STATUS_TABLE;
    product.row_chunks = (product.row_numbers + 1) / 2;
    fill_pads(&product, 0);
    return compute(&product, depthwise_part_plain, depthwise_part_avx2, HAS_AVX2, stop);
}

/* The same for one group, a window of 3 x 3 with strides and dilations of 1, and whole panels of
 * channels. Weights are wide: panel by panel, for each of 16 places of a square the chunks of all
 * channels. No places, no starts; scratch, for each part, for the sums and the data of block_rows
 * squares, and one place of the source. */
static int int8_squares(char *const *data, const int64_t *parameters, const char *stop)
{
    struct product product = {0};
    const int status = begin(&product, data, parameters, 0, 0);

    if (status != STATUS_OK)
        return status;
    const int64_t square_bytes = SQUARE * SQUARE * (product.channels * 2 + PANEL * 4);
    const int64_t part_bytes = product.block_rows * square_bytes + SQUARE * SQUARE * SQUARE_SLACK;
    fill_pads(&product, product.parts * part_bytes);
    return compute(&product, squares_part_plain, squares_part_avx2, HAS_AVX2, stop);
}

/* The same as int8_depthwise for channels that are a multiple of 8, with the source's lines flat (taps.h).
 * FLAT columns of the result lie together, after period_of vectors as in the first one. For each of these
 * there are, in the order of number_of: weights, of each four taps the bytes of a word; int32 starts,
 * which take out what data of int8 are moved by; scales; and shifts. No places; scratch for the lines
 * of each part. */
static int int8_taps(char *const *data, const int64_t *parameters, const char *stop)
{
    struct product product = {0};
    const int status = begin(&product, data, parameters, 0, 1);

    if (status != STATUS_OK)
        return status;
    const int64_t span = (product.window[0] - 1) * product.dilations[0] + 1;
    if (product.row_numbers > MOST_TAPS || product.channels != 1 || span > MOST_LINES)
        return STATUS_TABLE;
    return compute(&product, taps_part_plain, taps_part_vnni, HAS_VNNI, stop);
}

const struct named_kernel int8_kernels[] = {
    {"int8_depthwise", int8_depthwise},
    {"int8_product", int8_product},
    {"int8_squares", int8_squares},
    {"int8_taps", int8_taps},
    {NULL, NULL},
};
