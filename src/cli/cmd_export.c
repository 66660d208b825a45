/* cmd_export.c: sluice export: the weights of a checkpoint as safetensors, whole or in shards. */
#include "cli/cli.h"

int cli_export(const cli_arguments *a)
{
    uint64_t shard = a->shard_size > 0 ? (uint64_t)a->shard_size : 0;
    sluice_dtype type = SLUICE_F32;
    char best[4096];
    if (a->out == NULL) return cli_usage("export: --out FILE is missing");
    if (a->dtype != NULL && !cli_float_type(a->dtype, &type))
        return cli_usage("export: --dtype: \"%.40s\" is not one of fp32, bf16, fp16", a->dtype);
    if (a->best && snprintf(best, sizeof best, "%s/best", a->operand) >= (int)sizeof best)
        return cli_usage("export: the path of the checkpoints is too long");
    cli_catch_signals();
    return cli_report(sluice_export_until(cli_stop_flag(), a->best ? best : a->operand, a->out, type, shard,
                                          a->quiet ? NULL : stdout));
}
