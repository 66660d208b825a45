/* tokenizer_vocab.c: contents by id and ids by content, and the characters that stand for bytes. */
#include <string.h>

#include "core/alloc.h"
#include "format/tokenizer_parts.h"

static uint64_t load(const char *text, size_t bytes)
{
    uint64_t word = 0;
    memcpy(&word, text, bytes);
    return word;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t sl_token_hash(const char *text, size_t bytes)
{
    uint64_t hash = UINT64_C(0x9e3779b97f4a7c15) ^ bytes;
    for (; bytes > 16; text += 16, bytes -= 16)
        hash = mix(load(text, 8) ^ hash, load(text + 8, 8) ^ UINT64_C(0xe7037ed1a0b428db));
    /* Two words that overlap where fewer than 16 bytes are left. */
    uint64_t a, b = 0;
    if (bytes >= 8) {
        a = load(text, 8);
        b = load(text + bytes - 8, 8);
    } else if (bytes >= 4) {
        a = load(text, 4) << 32 | load(text + bytes - 4, 4);
    } else {
        a = bytes == 0 ? 0
                       : (uint64_t)(unsigned char)text[0] << 16 | (uint64_t)(unsigned char)text[bytes / 2] << 8 |
                             (unsigned char)text[bytes - 1];
    }
    return mix(mix(a ^ hash, b ^ UINT64_C(0x8ebc6af09c88c6e3)), UINT64_C(0x589965cc75374cc3));
}

/* The slot of a content, or the free one where it belongs. */
static uint32_t *slot_of(const sl_vocab *v, const char *content, size_t bytes)
{
    for (uint32_t i = (uint32_t)sl_token_hash(content, bytes) & v->slot_mask;; i = (i + 1) & v->slot_mask) {
        uint32_t id = v->slots[i];
        if (id == SL_TOKEN_NONE) return &v->slots[i];
        const sl_token_text *t = &v->tokens[id];
        if (t->bytes == bytes && memcmp(v->text.data + t->at, content, bytes) == 0) return &v->slots[i];
    }
}

uint32_t sl_vocab_find(const sl_vocab *v, const char *content, size_t bytes)
{
    return v->count == 0 || bytes > v->longest ? SL_TOKEN_NONE : *slot_of(v, content, bytes);
}

bool sl_vocab_has(const sl_vocab *v, uint32_t id)
{
    return id < v->size && v->tokens[id].bytes != SL_TOKEN_NONE;
}

const char *sl_vocab_content(const sl_vocab *v, uint32_t id, size_t *bytes)
{
    if (!sl_vocab_has(v, id)) return NULL;
    *bytes = v->tokens[id].bytes;
    return v->text.data + v->tokens[id].at;
}

/* Ids up to `id`; new ones have no token yet. */
static sluice_status grow_tokens(sl_vocab *v, uint32_t id)
{
    if (id >= v->capacity) {
        uint32_t capacity = v->capacity < 1024 ? 1024 : v->capacity;
        while (capacity <= id) capacity *= 2;
        sl_token_text *tokens =
            sl_realloc(v->tokens, v->capacity * sizeof *tokens, capacity * sizeof *tokens, "tokens of a vocabulary");
        if (tokens == NULL) return SLUICE_ERR_NO_MEMORY;
        v->tokens = tokens;
        v->capacity = capacity;
    }
    for (; v->size <= id; v->size++) v->tokens[v->size] = (sl_token_text){ 0, SL_TOKEN_NONE };
    return SLUICE_OK;
}

/* Slots for one token more, at most half of them taken. */
static sluice_status grow_slots(sl_vocab *v)
{
    if (v->slots != NULL && 2 * (v->count + 1) <= v->slot_mask) return SLUICE_OK;
    uint32_t count = v->slots == NULL ? 1024 : 2 * (v->slot_mask + 1);
    uint32_t *slots = sl_alloc_array(count, sizeof *slots, "index of a vocabulary");
    if (slots == NULL) return SLUICE_ERR_NO_MEMORY;
    memset(slots, 0xff, count * sizeof *slots);
    sl_free(v->slots);
    v->slots = slots;
    v->slot_mask = count - 1;
    for (uint32_t id = 0; id < v->size; id++)
        if (sl_vocab_has(v, id)) *slot_of(v, v->text.data + v->tokens[id].at, v->tokens[id].bytes) = id;
    return SLUICE_OK;
}

sluice_status sl_vocab_add(sl_vocab *v, const char *content, size_t bytes, uint32_t id)
{
    SL_TRY(grow_slots(v));
    SL_TRY(grow_tokens(v, id));
    uint32_t at = (uint32_t)v->text.bytes;
    sl_text_add_bytes(&v->text, content, bytes);
    sl_text_add_bytes(&v->text, "", 1);
    SL_TRY(sl_text_status(&v->text));
    *slot_of(v, content, bytes) = id;
    v->tokens[id] = (sl_token_text){ at, (uint32_t)bytes };
    v->count++;
    if (bytes > v->longest) v->longest = (uint32_t)bytes;
    return SLUICE_OK;
}

void sl_vocab_free(sl_vocab *v)
{
    sl_text_free(&v->text);
    sl_free(v->tokens);
    sl_free(v->slots);
    *v = (sl_vocab){ 0 };
}

/* Bytes that print stand for themselves; the other 68 are numbered from U+0100 on. */
static bool stands_for_itself(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

uint32_t sl_byte_character(unsigned byte)
{
    if (stands_for_itself(byte)) return byte;
    if (byte <= 0x20) return 0x100 + byte;
    if (byte <= 0xa0) return 0x121 + (byte - 0x7f);
    return 0x143; /* AD */
}

int sl_character_byte(uint32_t code)
{
    if (code < 0x100) return stands_for_itself(code) ? (int)code : -1;
    if (code <= 0x120) return (int)(code - 0x100);
    if (code <= 0x142) return (int)(code - 0x121 + 0x7f);
    return code == 0x143 ? 0xad : -1;
}
