/* wholes.c: see wholes.h. */
#include "checkpoint/wholes.h"

#include <stdlib.h>

void sl_wholes_init(sl_wholes *w)
{
    *w = (sl_wholes){ .newest_parameter = -1 };
    sl_arena_init(&w->arena, "runs of tiled parameters");
}

void sl_wholes_free(sl_wholes *w)
{
    sl_arena_free(&w->arena);
}

/* Elements from `element` of a tile on that are consecutive in the whole: the rest of its row, or all where its rows
 * are those of the whole. */
static int64_t consecutive(const sluice_graph *g, int tile, int64_t element, int64_t most)
{
    const sl_shape *shape = &g->values[g->parameters[tile].value].shape, *whole = sl_whole_shape(g, tile);
    int64_t columns = shape->dim[shape->rank - 1];
    if (shape->rank < 2 || columns == whole->dim[whole->rank - 1]) return most;
    int64_t row = columns - element % columns;
    return row < most ? row : most;
}

/* The runs of one rank; with `out` NULL they are only counted. */
static int64_t list_runs(const sl_plan *p, int first, int rank, sl_range *out)
{
    const sluice_graph *g = p->graph;
    int64_t n = 0;
    for (int tile = first; tile < sl_whole_end(g, first); tile++)
        for (int64_t i = 0; i < sl_plan_owned_count(p, tile, rank); i++) {
            sl_range r = sl_plan_owned(p, tile, rank, i);
            while (r.count > 0) {
                int64_t count = consecutive(g, tile, r.first, r.count);
                if (out != NULL) out[n] = (sl_range){ sl_parameter_whole_element(g, tile, r.first), count };
                r = (sl_range){ r.first + count, r.count - count };
                n++;
            }
        }
    return n;
}

static int by_first(const void *a, const void *b)
{
    const sl_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

static sluice_status list_all(sl_wholes *w, const sl_plan *p, int parameter, sl_owned_runs *o)
{
    int ranks = p->options.rank_count;
    o->first = sl_arena_array(&w->arena, (size_t)ranks + 1, sizeof *o->first);
    if (o->first == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int r = 0; r < ranks; r++) o->first[r + 1] = o->first[r] + list_runs(p, parameter, r, NULL);
    o->runs = sl_arena_array(&w->arena, (size_t)o->first[ranks] + 1, sizeof *o->runs);
    if (o->runs == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int r = 0; r < ranks; r++) {
        sl_range *mine = o->runs + o->first[r];
        qsort(mine, (size_t)list_runs(p, parameter, r, mine), sizeof *mine, by_first);
    }
    return SLUICE_OK;
}

sluice_status sl_wholes_add(sl_wholes *w, const sl_plan *p, int parameter, int *index)
{
    if (w->newest_parameter == parameter) {
        *index = w->count - 1;
        return SLUICE_OK;
    }
    if (w->list == NULL) { /* each whole is added once as a weight and once before its slots */
        w->capacity = 2 * p->graph->parameter_count;
        w->list = sl_arena_array(&w->arena, (size_t)w->capacity, sizeof *w->list);
        if (w->list == NULL) return SLUICE_ERR_NO_MEMORY;
    }
    SL_TRY(list_all(w, p, parameter, &w->list[w->count]));
    w->newest_parameter = parameter;
    *index = w->count++;
    return SLUICE_OK;
}

int64_t sl_wholes_owned_count(const sl_wholes *w, int index, int rank)
{
    const sl_owned_runs *o = &w->list[index];
    return o->first[rank + 1] - o->first[rank];
}

sl_range sl_wholes_owned(const sl_wholes *w, int index, int rank, int64_t i)
{
    const sl_owned_runs *o = &w->list[index];
    return o->runs[o->first[rank] + i];
}
