/* alloc_test.c: counted allocation, failures on demand, arenas. */
#include "core/alloc.h"
#include "core/arena.h"
#include "core/status.h"
#include "test.h"

static uint64_t live_count(void)
{
    sl_alloc_stats s;
    sl_alloc_get_stats(&s);
    return s.live_count;
}

static bool all_zero(const unsigned char *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != 0) return false;
    return true;
}

TEST(alloc_gives_zeroed_aligned_counted_memory)
{
    static const size_t sizes[] = { 0, 1, 63, 64, 65, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5 << 20 };
    sl_alloc_stats before, held, after;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t counted = sizes[i] == 0 ? 1 : sizes[i];
        for (int again = 0; again < 2; again++) { /* the second time in memory that was used */
            sl_alloc_get_stats(&before);
            unsigned char *p = sl_alloc(sizes[i], "test");
            REQUIRE(p != NULL);
            sl_alloc_get_stats(&held);
            CHECK_EQ((uintptr_t)p % 64, 0);
            CHECK(all_zero(p, counted));
            memset(p, 0xff, counted);
            CHECK_EQ(held.live_bytes - before.live_bytes, counted);
            CHECK_EQ(held.live_count - before.live_count, 1);
            CHECK_EQ(held.total_count - before.total_count, 1);
            sl_free(p);
            sl_alloc_get_stats(&after);
            CHECK_EQ(after.live_bytes, before.live_bytes);
            CHECK_EQ(after.live_count, before.live_count);
        }
    }
}

TEST(abandoned_blocks_stay_and_are_no_leaks)
{
    static const size_t sizes[] = { 100, 4 << 20 }; /* of both kinds of block */
    uint64_t before = live_count();
    for (int i = 0; i < 2; i++) {
        char *p = sl_alloc(sizes[i], "an abandoned block");
        REQUIRE(p != NULL);
        sl_alloc_abandon(p);
        memset(p, 7, sizes[i]); /* what the kernel may still do */
    }
    sl_alloc_abandon(NULL);
    CHECK_EQ(live_count(), before + 2);
}

TEST(alloc_refuses_impossible_sizes_with_a_message)
{
    CHECK(sl_alloc(SIZE_MAX, "huge things") == NULL);
    CHECK_CONTAINS(sluice_error(), "huge things");
    CHECK(sl_alloc_array(SIZE_MAX / 2, 3, "many things") == NULL);
    CHECK_CONTAINS(sluice_error(), "many things");
}

TEST(realloc_keeps_the_old_bytes_and_zeroes_the_new)
{
    unsigned char *p = sl_alloc(10, "test"), *grown;
    REQUIRE(p != NULL);
    memset(p, 7, 10);
    grown = sl_realloc(p, 10, 2 << 20, "test");
    REQUIRE(grown != NULL);
    CHECK(grown[0] == 7 && grown[9] == 7);
    CHECK(all_zero(grown + 10, (2 << 20) - 10));
    sl_alloc_fail_nth(1, 0);
    CHECK(sl_realloc(grown, 2 << 20, 4 << 20, "test") == NULL);
    CHECK(grown[9] == 7); /* still valid */
    sl_free(grown);
    p = sl_realloc(NULL, 0, 8, "test");
    CHECK(p != NULL);
    sl_free(p);
}

TEST(strdup_copies)
{
    char text[] = "name", *copy = sl_strdup(text, "test");
    REQUIRE(copy != NULL);
    text[0] = 'x';
    CHECK_STR(copy, "name");
    sl_free(copy);
}

TEST(fail_nth_fails_exactly_that_one)
{
    uint64_t before = live_count();
    sl_alloc_fail_nth(3, 0);
    for (int i = 1; i <= 5; i++) {
        void *p = sl_alloc(8, "test");
        CHECK_EQ(p == NULL, i == 3);
        sl_free(p);
    }
    CHECK_EQ(live_count(), before);
}

TEST(fail_nth_persistent_fails_all_later_ones)
{
    sl_alloc_fail_nth(2, 1);
    for (int i = 1; i <= 5; i++) {
        void *p = sl_alloc(8, "test");
        CHECK_EQ(p == NULL, i >= 2);
        sl_free(p);
    }
    sl_alloc_fail_nth(0, 0);
    void *p = sl_alloc(8, "test");
    CHECK(p != NULL);
    sl_free(p);
}

TEST(arena_pieces_are_aligned_zeroed_and_apart)
{
    enum { PIECES = 400 };
    unsigned char *piece[PIECES];
    size_t bytes[PIECES];
    uint64_t before = live_count();
    sl_arena a;
    sl_arena_init(&a, "test arena");
    CHECK_EQ(live_count(), before); /* nothing is taken before it is needed */
    for (int i = 0; i < PIECES; i++) {
        bytes[i] = i % 50 == 7 ? 100000 : (size_t)(i * 37 % 3000);
        piece[i] = sl_arena_alloc(&a, bytes[i]);
        REQUIRE(piece[i] != NULL);
        CHECK_EQ((uintptr_t)piece[i] % 16, 0);
        CHECK(all_zero(piece[i], bytes[i]));
        memset(piece[i], i & 0xff, bytes[i]);
    }
    for (int i = 0; i < PIECES; i++)
        for (size_t j = 0; j < bytes[i]; j++)
            if (piece[i][j] != (i & 0xff)) {
                test_fail(__FILE__, __LINE__, "piece %d was overwritten", i);
                break;
            }
    sl_arena_free(&a);
    CHECK_EQ(live_count(), before);
    CHECK(sl_arena_alloc(&a, 1) != NULL); /* usable again */
    sl_arena_free(&a);
}

TEST(arena_first_request_may_be_large)
{
    uint64_t before = live_count();
    sl_arena a;
    sl_arena_init(&a, "test arena");
    CHECK(sl_arena_alloc(&a, 1 << 20) != NULL);
    CHECK(sl_arena_alloc(&a, 8) != NULL);
    CHECK(sl_arena_alloc(&a, 1 << 20) != NULL);
    CHECK_EQ(live_count(), before + 3);
    sl_arena_free(&a);
    CHECK_EQ(live_count(), before);
}

TEST(arena_refuses_overflow_and_reports_lack_of_memory)
{
    sl_arena a;
    sl_arena_init(&a, "test arena");
    CHECK(sl_arena_array(&a, SIZE_MAX / 4, 8) == NULL);
    CHECK_CONTAINS(sluice_error(), "test arena");
    for (size_t bytes = 8; bytes < 1000000; bytes *= 1000) {
        sl_alloc_fail_nth(1, 0);
        CHECK(sl_arena_alloc(&a, bytes) == NULL);
        CHECK(sl_arena_alloc(&a, bytes) != NULL); /* a failure leaves it usable */
        sl_arena_free(&a);
    }
    sl_alloc_fail_nth(0, 0);
    sl_arena_free(&a);
}

TEST(arena_texts)
{
    sl_arena a;
    sl_arena_init(&a, "test arena");
    char *name = sl_arena_strdup(&a, "layer"), *text = sl_arena_printf(&a, "%s.%d", "layer", 12);
    REQUIRE(name != NULL && text != NULL);
    CHECK_STR(name, "layer");
    CHECK_STR(text, "layer.12");
    int *numbers = sl_arena_array(&a, 10, sizeof *numbers);
    CHECK(numbers != NULL && numbers[9] == 0);
    sl_arena_free(&a);
}
