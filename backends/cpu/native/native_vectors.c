/* What support vectors say of the classes of each row: scores by pairs of classes, votes, and
 * probabilities of classes that suit those of pairs.
 *
 * Source of the probabilities: "Probability Estimates for Multi-class Classification by Pairwise
 * Coupling", Wu, Lin and Weng 2004, second approach, as LIBSVM has it; in double, which they need.
 */
#include <math.h>
#include <string.h>

#include "steps.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=fast") /* sums are chains of multiply-adds */
#endif

#define LANES 8
#define MOST_ROUNDS 100
#define LEAST_ODDS 1e-7

enum vector_word {
    VECTOR_ROWS,
    VECTOR_COUNT,
    VECTOR_CLASSES,
    VECTOR_HAS_ODDS,
};

/* What all rows share. */
struct machine {
    const float *weights, *shifts, *odds;
    const int32_t *ends; /* where the vectors of each class end */
    int64_t vectors, classes, pairs;
};

static inline __attribute__((always_inline)) float dot(const float *left, const float *right,
                                                       int64_t length)
{
    float sums[LANES] = {0.0f}, total = 0.0f;
    int64_t index = 0;

    for (; index + LANES <= length; index += LANES)
        for (int lane = 0; lane < LANES; lane++)
            sums[lane] += left[index + lane] * right[index + lane];
    for (; index < length; index++)
        total += left[index] * right[index];
    for (int lane = 0; lane < LANES; lane++)
        total += sums[lane];
    return total;
}

/* Write the score of each pair of classes, above 0 where the first one is more likely. */
VECTOR_CLONES
static void score_pairs(const struct machine *machine, const float *found, float *scores)
{
    const int64_t classes = machine->classes;
    int64_t pair = 0;

    memcpy(scores, machine->shifts, (size_t)machine->pairs * sizeof *scores);
    for (int64_t first = 0; first < classes; first++)
        for (int64_t second = first + 1; second < classes; second++, pair++) {
            const int64_t of_pair[2] = {first, second}, row_of[2] = {second - 1, first};
            for (int side = 0; side < 2; side++) {
                const int64_t own = of_pair[side], end = machine->ends[own];
                const int64_t start = own > 0 ? machine->ends[own - 1] : 0;
                scores[pair] += dot(found + start,
                                    machine->weights + row_of[side] * machine->vectors + start,
                                    end - start);
            }
        }
}

/* Return the class that wins the most pairs; the first of equals. */
static int64_t winner_of(const float *scores, int64_t classes, double *votes)
{
    int64_t best = 0, pair = 0;

    memset(votes, 0, (size_t)classes * sizeof *votes);
    for (int64_t first = 0; first < classes; first++)
        for (int64_t second = first + 1; second < classes; second++, pair++)
            votes[scores[pair] > 0.0f ? first : second] += 1.0;
    for (int64_t own = 1; own < classes; own++)
        if (votes[own] > votes[best])
            best = own;
    return best;
}

/* Fill the matrix (classes, classes) of the quadratic form that probabilities make least. */
static void fill_form(const struct machine *machine, const float *scores, double *form)
{
    const int64_t classes = machine->classes;
    int64_t pair = 0;

    memset(form, 0, (size_t)(classes * classes) * sizeof *form);
    for (int64_t first = 0; first < classes; first++)
        for (int64_t second = first + 1; second < classes; second++, pair++) {
            const double sum = (double)scores[pair] * (double)machine->odds[pair]
                               + (double)machine->odds[machine->pairs + pair];
            const double large = 1.0 / (1.0 + exp(-fabs(sum)));
            double win = sum < 0.0 ? large : 1.0 - large; /* 1 - 1 / (1 + exp(-sum)) */
            win = win < LEAST_ODDS ? LEAST_ODDS : win > 1.0 - LEAST_ODDS ? 1.0 - LEAST_ODDS : win;
            form[first * classes + first] += (1.0 - win) * (1.0 - win);
            form[second * classes + second] += win * win;
            form[first * classes + second] = form[second * classes + first] = -win * (1.0 - win);
        }
}

/* Find (classes) of probabilities; `products` is room for as many. */
static void couple(const double *form, int64_t classes, double *found, double *products)
{
    const int64_t most = classes > MOST_ROUNDS ? classes : MOST_ROUNDS;

    for (int64_t own = 0; own < classes; own++)
        found[own] = 1.0 / (double)classes;
    for (int64_t round = 0; round < most; round++) {
        double total = 0.0, worst = 0.0;
        for (int64_t own = 0; own < classes; own++) {
            products[own] = 0.0;
            for (int64_t other = 0; other < classes; other++)
                products[own] += form[own * classes + other] * found[other];
            total += found[own] * products[own];
        }
        for (int64_t own = 0; own < classes; own++)
            worst = fmax(worst, fabs(products[own] - total));
        if (!(worst >= 0.005 / (double)classes))
            return;
        for (int64_t own = 0; own < classes; own++) {
            const double *row = form + own * classes, diagonal = row[own];
            const double step = (total - products[own]) / diagonal, whole = 1.0 + step;
            found[own] += step;
            total = (total + step * (step * diagonal + 2.0 * products[own])) / (whole * whole);
            for (int64_t other = 0; other < classes; other++) {
                found[other] /= whole;
                products[other] = (products[other] + step * row[other]) / whole;
            }
        }
    }
}

/* data: kernel values (rows, vectors), weights (classes - 1, vectors), float32; ends of the classes'
 * vectors (classes), int32; shifts (pairs), float32; with odds, their factors and shifts (2, pairs),
 * float32; labels (classes), int64; room for pairs + classes (classes + 2) doubles; results: labels
 * (rows), int64, and float32 (rows, classes) with odds or for two classes, else (rows, pairs).
 * parameters: see vector_word. Ends ascend, and the last is the number of vectors. */
static int vote_by_pairs(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t rows = parameters[VECTOR_ROWS], classes = parameters[VECTOR_CLASSES];
    const int64_t has_odds = parameters[VECTOR_HAS_ODDS], pairs = classes * (classes - 1) / 2;
    const int64_t width = has_odds || classes == 2 ? classes : pairs;
    const float *found = (const float *)*data++;
    struct machine machine = {.vectors = parameters[VECTOR_COUNT], .classes = classes,
                              .pairs = pairs};

    machine.weights = (const float *)*data++;
    machine.ends = (const int32_t *)*data++;
    machine.shifts = (const float *)*data++;
    machine.odds = has_odds ? (const float *)*data++ : NULL;
    const int64_t *labels = (const int64_t *)*data++;
    double *room = (double *)*data++;
    int64_t *best = (int64_t *)*data++;
    float *target = (float *)*data;
    float *scores = (float *)room;
    double *form = room + pairs, *shares = form + classes * classes, *products = shares + classes;

    for (int64_t own = 0; own < classes; own++)
        if (machine.ends[own] < (own > 0 ? machine.ends[own - 1] : 0)
            || machine.ends[own] > machine.vectors)
            return STATUS_TABLE;
    for (int64_t row = 0; row < rows && !is_stopped(stop); row++, target += width) {
        score_pairs(&machine, found + row * machine.vectors, scores);
        best[row] = labels[winner_of(scores, classes, products)];
        if (has_odds) {
            fill_form(&machine, scores, form);
            couple(form, classes, shares, products);
            for (int64_t own = 0; own < classes; own++)
                target[own] = (float)shares[own];
        } else if (classes == 2) {
            target[0] = -scores[0];
            target[1] = scores[0];
        } else
            memcpy(target, scores, (size_t)pairs * sizeof *scores);
    }
    return STATUS_OK;
}

const struct named_kernel vector_kernels[] = {
    {"vote_by_pairs", vote_by_pairs},
    {NULL, NULL},
};
