/* recall_test.c: rates measured for one model are kept, found again for the same kernels alone, and never stop a run. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/io.h"
#include "machine/measure.h"
#include "machine/recall.h"
#include "support/swap_arena.h"
#include "test.h"

static const sl_model_options small_gpt = {
    .type = "gpt2", .batch = 2, .context = 16, .width = 32, .layers = 2, .heads = 2, .vocabulary = 40
};
static const sl_model_options small_cnn = { .type = "cnn",
                                            .batch = 4,
                                            .image = { 12, 12, 1 },
                                            .filters = { 4 },
                                            .filter_count = 1,
                                            .kernel = 3,
                                            .pool = 2,
                                            .outputs = 5 };

typedef struct machine_here {
    sl_ranks ranks;
    sl_device_choice device;
    sluice_graph *graph;
    sl_recall recall;
} machine_here;

static void set_cache(const char *folder)
{
    setenv("XDG_CACHE_HOME", folder, 1);
}

static void open_here(machine_here *h, const sl_model_options *model, sluice_dtype precision)
{
    sl_model_info info;
    *h = (machine_here){ .graph = NULL };
    REQUIRE_OK(sl_ranks_open(NULL, &h->ranks));
    REQUIRE_OK(sl_device_choose(SLUICE_DEVICE_CPU, 0, 1, &h->device));
    REQUIRE_OK(sluice_graph_create(&h->graph));
    REQUIRE_OK(sl_model_build(h->graph, model, &info));
    REQUIRE_OK(sl_graph_finish(h->graph));
    REQUIRE_OK(sl_graph_lower(h->graph, precision, precision));
    REQUIRE_OK(sl_graph_differentiate(h->graph));
    h->recall = (sl_recall){
        .graph = h->graph, .device = &h->device, .isa = sl_isa_best(), .threads = 1, .ranks = 1, .here = &h->ranks
    };
}

static void close_here(machine_here *h)
{
    sluice_graph_destroy(h->graph);
    sl_ranks_close(&h->ranks);
}

static void recall(machine_here *h, sl_machine *rates)
{
    sl_machine_describe(h->recall.isa, 1, rates);
    CHECK_EQ(sl_machine_recall(&h->recall, rates), SLUICE_OK);
}

/* Files in CACHE/sluice; the last one's path. */
static int count_files(const char *cache, char last[PATH_MAX])
{
    char folder[PATH_MAX - 300];
    int count = 0;
    snprintf(folder, sizeof folder, "%s/sluice", cache);
    DIR *d = opendir(folder);
    if (d == NULL) return 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (e->d_name[0] == '.') continue;
        snprintf(last, PATH_MAX, "%s/%s", folder, e->d_name);
        count++;
    }
    closedir(d);
    return count;
}

TEST(rates_of_a_model_are_measured_once_and_then_remembered)
{
    const char *cache = test_tmpdir();
    char file[PATH_MAX];
    machine_here h;
    sl_machine first, second;
    set_cache(cache);
    open_here(&h, &small_gpt, SLUICE_BF16);
    recall(&h, &first);
    CHECK(first.kernels[SL_RATE_16BIT][SL_OP_LINEAR].count > 0);
    CHECK(first.kernels[SL_RATE_16BIT][SL_OP_EMBEDDING].count > 0);
    CHECK(first.kernels[SL_RATE_F32][SL_OP_UPDATE].count > 0);
    CHECK(first.copies[SL_LINK_TO_HOST].count > 0);
    CHECK_EQ(count_files(cache, file), 1);
    recall(&h, &second);
    const sl_rates *a = &first.kernels[SL_RATE_16BIT][SL_OP_LINEAR], *b = &second.kernels[SL_RATE_16BIT][SL_OP_LINEAR];
    CHECK_EQ(a->count, b->count);
    for (int i = 0; i < a->count; i++) /* of another measurement not one duration would be the same to five digits */
        CHECK_NEAR(b->points[i].seconds / a->points[i].seconds, 1, 1e-5);
    CHECK_EQ(count_files(cache, file), 1);
    close_here(&h);
}

TEST(rates_of_other_kernels_threads_and_ranks_are_others)
{
    const char *cache = test_tmpdir();
    char file[PATH_MAX];
    machine_here gpt, narrow, cnn;
    sl_machine rates, before;
    set_cache(cache);
    open_here(&gpt, &small_gpt, SLUICE_F32);
    open_here(&narrow, &small_gpt, SLUICE_F16);
    open_here(&cnn, &small_cnn, SLUICE_F32);
    recall(&gpt, &rates);
    recall(&narrow, &rates);
    CHECK(rates.kernels[SL_RATE_16BIT][SL_OP_LINEAR].count > 0);
    recall(&cnn, &rates);
    CHECK(rates.kernels[SL_RATE_F32][SL_OP_CONV2D].count > 0);
    CHECK_EQ(count_files(cache, file), 3);
    gpt.recall.threads = 2;
    recall(&gpt, &rates);
    CHECK_EQ(count_files(cache, file), 4);
    gpt.recall.ranks = 2; /* which do not run: nothing is known of them */
    sl_machine_describe(gpt.recall.isa, 1, &before);
    recall(&gpt, &rates);
    CHECK(memcmp(&rates, &before, sizeof rates) == 0);
    CHECK_EQ(count_files(cache, file), 4);
    close_here(&gpt);
    close_here(&narrow);
    close_here(&cnn);
}

TEST(more_layers_have_the_same_kernels)
{
    sl_model_options deep = small_gpt;
    machine_here a, b;
    deep.layers = 5;
    open_here(&a, &small_gpt, SLUICE_F32);
    open_here(&b, &deep, SLUICE_F32);
    sl_model_options wide = small_gpt;
    wide.width = 64;
    machine_here c;
    open_here(&c, &wide, SLUICE_F32);
    CHECK(sl_bench_graph_hash(a.graph) == sl_bench_graph_hash(b.graph));
    CHECK(sl_bench_graph_hash(a.graph) != sl_bench_graph_hash(c.graph));
    close_here(&a);
    close_here(&b);
    close_here(&c);
}

TEST(a_damaged_or_unwritable_cache_is_no_failure)
{
    const char *cache = test_tmpdir();
    char file[PATH_MAX];
    machine_here h;
    sl_machine rates;
    set_cache(cache);
    open_here(&h, &small_cnn, SLUICE_F32);
    recall(&h, &rates);
    CHECK_EQ(count_files(cache, file), 1);
    CHECK_EQ(truncate(file, 100), 0);
    recall(&h, &rates);
    CHECK(rates.kernels[SL_RATE_F32][SL_OP_CONV2D].count > 0);
    sl_machine_description d;
    CHECK_EQ(sl_machine_read(file, &d), SLUICE_OK);
    set_cache("/proc/nowhere"); /* where nobody may make a folder */
    recall(&h, &rates);
    CHECK(rates.kernels[SL_RATE_F32][SL_OP_CONV2D].count > 0);
    close_here(&h);
}

/* Of a file that was measured on such a machine: what it has stays as it is. */
TEST(kernels_that_a_file_lacks_are_measured_when_a_model_has_them)
{
    char file[PATH_MAX];
    const char *cache = test_tmpdir();
    machine_here h;
    sl_machine usual, rates;
    set_cache(cache);
    open_here(&h, &small_cnn, SLUICE_F32);
    sl_machine_describe(h.recall.isa, 1, &usual);
    rates = usual;
    rates.kernels[SL_RATE_F32][SL_OP_LINEAR] = (sl_rates){ 1, { { 1, 42 } } };
    CHECK_EQ(sl_machine_recall_missing(&h.recall, &usual, &rates), SLUICE_OK);
    CHECK(rates.kernels[SL_RATE_F32][SL_OP_CONV2D].count > 0 && rates.kernels[SL_RATE_F32][SL_OP_MAX_POOL2D].count > 0);
    CHECK(rates.kernels[SL_RATE_F32][SL_OP_LINEAR].points[0].seconds == 42);
    CHECK(rates.gemm_flops == usual.gemm_flops);
    CHECK_EQ(count_files(cache, file), 1);
    set_cache(test_tmpdir());
    const sl_machine complete = rates;
    CHECK_EQ(sl_machine_recall_missing(&h.recall, &usual, &rates), SLUICE_OK);
    CHECK(memcmp(&complete, &rates, sizeof rates) == 0); /* nothing is measured where nothing is missing */
    close_here(&h);
}

TEST(a_machine_is_chosen_by_the_option_before_the_environment)
{
    sl_machine_choice c = sl_machine_choose("some.json");
    CHECK(c.file != NULL && strcmp(c.file, "some.json") == 0 && !c.measures);
    c = sl_machine_choose("default");
    CHECK(c.file == NULL && !c.measures);
    setenv("SLUICE_MACHINE", "other.json", 1);
    c = sl_machine_choose(NULL);
    CHECK(c.file != NULL && strcmp(c.file, "other.json") == 0);
    unsetenv("SLUICE_MACHINE");
    c = sl_machine_choose(NULL);
    CHECK(c.file == NULL && c.measures);
    setenv("SLUICE_MACHINE", "default", 1);
}

TEST(rates_of_a_disk_are_measured_once_and_then_remembered)
{
    char cache[PATH_MAX], file[PATH_MAX];
    snprintf(cache, sizeof cache, "%s", test_tmpdir());
    const char *folder = test_tmpdir(), *missing = "/nonexistent/folder";
    machine_here h;
    sl_machine usual, first, second;
    set_cache(cache);
    open_here(&h, &small_gpt, SLUICE_BF16);
    sl_machine_describe(h.recall.isa, 1, &usual);
    first = second = usual;
    CHECK_EQ(sl_machine_recall_disk(&h.recall, &first), SLUICE_OK);
    CHECK_EQ(first.copies[SL_LINK_DISK_READ].count, 0); /* there are no folders */
    h.recall.folders = &folder;
    h.recall.folder_count = 1;
    CHECK_EQ(sl_machine_recall_disk(&h.recall, &first), SLUICE_OK);
    CHECK(first.copies[SL_LINK_DISK_READ].count > 1 && first.copies[SL_LINK_DISK_WRITE].count > 1);
    CHECK(first.link_bytes_per_second[SL_LINK_DISK_READ] > 0 && first.disk_read_slowdown >= 0);
    CHECK(first.disk_processor > 0 && first.disk_beside[0].count > 1);
    CHECK_EQ(first.kernels[SL_RATE_F32][SL_OP_UPDATE].count, 0);
    CHECK_EQ(count_files(cache, file), 1);
    CHECK_EQ(sl_machine_recall_disk(&h.recall, &second), SLUICE_OK);
    const sl_rates *a = &first.copies[SL_LINK_DISK_WRITE], *b = &second.copies[SL_LINK_DISK_WRITE];
    CHECK_EQ(a->count, b->count);
    for (int i = 0; i < a->count; i++) CHECK_NEAR(b->points[i].seconds / a->points[i].seconds, 1, 1e-5);
    CHECK_NEAR(second.disk_read_slowdown, first.disk_read_slowdown, 1e-4 * (1 + first.disk_read_slowdown));
    CHECK_NEAR(second.disk_write_slowdown, first.disk_write_slowdown, 1e-4 * (1 + first.disk_write_slowdown));
    CHECK_EQ(second.disk_beside[1].count, first.disk_beside[1].count);
    CHECK_NEAR(second.disk_processor, first.disk_processor, 1e-4);
    CHECK_EQ(count_files(cache, file), 1);
    h.recall.here->local = 2; /* ranks that share a disk have rates of their own */
    h.recall.ranks = 2;
    second = usual;
    CHECK_EQ(sl_machine_recall_disk(&h.recall, &second), SLUICE_OK);
    CHECK_EQ(second.copies[SL_LINK_DISK_READ].count, 0);
    h.recall.here->local = h.recall.ranks = 1;
    h.recall.folders = &missing;
    second = usual;
    CHECK_EQ(sl_machine_recall_disk(&h.recall, &second), SLUICE_OK); /* no reason not to plan */
    CHECK_EQ(second.copies[SL_LINK_DISK_READ].count, 0);
    close_here(&h);
}

static void note_disk(void *user, const sl_machine_description *d)
{
    sl_machine_description *seen = user;
    CHECK_EQ(seen->ranks, 0); /* one alone */
    *seen = *d;
}

TEST(disks_that_were_measured_are_listed_with_their_folders)
{
    char cache[PATH_MAX], file[PATH_MAX];
    snprintf(cache, sizeof cache, "%s", test_tmpdir());
    const char *folder = test_tmpdir();
    static sl_machine_description seen;
    sl_machine rates;
    set_cache(cache);
    sl_recall_list_disks(note_disk, &seen);
    CHECK_EQ(seen.ranks, 0);
    sl_machine_default(&rates);
    REQUIRE_OK(sl_machine_measure_disk(&(sl_disk_set){ &folder, 1, 1, 60 }, &rates, file));
    CHECK(sl_path_exists(file));
    sl_recall_list_disks(note_disk, &seen);
    CHECK_EQ(seen.ranks, 1);
    CHECK_STR(seen.disk_folders, folder);
    CHECK_NEAR(seen.rates.link_bytes_per_second[SL_LINK_DISK_READ] / rates.link_bytes_per_second[SL_LINK_DISK_READ], 1,
               1e-4);
}

/* Of a measurement that succeeds, and of one that fails with its memory taken and leaves a run to go on with the usual rates. */
TEST(the_memory_that_disks_are_measured_with_is_not_that_of_the_run)
{
    for (int fails = 0; fails < 2; fails++) {
        char file[PATH_MAX];
        sl_machine rates;
        swap_fault full = { .call = "fallocate", .nth = 2, .answer = ENOSPC };
        set_cache(test_tmpdir());
        sl_machine_default(&rates);
        if (fails) sl_io_set_hook(swap_fault_hook, &full);
        sluice_status st = sl_machine_measure_disk(&(sl_disk_set){ swap_folders(1), 1, 1, 60 }, &rates, file);
        sl_io_set_hook(NULL, NULL);
        CHECK_EQ(st, fails ? SLUICE_ERR_NO_FIT : SLUICE_OK);
        CHECK(sl_memory_high_water() <= sl_memory_resident() + ((uint64_t)32 << 20));
    }
}
