/* Code for AVX2 beside code for every processor, of which a kernel chooses one when it begins.
 *
 * What stands between BEGIN_AVX2 and END_AVX2 is compiled for AVX2 where COMPILES_AVX2 is 1. Where it is 0 there
 * is no such code, and HAS_AVX2 is 0.
 */
#ifndef AIOINFER_CPU_AVX2_H
#define AIOINFER_CPU_AVX2_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#define COMPILES_AVX2 1
#define BEGIN_AVX2 _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma\")")
#define END_AVX2 _Pragma("GCC pop_options")
#define HAS_AVX2 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#else
#define COMPILES_AVX2 0
#define HAS_AVX2 0
#endif

#endif
