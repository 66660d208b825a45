/* known_test.c: machines by name: what a rank of one has. */
#include "machine/known.h"

#include "test.h"

#define GIB ((uint64_t)1 << 30)

static sl_machine_description described(sl_machine_query q, int *ranks)
{
    sl_machine_description d = { .ranks = -1 };
    CHECK_EQ(sl_machine_named(&q, &d, ranks), SLUICE_OK);
    return d;
}

TEST(a_gpu_by_any_of_its_names_is_the_same_machine)
{
    static const char *const names[] = { "rtx4090", "RTX 4090", "4090", "GeForce RTX-4090" };
    int ranks;
    for (int i = 0; i < 4; i++) {
        sl_machine_description d = described((sl_machine_query){ .gpu = names[i], .ram_bytes = 64 * GIB }, &ranks);
        CHECK_EQ(ranks, 1);
        CHECK_STR(d.gpu, "rtx-4090");
        CHECK(d.is_cuda && !d.shared_memory && d.gpus_meet && d.ranks == 0);
        CHECK_EQ(d.rates.capacity[SL_TIER_DEVICE], (uint64_t)24564 << 20);
        CHECK_EQ(d.rates.capacity[SL_TIER_HOST], 64 * GIB);
        CHECK(d.rates.update_bytes_per_second == 72e9);
    }
}

TEST(the_gpus_of_a_machine_share_its_memory_and_its_cores)
{
    int ranks;
    sl_machine_description one = described((sl_machine_query){ .gpu = "dgx-h100", .gpus = 1 }, &ranks);
    CHECK_EQ(ranks, 1);
    sl_machine_description all = described((sl_machine_query){ .gpu = "DGX H100" }, &ranks);
    CHECK_EQ(ranks, 8);
    CHECK_EQ(8 * all.rates.capacity[SL_TIER_HOST], one.rates.capacity[SL_TIER_HOST]);
    CHECK(8 * all.rates.update_bytes_per_second == one.rates.update_bytes_per_second);
    CHECK_EQ(8 * all.host_cores, one.host_cores);
}

TEST(between_machines_their_network_counts)
{
    int ranks;
    sl_machine_description inside = described((sl_machine_query){ .gpu = "p4d", .gpus = 8 }, &ranks),
                           across = described((sl_machine_query){ .gpu = "p4d", .gpus = 16 }, &ranks);
    CHECK_EQ(ranks, 16);
    CHECK(inside.rates.comm_bytes_per_second == 231e9 && across.rates.comm_bytes_per_second == 30e9);
    CHECK(across.rates.comm_latency > inside.rates.comm_latency);
    CHECK_EQ(inside.rates.capacity[SL_TIER_HOST], across.rates.capacity[SL_TIER_HOST]);
}

TEST(what_cannot_be_is_refused_and_says_why)
{
    static const struct {
        sl_machine_query query;
        const char *message;
    } cases[] = {
        { { .gpu = "rtx409" }, "near it: rtx-4090" },
        { { .gpu = "toaster" }, "no GPU or machine is known as \"toaster\"; --gpu list prints all" },
        { { .gpu = "" }, "no GPU or machine is known as \"\"" },
        { { .gpu = "v100" }, "does not run on v100-32gb: its compute capability is below 8.0" },
        { { .gpu = "mi300x" }, "AMD's are not supported" },
        { { .gpu = "h100", .host = "epyc genova" }, "near it: epyc-genoa" },
        { { .gpu = "4x-rtx-4090", .gpus = 8 }, "8 are asked for, and 4x-rtx-4090 has 4 and no network" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_machine_description d;
        int ranks;
        CHECK_EQ(sl_machine_named(&cases[i].query, &d, &ranks), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), cases[i].message);
    }
}

/* Every name that the list prints can be asked for, or says why not; and its numbers are in the units of its column. */
TEST(every_row_describes_a_machine)
{
    char *text = NULL, name[64], *rest = NULL;
    size_t bytes;
    int asked = 0;
    FILE *memory = open_memstream(&text, &bytes);
    sl_known_print(memory);
    fclose(memory);
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        sl_machine_description d;
        int ranks;
        if (strncmp(line, "hosts", 5) == 0) break;
        if (line[0] != ' ' || sscanf(line, "%63s", name) != 1) continue;
        sluice_status st = sl_machine_named(&(sl_machine_query){ .gpu = name }, &d, &ranks);
        CHECK_EQ(st == SLUICE_OK, strstr(line, "cannot be used") == NULL);
        asked++;
        if (st != SLUICE_OK) continue;
        const sl_machine *m = &d.rates;
        CHECK(m->gemm_16bit_flops > 1e13 && m->gemm_16bit_flops < 3e15);
        CHECK(m->gemm_flops > 3e12 && m->gemm_flops < m->gemm_16bit_flops);
        CHECK(m->device_bytes_per_second > 1e11 && m->device_bytes_per_second < 1e13);
        CHECK(m->link_bytes_per_second[SL_LINK_TO_HOST] > 1e10 && m->link_bytes_per_second[SL_LINK_TO_HOST] < 1e12);
        CHECK(m->update_bytes_per_second > 3e9 && m->update_bytes_per_second < 1e12);
        CHECK(m->capacity[SL_TIER_DEVICE] > 8 * GIB && m->capacity[SL_TIER_HOST] >= 16 * GIB);
    }
    CHECK(asked > 40);
    free(text);
}
