/* gpu_comm_test.c: when ranks on GPUs take NCCL, and what they say when they do not; without any GPU. */
#include "train/gpu_comm.h"

#include "test.h"

/* GPUs of the ranks, and what must come of a wish. NCCL is never found: what is asked is who looks for it. */
typedef struct situation {
    const char *bus[2];
    bool is_cuda;
    sl_gpu_comm wanted;
    sluice_status expected;
    const char *note;  /* of rank 0; NULL: none */
    const char *error; /* NULL: none */
} situation;

static char noted[2048];

static void note(void *user, sluice_log_level level, const char *text)
{
    (void)user;
    CHECK_EQ(level, SLUICE_LOG_NOTE);
    snprintf(noted, sizeof noted, "%s", text);
}

static sluice_status choose(void *user, sluice_world *world)
{
    const situation *s = user;
    sl_ranks ranks = { .comm = NULL };
    sl_device_choice device = { .is_cuda = s->is_cuda };
    sl_log log = { note, NULL, sluice_world_rank(world), sluice_world_size(world) };
    sl_comm *c = world;
    setenv("SLUICE_NCCL", "/nowhere/libnccl.so.2", 1);
    SL_TRY(sl_ranks_open(world, &ranks));
    snprintf(device.facts.bus, sizeof device.facts.bus, "%s", s->bus[ranks.rank]);
    CHECK_EQ(sl_gpu_comm_choose(&ranks, &device, s->wanted, &log, &c), s->expected);
    CHECK(c == NULL);
    if (s->error != NULL) CHECK_CONTAINS(sluice_error(), s->error);
    if (s->note != NULL && ranks.rank == 0) CHECK_CONTAINS(noted, s->note);
    if (s->note == NULL || ranks.rank != 0) CHECK_STR(noted, "");
    sl_ranks_close(&ranks);
    return test_failures == 0 ? SLUICE_OK : sl_fail(SLUICE_ERR_FAILED, "checks failed in a rank");
}

static void check_situation(situation s)
{
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = 2;
    REQUIRE_OK(sluice_launch(&o, choose, &s));
}

TEST(ranks_on_one_gpu_stay_with_the_host_and_say_so)
{
    check_situation((situation){ { "0000:1b:00.0", "0000:1b:00.0" },
                                 true,
                                 SL_GPU_COMM_AUTO,
                                 SLUICE_OK,
                                 "staged through host memory instead of NCCL: ranks 0 and 1 share a GPU",
                                 NULL });
    check_situation((situation){ { "0000:1b:00.0", "0000:1b:00.0" },
                                 true,
                                 SL_GPU_COMM_NCCL,
                                 SLUICE_ERR_USAGE,
                                 NULL,
                                 "communication.gpu is nccl, but ranks 0 and 1 share a GPU" });
}

TEST(ranks_without_nccl_stay_with_the_host_unless_it_is_required)
{
    check_situation((situation){
        { "0000:1b:00.0", "0000:43:00.0" }, true, SL_GPU_COMM_AUTO, SLUICE_OK, "instead of NCCL: ", NULL });
    check_situation((situation){
        { "0000:1b:00.0", "0000:43:00.0" }, true, SL_GPU_COMM_NCCL, SLUICE_ERR_USAGE, NULL, "is not here: " });
}

TEST(ranks_on_cpus_and_those_told_to_use_the_host_look_for_no_nccl)
{
    check_situation((situation){ { "a", "b" }, true, SL_GPU_COMM_HOST, SLUICE_OK, NULL, NULL });
    check_situation((situation){ { "", "" }, false, SL_GPU_COMM_NCCL, SLUICE_OK, NULL, NULL });
}
