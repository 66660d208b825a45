/* reply.c: see reply.h. */
#include "train/reply.h"

#include <string.h>

void sl_reply_start(sl_reply *r, const char *const *stops, int stop_count)
{
    *r = (sl_reply){ .stops = stops, .stop_count = stop_count };
    for (int i = 0; i < stop_count; i++)
        if (strlen(stops[i]) > r->longest) r->longest = strlen(stops[i]);
}

/* The first stop string from `from` on; `bytes` where there is none. */
static size_t find_stop(const sl_reply *r, size_t from)
{
    size_t first = r->text.bytes;
    for (int i = 0; i < r->stop_count; i++) {
        size_t length = strlen(r->stops[i]);
        for (size_t at = from; at + length <= r->text.bytes && at < first; at++)
            if (memcmp(r->text.data + at, r->stops[i], length) == 0) first = at;
    }
    return first;
}

/* Whether the text from `at` to its end is the beginning of a stop string. */
static bool may_become_stop(const sl_reply *r, size_t at)
{
    size_t left = r->text.bytes - at;
    for (int i = 0; i < r->stop_count; i++)
        if (left < strlen(r->stops[i]) && memcmp(r->text.data + at, r->stops[i], left) == 0) return true;
    return false;
}

/* What was shown holds no beginning of a stop string, so that one begins behind it. */
void sl_reply_look(sl_reply *r, bool last)
{
    if (r->text.data == NULL || r->stopped) return;
    size_t end = find_stop(r, r->shown);
    if (end < r->text.bytes) {
        r->text.bytes = r->shown = end;
        r->text.data[end] = '\0';
        r->stopped = true;
        return;
    }
    size_t held = r->shown;
    if (r->text.bytes - held > r->longest) held = r->text.bytes - r->longest;
    while (!last && held < r->text.bytes && !may_become_stop(r, held)) held++;
    r->shown = last ? r->text.bytes : held;
}

void sl_reply_free(sl_reply *r)
{
    sl_text_free(&r->text);
}
