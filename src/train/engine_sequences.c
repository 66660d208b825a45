/* engine_sequences.c: what sequences of a batch must be before anything of it is used: lengths that frames have, labels that
 * end where padding begins, and frames enough to align the labels with. */
#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "train/engine_parts.h"

sluice_status sl_engine_find_sequences(sluice_engine *e)
{
    const sluice_graph *g = e->graph;
    e->sequence_nodes = sl_alloc_array((size_t)g->forward_count + 1, sizeof *e->sequence_nodes, "nodes of sequences");
    if (e->sequence_nodes == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int n = 0; n < g->forward_count; n++) {
        const int lengths = sl_ops[g->nodes[n].op].lengths;
        if (lengths > 0 && lengths < g->nodes[n].input_count) e->sequence_nodes[e->sequence_count++] = n;
    }
    return SLUICE_OK;
}

/* What the batch has for operand `input` of a node; NULL where that is not an input of the graph. */
static const int32_t *given(const sluice_engine *e, const sluice_batch *batch, const sl_node *n, int input,
                            const char **name)
{
    const sl_value *v = &e->graph->values[e->graph->values[n->inputs[input]].storage];
    *name = v->name;
    for (int i = 0; i < batch->count; i++)
        if (v->kind == SL_VALUE_INPUT && strcmp(batch->arrays[i].name, v->name) == 0) return batch->arrays[i].data;
    return NULL;
}

static sluice_status check_lengths(const sl_node *n, const char *name, const int32_t *lengths, const sl_shape *frames)
{
    for (int64_t b = 0; b < frames->dim[0]; b++)
        if (lengths[b] < 0 || lengths[b] > frames->dim[1])
            return sl_fail(SLUICE_ERR_INPUT,
                           "input \"%s\": element %" PRId64 " is %" PRId32
                           ", but %s \"%.64s\" has sequences of 0 to %" PRId64 " frames",
                           name, b, lengths[b], sl_ops[n->op].name, n->name, frames->dim[1]);
    return SLUICE_OK;
}

/* Labels of a row, and the frames they need: one each, and one between equal neighbours. */
static sluice_status check_row(const sl_node *n, const char *name, const int32_t *row, int64_t b, int64_t most,
                               int64_t *labels, int64_t *needed)
{
    *labels = *needed = 0;
    while (*labels < most && row[*labels] >= 0) {
        const int64_t k = (*labels)++;
        *needed += 1 + (k > 0 && row[k] == row[k - 1]);
        if (row[k] == n->attrs.ctc.blank)
            return sl_fail(SLUICE_ERR_INPUT,
                           "input \"%s\": row %" PRId64 ", element %" PRId64 " is %" PRId32
                           ", the blank of ctc_loss \"%.64s\", "
                           "which is no label",
                           name, b, k, row[k], n->name);
    }
    for (int64_t k = *labels; k < most; k++)
        if (row[k] >= 0)
            return sl_fail(SLUICE_ERR_INPUT,
                           "input \"%s\": row %" PRId64 ", element %" PRId64 " is %" PRId32
                           ", behind -1: labels are padded with -1 at their end alone",
                           name, b, k, row[k]);
    return SLUICE_OK;
}

/* `lengths` NULL: they are computed, and not known here. */
static sluice_status check_labels(const sluice_engine *e, const sl_node *n, const char *name, const int32_t *labels,
                                  const int32_t *lengths)
{
    const sl_shape *shape = &e->graph->values[n->inputs[1]].shape;
    for (int64_t b = 0; b < shape->dim[0]; b++) {
        int64_t count, needed;
        SL_TRY(check_row(n, name, labels + b * shape->dim[1], b, shape->dim[1], &count, &needed));
        if (lengths == NULL || n->attrs.ctc.zero_infinity || lengths[b] >= needed) continue;
        return sl_fail(SLUICE_ERR_INPUT,
                       "input \"%s\": the %" PRId64 " labels of row %" PRId64 " need %" PRId64
                       " frames, one more between equal neighbours, and the sequence has %" PRId32
                       ": ctc_loss \"%.64s\" would be infinite; leave it out, or let zero_infinity pass it over",
                       name, count, b, needed, lengths[b], n->name);
    }
    return SLUICE_OK;
}

sluice_status sl_engine_check_sequences(const sluice_engine *e, const sluice_batch *batch)
{
    for (int i = 0; i < e->sequence_count; i++) {
        const sl_node *n = &e->graph->nodes[e->sequence_nodes[i]];
        const char *name;
        const int32_t *lengths = given(e, batch, n, sl_ops[n->op].lengths, &name);
        if (lengths != NULL) SL_TRY(check_lengths(n, name, lengths, &e->graph->values[n->inputs[0]].shape));
        if (!sl_ops[n->op].index.labels) continue;
        const int32_t *labels = given(e, batch, n, sl_ops[n->op].index.input, &name);
        if (labels != NULL) SL_TRY(check_labels(e, n, name, labels, lengths));
    }
    return SLUICE_OK;
}
