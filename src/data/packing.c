/* packing.c: best fit decreasing in time proportional to the documents. Rows with the same room left are a list; a bitmap of the
 * lists that are not empty, with a summary of its words, finds the least room that is enough. */
#include "data/packing.h"

#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "core/rng.h"
#include "data/source.h"

enum { WORD_BITS = 64 };

/* Rooms 0 .. capacity. */
typedef struct rooms {
    int64_t words, summary_words;
    uint64_t *bits, *summary; /* a bit for a list that is not empty; a bit for a word of those that is not 0 */
    int32_t *head;            /* newest row with that room, or -1 */
    int32_t *next;            /* of a row: the one before it in its list */
} rooms;

static void rooms_free(rooms *r)
{
    sl_free(r->bits);
    sl_free(r->summary);
    sl_free(r->head);
    sl_free(r->next);
}

static sluice_status rooms_make(int64_t capacity, int64_t rows, rooms *r)
{
    *r = (rooms){ .words = capacity / WORD_BITS + 1 };
    r->summary_words = r->words / WORD_BITS + 1;
    r->bits = sl_alloc_array((size_t)r->words, sizeof *r->bits, "rooms of rows");
    r->summary = sl_alloc_array((size_t)r->summary_words, sizeof *r->summary, "rooms of rows");
    r->head = sl_alloc_array((size_t)capacity + 1, sizeof *r->head, "rooms of rows");
    r->next = sl_alloc_array((size_t)rows, sizeof *r->next, "rooms of rows");
    if (r->bits == NULL || r->summary == NULL || r->head == NULL || r->next == NULL) {
        rooms_free(r);
        return SLUICE_ERR_NO_MEMORY;
    }
    memset(r->head, -1, ((size_t)capacity + 1) * sizeof *r->head);
    return SLUICE_OK;
}

static void rooms_put(rooms *r, int32_t row, int64_t room)
{
    r->next[row] = r->head[room];
    r->head[room] = row;
    r->bits[room / WORD_BITS] |= (uint64_t)1 << room % WORD_BITS;
    r->summary[room / WORD_BITS / WORD_BITS] |= (uint64_t)1 << room / WORD_BITS % WORD_BITS;
}

/* The first bit at or after `from` of `words` words; -1: none. */
static int64_t next_bit(const uint64_t *bits, int64_t words, int64_t from)
{
    for (int64_t w = from / WORD_BITS; w < words; w++) {
        uint64_t left = bits[w];
        if (w == from / WORD_BITS) left &= ~(uint64_t)0 << from % WORD_BITS;
        if (left != 0) return w * WORD_BITS + __builtin_ctzll(left);
    }
    return -1;
}

/* Takes out a row with the least room that is at least `need`; -1: there is none. */
static int32_t rooms_take(rooms *r, int64_t need, int64_t *room)
{
    int64_t word = need / WORD_BITS, found = next_bit(r->bits, word + 1, need);
    if (found < 0) {
        word = next_bit(r->summary, r->summary_words, word + 1);
        if (word < 0 || word >= r->words) return -1;
        found = next_bit(r->bits, word + 1, word * WORD_BITS);
    }
    int32_t row = r->head[found];
    r->head[found] = r->next[row];
    if (r->head[found] < 0) r->bits[found / WORD_BITS] &= ~((uint64_t)1 << found % WORD_BITS);
    if (r->bits[found / WORD_BITS] == 0)
        r->summary[found / WORD_BITS / WORD_BITS] &= ~((uint64_t)1 << found / WORD_BITS % WORD_BITS);
    *room = found;
    return row;
}

/* Fills p->sorted and p->class_of by counting. */
static sluice_status sort_by_length(sl_packed_rows *p, const int32_t *lengths, int64_t capacity)
{
    int64_t *begin = sl_alloc_array((size_t)capacity + 2, sizeof *begin, "counts of lengths");
    if (begin == NULL) return SLUICE_ERR_NO_MEMORY;
    /* begin[c] is where length capacity - c begins */
    for (int64_t i = 0; i < p->documents; i++) begin[capacity - lengths[i] + 1]++;
    for (int64_t c = 0; c <= capacity; c++) begin[c + 1] += begin[c];
    for (int64_t i = 0; i < p->documents; i++) p->sorted[begin[capacity - lengths[i]]++] = (int32_t)i;
    sl_free(begin);
    for (int64_t s = 0; s < p->documents; s++) {
        bool begins = s == 0 || lengths[p->sorted[s]] != lengths[p->sorted[s - 1]];
        p->class_of[s] = begins ? (int32_t)s : p->class_of[s - 1];
    }
    return SLUICE_OK;
}

/* row_of[s]: the row of the s-th document by length. */
static sluice_status choose_rows(sl_packed_rows *p, const int32_t *lengths, int64_t capacity, int32_t *row_of)
{
    rooms r;
    SL_TRY(rooms_make(capacity, p->documents, &r));
    for (int64_t s = 0; s < p->documents; s++) {
        int64_t length = lengths[p->sorted[s]], room = capacity;
        int32_t row = rooms_take(&r, length, &room);
        if (row < 0) {
            row = (int32_t)p->rows++;
            room = capacity;
        }
        row_of[s] = row;
        rooms_put(&r, row, room - length);
    }
    rooms_free(&r);
    return SLUICE_OK;
}

/* The slots of each row, in the order of p->sorted. */
static sluice_status collect_rows(sl_packed_rows *p, const int32_t *row_of)
{
    p->first = sl_alloc_array((size_t)p->rows + 1, sizeof *p->first, "rows of documents");
    if (p->first == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t s = 0; s < p->documents; s++) p->first[row_of[s] + 1]++;
    for (int64_t r = 0; r < p->rows; r++) p->first[r + 1] += p->first[r];
    for (int64_t s = 0; s < p->documents; s++) p->slots[p->first[row_of[s]]++] = (int32_t)s;
    for (int64_t r = p->rows; r > 0; r--) p->first[r] = p->first[r - 1];
    p->first[0] = 0;
    return SLUICE_OK;
}

static sluice_status pack(sl_packed_rows *p, const int32_t *lengths, int64_t capacity)
{
    p->slots = sl_alloc_array((size_t)p->documents, sizeof *p->slots, "rows of documents");
    p->sorted = sl_alloc_array((size_t)p->documents, sizeof *p->sorted, "rows of documents");
    p->class_of = sl_alloc_array((size_t)p->documents, sizeof *p->class_of, "rows of documents");
    if (p->slots == NULL || p->sorted == NULL || p->class_of == NULL) return SLUICE_ERR_NO_MEMORY;
    int32_t *row_of = sl_alloc_array((size_t)p->documents, sizeof *row_of, "rows of documents");
    if (row_of == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = sort_by_length(p, lengths, capacity);
    if (st == SLUICE_OK) st = choose_rows(p, lengths, capacity, row_of);
    if (st == SLUICE_OK) st = collect_rows(p, row_of);
    sl_free(row_of);
    return st;
}

sluice_status sl_packing_make(const int32_t *lengths, int64_t documents, int64_t capacity, bool packs,
                              sl_packed_rows *out)
{
    sl_packed_rows p = { .documents = documents, .packs = packs };
    if (documents > INT32_MAX)
        return sl_fail(SLUICE_ERR_INPUT, "%" PRId64 " documents; at most %d are packed", documents, INT32_MAX);
    if (!packs) {
        p.rows = documents;
        *out = p;
        return SLUICE_OK;
    }
    sluice_status st = pack(&p, lengths, capacity);
    if (st != SLUICE_OK) {
        sl_packing_free(&p);
        return st;
    }
    *out = p;
    return SLUICE_OK;
}

void sl_packing_free(sl_packed_rows *p)
{
    sl_free(p->first);
    sl_free(p->slots);
    sl_free(p->sorted);
    sl_free(p->class_of);
    *p = (sl_packed_rows){ .rows = 0 };
}

uint64_t sl_packing_bytes(const sl_packed_rows *p)
{
    if (!p->packs) return 0;
    return (uint64_t)p->documents * (sizeof *p->slots + sizeof *p->sorted + sizeof *p->class_of) +
           ((uint64_t)p->rows + 1) * sizeof *p->first;
}

int64_t sl_packing_row_documents(const sl_packed_rows *p, int64_t row)
{
    return p->packs ? p->first[row + 1] - p->first[row] : 1;
}

/* Places of the same length form a class that ends where the next one begins. */
static int64_t class_size(const sl_packed_rows *p, int64_t begin)
{
    int64_t low = begin, high = p->documents; /* class_of[low] == begin, and high is past it */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (p->class_of[middle] == begin)
            low = middle;
        else
            high = middle;
    }
    return high - begin;
}

int64_t sl_packing_document(const sl_packed_rows *p, int64_t row, int64_t k, uint64_t seed, bool shuffle,
                            uint64_t epoch)
{
    if (!p->packs) return row;
    int64_t place = p->slots[p->first[row] + k], begin = p->class_of[place];
    if (!shuffle) return p->sorted[place];
    sl_rng order = sl_rng_stream(seed, SL_RNG_SHUFFLE, epoch, (uint32_t)begin, SL_SHUFFLE_SLOTS);
    uint64_t chosen = sl_rng_permute(&order, (uint64_t)(place - begin), (uint64_t)class_size(p, begin));
    return p->sorted[begin + (int64_t)chosen];
}
