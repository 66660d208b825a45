/* cpu.c: instruction paths of this CPU.
 *
 * A path is usable when the CPU has every extension its kernels are compiled with and the operating system saves the
 * registers; the compiler's own detection checks both. AMX is tried out (cpu_amx.c), once, when it is first asked
 * about. */
#include "core/cpu.h"

#include <stdio.h>
#include <string.h>

#include "core/status.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Not every compiler's detection knows the name. The registers are AVX's. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

static bool isa_supported(sl_isa isa)
{
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (isa == SL_ISA_AMX) return avx2 && avx512 && sl_cpu_has_tiles();
    const bool supported[] = { [SL_ISA_SCALAR] = true, [SL_ISA_AVX2] = avx2, [SL_ISA_AVX512] = avx2 && avx512 };
    return supported[isa];
}

/* The CPU's own name for itself, 48 characters; empty where it has none. */
static void brand_string(char out[49])
{
    unsigned words[12] = { 0 };
    memset(out, 0, 49);
    for (unsigned leaf = 0; leaf < 3; leaf++) {
        unsigned *w = words + 4 * leaf;
        if (!__get_cpuid(0x80000002u + leaf, &w[0], &w[1], &w[2], &w[3])) return;
    }
    memcpy(out, words, sizeof words);
}
#else
static bool isa_supported(sl_isa isa)
{
    return isa == SL_ISA_SCALAR;
}

static void brand_string(char out[49])
{
    out[0] = '\0';
}
#endif

static const char *const isa_names[SL_ISA_COUNT] = {
    [SL_ISA_SCALAR] = "scalar",
    [SL_ISA_AVX2] = "avx2",
    [SL_ISA_AVX512] = "avx512",
    [SL_ISA_AMX] = "amx",
};

sl_isa sl_isa_best(void)
{
    int isa = SL_ISA_COUNT - 1;
    while (!isa_supported((sl_isa)isa)) isa--; /* scalar always is */
    return (sl_isa)isa;
}

const char *sl_isa_name(sl_isa isa)
{
    return isa_names[isa];
}

sluice_status sl_isa_choose(const char *requested, sl_isa *out)
{
    if (requested == NULL || requested[0] == '\0') {
        *out = sl_isa_best();
        return SLUICE_OK;
    }
    for (int i = 0; i < SL_ISA_COUNT; i++) {
        if (strcmp(requested, isa_names[i]) != 0) continue;
        if (!isa_supported((sl_isa)i))
            return sl_fail(SLUICE_ERR_USAGE, "SLUICE_CPU=%s: this CPU has no %s; its best path is %s", requested,
                           isa_names[i], isa_names[sl_isa_best()]);
        *out = (sl_isa)i;
        return SLUICE_OK;
    }
    return sl_fail(SLUICE_ERR_USAGE, "SLUICE_CPU=%s: unknown; use scalar, avx2, avx512 or amx, or leave it unset",
                   requested);
}

void sl_cpu_model(char *buf, size_t bytes)
{
    char brand[49];
    brand_string(brand);
    const char *name = brand;
    while (*name == ' ') name++; /* some CPUs pad on the left */
    snprintf(buf, bytes, "%s", *name == '\0' ? "unknown" : name);
}
