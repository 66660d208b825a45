/* tokenizer_regex.h: the regular expressions of pre-tokenisers that have no scanner written by hand.
 *
 * What those of published tokenizers use: literals, sets, \p{..} by category, \s \S \d \D \w \W, alternatives, groups,
 * (?i:...), ? * + {m,n}, possessive forms, lookahead. Characters are classified by the reference's tables. Anything else is
 * refused when it is read. Matching is by backtracking, with a limit on its steps. */
#ifndef SL_FORMAT_TOKENIZER_REGEX_H
#define SL_FORMAT_TOKENIZER_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

typedef struct sl_regex sl_regex;

typedef struct sl_regex_fault {
    char text[160]; /* why it is refused, as a half sentence; with the place */
} sl_regex_fault;

/* SLUICE_ERR_INPUT with the fault where it is refused (no message recorded), or SLUICE_ERR_NO_MEMORY. */
sluice_status sl_regex_compile(const char *expression, size_t bytes, sl_regex **out, sl_regex_fault *fault);
void sl_regex_free(sl_regex *r); /* NULL is fine */

/* The backtracking of one text: zero-initialise, free in the end. */
typedef struct sl_regex_work {
    struct sl_regex_choice *choices; /* owned */
    size_t capacity;
    uint64_t steps; /* left; set by whoever begins a text */
} sl_regex_work;
void sl_regex_work_free(sl_regex_work *w);
/* Steps that a text of so many bytes may take. */
uint64_t sl_regex_steps(size_t bytes);

/* The first match at or after `from`, which may be empty; *found says whether there is one. SLUICE_ERR_INPUT when the steps
 * ran out. */
sluice_status sl_regex_next(const sl_regex *r, const uint16_t *properties, const char *text, size_t bytes, size_t from,
                            sl_regex_work *w, bool *found, size_t *begin, size_t *end);

#endif
