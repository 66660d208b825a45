/* generate.h: what the files of generation share.
 *
 *     generate.c          the job: prompts in, replies out
 *     generate_prompts.c  where prompts come from
 *     generate_chat.c     a conversation, line by line
 *     decoding.c          sequences through the generation graph
 *     sampler.c           which token follows
 *     text_codec.c        text and tokens, chat templates
 *     reply.c             text, held back where it may be a stop string */
#ifndef SL_TRAIN_GENERATE_H
#define SL_TRAIN_GENERATE_H

#include "train/decoding.h"
#include "train/job.h"
#include "train/reply.h"
#include "train/reply_file.h"
#include "train/sampler.h"
#include "train/text_codec.h"

/* Why a reply ended. */
typedef enum {
    SL_ENDS_NOT,    /* not yet */
    SL_ENDS_LENGTH, /* as many tokens as were asked for */
    SL_ENDS_TOKEN,  /* a token that ends texts */
    SL_ENDS_STOP,   /* a stop string */
} sl_reply_end;

/* A prompt and what follows it. */
typedef struct sl_exchange {
    char *prompt; /* owned */
    size_t prompt_bytes;
    char *rendered; /* owned; what the model reads for it; NULL: the prompt itself */
    size_t rendered_bytes;
    sl_sequence sequence;  /* the prompt's ids first */
    int64_t prompt_tokens; /* of them */
    int64_t drawn;         /* tokens of all its replies */
    sl_seen seen;
    sl_token_stream stream;
    sl_reply reply;
    sl_reply_end end;
    bool slid; /* its beginning was given up for room */
} sl_exchange;

/* Prompts and replies of a job; made before its model. */
struct sl_generation {
    sl_text_codec text;
    sl_exchange *exchanges; /* owned */
    int count, capacity;
    int64_t places; /* of a slot: tokens that the model sees */
    bool in_file;   /* prompts come from a file: replies are lines of JSON */
    bool talks;     /* a conversation, line by line: one exchange, which goes on */
};

/* ---- generate_prompts.c ---- */

/* Appends a prompt; the text is copied. */
sluice_status sl_generation_add(struct sl_generation *g, const char *text, size_t bytes);
/* Prompts of a file: lines of text, or objects of JSON with "prompt" or "messages". */
sluice_status sl_generation_read(struct sl_generation *g, const char *path, const sluice_job_options *o);
/* A conversation as the template writes it, up to where the model goes on; the caller frees *out. `where` begins messages. */
sluice_status sl_generation_render(struct sl_generation *g, const sl_chat_message *messages, int count,
                                   const char *where, char **out, size_t *bytes);
/* What the user said in x->prompt, after the system text, as x->rendered. */
sluice_status sl_generation_render_prompt(struct sl_generation *g, sl_exchange *x, const char *system);

/* ---- generate.c ---- */

typedef struct sl_generator {
    sl_job *job;
    const sluice_job_options *o;
    struct sl_generation *g;
    sl_cached_decoder *decoder;
    sl_sampler *sampler;
    sl_exchange **in_slot;   /* owned; NULL: the slot is free */
    sl_exchange **live;      /* owned; those of a run */
    sl_sequence **sequences; /* owned; theirs */
    const float **logits;    /* owned; likewise */
    int slots, next;         /* next: prompt to begin with */
    int written;             /* replies of a file that were written */
    sl_reply_file replies;   /* where they go */
    bool slid;               /* that a context is full was said */
} sl_generator;

/* Gets an exchange, whose sequence has ids to feed, ready for its next reply. */
sluice_status sl_generator_begin(sl_generator *n, sl_exchange *x, int slot);
/* Until every exchange that has begun, and every prompt after it, has its reply. */
sluice_status sl_generator_run(sl_generator *n);

/* ---- generate_chat.c ---- */

/* Lines of o->in, and a reply to each. */
sluice_status sl_generate_chat(sl_generator *n);

#endif
