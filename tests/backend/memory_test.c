/* memory_test.c: how arenas are mapped: huge pages where they are offered, on the nodes asked for, and never more
 * memory than the arena has. */
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/cpu/memory.h"
#include "test.h"

/* ---- what the kernel says of a mapping ---- */

typedef struct seen {
    size_t resident, asking, refusing; /* bytes: resident; of areas with MADV_HUGEPAGE; with MADV_NOHUGEPAGE */
} seen;

static seen look(const sl_memory *m)
{
    char line[512];
    seen s = { 0, 0, 0 };
    unsigned long low = 0, high = 0, kib;
    uintptr_t begin = (uintptr_t)m->mapping, end = begin + m->mapping_bytes;
    FILE *f = fopen("/proc/self/smaps", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        unsigned long a, b;
        if (sscanf(line, "%lx-%lx ", &a, &b) == 2) {
            low = a;
            high = b;
        }
        if (low < begin || high > end) continue;
        if (sscanf(line, "Rss: %lu kB", &kib) == 1) s.resident += kib * 1024;
        if (strncmp(line, "VmFlags:", 8) != 0) continue;
        if (strstr(line, " hg") != NULL) s.asking += high - low;
        if (strstr(line, " nh") != NULL) s.refusing += high - low;
    }
    if (f != NULL) fclose(f);
    return s;
}

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- sizes ---- */

static const size_t sizes[] = { 1, 4096, SL_HUGE_PAGE - 64, SL_HUGE_PAGE, SL_HUGE_PAGE + 64, 3 * SL_HUGE_PAGE + 12345 };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

TEST(arenas_from_two_mebibytes_begin_on_a_huge_page_and_ask_for_whole_ones)
{
    char why[64];
    bool offered = sl_huge_pages_offered(false, why, sizeof why);
    sl_memory_options o = { .guard = false };
    for (int i = 0; i < SIZES; i++) {
        sl_memory m;
        REQUIRE(sl_memory_map(&m, sizes[i], &o));
        CHECK_EQ(m.bytes, sizes[i]);
        CHECK_EQ(m.mapping_bytes, (sizes[i] + page_size() - 1) / page_size() * page_size());
        CHECK(m.base == m.mapping);
        if (m.mapping_bytes >= SL_HUGE_PAGE) CHECK_EQ((uintptr_t)m.base % SL_HUGE_PAGE, 0);
        CHECK_EQ(look(&m).asking, offered ? m.mapping_bytes / SL_HUGE_PAGE * SL_HUGE_PAGE : 0);
        sl_memory_unmap(&m);
    }
}

TEST(shared_arenas_ask_for_huge_pages_only_where_files_in_memory_get_them)
{
    char why[64];
    bool offered = sl_huge_pages_offered(true, why, sizeof why);
    sl_memory_options o = { .file = memfd_create("arena", MFD_CLOEXEC) };
    REQUIRE(o.file > 0);
    for (int i = 0; i < SIZES; i++) {
        sl_memory m;
        REQUIRE(sl_memory_map(&m, sizes[i], &o));
        seen s = look(&m);
        CHECK_EQ(s.asking, offered ? m.mapping_bytes / SL_HUGE_PAGE * SL_HUGE_PAGE : 0);
        if (m.mapping_bytes >= SL_HUGE_PAGE && offered) CHECK_EQ(s.asking + s.refusing, m.mapping_bytes);
        sl_memory_unmap(&m);
    }
    close(o.file);
}

static void check_zero_and_resident(sl_memory *m, sl_pool *pool)
{
    size_t set = 0;
    sl_memory_touch(m, pool);
    CHECK_EQ(look(m).resident, m->mapping_bytes);
    for (size_t k = 0; k < m->bytes; k++) set += m->base[k] != 0;
    CHECK_EQ(set, 0);
}

TEST(touched_arenas_are_zero_and_take_their_pages_and_no_more)
{
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(3, &pool));
    for (size_t bytes = SL_HUGE_PAGE; bytes < 12 * SL_HUGE_PAGE; bytes += 3 * SL_HUGE_PAGE + 4096 + 64) {
        sl_memory m;
        sl_memory_options o = { .guard = false };
        REQUIRE(sl_memory_map(&m, bytes, &o));
        check_zero_and_resident(&m, pool);
        sl_memory_unmap(&m);
        o.file = memfd_create("arena", MFD_CLOEXEC);
        REQUIRE(o.file > 0 && sl_memory_map(&m, bytes, &o));
        check_zero_and_resident(&m, pool);
        struct stat file;
        CHECK_EQ(fstat(o.file, &file), 0);
        CHECK((size_t)file.st_blocks * 512 <= m.mapping_bytes);
        sl_memory_unmap(&m);
        close(o.file);
    }
    sl_pool_destroy(pool);
}

TEST(touching_leaves_guarded_arenas_poisoned)
{
    sl_pool *pool;
    sl_memory m;
    size_t clean = 0, bytes = 2 * SL_HUGE_PAGE + 100;
    sl_memory_options o = { .guard = true };
    REQUIRE_OK(sl_pool_create(2, &pool));
    REQUIRE(sl_memory_map(&m, bytes, &o));
    CHECK_EQ(look(&m).asking, 0);
    sl_memory_touch(&m, pool);
    for (size_t k = 0; k < bytes; k++) clean += m.base[k] != 0xFF;
    CHECK_EQ(clean, 0);
    CHECK(sl_memory_is_intact(&m));
    m.base[bytes] = 0;
    CHECK(!sl_memory_is_intact(&m));
    sl_memory_unmap(&m);
    sl_pool_destroy(pool);
}

/* ---- nodes ---- */

/* -1 where the kernel does not say. */
static int policy_of(const sl_memory *m)
{
    int policy = -1;
    long rc = syscall(SYS_get_mempolicy, &policy, NULL, 0, m->base, MPOL_F_ADDR);
    return rc == 0 ? policy : -1;
}

TEST(arenas_prefer_the_node_they_are_asked_to_lie_on)
{
    sl_memory m;
    sl_memory_options o = { .nodes = 1 }, nowhere = { .nodes = (uint64_t)1 << 63 }, none = { .nodes = 0 };
    REQUIRE(sl_memory_map(&m, 4 * SL_HUGE_PAGE, &none));
    unsigned long mask = 1;
    bool may = syscall(SYS_mbind, m.mapping, m.mapping_bytes, MPOL_PREFERRED, &mask, 65, 0) == 0;
    sl_memory_unmap(&m);
    REQUIRE(sl_memory_map(&m, 4 * SL_HUGE_PAGE, &o));
    if (may) CHECK_EQ(policy_of(&m), MPOL_PREFERRED); /* containers may forbid it */
    sl_memory_unmap(&m);
    REQUIRE(sl_memory_map(&m, 4 * SL_HUGE_PAGE, &none));
    CHECK(policy_of(&m) <= MPOL_DEFAULT);
    sl_memory_unmap(&m);
    REQUIRE(sl_memory_map(&m, 4 * SL_HUGE_PAGE, &nowhere)); /* a wish, that no machine fulfils */
    m.base[0] = 1;
    sl_memory_unmap(&m);
}

/* ---- what the machine offers ---- */

TEST(the_setting_in_brackets_decides_about_huge_pages)
{
    static const struct {
        const char *setting;
        bool shared, allowed;
        const char *why;
    } cases[] = {
        { "always [madvise] never\n", false, true, "transparent" },
        { "[always] madvise never\n", false, true, "transparent" },
        { "always madvise [never]\n", false, false, "transparent_hugepage is never" },
        { "always within_size advise [never] deny force\n", true, false, "shmem_enabled is never" },
        { "always within_size [advise] never deny force\n", true, true, "transparent" },
        { "always [within_size] advise never deny force\n", true, true, "transparent" },
        { "[always] within_size advise never deny force\n", true, true, "transparent" },
        { "always within_size advise never [deny] force\n", true, false, "shmem_enabled is deny" },
        { "[advise]", false, false, "transparent_hugepage is advise" },
        { "", false, false, "not understood" },
        { "][", true, false, "not understood" },
        { NULL, false, false, "this kernel has none" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char why[64];
        CHECK_EQ(sl_huge_pages_allowed(cases[i].setting, cases[i].shared, why, sizeof why), cases[i].allowed);
        CHECK_CONTAINS(why, cases[i].why);
    }
}
