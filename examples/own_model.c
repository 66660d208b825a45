/* own_model.c: a model of your own, trained step by step. A 10-5-3-1 network without activations learns from 100 random
 * samples in batches of 10. The options alone decide where its state lives: set options.optimizer_state =
 * SLUICE_PLACE_HOST and nothing else changes. Build: cc own_model.c -lsluice -lm */
#include <math.h>
#include <sluice.h>
#include <stdlib.h>

enum { SAMPLES = 100, FEATURES = 10, BATCH = 10, EPOCHS = 10 };

/* Standard normal by Box and Muller. */
static float normal(void)
{
    double u = (rand() + 1.0) / (RAND_MAX + 1.0), v = rand() / (RAND_MAX + 1.0);
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

/* Every failed call leaves its reason in sluice_error(). */
static void check(sluice_status status)
{
    if (status == SLUICE_OK) return;
    fprintf(stderr, "own_model: %s\n", sluice_error());
    exit(sluice_exit_status(status));
}

int main(void)
{
    static float x[SAMPLES][FEATURES], y[SAMPLES];
    for (int i = 0; i < SAMPLES * FEATURES; i++) x[i / FEATURES][i % FEATURES] = normal();
    for (int i = 0; i < SAMPLES; i++) y[i] = normal();

    sluice_graph *g; /* the model: a mistake in any line is reported by sluice_engine_create */
    check(sluice_graph_create(&g));
    sluice_value in = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ BATCH, FEATURES });
    sluice_value target = sluice_input(g, "y", SLUICE_F32, 2, (int64_t[]){ BATCH, 1 });
    sluice_value hidden = sluice_linear(g, sluice_linear(g, in, 5, "fc1"), 3, "fc2");
    sluice_set_loss(g, sluice_mse(g, sluice_linear(g, hidden, 1, "fc3"), target));

    sluice_options options; /* how to train it, and with how much memory */
    sluice_options_init(&options);
    sluice_optimizer_init(&options.optimizer, SLUICE_SGD);
    options.optimizer.lr = 0.001;
    sluice_engine *e;
    check(sluice_engine_create(g, &options, &e));

    double loss = 0;
    for (int step = 0; step < EPOCHS * SAMPLES / BATCH; step++) {
        int first = step * BATCH % SAMPLES;
        sluice_array arrays[] = { { "x", x[first], sizeof x[0] * BATCH }, { "y", &y[first], sizeof y[0] * BATCH } };
        check(sluice_forward(e, &(sluice_batch){ arrays, 2 }, &loss));
        check(sluice_backward(e));
        check(sluice_step(e));
        if ((step + 1) % 10 == 0) printf("step %3d  loss %.6f\n", step + 1, loss);
    }
    check(sluice_save(e, "own_model.safetensors"));
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return 0;
}
