/* data.h: the next micro-batch into the caller's buffers.
 *
 * A data set is addressed by the global micro-batch index, counted over the whole run, and nothing else: no cursor, so
 * resuming at any step, on any number of ranks, reads exactly what an uninterrupted run reads. Each sample is seen once
 * an epoch; batches wrap epochs and are always full. */
#ifndef SL_DATA_DATA_H
#define SL_DATA_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "core/log.h"
#include "core/sample_kind.h"
#include "core/status.h"
#include "format/image_processor.h"
#include "sluice.h"

/* One input of the model as the data set must fill it. */
typedef struct sl_data_field {
    const char *name; /* graph input */
    sluice_dtype dtype;
    int64_t row_elements; /* elements per sample */
    void *buffer;         /* micro_batch rows; the caller's */
} sl_data_field;

typedef enum { SL_SPLIT_TRAIN, SL_SPLIT_VALIDATION } sl_data_split;

/* How much work filling a batch is, beside a step. */
typedef enum {
    SL_FILL_QUICK,
    SL_FILL_SOME, /* as quick as handing it to another thread; where that is asked for (data/ahead.h) */
    SL_FILL_SLOW  /* worth all threads that there are: files are decoded, or images resized */
} sl_fill_effort;

/* Samples that are images: "x" f32 [height, width, channels], "target" i32 [1]. */
typedef struct sl_image_size {
    int64_t height, width, channels;
} sl_image_size;

/* Samples that are rows of a table: "x" f32 [numeric], "categories" i32 [categorical], each below `buckets`, "target" [1].
 * Each category also by itself, as "category.0" i32 [1] and so on. */
typedef struct sl_column_counts {
    int64_t numeric, categorical, buckets;
} sl_column_counts;

/* Samples that are speech: "x" f32 [rows, bands], "lengths" i32 [1]: frames of a model that makes one of so many rows
 * (sl_data_options.frame_stride), "labels" i32 [labels], -1 behind the last. */
typedef struct sl_speech_size {
    int64_t rows, bands, labels;
} sl_speech_size;

struct sl_vocabulary;

/* Every data set is one of these; implementations embed it first. */
struct sluice_data {
    const struct sl_data_ops *ops;
};

typedef struct sl_data_ops {
    const char *name;
    bool has_tokens; /* samples are token ids: fields "tokens" and "targets" */
    void (*destroy)(sluice_data *d);
    /* In one epoch of the split; 0: the split is empty, or the kind has no epochs (a callback). */
    int64_t (*samples)(const sluice_data *d, sl_data_split split);
    /* Fills `rows` samples of micro-batch `index`: training samples index*rows .. of the endless shuffled sequence. */
    sluice_status (*fill)(sluice_data *d, uint64_t index, int64_t rows, const sl_data_field *fields, int field_count);
    /* Evaluation: samples [first, first+rows) of a split in file order; the rows past the end are padding: copies of
     * the last sample with i32 targets (fields named "target" or "targets") set to the ignore index -1. *valid: how
     * many are real. */
    sluice_status (*fill_eval)(sluice_data *d, sl_data_split split, int64_t first, int64_t rows,
                               const sl_data_field *fields, int field_count, int64_t *valid);
    uint64_t (*memory_bytes)(const sluice_data *d);          /* held outside the arenas */
    void (*identity)(const sluice_data *d, char sha256[65]); /* of the contents and settings; "" when unknowable */
    /* How many valid targets (not -1) training micro-batch `index` of `rows` samples has: exactly what fill writes, without
     * filling it, because a step's gradients are weighed by the counts of all its micro-batches (docs/exactness.md) before
     * the first of them is computed. Every rank asks for every micro-batch of the step, so it is quick. NULL: every target
     * is valid. */
    sluice_status (*targets)(sluice_data *d, uint64_t index, int64_t rows, int64_t *count);
    /* Whether rows hold several documents that must not see each other. Then the field "positions" i32 [context] is there,
     * the position of each token in its document, and the model must have that input (sl_model_options.packed). NULL: no. */
    bool (*packs)(const sluice_data *d);
    /* How many different ids its tokenizer has, at least which a model's vocabulary must have. NULL: no tokenizer. */
    int64_t (*vocabulary)(const sluice_data *d);
    sl_fill_effort effort; /* anything but quick: fill and fill_eval may be called by several threads at a time */
    /* Number of classes that targets are below. NULL: targets are no classes. */
    int64_t (*classes)(const sluice_data *d);
    /* What class i is called; NULL, or the function is: it has a number only. */
    const char *(*class_name)(const sluice_data *d, int64_t i);
    void (*image)(const sluice_data *d, sl_image_size *out); /* NULL: samples are no images */
    /* Images: what becomes of them in evaluation; NULL: they are numbers already. */
    void (*prepared)(const sluice_data *d, sl_image_processor *out);
    void (*columns)(const sluice_data *d, sl_column_counts *out); /* NULL: samples are no rows of a table */
    void (*speech)(const sluice_data *d, sl_speech_size *out);    /* NULL: samples are no speech */
    /* What token ids, or labels less one, stand for; a model keeps it with its weights. NULL, or the function is: nothing that a
     * model would keep. */
    const struct sl_vocabulary *(*characters)(const sluice_data *d);
    /* Says what was read. NULL: nothing is to be said. */
    void (*say)(const sluice_data *d, const sl_log *log);
    /* How many bad samples were left out so far, each counted once, and why the first was (sl_error_record's text). NULL: none
     * ever is. */
    int64_t (*left_out)(sluice_data *d, char first[SL_MESSAGE_BYTES]);
} sl_data_ops;

/* Whether its samples are token ids. */
bool sl_data_has_tokens(const sluice_data *d);
/* Different ids of its tokenizer; 0 where there is none. */
int64_t sl_data_vocabulary(const sluice_data *d);
/* Whether the data set packs documents into rows. */
bool sl_data_packs(const sluice_data *d);
/* Classes of its targets; 0 where they are none. */
int64_t sl_data_classes(const sluice_data *d);
/* What class i is called; "" where it has no name. */
const char *sl_data_class_name(const sluice_data *d, int64_t i);
/* False: its samples are no images. */
bool sl_data_image(const sluice_data *d, sl_image_size *out);
/* What becomes of its images in evaluation. False: they are none, or numbers already. */
bool sl_data_prepared(const sluice_data *d, sl_image_processor *out);
/* False: its samples are no rows of a table. */
bool sl_data_columns(const sluice_data *d, sl_column_counts *out);
/* False: its samples are no speech. */
bool sl_data_speech_size(const sluice_data *d, sl_speech_size *out);
/* Says what was read, where there is something to say. */
void sl_data_say(const sluice_data *d, const sl_log *log);

/* y = x w + noise, x standard normal, w fixed and scaled so that x w has variance near 1; `noise` is a standard
 * deviation. Fields "x" [features], "target" [outputs]. The last `validation` share of the samples is the validation
 * split. */
sluice_status sl_data_regression(int64_t samples, int64_t features, int64_t outputs, double noise, double validation,
                                 uint64_t seed, sluice_data **out);
/* Gaussian clusters of unit spread around random centres; fields "x" [features], "target" i32 [1 element]. */
sluice_status sl_data_classification(int64_t samples, int64_t features, int64_t classes, double validation,
                                     uint64_t seed, sluice_data **out);

/* Sequences of tokens drawn uniformly; fields "tokens" i32 [context], "targets" i32 [context] (the next token). */
sluice_status sl_data_random_tokens(int64_t samples, int64_t context, int64_t vocabulary, double validation,
                                    uint64_t seed, sluice_data **out);

/* A text file as token ids. Training samples are windows of `context` tokens at random starts (an epoch is about
 * tokens/context windows: non-overlapping windows at a random phase, shuffled); fields "tokens" i32 [context],
 * "targets" i32 [context] (the next token). The last `validation` share is the validation split, read in
 * non-overlapping windows that predict each of its tokens but the first exactly once: the targets of the last window
 * that have no token are -1. */
typedef enum {
    SL_TEXT_BYTES,
    SL_TEXT_CHARACTERS,
    SL_TEXT_TOKENS /* of a tokenizer */
} sl_text_unit;
typedef struct sl_vocabulary {
    sl_text_unit unit;
    int32_t size;
    /* CHARACTERS: code points in increasing order, size entries; BYTES: NULL, ids are byte values. Owned by the data
     * set, or as sl_vocabulary_read says. */
    const uint32_t *code_points;
} sl_vocabulary;
/* `kept`, of the same unit: the ids are those of a model that was trained before, and a character that it does not have is
 * SLUICE_ERR_INPUT with its line; copied. NULL: the text's own characters in increasing order. */
sluice_status sl_data_text(const char *path, sl_text_unit unit, const sl_vocabulary *kept, int64_t context,
                           double validation, bool shuffle, uint64_t seed, sluice_data **out);

/* The same; a request to stop (core/stop.h) ends the reading with SLUICE_ERR_STOPPED. */
sluice_status sl_data_text_until(const int *stop, const char *path, sl_text_unit unit, const sl_vocabulary *kept,
                                 int64_t context, double validation, bool shuffle, uint64_t seed, sluice_data **out);

/* The same by the tokens of a tokenizer (format/tokenizer.h: its folder or file), as it encodes the whole text without the
 * tokens that it adds around one. What the text spells of its special tokens is one. */
sluice_status sl_data_text_encoded(const int *stop, const char *path, const char *tokenizer, int64_t context,
                                   double validation, bool shuffle, uint64_t seed, sluice_data **out);

/* How documents come into rows. */
typedef enum {
    SL_PACKING_AUTO = -1, /* as the kind of data finds best */
    SL_PACKING_NONE,
    SL_PACKING_DOCUMENTS /* a row holds several that do not see each other, with the field "positions" */
} sl_packing_mode;

/* jsonl: what carries loss, and what becomes of samples that are longer than the context. */
typedef enum { SL_LOSS_AUTO = -1, SL_LOSS_ANSWERS, SL_LOSS_ALL } sl_loss_on;
typedef enum { SL_TRUNCATE_END, SL_TRUNCATE_START, SL_TRUNCATE_DROP, SL_TRUNCATE_REFUSE } sl_truncate;

/* Images: which labels of CIFAR-100, and what pixels of 0 to 1 become. */
typedef enum { SL_LABELS_FINE, SL_LABELS_COARSE } sl_label_choice;
typedef enum {
    SL_NORMALIZE_AUTO = -1, /* computed for idx, otherwise the usual numbers of the kind */
    SL_NORMALIZE_NONE,
    SL_NORMALIZE_COMPUTED, /* by mean and standard deviation of the training data */
    SL_NORMALIZE_UTTERANCE /* speech: by those of each utterance, also auto */
} sl_normalize_choice;
typedef enum { SL_RESIZE_AUTO = -1, SL_RESIZE_MIDDLE, SL_RESIZE_STRETCH } sl_resize_choice;
/* Filters: Pillow's of the same names. */
typedef enum { SL_FILTER_BILINEAR, SL_FILTER_BICUBIC, SL_FILTER_LANCZOS, SL_FILTER_COUNT } sl_filter;
#define SL_MAX_CHANNELS SL_PROCESSOR_NUMBERS

/* Tables: what the label is, and what separates columns. */
typedef enum {
    SL_TARGET_AUTO = -1, /* as the model learns it */
    SL_TARGET_CLASS,     /* i32 */
    SL_TARGET_NUMBER,    /* f32 */
    SL_TARGET_BINARY     /* f32 0 or 1: which of two labels it is */
} sl_target_choice;
typedef enum { SL_SEPARATOR_AUTO = -1, SL_SEPARATOR_COMMA, SL_SEPARATOR_TAB, SL_SEPARATOR_SEMICOLON } sl_separator;

/* Settings of all kinds of data sets; each reads its own. Comes from the "data" section. Paths that are not given are "" or
 * NULL. */
typedef struct sl_data_options {
    const char *type; /* a row of the table in open.c */
    const char *path;
    const char *validation_path;
    const char *tokenizer;                        /* text, jsonl: by its tokens; a folder or file */
    const char *mask_path, *validation_mask_path; /* tokens */
    int dtype;                                    /* tokens: sl_token_type of format/token_file.h */
    int packing;                                  /* sl_packing_mode */
    int64_t document_token;                       /* tokens: -1: none */
    /* jsonl */
    const char *chat;          /* name of a chat template (format/chat_template.h); "": the folder's */
    const char *chat_date;     /* of templates that have one; "": the template's own */
    const char *chat_folder;   /* whose template counts before that of the tokenizer's folder; "": none's does */
    int loss, truncate;        /* sl_loss_on, sl_truncate */
    bool skip_empty;           /* samples with an empty answer are left out, not refused */
    int threads;               /* that encode or decode; 0, or less: as many as there are CPUs */
    int unit;                  /* sl_text_unit */
    double masking;            /* text, tokens: share of the tokens that are hidden and to be guessed; 0: none */
    const sl_vocabulary *kept; /* text, speech: as sl_data_text takes it; from the weights that a job begins with */
    double validation;
    int64_t samples, features, outputs;
    double noise;
    /* images of all kinds */
    const char *labels_path, *validation_labels_path; /* idx, where paths are files of images */
    int labels;                                       /* cifar100: sl_label_choice */
    int64_t image_size;                               /* 0: as the data has it */
    int resize;                                       /* sl_resize_choice */
    int64_t resize_side; /* that images become before image_size is cut out; 0: image_size */
    int resample;        /* sl_filter; -1: bilinear */
    int64_t channels;    /* images: 0: 3 */
    int64_t classes;     /* idx: 0: as many as there are labels */
    int normalize;       /* sl_normalize_choice */
    double mean[SL_MAX_CHANNELS], deviation[SL_MAX_CHANNELS]; /* instead of that; of pixels from 0 to 1 */
    int mean_count, deviation_count;                          /* 0: not given */
    bool flip;
    const char *crop; /* "none", "resized", or a number of pixels to pad by */
    bool skip_bad;    /* images: left out, not refused */
    /* glue, table: names of columns */
    const char *label_column, *first_column, *second_column;
    const char *const *numeric, *const *categorical, *const *ignored; /* table: patterns of names */
    int numeric_count, categorical_count, ignored_count;
    int64_t hash_buckets; /* table */
    int target;           /* table: sl_target_choice */
    int separator;        /* table: sl_separator */
    /* speech; its columns are first_column (paths) and label_column (texts) */
    int64_t mels;           /* 0: 80 */
    int64_t sample_rate;    /* 0: that of the first sound */
    double max_seconds;     /* longer utterances are left out; 0: none are */
    const char *characters; /* that transcripts may have; "": those of `kept`, or of the training transcripts */
    int64_t frame_stride;   /* rows that the model makes one frame of; 0: 1 */
    int64_t time_masks, time_mask_width, frequency_masks, frequency_mask_width;
    int64_t seed;
    bool shuffle;
    const int *stop; /* a request to stop (core/stop.h), polled while the data is read; NULL: none. Borrowed */
} sl_data_options;
/* Token files (format/token_file.h), read where windows need them; fields "tokens" i32 [context], "targets" i32 [context],
 * -1 where the mask says so, and with SL_PACKING_DOCUMENTS "positions" i32 [context], which restart at o->document_token. Ids
 * at or above `vocabulary` are SLUICE_ERR_INPUT with file and place when they are read. */
sluice_status sl_data_tokens(const sl_data_options *o, int64_t context, int64_t vocabulary, sluice_data **out);
/* Conversations and texts in JSON lines, encoded once into memory. Documents of tokens t0 .. tn stand in rows as t0 .. tn-1 with
 * the targets t1 .. tn, -1 where there is no loss; fields "tokens", "targets", "positions" i32 [context]. Ids at or above
 * `vocabulary` (if above 0) are SLUICE_ERR_INPUT with their line. */
sluice_status sl_data_jsonl(const sl_data_options *o, int64_t context, int64_t vocabulary, sluice_data **out);
/* Says what was read: samples, template, tokens, rows, and what was cut or left out. Nothing for other kinds. */
void sl_data_jsonl_say(const sluice_data *d, const sl_log *log);
/* The first document that is trained on; NULL for other kinds. Owned by the data set. */
const sluice_sample *sl_data_jsonl_first(const sluice_data *d);

/* The chat template that its samples were written with where the folder of its tokenizer has none or another: what the folder of a
 * model that is trained on them must say. NULL: there is none such. *date and *eos: what it tells and what ends its texts, NULL:
 * the usual one, none; owned by the data set. */
const struct sl_chat_template *sl_data_jsonl_new_chat(const sluice_data *d, const char **date, const char **eos);

/* Images in arrays of bytes (format/idx.h), in CIFAR's binary files, and in folders, one for each class. */
sluice_status sl_data_idx(const sl_data_options *o, sluice_data **out);
sluice_status sl_data_cifar10(const sl_data_options *o, sluice_data **out);
sluice_status sl_data_cifar100(const sl_data_options *o, sluice_data **out);
sluice_status sl_data_folder(const sl_data_options *o, sluice_data **out);
/* Made ones, of o->image_size and o->channels, of o->outputs classes. */
sluice_status sl_data_random_images(const sl_data_options *o, sluice_data **out);

/* Sentences, or pairs of them, with a class (glue.c). Fields "tokens" and "segments" i32 [context], "lengths" i32 [1], "target" i32
 * [1]. */
sluice_status sl_data_glue(const sl_data_options *o, int64_t context, int64_t vocabulary, sluice_data **out);
/* Rows of a table (table_file.c): numbers, categories hashed into o->hash_buckets, a label. */
sluice_status sl_data_table(const sl_data_options *o, sluice_data **out);

/* Opens a kind of data set. */
typedef sluice_status sl_data_open_fn(const sl_data_options *o, int64_t context, int64_t vocabulary, sluice_data **out);

/* Windows of the kind that `open` opens, with o->masking of their tokens hidden (masked.c); o->tokenizer says what stands around a window,
 * and what hidden tokens become. Fields "tokens" and "targets" i32 [context], -1 where nothing is to be guessed. */
sluice_status sl_data_masked(const sl_data_options *o, int64_t context, int64_t vocabulary, sl_data_open_fn *open,
                             sluice_data **out);

/* Sound files and what is said in them (utterances.c). */
sluice_status sl_data_speech(const sl_data_options *o, sluice_data **out);

/* Opens the data set of o->type for samples of `context` tokens, or of made tokens below `vocabulary`. */
sluice_status sl_data_open(const sl_data_options *o, int64_t context, int64_t vocabulary, sluice_data **out);
/* "text, tokens, jsonl, ...". */
const char *sl_data_names(void);
/* What samples of that type are; its name is one of sl_data_names. */
sl_sample_kind sl_data_gives(const char *type);

/* What its ids stand for (sl_data_ops.characters); NULL: nothing that is kept, or `d` is. */
const sl_vocabulary *sl_data_characters(const sluice_data *d);
/* What a text read as data looks like where it is no plain text (format/file_kind.h); NULL: it is one, or no text. */
const struct sl_file_kind *sl_data_text_kind(const sluice_data *d);

/* Every byte is a token. */
sl_vocabulary sl_vocabulary_bytes(void);
/* A vocabulary as files keep it: the name of the unit, a literal; and its characters in the order of ids as UTF-8, owned by
 * the caller (*characters is NULL for bytes). U+0000, which no string can hold, has a unit of its own: "nul+characters". */
sluice_status sl_vocabulary_keep(const sl_vocabulary *v, const char **unit, char **characters);
/* And back; `characters` may be NULL. SLUICE_ERR_INPUT names `source` where they are none that sl_vocabulary_keep makes. The
 * caller frees code_points with sl_free. */
sluice_status sl_vocabulary_read(const char *unit, const char *characters, const char *source, sl_vocabulary *out);
/* Text <-> ids. Encoding an unknown character fails with SLUICE_ERR_INPUT naming it and its position. */
sluice_status sl_vocabulary_encode(const sl_vocabulary *v, const char *text, size_t bytes, int32_t *ids,
                                   int64_t capacity, int64_t *count);
/* The same for characters that a message calls otherwise than "characters the model was trained on". */
sluice_status sl_vocabulary_encode_of(const sl_vocabulary *v, const char *whose, const char *text, size_t bytes,
                                      int32_t *ids, int64_t capacity, int64_t *count);
/* Writes id's bytes (at most 4) to out and returns how many. */
int sl_vocabulary_decode(const sl_vocabulary *v, int32_t id, char out[4]);

#endif
