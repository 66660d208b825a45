/* tenants.c: tenants.h. */
#include "plan/tenants.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "plan/passes.h"

/* An end of a buffer; qsort has no context argument, so that the keys travel with the entries. */
typedef struct edge {
    uint64_t at;
    sl_tier tier;
    int *part; /* begin or end of the buffer */
} edge;

static int by_place(const void *a, const void *b)
{
    const edge *x = a, *y = b;
    if (x->tier != y->tier) return x->tier < y->tier ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Numbers the parts between edges, tier after tier. */
static void number_parts(sl_tenants *t, const sl_plan *p, edge *edges)
{
    int count = 0;
    for (int i = 0; i < p->buffer_count; i++) {
        const sl_buffer *b = &p->buffers[i];
        t->begin[i] = t->end[i] = 0;
        if (b->permanent || !sl_buffer_takes_room(b)) continue;
        edges[count++] = (edge){ b->offset, b->tier, &t->begin[i] };
        edges[count++] = (edge){ b->offset + b->bytes, b->tier, &t->end[i] };
    }
    qsort(edges, (size_t)count, sizeof *edges, by_place);
    for (int i = 0; i < count; i++) {
        bool same = i > 0 && edges[i].tier == edges[i - 1].tier && edges[i].at == edges[i - 1].at;
        if (i > 0 && !same) t->part_count++;
        *edges[i].part = t->part_count;
    }
    t->part_count++;
}

sluice_status sl_tenants_create(sl_tenants *t, const sl_plan *p)
{
    size_t buffers = (size_t)p->buffer_count + 1;
    *t = (sl_tenants){ .part_count = 0 };
    t->begin = sl_alloc_array(buffers, sizeof *t->begin, "plan: bytes of buffers");
    t->end = sl_alloc_array(buffers, sizeof *t->end, "plan: bytes of buffers");
    edge *edges = sl_alloc_array(2 * buffers, sizeof *edges, "plan: ends of buffers");
    sluice_status st = t->begin != NULL && t->end != NULL && edges != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    if (st == SLUICE_OK) number_parts(t, p, edges);
    sl_free(edges);
    SL_TRY(st);
    t->tenant = sl_alloc_array((size_t)t->part_count, sizeof *t->tenant, "plan: users of bytes");
    if (t->tenant == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(sl_marks_create(&t->lots, t->part_count));
    sl_tenants_move_out(t);
    return SLUICE_OK;
}

void sl_tenants_destroy(sl_tenants *t)
{
    sl_free(t->begin);
    sl_free(t->end);
    sl_free(t->tenant);
    sl_marks_destroy(&t->lots);
}

/* A lot begins at `part`. */
static void cut_lot(sl_tenants *t, int part)
{
    if (part >= t->part_count || sl_marks_has(&t->lots, part)) return;
    t->tenant[part] = t->tenant[sl_marks_previous(&t->lots, part)];
    sl_marks_set(&t->lots, part);
}

int sl_tenants_begin(sl_tenants *t, int buffer)
{
    if (t->begin[buffer] == t->end[buffer]) return -1;
    cut_lot(t, t->begin[buffer]);
    cut_lot(t, t->end[buffer]);
    return t->begin[buffer];
}

int sl_tenants_next(const sl_tenants *t, int buffer, int lot)
{
    int next = sl_marks_next(&t->lots, lot + 1);
    return next >= 0 && next < t->end[buffer] ? next : -1;
}

void sl_tenants_move_in(sl_tenants *t, int buffer)
{
    if (t->begin[buffer] == t->end[buffer]) return;
    for (int i = sl_tenants_next(t, buffer, t->begin[buffer]); i >= 0; i = sl_tenants_next(t, buffer, i))
        sl_marks_clear(&t->lots, i);
    t->tenant[t->begin[buffer]] = buffer;
}

void sl_tenants_move_out(sl_tenants *t)
{
    for (int i = sl_marks_next(&t->lots, 0); i >= 0; i = sl_marks_next(&t->lots, i + 1)) sl_marks_clear(&t->lots, i);
    sl_marks_set(&t->lots, 0);
    t->tenant[0] = -1;
}
