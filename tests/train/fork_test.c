/* fork_test.c: an engine in a process forked from the one that made it. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sluice.h"
#include "test.h"

#define ROWS 4
static const float x[ROWS * 3] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 }, y[ROWS] = { 1, 0, 1, 0 };
static const sluice_array arrays[] = { { "x", x, sizeof x }, { "y", y, sizeof y } };
static const sluice_batch batch = { arrays, 2 };

typedef struct model {
    sluice_graph *graph;
    sluice_engine *engine;
} model;

static sluice_status make_model(int threads, const char *disk, model *m)
{
    sluice_options o;
    if (sluice_graph_create(&m->graph) != SLUICE_OK) return SLUICE_ERR_FAILED;
    sluice_value in = sluice_input(m->graph, "x", SLUICE_F32, 2, (int64_t[]){ ROWS, 3 });
    sluice_value want = sluice_input(m->graph, "y", SLUICE_F32, 2, (int64_t[]){ ROWS, 1 });
    sluice_set_loss(m->graph, sluice_mse(m->graph, sluice_linear(m->graph, in, 1, "fc"), want));
    sluice_options_init(&o);
    o.threads = threads;
    o.optimizer_state = disk != NULL ? SLUICE_PLACE_DISK : SLUICE_PLACE_HOST;
    o.disk_path = disk;
    return sluice_engine_create(m->graph, &o, &m->engine);
}

/* In the child: 0, or the number of what was wrong. */
static int use_in_child(model m)
{
    double loss;
    float w[3];
    alarm(20); /* a call that waits for a thread of the parent waits forever */
    if (sluice_train_step(m.engine, &batch, &loss) != SLUICE_ERR_USAGE) return 1;
    if (strstr(sluice_error(), "sluice_train_step: the engine is of process ") == NULL) return 2;
    if (sluice_get_parameter(m.engine, "fc.weight", w, sizeof w) != SLUICE_ERR_USAGE) return 3;
    if (sluice_save(m.engine, "never.safetensors") != SLUICE_ERR_USAGE) return 4;
    sluice_engine_destroy(m.engine);
    sluice_graph_destroy(m.graph);
    return 0;
}

/* The parent's engine goes on as if there had been no child. */
static void fork_and_destroy(int threads, const char *disk)
{
    double losses[2][4];
    for (int forked = 0; forked < 2; forked++) {
        model m;
        REQUIRE_OK(make_model(threads, disk, &m));
        REQUIRE_OK(sluice_train_step(m.engine, &batch, &losses[forked][0]));
        if (forked) {
            int status;
            pid_t child = fork();
            if (child == 0) _exit(use_in_child(m));
            REQUIRE(waitpid(child, &status, 0) == child);
            CHECK_THAT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d threads: the child ended with %s %d", threads,
                       WIFEXITED(status) ? "status" : "signal",
                       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
        }
        for (int i = 1; i < 4; i++) REQUIRE_OK(sluice_train_step(m.engine, &batch, &losses[forked][i]));
        sluice_engine_destroy(m.engine);
        sluice_graph_destroy(m.graph);
    }
    CHECK(memcmp(losses[0], losses[1], sizeof losses[0]) == 0);
}

TEST(an_engine_destroyed_in_a_forked_process_returns_and_stays_whole_in_its_own)
{
    for (int threads = 1; threads <= 2; threads++) fork_and_destroy(threads, NULL);
}

TEST(swap_files_of_an_engine_outlive_its_destruction_in_a_forked_process)
{
    fork_and_destroy(2, test_tmpdir());
}
