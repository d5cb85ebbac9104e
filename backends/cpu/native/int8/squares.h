/* Convolutions of 3 x 3 by Winograd's F(2 x 2, 3 x 3), for each set of instructions as loops.h.
 *
 * The result is cut into squares of 2 x 2, each of which reads 4 x 4 places of the source. Sums and
 * differences of these are multiplied with sums and differences of the weights, which are doubled along
 * both axes to stay whole: 16 products for four results, where there would be 36, and the results
 * times four. All of it fits 16 bits, and the sums wrap around in 32.
 */

/* The addresses of the places that a square reads, and of `pads` for what is outside. */
INLINE void FOR(find_square)(const struct product *p, const char **from, int64_t square,
                             const char *pads)
{
    const int64_t x = square % p->squares[1] * 2 - p->pads[1];
    const int64_t y = square / p->squares[1] % p->squares[0] * 2 - p->pads[0];
    const int64_t image = square / (p->squares[0] * p->squares[1]);

    for (int64_t row = y; row < y + SQUARE; row++)
        for (int64_t place = x; place < x + SQUARE; place++) {
            const int64_t is_inside = row >= 0 && row < p->height && place >= 0 && place < p->width;
            *from++ = is_inside ? p->source
                                      + ((image * p->height + row) * p->width + place) * p->channels
                                : pads;
        }
}

/* The results of some squares for a panel of columns. */
INLINE void FOR(finish_squares)(const struct product *p, const int32_t *sums, int64_t first,
                                int64_t last, int64_t panel)
{
    _Alignas(64) int32_t lines[2][TILE];
    const int64_t column = panel * PANEL, rest = p->columns - column;
    const int64_t columns = rest < PANEL ? rest : PANEL;
    float own[2 * PANEL];
    const struct factors factors = FOR(factors_of)(p, own, column, columns);

    for (int64_t square = first, count; square < last; square += count) {
        const int64_t x = square % p->squares[1], y = square / p->squares[1] % p->squares[0];
        const int64_t image = square / (p->squares[0] * p->squares[1]);
        count = between(p->squares[1] - x, 1, TILE_ROWS / 2);
        count = between(last - square, 1, count);
        for (int64_t index = 0; index < count; index++)
            FOR(gather_square)(sums + (square - first + index) * PANEL, p->block_rows * PANEL,
                               lines[0] + 2 * index * PANEL, lines[1] + 2 * index * PANEL);
        const int64_t places = between(p->made_width - 2 * x, 1, 2 * count);
        for (int64_t line = 0; line < 2 && 2 * y + line < p->made_height; line++)
            FOR(finish)(p, factors, lines[line],
                        ((image * p->made_height) + 2 * y + line) * p->made_width + 2 * x, places,
                        column, columns);
    }
}

/* The sums of some squares, of which each place is a matmul of its own. */
INLINE void FOR(multiply_squares)(const struct product *p, const char *data, int64_t step,
                                  int32_t *sums, int64_t count, int64_t panel)
{
    static const int32_t starts[PANEL] = {0};
    const int64_t chunks = p->channels / 2, places = SQUARE * SQUARE;
    struct tile tile = {.starts = starts, .step = p->channels * 2, .wide = chunks};

    for (int64_t place = 0; place < places; place++)
        for (int64_t row = 0; row < count; row += TILE_ROWS) {
            tile.weights = p->weights + (panel * places + place) * chunks * CHUNK_WEIGHTS;
            tile.data = data + place * step + row * tile.step;
            tile.rows = between(count - row, 1, TILE_ROWS);
            FOR(multiply)(&tile, sums + (place * p->block_rows + row) * PANEL);
        }
}

/* One part: some squares for all panels. */
static void FOR(squares_part)(const struct product *p, int64_t part, const char *stop)
{
    const int64_t count = p->images * p->squares[0] * p->squares[1];
    const int64_t begin = count * part / p->parts, end = count * (part + 1) / p->parts;
    const int64_t step = p->block_rows * p->channels * 2 + SQUARE_SLACK;
    const int64_t sum_bytes = SQUARE * SQUARE * p->block_rows * PANEL * (int64_t)sizeof(int32_t);
    char *own = p->scratch + part * (sum_bytes + SQUARE * SQUARE * step);
    const char *pads = p->scratch + p->parts * (sum_bytes + SQUARE * SQUARE * step);

    for (int64_t first = begin; first < end; first += p->block_rows) {
        const int64_t last = between(end, first, first + p->block_rows);
        if (is_stopped(stop))
            return;
        for (int64_t square = first; square < last; square++) {
            const char *from[SQUARE * SQUARE];
            char *to = own + sum_bytes + (square - first) * p->channels * 2;
            FOR(find_square)(p, from, square, pads);
            for (int64_t channel = 0; channel < p->channels; channel += PANEL)
                FOR(spread_square)(p, from, channel, to, step);
        }
        for (int64_t panel = 0; panel < p->panels; panel++) {
            int32_t *sums = (int32_t *)(void *)own;
            FOR(multiply_squares)(p, own + sum_bytes, step, sums, last - first, panel);
            FOR(finish_squares)(p, sums, first, last, panel);
        }
    }
}
