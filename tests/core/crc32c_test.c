/* crc32c_test.c: against the values of RFC 3720, appendix B.4, and against one bit at a time. */
#include "core/crc32c.h"

#include "test.h"

TEST(crc32c_has_the_values_of_its_standard)
{
    unsigned char bytes[32];
    memset(bytes, 0, sizeof bytes);
    CHECK_EQ(sl_crc32c(bytes, sizeof bytes), 0x8a9136aau);
    memset(bytes, 0xff, sizeof bytes);
    CHECK_EQ(sl_crc32c(bytes, sizeof bytes), 0x62a8ab43u);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
    CHECK_EQ(sl_crc32c(bytes, sizeof bytes), 0x46dd794eu);
    CHECK_EQ(sl_crc32c("123456789", 9), 0xe3069283u);
    CHECK_EQ(sl_crc32c("", 0), 0);
}

static uint32_t plain_crc(const unsigned char *data, size_t bytes)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1)));
    }
    return ~crc;
}

TEST(crc32c_is_that_of_one_bit_at_a_time)
{
    unsigned char bytes[300];
    uint32_t seed = 1;
    for (int i = 0; i < 300; i++) bytes[i] = (unsigned char)((seed = seed * 1664525 + 1013904223) >> 24);
    for (size_t n = 0; n <= sizeof bytes; n += 7) CHECK_EQ(sl_crc32c(bytes, n), plain_crc(bytes, n));
}
