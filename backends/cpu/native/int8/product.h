/* What the kernels of native_int8.c are given, and the tiles that they compute it in. */
#ifndef AIOINFER_CPU_INT8_PRODUCT_H
#define AIOINFER_CPU_INT8_PRODUCT_H

#include <stddef.h>
#include <stdint.h>

#define TILE_ROWS 6
#define PANEL 16                       /* columns whose weights lie together */
#define TILE (TILE_ROWS * PANEL)
#define CHUNK 4                        /* bytes of a row of data: four numbers of 8 bits, or two of 16 */
#define CHUNK_WEIGHTS (CHUNK * PANEL)  /* bytes */
#define SLACK 32                       /* bytes behind a part's packed data, which may be written */
#define SQUARE 4                       /* places of the source along an axis, for two of the result */
#define SQUARE_SLACK 64                /* bytes: squares of the same place lie apart in a cache */
#define MOST_TAPS 64                   /* of a window of a depthwise convolution */
#define FLAT 64                        /* numbers of a row of the result that are computed together */
#define MOST_LINES 64                  /* of the source that a window spans, where these are copied */
#define ROWS_OF_PARTS 128              /* with fewer, threads take panels */
#define MAX_OTHERS 8
#define MAX_STEPS 32

struct result_step {
    int64_t number, other; /* other: which of `others`, counted from 1; 0 for none */
    float alpha, beta;
};

struct product {
    /* The words that kernels are given, in this order, which is that of Int8Words in int8_words.py. */
    int64_t images, height, width, made_height, made_width;
    int64_t window[2], strides[2], dilations[2], pads[2];
    int64_t pad;                       /* the stored number that stands for 0 */
    int64_t groups, channels, columns; /* the last two of one group */
    int64_t source_type, result_type;
    int64_t is_mixed; /* rows of data hold their numbers in both sizes */
    int64_t chunk_count, scale_count, block_rows, parts, other_count, step_count;
    /* What follows from them. */
    int64_t rows, row_chunks, row_bytes, row_numbers, panels; /* panels of one group */
    int64_t flip;         /* what turns numbers into those of 0 to 255 */
    int64_t squares[2];   /* of the result of one image */
    int64_t is_simple;    /* all steps are linear, bounds, roundings or sums */
    int64_t is_pointwise; /* a row of data is a place of the source */
    int64_t is_direct;    /* rows of data lie as tiles read them */
    const char *source, *source_end, *weights, *others[MAX_OTHERS];
    const int32_t *places, *starts;
    const float *scales, *shifts;
    char *scratch, *result;
    int64_t other_types[MAX_OTHERS];
    struct result_step steps[MAX_STEPS];
};

#define PRODUCT_WORDS (offsetof(struct product, rows) / sizeof(int64_t))

/* Up to TILE_ROWS rows of data, `step` bytes apart, and the weights of a panel: narrow chunks, and wide
 * ones behind them. Without places all are wide, an even number of them in the order of the row. */
struct tile {
    const char *data, *weights;
    const int32_t *places; /* of each chunk of weights: the chunk of the row */
    const int32_t *starts;
    int64_t step, rows, narrow, wide;
    int64_t is_half; /* the right half of the panel is not wanted, and may be 0; not without places */
};

struct factors {
    const float *scales, *shifts;
};

#endif
