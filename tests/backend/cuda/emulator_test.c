/* emulator_test.c: the emulator runs what is right, and ends the program at what is wrong. */
#include "test.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/cuda/mistakes.h"

/* Launches in a child, whose complaint comes back. Returns how it ended; -1: there was none. */
static int launch_in_child(const sl_mistake *m, char *said, size_t bytes)
{
    int ends[2], status;
    if (pipe(ends) != 0) return -1;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        m->launch();
        _exit(0);
    }
    close(ends[1]);
    ssize_t n = read(ends[0], said, bytes - 1);
    said[n > 0 ? n : 0] = '\0';
    close(ends[0]);
    return waitpid(child, &status, 0) == child ? status : -1;
}

TEST(the_cuda_emulator_ends_the_program_at_mistakes_of_kernels)
{
    for (int i = 0; i < sl_mistake_count; i++) {
        const sl_mistake *m = &sl_mistakes[i];
        char said[512] = "";
        int status = launch_in_child(m, said, sizeof said);
        REQUIRE(status != -1);
        if (m->message == NULL) {
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            continue;
        }
        CHECK(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
        if (strstr(said, m->message) == NULL)
            test_fail(__FILE__, __LINE__, "mistake %d: \"%s\" is not in \"%s\"", i, m->message, said);
    }
}
