/* largest.c: the largest model that this machine trains, by memory alone.
 *
 * The family has one shape for every width: heads of 128, a quarter as many for keys and values, a feed-forward part 3.5
 * times as wide, a layer for every 128 of the width, as a Llama of 4,096 has it. The width is searched for, then between
 * two widths the number of layers. Nothing is planned: what any placement needs at least is enough to know. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/job.h"

#define WIDTH_STEP  512
#define MOST_WIDTHS 64
#define HEAD_WIDTH  128

typedef struct shape {
    int width, layers;
} shape;

/* What is known so far: the largest that fits. */
typedef struct search {
    bool adapters;
    const int *stop;
    shape best;
    int64_t parameters; /* of it; 0: none does */
    uint64_t bytes;     /* of memory there is */
} search;

static sluice_status configure(const shape *s, bool adapters, sluice_config **out)
{
    char sets[16][64];
    int count = 0, heads = s->width / HEAD_WIDTH;
    sluice_config *config;
    snprintf(sets[count++], 64, "model.type=llama");
    snprintf(sets[count++], 64, "model.width=%d", s->width);
    snprintf(sets[count++], 64, "model.layers=%d", s->layers);
    snprintf(sets[count++], 64, "model.heads=%d", heads);
    snprintf(sets[count++], 64, "model.kv_heads=%d", heads / 4);
    snprintf(sets[count++], 64, "model.feed_forward=%d", s->width / 2 * 7);
    snprintf(sets[count++], 64, "model.vocabulary=32000");
    snprintf(sets[count++], 64, "model.context=2048");
    snprintf(sets[count++], 64, "bf16.enabled=true");
    snprintf(sets[count++], 64, "train_micro_batch_size_per_gpu=1");
    snprintf(sets[count++], 64, "gradient_accumulation_steps=1");
    if (adapters) snprintf(sets[count++], 64, "lora.enabled=true");
    SL_TRY(sluice_config_create(&config));
    sluice_status st = SLUICE_OK;
    for (int i = 0; i < count && st == SLUICE_OK; i++) st = sluice_config_set(config, sets[i]);
    if (st == SLUICE_OK)
        *out = config;
    else
        sluice_config_destroy(config);
    return st;
}

/* With resolved settings: whether it fits, and how many parameters it has. */
static sluice_status ask(sl_job *j, bool *fits, int64_t *parameters, uint64_t *bytes)
{
    sl_refusal need = { .is_set = false };
    sl_model_info info;
    sl_settings *s = &j->settings;
    s->optim.groups = s->groups;
    s->model.vocabulary = sl_job_vocabulary_number(s);
    sl_job_fit_settings(s, SL_JOB_PLAN, 0, false);
    s->plan.rank_count = 1;
    SL_TRY(sl_job_build_graph(j, &s->model, true, &j->graph, &info));
    *parameters = sl_graph_parameter_elements(j->graph);
    sluice_status st = sl_engine_create(j->graph,
                                        &(sl_engine_options){ .training = true,
                                                              .plan_only = true,
                                                              .only_need = true,
                                                              .refusal = &need,
                                                              .ranks = &j->ranks,
                                                              .settings = s,
                                                              .stop = j->stop },
                                        &j->engine);
    const sl_plan_options *o = &need.options;
    *fits = st == SLUICE_OK && sl_plan_lack(o, &need.need) == 0;
    *bytes = o->budget_together > 0 ? o->budget_together : o->budget[SL_TIER_DEVICE] + o->budget[SL_TIER_HOST];
    return st == SLUICE_ERR_NO_FIT ? SLUICE_OK : st;
}

static sluice_status try_shape(const shape *s, search *f, bool *fits, int64_t *parameters)
{
    sluice_config *config;
    sl_job j = { .stop = f->stop };
    SL_TRY(configure(s, f->adapters, &config));
    sluice_status st = sl_ranks_open(NULL, &j.ranks);
    if (st == SLUICE_OK) st = sl_config_resolve(config, 1, &(sl_log){ NULL, NULL, 0, 1 }, &j.settings);
    if (st == SLUICE_OK) st = ask(&j, fits, parameters, &f->bytes);
    sl_job_close(&j);
    sluice_config_destroy(config);
    return st;
}

static shape shape_of(int k)
{
    return (shape){ k * WIDTH_STEP, k * WIDTH_STEP / HEAD_WIDTH };
}

static sluice_status try_next(search *f, shape s, bool *fits)
{
    int64_t parameters;
    SL_TRY(try_shape(&s, f, fits, &parameters));
    if (*fits && parameters > f->parameters) {
        f->best = s;
        f->parameters = parameters;
    }
    return SLUICE_OK;
}

/* The width whose model has about as many parameters as the memory has room for. A layer has 13 times the square of the
 * width. */
static int guess_width(const search *f)
{
    double bytes_each = f->adapters ? 2.3 : 15, parameters = (double)f->bytes / bytes_each;
    double width = cbrt(parameters * HEAD_WIDTH / 13.0);
    int k = (int)(width / WIDTH_STEP);
    return k < 1 ? 1 : k > MOST_WIDTHS ? MOST_WIDTHS : k;
}

/* Neighbouring widths from the guess on, until one fits and the next does not; *over: that one. */
static sluice_status find_width(search *f, int *over)
{
    bool fits;
    int k = guess_width(f);
    SL_TRY(try_next(f, shape_of(k), &fits));
    while (fits && k < MOST_WIDTHS) SL_TRY(try_next(f, shape_of(++k), &fits));
    *over = k;
    while (f->parameters == 0 && k > 1) {
        *over = k;
        SL_TRY(try_next(f, shape_of(--k), &fits));
    }
    return SLUICE_OK;
}

/* The largest shape that fits: then fewer layers of the next width. */
static sluice_status find_largest(search *f)
{
    bool fits;
    int over;
    SL_TRY(try_next(f, shape_of(1), &fits));
    if (!fits) return SLUICE_OK;
    f->parameters = 0;
    SL_TRY(find_width(f, &over));
    shape wide = shape_of(over);
    for (int low = wide.layers / 2, high = wide.layers; high - low > 1;) {
        shape s = { wide.width, (low + high) / 2 };
        SL_TRY(try_next(f, s, &fits));
        *(fits ? &low : &high) = s.layers;
    }
    return SLUICE_OK;
}

sluice_status sluice_largest_models(const int *stop, FILE *out)
{
    search all = { .stop = stop }, adapters = { .stop = stop, .adapters = true };
    SL_NEED(out);
    SL_TRY(find_largest(&all));
    SL_TRY(find_largest(&adapters));
    if (all.parameters == 0 || adapters.parameters == 0) return SLUICE_OK;
    fprintf(out,
            "largest model that fits here: %.3gB parameters (%d layers, %d wide) with all weights trained in bf16 by "
            "AdamW; "
            "%.3gB (%d layers, %d wide) with adapters (LoRA)\n",
            (double)all.parameters / 1e9, all.best.layers, all.best.width, (double)adapters.parameters / 1e9,
            adapters.best.layers, adapters.best.width);
    return SLUICE_OK;
}
