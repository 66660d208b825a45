/* sha256.h: SHA-256, with the x86 SHA instructions where the CPU has them and plain C elsewhere. */
#ifndef SL_CORE_SHA256_H
#define SL_CORE_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct sl_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
} sl_sha256;

void sl_sha256_init(sl_sha256 *h);
void sl_sha256_update(sl_sha256 *h, const void *data, size_t bytes);
void sl_sha256_final(sl_sha256 *h, uint8_t digest[32]);
void sl_sha256_hex(const uint8_t digest[32], char hex[65]);
/* For tests: the two block functions by themselves. sl_sha256_has_ni says whether the second may be called. */
void sl_sha256_blocks_scalar(uint32_t state[8], const uint8_t *data, size_t block_count);
void sl_sha256_blocks_ni(uint32_t state[8], const uint8_t *data, size_t block_count);
int sl_sha256_has_ni(void);

#endif
