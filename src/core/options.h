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
    SL_OPT_INT,    /* int64_t or int, by the field's size; 5e8 is accepted where whole */
    SL_OPT_DOUBLE, /* double */
    SL_OPT_SIZE,   /* uint64_t bytes: a number, or "20GiB" */
    SL_OPT_STRING, /* const char *, owned by the target's sl_option_values */
    SL_OPT_CHOICE, /* int, enum or bool: one of `values` or an index into `choices`; -1 where nothing is chosen */
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

/* What becomes of a setting when a run is resumed from a checkpoint. Zero is no answer: every honoured row gives one. */
typedef enum {
    SL_RESUME_UNSAID,
    SL_RESUME_SAME,  /* part of the run's identity: kept in checkpoints, another value is refused */
    SL_RESUME_MODEL, /* the same, for a value that says what the graph is: refused where the graph is another */
    SL_RESUME_FREE,  /* may change; `why` says why that is harmless, or wanted */
} sl_resume_rule;

/* What a setting that is a path names. */
typedef enum {
    SL_FILE_NONE,   /* it is no path */
    SL_FILE_READ,   /* an input of the run: never written */
    SL_FILE_WRITE,  /* a file written whole */
    SL_FILE_FOLDER, /* a folder that is written to */
} sl_file_role;

/* One setting. Rows are written with designated initialisers; what a row leaves out is zero. */
typedef struct sl_option {
    const char *key; /* dotted path in the JSON file */
    sl_option_type type;
    const char *fallback; /* default as text, or "auto" or "" (none) */
    const char *help;
    size_t offset, bytes; /* of the field in the target struct; unused unless honoured */
    double min, max;      /* inclusive, whole for whole numbers and within the field; both 0: unchecked */
    const char *choices;  /* SL_OPT_CHOICE, and an SL_OPT_STRING that takes only these: "none|cpu|nvme" */
    const int *values;    /* SL_OPT_CHOICE: what each choice is stored as; NULL: its index */
    sl_key_fate fate;
    const char *note;   /* for NOTED, UNBUILT and REFUSED */
    bool auto_ok;       /* the word "auto" may stand instead of a value and leaves the default in place */
    bool auto_is_zero;  /* a number that is "auto" is stored as 0, not as -1 */
    bool false_is_auto; /* false says nothing, as null does */
    bool negated;       /* SL_OPT_BOOL: stored as its opposite */
    bool is_paths;      /* SL_OPT_STRING: paths separated by ':'; a list of strings is one such text */
    sl_file_role file;
    /* "auto": the argument of Hugging Face's Trainer that it stands for there, and that argument's default; NULL: it
     * stands for nothing elsewhere. */
    const char *trainer, *trainer_default;
    sl_resume_rule resume;
    const char *why;                    /* SL_RESUME_FREE */
    const char *option;                 /* member of the public options struct that sets the same; NULL: none does */
    size_t option_offset, option_bytes; /* of that member, in the form of the field; 0: its form is another */
} sl_option;

/* Nearest key by edit distance for "did you mean"; NULL when nothing is close (distance over a third of the length). */
const char *sl_option_nearest(const sl_option *table, size_t rows, const char *key);
const sl_option *sl_option_find(const sl_option *table, size_t rows, const char *key);
/* Insertions, deletions and replacements that make b of a; for texts over 255 bytes the longer one's length. */
int64_t sl_edit_distance(const char *a, const char *b);

#endif
