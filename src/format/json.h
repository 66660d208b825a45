/* json.h: JSON in through jansson with limits (size, depth, duplicate keys), and a small writer out. */
#ifndef SL_FORMAT_JSON_H
#define SL_FORMAT_JSON_H

#include <jansson.h>
#include <stdio.h>

#include "core/status.h"

#define SL_JSON_MAX_BYTES 100000000

/* Parses `bytes` of text. `what` names it in messages ("config.json"); errors carry line and column and have the given
 * status. At most SL_JSON_MAX_BYTES, nested at most 64 deep, without duplicate keys. An integer that 64 bits do not hold
 * is read as a double: what needs an integer finds a real, and refuses it with its own bounds. */
sluice_status sl_json_parse(const char *text, size_t bytes, const char *what, sluice_status status, json_t **out);
/* A text that is one value of any kind, with the same limits; NULL where it is none. */
json_t *sl_json_value(const char *text);
/* Line (from 1) on which the dotted key ("a.b", "list.0.b") first occurs in the text, or 0. For messages about values
 * of a file that parsed. Keys are compared as they are written, without replacing escapes. */
int sl_json_key_line(const char *text, size_t bytes, const char *dotted_key);
/* Frees what json_dumps returned; a host program may have given jansson an allocator of its own. NULL is fine. */
void sl_json_free_text(char *text);
/* Writes a string with JSON escapes and quotes. */
void sl_json_write_string(FILE *out, const char *text);
/* A number that reads back to the same double; null when not finite. */
#define SL_JSON_DIGITS 40
void sl_json_digits(double value, char out[SL_JSON_DIGITS]);
void sl_json_write_double(FILE *out, double value);

#endif
