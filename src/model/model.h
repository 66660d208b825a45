/* model.h: families of models, each a table row: settings in, graph out. */
#ifndef SL_MODEL_MODEL_H
#define SL_MODEL_MODEL_H

#include "ir/graph.h"

/* Settings of all families; each reads its own. Comes from the "model" section. */
typedef struct sl_model_options {
    const char *type; /* "linear", "mlp", "gpt2" */
    int64_t batch;    /* micro-batch */
    /* linear, mlp */
    int64_t features, outputs; /* outputs: regression targets, or classes */
    int64_t hidden[16];
    int hidden_count;
    const char *activation; /* mlp, between layers: "none" (also NULL), "relu", "gelu" (tanh), "silu" */
    const char *loss;       /* "mse" (also NULL) or "cross_entropy" */
    bool bias;
    /* gpt2, which always has biases */
    int64_t layers, heads, width, context, vocabulary;
    double dropout;
    double norm_epsilon; /* 0: 1e-5 */
} sl_model_options;

typedef struct sl_model_info {
    int64_t tokens_per_sample; /* 0: not a token model */
    bool classifies;           /* output are logits of the targets' classes: accuracy can be counted */
} sl_model_info;

/* Builds forward, loss and output of the family named by o->type into g. Bad settings: SLUICE_ERR_USAGE naming key and
 * bound. */
sluice_status sl_model_build(sluice_graph *g, const sl_model_options *o, sl_model_info *info);
/* "linear, mlp, gpt2". */
const char *sl_model_names(void);

#endif
