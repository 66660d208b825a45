/* recommender.c: click models in DLRM's shape (Naumov et al., 2019): tables of embeddings, dot products, two perceptrons.
 *
 * The numbers of a row go through the bottom perceptron to a vector as wide as the embeddings, each category is a row of its
 * column's table, and the top perceptron reads the first vector and the dot products of all pairs of vectors: of the lower
 * triangle without the diagonal, row by row. The output is the logit of a click. Without numeric columns there is no bottom
 * perceptron, and the top reads the products alone.
 *
 * Names are those of facebookresearch/dlrm's modules: "bot_l.0", "bot_l.2", .. and "top_l.0", .. (the activations between
 * have a number too), "emb_l.N.weight". First values are drawn as there. Every linear and every table is a layer of its own.
 *
 * Shapes: B micro-batch, D width of embeddings, N vectors of a row. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "ir/op.h"
#include "model/family.h"

/* Entries of sl_model_options.bottom and top. */
#define MAX_WIDTHS ((int)(sizeof((sl_model_options *)0)->bottom / sizeof(int64_t)))
#define MAX_TABLES SL_MODEL_MAX_TABLES

/* ---- settings ---- */

static sluice_status check_widths(const char *key, const int64_t *widths, int count)
{
    char entry[48];
    if (count < 0 || count > MAX_WIDTHS)
        return sl_fail(SLUICE_ERR_USAGE, "%s has %d entries; give at most %d", key, count, MAX_WIDTHS);
    for (int i = 0; i < count; i++) {
        snprintf(entry, sizeof entry, "%s[%d]", key, i);
        SL_TRY(sl_model_check_size(entry, widths[i], SL_MODEL_MAX_SIZE));
    }
    return SLUICE_OK;
}

static sluice_status check(const sl_model_options *o)
{
    int64_t tables = o->columns.categorical, numeric = o->columns.numeric;
    SL_TRY(check_widths("model.bottom", o->bottom, o->bottom_count));
    SL_TRY(check_widths("model.top", o->top, o->top_count));
    SL_TRY(sl_model_check_size("model.embedding", o->embedding, SL_MODEL_MAX_SIZE));
    if (tables + (numeric > 0) < 2)
        return sl_fail(SLUICE_ERR_USAGE,
                       "a recommender multiplies categories with each other and with numbers: the table has %" PRId64
                       " categorical and %" PRId64 " numeric columns; name more in data.columns, or use model.type mlp",
                       tables, numeric);
    if (tables > MAX_TABLES)
        return sl_fail(SLUICE_ERR_USAGE,
                       "the table has %" PRId64 " categorical columns, and a recommender reads at most %d; leave some "
                       "out with data.columns.ignore",
                       tables, MAX_TABLES);
    if (numeric == 0 && o->bottom_count > 0)
        return sl_fail(SLUICE_ERR_USAGE, "model.bottom is given, and the table has no numeric columns; leave it out");
    return sl_model_check_size("data.hash_buckets", o->columns.buckets, SL_MODEL_MAX_SIZE);
}

/* ---- parts ---- */

/* y = x W^T + b as the layer "<part>.<number>": values as Glorot draws them. */
static sluice_value linear(sluice_graph *g, sluice_value x, const char *part, int number, int64_t in, int64_t out)
{
    char layer[32], name[48];
    snprintf(layer, sizeof layer, "%s.%d", part, number);
    snprintf(name, sizeof name, "%s.weight", layer);
    sluice_init weights = { SLUICE_INIT_NORMAL, (float)sqrt(2.0 / ((double)in + (double)out)) };
    sluice_init biases = { SLUICE_INIT_NORMAL, (float)sqrt(1.0 / (double)out) };
    sluice_value w = sluice_parameter(g, name, 2, (int64_t[]){ out, in }, weights);
    snprintf(name, sizeof name, "%s.bias", layer);
    return sluice_linear_with(g, x, w, sluice_parameter(g, name, 1, &out, biases), false);
}

static void begin_layer(sluice_graph *g, const char *part, int64_t number)
{
    char layer[32];
    snprintf(layer, sizeof layer, "%s.%" PRId64, part, number);
    sluice_layer(g, layer);
}

/* "x" [B,numeric] -> [B,D] */
static sluice_value build_bottom(sluice_graph *g, const sl_model_options *o)
{
    int64_t in = o->columns.numeric;
    begin_layer(g, "bot_l", 0);
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ o->batch, in });
    for (int i = 0; i <= o->bottom_count; i++) {
        int64_t out = i < o->bottom_count ? o->bottom[i] : o->embedding;
        if (i > 0) begin_layer(g, "bot_l", 2 * i);
        x = sluice_relu(g, linear(g, x, "bot_l", 2 * i, in, out));
        in = out;
    }
    return x;
}

/* The rows [B,1,D] that "category.<number>" [B] names in its table. */
static sluice_value look_up(sluice_graph *g, const sl_model_options *o, int64_t number)
{
    char name[48];
    int64_t rows = o->columns.buckets, width = o->embedding;
    begin_layer(g, "emb_l", number);
    snprintf(name, sizeof name, "category.%" PRId64, number);
    sluice_value ids = sluice_input(g, name, SLUICE_I32, 2, (int64_t[]){ o->batch, 1 });
    snprintf(name, sizeof name, "emb_l.%" PRId64 ".weight", number);
    sluice_init init = { SLUICE_INIT_UNIFORM, (float)sqrt(1.0 / (double)rows) };
    sluice_value table = sluice_parameter(g, name, 2, (int64_t[]){ rows, width }, init);
    if (o->sparse) sluice_sparse(g, table, o->sparse_rows);
    return sluice_embedding(g, ids, table);
}

/* Values joined along dimension 1, however many: a CONCAT takes SL_MAX_INPUTS. Overwrites them. */
static sluice_value join(sluice_graph *g, sluice_value *values, int count)
{
    while (count > 1) {
        int made = 0;
        for (int i = 0; i < count; i += SL_MAX_INPUTS) {
            int group = count - i < SL_MAX_INPUTS ? count - i : SL_MAX_INPUTS;
            values[made++] = group > 1 ? sluice_concat(g, values + i, group, 1) : values[i];
        }
        count = made;
    }
    return values[0];
}

/* vectors [B,N,D] -> the products of each with those before it, [B, N (N-1) / 2], behind x [B,D] where there is one. */
static sluice_value interact(sluice_graph *g, const sl_model_options *o, sluice_value x, sluice_value vectors, int n)
{
    sluice_value parts[MAX_TABLES + 1];
    int count = 0;
    sluice_value products = sluice_matmul(g, vectors, vectors, false, true);
    products = sluice_reshape(g, products, 2, (int64_t[]){ o->batch, (int64_t)n * n });
    if (x != SLUICE_NONE) parts[count++] = x;
    for (int i = 1; i < n; i++) parts[count++] = sluice_split(g, products, 1, (int64_t)i * n, i);
    return join(g, parts, count);
}

static sluice_value build_top(sluice_graph *g, const sl_model_options *o, sluice_value x, int64_t in)
{
    for (int i = 0; i <= o->top_count; i++) {
        int64_t out = i < o->top_count ? o->top[i] : 1;
        if (i > 0) begin_layer(g, "top_l", 2 * i);
        x = linear(g, x, "top_l", 2 * i, in, out);
        if (i < o->top_count) x = sluice_relu(g, x);
        in = out;
    }
    return x;
}

sluice_status sl_model_build_recommender(sluice_graph *g, const sl_model_options *o, sl_model_info *info)
{
    sluice_value vectors[MAX_TABLES + 1], x = SLUICE_NONE;
    int n = 0;
    SL_TRY(check(o));
    if (o->columns.numeric > 0) {
        x = build_bottom(g, o);
        vectors[n++] = sluice_reshape(g, x, 3, (int64_t[]){ o->batch, 1, o->embedding });
    }
    for (int64_t i = 0; i < o->columns.categorical; i++) vectors[n++] = look_up(g, o, i);
    begin_layer(g, "top_l", 0);
    int64_t in = (x != SLUICE_NONE ? o->embedding : 0) + (int64_t)n * (n - 1) / 2;
    sluice_value y = build_top(g, o, interact(g, o, x, join(g, vectors, n), n), in);
    sluice_value target = sluice_input(g, "target", SLUICE_F32, 2, (int64_t[]){ o->batch, 1 });
    sluice_set_loss(g, sluice_bce_with_logits(g, y, target, SLUICE_NONE));
    sluice_set_output(g, y);
    info->classifies = info->binary = true;
    return SLUICE_OK;
}
