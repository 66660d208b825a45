/* tokenizer_bpe.c: byte-pair encoding of one piece.
 *
 * A piece is a row of units (bytes or characters) that are merged pair by pair: always the pair of the lowest rank, the
 * leftmost of equals. Short pieces look for it each time. Long ones keep every pair that can merge in a queue by (rank, place)
 * with stale entries, which a check against the row drops: a list for each rank as long as places come in ascending order,
 * which is the rule, and a heap for the rest. So a piece of 100 MB takes the time of as many short ones. */
#include <string.h>

#include "core/alloc.h"
#include "core/stop.h"
#include "format/tokenizer_parts.h"

enum { SHORT_UNITS = 48 };

static uint32_t merge_slot(const sl_bpe *b, uint64_t pair)
{
    return (uint32_t)((pair * UINT64_C(0x9e3779b97f4a7c15)) >> 32 ^ pair * UINT64_C(0xc2b2ae3d27d4eb4f) >> 40) &
           b->slot_mask;
}

/* The rank of the merge of two tokens, or SL_TOKEN_NONE. */
static inline uint32_t pair_rank(const sl_bpe *b, uint32_t left, uint32_t right)
{
    uint64_t pair = (uint64_t)left << 32 | right;
    for (uint32_t i = merge_slot(b, pair);; i = (i + 1) & b->slot_mask) {
        if (b->slots[i].pair == pair) return b->slots[i].rank;
        if (b->slots[i].pair == UINT64_MAX) return SL_TOKEN_NONE;
    }
}

/* ---- Preparation ---- */

static sluice_status index_merges(sl_bpe *b)
{
    uint32_t count = 16;
    while (count < 2 * b->merge_count) count *= 2;
    b->slots = sl_alloc_array(count, sizeof *b->slots, "index of merges");
    if (b->slots == NULL) return SLUICE_ERR_NO_MEMORY;
    memset(b->slots, 0xff, count * sizeof *b->slots);
    b->slot_mask = count - 1;
    for (uint32_t rank = 0; rank < b->merge_count; rank++) {
        uint64_t pair = (uint64_t)b->merges[rank].left << 32 | b->merges[rank].right;
        uint32_t i = merge_slot(b, pair);
        while (b->slots[i].pair != UINT64_MAX && b->slots[i].pair != pair) i = (i + 1) & b->slot_mask;
        b->slots[i] = (sl_merge_slot){ pair, rank }; /* of a pair that is named twice the later one counts */
    }
    return SLUICE_OK;
}

static void find_units(sl_bpe *b, const sl_vocab *v)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        size_t bytes = sl_put_code_point(b->byte_level ? sl_byte_character(byte) : byte, text);
        b->unit[byte] = b->byte_level || byte < 128 ? sl_vocab_find(v, text, bytes) : SL_TOKEN_NONE;
        static const char digits[] = "0123456789ABCDEF";
        char spelt[6] = { '<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>' };
        b->fallback[byte] = sl_vocab_find(v, spelt, sizeof spelt);
    }
}

#define SPACE_SYMBOL       "\xe2\x96\x81" /* U+2581 */
#define SPACE_SYMBOL_BYTES 3

static bool begins_with_space(const sl_vocab *v, uint32_t id)
{
    size_t bytes;
    const char *text = sl_vocab_content(v, id, &bytes);
    return bytes >= SPACE_SYMBOL_BYTES && memcmp(text, SPACE_SYMBOL, SPACE_SYMBOL_BYTES) == 0;
}

static bool ends_with_space(const sl_vocab *v, uint32_t id)
{
    size_t bytes;
    const char *text = sl_vocab_content(v, id, &bytes);
    return bytes >= SPACE_SYMBOL_BYTES &&
           memcmp(text + bytes - SPACE_SYMBOL_BYTES, SPACE_SYMBOL, SPACE_SYMBOL_BYTES) == 0;
}

/* Whether a text may be cut before every space symbol that follows another character, without changing an id: no merge
 * reaches over such a place, and an unknown character before it is not joined to one after it. */
static bool words_are_apart(const sl_bpe *b, const sl_vocab *v)
{
    if (b->byte_level || b->ignore_merges) return false;
    if (sl_vocab_find(v, SPACE_SYMBOL, SPACE_SYMBOL_BYTES) == SL_TOKEN_NONE) return false;
    for (uint32_t i = 0; i < b->merge_count; i++)
        if (begins_with_space(v, b->merges[i].right) && !ends_with_space(v, b->merges[i].left)) return false;
    return true;
}

sluice_status sl_bpe_prepare(sl_bpe *b, const sl_vocab *v)
{
    SL_TRY(index_merges(b));
    find_units(b, v);
    b->words_apart = words_are_apart(b, v);
    return SLUICE_OK;
}

void sl_bpe_free(sl_bpe *b)
{
    sl_free(b->merges);
    sl_free(b->slots);
    *b = (sl_bpe){ 0 };
}

/* ---- Units ---- */

typedef struct unit_row {
    uint32_t *ids; /* room for as many as the piece has bytes */
    size_t count;
    bool unknown_waits; /* an unknown token that goes behind what byte fallback adds, as in the reference */
} unit_row;

static bool fall_back_to_bytes(const sl_bpe *b, const char *text, size_t bytes, unit_row *row)
{
    for (size_t i = 0; i < bytes; i++)
        if (b->fallback[(unsigned char)text[i]] == SL_TOKEN_NONE) return false;
    for (size_t i = 0; i < bytes; i++) row->ids[row->count++] = b->fallback[(unsigned char)text[i]];
    return true;
}

static void add_character(const sl_bpe *b, const sl_vocab *v, const char *text, size_t bytes, unit_row *row)
{
    uint32_t id = bytes == 1 ? b->unit[(unsigned char)text[0]] : sl_vocab_find(v, text, bytes);
    if (id != SL_TOKEN_NONE) {
        if (row->unknown_waits) row->ids[row->count++] = b->unknown;
        row->unknown_waits = false;
        row->ids[row->count++] = id;
        return;
    }
    if (b->byte_fallback && fall_back_to_bytes(b, text, bytes, row)) return;
    if (b->unknown == SL_TOKEN_NONE) return; /* dropped: its neighbours can merge */
    if (row->unknown_waits && !b->fuse_unknown) row->ids[row->count++] = b->unknown;
    row->unknown_waits = true;
}

static size_t make_units(const sl_bpe *b, const sl_vocab *v, const char *piece, size_t bytes, uint32_t *ids)
{
    unit_row row = { ids, 0, false };
    for (size_t i = 0, length; i < bytes; i += length) {
        if (b->byte_level) {
            length = 1;
            if (b->unit[(unsigned char)piece[i]] != SL_TOKEN_NONE) {
                if (row.unknown_waits) row.ids[row.count++] = b->unknown;
                row.unknown_waits = false;
                row.ids[row.count++] = b->unit[(unsigned char)piece[i]];
            } else if (b->unknown != SL_TOKEN_NONE) {
                if (row.unknown_waits && !b->fuse_unknown) row.ids[row.count++] = b->unknown;
                row.unknown_waits = true;
            }
            continue;
        }
        sl_code_point(piece + i, &length);
        add_character(b, v, piece + i, length, &row);
    }
    if (row.unknown_waits) row.ids[row.count++] = b->unknown;
    return row.count;
}

/* ---- Short pieces ---- */

static size_t lowest(const uint32_t *ranks, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (ranks[i] < ranks[best]) best = i;
    return best;
}

static size_t merge_short(const sl_bpe *b, uint32_t *ids, size_t count)
{
    uint32_t ranks[SHORT_UNITS]; /* of the pairs that begin at each unit */
    if (count < 2) return count;
    for (size_t i = 0; i + 1 < count; i++) ranks[i] = pair_rank(b, ids[i], ids[i + 1]);
    while (count > 1) {
        size_t i = lowest(ranks, count - 1);
        if (ranks[i] == SL_TOKEN_NONE) break;
        ids[i] = b->merges[ranks[i]].joined;
        memmove(ids + i + 1, ids + i + 2, (count - i - 2) * sizeof *ids);
        if (i + 2 < count) memmove(ranks + i, ranks + i + 1, (count - i - 2) * sizeof *ranks);
        count--;
        if (i + 1 < count) ranks[i] = pair_rank(b, ids[i], ids[i + 1]);
        if (i > 0) ranks[i - 1] = pair_rank(b, ids[i - 1], ids[i]);
    }
    return count;
}

/* ---- Long pieces: the queue ---- */

/* Places of one rank, in ascending order, in chunks of a cache line. */
enum { CHUNK_PLACES = 14, BITMAP_LEVELS = 4, BITMAP_BITS = 6 };
typedef struct place_chunk {
    uint32_t next; /* chunk; 0: none */
    uint16_t begin, end;
    uint32_t places[CHUNK_PLACES];
} place_chunk;
typedef struct place_list {
    uint32_t first, last; /* chunks; 0: none */
} place_list;

/* The row: a token of n units has its id in the first of its n cells, SL_TOKEN_NONE in the others, and n in the first and
 * the last of them, so that both neighbours are found. */
struct sl_bpe_work {
    uint32_t *ids, *lengths;
    size_t capacity;
    place_list *lists; /* by rank */
    place_chunk *chunks;
    uint32_t chunk_count, chunk_capacity, free_chunk; /* chunk 0 is not used */
    uint64_t *bits[BITMAP_LEVELS]; /* ranks whose list is not empty, words of the level below that are not 0 */
    uint64_t *heap;                /* rank << 32 | place */
    size_t heap_count, heap_capacity;
};

static void empty_queue(sl_bpe_work *w)
{
    sl_free(w->lists);
    sl_free(w->chunks);
    for (int i = 0; i < BITMAP_LEVELS; i++) sl_free(w->bits[i]);
    sl_free(w->heap);
    uint32_t *ids = w->ids, *lengths = w->lengths;
    *w = (sl_bpe_work){ .ids = ids, .lengths = lengths, .capacity = w->capacity };
}

void sl_bpe_work_free(sl_bpe_work *w)
{
    if (w == NULL) return;
    empty_queue(w);
    sl_free(w->ids);
    sl_free(w->lengths);
    sl_free(w);
}

static sluice_status make_queue(sl_bpe_work *w, uint32_t ranks)
{
    w->lists = sl_alloc_array((size_t)ranks + 1, sizeof *w->lists, "queue of merges");
    if (w->lists == NULL) return SLUICE_ERR_NO_MEMORY;
    size_t words = ranks;
    for (int i = 0; i < BITMAP_LEVELS; i++) {
        words = (words >> BITMAP_BITS) + 1;
        w->bits[i] = sl_alloc_array(words, sizeof *w->bits[i], "queue of merges");
        if (w->bits[i] == NULL) return SLUICE_ERR_NO_MEMORY;
    }
    return SLUICE_OK;
}

static void mark_rank(sl_bpe_work *w, uint32_t rank)
{
    for (int i = 0; i < BITMAP_LEVELS; i++, rank >>= BITMAP_BITS) {
        uint64_t *word = &w->bits[i][rank >> BITMAP_BITS];
        bool marked = *word != 0;
        *word |= UINT64_C(1) << (rank & 63);
        if (marked) return;
    }
}

static void unmark_rank(sl_bpe_work *w, uint32_t rank)
{
    for (int i = 0; i < BITMAP_LEVELS; i++, rank >>= BITMAP_BITS) {
        uint64_t *word = &w->bits[i][rank >> BITMAP_BITS];
        *word &= ~(UINT64_C(1) << (rank & 63));
        if (*word != 0) return;
    }
}

/* The lowest rank that has places in its list, or SL_TOKEN_NONE. */
static uint32_t lowest_rank(const sl_bpe_work *w)
{
    uint32_t rank = 0;
    if (w->bits[BITMAP_LEVELS - 1][0] == 0) return SL_TOKEN_NONE;
    for (int i = BITMAP_LEVELS - 1; i >= 0; i--)
        rank = rank << BITMAP_BITS | (uint32_t)__builtin_ctzll(w->bits[i][rank]);
    return rank;
}

static uint32_t new_chunk(sl_bpe_work *w)
{
    uint32_t chunk = w->free_chunk;
    if (chunk != 0) {
        w->free_chunk = w->chunks[chunk].next;
    } else {
        if (w->chunk_count >= w->chunk_capacity) {
            uint32_t capacity = w->chunk_capacity == 0 ? 256 : 2 * w->chunk_capacity;
            place_chunk *chunks = sl_realloc(w->chunks, w->chunk_capacity * sizeof *chunks,
                                             (size_t)capacity * sizeof *chunks, "queue of merges");
            if (chunks == NULL) return 0;
            w->chunks = chunks;
            w->chunk_capacity = capacity;
            if (w->chunk_count == 0) w->chunk_count = 1;
        }
        chunk = w->chunk_count++;
    }
    w->chunks[chunk].next = 0;
    w->chunks[chunk].begin = w->chunks[chunk].end = 0;
    return chunk;
}

static sluice_status heap_push(sl_bpe_work *w, uint64_t key)
{
    if (w->heap_count == w->heap_capacity) {
        size_t capacity = w->heap_capacity == 0 ? 1024 : 2 * w->heap_capacity;
        uint64_t *heap =
            sl_realloc(w->heap, w->heap_capacity * sizeof *heap, capacity * sizeof *heap, "queue of merges");
        if (heap == NULL) return SLUICE_ERR_NO_MEMORY;
        w->heap = heap;
        w->heap_capacity = capacity;
    }
    size_t at = w->heap_count++;
    for (; at > 0 && w->heap[(at - 1) / 2] > key; at = (at - 1) / 2) w->heap[at] = w->heap[(at - 1) / 2];
    w->heap[at] = key;
    return SLUICE_OK;
}

static uint64_t heap_pop(sl_bpe_work *w)
{
    uint64_t top = w->heap[0], moved = w->heap[--w->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < w->heap_count; at = child) {
        if (child + 1 < w->heap_count && w->heap[child + 1] < w->heap[child]) child++;
        if (w->heap[child] >= moved) break;
        w->heap[at] = w->heap[child];
    }
    w->heap[at] = moved;
    return top;
}

static sluice_status queue_push(sl_bpe_work *w, uint32_t rank, uint32_t place)
{
    place_list *list = &w->lists[rank];
    place_chunk *last =
        list->last != 0 ? &w->chunks[list->last] : NULL; /* before the first one there may be no array */
    if (last != NULL && last->places[last->end - 1] > place) return heap_push(w, (uint64_t)rank << 32 | place);
    if (last == NULL || last->end == CHUNK_PLACES) {
        uint32_t chunk = new_chunk(w);
        if (chunk == 0) return SLUICE_ERR_NO_MEMORY;
        if (last == NULL) {
            list->first = chunk;
            mark_rank(w, rank);
        } else {
            w->chunks[list->last].next = chunk;
        }
        list->last = chunk;
        last = &w->chunks[chunk];
    }
    last->places[last->end++] = place;
    return SLUICE_OK;
}

/* Takes the lowest (rank, place) out. False: there is none. */
static bool queue_pop(sl_bpe_work *w, uint32_t *rank, uint32_t *place)
{
    uint32_t r = lowest_rank(w);
    if (r == SL_TOKEN_NONE && w->heap_count == 0) return false;
    place_chunk *chunk = r == SL_TOKEN_NONE ? NULL : &w->chunks[w->lists[r].first];
    if (chunk == NULL || (w->heap_count > 0 && w->heap[0] < ((uint64_t)r << 32 | chunk->places[chunk->begin]))) {
        uint64_t key = heap_pop(w);
        *rank = (uint32_t)(key >> 32);
        *place = (uint32_t)key;
        return true;
    }
    *rank = r;
    *place = chunk->places[chunk->begin++];
    if (chunk->begin < chunk->end) return true;
    uint32_t emptied = w->lists[r].first, next = chunk->next;
    chunk->next = w->free_chunk;
    w->free_chunk = emptied;
    w->lists[r].first = next;
    if (next == 0) {
        w->lists[r].last = 0;
        unmark_rank(w, r);
    }
    return true;
}

/* ---- Long pieces: the row ---- */

static sluice_status push_pair(const sl_bpe *b, sl_bpe_work *w, size_t left, size_t right)
{
    uint32_t rank = pair_rank(b, w->ids[left], w->ids[right]);
    return rank == SL_TOKEN_NONE ? SLUICE_OK : queue_push(w, rank, (uint32_t)left);
}

/* Merges the pair that begins at `place`, unless it is another one by now. */
static sluice_status merge_at(const sl_bpe *b, sl_bpe_work *w, size_t count, uint32_t rank, size_t place)
{
    const sl_merge *m = &b->merges[rank];
    if (w->ids[place] != m->left) return SLUICE_OK;
    size_t right = place + w->lengths[place];
    if (right >= count || w->ids[right] != m->right) return SLUICE_OK;
    uint32_t length = w->lengths[place] + w->lengths[right];
    w->ids[right] = SL_TOKEN_NONE;
    w->ids[place] = m->joined;
    w->lengths[place] = w->lengths[place + length - 1] = length;
    if (place > 0) SL_TRY(push_pair(b, w, place - w->lengths[place - 1], place));
    return place + length < count ? push_pair(b, w, place, place + length) : SLUICE_OK;
}

static sluice_status merge_long(const int *stop, const sl_bpe *b, sl_bpe_work *w, size_t count)
{
    uint32_t rank, place;
    for (size_t i = 0; i < count; i++) w->lengths[i] = 1;
    for (size_t i = 0; i + 1 < count; i++) SL_TRY(push_pair(b, w, i, i + 1));
    while (queue_pop(w, &rank, &place)) {
        SL_TRY(sl_stop_poll(stop, "tokenizing"));
        SL_TRY(merge_at(b, w, count, rank, place));
    }
    return SLUICE_OK;
}

static sluice_status make_room(sl_encoder *e, size_t bytes)
{
    if (e->work == NULL) e->work = sl_alloc(sizeof *e->work, "work of a tokenizer");
    sl_bpe_work *w = e->work;
    if (w == NULL) return SLUICE_ERR_NO_MEMORY;
    if (w->lists == NULL) {
        sluice_status st = make_queue(w, e->tokenizer->bpe.merge_count);
        if (st != SLUICE_OK) {
            empty_queue(w);
            return st;
        }
    }
    if (w->capacity >= bytes) return SLUICE_OK;
    sl_free(w->ids);
    sl_free(w->lengths);
    w->capacity = 0;
    w->ids = sl_alloc_array(bytes, sizeof *w->ids, "units of a piece");
    w->lengths = sl_alloc_array(bytes, sizeof *w->lengths, "units of a piece");
    if (w->ids == NULL || w->lengths == NULL) return SLUICE_ERR_NO_MEMORY;
    w->capacity = bytes;
    return SLUICE_OK;
}

static sluice_status long_piece(sl_encoder *e, const char *piece, size_t bytes)
{
    const sl_tokenizer *t = e->tokenizer;
    SL_TRY(make_room(e, bytes));
    sl_bpe_work *w = e->work;
    size_t count = make_units(&t->bpe, &t->vocab, piece, bytes, w->ids);
    sluice_status st = merge_long(e->stop, &t->bpe, w, count);
    if (st != SLUICE_OK) {
        empty_queue(w);
        return st;
    }
    size_t tokens = 0;
    for (size_t i = 0; i < count; i += w->lengths[i]) tokens++;
    SL_TRY(sl_ids_reserve(e->out, tokens));
    for (size_t i = 0; i < count; i += w->lengths[i]) e->out->data[e->out->count++] = (int32_t)w->ids[i];
    return SLUICE_OK;
}

/* The token that is the whole piece, or SL_TOKEN_NONE. */
static uint32_t whole_piece(sl_encoder *e, const char *piece, size_t bytes)
{
    const sl_vocab *v = &e->tokenizer->vocab;
    if (bytes > v->longest) return SL_TOKEN_NONE;
    if (!e->tokenizer->bpe.byte_level) return sl_vocab_find(v, piece, bytes);
    e->word.bytes = 0;
    for (size_t i = 0; i < bytes; i++) {
        char text[4];
        sl_text_add_bytes(&e->word, text, sl_put_code_point(sl_byte_character((unsigned char)piece[i]), text));
    }
    return e->word.failed ? SL_TOKEN_NONE : sl_vocab_find(v, e->word.data, e->word.bytes);
}

sluice_status sl_bpe_piece(sl_encoder *e, const char *piece, size_t bytes)
{
    const sl_tokenizer *t = e->tokenizer;
    if (t->bpe.ignore_merges) {
        uint32_t whole = whole_piece(e, piece, bytes);
        SL_TRY(sl_text_status(&e->word));
        if (whole != SL_TOKEN_NONE) return sl_ids_add(e->out, (int32_t)whole);
    }
    if (bytes > SHORT_UNITS) return long_piece(e, piece, bytes);
    uint32_t ids[SHORT_UNITS];
    size_t count = merge_short(&t->bpe, ids, make_units(&t->bpe, &t->vocab, piece, bytes, ids));
    SL_TRY(sl_ids_reserve(e->out, count));
    for (size_t i = 0; i < count; i++) e->out->data[e->out->count++] = (int32_t)ids[i];
    return SLUICE_OK;
}
