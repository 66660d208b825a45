/* cpu_test.c: choosing an instruction path, and counting CPUs under cgroup quotas. */
#include <limits.h>
#include <pthread.h>
#include <signal.h>

#include "core/cpu.h"
#include "core/output.h"
#include "core/thread.h"
#include "test.h"

TEST(isa_choose_takes_what_the_cpu_has)
{
    sl_isa isa = SL_ISA_COUNT;
    REQUIRE_OK(sl_isa_choose(NULL, &isa));
    CHECK_EQ(isa, sl_isa_best());
    REQUIRE_OK(sl_isa_choose("", &isa));
    CHECK_EQ(isa, sl_isa_best());
    for (int i = 0; i < SL_ISA_COUNT; i++) {
        sluice_status st = sl_isa_choose(sl_isa_name((sl_isa)i), &isa);
        if (i <= (int)sl_isa_best()) {
            CHECK_EQ(st, SLUICE_OK);
            CHECK_EQ(isa, i);
        } else {
            CHECK_EQ(st, SLUICE_ERR_USAGE);
            CHECK_CONTAINS(sluice_error(), sl_isa_name(sl_isa_best()));
        }
    }
}

static volatile sig_atomic_t faulted;

static void note_fault(int number)
{
    faulted = number;
}

static void *ask_for_tiles(void *answer)
{
    *(bool *)answer = sl_cpu_has_tiles();
    return NULL;
}

/* The first answer may come from any of several threads; all get the same, and the handlers are the caller's again. */
TEST(tiles_are_tried_out_once_and_leave_no_handler_behind)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    bool answers[THREADS];
    struct sigaction mine = { .sa_handler = note_fault }, old, after;
    CHECK_EQ(sigaction(SIGILL, &mine, &old), 0);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, ask_for_tiles, &answers[i]), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(answers[i], sl_cpu_has_tiles());
    CHECK_EQ(sigaction(SIGILL, &old, &after), 0);
    CHECK(after.sa_handler == note_fault);
    CHECK_EQ(faulted, 0);
    CHECK_EQ(sl_isa_best() == SL_ISA_AMX, sl_cpu_has_tiles());
}

TEST(isa_choose_refuses_unknown_names)
{
    static const char *const names[] = { "AVX2", "avx", "sse", "avx512 ", "best" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        sl_isa isa;
        CHECK_EQ(sl_isa_choose(names[i], &isa), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), names[i]);
    }
}

TEST(cpu_model_fits_the_buffer)
{
    char small[4] = "zzz", model[128];
    sl_cpu_model(model, sizeof model);
    sl_cpu_model(small, sizeof small);
    CHECK(strlen(model) > 0 && strlen(small) <= 3);
    CHECK(strncmp(model, small, strlen(small)) == 0);
}

TEST(cpu_count_is_at_least_one)
{
    CHECK(sl_cpu_count() >= 1);
}

/* Writes root/path with its folders. */
static bool put(const char *root, const char *path, const char *text)
{
    char full[512], folder[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    snprintf(folder, sizeof folder, "%s", full);
    *strrchr(folder, '/') = '\0';
    if (sl_dir_make(folder) == SLUICE_OK && sl_file_replace(full, text, strlen(text)) == SLUICE_OK) return true;
    test_fail(__FILE__, __LINE__, "%s: %s", full, sluice_error());
    return false;
}

static int limit_in(const char *root)
{
    char membership[512], mount[512];
    snprintf(membership, sizeof membership, "%s/membership", root);
    snprintf(mount, sizeof mount, "%s/cgroup", root);
    return sl_cgroup_cpu_limit(membership, mount);
}

TEST(cgroup_v2_quota_is_rounded_up_and_the_least_on_the_path)
{
    const char *root = test_tmpdir();
    CHECK(put(root, "membership", "0::/job/part\n"));
    CHECK_EQ(limit_in(root), INT_MAX); /* no files at all */
    CHECK(put(root, "cgroup/job/part/cpu.max", "max 100000\n"));
    CHECK_EQ(limit_in(root), INT_MAX);
    CHECK(put(root, "cgroup/job/part/cpu.max", "350000 100000\n"));
    CHECK_EQ(limit_in(root), 4);
    CHECK(put(root, "cgroup/job/cpu.max", "200000 100000\n"));
    CHECK_EQ(limit_in(root), 2);
    CHECK(put(root, "cgroup/cpu.max", "1000 100000\n"));
    CHECK_EQ(limit_in(root), 1);
}

TEST(cgroup_v2_in_a_container_sees_only_the_root)
{
    const char *root = test_tmpdir();
    CHECK(put(root, "membership", "0::/\n"));
    CHECK(put(root, "cgroup/cpu.max", "300000 100000\n"));
    CHECK_EQ(limit_in(root), 3);
}

TEST(cgroup_v1_quota_counts_only_for_the_cpu_controller)
{
    const char *root = test_tmpdir();
    CHECK(put(root, "membership", "9:cpuset:/a\n4:cpuacct,cpu:/job\n1:name=systemd:/\n"));
    CHECK(put(root, "cgroup/cpu/job/cpu.cfs_period_us", "50000\n"));
    CHECK(put(root, "cgroup/cpu/job/cpu.cfs_quota_us", "-1\n"));
    CHECK_EQ(limit_in(root), INT_MAX);
    CHECK(put(root, "cgroup/cpu/job/cpu.cfs_quota_us", "100001\n"));
    CHECK_EQ(limit_in(root), 3);
    CHECK(put(root, "membership", "9:cpuset:/job\n4:cpuacct:/job\n"));
    CHECK_EQ(limit_in(root), INT_MAX);
}

TEST(cgroup_nonsense_means_no_quota)
{
    static const char *const memberships[] = { "", "x", "0:", "::", "0::", "0::/job", "::::\n:\n" };
    static const char *const limits[] = { "", "max", "0 0", "-5 100", "7", "100 -1", "x y" };
    const char *root = test_tmpdir();
    for (size_t m = 0; m < sizeof memberships / sizeof memberships[0]; m++)
        for (size_t l = 0; l < sizeof limits / sizeof limits[0]; l++) {
            CHECK(put(root, "membership", memberships[m]));
            CHECK(put(root, "cgroup/job/cpu.max", limits[l]));
            CHECK_EQ(limit_in(root), INT_MAX);
        }
}
