/* guides_cli_test.c: the commands of docs/guides run as they stand there and print what the pages say (tests/cli/run-page). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/run.h"
#include "test.h"

static void check_page(const char *name)
{
    char command[4096], said[4096];
    snprintf(command, sizeof command, "%s/tests/cli/run-page %s/docs/guides/%s.md %s %s/page 2>&1", SLUICE_SOURCE_DIR,
             SLUICE_SOURCE_DIR, name, SLUICE_BINARY_DIR, test_tmpdir());
    FILE *pipe = popen(command, "r");
    REQUIRE(pipe != NULL);
    said[fread(said, 1, sizeof said - 1, pipe)] = '\0';
    const int status = pclose(pipe);
    CHECK_THAT(status == 0, "docs/guides/%s.md: %s", name, said);
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

TEST(the_guide_to_slurm_holds)
{
    if (access(SLUICE_BINARY_DIR "/libsluice_mpi.so", R_OK) != 0) SKIP(mpi, "built without MPI");
    if (system("mpirun --version > /dev/null 2>&1") != 0) SKIP(mpi, "no mpirun here");
    check_page("slurm");
}
