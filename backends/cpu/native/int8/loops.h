/* The loops of native_int8.c, which includes this once for each set of instructions: what a
 * function does with vectors is settled by the one that it is compiled for, not by its caller's.
 *
 * FOR(name) is the name of a function in that set.
 */

INLINE char *FOR(filled)(const struct product *p, char *to, int64_t count)
{
    memset(to, (int)(p->pad ^ p->flip) & 0xff, (size_t)count);
    return to + count;
}

/* What the windows of one row of an image read: all of its taps along an axis. */
INLINE char *FOR(packed_line)(const struct product *p, char *to, const char *line, int64_t first)
{
    const int64_t whole = p->groups * p->channels, taps = p->window[1];

    if (p->dilations[1] == 1 && p->groups == 1) {
        if (first >= 0 && first + taps <= p->width)
            return FOR(copied)(p, to, line + first * whole, taps * whole);
        const int64_t low = between(-first, 0, taps), high = between(p->width - first, low, taps);
        to = FOR(filled)(p, to, low * whole);
        if (high > low)
            to = FOR(copied)(p, to, line + (first + low) * whole, (high - low) * whole);
        return FOR(filled)(p, to, (taps - high) * whole);
    }
    for (int64_t tap = 0; tap < taps; tap++) {
        const int64_t x = first + tap * p->dilations[1];
        to = x < 0 || x >= p->width ? FOR(filled)(p, to, p->channels)
                                    : FOR(copied)(p, to, line + x * whole, p->channels);
    }
    return to;
}

/* The data of one row of the matmul: what the window of a place holds of a group's channels. What the
 * last chunk has beyond is whatever there was: weights are 0 there. */
INLINE void FOR(pack_row)(const struct product *p, char *to, int64_t row, int64_t group)
{
    const int64_t whole = p->groups * p->channels;

    if (p->is_pointwise) {
        FOR(copied)(p, to, p->source + row * whole + group * p->channels, p->channels);
        return;
    }
    const int64_t x = row % p->made_width, y = row / p->made_width % p->made_height;
    const int64_t image = row / (p->made_width * p->made_height);
    const char *plane = p->source + image * p->height * p->width * whole + group * p->channels;
    for (int64_t tap = 0; tap < p->window[0]; tap++) {
        const int64_t line = y * p->strides[0] - p->pads[0] + tap * p->dilations[0];
        if (line < 0 || line >= p->height)
            to = FOR(filled)(p, to, p->window[1] * p->channels);
        else
            to = FOR(packed_line)(p, to, plane + line * p->width * whole,
                                  x * p->strides[1] - p->pads[1]);
    }
}

/* Scales and shifts of `count` columns: where they lie, or copied into `own` to fill a panel. */
INLINE struct factors FOR(factors_of)(const struct product *p, float *own, int64_t column,
                                      int64_t count)
{
    if (count == PANEL && p->scale_count != 1)
        return (struct factors){p->scales + column, p->shifts + column};
    for (int64_t index = 0; index < PANEL; index++) {
        const int64_t place = column + (index < count ? index : 0);
        own[index] = p->scales[p->scale_count == 1 ? 0 : place];
        own[PANEL + index] = p->shifts[place];
    }
    return (struct factors){own, own + PANEL};
}

/* Make results of sums; `count` columns of a panel from `column` on, rows from `row` on. */
INLINE void FOR(finish)(const struct product *p, struct factors factors, const int32_t *sums,
                        int64_t row, int64_t rows, int64_t column, int64_t count)
{
    _Alignas(64) float numbers[TILE], others[TILE];
    _Alignas(64) char part[PANEL * sizeof(float)] = {0};
    const int64_t all = p->groups * p->columns, item = item_of(p->result_type);
    char *to = p->result + (row * all + column) * item;

    if (FOR(are_stored)(p, factors, sums, row, rows, column, count))
        return;
    FOR(scale_rows)(numbers, sums, factors, rows);
    for (int64_t index = 0; index < p->step_count; index++) {
        const int64_t other = p->steps[index].other;
        const int64_t type = other > 0 ? p->other_types[other - 1] : 0, size = item_of(type);
        const char *from = other > 0 ? p->others[other - 1] + (row * all + column) * size : NULL;
        for (int64_t place = 0; place < rows && other > 0; place++, from += all * size) {
            if (count < PANEL)
                memcpy(part, from, (size_t)(count * size));
            FOR(load_panel)(others + place * PANEL, count < PANEL ? part : from, type);
        }
        FOR(apply_step)(&p->steps[index], numbers, others, rows * PANEL);
    }
    for (int64_t place = 0; place < rows; place++, to += all * item) {
        FOR(store_panel)(count < PANEL ? part : to, numbers + place * PANEL, p->result_type);
        if (count < PANEL)
            memcpy(to, part, (size_t)(count * item));
    }
}

/* A panel of columns, for rows from `first` to `last` whose data begin at `data`. */
static void FOR(multiply_panel)(const struct product *p, int64_t panel, const char *data,
                                int64_t step, int64_t first, int64_t last)
{
    _Alignas(64) int32_t sums[TILE];
    const int64_t group = panel / p->panels, place = panel % p->panels * PANEL;
    const int64_t column = group * p->columns + place, rest = p->columns - place;
    const int64_t count = rest < PANEL ? rest : PANEL;
    const int32_t *ends = p->places + 2 * panel;
    const int32_t *places = p->places + 2 * p->groups * p->panels + 1;
    float own[2 * PANEL];
    const struct factors factors = FOR(factors_of)(p, own, column, count);
    struct tile tile = {
        .weights = p->weights + ends[0] * (int64_t)CHUNK_WEIGHTS,
        .places = places + ends[0],
        .starts = p->starts + panel * PANEL,
        .step = step,
        .narrow = ends[1] - ends[0],
        .wide = ends[2] - ends[1],
        .is_half = count <= PANEL / 2,
    };

    for (int64_t row = first; row < last; row += TILE_ROWS) {
        tile.rows = last - row < TILE_ROWS ? last - row : TILE_ROWS;
        tile.data = data + (row - first) * step;
        if (FOR(is_finished)(p, &tile, factors, row, column, count))
            continue;
        FOR(multiply)(&tile, sums);
        FOR(finish)(p, factors, sums, row, tile.rows, column, count);
    }
}

/* One part of a product: some rows of all panels, or all rows of some panels where these are few. */
static void FOR(product_part)(const struct product *p, int64_t part, const char *stop)
{
    const int64_t panels = p->groups * p->panels, tiles = (p->rows + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t goes_by_panels = p->rows < ROWS_OF_PARTS && panels >= 2 * p->parts;
    const int64_t shares[2] = {goes_by_panels ? part : 0, goes_by_panels ? part + 1 : p->parts};
    const int64_t first_panel = panels * shares[0] / p->parts;
    const int64_t last_panel = panels * shares[1] / p->parts;
    const int64_t first = goes_by_panels ? 0 : tiles * part / p->parts * TILE_ROWS;
    const int64_t end = goes_by_panels ? p->rows : tiles * (part + 1) / p->parts * TILE_ROWS;
    const int64_t last = end < p->rows ? end : p->rows;
    char *own = p->scratch + part * (p->block_rows * p->row_bytes + SLACK);

    for (int64_t group = first_panel / p->panels; group * p->panels < last_panel; group++)
        for (int64_t row = first; row < last; row += p->block_rows) {
            const int64_t stops = row + p->block_rows < last ? row + p->block_rows : last;
            const int64_t from = between(group * p->panels, first_panel, last_panel);
            const int64_t to = between((group + 1) * p->panels, first_panel, last_panel);
            const int64_t step = p->is_direct ? p->channels : p->row_bytes;
            if (is_stopped(stop))
                return;
            for (int64_t each = row; each < stops && !p->is_direct; each++) {
                FOR(pack_row)(p, own + (each - row) * step, each, group);
                if (p->is_mixed)
                    FOR(widen_row)(own + (each - row) * step, p->row_chunks * CHUNK);
            }
            for (int64_t panel = from; panel < to; panel++)
                FOR(multiply_panel)(p, panel, p->is_direct ? p->source + row * step : own, step,
                                    row, stops);
        }
}

/* Where the window of a place reads: one address for each tap, and `pads` for what is outside. */
INLINE void FOR(find_taps)(const struct product *p, const char **taps, int64_t row,
                           const char *pads)
{
    const int64_t x = row % p->made_width, y = row / p->made_width % p->made_height;
    const char *plane =
        p->source + row / (p->made_width * p->made_height) * p->height * p->width * p->groups;
    const int64_t first = x * p->strides[1] - p->pads[1], last = p->window[1] - 1;
    const int64_t is_inside = first >= 0 && first + last * p->dilations[1] < p->width;

    for (int64_t high = 0; high <= p->window[0] - 1; high++) {
        const int64_t line = y * p->strides[0] - p->pads[0] + high * p->dilations[0];
        const int64_t is_line = line >= 0 && line < p->height;
        const char *from = is_line ? plane + (line * p->width + first) * p->groups : pads;
        const int64_t step = is_line ? p->dilations[1] * p->groups : 0;
        for (int64_t wide = 0; wide <= last; wide++) {
            const int64_t place = first + wide * p->dilations[1];
            const int64_t is_outside = !is_inside && (place < 0 || place >= p->width);
            *taps++ = is_outside ? pads : from + wide * step;
        }
    }
}

/* Some rows of a convolution whose channels are apart: each has weights of its own. */
static void FOR(depthwise_part)(const struct product *p, int64_t part, const char *stop)
{
    _Alignas(64) int32_t sums[TILE];
    float own[2 * PANEL];
    const char *taps[TILE_ROWS][MOST_TAPS + 1];
    const int64_t first = p->rows * part / p->parts, last = p->rows * (part + 1) / p->parts;

    for (int64_t row = first; row < last; row += TILE_ROWS) {
        const int64_t rows = last - row < TILE_ROWS ? last - row : TILE_ROWS;
        if (is_stopped(stop))
            return;
        for (int64_t index = 0; index < rows; index++) {
            FOR(find_taps)(p, taps[index], row + index, p->scratch);
            taps[index][p->row_numbers] = p->scratch; /* beside the last of an odd number */
        }
        for (int64_t column = 0; column < p->groups; column += PANEL) {
            const int64_t rest = p->groups - column, count = rest < PANEL ? rest : PANEL;
            const char *weights = p->weights + column / PANEL * p->row_chunks * CHUNK_WEIGHTS;
            const struct factors factors = FOR(factors_of)(p, own, column, count);
            for (int64_t index = 0; index < rows; index++)
                FOR(add_taps)(p, taps[index], column, count, weights, sums + index * PANEL);
            FOR(finish)(p, factors, sums, row, rows, column, count);
        }
    }
}
