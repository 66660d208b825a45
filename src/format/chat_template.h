/* chat_template.h: a conversation as the text that a model was trained to read.
 *
 * Hugging Face folders carry a Jinja program for it. There is no Jinja here: the templates of the known families are rows of a
 * table (chat_template.c), a folder's own text is recognised (chat_recognise.c), and an unknown one is refused. What a row writes
 * equals what the program writes, byte for byte.
 *
 * A rendering is one text and the parts it consists of. Encode the text as a whole, with special tokens matched and without the
 * tokenizer's post-processor (but see sl_chat_adds_special): a template writes its own beginning-of-text token. */
#ifndef SL_FORMAT_CHAT_TEMPLATE_H
#define SL_FORMAT_CHAT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"
#include "format/text_buffer.h"

typedef enum { SL_ROLE_SYSTEM, SL_ROLE_USER, SL_ROLE_ASSISTANT, SL_ROLE_COUNT } sl_chat_role;

typedef struct sl_chat_message {
    sl_chat_role role;
    const char *content; /* borrowed; valid UTF-8, need not end in NUL */
    size_t bytes;
} sl_chat_message;

typedef struct sl_chat_span {
    const char *text;
    size_t bytes;
} sl_chat_span;

/* What a template takes from the folder and the settings; borrowed. NULL is the empty text, for `date` the template's own. */
typedef struct sl_chat_words {
    const char *bos, *eos; /* contents of the tokens */
    const char *date;      /* of templates that tell the model today's date: "26 Jul 2024" */
} sl_chat_words;

/* Bytes [begin, end) of the text. Parts follow each other without gaps. */
typedef struct sl_chat_part {
    size_t begin, end;
    bool loss;    /* what the model is to write: an answer and its end mark */
    bool content; /* somebody's words, as against the template's */
} sl_chat_part;

/* Zero-initialise; sl_chat_text_free. Rendering again replaces what was there and keeps the memory. */
typedef struct sl_chat_text {
    sl_text text;
    sl_chat_part *parts; /* owned */
    int part_count, part_capacity;
    bool system_dropped; /* the template leaves out the system message of such a conversation */
} sl_chat_text;

typedef struct sl_chat_template sl_chat_template; /* a row; static */

/* The row of that name; NULL: none has it. */
const sl_chat_template *sl_chat_find(const char *name);
const char *sl_chat_name(const sl_chat_template *t);
/* Row i of the table; NULL past its end. */
const sl_chat_template *sl_chat_at(int i);
/* "llama2, llama3, ...": for messages. `buf` has at least SL_CHAT_NAMES_BYTES. */
#define SL_CHAT_NAMES_BYTES 512
const char *sl_chat_names(char *buf);
/* Whether its text is encoded with the tokenizer's post-processor, because the template has no beginning of its own. */
bool sl_chat_adds_special(const sl_chat_template *t);
/* The control text that ends an answer, for messages and for stopping a generation: "<|im_end|>". NULL: the tokenizer's eos. */
const char *sl_chat_end_mark(const sl_chat_template *t);
/* Whether it writes the folder's token that ends texts. */
bool sl_chat_writes_eos(const sl_chat_template *t);
/* The date that it tells where nothing says another; NULL: it tells none. */
const char *sl_chat_usual_date(const sl_chat_template *t);
/* The Jinja text that says the same, for other programs. `date`: as in sl_chat_words. */
void sl_chat_jinja(const sl_chat_template *t, const char *date, sl_text *out);
/* Whether a text without newlines at its end is that one; *date: what it tells, borrowed of it; text NULL: it tells none. */
bool sl_chat_is_own(const sl_chat_template *t, const char *jinja, size_t bytes, sl_chat_span *date);
/* What stands between an instruction and its input where the two are one user message. */
const char *sl_chat_input_join(const sl_chat_template *t);
/* The system text of an instruction with an input where the template has another one for it; NULL: it has not. */
const char *sl_chat_input_system(const sl_chat_template *t);

/* Renders a conversation. `prompts`: ends with the header of an answer, for a model to go on from. SLUICE_ERR_INPUT where the
 * template takes no such conversation; `where` ("chat.jsonl, line 7") begins the message. */
sluice_status sl_chat_render(const sl_chat_template *t, const sl_chat_words *words, const sl_chat_message *messages,
                             int count, bool prompts, const char *where, sl_chat_text *out);
void sl_chat_text_free(sl_chat_text *t);

/* ---- chat_recognise.c ---- */

/* The row that writes what a Jinja text writes, where that is known: it is, word for word (but for white space within tags, and
 * kinds of quotes), a published text that was compared with the row, or the row's own; *out NULL: it is not known. *date, which
 * the caller frees, is the one that an own text tells; NULL: none. */
sluice_status sl_chat_recognise(const char *jinja, size_t bytes, const sl_chat_template **out, char **date);
/* SHA-256 of a text in the form in which copies that are the same program are equal; "": it has none. */
sluice_status sl_chat_normal_sum(const char *jinja, size_t bytes, char hex[65]);
/* The row that a text which is not known has most in common with; NULL: none has much. For messages: a likeness is no proof. */
const sl_chat_template *sl_chat_nearest(const char *jinja, size_t bytes);

/* What a folder says about conversations. */
typedef struct sl_chat_folder {
    char *bos, *eos;                 /* owned; NULL: it names none */
    char *source;                    /* owned; the file of its template, for messages; NULL: it has none */
    char *date;                      /* owned; that its template tells, where it is one of ours; NULL: another's */
    const sl_chat_template *chat;    /* NULL: it has none, or one that is not known */
    const sl_chat_template *nearest; /* of one that is not known; may be NULL then too */
} sl_chat_folder;

/* SLUICE_ERR_INPUT for a folder with a template that is not known; `how` is where one is named by hand. */
sluice_status sl_chat_refuse(const sl_chat_folder *f, const char *how);

/* Reads tokenizer_config.json, special_tokens_map.json, chat_template.jinja and chat_template.json of a folder, as far as they
 * are there. What those of `over` say counts before it: an adapter's folder; NULL or "": there is none. SLUICE_ERR_INPUT: one of
 * them is malformed. An unknown template is no failure: the caller may not need it. */
sluice_status sl_chat_folder_read(const char *over, const char *folder, sl_chat_folder *out);
void sl_chat_folder_free(sl_chat_folder *f);

#endif
