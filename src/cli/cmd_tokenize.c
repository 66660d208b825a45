/* cmd_tokenize.c: sluice tokenize: texts become a file of token ids, or are shown as tokens. */
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

enum { PATH_BYTES = 4096 };

/* How far it is, drawn over on a terminal. */
static void draw_progress(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    if (total > 0)
        fprintf(stderr, "\r%5.1f %% of %.1f MB ", 100.0 * (double)done / (double)total, (double)total / 1e6);
    else
        fprintf(stderr, "\r%.1f MB ", (double)done / 1e6);
    if (done == total) fputc('\r', stderr);
    fflush(stderr);
}

static bool read_type(const char *name, int *bytes)
{
    *bytes = 0;
    if (name == NULL) return true;
    if (strcmp(name, "uint16") == 0) *bytes = 2;
    if (strcmp(name, "uint32") == 0) *bytes = 4;
    return *bytes != 0;
}

/* data.bin -> data.validation.bin */
static bool name_validation(const char *path, char out[PATH_BYTES])
{
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1, *dot = strrchr(name, '.');
    size_t stem = dot == NULL || dot == name ? strlen(path) : (size_t)(dot - path);
    return snprintf(out, PATH_BYTES, "%.*s.validation%s", (int)stem, path, path + stem) < PATH_BYTES;
}

int cli_tokenize(const cli_arguments *a)
{
    char validation[PATH_BYTES];
    sluice_tokenize_options o;
    sluice_tokenize_options_init(&o);
    o.inputs = (const char *const *)a->operands;
    o.input_count = a->operand_count;
    o.standard_input = stdin;
    o.out = a->out;
    o.validation = a->validation > 0 ? a->validation : 0;
    o.validation_out = a->validation_out;
    o.llmc_header = a->llmc;
    o.lines = a->lines;
    o.eos = a->eos;
    o.special_in_text = a->special_tokens;
    o.add_special = a->add_special;
    o.threads = a->threads > 0 ? (int)a->threads : 0;
    o.stop = cli_stop_flag();
    if (!read_type(a->dtype, &o.token_bytes))
        return cli_usage("tokenize: --token-type: \"%.40s\" is not one of uint16, uint32", a->dtype);
    if (o.validation > 0 && a->out == NULL) return cli_usage("tokenize: --validation needs --out");
    if (o.validation >= 1) return cli_usage("tokenize: --validation: %g is not below 1", o.validation);
    if (o.validation > 0 && o.validation_out == NULL) {
        if (!name_validation(a->out, validation)) return cli_usage("tokenize: --out: the path is too long");
        o.validation_out = validation;
    }
    if (a->out != NULL && !a->quiet && isatty(STDERR_FILENO)) o.progress = draw_progress;
    cli_catch_signals();
    return cli_report(sluice_tokenize(a->operand, &o, a->quiet && a->out != NULL ? NULL : stdout));
}
