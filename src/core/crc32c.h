/* crc32c.h: the checksum of records in TensorBoard's event files: CRC-32 with Castagnoli's polynomial. */
#ifndef SL_CORE_CRC32C_H
#define SL_CORE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t sl_crc32c(const void *data, size_t bytes);

#endif
