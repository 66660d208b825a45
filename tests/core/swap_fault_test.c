/* swap_fault_test.c: requests of the swap store that fail, are cut short, are slow or are never answered, at every place and
 * by both engines: what can be retried is, everything else ends with one message, and nothing hangs. */
#include <errno.h>
#include <stdatomic.h>

#include "core/swap.h"
#include "core/thread.h"
#include "support/swap_arena.h"

enum { UNIT = SL_SWAP_UNIT, BYTES = 3 << 20 };

static const sl_swap_label gradient = { "layer1.gradient", 5, 2 };

/* Both directions once, with the fault in place; the failure is that of the direction that the fault is of. */
static sluice_status there_and_back(swap_arena *a, swap_fault *f)
{
    sl_io_set_hook(swap_fault_hook, f);
    memset(a->in, 0, a->bytes);
    sluice_status st = sl_swap_write(a->store, 0, a->out, a->bytes, &gradient);
    if (st == SLUICE_OK) st = sl_swap_read(a->store, 0, a->in, a->bytes, &gradient);
    sl_io_set_hook(NULL, NULL);
    return st;
}

static int requests_of(swap_arena *a, const char *call)
{
    swap_fault count = { .call = call };
    CHECK_EQ(there_and_back(a, &count), SLUICE_OK);
    return count.count;
}

static const char *const calls[] = { "swap_read", "swap_write" };

TEST(swap_requests_that_fail_end_the_transfer_with_a_message)
{
    static const struct {
        int error;
        const char *advice;
    } rows[] = { { EIO, "Input/output error; check that disk" },
                 { ENOSPC, "No space left on device; free space there or use another folder" } };
    for (int threads = 0; threads < SWAP_ENGINES; threads++)
        for (int c = 0; c < 2; c++)
            for (int e = 0; e < 2; e++) {
                swap_arena a;
                if (!swap_arena_open(&a, BYTES, threads, (sl_swap_options){ 0 })) return;
                int requests = requests_of(&a, calls[c]);
                CHECK(requests >= 8);
                for (int nth = 1; nth <= requests; nth++) {
                    swap_fault f = { .call = calls[c], .nth = nth, .answer = rows[e].error };
                    CHECK_EQ(there_and_back(&a, &f), SLUICE_ERR_IO);
                    CHECK_CONTAINS(sluice_error(), rows[e].advice);
                    CHECK_CONTAINS(sluice_error(), c == 0
                                                       ? "step 2: cannot read layer1.gradient from the swap file in "
                                                       : "step 2: cannot write layer1.gradient to the swap file in ");
                    CHECK_CONTAINS(sluice_error(), a.folder);
                }
                /* A disk that works again does its work. */
                requests_of(&a, calls[c]);
                CHECK(memcmp(a.in, a.out, a.bytes) == 0);
                swap_arena_close(&a);
            }
}

TEST(a_bit_that_changes_on_the_way_is_found_at_every_request)
{
    for (int threads = 0; threads < SWAP_ENGINES; threads++) {
        swap_arena a;
        if (!swap_arena_open(&a, BYTES, threads, (sl_swap_options){ 0 })) return;
        int requests = requests_of(&a, "swap_read");
        for (int nth = 1; nth <= requests; nth++) {
            swap_fault f = { .call = "swap_read", .nth = nth, .answer = SL_IO_FLIP };
            CHECK_EQ(there_and_back(&a, &f), SLUICE_ERR_IO);
            CHECK_CONTAINS(sluice_error(), "step 2: layer1.gradient came back changed from the swap file in ");
        }
        requests_of(&a, "swap_read");
        CHECK(memcmp(a.in, a.out, a.bytes) == 0);
        swap_arena_close(&a);
    }
}

TEST(units_of_a_failed_write_count_as_never_written)
{
    for (int threads = 0; threads < SWAP_ENGINES; threads++) {
        swap_arena a;
        if (!swap_arena_open(&a, BYTES, threads, (sl_swap_options){ 0 })) return;
        requests_of(&a, "swap_read");
        swap_fault f = { .call = "swap_write", .nth = 3, .answer = EIO };
        CHECK_EQ(there_and_back(&a, &f), SLUICE_ERR_IO);
        CHECK_EQ(sl_swap_read(a.store, 0, a.in, UNIT, &gradient), SLUICE_ERR_IO);
        CHECK_CONTAINS(sluice_error(), "where nothing was written");
        swap_arena_close(&a);
    }
}

/* Every kind of it is survived. */
TEST(swap_requests_that_are_short_interrupted_or_slow_are_carried_on)
{
    static const struct {
        int nth, every, answer;
        unsigned sleep_us;
    } rows[] = {
        { 1, 1, -(64 << 10), 0 }, /* all of them, to 16 units */
        { 1, 1, -UNIT, 0 },       /* to one */
        { 1, 2, -5000, 0 },       /* to one and a part, which is moved again */
        { 1, 2, -100, 0 },        /* to less than one */
        { 1, 2, EINTR, 0 },       { 2, 2, EAGAIN, 0 }, { 3, 7, 0, 50000 },
    };
    for (int threads = 0; threads < SWAP_ENGINES; threads++)
        for (int c = 0; c < 2; c++)
            for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                swap_arena a;
                if (!swap_arena_open(&a, BYTES, threads, (sl_swap_options){ .deadline_seconds = 30 })) return;
                swap_fault f = { .call = calls[c],
                                 .nth = rows[i].nth,
                                 .every = rows[i].every,
                                 .answer = rows[i].answer,
                                 .sleep_us = rows[i].sleep_us };
                CHECK_EQ(there_and_back(&a, &f), SLUICE_OK);
                CHECK(memcmp(a.in, a.out, a.bytes) == 0);
                sl_swap_stats stats;
                sl_swap_get_stats(a.store, &stats);
                CHECK_EQ(stats.bytes_read, a.bytes);
                CHECK_EQ(stats.bytes_written, a.bytes);
                swap_arena_close(&a);
            }
}

TEST(swap_requests_that_never_get_on_fail_in_the_end)
{
    static const int answers[] = { EAGAIN, EINTR, -1 };
    for (int threads = 0; threads < SWAP_ENGINES; threads++)
        for (int i = 0; i < 3; i++) {
            swap_arena a;
            if (!swap_arena_open(&a, UNIT, threads, (sl_swap_options){ 0 })) return;
            swap_fault f = { .call = calls[i % 2], .nth = 1, .every = 1, .answer = answers[i] };
            CHECK_EQ(there_and_back(&a, &f), SLUICE_ERR_IO);
            CHECK_CONTAINS(sluice_error(), "layer1.gradient");
            swap_arena_close(&a);
        }
}

TEST(a_disk_that_stops_answering_is_named_within_the_deadline)
{
    for (int threads = 0; threads < SWAP_ENGINES; threads++)
        for (int c = 0; c < 2; c++)
            for (int nth = 1; nth <= 8; nth += 7) { /* the first of the transfer and the last */
                swap_arena a;
                if (!swap_arena_open(&a, BYTES, threads, (sl_swap_options){ .deadline_seconds = 0.2 })) return;
                swap_fault f = { .call = calls[c], .nth = nth, .answer = SL_IO_NEVER };
                double start = sl_now();
                CHECK_EQ(there_and_back(&a, &f), SLUICE_ERR_IO);
                CHECK_CONTAINS(sluice_error(), "step 2: the disk of ");
                CHECK_CONTAINS(sluice_error(), a.folder);
                CHECK_CONTAINS(sluice_error(), "has not answered for 0.");
                CHECK_CONTAINS(sluice_error(), c == 0 ? "read of layer1.gradient" : "write of layer1.gradient");
                CHECK_EQ(sl_swap_read(a.store, 0, a.in, UNIT, &gradient), SLUICE_ERR_IO);
                CHECK_CONTAINS(sluice_error(), "does not answer");
                swap_arena_close(&a);
                CHECK(sl_now() - start < 20); /* about 0.5 on a machine with time */
            }
}

/* A thread that is in a system call, as far as the store can tell, until long after the store is gone. */
static int sleep_long(void *user, const char *call, const char *path)
{
    atomic_int *left = user;
    (void)path;
    if (strcmp(call, "swap_read") != 0) return 0;
    usleep(2500000);
    atomic_fetch_sub(left, 1);
    return EIO;
}

TEST(a_thread_that_is_stuck_outlives_its_swap_store)
{
    swap_arena a;
    atomic_int left = 1;
    if (!swap_arena_open(&a, UNIT, true, (sl_swap_options){ .deadline_seconds = 0.1 })) return;
    REQUIRE_OK(sl_swap_write(a.store, 0, a.out, UNIT, &gradient));
    sl_io_set_hook(sleep_long, &left);
    double start = sl_now();
    CHECK_EQ(sl_swap_read(a.store, 0, a.in, UNIT, &gradient), SLUICE_ERR_IO);
    CHECK_CONTAINS(sluice_error(), "has not answered");
    sl_swap_close(a.store);
    a.store = NULL;
    CHECK(sl_now() - start < 2.4 || atomic_load(&left) == 0);
    while (atomic_load(&left) > 0) usleep(10000);
    usleep(100000); /* it ends */
    sl_io_set_hook(NULL, NULL);
    swap_arena_close(&a);
}

/* Requests that the kernel has, and ends or takes back when it is asked to. */
TEST(a_missed_deadline_that_is_made_up_for_leaves_the_store_usable)
{
    for (int threads = 0; threads < SWAP_ENGINES; threads++) {
        swap_arena a;
        if (!swap_arena_open(&a, BYTES, threads, (sl_swap_options){ .deadline_seconds = 1e-9 })) return;
        CHECK_EQ(sl_swap_write(a.store, 0, a.out, a.bytes, &gradient), SLUICE_ERR_IO);
        CHECK_CONTAINS(sluice_error(), "write of layer1.gradient");
        CHECK_EQ(sl_swap_write(a.store, 0, a.out, a.bytes, &gradient), SLUICE_ERR_IO);
        CHECK_CONTAINS(sluice_error(), "has not answered for");
        swap_arena_close(&a);
    }
}

TEST(files_that_fail_while_a_swap_store_opens_are_refused)
{
    static const struct {
        const char *call;
        int answer;
        sluice_status status;
    } rows[] = {
        { "open", EIO, SLUICE_ERR_IO },
        { "open", EMFILE, SLUICE_ERR_IO },
        { "stat", EIO, SLUICE_ERR_IO },
        { "fallocate", EIO, SLUICE_ERR_IO },
        { "fallocate", EDQUOT, SLUICE_ERR_NO_FIT },
        { "swap_write", EIO, SLUICE_ERR_IO },
        { "swap_read", EIO, SLUICE_ERR_IO },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *const *folder = swap_folders(2);
        sl_swap *s = NULL;
        sl_swap_options o = { .folders = folder, .folder_count = 2, .bytes = BYTES };
        for (int nth = 1; nth <= 2; nth++) { /* the first folder, the second */
            swap_fault f = { .call = rows[i].call, .nth = nth, .answer = rows[i].answer };
            sl_io_set_hook(swap_fault_hook, &f);
            CHECK_EQ(sl_swap_open(&o, &s), rows[i].status);
            sl_io_set_hook(NULL, NULL);
            CHECK_CONTAINS(sluice_error(), folder[nth - 1]);
            CHECK_EQ(swap_file_behind(folder[0]), -1);
        }
    }
}
