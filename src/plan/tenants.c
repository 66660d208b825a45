/* tenants.c: tenants.h. */
#include "plan/tenants.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "plan/passes.h"

/* An end of buffers; many share one, so that ends are told apart by a hash table, and few are sorted. */
typedef struct edge {
    uint64_t at;
    sl_tier tier;
    int number; /* in the order in which they were met */
} edge;

typedef struct edges {
    edge *all;
    int count;
    int *slots; /* numbers plus 1; 0: free */
    int *parts; /* number -> place in order */
    size_t mask;
} edges;

static int by_place(const void *a, const void *b)
{
    const edge *x = a, *y = b;
    if (x->tier != y->tier) return x->tier < y->tier ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* There always is a free slot. */
static int number_of(edges *e, sl_tier tier, uint64_t at)
{
    size_t i = (size_t)((at ^ at >> 32 ^ (uint64_t)tier << 20) * UINT64_C(0x9e3779b97f4a7c15) >> 32) & e->mask;
    for (; e->slots[i] > 0; i = (i + 1) & e->mask) {
        const edge *there = &e->all[e->slots[i] - 1];
        if (there->tier == tier && there->at == at) return there->number;
    }
    e->all[e->count] = (edge){ at, tier, e->count };
    e->slots[i] = ++e->count;
    return e->count - 1;
}

/* Numbers the parts between edges, tier after tier. */
static void number_parts(sl_tenants *t, const sl_plan *p, edges *e)
{
    for (int i = 0; i < p->buffer_count; i++) {
        const sl_buffer *b = &p->buffers[i];
        bool moves_in = !b->permanent && sl_buffer_takes_room(b);
        t->begin[i] = moves_in ? number_of(e, b->tier, b->offset) : -1;
        t->end[i] = moves_in ? number_of(e, b->tier, b->offset + b->bytes) : -1;
    }
    qsort(e->all, (size_t)e->count, sizeof *e->all, by_place);
    for (int i = 0; i < e->count; i++) e->parts[e->all[i].number] = i;
    for (int i = 0; i < p->buffer_count; i++) {
        t->begin[i] = t->begin[i] < 0 ? 0 : e->parts[t->begin[i]];
        t->end[i] = t->end[i] < 0 ? 0 : e->parts[t->end[i]];
    }
    t->part_count = e->count > 0 ? e->count : 1;
}

static sluice_status find_parts(sl_tenants *t, const sl_plan *p)
{
    size_t most = 2 * ((size_t)p->buffer_count + 1), slots = 2;
    while (slots < 2 * most) slots *= 2;
    edges e = { .mask = slots - 1 };
    e.all = sl_alloc_array(most, sizeof *e.all, "plan: ends of buffers");
    e.slots = sl_alloc_array(slots, sizeof *e.slots, "plan: ends of buffers");
    e.parts = sl_alloc_array(most, sizeof *e.parts, "plan: ends of buffers");
    bool room = e.all != NULL && e.slots != NULL && e.parts != NULL;
    if (room) number_parts(t, p, &e);
    sl_free(e.all);
    sl_free(e.slots);
    sl_free(e.parts);
    return room ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

sluice_status sl_tenants_create(sl_tenants *t, const sl_plan *p)
{
    size_t buffers = (size_t)p->buffer_count + 1;
    *t = (sl_tenants){ .part_count = 0 };
    t->begin = sl_alloc_array(buffers, sizeof *t->begin, "plan: bytes of buffers");
    t->end = sl_alloc_array(buffers, sizeof *t->end, "plan: bytes of buffers");
    if (t->begin == NULL || t->end == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(find_parts(t, p));
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
