/* sha256_test.c: the standard's vectors, and both block functions against each other. */
#include "core/rng.h"
#include "core/sha256.h"
#include "test.h"

static void hash_text(const char *text, size_t bytes, char hex[65])
{
    sl_sha256 h;
    uint8_t digest[32];
    sl_sha256_init(&h);
    sl_sha256_update(&h, text, bytes);
    sl_sha256_final(&h, digest);
    sl_sha256_hex(digest, hex);
}

TEST(sha256_gives_the_standard_digests)
{
    static const struct {
        const char *text, *digest;
    } rows[] = {
        { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
        { "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrst"
          "nopqrstu",
          "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
    };
    char hex[65];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        hash_text(rows[i].text, strlen(rows[i].text), hex);
        CHECK_STR(hex, rows[i].digest);
    }
}

TEST(sha256_of_a_million_letters)
{
    sl_sha256 h;
    uint8_t digest[32];
    char hex[65], thousand[1000];
    memset(thousand, 'a', sizeof thousand);
    sl_sha256_init(&h);
    for (int i = 0; i < 1000; i++) sl_sha256_update(&h, thousand, sizeof thousand);
    sl_sha256_final(&h, digest);
    sl_sha256_hex(digest, hex);
    CHECK_STR(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Every length around the block and padding boundaries, cut into two updates at every place. */
TEST(sha256_does_not_depend_on_how_the_data_is_cut)
{
    char data[200], whole[65], cut[65];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i * 7);
    for (size_t bytes = 0; bytes <= sizeof data; bytes += bytes % 64 < 54 ? 9 : 1) {
        hash_text(data, bytes, whole);
        for (size_t at = 0; at <= bytes; at++) {
            sl_sha256 h;
            uint8_t digest[32];
            sl_sha256_init(&h);
            sl_sha256_update(&h, data, at);
            sl_sha256_update(&h, data + at, bytes - at);
            sl_sha256_final(&h, digest);
            sl_sha256_hex(digest, cut);
            CHECK_STR(cut, whole);
        }
    }
}

TEST(sha256_instructions_agree_with_plain_c)
{
    if (!sl_sha256_has_ni()) SKIP(sha_ni, "the CPU has no SHA instructions");
    enum { BLOCKS = 9 };
    uint8_t data[64 * BLOCKS + 1];
    sl_rng r = sl_rng_stream(1, SL_RNG_DATA, 0, 0, 0);
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)sl_rng_u32(&r, i);
    for (size_t count = 0; count <= BLOCKS; count++) {
        uint32_t plain[8], fast[8];
        for (int i = 0; i < 8; i++) plain[i] = fast[i] = sl_rng_u32(&r, 10000 + 8 * count + (uint64_t)i);
        sl_sha256_blocks_scalar(plain, data + count % 2, count); /* odd counts: unaligned */
        sl_sha256_blocks_ni(fast, data + count % 2, count);
        CHECK(memcmp(plain, fast, sizeof plain) == 0);
    }
}
