/* The tiles of native_int8.c by AVX2: twelve vectors of sums, two of weights, one of data.
 *
 * The multiply-adds are written as instructions: left to themselves, compilers move the products
 * of a chunk together and have no registers for them.
 */

static const _Alignas(32) int16_t ones[PANEL] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* Two products in 16 bits, two of these in 32, added to a vector of sums. */
INLINE __m256i narrow_sums(__m256i sums, __m256i data, __m256i weights)
{
    __m256i product;
    __asm__("vpmaddubsw %3, %2, %0\n\tvpmaddwd %4, %0, %0\n\tvpaddd %0, %1, %1"
            : "=&x"(product), "+x"(sums)
            : "x"(data), "x"(weights), "m"(ones));
    return sums;
}

INLINE __m256i wide_sums(__m256i sums, __m256i data, __m256i weights)
{
    __m256i product;
    __asm__("vpmaddwd %3, %2, %0\n\tvpaddd %0, %1, %1"
            : "=&x"(product), "+x"(sums)
            : "x"(data), "x"(weights));
    return sums;
}

INLINE __m256i widened_tap(const char *from, int64_t is_signed)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)from);
    return is_signed ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes);
}

/* By vectors, the last of which may read and write more than there is to copy. */
INLINE char *copied_avx2(const struct product *p, char *to, const char *from, int64_t count)
{
    const __m128i flips = _mm_set1_epi8((char)p->flip);

    if (p->source_end - from < (count + PANEL - 1) / PANEL * PANEL)
        return copied_plain(p, to, from, count);
    for (int64_t index = 0; index < count; index += PANEL) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(from + index));
        _mm_storeu_si128((__m128i *)(void *)(to + index), _mm_xor_si128(bytes, flips));
    }
    return to + count;
}

INLINE void widen_row_avx2(char *row, int64_t count)
{
    for (int64_t index = 0; index < count; index += PANEL)
        _mm256_storeu_si256((__m256i *)(void *)(row + count + 2 * index),
                            widened_tap(row + index, 0));
}

INLINE __m256i repeated_chunk(const char *data)
{
    int32_t chunk;
    memcpy(&chunk, data, sizeof chunk);
    return _mm256_set1_epi32(chunk);
}

#define EACH_OF_1(DO) DO(0)
#define EACH_OF_2(DO) EACH_OF_1(DO) DO(1)
#define EACH_OF_3(DO) EACH_OF_2(DO) DO(2)
#define EACH_OF_4(DO) EACH_OF_3(DO) DO(3)
#define EACH_OF_5(DO) EACH_OF_4(DO) DO(4)
#define EACH_OF_6(DO) EACH_OF_5(DO) DO(5)

#define BEGIN(row) __m256i left##row = starts[0], right##row = starts[1];
#define ADD_NARROW(row)                                                                           \
    data = repeated_chunk(from + ROW_##row);                                                      \
    left##row = narrow_sums(left##row, data, weights[0]);                                         \
    right##row = narrow_sums(right##row, data, weights[1]);
#define ADD_WIDE(row)                                                                             \
    data = repeated_chunk(from + ROW_##row);                                                      \
    left##row = wide_sums(left##row, data, weights[0]);                                           \
    right##row = wide_sums(right##row, data, weights[1]);
#define END(row)                                                                                  \
    _mm256_storeu_si256((__m256i *)(void *)(sums + (row)*PANEL), left##row);                      \
    _mm256_storeu_si256((__m256i *)(void *)(sums + (row)*PANEL + PANEL / 2), right##row);

/* The same for the left half of a panel. */
#define BEGIN_HALF(row) __m256i left##row = starts[0];
#define ADD_NARROW_HALF(row)                                                                      \
    data = repeated_chunk(from + ROW_##row);                                                      \
    left##row = narrow_sums(left##row, data, weights[0]);
#define ADD_WIDE_HALF(row)                                                                        \
    data = repeated_chunk(from + ROW_##row);                                                      \
    left##row = wide_sums(left##row, data, weights[0]);
#define END_HALF(row)                                                                             \
    _mm256_storeu_si256((__m256i *)(void *)(sums + (row)*PANEL), left##row);                      \
    _mm256_storeu_si256((__m256i *)(void *)(sums + (row)*PANEL + PANEL / 2),                      \
                        _mm256_setzero_si256());

/* Where rows are: what an address of x86 holds, so that one counter serves all of them. */
#define ROW_0 0
#define ROW_1 step
#define ROW_2 step * 2
#define ROW_3 three_steps
#define ROW_4 step * 4
#define ROW_5 five_steps

#define ADD_CHUNK(count, ADD)                                                                     \
    {                                                                                             \
        const __m256i weights[2] = {_mm256_loadu_si256(panel), _mm256_loadu_si256(panel + 1)};    \
        __m256i data;                                                                             \
        EACH_OF_##count(ADD)                                                                      \
    }

/* The chunks of a list. */
#define ADD_LISTED(count, ADD, last)                                                              \
    for (; place < (last); place++, panel += 2) {                                                 \
        const char *from = tile->data + *place * (int64_t)CHUNK;                                  \
        ADD_CHUNK(count, ADD)                                                                     \
    }

#define BEGIN_TILE(count, BEGIN)                                                                  \
    const __m256i *from_starts = (const __m256i *)(const void *)tile->starts;                     \
    const __m256i starts[2] = {_mm256_loadu_si256(from_starts),                                   \
                               _mm256_loadu_si256(from_starts + 1)};                              \
    const __m256i *panel = (const __m256i *)(const void *)tile->weights;                          \
    const int64_t step = tile->step;                                                              \
    int64_t three_steps = 3 * step, five_steps = 5 * step;                                        \
    __asm__("" : "+r"(three_steps), "+r"(five_steps));                                            \
    EACH_OF_##count(BEGIN)

#define DEFINE_TILES(count)                                                                       \
    static void listed_tile_##count(const struct tile *tile, int32_t *sums)                       \
    {                                                                                             \
        const int32_t *place = tile->places;                                                      \
        BEGIN_TILE(count, BEGIN)                                                                  \
        ADD_LISTED(count, ADD_NARROW, tile->places + tile->narrow)                                \
        ADD_LISTED(count, ADD_WIDE, tile->places + tile->narrow + tile->wide)                     \
        EACH_OF_##count(END)                                                                      \
    }                                                                                             \
    static void half_tile_##count(const struct tile *tile, int32_t *sums)                         \
    {                                                                                             \
        const int32_t *place = tile->places;                                                      \
        BEGIN_TILE(count, BEGIN_HALF)                                                             \
        ADD_LISTED(count, ADD_NARROW_HALF, tile->places + tile->narrow)                           \
        ADD_LISTED(count, ADD_WIDE_HALF, tile->places + tile->narrow + tile->wide)                \
        EACH_OF_##count(END_HALF)                                                                 \
    }                                                                                             \
    static void wide_tile_##count(const struct tile *tile, int32_t *sums)                         \
    {                                                                                             \
        const char *from = tile->data, *const end = from + tile->wide * CHUNK;                    \
        BEGIN_TILE(count, BEGIN)                                                                  \
        for (; from < end; from += CHUNK, panel += 2) {                                           \
            ADD_CHUNK(count, ADD_WIDE)                                                            \
            from += CHUNK, panel += 2;                                                            \
            ADD_CHUNK(count, ADD_WIDE)                                                            \
        }                                                                                         \
        EACH_OF_##count(END)                                                                      \
    }

DEFINE_TILES(1)
DEFINE_TILES(2)
DEFINE_TILES(3)
DEFINE_TILES(4)
DEFINE_TILES(5)
DEFINE_TILES(6)

static void (*const tiles[3][TILE_ROWS])(const struct tile *, int32_t *) = {
    {listed_tile_1, listed_tile_2, listed_tile_3, listed_tile_4, listed_tile_5, listed_tile_6},
    {half_tile_1, half_tile_2, half_tile_3, half_tile_4, half_tile_5, half_tile_6},
    {wide_tile_1, wide_tile_2, wide_tile_3, wide_tile_4, wide_tile_5, wide_tile_6},
};

INLINE void multiply_avx2(const struct tile *tile, int32_t *sums)
{
    tiles[tile->places == NULL ? 2 : tile->is_half][tile->rows - 1](tile, sums);
}

/* Sums of the taps of one place for a whole panel of channels. */
INLINE void add_panel_taps(const char **taps, int64_t column, int64_t chunks, int64_t is_signed,
                           const char *weights, int32_t *sums)
{
    const __m256i *pairs = (const __m256i *)(const void *)weights;
    __m256i low = _mm256_setzero_si256(), high = low;

    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const __m256i first = widened_tap(taps[2 * chunk] + column, is_signed);
        const __m256i second = widened_tap(taps[2 * chunk + 1] + column, is_signed);
        const __m256i lows = _mm256_unpacklo_epi16(first, second);
        const __m256i highs = _mm256_unpackhi_epi16(first, second);
        low = _mm256_add_epi32(low, _mm256_madd_epi16(lows, _mm256_loadu_si256(pairs + 2 * chunk)));
        high = _mm256_add_epi32(
            high, _mm256_madd_epi16(highs, _mm256_loadu_si256(pairs + 2 * chunk + 1)));
    }
    __m256i *to = (__m256i *)(void *)sums;
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(low, high, 0x31));
}

INLINE void add_taps_avx2(const struct product *p, const char **taps, int64_t column,
                          int64_t count, const char *weights, int32_t *sums)
{
    if (count < PANEL)
        add_taps_plain(p, taps, column, count, weights, sums);
    else if (p->source_type == ELEMENT_U8)
        add_panel_taps(taps, column, p->row_chunks, 0, weights, sums);
    else
        add_panel_taps(taps, column, p->row_chunks, 1, weights, sums);
}
