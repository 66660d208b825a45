/* Builders: the shapes they give, and what they say when used wrongly. */
#include "core/alloc.h"
#include "ir/graph.h"
#include "test.h"

#define D(...)                                                                                                         \
    (int64_t[])                                                                                                        \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

static const sluice_init zero = { SLUICE_INIT_ZERO, 0 };

static sluice_value input(sluice_graph *g, const char *name, int rank, const int64_t *dims)
{
    return sluice_input(g, name, SLUICE_F32, rank, dims);
}

static sluice_value ids(sluice_graph *g, const char *name, int rank, const int64_t *dims)
{
    return sluice_input(g, name, SLUICE_I32, rank, dims);
}

static sluice_value param(sluice_graph *g, const char *name, int rank, const int64_t *dims)
{
    return sluice_parameter(g, name, rank, dims, zero);
}

/* ---- shapes ---- */

/* x [2,3,8], m [8,5], v [8] and ids t [2,3] exist for every case. */
typedef struct fixture {
    sluice_graph *g;
    sluice_value x, m, v, t;
} fixture;

static fixture open_fixture(void)
{
    fixture f = { 0 };
    sluice_graph_create(&f.g);
    f.x = input(f.g, "x", 3, D(2, 3, 8));
    f.m = param(f.g, "m", 2, D(8, 5));
    f.v = param(f.g, "v", 1, D(8));
    f.t = ids(f.g, "t", 2, D(2, 3));
    return f;
}

#define CASE(name_, expression_)                                                                                       \
    static sluice_value name_(fixture f)                                                                               \
    {                                                                                                                  \
        return expression_;                                                                                            \
    }

/* q alone, packed, with the fields of the options that are given. */
#define OPTIONS(...) (&(sluice_attention_options){ .size = sizeof(sluice_attention_options), __VA_ARGS__ })
#define PACKED(positions, ...)                                                                                         \
    sluice_attention_with(f.g, f.x, SLUICE_NONE, SLUICE_NONE, positions,                                               \
                          OPTIONS(.heads = 2, .kv_heads = 1, __VA_ARGS__))

/* Images of the one shape and a weight of the other; options as given, the rest as they begin. */
static sluice_value conv(fixture f, int image_rank, const int64_t *image, int weight_rank, const int64_t *weight,
                         sluice_value bias, sluice_conv_options o)
{
    sluice_conv_options usual;
    sluice_conv_options_init(&usual);
    o.size = usual.size;
    if (o.stride_h == 0) o.stride_h = 1;
    if (o.stride_w == 0) o.stride_w = 1;
    if (o.dilation_h == 0) o.dilation_h = 1;
    if (o.dilation_w == 0) o.dilation_w = 1;
    if (o.groups == 0) o.groups = usual.groups;
    return sluice_conv2d(f.g, input(f.g, "i", image_rank, image), param(f.g, "c.weight", weight_rank, weight), bias,
                         &o);
}
#define RANK(...) ((int)(sizeof(__VA_ARGS__) / sizeof(int64_t)))
#define CONV(f, image, weight, ...)                                                                                    \
    conv(f, RANK(image), image, RANK(weight), weight, SLUICE_NONE, (sluice_conv_options){ .size = 0, __VA_ARGS__ })
#define conv_with(f, image, weight, bias)                                                                              \
    conv(f, RANK(image), image, RANK(weight), weight, bias, (sluice_conv_options){ .size = 0 })
#define POOL(f, kind, image, ...)                                                                                      \
    sluice_##kind##_pool2d(f.g, input(f.g, "i", RANK(image), image),                                                   \
                           &(sluice_pool_options){ .size = sizeof(sluice_pool_options), __VA_ARGS__ })

/* A network often printed, whose second part does not fit its first: 32 x 32 pixels are 15 x 15 after the pooling. */
static sluice_value small_cnn(fixture f)
{
    sluice_conv_options o;
    sluice_pool_options pool;
    sluice_conv_options_init(&o);
    sluice_pool_options_init(&pool);
    pool.kernel_h = pool.kernel_w = 2;
    sluice_value x = sluice_conv2d(f.g, input(f.g, "images", 4, D(4, 32, 32, 3)),
                                   param(f.g, "conv1.weight", 4, D(32, 3, 3, 3)), SLUICE_NONE, &o);
    x = sluice_flatten(f.g, sluice_max_pool2d(f.g, x, &pool));
    return sluice_linear_with(f.g, x, param(f.g, "fc1.weight", 2, D(128, 1152)), SLUICE_NONE, false);
}

CASE(shape_add, sluice_add(f.g, f.v, f.x))
CASE(shape_add_stretch, sluice_add(f.g, input(f.g, "a", 3, D(4, 1, 5)), input(f.g, "b", 2, D(3, 1))))
CASE(shape_subtract, sluice_subtract(f.g, f.x, f.v))
CASE(shape_multiply, sluice_multiply(f.g, f.x, input(f.g, "s", 0, NULL)))
CASE(shape_scale, sluice_scale(f.g, f.x, 2))
CASE(shape_linear, sluice_linear(f.g, f.x, 7, "fc"))
CASE(shape_linear_in_out, sluice_linear_with(f.g, f.x, f.m, SLUICE_NONE, true))
CASE(shape_linear_vector, sluice_linear_with(f.g, f.v, f.m, SLUICE_NONE, true))
CASE(shape_matmul, sluice_matmul(f.g, f.x, input(f.g, "b", 3, D(2, 8, 4)), false, false))
CASE(shape_matmul_a, sluice_matmul(f.g, f.x, input(f.g, "b", 3, D(2, 3, 4)), true, false))
CASE(shape_matmul_b, sluice_matmul(f.g, f.x, input(f.g, "b", 3, D(2, 4, 8)), false, true))
CASE(shape_embedding, sluice_embedding(f.g, f.t, f.m))
CASE(shape_relu, sluice_relu(f.g, f.x))
CASE(shape_gelu, sluice_gelu(f.g, f.x, true))
CASE(shape_silu, sluice_silu(f.g, f.x))
CASE(shape_swiglu, sluice_swiglu(f.g, f.x))
CASE(shape_softmax, sluice_softmax(f.g, f.x))
CASE(shape_layer_norm, sluice_layer_norm(f.g, f.x, f.v, f.v, 1e-5f))
CASE(shape_rms_norm, sluice_rms_norm(f.g, f.x, f.v, 1e-5f))
CASE(shape_rotary, sluice_rotary(f.g, f.x, 3, 2, 1e4f))
CASE(shape_geglu, sluice_geglu(f.g, f.x, false))
CASE(shape_softcap, sluice_softcap(f.g, f.x, 30))
CASE(shape_rms_norm_offset, sluice_rms_norm_offset(f.g, f.x, f.v, 1e-5f, 1))
CASE(shape_qk_norm, sluice_qk_norm(f.g, f.x, param(f.g, "a", 1, D(2)), param(f.g, "b", 1, D(2)), 2, 1, 1e-6f, 0))
CASE(shape_attention,
     sluice_attention(f.g, f.x, input(f.g, "k", 3, D(2, 6, 4)), input(f.g, "w", 3, D(2, 6, 4)), 4, 2, false))
CASE(shape_attention_packed, sluice_attention_packed(f.g, f.x, 2, 1, true))
CASE(shape_attention_with, PACKED(f.t, .causal = true, .window = 2, .softcap = 50, .scale = 0.1f))
CASE(shape_attention_with_three, sluice_attention_with(f.g, f.x, f.x, f.x, f.t, OPTIONS(.heads = 2, .causal = true)))
CASE(shape_dropout, sluice_dropout(f.g, f.x, 0.5f))
CASE(shape_reshape, sluice_reshape(f.g, f.x, 2, D(-1, 4)))
CASE(shape_reshape_ids, sluice_reshape(f.g, f.t, 1, D(6)))
CASE(shape_transpose, sluice_transpose(f.g, f.x, (int[]){ 1, 2, 0 }))
CASE(shape_split, sluice_split(f.g, f.x, 2, 3, 5))
CASE(shape_concat, sluice_concat(f.g, (sluice_value[]){ f.x, f.x, input(f.g, "y", 3, D(2, 1, 8)) }, 3, 1))
CASE(shape_cross_entropy, sluice_cross_entropy(f.g, f.x, f.t, -1))
CASE(shape_linear_cross_entropy_with,
     sluice_linear_cross_entropy_with(f.g, f.x, param(f.g, "w", 2, D(5, 8)), param(f.g, "b", 1, D(5)), f.t, -1, 0, 0))
CASE(shape_linear_cross_entropy, sluice_linear_cross_entropy(f.g, f.x, param(f.g, "w", 2, D(5, 8)), f.t, -1))
CASE(shape_conv, CONV(f, D(2, 9, 8, 6), D(4, 3, 3, 2), .stride_h = 2, .padding_h = 1, .groups = 2))
CASE(shape_conv_dilated, CONV(f, D(1, 9, 9, 2), D(4, 2, 3, 3), .dilation_h = 4, .dilation_w = 3))
CASE(shape_max_pool, POOL(f, max, D(2, 7, 8, 3), .kernel_h = 3, .kernel_w = 2, .padding_h = 1))
CASE(shape_avg_pool_ceil, POOL(f, avg, D(2, 6, 8, 3), .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .ceil_mode = true))
CASE(shape_pool_ceil_behind,
     POOL(f, avg, D(1, 2, 2, 1), .kernel_h = 1, .kernel_w = 1, .stride_h = 3, .ceil_mode = true))
CASE(shape_global, sluice_global_avg_pool(f.g, input(f.g, "i", 4, D(2, 5, 6, 7))))
CASE(shape_flatten, sluice_flatten(f.g, input(f.g, "i", 4, D(2, 5, 6, 7))))
CASE(shape_flatten_flat, sluice_flatten(f.g, input(f.g, "i", 2, D(2, 5))))
CASE(shape_mse, sluice_mse(f.g, f.x, f.x))
CASE(shape_sum, sluice_sum(f.g, f.x))
CASE(shape_mean, sluice_mean(f.g, f.x))

static const struct {
    sluice_value (*build)(fixture f);
    const char *shape;
} shapes[] = {
    { shape_add, "[2, 3, 8]" },
    { shape_add_stretch, "[4, 3, 5]" },
    { shape_subtract, "[2, 3, 8]" },
    { shape_multiply, "[2, 3, 8]" },
    { shape_scale, "[2, 3, 8]" },
    { shape_linear, "[2, 3, 7]" },
    { shape_linear_in_out, "[2, 3, 5]" },
    { shape_linear_vector, "[5]" },
    { shape_matmul, "[2, 3, 4]" },
    { shape_matmul_a, "[2, 8, 4]" },
    { shape_matmul_b, "[2, 3, 4]" },
    { shape_embedding, "[2, 3, 5]" },
    { shape_relu, "[2, 3, 8]" },
    { shape_gelu, "[2, 3, 8]" },
    { shape_silu, "[2, 3, 8]" },
    { shape_swiglu, "[2, 3, 4]" },
    { shape_softmax, "[2, 3, 8]" },
    { shape_layer_norm, "[2, 3, 8]" },
    { shape_rms_norm, "[2, 3, 8]" },
    { shape_rotary, "[2, 3, 8]" },
    { shape_geglu, "[2, 3, 4]" },
    { shape_softcap, "[2, 3, 8]" },
    { shape_rms_norm_offset, "[2, 3, 8]" },
    { shape_qk_norm, "[2, 3, 8]" },
    { shape_attention, "[2, 3, 8]" },
    { shape_attention_packed, "[2, 3, 4]" },
    { shape_attention_with, "[2, 3, 4]" },
    { shape_attention_with_three, "[2, 3, 8]" },
    { shape_dropout, "[2, 3, 8]" },
    { shape_reshape, "[12, 4]" },
    { shape_reshape_ids, "[6]" },
    { shape_transpose, "[3, 8, 2]" },
    { shape_split, "[2, 3, 5]" },
    { shape_concat, "[2, 7, 8]" },
    { shape_cross_entropy, "[]" },
    { shape_linear_cross_entropy, "[]" },
    { shape_linear_cross_entropy_with, "[]" },
    { shape_conv, "[2, 5, 7, 4]" },
    { shape_conv_dilated, "[1, 1, 3, 4]" },
    { shape_max_pool, "[2, 3, 4, 3]" },
    { shape_avg_pool_ceil, "[2, 3, 3, 3]" },
    { shape_pool_ceil_behind, "[1, 1, 2, 1]" },
    { shape_global, "[2, 7]" },
    { shape_flatten, "[2, 210]" },
    { shape_flatten_flat, "[2, 5]" },
    { shape_mse, "[]" },
    { shape_sum, "[]" },
    { shape_mean, "[]" },
};

TEST(builders_give_the_documented_shapes)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        fixture f = open_fixture();
        sluice_value y = shapes[i].build(f);
        char text[160];
        if (y == SLUICE_NONE)
            test_fail(__FILE__, __LINE__, "case %zu: %s", i, f.g->error_text);
        else
            CHECK_STR(sl_shape_text(&f.g->values[y].shape, text, sizeof text), shapes[i].shape);
        sluice_graph_destroy(f.g);
    }
}

TEST(saved_statistics_are_outputs_after_the_first)
{
    fixture f = open_fixture();
    sluice_layer_norm(f.g, f.x, f.v, SLUICE_NONE, 1e-5f);
    sluice_attention_packed(f.g, f.x, 2, 1, true);
    sluice_cross_entropy(f.g, f.x, f.t, -1);
    const sl_node *n = f.g->nodes;
    char text[160];
    CHECK_EQ(n[0].output_count, 3);
    CHECK_STR(sl_shape_text(&f.g->values[n[0].outputs[2]].shape, text, sizeof text), "[6]");
    CHECK_STR(f.g->values[n[0].outputs[2]].name, "layer_norm_0.rstd");
    CHECK_STR(sl_shape_text(&f.g->values[n[1].outputs[1]].shape, text, sizeof text), "[2, 2, 3]");
    CHECK_NEAR(n[1].attrs.attention.scale, 1 / sqrt(2.0), 1e-7);
    CHECK_STR(sl_shape_text(&f.g->values[n[2].outputs[1]].shape, text, sizeof text), "[6]");
    CHECK_STR(sl_shape_text(&f.g->values[n[2].outputs[2]].shape, text, sizeof text), "[]");
    sluice_graph_destroy(f.g);
}

TEST(linear_makes_its_parameters_and_is_called_after_them)
{
    fixture f = open_fixture();
    sluice_linear(f.g, f.x, 7, "fc1");
    int w = sl_graph_find_parameter(f.g, "fc1.weight"), b = sl_graph_find_parameter(f.g, "fc1.bias");
    REQUIRE(w >= 0 && b >= 0);
    CHECK_EQ(f.g->parameters[w].count, 56);
    CHECK(!f.g->parameters[w].is_norm_or_bias && f.g->parameters[b].is_norm_or_bias);
    CHECK_EQ(f.g->parameters[w].init.kind, SLUICE_INIT_UNIFORM);
    CHECK_NEAR(f.g->parameters[b].init.scale, 1 / sqrt(8.0), 1e-7);
    CHECK_STR(f.g->nodes[0].name, "fc1");
    sluice_graph_destroy(f.g);
}

TEST(reshape_shares_storage_with_its_source)
{
    fixture f = open_fixture();
    sluice_value a = sluice_reshape(f.g, f.x, 1, D(48)), b = sluice_reshape(f.g, a, 2, D(6, 8));
    CHECK_EQ(f.g->values[a].storage, f.x);
    CHECK_EQ(f.g->values[b].storage, f.x);
    sluice_graph_destroy(f.g);
}

TEST(dropout_of_zero_makes_no_node_and_others_remember_their_place)
{
    fixture f = open_fixture();
    CHECK_EQ(sluice_dropout(f.g, f.x, 0), f.x);
    sluice_relu(f.g, sluice_dropout(f.g, sluice_relu(f.g, f.x), 0.5f));
    CHECK_EQ(f.g->nodes[1].attrs.dropout.op, 1);
    sluice_graph_destroy(f.g);
}

/* ---- errors ---- */

CASE(bad_add_none, sluice_add(f.g, f.x, SLUICE_NONE))
CASE(bad_add_foreign, sluice_add(f.g, f.x, 1000))
CASE(bad_add_negative, sluice_add(f.g, -7, f.x))
CASE(bad_add_shape, sluice_add(f.g, sluice_relu(f.g, f.x), f.m))
CASE(bad_add_ids, sluice_add(f.g, f.x, f.t))
CASE(bad_saved, sluice_add(f.g, f.x, sluice_layer_norm(f.g, f.x, f.v, SLUICE_NONE, 1e-5f) + 1))
CASE(bad_multiply, sluice_multiply(f.g, f.x, f.m))
CASE(bad_linear,
     sluice_linear_with(f.g, sluice_relu(f.g, f.x), param(f.g, "fc2.weight", 2, D(4, 9)), SLUICE_NONE, false))
CASE(bad_linear_bias, sluice_linear_with(f.g, f.x, f.m, f.v, true))
CASE(bad_linear_rank, sluice_linear_with(f.g, f.x, f.v, SLUICE_NONE, false))
CASE(bad_linear_features, sluice_linear(f.g, f.x, 0, "fc"))
CASE(bad_linear_scalar, sluice_linear(f.g, input(f.g, "s", 0, NULL), 3, "fc"))
CASE(bad_linear_name, sluice_linear(f.g, f.x, 3, NULL))
CASE(bad_linear_twice, (sluice_linear(f.g, f.x, 3, "fc"), sluice_linear(f.g, f.x, 3, "fc")))
CASE(bad_linear_ids, sluice_linear(f.g, f.t, 3, "fc"))
CASE(bad_matmul_rank, sluice_matmul(f.g, f.x, f.m, false, false))
CASE(bad_matmul_inner, sluice_matmul(f.g, f.m, f.m, false, false))
CASE(bad_matmul_batch, sluice_matmul(f.g, f.x, input(f.g, "b", 3, D(3, 8, 4)), false, false))
CASE(bad_embedding_ids, sluice_embedding(f.g, f.x, f.m))
CASE(bad_embedding_table, sluice_embedding(f.g, f.t, f.v))
CASE(bad_embedding_rank, sluice_embedding(f.g, ids(f.g, "i", 6, D(1, 1, 1, 1, 1, 1)), f.m))
CASE(bad_relu, sluice_relu(f.g, f.t))
CASE(bad_softmax, sluice_softmax(f.g, input(f.g, "s", 0, NULL)))
CASE(bad_layer_norm, sluice_layer_norm(f.g, f.x, param(f.g, "w", 1, D(9)), SLUICE_NONE, 1e-5f))
CASE(bad_layer_norm_bias, sluice_layer_norm(f.g, f.x, f.v, f.m, 1e-5f))
CASE(bad_layer_norm_epsilon, sluice_layer_norm(f.g, f.x, f.v, SLUICE_NONE, -1))
CASE(bad_rms_norm, sluice_rms_norm(f.g, f.x, f.v, NAN))
CASE(bad_rotary_rank, sluice_rotary(f.g, f.m, 1, 2, 1e4f))
CASE(bad_rotary_odd, sluice_rotary(f.g, f.x, 1, 3, 1e4f))
CASE(bad_rotary_wide, sluice_rotary(f.g, f.x, 5, 2, 1e4f))
CASE(bad_rotary_base, sluice_rotary(f.g, f.x, 2, 2, 0))
CASE(bad_conv_rank, CONV(f, D(2, 9, 8), D(4, 3, 3, 2), .groups = 1))
CASE(bad_conv_weight, CONV(f, D(2, 9, 8, 6), D(4, 3, 3), .groups = 1))
CASE(bad_conv_channels, CONV(f, D(2, 9, 8, 6), D(4, 3, 3, 2), .groups = 1))
CASE(bad_conv_groups, CONV(f, D(2, 9, 8, 6), D(4, 2, 3, 2), .groups = 2))
CASE(bad_conv_outputs, CONV(f, D(2, 9, 8, 6), D(4, 2, 3, 2), .groups = 3))
CASE(bad_conv_no_groups, CONV(f, D(2, 9, 8, 6), D(4, 2, 3, 2), .groups = -1))
CASE(bad_conv_stride, CONV(f, D(2, 9, 8, 6), D(4, 6, 3, 2), .stride_w = -1))
CASE(bad_conv_padding, CONV(f, D(2, 9, 8, 6), D(4, 6, 3, 2), .padding_h = -1))
CASE(bad_conv_dilation, CONV(f, D(2, 9, 8, 6), D(4, 6, 3, 2), .dilation_h = 2000000))
CASE(bad_conv_large, CONV(f, D(2, 9, 8, 6), D(4, 6, 3, 9), .padding_h = 1))
CASE(bad_conv_options, sluice_conv2d(f.g, f.x, f.m, SLUICE_NONE, NULL))
CASE(bad_conv_bias, conv_with(f, D(2, 9, 8, 6), D(4, 6, 3, 3), f.v))
CASE(bad_pool_kernel, POOL(f, max, D(2, 7, 8, 3), .kernel_h = 3))
CASE(bad_pool_padding, POOL(f, max, D(2, 7, 8, 3), .kernel_h = 3, .kernel_w = 3, .padding_w = 2))
CASE(bad_pool_rank, sluice_avg_pool2d(f.g, f.x, &(sluice_pool_options){ sizeof(sluice_pool_options), .kernel_h = 1 }))
CASE(bad_pool_large, POOL(f, avg, D(2, 3, 8, 3), .kernel_h = 4, .kernel_w = 1))
CASE(bad_global, sluice_global_avg_pool(f.g, f.m))
CASE(bad_flatten, sluice_flatten(f.g, f.v))
CASE(bad_flattened, small_cnn(f))
CASE(bad_options_null, sluice_attention_with(f.g, f.x, f.x, f.x, SLUICE_NONE, NULL))
CASE(bad_options_half, sluice_attention_with(f.g, f.x, f.x, SLUICE_NONE, SLUICE_NONE, OPTIONS(.heads = 2)))
CASE(bad_window, PACKED(SLUICE_NONE, .causal = true, .window = -1))
CASE(bad_window_causal, PACKED(SLUICE_NONE, .window = 3))
CASE(bad_attention_softcap, PACKED(SLUICE_NONE, .softcap = -1))
CASE(bad_attention_softcap_nan, PACKED(SLUICE_NONE, .softcap = NAN))
CASE(bad_scale, PACKED(SLUICE_NONE, .scale = -0.5f))
CASE(bad_scale_infinite, PACKED(SLUICE_NONE, .scale = INFINITY))
CASE(bad_positions_type, PACKED(f.x, .causal = true))
CASE(bad_positions_shape, PACKED(ids(f.g, "p", 2, D(2, 4)), .causal = true))
CASE(bad_positions_rank, PACKED(ids(f.g, "p", 1, D(6)), .causal = true))
CASE(bad_positions_causal, PACKED(f.t, .window = 0))
CASE(bad_geglu, sluice_geglu(f.g, input(f.g, "odd", 1, D(5)), false))
CASE(bad_softcap, sluice_softcap(f.g, f.x, 0))
CASE(bad_offset, sluice_rms_norm_offset(f.g, f.x, f.v, 1e-5f, 0.5f))
CASE(bad_qk_norm_heads, sluice_qk_norm(f.g, f.x, f.v, f.v, 2, 2, 1e-6f, 0))
CASE(bad_qk_norm_weight, sluice_qk_norm(f.g, f.x, f.v, f.v, 2, 1, 1e-6f, 0))
CASE(bad_entropy_cap, sluice_cross_entropy_capped(f.g, f.x, f.t, -1, -30))

static sluice_value rotary(fixture f, sluice_value positions, sluice_rotary_options o)
{
    o.size = sizeof o;
    o.heads = 2, o.base = 1e4f;
    if (o.head_width == 0) o.head_width = 4;
    return sluice_rotary_with(f.g, f.x, positions, &o);
}
#define ROTARY(...) rotary(f, SLUICE_NONE, (sluice_rotary_options){ __VA_ARGS__ })
CASE(bad_rotary_part, ROTARY(.rotated = 3))
CASE(bad_rotary_more, ROTARY(.rotated = 6))
CASE(bad_rotary_kind, ROTARY(.scaling = (sluice_rotary_scaling)9))
CASE(bad_rotary_factor, ROTARY(.scaling = SLUICE_ROTARY_LINEAR, .factor = 0.5f))
CASE(bad_rotary_context, ROTARY(.scaling = SLUICE_ROTARY_DYNAMIC, .factor = 2))
CASE(bad_rotary_pairs, ROTARY(.scaling = SLUICE_ROTARY_DYNAMIC, .factor = 2, .context = 8, .rotated = 2))
CASE(bad_rotary_turns, ROTARY(.scaling = SLUICE_ROTARY_LLAMA3, .factor = 2, .context = 8, .low = 5))
CASE(bad_rotary_attention, ROTARY(.attention_factor = -1))
CASE(bad_rotary_positions, rotary(f, ids(f.g, "i", 1, D(3)), (sluice_rotary_options){ .rotated = 2 }))
CASE(bad_rotary_floats, rotary(f, f.x, (sluice_rotary_options){ .rotated = 2 }))
CASE(bad_rotary_none, sluice_rotary_with(f.g, f.x, SLUICE_NONE, NULL))
CASE(bad_attention_heads, sluice_attention(f.g, f.x, f.x, f.x, 4, 3, true))
CASE(bad_attention_zero, sluice_attention(f.g, f.x, f.x, f.x, 0, 0, true))
CASE(bad_attention_width, sluice_attention(f.g, f.x, f.x, f.x, 3, 3, true))
CASE(bad_attention_keys, sluice_attention(f.g, f.x, f.x, f.x, 4, 2, true))
CASE(bad_attention_causal,
     sluice_attention(f.g, f.x, input(f.g, "k", 3, D(2, 4, 8)), input(f.g, "w", 3, D(2, 4, 8)), 2, 2, true))
CASE(bad_attention_batch,
     sluice_attention(f.g, f.x, input(f.g, "k", 3, D(1, 3, 8)), input(f.g, "w", 3, D(1, 3, 8)), 2, 2, true))
CASE(bad_attention_values, sluice_attention(f.g, f.x, f.x, input(f.g, "w", 3, D(2, 3, 4)), 2, 2, true))
CASE(bad_packed, sluice_attention_packed(f.g, f.x, 1, 1, true))
CASE(bad_packed_rank, sluice_attention_packed(f.g, f.m, 1, 1, true))
CASE(bad_packed_heads, sluice_attention_packed(f.g, f.x, 2000000000, 2000000000, true))
CASE(bad_dropout_one, sluice_dropout(f.g, f.x, 1))
CASE(bad_dropout_nan, sluice_dropout(f.g, f.x, NAN))
CASE(bad_reshape, sluice_reshape(f.g, f.x, 1, D(47)))
CASE(bad_reshape_open, sluice_reshape(f.g, f.x, 2, D(-1, 5)))
CASE(bad_reshape_two, sluice_reshape(f.g, f.x, 2, D(-1, -1)))
CASE(bad_reshape_zero, sluice_reshape(f.g, f.x, 2, D(0, -1)))
CASE(bad_reshape_rank, sluice_reshape(f.g, f.x, 7, D(1, 1, 1, 1, 1, 1, 48)))
CASE(bad_transpose, sluice_transpose(f.g, f.x, (int[]){ 0, 1, 1 }))
CASE(bad_transpose_null, sluice_transpose(f.g, f.x, NULL))
CASE(bad_split_axis, sluice_split(f.g, f.x, 3, 0, 1))
CASE(bad_split_range, sluice_split(f.g, f.x, 1, 2, 2))
CASE(bad_split_overflow, sluice_split(f.g, f.x, 1, INT64_MAX, 2))
CASE(bad_concat, sluice_concat(f.g, (sluice_value[]){ f.x, f.m }, 2, 0))
CASE(bad_concat_axis, sluice_concat(f.g, (sluice_value[]){ f.x, f.x }, 2, 3))
CASE(bad_concat_count, sluice_concat(f.g, (sluice_value[]){ f.x }, 9, 0))
CASE(bad_concat_null, sluice_concat(f.g, NULL, 1, 0))
CASE(bad_cross_entropy, sluice_cross_entropy(f.g, f.x, ids(f.g, "u", 1, D(6)), -1))
CASE(bad_swiglu, sluice_swiglu(f.g, f.m))
CASE(bad_swiglu_scalar, sluice_swiglu(f.g, input(f.g, "s", 0, NULL)))
CASE(bad_head_width, sluice_linear_cross_entropy(f.g, f.x, f.m, f.t, -1))
CASE(bad_head_targets, sluice_linear_cross_entropy(f.g, f.x, param(f.g, "w", 2, D(5, 8)), ids(f.g, "u", 1, D(6)), -1))
CASE(bad_head_target_type, sluice_linear_cross_entropy(f.g, f.x, param(f.g, "w", 2, D(5, 8)), f.x, -1))
CASE(bad_head_bias, sluice_linear_cross_entropy_with(f.g, f.x, param(f.g, "w", 2, D(5, 8)), f.v, f.t, -1, 0, 0))
CASE(bad_head_bias_type,
     sluice_linear_cross_entropy_with(f.g, f.x, param(f.g, "w", 2, D(5, 8)), ids(f.g, "u", 1, D(5)), f.t, -1, 0, 0))
CASE(bad_cross_entropy_type, sluice_cross_entropy(f.g, f.x, f.x, -1))
CASE(bad_mse, sluice_mse(f.g, f.x, f.v))
CASE(bad_input_twice, input(f.g, "x", 1, D(1)))
CASE(bad_input_name, input(f.g, "", 1, D(1)))
CASE(bad_input_zero, input(f.g, "y", 2, D(3, 0)))
CASE(bad_input_negative, input(f.g, "y", 1, D(-3)))
CASE(bad_input_rank, input(f.g, "y", 7, D(1, 1, 1, 1, 1, 1, 1)))
CASE(bad_input_null, input(f.g, "y", 2, NULL))
CASE(bad_input_huge, input(f.g, "y", 3, D(1LL << 31, 1LL << 31, 1)))
CASE(bad_input_wrap, input(f.g, "y", 3, D(1LL << 32, 1LL << 32, 1LL << 32)))
CASE(bad_input_dtype, sluice_input(f.g, "y", (sluice_dtype)9, 1, D(1)))
CASE(bad_result_huge, sluice_add(f.g, input(f.g, "a", 2, D(1LL << 40, 1)), input(f.g, "b", 2, D(1, 1LL << 40))))
CASE(bad_parameter_twice, param(f.g, "m", 1, D(1)))
CASE(bad_parameter_zero, param(f.g, "p", 1, D(0)))
CASE(bad_parameter_init, sluice_parameter(f.g, "p", 1, D(1), (sluice_init){ (sluice_init_kind)7, 0 }))
CASE(bad_parameter_scale, sluice_parameter(f.g, "p", 1, D(1), (sluice_init){ SLUICE_INIT_NORMAL, INFINITY }))
CASE(bad_freeze, (sluice_freeze(f.g, f.x), SLUICE_NONE))
CASE(bad_freeze_none, (sluice_freeze(f.g, SLUICE_NONE), SLUICE_NONE))
CASE(bad_layer, (sluice_layer(f.g, NULL), SLUICE_NONE))
CASE(bad_loss, (sluice_set_loss(f.g, f.x), SLUICE_NONE))
CASE(bad_loss_none, (sluice_set_loss(f.g, SLUICE_NONE), SLUICE_NONE))
CASE(bad_output, (sluice_set_output(f.g, f.t), SLUICE_NONE))

static const struct {
    sluice_value (*build)(fixture f);
    const char *message;
} errors[] = {
    { bad_add_none, "add \"add_0\": got SLUICE_NONE" },
    { bad_add_foreign, "value 1000 is not of this graph" },
    { bad_add_negative, "value -7 is not of this graph" },
    { bad_add_shape, "add \"add_1\": \"relu_0\" (relu) [2, 3, 8] and \"m\" (parameter) [8, 5] do not broadcast" },
    { bad_add_ids, "\"t\" (input) [2, 3] is i32, must be f32" },
    { bad_saved, "not returned by a builder" },
    { bad_multiply, "multiply \"multiply_0\": \"x\" (input) [2, 3, 8] and \"m\" (parameter) [8, 5]" },
    { bad_linear, "linear \"fc2\": input \"relu_0\" (relu) has 8 features, weight \"fc2.weight\" expects 9 (shapes [2, "
                  "3, 8] and [4, 9])" },
    { bad_linear_bias, "bias \"v\" (parameter) [8] must be [5]" },
    { bad_linear_rank, "\"v\" (parameter) [8] has 1 dimensions, needs 2" },
    { bad_linear_features, "parameter \"fc.weight\": shape [0, 8]: every dimension must be at least 1" },
    { bad_linear_scalar, "is a scalar" },
    { bad_linear_name, "linear: needs a name" },
    { bad_linear_twice, "parameter \"fc.weight\": there is one of this name already" },
    { bad_linear_ids, "is i32, must be f32" },
    { bad_matmul_rank, "must agree in all but the last two" },
    { bad_matmul_inner, "gives 5 columns, \"m\" (parameter) [8, 5] takes 8 rows" },
    { bad_matmul_batch, "must agree in all but the last two" },
    { bad_embedding_ids, "\"x\" (input) [2, 3, 8] is f32, must be i32" },
    { bad_embedding_table, "needs 2" },
    { bad_embedding_rank, "at most 5 leave room" },
    { bad_relu, "relu \"relu_0\": \"t\" (input) [2, 3] is i32" },
    { bad_softmax, "has 0 dimensions, needs 1 or more" },
    { bad_layer_norm, "\"w\" (parameter) [9] must be [8], the last dimension of \"x\" (input) [2, 3, 8]" },
    { bad_layer_norm_bias, "\"m\" (parameter) [8, 5] must be [8]" },
    { bad_layer_norm_epsilon, "epsilon -1" },
    { bad_rms_norm, "epsilon nan" },
    { bad_rotary_rank, "has 2 dimensions, needs 3" },
    { bad_rotary_odd, "1 heads of width 3" },
    { bad_rotary_wide, "5 heads of width 2 are wider than \"x\"" },
    { bad_rotary_base, "base 0" },
    { bad_geglu, "rows of odd length" },
    { bad_softcap, "a cap of 0" },
    { bad_offset, "offset 0.5 must be 0, or 1" },
    { bad_qk_norm_heads, "\"x\" (input) [2, 3, 8] is not 2 query and 2 * 2 key and value heads" },
    { bad_qk_norm_weight, "\"v\" (parameter) [8] must be [2], the width of a head" },
    { bad_entropy_cap, "a soft cap of -30" },
    { bad_rotary_part, "3 rotated dimensions of heads of width 4" },
    { bad_rotary_more, "6 rotated dimensions of heads of width 4" },
    { bad_rotary_kind, "there is no scaling 9" },
    { bad_rotary_factor, "a scaling factor of 0.5" },
    { bad_rotary_context, "needs the context" },
    { bad_rotary_pairs, "4 rotated dimensions or more" },
    { bad_rotary_turns, "between 5 and 4 turns" },
    { bad_rotary_attention, "attention factor of -1" },
    { bad_rotary_positions, "positions \"i\" (input) [3] must be one for each row" },
    { bad_rotary_floats, "is f32, must be i32" },
    { bad_rotary_none, "options is NULL" },
    { bad_attention_heads, "4 heads with 3 key" },
    { bad_attention_zero, "0 heads with 0 key" },
    { bad_attention_width, "queries \"x\" (input) [2, 3, 8] are not 3 heads" },
    { bad_attention_keys, "keys \"x\" (input) [2, 3, 8] are not 2 heads" },
    { bad_attention_causal, "causal attention needs as many keys \"k\"" },
    { bad_attention_batch, "differ in batch" },
    { bad_attention_values, "must have equal shapes" },
    { bad_options_null, "options is NULL" },
    { bad_options_half, "got SLUICE_NONE where a value is needed" },
    { bad_window, "a window of -1 keys" },
    { bad_window_causal, "a window of 3 keys ends at a causal query" },
    { bad_attention_softcap, "capped at -1: must be" },
    { bad_attention_softcap_nan, "capped at nan: must be" },
    { bad_scale, "scaled by -0.5: must be above 0" },
    { bad_scale_infinite, "scaled by inf: must be above 0" },
    { bad_positions_type, "is f32, must be i32" },
    { bad_positions_shape, "must be [2, 3], one for each query" },
    { bad_positions_rank, "must be [2, 3], one for each query" },
    { bad_positions_causal, "separate documents for causal queries" },
    { bad_packed, "is not 1 query and 2 * 1 key" },
    { bad_packed_rank, "has 2 dimensions, needs 3" },
    { bad_packed_heads, "2000000000 query" },
    { bad_dropout_one, "p = 1 must be" },
    { bad_dropout_nan, "p = nan" },
    { bad_reshape, "48 elements do not make [47]" },
    { bad_reshape_open, "with one dimension open" },
    { bad_reshape_two, "only one dimension may be -1" },
    { bad_reshape_zero, "every dimension must be at least 1" },
    { bad_reshape_rank, "7 dimensions" },
    { bad_transpose, "order[2] = 1" },
    { bad_transpose_null, "order is NULL" },
    { bad_split_axis, "has no dimension 3" },
    { bad_split_range, "is not inside dimension 1" },
    { bad_split_overflow, "is not inside dimension 1" },
    { bad_concat, "\"x\" (input) [2, 3, 8] and \"m\" (parameter) [8, 5] differ" },
    { bad_concat_axis, "has no dimension 3" },
    { bad_concat_count, "1 to 8 values, got 9" },
    { bad_concat_null, "joins" },
    { bad_cross_entropy, "logits \"x\" (input) [2, 3, 8] need targets of shape [2, 3], not \"u\" (input) [6]" },
    { bad_swiglu, "has rows of odd length" },
    { bad_swiglu_scalar, "has 0 dimensions, needs 1 or more" },
    { bad_head_width, "input \"x\" (input) has 8 features, weight \"m\" expects 5" },
    { bad_head_targets, "rows \"x\" (input) [2, 3, 8] need targets of shape [2, 3], not \"u\" (input) [6]" },
    { bad_head_target_type, "is f32, must be i32" },
    { bad_head_bias, "must be [5], the outputs of weight \"w\"" },
    { bad_head_bias_type, "i32" },
    { bad_cross_entropy_type, "is f32, must be i32" },
    { bad_mse, "must have equal shapes" },
    { bad_input_twice, "input \"x\": there is one of this name already" },
    { bad_input_name, "needs a name" },
    { bad_input_zero, "shape [3, 0]" },
    { bad_input_negative, "shape [-3]" },
    { bad_input_rank, "7 dimensions" },
    { bad_input_null, "dims is NULL" },
    { bad_input_huge, "over 2^63 bytes" },
    { bad_input_wrap, "over 2^63 bytes" },
    { bad_input_dtype, "no dtype 9" },
    { bad_result_huge, "add \"add_0\": its result cannot be held" },
    { bad_parameter_twice, "parameter \"m\": there is one" },
    { bad_parameter_zero, "at least 1" },
    { bad_parameter_init, "no initialisation 7" },
    { bad_parameter_scale, "initial scale inf" },
    { bad_freeze, "\"x\" (input) [2, 3, 8] is not a parameter" },
    { bad_conv_rank, "must have the 4 dimensions of images" },
    { bad_conv_weight, "weight \"c.weight\" (parameter) [4, 3, 3] must be [outputs, channels of a group" },
    { bad_conv_channels,
      "conv2d \"c\": input \"i\" (input) [2, 9, 8, 6] has 6 channels, weight \"c.weight\" (parameter) "
      "[4, 3, 3, 2] expects 3" },
    { bad_conv_groups, "expects 2 groups of 2" },
    { bad_conv_outputs, "the 4 outputs of weight \"c.weight\" (parameter) [4, 2, 3, 2] do not make 3 groups" },
    { bad_conv_no_groups, "-1 groups: must be 1 or more" },
    { bad_conv_stride, "the stride of the width is -1, must be 1 to 1048576" },
    { bad_conv_padding, "the padding of the height is -1" },
    { bad_conv_dilation, "the dilation of the height is 2000000" },
    { bad_conv_large, "a kernel over 9 places does not fit the width of \"i\" (input) [2, 9, 8, 6] with padding 0" },
    { bad_conv_options, "sluice_conv_options: options is NULL" },
    { bad_conv_bias, "bias \"v\" (parameter) [8] must be [4], the outputs of weight \"c.weight\"" },
    { bad_pool_kernel, "the kernel of the width is 0, must be 1 to" },
    { bad_pool_padding, "the padding of the width is 2, must be 0 to 1" },
    { bad_pool_rank, "avg_pool2d \"avg_pool2d_0\": \"x\" (input) [2, 3, 8] must have the 4 dimensions of images" },
    { bad_pool_large, "a kernel over 4 places does not fit the height of \"i\" (input) [2, 3, 8, 3]" },
    { bad_global, "needs 3 or more: [N, .., channels]" },
    { bad_flatten, "flatten: \"v\" (parameter) [8] has 1 dimensions, needs 2 or more" },
    { bad_flattened,
      "linear \"fc1\": input \"reshape_3\" (reshape), of \"max_pool2d_1\" (max_pool2d) [4, 15, 15, 32], has "
      "7200 features, weight \"fc1.weight\" expects 1152" },
    { bad_freeze_none, "freeze: got SLUICE_NONE" },
    { bad_layer, "layer: needs a name" },
    { bad_loss, "\"x\" (input) [2, 3, 8] is not a computed scalar" },
    { bad_loss_none, "set_loss: got SLUICE_NONE" },
    { bad_output, "is i32, must be f32" },
};

TEST(builders_refuse_bad_operands_and_say_why)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        fixture f = open_fixture();
        CHECK_EQ(errors[i].build(f), SLUICE_NONE);
        sluice_status st = sluice_graph_check(f.g);
        if (st != SLUICE_ERR_USAGE)
            test_fail(__FILE__, __LINE__, "status %d where \"%s\" is due", (int)st, errors[i].message);
        CHECK_CONTAINS(f.g->error_text, errors[i].message);
        sluice_graph_destroy(f.g);
    }
}

/* ---- names ---- */

/* What weights files and checkpoints could not hold, or would read back as something else. */
static const struct {
    const char *name, *message;
    bool tensors_only; /* inputs and layers may be called so */
} bad_names[] = {
    { NULL, "needs a name", false },
    { "", "needs a name", false },
    { "w\xff\xfe", "\"w\\ufffd\\ufffd\": the name is not valid UTF-8, at byte 1", false },
    { "cut\xe2\x82", "the name is not valid UTF-8, at byte 3", false },
    { "two\nlines", "\"two\\u000alines\": the name has a control character, at byte 3", false },
    { "bell\x07", "the name has a control character, at byte 4", false },
    { "del\x7f", "the name has a control character, at byte 3", false },
    { "next\xc2\x85line", "the name has a control character, at byte 4", false },
    { "__metadata__", "safetensors files reserve this name", true },
    { "w.tile0", "names that end in .tile and a number belong to the tiles of large parameters", true },
    { "a.b.tile4095", "names that end in .tile and a number", true },
};

TEST(names_that_files_cannot_hold_are_refused_and_printed_safely)
{
    for (size_t i = 0; i < sizeof bad_names / sizeof *bad_names; i++)
        for (int kind = 0; kind < 4; kind++) {
            fixture f = open_fixture();
            const char *name = bad_names[i].name;
            if (kind == 0) param(f.g, name, 1, D(3));
            if (kind == 1) input(f.g, name, 1, D(3));
            if (kind == 2) sluice_layer(f.g, name);
            if (kind == 3) sluice_linear(f.g, f.x, 3, name);
            /* a linear's parameters are called "<name>.weight" and "<name>.bias" */
            bool refused = kind == 0 || !bad_names[i].tensors_only;
            CHECK_EQ(sluice_graph_check(f.g), refused ? SLUICE_ERR_USAGE : SLUICE_OK);
            if (refused) CHECK_CONTAINS(f.g->error_text, bad_names[i].message);
            CHECK(strpbrk(f.g->error_text, "\n\x07\x7f\xff") == NULL);
            sluice_graph_destroy(f.g);
        }
}

TEST(names_that_only_look_odd_are_fine)
{
    static const char *const names[] = { "w.tile",          "w.tile0x",          "tile7", "w.tile1.weight",
                                         "__metadata",      "\xc3\xa9t\xc3\xa9", " ",     "a\"b\\",
                                         "\xf0\x9f\x98\x80" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fixture f = open_fixture();
        CHECK(param(f.g, names[i], 1, D(3)) != SLUICE_NONE);
        REQUIRE_OK(sluice_graph_check(f.g));
        sluice_graph_destroy(f.g);
    }
}

TEST(names_have_at_most_1024_bytes)
{
    char name[1100];
    for (int kind = 0; kind < 4; kind++)
        for (int over = 0; over < 2; over++) {
            int longest = kind == 3 ? 1024 - (int)strlen(".weight") : 1024;
            fixture f = open_fixture();
            memset(name, 'n', sizeof name);
            name[longest + over] = '\0';
            if (kind == 0) param(f.g, name, 1, D(3));
            if (kind == 1) input(f.g, name, 1, D(3));
            if (kind == 2) sluice_layer(f.g, name);
            if (kind == 3) sluice_linear(f.g, f.x, 3, name);
            CHECK_EQ(sluice_graph_check(f.g), over ? SLUICE_ERR_USAGE : SLUICE_OK);
            if (over) CHECK_CONTAINS(f.g->error_text, "nnn...\": the name has ");
            if (over) CHECK_CONTAINS(f.g->error_text, " bytes, at most ");
            sluice_graph_destroy(f.g);
        }
}

TEST(an_input_and_a_parameter_do_not_share_a_name)
{
    fixture f = open_fixture();
    CHECK_EQ(param(f.g, "x", 1, D(3)), SLUICE_NONE);
    CHECK_CONTAINS(f.g->error_text, "parameter \"x\": an input has this name already");
    sluice_graph_destroy(f.g);
    f = open_fixture();
    CHECK_EQ(input(f.g, "m", 1, D(3)), SLUICE_NONE);
    CHECK_CONTAINS(f.g->error_text, "input \"m\": a parameter has this name already");
    sluice_graph_destroy(f.g);
}

TEST(first_error_stays_and_later_builders_do_nothing)
{
    fixture f = open_fixture();
    sluice_value broken = sluice_add(f.g, f.x, f.m);
    sluice_value after = sluice_mse(f.g, broken, f.x);
    CHECK_EQ(after, SLUICE_NONE);
    CHECK_EQ(sluice_linear(f.g, f.x, 3, "fc"), SLUICE_NONE);
    CHECK_EQ(sluice_reshape(f.g, f.x, 1, D(48)), SLUICE_NONE);
    CHECK_EQ(sluice_dropout(f.g, f.x, 0), SLUICE_NONE);
    sluice_set_loss(f.g, after);
    sluice_layer(f.g, "more");
    CHECK_EQ(f.g->node_count, 0);
    CHECK_EQ(f.g->layer_count, 0);
    CHECK_EQ(sl_graph_finish(f.g), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "add \"add_0\"");
    CHECK_EQ(sl_graph_differentiate(f.g), SLUICE_ERR_USAGE);
    sluice_graph_destroy(f.g);
}

TEST(null_graphs_are_refused_or_ignored)
{
    sluice_graph_destroy(NULL);
    sluice_graph_print(NULL, stderr);
    CHECK_EQ(sluice_graph_create(NULL), SLUICE_ERR_USAGE);
    CHECK_EQ(sluice_graph_check(NULL), SLUICE_ERR_USAGE);
    CHECK_EQ(sluice_relu(NULL, 0), SLUICE_NONE);
    CHECK_EQ(sluice_linear_with(NULL, 0, 0, 0, false), SLUICE_NONE);
    CHECK_EQ(sluice_attention(NULL, 0, 0, 0, 1, 1, false), SLUICE_NONE);
    CHECK_EQ(sluice_input(NULL, "x", SLUICE_F32, 0, NULL), SLUICE_NONE);
    sluice_layer(NULL, "a");
    sluice_set_loss(NULL, 0);
    CHECK_CONTAINS(sluice_error(), "the graph is NULL");
}

TEST(finished_graphs_do_not_grow)
{
    fixture f = open_fixture();
    sluice_value y = sluice_linear_with(f.g, sluice_rms_norm(f.g, f.x, f.v, 0), f.m, SLUICE_NONE, true);
    sluice_set_loss(f.g, sluice_sum(f.g, y));
    REQUIRE_OK(sl_graph_finish(f.g));
    REQUIRE_OK(sl_graph_finish(f.g));
    CHECK_EQ(sluice_relu(f.g, y), SLUICE_NONE);
    CHECK_EQ(sluice_graph_check(f.g), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "can no longer grow");
    sluice_graph_destroy(f.g);
}

TEST(very_long_names_do_not_break_messages)
{
    char name[1025];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    fixture f = open_fixture();
    sluice_value p = param(f.g, name, 2, D(3, 8));
    sluice_value y = sluice_linear_with(f.g, f.x, p, SLUICE_NONE, false);
    CHECK(y != SLUICE_NONE);
    CHECK_EQ(sluice_add(f.g, y, f.x), SLUICE_NONE);
    CHECK_CONTAINS(f.g->error_text, "do not broadcast");
    sluice_graph_destroy(f.g);
}

/* ---- misuse at random ---- */

static uint32_t random_below(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % n;
}

/* One call with operands from all over the graph and beyond it. */
static sluice_value random_call(sluice_graph *g, uint64_t *s)
{
    sluice_value v[3];
    int64_t dims[7], n = (int64_t)random_below(s, 12) - 2;
    int order[SL_MAX_RANK], k = (int)random_below(s, 5) - 1;
    char name[8];
    for (int i = 0; i < 3; i++)
        v[i] =
            (sluice_value)random_below(s, (uint32_t)g->value_count + 1 + !random_below(s, 40)) - !random_below(s, 40);
    for (int i = 0; i < 7; i++) dims[i] = (int64_t)random_below(s, 4) + 1 - 2 * !random_below(s, 30);
    for (int i = 0; i < SL_MAX_RANK; i++) order[i] = (int)random_below(s, 3);
    snprintf(name, sizeof name, "%u", random_below(s, 100000));
    sluice_conv_options conv_options = { sizeof conv_options, k, 1, (int)dims[0], 1, 1, (int)dims[1], (int)n };
    sluice_pool_options pool = { sizeof pool, k, (int)dims[0], 0, (int)dims[1], 0, (int)dims[2], k > 0, n > 0 };
    switch (random_below(s, 24)) {
    case 19:
        return sluice_conv2d(g, v[0], v[1], v[2], &conv_options);
    case 20:
        return sluice_max_pool2d(g, v[0], &pool);
    case 21:
        return sluice_avg_pool2d(g, v[0], &pool);
    case 22:
        return sluice_flatten(g, sluice_global_avg_pool(g, v[0]));
    case 0:
        return sluice_add(g, v[0], v[1]);
    case 1:
        return sluice_multiply(g, v[0], v[1]);
    case 2:
        return sluice_linear(g, v[0], n, name);
    case 3:
        return sluice_linear_with(g, v[0], v[1], v[2], k > 0);
    case 4:
        return sluice_matmul(g, v[0], v[1], k > 0, n > 0);
    case 5:
        return sluice_embedding(g, v[0], v[1]);
    case 6:
        return sluice_softmax(g, v[0]);
    case 7:
        return sluice_layer_norm(g, v[0], v[1], v[2], (float)n);
    case 8:
        return sluice_rms_norm(g, v[0], v[1], 1);
    case 9:
        return sluice_rotary(g, v[0], k, (int)n, 1);
    case 10:
        return sluice_attention(g, v[0], v[1], v[2], k, (int)n, k > 0);
    case 11:
        return sluice_attention_packed(g, v[0], k, (int)n, k > 0);
    case 12:
        return sluice_dropout(g, v[0], (float)n / 4);
    case 13:
        return sluice_reshape(g, v[0], k + 1, dims);
    case 14:
        return sluice_transpose(g, v[0], order);
    case 15:
        return sluice_split(g, v[0], k, n, dims[0]);
    case 16:
        return sluice_concat(g, v, k, (int)n);
    case 17:
        return sluice_cross_entropy(g, v[0], v[1], 0);
    case 18:
        return sluice_parameter(g, name, k, dims, zero);
    default:
        return sluice_input(g, name, (sluice_dtype)random_below(s, 3), k, dims);
    }
}

TEST(random_calls_give_a_graph_or_a_message_and_never_more)
{
    int built = 0;
    for (uint64_t seed = 1; seed <= 5000; seed++) {
        uint64_t s = seed * 7919;
        fixture f = open_fixture();
        for (uint32_t i = 1 + random_below(&s, 3); i > 0 && f.g->error == SLUICE_OK; i--) {
            random_call(f.g, &s);
            if (random_below(&s, 6) == 0) sluice_layer(f.g, "next");
        }
        if (f.g->error == SLUICE_OK && f.g->node_count > 0) {
            built++;
            sluice_set_loss(f.g, sluice_sum(f.g, f.g->nodes[f.g->node_count - 1].outputs[0]));
        }
        CHECK(f.g->error == SLUICE_OK || f.g->error_text[0] != '\0');
        sluice_status st = sl_graph_differentiate(f.g);
        if (st != SLUICE_OK && st != SLUICE_ERR_USAGE)
            test_fail(__FILE__, __LINE__, "seed %d: %s", (int)seed, sluice_error());
        sluice_graph_destroy(f.g);
    }
    CHECK(built > 100);
}

TEST(print_shows_every_node_on_a_line)
{
    fixture f = open_fixture();
    sluice_value y = sluice_linear_with(f.g, sluice_rms_norm(f.g, f.x, f.v, 0), f.m, SLUICE_NONE, true);
    sluice_set_loss(f.g, sluice_sum(f.g, y));
    REQUIRE_OK(sl_graph_differentiate(f.g));
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    sluice_graph_print(f.g, out);
    fclose(out);
    int lines = 0;
    for (const char *c = text; *c; c++) lines += *c == '\n';
    CHECK_EQ(lines, 1 + f.g->layer_count + f.g->node_count);
    CHECK_CONTAINS(text, "linear_grad_weight");
    CHECK_CONTAINS(text, "x[2, 3, 8]");
    CHECK_CONTAINS(text, "%1 m[8, 5] {in_out true}\n");
    free(text);
    sluice_graph_destroy(f.g);
}

TEST(costs_count_matrix_products_exactly)
{
    fixture f = open_fixture();
    sluice_linear_with(f.g, f.x, f.m, SLUICE_NONE, true);
    sluice_matmul(f.g, f.x, input(f.g, "b", 3, D(2, 3, 4)), true, false);
    sluice_attention_packed(f.g, f.x, 2, 1, true);
    sluice_reshape(f.g, f.x, 1, D(48));
    sluice_embedding(f.g, f.t, f.m);
    sl_cost linear = sl_ops[SL_OP_LINEAR].cost(f.g, &f.g->nodes[0]);
    CHECK_NEAR(linear.flops, 2 * 6 * 8 * 5, 0);
    CHECK_NEAR(linear.bytes, 4 * (48 + 40 + 30), 0);
    CHECK_NEAR(sl_ops[SL_OP_MATMUL].cost(f.g, &f.g->nodes[1]).flops, 2 * 2 * 8 * 3 * 4, 0);
    CHECK_NEAR(sl_ops[SL_OP_ATTENTION].cost(f.g, &f.g->nodes[2]).flops, 4 * 2 * 2 * 6 * 2, 0);
    CHECK_NEAR(sl_ops[SL_OP_RESHAPE].cost(f.g, &f.g->nodes[3]).bytes, 0, 0);
    CHECK_NEAR(sl_ops[SL_OP_EMBEDDING].cost(f.g, &f.g->nodes[4]).bytes, 4 * 6 + 2 * 4 * 30, 0);
    sluice_linear_cross_entropy(f.g, f.x, param(f.g, "w", 2, D(5, 8)), f.t, -1);
    CHECK_NEAR(sl_ops[SL_OP_LINEAR_CROSS_ENTROPY].cost(f.g, &f.g->nodes[5]).flops, 3 * 2 * 6 * 8 * 5 + 8 * 6 * 5, 0);
    f.g->nodes[5].outputs[2] = -1;
    CHECK_NEAR(sl_ops[SL_OP_LINEAR_CROSS_ENTROPY].cost(f.g, &f.g->nodes[5]).flops, 2 * 2 * 6 * 8 * 5 + 8 * 6 * 5, 0);
    sluice_linear_cross_entropy_with(f.g, f.x, param(f.g, "v2", 2, D(5, 8)), param(f.g, "b2", 1, D(5)), f.t, -1, 0, 0);
    CHECK_NEAR(sl_ops[SL_OP_LINEAR_CROSS_ENTROPY].cost(f.g, &f.g->nodes[6]).flops, 3 * 2 * 6 * 8 * 5 + 10 * 6 * 5, 0);
    f.g->nodes[6].outputs[4] = -1;
    CHECK_NEAR(sl_ops[SL_OP_LINEAR_CROSS_ENTROPY].cost(f.g, &f.g->nodes[6]).flops, 3 * 2 * 6 * 8 * 5 + 9 * 6 * 5, 0);
    sluice_graph_destroy(f.g);
}

/* ---- asked to stop ---- */

TEST(a_stop_ends_building_and_differentiating)
{
    int stop = 15;
    fixture f = open_fixture();
    f.g->stop = &stop;
    CHECK_EQ(sluice_add(f.g, f.x, f.x), SLUICE_NONE);
    CHECK_EQ(sluice_graph_check(f.g), SLUICE_ERR_STOPPED);
    CHECK_CONTAINS(sluice_error(), "stopped by a signal while planning");
    sluice_graph_destroy(f.g);

    stop = 0;
    REQUIRE_OK(sluice_graph_create(&f.g));
    f.g->stop = &stop;
    sluice_value x = input(f.g, "x", 2, D(2, 3)), w = param(f.g, "w.weight", 2, D(3, 3));
    sluice_set_loss(f.g, sluice_mse(f.g, sluice_matmul(f.g, x, w, false, false), input(f.g, "target", 2, D(2, 3))));
    REQUIRE_OK(sl_graph_finish(f.g));
    stop = 15;
    CHECK_EQ(sl_graph_lower(f.g, SLUICE_BF16, SLUICE_BF16), SLUICE_ERR_STOPPED);
    CHECK_EQ(sl_graph_differentiate(f.g), SLUICE_ERR_STOPPED);
    CHECK_EQ(sl_graph_verify(f.g), SLUICE_ERR_STOPPED);
    sluice_graph_destroy(f.g);
}
