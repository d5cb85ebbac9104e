/* The native kernels of the step table: what oneDNN has no primitive for.
 *
 * A kernel gets the addresses of its operands in the order in which the plan lists them, and its
 * parameters as 64-bit integers (a double is passed as its bits). It runs without the GIL, on the
 * stream's own thread, and may open parallel regions: the team has the stream's size. It returns 0,
 * or one of the statuses below.
 *
 * It is also given the run's stop word, and asks between rows or blocks whether it is set: what is
 * left is then left as it is, and whatever it returns the run ends there.
 */
#ifndef AIOINFER_CPU_STEPS_H
#define AIOINFER_CPU_STEPS_H

#include <stddef.h>
#include <stdint.h>

enum status {
    STATUS_OK = 0,
    STATUS_INDEX = 1001,   /* an index in the data is out of range */
    STATUS_TABLE = 1002,   /* the table is damaged */
    STATUS_MEMORY = 1003,  /* there is no memory for what a kernel holds */
    STATUS_BUFFER = 1004,  /* a buffer of the call is not as long as the table says */
    STATUS_STOPPED = 1005, /* the run's stop word was set */
    STATUS_REGION = 1006,  /* a region in the data has more points than any picture's */
};

typedef int (*native_kernel)(char *const *data, const int64_t *parameters, const char *stop);

struct named_kernel {
    const char *name;
    native_kernel function;
};

/* Each file of kernels ends its own list with a row of nulls. */
extern const struct named_kernel int8_kernels[];
extern const struct named_kernel cell_kernels[];
extern const struct named_kernel column_kernels[];
extern const struct named_kernel movement_kernels[];
extern const struct named_kernel elementwise_kernels[];
extern const struct named_kernel reduction_kernels[];
extern const struct named_kernel row_kernels[];
extern const struct named_kernel matmul_kernels[];
extern const struct named_kernel packed_kernels[];
extern const struct named_kernel packed_int8_kernels[];
extern const struct named_kernel half_kernels[];
extern const struct named_kernel pool_kernels[];
extern const struct named_kernel position_kernels[];
extern const struct named_kernel quantization_kernels[];
extern const struct named_kernel tree_kernels[];
extern const struct named_kernel recurrent_kernels[];
extern const struct named_kernel region_kernels[];
extern const struct named_kernel rotary_kernels[];
extern const struct named_kernel sample_kernels[];
extern const struct named_kernel vector_kernels[];

/* True once another thread has set a run's stop word; NULL for a run that has none. */
static inline int is_stopped(const char *stop)
{
    return stop != NULL && __atomic_load_n(stop, __ATOMIC_RELAXED) != 0;
}

/* Work below this many elements is not worth waking a team for. */
#define PARALLEL_ELEMENTS 16384

/* A sanitizer is not ready yet when the loader chooses among clones. */
#if defined(__SANITIZE_ADDRESS__)
#define VECTOR_CLONES
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define VECTOR_CLONES \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTOR_CLONES
#endif

#endif
