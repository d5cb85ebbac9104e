/* Teams without oneDNN and Python: each check ends the process where it finds what should not be. The team
 * is a part of this file, so that a check can begin at any region.
 *
 *     team_check NAME
 */
#include "team.c"

#include "openmp_calls.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define CHECK(truth) \
    if (!(truth)) { \
        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #truth); \
        exit(1); \
    }
#define MOST 16

static int thread_total(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static void wait_for_threads(int count)
{
    while (thread_total() != count)
        sched_yield();
}

struct seen {
    atomic_int times[MOST];
    int count, barriers;
    atomic_int arrived;
};

static void note(void *data)
{
    struct seen *seen = data;
    CHECK(team_part_count() == seen->count);
    for (int round = 1; round <= seen->barriers; round++) {
        atomic_fetch_add(&seen->arrived, 1);
        team_barrier();
        CHECK(atomic_load(&seen->arrived) >= round * seen->count);
        team_barrier();
    }
    atomic_fetch_add(&seen->times[team_part()], 1);
}

static void region(int count, int barriers)
{
    struct seen seen = {.count = count, .barriers = barriers};
    team_begin(note, &seen, count);
    note(&seen);
    team_end();
    CHECK(team_part_count() == 1);
    for (int part = 0; part < MOST; part++)
        CHECK(atomic_load(&seen.times[part]) == (part < count));
}

static void *regions_of_all_sizes(void *rounds)
{
    for (long round = 0; round < *(const long *)rounds; round++)
        region(1 + (int)(round * 7 % MOST), round % 5 == 0 ? 2 : 0);
    return NULL;
}

/* Each part once, by several callers at a time, with more threads than CPUs. */
static void parts(void)
{
    long rounds = 600;
    pthread_t threads[3];
    for (int index = 0; index < 3; index++)
        pthread_create(&threads[index], NULL, regions_of_all_sizes, &rounds);
    for (int index = 0; index < 3; index++)
        pthread_join(threads[index], NULL);
}

static void *one_team(void *unused)
{
    (void)unused;
    const int before = thread_total();
    CHECK(team_start(1) == 0 && thread_total() == before);
    CHECK(team_start(4) == 0 && thread_total() == before + 3);
    CHECK(team_start(3) == 0 && thread_total() == before + 3);
    region(4, 1);
    region(2, 0);
    CHECK(thread_total() == before + 3);
    return NULL;
}

/* Helpers are there once they are asked for, and end with the thread that they help. */
static void threads(void)
{
    pthread_t thread;
    const int before = thread_total();
    for (int round = 0; round < 20; round++) {
        pthread_create(&thread, NULL, one_team, NULL);
        pthread_join(thread, NULL);
        wait_for_threads(before);
    }
}

/* A child of fork starts helpers of its own. */
static void forked(void)
{
    int status = 1;
    region(4, 1);
    const pid_t child = fork();
    if (child == 0) {
        CHECK(thread_total() == 1);
        region(4, 1);
        CHECK(thread_total() == 4);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    region(4, 1);
}

static pthread_key_t before_team, after_team;

static void compute_at_the_end(void *value)
{
    (void)value;
    region(3, 1);
}

static void *use_all_keys(void *value)
{
    pthread_setspecific(before_team, value);
    region(3, 1);
    pthread_setspecific(after_team, value);
    return NULL;
}

/* What a thread's data computes when it is destroyed, before and after the team, has a team, too. */
static void last_regions(void)
{
    pthread_t thread;
    const int before = thread_total();
    pthread_key_create(&before_team, compute_at_the_end);
    pthread_once(&is_prepared, prepare);
    pthread_key_create(&after_team, compute_at_the_end);
    for (int round = 0; round < 20; round++) {
        pthread_create(&thread, NULL, use_all_keys, &before_team);
        pthread_join(thread, NULL);
        wait_for_threads(before);
    }
}

/* Where others have all keys there is no team, and their data stays theirs. */
static void no_key(void)
{
    pthread_key_t first, other;
    pthread_key_create(&first, NULL);
    pthread_setspecific(first, &other);
    for (pthread_key_t any; pthread_key_create(&any, NULL) == 0;)
        continue;
    CHECK(team_start(3) == EAGAIN);
    region(3, 0);
    CHECK(pthread_getspecific(first) == &other);
}

static void *be_last_and_first(void *unused)
{
    (void)unused;
    for (int round = 0; round < 2; round++) {
        region(round == 0 ? 2 : MOST, 1);
        region(round == 0 ? 2 : MOST, 1); /* which all have seen, and is not the one after the last */
        atomic_store(&own_team->region, UINT_MAX);
        if (round == 0)
            region(MOST, 1);
    }
    team_start(MOST + 4);
    return NULL;
}

/* Helpers come to the first region after the last number, and to the end of a team then. */
static void wrapped(void)
{
    pthread_t thread;
    const int before = thread_total();
    for (int round = 0; round < 50; round++) {
        pthread_create(&thread, NULL, be_last_and_first, NULL);
        pthread_join(thread, NULL);
        wait_for_threads(before);
    }
}

static atomic_int is_locked;

static void *lock_for_ever(void *unused)
{
    (void)unused;
    ((void (*)(void))openmp_call("GOMP_atomic_start"))();
    atomic_store(&is_locked, 1);
    pause();
    return NULL;
}

/* What another thread was amid of at fork does not hold up the child. */
static void forked_amid(void)
{
    pthread_t thread;
    int status = 1;
    pthread_create(&thread, NULL, lock_for_ever, NULL);
    while (!atomic_load(&is_locked))
        sched_yield();
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        ((void (*)(void))openmp_call("GOMP_atomic_start"))();
        ((void (*)(void))openmp_call("GOMP_atomic_end"))();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void no_more(void *data)
{
    (void)data;
    CHECK(team_part_count() == 1 && team_part() == 0);
    atomic_fetch_add((atomic_int *)data, 1);
}

static void outer(void *data)
{
    const int part = team_part();
    team_begin(no_more, data, 4);
    no_more(data);
    team_barrier();
    team_end();
    CHECK(team_part_count() == 3 && team_part() == part);
}

/* A region inside of a region has one part. */
static void nested(void)
{
    atomic_int count = 0;
    team_begin(outer, &count, 3);
    outer(&count);
    team_end();
    CHECK(atomic_load(&count) == 3);
    team_begin(outer, &count, 1);
    CHECK(team_part_count() == 1);
    team_end();
}

static atomic_int is_held;

static void hold_helpers(void *data)
{
    (void)data;
    if (team_part() > 0) {
        atomic_fetch_add(&is_held, 1);
        while (atomic_load(&is_held) < 3)
            sched_yield();
    } else
        while (atomic_load(&is_held) < 2)
            sched_yield();
}

static void release(void *data)
{
    (void)data;
    atomic_fetch_add(&is_held, 1);
}

static void *hold(void *unused)
{
    (void)unused;
    team_begin(hold_helpers, NULL, 3);
    hold_helpers(NULL);
    team_end(); /* once another thread has released them */
    return NULL;
}

/* Who waits for helpers sleeps, and one thread's team does not hold up another's. */
static void waiting(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, hold, NULL);
    while (atomic_load(&is_held) < 2)
        sched_yield();
    for (int round = 0; round < 1000; round++)
        region(3, 1);
    release(NULL);
    pthread_join(thread, NULL);
}

static void stay_on(int cpu, pid_t thread)
{
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    CHECK(sched_setaffinity(thread, sizeof only, &only) == 0);
}

static void allow(const cpu_set_t *cpus, pid_t thread)
{
    CHECK(sched_setaffinity(thread, sizeof *cpus, cpus) == 0);
}

static void wait_for_sleep(struct team *team)
{
    char state = 0, file[64];
    snprintf(file, sizeof file, "/proc/self/task/%d/stat", atomic_load(&team->helpers->place.thread));
    while (atomic_load(&team->sleepers) == 0 || state != 'S') {
        FILE *stat = fopen(file, "r");
        CHECK(stat != NULL && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1);
        fclose(stat);
        sched_yield();
    }
}

struct met {
    int helpers_cpu;
    cpu_set_t helpers_cpus;
};

static void meet(void *data)
{
    struct met *met = data;
    team_barrier(); /* so the helper has come */
    if (team_part() == 0)
        return;
    met->helpers_cpu = sched_getcpu();
    CHECK(sched_getaffinity(0, sizeof met->helpers_cpus, &met->helpers_cpus) == 0);
}

static struct met meet_helper(void)
{
    struct met met = {.helpers_cpu = -1};
    team_begin(meet, &met, 2);
    meet(&met);
    team_end();
    return met;
}

/* A helper that sleeps on its caller's CPU wakes on another one, may go anywhere then, and is left where
 * it is while others want that one, or where somebody has put it. */
static void placed(void)
{
    cpu_set_t all;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0 && CPU_COUNT(&all) > 1);
    const int cpu = sched_getcpu();
    int moves = 0;
    for (int round = 0; round < 20; round++) {
        stay_on(cpu, 0); /* and whom it starts */
        CHECK(meet_helper().helpers_cpu == cpu);
        const pid_t helper = atomic_load(&own_team->helpers->place.thread);
        wait_for_sleep(own_team);
        CHECK(meet_helper().helpers_cpu == cpu); /* there is no other that it may go to */
        wait_for_sleep(own_team);
        allow(&all, helper);
        const struct met met = meet_helper();
        CHECK(CPU_EQUAL(&met.helpers_cpus, &all));
        moves += met.helpers_cpu != cpu;
        stay_on(cpu, helper);
        CHECK(meet_helper().helpers_cpu == cpu);
    }
    CHECK(moves > 10); /* others may have taken it back */
    struct placement own = {.sleeps_on = cpu};
    allow(&all, 0);
    placement_begin(&own);
    placement_leave(&own, cpu + 1);
    CHECK(!atomic_load(&own.is_moved));
    placement_leave(&own, cpu);
    CHECK(atomic_load(&own.is_moved) && sched_getcpu() != cpu);
    stay_on(cpu, 0);
    placement_wake(&own);
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0 && CPU_COUNT(&all) == 1);
}

/* The first long wait forbids moves for a tenth of a second, each one soon after for twice as long as before. */
static void patient(void)
{
    struct patience patience = {0};
    const int64_t ms = 1000000;
    patience_waited(&patience, ms / 4, 1000 * ms);
    CHECK(patience.until_ns == 0);
    const int64_t lengths[] = {100, 200, 400, 800, 1000, 1000};
    for (int index = 0; index < 6; index++) {
        const int64_t now = patience.until_ns + patience.last_ns + 1000 * ms * (index == 0);
        patience_waited(&patience, ms, now);
        CHECK(patience.until_ns == now + lengths[index] * ms);
    }
    const int64_t later = patience.until_ns + 4 * patience.last_ns + 1;
    patience_waited(&patience, ms, later);
    CHECK(patience.until_ns == later + 100 * ms);
}

typedef bool (*start_function)(long, long, long, long, long *, long *);
typedef bool (*next_function)(long *, long *);

static struct {
    long first, end, step, chunk;
    atomic_int times[64];
} loop;

static void run_loop(void *data)
{
    (void)data;
    long from, to;
    const start_function start = (start_function)openmp_call("GOMP_loop_static_start");
    const next_function next = (next_function)openmp_call("GOMP_loop_static_next");
    if (start(loop.first, loop.end, loop.step, loop.chunk, &from, &to))
        do
            for (long index = from; loop.step > 0 ? index < to : index > to; index += loop.step) {
                CHECK(index >= 0 && index < 64);
                atomic_fetch_add(&loop.times[index], 1);
            }
        while (next(&from, &to));
}

/* Every iteration once, whatever the steps, chunks and parts. */
static void loops(void)
{
    static const long bounds[][3] = {{0, 40, 1}, {3, 40, 7}, {40, 3, -1}, {63, 0, -5},
                                     {5, 5, 1},  {9, 3, 1},  {3, 9, -1},  {0, 64, 63}};
    for (size_t index = 0; index < sizeof bounds / sizeof bounds[0]; index++)
        for (long chunk = 0; chunk < 6; chunk++)
            for (int count = 1; count <= 7; count++) {
                memset(&loop, 0, sizeof loop);
                loop.first = bounds[index][0];
                loop.end = bounds[index][1];
                loop.step = bounds[index][2];
                loop.chunk = chunk;
                team_begin(run_loop, NULL, count);
                run_loop(NULL);
                team_end();
                for (long at = 0; at < 64; at++) {
                    const long distance = at - loop.first;
                    const int is_in = distance % loop.step == 0 && distance / loop.step >= 0
                                      && (loop.step > 0 ? at < loop.end : at > loop.end);
                    CHECK(atomic_load(&loop.times[at]) == is_in);
                }
            }
}

/* Threads that are not to be had are said not to be there, and regions go on without. */
static void scarce(void)
{
    CHECK(team_start(900) != 0);
    region(MOST, 0);
}

int main(int count, char **names)
{
    static const struct {
        const char *name;
        void (*check)(void);
    } checks[] = {{"parts", parts},     {"threads", threads}, {"forked", forked}, {"nested", nested},
                  {"waiting", waiting}, {"loops", loops},     {"scarce", scarce},
                  {"last_regions", last_regions},
                  {"no_key", no_key},
                  {"wrapped", wrapped},
                  {"forked_amid", forked_amid},
                  {"placed", placed},
                  {"patient", patient}};
    for (size_t index = 0; count == 2 && index < sizeof checks / sizeof checks[0]; index++)
        if (strcmp(names[1], checks[index].name) == 0) {
            checks[index].check();
            return 0;
        }
    return 2;
}
