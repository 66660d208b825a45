/* hash.h: FNV-1a, for names and short records that nobody tampers with: streams of random numbers by parameter name,
 * fingerprints of plans, heads of messages. Inline, so that plugins have it without a symbol of the library. The first
 * values of parameters depend on it: it must not change. */
#ifndef SL_CORE_HASH_H
#define SL_CORE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SL_HASH_START UINT64_C(0xcbf29ce484222325)

/* Goes on from `hash`, which is SL_HASH_START for the first bytes. */
static inline uint64_t sl_hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* The number's bytes from the lowest on, whatever the machine's order. */
static inline uint64_t sl_hash_number(uint64_t hash, int64_t number)
{
    for (int i = 0; i < 8; i++) hash = (hash ^ ((uint64_t)number >> (8 * i) & 0xff)) * UINT64_C(0x100000001b3);
    return hash;
}

static inline uint64_t sl_hash_text(const char *text)
{
    return sl_hash_bytes(SL_HASH_START, text, strlen(text));
}

#endif
