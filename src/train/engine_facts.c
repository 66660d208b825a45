/* engine_facts.c: what an engine is, in a form that can be compared: between ranks before the first step, and with a
 * checkpoint. */
#include <stdlib.h>
#include <string.h>

#include "core/sha256.h"
#include "train/engine.h"

void sl_engine_write_facts(const sluice_engine *e, const sl_engine_options *o, sl_text *out)
{
    char kernels[32], *settings = NULL;
    size_t bytes = 0;
    sl_text_add(out, "sluice version: %s\ninstruction path: %s\nkernels: %s\n", sluice_version(), sl_isa_name(e->isa),
                sl_device_kernels(&e->device, e->isa, kernels, sizeof kernels));
    sl_text_add(out, "backend: %s\nmodel: %s\n", o->settings->device.null_backend ? "null" : e->device.backend->name,
                e->identity.model_sha256);
    for (int i = 0; o->settings->plan.partition_weights != NULL && i < e->ranks->count; i++)
        sl_text_add(out, "partition weight %d: %.17g\n", i, o->settings->plan.partition_weights[i]);
    FILE *lines = open_memstream(&settings, &bytes);
    if (lines != NULL) sl_settings_write(o->settings, lines);
    if (lines != NULL && fclose(lines) == 0) sl_text_add_bytes(out, settings, bytes);
    free(settings);
}

/* CPU paths have the same bits, but for GEMMs in bf16 on AMX tiles. */
bool sl_engine_has_kernels(const sluice_engine *e, const char *there)
{
    char here[64];
    sl_device_kernels(&e->device, e->isa, here, sizeof here);
    if (there[0] == '\0' || strcmp(here, there) == 0) return true; /* early checkpoints do not say */
    const char *number = strrchr(here, '-'), *other = strrchr(there, '-');
    bool on_cpu = strncmp(here, "cpu-", 4) == 0 && strncmp(there, "cpu-", 4) == 0;
    bool tiles = (strstr(here, "amx") != NULL) != (strstr(there, "amx") != NULL);
    return on_cpu && other != NULL && strcmp(number, other) == 0 && !(tiles && e->graph->precision == SLUICE_BF16);
}

/* What decides the order and the sizes of collectives. */
void sl_plan_write_facts(const sl_plan *p, sl_text *out)
{
    sl_sha256 places, order;
    uint8_t digest[32];
    char hex[65];
    int collectives = 0;
    sl_sha256_init(&places);
    sl_sha256_init(&order);
    for (int i = 0; i < p->graph->layer_count; i++) {
        const sl_layer_place *q = &p->layers[i];
        int place[4] = { (int)q->parameters, (int)q->state, (int)q->activations, q->level };
        sl_sha256_update(&places, place, sizeof place);
    }
    for (int i = 0; i < p->step_count; i++) {
        const sl_step *s = &p->steps[i];
        int what[2] = { (int)s->kind, s->layer };
        if (s->stream != SL_STREAM_COMM) continue;
        sl_sha256_update(&order, what, sizeof what);
        collectives++;
    }
    sl_text_add(out, "layers: %d\nlevels: %d\ncollectives: %d\n", p->graph->layer_count, p->level_count, collectives);
    sl_sha256_final(&places, digest);
    sl_sha256_hex(digest, hex);
    sl_text_add(out, "placement: %.16s\n", hex);
    sl_sha256_final(&order, digest);
    sl_sha256_hex(digest, hex);
    sl_text_add(out, "order of collectives: %.16s\n", hex);
}
