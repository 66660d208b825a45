/* own_model_ranks.c: the model of own_model.c on several ranks. `own_model_ranks RANKS STAGE` starts RANKS processes
 * that divide each batch of 12 between them and keep what the ZeRO stage says: 0 everything, 1 their part of the
 * optimizer's state, 2 of the gradients too, 3 of the parameters too. It prints a hash of the weights, the same for any
 * RANKS that divides 12 and any STAGE. Build: cc own_model_ranks.c -lsluice -lm */
#include <sluice.h>
#include <stdlib.h>

enum { SAMPLES = 120, FEATURES = 10, MICRO_BATCHES = 12, STEPS = 100 };

static float x[SAMPLES][FEATURES], y[SAMPLES];

static sluice_status build(sluice_graph *g)
{
    sluice_value in = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 1, FEATURES }); /* a micro-batch is one sample */
    sluice_value target = sluice_input(g, "y", SLUICE_F32, 2, (int64_t[]){ 1, 1 });
    sluice_value hidden = sluice_linear(g, sluice_linear(g, in, 5, "fc1"), 3, "fc2");
    sluice_set_loss(g, sluice_mse(g, sluice_linear(g, hidden, 1, "fc3"), target));
    return sluice_graph_check(g);
}

/* Runs in every rank's process, with the same arguments. The engine hands each rank its part of the data. */
static sluice_status train(void *stage, sluice_world *world)
{
    char weights[65], state[65];
    double loss = 0;
    sluice_graph *g;
    sluice_engine *e;
    sluice_data *data;
    sluice_options options;
    sluice_options_init(&options);
    options.world = world;
    options.stage = *(int *)stage;
    options.accumulation_steps = MICRO_BATCHES / sluice_world_size(world);
    sluice_array arrays[] = { { "x", x, sizeof x }, { "y", y, sizeof y } };
    sluice_status st = sluice_graph_create(&g); /* the process ends after a failure: nothing need be freed */
    if (st == SLUICE_OK) st = build(g);
    if (st == SLUICE_OK) st = sluice_engine_create(g, &options, &e);
    if (st == SLUICE_OK) st = sluice_data_from_arrays(arrays, 2, SAMPLES, true, 1, &data);
    if (st == SLUICE_OK) st = sluice_fit(e, data, STEPS, &loss);
    if (st == SLUICE_OK) st = sluice_hash(e, weights, state);
    if (st == SLUICE_OK && sluice_world_rank(world) == 0) printf("loss %.6f, weights %s\n", loss, weights);
    return st;
}

int main(int argc, char **argv)
{
    int stage = argc > 2 ? atoi(argv[2]) : 0;
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = argc > 1 ? atoi(argv[1]) : 1;
    for (int i = 0; i < SAMPLES * FEATURES; i++) x[i / FEATURES][i % FEATURES] = (float)rand() / (float)RAND_MAX;
    for (int i = 0; i < SAMPLES; i++) y[i] = x[i][0] - 2 * x[i][1];
    sluice_status st = sluice_launch(&o, train, &stage);
    if (st != SLUICE_OK) fprintf(stderr, "own_model_ranks: %s\n", sluice_error());
    return sluice_exit_status(st);
}
