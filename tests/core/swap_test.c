/* swap_test.c: the swap store: what comes back, what is refused, what is found out. */
#include "core/swap.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "test.h"

static char *pages(uint64_t bytes)
{
    void *p = NULL;
    return posix_memalign(&p, SL_SWAP_UNIT, bytes) == 0 ? p : NULL;
}

static void fill(char *data, uint64_t bytes, uint64_t seed)
{
    uint64_t x = seed * 2 + 1;
    for (uint64_t i = 0; i < bytes; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        data[i] = (char)(x >> 56);
    }
}

enum { ARENA = 8 << 20 };

static sl_swap *open_in(const char *folder)
{
    sl_swap *s = NULL;
    sl_swap_options o = { .folders = &folder, .folder_count = 1, .bytes = ARENA };
    return sl_swap_open(&o, &s) == SLUICE_OK ? s : NULL;
}

TEST(a_swap_store_gives_back_what_was_written)
{
    const sl_swap_label label = { "layer0.weight", 7, 1 };
    sl_swap *s = open_in(test_tmpdir());
    char *out = pages(ARENA), *in = pages(ARENA);
    REQUIRE(s != NULL && out != NULL && in != NULL);
    fill(out, ARENA, 1);
    CHECK_EQ(sl_swap_write(s, 0, out, ARENA, &label), SLUICE_OK);
    CHECK_EQ(sl_swap_read(s, 0, in, ARENA, &label), SLUICE_OK);
    CHECK(memcmp(in, out, ARENA) == 0);
    CHECK_EQ(sl_swap_read(s, 3 * SL_SWAP_UNIT, in, SL_SWAP_UNIT, &label), SLUICE_OK);
    CHECK(memcmp(in, out + 3 * SL_SWAP_UNIT, SL_SWAP_UNIT) == 0);
    sl_swap_stats stats;
    sl_swap_get_stats(s, &stats);
    CHECK_EQ(stats.bytes_written, ARENA);
    CHECK_EQ(stats.bytes_read, ARENA + SL_SWAP_UNIT);
    CHECK_EQ(stats.end, ARENA);
    sl_swap_close(s);
    free(out);
    free(in);
}

TEST(a_swap_store_refuses_units_of_another_identity_and_those_never_written)
{
    const sl_swap_label label = { "layer0.weight", 7, 1 }, other = { "layer1.weight", 8, 2 };
    sl_swap *s = open_in(test_tmpdir());
    char *data = pages(2 * SL_SWAP_UNIT);
    REQUIRE(s != NULL && data != NULL);
    fill(data, 2 * SL_SWAP_UNIT, 1);
    CHECK_EQ(sl_swap_write(s, 0, data, SL_SWAP_UNIT, &label), SLUICE_OK);
    CHECK_EQ(sl_swap_read(s, 0, data, SL_SWAP_UNIT, &other), SLUICE_ERR_IO);
    CHECK_CONTAINS(sluice_error(), "layer1.weight came back changed");
    CHECK_EQ(sl_swap_read(s, 0, data, 2 * SL_SWAP_UNIT, &label), SLUICE_ERR_IO);
    CHECK_CONTAINS(sluice_error(), "never written");
    sl_swap_close(s);
    free(data);
}
