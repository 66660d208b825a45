/* log.h: messages to the user's callback. There is no global sink: whoever may speak holds an sl_log. */
#ifndef SL_CORE_LOG_H
#define SL_CORE_LOG_H

#include "sluice.h"

typedef struct sl_log {
    sluice_log_fn fn; /* NULL: silent */
    void *user;
    int rank; /* put before the message when rank_count > 1 */
    int rank_count;
} sl_log;

void sl_log_write(const sl_log *log, sluice_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
