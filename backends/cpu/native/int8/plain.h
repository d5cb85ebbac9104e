/* What native_int8.c does with panels of numbers, for every processor: others have it in vectors. */
#include <math.h>
#include <string.h>

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
#define is_finished_plain(...) 0

static void apply_step_plain(const struct result_step *step, float *numbers, const float *others,
                             int64_t count)
{
    float_step(step->number, numbers, numbers, others, count, step->alpha, step->beta);
}
