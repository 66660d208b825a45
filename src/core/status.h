/* status.h: how failures travel.
 *
 * The function that detects an error describes it once with sl_fail and returns the code; every caller
 * passes the code on and adds nothing. The message lives in the thread that failed until its next failure. */
#ifndef SL_CORE_STATUS_H
#define SL_CORE_STATUS_H

#include "sluice.h"

#define SL_MESSAGE_BYTES 2048

/* Records the message of this thread's newest failure and returns `status`, so that
 * `return sl_fail(SLUICE_ERR_IO, "open %s: %s", path, strerror(errno));` is the whole error path. */
#define sl_fail(status, ...) sl_status_after((sl_error_record(__VA_ARGS__), (status)))

/* The halves of sl_fail. It is a macro so that the compiler sees which status a failing function returns, and with it
 * that an output which is set only on success is never read otherwise. */
void sl_error_record(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline sluice_status sl_status_after(sluice_status status)
{
    return status;
}

/* Copies this thread's message, so that a worker can hand its failure to the thread that waits for it. */
void sl_error_copy(char out[SL_MESSAGE_BYTES]);

/* For the first lines of public functions: SLUICE_ERR_USAGE where a pointer argument is NULL, or a path is NULL or empty.
 * The message names the function and the argument as the header does. */
#define SL_NEED(argument_)                                                                                             \
    do {                                                                                                               \
        if ((argument_) == NULL) return sl_fail(SLUICE_ERR_USAGE, "%s: %s is NULL", __func__, #argument_);             \
    } while (0)
#define SL_NEED_PATH(argument_)                                                                                        \
    do {                                                                                                               \
        SL_NEED(argument_);                                                                                            \
        if ((argument_)[0] == '\0') return sl_fail(SLUICE_ERR_USAGE, "%s: %s is empty", __func__, #argument_);         \
    } while (0)

/* Passes a failed status on when there is nothing to undo. */
#define SL_TRY(call)                                                                                                   \
    do {                                                                                                               \
        sluice_status st_ = (call);                                                                                    \
        if (st_ != SLUICE_OK) return st_;                                                                              \
    } while (0)

#endif
