/* engine_tables.c: which rows of sparse tables a step touches, and where they are in it.
 *
 * Before each forward the ranks tell each other the rows that their micro-batches name and that the step does not have
 * yet. Sorted, they get the next places in the parameter that stands for the table, the same on all ranks, and come from
 * the rank that keeps them. The ids that the graph is given are those places. After the update the rows go back. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "ir/sparse.h"
#include "train/engine_parts.h"

/* A row of a table and its place in the step. */
typedef struct row_place {
    int32_t row, place;
} row_place;

typedef struct engine_table {
    int parameter;
    int64_t most;       /* rows that the step has room for */
    int64_t ids;        /* of a micro-batch */
    int32_t *rows;      /* by place */
    row_place *by_row;  /* the same, sorted */
    int64_t count;      /* of the step so far */
    int64_t first_word; /* its part of what a rank tells: how many new rows, then those */
} engine_table;

/* An input whose elements are ids of a table. */
typedef struct table_input {
    int value, table;
    int64_t count;
    int32_t *places; /* what the graph is given instead */
} table_input;

struct sl_engine_tables {
    sl_arena arena; /* owns everything below */
    engine_table *tables;
    int table_count;
    table_input *inputs;
    int input_count;
    int32_t *mine, *all;   /* what this rank tells, and what all do */
    int64_t words;         /* of one rank */
    int32_t *fresh;        /* new rows of one table, of all ranks */
    sl_table_rows *listed; /* of each table */
};

/* ---- creation ---- */

static sluice_status find_inputs(const sluice_engine *e, sl_engine_tables *t)
{
    const sluice_graph *g = e->graph;
    t->inputs = sl_arena_array(&t->arena, (size_t)g->input_count + 1, sizeof *t->inputs);
    if (t->inputs == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < g->input_count; i++) {
        int parameter = sl_graph_table_of(g, g->inputs[i]), k = 0;
        if (parameter < 0) continue;
        while (t->tables[k].parameter != parameter) k++;
        int64_t count = sl_shape_elements(&g->values[g->inputs[i]].shape);
        int32_t *places = sl_arena_array(&t->arena, (size_t)count + 1, sizeof *places);
        if (places == NULL) return SLUICE_ERR_NO_MEMORY;
        t->tables[k].ids += count;
        t->inputs[t->input_count++] = (table_input){ g->inputs[i], k, count, places };
    }
    return SLUICE_OK;
}

static sluice_status find_tables(const sluice_engine *e, sl_engine_tables *t)
{
    const sluice_graph *g = e->graph;
    t->tables = sl_arena_array(&t->arena, (size_t)g->parameter_count + 1, sizeof *t->tables);
    if (t->tables == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int p = 0; p < g->parameter_count; p++) {
        const sl_parameter *q = &g->parameters[p];
        if (!sl_parameter_is_compact(q)) continue;
        engine_table *table = &t->tables[t->table_count++];
        *table = (engine_table){ .parameter = p, .most = q->count / q->table.dim[1] };
        table->rows = sl_arena_array(&t->arena, (size_t)table->most, sizeof *table->rows);
        table->by_row = sl_arena_array(&t->arena, (size_t)table->most, sizeof *table->by_row);
        if (table->rows == NULL || table->by_row == NULL) return SLUICE_ERR_NO_MEMORY;
    }
    return SLUICE_OK;
}

static sluice_status make_room(const sluice_engine *e, sl_engine_tables *t)
{
    int64_t longest = 0;
    size_t ranks = (size_t)e->ranks->count;
    for (int k = 0; k < t->table_count; k++) {
        t->tables[k].first_word = t->words;
        t->words += 1 + t->tables[k].ids;
        if (t->tables[k].ids > longest) longest = t->tables[k].ids;
    }
    t->mine = sl_arena_array(&t->arena, (size_t)t->words, sizeof *t->mine);
    t->all = sl_arena_array(&t->arena, (size_t)t->words * ranks, sizeof *t->all);
    t->fresh = sl_arena_array(&t->arena, (size_t)longest * ranks + 1, sizeof *t->fresh);
    t->listed = sl_arena_array(&t->arena, (size_t)t->table_count, sizeof *t->listed);
    return t->mine == NULL || t->all == NULL || t->fresh == NULL || t->listed == NULL ? SLUICE_ERR_NO_MEMORY
                                                                                      : SLUICE_OK;
}

sluice_status sl_engine_open_tables(sluice_engine *e)
{
    bool any = false;
    for (int p = 0; p < e->graph->parameter_count; p++) any = any || sl_parameter_is_compact(&e->graph->parameters[p]);
    if (!any) return SLUICE_OK;
    sl_engine_tables *t = e->tables = sl_alloc(sizeof *t, "sparse tables");
    if (t == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_arena_init(&t->arena, "sparse tables");
    SL_TRY(find_tables(e, t));
    SL_TRY(find_inputs(e, t));
    return make_room(e, t);
}

void sl_engine_close_tables(sluice_engine *e)
{
    if (e->tables == NULL) return;
    sl_arena_free(&e->tables->arena);
    sl_free(e->tables);
    e->tables = NULL;
}

uint64_t sl_engine_table_bytes(const sluice_graph *g, int ranks)
{
    uint64_t bytes = 0, ids = 0;
    for (int p = 0; p < g->parameter_count; p++) {
        const sl_parameter *q = &g->parameters[p];
        if (sl_parameter_is_compact(q))
            bytes += (uint64_t)(q->count / q->table.dim[1]) * (sizeof(int32_t) + sizeof(row_place));
    }
    for (int i = 0; i < g->input_count; i++)
        if (sl_graph_table_of(g, g->inputs[i]) >= 0) ids += (uint64_t)sl_shape_elements(&g->values[g->inputs[i]].shape);
    if (bytes > 0) bytes += (uint64_t)SL_TABLE_CHUNK * sizeof(float);
    return bytes + ids * sizeof(int32_t) * (uint64_t)(3 + 2 * ranks);
}

/* ---- which rows ---- */

static int compare_rows(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

static int compare_places(const void *a, const void *b)
{
    return compare_rows(&((const row_place *)a)->row, &((const row_place *)b)->row);
}

/* The place of a row in the step; -1: it has none. */
static int32_t place_of(const engine_table *t, int32_t row)
{
    int64_t low = 0, high = t->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (t->by_row[middle].row < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->count && t->by_row[low].row == row ? t->by_row[low].place : -1;
}

/* Sorts them and leaves each once. */
static int64_t sort_unique(int32_t *rows, int64_t count)
{
    int64_t kept = 0;
    if (count > 1) qsort(rows, (size_t)count, sizeof *rows, compare_rows);
    for (int64_t i = 0; i < count; i++)
        if (kept == 0 || rows[i] != rows[kept - 1]) rows[kept++] = rows[i];
    return kept;
}

static const int32_t *ids_in(const sluice_engine *e, const sluice_batch *batch, int value)
{
    const char *name = e->graph->values[value].name;
    int i = 0;
    while (strcmp(batch->arrays[i].name, name) != 0) i++; /* a batch that was checked has all inputs */
    return batch->arrays[i].data;
}

/* The rows of each table that this rank's micro-batch names and the step does not have. */
static void list_mine(const sluice_engine *e, const sluice_batch *batch)
{
    const sl_engine_tables *t = e->tables;
    memset(t->mine, 0, (size_t)t->words * sizeof *t->mine);
    for (int i = 0; i < t->input_count; i++) {
        const table_input *in = &t->inputs[i];
        const int32_t *ids = ids_in(e, batch, in->value);
        const engine_table *table = &t->tables[in->table];
        int32_t *list = t->mine + table->first_word;
        for (int64_t k = 0; k < in->count; k++)
            if (place_of(table, ids[k]) < 0) list[1 + list[0]++] = ids[k];
    }
    for (int k = 0; k < t->table_count; k++) {
        int32_t *list = t->mine + t->tables[k].first_word;
        list[0] = (int32_t)sort_unique(list + 1, list[0]);
    }
}

/* Those of all ranks together, in increasing order. */
static int64_t merge(const sluice_engine *e, const engine_table *table)
{
    const sl_engine_tables *t = e->tables;
    int64_t count = 0;
    for (int r = 0; r < e->ranks->count; r++) {
        const int32_t *list = t->all + r * t->words + table->first_word;
        memcpy(t->fresh + count, list + 1, (size_t)list[0] * sizeof *list);
        count += list[0];
    }
    return sort_unique(t->fresh, count);
}

static sluice_status refuse_rows(const sluice_engine *e, const engine_table *table, int64_t needed, const char *call)
{
    const sl_parameter *q = &e->graph->parameters[table->parameter];
    return sl_fail(SLUICE_ERR_USAGE,
                   "%s: the batches of step %" PRIu64 " name %" PRId64
                   " rows of \"%.64s\" or more, and the plan has room "
                   "for %" PRId64 "; raise what limits them (model.sparse_rows), or leave it out",
                   call, e->step + 1, needed, q->name, table->most);
}

/* Gives the rows that all ranks name places; what is to be brought. */
static sluice_status add_rows(sluice_engine *e, engine_table *table, const char *call, sl_table_rows *out)
{
    const int32_t *fresh = e->tables->fresh;
    int64_t count = merge(e, table), first = table->count;
    if (first + count > table->most) return refuse_rows(e, table, first + count, call);
    for (int64_t i = 0; i < count; i++) {
        table->rows[first + i] = fresh[i];
        table->by_row[first + i] = (row_place){ fresh[i], (int32_t)(first + i) };
    }
    table->count += count;
    if (first > 0 && count > 0) qsort(table->by_row, (size_t)table->count, sizeof *table->by_row, compare_places);
    *out = (sl_table_rows){ table->parameter, table->rows + first, count, first };
    return SLUICE_OK;
}

/* Takes the places that were given last away again. */
static void drop_rows(engine_table *table, int64_t first)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < table->count; i++)
        if (table->by_row[i].place < first) table->by_row[kept++] = table->by_row[i];
    table->count = first;
}

/* ---- a step ---- */

void sl_engine_forget_rows(sluice_engine *e)
{
    for (int k = 0; e->tables != NULL && k < e->tables->table_count; k++) e->tables->tables[k].count = 0;
}

static sluice_status bring_rows(sluice_engine *e, const char *call)
{
    sl_engine_tables *t = e->tables;
    size_t bytes = (size_t)t->words * sizeof *t->mine;
    SL_TRY(e->ranks->comm->ops->exchange(e->ranks->comm, "names of rows", t->mine, bytes, t->all));
    for (int k = 0; k < t->table_count; k++) {
        sluice_status st = add_rows(e, &t->tables[k], call, &t->listed[k]);
        if (st == SLUICE_OK) continue;
        for (int i = 0; i < k; i++) drop_rows(&t->tables[i], t->listed[i].first);
        return st;
    }
    return sl_exec_bring_rows(e->exec, t->listed, t->table_count);
}

sluice_status sl_engine_bring_rows(sluice_engine *e, const sluice_batch *batch, const char *call)
{
    const sl_engine_tables *t = e->tables;
    if (t == NULL) return SLUICE_OK;
    list_mine(e, batch);
    SL_TRY(bring_rows(e, call));
    for (int i = 0; i < t->input_count; i++) {
        const table_input *in = &t->inputs[i];
        const int32_t *ids = ids_in(e, batch, in->value);
        for (int64_t k = 0; k < in->count; k++) in->places[k] = place_of(&t->tables[in->table], ids[k]);
    }
    return SLUICE_OK;
}

const void *sl_engine_input(const sluice_engine *e, int value, const void *given)
{
    for (int i = 0; e->tables != NULL && i < e->tables->input_count; i++)
        if (e->tables->inputs[i].value == value) return e->tables->inputs[i].places;
    return given;
}

sluice_status sl_engine_keep_rows(sluice_engine *e)
{
    const sl_engine_tables *t = e->tables;
    if (t == NULL) return SLUICE_OK;
    for (int k = 0; k < t->table_count; k++)
        t->listed[k] = (sl_table_rows){ t->tables[k].parameter, t->tables[k].rows, t->tables[k].count, 0 };
    SL_TRY(sl_exec_keep_rows(e->exec, t->listed, t->table_count));
    sl_engine_forget_rows(e);
    return SLUICE_OK;
}
