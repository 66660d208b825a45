/* sequence_parity_test.c: twenty steps of small models with GRU and CTC loss, binary cross entropy, log-softmax and label
 * smoothing give the losses and gradient norms that PyTorch gives. tests/parity/README.md describes the cases. */
#include "ir/graph.h"
#include "model/model.h"
#include "support/parity.h"

/* As record_sequences.py: numbers of a name in [-scale / 2, scale / 2). */
static void fill_values(const char *name, double scale, double shift, float *out, int64_t count)
{
    uint32_t state = fnv1a(name);
    for (int64_t i = 0; i < count; i++) {
        state = lcg(state);
        out[i] = (float)((state >> 8) / 16777216.0 - 0.5) * (float)scale + (float)shift;
    }
}

enum { MOST_VALUES = 512 };

typedef struct parity_model {
    sluice_graph *g;
    float floats[3][MOST_VALUES]; /* inputs x, target, weight */
    sluice_array arrays[4];
    int inputs;
} parity_model;

static sluice_value float_input(parity_model *m, const char *name, double scale, double shift, int rank,
                                const int64_t *dims)
{
    float *data = m->floats[m->inputs];
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= dims[i];
    fill_values(name, scale, shift, data, count);
    m->arrays[m->inputs++] = (sluice_array){ name, data, (size_t)count * sizeof *data };
    return sluice_input(m->g, name, SLUICE_F32, rank, dims);
}

static sluice_value index_input(parity_model *m, const char *name, const int32_t *data, int rank, const int64_t *dims)
{
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= dims[i];
    m->arrays[m->inputs++] = (sluice_array){ name, data, (size_t)count * sizeof *data };
    return sluice_input(m->g, name, SLUICE_I32, rank, dims);
}

static const sluice_init zero = { SLUICE_INIT_ZERO, 0 };

/* ---- the models ---- */

static sluice_value recurrent(parity_model *m, sluice_value x, sluice_value lengths, const char *direction)
{
    char name[32];
    snprintf(name, sizeof name, "%s.ih", direction);
    sluice_value gates = sluice_linear(m->g, x, 24, name);
    snprintf(name, sizeof name, "%s.hh.weight", direction);
    sluice_value weight = sluice_parameter(m->g, name, 2, (int64_t[]){ 24, 8 }, zero);
    snprintf(name, sizeof name, "%s.hh.bias", direction);
    sluice_value bias = sluice_parameter(m->g, name, 1, (int64_t[]){ 24 }, zero);
    return sluice_gru(m->g, gates, weight, bias, lengths, strcmp(direction, "b") == 0);
}

static sluice_value build_speech(parity_model *m)
{
    static const int32_t frames[] = { 20, 15, 9 };
    static const int32_t words[] = { 1, 2, 2, 3, -1, 4, 5, 6, 6, 1, 3, -1, -1, -1, -1 };
    sluice_value x = float_input(m, "x", 4, 0, 3, (int64_t[]){ 3, 20, 6 });
    sluice_value lengths = index_input(m, "lengths", frames, 1, (int64_t[]){ 3 });
    sluice_value labels = index_input(m, "labels", words, 2, (int64_t[]){ 3, 5 });
    sluice_value h[] = { recurrent(m, x, lengths, "f"), recurrent(m, x, lengths, "b") };
    sluice_value logits = sluice_linear(m->g, sluice_concat(m->g, h, 2, 2), 7, "head");
    return sluice_ctc_loss(m->g, logits, labels, lengths, 0, false);
}

/* What model.type speech builds. */
static sluice_value build_recogniser(parity_model *m)
{
    static const int32_t frames[] = { 12, 7 }, words[] = { 1, 2, 2, 3, 4, 5, 6, -1, -1, -1 };
    const sl_model_options o = { .type = "speech",
                                 .batch = 2,
                                 .speech = { .rows = 24, .bands = 10, .labels = 5 },
                                 .filters = { 3, 4 },
                                 .filter_count = 2,
                                 .frame_stride = 2,
                                 .layers = 2,
                                 .width = 5,
                                 .outputs = 7 };
    sl_model_info info;
    if (sl_model_build(m->g, &o, &info) != SLUICE_OK) return SLUICE_NONE;
    fill_values("x", 4, 0, m->floats[0], 480);
    m->arrays[0] = (sluice_array){ "x", m->floats[0], 480 * sizeof(float) };
    m->arrays[1] = (sluice_array){ "lengths", frames, sizeof frames };
    m->arrays[2] = (sluice_array){ "labels", words, sizeof words };
    m->inputs = 3;
    return m->g->loss;
}

static sluice_value build_labels(parity_model *m)
{
    const int64_t shape[] = { 16, 3 };
    sluice_value x = float_input(m, "x", 4, 0, 2, (int64_t[]){ 16, 5 });
    sluice_value target = float_input(m, "target", 1, 0.5, 2, shape), weight = float_input(m, "weight", 2, 1, 2, shape);
    sluice_value y = sluice_linear(m->g, sluice_tanh(m->g, sluice_linear(m->g, x, 8, "fc1")), 3, "fc2");
    return sluice_bce_with_logits(m->g, y, target, weight);
}

static sluice_value class_targets(parity_model *m)
{
    static int32_t classes[12];
    for (int i = 0; i < 12; i++) classes[i] = i % 4 == 3 ? -100 : i % 10;
    return index_input(m, "target", classes, 1, (int64_t[]){ 12 });
}

static sluice_value build_smoothed(parity_model *m)
{
    sluice_value x = float_input(m, "x", 4, 0, 2, (int64_t[]){ 12, 6 }), target = class_targets(m);
    sluice_value y = sluice_log_softmax(m->g, sluice_linear(m->g, x, 10, "fc1"));
    return sluice_cross_entropy_smoothed(m->g, y, target, -100, 0, 0.1f);
}

static sluice_value build_fused(parity_model *m)
{
    sluice_value x = float_input(m, "x", 4, 0, 2, (int64_t[]){ 12, 6 }), target = class_targets(m);
    sluice_value y = sluice_tanh(m->g, sluice_linear(m->g, x, 5, "fc1"));
    sluice_value head = sluice_parameter(m->g, "head", 2, (int64_t[]){ 10, 5 }, zero);
    return sluice_linear_cross_entropy_smoothed(m->g, y, head, target, -100, 0, 0.25f);
}

/* ---- the comparison ---- */

static void set_weights(sluice_engine *e, const sluice_graph *g)
{
    for (int i = 0; i < g->parameter_count; i++) {
        const sl_parameter *p = &g->parameters[i];
        float data[MOST_VALUES];
        REQUIRE(p->count <= MOST_VALUES);
        fill_values(p->name, 1, 0, data, p->count);
        REQUIRE_OK(sluice_set_parameter(e, p->name, data, (size_t)p->count * sizeof *data));
    }
}

/* `tolerance`: of losses; of norms ten times that. */
static void follow(const char *name, sluice_value (*build)(parity_model *m), sluice_options *o, double tolerance)
{
    json_t *all = json_load_file(SLUICE_SOURCE_DIR "/tests/parity/sequence_losses.json", 0, NULL);
    const json_t *record = json_object_get(all, name), *losses = json_object_get(record, "losses");
    const json_t *norms = json_object_get(record, "gradient_norms");
    parity_model m = { .g = NULL };
    sluice_engine *e;
    REQUIRE(json_array_size(losses) == 20 && json_array_size(norms) == 20);
    REQUIRE_OK(sluice_graph_create(&m.g));
    sluice_set_loss(m.g, build(&m));
    sluice_optimizer_init(&o->optimizer, SLUICE_SGD);
    o->optimizer.lr = json_real_value(json_object_get(record, "lr"));
    o->device_bytes = o->host_bytes = (uint64_t)64 << 20;
    REQUIRE_OK(sluice_engine_create(m.g, o, &e));
    set_weights(e, m.g);
    for (size_t step = 0; step < 20; step++) {
        const sluice_batch batch = { m.arrays, m.inputs };
        double loss, expected = json_real_value(json_array_get(losses, step));
        double norm = json_real_value(json_array_get(norms, step));
        REQUIRE_OK(sluice_train_step(e, &batch, &loss));
        CHECK_NEAR(loss, expected, tolerance * expected);
        CHECK_NEAR(sluice_gradient_norm(e), norm, 10 * tolerance * norm);
    }
    sluice_engine_destroy(e);
    sluice_graph_destroy(m.g);
    json_decref(all);
}

static const struct {
    const char *name;
    sluice_value (*build)(parity_model *m);
} models[] = { { "speech", build_speech },
               { "recogniser", build_recogniser },
               { "labels", build_labels },
               { "smoothed", build_smoothed },
               { "fused", build_fused } };

TEST(models_of_sequences_and_labels_follow_pytorch_for_twenty_steps)
{
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        sluice_options o;
        sluice_options_init(&o);
        follow(models[i].name, models[i].build, &o, 1e-5);
    }
}

TEST(models_of_sequences_and_labels_follow_pytorch_offloaded_and_recomputed)
{
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        sluice_options o;
        sluice_options_init(&o);
        o.parameters = o.optimizer_state = SLUICE_PLACE_HOST;
        o.activations = SLUICE_ACTIVATIONS_RECOMPUTE;
        follow(models[i].name, models[i].build, &o, 1e-5);
    }
}

/* In bf16 the numbers are others: a few per cent, over steps that halve the loss. */
TEST(models_of_sequences_and_labels_follow_pytorch_in_bf16)
{
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        sluice_options o;
        sluice_options_init(&o);
        o.precision = SLUICE_BF16;
        follow(models[i].name, models[i].build, &o, 0.03);
    }
}
