/* ranks.c: agreement between ranks, over the control calls of a communicator.
 *
 * A rank that fails alone would leave the others waiting for it. So whatever can fail on one rank only, before the
 * first step, is followed by an exchange of statuses, after which all ranks return the same failure; and where a rank
 * fails in the middle of a step, it says so to the others, who then stop at their next call. */
#include "machine/ranks.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/agree.h"
#include "core/alloc.h"
#include "core/io.h"
#include "core/sha256.h"

/* ---- who is here ---- */

void sl_ranks_host(char out[SL_HOST_BYTES])
{
    char name[64] = "", boot[48] = "";
    memset(out, 0, SL_HOST_BYTES);
    if (gethostname(name, sizeof name - 1) != 0) name[0] = '\0';
    sl_file_peek("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    snprintf(out, SL_HOST_BYTES, "%s %s", name, boot);
}

/* What ranks tell each other of where they run. */
typedef struct station {
    char host[SL_HOST_BYTES];
    sl_cpu_set cpus;
} station;

/* Counts the ranks of this machine; those that may run on the same CPUs share them out. */
static sluice_status find_place(sl_ranks *r)
{
    station mine = { .host = "" };
    int index = 0, sharers = 0;
    station *all = sl_alloc_array((size_t)r->count, sizeof *all, "machines of the ranks");
    if (all == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_ranks_host(mine.host);
    sl_cpu_set_allowed(&mine.cpus);
    all[0] = mine;
    sluice_status st = SLUICE_OK;
    if (r->count > 1) st = r->comm->ops->exchange(r->comm, "machines", &mine, sizeof mine, all);
    r->local = r->local_rank = 0;
    for (int i = 0; st == SLUICE_OK && i < r->count; i++) {
        bool here = memcmp(all[i].host, mine.host, SL_HOST_BYTES) == 0;
        bool same = here && memcmp(&all[i].cpus, &mine.cpus, sizeof mine.cpus) == 0;
        r->local += here;
        r->local_rank += here && i < r->rank;
        sharers += same;
        index += same && i < r->rank;
    }
    sl_free(all);
    if (st == SLUICE_OK) sl_rank_place_choose(r->rank, index, sharers, &r->place);
    return st;
}

sluice_status sl_ranks_open(sl_comm *world, sl_ranks *out)
{
    *out = (sl_ranks){ .comm = world, .owned = world == NULL };
    if (world == NULL) SL_TRY(sl_comm_self_open(&out->comm));
    out->rank = out->comm->ops->rank(out->comm);
    out->count = out->comm->ops->size(out->comm);
    return find_place(out);
}

void sl_ranks_close(sl_ranks *r)
{
    if (r->owned && r->comm != NULL) r->comm->ops->close(r->comm);
    r->comm = NULL;
}

/* ---- failing together ---- */

sluice_status sl_ranks_agree(sl_ranks *r, const char *what, sluice_status status)
{
    sl_agreement all;
    sluice_status st = sl_agree_in_part(r->comm, what, status, true, &all);
    if (all.shared) r->failed_everywhere = true;
    return st;
}

sluice_status sl_ranks_failed(sl_ranks *r, sluice_status status)
{
    char message[SL_MESSAGE_BYTES];
    if (r->comm == NULL || r->count == 1 || r->failed_everywhere || status == SLUICE_OK) return status;
    sl_error_copy(message);
    r->comm->ops->abort(r->comm, message);
    return sl_fail(status, "%s", message);
}

sluice_status sl_ranks_together(sl_ranks *r, sluice_status status)
{
    if (status != SLUICE_OK && status != SLUICE_ERR_RANK) r->failed_everywhere = true;
    return status;
}

/* ---- being the same ---- */

static size_t line_length(const char *text)
{
    return strcspn(text, "\n");
}

static const char *next_line(const char *text)
{
    size_t n = line_length(text);
    return text[n] == '\n' ? text + n + 1 : text + n;
}

/* Where the value begins in a line "key: value"; the line's end where it has no key. */
static size_t value_at(const char *line)
{
    size_t end = line_length(line);
    const char *colon = memchr(line, ':', end);
    return colon != NULL && (size_t)(colon - line) + 2 <= end ? (size_t)(colon - line) + 2 : end;
}

/* "key: rank 0 has 5, rank 1 has 6". */
static void describe_difference(const char *first, const char *mine, int rank, char *out, size_t bytes)
{
    while (*first != '\0' && line_length(first) == line_length(mine) && memcmp(first, mine, line_length(first)) == 0) {
        first = next_line(first);
        mine = next_line(mine);
    }
    size_t a = value_at(first), b = value_at(mine);
    bool same_key = a == b && memcmp(first, mine, a) == 0;
    if (!same_key) a = b = 0;
    snprintf(out, bytes, "%.*srank 0 has %.*s, rank %d has %.*s", (int)a, first,
             (int)(line_length(first + a) < 200 ? line_length(first + a) : 200), first + a, rank,
             (int)(line_length(mine + b) < 200 ? line_length(mine + b) : 200), mine + b);
}

/* Rank 0's text on every rank; *out is sl_alloc'ed. */
static sluice_status share_text(sl_ranks *r, const char *what, const char *text, char **out)
{
    uint64_t bytes = strlen(text) + 1;
    SL_TRY(r->comm->ops->broadcast(r->comm, what, 0, &bytes, sizeof bytes));
    char *shared = sl_alloc(bytes, "compared text");
    if (shared == NULL) return SLUICE_ERR_NO_MEMORY;
    if (r->rank == 0) memcpy(shared, text, bytes);
    sluice_status st = r->comm->ops->broadcast(r->comm, what, 0, shared, bytes);
    if (st != SLUICE_OK) {
        sl_free(shared);
        return st;
    }
    *out = shared;
    return SLUICE_OK;
}

/* All ranks know by now that the texts differ; those whose text is not rank 0's know where. */
static sluice_status fail_with_difference(sl_ranks *r, const char *what, const char *text)
{
    sluice_status st = SLUICE_OK;
    char *first, difference[1024];
    SL_TRY(share_text(r, what, text, &first));
    if (strcmp(first, text) != 0) {
        describe_difference(first, text, r->rank, difference, sizeof difference);
        st = sl_fail(SLUICE_ERR_RANK, "the ranks do not have the same %s: %s", what, difference);
    }
    sl_free(first);
    return sl_ranks_agree(r, what, st);
}

sluice_status sl_ranks_same(sl_ranks *r, const char *what, const char *text)
{
    sl_sha256 h;
    uint8_t mine[32];
    bool same = true;
    if (r->count == 1) return SLUICE_OK;
    uint8_t *all = sl_alloc_array((size_t)r->count, sizeof mine, "hashes of the ranks");
    if (all == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_sha256_init(&h);
    sl_sha256_update(&h, text, strlen(text));
    sl_sha256_final(&h, mine);
    sluice_status st = r->comm->ops->exchange(r->comm, what, mine, sizeof mine, all);
    for (int i = 1; i < r->count; i++) same = same && memcmp(all, all + (size_t)i * sizeof mine, sizeof mine) == 0;
    sl_free(all);
    return st != SLUICE_OK || same ? st : fail_with_difference(r, what, text);
}

sluice_status sl_ranks_least(sl_ranks *r, const char *what, uint64_t mine, uint64_t *least)
{
    *least = mine;
    if (r->count == 1) return SLUICE_OK;
    uint64_t *all = sl_alloc_array((size_t)r->count, sizeof *all, "values of the ranks");
    if (all == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = r->comm->ops->exchange(r->comm, what, &mine, sizeof mine, all);
    for (int i = 0; st == SLUICE_OK && i < r->count; i++)
        if (all[i] < *least) *least = all[i];
    sl_free(all);
    return st;
}
