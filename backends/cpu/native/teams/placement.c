/* Source of the calls: sched_setaffinity(2). */
#include "placement.h"

#include <sys/syscall.h>
#include <unistd.h>

#define LONG_WAIT_NS 500000
#define FIRST_NS 100000000
#define LONGEST_NS 1000000000

void placement_begin(struct placement *place)
{
    atomic_store(&place->thread, (int)syscall(SYS_gettid));
}

void placement_sleep(struct placement *place)
{
    atomic_store(&place->sleeps_on, sched_getcpu());
}

/* It may go where it might before, unless somebody has said otherwise since. */
void placement_wake(struct placement *place)
{
    cpu_set_t now;
    atomic_store(&place->sleeps_on, -1);
    if (!atomic_load(&place->is_moved))
        return;
    if (sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &place->left))
        sched_setaffinity(0, sizeof place->allowed, &place->allowed);
    atomic_store(&place->is_moved, 0);
}

void placement_leave(struct placement *place, int cpu)
{
    const pid_t thread = atomic_load(&place->thread);
    if (thread == 0 || atomic_load(&place->sleeps_on) != cpu || atomic_load(&place->is_moved)
        || sched_getaffinity(thread, sizeof place->allowed, &place->allowed) != 0)
        return;
    place->left = place->allowed;
    CPU_CLR(cpu, &place->left);
    if (CPU_COUNT(&place->left) > 0
        && sched_setaffinity(thread, sizeof place->left, &place->left) == 0)
        atomic_store(&place->is_moved, 1);
}

void patience_waited(struct patience *patience, int64_t waited_ns, int64_t now_ns)
{
    if (waited_ns < LONG_WAIT_NS)
        return;
    const int is_news = now_ns > patience->until_ns + 4 * patience->last_ns;
    patience->last_ns = is_news ? FIRST_NS : 2 * patience->last_ns;
    if (patience->last_ns > LONGEST_NS)
        patience->last_ns = LONGEST_NS;
    patience->until_ns = now_ns + patience->last_ns;
}
