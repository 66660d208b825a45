/* job_vocabulary.c: what the token ids of a job stand for: what the weights keep that it begins with, or the text's own.
 *
 * Weights mean nothing without the vocabulary they were trained with. It is read before the data is, so that a text gets the
 * ids of the model, whatever other characters it has or lacks; and it goes with the graph into every file the job writes. */
#include <string.h>

#include "checkpoint/kept_vocabulary.h"
#include "core/alloc.h"
#include "format/file_kind.h"
#include "train/text_codec.h"

/* What concerns the input is said once, not by every rank. */
static sl_log said_once(const sl_job *j)
{
    return (sl_log){ j->ranks.rank == 0 ? j->log.fn : NULL, j->log.user, 0, 1 };
}

static bool is_text(const sl_job *j)
{
    return strcmp(j->settings.data.type, "text") == 0;
}

/* Characters of a text, or of transcripts. */
static bool has_characters(const sl_job *j)
{
    return is_text(j) || strcmp(j->settings.data.type, "speech") == 0;
}

/* The weights that the job will begin with; *source NULL: random ones. A file that is missing is reported when it is
 * loaded; a plan does not need it. */
static sluice_status find_kept(sl_job *j, const sluice_job_options *o, sl_job_purpose purpose, sl_kept_vocabulary *kept,
                               const char **source)
{
    const sl_settings *s = &j->settings;
    bool reads = purpose == SL_JOB_EVALUATE || purpose == SL_JOB_GENERATE, found = false;
    bool in_folder = reads ? o->weights == NULL : purpose == SL_JOB_TRAIN && o->resume;
    const char *file = reads && o->weights != NULL ? o->weights : reads ? s->save : s->initial_weights;
    *source = NULL;
    if (in_folder && s->checkpoint.path[0] != '\0')
        SL_TRY(sl_checkpoint_vocabulary(s->checkpoint.path, &j->arena, kept, &found));
    if (found) *source = s->checkpoint.path;
    if (found || file[0] == '\0' || !sl_path_exists(file)) return SLUICE_OK;
    *source = file;
    return sl_weights_vocabulary(file, &j->arena, kept);
}

static const char *unit_name(sl_text_unit unit)
{
    return unit == SL_TEXT_BYTES ? "bytes" : "characters";
}

sluice_status sl_job_read_vocabulary(sl_job *j, const sluice_job_options *o, sl_job_purpose purpose)
{
    sl_kept_vocabulary kept = { NULL, NULL };
    const char *source;
    const sl_log log = said_once(j);
    sl_text_unit unit = (sl_text_unit)j->settings.data.unit;
    if (!has_characters(j) || unit == SL_TEXT_TOKENS) return SLUICE_OK;
    SL_TRY(find_kept(j, o, purpose, &kept, &source));
    if (source == NULL) return SLUICE_OK;
    if (kept.unit == NULL) {
        if (unit == SL_TEXT_CHARACTERS)
            sl_log_write(&log, SLUICE_LOG_WARNING,
                         "%s does not say which characters its token ids stand for, as files of older versions and of "
                         "other programs do not. They are taken to be those of %s: it must be the text that the model "
                         "was trained on",
                         source, j->settings.data.path[0] != '\0' ? j->settings.data.path : "data.path");
        return SLUICE_OK;
    }
    SL_TRY(sl_vocabulary_read(kept.unit, kept.characters, source, &j->kept));
    j->has_kept = true;
    if (j->kept.unit == unit) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE,
                   "%s was trained on %s, and the configuration reads the text as %s: set model.vocabulary to \"%s\"",
                   source, unit_name(j->kept.unit), unit_name(unit), unit_name(j->kept.unit));
}

bool sl_job_needs_data(const sl_job *j, sl_job_purpose purpose)
{
    if (purpose == SL_JOB_GENERATE && sl_job_tokenizer(j) != NULL) return false;
    return purpose != SL_JOB_GENERATE || !is_text(j) || (!j->has_kept && j->settings.data.unit != SL_TEXT_BYTES);
}

sluice_status sl_job_use_vocabulary(sl_job *j)
{
    const sl_vocabulary *v = sl_data_characters(j->data);
    if (v == NULL && (j->data != NULL || sl_job_tokenizer(j) != NULL)) return SLUICE_OK;
    if (v == NULL && !j->has_kept) j->kept = sl_vocabulary_bytes();
    j->vocabulary = v != NULL ? v : &j->kept;
    return sl_vocabulary_keep(j->vocabulary, &j->unit, &j->characters);
}

/* A larger number is what models with a tokenizer have, whose ids a text read by units does not give. */
static void warn_of_number(const sl_job *j, int64_t given)
{
    const sl_vocabulary *v = j->vocabulary;
    if (given <= v->size) return;
    sl_log_write(
        &j->log, SLUICE_LOG_WARNING,
        "model.vocabulary is %lld, but the text is read as %s, which are token ids 0 to %d: the %lld others are "
        "never used, and weights that were trained with a tokenizer mean nothing here. Set model.vocabulary to \"%s\" "
        "to "
        "train on the text, data.tokenizer to a tokenizer's folder to read the text by its tokens, or data.type to "
        "\"random_tokens\" to plan or time a model of this size",
        (long long)given, unit_name(v->unit), v->size - 1, (long long)given - v->size, unit_name(v->unit));
}

static void warn_of_kind(const sl_job *j)
{
    const sl_file_kind *kind = sl_data_text_kind(j->data);
    const sl_log log = said_once(j);
    if (kind == NULL) return;
    sl_log_write(&log, SLUICE_LOG_WARNING, "data.path: %s is %s, but it is read as plain text: %s",
                 j->settings.data.path, kind->what, kind->as_text);
}

/* A table may be larger than its tokenizer, as padded ones are. */
static sluice_status fit_tokenizer(const sl_job *j, int64_t given)
{
    int64_t needed = j->data != NULL ? sl_data_vocabulary(j->data) : 0;
    if (given <= 0 || given >= needed) return SLUICE_OK;
    return sl_fail(
        SLUICE_ERR_USAGE,
        "model.vocabulary is %lld, but the tokenizer has %lld tokens: give at least as many, or leave it out",
        (long long)given, (long long)needed);
}

sluice_status sl_job_fit_vocabulary(const sl_job *j, int64_t given)
{
    const sl_vocabulary *v = j->vocabulary;
    if (v == NULL) return fit_tokenizer(j, given);
    if (given > 0 && given < v->size)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "model.vocabulary is %lld, but the text has %d different tokens: give at least as many, or set it "
            "to \"%s\"",
            (long long)given, v->size, unit_name(v->unit));
    warn_of_number(j, given);
    warn_of_kind(j);
    return SLUICE_OK;
}

void sl_job_free_vocabulary(sl_job *j)
{
    sl_free((void *)j->kept.code_points);
    sl_free(j->characters);
    sl_arena_free(&j->arena);
}
