/* tokenizer_wordpiece.c: a word as the longest tokens it begins with, one after the other. */
#include <string.h>

#include "format/tokenizer_parts.h"

/* The longest token at piece[at], or SL_TOKEN_NONE; *end is where it ends. */
static uint32_t longest_token(sl_encoder *e, const char *piece, size_t bytes, size_t at, size_t *end)
{
    const sl_tokenizer *t = e->tokenizer;
    sl_text *word = &e->word;
    word->bytes = 0;
    if (at > 0) sl_text_add_bytes(word, t->wordpiece.prefix, t->wordpiece.prefix_bytes);
    size_t prefix = word->bytes;
    sl_text_add_bytes(word, piece + at, bytes - at);
    if (word->failed) return SL_TOKEN_NONE;
    for (size_t length = bytes - at; length > 0; length--) {
        if (at + length < bytes && ((unsigned char)piece[at + length] & 0xc0) == 0x80) continue;
        uint32_t id = sl_vocab_find(&t->vocab, word->data, prefix + length);
        if (id == SL_TOKEN_NONE) continue;
        *end = at + length;
        return id;
    }
    return SL_TOKEN_NONE;
}

sluice_status sl_wordpiece_piece(sl_encoder *e, const char *piece, size_t bytes)
{
    const sl_wordpiece *w = &e->tokenizer->wordpiece;
    size_t characters = 0, before = e->out->count;
    for (size_t i = 0; i < bytes && characters <= w->most_characters; i++)
        if (((unsigned char)piece[i] & 0xc0) != 0x80) characters++;
    if (characters > w->most_characters) return sl_ids_add(e->out, (int32_t)w->unknown);
    for (size_t at = 0; at < bytes;) {
        uint32_t id = longest_token(e, piece, bytes, at, &at);
        SL_TRY(sl_text_status(&e->word));
        if (id == SL_TOKEN_NONE) {
            e->out->count = before;
            return sl_ids_add(e->out, (int32_t)w->unknown);
        }
        SL_TRY(sl_ids_add(e->out, (int32_t)id));
    }
    return SLUICE_OK;
}
