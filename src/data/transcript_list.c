/* transcript_list.c: transcripts: a table with a row for each sound, its path and what is said in it.
 *
 * Columns are found by the names that such files have, or named by settings. Paths are relative to the folder of the list. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/alloc.h"
#include "core/grow.h"
#include "core/io.h"
#include "core/quote.h"
#include "core/utf8.h"
#include "data/utterances.h"
#include "format/delimited.h"

/* ---- files ---- */

/* The list in a folder, or the file itself. */
static sluice_status find_list(const char *key, const char *path, const char *const *names, char out[PATH_MAX])
{
    sl_path_info info;
    SL_TRY(sl_path_look(path, &info));
    if (info.kind == SL_PATH_FOLDER) {
        if (sl_find_in(path, names, out)) return SLUICE_OK;
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: %s is not there, the list of sounds and what is said in them; name a file",
                       sl_show(path).text, names[0]);
    }
    if (snprintf(out, PATH_MAX, "%s", path) >= PATH_MAX)
        return sl_fail(SLUICE_ERR_USAGE, "%s: the path is too long", key);
    return SLUICE_OK;
}

sluice_status sl_utterances_find(const sl_data_options *o, char train[PATH_MAX], char other[PATH_MAX])
{
    static const char *const trains[] = { "transcripts.tsv", "transcripts.csv", "train.tsv", "train.csv", NULL };
    static const char *const others[] = { "validation.tsv", "validation.csv", "dev.tsv", "dev.csv",
                                          "test.tsv",       "test.csv",       NULL };
    static const char *const any[] = { "transcripts.tsv", "transcripts.csv", "validation.tsv",
                                       "dev.tsv",         "test.tsv",        NULL };
    sl_path_info info;
    other[0] = '\0';
    if (!sl_given(o->path))
        return sl_fail(SLUICE_ERR_USAGE, "data.path is missing; give a folder with transcripts.tsv, or such a file");
    if (sl_given(o->validation_path) && o->validation > 0)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "data.validation sets a share of data.path aside and data.validation_path names a list; give one");
    SL_TRY(find_list("data.path", o->path, trains, train));
    if (sl_given(o->validation_path)) return find_list("data.validation_path", o->validation_path, any, other);
    SL_TRY(sl_path_look(o->path, &info));
    bool looks = info.kind == SL_PATH_FOLDER && !(o->validation > 0);
    if (!looks || !sl_find_in(o->path, others, other)) other[0] = '\0';
    return SLUICE_OK;
}

/* ---- columns ---- */

typedef struct list_columns {
    int path, text;
} list_columns;

static int usual_column(const sl_delimited *d, const char *const *names)
{
    int found = -1;
    for (; *names != NULL && found < 0; names++) found = sl_delimited_find(d, *names, true);
    return found;
}

static sluice_status find_column(const sl_delimited *d, const char *key, const char *name, const char *const *usual,
                                 int *out)
{
    *out = sl_given(name) ? sl_delimited_find(d, name, false) : usual_column(d, usual);
    if (*out >= 0) return SLUICE_OK;
    if (sl_given(name))
        return sl_fail(SLUICE_ERR_INPUT, "%s has no column %s, which %s names", sl_show(d->path).text,
                       sl_quote(name).text, key);
    return sl_fail(SLUICE_ERR_INPUT, "%s: line 1 names no column that is known, such as %s; name it with %s",
                   sl_show(d->path).text, usual[0], key);
}

static sluice_status find_columns(const sl_data_options *o, const sl_delimited *d, list_columns *out)
{
    static const char *const paths[] = { "path", "file", "filename", "file_name", "audio", "wav", NULL };
    static const char *const texts[] = { "text", "transcript", "transcription", "sentence", "normalized_text", NULL };
    SL_TRY(find_column(d, "data.columns.first", o->first_column, paths, &out->path));
    return find_column(d, "data.columns.label", o->label_column, texts, &out->text);
}

/* ---- rows ---- */

/* Words with one space between; the caller's arena has them. */
static char *keep_words(sl_arena *arena, const sl_delimited_field *f)
{
    char *out = sl_arena_alloc(arena, f->bytes + 1);
    size_t used = 0;
    if (out == NULL) return NULL;
    for (size_t i = 0; i < f->bytes; i++) {
        bool space = strchr(" \t\r\n\f\v", f->text[i]) != NULL;
        if (!space)
            out[used++] = f->text[i];
        else if (used > 0 && out[used - 1] != ' ')
            out[used++] = ' ';
    }
    if (used > 0 && out[used - 1] == ' ') used--;
    out[used] = '\0';
    return out;
}

static sluice_status keep_path(sl_arena *arena, const char *folder, const char *name, const char **out)
{
    char path[PATH_MAX];
    int n =
        name[0] == '/' ? snprintf(path, sizeof path, "%s", name) : snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n >= PATH_MAX) return sl_fail(SLUICE_ERR_INPUT, "%.200s...: the path is too long", name);
    *out = sl_arena_strdup(arena, path);
    return *out != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

static sluice_status add(sl_utterance_list *l, const sl_utterance *u)
{
    SL_TRY(SL_GROW(l->items, l->capacity, l->count + 1, 1024, "list of sounds"));
    l->items[l->count++] = *u;
    return SLUICE_OK;
}

static sluice_status take_record(const sl_delimited *d, list_columns columns, const char *folder, sl_arena *arena,
                                 sl_utterance_list *out, uint64_t *text_bytes)
{
    const sl_delimited_field *path = &d->fields[columns.path], *text = &d->fields[columns.text];
    sl_utterance u = { .line = d->line };
    if (path->bytes == 0) return sl_fail(SLUICE_ERR_INPUT, "%s: the path is empty", sl_delimited_place(d).text);
    SL_TRY(keep_path(arena, folder, path->text, &u.path));
    if ((u.text = keep_words(arena, text)) == NULL) return SLUICE_ERR_NO_MEMORY;
    if (u.text[0] == '\0')
        return sl_fail(SLUICE_ERR_INPUT, "%s: the transcript of %s is empty; write what is said, or leave the line out",
                       sl_delimited_place(d).text, sl_show(path->text).text);
    *text_bytes += strlen(u.path) + text->bytes + 64;
    return add(out, &u);
}

static sluice_status read_records(const sl_data_options *o, sl_delimited *d, sl_arena *arena, sl_utterance_list *out,
                                  uint64_t *text_bytes)
{
    char folder[PATH_MAX];
    list_columns columns;
    bool more = true;
    SL_TRY(find_columns(o, d, &columns));
    SL_TRY(sl_path_parent(d->path, folder));
    while (more) {
        SL_TRY(sl_delimited_next(o->stop, d, &more));
        if (more) SL_TRY(take_record(d, columns, folder, arena, out, text_bytes));
        if (out->count > SL_MOST_UTTERANCES)
            return sl_fail(SLUICE_ERR_INPUT, "%s: more than %" PRId64 " sounds", sl_show(d->path).text,
                           SL_MOST_UTTERANCES);
    }
    if (out->count > 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s has no sounds behind its header", sl_show(d->path).text);
}

sluice_status sl_utterances_read(const sl_data_options *o, sl_arena *arena, sl_utterance_list *out,
                                 uint64_t *text_bytes)
{
    sl_delimited d;
    size_t n = strlen(out->path);
    bool csv = n > 4 && strcasecmp(out->path + n - 4, ".csv") == 0;
    SL_TRY(sl_delimited_open(out->path, csv ? ',' : '\t', csv, &d));
    sluice_status st = read_records(o, &d, arena, out, text_bytes);
    sl_delimited_close(&d);
    return st;
}
