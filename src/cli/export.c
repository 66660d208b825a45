/* export.c: sluice export: the weights of a checkpoint as safetensors, whole or in shards. */
#include "cli/cli.h"

int cli_export(const cli_arguments *a)
{
    uint64_t shard = a->shard_size > 0 ? (uint64_t)a->shard_size : 0;
    if (a->out == NULL) return cli_usage("export: --out FILE is missing");
    return cli_report(sluice_export(a->operand, a->out, shard, a->quiet ? NULL : stdout));
}
