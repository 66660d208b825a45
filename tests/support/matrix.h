/* matrix.h: small models, trained on {1, 2, 4} ranks x stage {0 .. 3} x what is on the host x partition rule x
 * recomputation, in four precisions. Every run of a precision must end with the same two hashes, and the observed peak is
 * the predicted one. Runs of the first model, a GPT, also prove that they did what they say: bytes kept, sent and moved
 * equal formulas that know nothing of the planner; of the others, what was counted equals what was planned.
 *
 * Ranks are always processes of their own: the caller never touches the device, and may start as many runs as it
 * likes. */
#ifndef SLUICE_TEST_MATRIX_H
#define SLUICE_TEST_MATRIX_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sluice.h"

enum { MATRIX_MODES = 4, MATRIX_MAX_LAYERS = 16 };

typedef enum { NOTHING, OPTIMIZER, OPTIMIZER_AND_PARAMETERS, HALF } offload;

typedef struct setting {
    int ranks, stage, offload, partition, recompute;
} setting;

/* A precision: how it is asked for, and the bytes an element then takes. */
typedef struct mode {
    const char *name;
    const char *sets[4];             /* NULL ends them */
    uint64_t weight, gradient, rest; /* rest: what the weight lacks of its fp32 master */
    bool skips;                      /* some steps overflow */
    bool compact;                    /* moments take less than 8 bytes, by blocks */
} mode;

extern const mode matrix_modes[MATRIX_MODES]; /* fp32 first */

/* What is trained, as parts of a configuration. */
typedef struct subject {
    const char *name;
    const char *model;  /* the section's JSON */
    const char *data;   /* likewise; %s in it becomes the campaign's folder */
    const char *memory; /* of each tier */
    int steps, micro;   /* samples of a micro-batch */
    double clip;
    int scale_power;    /* fp16: the first loss scale is 2 to this */
    const char *update; /* the section zero_optimization's first members; NULL: "update": "sync", whose traffic is the
                         * same in every step, as the formulas want it */
} subject;

typedef enum {
    MATRIX_GPT,
    MATRIX_BERT,
    MATRIX_CLASSIFIER,
    MATRIX_RECOMMENDER,
    MATRIX_RESNET,
    MATRIX_DELAYED, /* the GPT with delayed updates */
    MATRIX_SUBJECTS
} matrix_subject;

extern const subject matrix_subjects[MATRIX_SUBJECTS];

/* What rank 0 of a run told, in memory shared with the parent. */
typedef struct outcome {
    sluice_event plan, end;
    char weights[65], state[65];
    int skipped, clipped; /* steps */
} outcome;

typedef struct run_request {
    setting s;
    const mode *mode;
    const char *folder, *extra; /* extra: one more assignment, or NULL */
    const char *device;         /* "cpu" or "cuda" */
    outcome *out;
    const subject *subject; /* NULL: the GPT */
    const char *also[3];    /* more assignments, up to a NULL */
    bool resume;
    int kill_at; /* rank 0 kills itself after this step; 0: never */
} run_request;

sluice_status matrix_run(const run_request *q);

typedef struct model {
    int layers, last, tied; /* last: read by the last layer of forward alone */
    int64_t size[MATRIX_MAX_LAYERS];
    int64_t all;
} model;

typedef struct campaign {
    char folder[4096];
    const char *device;
    const subject *subject;
    outcome *out;
    model m;                                                 /* of the GPT */
    char weights[MATRIX_MODES][65], state[MATRIX_MODES][65]; /* of the first run of each */
    int runs[MATRIX_MODES];
    FILE *table; /* gets a row for each run; NULL: none */
} campaign;

/* False: no memory, or no file could be written. */
bool matrix_start(campaign *c, const char *device); /* the GPT */
bool matrix_start_with(campaign *c, const char *device, matrix_subject which);
bool matrix_start_of(campaign *c, const char *device, const subject *s); /* borrowed */
void matrix_end(campaign *c);
/* Runs of precision k, checked: a cover of all pairs of values, or all there are. Failures are the test's. */
void matrix_run_cover(campaign *c, int k);
void matrix_run_all(campaign *c, int k);
/* The same for `count` settings. */
void matrix_run_some(campaign *c, int k, const setting *settings, int count);
/* Settings of precision k planned for a GPU that is not here, and held to the same formulas: every seventh, or all with
 * LONG=1. */
void matrix_plan_for_gpu(campaign *c, int k);

#endif
