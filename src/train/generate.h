/* generate.h: what the files of generation share.
 *
 *     generate.c          the job: prompts in, replies out
 *     generate_prompts.c  where prompts come from
 *     decoding.c          sequences through the generation graph
 *     sampler.c           which token follows
 *     reply.c             text, held back where it may be a stop string */
#ifndef SL_TRAIN_GENERATE_H
#define SL_TRAIN_GENERATE_H

#include "train/decoding.h"
#include "train/job.h"
#include "train/reply.h"
#include "train/sampler.h"

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
    sl_sequence sequence;  /* the prompt's ids first */
    int64_t prompt_tokens; /* of them */
    sl_seen seen;
    sl_reply reply;
    sl_reply_end end;
    bool slid; /* its beginning was given up for room */
} sl_exchange;

struct sl_generation {
    sl_exchange *exchanges; /* owned */
    int count, capacity;
    int64_t places; /* of a slot: tokens that the model sees */
    bool in_file;   /* prompts come from a file: replies are lines of JSON */
};

/* Appends a prompt; the text is copied. */
sluice_status sl_generation_add(struct sl_generation *g, const char *text, size_t bytes);
/* Prompts of a file: lines of text, or objects of JSON with "prompt". */
sluice_status sl_generation_read(struct sl_generation *g, const char *path);

#endif
