/* config_print.c: the option table for people: the effective configuration as JSON, one value of it, the help text, and
 * docs/config.md. */
#include <string.h>

#include "config/config_rows.h"
#include "core/status.h"

/* ---- Effective configuration ---- */

bool sl_config_other_types(const sl_option *row, const sl_settings *s)
{
    const struct {
        const sl_config_family *family;
        int type;
    } families[] = { { &sl_config_optimizers, (int)s->optim.optimizer.kind },
                     { &sl_config_schedules, (int)s->schedule.kind } };
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        const char *name = sl_config_param(families[i].family, row);
        if (name == NULL) continue;
        int type = families[i].type;
        return type < 0 || type >= families[i].family->kind_count ||
               !sl_config_listed(families[i].family->kinds[type].params, name);
    }
    return false;
}

static bool is_printed(const sl_option *row, const sl_settings *s, sl_config_value *value)
{
    if (row->fate != SL_KEY_HONOURED || sl_config_other_types(row, s)) return false;
    sl_config_value_load(row, s, value);
    return row->fallback[0] != '\0' || !sl_config_value_is_auto(row, value);
}

/* Bytes of the sections that two keys have in common: "a.b." for a.b.c and a.b.d. */
static size_t common_sections(const char *a, const char *b)
{
    size_t common = 0;
    for (size_t i = 0; a[i] != '\0' && a[i] == b[i]; i++)
        if (a[i] == '.') common = i + 1;
    return common;
}

static int count_dots(const char *text)
{
    int dots = 0;
    for (; *text != '\0'; text++) dots += *text == '.';
    return dots;
}

static void indent(FILE *out, int depth)
{
    fprintf(out, "\n%*s", 2 * (depth + 1), "");
}

/* Leaves the sections of `previous` that `key` is not in, and enters those of `key`. */
static void change_section(FILE *out, const char *previous, const char *key)
{
    size_t common = common_sections(previous, key);
    for (int depth = count_dots(previous) - 1; depth >= count_dots(previous) - count_dots(previous + common); depth--) {
        indent(out, depth);
        fputc('}', out);
    }
    if (previous[0] != '\0' && key[0] != '\0') fputc(',', out);
    int depth = count_dots(key) - count_dots(key + common);
    for (const char *name = key + common, *dot; (dot = strchr(name, '.')) != NULL; name = dot + 1, depth++) {
        indent(out, depth);
        fprintf(out, "\"%.*s\": {", (int)(dot - name), name);
    }
}

void sl_settings_print(const sl_settings *settings, FILE *out)
{
    const char *previous = "";
    fputc('{', out);
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        sl_config_value value;
        if (!is_printed(row, settings, &value)) continue;
        change_section(out, previous, row->key);
        indent(out, count_dots(row->key));
        const char *dot = strrchr(row->key, '.');
        fprintf(out, "\"%s\": ", dot != NULL ? dot + 1 : row->key);
        sl_config_value_print(row, &value, out);
        previous = row->key;
    }
    change_section(out, previous, "");
    fputs("\n}\n", out);
}

void sluice_config_print(const sluice_config *c, FILE *out)
{
    sl_settings s;
    if (c == NULL || out == NULL) return;
    if (sl_config_resolve(c, 0, NULL, &s) != SLUICE_OK) s = c->settings;
    sl_settings_print(&s, out);
}

static void write_line(const sl_option *row, const sl_config_value *value, FILE *out)
{
    fprintf(out, "%s: ", row->key);
    sl_config_value_print(row, value, out);
    fputc('\n', out);
}

void sl_settings_write(const sl_settings *settings, FILE *out)
{
    sl_config_value value;
    for (size_t i = 0; i < sl_config_row_count; i++)
        if (is_printed(&sl_config_rows[i], settings, &value)) write_line(&sl_config_rows[i], &value, out);
}

void sl_settings_write_identity(const sl_settings *settings, FILE *out)
{
    sl_config_value value;
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        if (row->resume != SL_RESUME_SAME && row->resume != SL_RESUME_MODEL) continue;
        if (settings->from_options && row->option == NULL) continue; /* not what the caller said */
        if (is_printed(row, settings, &value)) write_line(row, &value, out);
    }
}

bool sl_settings_next_file(const sl_settings *settings, size_t *row, sl_setting_file *out)
{
    while (*row < sl_config_row_count) {
        const sl_option *o = &sl_config_rows[(*row)++];
        sl_config_value value;
        if (o->file == SL_FILE_NONE) continue;
        sl_config_value_load(o, settings, &value);
        if (value.text == NULL || value.text[0] == '\0') continue;
        *out = (sl_setting_file){ o->key, value.text, o->file };
        return true;
    }
    return false;
}

bool sl_settings_is_model(const char *key)
{
    const sl_option *row = sl_option_find(sl_config_rows, sl_config_row_count, key);
    return row == NULL || row->resume == SL_RESUME_MODEL;
}

/* One line of the page: the keys of all rows with this rule and reason, from row `first` on. */
static void write_resume_line(size_t first, FILE *out)
{
    const sl_option *of = &sl_config_rows[first];
    const char *comma = "| ";
    for (size_t i = first; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        if (row->resume != of->resume || (of->why != NULL && strcmp(row->why, of->why) != 0)) continue;
        fprintf(out, "%s`%s`", comma, row->key);
        comma = ", ";
    }
    if (of->resume == SL_RESUME_FREE)
        fprintf(out, " | may change: %s |\n", of->why);
    else
        fputs(of->resume == SL_RESUME_SAME ? " | must stay |\n" : " | must stay where it changes the model |\n", out);
}

void sl_settings_write_resume_page(FILE *out)
{
    fputs("| setting | on `--resume` |\n|---|---|\n", out);
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        bool again = row->fate != SL_KEY_HONOURED;
        for (size_t k = 0; k < i && !again; k++)
            again = sl_config_rows[k].resume == row->resume &&
                    (row->why == NULL || strcmp(sl_config_rows[k].why, row->why) == 0);
        if (!again) write_resume_line(i, out);
    }
}

sluice_status sluice_config_get(const sluice_config *c, const char *key, char *out, size_t out_bytes)
{
    sl_settings s;
    sl_config_value value;
    if (c == NULL || key == NULL || out == NULL)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_config_get: an argument is NULL");
    const sl_option *row = sl_option_find(sl_config_rows, sl_config_row_count, key);
    if (row == NULL || row->fate != SL_KEY_HONOURED)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_config_get: \"%.200s\" is not a key with a value", key);
    SL_TRY(sl_config_resolve(c, 0, NULL, &s));
    sl_config_value_load(row, &s, &value);
    FILE *memory = fmemopen(out, out_bytes, "w");
    if (memory == NULL) return sl_fail(SLUICE_ERR_USAGE, "sluice_config_get: no room for the value of %s", key);
    sl_config_value_print(row, &value, memory);
    bool whole = fputc('\0', memory) != EOF && fflush(memory) == 0;
    fclose(memory);
    return whole ? SLUICE_OK
                 : sl_fail(SLUICE_ERR_USAGE, "sluice_config_get: the value of %s needs more than %zu bytes", key,
                           out_bytes);
}

/* ---- Help and documentation ---- */

static const char *const fate_words[] = {
    [SL_KEY_HONOURED] = "",
    [SL_KEY_NOTED] = "No effect here: ",
    [SL_KEY_UNBUILT] = "Not built in yet, refused unless it has its default: ",
    [SL_KEY_REFUSED] = "Refused unless it has its default: ",
};

static const char *meaning(const sl_option *row)
{
    return row->help != NULL ? row->help : row->note;
}

/* Short names of the types for tables. */
static const char *const type_words[] = {
    [SL_OPT_BOOL] = "bool",   [SL_OPT_INT] = "integer",   [SL_OPT_DOUBLE] = "number", [SL_OPT_SIZE] = "size",
    [SL_OPT_STRING] = "text", [SL_OPT_CHOICE] = "choice", [SL_OPT_PAIR] = "pair",     [SL_OPT_LIST] = "list",
};

/* The choices that are built in, each in `quote` marks. */
static void print_choices(const sl_option *row, const char *quote, FILE *out)
{
    char name[64];
    bool built;
    const char *comma = "";
    for (int i = 0; row->choices != NULL && sl_config_choice(row, i, name, sizeof name, &built); i++) {
        fprintf(out, "%s%s%s%s%s", comma, quote, name, quote, built ? "" : " (not built in yet)");
        comma = ", ";
    }
}

static void print_help_row(const sl_option *row, FILE *out)
{
    fprintf(out, "  %s  (%s", row->key, type_words[row->type]);
    if (row->fallback[0] != '\0') fprintf(out, ", default %s", row->fallback);
    fprintf(out, ")\n      %s%s\n", fate_words[row->fate], meaning(row));
    if (row->choices != NULL) {
        fputs("      One of: ", out);
        print_choices(row, "", out);
        fputc('\n', out);
    }
}

static void print_help(FILE *out)
{
    fputs("Keys of a configuration file. Nested objects are written with dots; --set takes the same names.\n\n", out);
    for (size_t i = 0; i < sl_config_row_count; i++)
        if (sl_config_rows[i].fate == SL_KEY_HONOURED) print_help_row(&sl_config_rows[i], out);
    fputs("\nAlso known, from DeepSpeed:\n\n", out);
    for (size_t i = 0; i < sl_config_row_count; i++)
        if (sl_config_rows[i].fate != SL_KEY_HONOURED) print_help_row(&sl_config_rows[i], out);
}

static void print_markdown_row(const sl_option *row, FILE *out)
{
    fprintf(out, "| `%s` | %s | ", row->key, type_words[row->type]);
    if (row->fallback[0] != '\0') fprintf(out, "`%s`", row->fallback);
    fprintf(out, " | %s%s", fate_words[row->fate], meaning(row));
    if (row->choices != NULL) {
        fputs(" One of ", out);
        print_choices(row, "`", out);
        fputc('.', out);
    }
    fputs(" |\n", out);
}

static void print_markdown_table(bool honoured, const char *sections, FILE *out)
{
    fputs("| key | type | default | meaning |\n|---|---|---|---|\n", out);
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        char section[64];
        snprintf(section, sizeof section, "%.*s", (int)strcspn(row->key, "."), row->key);
        if ((row->fate == SL_KEY_HONOURED) == honoured && (sections == NULL || sl_config_listed(sections, section)))
            print_markdown_row(row, out);
    }
}

/* The honoured keys by what they are about: first components of keys, and an example. */
static const struct chapter {
    const char *title, *sections, *example;
} chapters[] = {
    { "Model", "model|freeze|new_parameters|lora",
      "\"model\": {\"type\": \"llama\", \"layers\": 16, \"heads\": 32, \"kv_heads\": 8, \"width\": 2048, \"context\": "
      "2048, "
      "\"vocabulary\": \"bytes\"}" },
    { "Data", "data", "\"data\": {\"type\": \"text\", \"path\": \"input.txt\", \"validation\": 0.1}" },
    { "Length, batch and evaluation",
      "steps|epochs|seed|evaluate|early_stopping|train_batch_size|train_micro_batch_size_per_gpu|batch_growth|gradient_"
      "accumulation_"
      "steps|"
      "gradient_clipping|steps_per_print",
      "\"steps\": 2000, \"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 16, \"evaluate\": {\"every\": "
      "250}" },
    { "Device and communication", "threads|device|tf32|communication|communication_data_type|timeout_seconds|replan",
      "\"device\": \"cuda\", \"communication\": {\"gpu\": \"nccl\"}" },
    { "Optimizer and schedule", "optimizer|scheduler",
      "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, \"weight_decay\": 0.1}, \"groups\": "
      "[{\"match\": "
      "\"no_decay\", \"weight_decay\": 0}]},\n    \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": "
      "{\"total_num_steps\": 2000, \"warmup_num_steps\": 100}}" },
    { "Precision", "fp16|bf16", "\"bf16\": {\"enabled\": true}" },
    { "ZeRO and offload", "zero_optimization",
      "\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}, \"states\": \"compact\"}" },
    { "Activations and memory", "activation_checkpointing|memory",
      "\"memory\": {\"device\": \"20GiB\"}, \"activation_checkpointing\": {\"mode\": \"recompute\"}" },
    { "Checkpoints and results", "checkpoint|save|save_best|save_dtype|save_shard_size|hashes|load|debug",
      "\"checkpoint\": {\"path\": \"runs/a\", \"every\": 500}, \"save\": \"model.safetensors\"" },
    { "Monitors", "tensorboard|csv_monitor|wandb|comet",
      "\"tensorboard\": {\"enabled\": true, \"output_path\": \"logs\", \"job_name\": \"a\"}" },
};

static const struct chapter *chapter_of(const char *key)
{
    char section[64];
    snprintf(section, sizeof section, "%.*s", (int)strcspn(key, "."), key);
    for (size_t i = 0; i < sizeof chapters / sizeof chapters[0]; i++)
        if (sl_config_listed(chapters[i].sections, section)) return &chapters[i];
    return NULL;
}

bool sl_config_has_chapter(const char *key)
{
    return chapter_of(key) != NULL;
}

bool sluice_setting_at(int index, sluice_setting *out)
{
    if (out == NULL || index < 0 || (size_t)index >= sl_config_row_count) return false;
    const sl_option *row = &sl_config_rows[index];
    const struct chapter *chapter = row->fate == SL_KEY_HONOURED ? chapter_of(row->key) : NULL;
    *out = (sluice_setting){ .key = row->key,
                             .type = type_words[row->type],
                             .fallback = row->fallback,
                             .help = meaning(row),
                             .choices = row->choices,
                             .chapter = chapter != NULL ? chapter->title : NULL,
                             .example = chapter != NULL ? chapter->example : NULL,
                             .effect = fate_words[row->fate],
                             .automatic = row->auto_ok || strcmp(row->fallback, "auto") == 0,
                             .path = row->file != SL_FILE_NONE };
    return true;
}

/* Which parameters each type has, and its own defaults. */
static void print_markdown_family(const sl_config_family *family, FILE *out)
{
    fprintf(out, "\n### Parameters by %s type\n\n| type | `%s.params` | defaults of its own |\n|---|---|---|\n",
            family->section, family->section);
    for (int i = 0; i < family->kind_count; i++) {
        const sl_config_kind *kind = &family->kinds[i];
        fprintf(out, "| `%s` | ", kind->name);
        for (const char *p = kind->params; *p != '\0'; p++) fputs(*p == '|' ? ", " : (char[]){ *p, '\0' }, out);
        fputs(" | ", out);
        for (const char *p = kind->defaults; *p != '\0'; p++) fputs(*p == '|' ? ", " : (char[]){ *p, '\0' }, out);
        fputs(" |\n", out);
    }
}

/* Names that are no keys, and what the message about them says. */
static void print_markdown_synonyms(FILE *out)
{
    const char *names, *ours, *note;
    fputs("\n## Names in other programs\n\nThey are not keys; the message about them has ours.\n\n"
          "| elsewhere | here |\n|---|---|\n",
          out);
    for (int i = 0; sl_config_synonym(i, &names, &ours, &note); i++) {
        fputs("| `", out);
        for (const char *p = names; *p != '\0'; p++) fputs(*p == '|' ? "`, `" : (char[]){ *p, '\0' }, out);
        fputs("` | ", out);
        if (ours != NULL) fprintf(out, "`%s`%s", ours, note != NULL ? ": " : "");
        fprintf(out, "%s |\n", note != NULL ? note : "");
    }
}

static void print_markdown(FILE *out)
{
    fputs(
        "# Configuration\n\n"
        "A configuration is one JSON object: DeepSpeed's file with sections for the model and the data. This page is "
        "made by\n"
        "`sluice config --markdown` from the table that the parser itself uses.\n\n"
        "- A dot in a key below is a nested object: `optimizer.params.lr` is `{\"optimizer\": {\"params\": {\"lr\": "
        "...}}}`.\n"
        "- `--set key=value` assigns after the file is read. The value is JSON, or a plain word taken as text.\n"
        "- `\"auto\"` may stand for every key whose default is `auto`, and for DeepSpeed's keys, where it means the "
        "default.\n"
        "- A size is a number of bytes, or text such as `\"20GiB\"` (KiB, MiB, GiB, TiB; of 1,000: kB, MB, GB, TB).\n"
        "- An unknown key, a wrong type and a value out of range are errors that name the file, the line and the key.\n"
        "- `train_batch_size` = `train_micro_batch_size_per_gpu` x `gradient_accumulation_steps` x ranks. Give any "
        "two, or one of the\n"
        "  two sizes; the rest follows.\n"
        "- `sluice config FILE` prints every effective value.\n"
        "- Keys without effect are noted in one line, and `--notes` says why for each. A value that Hugging Face's "
        "Trainer "
        "would fill in for\n"
        "  `\"auto\"` is told with what was taken instead, unless that is the Trainer's default too.\n"
        "- A key that begins with an underscore is a comment.\n\n",
        out);
    for (size_t i = 0; i < sizeof chapters / sizeof chapters[0]; i++) {
        fprintf(out, "## %s\n\n    %s\n\n", chapters[i].title, chapters[i].example);
        print_markdown_table(true, chapters[i].sections, out);
        if (!sl_config_listed(chapters[i].sections, "optimizer")) {
            fputc('\n', out);
            continue;
        }
        print_markdown_family(&sl_config_optimizers, out);
        print_markdown_family(&sl_config_schedules, out);
        fputc('\n', out);
    }
    fputs("## Further keys of DeepSpeed\n\n"
          "They are accepted, so that a DeepSpeed configuration can be used as it is. One that has no effect here is "
          "noted when the run\n"
          "starts; one that cannot be ignored without changing the result, or that asks for something missing, is "
          "refused.\n\n",
          out);
    print_markdown_table(false, NULL, out);
    print_markdown_synonyms(out);
}

void sluice_config_help(FILE *out, bool markdown)
{
    if (out == NULL) return;
    if (markdown)
        print_markdown(out);
    else
        print_help(out);
}
