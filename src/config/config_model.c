/* config_model.c: a model that is a folder: what its config.json says stands in the settings, and what was typed beside it
 * must agree. */
#include <stdio.h>
#include <string.h>

#include "config/config_rows.h"
#include "core/io.h"
#include "core/status.h"
#include "format/known_models.h"
#include "format/weights_set.h"

/* The tokens in a sample where nobody says: models are made for contexts that few machines train. */
#define USUAL_CONTEXT 2048

static const sl_option *row_of(const char *key)
{
    return sl_option_find(sl_config_rows, sl_config_row_count, key);
}

static bool is_given(const sluice_config *c, const sl_option *row)
{
    return c->private_data->origins[row - sl_config_rows].line != 0;
}

/* ---- The folder's values ---- */

static sluice_status refuse_other(const sluice_config *c, const sl_option *row, const sl_config_value *folder,
                                  const char *path)
{
    char where[SL_WHERE_BYTES], says[256];
    FILE *memory = fmemopen(says, sizeof says, "w");
    if (memory == NULL) return sl_fail(SLUICE_ERR_NO_MEMORY, "out of memory while reading the configuration");
    sl_config_value_print(row, folder, memory);
    fclose(memory);
    return sl_fail(SLUICE_ERR_USAGE, "%s%s: %.200s is given, and %.600s/config.json says %s; leave the key out",
                   sl_config_where(c, row, where, sizeof where), row->key,
                   c->private_data->origins[row - sl_config_rows].given, path, says);
}

/* One value of the folder's into the settings. */
static sluice_status take(const sluice_config *c, const char *key, sl_config_value value, sl_settings *s)
{
    const sl_option *row = row_of(key);
    sl_config_value typed;
    sl_config_value_load(row, s, &typed);
    if (is_given(c, row) && !sl_config_value_equal(row, &typed, &value)) return refuse_other(c, row, &value, s->path);
    sl_config_value_store(row, &value, s);
    return SLUICE_OK;
}

static sluice_status take_sizes(const sluice_config *c, const sl_model_config *m, sl_settings *s)
{
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {
        { "model.layers", m->layers },         { "model.heads", m->heads },
        { "model.kv_heads", m->kv_heads },     { "model.width", m->width },
        { "model.head_width", m->head_width }, { "model.feed_forward", m->feed_forward },
        { "model.sliding_window", m->window },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        SL_TRY(take(c, sizes[i].key, (sl_config_value){ .integer = sizes[i].value }, s));
    const char *vocabulary = sl_arena_printf(&c->private_data->arena, "%lld", (long long)m->vocabulary);
    if (vocabulary == NULL) return SLUICE_ERR_NO_MEMORY;
    return take(c, "model.vocabulary", (sl_config_value){ .text = vocabulary }, s);
}

/* The weights decide in the end whether a head has weights of its own: what is typed beats config.json. */
static sluice_status take_traits(const sluice_config *c, sl_model_config *m, sl_settings *s)
{
    if (is_given(c, row_of("model.tie_word_embeddings"))) m->tied = !s->model.untied;
    SL_TRY(take(c, "model.tie_word_embeddings", (sl_config_value){ .boolean = m->tied }, s));
    SL_TRY(take(c, "model.attention_bias", (sl_config_value){ .boolean = m->attention_bias }, s));
    if (m->rope.theta > 0) SL_TRY(take(c, "model.rope_theta", (sl_config_value){ .real = m->rope.theta }, s));
    return take(c, "model.norm_epsilon", (sl_config_value){ .real = m->norm_epsilon }, s);
}

/* ---- How it is used ---- */

static void choose_context(const sluice_config *c, const sl_model_config *m, const sl_log *log, sl_settings *s)
{
    if (is_given(c, row_of("model.context"))) return;
    s->model.context = m->context < USUAL_CONTEXT ? m->context : USUAL_CONTEXT;
    if (m->context > USUAL_CONTEXT)
        sl_log_write(log, SLUICE_LOG_NOTE, "model.context is %d of the %lld positions that the model was made for",
                     USUAL_CONTEXT, (long long)m->context);
}

static sluice_status refuse_place(const sluice_config *c, const char *key, const char *type)
{
    char where[SL_WHERE_BYTES];
    return sl_fail(SLUICE_ERR_USAGE, "%s%s has no meaning for model.type %s; remove it",
                   sl_config_where(c, row_of(key), where, sizeof where), key, type);
}

sluice_status sl_config_resolve_dropout(const sluice_config *c, sl_settings *s)
{
    const sl_model_config *m = &s->model.folder;
    sl_model_options *o = &s->model;
    sl_decoder family = sl_decoder_find(o->type);
    bool has_places = family == SL_DECODER_GPT2 || sl_decoder_is_encoder(family);
    bool embedding = is_given(c, row_of("model.embedding_dropout"));
    bool classifier = is_given(c, row_of("model.classifier_dropout"));
    s->given.dropout = is_given(c, row_of("model.dropout"));
    o->dropout_by_place = true;
    if (embedding && !has_places) return refuse_place(c, "model.embedding_dropout", o->type);
    if (classifier && family != SL_DECODER_BERT) return refuse_place(c, "model.classifier_dropout", o->type);
    if (m->family == SL_DECODER_NONE || !has_places || s->given.dropout) return SLUICE_OK;
    o->dropout = m->dropout;
    if (!embedding && family == SL_DECODER_GPT2) o->embedding_dropout = m->embedding_dropout;
    if (!classifier && family == SL_DECODER_BERT) o->classifier_dropout = m->classifier_dropout;
    return SLUICE_OK;
}

/* Weights of a BERT that was only trained to guess tokens have no pooler; published ones often do, whatever config.json
 * calls them. Weights that cannot be read are told of where they are loaded. */
static bool lacks_pooler(const char *folder)
{
    sl_weights_set *set = NULL;
    if (sl_weights_set_open(folder, &set) != SLUICE_OK) return false;
    bool lacks = sl_weights_set_find(set, "bert.pooler.dense.weight") == NULL &&
                 sl_weights_set_find(set, "pooler.dense.weight") == NULL;
    sl_weights_set_close(set);
    return lacks;
}

/* A folder without the head that is asked for: it starts anew. */
static void choose_fresh(const sluice_config *c, const sl_model_config *m, sl_settings *s)
{
    static const char *const head[] = { "classifier.*", "bert.pooler.*" };
    bool asks = strcmp(s->model.head, "classifier") == 0 || m->family == SL_DECODER_VIT;
    if (!sl_decoder_is_encoder(m->family) || !asks || m->classes > 0) return;
    if (is_given(c, row_of("new_parameters")) || is_given(c, row_of("load"))) return;
    s->model.fresh = head;
    s->model.fresh_count = m->family == SL_DECODER_BERT && lacks_pooler(s->path) ? 2 : 1;
}

/* The config.json of the folder; or where there is no such folder, that of a published model of this name. */
static sluice_status read_folder(sl_settings *s)
{
    char near[160], hint[320], message[SL_MESSAGE_BYTES];
    sl_model_config *m = &s->model.folder;
    bool is_name = !sl_path_exists(s->path);
    s->given.only_name = is_name && sl_known_model(s->path, m);
    if (s->given.only_name) return SLUICE_OK;
    sluice_status st = sl_model_config_read(s->path, m, NULL);
    if (st == SLUICE_OK || !is_name) return st;
    sl_hub_hint(s->path, hint, sizeof hint);
    sl_error_copy(message);
    if (sl_known_model_nearest(s->path, near, sizeof near)[0] != '\0')
        return sl_fail(st, "%s; nor is a published model called so; near it: %s%s", message, near, hint);
    return hint[0] != '\0' ? sl_fail(st, "%s%s", message, hint) : st;
}

sluice_status sl_config_resolve_folder(const sluice_config *c, const sl_log *log, sl_settings *s)
{
    sl_model_config *m = &s->model.folder;
    if (s->path[0] == '\0') return SLUICE_OK;
    SL_TRY(read_folder(s));
    SL_TRY(take(c, "model.type", (sl_config_value){ .text = sl_decoder_name(m->family) }, s));
    SL_TRY(take_sizes(c, m, s));
    SL_TRY(take_traits(c, m, s));
    choose_context(c, m, log, s);
    choose_fresh(c, m, s);
    if (s->initial_weights[0] == '\0' && !s->given.only_name) s->initial_weights = s->path;
    return SLUICE_OK;
}
