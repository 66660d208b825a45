/* config_table.c: every key that a configuration may hold, one row each.
 *
 * The rows come in the order in which the effective configuration is printed; rows of one section stand together. Keys
 * of DeepSpeed have the defaults of its code wherever they change the numbers. What becomes of a key that does nothing
 * here follows one question: would ignoring it change the result, or withhold something asked for? If not, it is
 * accepted with a note; otherwise it is refused.
 *
 * A row writes straight into the struct that uses the value. Marks at a row's end say what else is true of it:
 *
 *     SAME, MODEL, FREE(why)   on --resume: must stay; must stay as far as the graph is another by it; may change
 *     READS, WRITES, FOLDER    TEXT: the path of a file or folder, and what a run does with it
 *     PATHS                    TEXT: folders, separated by colons; a list of them is one text
 *     OPTION(member)           member of sluice_options that sets the same in the C API
 *     VALUES(...)              CHOICE: what each choice is stored as, where that is not its index
 *     ZERO_IS_AUTO             a number that is "auto" is stored as 0, not as -1
 *     FALSE_IS_AUTO            false says nothing, as in files that were written for Python
 *     NEGATED                  FLAG: stored as its opposite
 *     TRAINER(name, default)   "auto" is what Hugging Face's Trainer fills in from this argument */
#include <stddef.h>
#include <string.h>

#include "config/config_rows.h"
#include "core/thread.h"
#include "model/family.h"

/* Upper bounds. Every number has one that its field can hold. */
#define MANY  1e12               /* counts that have no reason for another */
#define SIZES SL_MODEL_MAX_SIZE  /* dimensions and token ids */
#define EXACT 9007199254740992.0 /* seeds and bytes: as far as numbers of JSON are exact as doubles */
#define LARGE SL_LARGEST_F32     /* real numbers: what is computed in fp32 is no larger */

#define FIELD(field_) .offset = offsetof(sl_settings, field_), .bytes = sizeof(((sl_settings *)0)->field_)
#define SAME          .resume = SL_RESUME_SAME
#define MODEL         .resume = SL_RESUME_MODEL
#define FREE(why_)    .resume = SL_RESUME_FREE, .why = why_
#define READS         .file = SL_FILE_READ
#define WRITES        .file = SL_FILE_WRITE
#define FOLDER        .file = SL_FILE_FOLDER
#define PATHS         .is_paths = true
#define VALUES(...)                                                                                                    \
    .values = (const int[])                                                                                            \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define ZERO_IS_AUTO             .auto_is_zero = true
#define FALSE_IS_AUTO            .false_is_auto = true
#define NEGATED                  .negated = true
#define TRAINER(name_, default_) .trainer = name_, .trainer_default = default_
#define OPTION(member_)                                                                                                \
    .option = #member_, .option_offset = offsetof(sluice_options, member_),                                            \
    .option_bytes = sizeof(((sluice_options *)0)->member_)

#define NAMED_OPTION(member_) .option = #member_ /* taken over by sl_settings_from_options itself */

/* Honoured keys. "auto" is accepted wherever it is the default, and by the _AUTO forms, where it leaves the default in
 * place. */
#define ROW(key_, type_, fallback_, field_, help_, ...)                                                                \
    {                                                                                                                  \
        .key = key_, .type = type_, .fallback = fallback_, .help = help_, FIELD(field_), __VA_ARGS__                   \
    }
#define FLAG(key_, fallback_, field_, help_, ...) ROW(key_, SL_OPT_BOOL, fallback_, field_, help_, __VA_ARGS__)
#define FLAG_AUTO(key_, fallback_, field_, help_, ...)                                                                 \
    ROW(key_, SL_OPT_BOOL, fallback_, field_, help_, .auto_ok = true, __VA_ARGS__)
#define COUNT(key_, fallback_, field_, min_, help_, ...)                                                               \
    ROW(key_, SL_OPT_INT, fallback_, field_, help_, .min = min_, .max = MANY, __VA_ARGS__)
#define COUNT_AUTO(key_, fallback_, field_, min_, help_, ...)                                                          \
    ROW(key_, SL_OPT_INT, fallback_, field_, help_, .min = min_, .max = MANY, .auto_ok = true, __VA_ARGS__)
#define COUNT_UP_TO(key_, fallback_, field_, min_, max_, help_, ...)                                                   \
    ROW(key_, SL_OPT_INT, fallback_, field_, help_, .min = min_, .max = max_, __VA_ARGS__)
#define COUNT_TO(key_, fallback_, field_, min_, max_, help_, ...)                                                      \
    ROW(key_, SL_OPT_INT, fallback_, field_, help_, .min = min_, .max = max_, .auto_ok = true, __VA_ARGS__)
#define REAL(key_, fallback_, field_, min_, max_, help_, ...)                                                          \
    ROW(key_, SL_OPT_DOUBLE, fallback_, field_, help_, .min = min_, .max = max_, __VA_ARGS__)
#define REAL_AUTO(key_, fallback_, field_, min_, max_, help_, ...)                                                     \
    ROW(key_, SL_OPT_DOUBLE, fallback_, field_, help_, .min = min_, .max = max_, .auto_ok = true, __VA_ARGS__)
#define TEXT(key_, fallback_, field_, help_, ...) ROW(key_, SL_OPT_STRING, fallback_, field_, help_, __VA_ARGS__)
#define WORD(key_, fallback_, field_, choices_, help_, ...)                                                            \
    ROW(key_, SL_OPT_STRING, fallback_, field_, help_, .choices = choices_, .auto_ok = true, __VA_ARGS__)
#define LIST(key_, field_, help_, ...) ROW(key_, SL_OPT_LIST, "[]", field_, help_, __VA_ARGS__)
#define SIZE(key_, field_, min_, help_, ...)                                                                           \
    ROW(key_, SL_OPT_SIZE, "auto", field_, help_, .min = min_, .max = EXACT, .auto_ok = true, __VA_ARGS__)
#define CHOICE(key_, fallback_, field_, choices_, help_, ...)                                                          \
    ROW(key_, SL_OPT_CHOICE, fallback_, field_, help_, .choices = choices_, .auto_ok = true, __VA_ARGS__)

/* Known keys that are not stored: accepted with a note, or refused unless they have their default. */
#define UNSTORED(key_, type_, fallback_, fate_, help_, note_)                                                          \
    {                                                                                                                  \
        .key = key_, .type = type_, .fallback = fallback_, .help = help_, .fate = fate_, .note = note_,                \
        .auto_ok = true                                                                                                \
    }
#define NOTED(key_, type_, fallback_, note_)   UNSTORED(key_, SL_OPT_##type_, fallback_, SL_KEY_NOTED, NULL, note_)
#define UNBUILT(key_, type_, fallback_, help_) UNSTORED(key_, SL_OPT_##type_, fallback_, SL_KEY_UNBUILT, help_, NULL)
#define REFUSED(key_, type_, fallback_, note_) UNSTORED(key_, SL_OPT_##type_, fallback_, SL_KEY_REFUSED, NULL, note_)

/* Notes that several rows share. */
#define COLLECTIVES  "the plan decides which collectives there are and when they run"
#define PLANNED      "addresses, order and movement are decided by the plan"
#define SWAPPED      "transfers from and to the disk are cut, queued and overlapped by the plan and the swap store"
#define WITH(key_)   "takes effect with " key_ ", which is not built in yet"
#define IMPORT       "nothing is sent from here; whoever imports TensorBoard's files says where they go"
#define UNSCALED     "bf16 has the range of fp32 and needs no loss scale"
#define TORCH_DETAIL "chooses between implementations of one update; here there is one"

/* Why a setting may change on --resume; shared by several rows. */
#define NO_BITS        "the results do not depend on it"
#define BY_HAND        "tuned by hand in a run: it counts from the next step on, the optimizer's state stays valid"
#define SCALING        "it counts from the next step on; the loss scale itself is in the checkpoint"
#define OUTPUT         "it says what is reported or written, not what is computed"
#define MOVES          "files move; a data set with other contents is noticed by its hash, and a warning says so"
#define LENGTH         "a run may be made longer or shorter; a schedule that follows its length follows the new one"
#define JUDGED         "it counts from the next evaluation on; what was best by another metric is forgotten"
#define DROPOUT        "regularisation without state: it counts from the next step on"
#define RESOLVED(key_) "it is another way to write " key_

const sl_option sl_config_rows[] = {
    /* ---- model, data, length of the run ---- */
    TEXT(
        "model.path", "", path,
        "Folder of a language model as Hugging Face's transformers keeps it: `config.json` says what the model is, and "
        "the weights are loaded from it unless `load` names others. Keys that it decides may be left out, or must "
        "agree. A plan also takes the name of a published model, such as `llama-3.1-8b`.",
        FREE("folders move; a folder of another model is noticed by the graph"), READS),
    TEXT("model.type", "", model.type,
         "Family of models: `linear`, `mlp`; of images `cnn`, `resnet`, `vit`; of clicks `recommender`; of speech "
         "`speech`; "
         "`bert`; or a "
         "language model: `gpt2`, "
         "`llama`, `mistral`, `qwen2`, `qwen3`, `phi3`, "
         "`gemma`, `gemma2`, `gemma3_text`. Required without `model.path`.",
         SAME),
    COUNT_UP_TO("model.layers", "12", model.layers, 1, SL_MODEL_MAX_LAYERS,
                "Language models: number of transformer blocks; speech: of recurrent layers.", MODEL),
    COUNT_UP_TO("model.heads", "12", model.heads, 1, SIZES, "Language models: attention heads; they divide the width.",
                MODEL),
    COUNT_TO("model.kv_heads", "auto", model.kv_heads, 1, SIZES,
             "Language models but gpt2: key and value heads (grouped-query attention); auto: as many as heads.", MODEL,
             ZERO_IS_AUTO),
    COUNT_UP_TO(
        "model.width", "768", model.width, 1, SIZES / 4,
        "Language models: hidden size, the width of the residual stream; speech: of a recurrent layer's state, in each "
        "direction.",
        MODEL),
    COUNT_TO("model.head_width", "auto", model.head_width, 1, SIZES,
             "Language models but gpt2: features of a head; auto: width / heads.", MODEL, ZERO_IS_AUTO),
    COUNT_TO(
        "model.feed_forward", "auto", model.feed_forward, 1, SIZES / 2,
        "Language models: width of the feed-forward layer; auto: for gpt2 4 times the width, for others 8/3 of it, "
        "rounded up to a multiple of 256.",
        MODEL, ZERO_IS_AUTO),
    COUNT_UP_TO(
        "model.context", "1024", model.context, 1, SIZES,
        "Language models: sequence length, the tokens in a sample. With `model.path`, unless given: the positions "
        "that the model was made for, at most 2048.",
        SAME),
    ROW("model.vocabulary", SL_OPT_STRING, "bytes", given.vocabulary,
        "Language models: `bytes` (256 tokens), `characters` (those of the text, or those that loaded weights keep), "
        "or a "
        "number of tokens, for `tokens` and `random_tokens`; with a text, at least as many as it has.",
        .min = 1, .max = SIZES, SAME),
    REAL("model.dropout", "0", model.dropout, 0, 0.999,
         "gpt2, bert, vit, cnn, speech: dropout probability in training. With `model.path`, unless given: what "
         "`config.json` says (`resid_pdrop`, `hidden_dropout_prob`).",
         FREE(DROPOUT)),
    REAL_AUTO(
        "model.embedding_dropout", "auto", model.embedding_dropout, 0, 0.999,
        "gpt2, bert, vit: the same behind the embedding; auto: `model.dropout`, and where that is not given with a "
        "`model.path` of a gpt2 its `embd_pdrop`.",
        FREE(DROPOUT)),
    REAL_AUTO("model.classifier_dropout", "auto", model.classifier_dropout, 0, 0.999,
              "bert: the same before a classifier; auto: `model.dropout`, and where that is not given with a "
              "`model.path` its `classifier_dropout`.",
              FREE(DROPOUT)),
    REAL("model.norm_epsilon", "1e-5", model.norm_epsilon, 0, 1, "Added to the variance in layer norm and RMS norm.",
         MODEL),
    REAL("model.rope_theta", "500000", model.rope_theta, 1, 1e30,
         "Language models but gpt2: base of the rotary position embedding.", MODEL),
    FLAG("model.tie_word_embeddings", "true", model.untied,
         "Language models: the output head shares the weights of the token embedding. Beside `model.path` it is what "
         "counts where `config.json` and the weights disagree.",
         MODEL, NEGATED),
    FLAG("model.attention_bias", "false", model.attention_bias,
         "llama, qwen3, gemma, gemma2, gemma3_text: the projections of attention have biases (qwen2 always has its "
         "own).",
         MODEL),
    COUNT_UP_TO(
        "model.sliding_window", "0", model.window, 0, SIZES,
        "mistral, qwen2, qwen3, phi3, gemma2, gemma3_text: in layers with a window a token sees so many, itself "
        "included; in gemma2 these are the layers 0, 2, ..., in gemma3_text all but every sixth, in the others "
        "all. 0: no window, for gemma2 and gemma3_text 4096.",
        MODEL),
    COUNT_TO("model.features", "auto", model.features, 1, SIZES,
             "linear, mlp: input features of a sample; auto: `data.features`, or the pixels and channels of an image.",
             MODEL),
    COUNT_TO("model.outputs", "auto", model.outputs, 1, SIZES,
             "linear, mlp: targets of a sample, or classes; auto: `data.outputs`, or the classes of the images.",
             MODEL),
    LIST("model.hidden", given.hidden,
         "mlp: widths of the hidden layers, at most 16; cnn: of the linear layers behind the convolutions.", MODEL),
    LIST("model.filters", given.filters,
         "cnn, speech: channels of the convolutions, at most 16. Each of speech halves the number of bands.", MODEL),
    COUNT_UP_TO(
        "model.frame_stride", "2", model.frame_stride, 1, 65536,
        "speech: rows of 10 ms that become one frame of output, 1, 2, 4 and so on: the first convolutions halve "
        "their number. A transcript needs a frame for each character, and one between equal ones.",
        SAME),
    FLAG("model.bidirectional", "true", model.one_way,
         "speech: recurrent layers also go from the end to the beginning, as wide again.", MODEL, NEGATED),
    COUNT_UP_TO("model.kernel", "3", model.kernel, 1, 255, "cnn: side of the windows of convolutions.", MODEL),
    COUNT_UP_TO("model.padding", "0", model.padding, 0, 254, "cnn: zeros around the input of each convolution.", MODEL),
    COUNT_UP_TO("model.pool", "2", model.pool, 1, 255,
                "cnn: side of the windows of which only the largest number stays, behind each convolution; 1: none.",
                MODEL),
    COUNT_UP_TO("model.depth", "18", model.depth, 18, 152, "resnet: 18, 34, 50, 101 or 152 layers.", MODEL),
    WORD("model.stem", "imagenet", model.stem, "imagenet|cifar",
         "resnet: what comes first: for ImageNet a 7 x 7 convolution and a pooling, each of stride 2; for images of "
         "some 32 pixels a 3 x 3 convolution.",
         MODEL),
    WORD("model.batch_norm", "micro_batch", model.batch_norm, "micro_batch|all_ranks",
         "Models with batch norms (resnet): what training takes their statistics of: each micro-batch by itself, or "
         "the micro-batches that all ranks compute at the same time, together (PyTorch's SyncBatchNorm).",
         MODEL),
    COUNT_UP_TO("model.patch", "16", model.patch, 1, 65536, "vit: side of a patch in pixels.", MODEL),
    LIST(
        "model.bottom", given.bottom,
        "recommender: widths of the hidden layers between the numbers of a row and the vector that stands for them, at "
        "most 16.",
        MODEL),
    LIST("model.top", given.top, "recommender: widths of the hidden layers before the logit, at most 16.", MODEL),
    COUNT_UP_TO("model.embedding", "16", model.embedding, 1, SIZES,
                "recommender: width of a row of the tables, one for each categorical column, which have "
                "`data.hash_buckets` rows each.",
                MODEL),
    FLAG("model.sparse", "false", model.sparse,
         "recommender: the tables and their optimizer state stay on the host, however large, and a step moves, reduces "
         "and "
         "updates only the rows that it touches. SGD without momentum and Adagrad give the same weights as without; "
         "Adam "
         "and AdamW become PyTorch's SparseAdam for the tables. Weight decay must be 0 for them.",
         SAME),
    COUNT_TO(
        "model.sparse_rows", "auto", model.sparse_rows, 1, SIZES,
        "recommender with `model.sparse`: rows of one table that a step touches at most; auto: as many as its batches "
        "have. A step with more ends the run.",
        FREE(NO_BITS), ZERO_IS_AUTO),
    WORD("model.head", "masked_language", model.head, "masked_language|classifier",
         "bert: what it is trained for: guessing tokens, or classes of sentences and pairs.", MODEL),
    WORD("model.activation", "relu", model.activation, "none|relu|gelu|silu",
         "mlp: activation function between the layers.", MODEL),
    WORD("model.loss", "auto", model.loss, "mse|bce|cross_entropy",
         "linear, mlp: loss; auto: the one for the data. bce: binary cross entropy; outputs are logits of independent "
         "labels, targets are numbers from 0 to 1.",
         MODEL),
    REAL(
        "model.label_smoothing", "0", model.label_smoothing, 0, 1,
        "Models with cross entropy: what of a target is spread evenly over all classes. Losses are smoothed ones, also "
        "those of evaluation.",
        MODEL),
    FLAG("model.bias", "true", model.bias, "linear, mlp: the layers have a bias.", MODEL),

    LIST("freeze", given.freeze,
         "Parameters that are not trained: a list of file-name patterns over their names, such as `[\"wte.*\", "
         "\"h.0.*\"]`: transformers' names, as `sluice inspect` lists them, or sluice's own. They have no gradient and "
         "no "
         "optimizer state.",
         SAME),
    LIST("new_parameters", given.fresh,
         "Parameters that a run starts with random values where `load` or `model.path` gives the others: file-name "
         "patterns over their names, such as `[\"classifier.*\"]` for a head of other classes. What the files hold of "
         "them is not read. A classifier on a folder without one starts so by itself, and so does BERT's pooler.",
         FREE("a resumed run has its weights from the checkpoint")),
    FLAG("lora.enabled", "false", given.lora,
         "Train LoRA adapters; what is not given is chosen: rank 16, alpha twice the rank, targets `[\"*\"]`. The same "
         "as "
         "`--lora`.",
         FREE(RESOLVED("lora.rank"))),
    COUNT_UP_TO("lora.rank", "0", model.lora.rank, 0, SIZES,
                "Language models: rank of the LoRA adapters on the linear layers that `lora.targets` names; only they "
                "are trained. "
                "0: no adapters.",
                MODEL),
    REAL_AUTO("lora.alpha", "auto", model.lora.alpha, 1e-6, 1e6,
              "Scale of the adapters: their output is multiplied by alpha / rank; auto: alpha is the rank.", MODEL,
              ZERO_IS_AUTO),
    TEXT("lora.path", "", adapter,
         "Folder of a PEFT adapter (`adapter_config.json`, `adapter_model.safetensors`) to begin with; it says rank, "
         "alpha, targets and modules_to_save.",
         FREE("a resumed run has its adapters from the checkpoint"), READS),
    FLAG("lora.use_rslora", "false", model.lora.rank_stabilised,
         "Rank-stabilised LoRA: the output of the adapters is multiplied by alpha / sqrt(rank).", MODEL),
    LIST("lora.targets", given.targets,
         "Linear layers that get an adapter: ends of their names as PEFT writes them (`[\"q_proj\", \"v_proj\"]`), "
         "`[\"all-linear\"]`, or file-name patterns over whole names (those of their parameters without `.weight`), "
         "such "
         "as `[\"*.c_attn\"]`. `q_proj` and its like get adapters of their own; `qkv_proj` and `gate_up_proj`, which "
         "`[\"*\"]` also names, share one A for their parts, which is faster.",
         MODEL),
    LIST("lora.modules_to_save", given.whole,
         "Modules that are trained whole beside the adapters, such as `[\"lm_head\", \"embed_tokens\"]`.", MODEL),
    REAL("lora.dropout", "0", model.lora.dropout, 0, 0.999, "Dropout probability on the input of the adapters.",
         FREE(DROPOUT)),

    TEXT("data.type", "", data.type,
         "`text` (a file), `tokens` (files of token ids), `jsonl` (conversations and texts in JSON lines), "
         "`random_tokens` (for timing), "
         "`regression` "
         "or `classification` (synthetic, from `data.seed`); images: `idx` (MNIST's format), `cifar10`, `cifar100`, "
         "`images` (a folder for each class), `random_images` (for timing); `glue` (sentences with a class, "
         "tab-separated); `table` (CSV or TSV); `speech` (sound files and transcripts). Required, but where "
         "`data.path` tells: `.jsonl`, `.json` "
         "(also "
         "`.gz`), `.bin`, `.npy`, and text otherwise.",
         SAME),
    TEXT("data.path", "", data.path,
         "text: the file, plain text (not JSON, CSV, compressed or token ids). Required there, but for `generate` with "
         "weights that keep their vocabulary. tokens: the file, or a pattern of several (`*`, `?`, `[a-z]`, `{a,b}`; "
         "braces stand for at most 4,096 names), "
         "which "
         "are one sequence in the order of their names. jsonl: a JSON object a line, or an array of them; also "
         "compressed by gzip. idx, cifar10, cifar100: the folder with the usual names, or files; images: the folder. "
         "glue, table: the file to train on, or a folder with `train.tsv` or `train.csv`. speech: the list of sounds "
         "and "
         "transcripts, or a folder with `transcripts.tsv` (also `.csv`, or `train.tsv`).",
         FREE(MOVES), READS),
    TEXT("data.validation_path", "", data.validation_path,
         "tokens, jsonl, glue, table, speech, images of all kinds: what to evaluate on, instead of a share of "
         "`data.path`.",
         FREE(MOVES), READS),
    TEXT("data.mask_path", "", data.mask_path,
         "tokens: a file beside each of `data.path` with one byte for each token: 1 where it counts in the loss, 0 "
         "where it "
         "is only read.",
         FREE(MOVES), READS),
    TEXT("data.validation_mask_path", "", data.validation_mask_path, "tokens: the same for `data.validation_path`.",
         FREE(MOVES), READS),
    CHOICE("data.dtype", "auto", data.dtype, "uint16|uint32",
           "tokens: type of the ids; auto: as the file says (`.npy`, llm.c's), which bare files do not.", FREE(MOVES)),
    COUNT_UP_TO("data.document_token", "", data.document_token, 0, SIZES,
                "tokens: id that begins a document (an end-of-text token between documents).", SAME),
    CHOICE("data.packing", "auto", data.packing, "none|documents|false|true",
           "tokens, jsonl: whether a row holds several documents that are kept apart (`documents`, or true): attention "
           "stays inside, "
           "positions restart. jsonl: otherwise one and padding; auto: documents. tokens: needs `data.document_token`; "
           "auto: none.",
           SAME, VALUES(SL_PACKING_NONE, SL_PACKING_DOCUMENTS, SL_PACKING_NONE, SL_PACKING_DOCUMENTS)),
    TEXT("data.tokenizer", "", data.tokenizer,
         "text, jsonl, glue: folder with `tokenizer.json` (or `vocab.json` and `merges.txt`), or one of these files: "
         "the "
         "text is "
         "read as its tokens. jsonl, glue, and what `data.masking` hides tokens of: required without `model.path`, "
         "whose it "
         "is otherwise; the folder also tells the chat template.",
         FREE("files move; other tokens are noticed by the hash of the data, and a warning says so"), READS),
    TEXT("data.template", "", data.chat,
         "jsonl: chat template of conversations, by name ([data.md](data.md)); empty: the one that the tokenizer's "
         "folder has, if it is known word for word.",
         SAME),
    TEXT("data.template_date", "", data.chat_date,
         "jsonl: what chat templates that tell the date say, such as `26 Jul 2024`; empty: the date in Llama 3.1's own "
         "template.",
         SAME),
    CHOICE("data.loss", "auto", data.loss, "answers|all",
           "jsonl: tokens that count in the loss; auto: answers (or completions), and all of plain texts.", SAME),
    CHOICE("data.truncate", "end", data.truncate, "end|start|drop|refuse",
           "jsonl: what becomes of samples longer than the context: cut at the end, cut at the start, left out, or an "
           "error.",
           SAME),
    FLAG("data.skip_empty", "false", data.skip_empty,
         "jsonl: leave samples with an empty answer out; otherwise they are an error.", SAME),
    CHOICE("data.unit", "auto", data.unit, "bytes|characters|tokens",
           "text: what a token is; auto: `tokens` with `data.tokenizer`, otherwise as `model.vocabulary` says.", SAME),
    REAL_AUTO("data.masking", "auto", data.masking, 0, 0.99,
              "text, tokens: share of the tokens of a window that are hidden, for the model to guess "
              "([data.md](data.md)); auto: "
              "0.15 for a bert with `model.head` masked_language, 0 for all others. Needs the tokenizer.",
              SAME),
    REAL("data.validation", "0", data.validation, 0, 0.99,
         "Share of the data kept for evaluation and never trained on.", SAME),
    TEXT("data.labels_path", "", data.labels_path,
         "idx: the file of labels, where `data.path` is a file of images and no folder.", FREE(MOVES), READS),
    TEXT("data.validation_labels_path", "", data.validation_labels_path, "idx: the same for `data.validation_path`.",
         FREE(MOVES), READS),
    CHOICE("data.labels", "fine", data.labels, "fine|coarse",
           "cifar100: the 100 classes, or the 20 groups that they are in.", SAME),
    COUNT_TO("data.classes", "auto", data.classes, 2, 65536,
             "idx: labels are below it; auto: the largest label and one. images, glue, table: how many there must be.",
             SAME, ZERO_IS_AUTO),
    COUNT_TO(
        "data.image_size", "auto", data.image_size, 1, 4096,
        "Images of all kinds: side of the square that they are resized to; auto: as the folder of `model.path` says, "
        "otherwise as they are, and 224 for `images`.",
        SAME, ZERO_IS_AUTO),
    CHOICE("data.resize", "auto", data.resize, "middle|stretch",
           "Images of all kinds that do not have the size: `middle` (the largest square in the middle), `stretch` (the "
           "whole image, whatever its shape); auto: as `preprocessor_config.json` of `model.path` says, otherwise "
           "middle.",
           SAME),
    COUNT_TO("data.resize_side", "auto", data.resize_side, 1, 65536,
             "Images of all kinds: pixels that their shorter side becomes (with `stretch` both) before "
             "`data.image_size` is cut out of the middle; auto: as the folder of `model.path` says, otherwise nothing "
             "more is cut.",
             SAME, ZERO_IS_AUTO),
    CHOICE("data.resample", "auto", data.resample, "bilinear|bicubic|lanczos",
           "Images of all kinds: the filter that resizes, with antialiasing; auto: as the folder of `model.path` says, "
           "otherwise bilinear.",
           SAME),
    COUNT_TO("data.channels", "auto", data.channels, 1, 3, "images: 3 (colours) or 1 (grey); auto: 3.", SAME,
             ZERO_IS_AUTO),
    CHOICE("data.normalize", "auto", data.normalize, "none|computed|utterance",
           "Images of all kinds: pixels of 0 to 1 less a mean, divided by a standard deviation; `none`: as they are; "
           "`computed`: from the images to train on; auto: as `preprocessor_config.json` of `model.path` says, "
           "otherwise for idx computed, and the usual numbers of the kind for others. "
           "speech: "
           "each band less its mean, divided by its standard deviation, of the utterance (`utterance`, auto) or of all "
           "that "
           "is trained on (`computed`, which reads all of it at the start).",
           SAME),
    LIST("data.mean", given.mean, "Images of all kinds: the mean instead, for each channel, or one for all.", SAME),
    LIST("data.std", given.deviation, "Images of all kinds: the standard deviation instead.", SAME),
    FLAG("data.flip", "false", data.flip, "Images of all kinds: mirror every other training image, chosen at random.",
         SAME),
    ROW("data.crop", SL_OPT_STRING, "none", data.crop,
        "Images of all kinds, in training: a number of black pixels to pad by on each side, where an image of the old "
        "size "
        "is then cut out at random, such as 4; `resized`: a part of random size and shape, resized; `none`.",
        .min = 0, .max = 64, SAME),
    TEXT("data.columns.label", "", data.label_column,
         "glue, table: name of the column of labels; speech: of transcripts; empty: found by the names that are usual.",
         SAME),
    TEXT("data.columns.first", "", data.first_column,
         "glue: name of the column of sentences; speech: of paths of sound files; empty: found by the names that are "
         "usual.",
         SAME),
    TEXT("data.columns.second", "", data.second_column, "glue: the column of second sentences, beside that.", SAME),
    LIST("data.columns.numeric", given.numeric,
         "table: columns of numbers, as names or file-name patterns. Columns that no list names are told by their "
         "values, or left out where both this and `data.columns.categorical` are given.",
         SAME),
    LIST("data.columns.categorical", given.categorical, "table: columns of categories.", SAME),
    LIST("data.columns.ignore", given.ignored, "table: columns that are left out.", SAME),
    COUNT_UP_TO("data.hash_buckets", "100000", data.hash_buckets, 1, SIZES,
                "table: numbers that the categories of a column are hashed to, from 0 to below it.", SAME),
    CHOICE("data.target", "auto", data.target, "class|number|binary",
           "table: what a label is: the name of a class, a number, or one of two names that become 0 and 1; auto: as "
           "the model learns it.",
           SAME),
    CHOICE("data.separator", "auto", data.separator, "comma|tab|semicolon",
           "table: what is between columns; auto: what the first line has.", SAME),
    COUNT_UP_TO("data.mels", "80", data.mels, 1, 512, "speech: bands of pitches, evenly spaced on the mel scale.",
                SAME),
    COUNT_TO("data.sample_rate", "auto", data.sample_rate, 1000, 384000,
             "speech: samples a second that every sound must have; auto: as many as the first. Nothing is resampled.",
             SAME, ZERO_IS_AUTO),
    REAL_AUTO("data.max_seconds", "auto", data.max_seconds, 0.05, 10000,
              "speech: longer utterances are left out, and counted; auto: none are. All are padded to the longest.",
              SAME, ZERO_IS_AUTO),
    TEXT("data.characters", "", data.characters,
         "speech: the characters that transcripts may have, such as `\" abcdefghijklmnopqrstuvwxyz'\"`; empty: those "
         "of the "
         "transcripts to train on, or those that loaded weights keep.",
         SAME),
    COUNT_UP_TO("data.time_masks", "0", data.time_masks, 0, 100,
                "speech, in training: stretches of time that are silenced in each utterance, at random places "
                "(SpecAugment).",
                SAME),
    COUNT_UP_TO("data.time_mask_width", "20", data.time_mask_width, 1, 100000,
                "speech: their most rows of 10 ms; each is of any length up to it.", SAME),
    COUNT_UP_TO("data.frequency_masks", "0", data.frequency_masks, 0, 100,
                "speech, in training: groups of neighbouring bands that are silenced in each utterance.", SAME),
    COUNT_UP_TO("data.frequency_mask_width", "8", data.frequency_mask_width, 1, 512, "speech: their most bands.", SAME),
    FLAG("data.skip_bad", "false", data.skip_bad,
         "images: leave files that cannot be decoded out, and say how many; otherwise they are an error.", SAME),
    COUNT_TO("data.threads", "auto", data.threads, 0, SL_MAX_THREADS,
             "Images of all kinds, speech: threads that read, decode and transform ahead of the step; 0: the step does "
             "it itself; "
             "auto: this rank's share of the CPUs where files are decoded or images resized, otherwise 0. jsonl, glue: "
             "threads that encode.",
             FREE(NO_BITS)),
    COUNT("data.samples", "1000", data.samples, 1,
          "random_tokens, random_images, regression, classification: number of synthetic samples.", SAME),
    COUNT_TO("data.features", "auto", data.features, 1, SIZES,
             "regression, classification: input features of a sample; auto: `model.features`.", SAME),
    COUNT_TO(
        "data.outputs", "auto", data.outputs, 1, SIZES,
        "regression: targets of a sample; classification, random_images: number of classes; auto: `model.outputs`, "
        "or 1 target.",
        SAME),
    REAL("data.noise", "0.1", data.noise, 0, LARGE, "regression: standard deviation of the noise added to the targets.",
         SAME),
    COUNT_TO("data.seed", "auto", data.seed, 0, EXACT,
             "Seed of synthetic data and of the order of the samples; auto: `seed`.", SAME),
    FLAG("data.shuffle", "true", data.shuffle, "Shuffle the samples anew every epoch.", SAME),

    COUNT("steps", "", steps, 1, "Optimizer steps in the run. Give this or `epochs`.", FREE(LENGTH)),
    COUNT("epochs", "", epochs, 1,
          "Passes over the training data. Give this or `steps`; one that is typed takes the place of the other in the "
          "file.",
          FREE(LENGTH)),
    COUNT_UP_TO("seed", "1", seed, 0, EXACT, "Seed of initial weights, dropout and the order of the samples.", SAME,
                NAMED_OPTION(seed)),
    COUNT_TO("threads", "auto", device.threads, 1, SL_MAX_THREADS,
             "Compute threads of a rank; auto: the CPUs this process may use, divided among the ranks of the machine.",
             FREE(NO_BITS), ZERO_IS_AUTO, OPTION(threads)),
    CHOICE("device", "auto", device.kind, "cpu|cuda|auto",
           "Where the model is computed; auto: on a GPU where there is one that sluice can use, else on the CPU. The "
           "environment variable SLUICE_DEVICE replaces auto.",
           FREE("a run may move to another device; where its kernels have other bits, a warning says so"),
           OPTION(device)),
    FLAG("tf32", "false", device.tf32, "On a GPU in fp32: GEMMs may round their operands to tf32, which is faster.",
         SAME, OPTION(tf32)),
    CHOICE(
        "communication.gpu", "auto", device.comm, "auto|nccl|host",
        "How ranks on GPUs exchange data: through NCCL, or through host memory; auto: NCCL where every rank has a GPU "
        "of its own. The results are the same.",
        FREE(NO_BITS)),
    COUNT("evaluate.every", "0", evaluate.every, 0,
          "Steps between evaluations; 0: only before the first and after the last step.",
          FREE("evaluation changes nothing but what ReduceLROnPlateau and early_stopping see")),
    COUNT("evaluate.batches", "0", evaluate.batches, 0,
          "Micro-batches in an evaluation; 0: the whole validation split.",
          FREE("evaluation changes nothing but what ReduceLROnPlateau and early_stopping see")),
    CHOICE("evaluate.metric", "auto", evaluate.metric, SL_METRIC_CHOICES,
           "Metric that judges: by which `checkpoint.keep_best` and `early_stopping` find the best step; auto: `loss`. "
           "docs/evaluate.md says what each is, and which models have it.",
           FREE(JUDGED)),
    LIST("evaluate.metrics", given.metrics,
         "Metrics to show, such as `[\"f1\", \"auc\"]`; empty: those that a model of this kind usually has.",
         FREE(OUTPUT)),
    COUNT("early_stopping.patience", "0", early_stopping.patience, 0,
          "End the run when so many evaluations, every `evaluate.every` steps, have brought nothing better; 0: do not.",
          FREE(JUDGED)),
    REAL("early_stopping.min_delta", "0", early_stopping.min_delta, 0, LARGE,
         "How much better an evaluation must be to count as better.", FREE(JUDGED)),
    CHOICE("early_stopping.metric", "auto", early_stopping.metric, SL_METRIC_CHOICES,
           "Metric that is watched; auto: `evaluate.metric`.", FREE(JUDGED)),
    CHOICE("early_stopping.mode", "auto", early_stopping.mode, "auto|min|max",
           "Whether lower or higher values are better; auto: as the metric has it.", FREE(JUDGED)),

    /* ---- batch ---- */
    COUNT_AUTO(
        "train_batch_size", "auto", train_batch_size, 1,
        "Samples in an optimizer step: `train_micro_batch_size_per_gpu` x `gradient_accumulation_steps` x ranks. "
        "Give any two of the three, or one of the two sizes.",
        SAME),
    COUNT_TO("train_micro_batch_size_per_gpu", "auto", model.batch, 1, SIZES,
             "Samples that a rank computes at once (micro-batch).", SAME, TRAINER("per_device_train_batch_size", "8")),
    COUNT_TO("gradient_accumulation_steps", "auto", plan.accumulation, 1, 1e6,
             "Gradient accumulation: micro-batches of a rank in a step.",
             FREE("its product with the ranks is part of train_batch_size, which must stay"),
             OPTION(accumulation_steps), TRAINER("gradient_accumulation_steps", "1")),
    COUNT("batch_growth.every", "0", batch_growth.every, 0,
          "Let the batch grow: every so many steps the micro-batches of a step become `batch_growth.factor` times as "
          "many. "
          "The learning rate stays what the schedule says. 0: it does not grow.",
          SAME),
    COUNT_UP_TO("batch_growth.factor", "2", batch_growth.factor, 2, 1e6, "How many times as large the batch becomes.",
                SAME),
    COUNT_AUTO("batch_growth.limit", "auto", batch_growth.limit, 1,
               "Samples in a step, at most: it grows while it stays within. Needed with `batch_growth.every`.", SAME),
    REFUSED("managed_gradient_accumulation", BOOL, "true",
            "the program owns the step boundary; a caller who wants it uses sluice_forward, sluice_backward and "
            "sluice_step"),
    REAL_AUTO("gradient_clipping", "1.0", optim.clip, 0, LARGE,
              "Largest global gradient norm; a larger gradient is scaled down to it. 0: no clipping.", FREE(BY_HAND),
              OPTION(gradient_clipping), TRAINER("max_grad_norm", "1.0")),
    COUNT_AUTO("steps_per_print", "auto", steps_per_print, 1,
               "Steps between printed lines; auto: about twenty lines a run.", FREE(OUTPUT)),
    NOTED("wall_clock_breakdown", BOOL, "false", "the time of every step is in its event"),
    NOTED("memory_breakdown", BOOL, "false", "the plan prints memory by tier and kind before the first step"),
    { .key = "cuda_visible_devices",
      .type = SL_OPT_STRING,
      .fallback = "",
      .fate = SL_KEY_NOTED,
      .note = "the environment variable CUDA_VISIBLE_DEVICES says which GPUs there are",
      .max = 1024, /* a number or a list of them as text */
      .auto_ok = true },
    NOTED("dump_state", BOOL, "false", "`sluice config` prints the effective configuration"),
    NOTED("dataloader_drop_last", BOOL, "false", "batches wrap epochs and are always full, so no last one is short"),
    CHOICE(
        "communication_data_type", "auto", precision.wire, "fp32|bf16|fp16|bfp16",
        "Type in which gradients are exchanged and kept; auto: the precision of the run. It changes the rounding, on "
        "one rank too.",
        SAME, VALUES(SLUICE_F32, SLUICE_BF16, SLUICE_F16, SLUICE_BF16), NAMED_OPTION(wire)),
    NOTED("seq_parallel_communication_data_type", STRING, "fp32",
          "there is no sequence parallelism to communicate for"),
    REFUSED("gradient_allreduce_op", STRING, "mean",
            "gradients are means over the global batch, whatever the number of ranks; scale the learning rate instead"),
    NOTED("prescale_gradients", BOOL, "false", "contributions are always divided before they are summed"),
    REFUSED("gradient_predivide_factor", DOUBLE, "1.0",
            "contributions are divided once, by the number of micro-batches; another factor would change the rounding"),
    NOTED("sparse_gradients", BOOL, "false",
          "embedding gradients are dense unless `model.sparse` is set; the result is the same"),
    NOTED("disable_allgather", BOOL, "false", COLLECTIVES),
    NOTED("zero_allow_untested_optimizer", BOOL, "false", "every optimizer works at every stage"),
    NOTED("zero_force_ds_cpu_optimizer", BOOL, "true", "an update has the same bits wherever it runs"),
    REFUSED("data_types.grad_accum_dtype", STRING, "fp32", "contributions are always summed in fp32"),
    UNBUILT("data_types.param_dtype", STRING, "fp32", "Type of the weights."),
    UNBUILT("data_types.buffer_dtype", STRING, "fp32", "Type of buffers that are not trained."),

    /* ---- optimizer ---- */
    ROW("optimizer.type", SL_OPT_CHOICE, "", optim.optimizer.kind,
        "Required. `Adam` is AdamW unless `adam_w_mode` is false, as in DeepSpeed.",
        .choices = "SGD|Adagrad|Adam|AdamW|LAMB|LARS|Lion|RMSprop|Muon!|OneBitAdam!|ZeroOneAdam!|OneBitLamb!|MuAdam!|"
                   "MuAdamW!|MuSGD!",
        SAME, OPTION(optimizer.kind)),
    REAL_AUTO("optimizer.params.lr", "0.001", optim.optimizer.lr, 0, LARGE, "Learning rate.", FREE(BY_HAND),
              OPTION(optimizer.lr), TRAINER("learning_rate", "5e-5")),
    /* before betas, whose second number it is: the row of betas has the default of all others */
    REAL_AUTO("optimizer.params.alpha", "0.99", optim.optimizer.beta2, 0, 0.999999999,
              "RMSprop: decay rate of the mean of squares.", FREE(BY_HAND)),
    ROW("optimizer.params.betas", SL_OPT_PAIR, "[0.9, 0.999]", optim.optimizer.beta1,
        "Decay rates of the first and second moment.", .max = 0.999999999, .auto_ok = true, FREE(BY_HAND),
        OPTION(optimizer.beta1), TRAINER("adam_beta1 and adam_beta2", "[0.9, 0.999]")),
    REAL_AUTO("optimizer.params.eps", "1e-8", optim.optimizer.epsilon, 0, LARGE, "Added to the denominator.",
              FREE(BY_HAND), OPTION(optimizer.epsilon), TRAINER("adam_epsilon", "1e-8")),
    REAL_AUTO("optimizer.params.weight_decay", "0", optim.optimizer.weight_decay, 0, LARGE,
              "Weight decay; AdamW with `torch_adam`: 0.01 when absent.", FREE(BY_HAND), OPTION(optimizer.weight_decay),
              TRAINER("weight_decay", "0")),
    REAL_AUTO("optimizer.params.momentum", "0", optim.optimizer.momentum, 0, 0.999999999, "Momentum.", FREE(BY_HAND),
              OPTION(optimizer.momentum)),
    REAL_AUTO("optimizer.params.dampening", "0", optim.optimizer.dampening, 0, 1,
              "Dampening of the gradient that enters the momentum.", FREE(BY_HAND), OPTION(optimizer.dampening)),
    FLAG_AUTO("optimizer.params.nesterov", "false", optim.optimizer.nesterov, "Nesterov momentum.", FREE(BY_HAND),
              OPTION(optimizer.nesterov)),
    FLAG_AUTO("optimizer.params.amsgrad", "false", optim.optimizer.amsgrad, "Keep and use the largest second moment.",
              SAME, OPTION(optimizer.amsgrad)),
    FLAG_AUTO("optimizer.params.centered", "false", optim.optimizer.centered,
              "RMSprop: divide by the deviation of the gradient from its mean.", SAME, OPTION(optimizer.centered)),
    FLAG_AUTO("optimizer.params.adam_w_mode", "true", given.adam_w_mode,
              "Adam: decoupled weight decay (AdamW) instead of L2 regularisation.", FREE(RESOLVED("optimizer.type"))),
    FLAG_AUTO("optimizer.params.torch_adam", "false", given.torch_adam, "Adam: PyTorch's default for the weight decay.",
              FREE(RESOLVED("weight_decay"))),
    REAL_AUTO("optimizer.params.trust_coefficient", "0.001", optim.optimizer.trust, 0, LARGE,
              "LARS: trust coefficient.", FREE(BY_HAND), OPTION(optimizer.trust)),
    REAL_AUTO("optimizer.params.min_coeff", "0.01", optim.optimizer.min_trust, 0, LARGE,
              "LAMB: lower bound of the trust ratio.", FREE(BY_HAND), OPTION(optimizer.min_trust)),
    REAL_AUTO("optimizer.params.max_coeff", "10.0", optim.optimizer.max_trust, 0, LARGE,
              "LAMB: upper bound of the trust ratio.", FREE(BY_HAND), OPTION(optimizer.max_trust)),
    FLAG_AUTO("optimizer.params.bias_correction", "true", optim.optimizer.uncorrected,
              "Adam, AdamW, LAMB: bias correction of the moments, which start at zero.", FREE(BY_HAND), NEGATED,
              OPTION(optimizer.uncorrected)),
    UNBUILT("optimizer.params.lr_decay", DOUBLE, "0", "Decay of the rate with the step."),
    UNBUILT("optimizer.params.initial_accumulator_value", DOUBLE, "0", "Start of the sum of squares."),
    UNBUILT("optimizer.params.maximize", BOOL, "false", "Climb instead of descend."),
    UNBUILT("optimizer.params.eps_inside_sqrt", BOOL, "false", "Add epsilon under the root."),
    FLAG_AUTO("optimizer.params.fp32_optimizer_states", "true", given.fp32_states,
              "False: `zero_optimization.states` is bf16.", FREE(RESOLVED("zero_optimization.states"))),
    REFUSED("optimizer.params.max_grad_norm", DOUBLE, "0", "write gradient_clipping instead"),
    NOTED("optimizer.params.foreach", BOOL, "", TORCH_DETAIL),
    NOTED("optimizer.params.fused", BOOL, "", TORCH_DETAIL),
    NOTED("optimizer.params.capturable", BOOL, "false", TORCH_DETAIL),
    NOTED("optimizer.params.differentiable", BOOL, "false", TORCH_DETAIL),
    NOTED("optimizer.params.set_grad_none", BOOL, "true", PLANNED),
    UNBUILT("optimizer.params.freeze_step", INT, "", "1-bit optimizers: steps before compression begins."),
    UNBUILT("optimizer.params.cuda_aware", BOOL, "", "1-bit optimizers: whether MPI reads GPU memory."),
    UNBUILT("optimizer.params.comm_backend_name", STRING, "", "1-bit optimizers: library for their collectives."),
    UNBUILT("optimizer.params.var_freeze_step", INT, "", "0/1 Adam: step after which the variance stays."),
    UNBUILT("optimizer.params.var_update_scaler", INT, "", "0/1 Adam: interval of updates of the variance."),
    UNBUILT("optimizer.params.local_step_scaler", INT, "", "0/1 Adam: interval of local steps."),
    UNBUILT("optimizer.params.local_step_clipper", INT, "", "0/1 Adam: longest interval of local steps."),
    UNBUILT("optimizer.params.coeff_beta", DOUBLE, "", "1-bit LAMB: average of the trust ratios."),
    UNBUILT("optimizer.params.factor_max", DOUBLE, "", "1-bit LAMB: upper bound of their factor."),
    UNBUILT("optimizer.params.factor_min", DOUBLE, "", "1-bit LAMB: lower bound of their factor."),
    UNBUILT("optimizer.params.factor_threshold", DOUBLE, "", "1-bit LAMB: bound of its change in a step."),
    UNBUILT("optimizer.params.muon_lr", DOUBLE, "", "Muon: rate of the matrices."),
    UNBUILT("optimizer.params.adam_lr", DOUBLE, "", "Muon: rate of everything else."),
    UNBUILT("optimizer.params.ns_method", STRING, "gram", "Muon: how a matrix is made orthogonal."),
    LIST("optimizer.groups", given.groups,
         "Parameter groups with their own learning rate and weight decay: a list of `{\"match\": pattern, \"lr\": x, "
         "\"weight_decay\": y}`. The pattern is a file-name pattern over parameter names, or `no_decay` (norms and "
         "biases). The first group that matches counts.",
         FREE(BY_HAND)),

    /* ---- scheduler ---- */
    ROW("scheduler.type", SL_OPT_CHOICE, "none", schedule.kind, "Learning-rate schedule.",
        .choices = "none|WarmupLR|WarmupDecayLR|WarmupCosineLR|OneCycle|LRRangeTest|ReduceLROnPlateau", FREE(BY_HAND)),
    REAL_AUTO("scheduler.params.warmup_min_lr", "0", schedule.warmup_min_lr, 0, LARGE,
              "Learning rate at the start of the warm-up.", FREE(BY_HAND)),
    REAL_AUTO("scheduler.params.warmup_max_lr", "auto", schedule.warmup_max_lr, 0, LARGE,
              "Learning rate at the end of the warm-up; auto: the optimizer's.", FREE(BY_HAND)),
    COUNT_AUTO("scheduler.params.warmup_num_steps", "1000", schedule.warmup_num_steps, 0,
               "Steps of warm-up; fewer than 2 count as 2, as in DeepSpeed.", FREE(BY_HAND),
               TRAINER("warmup_steps", "0")),
    REAL("scheduler.params.warmup_ratio", "0", schedule.warmup_ratio, 0, 1,
         "Share of the run's steps that warm-up takes; above 0 it stands in for warmup_num_steps.", FREE(BY_HAND)),
    CHOICE("scheduler.params.warmup_type", "log", schedule.warmup_linear, "log|linear", "Shape of the warm-up.",
           FREE(BY_HAND)),
    COUNT_AUTO("scheduler.params.total_num_steps", "auto", schedule.total_num_steps, 1,
               "Steps of the schedule; auto: those of the run.", FREE(BY_HAND)),
    REAL_AUTO("scheduler.params.warmup_min_ratio", "0", schedule.warmup_min_ratio, 0, 1,
              "Learning rate at the start, as a share of the optimizer's.", FREE(BY_HAND)),
    REAL_AUTO("scheduler.params.cos_min_ratio", "0.0001", schedule.cos_min_ratio, 0, 1,
              "Learning rate at the end, as a share of the optimizer's.", FREE(BY_HAND)),
    REAL_AUTO("scheduler.params.lr_range_test_min_lr", "0.001", schedule.range_min_lr, 0, LARGE,
              "Learning rate at the start.", FREE(BY_HAND)),
    COUNT_AUTO("scheduler.params.lr_range_test_step_size", "2000", schedule.range_step_size, 1, "Steps in an interval.",
               FREE(BY_HAND)),
    REAL_AUTO("scheduler.params.lr_range_test_step_rate", "1.0", schedule.range_step_rate, 0, LARGE,
              "Growth of the learning rate in an interval.", FREE(BY_HAND)),
    FLAG_AUTO("scheduler.params.lr_range_test_staircase", "false", schedule.range_staircase,
              "Grow once an interval instead of every step.", FREE(BY_HAND)),
    REAL("scheduler.params.cycle_min_lr", "", schedule.cycle_min_lr, 0, LARGE,
         "Learning rate at the ends of the cycle. Required.", FREE(BY_HAND)),
    REAL("scheduler.params.cycle_max_lr", "", schedule.cycle_max_lr, 0, LARGE,
         "Learning rate at the top of the cycle. Required.", FREE(BY_HAND)),
    REAL_AUTO("scheduler.params.decay_lr_rate", "0", schedule.decay_lr_rate, 0, LARGE,
              "Decay of the learning rate after the cycle.", FREE(BY_HAND)),
    COUNT_AUTO("scheduler.params.cycle_first_step_size", "2000", schedule.cycle_first_step_size, 1,
               "Steps of the rise.", FREE(BY_HAND)),
    COUNT_AUTO("scheduler.params.cycle_second_step_size", "auto", schedule.cycle_second_step_size, 1,
               "Steps of the fall; auto: as many as of the rise.", FREE(BY_HAND)),
    COUNT_AUTO("scheduler.params.cycle_first_stair_count", "0", schedule.cycle_first_stair_count, 0,
               "Stairs of the rise; 0: smooth.", FREE(BY_HAND)),
    COUNT_AUTO("scheduler.params.cycle_second_stair_count", "auto", schedule.cycle_second_stair_count, 0,
               "Stairs of the fall; auto: as many as of the rise.", FREE(BY_HAND)),
    COUNT_AUTO("scheduler.params.decay_step_size", "0", schedule.decay_step_size, 0,
               "Steps in an interval of decay; 0: no decay.", FREE(BY_HAND)),
    FLAG_AUTO("scheduler.params.cycle_momentum", "true", schedule.cycle_momentum,
              "Cycle the momentum (beta1) in the opposite direction.", FREE(BY_HAND)),
    REAL_AUTO("scheduler.params.cycle_min_mom", "0.8", schedule.cycle_min_mom, 0, 0.999999999, "Least momentum.",
              FREE(BY_HAND)),
    REAL_AUTO("scheduler.params.cycle_max_mom", "0.9", schedule.cycle_max_mom, 0, 0.999999999, "Largest momentum.",
              FREE(BY_HAND)),
    REAL_AUTO("scheduler.params.decay_mom_rate", "0", schedule.decay_mom_rate, 0, LARGE,
              "Decay of the momentum after the cycle.", FREE(BY_HAND)),
    REAL_AUTO("scheduler.params.factor", "0.1", schedule.factor, 0, 0.999999999,
              "Factor by which the learning rate is reduced.", FREE(BY_HAND)),
    COUNT_AUTO("scheduler.params.patience", "10", schedule.patience, 0,
               "Evaluations without progress before a reduction.", FREE(BY_HAND)),
    REAL_AUTO("scheduler.params.threshold", "0.0001", schedule.threshold, 0, LARGE,
              "Least improvement that counts as progress.", FREE(BY_HAND)),
    CHOICE("scheduler.params.threshold_mode", "rel", schedule.threshold_absolute, "rel|abs",
           "Whether the threshold is relative or absolute.", FREE(BY_HAND)),
    COUNT_AUTO("scheduler.params.cooldown", "0", schedule.cooldown, 0,
               "Evaluations that do not count after a reduction.", FREE(BY_HAND)),
    REAL_AUTO("scheduler.params.min_lr", "0", schedule.min_lr, 0, LARGE, "Least learning rate.", FREE(BY_HAND)),
    REFUSED("scheduler.params.mode", STRING, "min", "the loss is watched, and less is better"),
    REFUSED("scheduler.params.last_batch_iteration", INT, "-1", "a run continues from its checkpoint (--resume)"),

    /* ---- precision ---- */
    FLAG_AUTO("fp16.enabled", "false", given.fp16,
              "Mixed precision in fp16 with fp32 master weights and loss scaling. Not together with `bf16.enabled`.",
              SAME, NAMED_OPTION(precision)),
    NOTED("fp16.auto_cast", BOOL, "false", "inputs are converted where the model needs them"),
    REAL_AUTO("fp16.loss_scale", "0", precision.loss_scale.fixed, 0, LARGE,
              "Fixed loss scale; 0: dynamic loss scaling, as the next keys say. A run of which every step overflowed "
              "at a fixed one ends with exit status 7.",
              FREE(SCALING), OPTION(loss_scale.fixed)),
    COUNT_TO("fp16.initial_scale_power", "16", precision.loss_scale.initial_power, 0, 100,
             "The dynamic loss scale begins at 2 to this power.", FREE(SCALING), OPTION(loss_scale.initial_power)),
    COUNT_TO("fp16.loss_scale_window", "1000", precision.loss_scale.window, 0, 1e9,
             "Steps without overflow after which the loss scale doubles.", FREE(SCALING), OPTION(loss_scale.window)),
    COUNT_TO("fp16.hysteresis", "2", precision.loss_scale.hysteresis, 1, 1e9,
             "Overflows before the loss scale is halved.", FREE(SCALING), OPTION(loss_scale.hysteresis)),
    FLAG_AUTO("fp16.consecutive_hysteresis", "false", precision.loss_scale.consecutive,
              "Every step without overflow restores the hysteresis, not only doubling.", FREE(SCALING),
              OPTION(loss_scale.consecutive)),
    REAL_AUTO("fp16.min_loss_scale", "1", precision.loss_scale.minimum, 0, LARGE,
              "Least loss scale; an overflow there ends the run (exit status 7).", FREE(SCALING),
              OPTION(loss_scale.minimum)),
    NOTED("fp16.fp16_master_weights_and_grads", BOOL, "false", "the master weights are always fp32"),
    NOTED("fp16.opt_level", STRING, "", "it belongs to another library"),
    FLAG_AUTO("bf16.enabled", "false", given.bf16,
              "Mixed precision in bf16 with exact fp32 master weights. The section may be called `bfloat16`.", SAME,
              NAMED_OPTION(precision)),
    NOTED("bf16.auto_cast", BOOL, "false", "inputs are converted where the model needs them"),
    NOTED("bf16.loss_scale", DOUBLE, "", UNSCALED),
    NOTED("bf16.initial_scale_power", INT, "", UNSCALED),
    NOTED("bf16.loss_scale_window", INT, "", UNSCALED),
    NOTED("bf16.hysteresis", INT, "", UNSCALED),
    NOTED("bf16.min_loss_scale", DOUBLE, "", UNSCALED),
    NOTED("bf16.immediate_grad_update", BOOL, "false", PLANNED),
    FLAG_AUTO("bf16.check_grad_overflow", "true", precision.check_overflow,
              "Skip a step whose gradient is not finite while its losses are; false: such a step ends the run.",
              FREE("it decides only about steps that are not finite"), OPTION(check_overflow)),
    NOTED("bf16.bf16_master_weights_and_grads", BOOL, "false",
          "a bf16 weight and 2 bytes beside it are the exact fp32 master"),
    FLAG_AUTO("bf16.bf16_optimizer_states", "false", given.bf16_states, "True: `zero_optimization.states` is bf16.",
              FREE(RESOLVED("zero_optimization.states"))),
    UNBUILT("fp8.enabled", BOOL, "false", "Compute in 8 bits."),
    NOTED("fp8.*", STRING, "", WITH("fp8.enabled")),
    UNBUILT("torch_autocast.enabled", BOOL, "false", "Compute some operations in a smaller type."),
    NOTED("torch_autocast.dtype", STRING, "bfloat16", WITH("torch_autocast.enabled")),
    NOTED("torch_autocast.lower_precision_safe_modules", LIST, "", WITH("torch_autocast.enabled")),
    UNBUILT("amp.enabled", BOOL, "false", "Mixed precision by another library."),
    NOTED("amp.*", STRING, "", WITH("amp.enabled")),

    /* ---- ZeRO ---- */
    COUNT_TO("zero_optimization.stage", "auto", plan.stage, 0, 3,
             "ZeRO stage: what is divided among the ranks. 0 nothing, 1 optimizer state, 2 also gradients, 3 also "
             "parameters; auto: the one with the shortest expected step that fits, the lowest of those about as fast. "
             "On one rank all stages keep the same. Results do not depend on it.",
             FREE(NO_BITS), OPTION(stage)),
    CHOICE(
        "zero_optimization.partition", "auto", plan.partition, "layer|block|owner|weighted",
        "How a layer is divided among the ranks: in equal parts, in blocks dealt round, whole layers to ranks, or in "
        "proportion to `partition_weights`. auto: weighted where weights are given, owner for LAMB and LARS, which "
        "need whole parameters, otherwise layer. Results do not depend on it.",
        FREE(NO_BITS), OPTION(partition)),
    LIST("zero_optimization.partition_weights", given.weights,
         "weighted: one number per rank, such as their memory; empty: equal ones.", FREE(NO_BITS),
         NAMED_OPTION(partition_weights)),
    COUNT_AUTO("zero_optimization.partition_block", "auto", plan.partition_block, 1,
               "block: elements of a block, rounded up to a multiple of 1,024; auto: 262,144.", FREE(NO_BITS),
               ZERO_IS_AUTO, OPTION(partition_block)),
    CHOICE(
        "zero_optimization.update", "auto", plan.update, "auto|sync|speculative|delayed",
        "When the optimizer update runs. `sync`: after backward, when the gradient norm is known. `speculative`: on "
        "the host each layer during backward, as if the step were neither clipped nor skipped, and once more where "
        "it was; of as many layers as `memory.host` has room for a second copy of their weights and state, and with a "
        "placement that is the best for steps that are rarely clipped; where they are not, the run goes over to "
        "that of `sync`. `auto`: "
        "during backward where no norm is needed, that is without `gradient_clipping` and with "
        "`bf16.check_grad_overflow` false; `speculative` where that shortens the step by 1 % or more, with a "
        "placement that is good for clipped steps, too, until the run has seen that few of its steps are; otherwise "
        "`sync`. Results of these are the same. `delayed`: beside the next step, whose forward and backward do not "
        "see it yet (docs/delayed.md); results are others.",
        FREE("but for `delayed` the results do not depend on it; a delayed run must stay one, and no other becomes "
             "one"),
        VALUES(SL_UPDATE_MODE_AUTO, SL_UPDATE_MODE_SYNC, SL_UPDATE_MODE_SPECULATIVE, SL_UPDATE_MODE_DELAYED),
        OPTION(early_updates)),
    COUNT("zero_optimization.delay_warmup", "40", plan.delay_warmup, 0,
          "`update` delayed: so many steps come first whose update the next step sees, as with `sync`.", SAME,
          OPTION(delay_warmup)),
    CHOICE("zero_optimization.states", "fp32", precision.states, "fp32|bf16|compact",
           "Type of the optimizer's moments; `compact`: 8 bits with a scale per 1,024 elements, embeddings, norms and "
           "biases in fp32. bf16 and compact round at random and change the numbers a little.",
           SAME, OPTION(states)),
    CHOICE(
        "zero_optimization.offload_optimizer.device", "auto", plan.state, "auto|none|cpu|nvme",
        "Offload the optimizer state: keep it in host memory (cpu) or in swap files (nvme, see `memory.disk_path`) and "
        "update on the host; auto: the plan chooses, and takes the disk for what the host cannot hold.",
        FREE(NO_BITS), OPTION(optimizer_state)),
    REAL_AUTO("zero_optimization.offload_optimizer.ratio", "1.0", plan.state_ratio, 0, 1,
              "With device cpu or nvme: share of the optimizer state that is offloaded.", FREE(NO_BITS),
              OPTION(state_ratio)),
    TEXT("zero_optimization.offload_optimizer.nvme_path", "", given.state_path,
         "DeepSpeed's name for `memory.disk_path`; where both offloads name folders, all of them are used for both.",
         FREE(NO_BITS), PATHS),
    NOTED("zero_optimization.offload_optimizer.pin_memory", BOOL, "true",
          "host memory is reserved once and needs no pinning on a CPU"),
    NOTED("zero_optimization.offload_optimizer.buffer_count", INT, "4", PLANNED),
    NOTED("zero_optimization.offload_optimizer.pipeline_read", BOOL, "false", SWAPPED),
    NOTED("zero_optimization.offload_optimizer.pipeline_write", BOOL, "false", SWAPPED),
    NOTED("zero_optimization.offload_optimizer.pipeline", BOOL, "false", SWAPPED),
    NOTED("zero_optimization.offload_optimizer.fast_init", BOOL, "false", SWAPPED),
    NOTED("zero_optimization.offload_optimizer.super_offload", BOOL, "false",
          "updates are exact; see zero_optimization.update"),
    NOTED("zero_optimization.offload_optimizer.cpuadam_cores_perc", DOUBLE, "0.8", "the update uses all of `threads`"),
    CHOICE("zero_optimization.offload_param.device", "auto", plan.parameters, "auto|none|cpu|nvme",
           "Offload the parameters: keep them in host memory (cpu) or in swap files (nvme) and copy them in for every "
           "use; auto: the plan chooses, and takes the disk for what the host cannot hold.",
           FREE(NO_BITS), OPTION(parameters)),
    TEXT("zero_optimization.offload_param.nvme_path", "", given.parameter_path,
         "DeepSpeed's name for `memory.disk_path`.", FREE(NO_BITS), PATHS),
    NOTED("zero_optimization.offload_param.pin_memory", BOOL, "true",
          "host memory is reserved once and needs no pinning on a CPU"),
    NOTED("zero_optimization.offload_param.buffer_count", INT, "5", PLANNED),
    NOTED("zero_optimization.offload_param.buffer_size", INT, "1e8", PLANNED),
    NOTED("zero_optimization.offload_param.max_in_cpu", INT, "1e9", "memory.host bounds what is kept there, in bytes"),
    FLAG_AUTO("zero_optimization.cpu_offload", "false", given.cpu_offload,
              "DeepSpeed's old name for `offload_optimizer.device` cpu.", FREE(NO_BITS)),
    FLAG_AUTO("zero_optimization.cpu_offload_param", "false", given.cpu_offload_param,
              "DeepSpeed's old name for `offload_param.device` cpu.", FREE(NO_BITS)),
    NOTED("zero_optimization.cpu_offload_use_pin_memory", BOOL, "",
          "host memory is reserved once and needs no pinning on a CPU"),
    NOTED("zero_optimization.contiguous_gradients", BOOL, "true", PLANNED),
    NOTED("zero_optimization.reduce_scatter", BOOL, "true", COLLECTIVES),
    COUNT_AUTO("zero_optimization.reduce_bucket_size", "auto", given.reduce_bucket, 0,
               "Elements in a bucket: layers smaller than this share a collective. 0: none do. auto: chosen with the "
               "stage.",
               FREE(NO_BITS)),
    NOTED("zero_optimization.allgather_partitions", BOOL, "true", COLLECTIVES),
    COUNT_AUTO("zero_optimization.allgather_bucket_size", "auto", given.allgather_bucket, 0,
               "As `reduce_bucket_size`; the smaller of the two counts.", FREE(NO_BITS)),
    NOTED("zero_optimization.use_multi_rank_bucket_allreduce", BOOL, "true", COLLECTIVES),
    NOTED("zero_optimization.overlap_comm", BOOL, "", "collectives always run beside computation where they can"),
    NOTED("zero_optimization.load_from_fp32_weights", BOOL, "true", "a checkpoint holds the exact fp32 weights"),
    NOTED("zero_optimization.elastic_checkpoint", BOOL, "false",
          "every checkpoint is independent of the number of ranks"),
    NOTED("zero_optimization.round_robin_gradients", BOOL, "false", PLANNED),
    NOTED("zero_optimization.ignore_unused_parameters", BOOL, "true", "the graph tells which parameters are used"),
    NOTED("zero_optimization.sub_group_size", INT, "1e9", "the update goes layer by layer"),
    NOTED("zero_optimization.stage3_prefetch_bucket_size", INT, "5e7",
          "memory.prefetch_layers sets how far ahead layers are fetched"),
    NOTED("zero_optimization.stage3_param_persistence_threshold", INT, "1e5", PLANNED),
    NOTED("zero_optimization.stage3_model_persistence_threshold", INT, "", PLANNED),
    NOTED("zero_optimization.stage3_max_live_parameters", INT, "1e9",
          "memory.device bounds what is resident, in bytes"),
    NOTED("zero_optimization.stage3_max_reuse_distance", INT, "1e9",
          "the order of uses is known, so eviction is exact"),
    NOTED("zero_optimization.stage3_gather_16bit_weights_on_model_save", BOOL, "false",
          "saving always writes whole weights; save_dtype is their type"),
    NOTED("zero_optimization.stage3_gather_fp16_weights_on_model_save", BOOL, "false",
          "saving always writes whole weights; save_dtype is their type"),
    NOTED("zero_optimization.stage3_module_granularity_threshold", INT, "0", "memory.levels sets what moves together"),
    NOTED("zero_optimization.stage3_use_all_reduce_for_fetch_params", BOOL, "false", COLLECTIVES),
    NOTED("zero_optimization.stage3_allgather_sequential", BOOL, "false", COLLECTIVES),
    NOTED("zero_optimization.stage3_partition_stream_chunk_size", INT, "0", PLANNED),
    NOTED("zero_optimization.leaf_module.*", STRING, "", "memory.levels sets what moves together"),
    NOTED("zero_optimization.sdma_allgather", BOOL, "false", COLLECTIVES),
    NOTED("zero_optimization.sdma_allgather_max_numel", INT, "", COLLECTIVES),
    NOTED("zero_optimization.save_muon_momentum_buffer_in_memory", BOOL, "false", PLANNED),
    NOTED("zero_optimization.memory_efficient_linear", BOOL, "true", PLANNED),
    NOTED("zero_optimization.zero_hpz_partition_size", INT, "1",
          "parameters are cut over all ranks; a second copy by node is not built in"),
    UNBUILT("zero_optimization.zero_quantized_weights", BOOL, "false", "Send weights in 8 bits."),
    UNBUILT("zero_optimization.zero_quantized_nontrainable_weights", BOOL, "false", "Keep frozen weights in 8 bits."),
    UNBUILT("zero_optimization.zero_quantized_gradients", BOOL, "false", "Send gradients in 4 bits."),
    NOTED("zero_optimization.zeropp_loco_param.err_beta", DOUBLE, "0.8",
          WITH("zero_optimization.zero_quantized_gradients")),
    NOTED("zero_optimization.zeropp_loco_param.reset_T", INT, "1024",
          WITH("zero_optimization.zero_quantized_gradients")),
    NOTED("zero_optimization.mics_shard_size", INT, "-1", "parameters are cut over all ranks"),
    NOTED("zero_optimization.mics_hierarchical_params_gather", BOOL, "false", "parameters are cut over all ranks"),
    NOTED("zero_optimization.log_trace_cache_warnings", BOOL, "false", "there is no trace: the order is planned"),
    NOTED("zero_optimization.enable_sanity_checks", BOOL, "false", "the plan is always verified"),
    NOTED("zero_optimization.pipeline_loading_checkpoint", BOOL, "false", PLANNED),
    NOTED("zero_optimization.override_module_apply", BOOL, "true", PLANNED),
    NOTED("zero_optimization.legacy_stage1", BOOL, "false", "there is one implementation of every stage"),
    /* Its mere presence switches ZenFlow on, so that no value is harmless. */
    UNBUILT("zero_optimization.zenflow.topk_ratio", DOUBLE, "",
            "ZenFlow: share of the gradient that is updated at once."),
    UNBUILT("zero_optimization.zenflow.select_strategy", STRING, "", "ZenFlow: when that share is chosen anew."),
    UNBUILT("zero_optimization.zenflow.select_interval", INT, "", "ZenFlow: steps between choices."),
    UNBUILT("zero_optimization.zenflow.update_interval", INT, "", "ZenFlow: steps between updates of the rest."),
    UNBUILT("zero_optimization.zenflow.overlap_step", BOOL, "", "ZenFlow: update beside the next step."),
    UNBUILT("zero_optimization.zenflow.offload", BOOL, "", "ZenFlow: move the chosen state too."),
    UNBUILT("zero_optimization.zenflow.auto_ratio", DOUBLE, "", "ZenFlow: threshold of its automatic interval."),
    UNBUILT("zero_optimization.zenflow.full_warm_up_rounds", INT, "", "ZenFlow: plain steps at the start."),
    UNBUILT("zero_optimization.zenflow.pt_reserved_cores_perc", DOUBLE, "", "ZenFlow: share of the cores it leaves."),
    NOTED("aio.block_size", INT, "1048576", SWAPPED),
    NOTED("aio.queue_depth", INT, "8", SWAPPED),
    NOTED("aio.intra_op_parallelism", INT, "1", SWAPPED),
    NOTED("aio.thread_count", INT, "1", SWAPPED),
    NOTED("aio.single_submit", BOOL, "false", SWAPPED),
    NOTED("aio.overlap_events", BOOL, "true", SWAPPED),
    NOTED("aio.use_gds", BOOL, "false", SWAPPED),

    /* ---- activations, memory ---- */
    CHOICE(
        "activation_checkpointing.mode", "auto", plan.activations, "auto|none|recompute|offload|selective",
        "What becomes of activations between forward and backward: kept (none), recomputed, or offloaded to the host; "
        "selective: what costs little is recomputed (norms, gates, activation functions), the rest kept; auto: the "
        "plan chooses for each layer.",
        FREE(NO_BITS), OPTION(activations)),
    CHOICE("activation_checkpointing.device", "device", plan.offload_to, "device|cpu|nvme",
           "With recompute: where the kept layer inputs wait, with selective what is kept; cpu: offloaded to the host; "
           "nvme: through it to swap files (`memory.disk_path`). Activations that are offloaded whole go there, too; "
           "device: they go to the host, and to the disk where that cannot hold them.",
           FREE(NO_BITS), VALUES(SLUICE_PLACE_AUTO, SLUICE_PLACE_HOST, SLUICE_PLACE_DISK), OPTION(offload_place)),
    FLAG_AUTO("activation_checkpointing.cpu_checkpointing", "false", given.cpu_checkpointing,
              "True: `device` is cpu, and `mode` is recompute unless it is given.", FREE(NO_BITS),
              NAMED_OPTION(offload_checkpoints)),
    NOTED("activation_checkpointing.partition_activations", BOOL, "false",
          "every rank computes other samples, so no activation is held twice"),
    NOTED("activation_checkpointing.contiguous_memory_optimization", BOOL, "false", PLANNED),
    COUNT_TO(
        "activation_checkpointing.number_checkpoints", "auto", plan.checkpoints, 1, 1e6,
        "In how many groups of consecutive layers activations are recomputed: each keeps the input of its first "
        "layer alone, and runs again as a whole before its backward. `mode` is recompute then, unless it is given. "
        "auto: the plan chooses, and recomputes layers one by one where that is enough.",
        FREE(NO_BITS), ZERO_IS_AUTO, FALSE_IS_AUTO, OPTION(checkpoints)),
    NOTED("activation_checkpointing.synchronize_checkpoint_boundary", BOOL, "false", PLANNED),
    NOTED("activation_checkpointing.profile", BOOL, "false", "the plan and the events hold the times"),
    SIZE("memory.device", plan.budget[SL_TIER_DEVICE], 1,
         "Device memory that a rank may use, for everything; auto: its share of what the machine and its cgroup allow. "
         "train refuses more than there is, plan plans for it.",
         FREE(NO_BITS), OPTION(device_bytes)),
    SIZE("memory.host", plan.budget[SL_TIER_HOST], 1,
         "Host memory that a rank may use for what is offloaded; auto: what is free. train refuses more than there is, "
         "plan plans for it.",
         FREE(NO_BITS), OPTION(host_bytes)),
    SIZE("memory.disk", plan.budget[SL_TIER_DISK], 1,
         "Bytes of swap files that a rank may use, in the folders of `memory.disk_path`; auto: its share of what is "
         "free "
         "there, less 5 %.",
         FREE(NO_BITS), OPTION(disk_bytes)),
    TEXT("memory.disk_path", "", device.disk_path,
         "Folders for swap files, on a fast local disk each: one, or several separated by `:` or in a list, over which "
         "transfers are striped. Nothing of them is left after the run. Without any there is no disk tier.",
         FREE(NO_BITS), PATHS, OPTION(disk_path)),
    COUNT_TO(
        "memory.disk_chunk", "auto", plan.disk_chunk, 1, EXACT,
        "Elements of a layer whose state is brought from the disk, updated and written back at a time; auto: by the "
        "size of the model.",
        FREE(NO_BITS), ZERO_IS_AUTO, OPTION(disk_chunk)),
    COUNT_TO("memory.levels", "auto", plan.levels, 1, 1e6,
             "Number of groups of layers that are moved together; auto: chosen with the stage.", FREE(NO_BITS),
             ZERO_IS_AUTO, OPTION(levels)),
    COUNT_TO("memory.prefetch_layers", "auto", plan.prefetch, 0, 1e6,
             "How many levels ahead of their use parameters are fetched; auto: chosen with the stage.", FREE(NO_BITS),
             OPTION(prefetch_layers)),
    UNBUILT("memory.unified", BOOL, "false", "Use host memory in place instead of copying it to the device."),
    FLAG_AUTO("memory.keep_gathered", "false", plan.keep_gathered,
              "Stage 3: keep gathered parameters from forward to backward: more memory, less communication.",
              FREE(NO_BITS), OPTION(keep_gathered)),
    SIZE("memory.tile_bytes", model.tile_bytes, 0,
         "Cut parameters larger than this into tiles of at most as many bytes, each a layer of its own; this changes "
         "the "
         "rounding. 0 or auto: none are cut.",
         SAME),

    /* ---- results ---- */
    TEXT("checkpoint.path", "", checkpoint.path, "Folder for checkpoints; empty: none are written.", FREE(OUTPUT),
         FOLDER),
    COUNT("checkpoint.every", "0", checkpoint.every, 0,
          "Steps between checkpoints; 0: only at the end and when stopped.", FREE(OUTPUT)),
    COUNT_UP_TO("checkpoint.keep", "2", checkpoint.keep, 1, 1e6, "How many checkpoints are kept.", FREE(OUTPUT)),
    FLAG_AUTO("checkpoint.background", "false", checkpoint.background,
              "Write checkpoints while training goes on, from a copy in host memory that the plan reserves where some "
              "are written before the last step.",
              FREE(OUTPUT)),
    FLAG("checkpoint.keep_best", "false", checkpoint.keep_best,
         "Write a checkpoint of every step that an evaluation finds better than all before, by `evaluate.metric`, and "
         "keep it beside the newest ones; `best` in the folder leads to it.",
         FREE(OUTPUT)),
    NOTED("checkpoint.tag_validation", STRING, "Warn", "checkpoints are named by their step"),
    NOTED("checkpoint.load_universal", BOOL, "false", "every checkpoint is independent of the number of ranks"),
    NOTED("checkpoint.use_node_local_storage", BOOL, "false", "the ranks of a checkpoint write into one folder"),
    NOTED("checkpoint.parallel_write.pipeline_stage", BOOL, "false", "every rank always writes what it owns"),
    TEXT(
        "save", "", save,
        "Where the weights go after the last step: a safetensors file, or the folder of a model (an existing one, or a "
        "name that ends in a slash), with config.json and the tokenizer's files; empty: nowhere.",
        FREE(OUTPUT), WRITES),
    FLAG("save_best", "false", save_best,
         "`save` gets the weights of the best checkpoint instead of those of the last step; keeps it as "
         "`checkpoint.keep_best` does.",
         FREE(OUTPUT)),
    CHOICE("save_dtype", "fp32", save_type, "fp32|bf16|fp16", "Type of the weights there; fp32: the exact values.",
           FREE(OUTPUT), VALUES(SLUICE_F32, SLUICE_BF16, SLUICE_F16)),
    SIZE("save_shard_size", shard_bytes, 1,
         "Bytes of tensors in a file of the folder that `save` names, at most: a larger model is cut into several "
         "files; "
         "auto: 5 GB, as other programs do.",
         FREE(OUTPUT)),
    FLAG("hashes", "true", hashes,
         "SHA-256 of the weights and of the state after the last step, on all cores; false: neither is computed.",
         FREE(OUTPUT)),
    TEXT("load", "", initial_weights,
         "The initial weights: a safetensors file, an index of several, or the folder that holds them; empty: random "
         "weights.",
         FREE("a resumed run has its weights from the checkpoint"), READS),
    FLAG("replan", "false", replan,
         "Where steps become slower (another program on the machine, a slower link), measure again and plan anew at "
         "the next "
         "checkpoint, to the same bits. Needs `checkpoint.path` and `checkpoint.every`.",
         FREE(NO_BITS)),
    COUNT_UP_TO(
        "timeout_seconds", "60", timeout_seconds, 1, 1e9,
        "After so many seconds without an answer a rank is taken for lost, and a disk with swap files, on several "
        "ranks after half of them.",
        FREE(NO_BITS)),
    COUNT_UP_TO("debug.slow_from", "0", slow_from, 0, EXACT,
                "From this step on, steps are taken to last ten times as long as they do, to try what follows from "
                "that; 0: never.",
                FREE(NO_BITS)),
    COUNT_UP_TO(
        "debug.renew_every", "0", renew_every, 0, EXACT,
        "After so many steps, and as many more each time, a run that has a second plan goes on by that one, and "
        "back, to try that; 0: when it is worth while.",
        FREE(NO_BITS)),
    FLAG("debug.guard", "false", device.guard, "Poison the arenas and put guard pages behind them.", FREE(NO_BITS),
         OPTION(guard)),
    FLAG(
        "debug.small_norm_nodes", "false", plan.small_norm_nodes,
        "Ranks exchange sums of the tree of the gradient's norm, as they do for models of 67M parameters and more, for "
        "smaller ones too.",
        FREE(NO_BITS), OPTION(small_norm_nodes)),
    FLAG("debug.null_backend", "false", device.null_backend, "Compute nothing.",
         FREE("a run that computes nothing has no results"), OPTION(null_backend)),

    /* ---- DeepSpeed's monitors, profilers and further parts ---- */
    FLAG_AUTO("tensorboard.enabled", "false", tensorboard.enabled, "Write TensorBoard's event files.", FREE(OUTPUT)),
    TEXT("tensorboard.output_path", "", tensorboard.output_path,
         "The files go into the folder `job_name` in this one; empty: in the current folder.", FREE(OUTPUT)),
    TEXT("tensorboard.job_name", "DeepSpeedJobName", tensorboard.job_name,
         "Name of the folder with the files, which is within `output_path`.", FREE(OUTPUT)),
    FLAG_AUTO("csv_monitor.enabled", "false", csv_monitor.enabled,
              "Write a file of CSV for each scalar that DeepSpeed reports. `train --log FILE.csv` has all in one.",
              FREE(OUTPUT)),
    TEXT("csv_monitor.output_path", "", csv_monitor.output_path,
         "The files go into the folder `job_name` in this one; empty: in the current folder.", FREE(OUTPUT)),
    TEXT("csv_monitor.job_name", "DeepSpeedJobName", csv_monitor.job_name,
         "Name of the folder with the files, which is within `output_path`.", FREE(OUTPUT)),
    FLAG_AUTO("wandb.enabled", "false", wandb,
              "Nothing is sent: TensorBoard's files are written, and `python -m sluice.send wandb` takes them to "
              "Weights & Biases.",
              FREE(OUTPUT)),
    NOTED("wandb.*", STRING, "", IMPORT),
    NOTED("wandb.group", STRING, "", IMPORT),
    NOTED("wandb.team", STRING, "", IMPORT),
    NOTED("wandb.project", STRING, "deepspeed", IMPORT),
    FLAG_AUTO(
        "comet.enabled", "false", comet,
        "Nothing is sent: TensorBoard's files are written, and `python -m sluice.send comet` takes them to Comet.",
        FREE(OUTPUT)),
    NOTED("comet.samples_log_interval", INT, "100", IMPORT),
    NOTED("comet.project", STRING, "", IMPORT),
    NOTED("comet.workspace", STRING, "", IMPORT),
    NOTED("comet.experiment_name", STRING, "", IMPORT),
    NOTED("comet.*", STRING, "", IMPORT),
    UNBUILT("flops_profiler.enabled", BOOL, "false", "Print operations by module."),
    NOTED("flops_profiler.profile_step", INT, "1", WITH("flops_profiler.enabled")),
    NOTED("flops_profiler.module_depth", INT, "-1", WITH("flops_profiler.enabled")),
    NOTED("flops_profiler.top_modules", INT, "1", WITH("flops_profiler.enabled")),
    NOTED("flops_profiler.detailed", BOOL, "true", WITH("flops_profiler.enabled")),
    NOTED("flops_profiler.output_file", STRING, "", WITH("flops_profiler.enabled")),
    NOTED("flops_profiler.recompute_fwd_factor", DOUBLE, "0.0", WITH("flops_profiler.enabled")),
    NOTED("comms_logger.enabled", BOOL, "false", "the events hold the bytes that ranks send"),
    NOTED("comms_logger.verbose", BOOL, "false", "the events hold the bytes that ranks send"),
    NOTED("comms_logger.prof_all", BOOL, "true", "the events hold the bytes that ranks send"),
    NOTED("comms_logger.debug", BOOL, "false", "the events hold the bytes that ranks send"),
    NOTED("comms_logger.prof_ops", LIST, "[]", "the events hold the bytes that ranks send"),
    UNBUILT("autotuning.enabled", BOOL, "false", "Search settings by trial runs. \"auto\" is planned instead."),
    NOTED("autotuning.metric", STRING, "throughput", WITH("autotuning.enabled")),
    NOTED("autotuning.fast", BOOL, "true", WITH("autotuning.enabled")),
    NOTED("autotuning.tuner_type", STRING, "model_based", WITH("autotuning.enabled")),
    NOTED("autotuning.tuner_num_trials", INT, "50", WITH("autotuning.enabled")),
    NOTED("autotuning.tuner_early_stopping", INT, "5", WITH("autotuning.enabled")),
    NOTED("autotuning.*", STRING, "", WITH("autotuning.enabled")),
    UNBUILT("elasticity.enabled", BOOL, "false", "Choose the batch size from the number of ranks."),
    NOTED("elasticity.max_train_batch_size", INT, "2000", WITH("elasticity.enabled")),
    NOTED("elasticity.micro_batch_sizes", LIST, "[2,4,6]", WITH("elasticity.enabled")),
    NOTED("elasticity.min_gpus", INT, "1", WITH("elasticity.enabled")),
    NOTED("elasticity.max_gpus", INT, "10000", WITH("elasticity.enabled")),
    NOTED("elasticity.version", DOUBLE, "0.2", WITH("elasticity.enabled")),
    NOTED("elasticity.*", STRING, "", WITH("elasticity.enabled")),
    REFUSED(
        "compile.deepcompile", BOOL, "false",
        "it rewrites a program that PyTorch has traced; here the whole step is planned before it runs, so leave the "
        "key out"),
    NOTED("compile.offload_opt_states", BOOL, "false", "write zero_optimization.offload_optimizer"),
    NOTED("compile.offload_parameters", BOOL, "false", "write zero_optimization.offload_param"),
    NOTED("compile.offload_activation", BOOL, "false", "write activation_checkpointing.mode"),
    NOTED("compile.double_buffer", BOOL, "true", PLANNED),
    NOTED("compile.*", STRING, "", "there is no program of PyTorch to compile: the step is planned before it runs"),
    UNBUILT("curriculum_learning.enabled", BOOL, "false", "Samples of growing length."),
    NOTED("curriculum_learning.*", STRING, "", WITH("curriculum_learning.enabled")),
    UNBUILT("data_efficiency.enabled", BOOL, "false", "Sample and route data by difficulty."),
    NOTED("data_efficiency.*", STRING, "", WITH("data_efficiency.enabled")),
    UNBUILT("progressive_layer_drop.enabled", BOOL, "false", "Leave layers out more and more often."),
    NOTED("progressive_layer_drop.*", STRING, "", WITH("progressive_layer_drop.enabled")),
    UNBUILT("eigenvalue.enabled", BOOL, "false", "Estimate eigenvalues of the Hessian."),
    NOTED("eigenvalue.*", STRING, "", WITH("eigenvalue.enabled")),
    NOTED("hybrid_engine.*", STRING, "", "it serves generation between steps, and a run here only trains"),
    REFUSED(
        "quantize_training.enabled", BOOL, "false",
        "training with weights of fewer and fewer bits (MoQ) is not built in, and without it the result is another"),
    NOTED("quantize_training.*", STRING, "", WITH("quantize_training.enabled")),
    UNBUILT("nebula.enabled", BOOL, "false", "Checkpoints by another service."),
    NOTED("nebula.*", STRING, "", WITH("nebula.enabled")),
    UNBUILT("sequence_parallel_size", INT, "1", "Cut sequences over ranks."),
    UNBUILT("sequence_parallel.enabled", BOOL, "false", "Cut sequences over ranks."),
    NOTED("sequence_parallel.*", STRING, "", WITH("sequence_parallel.enabled")),
    UNBUILT("expert_parallel.enabled", BOOL, "false", "Spread experts over ranks."),
    NOTED("expert_parallel.*", STRING, "", WITH("expert_parallel.enabled")),
    UNBUILT("compression_training.*", STRING, "", "Quantise or prune while training."),
    UNBUILT("sparse_attention.*", STRING, "", "Attention over chosen blocks only."),
    UNBUILT("tensor_parallel.*", STRING, "", "Slice matrices over ranks."),
    UNBUILT("pipeline.*", STRING, "", "Pipeline layers over ranks."),

    /* ---- sections of other tools, comments ---- */
    NOTED("comms_config.*", STRING, "", "the events hold the bytes that ranks send"),
    NOTED("monitor_config.*", STRING, "", "`sluice train --json` prints every value"),
    NOTED("timers.*", STRING, "", "the time of every step is in its event"),
    NOTED("_*", STRING, "", "a key that begins with an underscore is a comment"),
};
const size_t sl_config_row_count = sizeof sl_config_rows / sizeof sl_config_rows[0];

/* Stored choices are the library's own values. */
_Static_assert(SLUICE_SGD == 0 && SLUICE_ADAGRAD == 1 && SLUICE_ADAM == 2 && SLUICE_ADAMW == 3 && SLUICE_LAMB == 4 &&
                   SLUICE_LARS == 5 && SLUICE_LION == 6 && SLUICE_RMSPROP == 7,
               "choices of optimizer.type are in the order of sluice_optimizer_kind");
_Static_assert(SLUICE_PARTITION_LAYER == 0 && SLUICE_PARTITION_BLOCK == 1 && SLUICE_PARTITION_OWNER == 2 &&
                   SLUICE_PARTITION_WEIGHTED == 3,
               "choices of zero_optimization.partition are in the order of sluice_partition");
_Static_assert(SLUICE_STATES_F32 == 0 && SLUICE_STATES_BF16 == 1 && SLUICE_STATES_COMPACT == 2,
               "choices of zero_optimization.states are in the order of sluice_states");
_Static_assert(SLUICE_PLACE_AUTO == 0 && SLUICE_PLACE_DEVICE == 1 && SLUICE_PLACE_HOST == 2 && SLUICE_PLACE_DISK == 3,
               "choices of offload_*.device are in the order of sluice_place");
_Static_assert(SLUICE_ACTIVATIONS_AUTO == 0 && SLUICE_ACTIVATIONS_KEEP == 1 && SLUICE_ACTIVATIONS_RECOMPUTE == 2 &&
                   SLUICE_ACTIVATIONS_OFFLOAD == 3 && SLUICE_ACTIVATIONS_SELECTIVE == 4,
               "choices of activation_checkpointing.mode are in the order of sluice_activations");
_Static_assert(SLUICE_DEVICE_CPU == 0 && SLUICE_DEVICE_CUDA == 1 && SLUICE_DEVICE_AUTO == 2,
               "choices of device are in the order of sluice_device");
_Static_assert(SL_SCHEDULE_CONSTANT == 0 && SL_SCHEDULE_PLATEAU == 6,
               "choices of scheduler.type are in the order of sl_schedule_kind");
_Static_assert(offsetof(sluice_optimizer, beta2) == offsetof(sluice_optimizer, beta1) + sizeof(double),
               "optimizer.params.betas writes both");

#define TORCH_PARAMS "maximize|foreach|fused|capturable|differentiable|max_grad_norm"
#define ADAM_PARAMS                                                                                                    \
    "lr|betas|eps|weight_decay|amsgrad|adam_w_mode|torch_adam|bias_correction|set_grad_none|fp32_optimizer_"           \
    "states|" TORCH_PARAMS

static const sl_config_kind optimizers[] = {
    [SLUICE_SGD] = { "SGD", "lr|momentum|dampening|weight_decay|nesterov|" TORCH_PARAMS, "" },
    [SLUICE_ADAGRAD] = { "Adagrad",
                         "lr|eps|weight_decay|lr_decay|initial_accumulator_value|fp32_optimizer_states|" TORCH_PARAMS,
                         "lr=0.01|eps=1e-10" },
    [SLUICE_ADAM] = { "Adam", ADAM_PARAMS, "" },
    [SLUICE_ADAMW] = { "AdamW", ADAM_PARAMS, "" },
    [SLUICE_LAMB] = { "LAMB",
                      "lr|betas|eps|weight_decay|min_coeff|max_coeff|bias_correction|eps_inside_sqrt|max_grad_norm",
                      "" },
    [SLUICE_LARS] = { "LARS", "lr|momentum|weight_decay|nesterov|trust_coefficient|eps|max_grad_norm", "momentum=0.9" },
    [SLUICE_LION] = { "Lion", "lr|betas|weight_decay|set_grad_none|fp32_optimizer_states|max_grad_norm",
                      "betas=[0.9, 0.99]" },
    [SLUICE_RMSPROP] = { "RMSprop", "lr|alpha|eps|momentum|centered|weight_decay|fp32_optimizer_states|" TORCH_PARAMS,
                         "lr=0.01|alpha=0.99" },
};

#define WARMUP_PARAMS "warmup_num_steps|warmup_ratio|warmup_type|last_batch_iteration"

static const sl_config_kind schedules[] = {
    [SL_SCHEDULE_CONSTANT] = { "none", "", "" },
    [SL_SCHEDULE_WARMUP] = { "WarmupLR", "warmup_min_lr|warmup_max_lr|" WARMUP_PARAMS, "" },
    [SL_SCHEDULE_WARMUP_DECAY] = { "WarmupDecayLR", "total_num_steps|warmup_min_lr|warmup_max_lr|" WARMUP_PARAMS,
                                   "warmup_max_lr=0.001" },
    [SL_SCHEDULE_WARMUP_COSINE] = { "WarmupCosineLR", "total_num_steps|warmup_min_ratio|cos_min_ratio|" WARMUP_PARAMS,
                                    "" },
    [SL_SCHEDULE_ONE_CYCLE] = { "OneCycle",
                                "cycle_min_lr|cycle_max_lr|decay_lr_rate|cycle_first_step_size|cycle_second_step_size|"
                                "cycle_first_stair_count|cycle_second_stair_count|decay_step_size|cycle_momentum|cycle_"
                                "min_mom|"
                                "cycle_max_mom|decay_mom_rate|last_batch_iteration",
                                "" },
    [SL_SCHEDULE_RANGE_TEST] = { "LRRangeTest",
                                 "lr_range_test_min_lr|lr_range_test_step_size|lr_range_test_step_rate|lr_range_test_"
                                 "staircase|"
                                 "last_batch_iteration",
                                 "" },
    [SL_SCHEDULE_PLATEAU] = { "ReduceLROnPlateau", "factor|patience|threshold|threshold_mode|cooldown|min_lr|mode",
                              "" },
};

const sl_config_family sl_config_optimizers = { "optimizer", optimizers, sizeof optimizers / sizeof optimizers[0] };
const sl_config_family sl_config_schedules = { "scheduler", schedules, sizeof schedules / sizeof schedules[0] };

const char *sl_config_param(const sl_config_family *family, const sl_option *row)
{
    size_t n = strlen(family->section);
    if (strncmp(row->key, family->section, n) != 0 || strncmp(row->key + n, ".params.", 8) != 0) return NULL;
    return row->key + n + 8;
}

/* The item of "a|b=1|c" that begins at `item` with `name` followed by one of `ends`, or NULL. */
static const char *find_item(const char *list, const char *name, const char *ends)
{
    size_t n = strlen(name);
    for (const char *item = list; item != NULL && *item != '\0';) {
        if (strncmp(item, name, n) == 0 && strchr(ends, item[n]) != NULL) return item + n;
        item = strchr(item, '|');
        if (item != NULL) item++;
    }
    return NULL;
}

bool sl_config_listed(const char *list, const char *name)
{
    return find_item(list, name, "|") != NULL; /* strchr also finds the NUL at the end of the list */
}

const char *sl_config_listed_value(const char *list, const char *name, char *out, size_t out_bytes)
{
    const char *found = find_item(list, name, "=");
    if (found == NULL || *found != '=') return NULL;
    size_t length = strcspn(found + 1, "|");
    if (length >= out_bytes) length = out_bytes - 1;
    memcpy(out, found + 1, length);
    out[length] = '\0';
    return out;
}

bool sl_config_choice(const sl_option *row, int index, char *out, size_t out_bytes, bool *built)
{
    const char *item = row->choices;
    for (int i = 0; i < index && item != NULL; i++) {
        item = strchr(item, '|');
        if (item != NULL) item++;
    }
    if (item == NULL || index < 0) return false;
    size_t length = strcspn(item, "|");
    *built = length == 0 || item[length - 1] != '!';
    if (!*built) length--;
    if (length >= out_bytes) length = out_bytes - 1;
    memcpy(out, item, length);
    out[length] = '\0';
    return true;
}
