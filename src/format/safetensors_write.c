/* safetensors_write.c: writes a safetensors file as an output (core/output.h): `path` holds the old file or the whole
 * new one, whatever happens. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/output.h"
#include "format/safetensors.h"
#include "format/scan.h"
#include "format/text_buffer.h"

#define DATA_ALIGNMENT 64

struct sl_st_writer {
    sl_output output;
    char *path;       /* as it was given; for messages */
    uint64_t at, end; /* next byte to write; size of the whole file */
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static sluice_status check_unique(const char *path, const sl_st_tensor *tensors, int64_t count)
{
    sluice_status st = SLUICE_OK;
    const char **names = sl_alloc_array((size_t)count, sizeof *names, "safetensors names");
    if (names == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < count; i++) names[i] = tensors[i].name;
    if (count > 0) qsort(names, (size_t)count, sizeof *names, compare_names);
    for (int64_t i = 1; i < count && st == SLUICE_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            st = sl_fail(SLUICE_ERR_USAGE, "%s: two tensors have the name %s", path, sl_quote(names[i]).text);
    sl_free((void *)names);
    return st;
}

/* What the reader would refuse is not written. */
static sluice_status check_tensor(const char *path, const sl_st_tensor *t, uint64_t *bytes)
{
    const char *fault = NULL;
    const sl_name_fault name = sl_tensor_name_fault(t->name);
    if (name.text[0] != '\0') fault = name.text;
    if (t->rank < 0 || t->rank > SL_ST_MAX_RANK) fault = "it has more than 8 dimensions";
    for (int i = 0; fault == NULL && i < t->rank; i++)
        if (t->dim[i] < 0) fault = "it has a negative dimension";
    if (fault == NULL && !sl_st_size(t->dtype, t->rank, t->dim, bytes)) fault = "its size overflows";
    if (fault == NULL) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s: tensor %s cannot be written: %s", path, sl_quote(t->name).text, fault);
}

static void add_metadata(sl_text *text, const char *const *metadata, int64_t pairs)
{
    if (pairs == 0) return;
    sl_text_add(text, "\"__metadata__\":{");
    for (int64_t i = 0; i < pairs; i++) {
        if (i > 0) sl_text_add(text, ",");
        sl_text_add_string(text, metadata[2 * i]);
        sl_text_add(text, ":");
        sl_text_add_string(text, metadata[2 * i + 1]);
    }
    sl_text_add(text, "}");
}

static void add_tensor(sl_text *text, const sl_st_tensor *t, uint64_t begin, uint64_t end)
{
    sl_text_add_string(text, t->name);
    sl_text_add(text, ":{\"dtype\":\"%s\",\"shape\":[", sl_st_dtype_name(t->dtype));
    for (int i = 0; i < t->rank; i++) sl_text_add(text, "%s%" PRId64, i > 0 ? "," : "", t->dim[i]);
    sl_text_add(text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin, end);
}

/* The length and the header, padded with spaces so that data begins aligned. *data_bytes is the sum of all tensors. */
static sluice_status make_header(const char *path, const sl_st_tensor *tensors, int64_t count,
                                 const char *const *metadata, int64_t pairs, sl_text *text, uint64_t *data_bytes)
{
    uint64_t begin = 0;
    sl_text_add_bytes(text, "\0\0\0\0\0\0\0\0{", 9);
    add_metadata(text, metadata, pairs);
    for (int64_t i = 0; i < count; i++) {
        uint64_t bytes, end;
        SL_TRY(check_tensor(path, &tensors[i], &bytes));
        if (!sl_add_u64(begin, bytes, &end)) return sl_fail(SLUICE_ERR_USAGE, "%s: the tensors' sizes overflow", path);
        if (i > 0 || pairs > 0) sl_text_add(text, ",");
        add_tensor(text, &tensors[i], begin, end);
        begin = end;
    }
    sl_text_add(text, "}");
    while (!text->failed && text->bytes % DATA_ALIGNMENT != 0) sl_text_add_bytes(text, " ", 1);
    SL_TRY(sl_text_status(text));
    if (text->bytes - 8 > SL_ST_MAX_HEADER)
        return sl_fail(SLUICE_ERR_USAGE, "%s: header of %zu bytes, at most %d are allowed", path, text->bytes - 8,
                       SL_ST_MAX_HEADER);
    sl_store_le64(text->data, text->bytes - 8);
    *data_bytes = begin;
    return SLUICE_OK;
}

static void free_writer(sl_st_writer *w)
{
    sl_free(w->path);
    sl_free(w);
}

static sluice_status new_writer(const char *path, sl_st_writer **out)
{
    sl_st_writer *w = sl_alloc(sizeof *w, "safetensors writer");
    if (w == NULL) return SLUICE_ERR_NO_MEMORY;
    w->path = sl_strdup(path, "safetensors path");
    if (w->path == NULL) {
        free_writer(w);
        return SLUICE_ERR_NO_MEMORY;
    }
    *out = w;
    return SLUICE_OK;
}

static sluice_status open_and_write_header(sl_st_writer *w, const sl_text *header)
{
    SL_TRY(sl_output_begin(w->path, &w->output));
    sluice_status st = sl_file_pwrite(&w->output.file, header->data, header->bytes, 0);
    if (st != SLUICE_OK) sl_output_drop(&w->output);
    return st;
}

sluice_status sl_st_write_begin(const char *path, const sl_st_tensor *tensors, int64_t count,
                                const char *const *metadata, int64_t metadata_count, sl_st_writer **out)
{
    sl_text header = { 0 };
    uint64_t data_bytes = 0;
    sl_st_writer *w;
    if (count > SL_ST_MAX_TENSORS)
        return sl_fail(SLUICE_ERR_USAGE, "%s: %" PRId64 " tensors, at most %d can be written", path, count,
                       SL_ST_MAX_TENSORS);
    SL_TRY(check_unique(path, tensors, count));
    sluice_status st = make_header(path, tensors, count, metadata, metadata_count, &header, &data_bytes);
    if (st != SLUICE_OK) goto free_header;
    if ((st = new_writer(path, &w)) != SLUICE_OK) goto free_header;
    w->at = header.bytes;
    w->end = header.bytes + data_bytes;
    if ((st = open_and_write_header(w, &header)) != SLUICE_OK)
        free_writer(w);
    else
        *out = w;
free_header:
    sl_text_free(&header);
    return st;
}

sluice_status sl_st_write_data(sl_st_writer *w, const void *data, size_t bytes)
{
    if (bytes > w->end - w->at)
        return sl_fail(SLUICE_ERR_USAGE, "%s: %zu bytes of data given, %" PRIu64 " are left to write", w->path, bytes,
                       w->end - w->at);
    SL_TRY(sl_file_pwrite(&w->output.file, data, bytes, w->at));
    w->at += bytes;
    return SLUICE_OK;
}

sluice_status sl_st_write_finish(sl_st_writer *w)
{
    if (w->at != w->end) {
        uint64_t missing = w->end - w->at;
        sluice_status st = sl_fail(SLUICE_ERR_USAGE, "%s: %" PRIu64 " bytes of data were not given", w->path, missing);
        sl_st_write_abort(w);
        return st;
    }
    sluice_status st = sl_output_finish(&w->output);
    free_writer(w);
    return st;
}

void sl_st_write_abort(sl_st_writer *w)
{
    if (w == NULL) return;
    sl_output_drop(&w->output);
    free_writer(w);
}
