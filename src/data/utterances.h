/* utterances.h: lists of what was said in which sound file; private to data/. */
#ifndef SL_DATA_UTTERANCES_H
#define SL_DATA_UTTERANCES_H

#include <limits.h>

#include "core/arena.h"
#include "data/source.h"

#define SL_MOST_UTTERANCES ((int64_t)INT32_MAX)

typedef struct sl_utterance {
    const char *path; /* of the sound; in the arena */
    const char *text; /* what is said: words with one space between; in the arena */
    int64_t line;     /* of the list */
    int64_t samples, rows;
    int64_t labels; /* where its labels begin */
    int32_t label_count;
} sl_utterance;

typedef struct sl_utterance_list {
    char path[PATH_MAX]; /* of the list; "": there is none */
    sl_utterance *items; /* owned */
    int64_t count, capacity;
} sl_utterance_list;

/* The files of both lists that settings mean; the second may be none. */
sluice_status sl_utterances_find(const sl_data_options *o, char train[PATH_MAX], char other[PATH_MAX]);
/* Reads the list at out->path: paths and texts, in the order of the file. Texts are UTF-8 and not empty. *text_bytes: how much
 * of the arena it took. SLUICE_ERR_INPUT names file and line. */
sluice_status sl_utterances_read(const sl_data_options *o, sl_arena *arena, sl_utterance_list *out,
                                 uint64_t *text_bytes);

#endif
