/* swap_test.c: the swap store: what comes back, what is refused, what is left behind, and that nothing wrong comes back. */
#include "core/swap.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <sys/statfs.h>
#include <sys/wait.h>

#include "core/alloc.h"
#include "support/swap_arena.h"

enum { UNIT = SL_SWAP_UNIT };
#define MIB ((uint64_t)1 << 20)

static const sl_swap_label weight = { "layer0.weight", 7, 3 };

/* ---- what comes back ---- */

TEST(a_swap_store_gives_back_what_was_written)
{
    for (int threads = 0; threads < SWAP_ENGINES; threads++) {
        swap_arena a;
        if (!swap_arena_open(&a, 9 * MIB + 3 * UNIT, threads, (sl_swap_options){ 0 })) return;
        CHECK_EQ(sl_swap_write(a.store, 0, a.out, a.bytes, &weight), SLUICE_OK);
        CHECK_EQ(sl_swap_read(a.store, 0, a.in, a.bytes, &weight), SLUICE_OK);
        CHECK(memcmp(a.in, a.out, a.bytes) == 0);
        CHECK_EQ(sl_swap_read(a.store, 3 * UNIT, a.in, UNIT, &weight), SLUICE_OK);
        CHECK(memcmp(a.in, a.out + 3 * UNIT, UNIT) == 0);
        CHECK_EQ(sl_swap_read(a.store, a.bytes, a.in, 0, &weight), SLUICE_OK);
        sl_swap_stats stats;
        sl_swap_get_stats(a.store, &stats);
        CHECK_EQ(stats.bytes_written, a.bytes);
        CHECK_EQ(stats.bytes_read, a.bytes + UNIT);
        CHECK_EQ(stats.end, a.bytes);
        CHECK(stats.requests_written > 9 && stats.requests_read > stats.requests_written);
        CHECK(stats.read_seconds > 0 && stats.write_seconds > 0);
        if (threads || !sl_swap_uring_built_in()) CHECK_STR(stats.engine, "threads");
        swap_arena_close(&a);
    }
}

/* Writes and reads at random places against a copy in memory. */
static void compare_with_memory(int folders, bool threads)
{
    enum { TURNS = 60 };
    uint64_t seed = 5;
    swap_arena a;
    if (!swap_arena_open(&a, 7 * MIB + UNIT, threads,
                         (sl_swap_options){ .folders = swap_folders(folders), .folder_count = folders }))
        return;
    REQUIRE_OK(sl_swap_write(a.store, 0, a.out, a.bytes, &weight));
    for (int i = 0; i < TURNS; i++) {
        uint64_t units = a.bytes / UNIT, first = swap_next(&seed) % units,
                 count = 1 + swap_next(&seed) % (units - first);
        if (i % 2 == 0) {
            swap_fill(a.out + first * UNIT, count * UNIT, seed);
            CHECK_EQ(sl_swap_write(a.store, first * UNIT, a.out + first * UNIT, count * UNIT, &weight), SLUICE_OK);
        } else {
            CHECK_EQ(sl_swap_read(a.store, first * UNIT, a.in, count * UNIT, &weight), SLUICE_OK);
            CHECK(memcmp(a.in, a.out + first * UNIT, count * UNIT) == 0);
        }
    }
    swap_arena_close(&a);
}

TEST(a_swap_store_over_several_folders_is_one_arena)
{
    for (int threads = 0; threads < SWAP_ENGINES; threads++)
        for (int folders = 1; folders <= 3; folders++) compare_with_memory(folders, threads);
}

TEST(a_swap_store_uses_every_folder)
{
    const char *const *folder = swap_folders(3);
    swap_arena a;
    if (!swap_arena_open(&a, 6 * MIB, false, (sl_swap_options){ .folders = folder, .folder_count = 3 })) return;
    CHECK_EQ(sl_swap_write(a.store, 0, a.out, a.bytes, &weight), SLUICE_OK);
    for (int i = 0; i < 3; i++) {
        int fd = swap_file_behind(folder[i]);
        struct stat info;
        REQUIRE(fd >= 0 && fstat(fd, &info) == 0);
        CHECK_EQ(info.st_size, 2 * MIB);
        CHECK_EQ(pread(fd, a.in, MIB, 0), (ssize_t)MIB);
        CHECK(memcmp(a.in, a.out + (uint64_t)i * MIB, MIB) == 0);
        close(fd);
    }
    swap_arena_close(&a);
}

/* ---- both directions at once ---- */

typedef struct writing {
    swap_arena *a;
    sluice_status status;
} writing;

/* The second half, again and again. */
static void *write_on(void *user)
{
    writing *w = user;
    uint64_t half = w->a->bytes / 2;
    for (int i = 0; i < 20 && w->status == SLUICE_OK; i++)
        w->status = sl_swap_write(w->a->store, half, w->a->out + half, half, &weight);
    return NULL;
}

TEST(a_swap_store_is_read_and_written_at_once)
{
    for (int threads = 0; threads < SWAP_ENGINES; threads++) {
        swap_arena a;
        pthread_t other;
        if (!swap_arena_open(&a, 8 * MIB, threads, (sl_swap_options){ 0 })) return;
        writing w = { &a, SLUICE_OK };
        REQUIRE_OK(sl_swap_write(a.store, 0, a.out, a.bytes, &weight));
        REQUIRE(pthread_create(&other, NULL, write_on, &w) == 0);
        for (int i = 0; i < 20; i++) {
            memset(a.in, 0, a.bytes / 2);
            CHECK_EQ(sl_swap_read(a.store, 0, a.in, a.bytes / 2, &weight), SLUICE_OK);
            CHECK(memcmp(a.in, a.out, a.bytes / 2) == 0);
        }
        pthread_join(other, NULL);
        CHECK_EQ(w.status, SLUICE_OK);
        CHECK_EQ(sl_swap_read(a.store, 0, a.in, a.bytes, &weight), SLUICE_OK);
        CHECK(memcmp(a.in, a.out, a.bytes) == 0);
        swap_arena_close(&a);
    }
}

/* ---- what is refused ---- */

TEST(a_swap_store_refuses_units_of_another_identity_and_those_never_written)
{
    const sl_swap_label other = { "layer1.weight", 8, 9 };
    swap_arena a;
    if (!swap_arena_open(&a, 4 * UNIT, false, (sl_swap_options){ 0 })) return;
    CHECK_EQ(sl_swap_write(a.store, UNIT, a.out, UNIT, &weight), SLUICE_OK);
    CHECK_EQ(sl_swap_read(a.store, UNIT, a.in, UNIT, &other), SLUICE_ERR_IO);
    CHECK_CONTAINS(sluice_error(), "step 9: layer1.weight came back changed from the swap file in ");
    CHECK_CONTAINS(sluice_error(), "the 4096 bytes at 4096 are not those written in step 3");
    CHECK_EQ(sl_swap_read(a.store, UNIT, a.in, 2 * UNIT, &weight), SLUICE_ERR_IO);
    CHECK_CONTAINS(sluice_error(), "at byte 8192, where nothing was written");
    CHECK_EQ(sl_swap_read(a.store, UNIT, a.in, UNIT, &weight), SLUICE_OK);
    swap_arena_close(&a);
}

TEST(a_swap_store_refuses_places_that_are_no_units_of_it)
{
    swap_arena a;
    if (!swap_arena_open(&a, 4 * UNIT, false, (sl_swap_options){ 0 })) return;
    static const struct {
        uint64_t offset, shift, bytes;
    } rows[] = {
        { 1, 0, UNIT },
        { 0, 8, UNIT },
        { 0, 0, 100 },
        { 4 * UNIT, 0, UNIT },
        { UNIT, 0, 4 * UNIT },
        { 8 * UNIT, 0, UNIT },
        { 0, 0, 1 + UINT64_MAX - UNIT },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_EQ(sl_swap_write(a.store, rows[i].offset, a.out + rows[i].shift, rows[i].bytes, &weight),
                 SLUICE_ERR_FAILED);
        CHECK_EQ(sl_swap_read(a.store, rows[i].offset, a.in + rows[i].shift, rows[i].bytes, &weight),
                 SLUICE_ERR_FAILED);
    }
    swap_arena_close(&a);
}

static void check_refused(const char *folder, uint64_t bytes, sluice_status status, const char *part)
{
    sl_swap *s = NULL;
    sl_swap_options o = { .folders = &folder, .folder_count = 1, .bytes = bytes };
    CHECK_EQ(sl_swap_open(&o, &s), status);
    CHECK_CONTAINS(sluice_error(), part);
    CHECK_CONTAINS(sluice_error(), folder);
    CHECK(s == NULL);
}

TEST(folders_that_cannot_hold_swap_files_are_refused_with_a_reason)
{
    char path[PATH_MAX];
    const char *folder = test_tmpdir();
    snprintf(path, sizeof path, "%s/file", folder);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    REQUIRE(fd >= 0);
    close(fd);
    check_refused(path, MIB, SLUICE_ERR_USAGE, "is a regular file; name a folder for swap files");
    snprintf(path, sizeof path, "%s/missing", folder);
    check_refused(path, MIB, SLUICE_ERR_USAGE, "does not exist");
    swap_fault no_permission = { .call = "open", .nth = 1, .every = 1, .answer = EACCES };
    sl_io_set_hook(swap_fault_hook, &no_permission);
    check_refused(folder, MIB, SLUICE_ERR_USAGE, "Permission denied; name a folder that this user may write to");
    sl_io_set_hook(NULL, NULL);
    sl_swap *s = NULL;
    CHECK_EQ(sl_swap_open(&(sl_swap_options){ .folders = &folder, .folder_count = 1 }, &s), SLUICE_ERR_USAGE);
    CHECK_EQ(sl_swap_open(&(sl_swap_options){ .folders = &folder, .bytes = 1 }, &s), SLUICE_ERR_USAGE);
}

TEST(a_disk_without_room_is_refused_with_bytes_wanted_and_free)
{
    const char *folder = test_tmpdir();
    swap_fault full = { .call = "fallocate", .nth = 1, .answer = ENOSPC };
    sl_io_set_hook(swap_fault_hook, &full);
    check_refused(folder, 5 * MIB, SLUICE_ERR_NO_FIT, "needs 5.00 MiB (5242880 bytes), ");
    sl_io_set_hook(NULL, NULL);
    CHECK_CONTAINS(sluice_error(), "are free there: No space left");
    check_refused(folder, UINT64_C(1) << 59, SLUICE_ERR_NO_FIT, "(576460752303423488 bytes)");
}

TEST(folders_of_one_file_system_share_its_space)
{
    uint64_t room, file_system, one, three;
    const char *const *folders = swap_folders(3);
    REQUIRE_OK(sl_path_room(folders[0], &room, &file_system));
    REQUIRE_OK(sl_swap_room(folders, 1, &one));
    REQUIRE_OK(sl_swap_room(folders, 3, &three));
    CHECK_NEAR((double)one / (double)room, 1, 0.1); /* others may write to it meanwhile */
    CHECK_NEAR((double)three / (double)room, 1 / 3., 0.1);
    REQUIRE_OK(sl_swap_room(NULL, 0, &one));
    CHECK_EQ(one, UINT64_MAX);
    const char *missing[] = { folders[0], "/nonexistent/folder" };
    CHECK_EQ(sl_swap_room(missing, 2, &one), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), missing[1]);
}

/* ---- what the system lacks ---- */

typedef struct notes {
    char text[4096];
    int count;
} notes;

static void take_note(void *user, sluice_log_level level, const char *message)
{
    notes *n = user;
    (void)level;
    n->count++;
    size_t used = strlen(n->text);
    snprintf(n->text + used, sizeof n->text - used, "%s\n", message);
}

/* Opens with a fault, and what was written comes back all the same. */
static void check_works_without(const char *call, int nth, int every, int answer, const char *said, const char *engine)
{
    notes heard = { "", 0 };
    sl_log log = { .fn = take_note, .user = &heard };
    swap_fault lack = { .call = call, .nth = nth, .every = every, .answer = answer };
    swap_arena a;
    sl_io_set_hook(swap_fault_hook, &lack);
    bool opened = swap_arena_open(&a, 2 * MIB, false, (sl_swap_options){ .log = &log });
    sl_io_set_hook(NULL, NULL);
    if (!opened) return;
    CHECK_CONTAINS(heard.text, said);
    sl_swap_stats stats;
    sl_swap_get_stats(a.store, &stats);
    if (engine != NULL) CHECK_STR(stats.engine, engine);
    CHECK_EQ(sl_swap_write(a.store, 0, a.out, a.bytes, &weight), SLUICE_OK);
    CHECK_EQ(sl_swap_read(a.store, 0, a.in, a.bytes, &weight), SLUICE_OK);
    CHECK(memcmp(a.in, a.out, a.bytes) == 0);
    swap_arena_close(&a);
}

TEST(a_swap_store_works_without_what_a_system_may_lack)
{
    /* O_TMPFILE; O_DIRECT at opening, or first at a transfer; reserving; io_uring. */
    check_works_without("open", 1, 0, EOPNOTSUPP, "", NULL);
    check_works_without("fallocate", 1, 0, EOPNOTSUPP, "reserves no space", NULL);
    check_works_without("swap_write", 1, 0, EINVAL, "no O_DIRECT", NULL);
    if (sl_swap_uring_built_in()) {
        check_works_without("io_uring", 1, 0, ENOSYS, "refuses io_uring", "threads");
        check_works_without("io_uring", 2, 0, EPERM, "threads read and write the swap files", "threads");
    }
}

TEST(a_swap_folder_in_memory_is_told)
{
    struct statfs system;
    const char *folder = "/dev/shm";
    notes heard = { "", 0 };
    sl_log log = { .fn = take_note, .user = &heard };
    CHECK(true);
    if (statfs(folder, &system) != 0 || system.f_type != 0x01021994) return; /* elsewhere there is nothing to tell */
    swap_arena a;
    if (!swap_arena_open(&a, MIB, false, (sl_swap_options){ .folders = &folder, .folder_count = 1, .log = &log }))
        return;
    CHECK_CONTAINS(heard.text, "/dev/shm is kept in memory");
    CHECK_EQ(heard.count, 1);
    swap_arena_close(&a);
}

/* ---- what is left ---- */

static int entries_of(const char *folder)
{
    int count = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL) return -1;
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return count;
}

TEST(swap_files_have_no_names_and_all_their_space_from_the_first)
{
    for (int unlinked = 0; unlinked < 2; unlinked++) {
        swap_arena a;
        swap_fault no_tmpfile = { .call = "open", .nth = unlinked, .answer = EOPNOTSUPP };
        sl_io_set_hook(swap_fault_hook, &no_tmpfile);
        bool opened = swap_arena_open(&a, 16 * MIB, false, (sl_swap_options){ 0 });
        sl_io_set_hook(NULL, NULL);
        if (!opened) return;
        CHECK_EQ(entries_of(a.folder), 0);
        int fd = swap_file_behind(a.folder);
        struct stat info;
        REQUIRE(fd >= 0 && fstat(fd, &info) == 0);
        CHECK_EQ(info.st_nlink, 0);
        CHECK_EQ(info.st_size, 16 * MIB);
        CHECK((uint64_t)info.st_blocks * 512 >= 16 * MIB);
        close(fd);
        swap_arena_close(&a);
    }
}

TEST(a_killed_process_leaves_no_swap_file)
{
    int ready[2], status = 0;
    const char *folder = test_tmpdir();
    char byte = 0;
    REQUIRE(pipe(ready) == 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        sl_swap *s = NULL;
        char *data = swap_pages(8 * MIB);
        sl_swap_options o = { .folders = &folder, .folder_count = 1, .bytes = 8 * MIB };
        if (data == NULL || sl_swap_open(&o, &s) != SLUICE_OK) _exit(1);
        memset(data, 1, 8 * MIB);
        for (bool told = false;; told = true) {
            if (sl_swap_write(s, 0, data, 8 * MIB, &weight) != SLUICE_OK) _exit(1);
            if (!told && write(ready[1], &byte, 1) != 1) _exit(1);
        }
    }
    close(ready[1]);
    CHECK_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    REQUIRE(child > 0 && kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(entries_of(folder), 0);
}

TEST(the_memory_of_a_swap_store_is_foretold)
{
    for (int threads = 0; threads < SWAP_ENGINES; threads++) {
        sl_alloc_stats before, with;
        sl_alloc_get_stats(&before);
        swap_arena a;
        if (!swap_arena_open(&a, 256 * MIB, threads, (sl_swap_options){ .depth = 256 })) return;
        sl_alloc_get_stats(&with);
        uint64_t taken = with.live_bytes - before.live_bytes, foretold = sl_swap_memory(256 * MIB);
        CHECK_THAT(taken <= foretold, "%" PRIu64 " bytes, %" PRIu64 " foretold", taken, foretold);
        CHECK(foretold < taken + 2 * MIB);
        swap_arena_close(&a);
        sl_alloc_get_stats(&with);
        CHECK_EQ(with.live_bytes, before.live_bytes);
    }
}

TEST(a_swap_store_that_gets_no_memory_is_not_opened)
{
    for (int threads = 0; threads < SWAP_ENGINES; threads++)
        for (int nth = 1;; nth++) {
            const char *folder = test_tmpdir();
            sl_swap *s = NULL;
            sl_alloc_stats before, after;
            sl_alloc_get_stats(&before);
            sl_alloc_fail_nth(nth, 0);
            sl_swap_options o = { .folders = &folder, .folder_count = 1, .bytes = MIB, .threads = threads };
            sluice_status st = sl_swap_open(&o, &s);
            sl_alloc_fail_nth(0, 0);
            sl_swap_close(s);
            sl_alloc_get_stats(&after);
            CHECK_EQ(after.live_bytes, before.live_bytes);
            CHECK_EQ(swap_file_behind(folder), -1);
            if (st == SLUICE_OK) break;
            CHECK_EQ(st, SLUICE_ERR_NO_MEMORY);
            REQUIRE(nth < 40);
        }
}
