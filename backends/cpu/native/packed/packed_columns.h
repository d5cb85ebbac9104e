/* The loops of native_packed.c, which includes this once for each set of instructions: what a
 * function does with vectors is settled by the one that it is compiled for, not by its caller's.
 *
 * FOR(name) is the name of a function in that set.
 */

/* Give each lane the number of its block: `spans` blocks lie in a chunk. */
INLINE floats FOR(spread)(const float *numbers, int spans)
{
    const float a = numbers[0], b = numbers[spans / 2], c = numbers[spans == 4], d = numbers[spans - 1];
    if (spans == 1)
        return (floats){a, a, a, a, a, a, a, a};
    if (spans == 2)
        return (floats){a, a, a, a, b, b, b, b};
    return (floats){a, a, c, c, b, b, d, d};
}

/* What is subtracted from the numbers of each lane: the middle, and the zero point of its block. */
INLINE words FOR(middles)(const int8_t *zeros, int bits, int spans)
{
    const int32_t middle = 1 << (bits - 1);
    const words middles = {middle, middle, middle, middle, middle, middle, middle, middle};
    if (zeros == NULL)
        return middles;
    const int32_t a = zeros[0], b = zeros[spans / 2], c = zeros[spans == 4], d = zeros[spans - 1];
    if (spans == 1)
        return middles + a;
    if (spans == 2)
        return middles + (words){a, a, a, a, b, b, b, b};
    return middles + (words){a, a, c, c, b, b, d, d};
}

/* The numbers at a place of each word, times scale_at that place. A word has two halves, so that no mask has
 * its top bit, and what it leaves is a number without shifts. */
INLINE floats FOR(numbers_at)(words low, words high, words middles, int bits, int place)
{
    const int half = 16 / bits, up = bits * (place % half);
    const int32_t mask = ((1 << bits) - 1) << up;
    return __builtin_convertvector(((place < half ? low : high) & mask) - (middles << up), floats);
}

INLINE words FOR(upper)(words both)
{
    typedef uint32_t unsigned_words __attribute__((vector_size(CHUNK_BYTES)));
    return (words)((unsigned_words)both >> 16);
}

INLINE float FOR(sum_of)(floats numbers)
{
    return ((numbers[0] + numbers[4]) + (numbers[2] + numbers[6]))
           + ((numbers[1] + numbers[5]) + (numbers[3] + numbers[7]));
}

/* One chunk of a column, for `rows` rows of data that are `step` apart. Few rows have two sums each, for
 * multiply-adds that need not wait for each other. */
INLINE void FOR(add_chunk)(floats *totals, const float *data, int64_t step, const char *chunk,
                      const float *scales, const int8_t *zeros, int bits, int spans, int rows)
{
    const int elements = 32 / bits;
    const floats factors = FOR(spread)(scales, spans);
    const words middles = FOR(middles)(zeros, bits, spans);
    floats sums[4], others[4], item;
    words low;

    memcpy(&low, chunk, sizeof low);
    const words high = FOR(upper)(low);
    for (int row = 0; row < rows; row++)
        sums[row] = others[row] = (floats){0.0f};
#pragma GCC unroll 8
    for (int place = 0; place < elements; place++) {
        const floats weights = FOR(numbers_at)(low, high, middles, bits, place);
        for (int row = 0; row < rows; row++) {
            floats *sum = rows <= 2 && place % 2 ? others : sums;
            memcpy(&item, data + row * step + place * LANES, sizeof item);
            sum[row] += item * weights;
        }
    }
    for (int row = 0; row < rows; row++)
        totals[row] += (rows <= 2 ? sums[row] + others[row] : sums[row]) * factors;
}

INLINE void FOR(add_column)(float *results, int64_t apart, const float *data, int64_t step,
                       const struct packing *packing, const char *row, const float *scales,
                       const int8_t *zeros, float bias, int bits, int spans, int rows)
{
    const int64_t whole = packing->chunks - 1;
    floats totals[4];
    struct last_chunk last;
    int64_t block = 0, left = packing->length;

    for (int item = 0; item < rows; item++)
        totals[item] = (floats){0.0f};
    for (int64_t chunk = 0; chunk < whole; chunk++) {
        __builtin_prefetch(row + chunk * CHUNK_BYTES + AHEAD_BYTES);
        FOR(add_chunk)(totals, data + chunk * packing->chunk, step, row + chunk * CHUNK_BYTES,
                  scales + block, zeros == NULL ? NULL : zeros + block, bits, spans, rows);
        if (spans > 1)
            block += spans;
        else if ((left -= packing->chunk) == 0) {
            left = packing->length;
            block++;
        }
    }
    fill_last(&last, packing, row, scales, zeros);
    FOR(add_chunk)(totals, data + whole * packing->chunk, step, last.bytes, last.scales,
              zeros == NULL ? NULL : last.zeros, bits, spans, rows);
    for (int item = 0; item < rows; item++)
        results[item * apart] = FOR(sum_of)(totals[item]) + bias;
}

INLINE void FOR(multiply_part)(const struct packed_part *part, const struct packing *packing,
                          const char *stop, int bits, int spans, int has_zeros)
{
    const int64_t step = packing->chunks * packing->chunk;

    for (int64_t column = part->first; column < part->last; column++) {
        const char *row = part->weights + column * packing->row_bytes;
        const float *scales = part->scales + column * packing->blocks;
        const int8_t *zeros = has_zeros ? part->zeros + column * packing->blocks : NULL;
        const float bias = part->bias == NULL ? 0.0f : part->bias[column];
        int64_t done = 0;
        if (column % COLUMNS_BETWEEN_LOOKS == 0 && is_stopped(stop))
            return;
        while (done < part->rows) {
            const float *data = part->data + done * step;
            float *results = part->target + done * part->columns + column;
            const int64_t rest = part->rows - done, apart = part->columns;
            const int count = rest >= 4 ? 4 : rest >= 2 ? 2 : 1;
            if (count == 4)
                FOR(add_column)(results, apart, data, step, packing, row, scales, zeros, bias, bits,
                           spans, 4);
            else if (count == 2)
                FOR(add_column)(results, apart, data, step, packing, row, scales, zeros, bias, bits,
                           spans, 2);
            else
                FOR(add_column)(results, apart, data, step, packing, row, scales, zeros, bias, bits,
                           spans, 1);
            done += count;
        }
    }
}

INLINE void FOR(multiply_blocks)(const struct packed_part *part, const struct packing *packing,
                          const char *stop, int bits, int spans)
{
    if (part->zeros == NULL)
        FOR(multiply_part)(part, packing, stop, bits, spans, 0);
    else
        FOR(multiply_part)(part, packing, stop, bits, spans, 1);
}

static void FOR(packed_part)(const struct packed_part *part, const struct packing *packing,
                        const char *stop)
{
    const int64_t spans = packing->blocks == 1 ? 1 : packing->chunk / packing->length;

    if (packing->bits == 4 && spans < 2)
        FOR(multiply_blocks)(part, packing, stop, 4, 1);
    else if (packing->bits == 4 && spans == 2)
        FOR(multiply_blocks)(part, packing, stop, 4, 2);
    else if (packing->bits == 4)
        FOR(multiply_blocks)(part, packing, stop, 4, 4);
    else if (spans < 2)
        FOR(multiply_blocks)(part, packing, stop, 8, 1);
    else
        FOR(multiply_blocks)(part, packing, stop, 8, 2);
}

INLINE void FOR(unpack_chunk)(float *target, const char *chunk, const float *scales,
                         const int8_t *zeros, int bits, int spans)
{
    const floats factors = FOR(spread)(scales, spans);
    const words middles = FOR(middles)(zeros, bits, spans);
    words low;

    memcpy(&low, chunk, sizeof low);
    const words high = FOR(upper)(low);
#pragma GCC unroll 8
    for (int place = 0; place < 32 / bits; place++) {
        const floats real = FOR(numbers_at)(low, high, middles, bits, place) * factors;
        memcpy(target + place * LANES, &real, sizeof real);
    }
}

INLINE void FOR(unpack_row)(float *target, const struct packing *packing, const char *row,
                       const float *scales, const int8_t *zeros, int bits, int spans)
{
    const int64_t whole = packing->chunks - 1;
    struct last_chunk last;

    for (int64_t chunk = 0; chunk < whole; chunk++) {
        const int64_t block = chunk * packing->chunk / packing->length;
        FOR(unpack_chunk)(target + chunk * packing->chunk, row + chunk * CHUNK_BYTES, scales + block,
                     zeros == NULL ? NULL : zeros + block, bits, spans);
    }
    fill_last(&last, packing, row, scales, zeros);
    FOR(unpack_chunk)(target + whole * packing->chunk, last.bytes, last.scales,
                 zeros == NULL ? NULL : last.zeros, bits, spans);
}

static void FOR(unpacked_row)(float *target, const struct packing *packing, const char *row,
                         const float *scales, const int8_t *zeros)
{
    const int64_t spans = packing->blocks == 1 ? 1 : packing->chunk / packing->length;

    if (packing->bits == 4 && spans < 2)
        FOR(unpack_row)(target, packing, row, scales, zeros, 4, 1);
    else if (packing->bits == 4 && spans == 2)
        FOR(unpack_row)(target, packing, row, scales, zeros, 4, 2);
    else if (packing->bits == 4)
        FOR(unpack_row)(target, packing, row, scales, zeros, 4, 4);
    else if (spans < 2)
        FOR(unpack_row)(target, packing, row, scales, zeros, 8, 1);
    else
        FOR(unpack_row)(target, packing, row, scales, zeros, 8, 2);
}
