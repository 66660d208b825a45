/* measure_disk_test.c: the durations of disk transfers: their form, that they are of the disk, and what is left. */
#include "machine/measure_disk.h"

#include <dirent.h>
#include <errno.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "support/swap_arena.h"

static void check_rates(const sl_rates *r)
{
    CHECK(r->count >= 2 && r->count <= SL_RATE_POINTS);
    for (int i = 0; i < r->count; i++) {
        CHECK(r->points[i].seconds > 0 && r->points[i].work > 0);
        if (i > 0) CHECK(r->points[i].work > r->points[i - 1].work);
    }
}

TEST(durations_of_disk_transfers_are_measured_in_both_directions)
{
    for (int threads = 0; threads < SWAP_ENGINES; threads++) {
        sl_disk_rates rates;
        sl_alloc_stats before, after;
        sl_alloc_get_stats(&before);
        sl_disk_bench b = {
            .folders = swap_folders(2), .folder_count = 2, .bytes = 64 << 20, .seconds = 0.3, .threads = threads
        };
        REQUIRE_OK(sl_measure_disk(&b, &rates));
        check_rates(&rates.read);
        check_rates(&rates.write);
        check_rates(&rates.read_beside);
        check_rates(&rates.write_beside);
        CHECK(rates.processor > 0 && rates.processor < sl_cpu_count() + 1);
        CHECK_EQ(swap_file_behind(b.folders[0]), -1);
        sl_alloc_get_stats(&after);
        CHECK_EQ(after.live_bytes, before.live_bytes);
    }
}

TEST(a_slow_disk_is_measured_as_slow_and_with_less)
{
    sl_disk_rates rates;
    sl_disk_bench b = { .folders = swap_folders(1), .folder_count = 1, .seconds = 0.3, .threads = true };
    swap_fault slow = { .call = "swap_write", .nth = 1, .every = 1, .sleep_us = 20000 };
    sl_io_set_hook(swap_fault_hook, &slow);
    sluice_status st = sl_measure_disk(&b, &rates);
    sl_io_set_hook(NULL, NULL);
    REQUIRE_OK(st);
    check_rates(&rates.write);
    for (int i = 0; i < rates.write.count; i++) CHECK(rates.write.points[i].seconds >= 0.02);
    CHECK(slow.count < 500);
}

TEST(a_disk_that_does_not_answer_fails_by_the_deadline)
{
    sl_disk_rates rates;
    for (int threads = 0; threads < SWAP_ENGINES; threads++) {
        sl_disk_bench b = {
            .folders = swap_folders(1), .folder_count = 1, .seconds = 0.3, .threads = threads, .deadline_seconds = 0.2
        };
        swap_fault stuck = { .call = "swap_read", .nth = 3, .answer = SL_IO_NEVER };
        sl_io_set_hook(swap_fault_hook, &stuck);
        CHECK_EQ(sl_measure_disk(&b, &rates), SLUICE_ERR_IO);
        sl_io_set_hook(NULL, NULL);
        CHECK_CONTAINS(sluice_error(), "has not answered");
        CHECK_CONTAINS(sluice_error(), b.folders[0]);
    }
}

TEST(disks_that_cannot_be_measured_are_a_failure)
{
    sl_disk_rates rates;
    const char *missing = "/nonexistent/folder";
    CHECK_EQ(sl_measure_disk(&(sl_disk_bench){ .folders = &missing, .folder_count = 1 }, &rates), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), missing);
    for (int nth = 2; nth <= 12; nth += 5) {
        sl_disk_bench b = { .folders = swap_folders(1), .folder_count = 1, .seconds = 0.3 };
        swap_fault broken = { .call = "swap_read", .nth = nth, .every = 1, .answer = EIO };
        sl_io_set_hook(swap_fault_hook, &broken);
        CHECK_EQ(sl_measure_disk(&b, &rates), SLUICE_ERR_IO);
        sl_io_set_hook(NULL, NULL);
        CHECK_CONTAINS(sluice_error(), b.folders[0]);
    }
}
