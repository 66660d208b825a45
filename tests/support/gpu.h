/* gpu.h: what the tests on a GPU share: whether there is one, and the program's runs, read back.
 *
 * A process that has touched CUDA must not fork ranks, and the GPU's memory is its own only as long as no test holds
 * any: so nothing here touches CUDA but in processes of its own. */
#ifndef SLUICE_TEST_GPU_H
#define SLUICE_TEST_GPU_H

#include <stdint.h>

#define NO_GPU "no GPU here, or built without CUDA"

enum { GPU_MAX_STEPS = 128 };

/* "cuda" where there is a GPU that the plugin can use; NULL where not. SLUICE_TEST_DEVICE=cpu makes it "cpu": what does
 * not depend on the GPU can be seen to work without one. */
const char *gpu_device(void);

/* Runs `body` in a child; whatever it fails is the test's. Its messages are printed by the child. */
void gpu_in_child(void (*body)(void *user), void *user);

/* Device memory that a child of ours holds: all but `left` bytes of what is free. */
typedef struct gpu_hog {
    int pid, hold; /* hold: closed, it ends */
} gpu_hog;
/* 0: the memory could not be taken, and nothing is to be ended. */
int gpu_hog_start(gpu_hog *h, uint64_t left);
void gpu_hog_end(gpu_hog *h);

/* What `sluice train --json` told. */
typedef struct gpu_run {
    int status, steps, clipped; /* clipped: steps with a norm above 1 */
    uint64_t resumed;           /* step; 0: none */
    double loss[GPU_MAX_STEPS]; /* by step, from 0 */
    uint64_t planned[2], peak[2];
    char weights[65], state[65];
    char error[2048];
} gpu_run;

/* Trains as folder/gpt.json says on `device` with further arguments; writes that file and its text where they are not
 * there: a GPT of 4 layers x 128 with AdamW and clipping at 1. */
void gpu_train(gpu_run *out, const char *folder, const char *device, const char *arguments);
/* The same, where anything but success is a failure of the test. */
void gpu_train_well(gpu_run *out, const char *folder, const char *device, const char *arguments);

#endif
