/* report_run.c: see report_run.h. */
#include "report/report_run.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/file_set.h"
#include "core/io.h"
#include "core/stop.h"
#include "core/utf8.h"
#include "report/page.h"
#include "report/profile.h"

sluice_status sl_report_path(const char *wanted, const char *run, char *out, size_t bytes)
{
    int needed =
        wanted[0] != '\0' ? snprintf(out, bytes, "%s", wanted) : snprintf(out, bytes, "%s/" SL_REPORT_NAME, run);
    if (needed >= 0 && (size_t)needed < bytes) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "the path of the report is too long: %.80s...; use a shorter one",
                   wanted[0] != '\0' ? wanted : run);
}

static sluice_status parse_profile(const char *text, size_t bytes, const char *what, json_t **out)
{
    SL_TRY(sl_json_parse(text, bytes, what, SLUICE_ERR_INPUT, out));
    double version = sl_profile_number(*out, "sluice_profile");
    if (version >= 1 && version <= SL_PROFILE_VERSION) return SLUICE_OK;
    json_decref(*out);
    *out = NULL;
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s is no profile that this program can read; remove it, and the report is made without it", what);
}

static sluice_status write_page(const sl_run_record *record, json_t *profile, const char *name, const char *path)
{
    sl_text page = { .data = NULL };
    sluice_status st = sl_page_write(record, profile, name, &page);
    if (st == SLUICE_OK) st = sl_file_replace(path, page.data, page.bytes);
    sl_text_free(&page);
    return st;
}

sluice_status sl_report_write(const sl_run_record *record, const sl_text *profile, const char *name, const char *path)
{
    json_t *parsed = NULL;
    if (profile != NULL) SL_TRY(parse_profile(profile->data, profile->bytes, SL_PROFILE_NAME, &parsed));
    sluice_status st = write_page(record, parsed, name, path);
    json_decref(parsed);
    return st;
}

/* *out is NULL where the run has none. */
static sluice_status read_profile(const char *run, json_t **out)
{
    char path[PATH_MAX], *text;
    size_t bytes;
    *out = NULL;
    if (snprintf(path, sizeof path, "%s/" SL_PROFILE_NAME, run) >= (int)sizeof path || !sl_path_exists(path))
        return SLUICE_OK;
    SL_TRY(sl_file_read_all(path, SL_JSON_MAX_BYTES, &text, &bytes));
    sluice_status st = parse_profile(text, bytes, path, out);
    sl_free(text);
    return st;
}

/* The last name of a path: "runs/a/" is "a". */
static void name_run(const char *run, char *out, size_t bytes)
{
    size_t length = strlen(run), begin;
    while (length > 1 && run[length - 1] == '/') length--;
    for (begin = length; begin > 0 && run[begin - 1] != '/';) begin--;
    snprintf(out, bytes, "%.*s", (int)(length - begin), run + begin);
    if (out[0] == '\0' || strcmp(out, ".") == 0) snprintf(out, bytes, "run");
}

/* Only an older page gives way, or a file without a byte. */
static sluice_status check_older(const char *path)
{
    char head[2];
    sl_path_info there;
    SL_TRY(sl_path_look(path, &there));
    if (there.kind != SL_PATH_FILE || there.bytes == 0) return SLUICE_OK;
    if (sl_file_peek(path, head, sizeof head) && head[0] == '<') return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "--out: %s is there and is no page, so that it is not replaced; name a new file",
                   sl_show(path).text);
}

/* None of the run's own files is written. */
static sluice_status check_page(const char *run, const char *path)
{
    sl_file_set files;
    sl_path_info there;
    SL_TRY(sl_path_look(run, &there));
    if (there.kind != SL_PATH_FOLDER) return SLUICE_OK; /* whoever reads it says so */
    sl_file_set_init(&files, NULL, NULL);
    sluice_status st = sl_file_set_add(&files, "the run", run, SL_SET_RUN);
    if (st == SLUICE_OK) st = sl_file_set_add(&files, "--out", path, SL_SET_WRITE_FILE);
    if (st == SLUICE_OK) st = sl_file_set_check(&files);
    sl_file_set_free(&files);
    return st == SLUICE_OK ? check_older(path) : st;
}

sluice_status sluice_report(const char *run, const char *out_path, FILE *out)
{
    return sluice_report_until(NULL, run, out_path, out);
}

sluice_status sluice_report_until(const int *stop, const char *run, const char *out_path, FILE *out)
{
    char path[PATH_MAX], name[256];
    sl_run_record record;
    json_t *profile = NULL;
    if (run == NULL || run[0] == '\0')
        return sl_fail(SLUICE_ERR_USAGE, "sluice_report: the folder of a run is missing");
    SL_TRY(sl_report_path(out_path != NULL ? out_path : "", run, path, sizeof path));
    SL_TRY(check_page(run, path));
    sluice_status st = sl_record_read_until(stop, run, &record);
    if (st == SLUICE_OK) st = read_profile(run, &profile);
    if (st == SLUICE_OK) st = sl_stop_poll(stop, "making the report");
    name_run(run, name, sizeof name);
    if (st == SLUICE_OK) st = write_page(&record, profile, name, path);
    if (st == SLUICE_OK && out != NULL) fprintf(out, "%s\n", sl_show(path).text);
    json_decref(profile);
    sl_record_free(&record);
    return st;
}
