/* Where a helper sleeps: not on the CPU of the thread that is going to wake it.
 *
 * The kernel wakes a thread where it slept if all others seem taken, and to the kernel of a virtual machine a CPU
 * seems so that the host has halted. A helper on its caller's CPU only runs while the caller does not: it goes to
 * sleep after each region and is woken for the next, at two changes of thread each. So the caller forbids a helper
 * that sleeps there this CPU, for one waking.
 */
#ifndef AIOINFER_CPU_PLACEMENT_H
#define AIOINFER_CPU_PLACEMENT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

struct placement {
    atomic_int thread;    /* its id; 0 until it runs */
    atomic_int sleeps_on; /* the CPU that it left for its sleep; -1 while it is awake */
    atomic_int is_moved;  /* then the CPUs below are for its own thread to read, otherwise for the caller to write */
    cpu_set_t allowed, left;
};

/* Until when helpers are left where they are, as somebody else wants the other CPUs. Of the caller alone. */
struct patience {
    int64_t until_ns, last_ns;
};

/* On the helper's own thread: as it begins, before and after each sleep. */
void placement_begin(struct placement *place);
void placement_sleep(struct placement *place);
void placement_wake(struct placement *place);

/* On the caller's, before it wakes helpers: forbid one that sleeps on `cpu` to wake there. */
void placement_leave(struct placement *place, int cpu);

/* The caller waited for that long for a part of a helper that had another CPU: if that is as long as others take
 * when they get this CPU, moved helpers would begin what they cannot end, so none is moved for a while. */
void patience_waited(struct patience *patience, int64_t waited_ns, int64_t now_ns);

#endif
