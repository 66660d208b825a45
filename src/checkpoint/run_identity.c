/* run_identity.c: compares identities line by line. */
#include "checkpoint/run_identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"

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

sluice_status sl_identity_check_lines(const sl_identity *here, const sl_checkpoint_meta *there)
{
    char old[512], key[256];
    const char *lines = there->identity;
    bool same_model = sl_identity_same_model(here, there);
    if (lines[0] == '\0') {
        write_old_lines(there, old, sizeof old);
        lines = old;
    }
    for (const char *line = lines; *line != '\0'; line = next_line(line)) {
        size_t length = strcspn(line, "\n"), key_length = 0;
        while (key_length + 1 < length && strncmp(line + key_length, ": ", 2) != 0) key_length++;
        if (key_length >= sizeof key) continue;
        snprintf(key, sizeof key, "%.*s", (int)key_length, line);
        const char *mine = find_line(here->lines, key);
        size_t mine_length = mine != NULL ? strcspn(mine, "\n") : 0, value = key_length + 2;
        if (mine == NULL || (mine_length == length && memcmp(mine, line, length) == 0)) continue;
        if (same_model && here->is_model != NULL && here->is_model(key)) continue;
        return sl_fail(
            SLUICE_ERR_USAGE,
            "%s is %.*s, the checkpoint was made with %.*s: a resumed run must keep it (docs/resume.md lists "
            "what may change)",
            key, (int)(mine_length - value), mine + value, (int)(length - value), line + value);
    }
    return SLUICE_OK;
}
