/* token_sequence.h: token files as one sequence of ids; private to data/.
 *
 * Ids are read from the files where they are asked for, so a sequence may be larger than memory, and a file that is cut off
 * or fails later is a status: under a memory map it would be a signal. A few files are open at a time. */
#ifndef SL_DATA_TOKEN_SEQUENCE_H
#define SL_DATA_TOKEN_SEQUENCE_H

#include "format/token_file.h"

typedef struct sl_token_sequence sl_token_sequence;

/* The files that `pattern` names (core/path_list.h), in byte order of their names. type: as sl_token_layout_read takes it;
 * U8: masks. `random`: windows are read in no order. A request to stop (core/stop.h) ends the search for them. */
sluice_status sl_token_sequence_open(const int *stop, const char *pattern, sl_token_type type, bool random,
                                     sl_token_sequence **out);
void sl_token_sequence_close(sl_token_sequence *s); /* NULL is fine */
int64_t sl_token_sequence_count(const sl_token_sequence *s);
/* Ids [first, first + count), which are there. Ids of uint32 beyond 2^31 come out negative. */
sluice_status sl_token_sequence_read(sl_token_sequence *s, int64_t first, int64_t count, int32_t *out);
/* Where id `at` is: the file, and its number there. */
const char *sl_token_sequence_place(const sl_token_sequence *s, int64_t at, int64_t *number);
/* Whether both have files of the same lengths in the same order: a mask and its tokens. SLUICE_ERR_INPUT names the first
 * that has not. */
sluice_status sl_token_sequence_match(const sl_token_sequence *tokens, const sl_token_sequence *mask);
uint64_t sl_token_sequence_memory(const sl_token_sequence *s);

#endif
