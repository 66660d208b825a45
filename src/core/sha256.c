/* sha256.c: SHA-256 (FIPS 180-4).
 *
 * Checkpoints and weights are hashed whole, so speed counts: the SHA instructions are about six times as fast as plain
 * C. Both block functions share the constants and the streaming around them. */
#include "core/sha256.h"

#include <stdatomic.h>
#include <string.h>

#define BLOCK_BYTES 64

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

/* ---- Plain C ---- */

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t load_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store_be32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void expand_message(uint32_t w[64], const uint8_t *data)
{
    for (int t = 0; t < 16; t++) w[t] = load_be32(data + 4 * t);
    for (int t = 16; t < 64; t++) {
        uint32_t s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
}

static void block_scalar(uint32_t state[8], const uint8_t *data)
{
    uint32_t w[64];
    expand_message(w, data);
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int t = 0; t < 64; t++) {
        uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
        uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + round_constants[t] + w[t];
        uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
        uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1;
        d = c, c = b, b = a, a = t1 + t2;
    }
    const uint32_t add[8] = { a, b, c, d, e, f, g, h };
    for (int i = 0; i < 8; i++) state[i] += add[i];
}

void sl_sha256_blocks_scalar(uint32_t state[8], const uint8_t *data, size_t block_count)
{
    for (size_t i = 0; i < block_count; i++) block_scalar(state, data + BLOCK_BYTES * i);
}

/* ---- SHA instructions ---- */

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define SHA_TARGET __attribute__((target("sha,sse4.1,ssse3")))

/* The instructions keep the state as two registers, named for what they hold from high lane to low. */
typedef struct ni_state {
    __m128i abef, cdgh;
} ni_state;

/* Four rounds with message words `w` and constants from round_constants[first]. */
SHA_TARGET static inline void four_rounds(ni_state *s, __m128i w, int first)
{
    __m128i k = _mm_loadu_si128((const __m128i *)(const void *)(round_constants + first));
    __m128i wk = _mm_add_epi32(w, k);
    s->cdgh = _mm_sha256rnds2_epu32(s->cdgh, s->abef, wk);
    s->abef = _mm_sha256rnds2_epu32(s->abef, s->cdgh, _mm_shuffle_epi32(wk, 0x0e));
}

/* Message words t .. t+3 from the sixteen before them, oldest first. */
SHA_TARGET static inline __m128i next_words(__m128i w0, __m128i w1, __m128i w2, __m128i w3)
{
    __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8(w3, w2, 4));
    return _mm_sha256msg2_epu32(sum, w3);
}

SHA_TARGET static inline __m128i load_words(const uint8_t *p)
{
    const __m128i byte_swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    return _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)p), byte_swap);
}

SHA_TARGET static inline void block_ni(ni_state *s, const uint8_t *data)
{
    ni_state before = *s;
    __m128i w0 = load_words(data), w1 = load_words(data + 16);
    __m128i w2 = load_words(data + 32), w3 = load_words(data + 48);
    for (int t = 0;; t += 16) {
        four_rounds(s, w0, t);
        four_rounds(s, w1, t + 4);
        four_rounds(s, w2, t + 8);
        four_rounds(s, w3, t + 12);
        if (t == 48) break;
        w0 = next_words(w0, w1, w2, w3);
        w1 = next_words(w1, w2, w3, w0);
        w2 = next_words(w2, w3, w0, w1);
        w3 = next_words(w3, w0, w1, w2);
    }
    s->abef = _mm_add_epi32(s->abef, before.abef);
    s->cdgh = _mm_add_epi32(s->cdgh, before.cdgh);
}

SHA_TARGET void sl_sha256_blocks_ni(uint32_t state[8], const uint8_t *data, size_t block_count)
{
    __m128i *words = (__m128i *)(void *)state;
    __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xb1);
    __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1b);
    ni_state s = { _mm_alignr_epi8(cdab, efgh, 8), _mm_blend_epi16(efgh, cdab, 0xf0) };
    for (size_t i = 0; i < block_count; i++) block_ni(&s, data + BLOCK_BYTES * i);
    __m128i feba = _mm_shuffle_epi32(s.abef, 0x1b), dchg = _mm_shuffle_epi32(s.cdgh, 0xb1);
    _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}

static int detect_ni(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_SSSE3) == 0 || (c & bit_SSE4_1) == 0) return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA) != 0;
}
#else
void sl_sha256_blocks_ni(uint32_t state[8], const uint8_t *data, size_t block_count)
{
    sl_sha256_blocks_scalar(state, data, block_count);
}

static int detect_ni(void)
{
    return 0;
}
#endif

int sl_sha256_has_ni(void)
{
    static _Atomic int known; /* 0: not asked yet; 1: no; 2: yes. In a virtual machine asking costs microseconds. */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == 0) {
        answer = 1 + detect_ni();
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == 2;
}

/* ---- Streaming ---- */

static void process_blocks(sl_sha256 *h, const uint8_t *data, size_t block_count)
{
    if (sl_sha256_has_ni())
        sl_sha256_blocks_ni(h->state, data, block_count);
    else
        sl_sha256_blocks_scalar(h->state, data, block_count);
}

void sl_sha256_init(sl_sha256 *h)
{
    *h = (sl_sha256){ .state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
                                 0x5be0cd19 } };
}

void sl_sha256_update(sl_sha256 *h, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    size_t held = (size_t)(h->bytes % BLOCK_BYTES);
    if (bytes == 0) return;
    h->bytes += bytes;
    if (held > 0) {
        size_t part = BLOCK_BYTES - held < bytes ? BLOCK_BYTES - held : bytes;
        memcpy(h->block + held, p, part);
        if (held + part < BLOCK_BYTES) return;
        process_blocks(h, h->block, 1);
        p += part;
        bytes -= part;
    }
    process_blocks(h, p, bytes / BLOCK_BYTES);
    memcpy(h->block, p + bytes / BLOCK_BYTES * BLOCK_BYTES, bytes % BLOCK_BYTES);
}

void sl_sha256_final(sl_sha256 *h, uint8_t digest[32])
{
    uint64_t bits = h->bytes * 8;
    /* A one bit, zeros, and the length in bits as the last eight bytes of a block. */
    uint8_t padding[BLOCK_BYTES + 8] = { 0x80 };
    size_t held = (size_t)(h->bytes % BLOCK_BYTES);
    size_t zeros_end = held < 56 ? 56 - held : 120 - held;
    store_be32(padding + zeros_end, (uint32_t)(bits >> 32));
    store_be32(padding + zeros_end + 4, (uint32_t)bits);
    sl_sha256_update(h, padding, zeros_end + 8);
    for (int i = 0; i < 8; i++) store_be32(digest + 4 * i, h->state[i]);
}

void sl_sha256_hex(const uint8_t digest[32], char hex[65])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 32; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[64] = '\0';
}
