/* delimited.h: tables as text: a line of column names, and a record a line, whose fields are separated by a character.
 *
 * Two dialects. Quoted is RFC 4180: a field in quotes may hold separators, line ends and doubled quotes; a quote anywhere else is an
 * error. Bare is what GLUE's files are: a quote is a character as any other, and a line end ends a record. Lines end with LF or CR LF;
 * empty lines are no records; a byte order mark is skipped. Fields are UTF-8 without NUL.
 *
 * A file is read in blocks, so that memory does not grow with it: a record is there until the next one is read. */
#ifndef SL_FORMAT_DELIMITED_H
#define SL_FORMAT_DELIMITED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice.h"

#define SL_MOST_COLUMNS      4096
#define SL_MOST_RECORD_BYTES ((size_t)16 << 20)
#define SL_ANY_SEPARATOR                                                                                               \
    '\0' /* the first of tab, comma and semicolon that the header has outside quotes; comma without one */
#define SL_DELIMITED_PLACE 1200

typedef struct sl_delimited_field {
    const char *text; /* NUL-terminated */
    size_t bytes;
} sl_delimited_field;

typedef struct sl_delimited {
    const char *path; /* borrowed */
    char separator;
    bool quotes;
    /* the header */
    char **names; /* owned, all different */
    int columns;
    /* the record at hand: `columns` fields */
    sl_delimited_field *fields;
    int64_t line; /* of its first character */
    struct sl_delimited_source *source;
} sl_delimited;

/* Opens a file and reads its header. Anything malformed is SLUICE_ERR_INPUT with the file and the line. `path` is borrowed. */
sluice_status sl_delimited_open(const char *path, char separator, bool quotes, sl_delimited *out);
void sl_delimited_close(sl_delimited *d); /* a zeroed one is fine */
/* The next record. *more false: there is none. A request to stop (core/stop.h) ends it from time to time. */
sluice_status sl_delimited_next(const int *stop, sl_delimited *d, bool *more);
/* Back to the first record. */
void sl_delimited_rewind(sl_delimited *d);
/* The column of that name, or -1; `fold`: capitals and small letters of ASCII are the same. */
int sl_delimited_find(const sl_delimited *d, const char *name, bool fold);

/* "FILE, line 12", for messages about the record at hand. */
typedef struct sl_delimited_where {
    char text[SL_DELIMITED_PLACE];
} sl_delimited_where;
sl_delimited_where sl_delimited_place(const sl_delimited *d);

#endif
