/* cmd_export.c: sluice export: the weights of a checkpoint as safetensors, whole or in shards. */
#include <string.h>

#include "cli/cli.h"

static bool read_type(const char *name, sluice_dtype *out)
{
    static const struct {
        const char *name;
        sluice_dtype type;
    } types[] = { { "fp32", SLUICE_F32 }, { "bf16", SLUICE_BF16 }, { "fp16", SLUICE_F16 } };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(name, types[i].name) == 0) {
            *out = types[i].type;
            return true;
        }
    return false;
}

int cli_export(const cli_arguments *a)
{
    uint64_t shard = a->shard_size > 0 ? (uint64_t)a->shard_size : 0;
    sluice_dtype type = SLUICE_F32;
    if (a->out == NULL) return cli_usage("export: --out FILE is missing");
    if (a->dtype != NULL && !read_type(a->dtype, &type))
        return cli_usage("export: --dtype: \"%.40s\" is not one of fp32, bf16, fp16", a->dtype);
    return cli_report(sluice_export(a->operand, a->out, type, shard, a->quiet ? NULL : stdout));
}
