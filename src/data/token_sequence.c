#include "data/token_sequence.h"

#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/path_list.h"
#include "core/status.h"

/* Files that are open at a time: corpora have a thousand, and a process may have no more. */
enum { OPEN_FILES = 64 };

typedef struct part {
    sl_token_layout layout;
    int64_t first; /* of its tokens in the sequence */
    uint64_t bytes;
    int slot; /* among the open ones; -1: closed */
} part;

struct sl_token_sequence {
    sl_path_list paths; /* of the parts */
    part *parts;        /* owned */
    int64_t count;
    bool random;
    sl_file open[OPEN_FILES];
    int holder[OPEN_FILES]; /* the part that a slot belongs to; -1: none */
    int next;               /* slot that is taken next */
};

/* ---- files ---- */

static void close_slot(sl_token_sequence *s, int slot)
{
    if (s->holder[slot] < 0) return;
    sl_file_close(&s->open[slot]);
    s->parts[s->holder[slot]].slot = -1;
    s->holder[slot] = -1;
}

/* In the place of the file that was opened longest ago. */
static sluice_status open_part(sl_token_sequence *s, int i)
{
    int slot = s->next;
    s->next = (slot + 1) % OPEN_FILES;
    close_slot(s, slot);
    SL_TRY(sl_file_open(s->paths.paths[i], SL_READ, &s->open[slot]));
    s->holder[slot] = i;
    s->parts[i].slot = slot;
    if (s->random) sl_file_expect_random(&s->open[slot]);
    return SLUICE_OK;
}

static sluice_status file_of(sl_token_sequence *s, int i, sl_file **out)
{
    uint64_t bytes;
    if (s->parts[i].slot < 0) {
        SL_TRY(open_part(s, i));
        SL_TRY(sl_file_size(&s->open[s->parts[i].slot], &bytes));
        if (bytes != s->parts[i].bytes)
            return sl_fail(SLUICE_ERR_INPUT, "%s had %" PRIu64 " bytes when the run began, and has %" PRIu64 " now",
                           s->paths.paths[i], s->parts[i].bytes, bytes);
    }
    *out = &s->open[s->parts[i].slot];
    return SLUICE_OK;
}

static sluice_status read_layout(sl_token_sequence *s, int i, sl_token_type type)
{
    unsigned char head[SL_TOKEN_HEAD_BYTES];
    part *p = &s->parts[i];
    SL_TRY(open_part(s, i));
    sl_file *f = &s->open[p->slot];
    SL_TRY(sl_file_size(f, &p->bytes));
    size_t bytes = p->bytes < sizeof head ? (size_t)p->bytes : sizeof head;
    SL_TRY(sl_file_pread(f, head, bytes, 0));
    SL_TRY(sl_token_layout_read(s->paths.paths[i], head, bytes, p->bytes, type, &p->layout));
    p->first = s->count;
    s->count += (int64_t)p->layout.count; /* bytes of files: no sum of them reaches 2^63 */
    return SLUICE_OK;
}

static sluice_status open_all(const int *stop, sl_token_sequence *s, const char *pattern, sl_token_type type)
{
    SL_TRY(sl_path_expand(stop, pattern, &s->paths));
    s->parts = sl_alloc_array((size_t)s->paths.count, sizeof *s->parts, "token files");
    if (s->parts == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < s->paths.count; i++) s->parts[i].slot = -1;
    for (int i = 0; i < s->paths.count; i++) SL_TRY(read_layout(s, i, type));
    return SLUICE_OK;
}

sluice_status sl_token_sequence_open(const int *stop, const char *pattern, sl_token_type type, bool random,
                                     sl_token_sequence **out)
{
    sl_token_sequence *s = sl_alloc(sizeof *s, "token files");
    if (s == NULL) return SLUICE_ERR_NO_MEMORY;
    s->random = random;
    for (int i = 0; i < OPEN_FILES; i++) s->holder[i] = -1;
    sluice_status st = open_all(stop, s, pattern, type);
    if (st != SLUICE_OK) {
        sl_token_sequence_close(s);
        return st;
    }
    *out = s;
    return SLUICE_OK;
}

void sl_token_sequence_close(sl_token_sequence *s)
{
    if (s == NULL) return;
    for (int i = 0; i < OPEN_FILES; i++) close_slot(s, i);
    sl_free(s->parts);
    sl_path_list_free(&s->paths);
    sl_free(s);
}

uint64_t sl_token_sequence_memory(const sl_token_sequence *s)
{
    uint64_t bytes = sizeof *s;
    for (int i = 0; i < s->paths.count; i++)
        bytes += sizeof *s->parts + sizeof *s->paths.paths + strlen(s->paths.paths[i]) + 1;
    return bytes;
}

/* ---- tokens ---- */

int64_t sl_token_sequence_count(const sl_token_sequence *s)
{
    return s->count;
}

/* The part that has token `at`. */
static int part_of(const sl_token_sequence *s, int64_t at)
{
    int low = 0, high = s->paths.count - 1;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (s->parts[middle].first <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

const char *sl_token_sequence_place(const sl_token_sequence *s, int64_t at, int64_t *number)
{
    int i = part_of(s, at);
    *number = at - s->parts[i].first;
    return s->paths.paths[i];
}

/* Widens `count` little-endian ids at the end of the memory of `out`, from the first one on: none is overwritten before it
 * is read. */
static void widen(int width, int64_t count, int32_t *out)
{
    const unsigned char *narrow = (const unsigned char *)out + (size_t)count * (size_t)(4 - width);
    if (width == 1)
        for (int64_t i = 0; i < count; i++) out[i] = narrow[i];
    if (width == 2)
        for (int64_t i = 0; i < count; i++) {
            uint16_t id;
            memcpy(&id, narrow + 2 * i, sizeof id);
            out[i] = id;
        }
}

/* `count` tokens of one part, from its token `first` on. */
static sluice_status read_part(sl_token_sequence *s, int i, int64_t first, int64_t count, int32_t *out)
{
    const sl_token_layout *l = &s->parts[i].layout;
    sl_file *f;
    SL_TRY(file_of(s, i, &f));
    char *end = (char *)out + (size_t)count * (size_t)(4 - l->width);
    SL_TRY(sl_file_pread(f, end, (size_t)count * (size_t)l->width, l->offset + (uint64_t)first * (uint64_t)l->width));
    widen(l->width, count, out);
    return SLUICE_OK;
}

sluice_status sl_token_sequence_read(sl_token_sequence *s, int64_t first, int64_t count, int32_t *out)
{
    for (int i = part_of(s, first); count > 0; i++) {
        int64_t inside = first - s->parts[i].first, left = (int64_t)s->parts[i].layout.count - inside;
        int64_t n = count < left ? count : left;
        SL_TRY(read_part(s, i, inside, n, out));
        first += n;
        count -= n;
        out += n;
    }
    return SLUICE_OK;
}

sluice_status sl_token_sequence_match(const sl_token_sequence *tokens, const sl_token_sequence *mask)
{
    if (tokens->paths.count != mask->paths.count)
        return sl_fail(SLUICE_ERR_INPUT,
                       "there are %d files of tokens (%s, ...) and %d of masks (%s, ...); each needs its own",
                       tokens->paths.count, tokens->paths.paths[0], mask->paths.count, mask->paths.paths[0]);
    for (int i = 0; i < tokens->paths.count; i++)
        if (tokens->parts[i].layout.count != mask->parts[i].layout.count)
            return sl_fail(SLUICE_ERR_INPUT, "%s has a mask for %" PRIu64 " tokens, and %s has %" PRIu64,
                           mask->paths.paths[i], mask->parts[i].layout.count, tokens->paths.paths[i],
                           tokens->parts[i].layout.count);
    return SLUICE_OK;
}
