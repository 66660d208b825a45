/* guides_cli_test.c: the commands of docs/guides run as they stand there and print what the pages say (tests/cli/run-page). */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/run.h"
#include "test.h"

/* Whether all of the page was run: false where it stopped at a command whose needs this machine lacks. */
static bool check_page(const char *name)
{
    char command[4096], said[4096];
    snprintf(command, sizeof command, "%s/tests/cli/run-page %s/docs/guides/%s.md %s %s/page 2>&1", SLUICE_SOURCE_DIR,
             SLUICE_SOURCE_DIR, name, SLUICE_BINARY_DIR, test_tmpdir());
    FILE *pipe = popen(command, "r");
    CHECK(pipe != NULL);
    if (pipe == NULL) return true;
    said[fread(said, 1, sizeof said - 1, pipe)] = '\0';
    const int status = pclose(pipe);
    const bool whole = !WIFEXITED(status) || WEXITSTATUS(status) != 77;
    CHECK_THAT(status == 0 || !whole, "docs/guides/%s.md: %s", name, said);
    return whole;
}

TEST(the_guide_on_failures_holds)
{
    check_page("failures");
}

TEST(the_guide_on_exactness_holds)
{
    check_page("exactness");
}

TEST(the_guide_from_deepspeed_holds)
{
    check_page("from-deepspeed");
}

/* Its last part needs PyTorch; what comes before is run, and can fail, without it. */
TEST(the_guide_from_pytorch_holds)
{
    if (!run_has("plain_build")) SKIP(plain_build, "Python cannot open a library with sanitizers");
    if (!run_has("numpy")) SKIP(numpy, "no NumPy here");
    if (check_page("from-pytorch")) return;
    if (!run_has("torch")) SKIP(torch, "no PyTorch here");
    SKIP(safetensors, "no safetensors here");
}

TEST(the_guide_to_slurm_holds)
{
    if (access(SLUICE_BINARY_DIR "/libsluice_mpi.so", R_OK) != 0) SKIP(mpi, "built without MPI");
    if (system("mpirun --version > /dev/null 2>&1") != 0) SKIP(mpi, "no mpirun here");
    check_page("slurm");
}
