/* text_codec.h: what token ids are to people: text in, text out, which of them end a reply, how a conversation is written.
 *
 * Either a vocabulary of bytes or characters, or a tokenizer: that of the model's folder, or the one of data.tokenizer. */
#ifndef SL_TRAIN_TEXT_CODEC_H
#define SL_TRAIN_TEXT_CODEC_H

#include "format/chat_template.h"
#include "format/generation_config.h"
#include "format/tokenizer.h"
#include "train/decoding.h"
#include "train/job.h"

typedef struct sl_text_codec {
    const sl_vocabulary *vocabulary; /* borrowed; NULL: there is a tokenizer */
    sl_tokenizer *tokenizer;         /* owned */
    sl_encoder *encoder;             /* owned */
    sl_chat_folder folder;           /* of the tokenizer; what it says about conversations */
    const sl_chat_template *chat;    /* static; NULL: none is known */
    const char *date;                /* that it tells; borrowed; NULL: the usual one */
    sl_generation_config generation; /* of the model's folder */
    sl_ids ends;                     /* tokens that end a reply */
    int32_t begin;                   /* token that a text without any other begins with; -1: none is known */
} sl_text_codec;

/* The tokenizer that a job that generates uses: a folder or file; NULL: none. */
const char *sl_job_tokenizer(const sl_job *j);
/* Opens what the job's settings name. `chat`: name of the template; NULL: that of data.template, or the folder's.
 * Zero-initialise first; close also after a failure. */
sluice_status sl_text_codec_open(const sl_job *j, const char *chat, sl_text_codec *out);
void sl_text_codec_close(sl_text_codec *t);

/* Appends the ids of a prompt, with what the tokenizer puts before every text. `control`: the text is a template's, whose
 * own beginning counts then. Special tokens that the text spells are those tokens, as in Hugging Face's tokenizers. */
sluice_status sl_text_codec_encode(sl_text_codec *t, const char *text, size_t bytes, bool control, sl_sequence *out);
bool sl_text_codec_ends(const sl_text_codec *t, int32_t id);

/* Ids one by one into text: only whole characters of a tokenizer's. */
typedef struct sl_token_stream {
    const sl_text_codec *t; /* borrowed */
    sl_stream_decoder *decoder;
} sl_token_stream;
sluice_status sl_token_stream_open(const sl_text_codec *t, sl_token_stream *out);
void sl_token_stream_close(sl_token_stream *s);
sluice_status sl_token_stream_add(sl_token_stream *s, int32_t id, sl_text *out);
/* What is left of an unfinished character. */
sluice_status sl_token_stream_finish(sl_token_stream *s, sl_text *out);

#endif
