/* run_network.c: run_network FOLDER STEPS OUT: logits of the network in FOLDER (support/network_run.h), the losses of so many
 * steps of training, and logits again, as raw little-endian numbers on standard output: floats, doubles, floats. The weights
 * before the steps go to OUT/first.safetensors, those after them to OUT/last.safetensors. */
#include <stdio.h>

#include "support/network_run.h"

enum { MOST_STEPS = 100 };

static sluice_status save(network_run *r, const char *folder, const char *name)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, name);
    return sluice_save(r->e, path);
}

static sluice_status tell_logits(network_run *r, float *logits)
{
    SL_TRY(network_predict(r, logits));
    fwrite(logits, sizeof *logits, (size_t)r->output_count, stdout);
    return SLUICE_OK;
}

static sluice_status run(network_run *r, int steps, const char *out)
{
    double losses[MOST_STEPS];
    sluice_options o;
    network_options(r, &o);
    SL_TRY(network_start(r, &o));
    float *logits = malloc((size_t)r->output_count * sizeof *logits);
    if (logits == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = save(r, out, "first");
    if (st == SLUICE_OK) st = tell_logits(r, logits);
    if (st == SLUICE_OK) st = network_train(r, steps, losses);
    if (st == SLUICE_OK) fwrite(losses, sizeof losses[0], (size_t)steps, stdout);
    if (st == SLUICE_OK) st = tell_logits(r, logits);
    free(logits);
    return st == SLUICE_OK ? save(r, out, "last") : st;
}

int main(int argc, char **argv)
{
    network_run r;
    int steps = argc == 4 ? atoi(argv[2]) : -1;
    if (steps < 0 || steps > MOST_STEPS) return 2;
    sluice_status st = network_open(&r, argv[1]);
    if (st == SLUICE_OK) st = run(&r, steps, argv[3]);
    if (st != SLUICE_OK) fprintf(stderr, "%s\n", sluice_error());
    network_close(&r);
    return st == SLUICE_OK ? 0 : 1;
}
