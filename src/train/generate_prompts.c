/* generate_prompts.c: prompts from a file, one a line. */
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "format/json.h"
#include "train/generate.h"

#define MOST_BYTES   ((size_t)1 << 30) /* of a file */
#define MOST_PROMPTS (1 << 24)

sluice_status sl_generation_add(struct sl_generation *g, const char *text, size_t bytes)
{
    if (g->count == MOST_PROMPTS) return sl_fail(SLUICE_ERR_INPUT, "there are over %d prompts", MOST_PROMPTS);
    SL_TRY(sl_grow((void **)&g->exchanges, &g->capacity, g->count + 1, sizeof *g->exchanges, "prompts"));
    sl_exchange *x = &g->exchanges[g->count];
    *x = (sl_exchange){ .prompt_bytes = bytes };
    x->prompt = sl_alloc(bytes + 1, "prompt");
    if (x->prompt == NULL) return SLUICE_ERR_NO_MEMORY;
    memcpy(x->prompt, text, bytes);
    g->count++;
    return SLUICE_OK;
}

/* {"prompt": TEXT}; other keys are the user's own. */
static sluice_status add_object(struct sl_generation *g, const char *line, size_t bytes, const char *what)
{
    json_t *object;
    SL_TRY(sl_json_parse(line, bytes, what, SLUICE_ERR_INPUT, &object));
    json_t *prompt = json_object_get(object, "prompt");
    sluice_status st = SLUICE_OK;
    if (!json_is_string(prompt))
        st = sl_fail(SLUICE_ERR_INPUT, "%s: has no \"prompt\" that is a text; write {\"prompt\": \"...\"}", what);
    if (st == SLUICE_OK) st = sl_generation_add(g, json_string_value(prompt), json_string_length(prompt));
    json_decref(object);
    return st;
}

static bool is_blank(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (strchr(" \t\r", line[i]) == NULL) return false;
    return true;
}

static sluice_status add_lines(struct sl_generation *g, const char *text, size_t bytes, const char *path)
{
    bool objects = false, first = true;
    long number = 0;
    for (size_t at = 0; at < bytes;) {
        const char *line = text + at, *end = memchr(line, '\n', bytes - at);
        size_t length = end != NULL ? (size_t)(end - line) : bytes - at;
        at += length + 1;
        number++;
        if (is_blank(line, length)) continue;
        if (first) objects = line[strspn(line, " \t\r")] == '{';
        first = false;
        if (length > 0 && line[length - 1] == '\r') length--;
        char what[4200];
        snprintf(what, sizeof what, "%.4096s, line %ld", path, number);
        SL_TRY(objects ? add_object(g, line, length, what) : sl_generation_add(g, line, length));
    }
    if (g->count == 0) return sl_fail(SLUICE_ERR_INPUT, "%s: holds no prompt; write one a line", path);
    return SLUICE_OK;
}

sluice_status sl_generation_read(struct sl_generation *g, const char *path)
{
    char *text;
    size_t bytes;
    SL_TRY(sl_file_read_all(path, MOST_BYTES, &text, &bytes));
    sluice_status st = add_lines(g, text, bytes, path);
    sl_free(text);
    return st;
}
