/* folder_run.h: a model of a folder on made batches: logits before the first step, and losses of some steps. The same
 * batches as tests/referees/families.py makes. */
#ifndef SLUICE_TEST_FOLDER_RUN_H
#define SLUICE_TEST_FOLDER_RUN_H

#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "format/adapter_config.h"
#include "format/model_config.h"
#include "format/model_files.h"
#include "model/model.h"
#include "sluice.h"
#include "train/engine.h"

typedef struct folder_run {
    const char *folder;
    int64_t batch, context;
    bool packed;
    double dropout, embedding_dropout;     /* on the residual stream, behind the embedding */
    const char *adapter;                   /* folder of PEFT: its adapters alone are trained; NULL: none */
    const char *out;                       /* folder that the trained adapters are written to; NULL: none */
    sl_adapter_config lora;                /* of the adapter, set by folder_graph */
    sl_arena arena;                        /* of its strings */
    const char *prefix;                    /* of the family's names in files, likewise */
    int64_t vocabulary;                    /* of the folder's config.json, set by folder_graph */
    int32_t *tokens, *targets, *positions; /* batch x context */
} folder_run;

static inline uint32_t folder_lcg(uint32_t state)
{
    return state * 1664525u + 1013904223u;
}

/* Batch number `step`. With documents, row r begins new ones at t = r + 1, r + 6, r + 11, ... whose first token nothing
 * predicts. */
static inline void folder_batch(const folder_run *r, uint32_t step)
{
    uint32_t state = folder_lcg(step);
    for (int64_t row = 0; row < r->batch; row++)
        for (int64_t t = 0, begin = 0; t <= r->context; t++) {
            int64_t at = row * r->context + t;
            bool first = r->packed && t % 5 == (row + 1) % 5;
            state = folder_lcg(state);
            int32_t token = (int32_t)((state >> 8) % (uint64_t)r->vocabulary);
            if (first) begin = t;
            if (t > 0) r->targets[at - 1] = first ? -1 : token;
            if (t == r->context) break;
            r->tokens[at] = token;
            r->positions[at] = (int32_t)(t - begin);
        }
}

static inline sluice_status folder_graph(folder_run *r, bool logits, sluice_graph **out)
{
    sl_model_info info;
    sl_model_options m = { .batch = r->batch,
                           .context = r->context,
                           .packed = r->packed,
                           .logits = logits,
                           .dropout = r->dropout,
                           .embedding_dropout = r->embedding_dropout,
                           .dropout_by_place = true };
    SL_TRY(sl_model_config_read(r->folder, &m.folder, NULL));
    m.type = sl_decoder_name(m.folder.family);
    m.vocabulary = r->vocabulary = m.folder.vocabulary;
    m.width = m.folder.width;
    r->prefix = sl_decoder_prefix(m.folder.family);
    m.untied = !m.folder.tied;
    if (r->adapter != NULL) {
        SL_TRY(sl_adapter_config_read(r->adapter, &r->arena, &r->lora));
        m.lora.rank = r->lora.rank;
        m.lora.alpha = r->lora.alpha;
        m.lora.rank_stabilised = r->lora.rank_stabilised;
        m.lora.targets = r->lora.targets;
        m.lora.target_count = r->lora.target_count;
        m.lora.whole = r->lora.whole;
        m.lora.whole_count = r->lora.whole_count;
    }
    SL_TRY(sluice_graph_create(out));
    return sl_model_build(*out, &m, &info);
}

static inline void folder_options(sluice_options *o)
{
    sluice_options_init(o);
    sluice_optimizer_init(&o->optimizer, SLUICE_ADAMW);
    o->optimizer.lr = 1e-3;
    o->optimizer.beta1 = 0.9;
    o->optimizer.beta2 = 0.95;
    o->optimizer.epsilon = 1e-8;
    o->optimizer.weight_decay = 0.1;
    o->gradient_clipping = 1.0;
    o->device_bytes = o->host_bytes = (uint64_t)256 << 20;
}

static inline sluice_batch folder_arrays(const folder_run *r, sluice_array arrays[3])
{
    size_t bytes = (size_t)(r->batch * r->context) * sizeof(int32_t);
    arrays[0] = (sluice_array){ "tokens", r->tokens, bytes };
    arrays[1] = (sluice_array){ "targets", r->targets, bytes };
    arrays[2] = (sluice_array){ "positions", r->positions, bytes };
    return (sluice_batch){ arrays, r->packed ? 3 : 2 };
}

/* logits [batch, context, vocabulary] of batch 1; *logits is the caller's. */
static inline sluice_status folder_logits(folder_run *r, float **logits)
{
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    sluice_options o;
    sluice_array arrays[3];
    sluice_batch batch = folder_arrays(r, arrays);
    folder_options(&o);
    o.evaluation = true;
    *logits = NULL;
    sluice_status st = folder_graph(r, true, &g);
    size_t bytes = (size_t)(r->batch * r->context * r->vocabulary) * sizeof **logits;
    if (st == SLUICE_OK) st = sluice_engine_create(g, &o, &e);
    if (st == SLUICE_OK) st = sluice_load(e, r->folder);
    if (st == SLUICE_OK && r->adapter != NULL) st = sl_adapter_load(e->exec, r->adapter);
    if (st == SLUICE_OK && (*logits = malloc(bytes)) == NULL) st = SLUICE_ERR_NO_MEMORY;
    if (st == SLUICE_OK) {
        folder_batch(r, 1);
        st = sluice_predict(e, &batch, *logits, bytes);
    }
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return st;
}

/* The losses of batches 1 to `steps`, and the hash of the weights after them. */
static inline sluice_status folder_train(folder_run *r, const sluice_options *o, int steps, double *losses,
                                         char sha256[65])
{
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    sluice_array arrays[3];
    char state[65];
    sluice_batch batch = folder_arrays(r, arrays);
    sluice_status st = folder_graph(r, false, &g);
    if (st == SLUICE_OK) st = sluice_engine_create(g, o, &e);
    if (st == SLUICE_OK) st = sluice_load(e, r->folder);
    if (st == SLUICE_OK && r->adapter != NULL) st = sl_adapter_load(e->exec, r->adapter);
    for (int i = 0; i < steps && st == SLUICE_OK; i++) {
        folder_batch(r, (uint32_t)i + 1);
        st = sluice_train_step(e, &batch, &losses[i]);
    }
    if (st == SLUICE_OK) st = sluice_hash(e, sha256, state);
    if (st == SLUICE_OK && r->out != NULL) st = sl_adapter_save(e->exec, r->out, &r->lora, r->prefix, NULL);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return st;
}

static inline sluice_status folder_run_open(folder_run *r)
{
    size_t count = (size_t)(r->batch * r->context);
    sl_arena_init(&r->arena, "adapter");
    r->tokens = calloc(count, sizeof *r->tokens);
    r->targets = calloc(count, sizeof *r->targets);
    r->positions = calloc(count, sizeof *r->positions);
    return r->tokens != NULL && r->targets != NULL && r->positions != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

static inline void folder_run_close(folder_run *r)
{
    free(r->tokens);
    free(r->targets);
    free(r->positions);
    sl_arena_free(&r->arena);
}

#endif
