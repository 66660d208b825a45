/* speech.c: recognisers of characters: convolutions over time and pitch, recurrent layers, CTC's loss (Graves et al., 2006;
 * the shape of Deep Speech 2, Amodei et al., 2015).
 *
 * A convolution has windows of 3 x 3 and halves the number of bands; the first ones also halve the number of rows, until
 * model.frame_stride rows are one frame. Every recurrent layer is a layer norm and a gated recurrent unit over the frames that count, in both
 * directions unless model.bidirectional is false; a layer norm and a linear give the logits of each frame, class 0 the blank.
 *
 * Names are PyTorch's for modules conv1, .., norm1, .., rnn1, .. (each nn.GRU of one layer, batch_first), norm, fc. What the
 * linear before a GRU reads of a frame is band by band, and of a band channel by channel. Every convolution and every recurrent
 * layer is a layer of its own, and the head is one.
 *
 * Rows behind the end of an utterance are zeros: convolutions see them where PyTorch's would see padding, but for the biases of
 * those before.
 *
 * Shapes: B micro-batch, R rows, T frames, M bands, H width of a state, V classes. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "model/family.h"

/* Entries of sl_model_options.filters. */
#define MAX_FILTERS ((int)(sizeof((sl_model_options *)0)->filters / sizeof(int64_t)))
#define KERNEL      3
#define EPSILON     1e-5f

static sluice_status check_stride(const sl_model_options *o)
{
    int64_t stride = o->frame_stride;
    if (stride < 1 || (stride & (stride - 1)) != 0 || stride > (int64_t)1 << o->filter_count)
        return sl_fail(SLUICE_ERR_USAGE,
                       "model.frame_stride is %" PRId64 "; give 1, 2, 4, .., at most twice for each of the %d "
                       "convolutions of model.filters",
                       stride, o->filter_count);
    return SLUICE_OK;
}

static sluice_status check(const sl_model_options *o)
{
    char key[48];
    SL_TRY(sl_model_check_size("the rows of an utterance", o->speech.rows, SL_MODEL_MAX_SIZE));
    SL_TRY(sl_model_check_size("data.mels", o->speech.bands, 65536));
    SL_TRY(sl_model_check_size("the characters of a transcript", o->speech.labels, SL_MODEL_MAX_SIZE));
    SL_TRY(sl_model_check_size("model.outputs", o->outputs, SL_MODEL_MAX_SIZE));
    if (o->outputs < 2)
        return sl_fail(SLUICE_ERR_USAGE, "model.outputs is 1, which is the blank; a recogniser has characters, too");
    if (o->filter_count < 1 || o->filter_count > MAX_FILTERS)
        return sl_fail(SLUICE_ERR_USAGE, "model.filters has %d entries; give the channels of 1 to %d convolutions",
                       o->filter_count, MAX_FILTERS);
    for (int i = 0; i < o->filter_count; i++) {
        snprintf(key, sizeof key, "model.filters[%d]", i);
        SL_TRY(sl_model_check_size(key, o->filters[i], SL_MODEL_MAX_SIZE));
    }
    SL_TRY(check_stride(o));
    SL_TRY(sl_model_check_size("model.layers", o->layers, SL_MODEL_MAX_LAYERS));
    SL_TRY(sl_model_check_size("model.width", o->width, SL_MODEL_MAX_SIZE / 4));
    return sl_model_check_dropout(o);
}

/* ---- parts ---- */

/* x[B,R,M,in] -> relu of the convolution, [B, R or R/2, M/2, out], halves rounded up. */
static sluice_value convolve(sluice_graph *g, sluice_value x, int64_t in, int64_t out, bool halves_rows,
                             const char *name)
{
    char weight[48], bias[48];
    sluice_conv_options conv;
    sluice_init init = { SLUICE_INIT_UNIFORM, (float)(1.0 / sqrt((double)(in * KERNEL * KERNEL))) };
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    sluice_conv_options_init(&conv);
    conv.padding_h = conv.padding_w = KERNEL / 2;
    conv.stride_h = halves_rows ? 2 : 1;
    conv.stride_w = 2;
    sluice_value w = sluice_parameter(g, weight, 4, (int64_t[]){ out, in, KERNEL, KERNEL }, init);
    sluice_value b = sluice_parameter(g, bias, 1, &out, init);
    return sluice_relu(g, sluice_conv2d(g, x, w, b, &conv));
}

/* Layer norm over the last dimension. */
static sluice_value normalise(sluice_graph *g, sluice_value x, int64_t width, const char *name)
{
    char weight[48], bias[48];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    sluice_value w = sluice_parameter(g, weight, 1, &width, (sluice_init){ SLUICE_INIT_ONE, 0 });
    sluice_value b = sluice_parameter(g, bias, 1, &width, (sluice_init){ SLUICE_INIT_ZERO, 0 });
    return sluice_layer_norm(g, x, w, b, EPSILON);
}

/* x[B,T,in] -> states[B,T,H] of one direction. Values as PyTorch draws them. */
static sluice_value recur(sluice_graph *g, const sl_model_options *o, sluice_value x, int64_t in, sluice_value lengths,
                          bool reverse, const char *name)
{
    static const char *const parts[] = { "weight_ih", "bias_ih", "weight_hh", "bias_hh" };
    int64_t gates = 3 * o->width;
    sluice_value p[4];
    sluice_init init = { SLUICE_INIT_UNIFORM, (float)(1.0 / sqrt((double)o->width)) };
    for (int i = 0; i < 4; i++) {
        char parameter[64];
        snprintf(parameter, sizeof parameter, "%s.%s_l0%s", name, parts[i], reverse ? "_reverse" : "");
        p[i] = sluice_parameter(g, parameter, i % 2 == 0 ? 2 : 1, (int64_t[]){ gates, i == 0 ? in : o->width }, init);
    }
    return sluice_gru(g, sluice_linear_with(g, x, p[0], p[1], false), p[2], p[3], lengths, reverse);
}

/* x[B,T,in] -> [B,T,H], or [B,T,2H] of both directions. */
static sluice_value recur_layer(sluice_graph *g, const sl_model_options *o, sluice_value x, int64_t in,
                                sluice_value lengths, int64_t number)
{
    char norm[32], name[32];
    snprintf(norm, sizeof norm, "norm%" PRId64, number);
    snprintf(name, sizeof name, "rnn%" PRId64, number);
    x = normalise(g, x, in, norm);
    if (o->dropout > 0) x = sluice_dropout(g, x, (float)o->dropout);
    sluice_value ways[2] = { recur(g, o, x, in, lengths, false, name) };
    if (o->one_way) return ways[0];
    ways[1] = recur(g, o, x, in, lengths, true, name);
    return sluice_concat(g, ways, 2, 2);
}

/* "x" [B,R,M,1] -> [B,T,features]. */
static sluice_value build_convolutions(sluice_graph *g, const sl_model_options *o, int64_t *features)
{
    char name[32];
    int64_t rows = o->speech.rows, bands = o->speech.bands, channels = 1, stride = 1;
    sluice_value x = SLUICE_NONE;
    for (int i = 0; i < o->filter_count; i++) {
        bool halves = stride < o->frame_stride;
        snprintf(name, sizeof name, "conv%d", i + 1);
        sluice_layer(g, name);
        if (i == 0) x = sluice_input(g, "x", SLUICE_F32, 4, (int64_t[]){ o->batch, rows, bands, 1 });
        x = convolve(g, x, channels, o->filters[i], halves, name);
        channels = o->filters[i];
        bands = (bands + 1) / 2;
        if (halves) {
            rows = (rows + 1) / 2;
            stride *= 2;
        }
    }
    *features = bands * channels;
    return sluice_reshape(g, x, 3, (int64_t[]){ o->batch, rows, *features });
}

sluice_status sl_model_build_speech(sluice_graph *g, const sl_model_options *o, sl_model_info *info)
{
    char name[32];
    int64_t width;
    SL_TRY(check(o));
    sluice_value x = build_convolutions(g, o, &width);
    sluice_value lengths = sluice_input(g, "lengths", SLUICE_I32, 1, &o->batch);
    for (int64_t i = 1; i <= o->layers; i++) {
        snprintf(name, sizeof name, "rnn%" PRId64, i);
        sluice_layer(g, name);
        x = recur_layer(g, o, x, width, lengths, i);
        width = o->one_way ? o->width : 2 * o->width;
    }
    sluice_layer(g, "fc");
    x = normalise(g, x, width, "norm");
    sluice_value logits = sluice_linear(g, x, o->outputs, "fc");
    sluice_value labels = sluice_input(g, "labels", SLUICE_I32, 2, (int64_t[]){ o->batch, o->speech.labels });
    sluice_set_loss(g, sluice_ctc_loss(g, logits, labels, lengths, 0, false));
    sluice_set_output(g, logits);
    info->transcribes = true;
    return SLUICE_OK;
}
