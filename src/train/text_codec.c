/* text_codec.c: see text_codec.h. */
#include "train/text_codec.h"

#include <string.h>

#include "checkpoint/folder.h"
#include "core/alloc.h"
#include "core/io.h"
#include "format/adapter_config.h"

static bool has_file(const char *folder, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return sl_path_exists(path);
}

const char *sl_job_tokenizer(const sl_job *j)
{
    const sl_settings *s = &j->settings;
    if (s->data.tokenizer != NULL && s->data.tokenizer[0] != '\0') return s->data.tokenizer;
    bool folder = s->path[0] != '\0' && (has_file(s->path, "tokenizer.json") || has_file(s->path, "vocab.json"));
    return folder ? s->path : NULL;
}

/* ---- tokens that end a reply ---- */

static sluice_status add_end(sl_text_codec *t, int64_t id)
{
    if (id >= sl_tokenizer_size(t->tokenizer) || sl_text_codec_ends(t, (int32_t)id)) return SLUICE_OK;
    return sl_ids_add(&t->ends, (int32_t)id);
}

/* generation_config.json counts before config.json; without either, the token that ends texts by its name. */
static sluice_status find_ends(sl_text_codec *t, const sl_model_config *model)
{
    for (int i = 0; i < t->generation.end_count; i++) SL_TRY(add_end(t, t->generation.ends[i]));
    for (int i = 0; i < model->end_count && t->generation.end_count == 0; i++)
        if (model->ends[i] >= 0) SL_TRY(add_end(t, model->ends[i]));
    int32_t end = t->ends.count == 0 ? sl_tokenizer_end_of_text(t->tokenizer) : -1;
    return end >= 0 ? sl_ids_add(&t->ends, end) : SLUICE_OK;
}

bool sl_text_codec_ends(const sl_text_codec *t, int32_t id)
{
    for (size_t i = 0; i < t->ends.count; i++)
        if (t->ends.data[i] == id) return true;
    return false;
}

/* As config.json and tokenizer_config.json name it. Models that name none often were trained on texts with the token of their
 * ends between them. */
static int32_t find_begin(const sl_text_codec *t, const sl_model_config *model)
{
    const char *name = t->folder.bos;
    if (model->bos >= 0 && model->bos < sl_tokenizer_size(t->tokenizer)) return (int32_t)model->bos;
    int32_t named = name != NULL ? sl_tokenizer_find(t->tokenizer, name, strlen(name)) : -1;
    return named >= 0 || t->ends.count == 0 ? named : t->ends.data[0];
}

/* ---- conversations ---- */

/* The adapter that the job reads (job.c, sl_job_load_weights); "": none. */
static const char *adapter_of(const sl_settings *s)
{
    if (s->adapter[0] != '\0') return s->adapter;
    return s->model.lora.rank > 0 && sl_is_adapter_folder(s->save) ? s->save : "";
}

/* What ends a text where the folder does not say: as training has it (data/jsonl.c). */
static sluice_status fill_end(sl_text_codec *t)
{
    size_t bytes;
    int32_t end = t->folder.eos == NULL ? sl_tokenizer_end_of_text(t->tokenizer) : -1;
    if (end < 0) return SLUICE_OK;
    t->folder.eos = sl_strdup(sl_tokenizer_content(t->tokenizer, end, &bytes), "end of text");
    return t->folder.eos != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

static sluice_status find_chat(sl_text_codec *t, const sl_settings *s, const char *path, const char *name)
{
    char names[SL_CHAT_NAMES_BYTES];
    if (sl_is_folder(path)) SL_TRY(sl_chat_folder_read(adapter_of(s), path, &t->folder));
    SL_TRY(fill_end(t));
    if (name == NULL && s->data.chat[0] != '\0') name = s->data.chat;
    t->chat = name != NULL ? sl_chat_find(name) : t->folder.chat;
    t->date = s->data.chat_date[0] != '\0' ? s->data.chat_date : t->folder.date;
    if (name != NULL && t->chat == NULL)
        return sl_fail(SLUICE_ERR_USAGE, "there is no chat template \"%.100s\"; give one of %s", name,
                       sl_chat_names(names));
    const char *mark = t->chat != NULL ? sl_chat_end_mark(t->chat) : NULL;
    int32_t id = mark != NULL ? sl_tokenizer_find(t->tokenizer, mark, strlen(mark)) : -1;
    return id >= 0 && !sl_text_codec_ends(t, id) ? sl_ids_add(&t->ends, id) : SLUICE_OK;
}

/* ---- life ---- */

sluice_status sl_text_codec_open(const sl_job *j, const char *chat, sl_text_codec *out)
{
    const char *path = sl_job_tokenizer(j);
    SL_TRY(sl_generation_config_read(j->settings.path, &out->generation));
    out->vocabulary = path == NULL ? j->vocabulary : NULL;
    out->begin = -1;
    if (path == NULL) {
        if (j->vocabulary != NULL && sl_model_reads_tokens(j->settings.model.type)) return SLUICE_OK;
        return sl_fail(SLUICE_ERR_USAGE, "model.type \"%s\" does not generate text%s", j->settings.model.type,
                       sl_model_reads_tokens(j->settings.model.type)
                           ? ": there is no tokenizer; set data.tokenizer to its folder"
                           : "");
    }
    SL_TRY(sl_tokenizer_open(path, &out->tokenizer));
    SL_TRY(sl_encoder_create(out->tokenizer, &out->encoder));
    SL_TRY(find_ends(out, &j->settings.model.folder));
    SL_TRY(find_chat(out, &j->settings, path, chat));
    out->begin = find_begin(out, &j->settings.model.folder);
    return SLUICE_OK;
}

void sl_text_codec_close(sl_text_codec *t)
{
    sl_encoder_destroy(t->encoder);
    sl_tokenizer_close(t->tokenizer);
    sl_chat_folder_free(&t->folder);
    sl_ids_free(&t->ends);
}

/* ---- text to ids ---- */

static sluice_status encode_units(const sl_vocabulary *v, const char *text, size_t bytes, sl_sequence *out)
{
    int64_t count = 0;
    int32_t *ids = sl_alloc_array(bytes + 1, sizeof *ids, "tokens of a prompt");
    if (ids == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = sl_vocabulary_encode(v, text, bytes, ids, (int64_t)bytes + 1, &count);
    if (st == SLUICE_OK) st = sl_sequence_add(out, ids, count);
    sl_free(ids);
    return st;
}

sluice_status sl_text_codec_encode(sl_text_codec *t, const char *text, size_t bytes, bool control, sl_sequence *out)
{
    if (t->vocabulary != NULL) return encode_units(t->vocabulary, text, bytes, out);
    bool added = !control || sl_chat_adds_special(t->chat);
    sl_ids ids = { .data = NULL };
    sluice_status st = sl_encode(t->encoder, text, bytes, added ? SL_ENCODE_ADD_SPECIAL : 0, &ids);
    if (st == SLUICE_OK) st = sl_sequence_add(out, ids.data, (int64_t)ids.count);
    sl_ids_free(&ids);
    return st;
}

/* ---- ids to text ---- */

sluice_status sl_token_stream_open(const sl_text_codec *t, sl_token_stream *out)
{
    *out = (sl_token_stream){ .t = t };
    return t->tokenizer != NULL ? sl_stream_decoder_create(t->tokenizer, SL_DECODE_SKIP_SPECIAL, &out->decoder)
                                : SLUICE_OK;
}

void sl_token_stream_close(sl_token_stream *s)
{
    sl_stream_decoder_destroy(s->decoder);
    s->decoder = NULL;
}

sluice_status sl_token_stream_add(sl_token_stream *s, int32_t id, sl_text *out)
{
    char text[4];
    if (s->decoder != NULL) return sl_stream_decoder_add(s->decoder, id, out);
    sl_text_add_bytes(out, text, (size_t)sl_vocabulary_decode(s->t->vocabulary, id, text));
    return sl_text_status(out);
}

sluice_status sl_token_stream_finish(sl_token_stream *s, sl_text *out)
{
    return s->decoder != NULL ? sl_stream_decoder_finish(s->decoder, out) : SLUICE_OK;
}
