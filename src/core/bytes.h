/* bytes.h: checked sizes, alignment, little-endian loads. Every size that comes from a file or a user goes
 * through the checked functions; they are the only place where such products are formed. */
#ifndef SL_CORE_BYTES_H
#define SL_CORE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Offsets in every arena are multiples of this. */
#define SL_ALIGNMENT 256
/* Shards, norm leaves and swap blocks are cut at multiples of this many elements. */
#define SL_CUT_ELEMENTS 1024

static inline bool sl_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool sl_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* `alignment` is a power of two; the caller keeps value + alignment below 2^64. */
static inline uint64_t sl_align_up(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

static inline int64_t sl_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline uint64_t sl_load_le64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v); /* sluice runs on little-endian machines only */
    return v;
}

static inline void sl_store_le64(void *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

/* Parses "123", "20GiB", "1.5 MiB" (KiB, MiB, GiB, TiB, and of 1,000: kB, MB, GB, TB) into bytes. False on anything else or on overflow. */
bool sl_parse_bytes(const char *text, uint64_t *out);
/* Writes "1.50 GiB", "512 B", ... for people. Returns buf. */
const char *sl_format_bytes(uint64_t bytes, char *buf, size_t buf_bytes);
/* Writes "8.25", "509", "30.3k", "1.2M" (k, M, G: powers of 1,000) for how often something happens in a second. Returns
 * buf. */
const char *sl_format_rate(double rate, char *buf, size_t buf_bytes);

#endif
