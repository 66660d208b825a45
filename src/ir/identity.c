/* identity.c: what a model is, as a hash that can be compared and as lines that people can.
 *
 * Numbers are hashed as little-endian bytes of their declared width, never as memory of a struct, so that the hash
 * depends neither on padding nor on the machine. */
#include <string.h>

#include "core/alloc.h"
#include "core/sha256.h"
#include "ir/graph.h"
#include "ir/op_rows.h"
#include "ir/sparse.h"

/* ---- the hash ---- */

static void hash_text(sl_sha256 *h, const char *text)
{
    sl_sha256_update(h, text, strlen(text) + 1);
}

static void hash_number(sl_sha256 *h, uint64_t bits, size_t bytes)
{
    uint8_t little[8];
    for (size_t i = 0; i < bytes; i++) little[i] = (uint8_t)(bits >> (8 * i));
    sl_sha256_update(h, little, bytes);
}

static void hash_end(sl_sha256 *h, char sha256[65])
{
    uint8_t digest[32];
    sl_sha256_final(h, digest);
    sl_sha256_hex(digest, sha256);
}

static void hash_parameters(sl_sha256 *h, const sluice_graph *g)
{
    hash_number(h, (uint64_t)g->parameter_count, 8);
    for (int i = 0; i < g->parameter_count; i++) {
        const sl_shape *s = sl_parameter_shape(g, i);
        hash_text(h, g->parameters[i].name);
        hash_number(h, (uint64_t)s->rank, 4);
        for (int d = 0; d < s->rank; d++) hash_number(h, (uint64_t)s->dim[d], 8);
        if (g->parameters[i].is_sparse) hash_text(h, "sparse"); /* some rules are others for it */
    }
}

static void hash_attributes(sl_sha256 *h, const sl_node *node)
{
    const sl_attribute_list *list = sl_ops[node->op].attributes;
    for (int k = 0; k < list->count; k++) {
        const sl_attribute *a = &list->rows[k];
        if (a->free != NULL || !sl_attribute_there(&node->attrs, a)) continue;
        hash_text(h, a->name);
        for (int i = 0; i < a->count; i++) hash_number(h, sl_attribute_bits(&node->attrs, a, i), sl_attribute_bytes(a));
    }
}

/* Numbers the values as if nodes that only regularise were not there: their outputs are their inputs. */
static void number_values(const sluice_graph *g, int *number)
{
    int next = 0;
    for (int v = 0; v < g->value_count; v++) {
        const sl_node *producer = g->values[v].producer >= 0 ? &g->nodes[g->values[v].producer] : NULL;
        number[v] = producer != NULL && sl_ops[producer->op].regularises ? number[producer->inputs[0]] : next++;
    }
}

sluice_status sl_graph_identity(const sluice_graph *g, char sha256[65])
{
    sl_sha256 h;
    int *number = sl_alloc_array((size_t)g->value_count + 1, sizeof *number, "numbers of values");
    if (number == NULL) return SLUICE_ERR_NO_MEMORY;
    number_values(g, number);
    sl_sha256_init(&h);
    hash_text(&h, "sluice model 2");
    hash_parameters(&h, g);
    for (int n = 0; n < g->forward_count; n++) {
        const sl_node *node = &g->nodes[n];
        if (sl_ops[node->op].regularises) continue;
        hash_text(&h, sl_ops[node->op].name);
        hash_number(&h, (uint64_t)node->input_count, 4);
        for (int i = 0; i < node->input_count; i++) hash_number(&h, (uint64_t)number[node->inputs[i]], 4);
        hash_attributes(&h, node);
    }
    hash_end(&h, sha256);
    sl_free(number);
    return SLUICE_OK;
}

void sl_graph_identity_v1(const sluice_graph *g, char sha256[65])
{
    sl_sha256 h;
    sl_sha256_init(&h);
    for (int i = 0; i < g->parameter_count; i++) {
        const sl_shape *s = sl_parameter_shape(g, i);
        hash_text(&h, g->parameters[i].name);
        sl_sha256_update(&h, s->dim, (size_t)s->rank * sizeof s->dim[0]);
    }
    for (int i = 0; i < g->forward_count; i++) {
        hash_text(&h, sl_ops[g->nodes[i].op].name);
        sl_sha256_update(&h, g->nodes[i].inputs, (size_t)g->nodes[i].input_count * sizeof(int));
        if (g->nodes[i].op != SL_OP_ATTENTION) continue;
        int heads[2] = { g->nodes[i].attrs.attention.heads, g->nodes[i].attrs.attention.kv_heads };
        sl_sha256_update(&h, heads, sizeof heads);
    }
    hash_end(&h, sha256);
}

/* ---- the lines ---- */

#define LINE_VALUES 64 /* characters of values that differ; more are cut off and followed by a hash of all */

/* The value of the op's forward nodes where they agree, or all their values in order. */
typedef struct attribute_line {
    char first[SL_ATTRIBUTE_TEXT_BYTES], values[LINE_VALUES + 1];
    size_t length; /* of values */
    int nodes;
    bool there;  /* it counts in some node */
    bool differ; /* some node has another value than the first */
    bool cut;    /* `values` lacks some */
    sl_sha256 all;
} attribute_line;

static void line_add(attribute_line *l, const char *text)
{
    size_t needed = strlen(text) + (l->length > 0);
    if (l->nodes++ == 0) snprintf(l->first, sizeof l->first, "%s", text);
    l->differ = l->differ || strcmp(l->first, text) != 0;
    hash_text(&l->all, text);
    l->cut = l->cut || l->length + needed > LINE_VALUES;
    if (!l->cut)
        l->length += (size_t)snprintf(l->values + l->length, sizeof l->values - l->length, "%s%s",
                                      l->length > 0 ? " " : "", text);
}

static void write_line(const sluice_graph *g, sl_op op, const sl_attribute *a, FILE *out)
{
    attribute_line l = { .nodes = 0 };
    char text[SL_ATTRIBUTE_TEXT_BYTES], hash[65];
    sl_sha256_init(&l.all);
    for (int n = 0; n < g->forward_count; n++) {
        if (g->nodes[n].op != op) continue;
        line_add(&l, sl_attribute_text(&g->nodes[n].attrs, a, text));
        l.there = l.there || sl_attribute_there(&g->nodes[n].attrs, a);
    }
    if (!l.there) return;
    fprintf(out, "%s.%s: %s", sl_ops[op].name, a->name, l.differ ? l.values : l.first);
    hash_end(&l.all, hash);
    if (l.differ && l.cut) fprintf(out, " .. %.16s", hash);
    fputc('\n', out);
}

void sl_graph_write_attributes(const sluice_graph *g, FILE *out)
{
    for (int op = 0; op < SL_OP_COUNT; op++)
        for (int k = 0; k < sl_ops[op].attributes->count; k++)
            if (sl_ops[op].attributes->rows[k].free == NULL)
                write_line(g, (sl_op)op, &sl_ops[op].attributes->rows[k], out);
}

const char *sl_attribute_unset(const char *key)
{
    for (int op = 0; op < SL_OP_COUNT; op++) {
        size_t length = strlen(sl_ops[op].name);
        if (strncmp(key, sl_ops[op].name, length) != 0 || key[length] != '.') continue;
        for (int k = 0; k < sl_ops[op].attributes->count; k++) {
            const sl_attribute *a = &sl_ops[op].attributes->rows[k];
            if (a->if_set && strcmp(a->name, key + length + 1) == 0)
                return a->type == SL_ATTRIBUTE_bool ? "false" : "0";
        }
    }
    return NULL;
}
