/* cnn.c: plain convolutional networks: convolutions with ReLU and max pooling, then linear layers.
 *
 * Names: "conv1", "conv2", .., "fc1", .., each with weight and bias as PyTorch has them; the first linear takes the image
 * channel by channel, as PyTorch flattens it. Every convolution and every linear is a layer of its own.
 *
 * Shapes: B micro-batch, [H,W] the image, C its channels. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "model/family.h"

/* Entries of sl_model_options.filters and hidden. */
#define MAX_FILTERS ((int)(sizeof((sl_model_options *)0)->filters / sizeof(int64_t)))
#define MAX_HIDDEN  ((int)(sizeof((sl_model_options *)0)->hidden / sizeof(int64_t)))

static sluice_status check(const sl_model_options *o)
{
    char key[48];
    SL_TRY(sl_model_check_image(o));
    if (o->filter_count < 1 || o->filter_count > MAX_FILTERS)
        return sl_fail(SLUICE_ERR_USAGE, "model.filters has %d entries; give the channels of 1 to %d convolutions",
                       o->filter_count, MAX_FILTERS);
    for (int i = 0; i < o->filter_count; i++) {
        snprintf(key, sizeof key, "model.filters[%d]", i);
        SL_TRY(sl_model_check_size(key, o->filters[i], SL_MODEL_MAX_SIZE));
    }
    if (o->hidden_count < 0 || o->hidden_count > MAX_HIDDEN)
        return sl_fail(SLUICE_ERR_USAGE, "model.hidden has %d entries; give at most %d", o->hidden_count, MAX_HIDDEN);
    for (int i = 0; i < o->hidden_count; i++) {
        snprintf(key, sizeof key, "model.hidden[%d]", i);
        SL_TRY(sl_model_check_size(key, o->hidden[i], SL_MODEL_MAX_SIZE));
    }
    SL_TRY(sl_model_check_size("model.kernel", o->kernel, 255));
    if (o->padding < 0 || o->padding >= o->kernel)
        return sl_fail(SLUICE_ERR_USAGE, "model.padding is %" PRId64 "; give 0 to below model.kernel, %" PRId64,
                       o->padding, o->kernel);
    SL_TRY(sl_model_check_size("model.pool", o->pool, 255));
    return sl_model_check_dropout(o);
}

/* x[B,H,W,in] -> relu of the convolution, the largest of each `pool` x `pool` places of it. Initialised as PyTorch's Conv2d. */
static sluice_value convolve(sluice_graph *g, const sl_model_options *o, sluice_value x, int64_t in, int64_t out,
                             const char *name)
{
    char weight[48], bias[48];
    sluice_conv_options conv;
    sluice_pool_options pool;
    sluice_init init = { SLUICE_INIT_UNIFORM, (float)(1.0 / sqrt((double)(in * o->kernel * o->kernel))) };
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    sluice_conv_options_init(&conv);
    conv.padding_h = conv.padding_w = (int)o->padding;
    sluice_pool_options_init(&pool);
    pool.kernel_h = pool.kernel_w = (int)o->pool;
    sluice_value w = sluice_parameter(g, weight, 4, (int64_t[]){ out, in, o->kernel, o->kernel }, init);
    sluice_value b = sluice_parameter(g, bias, 1, (int64_t[]){ out }, init);
    x = sluice_relu(g, sluice_conv2d(g, x, w, b, &conv));
    return o->pool > 1 ? sluice_max_pool2d(g, x, &pool) : x;
}

sluice_status sl_model_build_cnn(sluice_graph *g, const sl_model_options *o, sl_model_info *info)
{
    char name[32];
    SL_TRY(check(o));
    sluice_layer(g, "conv1");
    sluice_value x = sl_model_image(g, o);
    int64_t channels = o->image.channels;
    for (int i = 0; i < o->filter_count && x != SLUICE_NONE; i++) {
        snprintf(name, sizeof name, "conv%d", i + 1);
        sluice_layer(g, name);
        x = convolve(g, o, x, channels, o->filters[i], name);
        channels = o->filters[i];
    }
    for (int i = 0; i <= o->hidden_count && x != SLUICE_NONE; i++) {
        snprintf(name, sizeof name, "fc%d", i + 1);
        sluice_layer(g, name);
        if (i == 0) x = sluice_flatten(g, x);
        x = sluice_linear(g, o->dropout > 0 ? sluice_dropout(g, x, (float)o->dropout) : x,
                          i < o->hidden_count ? o->hidden[i] : o->outputs, name);
        if (i < o->hidden_count) x = sluice_relu(g, x);
    }
    sl_model_classify(g, o, x, info);
    return SLUICE_OK;
}
