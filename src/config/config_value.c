/* config_value.c: values of the option table: from JSON, into the settings, back out, and compared.
 *
 * Everything here looks at one row and one value. What needs more than one key is in config_resolve.c. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/config_rows.h"
#include "core/bytes.h"
#include "core/status.h"
#include "format/json.h"
#include "format/text_buffer.h"

/* Whole numbers up to here are exact as doubles, so that 5e8 may stand for 500000000. */
#define EXACT_DOUBLE 9007199254740992.0
/* Bounds of real numbers this large are not worth telling. */
#define UNBOUNDED 9e15

#define CHOICE_BYTES 64

static const char *const type_names[] = {
    [SL_OPT_BOOL] = "true or false",
    [SL_OPT_INT] = "a whole number",
    [SL_OPT_DOUBLE] = "a number",
    [SL_OPT_SIZE] = "a size (bytes, or text such as \"20GiB\")",
    [SL_OPT_STRING] = "text",
    [SL_OPT_CHOICE] = "one of",
    [SL_OPT_PAIR] = "two numbers [a, b]",
    [SL_OPT_LIST] = "a list",
};

static bool ranged(const sl_option *row)
{
    return row->min != 0 || row->max != 0;
}

/* "none, cpu": the choices that are built in. */
static void list_choices(const sl_option *row, char *out, size_t out_bytes)
{
    char name[CHOICE_BYTES];
    bool built;
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; sl_config_choice(row, i, name, sizeof name, &built); i++)
        if (built && used < out_bytes)
            used += (size_t)snprintf(out + used, out_bytes - used, "%s%s", used > 0 ? ", " : "", name);
}

void sl_config_describe_type(const sl_option *row, char *out, size_t out_bytes)
{
    char choices[512];
    if (row->choices != NULL) {
        list_choices(row, choices, sizeof choices);
        snprintf(out, out_bytes, "one of %s", choices);
    } else if (!ranged(row)) {
        snprintf(out, out_bytes, "%s", type_names[row->type]);
    } else if (row->type == SL_OPT_INT || row->type == SL_OPT_SIZE || row->type == SL_OPT_STRING) {
        snprintf(out, out_bytes, "%s%s from %" PRId64 " to %" PRId64, type_names[row->type],
                 row->type == SL_OPT_STRING ? ", or a whole number" : "", (int64_t)row->min, (int64_t)row->max);
    } else if (row->max == SL_LARGEST_F32) {
        snprintf(out, out_bytes, "%s from %g to %.3g, the largest in fp32", type_names[row->type], row->min, row->max);
    } else {
        snprintf(out, out_bytes, "%s from %g to %.10g", type_names[row->type], row->min, row->max);
    }
}

/* The one message about a value that a row does not take. */
static sluice_status refuse(const sl_option *row, const json_t *json, const char *where)
{
    char expected[600], choices[512] = "", hint[200] = "";
    sl_config_describe_type(row, expected, sizeof expected);
    if (row->choices != NULL && json_is_string(json)) {
        list_choices(row, choices, sizeof choices);
        sl_config_value_hint(row->key, json_string_value(json), choices, hint, sizeof hint);
    }
    char *given = json_dumps(json, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    sluice_status st = sl_fail(SLUICE_ERR_USAGE, "%s%s: %.200s is not allowed; it takes %s%s%s%s", where, row->key,
                               given != NULL ? given : "this value", expected, row->auto_ok ? ", or \"auto\"" : "",
                               hint[0] != '\0' ? "; " : "", hint);
    sl_json_free_text(given);
    return st;
}

static bool in_range(const sl_option *row, double value)
{
    return !ranged(row) || (value >= row->min && value <= row->max);
}

/* The same without rounding: bounds of whole numbers are exact as doubles, the numbers themselves may not be. */
static bool whole_in_range(const sl_option *row, int64_t value)
{
    return !ranged(row) || (value >= (int64_t)row->min && value <= (int64_t)row->max);
}

static bool read_integer(const json_t *json, int64_t *out)
{
    if (json_is_integer(json)) {
        *out = json_integer_value(json);
        return true;
    }
    double real = json_is_real(json) ? json_real_value(json) : NAN;
    if (!(fabs(real) <= EXACT_DOUBLE) || real != floor(real)) return false;
    *out = (int64_t)real;
    return true;
}

static bool read_size(const sl_option *row, const json_t *json, uint64_t *out)
{
    int64_t bytes;
    if (json_is_string(json))
        return sl_parse_bytes(json_string_value(json), out) && *out <= INT64_MAX && whole_in_range(row, (int64_t)*out);
    if (!read_integer(json, &bytes) || bytes < 0 || !whole_in_range(row, bytes)) return false;
    *out = (uint64_t)bytes;
    return true;
}

static bool read_choice(const sl_option *row, const char *text, int *out)
{
    char name[CHOICE_BYTES];
    bool built;
    for (int i = 0; text != NULL && sl_config_choice(row, i, name, sizeof name, &built); i++)
        if (strcasecmp(name, text) == 0) {
            *out = i;
            return true;
        }
    return false;
}

static bool read_pair(const sl_option *row, const json_t *json, double out[2])
{
    if (!json_is_array(json) || json_array_size(json) != 2) return false;
    for (size_t i = 0; i < 2; i++) {
        const json_t *item = json_array_get(json, i);
        if (!json_is_number(item) || !in_range(row, json_number_value(item))) return false;
        out[i] = json_number_value(item);
    }
    return true;
}

static sluice_status copy_text(const char *text, sl_arena *arena, sl_config_value *out)
{
    if (text == NULL) return sl_fail(SLUICE_ERR_NO_MEMORY, "out of memory while reading the configuration");
    out->text = sl_arena_strdup(arena, text);
    return out->text != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

/* Whether text is a whole number; *out is INT64_MAX or INT64_MIN where it is beyond. */
static bool is_number(const char *text, int64_t *out)
{
    char *end;
    *out = strtoll(text, &end, 10);
    return end != text && *end == '\0';
}

/* A list of paths as one text. */
static sluice_status join_paths(const sl_option *row, const json_t *json, const char *where, sl_arena *arena,
                                sl_config_value *out)
{
    sl_text text = { .data = NULL };
    sl_text_add(&text, "%s", "");
    for (size_t i = 0; i < json_array_size(json); i++) {
        const char *path = json_string_value(json_array_get(json, i));
        if (path == NULL || strchr(path, ':') != NULL) {
            sl_text_free(&text);
            return refuse(row, json, where);
        }
        sl_text_add(&text, "%s%s", i > 0 ? ":" : "", path);
    }
    sluice_status st = sl_text_status(&text);
    if (st == SLUICE_OK) st = copy_text(text.data, arena, out);
    sl_text_free(&text);
    return st;
}

/* Text rows: a string, one of the choices where the row has some, or where it has a range a whole number in it, which
 * may come in quotes. */
static sluice_status read_string(const sl_option *row, const json_t *json, const char *where, sl_arena *arena,
                                 sl_config_value *out)
{
    char digits[32];
    int64_t number;
    if (row->is_paths && json_is_array(json)) return join_paths(row, json, where, arena, out);
    if (json_is_string(json) && row->choices != NULL) {
        char name[CHOICE_BYTES];
        int index;
        bool built;
        if (!read_choice(row, json_string_value(json), &index)) return refuse(row, json, where);
        sl_config_choice(row, index, name, sizeof name, &built);
        return copy_text(name, arena, out);
    }
    if (json_is_string(json)) {
        bool beyond = ranged(row) && is_number(json_string_value(json), &number) && !whole_in_range(row, number);
        return beyond ? refuse(row, json, where) : copy_text(json_string_value(json), arena, out);
    }
    if (!ranged(row) || !read_integer(json, &number) || !whole_in_range(row, number)) return refuse(row, json, where);
    snprintf(digits, sizeof digits, "%lld", (long long)number);
    return copy_text(digits, arena, out);
}

static sluice_status read_list(const sl_option *row, const json_t *json, const char *where, sl_arena *arena,
                               sl_config_value *out)
{
    if (!json_is_array(json)) return refuse(row, json, where);
    char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
    sluice_status st = copy_text(text, arena, out);
    sl_json_free_text(text);
    return st;
}

/* The types that own no memory. False: wrong type or out of range. */
static bool read_plain(const sl_option *row, const json_t *json, sl_config_value *out)
{
    switch (row->type) {
    case SL_OPT_BOOL:
        out->boolean = json_is_true(json);
        return json_is_boolean(json);
    case SL_OPT_INT:
        return read_integer(json, &out->integer) && whole_in_range(row, out->integer);
    case SL_OPT_DOUBLE:
        out->real = json_number_value(json);
        return json_is_number(json) && in_range(row, out->real);
    case SL_OPT_SIZE:
        return read_size(row, json, &out->size);
    case SL_OPT_CHOICE:
        if (json_is_boolean(json)) return read_choice(row, json_is_true(json) ? "true" : "false", &out->choice);
        return read_choice(row, json_string_value(json), &out->choice);
    case SL_OPT_PAIR:
        return read_pair(row, json, out->pair);
    default:
        return false;
    }
}

sluice_status sl_config_value_from_json(const sl_option *row, const json_t *json, const char *where, sl_arena *arena,
                                        sl_config_value *out)
{
    sl_config_value value = { 0 };
    if (row->type == SL_OPT_STRING)
        SL_TRY(read_string(row, json, where, arena, &value));
    else if (row->type == SL_OPT_LIST)
        SL_TRY(read_list(row, json, where, arena, &value));
    else if (!read_plain(row, json, &value))
        return refuse(row, json, where);
    *out = value;
    return SLUICE_OK;
}

void sl_config_value_from_table(const sl_option *row, const char *text, sl_config_value *out)
{
    memset(out, 0, sizeof *out);
    switch (row->type) {
    case SL_OPT_BOOL:
        out->boolean = strcmp(text, "true") == 0;
        return;
    case SL_OPT_INT:
        out->integer = (int64_t)strtod(text, NULL);
        return; /* "5e8" */
    case SL_OPT_DOUBLE:
        out->real = strtod(text, NULL);
        return;
    case SL_OPT_SIZE:
        sl_parse_bytes(text, &out->size);
        return;
    case SL_OPT_CHOICE:
        read_choice(row, text, &out->choice);
        return;
    case SL_OPT_PAIR:
        sscanf(text, "[%lf, %lf]", &out->pair[0], &out->pair[1]);
        return;
    case SL_OPT_STRING:
    case SL_OPT_LIST:
        out->text = text;
        return;
    }
}

/* The mark for "nothing said". A choice row may name "auto" itself. */
static void value_auto(const sl_option *row, sl_config_value *out)
{
    memset(out, 0, sizeof *out);
    switch (row->type) {
    case SL_OPT_INT:
        out->integer = row->auto_is_zero ? 0 : -1;
        return;
    case SL_OPT_DOUBLE:
        out->real = row->auto_is_zero ? 0 : -1;
        return;
    case SL_OPT_STRING:
    case SL_OPT_LIST:
        out->text = "";
        return;
    case SL_OPT_CHOICE:
        if (!read_choice(row, "auto", &out->choice)) out->choice = -1;
        return;
    case SL_OPT_BOOL:
    case SL_OPT_SIZE:
    case SL_OPT_PAIR:
        return;
    }
}

static bool undecided(const sl_option *row)
{
    return row->fallback[0] == '\0' || strcmp(row->fallback, "auto") == 0;
}

void sl_config_value_default(const sl_option *row, sl_config_value *out)
{
    if (undecided(row))
        value_auto(row, out);
    else
        sl_config_value_from_table(row, row->fallback, out);
}

bool sl_config_value_is_auto(const sl_option *row, const sl_config_value *value)
{
    sl_config_value mark;
    if (!undecided(row)) return false;
    value_auto(row, &mark);
    return sl_config_value_equal(row, value, &mark);
}

bool sl_config_value_equal(const sl_option *row, const sl_config_value *a, const sl_config_value *b)
{
    switch (row->type) {
    case SL_OPT_BOOL:
        return a->boolean == b->boolean;
    case SL_OPT_INT:
        return a->integer == b->integer;
    case SL_OPT_DOUBLE:
        return a->real == b->real;
    case SL_OPT_SIZE:
        return a->size == b->size;
    case SL_OPT_CHOICE:
        return a->choice == b->choice;
    case SL_OPT_PAIR:
        return a->pair[0] == b->pair[0] && a->pair[1] == b->pair[1];
    case SL_OPT_STRING:
        return strcasecmp(a->text, b->text) == 0;
    case SL_OPT_LIST:
        return strcmp(a->text, b->text) == 0;
    }
    return false;
}

/* ---- Fields ---- */

static int stored_choice(const sl_option *row, int index)
{
    return row->values != NULL && index >= 0 ? row->values[index] : index;
}

/* The first choice that is stored so; -1: none is. */
static int choice_stored_as(const sl_option *row, int stored)
{
    char name[CHOICE_BYTES];
    bool built;
    for (int i = 0; sl_config_choice(row, i, name, sizeof name, &built); i++)
        if (stored_choice(row, i) == stored) return i;
    return -1;
}

void sl_config_value_store(const sl_option *row, const sl_config_value *value, sl_settings *settings)
{
    char *at = (char *)settings + row->offset;
    bool flag;
    int32_t number;
    switch (row->type) {
    case SL_OPT_BOOL:
        flag = value->boolean != row->negated;
        memcpy(at, &flag, sizeof flag);
        return;
    case SL_OPT_INT:
        number = (int32_t)value->integer; /* within the field: the row's bounds are */
        memcpy(at, row->bytes == sizeof number ? (void *)&number : (void *)&value->integer, row->bytes);
        return;
    case SL_OPT_CHOICE:
        number = stored_choice(row, value->choice);
        flag = number == 1;
        memcpy(at, row->bytes == sizeof flag ? (void *)&flag : (void *)&number, row->bytes);
        return;
    case SL_OPT_PAIR:
        memcpy(at, value->pair, sizeof value->pair);
        return;
    default:
        memcpy(at, value, row->bytes);
        return;
    }
}

/* The value in a field of `bytes` bytes that is kept as the row's is. */
static void load_field(const sl_option *row, const char *at, size_t bytes, sl_config_value *out)
{
    bool flag = false;
    int32_t number = 0;
    memset(out, 0, sizeof *out);
    switch (row->type) {
    case SL_OPT_BOOL:
        memcpy(&flag, at, sizeof flag);
        out->boolean = flag != row->negated;
        return;
    case SL_OPT_INT:
        memcpy(bytes == sizeof number ? (void *)&number : (void *)&out->integer, at, bytes);
        if (bytes == sizeof number) out->integer = number;
        return;
    case SL_OPT_CHOICE:
        memcpy(bytes == sizeof flag ? (void *)&flag : (void *)&number, at, bytes);
        out->choice = choice_stored_as(row, bytes == sizeof flag ? flag : number);
        return;
    case SL_OPT_PAIR:
        memcpy(out->pair, at, sizeof out->pair);
        return;
    default:
        memcpy(out, at, bytes);
        return;
    }
}

void sl_config_value_load(const sl_option *row, const sl_settings *settings, sl_config_value *out)
{
    load_field(row, (const char *)settings + row->offset, row->bytes, out);
}

/* ---- Options of the C API ---- */

/* Whether a row takes a value as it stands, or as "auto". */
static bool takes(const sl_option *row, const sl_config_value *value)
{
    char name[CHOICE_BYTES];
    bool built = false;
    if (row->type != SL_OPT_CHOICE && sl_config_value_is_auto(row, value)) return true;
    switch (row->type) {
    case SL_OPT_INT:
        return whole_in_range(row, value->integer);
    case SL_OPT_DOUBLE:
        return isfinite(value->real) && in_range(row, value->real);
    case SL_OPT_SIZE:
        return value->size <= INT64_MAX && whole_in_range(row, (int64_t)value->size);
    case SL_OPT_PAIR:
        return in_range(row, value->pair[0]) && in_range(row, value->pair[1]);
    case SL_OPT_CHOICE:
        return sl_config_choice(row, value->choice, name, sizeof name, &built) && built;
    default:
        return true;
    }
}

sluice_status sl_config_value_from_option(const sl_option *row, const sluice_options *options, sl_config_value *out)
{
    const char *at = (const char *)options + row->option_offset;
    char expected[600], given[64];
    int32_t number = 0;
    load_field(row, at, row->option_bytes, out);
    if (row->type == SL_OPT_STRING && out->text == NULL) out->text = "";
    if (takes(row, out)) return SLUICE_OK;
    if (row->option_bytes == sizeof number) memcpy(&number, at, sizeof number);
    if (row->type == SL_OPT_DOUBLE || row->type == SL_OPT_PAIR)
        snprintf(given, sizeof given, "%g", out->real);
    else if (row->option_bytes == sizeof number)
        snprintf(given, sizeof given, "%d", number);
    else
        snprintf(given, sizeof given, "%lld", (long long)out->integer);
    sl_config_describe_type(row, expected, sizeof expected);
    return sl_fail(SLUICE_ERR_USAGE, "options.%s is %s, which %s does not allow; it takes %s", row->option, given,
                   row->key, expected);
}

static void print_choice(const sl_option *row, int index, FILE *out)
{
    char name[CHOICE_BYTES];
    bool built;
    if (!sl_config_choice(row, index, name, sizeof name, &built)) snprintf(name, sizeof name, "auto");
    sl_json_write_string(out, name);
}

void sl_config_value_print(const sl_option *row, const sl_config_value *value, FILE *out)
{
    if (sl_config_value_is_auto(row, value) && strcmp(row->fallback, "auto") == 0) {
        fputs("\"auto\"", out);
        return;
    }
    switch (row->type) {
    case SL_OPT_BOOL:
        fputs(value->boolean ? "true" : "false", out);
        return;
    case SL_OPT_INT:
        fprintf(out, "%lld", (long long)value->integer);
        return;
    case SL_OPT_DOUBLE:
        sl_json_write_double(out, value->real);
        return;
    case SL_OPT_SIZE:
        fprintf(out, "%llu", (unsigned long long)value->size);
        return;
    case SL_OPT_STRING:
        sl_json_write_string(out, value->text);
        return;
    case SL_OPT_CHOICE:
        print_choice(row, value->choice, out);
        return;
    case SL_OPT_LIST:
        fputs(value->text[0] != '\0' ? value->text : "[]", out);
        return;
    case SL_OPT_PAIR:
        fputc('[', out);
        sl_json_write_double(out, value->pair[0]);
        fputs(", ", out);
        sl_json_write_double(out, value->pair[1]);
        fputc(']', out);
        return;
    }
}
