/* options.h: the option table. One row per setting feeds the parser, --set, --help, the printed configuration and
 * docs/config.md; a setting that is not a row does not exist. */
#ifndef SL_CORE_OPTIONS_H
#define SL_CORE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sluice.h"

typedef enum {
    SL_OPT_BOOL,   /* bool */
    SL_OPT_INT,    /* int64_t; 5e8 is accepted where whole */
    SL_OPT_DOUBLE, /* double */
    SL_OPT_SIZE,   /* uint64_t bytes: a number, or "20GiB" */
    SL_OPT_STRING, /* const char *, owned by the target's sl_option_values */
    SL_OPT_CHOICE, /* int: index into `choices` */
    SL_OPT_PAIR,   /* double[2]: [a, b] */
    SL_OPT_LIST,   /* const char *: a JSON array, kept as its text */
} sl_option_type;

/* What becomes of a key. */
typedef enum {
    SL_KEY_HONOURED, /* stored at `offset` */
    SL_KEY_NOTED,    /* accepted; `note` says in one line why it has no effect here */
    SL_KEY_UNBUILT,  /* refused unless it has its default: "not built in yet" */
    SL_KEY_REFUSED,  /* refused unless it has its default: `note` gives the reason */
} sl_key_fate;

typedef struct sl_option {
    const char *key; /* dotted path in the JSON file */
    sl_option_type type;
    const char *fallback; /* default as text, or "auto" or "" (none) */
    const char *help;
    size_t offset;       /* of the value in the target struct; unused unless honoured */
    double min, max;     /* inclusive; both 0: unchecked */
    const char *choices; /* SL_OPT_CHOICE: "none|cpu|nvme" */
    sl_key_fate fate;
    const char *note; /* for NOTED, UNBUILT and REFUSED */
    bool auto_ok;     /* the word "auto" may stand instead of a value and leaves the default in place */
} sl_option;

/* Nearest key by edit distance for "did you mean"; NULL when nothing is close (distance over a third of the length). */
const char *sl_option_nearest(const sl_option *table, size_t rows, const char *key);
const sl_option *sl_option_find(const sl_option *table, size_t rows, const char *key);
/* Insertions, deletions and replacements that make b of a; for texts over 255 bytes the longer one's length. */
int64_t sl_edit_distance(const char *a, const char *b);

#endif
