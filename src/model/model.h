/* model.h: families of models, each a table row: settings in, graph out. */
#ifndef SL_MODEL_MODEL_H
#define SL_MODEL_MODEL_H

#include "core/sample_kind.h"
#include "format/model_config.h"
#include "ir/graph.h"

/* Categorical columns that a recommender reads at most: each is an input of its own. */
#define SL_MODEL_MAX_TABLES 256

/* Settings of all families; each reads its own. Comes from the "model" section. */
typedef struct sl_model_options {
    const char *type; /* a name of sl_model_names */
    int64_t batch;    /* micro-batch */
    /* Token models: the graph's output is the logits. False: there is no output, and the logits never exist as a whole,
     * unless tile_bytes (as sl_graph_tile gets it; 0: no tiles) is below the bytes of the head's weight. */
    bool logits;
    bool
        accuracy; /* token models: as without logits, and beside the loss the logits are the output, to count right ones */
    uint64_t tile_bytes;
    /* Token models: rows hold several documents. The graph has one more input, "positions" i32 [batch, context], the
     * position of each token in its document: attention stays inside documents, and positions restart with each. */
    bool packed;
    /* Token models, rows > 0: a graph for generation. It reads `rows` tokens of any of `slots` sequences, one a row: inputs
     * "tokens", "positions" in their sequences and "slots", i32[rows, 1]; attention keeps keys and values of `places`
     * positions a slot, at most `context`. The output is logits[wanted, 1, V] of the first rows, wanted = min(rows, slots).
     * No loss, no targets. */
    struct {
        int64_t rows, slots, places;
    } decode;
    /* Models of images: what the data has; 0: it has none. */
    struct {
        int64_t height, width, channels;
    } image;
    double label_smoothing; /* models with cross entropy: 0 to 1 */
    const char *batch_norm; /* models with batch norms: statistics of a "micro_batch" (also NULL), or of "all_ranks" */
    /* Models of rows of a table: its columns, and what categories are below; 0: there is no table. */
    struct {
        int64_t numeric, categorical, buckets;
    } columns;
    /* Models of speech: what the data has; 0: it has none. */
    struct {
        int64_t rows, bands, labels;
    } speech;
    int64_t frame_stride; /* speech: rows of input for each frame of output: 1, 2, 4, .. */
    bool one_way;         /* speech: no layer looks back from the end */
    /* linear, mlp */
    int64_t features, outputs; /* outputs: regression targets, or classes */
    int64_t hidden[16];
    int hidden_count;
    const char *activation; /* mlp, between layers: "none" (also NULL), "relu", "gelu" (tanh), "silu" */
    const char *loss;       /* "mse" (also NULL), "bce" (outputs are logits of independent labels) or "cross_entropy" */
    bool bias;
    /* cnn, resnet, vit, speech: classes are `outputs` */
    int64_t filters[16]; /* cnn, speech: channels of the convolutions; `hidden` are widths of the linears behind them */
    int filter_count;
    int64_t kernel, padding, pool; /* cnn: of each convolution, and of the pooling behind it (1: none) */
    int64_t depth;                 /* resnet: 18, 34, 50, 101 or 152 */
    const char *stem;              /* resnet: "imagenet" (also NULL) or "cifar" */
    int64_t patch;                 /* vit: side of a patch */
    /* recommender: hidden widths of its perceptrons, and the width of embeddings */
    int64_t bottom[16], top[16];
    int bottom_count, top_count;
    int64_t embedding;
    bool sparse;         /* its tables are (ir/sparse.h) */
    int64_t sparse_rows; /* rows of each that a step touches at most; 0: as many as its batches have */
    /* bert */
    const char *head; /* "masked_language" (also NULL), or "classifier" of `outputs` classes */
    /* Token models. A folder's config.json says all of a decoder but how it is used: batch, context, packed, dropout,
     * precision and what is trained; the other settings then only repeat it. */
    sl_model_config folder; /* family SL_DECODER_NONE: there is no folder */
    sluice_dtype precision; /* that the graph will be lowered to; Gemma's embedding scale has it */
    int64_t layers, heads, width, context, vocabulary;
    double dropout; /* gpt2, bert, vit, cnn, speech */
    /* gpt2, bert, vit: behind the embedding; bert: before a classifier. Where dropout_by_place is false or one is
     * negative, `dropout` does there, too. */
    double embedding_dropout, classifier_dropout;
    bool dropout_by_place;
    double norm_epsilon;  /* 0: 1e-5 */
    bool untied;          /* the head is a parameter of its own, not the token embedding */
    int64_t feed_forward; /* 0: 4 times the width for gpt2, for others 8/3 of it, up to a multiple of 256 */
    /* Token models but gpt2 */
    int64_t kv_heads;    /* 0: as many as heads */
    int64_t head_width;  /* 0: width / heads */
    double rope_theta;   /* 0: 500000 */
    bool attention_bias; /* llama, qwen3, gemma, gemma2, gemma3_text */
    int64_t window;      /* of layers that have one in this family; 0: none, of gemma2 and gemma3_text 4096 */
    /* Parameters that are not trained: file-name patterns over their names. Each must match one. */
    const char *const *freeze;
    int freeze_count;
    /* Parameters that start as they are initialised, whatever weights the others start with; likewise. */
    const char *const *fresh;
    int fresh_count;
    /* Token models: beside each linear that a target names, alpha / rank times a product of two trained matrices,
     * "<name>.lora_A.weight" [rank, in] and "<name>.lora_B.weight" [out, rank]; everything else is frozen. A target is a
     * file-name pattern over the names of linears (without ".weight"), the end of such a name ("q_proj"), or
     * "all-linear". Where it names a part of a fused linear, as q_proj is one of qkv_proj, the part has an adapter of
     * its own; where it names the fused one, one adapter serves all parts. Each target must name a linear. */
    struct {
        int64_t rank;         /* 0: no adapters */
        double alpha;         /* 0: the rank */
        bool rank_stabilised; /* alpha / sqrt(rank) instead */
        double dropout;
        /* Modules beside the adapters that are trained whole; the ends of their names, or patterns. */
        const char *const *whole;
        int whole_count;
        const char *const *targets;
        int target_count;
    } lora;
} sl_model_options;

typedef struct sl_model_info {
    int64_t tokens_per_sample; /* 0: not a token model */
    bool classifies;           /* output are logits of the targets' classes: accuracy can be counted */
    bool binary;               /* classifies: each output is one logit, each target f32 0 or 1 */
    bool transcribes;          /* output are logits of characters for each frame, targets are transcripts: CTC's */
} sl_model_info;

/* Builds forward, loss and output of the family named by o->type into g. Bad settings: SLUICE_ERR_USAGE naming key and
 * bound. */
sluice_status sl_model_build(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
/* The decoder that options describe: what its config.json says. Bad settings: SLUICE_ERR_USAGE. */
sluice_status sl_model_describe(const sl_model_options *o, sl_model_config *out);
/* The families' names: "linear, mlp, ...". */
const char *sl_model_names(void);
/* Whether a family has a vocabulary of tokens; false for a name that is none. */
bool sl_model_reads_tokens(const char *type);
/* What samples are of a model that options describe; its type is a name of a family. */
sl_sample_kind sl_model_reads(const sl_model_options *o);
/* Whether it is to guess tokens that the data hides. */
bool sl_model_guesses(const sl_model_options *o);

#endif
