/* swap_damage_test.c: bytes that a disk changes, loses or puts elsewhere behind the swap store's back are found by the next
 * read, which names them. */
#include <inttypes.h>

#include "support/swap_arena.h"

enum { UNIT = SL_SWAP_UNIT, UNITS = 64, FLIPS = 500, LONG_FLIPS = 10000 };

static const sl_swap_label moment = { "layer3.moment", 11, 5 };

/* A store that is full of known bytes; -1: it could not be made. */
static int open_full(swap_arena *a, bool threads)
{
    if (!swap_arena_open(a, UNITS * UNIT, threads, (sl_swap_options){ 0 })) return -1;
    CHECK_EQ(sl_swap_write(a->store, 0, a->out, a->bytes, &moment), SLUICE_OK);
    int fd = swap_file_behind(a->folder);
    CHECK(fd >= 0);
    return fd;
}

/* A read of everything fails and names the unit. */
static void check_found(swap_arena *a, uint64_t unit)
{
    char place[96];
    snprintf(place, sizeof place, "the 4096 bytes at %" PRIu64 " are not those written in step 5", unit * UNIT);
    CHECK_EQ(sl_swap_read(a->store, 0, a->in, a->bytes, &(sl_swap_label){ "layer3.moment", 11, 6 }), SLUICE_ERR_IO);
    CHECK_CONTAINS(sluice_error(), place);
    CHECK_CONTAINS(sluice_error(), "step 6: layer3.moment");
    CHECK_CONTAINS(sluice_error(), a->folder);
}

static void put_unit(int fd, uint64_t unit, const char *bytes)
{
    CHECK_EQ(pwrite(fd, bytes, UNIT, (off_t)(unit * UNIT)), UNIT);
    CHECK_EQ(fdatasync(fd), 0); /* what is in the page cache would not be seen past it */
}

TEST(every_flipped_bit_of_a_swap_file_is_found_and_named)
{
    swap_arena a;
    char unit[UNIT];
    uint64_t seed = 17;
    int fd = open_full(&a, false), flips = getenv("LONG") != NULL ? LONG_FLIPS : FLIPS;
    REQUIRE(fd >= 0);
    for (int i = 0; i < flips; i++) {
        uint64_t bit = swap_next(&seed) % (a.bytes * 8), which = bit / 8 / UNIT;
        memcpy(unit, a.out + which * UNIT, UNIT);
        unit[bit / 8 % UNIT] = (char)(unit[bit / 8 % UNIT] ^ (1 << bit % 8));
        put_unit(fd, which, unit);
        check_found(&a, which);
        put_unit(fd, which, a.out + which * UNIT);
    }
    CHECK_EQ(sl_swap_read(a.store, 0, a.in, a.bytes, &moment), SLUICE_OK);
    close(fd);
    swap_arena_close(&a);
}

TEST(lost_stale_and_misdirected_writes_are_found)
{
    for (int threads = 0; threads < SWAP_ENGINES; threads++) {
        swap_arena a;
        int fd = open_full(&a, threads);
        REQUIRE(fd >= 0);
        char *old = swap_pages(UNIT);
        REQUIRE(old != NULL);
        /* A unit is written anew, and the disk keeps the old one. */
        memcpy(old, a.out + 20 * UNIT, UNIT);
        swap_fill(a.out + 20 * UNIT, UNIT, 99);
        CHECK_EQ(sl_swap_write(a.store, 20 * UNIT, a.out + 20 * UNIT, UNIT, &moment), SLUICE_OK);
        put_unit(fd, 20, old);
        check_found(&a, 20);
        put_unit(fd, 20, a.out + 20 * UNIT);
        /* A unit that is good in itself, where another belongs. */
        put_unit(fd, 30, a.out + 31 * UNIT);
        check_found(&a, 30);
        put_unit(fd, 30, a.out + 30 * UNIT);
        /* Zeros, as of space that was reserved and never reached. */
        memset(old, 0, UNIT);
        put_unit(fd, 63, old);
        check_found(&a, 63);
        put_unit(fd, 63, a.out + 63 * UNIT);
        CHECK_EQ(sl_swap_read(a.store, 0, a.in, a.bytes, &moment), SLUICE_OK);
        free(old);
        close(fd);
        swap_arena_close(&a);
    }
}

TEST(a_swap_file_that_was_cut_is_found)
{
    for (int threads = 0; threads < SWAP_ENGINES; threads++) {
        swap_arena a;
        int fd = open_full(&a, threads);
        REQUIRE(fd >= 0);
        CHECK_EQ(ftruncate(fd, 40 * UNIT), 0);
        CHECK_EQ(sl_swap_read(a.store, 0, a.in, a.bytes, &moment), SLUICE_ERR_IO);
        CHECK_CONTAINS(sluice_error(), "the file ends there");
        close(fd);
        swap_arena_close(&a);
    }
}
