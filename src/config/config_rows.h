/* config_rows.h: the option table and what the files of the configuration share about it.
 *
 * A row of the table is an sl_option whose `offset` points into sl_settings. Four conventions go beyond sl_option:
 *   - a key that ends in ".*" stands for every key below that section that has no row of its own;
 *   - the key "_*" stands for every key whose last name begins with an underscore;
 *   - a choice that ends in '!' is known but not built in yet ("sync|delayed!");
 *   - an SL_OPT_STRING with a range also takes a whole number in it, kept as decimal text. */
#ifndef SL_CONFIG_CONFIG_ROWS_H
#define SL_CONFIG_CONFIG_ROWS_H

#include <jansson.h>

#include "config/config.h"
#include "core/arena.h"

/* Bytes of a whole key with its NUL; longer ones are unknown. */
#define SL_KEY_BYTES 256
/* What is computed in fp32 is no larger. */
#define SL_LARGEST_F32 3.4028234663852886e38

extern const sl_option sl_config_rows[];
extern const size_t sl_config_row_count;

/* One type of optimizer or scheduler: what may stand in its "params". */
typedef struct sl_config_kind {
    const char *name;     /* as DeepSpeed writes it; compared without case */
    const char *params;   /* "lr|betas|...": rows of its section that apply */
    const char *defaults; /* "lr=0.01|eps=1e-10": where they differ from the rows' */
} sl_config_kind;

/* A section whose valid parameters depend on its type. */
typedef struct sl_config_family {
    const char *section;         /* "optimizer" */
    const sl_config_kind *kinds; /* in the order of the choices of <section>.type that are built in */
    int kind_count;
} sl_config_family;

extern const sl_config_family sl_config_optimizers, sl_config_schedules;

/* The part of a row's key behind "<section>.params.", or NULL where the row is not one of its parameters. */
const char *sl_config_param(const sl_config_family *family, const sl_option *row);
/* Whether docs/config.md has a place for the key among the honoured ones. */
bool sl_config_has_chapter(const char *key);
/* Whether `name` is an item of "a|b|c". */
bool sl_config_listed(const char *list, const char *name);
/* The text behind "name=" in "a=1|b=2", copied to out; NULL where it is not there. */
const char *sl_config_listed_value(const char *list, const char *name, char *out, size_t out_bytes);

/* Item `index` of a row's choices without its mark, copied to out; false past the end. *built says whether it is built
 * in. */
bool sl_config_choice(const sl_option *row, int index, char *out, size_t out_bytes, bool *built);

/* A value of any row. */
typedef union sl_config_value {
    bool boolean;
    int64_t integer;
    double real;
    uint64_t size;
    const char *text; /* STRING, LIST */
    int choice;
    double pair[2];
} sl_config_value;

/* Type, range and choices are checked; `where` stands before the message ("config.json:3: "). Text goes to `arena`. */
sluice_status sl_config_value_from_json(const sl_option *row, const json_t *json, const char *where, sl_arena *arena,
                                        sl_config_value *out);
/* The same for text from our own tables, which is always right, and never a string. */
void sl_config_value_from_table(const sl_option *row, const char *text, sl_config_value *out);
/* What a row holds when nothing is given: its fallback, or the mark for "auto" (-1, 0 for sizes, "" for text). */
void sl_config_value_default(const sl_option *row, sl_config_value *out);
bool sl_config_value_is_auto(const sl_option *row, const sl_config_value *value);
bool sl_config_value_equal(const sl_option *row, const sl_config_value *a, const sl_config_value *b);
void sl_config_value_store(const sl_option *row, const sl_config_value *value, sl_settings *settings);
void sl_config_value_load(const sl_option *row, const sl_settings *settings, sl_config_value *out);
/* What the row's member of the public options says; SLUICE_ERR_USAGE names it where the row does not take that. */
sluice_status sl_config_value_from_option(const sl_option *row, const sluice_options *options, sl_config_value *out);
void sl_config_value_print(const sl_option *row, const sl_config_value *value, FILE *out);
/* "a whole number", "one of none, cpu": what a row takes, for messages and the documentation. */
void sl_config_describe_type(const sl_option *row, char *out, size_t out_bytes);

/* One entry of optimizer.groups as given. */
typedef struct sl_config_group {
    const char *pattern;
    double lr, weight_decay; /* negative: the optimizer's */
} sl_config_group;

/* Where a row's value comes from. */
typedef struct sl_config_origin {
    int line;          /* 0: not given; > 0: line in the file; SL_ORIGIN_SET, SL_ORIGIN_UNPLACED */
    int auto_line;     /* the same for the word "auto", which leaves `line` at 0 */
    int count;         /* keys that the row stands for; more than one for a wildcard */
    const char *key;   /* the first of them */
    bool refused;      /* given, known, and not built in or not to be ignored: sl_config_resolve fails on it */
    const char *given; /* the value as JSON text */
} sl_config_origin;
enum { SL_ORIGIN_SET = -1, SL_ORIGIN_UNPLACED = -2 };

struct sl_config_private {
    sl_arena arena; /* owns every string of the settings and all below but `text` */
    char *text;     /* of the file, for line numbers; freed after loading */
    size_t bytes;
    bool placeless;            /* whoever wrote the text does not see its lines */
    sl_config_origin *origins; /* one per row */
    sl_config_group groups[SL_MAX_GROUPS];
    int group_count;
};

/* Whether the row is a parameter of another optimizer or schedule than the settings have. */
bool sl_config_other_types(const sl_option *row, const sl_settings *s);

/* ---- config_names.c ---- */

/* The rest of `key` behind `prefix` and a dot, or NULL. An empty prefix leaves the whole key. */
const char *sl_config_below(const char *key, const char *prefix);
/* The key under its present name. */
const char *sl_config_canonical(const char *key, char *out, size_t out_bytes);
/* Whether the row stands for every key of a section without a row, or for every key that begins with an underscore. */
bool sl_config_is_wildcard(const sl_option *row);
/* Entry `index` of the table of other programs' names; false past its end. */
bool sl_config_synonym(int index, const char **names, const char **ours, const char **note);
/* The best guess of a value that a row, or a list of names ("a, b"), does not have, as a part of a message: "did you mean X?",
 * why there is none, or "". */
void sl_config_value_hint(const char *key, const char *value, const char *names, char *out, size_t out_bytes);
/* Fails with the best guess of what was meant. */
sluice_status sl_config_unknown_key(const char *where, const char *section, const char *name, const char *key);

/* ---- config_model.c ---- */

/* With model.path: reads its config.json, whose values the settings then have. SLUICE_ERR_INPUT where that cannot be used,
 * SLUICE_ERR_USAGE where a setting that is given says something else. */
sluice_status sl_config_resolve_folder(const sluice_config *c, const sl_log *log, sl_settings *s);

/* With a model.path: dropout as its config.json says, unless model.dropout is given, which stands for all of it. */
sluice_status sl_config_resolve_dropout(const sluice_config *c, sl_settings *s);

/* ---- config_images.c ---- */

/* With a model.path whose model reads images: what its preprocessor_config.json says of them, for all that is not given. */
sluice_status sl_config_resolve_images(const sluice_config *c, const sl_log *log, sl_settings *s);

/* ---- config_defaults.c: each value that is chosen is told as a note ---- */

/* Tells of a value that is in the settings by now. */
void sl_config_tell_chosen(const sl_log *log, const sl_settings *s, const char *key, const char *why);
/* lora.enabled: rank, alpha and targets. */
sluice_status sl_config_fill_adapters(const sluice_config *c, const sl_log *log, sl_settings *s);
/* data.type, and the tokenizer, by data.path where it stands alone. */
void sl_config_fill_data(const sluice_config *c, const sl_log *log, sl_settings *s);
/* A configuration without a file: what every file must say, and what suits fine-tuning, where nobody said it. `training` is told of
 * what only training reads, `log` of the rest. */
sluice_status sl_config_fill_bare(const sluice_config *c, int ranks, const sl_log *training, const sl_log *log,
                                  sl_settings *s);

/* ---- config_wrong_file.c ---- */

/* A file was refused with `st`: says what it is where it is no configuration, and returns `st` where it seems to be one. */
sluice_status sl_config_explain_file(const char *path, const char *text, size_t bytes, sluice_status st);

/* ---- config_notes.c ---- */

/* As sl_config_fill_bare tells. */
void sl_config_write_notes(const sluice_config *c, const sl_settings *s, const sl_log *training, const sl_log *log);

/* "config.json:3: " or "--set: " or "config.json: " for a line of an origin. Returns out. */
const char *sl_config_place(const sluice_config *c, int line, char *out, size_t out_bytes);
/* The same for the row's value. */
const char *sl_config_where(const sluice_config *c, const sl_option *row, char *out, size_t out_bytes);
/* Large enough for any place. */
#define SL_WHERE_BYTES 1024

#endif
