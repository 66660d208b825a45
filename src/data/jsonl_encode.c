/* jsonl_encode.c: samples as tokens, each with or without loss.
 *
 * The text of a conversation is encoded as transformers encodes it: as a whole. Where the loss begins and ends is known in bytes, so
 * the text is cut in front of special tokens, where a cut changes nothing, and within such a piece a place in the text is found
 * among the tokens by decoding them one after the other. Where that does not give the text back (a normaliser changed it, a space
 * was put in front), the piece is encoded up to the place instead: the tokens that both encodings begin with are the ones before it.
 * A token that reaches over the place carries loss. Ids are never compared with those of padding or the end of text to find out
 * what counts. */
#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "core/quote.h"
#include "data/jsonl.h"

/* Bytes that may be encoded again for one sample to find places, beyond a few times its length: a tokenizer that changes the text
 * and lacks the template's control tokens has no place to cut at, and then the cost grows with the square of the turns. */
#define MAX_REPEATED_BYTES ((size_t)256 << 20)
enum { MAX_SPECIAL_BYTES = 48 };

/* What the post-processor puts before and after a text. */
static sluice_status find_surroundings(sl_jsonl_encoder *e)
{
    sl_ids plain = { NULL, 0, 0 }, whole = { NULL, 0, 0 };
    sluice_status st = sl_encode(e->encoder, "a", 1, 0, &plain);
    if (st == SLUICE_OK) st = sl_encode(e->encoder, "a", 1, SL_ENCODE_ADD_SPECIAL, &whole);
    size_t before = 0;
    while (st == SLUICE_OK && before + plain.count < whole.count &&
           memcmp(whole.data + before, plain.data, plain.count * sizeof *plain.data) != 0)
        before++;
    for (size_t i = 0; st == SLUICE_OK && i < before; i++) st = sl_ids_add(&e->lead, whole.data[i]);
    for (size_t i = before + plain.count; st == SLUICE_OK && i < whole.count; i++)
        st = sl_ids_add(&e->trail, whole.data[i]);
    sl_ids_free(&plain);
    sl_ids_free(&whole);
    return st;
}

sluice_status sl_jsonl_encoder_make(const sl_jsonl_rules *rules, sl_jsonl_encoder *out)
{
    *out = (sl_jsonl_encoder){ .rules = rules };
    sluice_status st = sl_encoder_create(rules->tokenizer, &out->encoder);
    if (st == SLUICE_OK) st = sl_stream_decoder_create(rules->tokenizer, 0, &out->decoder);
    if (st == SLUICE_OK) st = find_surroundings(out);
    if (st != SLUICE_OK) sl_jsonl_encoder_free(out);
    return st;
}

void sl_jsonl_encoder_free(sl_jsonl_encoder *e)
{
    sl_encoder_destroy(e->encoder);
    sl_stream_decoder_destroy(e->decoder);
    sl_text_free(&e->decoded);
    sl_free(e->ends);
    sl_chat_text_free(&e->text);
    sl_chat_text_free(&e->prompt);
    sl_ids_free(&e->ids);
    sl_ids_free(&e->prefix);
    sl_ids_free(&e->lead);
    sl_ids_free(&e->trail);
    sl_free(e->tokens);
    *e = (sl_jsonl_encoder){ .rules = NULL };
}

/* ---- tokens of one sample ---- */

static sluice_status add_tokens(sl_jsonl_encoder *e, const int32_t *ids, size_t count, bool loss)
{
    if (e->count + (int64_t)count > e->capacity) {
        int64_t capacity = 2 * e->capacity + (int64_t)count + 256;
        sl_jsonl_token *tokens = sl_realloc(e->tokens, (size_t)e->count * sizeof *tokens,
                                            (size_t)capacity * sizeof *tokens, "tokens of a sample");
        if (tokens == NULL) return SLUICE_ERR_NO_MEMORY;
        e->tokens = tokens;
        e->capacity = capacity;
    }
    for (size_t i = 0; i < count; i++) e->tokens[e->count++] = sl_jsonl_token_of(ids[i], loss);
    return SLUICE_OK;
}

static size_t common_prefix(const sl_ids *a, const sl_ids *b)
{
    size_t n = 0;
    while (n < a->count && n < b->count && a->data[n] == b->data[n]) n++;
    return n;
}

/* Whether a special token begins there. */
static bool begins_special(const sl_tokenizer *t, const char *text, size_t left)
{
    size_t most = left < MAX_SPECIAL_BYTES ? left : MAX_SPECIAL_BYTES;
    if (left == 0 || strchr("<[|", text[0]) == NULL) return false;
    for (size_t n = 1; n <= most; n++) {
        int32_t id = sl_tokenizer_find(t, text, n);
        if (id >= 0 && sl_tokenizer_is_special(t, id)) return true;
    }
    return false;
}

/* Fills e->ends for e->ids; *exact: they decode to the piece, byte for byte. */
static sluice_status find_ends(sl_jsonl_encoder *e, const char *piece, size_t bytes, bool *exact)
{
    if (e->ids.count > e->end_capacity) {
        size_t capacity = 2 * e->ids.count;
        size_t *ends = sl_realloc(e->ends, 0, capacity * sizeof *ends, "places of tokens");
        if (ends == NULL) return SLUICE_ERR_NO_MEMORY;
        e->ends = ends;
        e->end_capacity = capacity;
    }
    e->decoded.bytes = 0;
    for (size_t i = 0; i < e->ids.count; i++) {
        SL_TRY(sl_stream_decoder_add(e->decoder, e->ids.data[i], &e->decoded));
        e->ends[i] = e->decoded.bytes;
    }
    SL_TRY(sl_stream_decoder_finish(e->decoder, &e->decoded));
    SL_TRY(sl_text_status(&e->decoded));
    *exact = e->decoded.bytes == bytes && (bytes == 0 || memcmp(e->decoded.data, piece, bytes) == 0);
    return SLUICE_OK;
}

/* The token that begins at byte `at` of the piece; where one reaches over it that one, or if loss ends there the next, so that it
 * has loss either way. By the ends of tokens. */
static size_t token_by_ends(const sl_jsonl_encoder *e, size_t at, bool ends)
{
    size_t low = 0, high = e->ids.count; /* the first token that ends at `at` or later */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (e->ends[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == e->ids.count) return low;
    return e->ends[low] == at || ends ? low + 1 : low;
}

/* The same by encoding the piece up to it. */
static sluice_status token_by_prefix(sl_jsonl_encoder *e, const char *piece, size_t at, bool ends, size_t *out)
{
    e->prefix.count = 0;
    SL_TRY(sl_encode(e->encoder, piece, at, 0, &e->prefix));
    size_t n = common_prefix(&e->prefix, &e->ids);
    bool reaches_over = n < e->prefix.count && n < e->ids.count;
    *out = n + (ends && reaches_over);
    return SLUICE_OK;
}

static sluice_status find_token(sl_jsonl_encoder *e, const char *piece, size_t at, bool ends, bool exact,
                                size_t *repeated, const char *where, size_t *out)
{
    if (exact) {
        *out = token_by_ends(e, at, ends);
        return SLUICE_OK;
    }
    if ((*repeated += at) > MAX_REPEATED_BYTES + 4 * e->text.text.bytes)
        return sl_fail(
            SLUICE_ERR_INPUT,
            "%s: a conversation too long for a tokenizer that lacks the control tokens of the chat template; "
            "split it, or give a data.template whose control tokens it has",
            where);
    return token_by_prefix(e, piece, at, ends, out);
}

static bool has_boundary(const sl_chat_text *t, int first, int last)
{
    for (int p = first + 1; p < last; p++)
        if (t->parts[p].loss != t->parts[first].loss) return true;
    return false;
}

/* Parts [first, last) of the text, which follow each other up to the next cut. */
static sluice_status add_piece(sl_jsonl_encoder *e, const sl_chat_text *t, int first, int last, size_t *repeated,
                               const char *where)
{
    size_t begin = t->parts[first].begin, bytes = t->parts[last - 1].end - begin, done = 0, next;
    const char *piece = t->text.data + begin;
    bool exact = false;
    e->ids.count = 0;
    SL_TRY(sl_encode(e->encoder, piece, bytes, 0, &e->ids));
    if (has_boundary(t, first, last)) SL_TRY(find_ends(e, piece, bytes, &exact));
    for (int p = first + 1; p < last; p++) {
        bool before = t->parts[p - 1].loss;
        if (t->parts[p].loss == before) continue;
        SL_TRY(find_token(e, piece, t->parts[p].begin - begin, before, exact, repeated, where, &next));
        if (next < done) next = done;
        SL_TRY(add_tokens(e, e->ids.data + done, next - done, before));
        done = next;
    }
    return add_tokens(e, e->ids.data + done, e->ids.count - done, t->parts[last - 1].loss);
}

static sluice_status add_text(sl_jsonl_encoder *e, const sl_chat_text *t, const char *where)
{
    size_t repeated = 0;
    int first = 0;
    for (int p = 1; p <= t->part_count; p++) {
        bool cuts = p == t->part_count ||
                    (!t->parts[p].content && begins_special(e->rules->tokenizer, t->text.data + t->parts[p].begin,
                                                            t->text.bytes - t->parts[p].begin));
        if (!cuts) continue;
        SL_TRY(add_piece(e, t, first, p, &repeated, where));
        first = p;
    }
    return SLUICE_OK;
}

/* ---- kinds of samples ---- */

/* Loss only after the prompt, as a model that continues it would see the text. */
static sluice_status keep_completion(sl_jsonl_encoder *e, const sl_jsonl_sample *s, const char *where)
{
    sl_chat_text *t = &e->text;
    SL_TRY(sl_chat_render(e->rules->chat, &e->rules->words, s->messages, s->prompt_messages, true, where, &e->prompt));
    size_t from = e->prompt.text.bytes;
    if (from > t->text.bytes || memcmp(e->prompt.text.data, t->text.data, from) != 0)
        return sl_fail(
            SLUICE_ERR_INPUT,
            "%s: the chat template \"%s\" writes the prompt in another way when a completion follows; give the "
            "conversation as \"messages\"",
            where, sl_chat_name(e->rules->chat));
    for (int p = 0; p < t->part_count; p++)
        if (t->parts[p].end <= from) t->parts[p].loss = false;
    for (int p = 0; p < t->part_count; p++) {
        sl_chat_part *part = &t->parts[p];
        if (part->begin >= from || part->end <= from || !part->loss) continue;
        /* the boundary lies in a part with loss: the part before it gives way, of which there is always one */
        part->begin = from;
        if (p > 0) t->parts[p - 1].end = from;
    }
    return SLUICE_OK;
}

static sluice_status encode_conversation(sl_jsonl_encoder *e, const sl_jsonl_sample *s, const char *where)
{
    const sl_jsonl_rules *r = e->rules;
    SL_TRY(sl_chat_render(r->chat, &r->words, s->messages, s->message_count, false, where, &e->text));
    e->system_dropped = e->text.system_dropped;
    if (s->prompt_messages > 0) SL_TRY(keep_completion(e, s, where));
    if (sl_chat_adds_special(r->chat)) SL_TRY(add_tokens(e, e->lead.data, e->lead.count, false));
    return add_text(e, &e->text, where);
}

/* Text that has no template: what the post-processor puts in front, the text, and the end of text. */
static sluice_status encode_plain(sl_jsonl_encoder *e, const sl_jsonl_sample *s)
{
    const sl_jsonl_rules *r = e->rules;
    sl_text *joined = &e->text.text;
    joined->bytes = 0;
    sl_text_add_bytes(joined, s->prompt.text, s->prompt.bytes);
    sl_text_add_bytes(joined, s->completion.text, s->completion.bytes);
    SL_TRY(sl_text_status(joined));
    e->ids.count = e->prefix.count = 0;
    SL_TRY(sl_encode(e->encoder, joined->data, joined->bytes, 0, &e->ids));
    if (s->prompt.bytes > 0) SL_TRY(sl_encode(e->encoder, s->prompt.text, s->prompt.bytes, 0, &e->prefix));
    size_t from = common_prefix(&e->prefix, &e->ids);
    SL_TRY(add_tokens(e, e->lead.data, e->lead.count, false));
    SL_TRY(add_tokens(e, e->ids.data, from, false));
    SL_TRY(add_tokens(e, e->ids.data + from, e->ids.count - from, true));
    if (r->eos < 0 || (e->count > 0 && sl_jsonl_id(e->tokens[e->count - 1]) == r->eos)) return SLUICE_OK;
    return add_tokens(e, &r->eos, 1, true);
}

/* ---- what all of them pass ---- */

static sluice_status check_ids(const sl_jsonl_encoder *e, const char *where)
{
    const sl_jsonl_rules *r = e->rules;
    for (int64_t i = 0; r->vocabulary > 0 && i < e->count; i++) {
        int32_t id = sl_jsonl_id(e->tokens[i]);
        if (id < r->vocabulary) continue;
        size_t bytes;
        const char *content = sl_tokenizer_content(r->tokenizer, id, &bytes);
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: token %" PRId32 " (%s) is beyond the model's vocabulary of %" PRId64
                       ": the tokenizer has tokens that the model was not given rows for",
                       where, id, sl_quote(content != NULL ? content : "").text, r->vocabulary);
    }
    return SLUICE_OK;
}

static void truncate_tokens(sl_jsonl_encoder *e)
{
    int64_t most = e->rules->most;
    if (e->count <= most) return;
    if (e->rules->truncate == SL_TRUNCATE_START)
        memmove(e->tokens, e->tokens + (e->count - most), (size_t)most * sizeof *e->tokens);
    if (e->rules->truncate != SL_TRUNCATE_DROP) e->count = most;
}

static void count_targets(sl_jsonl_encoder *e)
{
    if (e->rules->loss_on_all)
        for (int64_t i = 0; i < e->count; i++) e->tokens[i] |= 1;
    e->targets = 0;
    for (int64_t i = 1; i < e->count; i++) e->targets += sl_jsonl_loss(e->tokens[i]);
}

sluice_status sl_jsonl_encode(sl_jsonl_encoder *e, const sl_jsonl_sample *s, const char *where)
{
    e->count = 0;
    e->system_dropped = false;
    SL_TRY(s->plain ? encode_plain(e, s) : encode_conversation(e, s, where));
    SL_TRY(check_ids(e, where));
    e->whole_count = e->count;
    if (e->count > e->rules->most && e->rules->truncate == SL_TRUNCATE_REFUSE)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: a sample of %" PRId64 " tokens, and a context of %" PRId64 " takes %" PRId64
                       "; let data.truncate cut or drop it, or raise the context",
                       where, e->count, e->rules->most - 1, e->rules->most);
    truncate_tokens(e);
    count_targets(e);
    return SLUICE_OK;
}
