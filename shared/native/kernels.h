/* The implementations that this compiler can build for this processor family, best first. */
#ifndef SECEMB_KERNELS_H
#define SECEMB_KERNELS_H

#include "dpf_types.h"

#if defined(__x86_64__)
static int has_aesni(void) { return __builtin_cpu_supports("aes") && __builtin_cpu_supports("sse4.1"); }
static int has_vaes256(void) { return __builtin_cpu_supports("vaes") && __builtin_cpu_supports("avx2"); }
static int has_vaes512(void) {
    return has_vaes256() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

#define LANES_BITS 128
#define KERNEL_NAME "aesni"
#define KERNEL_AVAILABLE has_aesni
#include "lanes_x86.h"
#include "dpf_body.h"
#undef LANES_BITS
#undef KERNEL_NAME
#undef KERNEL_AVAILABLE

#define LANES_BITS 256
#define KERNEL_NAME "vaes256"
#define KERNEL_AVAILABLE has_vaes256
#include "lanes_x86.h"
#include "dpf_body.h"
#undef LANES_BITS
#undef KERNEL_NAME
#undef KERNEL_AVAILABLE

#define LANES_BITS 512
#define KERNEL_NAME "vaes512"
#define KERNEL_AVAILABLE has_vaes512
#include "lanes_x86.h"
#include "dpf_body.h"

static const kernel_t *const kernels[] = {&kernel_vaes512, &kernel_vaes256, &kernel_aesni};

#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
static int has_armv8(void) { return (getauxval(AT_HWCAP) & (1 << 3)) != 0; /* HWCAP_AES */ }
#else
static int has_armv8(void) { return 1; /* every 64-bit ARM that runs macOS or iOS has it */ }
#endif
#define KERNEL_NAME "armv8"
#define KERNEL_AVAILABLE has_armv8
#include "lanes_arm.h"
#include "dpf_body.h"

static const kernel_t *const kernels[] = {&kernel_armv8};
#else
#error "no AES instructions known for this processor; the portable backend serves it"
#endif

enum { KERNELS = sizeof kernels / sizeof *kernels };

#endif
