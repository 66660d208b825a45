/* resnet.c: residual networks of 18 to 152 layers, in torchvision's names.
 *
 * The stem is that for ImageNet, a 7 x 7 convolution of stride 2 and a pooling of stride 2, or that for images of some 32
 * pixels, a 3 x 3 convolution alone. Of a stage's first block the stride is in the 3 x 3 convolution. A layer is the stem,
 * a block or the head: "stem", "layer1.0", .., "fc".
 *
 * Shapes: B micro-batch; images [B,H,W,C], channels last. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/family.h"

typedef struct depth_row {
    int64_t depth;
    int blocks[4];
    bool bottleneck; /* 1 x 1, 3 x 3, 1 x 1 with four times the channels; otherwise two of 3 x 3 */
} depth_row;

static const depth_row depths[] = {
    { 18, { 2, 2, 2, 2 }, false },  { 34, { 3, 4, 6, 3 }, false },  { 50, { 3, 4, 6, 3 }, true },
    { 101, { 3, 4, 23, 3 }, true }, { 152, { 3, 8, 36, 3 }, true },
};

static sluice_status find_depth(int64_t depth, const depth_row **out)
{
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++)
        if (depths[i].depth == depth) {
            *out = &depths[i];
            return SLUICE_OK;
        }
    return sl_fail(SLUICE_ERR_USAGE, "model.depth is %lld; give 18, 34, 50, 101 or 152", (long long)depth);
}

/* A convolution without bias, whose weights keep the variance of gradients under ReLU. */
static sluice_value convolve(sluice_graph *g, sluice_value x, const char *block, const char *name, int64_t in,
                             int64_t out, int kernel, int stride)
{
    char weight[64];
    sluice_conv_options o;
    sluice_init init = { SLUICE_INIT_NORMAL, (float)sqrt(2.0 / (double)(out * kernel * kernel)) };
    snprintf(weight, sizeof weight, "%s%s.weight", block, name);
    sluice_conv_options_init(&o);
    o.stride_h = o.stride_w = stride;
    o.padding_h = o.padding_w = kernel / 2;
    return sluice_conv2d(g, x, sluice_parameter(g, weight, 4, (int64_t[]){ out, in, kernel, kernel }, init),
                         SLUICE_NONE, &o);
}

static sluice_value norm(sluice_graph *g, sluice_value x, const char *block, const char *name, bool relu,
                         sluice_value residual)
{
    char full[64];
    sluice_batch_norm_options o;
    snprintf(full, sizeof full, "%s%s", block, name);
    sluice_batch_norm_options_init(&o);
    o.relu = relu;
    o.residual = residual;
    return sluice_batch_norm(g, x, full, &o);
}

/* What is added to a block's result: x itself, or where the shape changes a 1 x 1 convolution of it. */
static sluice_value shortcut(sluice_graph *g, sluice_value x, const char *block, int64_t in, int64_t out, int stride)
{
    if (in == out && stride == 1) return x;
    return norm(g, convolve(g, x, block, "downsample.0", in, out, 1, stride), block, "downsample.1", false,
                SLUICE_NONE);
}

static sluice_value basic_block(sluice_graph *g, sluice_value x, const char *block, int64_t in, int64_t out, int stride)
{
    sluice_value y = norm(g, convolve(g, x, block, "conv1", in, out, 3, stride), block, "bn1", true, SLUICE_NONE);
    y = convolve(g, y, block, "conv2", out, out, 3, 1);
    return norm(g, y, block, "bn2", true, shortcut(g, x, block, in, out, stride));
}

static sluice_value bottleneck(sluice_graph *g, sluice_value x, const char *block, int64_t in, int64_t inner,
                               int stride)
{
    sluice_value y = norm(g, convolve(g, x, block, "conv1", in, inner, 1, 1), block, "bn1", true, SLUICE_NONE);
    y = norm(g, convolve(g, y, block, "conv2", inner, inner, 3, stride), block, "bn2", true, SLUICE_NONE);
    y = convolve(g, y, block, "conv3", inner, 4 * inner, 1, 1);
    return norm(g, y, block, "bn3", true, shortcut(g, x, block, in, 4 * inner, stride));
}

static sluice_value stem(sluice_graph *g, const sl_model_options *o, bool small)
{
    sluice_pool_options pool;
    sluice_layer(g, "stem");
    sluice_value x =
        convolve(g, sl_model_image(g, o), "", "conv1", o->image.channels, 64, small ? 3 : 7, small ? 1 : 2);
    x = norm(g, x, "", "bn1", true, SLUICE_NONE);
    if (small) return x;
    sluice_pool_options_init(&pool);
    pool.kernel_h = pool.kernel_w = 3;
    pool.stride_h = pool.stride_w = 2;
    pool.padding_h = pool.padding_w = 1;
    return sluice_max_pool2d(g, x, &pool);
}

static sluice_value stage(sluice_graph *g, const depth_row *d, sluice_value x, int number, int64_t *channels)
{
    int64_t inner = 64 << number, out = d->bottleneck ? 4 * inner : inner;
    for (int i = 0; i < d->blocks[number] && x != SLUICE_NONE; i++) {
        char name[32], block[40];
        int stride = number > 0 && i == 0 ? 2 : 1;
        snprintf(name, sizeof name, "layer%d.%d", number + 1, i);
        snprintf(block, sizeof block, "%s.", name);
        sluice_layer(g, name);
        x = d->bottleneck ? bottleneck(g, x, block, *channels, inner, stride)
                          : basic_block(g, x, block, *channels, inner, stride);
        *channels = out;
    }
    return x;
}

sluice_status sl_model_build_resnet(sluice_graph *g, const sl_model_options *o, sl_model_info *info)
{
    const depth_row *d = NULL;
    int64_t channels = 64;
    SL_TRY(find_depth(o->depth, &d));
    SL_TRY(sl_model_check_image(o));
    if (o->stem != NULL && strcmp(o->stem, "imagenet") != 0 && strcmp(o->stem, "cifar") != 0)
        return sl_fail(SLUICE_ERR_USAGE, "model.stem \"%s\" is not known; give imagenet or cifar", o->stem);
    bool small = o->stem != NULL && strcmp(o->stem, "cifar") == 0;
    sluice_value x = stem(g, o, small);
    for (int i = 0; i < 4; i++) x = stage(g, d, x, i, &channels);
    sluice_layer(g, "fc");
    sl_model_classify(g, o, sluice_linear(g, sluice_global_avg_pool(g, x), o->outputs, "fc"), info);
    return SLUICE_OK;
}
