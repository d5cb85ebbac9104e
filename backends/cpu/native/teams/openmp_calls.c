/* The calls that gcc makes of `#pragma omp`, computed by our own teams: those of this extension, which is
 * not linked with libgomp, and those of oneDNN's library (adopted_library.c). Without tasks, places and nested
 * regions, which neither has.
 *
 * Source: "The libgomp ABI" in GNU's manual of libgomp; GOMP_parallel_start and GOMP_parallel_end are what gcc
 * before 4.9 called in place of GOMP_parallel.
 */
#include "openmp_calls.h"

#include "team.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN void GOMP_parallel_start(team_function function, void *data, unsigned count);
HIDDEN void GOMP_parallel_end(void);
HIDDEN void GOMP_parallel(team_function function, void *data, unsigned count, unsigned flags);
HIDDEN void GOMP_barrier(void);
HIDDEN bool GOMP_loop_static_start(long first, long end, long step, long chunk, long *from, long *to);
HIDDEN bool GOMP_loop_static_next(long *from, long *to);
HIDDEN void GOMP_loop_end_nowait(void);
HIDDEN void GOMP_atomic_start(void);
HIDDEN void GOMP_atomic_end(void);
HIDDEN int omp_get_max_threads(void);
HIDDEN int omp_get_num_threads(void);
HIDDEN int omp_get_thread_num(void);
HIDDEN int omp_in_parallel(void);

void GOMP_parallel_start(team_function function, void *data, unsigned count)
{
    team_begin(function, data, (int)count);
}

void GOMP_parallel_end(void)
{
    team_end();
}

void GOMP_parallel(team_function function, void *data, unsigned count, unsigned flags)
{
    (void)flags; /* of places */
    team_begin(function, data, (int)count);
    function(data);
    team_end();
}

void GOMP_barrier(void)
{
    team_barrier();
}

/* What a part has left of the loop that it is in. */
static __thread struct {
    long next, end, step, chunk, stride;
} loop;

/* Without a chunk each part has one block of the iterations; the first ones have one more. */
static bool take_block(long first, long count, long step, long *from, long *to)
{
    const long parts = team_part_count(), part = team_part();
    const long each = count / parts, more = count % parts;
    const long begin = part * each + (part < more ? part : more);
    const long size = each + (part < more);

    loop.next = loop.end = 0;
    loop.step = 1;
    *from = first + begin * step;
    *to = *from + size * step;
    return size > 0;
}

bool GOMP_loop_static_start(long first, long end, long step, long chunk, long *from, long *to)
{
    const long distance = step > 0 ? end - first + step - 1 : first - end - step - 1;
    const long count = distance / (step > 0 ? step : -step);

    if (count <= 0)
        return take_block(first, 0, step, from, to);
    if (chunk <= 0)
        return take_block(first, count, step, from, to);
    loop.step = step;
    loop.chunk = chunk * step;
    loop.stride = loop.chunk * team_part_count();
    loop.end = end;
    loop.next = first + loop.chunk * team_part();
    return GOMP_loop_static_next(from, to);
}

bool GOMP_loop_static_next(long *from, long *to)
{
    if (loop.step > 0 ? loop.next >= loop.end : loop.next <= loop.end)
        return false;
    *from = loop.next;
    *to = loop.next + loop.chunk;
    if (loop.step > 0 ? *to > loop.end : *to < loop.end)
        *to = loop.end;
    loop.next += loop.stride;
    return true;
}

void GOMP_loop_end_nowait(void)
{
}

static pthread_mutex_t atomic_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t is_prepared_for_fork = PTHREAD_ONCE_INIT;

/* Who held it may be no thread of the child's. */
static void unlock_in_child(void)
{
    pthread_mutex_init(&atomic_lock, NULL);
}

static void prepare_for_fork(void)
{
    pthread_atfork(NULL, NULL, unlock_in_child);
}

void GOMP_atomic_start(void)
{
    pthread_once(&is_prepared_for_fork, prepare_for_fork);
    pthread_mutex_lock(&atomic_lock);
}

void GOMP_atomic_end(void)
{
    pthread_mutex_unlock(&atomic_lock);
}

int omp_get_max_threads(void)
{
    return team_threads();
}

int omp_get_num_threads(void)
{
    return team_part_count();
}

int omp_get_thread_num(void)
{
    return team_part();
}

int omp_in_parallel(void)
{
    return team_part_count() > 1;
}

typedef void (*function)(void);

static const struct {
    const char *name;
    function function;
} calls[] = {
    {"GOMP_parallel_start", (function)GOMP_parallel_start},
    {"GOMP_parallel_end", (function)GOMP_parallel_end},
    {"GOMP_parallel", (function)GOMP_parallel},
    {"GOMP_barrier", (function)GOMP_barrier},
    {"GOMP_loop_static_start", (function)GOMP_loop_static_start},
    {"GOMP_loop_static_next", (function)GOMP_loop_static_next},
    {"GOMP_loop_end_nowait", (function)GOMP_loop_end_nowait},
    {"GOMP_atomic_start", (function)GOMP_atomic_start},
    {"GOMP_atomic_end", (function)GOMP_atomic_end},
    {"omp_get_max_threads", (function)omp_get_max_threads},
    {"omp_get_num_threads", (function)omp_get_num_threads},
    {"omp_get_thread_num", (function)omp_get_thread_num},
    {"omp_in_parallel", (function)omp_in_parallel},
};

void *openmp_call(const char *name)
{
    for (size_t index = 0; index < sizeof calls / sizeof calls[0]; index++)
        if (strcmp(calls[index].name, name) == 0)
            return (void *)calls[index].function;
    return NULL;
}

int is_openmp_call(const char *name)
{
    return strncmp(name, "GOMP_", 5) == 0 || strncmp(name, "omp_", 4) == 0
           || strncmp(name, "__kmpc_", 7) == 0;
}
