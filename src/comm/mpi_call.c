/* mpi_call.c: see mpi_call.h. No MPI here: heads are plain data. */
#include "comm/mpi_call.h"

#include <stdio.h>
#include <string.h>

#include "core/hash.h"

static const char *const kind_names[SL_CALL_KIND_COUNT] = {
    [SL_GATHER] = "gather",          [SL_REDUCE_SCATTER] = "reduce-scatter", [SL_GATHER_NORM] = "norm gather",
    [SL_CALL_EXCHANGE] = "exchange", [SL_CALL_BROADCAST] = "broadcast",      [SL_CALL_COLLECT] = "collect",
    [SL_CALL_BARRIER] = "barrier",
};

sl_comm_call sl_comm_call_make(int kind, const char *name, uint64_t number, uint64_t bytes, uint64_t layout)
{
    sl_comm_call call;
    memset(&call, 0, sizeof call); /* every byte travels */
    call.number = number, call.bytes = bytes, call.layout = layout, call.kind = kind;
    call.name_hash = sl_hash_text(name);
    snprintf(call.name, sizeof call.name, "%s", name);
    return call;
}

static uint64_t hash_part(uint64_t hash, const sl_comm_part *part)
{
    const sl_shards *s = part->shards;
    const int64_t numbers[] = { s->rank_count,       s->elements,    s->block,   s->rounds,     part->per,
                                (int64_t)part->unit, part->in_place, part->form, part->sum_form };
    hash = sl_hash_bytes(hash, numbers, sizeof numbers);
    return sl_hash_bytes(hash, s->bounds, sizeof *s->bounds * (size_t)(s->rank_count + 1));
}

sl_comm_call sl_comm_call_of(const sl_collective *collective, uint64_t sequence, bool first)
{
    uint64_t bytes = 0, layout = sl_hash_number(SL_HASH_START, first);
    for (int i = 0; i < collective->part_count; i++) {
        bytes += collective->parts[i].whole.bytes;
        layout = hash_part(layout, &collective->parts[i]);
    }
    return sl_comm_call_make(collective->kind, collective->name, sequence, bytes, layout);
}

static const char *kind_name(const sl_comm_call *call)
{
    return call->kind >= 0 && call->kind < SL_CALL_KIND_COUNT ? kind_names[call->kind] : "unknown call";
}

static bool is_collective(const sl_comm_call *call)
{
    return call->kind <= SL_GATHER_NORM;
}

void sl_comm_call_title(const sl_comm_call *call, char *text, size_t text_bytes)
{
    if (is_collective(call))
        snprintf(text, text_bytes, "collective %llu, %.87s", (unsigned long long)call->number, call->name);
    else
        snprintf(text, text_bytes, "\"%.87s\"", call->name);
}

/* Title, kind and size: what a mismatch shows of each side. */
static void describe(const sl_comm_call *call, char *text, size_t text_bytes)
{
    char title[160];
    sl_comm_call_title(call, title, sizeof title);
    if (is_collective(call))
        snprintf(text, text_bytes, "%s (%s, %llu bytes)", title, kind_name(call), (unsigned long long)call->bytes);
    else
        snprintf(text, text_bytes, "%s (%s, call %llu, %llu bytes)", title, kind_name(call),
                 (unsigned long long)call->number, (unsigned long long)call->bytes);
}

bool sl_comm_call_same(const sl_comm_call *mine, int my_rank, const sl_comm_call *theirs, int their_rank, char *text,
                       size_t text_bytes)
{
    char here[256], there[256];
    if (memcmp(mine, theirs, sizeof *mine) == 0) return true;
    describe(mine, here, sizeof here);
    describe(theirs, there, sizeof there);
    if (strcmp(here, there) == 0)
        snprintf(
            text, text_bytes,
            "ranks %d and %d are both at %s but cut it differently or in other forms: they do not run the same job",
            my_rank, their_rank, here);
    else
        snprintf(text, text_bytes,
                 "rank %d is at %s, and rank %d at %s: the ranks do not run the same job, or one went another way",
                 my_rank, here, their_rank, there);
    return false;
}
