/* vit.c: the vision transformer: patches of an image as tokens, and a token of its own that classes are told by.
 *
 * Names are those of Hugging Face's ViTForImageClassification. Layers: "embed", "layer.0", "layer.1", ..., "head".
 *
 * Shapes: B micro-batch, N patches of an image, C width. */
#include "format/weight_names.h"
#include "model/family.h"

#define STDDEV 0.02f

static const sl_encoder_names names = {
    .model = "vit",
    .attention = "attention.attention.",
    .attention_out = "attention.output.dense",
    .first_norm = "layernorm_before",
    .second_norm = "layernorm_after",
    .norms_first = true,
};

static sluice_value parameter(const sl_encoder_model *e, const char *name, int rank, const int64_t *dims)
{
    return sluice_parameter(e->m.g, name, rank, dims, (sluice_init){ SLUICE_INIT_NORMAL, STDDEV });
}

/* x[B,H,W,channels] -> [B,N,C]: each patch by one linear map, written as a convolution whose windows do not overlap. */
static sluice_value project_patches(const sl_encoder_model *e, sluice_value x, int64_t patches)
{
    const sl_model_options *o = e->m.o;
    sluice_conv_options stride;
    sluice_conv_options_init(&stride);
    stride.stride_h = stride.stride_w = (int)e->c.patch;
    sluice_value weight = parameter(e, "vit.embeddings.patch_embeddings.projection.weight", 4,
                                    (int64_t[]){ e->c.width, o->image.channels, e->c.patch, e->c.patch });
    sluice_value bias = sluice_parameter(e->m.g, "vit.embeddings.patch_embeddings.projection.bias", 1,
                                         (int64_t[]){ e->c.width }, (sluice_init){ SLUICE_INIT_ZERO, 0 });
    return sluice_reshape(e->m.g, sluice_conv2d(e->m.g, x, weight, bias, &stride), 3,
                          (int64_t[]){ o->batch, patches, e->c.width });
}

/* [B,N,C] -> [B,1,C]: the token of its own for every image, spread over the batch by a sum with zeros. */
static sluice_value own_token(const sl_encoder_model *e, sluice_value patches)
{
    sluice_value token = parameter(e, "vit.embeddings.cls_token", 3, (int64_t[]){ 1, 1, e->c.width });
    return sluice_add(e->m.g, sluice_scale(e->m.g, sluice_split(e->m.g, patches, 1, 0, 1), 0), token);
}

static sluice_value embed(const sl_encoder_model *e)
{
    const sl_model_options *o = e->m.o;
    int64_t patches = o->image.height / e->c.patch * (o->image.width / e->c.patch);
    sluice_layer(e->m.g, "embed");
    sluice_value x = project_patches(e, sl_model_image(e->m.g, o), patches);
    x = sluice_concat(e->m.g, (sluice_value[]){ own_token(e, x), x }, 2, 1);
    sluice_value places =
        parameter(e, "vit.embeddings.position_embeddings", 3, (int64_t[]){ 1, patches + 1, e->c.width });
    return sl_encoder_drop(e, sluice_add(e->m.g, x, places), sl_model_embedding_dropout(o));
}

/* A folder's position table fits images of one size. */
static sluice_status check(const sl_model_options *o, const sl_model_config *c)
{
    SL_TRY(sl_model_check_image(o));
    SL_TRY(sl_model_check_size("model.patch", c->patch, SL_MODEL_MAX_SIZE));
    if (o->image.height != o->image.width || o->image.height % c->patch != 0)
        return sl_fail(SLUICE_ERR_USAGE,
                       "images of %lld x %lld are no squares of whole patches of %lld x %lld; change model.patch or "
                       "data.image_size",
                       (long long)o->image.height, (long long)o->image.width, (long long)c->patch, (long long)c->patch);
    if (o->image.height != c->image_size || o->image.channels != c->channels)
        return sl_fail(SLUICE_ERR_USAGE,
                       "images of %lld x %lld with %lld channels, and model.path is for %lld x %lld with %lld; set "
                       "data.image_size",
                       (long long)o->image.height, (long long)o->image.width, (long long)o->image.channels,
                       (long long)c->image_size, (long long)c->image_size, (long long)c->channels);
    return SLUICE_OK;
}

sluice_status sl_model_build_vit(sluice_graph *g, const sl_model_options *o, sl_model_info *info)
{
    sl_encoder_model e = { .m = { o, g, SLUICE_NONE, SLUICE_NONE } };
    SL_TRY(sl_model_describe(o, &e.c));
    SL_TRY(check(o, &e.c));
    sluice_value x = embed(&e);
    for (int64_t i = 0; i < e.c.layers && x != SLUICE_NONE; i++) x = sl_encoder_block(&e, &names, x, i, SLUICE_NONE);
    sluice_layer(g, "head");
    x = sl_encoder_first(&e, sl_encoder_norm(&e, x, "vit.", "layernorm"));
    sl_encoder_classify(&e, x, info);
    g->file_names = &sl_vit_weight_names;
    return SLUICE_OK;
}
