/* mlp.c: linear models and multi-layer perceptrons.
 *
 * Inputs "x" [batch, features] and "target": [batch, outputs] f32 under mean squared error and binary cross entropy,
 * [batch] i32 classes under cross entropy. Every linear map is a layer of its own together with the activation after it, so that each can be
 * staged by itself. A linear model is the same without hidden layers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/family.h"

/* Entries of sl_model_options.hidden. */
#define MAX_HIDDEN ((int)(sizeof((sl_model_options *)0)->hidden / sizeof(int64_t)))

static sluice_value gelu_tanh(sluice_graph *g, sluice_value x)
{
    return sluice_gelu(g, x, false);
}

static sluice_value identity(sluice_graph *g, sluice_value x)
{
    (void)g;
    return x;
}

typedef struct activation {
    const char *name;
    sluice_value (*apply)(sluice_graph *g, sluice_value x);
} activation;

static const activation activations[] = {
    { "none", identity },
    { "relu", sluice_relu },
    { "gelu", gelu_tanh },
    { "silu", sluice_silu },
};

static sluice_status find_activation(const char *name, const activation **out)
{
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++)
        if (name == NULL || strcmp(name, activations[i].name) == 0) {
            *out = &activations[i];
            return SLUICE_OK;
        }
    return sl_fail(SLUICE_ERR_USAGE, "model.activation \"%s\" is not known; give none, relu, gelu or silu", name);
}

/* Where the outputs are judged against numbers, how; NULL: they are logits of classes. */
typedef sluice_value (*number_loss)(sluice_graph *g, sluice_value y, sluice_value target);

static sluice_value bce(sluice_graph *g, sluice_value y, sluice_value target)
{
    return sluice_bce_with_logits(g, y, target, SLUICE_NONE);
}

static const struct {
    const char *name;
    number_loss of_numbers;
} losses[] = {
    { "mse", sluice_mse },
    { "bce", bce },
    { "cross_entropy", NULL },
};

static sluice_status find_loss(const sl_model_options *o, number_loss *out)
{
    const char *name = o->loss != NULL ? o->loss : "mse";
    size_t i = 0, count = sizeof losses / sizeof losses[0];
    while (i < count && strcmp(name, losses[i].name) != 0) i++;
    if (i == count)
        return sl_fail(SLUICE_ERR_USAGE, "model.loss \"%s\" is not known; give mse, bce or cross_entropy", name);
    *out = losses[i].of_numbers;
    if (*out != NULL && o->label_smoothing != 0)
        return sl_fail(SLUICE_ERR_USAGE,
                       "model.label_smoothing is %g, and model.loss %s has no classes to smooth; leave it out, or use "
                       "cross_entropy",
                       o->label_smoothing, name);
    return SLUICE_OK;
}

static sluice_status check(const sl_model_options *o, bool classifies)
{
    char key[48];
    SL_TRY(sl_model_check_size("model.features", o->features, SL_MODEL_MAX_SIZE));
    SL_TRY(sl_model_check_size("model.outputs", o->outputs, SL_MODEL_MAX_SIZE));
    if (classifies && o->outputs < 2)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "model.outputs is 1, and model.loss cross_entropy needs at least 2 classes; use mse, or more outputs");
    if (o->hidden_count < 0 || o->hidden_count > MAX_HIDDEN)
        return sl_fail(SLUICE_ERR_USAGE, "model.hidden has %d entries; give at most %d", o->hidden_count, MAX_HIDDEN);
    for (int i = 0; i < o->hidden_count; i++) {
        snprintf(key, sizeof key, "model.hidden[%d]", i);
        SL_TRY(sl_model_check_size(key, o->hidden[i], SL_MODEL_MAX_SIZE));
    }
    return SLUICE_OK;
}

/* y[batch, out] = x[batch, in] W^T (+ b), initialised as PyTorch's Linear. */
static sluice_value linear(sluice_graph *g, sluice_value x, int64_t in, int64_t out, bool bias, const char *name)
{
    char weight[64];
    if (bias) return sluice_linear(g, x, out, name);
    sluice_init init = { SLUICE_INIT_UNIFORM, (float)(1.0 / sqrt((double)in)) };
    snprintf(weight, sizeof weight, "%s.weight", name);
    return sluice_linear_with(g, x, sluice_parameter(g, weight, 2, (int64_t[]){ out, in }, init), SLUICE_NONE, false);
}

static void set_loss(sluice_graph *g, const sl_model_options *o, sluice_value y, number_loss of_numbers)
{
    if (of_numbers == NULL) {
        sluice_value target = sluice_input(g, "target", SLUICE_I32, 1, (int64_t[]){ o->batch });
        sluice_set_loss(g, sluice_cross_entropy_smoothed(g, y, target, -1, 0, (float)o->label_smoothing));
    } else {
        sluice_value target = sluice_input(g, "target", SLUICE_F32, 2, (int64_t[]){ o->batch, o->outputs });
        sluice_set_loss(g, of_numbers(g, y, target));
    }
    sluice_set_output(g, y);
}

sluice_status sl_model_build_mlp(sluice_graph *g, const sl_model_options *o, sl_model_info *info)
{
    const activation *act = NULL;
    number_loss of_numbers;
    char name[32];
    SL_TRY(find_activation(o->activation, &act));
    SL_TRY(find_loss(o, &of_numbers));
    SL_TRY(check(o, of_numbers == NULL));
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ o->batch, o->features });
    int64_t in = o->features;
    for (int i = 0; i <= o->hidden_count; i++) {
        bool last = i == o->hidden_count;
        int64_t out = last ? o->outputs : o->hidden[i];
        snprintf(name, sizeof name, "fc%d", i + 1);
        sluice_layer(g, name);
        x = linear(g, x, in, out, o->bias, name);
        if (!last) x = act->apply(g, x);
        in = out;
    }
    set_loss(g, o, x, of_numbers);
    info->binary = of_numbers == bce;
    info->classifies = of_numbers == NULL || info->binary;
    return SLUICE_OK;
}

sluice_status sl_model_build_linear(sluice_graph *g, const sl_model_options *o, sl_model_info *info)
{
    number_loss of_numbers;
    if (o->hidden_count > 0)
        return sl_fail(SLUICE_ERR_USAGE,
                       "model.hidden has no meaning for model.type linear; remove it, or use model.type mlp");
    SL_TRY(find_loss(o, &of_numbers));
    SL_TRY(check(o, of_numbers == NULL));
    sluice_layer(g, "linear");
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ o->batch, o->features });
    set_loss(g, o, linear(g, x, o->features, o->outputs, o->bias, "linear"), of_numbers);
    info->binary = of_numbers == bce;
    info->classifies = of_numbers == NULL || info->binary;
    return SLUICE_OK;
}
