/* The threads that compute a region together: the caller, and helpers that take what it has not begun. */
#ifndef AIOINFER_CPU_TEAM_H
#define AIOINFER_CPU_TEAM_H

/* One part of a region; which one, and of how many, team_part and team_part_count tell. */
typedef void (*team_function)(void *data);

/* How many parts the calling thread's regions have unless they say: as many as the process may use
 * CPUs until team_set_threads was called on that thread. */
int team_threads(void);
void team_set_threads(int count);

/* Have helpers for regions of that many parts on this thread; 0, or an errno: then there are as many
 * as could be started. They end with the thread. */
int team_start(int count);

/* Begin a region: until team_end the caller computes part 0. Inside another region it is a region of
 * one part. team_end computes the parts that no helper has begun, and waits for those that one has. */
void team_begin(team_function function, void *data, int count);
void team_end(void);

int team_part(void);
int team_part_count(void);

/* Wait until every part of the region is here; each must then be computed by a thread of its own, so
 * this waits for helpers that have not come. */
void team_barrier(void);

/* Between two looks at what another thread changes. */
static inline void team_rest(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
