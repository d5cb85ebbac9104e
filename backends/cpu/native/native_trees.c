/* Ensembles of trees: where each row comes to in each tree, what leaves say there, and what follows.
 *
 * A node asks whether a feature is at most its threshold, and names the node behind each answer; a
 * leaf is its own child, so a walk needs no branch. One walk waits for memory at each level, so
 * LANES of them go side by side: rows through one tree, or trees for one row. Leaves speak in the
 * order of the trees, so sums do not depend on how many rows there are, or threads.
 *
 * Tables may come from a file that somebody made up: every index is bounded where it is used.
 */
#include <math.h>
#include <string.h>

#include "steps.h"

#define LANES 8
#define LEVELS 8 /* that are walked before anybody asks whether leaves have been reached */

#define IS_LEAF 0x80000000u
#define SENDS_MISSING 0x40000000u
#define NUMBER 0x3FFFFFFFu

/* What a block of rows takes of a cache beside a tree. */
#define BLOCK_BYTES 16384
#define MOST_ROWS 256

/* As forest_tables.py writes them: flags are a leaf's number, or a feature. */
struct tree_node {
    float threshold;
    uint32_t flags;
    uint32_t children[2]; /* of no and of yes */
};

enum tree_word {
    TREE_ROWS,
    TREE_FEATURES,
    TREE_NODES, /* a power of two */
    TREE_COUNT,
    TREE_LEAVES,
    TREE_ENTRIES, /* what leaves say, each for one target */
    TREE_TARGETS,
    TREE_AGGREGATE,
    TREE_TRANSFORM,
    TREE_VERDICT,
    TREE_COLUMN,      /* the one target that leaves speak of, where there is one */
    TREE_HAS_BASE,    /* every target is spoken of */
    TREE_IS_POSITIVE, /* all weights are */
    TREE_LABELS,
};

enum aggregate { SUM, AVERAGE, MINIMUM, MAXIMUM };
enum transform { NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO, PROBIT };

enum verdict {
    SCORES,     /* and no label */
    BEST,       /* label of the best score */
    SECOND,     /* one score is given, the other one follows; the label is by a threshold */
    ONE_OF_TWO, /* two scores as they are, the label by a threshold on one of them */
    POSITIVE,   /* one score; the label says whether it is above zero */
};

struct forest {
    const float *x;
    const struct tree_node *nodes;
    const int32_t *trees; /* of each the root, and its levels as far as they were counted */
    const int32_t *starts, *targets;
    const float *weights;
    const double *base;
    const int64_t *labels;
    double *sums;
    uint8_t *is_said;
    int64_t *found;
    float *scores;
    const int64_t *words;
};

static inline __attribute__((always_inline)) int
walk(const struct tree_node *nodes, uint32_t mask, const float *const *rows, uint32_t last,
     uint32_t *places, int64_t levels, uint32_t *leaves, const int sees_missing)
{
    for (int64_t left = (int64_t)mask + 1; left > 0; left -= LEVELS) {
        int64_t now = levels < 1 || levels > LEVELS ? LEVELS : levels;
        uint32_t all = IS_LEAF;
        for (; now > 0; now--)
            for (int lane = 0; lane < LANES; lane++) {
                const struct tree_node *node = nodes + places[lane];
                const uint32_t flags = node->flags;
                const uint32_t feature = flags & NUMBER;
                const float value = rows[lane][feature < last ? feature : last];
                int is_yes = value <= node->threshold;
                if (sees_missing)
                    is_yes |= (value != value) & ((flags & SENDS_MISSING) != 0);
                places[lane] = node->children[is_yes] & mask;
            }
        for (int lane = 0; lane < LANES; lane++) {
            leaves[lane] = nodes[places[lane]].flags;
            all &= leaves[lane];
        }
        if (all)
            return STATUS_OK;
        levels -= LEVELS;
    }
    return STATUS_TABLE;
}

/* Add what a leaf says to the sums of a row. */
static inline int hear(const struct forest *forest, uint32_t flags, int64_t row)
{
    const int64_t *words = forest->words;
    const int64_t leaf = flags & NUMBER, targets = words[TREE_TARGETS];
    const int64_t aggregate = words[TREE_AGGREGATE];
    double *sums = forest->sums + row * targets;
    uint8_t *is_said = forest->is_said + row * targets;
    if (leaf >= words[TREE_LEAVES])
        return STATUS_TABLE;
    const int64_t first = forest->starts[leaf], end = forest->starts[leaf + 1];
    if (first < 0 || end > words[TREE_ENTRIES])
        return STATUS_TABLE;
    for (int64_t entry = first; entry < end; entry++) {
        const uint32_t target = (uint32_t)forest->targets[entry];
        const double weight = (double)forest->weights[entry];
        if (target >= targets)
            return STATUS_TABLE;
        if (aggregate <= AVERAGE)
            sums[target] += weight;
        else if (!is_said[target] || weight != weight
                 || (aggregate == MINIMUM ? weight < sums[target] : weight > sums[target]))
            sums[target] = weight;
        is_said[target] = 1;
    }
    return STATUS_OK;
}

static double logistic(double score)
{
    const double small = 1.0 / (1.0 + exp(-fabs(score)));
    return score < 0.0 ? 1.0 - small : small;
}

/* Approximates the normal distribution's quantiles; infinite at 0 and 1. Source: Winitzki 2008. */
static double probit(double score)
{
    const double x = score * 2.0 - 1.0, logarithm = log((1.0 - x) * (1.0 + x));
    const double pi = 3.14159265358979323846;
    const double half = 2.0 / (pi * 0.147) + 0.5 * logarithm;
    const double sign = x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x;
    return 1.41421356 * (sign * sqrt(-half + sqrt(half * half - logarithm / 0.147)));
}

static void transform_row(double *scores, int64_t count, int64_t transform)
{
    double highest = scores[0], total = 0.0;
    if (transform == LOGISTIC || transform == PROBIT)
        for (int64_t index = 0; index < count; index++)
            scores[index] = transform == PROBIT ? probit(scores[index]) : logistic(scores[index]);
    if (transform != SOFTMAX && transform != SOFTMAX_ZERO)
        return;
    for (int64_t index = 1; index < count; index++)
        if (!(scores[index] <= highest))
            highest = scores[index];
    for (int64_t index = 0; index < count; index++) {
        const int is_kept = transform == SOFTMAX_ZERO && fabs(scores[index]) <= 1e-7;
        scores[index] = is_kept ? scores[index] * exp(-highest) : exp(scores[index] - highest);
        total += scores[index];
    }
    for (int64_t index = 0; index < count; index++)
        scores[index] /= total == 0.0 ? 1.0 : total;
}

/* The first of the best scores that leaves speak of; a NaN is the best. */
static int64_t best_of(const double *scores, const uint8_t *is_said, int64_t count, int has_base)
{
    double best = is_said[0] || has_base ? scores[0] : -INFINITY;
    int64_t found = 0;
    for (int64_t index = 1; index < count; index++) {
        const double score = is_said[index] || has_base ? scores[index] : -INFINITY;
        if (best == best && !(score <= best)) {
            best = score;
            found = index;
        }
    }
    return found;
}

static void judge(const struct forest *forest, int64_t row)
{
    const int64_t *words = forest->words;
    const int64_t targets = words[TREE_TARGETS], column = words[TREE_COLUMN];
    const int64_t verdict = words[TREE_VERDICT], transform = words[TREE_TRANSFORM];
    const int is_positive = words[TREE_IS_POSITIVE] != 0;
    double *sums = forest->sums + row * targets;
    float *scores = forest->scores + row * targets;

    for (int64_t target = 0; target < targets; target++) {
        if (words[TREE_AGGREGATE] == AVERAGE)
            sums[target] /= words[TREE_COUNT] ? (double)words[TREE_COUNT] : 1.0;
        sums[target] += forest->base[target];
    }
    if (verdict == BEST)
        forest->found[row] = forest->labels[best_of(sums, forest->is_said + row * targets, targets,
                                                    words[TREE_HAS_BASE] != 0)];
    else if (verdict == SECOND || verdict == ONE_OF_TWO)
        forest->found[row] = forest->labels[sums[column] > (is_positive ? 0.5 : 0.0)];
    else if (verdict == POSITIVE)
        forest->found[row] = sums[column] > 0.0;
    if (verdict == SECOND) {
        const double score = sums[column];
        const int is_share = transform == LOGISTIC;
        sums[0] = is_share ? logistic(-score) : is_positive ? 1.0 - score : -score;
        sums[1] = is_share ? logistic(score) : score;
    } else
        transform_row(sums, targets, transform);
    for (int64_t target = 0; target < targets; target++)
        scores[target] = (float)sums[target];
}

VECTOR_CLONES static int has_missing(const float *x, int64_t count)
{
    int found = 0;
#pragma omp simd reduction(| : found)
    for (int64_t index = 0; index < count; index++)
        found |= x[index] != x[index];
    return found;
}

static inline __attribute__((always_inline)) int
walk_block(const struct forest *forest, int64_t first, int64_t rows, const char *stop,
           const int sees_missing)
{
    const int64_t *words = forest->words, trees = words[TREE_COUNT];
    const int64_t features = words[TREE_FEATURES], whole = rows - rows % LANES;
    const uint32_t mask = (uint32_t)(words[TREE_NODES] - 1), last = (uint32_t)(features - 1);
    const float *x = forest->x + first * features, *sources[LANES];
    uint32_t places[LANES], leaves[LANES];
    int status = STATUS_OK;

    for (int64_t tree = 0; whole > 0 && tree < trees; tree++) {
        if (is_stopped(stop))
            return STATUS_STOPPED;
        for (int64_t row = 0; row < whole; row += LANES) {
            for (int lane = 0; lane < LANES; lane++) {
                sources[lane] = x + (row + lane) * features;
                places[lane] = (uint32_t)forest->trees[2 * tree] & mask;
            }
            status = walk(forest->nodes, mask, sources, last, places,
                          forest->trees[2 * tree + 1], leaves, sees_missing);
            for (int lane = 0; lane < LANES && status == STATUS_OK; lane++)
                status = hear(forest, leaves[lane], first + row + lane);
            if (status != STATUS_OK)
                return status;
        }
    }
    for (int64_t row = whole; row < rows; row++) {
        for (int lane = 0; lane < LANES; lane++)
            sources[lane] = x + row * features;
        for (int64_t tree = 0; tree < trees; tree += LANES) {
            int64_t levels = 0;
            if (is_stopped(stop))
                return STATUS_STOPPED;
            for (int lane = 0; lane < LANES; lane++) {
                const int32_t *own = forest->trees + 2 * (tree + lane < trees ? tree + lane : tree);
                places[lane] = (uint32_t)own[0] & mask;
                levels = own[1] > levels ? own[1] : levels;
            }
            status = walk(forest->nodes, mask, sources, last, places, levels, leaves, sees_missing);
            for (int lane = 0; lane < LANES && tree + lane < trees && status == STATUS_OK; lane++)
                status = hear(forest, leaves[lane], first + row);
            if (status != STATUS_OK)
                return status;
        }
    }
    return STATUS_OK;
}

static int run_block(const struct forest *forest, int64_t first, int64_t rows, const char *stop)
{
    const int64_t features = forest->words[TREE_FEATURES], targets = forest->words[TREE_TARGETS];
    int status;

    memset(forest->sums + first * targets, 0, (size_t)(rows * targets) * sizeof(double));
    memset(forest->is_said + first * targets, 0, (size_t)(rows * targets));
    if (has_missing(forest->x + first * features, rows * features))
        status = walk_block(forest, first, rows, stop, 1);
    else
        status = walk_block(forest, first, rows, stop, 0);
    for (int64_t row = first; row < first + rows && status == STATUS_OK; row++)
        judge(forest, row);
    return status;
}

/* data: x (rows, features) of float32; the nodes, four words each; of each tree the root and the
 * levels; where the entries of each leaf start, one more than there are leaves; targets and
 * weights (float32) of the entries; what is added to each target (float64); labels (int64); sums
 * (float64) and marks (bytes), (rows, targets) each, overwritten; labels of the rows (int64), but
 * for verdict SCORES; scores (rows, targets), float32. Other whole numbers have 32 bits.
 * parameters: see tree_word. */
static int tree_ensemble(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t rows = parameters[TREE_ROWS], features = parameters[TREE_FEATURES];
    const int has_labels = parameters[TREE_VERDICT] != SCORES;
    const struct forest forest = {
        (const float *)data[0],
        (const struct tree_node *)data[1],
        (const int32_t *)data[2],
        (const int32_t *)data[3],
        (const int32_t *)data[4],
        (const float *)data[5],
        (const double *)data[6],
        (const int64_t *)data[7],
        (double *)data[8],
        (uint8_t *)data[9],
        has_labels ? (int64_t *)data[10] : NULL,
        (float *)data[has_labels ? 11 : 10],
        parameters,
    };
    int64_t block = BLOCK_BYTES / (4 * features) / LANES * LANES;
    block = block < 2 * LANES ? 2 * LANES : block > MOST_ROWS ? MOST_ROWS : block;
    const int64_t blocks = (rows + block - 1) / block;
    int worst = STATUS_OK;

#pragma omp parallel for schedule(static, 1) reduction(max : worst)                                 \
    if (blocks > 1 && rows * parameters[TREE_COUNT] >= PARALLEL_ELEMENTS / LEVELS)
    for (int64_t number = 0; number < blocks; number++) {
        const int64_t first = number * block;
        const int64_t count = rows - first < block ? rows - first : block;
        const int status = is_stopped(stop) ? STATUS_STOPPED
                                            : run_block(&forest, first, count, stop);
        worst = status > worst ? status : worst;
    }
    return worst;
}

const struct named_kernel tree_kernels[] = {
    {"tree_ensemble", tree_ensemble},
    {NULL, NULL},
};
