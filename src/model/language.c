/* language.c: what token models share: checks, linears with their adapters, and the head with its loss.
 *
 * Shapes: B micro-batch, T context, C width, V vocabulary. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "model/family.h"

sluice_status sl_model_check_blocks(const sl_model_options *o)
{
    SL_TRY(sl_model_check_size("model.layers", o->layers, SL_MODEL_MAX_LAYERS));
    SL_TRY(sl_model_check_size("model.heads", o->heads, SL_MODEL_MAX_SIZE));
    SL_TRY(sl_model_check_size("model.width", o->width,
                               SL_MODEL_MAX_SIZE / 4)); /* the feed-forward part is 4 times as wide */
    if (o->head_width != 0) SL_TRY(sl_model_check_size("model.head_width", o->head_width, SL_MODEL_MAX_SIZE));
    if (o->head_width == 0 && o->width % o->heads != 0)
        return sl_fail(SLUICE_ERR_USAGE,
                       "model.width %" PRId64 " is not a multiple of model.heads %" PRId64
                       "; every head gets width / heads columns",
                       o->width, o->heads);
    if (!(o->norm_epsilon >= 0 && o->norm_epsilon < 1))
        return sl_fail(SLUICE_ERR_USAGE, "model.norm_epsilon is %g; give a small positive number such as 1e-5",
                       o->norm_epsilon);
    return SLUICE_OK;
}

sluice_status sl_model_check_transformer(const sl_model_options *o)
{
    SL_TRY(sl_model_check_blocks(o));
    SL_TRY(sl_model_check_size("model.context", o->context, SL_MODEL_MAX_SIZE));
    return sl_model_check_size("model.vocabulary", o->vocabulary, SL_MODEL_MAX_SIZE);
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

/* alpha / rank, or alpha / sqrt(rank), times dropout(x) A^T, for a `linear` of `count` adapters whose A's are stacked. */
static sluice_value adapter_inner(const sl_model *m, sluice_value x, const char *linear, int64_t in, int count,
                                  sluice_value *a)
{
    double rank = (double)m->o->lora.rank;
    double alpha = m->o->lora.alpha > 0 ? m->o->lora.alpha : rank;
    sluice_init random = { SLUICE_INIT_NORMAL, (float)(1.0 / sqrt((double)in)) };
    *a = adapter(m, linear, ".lora_A.weight", count * m->o->lora.rank, in, random);
    x = sluice_dropout(m->g, x, (float)m->o->lora.dropout);
    return sluice_scale(m->g, sluice_linear_with(m->g, x, *a, SLUICE_NONE, false),
                        (float)(alpha / (m->o->lora.rank_stabilised ? sqrt(rank) : rank)));
}

/* h B^T. B starts at zero, so that the model starts as it was. */
static sluice_value adapter_outer(const sl_model *m, sluice_value h, const char *linear, int64_t out)
{
    sluice_init zero = { SLUICE_INIT_ZERO, 0 };
    sluice_value b = adapter(m, linear, ".lora_B.weight", out, m->o->lora.rank, zero);
    return sluice_linear_with(m->g, h, b, SLUICE_NONE, false);
}

static sluice_value adapt(const sl_model *m, sluice_value x, const char *linear, int64_t in, int64_t out)
{
    sluice_value a;
    return adapter_outer(m, adapter_inner(m, x, linear, in, 1, &a), linear, out);
}

/* A part of a fused linear that has an adapter of its own. */
typedef struct adapted_part {
    char linear[SL_MODEL_NAME_BYTES], a[SL_MODEL_NAME_BYTES + 16];
    int64_t first, rows;
} adapted_part;

/* The parts of `weight` that options name as linears of their own, as other programs have them; how many. */
static int adapted_parts(const sl_model *m, sluice_value weight, adapted_part out[SL_MAX_ROW_PARTS])
{
    const sl_parameter *p = &m->g->parameters[m->g->values[weight].parameter];
    int64_t first = 0;
    int count = 0;
    for (int k = 0; k < p->part_count; first += p->parts[k++].rows) {
        adapted_part *part = &out[count];
        if (!sl_model_module_of(p->parts[k].name, part->linear) || !sl_model_has_adapter(m->o, part->linear, false))
            continue;
        snprintf(part->a, sizeof part->a, "%s.lora_A.weight", part->linear);
        part->first = first;
        part->rows = p->parts[k].rows;
        count++;
    }
    return count;
}

/* y + the adapters of parts of `linear`. The A's of all parts are one matrix, so that x is read once. */
static sluice_value adapt_parts(const sl_model *m, sluice_value y, sluice_value x, const char *linear, int64_t in,
                                const adapted_part *parts, int count)
{
    int64_t rank = m->o->lora.rank;
    sl_part stacked[SL_MAX_ROW_PARTS];
    sluice_value a, h = adapter_inner(m, x, linear, in, count, &a);
    if (h == SLUICE_NONE) return h;
    for (int k = 0; k < count; k++) stacked[k] = (sl_part){ parts[k].a, rank };
    sl_graph_set_parts(m->g, a, stacked, count);
    int axis = m->g->values[h].shape.rank - 1;
    for (int k = 0; k < count && y != SLUICE_NONE; k++) {
        sluice_value own = count > 1 ? sluice_split(m->g, h, axis, k * rank, rank) : h;
        y = sluice_add_part(m->g, y, adapter_outer(m, own, parts[k].linear, parts[k].rows), axis, parts[k].first);
    }
    return y;
}

sluice_value sl_model_linear(const sl_model *m, sluice_value x, const char *block, const char *name,
                             sluice_value weight, sluice_value bias, bool in_out)
{
    char linear[SL_MODEL_NAME_BYTES];
    snprintf(linear, sizeof linear, "%s%s", block, name);
    sluice_value y = sluice_linear_with(m->g, x, weight, bias, in_out);
    if (y == SLUICE_NONE || m->o->lora.rank == 0) return y;
    const sl_shape *w = &m->g->values[weight].shape;
    int64_t in = w->dim[in_out ? 0 : 1], out = w->dim[in_out ? 1 : 0];
    bool fused = m->g->parameters[m->g->values[weight].parameter].part_count > 0;
    adapted_part parts[SL_MAX_ROW_PARTS];
    if (sl_model_has_adapter(m->o, linear, fused)) return sluice_add(m->g, y, adapt(m, x, linear, in, out));
    int count = adapted_parts(m, weight, parts);
    return count > 0 ? adapt_parts(m, y, x, linear, in, parts, count) : y;
}

/* The head's weight is cut into tiles, which only a linear of its own can read. */
static bool head_is_tiled(const sl_model_options *o)
{
    uint64_t bytes = (uint64_t)o->vocabulary * (uint64_t)o->width * sizeof(float);
    return o->tile_bytes > 0 && bytes > o->tile_bytes;
}

static bool generates(const sl_model *m)
{
    return m->o->decode.rows > 0;
}

/* An input of one element for each token. */
static sluice_value token_input(const sl_model *m, const char *name)
{
    const int64_t all[] = { m->o->batch, m->o->context }, rows[] = { m->o->decode.rows, 1 };
    sluice_value v = sluice_input(m->g, name, SLUICE_I32, 2, generates(m) ? rows : all);
    if (generates(m)) sl_graph_limit_rows(m->g, v, SL_ROWS_GIVEN);
    return v;
}

sluice_value sl_model_tokens(sl_model *m)
{
    sluice_value tokens = token_input(m, "tokens");
    m->positions = m->o->packed || generates(m) ? token_input(m, "positions") : SLUICE_NONE;
    m->slots = generates(m) ? token_input(m, "slots") : SLUICE_NONE;
    return tokens;
}

/* Places of a slot's cache, whole blocks: a layer with a window keeps what rows of one run may still see of each other. */
static int64_t kept_places(const sl_model_options *o, int64_t window)
{
    int64_t places = o->decode.places, seen = window > 0 ? window + o->decode.rows - 1 : places;
    return ((seen < places ? seen : places) + SL_CACHE_KEYS - 1) / SL_CACHE_KEYS * SL_CACHE_KEYS;
}

static sluice_value attend_cached(const sl_model *m, const sl_model_config *c, sluice_value qkv,
                                  const sluice_attention_options *o)
{
    sl_attrs attrs = { .cached = { .heads = o->heads,
                                   .kv_heads = o->kv_heads,
                                   .head_width = (int)c->head_width,
                                   .scale = o->scale > 0 ? o->scale : (float)(1.0 / sqrt((double)c->head_width)),
                                   .window = o->window,
                                   .softcap = o->softcap,
                                   .slots = m->o->decode.slots,
                                   .kept = kept_places(m->o, o->window) } };
    return sl_graph_apply(m->g, SL_OP_ATTENTION_CACHED, NULL, &attrs, 3,
                          (sluice_value[]){ qkv, m->positions, m->slots });
}

/* A window that no query fills is none. */
sluice_value sl_model_attention(const sl_model *m, const sl_model_config *c, sluice_value qkv, bool slides)
{
    const int64_t longest = generates(m) ? m->o->decode.places : m->o->context;
    sluice_attention_options o;
    sluice_attention_options_init(&o);
    o.heads = (int)c->heads;
    o.kv_heads = (int)c->kv_heads;
    if (slides && c->window < longest) o.window = (int)c->window;
    o.softcap = (float)c->attention_soft_cap;
    if (c->query_scalar > 0) o.scale = (float)(1.0 / sqrt(c->query_scalar));
    if (c->unscaled_attention) o.scale = 1;
    if (generates(m)) return attend_cached(m, c, qkv, &o);
    return sluice_attention_with(m->g, qkv, SLUICE_NONE, SLUICE_NONE, m->positions, &o);
}

/* Logits of the first rows alone: of the others nobody asks. */
static void decoding_head(const sl_model *m, sluice_value x, sluice_value weight, sluice_value bias, float soft_cap)
{
    int64_t rows = m->o->decode.rows, slots = m->o->decode.slots;
    sluice_value wanted = sluice_split(m->g, x, 0, 0, rows < slots ? rows : slots);
    sl_graph_limit_rows(m->g, wanted, SL_ROWS_WANTED);
    sluice_value logits = sluice_linear_with(m->g, wanted, weight, bias, false);
    sluice_set_output(m->g, soft_cap > 0 ? sluice_softcap(m->g, logits, soft_cap) : logits);
}

void sl_model_head(const sl_model *m, sluice_value x, sluice_value weight, sluice_value bias, float soft_cap)
{
    if (generates(m)) {
        decoding_head(m, x, weight, bias, soft_cap);
        return;
    }
    const float smoothing = (float)m->o->label_smoothing;
    sluice_value targets = sluice_input(m->g, "targets", SLUICE_I32, 2, (int64_t[]){ m->o->batch, m->o->context });
    if (!m->o->logits && !head_is_tiled(m->o)) {
        sluice_set_loss(m->g,
                        sluice_linear_cross_entropy_with(m->g, x, weight, bias, targets, -1, soft_cap, smoothing));
        if (m->o->accuracy) sluice_set_output(m->g, sluice_linear_with(m->g, x, weight, bias, false));
        return;
    }
    sluice_value logits = sluice_linear_with(m->g, x, weight, bias, false);
    if (soft_cap > 0) logits = sluice_softcap(m->g, logits, soft_cap);
    sluice_set_loss(m->g, sluice_cross_entropy_smoothed(m->g, logits, targets, -1, 0, smoothing));
    if (m->o->logits || m->o->accuracy) sluice_set_output(m->g, logits);
}

sluice_value sl_model_activate(const sl_model *m, const sl_model_config *c, sluice_value x)
{
    switch (c->activation) {
    case SL_ACTIVATION_GELU_TANH:
        return sluice_gelu(m->g, x, false);
    case SL_ACTIVATION_GELU:
        return sluice_gelu(m->g, x, true);
    case SL_ACTIVATION_SILU:
        return sluice_silu(m->g, x);
    case SL_ACTIVATION_RELU:
        return sluice_relu(m->g, x);
    }
    return SLUICE_NONE;
}
