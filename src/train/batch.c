/* batch.c: buffers of one micro-batch, laid out as the graph's inputs ask. */
#include "train/batch.h"

#include <string.h>

#include "core/alloc.h"

static sluice_status add_field(sl_batch_buffers *b, const sl_value *v)
{
    int64_t rows = v->shape.rank > 0 ? v->shape.dim[0] : 1;
    if (b->count > 0 && rows != b->rows)
        return sl_fail(SLUICE_ERR_USAGE, "inputs \"%s\" and \"%s\" have different batch sizes (%lld, %lld)",
                       b->fields[0].name, v->name, (long long)b->rows, (long long)rows);
    void *buffer = sl_alloc(sl_value_bytes(v), "batch");
    if (buffer == NULL) return SLUICE_ERR_NO_MEMORY;
    b->rows = rows;
    b->fields[b->count] = (sl_data_field){ v->name, v->dtype, sl_shape_elements(&v->shape) / rows, buffer };
    b->arrays[b->count] = (sluice_array){ v->name, buffer, sl_value_bytes(v) };
    b->count++;
    return SLUICE_OK;
}

sluice_status sl_batch_buffers_make(const sluice_graph *g, sl_batch_buffers *b)
{
    int values[SL_MAX_FIELDS];
    int n = sl_graph_inputs(g, values, SL_MAX_FIELDS);
    if (n > SL_MAX_FIELDS)
        return sl_fail(SLUICE_ERR_USAGE, "the graph has %d inputs, a data set fills at most %d", n, SL_MAX_FIELDS);
    for (int i = 0; i < n; i++) SL_TRY(add_field(b, &g->values[values[i]]));
    return SLUICE_OK;
}

void sl_batch_buffers_free(sl_batch_buffers *b)
{
    for (int i = 0; i < b->count; i++) sl_free(b->fields[i].buffer);
    b->count = 0;
}

const sl_data_field *sl_batch_field(const sl_batch_buffers *b, const char *name)
{
    for (int i = 0; i < b->count; i++)
        if (strcmp(b->fields[i].name, name) == 0) return &b->fields[i];
    return NULL;
}
