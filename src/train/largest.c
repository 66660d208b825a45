/* largest.c: the largest model that this machine trains, by memory alone.
 *
 * The family has one shape for every width: heads of 128, a quarter as many for keys and values, a feed-forward part 3.5
 * times as wide, a layer for every 128 of the width, as a Llama of 4,096 has it. The width is searched for, then between
 * two widths the number of layers. Nothing is planned: what any placement needs at least is enough to know. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "train/job.h"

#define WIDTH_STEP  512
#define MOST_WIDTHS 64
#define HEAD_WIDTH  128

typedef struct shape {
    int width, layers;
} shape;

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
static sluice_status ask(sl_job *j, bool *fits, int64_t *parameters)
{
    sl_refusal need = { .is_set = false };
    sl_model_info info;
    sl_settings *s = &j->settings;
    s->optim.groups = s->groups;
    s->model.vocabulary = sl_job_vocabulary_number(s);
    sl_job_fit_settings(s, SL_JOB_PLAN, false);
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
    *fits = st == SLUICE_OK && sl_plan_lack(&need.options, &need.need) == 0;
    return st == SLUICE_ERR_NO_FIT ? SLUICE_OK : st;
}

static sluice_status try_shape(const shape *s, bool adapters, const int *stop, bool *fits, int64_t *parameters)
{
    sluice_config *config;
    sl_job j = { .stop = stop };
    SL_TRY(configure(s, adapters, &config));
    sluice_status st = sl_ranks_open(NULL, &j.ranks);
    if (st == SLUICE_OK) st = sl_config_resolve(config, 1, &(sl_log){ NULL, NULL, 0, 1 }, &j.settings);
    if (st == SLUICE_OK) st = ask(&j, fits, parameters);
    sl_job_close(&j);
    sluice_config_destroy(config);
    return st;
}

static shape shape_of(int k)
{
    return (shape){ k * WIDTH_STEP, k * WIDTH_STEP / HEAD_WIDTH };
}

/* The largest shape that fits; *parameters 0: none does. */
static sluice_status find_largest(bool adapters, const int *stop, shape *out, int64_t *parameters)
{
    int fit = 0, over = 1;
    bool fits = true;
    int64_t count;
    *parameters = 0;
    while (over <= MOST_WIDTHS && fits) { /* the first width that does not fit, by doubling */
        shape s = shape_of(over);
        SL_TRY(try_shape(&s, adapters, stop, &fits, &count));
        if (!fits) break;
        fit = over;
        *out = s;
        *parameters = count;
        over *= 2;
    }
    while (over - fit > 1 && over <= MOST_WIDTHS) {
        shape s = shape_of((fit + over) / 2);
        SL_TRY(try_shape(&s, adapters, stop, &fits, &count));
        if (!fits) {
            over = (fit + over) / 2;
            continue;
        }
        fit = (fit + over) / 2;
        *out = s;
        *parameters = count;
    }
    if (fit == 0 || over > MOST_WIDTHS) return SLUICE_OK;
    shape wide = shape_of(over); /* fewer layers of the next width */
    for (int low = 0, high = wide.layers; high - low > 1;) {
        shape s = { wide.width, (low + high) / 2 };
        SL_TRY(try_shape(&s, adapters, stop, &fits, &count));
        if (fits)
            low = s.layers;
        else
            high = s.layers;
        if (!fits || count <= *parameters) continue;
        *out = s;
        *parameters = count;
    }
    return SLUICE_OK;
}

sluice_status sluice_largest_models(const int *stop, FILE *out)
{
    SL_NEED(out);
    for (int adapters = 0; adapters < 2; adapters++) {
        shape s;
        int64_t parameters;
        SL_TRY(find_largest(adapters == 1, stop, &s, &parameters));
        if (parameters == 0) continue;
        fprintf(out,
                adapters == 0 ? "largest model that fits here: %.3gB parameters with all weights trained (bf16, AdamW)"
                              : "; %.3gB with LoRA adapters",
                (double)parameters / 1e9);
    }
    fprintf(out, "\n");
    return SLUICE_OK;
}
