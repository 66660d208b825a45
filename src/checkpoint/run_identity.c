/* run_identity.c: compares identities line by line. */
#include "checkpoint/run_identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "ir/graph.h"

static const char *next_line(const char *line)
{
    size_t length = strcspn(line, "\n");
    return line + length + (line[length] == '\n');
}

/* The line of `lines` that begins with `key` and ": "; NULL: there is none. */
static const char *find_line(const char *lines, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = lines; *line != '\0'; line = next_line(line))
        if (strncmp(line, key, length) == 0 && strncmp(line + length, ": ", 2) == 0) return line;
    return NULL;
}

/* Versions that kept no lines had these fields, each "" or 0 where an even older one did not know it. */
static void write_old_lines(const sl_checkpoint_meta *m, char *out, size_t bytes)
{
    bool typed = m->precision[0] != '\0';
    size_t used = (size_t)snprintf(out, bytes, "seed: %llu\n", (unsigned long long)m->seed);
    if (m->optimizer[0] != '\0')
        used += (size_t)snprintf(out + used, bytes - used, "optimizer.type: \"%s\"\n", m->optimizer);
    if (m->micro_batch != 0)
        used += (size_t)snprintf(out + used, bytes - used, SL_IDENTITY_SAMPLES ": %llu\n" SL_IDENTITY_MICRO ": %llu\n",
                                 (unsigned long long)m->micro_batch, (unsigned long long)m->global_micro_batches);
    snprintf(out + used, bytes - used,
             "fp16.enabled: %s\nbf16.enabled: %s\ncommunication_data_type: \"%s\"\nzero_optimization.states: \"%s\"\n",
             strcmp(m->precision, "fp16") == 0 ? "true" : "false", strcmp(m->precision, "bf16") == 0 ? "true" : "false",
             typed ? m->wire : "fp32", typed ? m->states : "fp32");
}

uint64_t sl_identity_samples(const sl_checkpoint_meta *there)
{
    const char *line = find_line(there->identity, SL_IDENTITY_SAMPLES);
    return line != NULL ? strtoull(line + strlen(SL_IDENTITY_SAMPLES ": "), NULL, 10) : there->micro_batch;
}

bool sl_identity_same_model(const sl_identity *here, const sl_checkpoint_meta *there)
{
    const char *mine = there->identity[0] != '\0' ? here->model_sha256 : here->old_model_sha256;
    return strcmp(mine, there->model_sha256) == 0;
}

/* A line that a side lacks of an attribute, "attention.window", which is not written where no node of the op has it: its value
 * there, "0". NULL: the key is none, or the side has no such op or is of a version that knew nothing of it. */
static const char *unwritten(const char *lines, const char *key)
{
    const char *dot = strchr(key, '.');
    for (const char *line = lines; dot != NULL && *line != '\0'; line = next_line(line))
        if (strncmp(line, key, (size_t)(dot + 1 - key)) == 0) return sl_attribute_unset(key);
    return NULL;
}

static size_t key_length(const char *line)
{
    size_t length = strcspn(line, "\n"), key = 0;
    while (key + 1 < length && strncmp(line + key, ": ", 2) != 0) key++;
    return key;
}

static sluice_status refuse(const char *key, const char *here, size_t here_length, const char *there,
                            size_t there_length)
{
    return sl_fail(SLUICE_ERR_USAGE,
                   "%s is %.*s, the checkpoint was made with %.*s: a resumed run must keep it (docs/resume.md lists "
                   "what may change)",
                   key, (int)here_length, here, (int)there_length, there);
}

/* One line of a side beside what the other says; `mine`: it is of the run that resumes. */
static sluice_status compare_line(const sl_identity *here, const char *line, const char *others, bool same_model,
                                  bool mine)
{
    char key[256];
    size_t length = key_length(line);
    if (length >= sizeof key) return SLUICE_OK;
    snprintf(key, sizeof key, "%.*s", (int)length, line);
    const char *value = line + length + 2, *found = find_line(others, key);
    const char *other = found != NULL ? found + length + 2 : same_model ? NULL : unwritten(others, key);
    if (other == NULL) return SLUICE_OK;
    size_t bytes = strcspn(value, "\n"), other_bytes = strcspn(other, "\n");
    if (bytes == other_bytes && memcmp(value, other, bytes) == 0) return SLUICE_OK;
    if (same_model && here->is_model != NULL && here->is_model(key)) return SLUICE_OK;
    return mine ? refuse(key, value, bytes, other, other_bytes) : refuse(key, other, other_bytes, value, bytes);
}

sluice_status sl_identity_check_lines(const sl_identity *here, const sl_checkpoint_meta *there)
{
    char old[512];
    const char *lines = there->identity;
    bool same_model = sl_identity_same_model(here, there);
    if (lines[0] == '\0') {
        write_old_lines(there, old, sizeof old);
        lines = old;
    }
    for (const char *line = lines; *line != '\0'; line = next_line(line))
        SL_TRY(compare_line(here, line, here->lines, same_model, false));
    /* what only this run says: attributes that the checkpoint's model does without */
    for (const char *line = here->lines; *line != '\0'; line = next_line(line))
        SL_TRY(compare_line(here, line, lines, same_model, true));
    return SLUICE_OK;
}
