/* Waiting for a word that another thread changes: by looking out for a while, then asleep.
 *
 * To be included behind a definition of _GNU_SOURCE. Source of the futex calls: futex(2).
 */
#ifndef AIOINFER_CPU_WAITING_H
#define AIOINFER_CPU_WAITING_H

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "team.h"

#define LOOKS_PER_READING 64
/* How long a thread looks out for others before it sleeps: about as long as waking it takes. Others that
 * want its CPU meanwhile get it no later than that. */
#define LOOK_OUT_NS 100000

static inline long futex(void *word, int operation, unsigned value)
{
    return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static inline int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Look out until a word is another than `seen`, or for as long as it is worth; what it is then. It is worth
 * nothing on the CPU of the thread that is to change it, which could not run meanwhile. */
static inline unsigned look_out(atomic_uint *word, unsigned seen, atomic_int *others_cpu)
{
    const int64_t until_ns = now_ns() + LOOK_OUT_NS;
    unsigned found = seen;
    for (int look = 0; (found = atomic_load_explicit(word, memory_order_acquire)) == seen; look++) {
        if (look % LOOKS_PER_READING == 0
            && (atomic_load_explicit(others_cpu, memory_order_relaxed) == sched_getcpu()
                || now_ns() > until_ns))
            break;
        team_rest();
    }
    return found;
}

#endif
