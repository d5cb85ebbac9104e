/* Theory of operation. A region is a number of parts, and whoever is there claims the next: the caller
 * computes part 0 first, then all that nobody has begun, then waits for those that a helper has begun. A helper
 * whose CPU is taken by somebody else is not waited for, unless it lost the CPU amid a part.
 * So a region takes as long as by one thread at worst, and a part of a time slice.
 *
 * Helpers belong to one calling thread, look out for its next region for a while, and then sleep. What
 * they claim by is one word: the region's number, its parts, and the next one. A helper that comes late,
 * even for a region that is over, claims nothing by what it read before. The caller goes on once as many
 * parts have ended as it did not compute itself, so function and data stand still as long as a part runs.
 */
#define _GNU_SOURCE
#include "team.h"

#include "placement.h"
#include "waiting.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST_PARTS 1024
#define LINE 64 /* bytes that processors hand to each other */

struct helper {
    struct team *team;
    struct helper *next;
    struct placement place;
};

struct team {
    _Alignas(LINE) _Atomic uint64_t claims; /* region << 32 | parts << 16 | next part */
    _Alignas(LINE) atomic_uint region;      /* the latest; helpers sleep on it */
    atomic_int sleepers;
    _Alignas(LINE) atomic_uint ended; /* parts that helpers have computed; the caller sleeps on it */
    atomic_int is_caller_asleep;
    _Alignas(LINE) atomic_uint arrived; /* at the barrier */
    atomic_uint barrier;                /* how many were passed; parts sleep on it */
    atomic_int barrier_sleepers;
    team_function function;
    void *data;
    int helper_count;
    struct helper *helpers;
    struct patience patience;
    atomic_int caller_cpu, helper_cpu; /* where they were of late: of helpers, one that claimed a part */
    atomic_int users; /* threads that know this memory, of which the last frees it */
    atomic_int is_over;
};

/* What this thread computes now. */
struct place {
    struct team *team; /* NULL where nobody helps */
    int part, count;   /* count is 0 in no region */
};

static __thread struct place here;
static __thread team_function region_function;
static __thread void *region_data;
static __thread int inner_regions; /* begun inside of a region */
static __thread int thread_count;  /* 0 until it is asked for or set */
static __thread struct team *own_team;
static pthread_key_t end_of_thread;
static pthread_once_t is_prepared = PTHREAD_ONCE_INIT;
static int prepare_status;

static uint64_t claims_of(unsigned region, int count, int next)
{
    return (uint64_t)region << 32 | (uint64_t)count << 16 | (uint64_t)next;
}

/* 0 is what a helper has seen that has just been started. */
static unsigned region_after(unsigned region)
{
    return region + 1 == 0 ? 1 : region + 1;
}

/* Claim the next part of a region; -1 if all are begun, or it is over. */
static int claim(struct team *team, unsigned region)
{
    uint64_t seen = atomic_load(&team->claims);
    while (seen >> 32 == region && (seen & 0xffff) < (seen >> 16 & 0xffff))
        if (atomic_compare_exchange_weak(&team->claims, &seen, seen + 1))
            return (int)(seen & 0xffff);
    return -1;
}

static unsigned next_region(struct helper *helper, unsigned seen)
{
    struct team *team = helper->team;
    unsigned found = look_out(&team->region, seen, &team->caller_cpu);
    while (found == seen) {
        placement_sleep(&helper->place);
        atomic_fetch_add(&team->sleepers, 1);
        if (futex(&team->region, FUTEX_WAIT, seen) != 0)
            atomic_fetch_sub(&team->sleepers, 1); /* who wakes it does so otherwise */
        placement_wake(&helper->place);
        found = atomic_load(&team->region);
    }
    return found;
}

/* Before they are woken, which those cannot be that are still on their way to sleep. */
static void keep_off_callers_cpu(struct team *team)
{
    const int cpu = atomic_load_explicit(&team->caller_cpu, memory_order_relaxed);
    if (atomic_load(&team->sleepers) == 0 || now_ns() < team->patience.until_ns)
        return;
    for (struct helper *helper = team->helpers; helper != NULL; helper = helper->next)
        placement_leave(&helper->place, cpu);
}

static void wake_helpers(struct team *team, int count)
{
    if (atomic_load(&team->sleepers) == 0)
        return;
    const long woken = futex(&team->region, FUTEX_WAKE, (unsigned)count);
    if (woken > 0)
        atomic_fetch_sub(&team->sleepers, (int)woken);
}

static void let_go(struct team *team)
{
    if (atomic_fetch_sub(&team->users, 1) != 1)
        return;
    for (struct helper *helper = team->helpers, *next; helper != NULL; helper = next) {
        next = helper->next;
        free(helper);
    }
    free(team);
}

static void *help(void *own)
{
    struct helper *helper = own;
    struct team *team = helper->team;
    unsigned region = 0;

    pthread_setname_np(pthread_self(), "aioinfer.team");
    placement_begin(&helper->place);
    for (;;) {
        region = next_region(helper, region);
        if (atomic_load(&team->is_over))
            break;
        for (int part; (part = claim(team, region)) >= 0;) {
            const int count = (int)(atomic_load(&team->claims) >> 16 & 0xffff);
            atomic_store_explicit(&team->helper_cpu, sched_getcpu(), memory_order_relaxed);
            here = (struct place){team, part, count};
            team->function(team->data);
            here = (struct place){NULL, 0, 0};
            atomic_fetch_add(&team->ended, 1);
            if (atomic_load(&team->is_caller_asleep))
                futex(&team->ended, FUTEX_WAKE, 1);
        }
    }
    let_go(team);
    return NULL;
}

static void dismiss(void *team_object)
{
    struct team *team = team_object;
    own_team = NULL; /* other data of the thread may be destroyed later, and compute */
    atomic_store(&team->is_over, 1);
    atomic_store(&team->region, region_after(atomic_load(&team->region)));
    futex(&team->region, FUTEX_WAKE, INT_MAX);
    let_go(team);
}

/* A child has none of its parent's helpers. */
static void forget(void)
{
    own_team = NULL;
    here = (struct place){NULL, 0, 0};
    pthread_setspecific(end_of_thread, NULL);
}

static void prepare(void)
{
    prepare_status = pthread_key_create(&end_of_thread, dismiss);
    if (prepare_status == 0)
        prepare_status = pthread_atfork(NULL, NULL, forget);
}

static int have_team(void)
{
    if (own_team != NULL)
        return 0;
    pthread_once(&is_prepared, prepare);
    if (prepare_status != 0)
        return prepare_status;
    struct team *team = aligned_alloc(LINE, sizeof *team);
    if (team == NULL)
        return ENOMEM;
    *team = (struct team){.users = 1};
    const int status = pthread_setspecific(end_of_thread, team);
    if (status == 0)
        own_team = team;
    else
        free(team);
    return status;
}

/* Signals are for the threads that Python knows. */
static int start_helper(struct team *team)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    int status = pthread_attr_init(&attributes);

    if (status != 0)
        return status;
    struct helper *started = malloc(sizeof *started);
    if (started == NULL)
        status = ENOMEM;
    else
        *started = (struct helper){.team = team, .next = team->helpers, .place.sleeps_on = -1};
    sigfillset(&all);
    if (status == 0)
        status = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (status == 0)
        status = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (status == 0) {
        atomic_fetch_add(&team->users, 1);
        status = pthread_create(&thread, &attributes, help, started);
        if (status != 0)
            atomic_fetch_sub(&team->users, 1);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_attr_destroy(&attributes);
    if (status == 0)
        team->helpers = started;
    else
        free(started);
    return status;
}

int team_start(int count)
{
    if (count <= 1)
        return 0;
    if (count > MOST_PARTS)
        count = MOST_PARTS;
    int status = have_team();
    while (status == 0 && own_team->helper_count < count - 1) {
        status = start_helper(own_team);
        own_team->helper_count += status == 0;
    }
    return status;
}

int team_threads(void)
{
    cpu_set_t allowed;
    if (thread_count == 0)
        team_set_threads(sched_getaffinity(0, sizeof allowed, &allowed) == 0
                             ? CPU_COUNT(&allowed)
                             : (int)sysconf(_SC_NPROCESSORS_ONLN));
    return thread_count;
}

void team_set_threads(int count)
{
    thread_count = count < 1 ? 1 : count > MOST_PARTS ? MOST_PARTS : count;
}

int team_part(void)
{
    return inner_regions > 0 ? 0 : here.part;
}

int team_part_count(void)
{
    return inner_regions > 0 || here.count == 0 ? 1 : here.count;
}

void team_begin(team_function function, void *data, int count)
{
    if (here.count > 0) {
        inner_regions++;
        return;
    }
    count = count < 1 ? team_threads() : count > MOST_PARTS ? MOST_PARTS : count;
    if (count > 1)
        team_start(count); /* parts that lack a helper are the caller's */
    struct team *team = count > 1 ? own_team : NULL;
    here = (struct place){team, 0, count};
    region_function = function;
    region_data = data;
    if (team == NULL)
        return;
    team->function = function;
    team->data = data;
    atomic_store(&team->ended, 0);
    atomic_store_explicit(&team->caller_cpu, sched_getcpu(), memory_order_relaxed);
    const unsigned region = region_after(atomic_load(&team->region));
    keep_off_callers_cpu(team);
    atomic_store(&team->claims, claims_of(region, count, 1));
    atomic_store(&team->region, region);
    wake_helpers(team, count - 1);
}

/* Wait until helpers have computed that many parts. */
static void wait_for_helpers(struct team *team, unsigned count)
{
    unsigned ended = atomic_load(&team->ended);
    while (ended < count) {
        const unsigned found = look_out(&team->ended, ended, &team->helper_cpu);
        if (found == ended) {
            const int64_t asleep_ns = now_ns();
            atomic_store(&team->is_caller_asleep, 1);
            if (atomic_load(&team->ended) == ended)
                futex(&team->ended, FUTEX_WAIT, ended);
            atomic_store(&team->is_caller_asleep, 0);
            if (atomic_load(&team->helper_cpu) != atomic_load(&team->caller_cpu))
                patience_waited(&team->patience, now_ns() - asleep_ns, now_ns());
        }
        ended = atomic_load(&team->ended);
    }
}

void team_end(void)
{
    if (inner_regions > 0) {
        inner_regions--;
        return;
    }
    struct team *team = here.team;
    if (team == NULL) {
        while (++here.part < here.count)
            region_function(region_data);
    } else {
        const unsigned region = atomic_load(&team->region);
        unsigned own = 1;
        for (int part; (part = claim(team, region)) >= 0; own++) {
            here.part = part;
            region_function(region_data);
        }
        wait_for_helpers(team, (unsigned)here.count - own);
    }
    here = (struct place){NULL, 0, 0};
}

void team_barrier(void)
{
    if (inner_regions > 0 || here.count <= 1)
        return;
    struct team *team = here.team;
    if (team == NULL)
        abort(); /* there can be no team: the other parts can never come */
    while (here.part == 0 && team_start(here.count) != 0)
        sched_yield(); /* parts that wait for each other need a thread each */
    const unsigned passed = atomic_load(&team->barrier);
    if (atomic_fetch_add(&team->arrived, 1) + 1 == (unsigned)here.count) {
        atomic_store(&team->arrived, 0);
        atomic_fetch_add(&team->barrier, 1);
        if (atomic_load(&team->barrier_sleepers) > 0)
            futex(&team->barrier, FUTEX_WAKE, INT_MAX);
        return;
    }
    atomic_int *others_cpu = here.part == 0 ? &team->helper_cpu : &team->caller_cpu;
    while (look_out(&team->barrier, passed, others_cpu) == passed) {
        atomic_fetch_add(&team->barrier_sleepers, 1);
        if (atomic_load(&team->barrier) == passed)
            futex(&team->barrier, FUTEX_WAIT, passed);
        atomic_fetch_sub(&team->barrier_sleepers, 1);
    }
}
