/* line_file.c: lines are written at offsets that are counted here, so that what a failed write left is written over. */
#include "monitor/line_file.h"

#include <string.h>

/* Where the last whole line of the first `size` bytes ends. */
static sluice_status find_end(sl_file *f, uint64_t size, uint64_t *end)
{
    char block[4096];
    *end = 0;
    while (size > 0) {
        size_t n = size < sizeof block ? (size_t)size : sizeof block;
        SL_TRY(sl_file_pread(f, block, n, size - n));
        const char *newline = memrchr(block, '\n', n);
        if (newline != NULL) {
            *end = size - n + (uint64_t)(newline - block) + 1;
            return SLUICE_OK;
        }
        size -= n;
    }
    return SLUICE_OK;
}

static sluice_status mend(sl_line_file *f)
{
    uint64_t size;
    SL_TRY(sl_file_hold(&f->file));
    SL_TRY(sl_file_size(&f->file, &size));
    SL_TRY(find_end(&f->file, size, &f->end));
    f->last = f->end;
    return f->end < size ? sl_file_truncate(&f->file, f->end) : SLUICE_OK;
}

sluice_status sl_line_file_open(sl_line_file *f, const char *path)
{
    SL_TRY(sl_file_open(path, SL_APPEND, &f->file));
    sluice_status st = mend(f);
    if (st != SLUICE_OK) sl_line_file_close(f);
    return st;
}

/* Takes off what a failed write left; the message stays that of the write. */
static sluice_status cut_off(sl_line_file *f, sluice_status st)
{
    char message[SL_MESSAGE_BYTES];
    sl_error_copy(message);
    (void)sl_file_truncate(&f->file, f->end);
    sl_error_record("%s", message);
    return st;
}

sluice_status sl_line_file_add(sl_line_file *f, const char *text, size_t bytes)
{
    sluice_status st = sl_file_pwrite(&f->file, text, bytes, f->end);
    if (st != SLUICE_OK) return cut_off(f, st);
    f->last = f->end;
    f->end += bytes;
    return SLUICE_OK;
}

/* Writes within a page are whole whatever becomes of the process; no system has smaller pages. */
#define PAGE_BYTES ((uint64_t)4096)

/* A kill between two pages would leave the beginning of the new line before the end of the old one, as a line that never
 * was. Without the old one it leaves a line without an end. */
static sluice_status make_way(sl_line_file *f, size_t bytes)
{
    if (f->last / PAGE_BYTES == (f->last + bytes - 1) / PAGE_BYTES) return SLUICE_OK;
    return sl_file_truncate(&f->file, f->last);
}

sluice_status sl_line_file_replace(sl_line_file *f, const char *text, size_t bytes, const char *before,
                                   size_t before_bytes)
{
    SL_TRY(make_way(f, bytes));
    sluice_status st = sl_file_pwrite(&f->file, text, bytes, f->last);
    if (st == SLUICE_OK) {
        f->end = f->last + bytes;
        return st;
    }
    char message[SL_MESSAGE_BYTES];
    sl_error_copy(message);
    if (sl_file_pwrite(&f->file, before, before_bytes, f->last) != SLUICE_OK) f->end = f->last;
    sl_error_record("%s", message);
    return cut_off(f, st);
}

sluice_status sl_line_file_tail(sl_line_file *f, char *out, size_t bytes)
{
    uint64_t whole = f->end > 0 ? f->end - 1 : 0;
    size_t n = whole < bytes - 1 ? (size_t)whole : bytes - 1;
    out[0] = '\0';
    if (n == 0) return SLUICE_OK;
    SL_TRY(sl_file_pread(&f->file, out, n, whole - n));
    out[n] = '\0';
    char *newline = memrchr(out, '\n', n);
    if (newline != NULL) memmove(out, newline + 1, strlen(newline + 1) + 1);
    return SLUICE_OK;
}

void sl_line_file_close(sl_line_file *f)
{
    if (f->file.path != NULL) sl_file_close(&f->file);
    *f = (sl_line_file){ .end = 0 };
}
