/* auto_search.h: the settings of a step's arrangement that are left on "auto", found together.
 *
 * Stage, levels, prefetching and buckets change when bytes move, never a result. An arrangement gives some of them values; the
 * rest stay as the settings have them, or as the plan chooses. Candidates are planned for the same graph with the same rates, on
 * every rank alike, so that all ranks come to the same answer. What a micro-batch has of rows is part of an arrangement too, but
 * another graph: whoever builds graphs tries those (job_settle.c). */
#ifndef SL_TRAIN_AUTO_SEARCH_H
#define SL_TRAIN_AUTO_SEARCH_H

#include <stdio.h>

#include "format/text_buffer.h"
#include "plan/plan.h"

/* What an arrangement decides; rows of the table in auto_axes.c. */
typedef enum {
    SL_AXIS_MICRO_BATCH,
    SL_AXIS_STAGE,
    SL_AXIS_LEVELS,
    SL_AXIS_PREFETCH,
    SL_AXIS_BUCKET,
    SL_AXIS_COUNT
} sl_axis;

#define SL_AXIS_UNSET (-1)

typedef struct sl_arrangement {
    int64_t values[SL_AXIS_COUNT]; /* SL_AXIS_UNSET: given by the settings, or left to the plan */
} sl_arrangement;

typedef struct sl_auto_candidate {
    sl_arrangement arrangement;
    bool fits;
    uint64_t lacks; /* bytes over budget, where it does not fit; 0: not known */
    double seconds; /* expected step, where it fits */
    uint64_t peak[SL_TIER_COUNT];
    sl_candidate placement;
    bool stages_parameters; /* some are fetched for every use: from the host, or from other ranks */
    int levels;             /* that the plan has */
    double measured;        /* seconds of a step; 0: not measured */
} sl_auto_candidate;

#define SL_AUTO_MOST 40

/* What was tried, in order. */
typedef struct sl_auto_result {
    sl_auto_candidate tried[SL_AUTO_MOST];
    int count, chosen; /* chosen -1: nothing was */
    bool tuned;        /* chosen because it was measured before */
    bool plain;        /* nothing is saved or divided: plain training */
    int ranks;
    sl_plan_need need; /* where the plan was refused */
} sl_auto_result;

void sl_arrangement_clear(sl_arrangement *a);
bool sl_arrangement_equal(const sl_arrangement *a, const sl_arrangement *b);

/* ---- auto_axes.c: the table ---- */

#define SL_AXIS_CHOICES 4

/* The key of the configuration. */
const char *sl_axis_key(sl_axis axis);
/* The axis of a key; SL_AXIS_COUNT: none. */
sl_axis sl_axis_find(const char *key);
/* Whether a value is one that the key takes. */
bool sl_axis_takes(sl_axis axis, int64_t value);
/* Whether the plan's options leave it open. */
bool sl_axis_is_open(sl_axis axis, const sl_plan_options *o);
/* Values to try beside a candidate that fits; 0: they would make no difference to it. */
int sl_axis_choices(sl_axis axis, const sluice_graph *g, const sl_plan_options *o, const sl_auto_candidate *from,
                    int64_t out[SL_AXIS_CHOICES]);
/* Options with the values of an arrangement. */
void sl_arrangement_apply(const sl_arrangement *a, const sluice_graph *g, sl_plan_options *o);
/* "stage 2, prefetch 2"; "as planned" where it sets nothing. Returns out. */
const char *sl_arrangement_describe(const sl_arrangement *a, char *out, size_t bytes);
/* {"zero_optimization.stage": 2}: a JSON object. */
void sl_arrangement_write(const sl_arrangement *a, sl_text *out);

/* ---- auto_search.c ---- */

typedef struct sl_auto_problem {
    const sluice_graph *graph;
    const sl_machine *machine;
    const sl_plan_options *options; /* stage -1: open */
    const sl_arrangement *tuned;    /* taken where it fits; NULL: none */
} sl_auto_problem;

/* All ranks. Fills *found and makes the plan of what was chosen. SLUICE_ERR_NO_FIT: nothing fits; *options has the stage that
 * lacks least, and the message is that of its plan. */
sluice_status sl_auto_search(const sl_auto_problem *problem, sl_plan_options *options, sl_auto_result *found,
                             sl_plan **out);
/* Indices of the candidates: the chosen one, the best of each other stage, then the others; by expected time, those that do not fit
 * last. */
void sl_auto_order(const sl_auto_result *found, int order[SL_AUTO_MOST]);

/* ---- auto_report.c ---- */

/* "12.3 % slower", "lacks 4.00 MiB of memory". Returns out. */
const char *sl_auto_verdict(const sl_auto_result *found, int index, char *out, size_t bytes);
/* The candidates as an event has them. */
typedef struct sl_candidate_list {
    sluice_candidate of[SL_AUTO_MOST];
    sl_text texts; /* of their settings */
} sl_candidate_list;
/* The chosen one first where the search chose by expected time. `list` is what the event points to; free it also after a
 * failure. */
sluice_status sl_auto_to_event(const sl_auto_result *found, sl_candidate_list *list, sluice_event *event);
void sl_candidate_list_free(sl_candidate_list *list);
/* The table for people: what was chosen, and at most `most` others. */
void sl_auto_print(const sl_auto_result *found, int most, FILE *out);

#endif
