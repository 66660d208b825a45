/* gpu_speculation_test.c: updates on speculation beside a GPU end with the bits of those that wait for the norm, with no step
 * clipped, some and all, on ranks and with micro-batches to sum. */
#include <string.h>

#include "support/gpu.h"
#include "support/matrix.h"
#include "test.h"

static const setting settings[] = {
    { 1, 0, OPTIMIZER, 0, 0 }, { 1, 0, OPTIMIZER_AND_PARAMETERS, 0, 1 }, { 2, 3, HALF, 1, 0 }, { 4, 2, OPTIMIZER, 2, 0 }
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

static void compare_with_sync(campaign *c, const mode *m)
{
    outcome sync = { 0 };
    for (int i = -1; i < SETTINGS; i++) {
        const bool speculates = i >= 0;
        run_request q = { .s = settings[speculates ? i : 0],
                          .mode = m,
                          .folder = c->folder,
                          .extra = speculates ? "zero_optimization.update=speculative" : NULL,
                          .device = c->device,
                          .out = c->out,
                          .subject = c->subject };
        REQUIRE_OK(matrix_run(&q));
        if (!speculates) sync = *c->out;
        const sluice_event *e = &c->out->end;
        CHECK_STR(c->out->weights, sync.weights);
        CHECK_STR(c->out->state, sync.state);
        CHECK_EQ(e->peak.device, c->out->plan.peak.device);
        CHECK_EQ(e->peak.host, c->out->plan.peak.host);
        CHECK_THAT((e->speculated > 0) == speculates && e->rolled_back <= (uint64_t)(sync.clipped + sync.skipped),
                   "%s, clip %g, setting %d: %d steps speculated, %d rolled back", m->name, c->subject->clip, i,
                   (int)e->speculated, (int)e->rolled_back);
    }
}

/* From the plan for speculation to the one without and back, every few steps: the GPU's memory is given back and reserved anew. */
TEST(a_run_beside_a_gpu_changes_between_its_two_plans_to_the_same_bits)
{
    const char *device = gpu_device();
    if (device == NULL) SKIP(gpu, NO_GPU);
    campaign c;
    outcome sync = { 0 };
    REQUIRE(matrix_start(&c, device));
    for (int k = 0; k < 4; k++) {
        run_request q = { .s = settings[k],
                          .mode = &matrix_modes[1],
                          .folder = c.folder,
                          .extra = k == 0 ? NULL : "zero_optimization.update=speculative",
                          .device = c.device,
                          .out = c.out,
                          .subject = c.subject,
                          .also = { k == 0 ? NULL : "debug.renew_every=6" } };
        REQUIRE_OK(matrix_run(&q));
        if (k == 0) sync = *c.out;
        CHECK_STR(c.out->weights, sync.weights);
        CHECK_STR(c.out->state, sync.state);
        CHECK_EQ(c.out->end.peak.device, c.out->plan.peak.device);
    }
    matrix_end(&c);
}

TEST(speculation_beside_a_gpu_ends_with_the_bits_of_waiting_for_the_norm)
{
    static const double clips[] = { 1e6, 1.8, 1e-3 };
    const char *device = gpu_device();
    if (device == NULL) SKIP(gpu, NO_GPU);
    for (int k = 0; k < 3; k++) {
        campaign c;
        subject gpt = matrix_subjects[MATRIX_GPT];
        gpt.clip = clips[k];
        REQUIRE(matrix_start_of(&c, device, &gpt));
        compare_with_sync(&c, &matrix_modes[1 + k]);
        matrix_end(&c);
    }
}
