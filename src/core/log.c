/* log.c: formats one line, escapes what a terminal must not see, and hands it to the user's callback. */
#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>

/* Longer lines are cut; no message of sluice comes near it. */
#define LINE_BYTES 4096

void sl_log_write(const sl_log *log, sluice_log_level level, const char *format, ...)
{
    if (log == NULL || log->fn == NULL) return;
    char line[LINE_BYTES], shown[LINE_BYTES];
    int prefix = 0;
    if (log->rank_count > 1) prefix = snprintf(line, sizeof line, "rank %d: ", log->rank);
    va_list args;
    va_start(args, format);
    vsnprintf(line + prefix, sizeof line - (size_t)prefix, format, args);
    va_end(args);
    sluice_printable(line, shown, sizeof shown);
    log->fn(log->user, level, shown);
}
