/* config.c: from a JSON file and --set assignments to settings that are not yet resolved.
 *
 * Both sources walk the same way: every leaf must be a row of the option table, its value is checked against the row,
 * and the place it came from is remembered, so that later checks can point at it. Nothing is refused here for not being
 * built in: a later assignment may still mend it. */
#include "config/config.h"

#include <string.h>

#include "config/config_rows.h"
#include "core/alloc.h"
#include "core/io.h"
#include "core/status.h"
#include "format/json.h"

#define MAX_CONFIG_BYTES ((size_t)16 << 20)

/* ---- Places ---- */

const char *sl_config_place(const sluice_config *c, int line, char *out, size_t out_bytes)
{
    if (line == SL_ORIGIN_SET)
        snprintf(out, out_bytes, "--set: ");
    else if (line > 0)
        snprintf(out, out_bytes, "%.900s:%d: ", c->path, line);
    else
        snprintf(out, out_bytes, "%.900s: ", c->path);
    return out;
}

const char *sl_config_where(const sluice_config *c, const sl_option *row, char *out, size_t out_bytes)
{
    return sl_config_place(c, c->private_data->origins[row - sl_config_rows].line, out, out_bytes);
}

/* Line of a key that is being read, or the mark of the command line. */
static int line_of(const sluice_config *c, const char *key, bool from_set)
{
    const struct sl_config_private *p = c->private_data;
    if (from_set || p->text == NULL) return SL_ORIGIN_SET;
    if (p->placeless) return SL_ORIGIN_UNPLACED;
    int line = sl_json_key_line(p->text, p->bytes, key);
    return line > 0 ? line : SL_ORIGIN_UNPLACED;
}

/* ---- Finding rows ---- */

bool sl_config_is_wildcard(const sl_option *row)
{
    size_t n = strlen(row->key);
    return n >= 2 && row->key[n - 1] == '*' && (row->key[n - 2] == '.' || row->key[n - 2] == '_');
}

/* The row for every key whose last name begins with an underscore: a comment. */
static const sl_option *comment_row(const char *key)
{
    const char *dot = strrchr(key, '.');
    const char *name = dot != NULL ? dot + 1 : key;
    return name[0] == '_' ? sl_option_find(sl_config_rows, sl_config_row_count, "_*") : NULL;
}

static const sl_option *find_row(const char *key)
{
    const sl_option *exact = sl_option_find(sl_config_rows, sl_config_row_count, key);
    if (exact != NULL) return sl_config_is_wildcard(exact) ? NULL : exact;
    const sl_option *comment = comment_row(key);
    if (comment != NULL) return comment;
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        size_t n = strlen(row->key);
        if (sl_config_is_wildcard(row) && strncmp(key, row->key, n - 1) == 0) return row;
    }
    return NULL;
}

static bool is_section(const char *key)
{
    for (size_t i = 0; i < sl_config_row_count; i++)
        if (sl_config_below(sl_config_rows[i].key, key) != NULL) return true;
    return false;
}

/* Whether the section has a key "enabled". */
static bool has_switch(const char *section)
{
    char key[SL_KEY_BYTES + 16];
    snprintf(key, sizeof key, "%s.enabled", section);
    return find_row(key) != NULL && !sl_config_is_wildcard(find_row(key));
}

/* ---- Lists with contents of their own ---- */

/* Sizes of layers, at most `most`. */
static sluice_status read_widths(sluice_config *c, const char *key, const json_t *list, const char *where, size_t most,
                                 int64_t *out, int *out_count)
{
    const sl_option item = { .key = key, .type = SL_OPT_INT, .fallback = "", .min = 1, .max = 1e9 };
    size_t count = json_array_size(list);
    if (count > most)
        return sl_fail(SLUICE_ERR_USAGE, "%s%s: %zu layers, at most %zu are allowed", where, key, count, most);
    for (size_t i = 0; i < count; i++) {
        sl_config_value value;
        SL_TRY(sl_config_value_from_json(&item, json_array_get(list, i), where, &c->private_data->arena, &value));
        out[i] = value.integer;
    }
    *out_count = (int)count;
    return SLUICE_OK;
}

static sluice_status read_hidden(sluice_config *c, const json_t *list, const char *where)
{
    sl_model_options *m = &c->settings.model;
    return read_widths(c, "model.hidden", list, where, sizeof m->hidden / sizeof m->hidden[0], m->hidden,
                       &m->hidden_count);
}

static sluice_status read_filters(sluice_config *c, const json_t *list, const char *where)
{
    sl_model_options *m = &c->settings.model;
    return read_widths(c, "model.filters", list, where, sizeof m->filters / sizeof m->filters[0], m->filters,
                       &m->filter_count);
}

static sluice_status read_bottom(sluice_config *c, const json_t *list, const char *where)
{
    sl_model_options *m = &c->settings.model;
    return read_widths(c, "model.bottom", list, where, sizeof m->bottom / sizeof m->bottom[0], m->bottom,
                       &m->bottom_count);
}

static sluice_status read_top(sluice_config *c, const json_t *list, const char *where)
{
    sl_model_options *m = &c->settings.model;
    return read_widths(c, "model.top", list, where, sizeof m->top / sizeof m->top[0], m->top, &m->top_count);
}

/* One number for each channel of an image; `min` is above 0 for divisors. */
static sluice_status read_channels(sluice_config *c, const char *key, double min, const json_t *list, const char *where,
                                   double out[SL_MAX_CHANNELS], int *out_count)
{
    const sl_option item = { .key = key, .type = SL_OPT_DOUBLE, .fallback = "", .min = min, .max = 1e6 };
    size_t count = json_array_size(list);
    if (count > SL_MAX_CHANNELS)
        return sl_fail(SLUICE_ERR_USAGE, "%s%s: %zu numbers, at most %d are allowed, one for each channel", where, key,
                       count, SL_MAX_CHANNELS);
    for (size_t i = 0; i < count; i++) {
        sl_config_value value;
        SL_TRY(sl_config_value_from_json(&item, json_array_get(list, i), where, &c->private_data->arena, &value));
        out[i] = value.real;
    }
    *out_count = (int)count;
    return SLUICE_OK;
}

static sluice_status read_mean(sluice_config *c, const json_t *list, const char *where)
{
    sl_data_options *d = &c->settings.data;
    return read_channels(c, "data.mean", -1e6, list, where, d->mean, &d->mean_count);
}

static sluice_status read_deviation(sluice_config *c, const json_t *list, const char *where)
{
    sl_data_options *d = &c->settings.data;
    return read_channels(c, "data.std", 1e-6, list, where, d->deviation, &d->deviation_count);
}

/* A list of texts, none of them empty; `what` they are, for messages. */
static sluice_status read_texts(sluice_config *c, const char *key, const json_t *list, const char *where,
                                const char *what, size_t most, const char *const **out, int *out_count)
{
    const sl_option item = { .key = key, .type = SL_OPT_STRING, .fallback = "" };
    size_t count = json_array_size(list);
    if (count > most)
        return sl_fail(SLUICE_ERR_USAGE, "%s%s: %zu %s, at most %zu are allowed", where, key, count, what, most);
    const char **texts = sl_arena_array(&c->private_data->arena, count + 1, sizeof *texts);
    if (texts == NULL) return SLUICE_ERR_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        sl_config_value value;
        SL_TRY(sl_config_value_from_json(&item, json_array_get(list, i), where, &c->private_data->arena, &value));
        if (value.text[0] == '\0') return sl_fail(SLUICE_ERR_USAGE, "%s%s: one of the %s is empty", where, key, what);
        texts[i] = value.text;
    }
    *out = texts;
    *out_count = (int)count;
    return SLUICE_OK;
}

static sluice_status read_patterns(sluice_config *c, const char *key, const json_t *list, const char *where,
                                   const char *const **out, int *out_count)
{
    return read_texts(c, key, list, where, "patterns", SL_MAX_PATTERNS, out, out_count);
}

static sluice_status read_freeze(sluice_config *c, const json_t *list, const char *where)
{
    return read_patterns(c, "freeze", list, where, &c->settings.model.freeze, &c->settings.model.freeze_count);
}

static sluice_status read_fresh(sluice_config *c, const json_t *list, const char *where)
{
    return read_patterns(c, "new_parameters", list, where, &c->settings.model.fresh, &c->settings.model.fresh_count);
}

static sluice_status read_targets(sluice_config *c, const json_t *list, const char *where)
{
    sl_model_options *m = &c->settings.model;
    return read_patterns(c, "lora.targets", list, where, &m->lora.targets, &m->lora.target_count);
}

static sluice_status read_whole(sluice_config *c, const json_t *list, const char *where)
{
    sl_model_options *m = &c->settings.model;
    return read_patterns(c, "lora.modules_to_save", list, where, &m->lora.whole, &m->lora.whole_count);
}

/* Names of columns are no patterns of parameters, and there are more of them. */
static sluice_status read_columns(sluice_config *c, const char *key, const json_t *list, const char *where,
                                  const char *const **out, int *out_count)
{
    return read_texts(c, key, list, where, "names of columns", SL_MAX_COLUMN_NAMES, out, out_count);
}

static sluice_status read_numeric(sluice_config *c, const json_t *list, const char *where)
{
    sl_data_options *d = &c->settings.data;
    return read_columns(c, "data.columns.numeric", list, where, &d->numeric, &d->numeric_count);
}

static sluice_status read_categorical(sluice_config *c, const json_t *list, const char *where)
{
    sl_data_options *d = &c->settings.data;
    return read_columns(c, "data.columns.categorical", list, where, &d->categorical, &d->categorical_count);
}

static sluice_status read_ignored(sluice_config *c, const json_t *list, const char *where)
{
    sl_data_options *d = &c->settings.data;
    return read_columns(c, "data.columns.ignore", list, where, &d->ignored, &d->ignored_count);
}

static sluice_status read_metrics(sluice_config *c, const json_t *list, const char *where)
{
    static const sl_option item = {
        .key = "evaluate.metrics", .type = SL_OPT_CHOICE, .fallback = "", .choices = SL_METRIC_CHOICES
    };
    uint64_t metrics = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        sl_config_value value;
        SL_TRY(sl_config_value_from_json(&item, json_array_get(list, i), where, &c->private_data->arena, &value));
        if (value.choice == 0)
            return sl_fail(SLUICE_ERR_USAGE, "%sevaluate.metrics: \"auto\" is no metric; leave the list out for that",
                           where);
        metrics |= (uint64_t)1 << (value.choice - 1);
    }
    c->settings.evaluate.metrics = metrics;
    return SLUICE_OK;
}

/* Shares of the ranks: how many there must be is known when the number of ranks is. */
static sluice_status read_weights(sluice_config *c, const json_t *list, const char *where)
{
    static const sl_option item = {
        .key = "zero_optimization.partition_weights", .type = SL_OPT_DOUBLE, .fallback = "", .min = 1e-9, .max = 1e300
    };
    size_t count = json_array_size(list);
    double *weights = sl_arena_array(&c->private_data->arena, count + 1, sizeof *weights);
    if (weights == NULL) return SLUICE_ERR_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        sl_config_value value;
        SL_TRY(sl_config_value_from_json(&item, json_array_get(list, i), where, &c->private_data->arena, &value));
        weights[i] = value.real;
    }
    c->settings.plan.partition_weights = count > 0 ? weights : NULL;
    c->settings.given.weight_count = (int)count;
    return SLUICE_OK;
}

/* What a group may say; offsets are unused. */
static const sl_option group_rows[] = {
    { .key = "match", .type = SL_OPT_STRING, .fallback = "" },
    { .key = "lr", .type = SL_OPT_DOUBLE, .fallback = "", .max = SL_LARGEST_F32 },
    { .key = "weight_decay", .type = SL_OPT_DOUBLE, .fallback = "", .max = SL_LARGEST_F32 },
};

static sluice_status read_group(sluice_config *c, json_t *entry, const char *where, sl_config_group *out)
{
    const char *key;
    json_t *json;
    *out = (sl_config_group){ .lr = -1, .weight_decay = -1 };
    json_object_foreach(entry, key, json)
    {
        const sl_option *row = sl_option_find(group_rows, 3, key);
        sl_config_value value;
        if (row == NULL)
            return sl_fail(SLUICE_ERR_USAGE, "%sunknown key \"%s\"; a group has match, lr and weight_decay", where,
                           key);
        SL_TRY(sl_config_value_from_json(row, json, where, &c->private_data->arena, &value));
        if (row == &group_rows[0])
            out->pattern = value.text;
        else
            *(row == &group_rows[1] ? &out->lr : &out->weight_decay) = value.real;
    }
    if (out->pattern == NULL || out->pattern[0] == '\0')
        return sl_fail(SLUICE_ERR_USAGE, "%smatch is missing; give a pattern of parameter names, or \"no_decay\"",
                       where);
    return SLUICE_OK;
}

static sluice_status read_groups(sluice_config *c, const json_t *list, const char *where)
{
    struct sl_config_private *p = c->private_data;
    size_t count = json_array_size(list);
    /* one is left for the parameters that no group names */
    if (count > SL_MAX_GROUPS - 1)
        return sl_fail(SLUICE_ERR_USAGE, "%soptimizer.groups: %zu groups, at most %d are allowed", where, count,
                       SL_MAX_GROUPS - 1);
    for (size_t i = 0; i < count; i++) {
        char place[SL_WHERE_BYTES + 64];
        json_t *entry = json_array_get(list, i);
        snprintf(place, sizeof place, "%soptimizer.groups[%zu]: ", where, i);
        if (!json_is_object(entry))
            return sl_fail(SLUICE_ERR_USAGE, "%swrite {\"match\": pattern, \"lr\": x, \"weight_decay\": y}", place);
        SL_TRY(read_group(c, entry, place, &p->groups[i]));
    }
    p->group_count = (int)count;
    return SLUICE_OK;
}

static const struct {
    const char *key;
    sluice_status (*read)(sluice_config *c, const json_t *list, const char *where);
} list_readers[] = { { "model.hidden", read_hidden },
                     { "model.filters", read_filters },
                     { "freeze", read_freeze },
                     { "lora.targets", read_targets },
                     { "lora.modules_to_save", read_whole },
                     { "evaluate.metrics", read_metrics },
                     { "new_parameters", read_fresh },
                     { "model.bottom", read_bottom },
                     { "model.top", read_top },
                     { "optimizer.groups", read_groups },
                     { "zero_optimization.partition_weights", read_weights },
                     { "data.mean", read_mean },
                     { "data.std", read_deviation },
                     { "data.columns.numeric", read_numeric },
                     { "data.columns.categorical", read_categorical },
                     { "data.columns.ignore", read_ignored } };

static sluice_status read_list_contents(sluice_config *c, const sl_option *row, const json_t *list, const char *where)
{
    for (size_t i = 0; i < sizeof list_readers / sizeof list_readers[0]; i++)
        if (strcmp(list_readers[i].key, row->key) == 0) return list_readers[i].read(c, list, where);
    return SLUICE_OK;
}

/* ---- One value ---- */

static sl_config_origin *origin_of(sluice_config *c, const sl_option *row)
{
    return &c->private_data->origins[row - sl_config_rows];
}

static sluice_status reset_row(sluice_config *c, const sl_option *row)
{
    sl_config_value value;
    *origin_of(c, row) = (sl_config_origin){ 0 };
    if (row->fate != SL_KEY_HONOURED) return SLUICE_OK;
    sl_config_value_default(row, &value);
    sl_config_value_store(row, &value, &c->settings);
    return read_list_contents(c, row, NULL, "");
}

/* null and "auto" say nothing, where the row lets them; in some false does, too. */
static bool says_nothing(const sl_option *row, const json_t *json)
{
    if (json_is_false(json)) return row->false_is_auto;
    if (json_is_null(json)) return row->auto_ok || row->fallback[0] == '\0';
    return row->auto_ok && json_is_string(json) && strcmp(json_string_value(json), "auto") == 0;
}

static sluice_status remember(sluice_config *c, const sl_option *row, const char *key, const json_t *json, int line,
                              bool refused)
{
    sl_config_origin *origin = origin_of(c, row);
    char *text = json_dumps(json, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (text == NULL) return sl_fail(SLUICE_ERR_NO_MEMORY, "out of memory while reading the configuration");
    origin->given = sl_arena_strdup(&c->private_data->arena, text);
    sl_json_free_text(text);
    origin->key = sl_arena_strdup(&c->private_data->arena, key);
    if (origin->given == NULL || origin->key == NULL) return SLUICE_ERR_NO_MEMORY;
    origin->line = line;
    origin->auto_line = 0;
    origin->count = 1;
    origin->refused = refused;
    return SLUICE_OK;
}

/* What Python takes for nothing, in a key that has no effect. */
static bool is_harmless_false(const sl_option *row, const json_t *json)
{
    return row->fate == SL_KEY_NOTED && row->type != SL_OPT_BOOL && json_is_false(json);
}

static sluice_status set_row(sluice_config *c, const sl_option *row, const char *key, const json_t *json, int line)
{
    char where[SL_WHERE_BYTES];
    sl_config_value value, fallback;
    sl_config_place(c, line, where, sizeof where);
    if (sl_config_is_wildcard(row) || is_harmless_false(row, json))
        return remember(c, row, key, json, line, row->fate == SL_KEY_UNBUILT);
    if (says_nothing(row, json)) {
        SL_TRY(reset_row(c, row));
        if (json_is_string(json)) origin_of(c, row)->auto_line = line;
        return SLUICE_OK;
    }
    SL_TRY(sl_config_value_from_json(row, json, where, &c->private_data->arena, &value));
    if (row->fate == SL_KEY_HONOURED) {
        char name[64];
        bool built = true; /* a choice may be known and not built in */
        if (row->type == SL_OPT_CHOICE) sl_config_choice(row, value.choice, name, sizeof name, &built);
        SL_TRY(read_list_contents(c, row, json, where));
        sl_config_value_store(row, &value, &c->settings);
        return remember(c, row, key, json, line, !built);
    }
    sl_config_value_default(row, &fallback);
    bool harmless =
        row->fate == SL_KEY_NOTED || (row->fallback[0] != '\0' && sl_config_value_equal(row, &value, &fallback));
    return remember(c, row, key, json, line, !harmless);
}

/* ---- The walk ---- */

static sluice_status apply(sluice_config *c, const char *key, json_t *json, bool from_set);

/* A section that is switched on by being there: its rows have no harmless value. Given empty, its first row speaks for
 * it. */
static sluice_status note_empty_section(sluice_config *c, const char *section, json_t *json, int line)
{
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        if (sl_config_below(row->key, section) == NULL) continue;
        if (row->fate != SL_KEY_UNBUILT || row->fallback[0] != '\0' || sl_config_is_wildcard(row)) return SLUICE_OK;
        return remember(c, row, section, json, line, true);
    }
    return SLUICE_OK;
}

static sluice_status apply_section(sluice_config *c, const char *section, json_t *object, bool from_set)
{
    const char *name;
    json_t *json;
    if (json_object_size(object) == 0) return note_empty_section(c, section, object, line_of(c, section, from_set));
    json_object_foreach(object, name, json)
    {
        char key[SL_KEY_BYTES], where[SL_WHERE_BYTES];
        int length = snprintf(key, sizeof key, "%s%s%s", section, section[0] != '\0' ? "." : "", name);
        if (length >= (int)sizeof key || strchr(name, '.') != NULL)
            return sl_config_unknown_key(sl_config_place(c, line_of(c, section, from_set), where, sizeof where),
                                         section, name, key);
        SL_TRY(apply(c, key, json, from_set));
    }
    return SLUICE_OK;
}

/* A wildcard stands for any number of keys. The first is told; the place of another, for which all of the text would be read
 * again, nobody asks for. */
static bool stands_for_another(sluice_config *c, const sl_option *row)
{
    sl_config_origin *origin = origin_of(c, row);
    if (!sl_config_is_wildcard(row) || origin->line == 0) return false;
    origin->count++;
    return true;
}

static sluice_status apply(sluice_config *c, const char *key, json_t *json, bool from_set)
{
    char renamed[SL_KEY_BYTES], where[SL_WHERE_BYTES], section[SL_KEY_BYTES];
    const char *known = sl_config_canonical(key, renamed, sizeof renamed);
    const sl_option *row = find_row(known);
    if (row != NULL && stands_for_another(c, row)) return SLUICE_OK;
    int line = line_of(c, key, from_set);
    if (row != NULL) return set_row(c, row, known, json, line);
    sl_config_place(c, line, where, sizeof where);
    if (is_section(known)) {
        if (json_is_null(json)) return SLUICE_OK;
        if (!json_is_object(json))
            return sl_fail(SLUICE_ERR_USAGE, "%s%s: a section in braces is expected: \"%s\": { %s }", where, key, key,
                           has_switch(known) ? "\"enabled\": true" : "...");
        return apply_section(c, key, json, from_set);
    }
    const char *dot = strrchr(key, '.');
    snprintf(section, sizeof section, "%.*s", dot != NULL ? (int)(dot - key) : 0, key);
    return sl_config_unknown_key(where, section, dot != NULL ? dot + 1 : key, key);
}

/* ---- Public ---- */

static sluice_status create_config(const char *path, sluice_config **out)
{
    sluice_config *c = sl_alloc(sizeof *c, "configuration");
    if (c == NULL) return SLUICE_ERR_NO_MEMORY;
    c->private_data = sl_alloc(sizeof *c->private_data, "configuration");
    c->path = sl_strdup(path, "configuration path");
    if (c->private_data == NULL || c->path == NULL) goto destroy;
    sl_arena_init(&c->private_data->arena, "configuration values");
    c->private_data->origins = sl_arena_array(&c->private_data->arena, sl_config_row_count, sizeof(sl_config_origin));
    if (c->private_data->origins == NULL) goto destroy;
    for (size_t i = 0; i < sl_config_row_count; i++)
        if (reset_row(c, &sl_config_rows[i]) != SLUICE_OK) goto destroy;
    *out = c;
    return SLUICE_OK;
destroy:
    sluice_config_destroy(c);
    return SLUICE_ERR_NO_MEMORY;
}

/* A configuration that is not there is a mistake in the command, unlike a missing data file. */
static sluice_status read_text(const char *path, char **text, size_t *bytes)
{
    char message[SL_MESSAGE_BYTES];
    sluice_status st = sl_file_read_all(path, MAX_CONFIG_BYTES, text, bytes);
    if (st != SLUICE_ERR_INPUT) return st;
    sl_error_copy(message);
    return sl_fail(SLUICE_ERR_USAGE, "configuration: %.1900s", message);
}

static sluice_status apply_json(sluice_config *c)
{
    const struct sl_config_private *p = c->private_data;
    json_t *root;
    SL_TRY(sl_json_parse(p->text, p->bytes, c->path, SLUICE_ERR_USAGE, &root));
    sluice_status st = json_is_object(root)
                           ? apply_section(c, "", root, false)
                           : sl_fail(SLUICE_ERR_USAGE, "%s: a configuration is an object: { ... }", c->path);
    json_decref(root);
    return st;
}

/* Applies p->text, and frees it. */
static sluice_status apply_text(sluice_config *c)
{
    struct sl_config_private *p = c->private_data;
    sluice_status st = apply_json(c);
    if (st == SLUICE_ERR_USAGE) st = sl_config_explain_file(c->path, p->text, p->bytes, st);
    sl_free(p->text);
    p->text = NULL;
    return st;
}

sluice_status sluice_config_create(sluice_config **out)
{
    SL_NEED(out);
    SL_TRY(create_config("the configuration", out));
    (*out)->bare = true;
    return SLUICE_OK;
}

/* Hands out what was read, or destroys it. */
static sluice_status finish_config(sluice_config *c, sluice_status st, sluice_config **out)
{
    if (st == SLUICE_OK)
        *out = c;
    else
        sluice_config_destroy(c);
    return st;
}

sluice_status sluice_config_load(const char *path, sluice_config **out)
{
    sluice_config *c;
    if (path == NULL || out == NULL)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_config_load: path and out must not be NULL");
    SL_TRY(create_config(path, &c));
    sluice_status st = read_text(c->path, &c->private_data->text, &c->private_data->bytes);
    if (st == SLUICE_OK) st = apply_text(c);
    return finish_config(c, st, out);
}

sluice_status sluice_config_parse(const char *text, const char *name, sluice_config **out)
{
    sluice_config *c;
    SL_NEED(text);
    SL_NEED(out);
    const size_t bytes = strlen(text);
    if (bytes > MAX_CONFIG_BYTES)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_config_parse: %zu bytes, at most %zu are allowed", bytes,
                       MAX_CONFIG_BYTES);
    SL_TRY(create_config(name != NULL ? name : "configuration", &c));
    struct sl_config_private *p = c->private_data;
    p->placeless = name == NULL;
    p->bytes = bytes;
    p->text = sl_strdup(text, "configuration");
    return finish_config(c, p->text != NULL ? apply_text(c) : SLUICE_ERR_NO_MEMORY, out);
}

/* JSON where it is JSON, otherwise a string; text rows take everything but null as it stands. */
static json_t *assigned_value(const char *key, const char *text)
{
    char renamed[SL_KEY_BYTES];
    const sl_option *row = find_row(sl_config_canonical(key, renamed, sizeof renamed));
    json_t *json = sl_json_value(text);
    bool wants_text = row != NULL && row->type == SL_OPT_STRING && !sl_config_is_wildcard(row);
    if (json != NULL && wants_text && !json_is_string(json) && !json_is_null(json)) {
        json_decref(json);
        json = NULL;
    }
    return json != NULL ? json : json_string(text);
}

sluice_status sluice_config_set(sluice_config *c, const char *assignment)
{
    char key[SL_KEY_BYTES];
    if (c == NULL || assignment == NULL) return sl_fail(SLUICE_ERR_USAGE, "sluice_config_set: an argument is NULL");
    const char *equals = strchr(assignment, '=');
    if (equals == NULL || equals == assignment || (size_t)(equals - assignment) >= sizeof key)
        return sl_fail(SLUICE_ERR_USAGE, "--set: \"%.200s\" is not key=value, as in --set optimizer.params.lr=0.001",
                       assignment);
    snprintf(key, sizeof key, "%.*s", (int)(equals - assignment), assignment);
    json_t *json = assigned_value(key, equals + 1);
    if (json == NULL) return sl_fail(SLUICE_ERR_USAGE, "--set: %s: the value is not valid UTF-8", key);
    sluice_status st = apply(c, key, json, true);
    json_decref(json);
    return st;
}

void sluice_config_destroy(sluice_config *c)
{
    if (c == NULL) return;
    if (c->private_data != NULL) {
        sl_free(c->private_data->text);
        sl_arena_free(&c->private_data->arena);
    }
    sl_free(c->private_data);
    sl_free(c->path);
    sl_free(c);
}
