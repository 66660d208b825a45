/* reply.h: the text that a sequence becomes: what of it may be shown, and where a stop string ends it.
 *
 * A stop string may begin in one token and end in another. So text is held back as long as it could be the beginning of
 * one; what is shown is never taken back. */
#ifndef SL_TRAIN_REPLY_H
#define SL_TRAIN_REPLY_H

#include <stdbool.h>
#include <stddef.h>

#include "format/text_buffer.h"

typedef struct sl_reply {
    sl_text text;             /* owned; all of it, without the stop string */
    size_t shown;             /* bytes that can be shown */
    bool stopped;             /* a stop string came */
    size_t longest;           /* bytes of the longest stop string */
    const char *const *stops; /* borrowed */
    int stop_count;
} sl_reply;

/* `stops` are not empty. */
void sl_reply_start(sl_reply *r, const char *const *stops, int stop_count);
/* Text that was appended to r->text is looked at: moves `shown`, and cuts at the first stop string. `last`: nothing
 * follows, so nothing is held back. */
void sl_reply_look(sl_reply *r, bool last);
void sl_reply_free(sl_reply *r);

#endif
