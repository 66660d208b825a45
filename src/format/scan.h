/* scan.h: walks JSON text in place, without building anything.
 *
 * For headers that strangers wrote and that may be 100 MB long: a tree of them would take many times their size before
 * the first rule could be checked. Also gives the line of a key in a file that was parsed elsewhere. */
#ifndef SL_FORMAT_SCAN_H
#define SL_FORMAT_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/quote.h"

/* Arrays and objects nest at most this deep in any JSON that sluice reads. */
#define SL_JSON_MAX_DEPTH 64

typedef struct sl_scan {
    const char *text; /* borrowed; valid UTF-8 */
    size_t bytes, at;
    const char *fault; /* why the newest call returned false: a literal; the place is `at` */
} sl_scan;

/* Every function skips white space first and returns false with `fault` set where the text is not what it looks for. */
bool sl_scan_take(sl_scan *s, char c);
/* Takes `c` if it comes next; no fault otherwise. */
bool sl_scan_accept(sl_scan *s, char c);
/* A string: *begin and *end delimit what is between the quotes, escapes checked but not yet replaced. */
bool sl_scan_string(sl_scan *s, size_t *begin, size_t *end);
/* A non-negative integer below 2^64, without fraction, exponent or sign. */
bool sl_scan_unsigned(sl_scan *s, uint64_t *out);
/* Any value, checked and dropped; `depth` is the nesting it stands in. */
bool sl_scan_skip(sl_scan *s, int depth);
void sl_scan_space(sl_scan *s);

/* Replaces escapes; never longer than `raw`, so out == raw is allowed. Adds no NUL. Returns the length. */
size_t sl_scan_decode(const char *raw, size_t bytes, char *out);
/* Line and column in bytes, both from 1. */
void sl_scan_position(const char *text, size_t at, int *line, int *column);

#endif
