/* tuned_file.c: reading and writing tuned.json.
 *
 *     {"sluice_tuned": 1, "machine": "...", "model": "0123456789abcdef", "ranks": 2,
 *      "settings": {"zero_optimization.stage": 1, "memory.prefetch_layers": 2},
 *      "step_seconds": {"expected": 0.38, "measured": 0.41}}
 *
 * "settings" has keys of the table in auto_axes.c; a key that is not there was best left to the plan. */
#include "train/tuned_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cpu.h"
#include "core/hash.h"
#include "core/output.h"
#include "core/thread.h"
#include "format/json.h"
#include "machine/device_choice.h"
#include "machine/machine.h"

#define VERSION   1
#define MOST_TEXT ((size_t)64 << 10)

/* ---- identity ---- */

/* Settings that decide how long a step takes and what fits: of these sections, without the keys of arrangements. */
static bool decides(const char *line)
{
    static const char *const sections[] = {
        "model.",
        "lora.",
        "freeze",
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "bf16.",
        "fp16.",
        "tf32",
        "optimizer.type",
        "gradient_accumulation_steps",
        "memory.",
        "zero_optimization.",
        "device",
        "threads",
        "activation_checkpointing.",
        "data.type",
        "data.packing",
    };
    char key[256];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(line, ":"), line);
    if (strcmp(key, "model.path") == 0) return false; /* folders move */
    if (sl_axis_find(key) != SL_AXIS_COUNT && sl_axis_find(key) != SL_AXIS_MICRO_BATCH) return false;
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        if (strncmp(key, sections[i], strlen(sections[i])) == 0) return true;
    return false;
}

static sluice_status hash_settings(const sl_settings *s, uint64_t *out)
{
    char *text = NULL, *line, *rest;
    size_t bytes = 0;
    uint64_t hash = SL_HASH_START;
    FILE *memory = open_memstream(&text, &bytes);
    if (memory == NULL) return sl_fail(SLUICE_ERR_NO_MEMORY, "out of memory while reading the settings");
    sl_settings_write(s, memory);
    if (fclose(memory) != 0) {
        free(text);
        return sl_fail(SLUICE_ERR_NO_MEMORY, "out of memory while reading the settings");
    }
    for (line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        if (decides(line)) hash = sl_hash_bytes(hash, line, strlen(line) + 1);
    free(text);
    *out = hash;
    return SLUICE_OK;
}

sluice_status sl_tuned_identify(const sl_settings *s, int ranks, sl_tuned_identity *out)
{
    char cpu[128];
    sl_device_choice device;
    sl_isa isa;
    SL_TRY(sl_machine_isa(&isa));
    SL_TRY(sl_device_choose(s->device.kind, 0, 1, &device));
    sl_cpu_model(cpu, sizeof cpu);
    snprintf(out->machine, sizeof out->machine, "%s, %d CPUs, %s%s%s", cpu, sl_cpu_count(), sl_isa_name(isa),
             device.is_cuda ? ", " : "", device.is_cuda ? device.facts.name : "");
    out->ranks = ranks;
    return hash_settings(s, &out->model);
}

const char *sl_tuned_differs(const sl_tuned_identity *a, const sl_tuned_identity *b)
{
    if (strcmp(a->machine, b->machine) != 0) return "on another machine";
    if (a->ranks != b->ranks) return "with another number of ranks";
    return a->model != b->model ? "with another model or other settings" : NULL;
}

/* ---- reading ---- */

static sluice_status damaged(const char *path, const char *what)
{
    return sl_fail(SLUICE_ERR_INPUT, "%s: %s; remove the file, or make it anew with sluice tune", path, what);
}

static bool read_positive(const json_t *object, const char *name, double *out)
{
    const json_t *value = json_object_get(object, name);
    *out = json_number_value(value);
    return json_is_number(value) && isfinite(*out) && *out > 0;
}

static sluice_status read_settings(const char *path, const json_t *settings, sl_arrangement *out)
{
    char message[320];
    const char *key;
    json_t *value;
    sl_arrangement_clear(out);
    if (!json_is_object(settings)) return damaged(path, "\"settings\" is missing or no object");
    json_object_foreach((json_t *)(uintptr_t)settings, key, value)
    {
        sl_axis axis = sl_axis_find(key);
        if (axis == SL_AXIS_COUNT)
            snprintf(message, sizeof message, "settings: \"%.100s\" is no key that is tuned", key);
        else if (!json_is_integer(value) || !sl_axis_takes(axis, json_integer_value(value)))
            snprintf(message, sizeof message, "settings: %s has a value that it does not take", sl_axis_key(axis));
        else {
            out->values[axis] = json_integer_value(value);
            continue;
        }
        return damaged(path, message);
    }
    return SLUICE_OK;
}

static sluice_status read_identity(const char *path, const json_t *root, sl_tuned_identity *out)
{
    const char *machine = json_string_value(json_object_get(root, "machine"));
    const char *model = json_string_value(json_object_get(root, "model"));
    const json_t *ranks = json_object_get(root, "ranks");
    char *end = NULL;
    if (json_integer_value(json_object_get(root, "sluice_tuned")) != VERSION)
        return damaged(path, "\"sluice_tuned\" is not 1");
    if (machine == NULL || strlen(machine) >= sizeof out->machine)
        return damaged(path, "\"machine\" is missing or no text");
    if (model != NULL) out->model = strtoull(model, &end, 16);
    if (model == NULL || strlen(model) != 16 || *end != '\0') return damaged(path, "\"model\" is no hash");
    if (!json_is_integer(ranks) || json_integer_value(ranks) < 1 || json_integer_value(ranks) > INT32_MAX)
        return damaged(path, "\"ranks\" is no number of ranks");
    snprintf(out->machine, sizeof out->machine, "%s", machine);
    out->ranks = (int)json_integer_value(ranks);
    return SLUICE_OK;
}

static sluice_status read_root(const char *path, const json_t *root, sl_tuned *out)
{
    const json_t *seconds = json_object_get(root, "step_seconds");
    if (!json_is_object(root)) return damaged(path, "it is no JSON object");
    SL_TRY(read_identity(path, root, &out->identity));
    SL_TRY(read_settings(path, json_object_get(root, "settings"), &out->arrangement));
    if (!read_positive(seconds, "expected", &out->expected) || !read_positive(seconds, "measured", &out->measured))
        return damaged(path, "\"step_seconds\" has no expected and measured time");
    return SLUICE_OK;
}

sluice_status sl_tuned_read(const char *path, sl_tuned *out)
{
    char *text, message[SL_MESSAGE_BYTES];
    size_t bytes;
    json_t *root = NULL;
    SL_TRY(sl_file_read_all(path, MOST_TEXT, &text, &bytes));
    sluice_status st = sl_json_parse(text, bytes, path, SLUICE_ERR_INPUT, &root);
    sl_free(text);
    if (st != SLUICE_OK) {
        sl_error_copy(message);
        return sl_fail(st, "%s; remove the file, or make it anew with sluice tune", message);
    }
    st = read_root(path, root, out);
    json_decref(root);
    return st;
}

/* ---- writing ---- */

sluice_status sl_tuned_write(const char *path, const sl_tuned *t)
{
    char expected[SL_JSON_DIGITS], measured[SL_JSON_DIGITS];
    sl_text text = { .data = NULL };
    sl_json_digits(t->expected, expected);
    sl_json_digits(t->measured, measured);
    sl_text_add(&text, "{\"sluice_tuned\": %d,\n \"machine\": ", VERSION);
    sl_text_add_string(&text, t->identity.machine);
    sl_text_add(&text, ",\n \"model\": \"%016" PRIx64 "\",\n \"ranks\": %d,\n \"settings\": ", t->identity.model,
                t->identity.ranks);
    sl_arrangement_write(&t->arrangement, &text);
    sl_text_add(&text, ",\n \"step_seconds\": {\"expected\": %s, \"measured\": %s}}\n", expected, measured);
    sluice_status st = sl_text_status(&text);
    if (st == SLUICE_OK) st = sl_file_replace(path, text.data, text.bytes);
    sl_text_free(&text);
    return st;
}
