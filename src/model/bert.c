/* bert.c: the BERT family, with a head that guesses masked tokens, or one that classifies sentences and pairs of them.
 *
 * Names are those of Hugging Face's BertForMaskedLM and BertForSequenceClassification. Dropout follows the embedding, the
 * attention projection, the feed-forward projection and, before a classifier, the pooled output; BERT's dropout on the
 * attention weights themselves is not applied, because attention never holds those weights. Layers: "embed", "layer.0",
 * "layer.1", ..., "head".
 *
 * Inputs: "tokens" i32 [B,T]; a classifier also has "segments" i32 [B,T], which sentence a token is of, "lengths" i32 [B],
 * the tokens of a row that are no padding, and "target" i32 [B]. The other head has "targets" i32 [B,T], -1 where nothing
 * is to be guessed.
 *
 * Shapes: B micro-batch, T context, C width, V vocabulary. */
#include <string.h>

#include "format/weight_names.h"
#include "model/family.h"

#define STDDEV 0.02f

static const sl_encoder_names names = {
    .model = "bert",
    .attention = "attention.self.",
    .attention_out = "attention.output.dense",
    .first_norm = "attention.output.LayerNorm",
    .second_norm = "output.LayerNorm",
};

typedef struct bert {
    sl_encoder_model e;
    sluice_value lengths; /* SLUICE_NONE: rows are full */
} bert;

bool sl_model_head_classifies(const sl_model_options *o)
{
    return o->head != NULL && strcmp(o->head, "classifier") == 0;
}

bool sl_model_guesses(const sl_model_options *o)
{
    return strcmp(o->type, "bert") == 0 && !sl_model_head_classifies(o);
}

static sluice_value table(const bert *b, const char *name, int64_t rows)
{
    return sl_model_parameter(&b->e.m, "bert.embeddings.", name, rows, b->e.c.width,
                              (sluice_init){ SLUICE_INIT_NORMAL, STDDEV });
}

static sluice_value token_input(const bert *b, const char *name)
{
    return sluice_input(b->e.m.g, name, SLUICE_I32, 2, (int64_t[]){ b->e.m.o->batch, b->e.m.o->context });
}

/* tokens[B,T] -> x[B,T,C]; *words is the token embedding, which guessing uses again. Rows without segments are of the first
 * one. */
static sluice_value embed(bert *b, sluice_value *words)
{
    const sl_model_options *o = b->e.m.o;
    sluice_graph *g = b->e.m.g;
    sluice_layer(g, "embed");
    sluice_value tokens = token_input(b, "tokens");
    *words = table(b, "word_embeddings.weight", b->e.c.vocabulary);
    sluice_value places = table(b, "position_embeddings.weight", b->e.c.context);
    sluice_value kinds = table(b, "token_type_embeddings.weight", b->e.c.segments);
    if (b->e.c.context > o->context) places = sluice_split(g, places, 0, 0, o->context);
    sluice_value x = sluice_add(g, sluice_embedding(g, tokens, *words), places);
    if (b->e.c.classes > 0) {
        x = sluice_add(g, x, sluice_embedding(g, token_input(b, "segments"), kinds));
        b->lengths = sluice_input(g, "lengths", SLUICE_I32, 1, (int64_t[]){ o->batch });
    } else {
        x = sluice_add(g, x, sluice_split(g, kinds, 0, 0, 1));
    }
    x = sl_encoder_norm(&b->e, x, "bert.embeddings.", "LayerNorm");
    return sl_encoder_drop(&b->e, x, sl_model_embedding_dropout(o));
}

/* x[B,T,C] -> the loss of the tokens that are hidden. The decoder is the token embedding with a bias of its own. */
static void guess(const bert *b, sluice_value x, sluice_value words, sl_model_info *info)
{
    const char *block = "cls.predictions.";
    sluice_value y = sl_encoder_linear(&b->e, x, block, "transform.dense", b->e.c.width, b->e.c.width);
    y = sl_encoder_norm(&b->e, sl_model_activate(&b->e.m, &b->e.c, y), block, "transform.LayerNorm");
    sluice_value bias =
        sl_model_parameter(&b->e.m, block, "bias", b->e.c.vocabulary, 0, (sluice_init){ SLUICE_INIT_ZERO, 0 });
    sl_model_head(&b->e.m, y, words, bias, 0);
    info->tokens_per_sample = b->e.m.o->context;
    info->classifies = true;
}

/* The first token's output, once more transformed, is what classes are told by. */
static void classify(const bert *b, sluice_value x, sl_model_info *info)
{
    int64_t width = b->e.c.width;
    sluice_value pooled = sl_encoder_linear(&b->e, sl_encoder_first(&b->e, x), "bert.", "pooler.dense", width, width);
    pooled = sl_encoder_drop(&b->e, sluice_tanh(b->e.m.g, pooled), sl_model_classifier_dropout(b->e.m.o));
    sl_encoder_classify(&b->e, pooled, info);
}

static sluice_status check(const sl_model_options *o)
{
    bool guesses = o->head == NULL || strcmp(o->head, "masked_language") == 0;
    if (guesses) return SLUICE_OK;
    if (!sl_model_head_classifies(o))
        return sl_fail(SLUICE_ERR_USAGE, "model.head \"%s\" is not known; give masked_language or classifier", o->head);
    SL_TRY(sl_model_check_size("model.outputs", o->outputs, SL_MODEL_MAX_SIZE));
    if (o->outputs < 2)
        return sl_fail(SLUICE_ERR_USAGE, "model.outputs is 1, and a classifier needs at least 2 classes");
    return SLUICE_OK;
}

sluice_status sl_model_build_bert(sluice_graph *g, const sl_model_options *o, sl_model_info *info)
{
    bert b = { .e = { .m = { o, g, SLUICE_NONE, SLUICE_NONE } }, .lengths = SLUICE_NONE };
    sluice_value words;
    SL_TRY(check(o));
    SL_TRY(sl_model_describe(o, &b.e.c));
    sluice_value x = embed(&b, &words);
    for (int64_t i = 0; i < b.e.c.layers && x != SLUICE_NONE; i++) x = sl_encoder_block(&b.e, &names, x, i, b.lengths);
    sluice_layer(g, "head");
    if (b.e.c.classes > 0)
        classify(&b, x, info);
    else
        guess(&b, x, words, info);
    g->file_names = b.e.c.classes > 0 ? &sl_bert_classifier_weight_names : &sl_bert_weight_names;
    return SLUICE_OK;
}
