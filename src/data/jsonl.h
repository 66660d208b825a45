/* jsonl.h: conversations and texts in JSON lines, on their way to token ids; private to data/.
 *
 * Four stages, a file each: jsonl_file.c finds the samples in a file, jsonl_sample.c reads what one of them says, jsonl_encode.c
 * makes tokens of it and marks those that carry loss, and jsonl.c keeps them and fills batches. The first two know nothing of
 * tokenizers. */
#ifndef SL_DATA_JSONL_H
#define SL_DATA_JSONL_H

#include "data/data.h"
#include "format/chat_template.h"
#include "format/tokenizer.h"

/* ---- jsonl_file.c ---- */

typedef struct sl_jsonl_record {
    size_t begin, end; /* of its text */
    int64_t line;      /* where that begins, from 1 */
} sl_jsonl_record;

typedef struct sl_jsonl_file {
    const char *path; /* borrowed */
    char *text;       /* owned */
    size_t bytes;
    sl_jsonl_record *records; /* owned */
    int64_t count, capacity;
} sl_jsonl_file;

/* Reads lines, or the elements of one JSON array; compressed by gzip or not. A request to stop (core/stop.h) ends it. The syntax
 * of lines is not looked at. */
sluice_status sl_jsonl_file_read(const int *stop, const char *path, sl_jsonl_file *out);
void sl_jsonl_file_free(sl_jsonl_file *f);

/* Text for messages: "chat.jsonl, line 7". */
typedef struct sl_jsonl_where {
    char text[1200];
} sl_jsonl_where;
sl_jsonl_where sl_jsonl_place(const sl_jsonl_file *f, int64_t record);

/* ---- jsonl_sample.c ---- */

typedef enum {
    SL_SHAPE_MESSAGES,
    SL_SHAPE_CONVERSATIONS,
    SL_SHAPE_COMPLETION,
    SL_SHAPE_ALPACA,
    SL_SHAPE_TEXT,
    SL_SHAPE_COUNT
} sl_jsonl_shape;

/* "messages", "conversations", "prompt and completion", ... */
const char *sl_jsonl_shape_name(sl_jsonl_shape shape);

typedef struct sl_jsonl_span {
    const char *text;
    size_t bytes;
} sl_jsonl_span;

/* What a record says. Zero-initialise; reading another record into it reuses its memory. */
typedef struct sl_jsonl_sample {
    bool plain; /* two texts, or else messages */
    sl_jsonl_span prompt, completion;
    sl_chat_message *messages; /* owned; contents are in `words` */
    int message_count, message_capacity;
    int prompt_messages; /* that a completion follows; 0: every answer is one */
    bool empty;          /* an answer, or all of the text, is nothing but white space */
    char *words;         /* owned; decoded strings */
    size_t used, capacity;
} sl_jsonl_sample;

/* What the shape of a data set is, by its first record. SLUICE_ERR_INPUT where it is none, or one that is not built. */
sluice_status sl_jsonl_detect(const sl_jsonl_file *f, sl_jsonl_shape *out);
/* Reads a record of that shape. `chat` says how an instruction and its input are joined; NULL: as plain text. */
sluice_status sl_jsonl_sample_read(const sl_jsonl_file *f, int64_t record, sl_jsonl_shape shape,
                                   const sl_chat_template *chat, sl_jsonl_sample *out);
void sl_jsonl_sample_free(sl_jsonl_sample *s);

/* ---- jsonl_encode.c ---- */

/* How samples become tokens; borrowed by encoders. */
typedef struct sl_jsonl_rules {
    const sl_tokenizer *tokenizer;
    const sl_chat_template *chat; /* NULL: the shape needs none */
    sl_chat_words words;
    bool loss_on_all;
    int truncate;       /* sl_truncate */
    int64_t most;       /* tokens of a sample: context + 1, because the last one is a target only */
    int64_t vocabulary; /* ids are below it; 0: not known */
    int32_t eos;        /* -1: none */
} sl_jsonl_rules;

/* Tokens of documents: id and whether it carries loss, in one number. */
typedef uint32_t sl_jsonl_token;
static inline sl_jsonl_token sl_jsonl_token_of(int32_t id, bool loss)
{
    return (sl_jsonl_token)id << 1 | loss;
}
static inline int32_t sl_jsonl_id(sl_jsonl_token t)
{
    return (int32_t)(t >> 1);
}
static inline bool sl_jsonl_loss(sl_jsonl_token t)
{
    return (t & 1) != 0;
}

/* One thread's; holds scratch memory and what the last sample became. */
typedef struct sl_jsonl_encoder {
    const sl_jsonl_rules *rules;
    sl_encoder *encoder;
    sl_chat_text text, prompt;
    sl_ids ids, prefix;
    sl_ids lead, trail; /* what the post-processor puts around a text */
    sl_stream_decoder *decoder;
    sl_text decoded;
    size_t *ends; /* of the ids: bytes of text up to and with each */
    size_t end_capacity;
    sl_jsonl_token *tokens;
    int64_t count, capacity;
    int64_t targets;     /* tokens after the first with loss */
    int64_t whole_count; /* before truncation */
    bool system_dropped;
} sl_jsonl_encoder;

sluice_status sl_jsonl_encoder_make(const sl_jsonl_rules *rules, sl_jsonl_encoder *out);
void sl_jsonl_encoder_free(sl_jsonl_encoder *e);
/* Fills tokens, count, targets, whole_count; `where` is for messages. Truncates by the rules, but for SL_TRUNCATE_DROP, which is
 * the caller's to do: count is then more than rules->most. */
sluice_status sl_jsonl_encode(sl_jsonl_encoder *e, const sl_jsonl_sample *s, const char *where);

#endif
