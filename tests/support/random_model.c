/* random_model.c: see random_model.h. Every graph has what the planner must cope with: residual uses, tied parameters,
 * views, several layers, odd sizes. */
#include "support/random_model.h"

#include <stdio.h>
#include <stdlib.h>

#include "ir/graph.h"

#define TOKENS 7

int64_t random_between(random_state *r, int64_t low, int64_t high)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return low + (int64_t)((r->state >> 33) % (uint64_t)(high - low + 1));
}

static sluice_value random_activation(random_state *r, sluice_graph *g, sluice_value x)
{
    switch (random_between(r, 0, 4)) {
    case 0:
        return sluice_relu(g, x);
    case 1:
        return sluice_gelu(g, x, false);
    case 2:
        return sluice_silu(g, x);
    case 3:
        return sluice_dropout(g, x, 0.25f);
    default:
        return x;
    }
}

static void build_network(random_state *r, sluice_graph *g)
{
    char name[32];
    int64_t batch = random_between(r, 1, 9), layers = random_between(r, 1, 6), width = random_between(r, 1, 70);
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ batch, random_between(r, 1, 40) });
    for (int64_t i = 0; i < layers; i++) {
        snprintf(name, sizeof name, "fc%d", (int)i);
        sluice_layer(g, name);
        sluice_value y = random_activation(r, g, sluice_linear(g, x, width, name));
        x = i > 0 && random_between(r, 0, 1) == 1 ? sluice_add(g, x, y) : y;
        if (random_between(r, 0, 2) == 0) {
            x = sluice_reshape(g, x, 3, (int64_t[]){ batch, 1, -1 });
            x = sluice_reshape(g, x, 2, (int64_t[]){ batch, -1 });
        }
    }
    sluice_layer(g, "head");
    x = sluice_linear(g, x, 3, "head");
    sluice_set_output(g, x);
    sluice_set_loss(g, sluice_mse(g, x, sluice_input(g, "target", SLUICE_F32, 2, (int64_t[]){ batch, 3 })));
}

static sluice_value norm(sluice_graph *g, sluice_value x, int64_t width, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "%s.weight", name);
    sluice_value w = sluice_parameter(g, text, 1, &width, (sluice_init){ SLUICE_INIT_ONE, 0 });
    snprintf(text, sizeof text, "%s.bias", name);
    sluice_value b = sluice_parameter(g, text, 1, &width, (sluice_init){ SLUICE_INIT_ZERO, 0 });
    return sluice_layer_norm(g, x, w, b, 1e-5f);
}

static sluice_value block(random_state *r, sluice_graph *g, sluice_value x, int64_t width, int heads, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "%s.ln1", name);
    sluice_value h = norm(g, x, width, text);
    snprintf(text, sizeof text, "%s.qkv", name);
    h = sluice_attention_packed(g, sluice_linear(g, h, 3 * width, text), heads, heads, true);
    snprintf(text, sizeof text, "%s.proj", name);
    x = sluice_add(g, x, sluice_linear(g, h, width, text));
    snprintf(text, sizeof text, "%s.ln2", name);
    h = norm(g, x, width, text);
    snprintf(text, sizeof text, "%s.up", name);
    h = random_activation(r, g, sluice_linear(g, h, 2 * width, text));
    snprintf(text, sizeof text, "%s.down", name);
    return sluice_add(g, x, sluice_linear(g, h, width, text));
}

static void build_transformer(random_state *r, sluice_graph *g)
{
    char name[32];
    int heads = (int)random_between(r, 1, 3);
    int64_t width = heads * 2 * random_between(r, 1, 6), batch = random_between(r, 1, 3),
            length = random_between(r, 1, 20);
    int64_t layers = random_between(r, 1, 5), ids[2] = { batch, length };
    sluice_layer(g, "embed");
    sluice_value tokens = sluice_input(g, "tokens", SLUICE_I32, 2, ids);
    sluice_value table =
        sluice_parameter(g, "wte", 2, (int64_t[]){ TOKENS, width }, (sluice_init){ SLUICE_INIT_NORMAL, 0.1f });
    sluice_value x = sluice_embedding(g, tokens, table);
    for (int64_t i = 0; i < layers; i++) {
        snprintf(name, sizeof name, "h%d", (int)i);
        sluice_layer(g, name);
        x = block(r, g, x, width, heads, name);
    }
    sluice_layer(g, "head");
    sluice_value logits = sluice_linear_with(g, x, table, SLUICE_NONE, false);
    sluice_set_output(g, logits);
    sluice_set_loss(g, sluice_cross_entropy(g, logits, sluice_input(g, "target", SLUICE_I32, 2, ids), -1));
}

sluice_status random_graph(random_state *r, sluice_graph **out)
{
    sluice_graph *g;
    sluice_status st = sluice_graph_create(&g);
    if (st != SLUICE_OK) return st;
    if (random_between(r, 0, 1) == 0)
        build_network(r, g);
    else
        build_transformer(r, g);
    st = sluice_graph_check(g);
    if (st != SLUICE_OK)
        sluice_graph_destroy(g);
    else
        *out = g;
    return st;
}

static void fill(void *data, const sl_value *v, random_state *r)
{
    int64_t n = sl_shape_elements(&v->shape);
    for (int64_t i = 0; i < n; i++) {
        if (v->dtype == SLUICE_I32)
            ((int32_t *)data)[i] = (int32_t)random_between(r, 0, TOKENS - 1);
        else
            ((float *)data)[i] = (float)random_between(r, -1000, 1000) / 1000.0f;
    }
}

sluice_status random_batch_make(const sluice_graph *g, uint64_t seed, random_batch *b)
{
    random_state r = { seed };
    b->count = 0;
    for (int v = 0; v < g->value_count; v++) {
        if (g->values[v].kind != SL_VALUE_INPUT) continue;
        void *data = malloc(sl_value_bytes(&g->values[v]));
        if (data == NULL) return SLUICE_ERR_NO_MEMORY;
        fill(data, &g->values[v], &r);
        b->arrays[b->count++] = (sluice_array){ g->values[v].name, data, sl_value_bytes(&g->values[v]) };
    }
    return SLUICE_OK;
}

void random_batch_free(random_batch *b)
{
    for (int i = 0; i < b->count; i++) free((void *)b->arrays[i].data);
}
