/* run_record.c: see run_record.h. */
#include "report/run_record.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"

#define MOST_NOTES 1000

void sl_record_free(sl_run_record *r)
{
    for (size_t i = 0; i < r->note_count; i++) sl_free(r->notes[i].text);
    sl_free(r->notes);
    sl_free(r->evals);
    sl_free(r->steps);
    sl_free(r->why);
    sl_free(r->run_event);
    *r = (sl_run_record){ .steps = NULL };
}

/* Makes room for one more element; the list is zero beyond `count`. */
static sluice_status grow(void **list, size_t count, size_t *room, size_t each, const char *name)
{
    if (count < *room) return SLUICE_OK;
    size_t more = *room > 0 ? 2 * *room : 64;
    void *p = *list == NULL ? sl_alloc_array(more, each, name) : sl_realloc(*list, *room * each, more * each, name);
    if (p == NULL) return SLUICE_ERR_NO_MEMORY;
    *list = p;
    *room = more;
    return SLUICE_OK;
}

/* What was recorded of this step and later ones is about to be repeated. */
static void go_back(sl_run_record *r, uint64_t step)
{
    while (r->step_count > 0 && r->steps[r->step_count - 1].step >= step) {
        r->step_count--;
        r->repeated_steps++;
    }
    while (r->eval_count > 0 && r->evals[r->eval_count - 1].step >= step) r->eval_count--;
}

sluice_status sl_record_add_step(sl_run_record *r, const sl_recorded_step *step)
{
    void *list = r->steps;
    if (r->step_count > 0 && step->step <= r->steps[r->step_count - 1].step) go_back(r, step->step);
    sluice_status st = grow(&list, r->step_count, &r->step_room, sizeof *r->steps, "steps of a report");
    r->steps = list;
    if (st == SLUICE_OK) r->steps[r->step_count++] = *step;
    return st;
}

sluice_status sl_record_add_eval(sl_run_record *r, const sl_recorded_eval *eval)
{
    void *list = r->evals;
    while (r->eval_count > 0 && r->evals[r->eval_count - 1].step >= eval->step) r->eval_count--;
    sluice_status st = grow(&list, r->eval_count, &r->eval_room, sizeof *r->evals, "evaluations of a report");
    r->evals = list;
    if (st == SLUICE_OK) r->evals[r->eval_count++] = *eval;
    return st;
}

sluice_status sl_record_add_note(sl_run_record *r, const char *kind, uint64_t step, const char *time, const char *text)
{
    void *list = r->notes;
    if (r->note_count >= MOST_NOTES) {
        r->notes_left_out++;
        return SLUICE_OK;
    }
    SL_TRY(grow(&list, r->note_count, &r->note_room, sizeof *r->notes, "notes of a report"));
    r->notes = list;
    sl_recorded_note *n = &r->notes[r->note_count];
    *n = (sl_recorded_note){ .step = step };
    snprintf(n->kind, sizeof n->kind, "%s", kind);
    snprintf(n->time, sizeof n->time, "%s", time != NULL ? time : "");
    n->text = sl_strdup(text != NULL ? text : "", "note of a report");
    if (n->text == NULL) return SLUICE_ERR_NO_MEMORY;
    r->note_count++;
    return SLUICE_OK;
}

/* ---- events of a run at hand ---- */

static void take_sums(const sluice_event *e, sl_recorded_sums *out)
{
    *out = (sl_recorded_sums){
        .known = true,
        .steps = e->steps,
        .ranks = (uint64_t)e->ranks,
        .stage = (uint64_t)e->stage,
        .parameters = e->parameters,
        .overhead = e->overhead_bytes,
        .peak = { e->peak.device, e->peak.host, e->peak.disk },
        .state = { e->state_parameters, e->state_gradients, e->state_optimizer },
        .moved = { e->moved_to_device, e->moved_to_host, e->moved_disk_read, e->moved_disk_write },
        .comm = { e->comm_gather, e->comm_reduce, e->comm_norm },
        .step_seconds = e->step_seconds,
        .tokens_per_second = e->tokens_per_second,
        .mfu = e->mfu,
        .data_seconds = e->data_seconds,
    };
    if (e->weights_sha256 != NULL) snprintf(out->weights_sha256, sizeof out->weights_sha256, "%s", e->weights_sha256);
    if (e->state_sha256 != NULL) snprintf(out->state_sha256, sizeof out->state_sha256, "%s", e->state_sha256);
}

static sluice_status take_step(sl_run_record *r, const sluice_event *e)
{
    bool samples = e->tokens == 0;
    double rate = e->seconds > 0 ? (double)(samples ? e->samples : e->tokens) / e->seconds : (double)NAN;
    r->rate_is_samples = samples;
    r->target_steps = e->steps;
    return sl_record_add_step(r, &(sl_recorded_step){ e->step, e->loss, e->lr, e->gradient_norm, e->seconds,
                                                      samples ? rate : e->tokens_per_second });
}

static sluice_status take_early_stop(sl_run_record *r, const sluice_event *e)
{
    char text[160];
    r->early = true;
    snprintf(text, sizeof text, "%llu evaluations brought nothing better than that of step %llu",
             (unsigned long long)e->evaluations, (unsigned long long)e->best_step);
    return sl_record_add_note(r, "ended early", e->step, NULL, text);
}

sluice_status sl_record_add_event(sl_run_record *r, const sluice_event *e)
{
    switch (e->kind) {
    case SLUICE_EVENT_PLAN:
        r->starts = 1; /* a run may have several plans */
        take_sums(e, &r->plan);
        return SLUICE_OK;
    case SLUICE_EVENT_RESUMED:
        return sl_record_add_note(r, "resumed", e->step, NULL, "");
    case SLUICE_EVENT_STEP:
        return take_step(r, e);
    case SLUICE_EVENT_EVAL:
        return sl_record_add_eval(r, &(sl_recorded_eval){ e->step, e->loss, e->accuracy, e->best });
    case SLUICE_EVENT_SAVED:
        return sl_record_add_note(r, "saved", e->step, NULL, e->path);
    case SLUICE_EVENT_EARLY_STOP:
        return take_early_stop(r, e);
    case SLUICE_EVENT_END:
        take_sums(e, &r->end);
        r->outcome = SL_RUN_FINISHED;
        return SLUICE_OK;
    default:
        return SLUICE_OK;
    }
}
