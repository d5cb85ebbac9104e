/* Recurrent layers: what LSTM, GRU and RNN make of their own states, one time step after the other.
 *
 * What the input adds to the gates has been computed for all steps. Hidden units are cut into blocks
 * of WIDE; of a block all gates lie side by side, in weights and in what the input adds, so that a
 * block goes from its sums to its new state without memory in between. Units that fill the last
 * block up have weights of zeros.
 *
 * Directions, and sequences in portions, are walks that know nothing of each other: threads take them
 * from the first step to the last. Otherwise threads share each round, a step or a phase of one: each
 * has blocks of its own, whose weights stay in its cache, and takes over what those have not begun who
 * are not there. So nobody waits for a thread that has no CPU, unless it lost that amid a block.
 */
#define _GNU_SOURCE
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "steps.h"
#include "teams/team.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=fast") /* sums and functions are chains of multiply-adds */
#endif

#include "vector_math.h"

#define WIDE 16
#define TOGETHER 3 /* sequences that read weights together, two gates at a time */
#define MOST_GATES 4

enum cell { LSTM, GRU, LATE_GRU, RNN_TANH, RNN_RELU, RNN_SIGMOID };

/* Places of the gates that ONNX gives them. */
enum lstm_gate { LSTM_INPUT, LSTM_OUTPUT, LSTM_FORGET, LSTM_CELL };
enum gru_gate { GRU_UPDATE, GRU_RESET, GRU_HIDDEN, GRU_RECURRENT };

enum recurrent_word {
    RECURRENT_CELL,
    RECURRENT_TIME,
    RECURRENT_BATCH,
    RECURRENT_HIDDEN,
    RECURRENT_DIRECTIONS,
    RECURRENT_BACKWARDS,  /* bit d is set where direction d begins at the end */
    RECURRENT_GATES,      /* strides of time and batch, in floats */
    RECURRENT_RESULT = 8, /* strides of time, direction and batch, in floats */
    RECURRENT_HAS = 11,   /* start states, a result, peepholes, lengths: 0 or 1 each */
    RECURRENT_IS_COUPLED = 15, /* LSTM: what is not forgotten is not taken in */
    RECURRENT_CLIP,       /* the bits of a double: the most that goes into a gate */
    RECURRENT_PARTS,      /* threads that it is worth waking */
    RECURRENT_ROWS,       /* sequences of a walk */
};
enum { HAS_START, HAS_RESULT, HAS_PEEPHOLES, HAS_LENGTHS };

/* Slots of the states: (slot, direction, batch, hidden units in whole blocks). */
enum slot { STATE, STATE_BEFORE, MEMORY, RESET_STATE };
#define UPDATE MEMORY /* of a GRU, between its two phases */

/* Vectors that registers hold since AVX2: the compiler keeps longer ones in memory there. */
typedef float part __attribute__((vector_size(32)));
#define PARTS 2 /* of a block */
#define REGISTERS 12 /* that sums take; others hold what is multiplied */
#define UNROLLED _Pragma("GCC unroll 16")

struct recurrent {
    const float *gates, *weights, *late, *peepholes;
    const int32_t *lengths;
    float *states, *result;
    const int64_t *words;
    int64_t padded;
    float clip;
};

INLINE float bounded(float x, float most)
{
    return x > most ? most : x < -most ? -most : x;
}

/* Add to `sums` (rows, gates of WIDE) products of rows with the weights of `gates` gates, which lie
 * `step` floats apart from one input to the next. `chains` sums are kept apart for each. */
INLINE void add_products(const float *const *rows, const float *weights, int64_t inner,
                         int64_t step, float *sums, const int row_count, const int gates,
                         const int chains)
{
    part found[REGISTERS], line;
    const int parts = gates * PARTS;
    int64_t place = 0;

    UNROLLED
    for (int index = 0; index < row_count * parts * chains; index++)
        found[index] = (part){0.0f};
    for (; place + chains <= inner; place += chains)
        UNROLLED
        for (int chain = 0; chain < chains; chain++)
            UNROLLED
            for (int index = 0; index < parts; index++) {
                memcpy(&line, weights + (place + chain) * step + index * WIDE / PARTS, sizeof line);
                UNROLLED
                for (int row = 0; row < row_count; row++)
                    found[(chain * row_count + row) * parts + index]
                        += rows[row][place + chain] * line;
            }
    for (; place < inner; place++)
        UNROLLED
        for (int index = 0; index < parts; index++) {
            memcpy(&line, weights + place * step + index * WIDE / PARTS, sizeof line);
            UNROLLED
            for (int row = 0; row < row_count; row++)
                found[row * parts + index] += rows[row][place] * line;
        }
    UNROLLED
    for (int row = 0; row < row_count; row++)
        UNROLLED
        for (int index = 0; index < parts; index++) {
            float *target = sums + row * MOST_GATES * WIDE + index * WIDE / PARTS;
            memcpy(&line, target, sizeof line);
            UNROLLED
            for (int chain = 0; chain < chains; chain++)
                line += found[(chain * row_count + row) * parts + index];
            memcpy(target, &line, sizeof line);
        }
}

/* Add products of a state with the first `gates` gates that `weights` names. */
INLINE void add_gates(const float *const *rows, const float *weights, int64_t inner, int64_t step,
                      float *sums, const int row_count, const int gates)
{
    if (row_count == 1) {
        add_products(rows, weights, inner, step, sums, 1, gates, gates == 4 ? 1 : gates > 1 ? 2 : 4);
        return;
    }
    for (int gate = 0; gate + 2 <= gates; gate += 2)
        add_products(rows, weights + gate * WIDE, inner, step, sums + gate * WIDE, TOGETHER, 2, 1);
    if (gates % 2)
        add_products(rows, weights + (gates - 1) * WIDE, inner, step, sums + (gates - 1) * WIDE,
                     TOGETHER, 1, 2);
}

/* Bound WIDE sums, and take their function in place. */
INLINE void take_sigmoid(float *sums, float most)
{
#pragma omp simd
    for (int lane = 0; lane < WIDE; lane++)
        sums[lane] = fast_sigmoid(bounded(sums[lane], most));
}

INLINE void take_tanh(float *sums, float most)
{
#pragma omp simd
    for (int lane = 0; lane < WIDE; lane++)
        sums[lane] = fast_tanh(bounded(sums[lane], most));
}

INLINE void add_scaled(float *sums, const float *factors, const float *added)
{
#pragma omp simd
    for (int lane = 0; lane < WIDE; lane++)
        sums[lane] += factors[lane] * added[lane];
}

INLINE void finish_lstm(float (*sums)[WIDE], float *memory, float *state, const float *peepholes,
                        int64_t padded, float most, int64_t is_coupled)
{
    float *in = sums[LSTM_INPUT], *kept = sums[LSTM_FORGET], *made = sums[LSTM_CELL];
    float *out = sums[LSTM_OUTPUT];

    if (peepholes != NULL) {
        add_scaled(in, peepholes, memory);
        add_scaled(kept, peepholes + 2 * padded, memory);
    }
    take_sigmoid(in, most);
    take_sigmoid(kept, most);
    take_tanh(made, most);
    if (is_coupled)
        for (int lane = 0; lane < WIDE; lane++)
            kept[lane] = 1.0f - in[lane];
#pragma omp simd
    for (int lane = 0; lane < WIDE; lane++)
        memory[lane] = made[lane] = kept[lane] * memory[lane] + in[lane] * made[lane];
    if (peepholes != NULL)
        add_scaled(out, peepholes + padded, made);
    take_sigmoid(out, most);
    take_tanh(made, INFINITY);
#pragma omp simd
    for (int lane = 0; lane < WIDE; lane++)
        state[lane] = out[lane] * made[lane];
}

INLINE void finish_rnn(float *sums, float *state, float most, int64_t cell)
{
    if (cell == RNN_TANH)
        take_tanh(sums, most);
    else if (cell == RNN_SIGMOID)
        take_sigmoid(sums, most);
    else
        for (int lane = 0; lane < WIDE; lane++) {
            const float sum = bounded(sums[lane], most);
            sums[lane] = sum < 0.0f ? 0.0f : sum;
        }
    memcpy(state, sums, WIDE * sizeof *sums);
}

/* Write the state between what is made and what was there before. */
INLINE void mix(const float *update, float *made, const float *before, float *after, float most)
{
    take_tanh(made, most);
#pragma omp simd
    for (int lane = 0; lane < WIDE; lane++)
        after[lane] = (1.0f - update[lane]) * made[lane] + update[lane] * before[lane];
}

/* What one call works on: a block of a direction in one step, for some sequences. */
struct place {
    int64_t direction, block, first, end, step, phase;
    const float *before;
    float *after;
};

static inline float *slot_of(const struct recurrent *layer, int64_t slot)
{
    const int64_t *words = layer->words;

    return layer->states
           + slot * words[RECURRENT_DIRECTIONS] * words[RECURRENT_BATCH] * layer->padded;
}

/* Where a sequence's row of a direction lies in a slot. */
static inline int64_t row_of(const struct recurrent *layer, int64_t direction, int64_t sequence)
{
    return (direction * layer->words[RECURRENT_BATCH] + sequence) * layer->padded;
}

static inline int64_t length_of(const struct recurrent *layer, int64_t sequence)
{
    return layer->lengths == NULL ? layer->words[RECURRENT_TIME] : layer->lengths[sequence];
}

/* Write a block of the result, whose last block may have fewer units. */
INLINE void write_result(const struct recurrent *layer, const struct place *place,
                         int64_t sequence, int64_t time, const float *state)
{
    const int64_t *words = layer->words, *strides = words + RECURRENT_RESULT;
    const int64_t first = place->block * WIDE, rest = words[RECURRENT_HIDDEN] - first;
    float *target = layer->result + time * strides[0] + place->direction * strides[1]
                    + sequence * strides[2] + first;

    if (rest >= WIDE)
        memcpy(target, state, WIDE * sizeof *state);
    else
        memcpy(target, state, (size_t)rest * sizeof *state);
}

/* Keep the state of a sequence that has ended; its result is 0. */
static void hold(const struct recurrent *layer, const struct place *place, int64_t sequence)
{
    static const float zeros[WIDE];
    const int64_t row = row_of(layer, place->direction, sequence) + place->block * WIDE;

    memcpy(place->after + row, place->before + row, WIDE * sizeof *zeros);
    if (layer->result != NULL)
        write_result(layer, place, sequence, place->step, zeros);
}

/* Take a step with one sequence, or with TOGETHER of them. */
INLINE void advance(const struct recurrent *layer, const struct place *place,
                    const int64_t *sequences, const int row_count, const int64_t cell)
{
    const int64_t *words = layer->words;
    const int64_t gates = cell == LSTM ? 4 : cell <= LATE_GRU ? 3 : 1;
    const int64_t hidden = words[RECURRENT_HIDDEN], step = gates * WIDE;
    const int64_t unit = place->direction * (layer->padded / WIDE) + place->block;
    const int64_t is_late_phase = cell == GRU && place->phase == 1;
    const float *weights = layer->weights + unit * hidden * step;
    const float most = layer->clip;
    float *memory = slot_of(layer, MEMORY), *reset = slot_of(layer, RESET_STATE);
    float sums[TOGETHER][MOST_GATES][WIDE];
    const float *inputs[TOGETHER];
    int64_t rows[TOGETHER], times[TOGETHER];

    for (int row = 0; row < row_count; row++) {
        const int64_t sequence = sequences[row], start = row_of(layer, place->direction, sequence);
        const int64_t is_backwards = words[RECURRENT_BACKWARDS] >> place->direction & 1;
        times[row] = is_backwards ? length_of(layer, sequence) - 1 - place->step : place->step;
        const float *given = layer->gates + times[row] * words[RECURRENT_GATES]
                             + sequence * words[RECURRENT_GATES + 1] + unit * step;
        memcpy(sums[row], given, (size_t)step * sizeof *given);
        if (cell == LATE_GRU) {
            memcpy(sums[row][GRU_RECURRENT], sums[row][GRU_HIDDEN], sizeof sums[row][0]);
            memcpy(sums[row][GRU_HIDDEN], layer->late + unit * WIDE, sizeof sums[row][0]);
        }
        rows[row] = start + place->block * WIDE;
        inputs[row] = (is_late_phase ? reset : place->before) + start;
    }
    if (cell == LSTM)
        add_gates(inputs, weights, hidden, step, sums[0][0], row_count, 4);
    else if (cell == LATE_GRU)
        add_gates(inputs, weights, hidden, step, sums[0][0], row_count, 3);
    else if (is_late_phase)
        add_gates(inputs, weights + GRU_HIDDEN * WIDE, hidden, step, sums[0][GRU_HIDDEN], row_count,
                  1);
    else
        add_gates(inputs, weights, hidden, step, sums[0][0], row_count, cell == GRU ? 2 : 1);
    for (int row = 0; row < row_count; row++) {
        const float *before = place->before + rows[row];
        float *after = place->after + rows[row], *kept = memory + rows[row];
        if (cell == LSTM) {
            const float *peepholes = layer->peepholes;
            if (peepholes != NULL)
                peepholes += place->direction * 3 * layer->padded + place->block * WIDE;
            finish_lstm(sums[row], kept, after, peepholes, layer->padded, most,
                        words[RECURRENT_IS_COUPLED]);
        } else if (cell == LATE_GRU) {
            float *update = sums[row][GRU_UPDATE], *share = sums[row][GRU_RESET];
            take_sigmoid(update, most);
            take_sigmoid(share, most);
            add_scaled(sums[row][GRU_RECURRENT], share, sums[row][GRU_HIDDEN]);
            mix(update, sums[row][GRU_RECURRENT], before, after, most);
        } else if (is_late_phase)
            mix(kept, sums[row][GRU_HIDDEN], before, after, most);
        else if (cell == GRU) {
            float *update = sums[row][GRU_UPDATE], *share = sums[row][GRU_RESET];
            take_sigmoid(update, most);
            take_sigmoid(share, most);
            memcpy(kept, update, WIDE * sizeof *update);
#pragma omp simd
            for (int lane = 0; lane < WIDE; lane++)
                reset[rows[row] + lane] = share[lane] * before[lane];
        }
        else
            finish_rnn(sums[row][0], after, most, cell);
        if (layer->result != NULL && (cell != GRU || is_late_phase))
            write_result(layer, place, sequences[row], times[row], after);
    }
}

INLINE void walk_block(const struct recurrent *layer, const struct place *place, const int64_t cell)
{
    const int is_last = cell != GRU || place->phase == 1;
    int64_t group[TOGETHER];
    int count = 0;

    for (int64_t sequence = place->first; sequence < place->end; sequence++) {
        if (place->step >= length_of(layer, sequence)) {
            if (is_last)
                hold(layer, place, sequence);
            continue;
        }
        group[count++] = sequence;
        if (count == TOGETHER) {
            advance(layer, place, group, TOGETHER, cell);
            count = 0;
        }
    }
    for (int index = 0; index < count; index++)
        advance(layer, place, group + index, 1, cell);
}

#define WALK_BLOCK(name, cell)                                                                     \
    VECTOR_CLONES static void name(const struct recurrent *layer, const struct place *place)       \
    {                                                                                              \
        walk_block(layer, place, cell);                                                            \
    }

WALK_BLOCK(walk_lstm, LSTM)
WALK_BLOCK(walk_gru, GRU)
WALK_BLOCK(walk_late_gru, LATE_GRU)
WALK_BLOCK(walk_rnn, layer->words[RECURRENT_CELL])

typedef void (*walker)(const struct recurrent *layer, const struct place *place);

static inline int64_t phases_of(const struct recurrent *layer)
{
    return layer->words[RECURRENT_CELL] == GRU ? 2 : 1;
}

/* Take a phase of a step with one of all directions' blocks in a row, for some sequences. */
static void walk(const struct recurrent *layer, int64_t unit, int64_t first, int64_t end,
                 int64_t round)
{
    static const walker walkers[] = {walk_lstm, walk_gru, walk_late_gru,
                                     walk_rnn,  walk_rnn, walk_rnn};
    const int64_t blocks = layer->padded / WIDE, phases = phases_of(layer);
    const int64_t step = round / phases, left = layer->words[RECURRENT_TIME] - step;
    /* The last step writes to the slot STATE. */
    const struct place place = {
        .direction = unit / blocks,
        .block = unit % blocks,
        .first = first,
        .end = end,
        .step = step,
        .phase = round % phases,
        .before = slot_of(layer, left % 2),
        .after = slot_of(layer, (left + 1) % 2),
    };

    walkers[layer->words[RECURRENT_CELL]](layer, &place);
}

/* Take whole walks, as long as there are any that nobody has begun. */
static void take_walks(const struct recurrent *layer, atomic_llong *begun, const char *stop)
{
    const int64_t *words = layer->words, blocks = layer->padded / WIDE;
    const int64_t batch = words[RECURRENT_BATCH], rows = words[RECURRENT_ROWS];
    const int64_t portions = (batch + rows - 1) / rows;
    const int64_t rounds = words[RECURRENT_TIME] * phases_of(layer);

    for (;;) {
        const int64_t taken = atomic_fetch_add(begun, 1);
        const int64_t start = taken / portions * blocks, first = taken % portions * rows;
        const int64_t end = first + rows < batch ? first + rows : batch;
        if (taken >= words[RECURRENT_DIRECTIONS] * portions)
            return;
        for (int64_t round = 0; round < rounds && !is_stopped(stop); round++)
            for (int64_t unit = start; unit < start + blocks; unit++)
                walk(layer, unit, first, end, round);
    }
}

#define MOST_SHARES 64
#define LINE 64         /* bytes that processors hand to each other */
#define SHORT_WAIT 100  /* looks, before a thread that is there is taken for one that lost its CPU */
#define LONG_WAIT 4000  /* some 100 us */
#define LOOKS_PER_YIELD 64
#define WORK_OF_A_LOOK 256 /* multiply-adds, about */

/* What a thread has to do with rounds. Counts rise over all rounds, so nothing is ever set back. */
struct share {
    _Alignas(LINE) atomic_llong claimed; /* blocks of its own that somebody has begun */
    atomic_int is_here;
    _Alignas(LINE) atomic_llong ended; /* blocks that it has computed, whosever they were */
    int64_t first, count;              /* its own blocks */
};

struct rounds {
    const struct recurrent *layer;
    struct share *shares;
    int64_t share_count, units, count;
};

/* Which round it is: one begins when all blocks of that before have ended. */
static inline int64_t round_of(const struct rounds *rounds)
{
    int64_t ended = 0;

    for (int64_t index = 0; index < rounds->share_count; index++)
        ended += atomic_load_explicit(&rounds->shares[index].ended, memory_order_acquire);
    return ended / rounds->units;
}

/* Compute a block of a thread's that nobody has begun in this round; 0 if there is none. */
static int take_block(const struct rounds *rounds, struct share *share, int64_t round,
                      struct share *own)
{
    const int64_t batch = rounds->layer->words[RECURRENT_BATCH];
    long long claimed = atomic_load_explicit(&share->claimed, memory_order_relaxed);

    while (claimed < (round + 1) * share->count)
        if (atomic_compare_exchange_weak(&share->claimed, &claimed, claimed + 1)) {
            walk(rounds->layer, share->first + claimed - round * share->count, 0, batch, round);
            atomic_store_explicit(
                &own->ended, atomic_load_explicit(&own->ended, memory_order_relaxed) + 1,
                memory_order_release);
            return 1;
        }
    return 0;
}

/* Share rounds with others from whichever it is to the last. A helper that waits for long goes: then
 * somebody has lost the CPU amid a block, and the caller waits for that alone. */
static void share_rounds(const struct rounds *rounds, int64_t thread, const char *stop)
{
    const int64_t *words = rounds->layer->words;
    const int64_t work = WIDE * MOST_GATES * words[RECURRENT_HIDDEN] * words[RECURRENT_BATCH];
    const int64_t short_wait = SHORT_WAIT + work / WORK_OF_A_LOOK;
    struct share *own = rounds->shares + thread;
    int64_t looks = 0, round;

    atomic_store(&own->is_here, 1);
    while ((round = round_of(rounds)) < rounds->count && !is_stopped(stop)) {
        int has_taken = 0;
        while (take_block(rounds, own, round, own))
            has_taken = 1;
        for (int64_t index = 0; index < rounds->share_count && !has_taken; index++) {
            struct share *other = rounds->shares + index;
            if (looks > short_wait || !atomic_load_explicit(&other->is_here, memory_order_relaxed))
                has_taken = take_block(rounds, other, round, own);
        }
        looks = has_taken ? 0 : looks + 1;
        team_rest();
        if (looks > short_wait + LONG_WAIT && thread > 0)
            break;
        if (looks > short_wait && looks % LOOKS_PER_YIELD == 0)
            sched_yield(); /* perhaps it is this CPU that the other one wants */
    }
    atomic_store(&own->is_here, 0);
}

/* Have threads take walks if there are enough of them, else share rounds. */
static void take_steps(const struct recurrent *layer, const char *stop)
{
    const int64_t *words = layer->words, rows = words[RECURRENT_ROWS];
    const int64_t walks = words[RECURRENT_DIRECTIONS] * ((words[RECURRENT_BATCH] + rows - 1) / rows);
    const int64_t units = words[RECURRENT_DIRECTIONS] * layer->padded / WIDE;
    const int64_t most = team_threads() < MOST_SHARES ? team_threads() : MOST_SHARES;
    const int64_t parts = words[RECURRENT_PARTS] < most ? words[RECURRENT_PARTS] : most;

    if (walks >= parts) {
        atomic_llong begun = 0;
#pragma omp parallel num_threads((int)parts) if (parts > 1)
        take_walks(layer, &begun, stop);
        return;
    }
    struct share shares[MOST_SHARES];
    for (int64_t index = 0; index < parts; index++) {
        const int64_t first = units * index / parts;
        shares[index] = (struct share){.first = first, .count = units * (index + 1) / parts - first};
    }
    const struct rounds rounds = {layer, shares, parts, units,
                                  words[RECURRENT_TIME] * phases_of(layer)};
#pragma omp parallel num_threads((int)parts)
    share_rounds(&rounds, team_part(), stop);
}

/* data: what the input adds to the gates, float32 by the strides of RECURRENT_GATES, for each time and
 * sequence (directions, blocks, gates, WIDE); weights (directions, blocks, hidden, gates, WIDE);
 * LATE_GRU: its bias behind the weights (directions, blocks, WIDE); peepholes (directions, 3, padded)
 * and lengths (batch), int32, where there are any; states (see enum slot), of which the first, and an
 * LSTM's MEMORY, hold the start if there is one, and the end afterwards; the result, if it is wanted.
 * Nothing overlaps. parameters: see recurrent_word. */
static int recurrent(char *const *data, const int64_t *parameters, const char *stop)
{
    const int64_t cell = parameters[RECURRENT_CELL], hidden = parameters[RECURRENT_HIDDEN];
    const int64_t directions = parameters[RECURRENT_DIRECTIONS], time = parameters[RECURRENT_TIME];
    const int64_t batch = parameters[RECURRENT_BATCH];
    const int64_t *has = parameters + RECURRENT_HAS;
    struct recurrent layer = {.words = parameters};
    double clip;

    memcpy(&clip, parameters + RECURRENT_CLIP, sizeof clip);
    layer.clip = (float)clip;
    layer.padded = (hidden + WIDE - 1) / WIDE * WIDE;
    layer.gates = (const float *)*data++;
    layer.weights = (const float *)*data++;
    layer.late = cell == LATE_GRU ? (const float *)*data++ : NULL;
    layer.peepholes = has[HAS_PEEPHOLES] ? (const float *)*data++ : NULL;
    layer.lengths = has[HAS_LENGTHS] ? (const int32_t *)*data++ : NULL;
    layer.states = (float *)*data++;
    layer.result = has[HAS_RESULT] ? (float *)*data : NULL;
    if (layer.lengths != NULL)
        for (int64_t sequence = 0; sequence < batch; sequence++)
            if (layer.lengths[sequence] < 0 || layer.lengths[sequence] > time)
                return STATUS_INDEX;
    const size_t slot_bytes = (size_t)(directions * batch * layer.padded) * sizeof(float);
    if (!has[HAS_START]) {
        memset(slot_of(&layer, STATE), 0, slot_bytes);
        if (cell == LSTM)
            memset(slot_of(&layer, MEMORY), 0, slot_bytes);
    }
    if (time % 2)
        memcpy(slot_of(&layer, STATE_BEFORE), slot_of(&layer, STATE), slot_bytes);
    take_steps(&layer, stop);
    return STATUS_OK;
}

const struct named_kernel recurrent_kernels[] = {
    {"recurrent", recurrent},
    {NULL, NULL},
};
