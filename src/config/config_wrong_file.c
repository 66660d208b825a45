/* config_wrong_file.c: a file that is no configuration, for the message: a model's config.json, samples, YAML. */
#include <ctype.h>
#include <string.h>

#include "config/config_rows.h"
#include "core/quote.h"
#include "core/status.h"
#include "format/json.h"

static bool has_any(const json_t *object, const char *const *keys)
{
    for (; *keys != NULL; keys++)
        if (json_object_get(object, *keys) != NULL) return true;
    return false;
}

static bool ends_in(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    return n > m && strcmp(path + n - m, ending) == 0;
}

/* The folder of a file, as it is written: "." for a name alone. */
static sl_shown folder_of(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - path) : 1, slash != NULL ? path : ".");
    return sl_show(folder);
}

/* The first value of the text, which may be one of several: JSON lines. */
static sluice_status explain_json(const char *path, const json_t *object, sluice_status st)
{
    static const char *const ours[] = {
        "model", "data", "optimizer", "steps", "epochs", "train_batch_size", "zero_optimization", "bf16", "fp16", NULL
    };
    static const char *const model[] = { "model_type", "architectures", NULL };
    static const char *const adapter[] = { "peft_type", NULL };
    static const char *const sample[] = { "messages",   "conversations", "instruction", "prompt",
                                          "completion", "text",          NULL };
    if (has_any(object, ours)) return st; /* a configuration with a mistake in it */
    if (has_any(object, adapter))
        return sl_fail(SLUICE_ERR_USAGE,
                       "%s describes an adapter, and a run's configuration is expected; give the adapter's folder: "
                       "--adapter %s",
                       sl_show(path).text, folder_of(path).text);
    if (has_any(object, model))
        return sl_fail(
            SLUICE_ERR_USAGE,
            "%s describes a model, and a run's configuration is expected; give the model's folder: --model %s",
            sl_show(path).text, folder_of(path).text);
    if (has_any(object, sample))
        return sl_fail(
            SLUICE_ERR_USAGE,
            "%s holds samples, and a run's configuration is expected. --data takes one file: join several with "
            "cat, as in: cat A.jsonl B.jsonl > ALL.jsonl",
            sl_show(path).text);
    return st;
}

/* Whether the first line that says something is "key:" or "key: value", or "---". */
static bool looks_like_yaml(const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const char *line = text + at, *end = memchr(line, '\n', bytes - at);
        size_t length = end != NULL ? (size_t)(end - line) : bytes - at, n = 0;
        at += length + 1;
        if (length == 0 || line[0] == '#' || line[0] == '\r') continue;
        if (length >= 3 && memcmp(line, "---", 3) == 0) return true;
        while (n < length && (isalnum((unsigned char)line[n]) || line[n] == '_' || line[n] == '-' || line[n] == '.'))
            n++;
        return n > 0 && n < length && line[n] == ':' && (n + 1 == length || isspace((unsigned char)line[n + 1]));
    }
    return false;
}

sluice_status sl_config_explain_file(const char *path, const char *text, size_t bytes, sluice_status st)
{
    json_t *first = json_loadb(text, bytes, JSON_DISABLE_EOF_CHECK | JSON_DECODE_INT_AS_REAL, NULL);
    if (first != NULL) {
        if (json_is_object(first)) st = explain_json(path, first, st);
        json_decref(first);
        return st;
    }
    if (!ends_in(path, ".yaml") && !ends_in(path, ".yml") && !looks_like_yaml(text, bytes)) return st;
    return sl_fail(SLUICE_ERR_USAGE,
                   "%s is YAML, and a configuration is JSON: python3 -c \"import json, sys, yaml; "
                   "json.dump(yaml.safe_load(sys.stdin), sys.stdout, indent=2)\" < %s > run.json. What other programs "
                   "call otherwise than sluice is told key by key",
                   sl_show(path).text, sl_show(path).text);
}
