/* language.c: what token models share: checks, linears with their adapters, and the head with its loss.
 *
 * Shapes: B micro-batch, T context, C width, V vocabulary. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "model/family.h"

sluice_status sl_model_check_transformer(const sl_model_options *o)
{
    SL_TRY(sl_model_check_size("model.layers", o->layers, SL_MODEL_MAX_LAYERS));
    SL_TRY(sl_model_check_size("model.heads", o->heads, SL_MODEL_MAX_SIZE));
    SL_TRY(sl_model_check_size("model.width", o->width,
                               SL_MODEL_MAX_SIZE / 4)); /* the feed-forward part is 4 times as wide */
    SL_TRY(sl_model_check_size("model.context", o->context, SL_MODEL_MAX_SIZE));
    SL_TRY(sl_model_check_size("model.vocabulary", o->vocabulary, SL_MODEL_MAX_SIZE));
    if (o->width % o->heads != 0)
        return sl_fail(SLUICE_ERR_USAGE,
                       "model.width %" PRId64 " is not a multiple of model.heads %" PRId64
                       "; every head gets width / heads columns",
                       o->width, o->heads);
    if (!(o->norm_epsilon >= 0 && o->norm_epsilon < 1))
        return sl_fail(SLUICE_ERR_USAGE, "model.norm_epsilon is %g; give a small positive number such as 1e-5",
                       o->norm_epsilon);
    return SLUICE_OK;
}

sluice_value sl_model_parameter(const sl_model *m, const char *block, const char *name, int64_t rows, int64_t columns,
                                sluice_init init)
{
    char full[2 * SL_MODEL_NAME_BYTES];
    snprintf(full, sizeof full, "%s%s", block, name);
    return sluice_parameter(m->g, full, columns > 0 ? 2 : 1, (int64_t[]){ rows, columns }, init);
}

/* A parameter of an adapter: whoever trained the weights beside it did not have it. */
static sluice_value adapter(const sl_model *m, const char *linear, const char *name, int64_t rows, int64_t columns,
                            sluice_init init)
{
    sluice_value v = sl_model_parameter(m, linear, name, rows, columns, init);
    if (v != SLUICE_NONE) m->g->parameters[m->g->values[v].parameter].is_adapter = true;
    return v;
}

/* alpha / rank (x A^T) B^T. B starts at zero, so that the model starts as it was. */
static sluice_value adapt(const sl_model *m, sluice_value x, const char *linear, int64_t in, int64_t out)
{
    int64_t rank = m->o->lora.rank;
    double alpha = m->o->lora.alpha > 0 ? m->o->lora.alpha : (double)rank;
    sluice_init random = { SLUICE_INIT_NORMAL, (float)(1.0 / sqrt((double)in)) };
    sluice_value a = adapter(m, linear, ".lora_A.weight", rank, in, random);
    sluice_value b = adapter(m, linear, ".lora_B.weight", out, rank, (sluice_init){ SLUICE_INIT_ZERO, 0 });
    sluice_value h =
        sluice_linear_with(m->g, sluice_dropout(m->g, x, (float)m->o->lora.dropout), a, SLUICE_NONE, false);
    return sluice_linear_with(m->g, sluice_scale(m->g, h, (float)(alpha / (double)rank)), b, SLUICE_NONE, false);
}

sluice_value sl_model_linear(const sl_model *m, sluice_value x, const char *block, const char *name,
                             sluice_value weight, sluice_value bias, bool in_out)
{
    char linear[SL_MODEL_NAME_BYTES];
    snprintf(linear, sizeof linear, "%s%s", block, name);
    sluice_value y = sluice_linear_with(m->g, x, weight, bias, in_out);
    if (y == SLUICE_NONE || !sl_model_has_adapter(m->o, linear)) return y;
    const sl_shape *w = &m->g->values[weight].shape;
    int64_t in = w->dim[in_out ? 0 : 1], out = w->dim[in_out ? 1 : 0];
    return sluice_add(m->g, y, adapt(m, x, linear, in, out));
}

/* The head's weight is cut into tiles, which only a linear of its own can read. */
static bool head_is_tiled(const sl_model_options *o)
{
    uint64_t bytes = (uint64_t)o->vocabulary * (uint64_t)o->width * sizeof(float);
    return o->tile_bytes > 0 && bytes > o->tile_bytes;
}

void sl_model_head(const sl_model *m, sluice_value x, sluice_value weight)
{
    sluice_value targets = sluice_input(m->g, "targets", SLUICE_I32, 2, (int64_t[]){ m->o->batch, m->o->context });
    if (!m->o->logits && !head_is_tiled(m->o)) {
        sluice_set_loss(m->g, sluice_linear_cross_entropy(m->g, x, weight, targets, -1));
        return;
    }
    sluice_value logits = sluice_linear_with(m->g, x, weight, SLUICE_NONE, false);
    sluice_set_loss(m->g, sluice_cross_entropy(m->g, logits, targets, -1));
    if (m->o->logits) sluice_set_output(m->g, logits);
}
