/* tokenizer_parts.h: how a tokenizer is put together; for the files of tokenizer_*.c alone.
 *
 * Encoding is a chain: added tokens are cut out of the text, the rest is normalised, added tokens are cut out of that, a chain
 * of splitters hands pieces on, the model turns each piece into ids, the post-processor adds special tokens around them. */
#ifndef SL_FORMAT_TOKENIZER_PARTS_H
#define SL_FORMAT_TOKENIZER_PARTS_H

#include <jansson.h>

#include "format/tokenizer.h"
#include "format/tokenizer_regex.h"
#include "format/tokenizer_unicode.h"

#define SL_TOKEN_NONE UINT32_MAX

/* Limits: of a file, so that one of a few bytes cannot ask for much memory, and of what one piece may be. */
enum {
    SL_TOKENIZER_MAX_BYTES = 256 << 20,  /* of tokenizer.json, and of vocab.json and merges.txt each */
    SL_TOKENIZER_MAX_IDS = 16 << 20,     /* and at most as many as twice the tokens and a million */
    SL_TOKENIZER_MAX_ADDED_BYTES = 1024, /* of an added token's content */
    SL_TOKENIZER_MAX_STEPS = 32,         /* of a chain of normalisers, pre-tokenisers or decoders */
    SL_TOKENIZER_MAX_TEXT = INT32_MAX    /* bytes of one text; longer ones are cut by whoever reads them */
};

/* ---- tokenizer_vocab.c: contents and ids ---- */

typedef struct sl_token_text {
    uint32_t at, bytes; /* in the vocabulary's text; bytes = SL_TOKEN_NONE: there is no such token */
} sl_token_text;

typedef struct sl_vocab {
    sl_text text;          /* all contents, a NUL after each */
    sl_token_text *tokens; /* owned; by id */
    uint32_t size;         /* one more than the largest id */
    uint32_t capacity;     /* of tokens */
    uint32_t count;        /* tokens that there are */
    uint32_t longest;      /* bytes of the longest content */
    uint32_t *slots;       /* owned; ids, open addressing by content */
    uint32_t slot_mask;
} sl_vocab;

uint64_t sl_token_hash(const char *text, size_t bytes);
/* The id of a content, or SL_TOKEN_NONE. */
uint32_t sl_vocab_find(const sl_vocab *v, const char *content, size_t bytes);
/* `id` must be free and below SL_TOKENIZER_MAX_IDS, the content new. */
sluice_status sl_vocab_add(sl_vocab *v, const char *content, size_t bytes, uint32_t id);
bool sl_vocab_has(const sl_vocab *v, uint32_t id);
const char *sl_vocab_content(const sl_vocab *v, uint32_t id, size_t *bytes);
void sl_vocab_free(sl_vocab *v);

/* The character that stands for a byte in byte-level vocabularies, and back (-1: none of them). */
uint32_t sl_byte_character(unsigned byte);
int sl_character_byte(uint32_t code);

/* ---- tokenizer_bpe.c, tokenizer_wordpiece.c: the models ---- */

typedef struct sl_merge {
    uint32_t left, right, joined; /* ids */
} sl_merge;

typedef struct sl_merge_slot {
    uint64_t pair; /* left << 32 | right; UINT64_MAX: free */
    uint32_t rank;
} sl_merge_slot;

typedef struct sl_bpe {
    bool byte_level;    /* units are bytes, found by the characters that stand for them; otherwise characters */
    bool byte_fallback; /* a character without a token becomes its bytes, <0xHH> each */
    bool fuse_unknown, ignore_merges;
    bool words_apart; /* no merge joins anything to a space symbol (U+2581) that follows another character */
    uint32_t unknown; /* or SL_TOKEN_NONE */
    sl_merge *merges; /* owned; by rank */
    uint32_t merge_count;
    sl_merge_slot *slots; /* owned */
    uint32_t slot_mask;
    uint32_t unit[256];     /* byte-level: ids of bytes; otherwise of ASCII characters */
    uint32_t fallback[256]; /* ids of <0xHH> */
} sl_bpe;

typedef struct sl_wordpiece {
    uint32_t unknown;
    char prefix[64]; /* of what continues a word: "##" */
    size_t prefix_bytes;
    size_t most_characters; /* of a word; longer ones are unknown */
} sl_wordpiece;

/* Builds the tables of a model whose flags and merges are set. */
sluice_status sl_bpe_prepare(sl_bpe *b, const sl_vocab *v);
void sl_bpe_free(sl_bpe *b);

/* Scratch of the merging of one long piece: see tokenizer_bpe.c. */
typedef struct sl_bpe_work sl_bpe_work;
void sl_bpe_work_free(sl_bpe_work *w);

/* ---- tokenizer_added.c: tokens that are cut out of the text ---- */

typedef struct sl_added_token {
    char *content; /* owned */
    size_t bytes;
    char *pattern; /* owned; what is looked for, and what ids are decoded to: of a normalized token its normal form */
    size_t pattern_bytes;
    uint32_t id;
    bool special, single_word, lstrip, rstrip, normalized;
} sl_added_token;

/* Contents to look for, sorted by their bytes. */
typedef struct sl_added_set {
    const sl_added_token **patterns; /* owned array */
    size_t count;
    uint32_t first[257]; /* patterns that begin with byte b are first[b] to first[b + 1] */
    int only_byte;       /* that all begin with; -1: several */
} sl_added_set;

typedef struct sl_added_match {
    size_t begin, end; /* of the text that is left out, with the white space that the token swallows */
    const sl_added_token *token;
} sl_added_match;

/* The next match from *at on; *at moves behind it. `taken` is where the match before ended. `plain`: special tokens do not
 * count. */
bool sl_added_next(const sl_added_set *s, const uint16_t *properties, const char *text, size_t bytes, size_t *at,
                   size_t taken, bool plain, sl_added_match *out);
sluice_status sl_added_set_add(sl_added_set *s, const sl_added_token *token);
void sl_added_set_sort(sl_added_set *s);
void sl_added_set_free(sl_added_set *s);

/* ---- tokenizer_chain.c: components in the file become steps, by a table for each kind ---- */

/* Where the piece that begins at text[at] ends, at < bytes. */
typedef size_t (*sl_scan_fn)(const uint16_t *properties, const char *text, size_t bytes, size_t at);

typedef struct sl_token_string {
    char *text; /* owned, NUL-terminated */
    size_t bytes;
} sl_token_string;

/* One normaliser, splitter or decoder. What the fields mean is said where the kind is declared. */
typedef struct sl_token_step {
    int kind;
    bool on[2];
    int64_t number[2];
    sl_token_string from, to;
    sl_regex *regex; /* owned */
    sl_scan_fn scan; /* instead of a regex: a scanner that leaves no rest */
} sl_token_step;

typedef struct sl_chain {
    sl_token_step steps[SL_TOKENIZER_MAX_STEPS];
    int count;
    bool absent; /* null in the file */
} sl_chain;

/* Where a component stands in a file, for messages: "tokenizer.json: normalizer.normalizers.1". */
typedef struct sl_where {
    const char *file;
    char key[160];
} sl_where;

/* SLUICE_ERR_INPUT with the place in front. */
#define sl_where_fail(where_, ...) (sl_where_record((where_), __VA_ARGS__), sl_status_after(SLUICE_ERR_INPUT))
void sl_where_record(const sl_where *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
sl_where sl_where_below(const sl_where *w, const char *key);

/* One row per component: its name in the file and what it becomes. */
typedef struct sl_token_step_row {
    const char *type;
    int kind;
    const char *keys;                                                                    /* that it may have: "a b c" */
    sluice_status (*read)(const json_t *object, const sl_where *w, sl_token_step *step); /* NULL: they change nothing */
} sl_token_step_row;

/* Reads null, one component, or a Sequence whose parts stand under `list`. */
sluice_status sl_chain_read(const json_t *value, const sl_where *w, const sl_token_step_row *rows, size_t row_count,
                            const char *list, sl_chain *out);
/* Takes over what the step owns, also where it fails. */
sluice_status sl_chain_add(sl_chain *c, const sl_where *w, const sl_token_step *step);
void sl_chain_free(sl_chain *c);
void sl_token_step_free(sl_token_step *step);

/* Refuses every key that is not among `keys`. */
sluice_status sl_read_keys(const json_t *object, const sl_where *w, const char *keys);
/* Values of keys; each refuses another type by name. */
sluice_status sl_read_bool(const json_t *object, const sl_where *w, const char *key, bool absent, bool *out);
sluice_status sl_read_integer(const json_t *object, const sl_where *w, const char *key, int64_t least, int64_t most,
                              int64_t *out); /* left as it is where the key is absent */
/* `absent` NULL: the key must be there. */
sluice_status sl_read_string(const json_t *object, const sl_where *w, const char *key, const char *absent,
                             sl_token_string *out);
/* {"String": ...} becomes `from`, {"Regex": ...} a scanner or a regular expression. */
sluice_status sl_read_pattern(const json_t *object, const sl_where *w, sl_token_step *step);
/* Appends a text with every match of a step's pattern replaced by `to`; *changed: there was one. */
sluice_status sl_replace(const sl_token_step *step, const uint16_t *properties, const char *text, size_t bytes,
                         sl_text *out, bool *changed);
/* The next match of a step's pattern. */
sluice_status sl_pattern_next(const sl_token_step *step, const uint16_t *properties, const char *text, size_t bytes,
                              size_t from, sl_regex_work *work, bool *found, size_t *begin, size_t *end);

/* ---- tokenizer_normalize.c ---- */

sluice_status sl_normalizer_read(const json_t *value, const sl_where *w, sl_chain *out);
/* Runs the chain over a text. *out and *out_bytes are the text itself where nothing changes it, otherwise in one of the two
 * buffers, which are overwritten. */
sluice_status sl_normalizer_run(const sl_chain *c, const uint16_t *properties, const char *text, size_t bytes,
                                sl_text buffers[2], const char **out, size_t *out_bytes);

/* Whether it does nothing but bring the text into a normal form of Unicode. */
bool sl_normalizer_is_form(const sl_chain *c);

/* ---- tokenizer_split.c: pre-tokenisers ---- */

/* Whether it is a known scanner, or GPT-2's, and nothing else that changes the text. */
bool sl_splitter_is_scanner(const sl_chain *c);

sluice_status sl_splitter_read(const json_t *value, const sl_where *w, sl_chain *out, bool *byte_level);
/* Hands the pieces of a text to the encoder's model; `first`: the text begins where the whole input does. */
sluice_status sl_splitter_run(sl_encoder *e, int step, const char *text, size_t bytes, bool first);

/* ---- tokenizer_scan.c: the known regular expressions, by hand ---- */

/* NULL: the expression is not one of those that are known. */
sl_scan_fn sl_scanner_find(const char *expression, size_t bytes);
size_t sl_scan_gpt2(const uint16_t *properties, const char *text, size_t bytes, size_t at);

/* ---- tokenizer_post.c, tokenizer_decode.c ---- */

typedef struct sl_post {
    sl_ids before, after; /* of a text that is encoded alone */
    sl_pair_frame pair;
    bool framed; /* a processor said how pairs stand; a second one that does makes that unknown */
} sl_post;
void sl_post_free(sl_post *post);
sluice_status sl_post_read(const json_t *value, const sl_where *w, const sl_vocab *v, sl_post *out);
sluice_status sl_decoder_read(const json_t *value, const sl_where *w, sl_chain *out);

/* ---- The whole ---- */

typedef enum { SL_MODEL_BPE, SL_MODEL_WORDPIECE } sl_model_kind;

struct sl_tokenizer {
    char *path; /* owned; of the file, for messages */
    uint16_t *properties;
    sl_vocab vocab; /* the model's, and added tokens beyond it */
    sl_model_kind model;
    sl_bpe bpe;
    sl_wordpiece wordpiece;
    sl_chain normalizer, splitter, decoder;
    sl_post post;
    sl_added_token *added; /* owned */
    size_t added_count;
    sl_added_set raw, normalized; /* looked for before and after normalising */
    uint32_t *added_of;           /* owned; by id: one more than the place in `added`, or 0 */
};

/* A piece and its ids, in 64 bytes. Longer ones are computed each time. */
enum { SL_CACHE_TEXT = 22, SL_CACHE_IDS = 10, SL_CACHE_ENTRIES = 1 << 15 };
typedef struct sl_cache_entry {
    uint8_t bytes, count; /* bytes = 0: free */
    char text[SL_CACHE_TEXT];
    uint32_t ids[SL_CACHE_IDS];
} sl_cache_entry;

struct sl_encoder {
    const sl_tokenizer *tokenizer;           /* borrowed */
    sl_cache_entry *cache;                   /* owned; SL_CACHE_ENTRIES, by hash alone */
    sl_text buffers[2];                      /* of normalisers */
    sl_text changed[SL_TOKENIZER_MAX_STEPS]; /* of splitters that change the text, one each */
    sl_text word;                            /* of WordPiece and of spellings looked for */
    sl_regex_work regex;                     /* of the text at hand */
    sl_bpe_work *work;                       /* owned; made at the first long piece */
    sl_ids *out;                             /* of the call at hand */
    const int *stop;                         /* a request to stop; NULL: never */
};

/* Appends the ids of a piece to e->out. */
sluice_status sl_model_piece(sl_encoder *e, const char *piece, size_t bytes);
sluice_status sl_bpe_piece(sl_encoder *e, const char *piece, size_t bytes);
sluice_status sl_wordpiece_piece(sl_encoder *e, const char *piece, size_t bytes);
/* Room for `more` ids. */
sluice_status sl_ids_reserve(sl_ids *ids, size_t more);

/* tokenizer_read.c */
sluice_status sl_tokenizer_read_json(sl_tokenizer *t, const char *text, size_t bytes, const char *file);
sluice_status sl_tokenizer_read_pair(sl_tokenizer *t, const char *vocab_file, const char *merges_file);

/* tokenizer_sides.c: what tokenizer_config.json puts around texts, where t was read from such a pair. */
sluice_status sl_tokenizer_read_sides(sl_tokenizer *t, const char *folder);

#endif
