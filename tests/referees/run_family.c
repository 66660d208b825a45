/* run_family.c: run_family FOLDER BATCH CONTEXT STEPS PACKED [ADAPTER OUT]: logits of the first made batch (support/folder_run.h), then the
 * losses of so many steps of training, as raw little-endian numbers on standard output: floats, then doubles. */
#include <stdio.h>

#include "support/folder_run.h"

static int fail(void)
{
    fprintf(stderr, "%s\n", sluice_error());
    return 1;
}

int main(int argc, char **argv)
{
    double losses[100];
    char sha256[65];
    float *logits;
    sluice_options o;
    if (argc != 6 && argc != 8) return 2;
    folder_run r = {
        .folder = argv[1], .batch = atoi(argv[2]), .context = atoi(argv[3]), .packed = atoi(argv[5]) != 0
    };
    if (argc == 8) r.adapter = argv[6], r.out = argv[7];
    int steps = atoi(argv[4]);
    if (steps < 0 || steps > 100 || folder_run_open(&r) != SLUICE_OK || folder_logits(&r, &logits) != SLUICE_OK)
        return fail();
    fwrite(logits, sizeof *logits, (size_t)(r.batch * r.context * r.vocabulary), stdout);
    free(logits);
    folder_options(&o);
    if (folder_train(&r, &o, steps, losses, sha256) != SLUICE_OK) return fail();
    fwrite(losses, sizeof losses[0], (size_t)steps, stdout);
    folder_run_close(&r);
    return 0;
}
