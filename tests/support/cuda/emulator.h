/* emulator.h: CUDA's words in plain C++, so that the kernels of src/backend/cuda run and are tested without a GPU.
 *
 * A thread of a block is a coroutine with a stack of its own; the blocks of a launch run one after the other, at once.
 * A coroutine runs until its next barrier or warp exchange; every other round they run in reverse, so that what one
 * thread writes and another reads without a barrier in between shows. Mistakes that a GPU forgives, or that hang it,
 * end the program with the kernel's name: barriers that some threads never reach, or reach elsewhere; exchanges with
 * lanes that are not there; launches of nothing, or of too much; writes past dynamic shared memory.
 *
 * Shared memory begins as NaN in the first block of a launch, dynamic shared memory in each. Kernels live in unnamed
 * namespaces (launch.cuh): their shared variables share one section, which the compiler refuses otherwise. */
#ifndef SLUICE_TEST_EMULATOR_H
#define SLUICE_TEST_EMULATOR_H

#undef _FORTIFY_SOURCE /* its longjmp refuses to change stacks; this file is included before any other */

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <type_traits>

#if defined(__SANITIZE_ADDRESS__)
#define SL_EMULATOR_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SL_EMULATOR_ASAN
#endif
#endif
#if defined(SL_EMULATOR_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif

/* ---- words of the language ---- */
#define __global__
#define __device__
#define __host__
#define __constant__    static const
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__       static __attribute__((section("sl_emulated_shared")))
#define SL_KERNELS       /* unnamed: what is in a section of its own may have no linkage */

/* clang-format off */
struct uint3 { unsigned x, y, z; };
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
#define SL_VECTOR(name, type, bytes)                                                                                   \
    struct alignas(bytes) name##2 { type x, y; };                                                                      \
    struct alignas(2 * bytes > 16 ? 16 : 2 * bytes) name##4 { type x, y, z, w; };                                      \
    static inline name##2 make_##name##2(type x, type y) { return { x, y }; }                                          \
    static inline name##4 make_##name##4(type x, type y, type z, type w) { return { x, y, z, w }; }
SL_VECTOR(char, signed char, 2)
SL_VECTOR(uchar, unsigned char, 2)
SL_VECTOR(short, short, 4)
SL_VECTOR(ushort, unsigned short, 4)
SL_VECTOR(int, int, 8)
SL_VECTOR(uint, unsigned, 8)
SL_VECTOR(float, float, 8)
SL_VECTOR(double, double, 16)
#undef SL_VECTOR
/* clang-format on */

/* Of the thread that runs; the scheduler sets them. */
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
static const int warpSize = 32;

/* ---- the machine ---- */
extern "C" {
extern char __start_sl_emulated_shared[] __attribute__((weak));
extern char __stop_sl_emulated_shared[] __attribute__((weak));
}

namespace sl_emulated
{
constexpr unsigned max_threads = 1024, warp_lanes = 32;
constexpr size_t default_shared = 48 << 10, max_shared = 227 << 10, shared_guard = 256;
#if defined(SL_EMULATOR_ASAN)
constexpr size_t stack_bytes = 512 << 10;
#else
constexpr size_t stack_bytes = 64 << 10;
#endif

enum state { READY, AT_BARRIER, AT_EXCHANGE, DONE };

/* The side of a switch: how to come back to it. */
struct side {
    ucontext_t context; /* to begin with */
#if defined(SL_EMULATOR_ASAN)
    void *jump[5];
#else
    jmp_buf jump;
#endif
    const void *stack; /* for the sanitizer */
    size_t bytes;
};

struct thread {
    side fiber;
    char *stack; /* NULL: not made yet */
    state now;
    int line;          /* of the barrier or exchange it waits at */
    unsigned mask;     /* lanes of the exchange */
    uint64_t given;    /* what the lane gave to the exchange */
    int exchange;      /* which kind */
    uint64_t came[32]; /* what the lanes gave, once all had come */
};

struct machine {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one launch at a time */
    side scheduler;
    thread threads[max_threads];
    unsigned running; /* index of the thread that runs */
    void (*body)(void *);
    void *body_user;
    const char *kernel;
    char *shared; /* dynamic */
    size_t shared_bytes;
    const void *allowed[256]; /* kernels that may use more shared memory, and how much */
    size_t allowed_bytes[256];
    int allowed_count;
};
inline machine here;

[[noreturn]] inline void die(const char *what)
{
    fprintf(stderr, "emulated CUDA: kernel %s, block (%u, %u, %u): %s\n", here.kernel, blockIdx.x, blockIdx.y,
            blockIdx.z, what);
    abort();
}

inline void check(bool ok, const char *what)
{
    if (!ok) die(what);
}

/* ---- switching: a context to begin with, then jumps, which need no system call. The sanitizer is told of switches,
 * and kept from seeing the jumps, which it would take for the end of all frames ---- */
#if defined(SL_EMULATOR_ASAN)
#define SL_SAVE_SIDE(s) __builtin_setjmp((s)->jump)
#define SL_UNWATCHED    __attribute__((no_sanitize("address"), noinline))

[[noreturn]] SL_UNWATCHED inline void jump_to(side *to)
{
    __builtin_longjmp(to->jump, 1);
}
#else
#define SL_SAVE_SIDE(s) _setjmp((s)->jump)
#define SL_UNWATCHED    __attribute__((noinline))

[[noreturn]] inline void jump_to(side *to)
{
    _longjmp(to->jump, 1);
}
#endif

SL_UNWATCHED inline void jump_over(side *from, side *to)
{
    if (SL_SAVE_SIDE(from) == 0) jump_to(to);
}

SL_UNWATCHED inline void begin_over(side *from, side *to)
{
    if (SL_SAVE_SIDE(from) == 0) setcontext(&to->context);
}

inline void switch_sides(side *from, side *to, void (*over)(side *, side *))
{
#if defined(SL_EMULATOR_ASAN)
    void *fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, to->stack, to->bytes);
    over(from, to);
    __sanitizer_finish_switch_fiber(fake, &to->stack, &to->bytes);
#else
    over(from, to);
#endif
}

inline void thread_main()
{
#if defined(SL_EMULATOR_ASAN)
    __sanitizer_finish_switch_fiber(nullptr, &here.scheduler.stack, &here.scheduler.bytes);
#endif
    for (;;) {
        here.body(here.body_user);
        thread *t = &here.threads[here.running];
        t->now = DONE;
        switch_sides(&t->fiber, &here.scheduler, jump_over);
    }
}

/* A stack with a page below it that nobody may touch. */
inline char *new_stack()
{
    void *p = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(p != MAP_FAILED, "no memory for stacks");
    check(mprotect(p, 4096, PROT_NONE) == 0, "no guard below a stack");
    return (char *)p;
}

/* First resumption: there is no jump to go back to yet. */
inline void begin(thread *t)
{
    t->stack = new_stack();
    t->fiber.stack = t->stack;
    t->fiber.bytes = stack_bytes;
    getcontext(&t->fiber.context);
    t->fiber.context.uc_stack.ss_sp = t->stack;
    t->fiber.context.uc_stack.ss_size = stack_bytes;
    t->fiber.context.uc_link = nullptr;
    makecontext(&t->fiber.context, thread_main, 0);
    switch_sides(&here.scheduler, &t->fiber, begin_over);
}

inline void resume(unsigned index)
{
    thread *t = &here.threads[index];
    here.running = index;
    threadIdx = { index % blockDim.x, index / blockDim.x % blockDim.y, index / (blockDim.x * blockDim.y) };
    if (t->stack == nullptr)
        begin(t);
    else
        switch_sides(&here.scheduler, &t->fiber, jump_over);
}

inline void pause(state why, int line)
{
    thread *t = &here.threads[here.running];
    t->now = why;
    t->line = line;
    switch_sides(&t->fiber, &here.scheduler, jump_over);
}

/* ---- barriers and exchanges ---- */
inline bool release_barrier(unsigned count)
{
    int line = here.threads[0].line;
    for (unsigned i = 0; i < count; i++) {
        if (here.threads[i].now != AT_BARRIER) return false;
        check(here.threads[i].line == line, "threads wait at different barriers");
    }
    for (unsigned i = 0; i < count; i++) here.threads[i].now = READY;
    return true;
}

/* Lets the lanes of one exchange go on if all have come. */
inline bool release_exchange(thread *warp, unsigned lanes, unsigned first)
{
    unsigned mask = warp[first].mask;
    for (unsigned l = 0; l < warp_lanes; l++) {
        if ((mask >> l & 1) == 0) continue;
        check(l < lanes, "an exchange names lanes that the block does not have");
        check(warp[l].now != DONE, "an exchange names a lane that has left");
        if (warp[l].now != AT_EXCHANGE) return false;
        check(warp[l].mask == mask && warp[l].line == warp[first].line && warp[l].exchange == warp[first].exchange,
              "lanes of one exchange disagree about it");
    }
    for (unsigned l = 0; l < lanes; l++) {
        if ((mask >> l & 1) == 0) continue;
        for (unsigned k = 0; k < lanes; k++) warp[l].came[k] = warp[k].given;
        warp[l].now = READY;
    }
    return true;
}

inline bool release_exchanges(unsigned count)
{
    bool any = false;
    for (unsigned first = 0; first < count; first += warp_lanes) {
        unsigned lanes = count - first < warp_lanes ? count - first : warp_lanes;
        for (unsigned l = 0; l < lanes; l++)
            if (here.threads[first + l].now == AT_EXCHANGE && release_exchange(here.threads + first, lanes, l))
                any = true;
    }
    return any;
}

inline bool all_done(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (here.threads[i].now != DONE) return false;
    return true;
}

inline void run_block(unsigned count, bool reverse)
{
    for (unsigned i = 0; i < count; i++) here.threads[i].now = READY;
    for (;; reverse = !reverse) {
        for (unsigned k = 0; k < count; k++) {
            unsigned i = reverse ? count - 1 - k : k;
            if (here.threads[i].now == READY) resume(i);
        }
        if (all_done(count)) return;
        bool released = release_exchanges(count);
        released = release_barrier(count) || released;
        check(released, "some threads wait for others that never come");
    }
}

/* ---- memory ---- */
inline void poison_static()
{
    if (__start_sl_emulated_shared != nullptr)
        memset(__start_sl_emulated_shared, 0xff, (size_t)(__stop_sl_emulated_shared - __start_sl_emulated_shared));
}

inline size_t shared_allowed(const void *kernel)
{
    for (int i = 0; i < here.allowed_count; i++)
        if (here.allowed[i] == kernel) return here.allowed_bytes[i];
    return default_shared;
}

inline void allow_shared(const void *kernel, const char *name, size_t bytes)
{
    here.kernel = name;
    check(bytes <= max_shared, "more shared memory than there is");
    int i = 0;
    while (i < here.allowed_count && here.allowed[i] != kernel) i++;
    check(i < 256, "too many kernels with much shared memory");
    if (i == here.allowed_count) here.allowed_count++;
    here.allowed[i] = kernel;
    here.allowed_bytes[i] = bytes;
}

inline void check_guard()
{
    for (size_t i = 0; i < shared_guard; i++)
        check((unsigned char)here.shared[here.shared_bytes + i] == 0xa5, "wrote past dynamic shared memory");
}

/* ---- launches ---- */
inline void check_launch(dim3 grid, dim3 block, size_t shared, const void *kernel)
{
    size_t threads = (size_t)block.x * block.y * block.z;
    check(grid.x > 0 && grid.y > 0 && grid.z > 0, "launched with an empty grid");
    check(grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535, "grid too large");
    check(threads > 0 && threads <= max_threads && block.z <= 64, "no such block");
    check(shared <= shared_allowed(kernel), "more dynamic shared memory than allowed");
}

inline void run_grid(dim3 grid, unsigned threads)
{
    bool reverse = false;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++, reverse = !reverse) {
                blockIdx = { x, y, z };
                memset(here.shared, 0xff, here.shared_bytes);
                memset(here.shared + here.shared_bytes, 0xa5, shared_guard);
                run_block(threads, reverse);
                check_guard();
            }
}

template <class Body> void launch(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared, Body body)
{
    pthread_mutex_lock(&here.lock);
    here.kernel = name;
    blockIdx = {};
    check_launch(grid, block, shared, kernel);
    here.body = [](void *user) { (*(Body *)user)(); };
    here.body_user = &body;
    here.shared_bytes = shared;
    here.shared = (char *)aligned_alloc(128, (shared + shared_guard + 127) / 128 * 128);
    check(here.shared != nullptr, "no memory for shared memory");
    gridDim = grid;
    blockDim = block;
    poison_static();
    run_grid(grid, block.x * block.y * block.z);
    free(here.shared);
    pthread_mutex_unlock(&here.lock);
}

/* What a lane gives and gets: any type of up to eight bytes. */
template <class T> uint64_t to_slot(T value)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "exchanges move up to eight bytes");
    uint64_t slot = 0;
    memcpy(&slot, &value, sizeof value);
    return slot;
}

template <class T> T from_slot(uint64_t slot)
{
    T value;
    memcpy(&value, &slot, sizeof value);
    return value;
}

enum exchange { SYNC, SHUFFLE, VOTE };

inline unsigned lane()
{
    return here.running % warp_lanes;
}

/* Waits for the lanes of the mask; afterwards `came` of the thread has what they gave. */
inline thread *meet(exchange kind, unsigned mask, uint64_t given, int line)
{
    thread *t = &here.threads[here.running];
    check(mask >> lane() & 1, "a lane takes part in an exchange that does not name it");
    t->mask = mask;
    t->given = given;
    t->exchange = kind;
    pause(AT_EXCHANGE, line);
    return t;
}

template <class T> T shuffle(unsigned mask, T value, int source, int line)
{
    thread *t = meet(SHUFFLE, mask, to_slot(value), line);
    if (source < 0) return value;
    check(mask >> source & 1, "a shuffle reads a lane outside its mask");
    return from_slot<T>(t->came[source]);
}

/* The lane a shuffle reads; -1: its own. `width` splits the warp in parts. */
inline int in_part(int wanted, int width)
{
    int part = (int)lane() / width * width;
    return wanted >= part && wanted < part + width ? wanted : -1;
}

template <int line, class T> T shfl(unsigned mask, T value, int source, int width = warpSize)
{
    return shuffle(mask, value, (int)lane() / width * width + source % width, line);
}

template <int line, class T> T shfl_up(unsigned mask, T value, unsigned delta, int width = warpSize)
{
    return shuffle(mask, value, in_part((int)lane() - (int)delta, width), line);
}

template <int line, class T> T shfl_down(unsigned mask, T value, unsigned delta, int width = warpSize)
{
    return shuffle(mask, value, in_part((int)lane() + (int)delta, width), line);
}

template <int line, class T> T shfl_xor(unsigned mask, T value, int other, int width = warpSize)
{
    return shuffle(mask, value, in_part((int)lane() ^ other, width), line);
}

template <int line> unsigned ballot(unsigned mask, int predicate)
{
    thread *t = meet(VOTE, mask, predicate != 0, line);
    unsigned votes = 0;
    for (unsigned l = 0; l < warp_lanes; l++)
        if ((mask >> l & 1) != 0 && t->came[l] != 0) votes |= 1u << l;
    return votes;
}

template <int line> void syncwarp(unsigned mask = 0xffffffffu)
{
    meet(SYNC, mask, 0, line);
}
} // namespace sl_emulated

#define SL_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                      \
    ((void)(stream),                                                                                                   \
     sl_emulated::launch(#kernel, (const void *)(kernel), grid, block, shared_bytes, [&] { (kernel)(__VA_ARGS__); }))
#define SL_DYNAMIC_SHARED(type, name)  type *name = (type *)(void *)sl_emulated::here.shared
#define SL_ALLOW_SHARED(kernel, bytes) sl_emulated::allow_shared((const void *)(kernel), #kernel, bytes)

#define __syncthreads()             sl_emulated::pause(sl_emulated::AT_BARRIER, __LINE__)
#define __syncwarp                  sl_emulated::syncwarp<__LINE__>
#define __shfl_sync                 sl_emulated::shfl<__LINE__>
#define __shfl_up_sync              sl_emulated::shfl_up<__LINE__>
#define __shfl_down_sync            sl_emulated::shfl_down<__LINE__>
#define __shfl_xor_sync             sl_emulated::shfl_xor<__LINE__>
#define __ballot_sync               sl_emulated::ballot<__LINE__>
#define __any_sync(mask, predicate) (sl_emulated::ballot<__LINE__>(mask, predicate) != 0)
#define __all_sync(mask, predicate) (sl_emulated::ballot<__LINE__>(mask, predicate) == (mask))

/* ---- intrinsics. Those named _rn round as IEEE says; the fast ones are the exact functions here ---- */
/* Macros, because math.h declares these names for itself. */
#define __expf(a)    expf(a)
#define __logf(a)    logf(a)
#define __log2f(a)   log2f(a)
#define __powf(a, b) powf(a, b)
#define __sinf(a)    sinf(a)
#define __cosf(a)    cosf(a)
#define __tanhf(a)   tanhf(a)
#define rsqrtf(a)    (1.0f / sqrtf(a))
/* clang-format off */
template <class T> T __ldg(const T *p) { return *p; }
template <class T> T __ldcs(const T *p) { return *p; }
template <class T> T __ldcg(const T *p) { return *p; }
template <class T> void __stcs(T *p, T value) { *p = value; }
template <class T> void __stcg(T *p, T value) { *p = value; }
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __dsqrt_rn(double a) { return sqrt(a); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline float __double2float_rn(double a) { return (float)a; }
static inline float __int2float_rn(int a) { return (float)a; }
static inline float __uint2float_rn(unsigned a) { return (float)a; }
static inline float __ll2float_rn(long long a) { return (float)a; }
static inline int __float2int_rn(float a) { return (int)lrintf(a); }
static inline int __float2int_rz(float a) { return (int)a; }
static inline int __float2int_rd(float a) { return (int)floorf(a); }
static inline int __float2int_ru(float a) { return (int)ceilf(a); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __saturatef(float a) { return fminf(fmaxf(a, 0.0f), 1.0f); }
static inline unsigned __float_as_uint(float a) { return sl_emulated::from_slot<unsigned>(sl_emulated::to_slot(a)); }
static inline int __float_as_int(float a) { return sl_emulated::from_slot<int>(sl_emulated::to_slot(a)); }
static inline float __uint_as_float(unsigned a) { return sl_emulated::from_slot<float>(a); }
static inline float __int_as_float(int a) { return sl_emulated::from_slot<float>((unsigned)a); }
static inline long long __double_as_longlong(double a) { return (long long)sl_emulated::to_slot(a); }
static inline double __longlong_as_double(long long a) { return sl_emulated::from_slot<double>((uint64_t)a); }
static inline int __popc(unsigned a) { return __builtin_popcount(a); }
static inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
static inline int __clz(int a) { return a == 0 ? 32 : __builtin_clz((unsigned)a); }
static inline int __clzll(long long a) { return a == 0 ? 64 : __builtin_clzll((unsigned long long)a); }
static inline int __ffs(int a) { return __builtin_ffs(a); }
static inline unsigned __brev(unsigned a)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (a >> i & 1u) << (31 - i);
    return r;
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)((((uint64_t)high << 32 | low) << (shift & 31)) >> 32);
}
static inline unsigned __activemask() { return 0xffffffffu; }
static inline void __threadfence() {}
static inline void __threadfence_block() {}

/* ---- the little of the runtime that host functions use; everything is done at once ---- */
typedef void *cudaStream_t;
typedef int cudaError_t;
enum { cudaSuccess = 0 };
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice = 3, cudaMemcpyDefault = 4 };
static inline cudaError_t cudaGetLastError() { return cudaSuccess; }
static inline const char *cudaGetErrorString(cudaError_t) { return "no error"; }
static inline cudaError_t cudaMemsetAsync(void *p, int byte, size_t bytes, cudaStream_t)
{
    if (bytes > 0) memset(p, byte, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t)
{
    if (bytes > 0) memcpy(to, from, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                            size_t height, cudaMemcpyKind, cudaStream_t)
{
    for (size_t i = 0; i < height && width > 0; i++) memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    return cudaSuccess;
}
/* clang-format on */

#endif
