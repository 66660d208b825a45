/* status.c: the message of the newest failure, one per thread.
 *
 * A thread-local buffer of fixed size is the whole mechanism: recording a failure can then neither fail nor allocate,
 * which matters because running out of memory is one of the failures it records. */
#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[SL_MESSAGE_BYTES];

void sl_error_record(const char *format, ...)
{
    /* Formatted aside first: callers may pass the current message as an argument. */
    char text[SL_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sluice_printable(text, message, sizeof message);
}

void sl_error_copy(char out[SL_MESSAGE_BYTES])
{
    memcpy(out, message, SL_MESSAGE_BYTES);
}

const char *sluice_error(void)
{
    return message;
}

int sluice_exit_status(sluice_status status)
{
    return status == SLUICE_ERR_NO_MEMORY ? 1 : (int)status;
}
