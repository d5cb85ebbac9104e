/* Depthwise convolutions whose numbers lie flat: a row of the result is one row of numbers, all channels
 * of a place before those of the next, and vectors of FLAT numbers go over it wherever channels begin. A
 * line of the source is copied once, with its pads, so that each tap reads a row that begins elsewhere.
 * With strides a copy has the places of one rest together: 0, 2, 4, ... and then 1, 3, 5, ...
 *
 * Included once for each set of instructions, as loops.h is; FOR(sum_taps) is the set's own.
 */

/* Copy a line of an image, or pads where there is none. Bytes behind it may be written, too. */
static void FOR(copy_line)(const struct product *p, struct lines lines, char *to,
                           const char *plane, int64_t line)
{
    const int64_t channels = p->groups, stride = p->strides[1], pad = p->pads[1];
    const char *from = plane + line * p->width * channels;

    if (line < 0 || line >= p->height) {
        FOR(filled)(p, to, stride * lines.places * channels);
        return;
    }
    if (stride == 1) {
        const int64_t low = pad < lines.places ? pad : lines.places;
        const int64_t count = between(p->width, 0, lines.places - low);
        to = FOR(filled)(p, to, low * channels);
        to = FOR(copied)(p, to, from, count * channels);
        FOR(filled)(p, to, (lines.places - low - count) * channels);
        return;
    }
    for (int64_t rest = 0; rest < stride; rest++)
        for (int64_t place = 0; place < lines.places; place++) {
            const int64_t x = place * stride + rest - pad;
            to = x < 0 || x >= p->width ? FOR(filled)(p, to, channels)
                                        : FOR(copied)(p, to, from + x * channels, channels);
        }
}

/* Make results of numbers, `count` of them from number `at` of the result on. */
static void FOR(finish_flat)(const struct product *p, float *numbers, int64_t at, int64_t count)
{
    _Alignas(64) float others[FLAT];
    _Alignas(64) char part[PANEL * sizeof(float)] = {0};
    const int64_t item = item_of(p->result_type);

    for (int64_t index = 0; index < p->step_count; index++) {
        const int64_t other = p->steps[index].other;
        const int64_t type = other > 0 ? p->other_types[other - 1] : 0, size = item_of(type);
        const char *from = other > 0 ? p->others[other - 1] + at * size : NULL;
        for (int64_t first = 0; first < count && other > 0; first += PANEL) {
            const int64_t rest = count - first;
            if (rest < PANEL)
                memcpy(part, from + first * size, (size_t)(rest * size));
            FOR(load_panel)(others + first, rest < PANEL ? part : from + first * size, type);
        }
        FOR(apply_step)(&p->steps[index], numbers, others, (count + PANEL - 1) / PANEL * PANEL);
    }
    for (int64_t first = 0; first < count; first += PANEL) {
        const int64_t rest = count - first;
        char *to = p->result + (at + first) * item;
        FOR(store_panel)(rest < PANEL ? part : to, numbers + first, p->result_type);
        if (rest < PANEL)
            memcpy(to, part, (size_t)(rest * item));
    }
}

/* Some rows of the result, one after another. */
static void FOR(taps_part)(const struct product *p, int64_t part, const char *stop)
{
    const struct lines lines = lines_of(p);
    const int64_t rows = p->images * p->made_height, first = rows * part / p->parts;
    const int64_t last = rows * (part + 1) / p->parts, count = p->made_width * p->groups;
    char *own = p->scratch + part * lines.span * lines.bytes;
    int64_t held[MOST_LINES];

    for (int64_t row = first; row < last; row++) {
        const int64_t image = row / p->made_height, y = row % p->made_height;
        const char *plane = p->source + image * p->height * p->width * p->groups;
        const char *taps[MOST_TAPS + CHUNK];
        int64_t found = 0;
        if (is_stopped(stop))
            return;
        for (int64_t slot = 0; slot < lines.span && (row == first || y == 0); slot++)
            held[slot] = -1;
        for (int64_t high = 0; high < p->window[0]; high++) {
            const int64_t moved = y * p->strides[0] + high * p->dilations[0];
            const int64_t slot = moved % lines.span;
            char *line = own + slot * lines.bytes;
            if (held[slot] != moved)
                FOR(copy_line)(p, lines, line, plane, moved - p->pads[0]);
            held[slot] = moved;
            for (int64_t wide = 0; wide < p->window[1]; wide++) {
                const int64_t across = wide * p->dilations[1], stride = p->strides[1];
                taps[found++] =
                    line + (across % stride * lines.places + across / stride) * p->groups;
            }
        }
        for (; found % CHUNK != 0; found++)
            taps[found] = taps[0]; /* whose weights are 0 */
        FOR(sum_taps)(p, taps, row * count, count);
    }
}
