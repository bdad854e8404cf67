#pragma once

// TRIAX_MULTIVERSION before a function compiles it for AVX-512, AVX2 with FMA and the baseline; the processor
// chooses when the program is loaded. What it calls must be inlined into it (TRIAX_INLINE) to profit. The
// choice is made by an ifunc resolver, which runs before a sanitizer's runtime is ready, so sanitized builds
// have the baseline alone. A result may differ between processors (FMA), never between two calls on one.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define TRIAX_MULTIVERSION __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TRIAX_MULTIVERSION
#endif

// Lambdas and helpers of a multiversioned function: not inlined they would be baseline code.
#define TRIAX_INLINE __attribute__((always_inline)) inline
