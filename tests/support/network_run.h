/* network_run.h: a network of images, sentences or clicks on made batches: logits of evaluation before and after some steps
 * of training, the losses of these, and what is written then. tests/referees/networks.py makes the same batches and the
 * same first values.
 *
 * folder/network.json says which network: "type", the sizes it has, "batch", "optimizer" (AdamW or SGD), and "made": true
 * where the first values are made too; otherwise they are the folder's model.safetensors. Where the folder has a
 * config.json, that describes the model. */
#ifndef SLUICE_TEST_NETWORK_RUN_H
#define SLUICE_TEST_NETWORK_RUN_H

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/model_config.h"
#include "model/model.h"
#include "sluice.h"

enum { NETWORK_MOST_INPUTS = 16, NETWORK_EVALUATED = 1000 };

typedef struct network_run {
    const char *folder;
    json_t *spec;
    sl_model_options m;
    sluice_graph *g;
    sluice_engine *e;
    sluice_array arrays[NETWORK_MOST_INPUTS]; /* one of each input of the graph, owned */
    int64_t output_count;                     /* elements of the graph's output */
} network_run;

/* ---- the model ---- */

static inline int64_t network_size(const network_run *r, const char *key)
{
    return json_integer_value(json_object_get(r->spec, key));
}

static inline int network_list(const network_run *r, const char *key, int64_t *out)
{
    const json_t *list = json_object_get(r->spec, key);
    for (size_t i = 0; i < json_array_size(list); i++) out[i] = json_integer_value(json_array_get(list, i));
    return (int)json_array_size(list);
}

static inline sluice_status network_describe(network_run *r)
{
    sl_model_options *m = &r->m;
    int64_t image[3] = { 0 }, columns[3] = { 0 };
    char path[1100];
    network_list(r, "image", image);
    network_list(r, "columns", columns);
    *m = (sl_model_options){ .type = json_string_value(json_object_get(r->spec, "type")),
                             .stem = json_string_value(json_object_get(r->spec, "stem")),
                             .head = json_string_value(json_object_get(r->spec, "head")),
                             .batch = network_size(r, "batch"),
                             .outputs = network_size(r, "outputs"),
                             .depth = network_size(r, "depth"),
                             .kernel = network_size(r, "kernel"),
                             .padding = network_size(r, "padding"),
                             .pool = network_size(r, "pool"),
                             .context = network_size(r, "context"),
                             .embedding = network_size(r, "embedding"),
                             .image = { image[0], image[1], image[2] },
                             .columns = { columns[0], columns[1], columns[2] },
                             .label_smoothing = json_number_value(json_object_get(r->spec, "label_smoothing")),
                             .accuracy = true };
    m->filter_count = network_list(r, "filters", m->filters);
    m->hidden_count = network_list(r, "hidden", m->hidden);
    m->bottom_count = network_list(r, "bottom", m->bottom);
    m->top_count = network_list(r, "top", m->top);
    snprintf(path, sizeof path, "%s/config.json", r->folder);
    return access(path, F_OK) == 0 ? sl_model_config_read(r->folder, &m->folder, NULL) : SLUICE_OK;
}

/* ---- batches and first values ---- */

static inline uint32_t network_next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static inline uint32_t network_hash(const char *text)
{
    uint32_t state = 2166136261u;
    for (; *text != '\0'; text++) state = (state ^ (unsigned char)*text) * 16777619u;
    return state;
}

/* -1 to 1. */
static inline double network_draw(uint32_t *state)
{
    return (double)network_next(state) / 8388608.0 - 1.0;
}

/* Element (row, t) of an input of whole numbers with `columns` columns. */
static inline int32_t network_whole(const network_run *r, const char *name, uint32_t *state, int64_t row, int64_t t,
                                    int64_t columns)
{
    uint32_t drawn = network_next(state);
    int64_t below = r->m.outputs;
    if (strcmp(name, "lengths") == 0) return (int32_t)(r->m.context - row * 3 % (r->m.context / 2));
    if (strcmp(name, "segments") == 0) return t >= columns / 3 + row;
    if (strcmp(name, "tokens") == 0) below = r->m.folder.vocabulary;
    if (strncmp(name, "category.", 9) == 0) below = r->m.columns.buckets;
    if (strcmp(name, "targets") == 0) /* one in three is to be guessed */
        return drawn % 3 == 0 ? (int32_t)(drawn / 3 % (uint64_t)r->m.folder.vocabulary) : -1;
    return (int32_t)(drawn % (uint64_t)below);
}

static inline void network_fill(network_run *r, uint32_t step)
{
    for (int i = 0; i < r->g->input_count; i++) {
        const sl_value *v = &r->g->values[r->g->inputs[i]];
        int64_t rows = v->shape.dim[0], columns = sl_shape_elements(&v->shape) / rows;
        uint32_t state = network_hash(v->name) + step * 2654435761u;
        bool clicks = v->dtype == SLUICE_F32 && strcmp(v->name, "target") == 0;
        for (int64_t at = 0; at < rows * columns; at++)
            if (v->dtype == SLUICE_I32)
                ((int32_t *)r->arrays[i].data)[at] =
                    network_whole(r, v->name, &state, at / columns, at % columns, columns);
            else
                ((float *)r->arrays[i].data)[at] =
                    clicks ? (float)(network_next(&state) % 2) : (float)(2 * network_draw(&state) + 0.3);
    }
}

static inline sluice_batch network_batch(const network_run *r)
{
    return (sluice_batch){ r->arrays, r->g->input_count };
}

/* Norms around 1, those that end a residual branch around 0.2, matrices and filters so that the variance stays, the others
 * small. */
static inline sluice_status network_make_values(network_run *r)
{
    for (int i = 0; i < r->g->parameter_count; i++) {
        const sl_parameter *p = &r->g->parameters[i];
        const sl_shape *shape = &r->g->values[p->value].shape;
        bool norm = shape->rank == 1 && strstr(p->name, ".weight") != NULL, last = strstr(p->name, "bn2") != NULL;
        double centre = !norm ? 0.0 : last ? 0.2 : 1.0;
        double scale = shape->rank == 1 ? 0.1 : sqrt(6.0 * (double)shape->dim[0] / (double)p->count);
        uint32_t state = network_hash(p->name);
        float *values = malloc((size_t)p->count * sizeof *values);
        if (values == NULL) return SLUICE_ERR_NO_MEMORY;
        for (int64_t k = 0; k < p->count; k++) values[k] = (float)(centre + scale * network_draw(&state));
        sluice_status st = sluice_set_parameter(r->e, p->name, values, (size_t)p->count * sizeof *values);
        free(values);
        if (st != SLUICE_OK) return st;
    }
    return SLUICE_OK;
}

/* ---- a run ---- */

static inline void network_options(const network_run *r, sluice_options *o)
{
    bool sgd = strcmp(json_string_value(json_object_get(r->spec, "optimizer")), "SGD") == 0;
    sluice_options_init(o);
    sluice_optimizer_init(&o->optimizer, sgd ? SLUICE_SGD : SLUICE_ADAMW);
    o->optimizer.lr = json_number_value(json_object_get(r->spec, "lr"));
    o->optimizer.weight_decay = json_number_value(json_object_get(r->spec, "weight_decay"));
    o->optimizer.momentum = sgd ? 0.9 : 0;
    o->optimizer.epsilon = 1e-4; /* a small one would let gradients near zero decide by their sign alone */
    o->evaluation = true;
    o->device_bytes = o->host_bytes = (uint64_t)2 << 30;
}

static inline sluice_status network_open(network_run *r, const char *folder)
{
    char path[1100];
    *r = (network_run){ .folder = folder };
    snprintf(path, sizeof path, "%s/network.json", folder);
    if ((r->spec = json_load_file(path, 0, NULL)) == NULL) return sl_fail(SLUICE_ERR_INPUT, "%s: no JSON", path);
    SL_TRY(network_describe(r));
    return SLUICE_OK;
}

static inline sluice_status network_start(network_run *r, const sluice_options *o)
{
    sl_model_info info;
    SL_TRY(sluice_graph_create(&r->g));
    SL_TRY(sl_model_build(r->g, &r->m, &info));
    SL_TRY(sluice_engine_create(r->g, o, &r->e));
    if (r->g->input_count > NETWORK_MOST_INPUTS)
        return sl_fail(SLUICE_ERR_USAGE, "%d inputs, at most %d", r->g->input_count, NETWORK_MOST_INPUTS);
    for (int i = 0; i < r->g->input_count; i++) {
        const sl_value *v = &r->g->values[r->g->inputs[i]];
        size_t bytes = (size_t)sl_shape_elements(&v->shape) * sizeof(float);
        r->arrays[i] = (sluice_array){ v->name, malloc(bytes), bytes };
        if (r->arrays[i].data == NULL) return SLUICE_ERR_NO_MEMORY;
    }
    r->output_count = sl_shape_elements(&r->g->values[r->g->output].shape);
    return json_is_true(json_object_get(r->spec, "made")) ? network_make_values(r) : sluice_load(r->e, r->folder);
}

/* logits[output_count] of the batch that no step has. */
static inline sluice_status network_predict(network_run *r, float *logits)
{
    sluice_batch batch = network_batch(r);
    network_fill(r, NETWORK_EVALUATED);
    return sluice_predict(r->e, &batch, logits, (size_t)r->output_count * sizeof *logits);
}

/* The losses of batches 1 to `steps`. */
static inline sluice_status network_train(network_run *r, int steps, double *losses)
{
    sluice_batch batch = network_batch(r);
    for (int i = 0; i < steps; i++) {
        network_fill(r, (uint32_t)i + 1);
        SL_TRY(sluice_train_step(r->e, &batch, &losses[i]));
    }
    return SLUICE_OK;
}

static inline void network_stop(network_run *r)
{
    for (int i = 0; i < NETWORK_MOST_INPUTS; i++) free((void *)r->arrays[i].data);
    memset(r->arrays, 0, sizeof r->arrays);
    sluice_engine_destroy(r->e);
    sluice_graph_destroy(r->g);
    r->e = NULL;
    r->g = NULL;
}

static inline void network_close(network_run *r)
{
    network_stop(r);
    json_decref(r->spec);
}

#endif
