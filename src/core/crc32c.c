/* crc32c.c: four bits at a time. Records are a few hundred bytes a step: a larger table or the CPU's own instruction would gain
 * nothing that could be measured. */
#include "core/crc32c.h"

/* What four bits, shifted out, leave behind; the polynomial is 0x82f63b78, its lowest bit first. */
static const uint32_t remainders[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

uint32_t sl_crc32c(const void *data, size_t bytes)
{
    uint32_t crc = UINT32_MAX;
    for (const unsigned char *p = data, *end = p + bytes; p < end; p++) {
        crc = remainders[(crc ^ *p) & 15] ^ (crc >> 4);
        crc = remainders[(crc ^ (uint32_t)(*p >> 4)) & 15] ^ (crc >> 4);
    }
    return ~crc;
}
