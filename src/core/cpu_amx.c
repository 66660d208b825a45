/* cpu_amx.c: whether AMX tiles multiply bf16 on this machine.
 *
 * What CPUID says is not enough: the operating system must grant the tile registers, and some virtual machines announce
 * them and fail at the first instruction, or leave the list of palettes (leaf 0x1D) empty though tiles work. So one
 * product is tried, with palette 1 written by hand, under handlers that turn a fault into "no". */
#include "core/cpu.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/half.h"

#define CPUID_AMX_BF16 (1u << 22)
#define CPUID_AMX_TILE (1u << 24)
/* arch_prctl's request for a register set that must be asked for, and the tiles' number among them. */
#define REQUEST_PERMISSION 0x1023
#define TILE_DATA          18

#define SIDE 16
#define DEEP 32

static const int faults[] = { SIGILL, SIGSEGV, SIGBUS, SIGFPE };
#define FAULTS (sizeof faults / sizeof faults[0])

static struct sigaction before[FAULTS];
/* Where the trying thread goes on after a fault; NULL in all others. */
static _Thread_local sigjmp_buf *volatile way_out;

/* A fault of another thread is not ours: its own handler gets it when the instruction runs again. */
static void on_fault(int number)
{
    if (way_out != NULL) siglongjmp(*way_out, 1);
    for (size_t i = 0; i < FAULTS; i++)
        if (faults[i] == number) sigaction(number, &before[i], NULL);
}

static bool announced(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    return (d & CPUID_AMX_BF16) != 0 && (d & CPUID_AMX_TILE) != 0;
}

static bool granted(void)
{
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

/* c[16][16] += a[16][32] b, where row p of b holds k = 2p and 2p + 1 of sixteen columns side by side. */
static void multiply(float c[SIDE * SIDE], const uint16_t a[SIDE * DEEP], const uint16_t b[SIDE * DEEP])
{
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config __attribute__((aligned(64))) = { 1, 0, { 0 }, { 64, 64, 64 }, { SIDE, SIDE, SIDE } };
    __asm__ volatile("ldtilecfg %0\n\t"
                     "tileloadd (%1,%4,1), %%tmm0\n\t"
                     "tileloadd (%2,%4,1), %%tmm1\n\t"
                     "tileloadd (%3,%4,1), %%tmm2\n\t"
                     "tdpbf16ps %%tmm2, %%tmm1, %%tmm0\n\t"
                     "tilestored %%tmm0, (%1,%4,1)\n\t"
                     "tilerelease"
                     :
                     : "m"(config), "r"(c), "r"(a), "r"(b), "r"((int64_t)64)
                     : "memory");
}

/* Small whole numbers: the sums are exact. */
static bool multiplies(void)
{
    uint16_t a[SIDE * DEEP], b[SIDE * DEEP];
    float c[SIDE * SIDE];
    for (int i = 0; i < SIDE * DEEP; i++) {
        a[i] = sl_float_to_bf16((float)(i * 7 % 15 - 7));
        b[i] = sl_float_to_bf16((float)(i * 5 % 13 - 6));
    }
    for (int i = 0; i < SIDE * SIDE; i++) c[i] = (float)(i % 9);
    multiply(c, a, b);
    for (int i = 0; i < SIDE * SIDE; i++) {
        int row = i / SIDE, column = i % SIDE, sum = i % 9;
        for (int k = 0; k < DEEP; k++)
            sum += ((row * DEEP + k) * 7 % 15 - 7) * ((k / 2 * DEEP + 2 * column + k % 2) * 5 % 13 - 6);
        if (c[i] != (float)sum) return false;
    }
    return true;
}

static bool survives(void)
{
    sigjmp_buf here;
    struct sigaction action = { .sa_handler = on_fault };
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < FAULTS; i++) sigaction(faults[i], &action, &before[i]);
    volatile bool works = false;
    if (sigsetjmp(here, 1) == 0) {
        way_out = &here;
        works = multiplies();
    }
    way_out = NULL;
    for (size_t i = 0; i < FAULTS; i++) sigaction(faults[i], &before[i], NULL);
    return works;
}

static bool works_here;

static void find_out(void)
{
    works_here = announced() && granted() && survives();
}

bool sl_cpu_has_tiles(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_out);
    return works_here;
}
#else
bool sl_cpu_has_tiles(void)
{
    return false;
}
#endif
