/* sluice.h: train networks larger than the memory of the device that computes them.
 *
 * The whole public interface. A program describes a model as a graph, an engine plans every byte and every move of its
 * training step before the first one runs, and then follows that plan:
 *
 *     sluice_graph *g;   sluice_graph_create(&g);
 *     sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){10, 10});
 *     ...
 *     sluice_set_loss(g, sluice_mse(g, y, target));
 *     sluice_engine *e;  sluice_engine_create(g, &options, &e);
 *     sluice_train_step(e, &batch, &loss);
 *
 * Rules that hold for every call:
 *   - Functions that can fail return a status; SLUICE_OK is 0. sluice_error() then says what was wrong, where, and what
 *     to do.
 *   - Outputs come last and are set only on success. Every _destroy takes NULL. Any other argument that is NULL, out of
 *     range or not finite where the contract does not allow it is SLUICE_ERR_USAGE; functions without a status do
 *     nothing then, and builders keep the error in the graph.
 *   - The library never exits, aborts or prints. Text goes to a FILE or a callback that the caller gives.
 *   - Different objects may be used from different threads at once. One object belongs to one thread at a time.
 *   - Structs with a `size` field carry sizeof themselves and grow at their end in later versions: start from _init, which
 *     passes this header's sizeof to _init_sized, and that writes no more. A field that an older library does not know is
 *     refused where it is set. Events and what else callbacks see grow likewise; other structs keep their size. */
#ifndef SLUICE_H
#define SLUICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_API __attribute__((visibility("default")))

/* ---- Version ---- */

#define SLUICE_VERSION_MAJOR 0
#define SLUICE_VERSION_MINOR 2
#define SLUICE_VERSION_PATCH 0
/* "0.2.0" of the library that is running, which may be newer than this header. */
SLUICE_API const char *sluice_version(void);

/* ---- Status ---- */

/* The values 0 to 7 and 75 are also the exit statuses of the program. */
typedef enum sluice_status {
    SLUICE_OK = 0,
    SLUICE_ERR_FAILED = 1,    /* anything not named below */
    SLUICE_ERR_USAGE = 2,     /* command line, configuration, API call, or their fit with the model */
    SLUICE_ERR_NO_FIT = 3,    /* does not fit in memory; only before step 1 */
    SLUICE_ERR_INPUT = 4,     /* other input missing, empty, too short, malformed, or of another model */
    SLUICE_ERR_RANK = 5,      /* a rank was lost, stuck or diverged */
    SLUICE_ERR_IO = 6,        /* I/O error or disk full on a file already accepted */
    SLUICE_ERR_NUMBERS = 7,   /* a loss or gradient is not finite */
    SLUICE_ERR_NO_MEMORY = 8, /* the operating system refused memory; the program exits 1 */
    SLUICE_ERR_STOPPED = 75   /* stopped by request, after a save where there was a step to save */
} sluice_status;

/* What went wrong in the newest failed call of this thread. Never NULL; valid until the thread's next failure. */
SLUICE_API const char *sluice_error(void);
/* Copies `text` as a terminal may show it: printable UTF-8 as it is; control characters, marks of direction and bytes
 * that are not UTF-8 as \n, \x1b, \u202e. What has no room is left off, in whole characters. Returns the length. Messages
 * and log lines of the library have passed through it; names and paths in events have not. */
SLUICE_API size_t sluice_printable(const char *text, char *out, size_t out_bytes);
/* The exit status a program should end with. */
SLUICE_API int sluice_exit_status(sluice_status status);

typedef enum { SLUICE_LOG_WARNING, SLUICE_LOG_NOTE, SLUICE_LOG_DETAIL } sluice_log_level;
/* Receives whole lines without a newline. Called from the thread that called the library. */
typedef void (*sluice_log_fn)(void *user, sluice_log_level level, const char *line);

/* ---- Graphs ---- */

/* Inputs are f32 or i32. bf16 and f16 are what an engine computes in when its options say so. */
typedef enum { SLUICE_F32, SLUICE_I32, SLUICE_BF16, SLUICE_F16, SLUICE_DTYPE_COUNT } sluice_dtype;

/* A tensor of a graph. Builders return SLUICE_NONE after an error; further builders pass it on, and the first error is
 * reported by sluice_graph_check and sluice_engine_create, so that a model can be written without a check per line. */
typedef int32_t sluice_value;
#define SLUICE_NONE ((sluice_value)-1)

typedef struct sluice_graph sluice_graph;

SLUICE_API sluice_status sluice_graph_create(sluice_graph **out);
SLUICE_API void sluice_graph_destroy(sluice_graph *g);
SLUICE_API sluice_status sluice_graph_check(const sluice_graph *g);

/* How a parameter is initialised. All are pure functions of the seed and the parameter's name. */
typedef enum { SLUICE_INIT_ZERO, SLUICE_INIT_ONE, SLUICE_INIT_NORMAL, SLUICE_INIT_UNIFORM } sluice_init_kind;
typedef struct sluice_init {
    sluice_init_kind kind;
    float scale; /* NORMAL: standard deviation; UNIFORM: values in [-scale, scale) */
} sluice_init;

/* Names of layers, inputs and parameters are UTF-8 without control characters, of 1 to 1,024 bytes. An input and a
 * parameter have different names. A parameter's name is a tensor's in files, so "__metadata__" and names that end in
 * ".tile" and a number are not for parameters. */

/* Starts a layer: the nodes made from here to the next call are staged, recomputed and updated together. Without any
 * call a graph is one layer. */
SLUICE_API void sluice_layer(sluice_graph *g, const char *name);
/* Data of one micro-batch; dims include the batch. Names are unique. */
SLUICE_API sluice_value sluice_input(sluice_graph *g, const char *name, sluice_dtype dtype, int rank,
                                     const int64_t *dims);
SLUICE_API sluice_value sluice_parameter(sluice_graph *g, const char *name, int rank, const int64_t *dims,
                                         sluice_init init);
/* Excludes a parameter from training: it gets no gradient and no optimizer state. */
SLUICE_API void sluice_freeze(sluice_graph *g, sluice_value parameter);
/* Makes a table of embeddings sparse: all its rows and their optimizer state stay on the host, and a step moves, reduces
 * and updates only those that the micro-batches of all ranks name. Only sluice_embedding may read it, by inputs of the
 * graph that nothing else reads. `most_rows`: how many different rows a step names at most; 0: as many as its batches
 * have ids. A step with more fails before it changes anything. SGD without momentum and Adagrad, both without decay, give
 * the weights of a dense table; Adam and AdamW without decay become PyTorch's SparseAdam for it; others are refused. All
 * ranks then call forward, evaluate and predict together. */
SLUICE_API void sluice_sparse(sluice_graph *g, sluice_value parameter, int64_t most_rows);

SLUICE_API sluice_value sluice_add(sluice_graph *g, sluice_value a, sluice_value b);      /* broadcasts as NumPy does */
SLUICE_API sluice_value sluice_subtract(sluice_graph *g, sluice_value a, sluice_value b); /* a + (-1) b */
SLUICE_API sluice_value sluice_multiply(sluice_graph *g, sluice_value a, sluice_value b); /* broadcasts */
SLUICE_API sluice_value sluice_scale(sluice_graph *g, sluice_value x, float factor);
/* y = x W^T + b with parameters "<name>.weight" [features, in] and "<name>.bias" [features], both uniform in
 * +-1/sqrt(in), as PyTorch initialises them. */
SLUICE_API sluice_value sluice_linear(sluice_graph *g, sluice_value x, int64_t features, const char *name);
/* The same with given parameters: weight [out, in], or [in, out] when in_out is true; bias may be SLUICE_NONE. */
SLUICE_API sluice_value sluice_linear_with(sluice_graph *g, sluice_value x, sluice_value weight, sluice_value bias,
                                           bool in_out);
/* Batched matrix multiplication over equal leading dimensions; transpose_a/b swap the operand's last two. */
SLUICE_API sluice_value sluice_matmul(sluice_graph *g, sluice_value a, sluice_value b, bool transpose_a,
                                      bool transpose_b);
SLUICE_API sluice_value sluice_embedding(sluice_graph *g, sluice_value ids, sluice_value table);
/* Sums, or means, of runs of the rows of x [.., C]: y [B, C]. `ends` [B], i32, is where each run ends, counted in rows, and
 * the next begins: the row pointers of a sparse matrix in compressed rows (CSR) without the leading 0. A run without rows
 * gives 0; rows behind the last run are not used. Ends that decrease, or lie behind the rows, are SLUICE_ERR_INPUT. */
SLUICE_API sluice_value sluice_bag(sluice_graph *g, sluice_value rows, sluice_value ends, bool mean);
/* The same of the rows that ids [..] name in a table: lists of categories, as torch.nn.EmbeddingBag has them. Ids behind the
 * last end must be rows of the table; of a sparse table they count as touched, so repeat one that is. */
SLUICE_API sluice_value sluice_embedding_bag(sluice_graph *g, sluice_value ids, sluice_value ends, sluice_value table,
                                             bool mean);
/* For data in coordinates (COO): entry i is in bag bags[i], in increasing order; ends[0 .. bag_count) gets what sluice_bag
 * takes. */
SLUICE_API sluice_status sluice_bag_ends(const int32_t *bags, int64_t count, int64_t bag_count, int32_t *ends);
/* Images lie channels last: x [N, H, W, C]. */
typedef struct sluice_conv_options {
    size_t size; /* start from sluice_conv_options_init: strides, dilation and groups 1, no padding */
    int stride_h, stride_w;
    int padding_h, padding_w; /* zeros before and behind */
    int dilation_h, dilation_w;
    int groups; /* divides C and the outputs: output channels of a group see the input channels of that group alone */
} sluice_conv_options;
SLUICE_API void sluice_conv_options_init_sized(sluice_conv_options *o, size_t size);
static inline void sluice_conv_options_init(sluice_conv_options *o)
{
    sluice_conv_options_init_sized(o, sizeof *o);
}
/* weight [O, C / groups, kh, kw], as PyTorch keeps it, bias [O] or SLUICE_NONE -> [N, H', W', O]. */
SLUICE_API sluice_value sluice_conv2d(sluice_graph *g, sluice_value x, sluice_value weight, sluice_value bias,
                                      const sluice_conv_options *options);
typedef struct sluice_pool_options {
    size_t size;              /* start from sluice_pool_options_init: no padding, which counts in averages */
    int kernel_h, kernel_w;   /* must be given */
    int stride_h, stride_w;   /* 0: as the kernel */
    int padding_h, padding_w; /* at most half of the kernel */
    bool ceil_mode;           /* a last window may end outside of x and its padding */
    bool count_include_pad;   /* averages divide by the places of padding too */
} sluice_pool_options;
SLUICE_API void sluice_pool_options_init_sized(sluice_pool_options *o, size_t size);
static inline void sluice_pool_options_init(sluice_pool_options *o)
{
    sluice_pool_options_init_sized(o, sizeof *o);
}
/* x [N, H, W, C] -> [N, H', W', C]. */
SLUICE_API sluice_value sluice_max_pool2d(sluice_graph *g, sluice_value x, const sluice_pool_options *options);
SLUICE_API sluice_value sluice_avg_pool2d(sluice_graph *g, sluice_value x, const sluice_pool_options *options);
/* x [N, .., C] -> [N, C]: the mean of all places. */
SLUICE_API sluice_value sluice_global_avg_pool(sluice_graph *g, sluice_value x);
/* x [N, .., C] -> [N, C * ..], channel by channel, as PyTorch flattens [N, C, ..]: its weights of the linear that follows
 * fit. */
SLUICE_API sluice_value sluice_flatten(sluice_graph *g, sluice_value x);
SLUICE_API sluice_value sluice_relu(sluice_graph *g, sluice_value x);
SLUICE_API sluice_value sluice_gelu(sluice_graph *g, sluice_value x, bool exact); /* exact: erf; otherwise tanh */
SLUICE_API sluice_value sluice_silu(sluice_graph *g, sluice_value x);
SLUICE_API sluice_value sluice_tanh(sluice_graph *g, sluice_value x);
SLUICE_API sluice_value sluice_sigmoid(sluice_graph *g, sluice_value x);
/* x [.., 2F] -> [.., F]: silu of a row's first half times its second half. */
SLUICE_API sluice_value sluice_swiglu(sluice_graph *g, sluice_value x);
/* The same with the gelu of the first half; exact: erf, otherwise tanh. */
SLUICE_API sluice_value sluice_geglu(sluice_graph *g, sluice_value x, bool exact);
/* cap * tanh(x / cap): keeps numbers within +-cap. */
SLUICE_API sluice_value sluice_softcap(sluice_graph *g, sluice_value x, float cap);
SLUICE_API sluice_value sluice_softmax(sluice_graph *g, sluice_value x);     /* over the last dimension */
SLUICE_API sluice_value sluice_log_softmax(sluice_graph *g, sluice_value x); /* its logarithm */
/* bias may be SLUICE_NONE. */
SLUICE_API sluice_value sluice_layer_norm(sluice_graph *g, sluice_value x, sluice_value weight, sluice_value bias,
                                          float epsilon);
SLUICE_API sluice_value sluice_rms_norm(sluice_graph *g, sluice_value x, sluice_value weight, float epsilon);
/* x * rstd * (offset + weight). offset is 0 or 1: with 1 weights are differences from 1 and begin at 0, as Gemma's. */
SLUICE_API sluice_value sluice_rms_norm_offset(sluice_graph *g, sluice_value x, sluice_value weight, float epsilon,
                                               float offset);

typedef struct sluice_batch_norm_options {
    size_t size;
    float epsilon;         /* 1e-5 */
    float momentum;        /* 0.1: how much the newest micro-batch counts in the running statistics */
    bool relu;             /* the result is max(result, 0); behind the residual */
    sluice_value residual; /* SLUICE_NONE, or a value like x that is added to the result */
    bool all_ranks;        /* statistics are those of the micro-batches that all ranks compute at the same time */
} sluice_batch_norm_options;
SLUICE_API void sluice_batch_norm_options_init_sized(sluice_batch_norm_options *o, size_t size);
static inline void sluice_batch_norm_options_init(sluice_batch_norm_options *o)
{
    sluice_batch_norm_options_init_sized(o, sizeof *o);
}
/* x [.., C] -> the same shape: each channel less its mean, divided by its deviation, times "<name>.weight" [C] (all 1),
 * plus "<name>.bias" [C] (all 0). In training, mean and deviation are those of the micro-batch, of which there must be at
 * least 2 rows; evaluation takes the running statistics. These are values that the engine keeps and does not train, as
 * PyTorch does: "<name>.running_mean" [C], from 0, "<name>.running_var" [C], from 1, both f32, and
 * "<name>.num_batches_tracked", which counts micro-batches. Every micro-batch of a step changes them, in global order,
 * also where the step is skipped because its gradient is not finite. They are in checkpoints, in weights files and in
 * the hash of the state. With all_ranks, the micro-batches that the ranks compute at the same time count as one: N ranks
 * with m samples each (dimension 0 of x) have the statistics of one rank with N m, bit for bit, and these change the
 * running ones once. A batch norm whose weight and bias are both frozen (sluice_freeze) stays as it was learned: training
 * takes the running statistics, too, and leaves them as they are. options may be NULL. */
SLUICE_API sluice_value sluice_batch_norm(sluice_graph *g, sluice_value x, const char *name,
                                          const sluice_batch_norm_options *options);
/* x [N, .., C] -> the same shape: of each sample, the channels of each of `groups` groups of neighbours are normalised
 * together; then as batch norm with "<name>.weight" and "<name>.bias". Training and evaluation are alike. */
SLUICE_API sluice_value sluice_group_norm(sluice_graph *g, sluice_value x, int groups, const char *name, float epsilon);
/* qkv [B,T,(heads+2*kv_heads)*D] -> the same shape: the RMS norm of each query head with q_weight [D] and of each key
 * head with k_weight [D]; value heads pass. To be used before sluice_rotary. */
SLUICE_API sluice_value sluice_qk_norm(sluice_graph *g, sluice_value qkv, sluice_value q_weight, sluice_value k_weight,
                                       int heads, int kv_heads, float epsilon, float offset);
/* Rotates the first `heads` heads of width head_width in each row of x [B, T, W], for positions 0 .. T-1. */
SLUICE_API sluice_value sluice_rotary(sluice_graph *g, sluice_value x, int heads, int head_width, float base);

/* How the angles of a rotary embedding are scaled for contexts longer than the model was trained for: the "rope_type" of
 * Hugging Face's config.json. */
typedef enum {
    SLUICE_ROTARY_DEFAULT, /* not at all */
    SLUICE_ROTARY_LINEAR,  /* divided by factor */
    SLUICE_ROTARY_DYNAMIC, /* the base grows with sequences longer than context; their length is T */
    SLUICE_ROTARY_LLAMA3,  /* low frequencies divided by factor */
    SLUICE_ROTARY_YARN,    /* the same with another ramp, and longer vectors */
} sluice_rotary_scaling;
typedef struct sluice_rotary_options {
    size_t size;
    int heads, head_width;
    int rotated; /* dimensions of each head that are rotated, from its first; 0: all. The others pass */
    float base;  /* 10000 */
    sluice_rotary_scaling scaling;
    float factor;           /* at least 1; not for DEFAULT */
    int context;            /* tokens that positions were trained for; DYNAMIC, LLAMA3, YARN */
    float low, high;        /* turns within the context below which frequencies are scaled and above which they are not.
                             * LLAMA3: low_freq_factor, high_freq_factor, 0: 1 and 4. YARN: beta_slow, beta_fast, 0: 1, 32 */
    float attention_factor; /* cosines and sines are multiplied by it; 0: 1, and of YARN what follows from its factor */
    float mscale, mscale_all_dim; /* YARN, where attention_factor is 0 */
    bool fractional;              /* YARN: the ramp does not begin and end at whole pairs ("truncate": false) */
} sluice_rotary_options;
SLUICE_API void sluice_rotary_options_init_sized(sluice_rotary_options *o, size_t size);
static inline void sluice_rotary_options_init(sluice_rotary_options *o)
{
    sluice_rotary_options_init_sized(o, sizeof *o);
}
/* As sluice_rotary. positions [B, T] i32 says where each row stands, for packed documents; SLUICE_NONE: at 0 .. T-1. */
SLUICE_API sluice_value sluice_rotary_with(sluice_graph *g, sluice_value x, sluice_value positions,
                                           const sluice_rotary_options *options);
/* q [B,T,heads*D], k and v [B,S,kv_heads*D]. kv_heads divides heads. Scores are scaled by 1/sqrt(D). */
SLUICE_API sluice_value sluice_attention(sluice_graph *g, sluice_value q, sluice_value k, sluice_value v, int heads,
                                         int kv_heads, bool causal);
/* The same on one tensor [B,T,(heads+2*kv_heads)*D] that holds q, k, v side by side: no copies. */
SLUICE_API sluice_value sluice_attention_packed(sluice_graph *g, sluice_value qkv, int heads, int kv_heads,
                                                bool causal);
typedef struct sluice_attention_options {
    size_t size;   /* start from sluice_attention_options_init: causal, the rest 0 */
    int heads;     /* must be given */
    int kv_heads;  /* 0: as many as heads */
    bool causal;   /* query i sees keys j <= i */
    int window;    /* of those only j > i - window: the last `window` keys; 0: all. Needs causal */
    float softcap; /* scaled scores s become softcap * tanh(s / softcap), before the mask; 0: they stay */
    float scale;   /* of scores; 0: 1/sqrt(D) */
} sluice_attention_options;
SLUICE_API void sluice_attention_options_init_sized(sluice_attention_options *o, size_t size);
static inline void sluice_attention_options_init(sluice_attention_options *o)
{
    sluice_attention_options_init_sized(o, sizeof *o);
}
/* Attention with options. q, k and v as for sluice_attention; with k and v SLUICE_NONE, q is as for
 * sluice_attention_packed. positions, or SLUICE_NONE: an input [B,T] i32, the position of each element in its document
 * (several documents lie in a row, each counted from 0), so that query t sees no key before t - positions[t]. Where
 * attention is not causal it is an input [B] i32 instead, the length of each row: the keys behind it are not seen. */
SLUICE_API sluice_value sluice_attention_with(sluice_graph *g, sluice_value q, sluice_value k, sluice_value v,
                                              sluice_value positions, const sluice_attention_options *options);
SLUICE_API sluice_value sluice_dropout(sluice_graph *g, sluice_value x, float p);
SLUICE_API sluice_value sluice_reshape(sluice_graph *g, sluice_value x, int rank,
                                       const int64_t *dims); /* one dim may be -1 */
SLUICE_API sluice_value sluice_transpose(sluice_graph *g, sluice_value x, const int *order);
SLUICE_API sluice_value sluice_split(sluice_graph *g, sluice_value x, int axis, int64_t start, int64_t size);
/* x with `part` added to its elements from `start` on along `axis`. */
SLUICE_API sluice_value sluice_add_part(sluice_graph *g, sluice_value x, sluice_value part, int axis, int64_t start);
SLUICE_API sluice_value sluice_concat(sluice_graph *g, const sluice_value *values, int count, int axis);
/* Mean over the rows whose target is not ignore_index. logits [.., V], targets [..] i32. */
SLUICE_API sluice_value sluice_cross_entropy(sluice_graph *g, sluice_value logits, sluice_value targets,
                                             int32_t ignore_index);
/* The cross entropy of the logits x weight^T, computed in parts: x [.., I], weight [V, I]. The same loss as a linear
 * and its cross entropy in less memory, because the logits never exist as a whole. */
SLUICE_API sluice_value sluice_linear_cross_entropy(sluice_graph *g, sluice_value x, sluice_value weight,
                                                    sluice_value targets, int32_t ignore_index);
/* Both of logits that a soft cap keeps within +-softcap, as sluice_softcap does; 0: none. */
SLUICE_API sluice_value sluice_cross_entropy_capped(sluice_graph *g, sluice_value logits, sluice_value targets,
                                                    int32_t ignore_index, float softcap);
SLUICE_API sluice_value sluice_linear_cross_entropy_capped(sluice_graph *g, sluice_value x, sluice_value weight,
                                                           sluice_value targets, int32_t ignore_index, float softcap);
/* Both with label smoothing, 0 to 1: a target's class counts 1 - smoothing, and smoothing is spread evenly over all
 * classes. 0: none. */
SLUICE_API sluice_value sluice_cross_entropy_smoothed(sluice_graph *g, sluice_value logits, sluice_value targets,
                                                      int32_t ignore_index, float softcap, float smoothing);
SLUICE_API sluice_value sluice_linear_cross_entropy_smoothed(sluice_graph *g, sluice_value x, sluice_value weight,
                                                             sluice_value targets, int32_t ignore_index, float softcap,
                                                             float smoothing);
/* The last one with a bias, as BERT's head has it: of the logits x weight^T + bias, bias [V] or SLUICE_NONE. */
SLUICE_API sluice_value sluice_linear_cross_entropy_with(sluice_graph *g, sluice_value x, sluice_value weight,
                                                         sluice_value bias, sluice_value targets, int32_t ignore_index,
                                                         float softcap, float smoothing);
SLUICE_API sluice_value sluice_mse(sluice_graph *g, sluice_value y, sluice_value target);
/* Binary cross entropy of logits y with targets 0 to 1 of the same shape: the mean over all elements, each first
 * multiplied with its weight. weight: of the same shape, or SLUICE_NONE. All are f32, and every element is a target. */
SLUICE_API sluice_value sluice_bce_with_logits(sluice_graph *g, sluice_value y, sluice_value target,
                                               sluice_value weight);
/* Gated recurrent unit as PyTorch's, over the frames of sequences. gates_x [B, T, 3H]: the input's part of the gates r, z, n
 * with its bias, made by a linear before; weight [3H, H] and bias [3H]: weight_hh and bias_hh. Gives the states [B, T, H].
 * lengths [B] i32: frames of each sequence that count, 0 to T; states behind them are 0; SLUICE_NONE: all. reverse: from
 * the last frame that counts to the first. */
SLUICE_API sluice_value sluice_gru(sluice_graph *g, sluice_value gates_x, sluice_value weight, sluice_value bias,
                                   sluice_value lengths, bool reverse);
/* Connectionist temporal classification, as PyTorch's ctc_loss of log_softmax(logits) with reduction "mean": the mean over
 * sequences of -log p(labels) / number of labels. logits [B, T, V]; labels [B, S] i32, in each row -1 behind the last one;
 * lengths [B] i32: frames of each sequence that count. A sequence needs a frame for each label and one between equal
 * neighbours: a batch without them is refused, or with zero_infinity such a sequence has loss 0 and no gradient. Every
 * sequence is a target, also one without labels. */
SLUICE_API sluice_value sluice_ctc_loss(sluice_graph *g, sluice_value logits, sluice_value labels, sluice_value lengths,
                                        int32_t blank, bool zero_infinity);
SLUICE_API sluice_value sluice_sum(sluice_graph *g, sluice_value x);
SLUICE_API sluice_value sluice_mean(sluice_graph *g, sluice_value x);

SLUICE_API void sluice_set_loss(sluice_graph *g, sluice_value loss);     /* a scalar */
SLUICE_API void sluice_set_output(sluice_graph *g, sluice_value output); /* what sluice_predict returns */
SLUICE_API void sluice_graph_print(const sluice_graph *g, FILE *out);

#define SLUICE_MAX_RANK 6 /* dimensions of a tensor */
/* Of a value that a builder returned: its type, and its shape, dims[0 .. *rank). */
SLUICE_API sluice_status sluice_value_shape(const sluice_graph *g, sluice_value value, sluice_dtype *dtype, int *rank,
                                            int64_t dims[SLUICE_MAX_RANK]);
/* How many parameters there are, frozen ones too; and one of them by its number from 0, in the order in which they were
 * made. *trained is false where it is frozen. The name is valid as long as the graph. */
SLUICE_API int sluice_graph_parameters(const sluice_graph *g); /* 0 for NULL */
SLUICE_API sluice_status sluice_graph_parameter(const sluice_graph *g, int index, const char **name, bool *trained,
                                                int *rank, int64_t dims[SLUICE_MAX_RANK]);

/* ---- Engines ---- */

typedef enum {
    SLUICE_SGD,
    SLUICE_ADAGRAD,
    SLUICE_ADAM,
    SLUICE_ADAMW,
    SLUICE_LAMB,
    SLUICE_LARS,
    SLUICE_LION,
    SLUICE_RMSPROP
} sluice_optimizer_kind;

/* Lies within sluice_options, and therefore keeps its size. */
typedef struct sluice_optimizer {
    size_t size;
    sluice_optimizer_kind kind;
    double lr, weight_decay, beta1, beta2, epsilon; /* beta2 is RMSprop's alpha */
    double momentum, dampening;                     /* SGD, LARS; momentum also RMSprop */
    bool nesterov, amsgrad;
    bool centered;               /* RMSprop: divides by the deviation of the gradient from its mean */
    bool uncorrected;            /* Adam, AdamW, LAMB: no bias correction of the moments */
    double trust;                /* LARS coefficient, 0.001 */
    double min_trust, max_trust; /* LAMB bounds, 0.01 and 10 */
} sluice_optimizer;
/* Defaults of `kind` as in PyTorch and DeepSpeed (lr 1e-3, betas 0.9/0.999, eps 1e-8, no decay but AdamW's 0.01,
 * ...). */
SLUICE_API void sluice_optimizer_init_sized(sluice_optimizer *o, sluice_optimizer_kind kind, size_t size);
static inline void sluice_optimizer_init(sluice_optimizer *o, sluice_optimizer_kind kind)
{
    sluice_optimizer_init_sized(o, kind, sizeof *o);
}

/* Where something lives: on the device, on the host, or wherever the plan finds best. */
typedef enum { SLUICE_PLACE_AUTO, SLUICE_PLACE_DEVICE, SLUICE_PLACE_HOST, SLUICE_PLACE_DISK } sluice_place;
typedef enum {
    SLUICE_ACTIVATIONS_AUTO,
    SLUICE_ACTIVATIONS_KEEP,
    SLUICE_ACTIVATIONS_RECOMPUTE,
    SLUICE_ACTIVATIONS_OFFLOAD,
    SLUICE_ACTIVATIONS_SELECTIVE /* what costs little is recomputed: norms, gates, activation functions; the rest is kept */
} sluice_activations;

/* ---- Ranks ------------------------------------------------------------------------------------------------------
 *
 * A rank is one process with one device. All ranks of a job make the same calls on their engines in the same order; a
 * rank that is lost, stuck or does something else ends the job on all of them with SLUICE_ERR_RANK. */

typedef struct sl_comm sluice_world;

typedef struct sluice_launch_options {
    size_t size;
    int ranks;              /* processes to start on this machine */
    double timeout_seconds; /* how long one rank waits for another; 0: 60 */
    const int *stop;        /* polled: a signal number is passed on to every rank, once per change; NULL: never */
    int *save_request; /* polled and cleared: SIGUSR1 is passed on to one rank, who tells the others; NULL: never */
} sluice_launch_options;
SLUICE_API void sluice_launch_options_init_sized(sluice_launch_options *o, size_t size);
static inline void sluice_launch_options_init(sluice_launch_options *o)
{
    sluice_launch_options_init_sized(o, sizeof *o);
}
/* Starts `ranks` processes, each of which calls body(user, world) and ends with its status; waits for all of them. To
 * be called before the process has a second thread. The ranks die with the caller, and leave nothing behind. Returns
 * SLUICE_OK when all did; otherwise the first failure, its message naming the rank, or SLUICE_ERR_RANK where one was
 * lost. The body does not return to the caller's code: the process ends after it. */
SLUICE_API sluice_status sluice_launch(const sluice_launch_options *o,
                                       sluice_status (*body)(void *user, sluice_world *world), void *user);
/* The world this process was started in: by mpirun or srun (needs the MPI part), or alone. */
SLUICE_API sluice_status sluice_world_join(double timeout_seconds, sluice_world **out);
SLUICE_API void sluice_world_leave(sluice_world *w);     /* NULL is fine */
SLUICE_API int sluice_world_rank(const sluice_world *w); /* 0 for NULL */
SLUICE_API int sluice_world_size(const sluice_world *w); /* 1 for NULL */

/* How a layer's flat buffer is sharded over ranks: in N parts; in blocks, round-robin; whole layers to ranks; in
 * proportion to weights. */
typedef enum {
    SLUICE_PARTITION_LAYER,
    SLUICE_PARTITION_BLOCK,
    SLUICE_PARTITION_OWNER,
    SLUICE_PARTITION_WEIGHTED
} sluice_partition;

/* The type in which the optimizer keeps its moments. COMPACT is 8 bits with a scale per 1,024 elements; embeddings,
 * norms and biases stay fp32. BF16 and COMPACT use stochastic rounding by a counter, so that small changes are not
 * lost; they change the numbers, so they are opt-in. Both are for SGD, Adagrad, Adam, AdamW, Lion and RMSprop (not
 * centered). */
typedef enum { SLUICE_STATES_F32, SLUICE_STATES_BF16, SLUICE_STATES_COMPACT } sluice_states;

/* Loss scaling of fp16, as DeepSpeed's. */
typedef struct sluice_loss_scale {
    double fixed;      /* > 0: this scale, never changed; 0: dynamic */
    int initial_power; /* dynamic: begins at 2^power; 16 */
    int window;        /* steps without overflow after which it doubles; 1000 */
    int hysteresis;    /* overflows before it is halved; 2 */
    bool consecutive;  /* every step without overflow restores the hysteresis; false: doubling does */
    double minimum;    /* 1. An overflow at the minimum is SLUICE_ERR_NUMBERS */
} sluice_loss_scale;

/* Where tensors live and kernels run. The update of what is kept on the host always runs on the CPU. */
typedef enum {
    SLUICE_DEVICE_CPU,
    SLUICE_DEVICE_CUDA, /* needs libsluice_cuda.so and a GPU of compute capability 8.0 or newer */
    SLUICE_DEVICE_AUTO, /* CUDA where it can be had, else the CPU; the environment's SLUICE_DEVICE decides first */
} sluice_device;

typedef struct sluice_options {
    size_t size;
    sluice_optimizer optimizer;
    double gradient_clipping; /* global norm; 0: none */
    int accumulation_steps;   /* M, micro-batches of this rank in a step (gradient accumulation); at least 1 */
    uint64_t seed;
    int threads;                       /* 0: all CPUs this process may use */
    uint64_t device_bytes, host_bytes; /* budgets; 0: what the machine and its cgroup allow; more does not fit */
    sluice_place parameters, optimizer_state;
    sluice_activations activations;
    bool offload_checkpoints; /* with RECOMPUTE: the kept layer inputs go to the host; SELECTIVE: what is kept */
    int levels;               /* groups of layers that move together; 0: auto */
    int prefetch_layers;      /* levels fetched ahead of use; -1: auto */
    bool evaluation;          /* plan an evaluation pass too (sluice_evaluate, sluice_predict) */
    bool null_backend;        /* compute nothing: for planning and tests */
    bool guard;               /* poison the arenas and put guard pages behind them */
    bool small_norm_nodes;    /* ranks exchange sums of the norm's tree for small models too; for tests */
    sluice_log_fn log;
    void *log_user;
    sluice_world *world; /* borrowed, outlives the engine; NULL: one rank */
    int stage;           /* ZeRO stage, 0 to 3; -1: the fastest that fits */
    sluice_partition partition;
    const double *partition_weights; /* WEIGHTED: one per rank; NULL: equal. Borrowed during creation */
    int64_t partition_block;         /* BLOCK: elements, rounded up to a multiple of 1,024; 0: 262,144 */
    double state_ratio;              /* share of the state on the host when optimizer_state is HOST; 1: all */
    bool keep_gathered;              /* stage 3: keep gathered parameters from forward to backward */
    sluice_dtype precision;          /* F32, BF16 or F16: parameters in use, activations, gradients */
    sluice_dtype wire;               /* type in which gradients are exchanged and kept; I32: as `precision` */
    sluice_states states;
    sluice_loss_scale loss_scale; /* F16 alone */
    /* BF16: a step whose gradient is not finite while its losses are is skipped, as under DeepSpeed; false: it is
     * SLUICE_ERR_NUMBERS, as in fp32. */
    bool check_overflow;
    sluice_device device;
    bool tf32; /* CUDA, F32: GEMMs may round their operands to tf32 */
    /* Updates may run during sluice_backward where none needs the whole gradient: no clipping, no check_overflow, not
     * F16. Same bits. Set the learning rate before backward then; after SLUICE_ERR_NUMBERS, weights and state are not
     * those before the step. Where they need it, those on the host may run on speculation instead: each during backward, into a
     * second copy of its weights and state, and once more where the step turned out to be clipped or skipped. */
    bool early_updates;
    int checkpoints; /* groups of layers that are recomputed together, each from one kept input; 0: auto */
    /* The disk, for what neither the device nor the host holds (docs/disk.md): folders for swap files, on different disks
     * where they are several, separated by ':'; NULL or "": there is no such tier. Borrowed during creation. */
    const char *disk_path;
    uint64_t disk_bytes;        /* budget; 0: what is free in these folders less 5 %, this rank's share of it */
    sluice_place offload_place; /* where activations that leave the device go: HOST, DISK, or AUTO */
    int64_t disk_chunk; /* elements of an update through the disk at a time; 0: by the size of the model; for tests */
    /* The update of a step runs beside the next one, whose forward and backward do not see it yet; not for sparse tables.
     * Other mathematics (docs/delayed.md). What is saved, hashed and read by name has every update; evaluation sees
     * what the next step will. early_updates is of no account then. */
    bool delayed_updates;
    int64_t delay_warmup; /* delayed_updates: so many steps come first whose update the next step sees; 40 */
} sluice_options;
SLUICE_API void sluice_options_init_sized(sluice_options *o, size_t size);
static inline void sluice_options_init(sluice_options *o)
{
    sluice_options_init_sized(o, sizeof *o);
}

typedef struct sluice_array {
    const char *name; /* of a graph input */
    const void *data;
    size_t bytes;
} sluice_array;
/* One micro-batch: every input of the graph, in any order. The arrays are the caller's again when the call returns. */
typedef struct sluice_batch {
    const sluice_array *arrays;
    int count;
} sluice_batch;

typedef struct sluice_engine sluice_engine;

/* Finishes and differentiates the graph, plans, reserves the arenas and initialises the parameters. The graph is
 * borrowed and must outlive the engine; it serves one engine. SLUICE_ERR_NO_FIT says how many bytes are missing and
 * what would help. */
SLUICE_API sluice_status sluice_engine_create(sluice_graph *g, const sluice_options *options, sluice_engine **out);
/* Waits for running work and frees everything. An engine does not survive fork(): in the child, which has none of its threads,
 * this returns at once and frees nothing, and calls that would run, read or change it are SLUICE_ERR_USAGE. */
SLUICE_API void sluice_engine_destroy(sluice_engine *e);

/* forward, backward, forward, backward, ... then step after accumulation_steps pairs; anything else is
 * SLUICE_ERR_USAGE. An id or target that its table does not have is SLUICE_ERR_INPUT before anything is computed: the
 * message names input, element, value and range. A step whose gradient or loss is not finite changes nothing: it is
 * skipped and counted (see sluice_skipped_steps), or SLUICE_ERR_NUMBERS on all ranks, which names the first tensor that
 * is not finite. sluice_forward itself gives such a loss: the step is judged as a whole.
 * sluice_step returns when the gradient's norm is known; updates may still be under way, and whatever needs the new
 * weights waits for them. An update that fails is reported by a later call.
 *
 * A loss is the mean over its micro-batch's valid targets, and a step learns from the mean over the valid targets of all
 * its micro-batches, on all ranks: a micro-batch with c of the step's C targets weighs c / C, in the gradient and in the
 * loss. Where the loss is a cross entropy whose targets are an input, they are counted: those that are not ignore_index.
 * sluice_train_step and sluice_fit see to all of that. With sluice_forward the step must be told first (see
 * sluice_set_targets), unless all targets of all its micro-batches count, or it has just one; a batch with others is
 * SLUICE_ERR_USAGE then. Under other losses micro-batches weigh the same unless the step is told. A step without any
 * target is SLUICE_ERR_INPUT before anything is computed. */
SLUICE_API sluice_status sluice_forward(sluice_engine *e, const sluice_batch *batch, double *loss);
SLUICE_API sluice_status sluice_backward(sluice_engine *e);
SLUICE_API sluice_status sluice_step(sluice_engine *e);
/* All ranks, before a step's first sluice_forward or sluice_train_step: counts[m] is the number of valid targets of this
 * rank's m-th micro-batch, accumulation_steps of them; 0 where it has none, which then contributes nothing. Holds for that
 * step alone. Where the loss counts its targets, a batch that has another number is SLUICE_ERR_USAGE. */
SLUICE_API sluice_status sluice_set_targets(sluice_engine *e, const uint64_t *counts);
/* All of the above for accumulation_steps micro-batches; *loss is the mean over their targets. All of them are checked
 * first. */
SLUICE_API sluice_status sluice_train_step(sluice_engine *e, const sluice_batch *batches, double *loss);
/* Forward only, dropout off. Needs options.evaluation. A loss that is not finite is SLUICE_ERR_NUMBERS. */
SLUICE_API sluice_status sluice_evaluate(sluice_engine *e, const sluice_batch *batch, double *loss);
/* The same, and copies the graph's output to `out`. Output that is not finite is SLUICE_ERR_NUMBERS; it is there then. */
SLUICE_API sluice_status sluice_predict(sluice_engine *e, const sluice_batch *batch, float *out, size_t out_bytes);

/* Of the steps from here on; finite and not negative. */
SLUICE_API sluice_status sluice_set_learning_rate(sluice_engine *e, double lr);
/* Of NULL the following are NaN or 0. */
SLUICE_API double sluice_gradient_norm(const sluice_engine *e); /* of the newest step, before clipping */
SLUICE_API uint64_t sluice_step_count(const sluice_engine *e);
/* How many of these were skipped, that is, changed nothing because their gradient was not finite (fp16, bf16). */
SLUICE_API uint64_t sluice_skipped_steps(const sluice_engine *e);
SLUICE_API double sluice_current_loss_scale(const sluice_engine *e); /* of the next step; 1 unless in fp16 */
/* Copies a parameter or a running statistic (sluice_batch_norm) out or in, in fp32; "num_batches_tracked" is one number. */
SLUICE_API sluice_status sluice_get_parameter(sluice_engine *e, const char *name, float *out, size_t out_bytes);
SLUICE_API sluice_status sluice_set_parameter(sluice_engine *e, const char *name, const float *data, size_t bytes);
/* Weights as safetensors, written atomically: through a symbolic link, with the mode of the file that is replaced. What
 * exists and is no regular file is SLUICE_ERR_USAGE. Loading refuses a file that lacks a parameter, holds a tensor that is
 * none, or has another shape or dtype, and changes nothing then (docs/formats.md says what is passed over). An I/O error
 * halfway through leaves an engine that takes no call but another load. */
SLUICE_API sluice_status sluice_save(sluice_engine *e, const char *path);
SLUICE_API sluice_status sluice_load(sluice_engine *e, const char *path);
/* Whole training state in folder/step-N, atomic and checksummed; resume takes the newest one that verifies.
 * *step is 0 where there is none. */
SLUICE_API sluice_status sluice_checkpoint_save(sluice_engine *e, const char *folder);
SLUICE_API sluice_status sluice_checkpoint_resume(sluice_engine *e, const char *folder, uint64_t *step);
/* Lower-case hexadecimal SHA-256 of the weights and of the optimizer state; 64 digits and NUL. */
SLUICE_API sluice_status sluice_hash(sluice_engine *e, char weights[65], char state[65]);

typedef struct sluice_memory {
    uint64_t device, host, disk;
} sluice_memory;
SLUICE_API void sluice_planned_peak(const sluice_engine *e, sluice_memory *out);
SLUICE_API void sluice_observed_peak(const sluice_engine *e, sluice_memory *out);
/* The plan for people: memory by tier and kind, what moves, expected time. */
SLUICE_API void sluice_plan_print(const sluice_engine *e, FILE *out);

/* ---- Data ---- */

typedef struct sluice_data sluice_data;
/* Arrays of `samples` rows each, one per graph input, borrowed. Shuffled anew every epoch from the seed. */
SLUICE_API sluice_status sluice_data_from_arrays(const sluice_array *arrays, int count, int64_t samples, bool shuffle,
                                                 uint64_t seed, sluice_data **out);
/* fill() writes micro-batch number `index` (from 0, counting over the whole run) into the given buffers. */
typedef sluice_status (*sluice_fill_fn)(void *user, uint64_t index, const char *const *names, void *const *buffers,
                                        const size_t *bytes, int count);
SLUICE_API sluice_status sluice_data_from_callback(sluice_fill_fn fill, void *user, sluice_data **out);
SLUICE_API void sluice_data_destroy(sluice_data *d);
/* Trains `steps` steps from `data`; the position continues from the engine's step count, so a resumed run goes on where
 * it was. A failure ends it between two steps of an engine that is alone: the next call does the step anew. */
SLUICE_API sluice_status sluice_fit(sluice_engine *e, sluice_data *d, uint64_t steps, double *last_loss);

/* ---- Jobs: a configuration file made real ---- */

typedef struct sluice_config sluice_config;
/* DeepSpeed's JSON with sluice's sections. Errors name the file, the line and the key, and the nearest known key. */
SLUICE_API sluice_status sluice_config_load(const char *path, sluice_config **out);
/* The same of JSON in memory. `name` stands for the file in messages; NULL: these say "configuration", and no lines. */
SLUICE_API sluice_status sluice_config_parse(const char *text, const char *name, sluice_config **out);
/* A configuration without a file, for settings that all come by sluice_config_set; "model.path" and what to train on are
 * enough. What every file must say has a default then. The rows of a micro-batch are chosen by jobs that train or plan, as
 * the memory allows; elsewhere a careful number stands for them. */
SLUICE_API sluice_status sluice_config_create(sluice_config **out);
/* "a.b=c": the value is JSON, or a plain word taken as a string. */
SLUICE_API sluice_status sluice_config_set(sluice_config *c, const char *assignment);
SLUICE_API void sluice_config_destroy(sluice_config *c);
/* Whether the whole makes sense: what needs more than one key, and what is not built in. Every job begins with it.
 * Notes about keys without effect go to `log`, which may be NULL. */
SLUICE_API sluice_status sluice_config_check(const sluice_config *c, sluice_log_fn log, void *log_user);
/* The value of one key as JSON text, after everything is resolved ("auto" where the plan decides). */
SLUICE_API sluice_status sluice_config_get(const sluice_config *c, const char *key, char *out, size_t out_bytes);
/* Every key with its value after all "auto" are resolved. */
SLUICE_API void sluice_config_print(const sluice_config *c, FILE *out);
/* All keys with type, default and help: as text, or as the Markdown of docs/config.md. */
SLUICE_API void sluice_config_help(FILE *out, bool markdown);

/* One key of a configuration, as the parser knows it. All texts are the library's and stay. */
typedef struct sluice_setting {
    const char *key;      /* dotted; one that ends in '*' stands for every key that begins so */
    const char *type;     /* "bool", "integer", "number", "size", "text", "choice", "pair" or "list" */
    const char *fallback; /* the default as text; "": none */
    const char *help;
    const char *choices; /* "none|cpu|nvme!": what it takes; a '!' stands behind what is not built in. NULL: no list */
    const char *chapter; /* what it is about; NULL: it is known from DeepSpeed and does nothing here */
    const char *example; /* of that chapter, in JSON */
    const char *effect;  /* "", or before `help`: why it does nothing, or is refused */
    bool automatic;      /* it takes "auto" */
    bool path;           /* its value names a file or a folder */
} sluice_setting;
/* Key `index`, from 0 on, in the order in which configurations are printed; false behind the last. */
SLUICE_API bool sluice_setting_at(int index, sluice_setting *out);

typedef enum {
    SLUICE_EVENT_PLAN,
    SLUICE_EVENT_RESUMED,
    SLUICE_EVENT_STEP,
    SLUICE_EVENT_EVAL,
    SLUICE_EVENT_SAVED,
    SLUICE_EVENT_EPOCH,
    SLUICE_EVENT_END,
    SLUICE_EVENT_PHASE,
    SLUICE_EVENT_SAMPLE,
    SLUICE_EVENT_EARLY_STOP,
    SLUICE_EVENT_TUNE
} sluice_event_kind;

/* A document as a model of tokens learns from it. */
typedef struct sluice_sample {
    int64_t count;
    const int32_t *ids;
    const unsigned char *loss; /* 1: the token counts in the loss. The first never does */
    /* Its text in the order of the tokens, cut where the loss begins and ends. */
    int part_count;
    const char *const *texts;
    const unsigned char *part_loss;
} sluice_sample;

/* A metric of evaluation: docs/evaluate.md names them all. */
typedef struct sluice_metric {
    const char *name;
    double value; /* NaN: not known */
    bool shown;   /* the configuration asks for it, or it judges */
} sluice_metric;

/* How well one class is found. */
typedef struct sluice_class_score {
    const char *name; /* NULL: the data has no names */
    double precision, recall, f1;
    uint64_t support; /* samples of it */
} sluice_class_score;

/* One way to arrange a step, of those that were planned for what is on "auto". */
typedef struct sluice_candidate {
    const char *settings; /* the keys that it sets, as a JSON object: {"zero_optimization.stage": 1} */
    bool chosen, fits;
    double step_seconds;     /* expected; 0: it does not fit */
    double measured_seconds; /* TUNE: of the fastest step */
    sluice_memory peak;
    uint64_t lacks; /* bytes that are missing where it does not fit; 0: not known */
} sluice_candidate;

/* What a step takes of one of its streams: the device's own computing, a link, the updates on the host. */
typedef struct sluice_stream_use {
    const char *name;       /* "compute", "to device", "to host", "communication", "host update" */
    double busy_seconds;    /* of a step */
    double exposed_seconds; /* in which compute stood still for it */
} sluice_stream_use;

/* Fields not named for an event's kind are zero. */
typedef struct sluice_event {
    sluice_event_kind kind;
    /* PLAN and END */
    int ranks, stage;
    uint64_t parameters;
    sluice_memory peak;
    uint64_t overhead_bytes;
    uint64_t state_parameters, state_gradients, state_optimizer;
    double step_seconds;
    uint64_t moved_to_device, moved_to_host, moved_disk_read, moved_disk_write; /* bytes in one step */
    uint64_t comm_gather, comm_reduce, comm_norm;                               /* bytes that ranks send in one step */
    /* Of sparse tables in one step: different rows; bytes of them and their state that all ranks bring and take back; bytes
     * of these that ranks send. PLAN: at most so many, and what is sent is not known. */
    uint64_t table_rows, table_bytes, table_sent;
    const char *weights_sha256, *state_sha256; /* END; NULL where the setting `hashes` is false */
    /* STEP, END: steps so far whose updates ran on speculation, and of these those whose updates were done once more. */
    uint64_t speculated, rolled_back;
    /* RESUMED, STEP, EVAL, SAVED, EPOCH, END */
    uint64_t step, steps; /* this one; all that are planned */
    double epoch, loss, accuracy, lr, gradient_norm, seconds, loss_scale;
    uint64_t samples, tokens; /* of this step */
    bool skipped;
    double model_flops; /* PLAN, STEP, END: of one step, over all ranks; recomputation does not count */
    double peak_flops;  /* of all ranks together: GEMMs in the run's precision; 0: not known. PLAN: expected */
    const char *path;   /* SAVED; EVAL of sluice_job_eval: the weights that were used */
    double perplexity,
        bits_per_byte; /* EVAL of sluice_job_eval, with `tokens` or `samples` that counted; NaN: not known */
    /* PLAN: expected; STEP; END: mean over the steps after the first. Share of peak_flops from 0 to 1. NaN:
     * there are no tokens, or the peak is not known. */
    double tokens_per_second, mfu;
    /* PHASE: something other than a step takes its time: "plan", "reserve", "fill", "read", "verify" or "hash". Told when
     * it begins, at most ten times a second while it goes on, and when it is over; `seconds` since its beginning. */
    const char *phase;
    uint64_t done, total; /* plan, fill: weights; the others: bytes */
    bool over;
    uint64_t targets; /* STEP: tokens that count in its loss; fewer than `tokens` with masks, packing or padding */
    const sluice_sample *sample; /* SAMPLE: the first one, told before step 1; valid during the call */
    /* STEP: of its seconds, those that rank 0 spent on filling its batches, or on waiting for the threads that do; on a GPU part
     * of that passes while it computes. END: mean over the steps after the first, of the rank with the most. */
    double data_seconds;
    /* EVAL: what the model has of docs/evaluate.md. EARLY_STOP: the one that is watched, with its best value. Valid during the
     * call, as are the following. */
    const sluice_metric *metrics;
    int metric_count;
    bool best;   /* EVAL: by the metric that judges, better than all before in this run */
    bool judged; /* EVAL: something depends on that: checkpoint.keep_best or early_stopping */
    /* EVAL of sluice_job_eval, of models that tell classes apart; 0: of others. confusion[target * class_count + predicted]:
     * samples; NULL: there are more classes than 256. */
    int64_t class_count;
    const sluice_class_score *classes;
    const uint64_t *confusion;
    uint64_t best_step, evaluations; /* EARLY_STOP: the step of the best evaluation, and how many came after it */
    /* STEP: what this rank's arenas have used so far, and what its process has in memory */
    sluice_memory memory;
    uint64_t resident_bytes;
    uint64_t total_samples; /* STEP: since the beginning of the run, over all ranks and resumptions */
    /* EVAL: the name of the metric that judges. RESUMED: likewise, where the checkpoint knows the best evaluation so far; it is
     * metrics[0], after best_step. NULL: nothing is known */
    const char *judge;
    /* PLAN. Of sluice_job_plan there is an event for what does not fit, too: with `fits` false, and of the numbers above ranks
     * and stage alone. Bytes of one rank, with what is outside its arenas; where device and host are one memory, as the
     * host's. */
    bool fits;
    sluice_memory needs, has; /* of what does not fit: the least that any placement needs */
    const char *limit;        /* what a step waits for most: "the GPU", "the CPU update", ...; NULL: not known */
    const char *verdict;      /* all that in a sentence; valid during the call */
    /* PLAN: what was planned for what is on "auto", the chosen one first. TUNE: what was measured, the expected best first; `path`
     * is where the fastest, which is `chosen`, is kept, "" where nowhere. */
    const sluice_candidate *candidates;
    int candidate_count;
    /* END, where a step was timed, for options.time_step or for the run's profile: the streams that rank 0 used in it, and how
     * long it took. Valid during the call. */
    const sluice_stream_use *streams;
    int stream_count;
    double timed_seconds;
    /* PLAN. Updates on speculation: layers of a rank; bytes that they take on its host; seconds that they save in a step; seconds
     * that a step takes longer whose speculation failed. And bytes that a rank keeps on its host of each parameter that is updated
     * there, without them; 0: none is. */
    int speculating_layers;
    uint64_t speculation_bytes;
    double speculation_gain, redo_seconds, host_bytes_per_parameter;
    /* PLAN and END. Of the disk tier in one step for rows of sparse tables, over all ranks; PLAN: at most. Not in moved_*. */
    uint64_t table_disk_read, table_disk_written;
} sluice_event;

/* An event as one object of JSON, as `sluice train --json` prints it, without a newline. Returns its length, which may be
 * `out_bytes` or more: then it is cut, and may be asked for again. 0: no event that this library knows. Writes `out_bytes` bytes at
 * most, the last of them a NUL; `out` may be NULL to ask for the length. */
SLUICE_API size_t sluice_event_json(const sluice_event *event, char *out, size_t out_bytes);

/* ---- runs, watched from outside: docs/watch.md ---- */

typedef enum {
    SLUICE_RUN_RUNNING,
    SLUICE_RUN_FINISHED,
    SLUICE_RUN_STOPPED, /* by a signal */
    SLUICE_RUN_FAILED,
    SLUICE_RUN_DEAD,   /* it was killed, or its machine went down */
    SLUICE_RUN_UNKNOWN /* of another machine, whose processes cannot be seen from here */
} sluice_run_state;

/* What the journal of a run says of it. Numbers that are not known are NaN. */
typedef struct sluice_run_status {
    sluice_run_state state;
    char run[40]; /* its id */
    char host[128];
    int64_t pid; /* of rank 0 */
    int ranks;
    double started, heard;  /* its newest start, the newest line of its journal: seconds since 1970 */
    uint64_t step, steps;   /* completed, planned */
    double loss;            /* of the newest step */
    char metric[32];        /* that judges evaluations */
    double best;            /* its best value */
    uint64_t best_step;     /* 0: there was no evaluation that counts */
    double validation_loss; /* of the newest evaluation */
    bool early;             /* it ended early, because evaluations brought nothing better */
    double step_seconds;    /* with all that lies between steps; mean over the newest ones */
    double samples_per_second, tokens_per_second; /* of the newest steps; tokens: NaN where there are none */
    double seconds_left;                          /* NaN unless it runs */
    uint64_t saved_step;                          /* of the newest checkpoint; 0: none was written */
    char saved_path[512];
    sluice_memory memory;
    uint64_t resident_bytes;
    char warning[512]; /* the newest; "": none */
    char message[512]; /* FAILED, STOPPED: why */
    int exit_status;   /* FAILED, STOPPED: what it ended with */
} sluice_run_status;

/* "running", "finished", "stopped", "failed", "dead", "unknown" */
SLUICE_API const char *sluice_run_state_name(sluice_run_state state);
/* Looks at the run in `path`, which is the checkpoint.path of one, or at all runs in the folders of `path`, in the order of their
 * names: `found` is called with each. Changes nothing. No run there: SLUICE_ERR_INPUT. */
SLUICE_API sluice_status sluice_runs_look(
    const char *path, void (*found)(void *user, const char *folder, const sluice_run_status *status), void *user);

/* What generation_config.json of the model's folder may decide: bits of sluice_job_options.from_folder. */
enum {
    SLUICE_FOLDER_TEMPERATURE = 1, /* with its do_sample: false takes the most likely token */
    SLUICE_FOLDER_TOP_K = 2,
    SLUICE_FOLDER_TOP_P = 4,
    SLUICE_FOLDER_MIN_P = 8,
    SLUICE_FOLDER_REPETITION_PENALTY = 16,
    SLUICE_FOLDER_ALL = 31
};

typedef struct sluice_job_options {
    size_t size;         /* start from sluice_job_options_init */
    bool resume;         /* continue from checkpoint.path */
    const char *weights; /* eval, generate: a safetensors file; NULL: the newest checkpoint, or config "save" */
    void (*event)(void *user, const sluice_event *event);
    void *user;
    FILE *plan_out; /* train: the plan is printed here first; NULL: not */
    /* plan, eval, generate: results; plan without json, generate: not NULL. A plan with json and without it is told by its event
     * alone: what does not fit is refused without looking for what would help, which takes several times as long. */
    FILE *out;
    bool json; /* plan: machine-readable */
    /* Polled between steps and, before the first one, while reading data, planning, filling and loading: a signal number asks to stop.
     * NULL: never. Set it from a handler; it outlives the call. */
    const int *stop;
    int *save_request; /* polled and cleared between steps: save and go on; NULL: never */
    sluice_log_fn log;
    void *log_user;
    const char *prompt;  /* generate */
    int64_t tokens;      /* generate; at least 1 */
    double temperature;  /* generate; 0: the most likely */
    int top_k;           /* generate; 0: all */
    sluice_world *world; /* train: NULL: one rank */
    int ranks; /* plan: for so many ranks, which share this machine or each have what `machine` describes; 0: as
                  many as the world has */
    /* plan, train: file with the rates to plan with; "default": those this kind of CPU or GPU usually has; NULL: what the
     * environment's SLUICE_MACHINE says, and without it rates measured here for this model, kept in the user's cache */
    const char *machine;
    const char *trace; /* train: file for the timeline of a step, docs/trace.md; rank N > 0 adds ".rankN"; NULL: none */
    /* generate, as in Hugging Face's generate and in its order: repetition penalty, temperature, top-k, top-p, min-p */
    double top_p;              /* above 0 to 1, which is off */
    double min_p;              /* 0, which is off, to 1 */
    double repetition_penalty; /* 1: off */
    int64_t seed;              /* of the draws; negative: the configuration's */
    const char *const *stops;  /* generate: texts that end a reply and are not part of it; not empty */
    int stop_count;
    const char *
        prompts; /* generate: file of prompts, lines of text or {"prompt": "..."}; replies are lines of JSON. NULL: `prompt` */
    int batch; /* generate: sequences at a time; 0: up to 8 */
    /* generate: prompts are what a user says, written as the model's chat template has it. Without `prompt` and `prompts`
     * lines are read from `in`, and the conversation goes on with each; an end of the input ends it. */
    bool chat;
    const char *system;        /* chat: what stands before the conversation; NULL: nothing */
    const char *template_name; /* chat: NULL: that of the model's folder */
    FILE *in;                  /* chat without prompts: has a file descriptor */
    /* generate: SLUICE_FOLDER_... bits of the values above that the model's folder decides where it says them; a note tells
     * each. 0: none */
    unsigned from_folder;
    const char *predictions; /* eval: file for what the model made of every sample, .csv or .jsonl; NULL: none */
    bool best;               /* eval, generate: the best checkpoint of checkpoint.path, not the newest */
    /* train, plan: HTML file for a report, docs/report.md; train also "": report.html in checkpoint.path. NULL: none */
    const char *report;
    /* train: file to append to, .jsonl: the lines of checkpoint.path/log.jsonl; .csv: a row a step (docs/watch.md). NULL: none */
    const char *log_file;
    /* plan: for a machine by name instead of `machine`: a GPU such as "rtx4090", or a machine such as "dgx-h100"; NULL: none.
     * One rank for each GPU, unless `ranks` says otherwise. sluice_known_machines prints the names. */
    const char *gpu;
    int gpus;                  /* of `gpu`; 0: one, or as many as the machine has */
    uint64_t ram_bytes;        /* of a machine of `gpu`; 0: as much as it usually has */
    const char *host;          /* that `gpu` is in, by name; NULL: the usual one */
    int tune_steps, tune_keep; /* tune: steps measured of each candidate, and how many candidates; 0: 6 and 4 */
    /* train: times the operations of one step on rank 0 for the END event, also where no profile is kept. A step of more than
     * 65,536 operations is not timed. */
    bool time_step;
    /* generate: file for the replies, which has all of them or is what it was; NULL: they go to options.out as they come. A file
     * that the job reads is SLUICE_ERR_USAGE. */
    const char *replies;
} sluice_job_options;
SLUICE_API void sluice_job_options_init_sized(sluice_job_options *o, size_t size);
static inline void sluice_job_options_init(sluice_job_options *o)
{
    sluice_job_options_init_sized(o, sizeof *o);
}

/* Refuses, with SLUICE_ERR_USAGE, to write a result to `path` that a run of this configuration reads, or keeps in its folder, and
 * what could not be written there; `name` says whose path it is. Changes nothing. */
SLUICE_API sluice_status sluice_config_check_output(const sluice_config *c, const char *name, const char *path);
/* Every key with its value as sluice_job_train would have it here, to options.out: what sluice_config_print tells, and what
 * depends on the machine. Notes about what is chosen go to options.log. */
SLUICE_API sluice_status sluice_job_config(const sluice_config *c, const sluice_job_options *o);
SLUICE_API sluice_status sluice_job_plan(const sluice_config *c, const sluice_job_options *o);
SLUICE_API sluice_status sluice_job_train(const sluice_config *c, const sluice_job_options *o);
/* All ranks of options.world: measures the arrangements that are expected to be fastest, and keeps the fastest of them in
 * checkpoint.path, from where sluice_job_train takes it for keys that are on "auto". The table goes to options.out unless that is
 * NULL or options.json is true; a TUNE event tells the same. */
SLUICE_API sluice_status sluice_job_tune(const sluice_config *c, const sluice_job_options *o);
SLUICE_API sluice_status sluice_job_eval(const sluice_config *c, const sluice_job_options *o);
SLUICE_API sluice_status sluice_job_generate(const sluice_config *c, const sluice_job_options *o);

/* ---- Files and machine ---- */

/* What is in a safetensors file, a folder of a model (and whether it can be used here, or why not), a checkpoint step
 * folder, a folder of checkpoints, or a tokenizer.json. */
SLUICE_API sluice_status sluice_inspect(const char *path, bool json, FILE *out);
/* The three that write files have a form that stops: `stop` is polled, and what was to be written is then what it was before,
 * SLUICE_ERR_STOPPED. NULL: never. */
/* A report of the run whose checkpoint.path is the folder `run`, from its log and its profile, as one HTML file: out_path, or
 * report.html in the folder where that is NULL or empty. Runs that go on, were killed or have no profile have one, too. A folder
 * that no run has left anything in is SLUICE_ERR_INPUT. `out`, where not NULL, gets the path of the file. */
SLUICE_API sluice_status sluice_report(const char *run, const char *out_path, FILE *out);
SLUICE_API sluice_status sluice_report_until(const int *stop, const char *run, const char *out_path, FILE *out);
/* A comparison of configurations for people. `lines`: what `sluice compare --json` prints, an object a line (docs/compare.md).
 * `out`, where not NULL, gets the table; `page`, where not NULL, is the HTML file to write. lines NULL: only makes sure that
 * `page` can be written. A line that is no such object is SLUICE_ERR_INPUT. */
SLUICE_API sluice_status sluice_comparison_show(const char *lines, FILE *out, const char *page);
/* Reads every byte and checks every checksum; SLUICE_ERR_INPUT names file, tensor and offset of the first fault. */
SLUICE_API sluice_status sluice_verify(const char *path, FILE *out);
/* The weights of a checkpoint (a step's folder, or a folder of checkpoints: the newest that verifies) as safetensors,
 * with every checksum checked. shard_bytes 0: one file. Otherwise files of at most that many bytes of tensors (a larger
 * tensor has one of its own), name-00001-of-00003.safetensors and so on, with name.safetensors.index.json beside them
 * as Hugging Face writes it; a model that fits in one is one file. Each is written atomically, the index last. type:
 * F32, the exact values; BF16 or F16, rounded to nearest even, where a value that F16 cannot hold is SLUICE_ERR_USAGE.
 * An out_path that is a folder, or ends in a slash, gets the whole folder of a token model as other programs open it
 * (shard_bytes 0: 5 GB), at once or not at all. Needs neither model nor engine, and a few chunks of memory. `out`, where
 * not NULL, gets a line for each file, or one for the folder. */
SLUICE_API sluice_status sluice_export(const char *checkpoint, const char *out_path, sluice_dtype type,
                                       uint64_t shard_bytes, FILE *out);
SLUICE_API sluice_status sluice_export_until(const int *stop, const char *checkpoint, const char *out_path,
                                             sluice_dtype type, uint64_t shard_bytes, FILE *out);
/* Texts to token ids. */
typedef struct sluice_tokenize_options {
    size_t size;               /* start from sluice_tokenize_options_init */
    const char *const *inputs; /* files of UTF-8 text; "-": standard_input */
    int input_count;           /* at least 1 */
    FILE *standard_input;      /* NULL: "-" is refused */
    const char *out;           /* file of ids; ".npy" at its end: a NumPy array; NULL: ids and tokens are printed */
    double validation;         /* 0 to 1: this share of the tokens, from the end, goes to validation_out */
    const char *validation_out;
    int token_bytes;      /* 2 or 4; 0: 2 where the vocabulary has at most 65536 ids */
    bool llmc_header;     /* the header of llm.c in front */
    bool lines;           /* a document is a line, without its end; otherwise a file */
    const char *eos;      /* token after each document; "auto": the one that ends texts; NULL: none */
    bool special_in_text; /* special tokens that a text spells are these tokens; otherwise they are plain text */
    bool add_special;     /* what the tokenizer puts around a text: <s>, [CLS] and [SEP] */
    int threads;          /* 0: as many as there are CPUs */
    void (*progress)(void *user, uint64_t done, uint64_t total); /* bytes; total 0: not known. NULL: none */
    void *user;
    const int *stop; /* polled: a signal number asks to stop, with nothing written; NULL: never */
} sluice_tokenize_options;
SLUICE_API void sluice_tokenize_options_init_sized(sluice_tokenize_options *o, size_t size);
static inline void sluice_tokenize_options_init(sluice_tokenize_options *o)
{
    sluice_tokenize_options_init_sized(o, sizeof *o);
}
/* `tokenizer`: a folder with tokenizer.json or vocab.json and merges.txt, or such a file. Bare ids, 16 or 32 bits, little-endian,
 * as nanoGPT reads them, unless the options say otherwise. `out` gets what was counted, or the tokens; NULL: nothing. */
SLUICE_API sluice_status sluice_tokenize(const char *tokenizer, const sluice_tokenize_options *options, FILE *out);
/* A model's folder and a PEFT adapter of it as a folder of its own, `out_path`: each weight is W + scale * B A, added in f32
 * and rounded once to `type` (SLUICE_I32: the type of the base's weights), or what the adapter's modules_to_save hold;
 * everything else of the base's folder is copied. Shards and `out` as in sluice_export. An adapter whose tensors do not all
 * belong to the base is SLUICE_ERR_INPUT. */
SLUICE_API sluice_status sluice_merge(const char *base, const char *adapter, const char *out_path, sluice_dtype type,
                                      uint64_t shard_bytes, FILE *out);
SLUICE_API sluice_status sluice_merge_until(const int *stop, const char *base, const char *adapter,
                                            const char *out_path, sluice_dtype type, uint64_t shard_bytes, FILE *out);
/* Every machine that sluice_job_options.gpu and .host know by name, with its numbers; and every model that model.path does. */
SLUICE_API void sluice_known_machines(FILE *out);
SLUICE_API void sluice_known_models(FILE *out);
/* The largest models of a Llama's shape that this machine trains in bf16 with one row of 2,048 tokens, by memory: all weights
 * with AdamW, and with adapters. A line, or nothing where none fits. */
SLUICE_API sluice_status sluice_largest_models(const int *stop, FILE *out);
/* What this machine offers and what is built in; with `measure`, rates of `device`, which are also written to
 * machine_file if not NULL. Rates are measured in `ranks` processes at once (0: one), which are started here: then no
 * other thread may run, and nothing of this process may have used CUDA. Progress goes to `out`, which is
 * flushed. */
SLUICE_API sluice_status sluice_devices(bool measure, int ranks, sluice_device device, const char *machine_file,
                                        FILE *out);
/* How fast the disk of `path` is, which is as memory.disk_path: a folder, or several separated by ':'. It is measured in about
 * two seconds with at most 512 MiB, of which nothing is left, and kept for plans, as a run with that path does at its first
 * start. NULL: what is kept. */
SLUICE_API sluice_status sluice_disks(const char *path, FILE *out);
/* Checks what training uses on this machine: CPU, memory, limits, GPU and its libraries, MPI, and `folder`, where checkpoints
 * are to go (NULL: the current one; some megabytes are written there and removed). `out` gets a line for each check: ok, note
 * or problem, what was found, and what to do; with `json` one object. SLUICE_ERR_FAILED names the problems: sluice cannot
 * train on `device` (AUTO: on the CPU) as things are. */
SLUICE_API sluice_status sluice_doctor(const char *folder, sluice_device device, bool json, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
