/* run_folder.c: the files of a run's model beside its weights: for `save`, where that names a folder, and for the folder
 * `model` beside the checkpoints, from which an export makes a whole one. */
#include <string.h>

#include "checkpoint/model_folder.h"
#include "core/output_folder.h"
#include "format/adapter_config.h"
#include "format/weights_set.h"
#include "train/run.h"

/* The folder that the model comes from: model.path, or `load` where that is a model's folder; NULL: it was made here. */
static const char *find_source(const sl_settings *s, sl_decoder family)
{
    const char *folder = s->path[0] != '\0' ? s->path : s->initial_weights;
    sl_model_config there;
    if (folder[0] == '\0' || (s->path[0] == '\0' && !sl_is_weights_folder(folder))) return NULL;
    if (sl_model_config_read(folder, &there, NULL) != SLUICE_OK || there.family != family) return NULL;
    return folder;
}

bool sl_run_has_model_files(const sl_settings *s)
{
    return sl_decoder_find(s->model.type) != SL_DECODER_NONE && s->model.lora.rank == 0;
}

/* What config.json says of the model of this run. */
static sluice_status describe(const sl_job *j, sl_model_config *c)
{
    SL_TRY(sl_model_describe(&j->settings.model, c));
    c->has_dtype = true;
    c->dtype = j->settings.save_type;
    return SLUICE_OK;
}

/* For adapters, of the tokenizer alone. *out is the caller's, also after a failure. */
static sluice_status make_files(const sl_job *j, sl_model_files *out)
{
    sl_model_config c;
    const sl_settings *s = &j->settings;
    sl_ids_meaning ids = { .tokenizer = s->data.tokenizer[0] != '\0' ? s->data.tokenizer : NULL,
                           .unit = j->unit,
                           .characters = j->characters,
                           .over = s->adapter[0] != '\0' ? s->adapter : NULL };
    sl_images_meaning images = { .channels = s->model.image.channels };
    const bool prepared = j->data != NULL && sl_data_prepared(j->data, &images.processor);
    ids.chat = sl_data_jsonl_new_chat(j->data, &ids.date, &ids.eos);
    SL_TRY(describe(j, &c));
    const char *source = find_source(s, c.family);
    if (s->model.lora.rank > 0) return sl_tokenizer_files_make(&c, source, &ids, out);
    return sl_model_files_make(&c, source, &ids, prepared ? &images : NULL, out);
}

sluice_status sl_run_check_folder(const sl_settings *s)
{
    if (sl_decoder_find(s->model.type) != SL_DECODER_NONE) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE,
                   "save: %s is a folder, and a model of type %s has none that other programs could open; name a file "
                   "that ends in .safetensors",
                   s->save, s->model.type);
}

/* Rank 0 alone makes the files; the others need not know them. */
sluice_status sl_run_hold_files(sl_run *r)
{
    sl_job *j = r->job;
    const sl_settings *s = &j->settings;
    if (s->save[0] == '\0' || !sl_is_folder_output(s->save)) return SLUICE_OK;
    sluice_status st = j->ranks.rank == 0 ? make_files(j, &r->files) : SLUICE_OK;
    SL_TRY(sl_ranks_agree(&j->ranks, "files of the model", st));
    sl_model_files_hold(&r->files);
    r->files.log = &j->log;
    if (j->ranks.rank != 0) r->files.prefix = "";
    return SLUICE_OK;
}

static sluice_status save_folder(sl_run *r)
{
    const sl_settings *s = &r->job->settings;
    uint64_t shard_bytes = s->shard_bytes > 0 ? s->shard_bytes : SL_SHARD_BYTES;
    return sl_ranks_together(&r->job->ranks,
                             sl_folder_save(r->job->engine->exec, s->save, s->save_type, shard_bytes, &r->files));
}

/* What a model with adapters was trained for is its adapters: a folder of them, with the tokenizer and the chat template that
 * they were trained by, is what other programs take. */
static sluice_status save_adapter(sl_run *r)
{
    const sl_settings *s = &r->job->settings;
    sl_decoder family = sl_decoder_find(s->model.type);
    const sl_adapter_config c = { .rank = s->model.lora.rank,
                                  .alpha = s->model.lora.alpha > 0 ? s->model.lora.alpha : (double)s->model.lora.rank,
                                  .dropout = s->model.lora.dropout,
                                  .rank_stabilised = s->model.lora.rank_stabilised,
                                  .in_out = family == SL_DECODER_GPT2,
                                  .causal = !sl_decoder_is_encoder(family),
                                  .base = s->initial_weights };
    return sl_ranks_together(&r->job->ranks,
                             sl_adapter_save(r->job->engine->exec, s->save, &c, sl_decoder_prefix(family), &r->files));
}

sluice_status sl_run_save_weights(sl_run *r)
{
    const sl_settings *s = &r->job->settings;
    if (s->save[0] == '\0') return SLUICE_OK;
    if (sl_is_folder_output(s->save)) return s->model.lora.rank > 0 ? save_adapter(r) : save_folder(r);
    return sl_ranks_together(&r->job->ranks, sl_weights_save(r->job->engine->exec, s->save, s->save_type));
}

/* ---- beside the checkpoints ---- */

static sluice_status write_kept(const sl_model_files *files, const char *path)
{
    sl_folder_output o;
    SL_TRY(sl_folder_output_begin(path, sl_model_folder_signs, &o));
    sluice_status st = sl_model_files_write(files, o.claim.temporary);
    if (st == SLUICE_OK) return sl_folder_output_finish(&o, sl_is_model_file_name);
    sl_folder_output_drop(&o);
    return st;
}

/* What is there stays where a run goes on: it may have been made from a folder that is gone. */
sluice_status sl_run_keep_model(sl_run *r)
{
    const sl_settings *s = &r->job->settings;
    sl_model_files files = { .count = 0 };
    char path[PATH_MAX];
    if (!sl_run_has_model_files(s)) return SLUICE_OK;
    if (snprintf(path, sizeof path, "%s/" SL_KEPT_MODEL, s->checkpoint.path) >= (int)sizeof path)
        return sl_fail(SLUICE_ERR_USAGE, "checkpoint.path is too long: use a shorter one");
    if (r->options->resume && sl_path_exists(path)) return SLUICE_OK;
    sluice_status st = make_files(r->job, &files);
    if (st == SLUICE_OK) st = write_kept(&files, path);
    sl_model_files_free(&files);
    return st;
}
