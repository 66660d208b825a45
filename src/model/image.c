/* image.c: what models of images share: the input, its checks, and the loss over classes. */
#include "model/family.h"

sluice_status sl_model_check_image(const sl_model_options *o)
{
    SL_TRY(sl_model_check_size("the height of images", o->image.height, 65536));
    SL_TRY(sl_model_check_size("the width of images", o->image.width, 65536));
    SL_TRY(sl_model_check_size("the channels of images", o->image.channels, 65536));
    SL_TRY(sl_model_check_size("model.outputs", o->outputs, SL_MODEL_MAX_SIZE));
    if (o->outputs < 2)
        return sl_fail(SLUICE_ERR_USAGE, "model.outputs is 1, and a classifier needs at least 2 classes");
    return SLUICE_OK;
}

sluice_value sl_model_image(sluice_graph *g, const sl_model_options *o)
{
    return sluice_input(g, "x", SLUICE_F32, 4,
                        (int64_t[]){ o->batch, o->image.height, o->image.width, o->image.channels });
}

void sl_model_classify(sluice_graph *g, const sl_model_options *o, sluice_value logits, sl_model_info *info)
{
    sluice_value target = sluice_input(g, "target", SLUICE_I32, 1, (int64_t[]){ o->batch });
    sluice_set_loss(g, sluice_cross_entropy_smoothed(g, logits, target, -1, 0, (float)o->label_smoothing));
    sluice_set_output(g, logits);
    info->classifies = true;
}
