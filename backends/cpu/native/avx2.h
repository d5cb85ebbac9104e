/* Code for AVX2, also with F16C, and for AVX-512 with VNNI or VBMI, beside code for every processor: a kernel chooses when
 * it begins.
 *
 * What stands between BEGIN_AVX2 and END_AVX2 is compiled for AVX2, between BEGIN_F16C and END_F16C for
 * that and F16C, between BEGIN_VNNI and END_VNNI for
 * AVX-512 and VNNI, and between BEGIN_VBMI and END_VBMI for AVX-512 and VBMI, where COMPILES_AVX2 is 1.
 * Where it is 0 there is no such code, and HAS_AVX2, HAS_F16C, HAS_VNNI and HAS_VBMI are 0.
 */
#ifndef AIOINFER_CPU_AVX2_H
#define AIOINFER_CPU_AVX2_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#define COMPILES_AVX2 1
#define BEGIN_AVX2 _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma\")")
#define END_AVX2 _Pragma("GCC pop_options")
#define BEGIN_F16C _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma,f16c\")")
#define END_F16C _Pragma("GCC pop_options")
#define BEGIN_VNNI                                                                                \
    _Pragma("GCC push_options")                                                                   \
        _Pragma("GCC target(\"avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni\")")
#define END_VNNI _Pragma("GCC pop_options")
#define BEGIN_VBMI                                                                                \
    _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma,avx512f,avx512bw,avx512vbmi\")")
#define END_VBMI _Pragma("GCC pop_options")
#define HAS_AVX2 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#if __GNUC__ >= 11
#define HAS_F16C (HAS_AVX2 && __builtin_cpu_supports("f16c"))
#else /* it cannot ask */
#define HAS_F16C 0
#endif
#define HAS_VNNI                                                                                  \
    (HAS_AVX2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")          \
     && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
#define HAS_VBMI                                                                                  \
    (HAS_AVX2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")          \
     && __builtin_cpu_supports("avx512vbmi"))
#else
#define COMPILES_AVX2 0
#define HAS_AVX2 0
#define HAS_F16C 0
#define HAS_VNNI 0
#define HAS_VBMI 0
#endif

#endif
