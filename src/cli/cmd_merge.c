/* cmd_merge.c: sluice merge: a base model's folder and an adapter's folder become one folder. */
#include "cli/cli.h"

/* What other programs write by default. */
#define SHARD_BYTES 5000000000u

int cli_merge(const cli_arguments *a)
{
    sluice_dtype type = SLUICE_I32; /* the base's */
    if (a->out == NULL) return cli_usage("merge: --out FOLDER is missing");
    if (a->operand_count > 1) return cli_usage("merge: unexpected argument \"%s\"", a->operands[1]);
    if (a->dtype != NULL && !cli_float_type(a->dtype, &type))
        return cli_usage("merge: --dtype: \"%.40s\" is not one of fp32, bf16, fp16", a->dtype);
    uint64_t shard = a->shard_size > 0 ? (uint64_t)a->shard_size : SHARD_BYTES;
    cli_catch_signals();
    return cli_report(
        sluice_merge_until(cli_stop_flag(), a->operand, a->operands[0], a->out, type, shard, a->quiet ? NULL : stdout));
}
