/* tokenizer.h: text to token ids and back, as the Hugging Face tokenizers package does it.
 *
 * Reads tokenizer.json, or vocab.json with merges.txt. Built: byte-level BPE, BPE on characters with byte fallback, and
 * WordPiece, with the normalisers, pre-tokenisers, post-processors and decoders that docs/tokenizers.md lists. A file that
 * asks for anything else is refused by the name of the component and the key, never read approximately.
 *
 * A tokenizer never changes once it is open: any number of threads may share it, each with an encoder of its own. */
#ifndef SL_FORMAT_TOKENIZER_H
#define SL_FORMAT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/status.h"
#include "format/text_buffer.h"

typedef struct sl_tokenizer sl_tokenizer;

/* `path`: a folder with tokenizer.json (or vocab.json and merges.txt), one of these files, or a file of any other name in the
 * form of tokenizer.json. Malformed or not built: SLUICE_ERR_INPUT. */
sluice_status sl_tokenizer_open(const char *path, sl_tokenizer **out);
void sl_tokenizer_close(sl_tokenizer *t); /* NULL is fine */

/* One more than the largest id, added tokens included. A model's table of embeddings may be larger, never smaller. */
int32_t sl_tokenizer_size(const sl_tokenizer *t);
/* "byte-level BPE", "BPE with byte fallback", "WordPiece", ... */
const char *sl_tokenizer_kind(const sl_tokenizer *t);
/* The token spelt exactly so in the file (byte-level: with its replaced characters), or -1. */
int32_t sl_tokenizer_find(const sl_tokenizer *t, const char *content, size_t bytes);
/* The spelling of a token in the file, NUL-terminated, owned by the tokenizer; NULL for an id that has none. */
const char *sl_tokenizer_content(const sl_tokenizer *t, int32_t id, size_t *bytes);
/* Whether a decoder with SL_DECODE_SKIP_SPECIAL leaves it out. */
bool sl_tokenizer_is_special(const sl_tokenizer *t, int32_t id);
/* The token that ends a text: <|endoftext|>, </s>, <|end_of_text|> and the like, by name; -1 where there is none of them. */
int32_t sl_tokenizer_end_of_text(const sl_tokenizer *t);

/* Whether a text may be cut after a line end that follows a printable ASCII character, before an ASCII letter, without changing an
 * id: then threads share a text. */
bool sl_tokenizer_cuts_at_lines(const sl_tokenizer *t);

/* Kind, size and added tokens, for people or as one JSON object. */
void sl_tokenizer_describe(const sl_tokenizer *t, bool json, FILE *out);

/* Ids that grow. Zero-initialise; additions append. */
typedef struct sl_ids {
    int32_t *data; /* owned */
    size_t count, capacity;
} sl_ids;
sluice_status sl_ids_add(sl_ids *ids, int32_t id);
void sl_ids_free(sl_ids *ids);

enum {
    SL_ENCODE_ADD_SPECIAL = 1, /* run the post-processor: <s>, [CLS] ... [SEP] as the file says */
    SL_ENCODE_PLAIN = 2        /* special tokens that the text spells are plain text */
};

/* How two texts stand in one sequence: tokens before the first, between them, and behind the second, each part with the number of the
 * segment that it is of. */
enum { SL_PAIR_BEFORE, SL_PAIR_FIRST, SL_PAIR_BETWEEN, SL_PAIR_SECOND, SL_PAIR_AFTER, SL_PAIR_PARTS };
typedef struct sl_pair_frame {
    sl_ids tokens[SL_PAIR_PARTS]; /* none of the texts themselves */
    int32_t segments[SL_PAIR_PARTS];
    bool known;
} sl_pair_frame;
/* NULL: the file does not say it, or in a way that is not built. Owned by the tokenizer. */
const sl_pair_frame *sl_tokenizer_pair(const sl_tokenizer *t);
/* The tokens around a text alone, as SL_ENCODE_ADD_SPECIAL adds them. Owned by the tokenizer. */
void sl_tokenizer_around(const sl_tokenizer *t, const sl_ids **before, const sl_ids **after);

/* Scratch memory and a cache of pieces, for one thread at a time. Borrows the tokenizer. */
typedef struct sl_encoder sl_encoder;
sluice_status sl_encoder_create(const sl_tokenizer *t, sl_encoder **out);
void sl_encoder_destroy(sl_encoder *e); /* NULL is fine */
/* A request to stop (core/stop.h) ends an encoding. */
void sl_encoder_stop_on(sl_encoder *e, const int *stop);
/* Appends the ids of a text. Text that is not UTF-8 is refused with the offset of the first bad byte. */
sluice_status sl_encode(sl_encoder *e, const char *text, size_t bytes, unsigned flags, sl_ids *out);

enum { SL_DECODE_SKIP_SPECIAL = 1 };

/* Appends the text of ids. Ids without a token add nothing; what is not UTF-8 becomes U+FFFD. */
sluice_status sl_decode(const sl_tokenizer *t, const int32_t *ids, size_t count, unsigned flags, sl_text *out);

/* Ids one by one: appends text as soon as its characters are whole, and the rest at the end. */
typedef struct sl_stream_decoder sl_stream_decoder;
sluice_status sl_stream_decoder_create(const sl_tokenizer *t, unsigned flags, sl_stream_decoder **out);
void sl_stream_decoder_destroy(sl_stream_decoder *d); /* NULL is fine */
sluice_status sl_stream_decoder_add(sl_stream_decoder *d, int32_t id, sl_text *out);
sluice_status sl_stream_decoder_finish(sl_stream_decoder *d, sl_text *out); /* and begin anew */

#endif
