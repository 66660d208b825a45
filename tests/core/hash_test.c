/* hash_test.c: FNV-1a, 64 bits. Initial weights depend on these values. */
#include "core/hash.h"
#include "test.h"

TEST(hashes_are_the_published_values_of_fnv_1a)
{
    CHECK(sl_hash_text("") == UINT64_C(0xcbf29ce484222325));
    CHECK(sl_hash_text("a") == UINT64_C(0xaf63dc4c8601ec8c));
    CHECK(sl_hash_text("foobar") == UINT64_C(0x85944171f73967e8));
}

TEST(a_number_is_hashed_as_its_bytes_from_the_lowest_on)
{
    const unsigned char bytes[8] = { 0xf0, 0xde, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12 };
    CHECK(sl_hash_number(SL_HASH_START, 0x123456789abcdef0) == sl_hash_bytes(SL_HASH_START, bytes, 8));
    CHECK(sl_hash_bytes(sl_hash_bytes(SL_HASH_START, "foo", 3), "bar", 3) == sl_hash_text("foobar"));
}
