/* Sums of taps for every processor, and what all sets of instructions know of the copies of lines. */

/* `span` lines are held at once, of `bytes` each; each rest has so many places. */
struct lines {
    int64_t span, places, bytes;
};

static struct lines lines_of(const struct product *p)
{
    const int64_t places = p->made_width + (p->window[1] - 1) * p->dilations[1] / p->strides[1];
    const int64_t bytes = p->strides[1] * places * p->groups;

    return (struct lines){(p->window[0] - 1) * p->dilations[0] + 1, places,
                          (bytes + FLAT - 1) / FLAT * FLAT + FLAT};
}

/* After how many vectors channels begin at the beginning of one again. */
INLINE int64_t period_of(int64_t channels)
{
    int64_t period = channels;

    for (int64_t count = 1; count < FLAT && period % 2 == 0; count *= 2)
        period /= 2;
    return period;
}

/* Which number of a vector is word `index` of four vectors of sums: bytes of four vectors are interleaved
 * into them, in each of four lanes by itself. */
INLINE int64_t number_of(int64_t index)
{
    return index / 4 % 4 * 16 + index / 16 * 4 + index % 4;
}

static void sum_taps_plain(const struct product *p, const char **taps, int64_t row,
                           int64_t count)
{
    const int64_t period = period_of(p->groups);

    for (int64_t first = 0; first < count; first += FLAT) {
        _Alignas(64) float numbers[FLAT];
        const int64_t turn = first / FLAT % period * FLAT;
        for (int64_t index = 0; index < FLAT; index++) {
            const int64_t number = number_of(index);
            int32_t sum = p->starts[turn + index];
            for (int64_t tap = 0; tap < p->row_chunks * CHUNK; tap++) {
                const char *weights = p->weights + (turn * p->row_chunks + tap / CHUNK * FLAT) * CHUNK;
                sum += (int32_t)(uint8_t)taps[tap][first + number]
                       * (int8_t)weights[index * CHUNK + tap % CHUNK];
            }
            numbers[number] = (float)sum * p->scales[turn + index] + p->shifts[turn + index];
        }
        const int64_t rest = count - first;
        finish_flat_plain(p, numbers, row + first, rest < FLAT ? rest : FLAT);
    }
}
