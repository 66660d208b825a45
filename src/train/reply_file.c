/* reply_file.c: see reply_file.h. */
#include "train/reply_file.h"

#include <errno.h>

static sluice_status write_some(sl_reply_file *f, const char *text, size_t bytes)
{
    if (!f->begun) {
        SL_TRY(sl_output_begin(f->path, &f->output));
        f->begun = true;
    }
    SL_TRY(sl_file_pwrite(&f->output.file, text, bytes, f->written));
    f->written += bytes;
    return SLUICE_OK;
}

/* What a stream asks for: 0 is an error. */
static ssize_t write_cookie(void *cookie, const char *text, size_t bytes)
{
    sl_reply_file *f = cookie;
    if (f->fault == SLUICE_OK) {
        f->fault = write_some(f, text, bytes);
        if (f->fault != SLUICE_OK) sl_error_copy(f->message);
    }
    errno = EIO;
    return f->fault == SLUICE_OK ? (ssize_t)bytes : 0;
}

sluice_status sl_reply_file_open(sl_reply_file *f, const char *path, FILE *out)
{
    *f = (sl_reply_file){ .out = out, .path = path };
    if (path == NULL) return SLUICE_OK;
    f->out = fopencookie(f, "w", (cookie_io_functions_t){ .write = write_cookie });
    return f->out != NULL ? SLUICE_OK : sl_fail(SLUICE_ERR_NO_MEMORY, "out of memory for the replies");
}

sluice_status sl_reply_file_check(sl_reply_file *f)
{
    if (f->fault != SLUICE_OK) return sl_fail(f->fault, "%s", f->message);
    if (ferror(f->out)) return sl_fail(SLUICE_ERR_IO, "generate: the text could not be written");
    return SLUICE_OK;
}

sluice_status sl_reply_file_close(sl_reply_file *f, sluice_status st)
{
    char message[SL_MESSAGE_BYTES];
    if (f->path == NULL) return st;
    sl_error_copy(message);
    fclose(f->out); /* the last bytes; whether they could be written is in `fault` */
    f->out = NULL;
    if (st != SLUICE_OK)
        sl_error_record("%s", message);
    else if (f->fault != SLUICE_OK)
        st = sl_fail(f->fault, "%s", f->message);
    else
        st = write_some(f, "", 0);
    if (st == SLUICE_OK) return sl_output_finish(&f->output);
    if (f->begun) sl_output_drop(&f->output);
    return st;
}
