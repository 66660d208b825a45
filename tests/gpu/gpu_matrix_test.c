/* gpu_matrix_test.c: the matrix of support/matrix.h on a GPU, whose memory ranks share: the same bits, whatever is divided,
 * moved or recomputed, and every byte where the formulas say. LONG=1: all 288 settings of each precision of the GPT, and of
 * the other models a cover of all pairs of values. */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/gpu.h"
#include "support/matrix.h"
#include "test.h"

/* Of the other models, settings that have each value once. */
static const setting few[] = {
    { 1, 0, NOTHING, 0, 0 }, { 2, 1, OPTIMIZER, 1, 1 }, { 4, 2, HALF, 2, 0 }, { 2, 3, OPTIMIZER_AND_PARAMETERS, 0, 1 }
};

/* The precisions side by side: most of a run is the opening of the GPU. What a process fails it says itself. */
static pid_t start_precision(campaign *c, int k)
{
    bool gpt = c->subject == &matrix_subjects[MATRIX_GPT], all = getenv("LONG") != NULL;
    fflush(NULL);
    pid_t child = fork();
    if (child != 0) return child;
    if (gpt && all)
        matrix_run_all(c, k);
    else if (gpt || all)
        matrix_run_cover(c, k);
    else
        matrix_run_some(c, k, few, sizeof few / sizeof few[0]);
    fflush(NULL);
    _exit(test_failures > 0);
}

static void check_precisions(campaign *c, const pid_t *children)
{
    for (int k = 0; k < MATRIX_MODES; k++) {
        int status = -1;
        waitpid(children[k], &status, 0);
        if (status != 0) test_fail(__FILE__, __LINE__, "%s: runs failed; its messages are above", matrix_modes[k].name);
        CHECK_EQ(strlen(c[k].weights[k]), 64);
        for (int other = 0; other < k; other++) CHECK(strcmp(c[k].weights[k], c[other].weights[other]) != 0);
        printf("  %s, %-7s %3d runs, weights %.8s, state %.8s\n", c[k].subject->name, matrix_modes[k].name,
               c[k].runs[k], c[k].weights[k], c[k].state[k]);
        matrix_end(&c[k]);
    }
}

static void run_precisions(const char *device, matrix_subject which)
{
    pid_t children[MATRIX_MODES];
    size_t bytes = MATRIX_MODES * sizeof(campaign);
    campaign *c = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(c != MAP_FAILED);
    for (int k = 0; k < MATRIX_MODES; k++) REQUIRE(matrix_start_with(&c[k], device, which));
    for (int k = 0; k < MATRIX_MODES; k++) children[k] = start_precision(&c[k], k);
    check_precisions(c, children);
    munmap(c, bytes);
}

TEST(every_way_to_divide_move_and_recompute_gives_the_same_bits_on_a_gpu)
{
    const char *device = gpu_device();
    if (device == NULL) SKIP(gpu, NO_GPU);
    run_precisions(device, MATRIX_GPT);
}

TEST(every_way_to_train_other_models_gives_the_same_bits_on_a_gpu)
{
    const char *device = gpu_device();
    if (device == NULL) SKIP(gpu, NO_GPU);
    for (int which = MATRIX_GPT + 1; which < MATRIX_SUBJECTS; which++) run_precisions(device, which);
}

/* Layers that run again together, from one kept input: dropout in the GPT, batch norms in the residual network. */
TEST(groups_of_recomputed_layers_give_the_same_bits_on_a_gpu)
{
    static const setting settings[] = { { 1, 0, NOTHING, 0, 0 },
                                        { 1, 0, NOTHING, 0, 1 },
                                        { 2, 3, OPTIMIZER_AND_PARAMETERS, 1, 1 } };
    static const matrix_subject subjects[] = { MATRIX_GPT, MATRIX_RESNET };
    const char *device = gpu_device();
    if (device == NULL) SKIP(gpu, NO_GPU);
    for (int i = 0; i < 2 * MATRIX_MODES; i++) {
        campaign c;
        char weights[65] = "", state[65] = "";
        REQUIRE(matrix_start_with(&c, device, subjects[i / MATRIX_MODES]));
        for (int k = 0; k < 3; k++) {
            const char *groups = k == 0 ? NULL : "activation_checkpointing.number_checkpoints=2";
            run_request q = { settings[k], &matrix_modes[i % MATRIX_MODES],
                              c.folder,    groups,
                              c.device,    c.out,
                              c.subject,   { NULL },
                              false,       0 };
            REQUIRE_OK(matrix_run(&q));
            if (k == 0) memcpy(weights, c.out->weights, sizeof weights), memcpy(state, c.out->state, sizeof state);
            CHECK_STR(c.out->weights, weights);
            CHECK_STR(c.out->state, state);
            CHECK_EQ(c.out->end.peak.device, c.out->plan.peak.device);
        }
        matrix_end(&c);
    }
}
