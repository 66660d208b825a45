/* line_file.h: a file of lines that a run appends to and others read meanwhile.
 *
 * A line is one write, and none is buffered. Linux ends the write of a killed process between two pages of the file, so a kill may
 * leave the beginning of a last line that crosses from one page to the next; a power cut or a full disk, of any. Readers
 * pass over a last line without its end, and opening the file again cuts it off. One process writes to a file at a time. */
#ifndef SL_MONITOR_LINE_FILE_H
#define SL_MONITOR_LINE_FILE_H

#include "core/io.h"
#include "core/status.h"

typedef struct sl_line_file {
    sl_file file;  /* path NULL: not open */
    uint64_t end;  /* of the last whole line; 0: there is none */
    uint64_t last; /* where the newest line of this process begins */
} sl_line_file;

/* Opens it, or makes it. Zero the struct first. Held by another process: SLUICE_ERR_USAGE. */
sluice_status sl_line_file_open(sl_line_file *f, const char *path);
/* `bytes` of text, the last one a newline. A failure leaves the file as it was before. */
sluice_status sl_line_file_add(sl_line_file *f, const char *text, size_t bytes);
/* The newest line becomes another one, not shorter. After a failure it is `before` again. */
sluice_status sl_line_file_replace(sl_line_file *f, const char *text, size_t bytes, const char *before,
                                   size_t before_bytes);
/* The last whole line without its newline into `out`, its end where it is longer; "": there is none. */
sluice_status sl_line_file_tail(sl_line_file *f, char *out, size_t bytes);
void sl_line_file_close(sl_line_file *f); /* also of one that is not open */

#endif
