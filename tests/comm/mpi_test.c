/* mpi_test.c: jobs under mpirun, and what a process makes of its launcher's variables. The ranks run mpi_ranks. */
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#define RANKS  SLUICE_BINARY_DIR "/mpi_ranks"
#define PLUGIN SLUICE_BINARY_DIR "/libsluice_mpi.so"
#define NO_MPI "no mpirun here, or built without MPI"
#define CLEARED                                                                                                        \
    "env -u OMPI_COMM_WORLD_SIZE -u PMI_SIZE -u PMI_RANK -u PMI_FD -u PMIX_RANK -u SLURM_STEP_NUM_TASKS -u "           \
    "WORLD_SIZE "

static char output[1 << 16];

/* Runs a command; its exit status, with everything it printed in `output`. */
static int run(const char *command)
{
    FILE *p = popen(command, "r");
    if (p == NULL) return -1;
    size_t length = fread(output, 1, sizeof output - 1, p);
    output[length] = '\0';
    while (fgetc(p) != EOF) {
    }
    int status = pclose(p);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool has_mpi(void)
{
    return access(PLUGIN, R_OK) == 0 && run("mpirun --version > /dev/null 2>&1") == 0;
}

/* mpi_ranks under mpirun. Leaks inside MPI are not ours to report. */
static int run_ranks(int ranks, const char *test)
{
    char command[1024];
    snprintf(command, sizeof command,
             CLEARED "ASAN_OPTIONS=detect_leaks=0 SLUICE_PLUGINS=" SLUICE_BINARY_DIR
                     " timeout -k 5 60 mpirun --allow-run-as-root --oversubscribe --bind-to none -n %d " RANKS
                     " %s 2>&1",
             ranks, test);
    return run(command);
}

static void expect(int status, int expected)
{
    CHECK_EQ(status, expected);
    if (status != expected) fprintf(stderr, "%s\n", output);
}

TEST(three_ranks_under_mpirun_do_everything_the_contract_says)
{
    if (!has_mpi()) SKIP(mpi, NO_MPI);
    expect(run_ranks(3, "together"), 0);
    int closings = 0;
    for (const char *p = output; (p = strstr(p, " passed, 0 failed, 0 skipped")) != NULL; p++) closings++;
    CHECK_EQ(closings, 3);
}

TEST(mpi_ranks_at_different_collectives_end_with_5_and_both_are_named)
{
    if (!has_mpi()) SKIP(mpi, NO_MPI);
    expect(run_ranks(3, "broken_sequence"), 5);
    CHECK_CONTAINS(output, "collective 7, gather of h.3 (gather, 16384 bytes)");
    CHECK_CONTAINS(output, "collective 8, gather of h.4 (gather, 16384 bytes)");
}

TEST(mpi_ranks_that_add_different_forms_end_with_5)
{
    if (!has_mpi()) SKIP(mpi, NO_MPI);
    expect(run_ranks(2, "broken_forms"), 5);
    CHECK_CONTAINS(output, "are both at collective 7, reduce-scatter of h.3 (reduce-scatter, 8192 bytes)");
    CHECK_CONTAINS(output, "in other forms");
}

TEST(an_mpi_sum_in_a_form_that_is_not_its_own_is_refused)
{
    if (!has_mpi()) SKIP(mpi, NO_MPI);
    expect(run_ranks(2, "broken_sum"), 5);
    CHECK_CONTAINS(output, "part 0 of reduce-scatter of h.3: a sum is kept in f32 or in the form of its contributions");
}

TEST(mpi_ranks_in_different_control_calls_end_with_5_and_both_are_named)
{
    if (!has_mpi()) SKIP(mpi, NO_MPI);
    expect(run_ranks(2, "broken_control"), 5);
    CHECK_CONTAINS(output, "\"losses of step 1\"");
    CHECK_CONTAINS(output, "\"losses of step 2\"");
}

TEST(a_silent_mpi_rank_is_named_after_the_deadline)
{
    if (!has_mpi()) SKIP(mpi, NO_MPI);
    expect(run_ranks(3, "broken_silence"), 5);
    CHECK_CONTAINS(output, "rank 1 was not heard of for 2 s in collective 1, gather of h.0");
}

TEST(an_mpi_rank_that_gives_up_ends_the_others_with_its_message)
{
    if (!has_mpi()) SKIP(mpi, NO_MPI);
    expect(run_ranks(3, "broken_abort"), 5);
    CHECK_CONTAINS(output, "rank 1 ended the job: open data.txt: no such file");
}

TEST(an_mpi_rank_that_leaves_early_is_noticed)
{
    if (!has_mpi()) SKIP(mpi, NO_MPI);
    expect(run_ranks(2, "broken_leaving"), 5);
    CHECK_CONTAINS(output, "\"leaving the job\"");
}

/* The launcher ends the rest when a rank dies of a signal, and says which it was. */
TEST(a_killed_mpi_rank_ends_the_job)
{
    if (!has_mpi()) SKIP(mpi, NO_MPI);
    expect(run_ranks(3, "broken_killed"), 137);
    CHECK_CONTAINS(output, "rank 1");
}

TEST(one_rank_under_a_launcher_is_alone)
{
    expect(run(CLEARED "OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 " RANKS " broken_joining 2>&1"), 0);
    CHECK_CONTAINS(output, "rank 0 of 1");
}

TEST(a_rank_of_several_without_the_plugin_is_refused_with_the_reason)
{
    char command[8192];
    const char *folder = test_tmpdir(); /* nothing lies beside the copy */
    snprintf(command, sizeof command,
             "cp " RANKS " %s/ranks && " CLEARED "-u SLUICE_PLUGINS OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0 "
             "%s/ranks broken_joining 2>&1",
             folder, folder);
    expect(run(command), 2);
    CHECK_CONTAINS(output, "started as one of 4 ranks by mpirun");
    CHECK_CONTAINS(output, "libsluice_mpi.so");
}

TEST(ranks_that_nothing_connects_are_refused)
{
    expect(run(CLEARED "WORLD_SIZE=2 RANK=1 " RANKS " broken_joining 2>&1"), 2);
    CHECK_CONTAINS(output, "started as one of 2 ranks by torchrun");
    CHECK_CONTAINS(output, "not built in yet");
    expect(run(CLEARED "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 " RANKS " broken_joining 2>&1"), 2);
    CHECK_CONTAINS(output, "--mpi=pmix");
}
