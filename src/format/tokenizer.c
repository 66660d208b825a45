/* tokenizer.c: opening, the way of a text through the parts, and small questions. */
#include "format/tokenizer.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/stop.h"
#include "core/utf8.h"
#include "format/tokenizer_parts.h"

/* ---- Ids ---- */

sluice_status sl_ids_reserve(sl_ids *ids, size_t more)
{
    if (ids->capacity - ids->count >= more) return SLUICE_OK;
    size_t capacity = ids->capacity < 64 ? 64 : ids->capacity;
    while (capacity - ids->count < more) capacity *= 2;
    int32_t *data = sl_realloc(ids->data, ids->capacity * sizeof *data, capacity * sizeof *data, "token ids");
    if (data == NULL) return SLUICE_ERR_NO_MEMORY;
    ids->data = data;
    ids->capacity = capacity;
    return SLUICE_OK;
}

sluice_status sl_ids_add(sl_ids *ids, int32_t id)
{
    SL_TRY(sl_ids_reserve(ids, 1));
    ids->data[ids->count++] = id;
    return SLUICE_OK;
}

void sl_ids_free(sl_ids *ids)
{
    sl_free(ids->data);
    *ids = (sl_ids){ 0 };
}

/* ---- Opening ---- */

static sluice_status open_json(sl_tokenizer *t, const char *path)
{
    char *text;
    size_t bytes;
    SL_TRY(sl_file_read_all(path, SL_TOKENIZER_MAX_BYTES, &text, &bytes));
    sluice_status st = sl_tokenizer_read_json(t, text, bytes, path);
    sl_free(text);
    return st;
}

/* vocab.json or merges.txt: the other one is beside it. */
static sluice_status open_pair(sl_tokenizer *t, const char *folder)
{
    char vocab[PATH_MAX], merges[PATH_MAX];
    int a = snprintf(vocab, sizeof vocab, "%s/vocab.json", folder);
    int b = snprintf(merges, sizeof merges, "%s/merges.txt", folder);
    if (a >= (int)sizeof vocab || b >= (int)sizeof merges)
        return sl_fail(SLUICE_ERR_INPUT, "%.100s...: the path is too long", folder);
    if (!sl_path_exists(merges))
        return sl_fail(
            SLUICE_ERR_INPUT,
            "%s has vocab.json but no merges.txt: a byte-level BPE tokenizer needs both, or a tokenizer.json", folder);
    SL_TRY(sl_tokenizer_read_pair(t, vocab, merges));
    return sl_tokenizer_read_sides(t, folder);
}

static sluice_status refuse_folder(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.*s/tokenizer.model", PATH_MAX - 32, folder);
    if (sl_path_exists(path))
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s has only tokenizer.model, which is not read; make a tokenizer.json from it: python -c "
                       "\"from transformers "
                       "import AutoTokenizer; AutoTokenizer.from_pretrained('%s').save_pretrained('%s')\"",
                       folder, folder, folder);
    snprintf(path, sizeof path, "%.*s/vocab.txt", PATH_MAX - 32, folder);
    if (sl_path_exists(path))
        return sl_fail(
            SLUICE_ERR_INPUT,
            "%s has only vocab.txt, which does not say how text is normalised; make a tokenizer.json from it: python "
            "-c "
            "\"from transformers import AutoTokenizer; AutoTokenizer.from_pretrained('%s').save_pretrained('%s')\"",
            folder, folder, folder);
    snprintf(path, sizeof path, "%.*s/tekken.json", PATH_MAX - 32, folder);
    if (sl_path_exists(path))
        return sl_fail(
            SLUICE_ERR_INPUT,
            "%s has only tekken.json, the tokenizer in the format of Mistral's own programs, which is not read; make a "
            "tokenizer.json from it: python -c \"from transformers.integrations.mistral import "
            "convert_tekken_tokenizer; "
            "convert_tekken_tokenizer('%s/tekken.json').save_pretrained('%s')\"",
            folder, folder, folder);
    return sl_fail(SLUICE_ERR_INPUT, "%s: no tokenizer here: neither tokenizer.json nor vocab.json and merges.txt",
                   folder);
}

static sluice_status open_folder(sl_tokenizer *t, const char *folder)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/tokenizer.json", folder) >= (int)sizeof path)
        return sl_fail(SLUICE_ERR_INPUT, "%.100s...: the path is too long", folder);
    if (sl_path_exists(path)) return open_json(t, path);
    snprintf(path, sizeof path, "%s/vocab.json", folder);
    return sl_path_exists(path) ? open_pair(t, folder) : refuse_folder(folder);
}

static bool is_named(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash == NULL ? path : slash + 1, name) == 0;
}

static sluice_status open_path(sl_tokenizer *t, const char *path)
{
    sl_path_info info;
    char folder[PATH_MAX];
    SL_TRY(sl_path_look(path, &info));
    if (info.kind == SL_PATH_FOLDER) return open_folder(t, path);
    if (is_named(path, "tokenizer.model"))
        return sl_fail(
            SLUICE_ERR_INPUT,
            "%s: SentencePiece models are not read; give a tokenizer.json, which transformers' save_pretrained writes",
            path);
    if (!is_named(path, "vocab.json") && !is_named(path, "merges.txt")) return open_json(t, path);
    SL_TRY(sl_path_parent(path, folder));
    return open_pair(t, folder);
}

static sluice_status list_added(sl_tokenizer *t)
{
    t->added_of = sl_alloc_array(t->vocab.size, sizeof *t->added_of, "added tokens");
    if (t->added_of == NULL) return SLUICE_ERR_NO_MEMORY;
    for (size_t i = 0; i < t->added_count; i++) t->added_of[t->added[i].id] = (uint32_t)i + 1;
    return SLUICE_OK;
}

sluice_status sl_tokenizer_open(const char *path, sl_tokenizer **out)
{
    sl_tokenizer *t = sl_alloc(sizeof *t, "tokenizer");
    if (t == NULL) return SLUICE_ERR_NO_MEMORY;
    t->properties = sl_unicode_properties();
    sluice_status st = t->properties == NULL ? SLUICE_ERR_NO_MEMORY : open_path(t, path);
    if (st == SLUICE_OK) st = list_added(t);
    if (st != SLUICE_OK) {
        sl_tokenizer_close(t);
        return st;
    }
    *out = t;
    return SLUICE_OK;
}

const sl_pair_frame *sl_tokenizer_pair(const sl_tokenizer *t)
{
    return t->post.pair.known ? &t->post.pair : NULL;
}

void sl_tokenizer_around(const sl_tokenizer *t, const sl_ids **before, const sl_ids **after)
{
    *before = &t->post.before;
    *after = &t->post.after;
}

void sl_tokenizer_close(sl_tokenizer *t)
{
    if (t == NULL) return;
    sl_free(t->properties);
    sl_vocab_free(&t->vocab);
    sl_bpe_free(&t->bpe);
    sl_chain_free(&t->normalizer);
    sl_chain_free(&t->splitter);
    sl_chain_free(&t->decoder);
    sl_post_free(&t->post);
    sl_added_set_free(&t->raw);
    sl_added_set_free(&t->normalized);
    for (size_t i = 0; i < t->added_count; i++) {
        sl_free(t->added[i].content);
        sl_free(t->added[i].pattern);
    }
    sl_free(t->added);
    sl_free(t->added_of);
    sl_free(t);
}

/* ---- Questions ---- */

int32_t sl_tokenizer_size(const sl_tokenizer *t)
{
    return (int32_t)t->vocab.size;
}

const char *sl_tokenizer_kind(const sl_tokenizer *t)
{
    if (t->model == SL_MODEL_WORDPIECE) return "WordPiece";
    if (t->bpe.byte_level) return "byte-level BPE";
    return t->bpe.byte_fallback ? "BPE with byte fallback" : "BPE on characters";
}

int32_t sl_tokenizer_find(const sl_tokenizer *t, const char *content, size_t bytes)
{
    uint32_t id = sl_vocab_find(&t->vocab, content, bytes);
    return id == SL_TOKEN_NONE ? -1 : (int32_t)id;
}

const char *sl_tokenizer_content(const sl_tokenizer *t, int32_t id, size_t *bytes)
{
    return id < 0 ? NULL : sl_vocab_content(&t->vocab, (uint32_t)id, bytes);
}

bool sl_tokenizer_is_special(const sl_tokenizer *t, int32_t id)
{
    return id >= 0 && (uint32_t)id < t->vocab.size && t->added_of[id] != 0 && t->added[t->added_of[id] - 1].special;
}

int32_t sl_tokenizer_end_of_text(const sl_tokenizer *t)
{
    static const char *const names[] = { "<|endoftext|>", "<|end_of_text|>",     "</s>",
                                         "<eos>",         "<|end▁of▁sentence|>", "[SEP]" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int32_t id = sl_tokenizer_find(t, names[i], strlen(names[i]));
        if (id >= 0) return id;
    }
    return -1;
}

/* A token that takes part in what stands on both sides of such a cut. */
static bool reaches_over_lines(const sl_added_token *a)
{
    char first = (char)(a->pattern[0] | 0x20);
    return memchr(a->pattern, '\n', a->pattern_bytes) != NULL || (a->lstrip && first >= 'a' && first <= 'z');
}

bool sl_tokenizer_cuts_at_lines(const sl_tokenizer *t)
{
    if (!sl_splitter_is_scanner(&t->splitter) || !sl_normalizer_is_form(&t->normalizer)) return false;
    for (size_t i = 0; i < t->added_count; i++)
        if (reaches_over_lines(&t->added[i])) return false;
    return true;
}

/* ---- Encoding ---- */

sluice_status sl_encoder_create(const sl_tokenizer *t, sl_encoder **out)
{
    sl_encoder *e = sl_alloc(sizeof *e, "encoder");
    if (e == NULL) return SLUICE_ERR_NO_MEMORY;
    e->tokenizer = t;
    e->cache = sl_alloc_array(SL_CACHE_ENTRIES, sizeof *e->cache, "cache of pieces");
    if (e->cache == NULL) {
        sl_free(e);
        return SLUICE_ERR_NO_MEMORY;
    }
    *out = e;
    return SLUICE_OK;
}

void sl_encoder_destroy(sl_encoder *e)
{
    if (e == NULL) return;
    sl_free(e->cache);
    for (int i = 0; i < 2; i++) sl_text_free(&e->buffers[i]);
    for (int i = 0; i < SL_TOKENIZER_MAX_STEPS; i++) sl_text_free(&e->changed[i]);
    sl_text_free(&e->word);
    sl_regex_work_free(&e->regex);
    sl_bpe_work_free(e->work);
    sl_free(e);
}

void sl_encoder_stop_on(sl_encoder *e, const int *stop)
{
    e->stop = stop;
}

static sluice_status compute_piece(sl_encoder *e, const char *piece, size_t bytes)
{
    return e->tokenizer->model == SL_MODEL_BPE ? sl_bpe_piece(e, piece, bytes) : sl_wordpiece_piece(e, piece, bytes);
}

static sluice_status cached_piece(sl_encoder *e, const char *piece, size_t bytes)
{
    SL_TRY(sl_stop_poll(e->stop, "tokenizing"));
    if (bytes > SL_CACHE_TEXT) return compute_piece(e, piece, bytes);
    sl_cache_entry *c = &e->cache[sl_token_hash(piece, bytes) % SL_CACHE_ENTRIES];
    SL_TRY(sl_ids_reserve(e->out, SL_CACHE_IDS));
    if (c->bytes == bytes && memcmp(c->text, piece, bytes) == 0) {
        memcpy(e->out->data + e->out->count, c->ids, sizeof c->ids); /* as many as there may be, in few moves */
        e->out->count += c->count;
        return SLUICE_OK;
    }
    size_t before = e->out->count;
    SL_TRY(compute_piece(e, piece, bytes));
    size_t count = e->out->count - before;
    if (count > SL_CACHE_IDS) return SLUICE_OK;
    c->bytes = (uint8_t)bytes;
    c->count = (uint8_t)count;
    memcpy(c->text, piece, bytes);
    memcpy(c->ids, e->out->data + before, count * sizeof *c->ids);
    return SLUICE_OK;
}

/* Cut before each space symbol that follows something else: the same ids (see words_apart), and words meet the cache. */
static sluice_status pieces_of_words(sl_encoder *e, const char *piece, size_t bytes)
{
    size_t begin = 0;
    bool after_space = true;
    for (size_t i = 0; i < bytes;) {
        bool space = piece[i] == '\xe2' && i + 2 < bytes && piece[i + 1] == '\x96' && piece[i + 2] == '\x81';
        if (space && !after_space) {
            SL_TRY(cached_piece(e, piece + begin, i - begin));
            begin = i;
        }
        after_space = space;
        i += space ? 3 : 1;
    }
    return begin < bytes ? cached_piece(e, piece + begin, bytes - begin) : SLUICE_OK;
}

sluice_status sl_model_piece(sl_encoder *e, const char *piece, size_t bytes)
{
    if (bytes == 0) return SLUICE_OK;
    return e->tokenizer->bpe.words_apart ? pieces_of_words(e, piece, bytes) : cached_piece(e, piece, bytes);
}

/* Text after normalising: the second kind of added tokens is cut out, the rest goes through the splitters. */
static sluice_status encode_normalized(sl_encoder *e, const char *text, size_t bytes, bool first, bool plain)
{
    const sl_tokenizer *t = e->tokenizer;
    sl_added_match m;
    size_t at = 0, taken = 0;
    while (sl_added_next(&t->normalized, t->properties, text, bytes, &at, taken, plain, &m)) {
        if (m.begin > taken) SL_TRY(sl_splitter_run(e, 0, text + taken, m.begin - taken, first && taken == 0));
        SL_TRY(sl_ids_add(e->out, (int32_t)m.token->id));
        taken = m.end;
    }
    return taken < bytes ? sl_splitter_run(e, 0, text + taken, bytes - taken, first && taken == 0) : SLUICE_OK;
}

static sluice_status encode_part(sl_encoder *e, const char *text, size_t bytes, bool first, bool plain)
{
    const sl_tokenizer *t = e->tokenizer;
    const char *normal;
    size_t normal_bytes;
    SL_TRY(sl_normalizer_run(&t->normalizer, t->properties, text, bytes, e->buffers, &normal, &normal_bytes));
    return encode_normalized(e, normal, normal_bytes, first, plain);
}

static sluice_status encode_text(sl_encoder *e, const char *text, size_t bytes, bool plain)
{
    const sl_tokenizer *t = e->tokenizer;
    sl_added_match m;
    size_t at = 0, taken = 0;
    while (sl_added_next(&t->raw, t->properties, text, bytes, &at, taken, plain, &m)) {
        if (m.begin > taken) SL_TRY(encode_part(e, text + taken, m.begin - taken, taken == 0, plain));
        SL_TRY(sl_ids_add(e->out, (int32_t)m.token->id));
        taken = m.end;
    }
    return taken < bytes ? encode_part(e, text + taken, bytes - taken, taken == 0, plain) : SLUICE_OK;
}

/* Whether it is UTF-8; most of most texts is ASCII, eight bytes at a time. */
static bool is_utf8(const char *text, size_t bytes, size_t *bad)
{
    for (size_t i = 0; i < bytes;) {
        uint64_t word;
        if (i + sizeof word <= bytes) {
            memcpy(&word, text + i, sizeof word);
            if ((word & UINT64_C(0x8080808080808080)) == 0) {
                i += sizeof word;
                continue;
            }
        }
        size_t length = sl_utf8_length(text + i, bytes - i);
        if (length == 0) {
            *bad = i;
            return false;
        }
        i += length;
    }
    return true;
}

static sluice_status add_all(sl_ids *out, const sl_ids *ids)
{
    SL_TRY(sl_ids_reserve(out, ids->count));
    if (ids->count > 0) memcpy(out->data + out->count, ids->data, ids->count * sizeof *ids->data);
    out->count += ids->count;
    return SLUICE_OK;
}

sluice_status sl_encode(sl_encoder *e, const char *text, size_t bytes, unsigned flags, sl_ids *out)
{
    size_t bad, before = out->count;
    if (bytes > SL_TOKENIZER_MAX_TEXT)
        return sl_fail(SLUICE_ERR_INPUT, "a text of %zu bytes is longer than can be tokenized in one piece (%d)", bytes,
                       (int)SL_TOKENIZER_MAX_TEXT);
    if (!is_utf8(text, bytes, &bad))
        return sl_fail(SLUICE_ERR_INPUT, "the text is not UTF-8: byte %zu is 0x%02x", bad, (unsigned char)text[bad]);
    e->out = out;
    e->regex.steps = sl_regex_steps(bytes);
    bool special = (flags & SL_ENCODE_ADD_SPECIAL) != 0;
    sluice_status st = special ? add_all(out, &e->tokenizer->post.before) : SLUICE_OK;
    if (st == SLUICE_OK) st = encode_text(e, text, bytes, (flags & SL_ENCODE_PLAIN) != 0);
    if (st == SLUICE_OK && special) st = add_all(out, &e->tokenizer->post.after);
    if (st != SLUICE_OK) out->count = before;
    return st;
}
