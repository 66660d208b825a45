/* op_list.h: every operation and every attribute, one row each. The enum, the op table, the prototypes of the columns,
 * the union of attributes and their descriptors are made of these rows (op.h, ops.c, op_rows.h, attributes.c), so
 * there is no second list. To be included: define the macros whose rows are wanted; the others expand to nothing, and
 * all of them are undefined at the end.
 *
 *   SL_FORWARD_OP(OP, name, infer, gradient, cost, attributes, facts..)
 *   SL_BACKWARD_OP(OP, name, infer, cost, attributes, facts..)      made by differentiation, or by a pass after it
 *   SL_UPDATE_OP(OP, name, cost, attributes, facts..)               operands are flat buffers of layers
 *   SL_ATTRIBUTES(group, fields)                                    the struct sl_attrs.group
 *
 * infer, gradient and cost name functions: sl_infer_<infer>, sl_gradient_<gradient>, sl_cost_<cost>. attributes names a
 * group, or `none`. The facts are designated initialisers of sl_op_def (op.h says what each means);
 * tests/ir/op_rows_test.c fails for a row that leaves one open. docs/add-an-op.md walks through adding an op. */
/* clang-format off */
#ifndef SL_FORWARD_OP
#define SL_FORWARD_OP(...)
#endif
#ifndef SL_BACKWARD_OP
#define SL_BACKWARD_OP(...)
#endif
#ifndef SL_UPDATE_OP
#define SL_UPDATE_OP(...)
#endif
#ifndef SL_ATTRIBUTES
#define SL_ATTRIBUTES(group, fields)
#endif

/* ---- attributes ----
 *
 * SL_IDENTITY(group, type, field): with another value it is another model, and a checkpoint is not continued.
 * SL_IDENTITY_ARRAY(group, type, field, length): the same for each element.
 * SL_IDENTITY_IF_SET(group, type, field): the same where it is not zero. For attributes that a group gains: zero means what
 * the op did before, so that models without it keep their identity, and checkpoints of them are continued.
 * SL_FREE(group, type, field, why): may be another one on resume, and why that does no harm. */

SL_ATTRIBUTES(scale, SL_IDENTITY(scale, float, factor))
SL_ATTRIBUTES(linear, SL_IDENTITY(linear, bool, in_out))
SL_ATTRIBUTES(matmul, SL_IDENTITY(matmul, bool, transpose_a) SL_IDENTITY(matmul, bool, transpose_b))
SL_ATTRIBUTES(gelu, SL_IDENTITY(gelu, bool, exact))
SL_ATTRIBUTES(norm, SL_IDENTITY(norm, float, epsilon) SL_IDENTITY_IF_SET(norm, float, offset))
SL_ATTRIBUTES(qk_norm,
    SL_IDENTITY(qk_norm, int, heads) SL_IDENTITY(qk_norm, int, kv_heads) SL_IDENTITY(qk_norm, int, head_width)
    SL_IDENTITY(qk_norm, float, epsilon) SL_IDENTITY(qk_norm, float, offset))
/* relu: the result is max(result, 0), behind the residual where there is one; frozen: training takes the running statistics,
 * too; all_ranks: statistics are those of what all ranks compute at a time, and `ranks` how many they are (ir/shared_norm.h) */
SL_ATTRIBUTES(batch_norm,
    SL_IDENTITY(batch_norm, float, epsilon) SL_IDENTITY(batch_norm, float, momentum) SL_IDENTITY(batch_norm, bool, relu)
    SL_FREE(batch_norm, bool, frozen, "follows from the parameters that are trained, which must stay")
    SL_IDENTITY_IF_SET(batch_norm, bool, all_ranks)
    SL_FREE(batch_norm, int, ranks, "of no matter to who evaluates; a run that resumes is asked for it by itself"))
SL_ATTRIBUTES(group_norm, SL_IDENTITY(group_norm, int, groups) SL_IDENTITY(group_norm, float, epsilon))
SL_ATTRIBUTES(softcap, SL_IDENTITY(softcap, float, cap))
SL_ATTRIBUTES(rotary,
    SL_IDENTITY(rotary, int, heads) SL_IDENTITY(rotary, int, head_width) SL_IDENTITY(rotary, float, base)
    SL_IDENTITY(rotary, bool, inverse) SL_IDENTITY_IF_SET(rotary, bool, fractional)
    SL_IDENTITY_IF_SET(rotary, int, rotated) SL_IDENTITY_IF_SET(rotary, int, scaling)
    SL_IDENTITY_IF_SET(rotary, int, context) SL_IDENTITY_IF_SET(rotary, float, factor)
    SL_IDENTITY_IF_SET(rotary, float, low) SL_IDENTITY_IF_SET(rotary, float, high)
    SL_IDENTITY_IF_SET(rotary, float, attention))
SL_ATTRIBUTES(attention,
    SL_IDENTITY(attention, int, heads) SL_IDENTITY(attention, int, kv_heads) SL_IDENTITY(attention, int, head_width)
    SL_IDENTITY(attention, bool, causal) SL_IDENTITY(attention, bool, packed) SL_IDENTITY(attention, float, scale)
    SL_IDENTITY_IF_SET(attention, int, window) SL_IDENTITY_IF_SET(attention, float, softcap))
/* window: keys that a query sees, itself included, 0: all before it; softcap: 0: none; slots and kept: sequences, and places
 * of each, that the cache has room for */
SL_ATTRIBUTES(cached,
    SL_IDENTITY(cached, int, heads) SL_IDENTITY(cached, int, kv_heads) SL_IDENTITY(cached, int, head_width)
    SL_IDENTITY(cached, float, scale) SL_IDENTITY(cached, int64_t, window) SL_IDENTITY(cached, float, softcap)
    SL_IDENTITY(cached, int64_t, slots) SL_IDENTITY(cached, int64_t, kept))
SL_ATTRIBUTES(conv,
    SL_IDENTITY(conv, int, stride_h) SL_IDENTITY(conv, int, stride_w) SL_IDENTITY(conv, int, padding_h)
    SL_IDENTITY(conv, int, padding_w) SL_IDENTITY(conv, int, dilation_h) SL_IDENTITY(conv, int, dilation_w)
    SL_IDENTITY(conv, int, groups))
/* ceil_mode: a window that begins inside the input or its padding counts though it ends outside; include_padding: an
 * average divides by the padding's places too */
SL_ATTRIBUTES(pool,
    SL_IDENTITY(pool, int, kernel_h) SL_IDENTITY(pool, int, kernel_w) SL_IDENTITY(pool, int, stride_h)
    SL_IDENTITY(pool, int, stride_w) SL_IDENTITY(pool, int, padding_h) SL_IDENTITY(pool, int, padding_w)
    SL_IDENTITY(pool, bool, ceil_mode) SL_IDENTITY(pool, bool, include_padding))
SL_ATTRIBUTES(dropout,
    SL_FREE(dropout, float, p, "regularisation keeps no state, and may be changed on purpose")
    SL_FREE(dropout, uint32_t, op, "the node's number, which building fixes"))
SL_ATTRIBUTES(transpose, SL_IDENTITY_ARRAY(transpose, int, order, SL_MAX_RANK))
SL_ATTRIBUTES(split,
    SL_IDENTITY(split, int, axis) SL_IDENTITY(split, int64_t, start) SL_IDENTITY(split, int64_t, size))
SL_ATTRIBUTES(concat, SL_IDENTITY(concat, int, axis))
SL_ATTRIBUTES(cross_entropy,
    SL_IDENTITY(cross_entropy, int32_t, ignore_index) SL_IDENTITY_IF_SET(cross_entropy, float, softcap)
    SL_IDENTITY_IF_SET(cross_entropy, float, smoothing))
SL_ATTRIBUTES(bag, SL_IDENTITY(bag, bool, mean))
SL_ATTRIBUTES(gru, SL_IDENTITY(gru, bool, reverse))
SL_ATTRIBUTES(ctc, SL_IDENTITY(ctc, int32_t, blank) SL_IDENTITY(ctc, bool, zero_infinity))

/* ---- forward: inputs -> outputs ---- */

/* a, b -> a + b, broadcasting as NumPy does */
SL_FORWARD_OP(ADD, add, broadcast, add, pointwise, none,
    SL_ARITY(2, 2, 1), .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR, .element_flops = 1,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER)
/* a, b -> a * b, broadcasting */
SL_FORWARD_OP(MULTIPLY, multiply, broadcast, multiply, pointwise, none,
    SL_ARITY(2, 2, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .element_flops = 1,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER)
/* x -> x * attrs.scale.factor */
SL_FORWARD_OP(SCALE, scale, same, scale, pointwise, scale,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR, .element_flops = 1,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER)
/* x[..,I], w[O,I] (or [I,O] with attrs.linear.in_out), bias[O]? -> y[..,O] */
SL_FORWARD_OP(LINEAR, linear, linear, linear, linear, linear,
    SL_ARITY(2, 3, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_MATRIX, .lowering = SL_LOWER_BY_RESULT,
    .tile = SL_TILE_PRODUCT)
/* x, w, bias? -> gelu(y) in the tanh form, y: LINEAR's, for backward. Lowering makes it of the two */
SL_FORWARD_OP(LINEAR_GELU, linear_gelu, linear_gelu, linear_gelu, linear, linear,
    SL_ARITY(2, 3, 2), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_MATRIX, .lowering = SL_LOWER_BY_RESULT,
    .tile = SL_TILE_NEVER, .saved = { { .name = "linear", .kind = SL_SAVED_VALUE } })
/* x, w, base[..,O], bias? -> base + LINEAR's y. Lowering makes it of the two */
SL_FORWARD_OP(LINEAR_ADD, linear_add, linear_add, linear_add, linear, linear,
    SL_ARITY(3, 4, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_MATRIX, .lowering = SL_LOWER_BY_RESULT,
    .tile = SL_TILE_NEVER)
/* a[..,M,K], b[..,K,N] (attrs.matmul.transpose_a/b swap the last two), leading dims equal -> [..,M,N] */
SL_FORWARD_OP(MATMUL, matmul, matmul, matmul, matmul, matmul,
    SL_ARITY(2, 2, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_MATRIX, .lowering = SL_LOWER_BY_RESULT,
    .tile = SL_TILE_NEVER)
/* ids[..] i32, table[V,C] -> [..,C]; ids outside [0,V) are refused before a batch is used */
SL_FORWARD_OP(EMBEDDING, embedding, embedding, embedding, embedding, none,
    SL_ARITY(2, 2, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .lowering = SL_LOWER_BY_RESULT,
    .tile = SL_TILE_TABLE, SL_INDEXES(0, 1, false, false))
/* x[..,C], ends[B] i32 -> y[B,C]: the sum, or with attrs.bag.mean the mean, of rows ends[b-1] up to ends[b] of x, from 0 on;
 * 0 where there are none. Ends that decrease or lie behind the rows are refused before a batch is used */
SL_FORWARD_OP(BAG, bag, bag, bag, pointwise, bag,
    SL_ARITY(2, 2, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .element_flops = 1,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER)
/* x[N,H,W,C], w[O,C/groups,kh,kw], bias[O]? -> y[N,H',W',O]: y[n,i,j,o] is the sum of w[o,c,a,b] times x[n, i*stride_h -
 * padding_h + a*dilation_h, j*stride_w - padding_w + b*dilation_w, c] over a, b and the channels c of o's group, 0 where
 * that is outside x. H' = (H + 2*padding_h - dilation_h*(kh-1) - 1) / stride_h + 1 */
SL_FORWARD_OP(CONV2D, conv2d, conv2d, conv2d, conv2d, conv,
    SL_ARITY(2, 3, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_MATRIX, .lowering = SL_LOWER_BY_RESULT,
    .tile = SL_TILE_NEVER)
/* x[N,H,W,C] -> y[N,H',W',C]: the largest of each window, which padding never is; NaN where the window has one */
SL_FORWARD_OP(MAX_POOL2D, max_pool2d, pool2d, from_input, pointwise, pool,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .element_flops = 2,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER, .backward = SL_OP_MAX_POOL2D_GRAD)
/* x[N,H,W,C] -> y[N,H',W',C]: the sum of each window over its places inside x, or inside x and its padding where
 * attrs.pool.include_padding */
SL_FORWARD_OP(AVG_POOL2D, avg_pool2d, pool2d, pool_average, pointwise, pool,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .element_flops = 2,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER, .backward = SL_OP_AVG_POOL2D_GRAD)
/* x[N,..,C] -> [N,C]: the mean over all dimensions between */
SL_FORWARD_OP(GLOBAL_AVG_POOL, global_avg_pool, global_avg_pool, pool_average, pointwise, none,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .element_flops = 1,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER, .backward = SL_OP_GLOBAL_AVG_POOL_GRAD)
/* x -> max(x, 0) */
SL_FORWARD_OP(RELU, relu, same, from_output, pointwise, none,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR, .element_flops = 1,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER, .backward = SL_OP_RELU_GRAD)
/* x -> gelu(x); attrs.gelu.exact: erf, else tanh */
SL_FORWARD_OP(GELU, gelu, same, from_input, pointwise, gelu,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR, .element_flops = 12,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER, .backward = SL_OP_GELU_GRAD)
/* x -> x * sigmoid(x) */
SL_FORWARD_OP(SILU, silu, same, from_input, pointwise, none,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR, .element_flops = 8,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER, .backward = SL_OP_SILU_GRAD)
/* x -> tanh(x) */
SL_FORWARD_OP(TANH, tanh, same, from_output, pointwise, none,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR, .element_flops = 12,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER, .backward = SL_OP_TANH_GRAD)
/* x -> 1 / (1 + e^-x) */
SL_FORWARD_OP(SIGMOID, sigmoid, same, from_output, pointwise, none,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR, .element_flops = 8,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER, .backward = SL_OP_SIGMOID_GRAD)
/* x[..,2F] -> silu(x[..,:F]) * x[..,F:] */
SL_FORWARD_OP(SWIGLU, swiglu, swiglu, from_input, pointwise, none,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .element_flops = 8,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER, .backward = SL_OP_SWIGLU_GRAD)
/* x[..,2F] -> gelu(x[..,:F]) * x[..,F:]; attrs.gelu.exact: erf, else tanh */
SL_FORWARD_OP(GEGLU, geglu, swiglu, from_input, pointwise, gelu,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .element_flops = 12,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER, .backward = SL_OP_GEGLU_GRAD)
/* x -> c tanh(x / c), c = attrs.softcap.cap: x near 0, never beyond c */
SL_FORWARD_OP(SOFTCAP, softcap, softcap, from_input, pointwise, softcap,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR, .element_flops = 14,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER, .backward = SL_OP_SOFTCAP_GRAD)
/* x -> softmax over the last dimension */
SL_FORWARD_OP(SOFTMAX, softmax, softmax, from_output, pointwise, none,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR, .element_flops = 8,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER, .backward = SL_OP_SOFTMAX_GRAD)
/* x -> x - log of the sum of e^x over the last dimension */
SL_FORWARD_OP(LOG_SOFTMAX, log_softmax, softmax, from_input, pointwise, none,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR, .element_flops = 8,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER, .backward = SL_OP_LOG_SOFTMAX_GRAD)
/* x[..,C], weight[C], bias[C]? -> y, mean[rows], rstd[rows] */
SL_FORWARD_OP(LAYER_NORM, layer_norm, layer_norm, layer_norm, pointwise, norm,
    SL_ARITY(2, 3, 3), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .element_flops = 8,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER,
    .saved = { { .name = "mean", .kind = SL_SAVED_STATISTIC }, { .name = "rstd", .kind = SL_SAVED_STATISTIC } })
/* x[..,C], weight[C] -> y = x rstd (attrs.norm.offset + weight), rstd[rows]. The offset is 0, or 1 where weights are
 * kept as differences from 1; it is added in f32 */
SL_FORWARD_OP(RMS_NORM, rms_norm, rms_norm, rms_norm, pointwise, norm,
    SL_ARITY(2, 2, 2), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .element_flops = 5,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER, .saved = { { .name = "rstd", .kind = SL_SAVED_STATISTIC } })
/* qkv[B,T,(H+2G)*D], q_weight[D], k_weight[D] -> y, rstd[B,T,H+G]: RMS_NORM of each of the H query heads with q_weight
 * and of each of the G key heads with k_weight; the G value heads are copied */
SL_FORWARD_OP(QK_NORM, qk_norm, qk_norm, qk_norm, pointwise, qk_norm,
    SL_ARITY(3, 3, 2), .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR, .element_flops = 5,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER, .saved = { { .name = "rstd", .kind = SL_SAVED_STATISTIC } })
/* x[..,C], weight[C], bias[C], residual like x? -> y = relu?((x - mean) rstd weight + bias (+ residual)), mean[C],
 * rstd[C], statistics[SL_STATISTICS,C]. In training mean and variance are those of all rows of x, and rows BATCH_MEAN and
 * BATCH_VARIANCE (unbiased) of the statistics get them where they are wanted; in evaluation, and with attrs.batch_norm.frozen,
 * they are rows RUNNING_MEAN and RUNNING_VARIANCE */
SL_FORWARD_OP(BATCH_NORM, batch_norm, batch_norm, batch_norm, channel_norm, batch_norm,
    SL_ARITY(3, 4, 4), .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR, .element_flops = 8,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER,
    .saved = { { .name = "mean", .kind = SL_SAVED_STATISTIC }, { .name = "rstd", .kind = SL_SAVED_STATISTIC }, { .name = "statistics", .kind = SL_SAVED_STATE } })
/* x[N,..,C], weight[C], bias[C] -> y, mean[N,G], rstd[N,G]: of each sample, the channels of each of G =
 * attrs.group_norm.groups groups of C/G neighbours are normalised together */
SL_FORWARD_OP(GROUP_NORM, group_norm, group_norm, group_norm, channel_norm, group_norm,
    SL_ARITY(3, 3, 3), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .element_flops = 8,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER,
    .saved = { { .name = "mean", .kind = SL_SAVED_STATISTIC }, { .name = "rstd", .kind = SL_SAVED_STATISTIC } })
/* x[B,T,W], positions[B,T] i32? -> same; rotates the first d = attrs.rotary.rotated dimensions (0: all) of each of
 * attrs.rotary.heads heads of width D from the row's start (pairs i, i + d/2), at positions[b,t], or at t, and copies the
 * rest. ir/rotary_table.h has the angles and what they are scaled by. attrs.rotary.inverse: the transpose */
SL_FORWARD_OP(ROTARY, rotary, rotary, rotary, pointwise, rotary,
    SL_ARITY(1, 2, 1), .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR, .element_flops = 6,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER)
/* qkv[B,T,(H+2G)*D], or q[B,T,H*D], k[B,S,G*D], v[B,S,G*D]; positions[B,T]? or lengths[B]? i32 -> out[B,T,H*D], lse[B,H,T].
 * Query head h uses key head h / (H/G). Scores are q k^T attrs.attention.scale; with softcap c, c tanh(score / c) of that.
 * Causal needs T == S: query t sees keys up to t, of them the last `window` where that is not 0, and with positions no key
 * before t - positions[t], where its document begins. Otherwise queries see all keys, or with lengths the first lengths[b],
 * of 1 to S, of their row. Never materialises T x S. */
SL_FORWARD_OP(ATTENTION, attention, attention, attention, attention, attention,
    SL_ARITY(1, 4, 2), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_ATTENTION, .lowering = SL_LOWER_BY_RESULT,
    .tile = SL_TILE_NEVER, .positions = true, .saved = { { .name = "lse", .kind = SL_SAVED_STATISTIC } })
/* qkv[N,1,(H+2G)*D], positions[N,1] i32, slots[N,1] i32 -> out[N,1,H*D], cache. A row is a token of any sequence: its key
 * and value go to the place of its position in the cache of its slot, for all rows; then each query sees the keys of its
 * slot up to its own position, `window` of them at most, as ATTENTION's causal queries do. The cache is
 * [slots, G, 2 * kept * D]: of each head first the keys, in blocks of SL_CACHE_KEYS places with the places of one dimension
 * side by side, then the values, place after place. Position p lies at place p % kept. For generation: no gradient */
SL_FORWARD_OP(ATTENTION_CACHED, attention_cached, attention_cached, none, attention_cached, cached,
    SL_ARITY(3, 3, 2), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_ATTENTION, .lowering = SL_LOWER_BY_RESULT,
    .tile = SL_TILE_NEVER, .only_evaluates = true, .saved = { { .name = "cache", .kind = SL_SAVED_STATE } })
/* x -> x * keep / (1-p); keep from the counter (seed, step, micro, op, element); identity in evaluation. Its own
 * gradient: the same op on dy with the same attrs.dropout.op */
SL_FORWARD_OP(DROPOUT, dropout, same, dropout, pointwise, dropout,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR, .element_flops = 12,
    .regularises = true, .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER)
/* x -> same bytes, other shape. A view: never computed */
SL_FORWARD_OP(RESHAPE, reshape, reshape, reshape, view, none,
    SL_ARITY(1, 1, 1), .view = true, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .lowering = SL_LOWER_VIEW, .tile = SL_TILE_NEVER)
/* x -> dims permuted by attrs.transpose.order: out.dim[i] = in.dim[order[i]] */
SL_FORWARD_OP(TRANSPOSE, transpose, transpose, transpose, pointwise, transpose,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .element_flops = SL_ONLY_MOVES,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER)
/* x -> part [start, start+size) of dimension attrs.split.axis */
SL_FORWARD_OP(SPLIT, split, split, split, part, split,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .lowering = SL_LOWER_BY_RESULT,
    .tile = SL_TILE_NEVER)
/* x, part -> x with the part added to [start, start+size) of dimension attrs.split.axis. In place only that is touched */
SL_FORWARD_OP(ADD_PART, add_part, add_part, add_part, add_part, split,
    SL_ARITY(2, 2, 1), .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR, .lowering = SL_LOWER_BY_RESULT,
    .tile = SL_TILE_NEVER)
/* up to 8 inputs -> joined along attrs.concat.axis */
SL_FORWARD_OP(CONCAT, concat, concat, concat, pointwise, concat,
    SL_ARITY(1, SL_MAX_INPUTS, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = SL_ONLY_MOVES, .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER)
/* logits[..,V], targets[..] i32 -> mean loss [], lse[rows], count[] (rows not ignored, as f32; loss 0 if none). With
 * attrs.cross_entropy.softcap, c, the loss is that of c tanh(logits / c). With smoothing s the target of a row is its
 * class with 1 - s, and s spread evenly over all classes: lse - (1 - s) logit - s mean of the row's logits */
SL_FORWARD_OP(CROSS_ENTROPY, cross_entropy, cross_entropy, cross_entropy, pointwise, cross_entropy,
    SL_ARITY(2, 2, 3), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .element_flops = 8,
    .lowering = SL_LOWER_AS_INPUT, .tile = SL_TILE_NEVER, SL_INDEXES(1, 0, true, true),
    .saved = { { .name = "lse", .kind = SL_SAVED_STATISTIC }, { .name = "count", .kind = SL_SAVED_STATISTIC } })
/* x[..,I], w[O,I], targets[..] i32, bias[O]? -> mean loss [], count[] (as CROSS_ENTROPY), dw[O,I] in f32, dx like x and,
 * with a bias, dbias[O] in f32: the gradients of the loss for a seed of context.seed_gradient, so that logits never exist
 * as a whole: rows are worked through in chunks whose length depends on the shape alone. dw and dbias are summed within
 * each chunk, and over the chunks in their order. Rows that are ignored are worked through like the others: products
 * whose size followed from the targets would not depend on the shape alone (exact rule 6), and the host that queues them
 * for a GPU does not see the targets. dw, dx and dbias may be absent, and are not computed then */
SL_FORWARD_OP(LINEAR_CROSS_ENTROPY, linear_cross_entropy, linear_cross_entropy, linear_cross_entropy,
              linear_cross_entropy, cross_entropy,
    SL_ARITY(3, 4, 5), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_MATRIX, .lowering = SL_LOWER_PRECISION,
    .tile = SL_TILE_NEVER, SL_INDEXES(2, 1, false, true),
    .saved = { { .name = "count", .kind = SL_SAVED_STATISTIC }, { .name = "dw", .kind = SL_SAVED_AHEAD }, { .name = "dx", .kind = SL_SAVED_AHEAD },
               { "dbias", SL_SAVED_AHEAD, .with = 3 } })
/* y, target (same shape) -> mean squared difference [] */
SL_FORWARD_OP(MSE, mse, mse, mse, pointwise, none,
    SL_ARITY(2, 2, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .element_flops = 3,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER)
/* y, target, weight? (same shape) -> mean over all elements of weight (log(1 + e^y) - target y) [] */
SL_FORWARD_OP(BCE_WITH_LOGITS, bce_with_logits, bce_with_logits, bce_with_logits, pointwise, none,
    SL_ARITY(2, 3, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .element_flops = 24,
    .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER)
/* gates_x[B,T,3H], w[3H,H], bias[3H], lengths[B]? i32 -> h[B,T,H], gates[B,T,4H]. Gates are in the order r, z, n; with
 * a = w h' + bias, h' the state before, which begins as 0: r = sigmoid(x_r + a_r), z = sigmoid(x_z + a_z),
 * n = tanh(x_n + r a_n), h = (1 - z) n + z h'. gates holds r, z, n and a_n. attrs.gru.reverse: from the last frame to the
 * first. Frames from a sequence's length on are passed over: their h and gates are 0. Arithmetic and the state that is
 * handed on are f32; the product with w may read the state rounded to the type of h */
SL_FORWARD_OP(GRU, gru, gru, gru, gru, gru,
    SL_ARITY(3, 4, 2), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_MATRIX, .lowering = SL_LOWER_BY_RESULT,
    .tile = SL_TILE_NEVER, .lengths = 3, .saved = { { .name = "gates", .kind = SL_SAVED_STATISTIC } })
/* logits[B,T,V], labels[B,S] i32 (-1 behind the last of a row), lengths[B] i32 (frames that count) -> loss [], dlogits.
 * loss: mean over b of nll / max(1, labels of b), nll being -log of the probability that the softmax of the frames gives
 * to the labels, over all ways to align them, with repetitions and attrs.ctc.blank between (Graves et al., 2006).
 * dlogits: the gradient for a seed of context.seed_gradient, softmax less what the ways expect of each class, 0 in frames
 * that do not count; may be absent. Without a way the nll is infinite; with attrs.ctc.zero_infinity it counts as 0, and has
 * no gradient. A label that is the blank or no class makes it NaN */
SL_FORWARD_OP(CTC_LOSS, ctc_loss, ctc_loss, ctc_loss, ctc_loss, ctc,
    SL_ARITY(3, 3, 2), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .lowering = SL_LOWER_AS_INPUT,
    .tile = SL_TILE_NEVER, SL_LABELS(1, 0), .lengths = 2, .saved = { { .name = "dlogits", .kind = SL_SAVED_AHEAD } })
/* x -> sum of all elements [] */
SL_FORWARD_OP(SUM, sum, scalar, sum, pointwise, none,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .element_flops = 1,
    .lowering = SL_LOWER_AS_INPUT, .tile = SL_TILE_NEVER)
/* x -> mean of all elements [] */
SL_FORWARD_OP(MEAN, mean, scalar, mean, pointwise, none,
    SL_ARITY(1, 1, 1), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .element_flops = 1,
    .lowering = SL_LOWER_AS_INPUT, .tile = SL_TILE_NEVER)
/* x -> the same values in the output's type, rounded to nearest even (accumulates, in f32). Also an update op of
 * the plan: a summed gradient -> the wire type */
SL_FORWARD_OP(CAST, cast, cast, cast, pointwise, none,
    SL_ARITY(1, 1, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = SL_ONLY_MOVES, .lowering = SL_LOWER_BY_RESULT, .tile = SL_TILE_NEVER, .wide_outputs = 1u << 0)

/* ---- backward only ---- */

/* -> [] = loss_scale / K from the run context */
SL_BACKWARD_OP(SEED, seed, seed, pointwise, none,
    SL_ARITY(0, 0, 1), .adds = SL_ADDS_NEVER, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = SL_ONLY_MOVES)
/* dy -> summed over broadcast dimensions to the output's shape (accumulates) */
SL_BACKWARD_OP(REDUCE_TO, reduce_to, reduce_to, pointwise, none,
    SL_ARITY(1, 1, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 1, .wide_outputs = 1u << 0)
/* dy, other (broadcast to dy) -> (dy * other) summed to the output's shape (accumulates) */
SL_BACKWARD_OP(MULTIPLY_REDUCE, multiply_reduce, multiply_reduce, pointwise, none,
    SL_ARITY(2, 2, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 2, .wide_outputs = 1u << 0)
/* dy[..,O], w -> dx[..,I] (accumulates) */
SL_BACKWARD_OP(LINEAR_GRAD_INPUT, linear_grad_input, linear_grad_input, linear_grad_input, linear,
    SL_ARITY(2, 2, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_MATRIX)
/* dy[..,O], w, h[..,I] -> dh[..,I]: LINEAR_GRAD_INPUT's dx, then GELU_GRAD's for x = gelu(h) in the tanh form */
SL_BACKWARD_OP(LINEAR_GRAD_GELU, linear_grad_gelu, linear_grad_gelu, linear_grad_input, linear,
    SL_ARITY(3, 3, 1), .adds = SL_ADDS_NEVER, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_MATRIX)
/* dy[..,O], x[..,I] -> dw, dbias? (accumulates) */
SL_BACKWARD_OP(LINEAR_GRAD_WEIGHT, linear_grad_weight, linear_grad_weight, linear_grad_weight, linear,
    SL_ARITY(2, 2, 2), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_MATRIX,
    .wide_outputs = 0x3u)
/* ids, dy -> dtable: rows added in order of token position (accumulates) */
SL_BACKWARD_OP(EMBEDDING_GRAD, embedding_grad, embedding_grad, embedding_grad, none,
    SL_ARITY(2, 2, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .wide_outputs = 1u << 0)
/* ends[B], dy[B,C] -> dx[..,C]: of rows in no bag 0 (accumulates) */
SL_BACKWARD_OP(BAG_GRAD, bag_grad, bag_grad, pointwise, bag,
    SL_ARITY(2, 2, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 1)
/* dy[N,H',W',O], w -> dx[N,H,W,C] (accumulates) */
SL_BACKWARD_OP(CONV2D_GRAD_INPUT, conv2d_grad_input, conv2d_grad_input, conv2d_grad_input, conv,
    SL_ARITY(2, 2, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_MATRIX)
/* dy[N,H',W',O], x[N,H,W,C] -> dw, dbias? (accumulates). dw is always wanted: REDUCE_TO makes dbias alone */
SL_BACKWARD_OP(CONV2D_GRAD_WEIGHT, conv2d_grad_weight, conv2d_grad_weight, conv2d_grad_weight, conv,
    SL_ARITY(2, 2, 2), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_MATRIX,
    .wide_outputs = 0x3u)
/* x, dy -> dx: each dy goes to the largest element of its window, of equal ones to the first in row order, of NaNs to
 * the last (accumulates) */
SL_BACKWARD_OP(MAX_POOL2D_GRAD, max_pool2d_grad, max_pool2d_grad, pointwise, pool,
    SL_ARITY(2, 2, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 4)
/* dy -> dx (accumulates) */
SL_BACKWARD_OP(AVG_POOL2D_GRAD, avg_pool2d_grad, avg_pool2d_grad, pointwise, pool,
    SL_ARITY(1, 1, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 2)
/* dy -> dx (accumulates) */
SL_BACKWARD_OP(GLOBAL_AVG_POOL_GRAD, global_avg_pool_grad, global_avg_pool_grad, pointwise, none,
    SL_ARITY(1, 1, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 1)
/* y, dy -> dx (accumulates) */
SL_BACKWARD_OP(RELU_GRAD, relu_grad, pointwise_grad, pointwise, none,
    SL_ARITY(2, 2, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_INPUT_1, .rate = SL_CLASS_VECTOR,
    .element_flops = 1)
/* x, dy -> dx (accumulates) */
SL_BACKWARD_OP(GELU_GRAD, gelu_grad, pointwise_grad, pointwise, gelu,
    SL_ARITY(2, 2, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_INPUT_1, .rate = SL_CLASS_VECTOR,
    .element_flops = 20)
/* x, dy -> dx (accumulates) */
SL_BACKWARD_OP(SILU_GRAD, silu_grad, pointwise_grad, pointwise, none,
    SL_ARITY(2, 2, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_INPUT_1, .rate = SL_CLASS_VECTOR,
    .element_flops = 12)
/* y, dy -> dx (accumulates) */
SL_BACKWARD_OP(TANH_GRAD, tanh_grad, pointwise_grad, pointwise, none,
    SL_ARITY(2, 2, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_INPUT_1, .rate = SL_CLASS_VECTOR,
    .element_flops = 3)
/* y, dy -> dx (accumulates) */
SL_BACKWARD_OP(SIGMOID_GRAD, sigmoid_grad, pointwise_grad, pointwise, none,
    SL_ARITY(2, 2, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_INPUT_1, .rate = SL_CLASS_VECTOR,
    .element_flops = 3)
/* x, dy -> dx (accumulates) */
SL_BACKWARD_OP(SWIGLU_GRAD, swiglu_grad, swiglu_grad, pointwise, none,
    SL_ARITY(2, 2, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 8)
/* x, dy -> dx (accumulates) */
SL_BACKWARD_OP(GEGLU_GRAD, geglu_grad, swiglu_grad, pointwise, gelu,
    SL_ARITY(2, 2, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 12)
/* x, dy -> dx (accumulates) */
SL_BACKWARD_OP(SOFTCAP_GRAD, softcap_grad, pointwise_grad, pointwise, softcap,
    SL_ARITY(2, 2, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_INPUT_1, .rate = SL_CLASS_VECTOR,
    .element_flops = 15)
/* y, dy -> dx (accumulates) */
SL_BACKWARD_OP(SOFTMAX_GRAD, softmax_grad, pointwise_grad, pointwise, none,
    SL_ARITY(2, 2, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_INPUT_1, .rate = SL_CLASS_VECTOR,
    .element_flops = 4)
/* x, dy -> dx = dy - softmax(x) sum(dy) (accumulates) */
SL_BACKWARD_OP(LOG_SOFTMAX_GRAD, log_softmax_grad, pointwise_grad, pointwise, none,
    SL_ARITY(2, 2, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_INPUT_1, .rate = SL_CLASS_VECTOR,
    .element_flops = 10)
/* x, weight, mean, rstd, dy -> dx?, dweight?, dbias? (accumulates) */
SL_BACKWARD_OP(LAYER_NORM_GRAD, layer_norm_grad, layer_norm_grad, pointwise, norm,
    SL_ARITY(5, 5, 3), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 14, .wide_outputs = 0x6u)
/* x, weight, rstd, dy -> dx?, dweight? (accumulates) */
SL_BACKWARD_OP(RMS_NORM_GRAD, rms_norm_grad, rms_norm_grad, pointwise, norm,
    SL_ARITY(4, 4, 2), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 10, .wide_outputs = 0x2u)
/* qkv, q_weight, k_weight, rstd, dy -> dqkv?, dq_weight?, dk_weight? (accumulates) */
SL_BACKWARD_OP(QK_NORM_GRAD, qk_norm_grad, qk_norm_grad, pointwise, qk_norm,
    SL_ARITY(5, 5, 3), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 10, .wide_outputs = 0x6u)
/* x, weight, bias, mean, rstd, dy, y? -> dx?, dweight?, dbias?, dresidual? (accumulates). With attrs.batch_norm.relu the
 * gradient passes where the result was above 0: where y is, or, without y, (x - mean) rstd weight + bias. Mean and rstd depend
 * on x, unless attrs.batch_norm.frozen */
SL_BACKWARD_OP(BATCH_NORM_GRAD, batch_norm_grad, batch_norm_grad, channel_norm, batch_norm,
    SL_ARITY(6, 7, 4), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR,
    .element_flops = 14, .wide_outputs = 0x6u)
/* x, weight, mean, rstd, dy -> dx?, dweight?, dbias? (accumulates) */
SL_BACKWARD_OP(GROUP_NORM_GRAD, group_norm_grad, group_norm_grad, channel_norm, group_norm,
    SL_ARITY(5, 5, 3), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 14, .wide_outputs = 0x6u)
/* forward inputs (1 or 3, positions behind them where there are any), out, lse, dout -> dqkv, or dq, dk, dv */
SL_BACKWARD_OP(ATTENTION_GRAD, attention_grad, attention_grad, attention_grad, attention,
    SL_ARITY(4, 7, 3), .adds = SL_ADDS_NEVER, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_ATTENTION)
/* dy -> part, as SPLIT, but accumulating */
SL_BACKWARD_OP(CONCAT_GRAD, concat_grad, split, part, split,
    SL_ARITY(1, 1, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR)
/* dy -> dx: attrs.split part set or added, the rest zeroed unless accumulating */
SL_BACKWARD_OP(SPLIT_GRAD, split_grad, split_grad, part, split,
    SL_ARITY(1, 1, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR)
/* logits, targets, lse, count, dloss -> dlogits */
SL_BACKWARD_OP(CROSS_ENTROPY_GRAD, cross_entropy_grad, cross_entropy_grad, pointwise, cross_entropy,
    SL_ARITY(5, 5, 1), .adds = SL_ADDS_NEVER, .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR,
    .element_flops = 8)
/* dw, dx as forward left them, dloss, dbias? likewise -> dw?, dx?, dbias?: times dloss / context.seed_gradient, a factor
 * of exactly 1 where the loss itself is differentiated (accumulates) */
SL_BACKWARD_OP(LINEAR_CROSS_ENTROPY_GRAD, linear_cross_entropy_grad, linear_cross_entropy_grad, pointwise,
               cross_entropy,
    SL_ARITY(3, 4, 3), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR,
    .element_flops = 1, .wide_outputs = 1u << 0 | 1u << 2)
/* y, target, dloss -> dy?, dtarget? (accumulates) */
SL_BACKWARD_OP(MSE_GRAD, mse_grad, mse_grad, pointwise, none,
    SL_ARITY(3, 3, 2), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 3)
/* y, target, dloss, weight? -> dy?, dtarget?, dweight? (accumulates) */
SL_BACKWARD_OP(BCE_WITH_LOGITS_GRAD, bce_with_logits_grad, bce_with_logits_grad, pointwise, none,
    SL_ARITY(3, 4, 3), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 24)
/* w, gates, h, dh, lengths? -> dgates_x?, dw?, dbias? (accumulates). 0 in frames behind a sequence's end */
SL_BACKWARD_OP(GRU_GRAD, gru_grad, gru_grad, gru_grad, gru,
    SL_ARITY(4, 5, 3), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_MATRIX,
    .wide_outputs = 0x6u)
/* dlogits as forward left it, dloss -> dlogits: times dloss / context.seed_gradient, as LINEAR_CROSS_ENTROPY_GRAD
 * (accumulates) */
SL_BACKWARD_OP(CTC_LOSS_GRAD, ctc_loss_grad, ctc_loss_grad, pointwise, ctc,
    SL_ARITY(2, 2, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR,
    .element_flops = 1)
/* What BATCH_NORM and its gradient become where statistics are those of R = attrs.batch_norm.ranks ranks (ir/shared_norm.h). The
 * first and the fourth op write the part of their rank, context.micro % R, of P nodes (core/sample_tree.h), zeros behind the
 * last; the others read the parts of all.
 * x[N,..,C] -> moments[R,P,2,C] f32: mean and variance of each node's samples. Nothing is done in evaluation */
SL_BACKWARD_OP(BATCH_MOMENTS, batch_moments, batch_moments, pointwise, batch_norm,
    SL_ARITY(1, 1, 1), .adds = SL_ADDS_NEVER, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 4, .gathers = true)
/* x (its shape alone), moments -> mean[C], rstd[C], statistics: as BATCH_NORM's, of the samples of all ranks */
SL_BACKWARD_OP(BATCH_STATISTICS, batch_statistics, batch_statistics, batch_statistics, batch_norm,
    SL_ARITY(2, 2, 3), .adds = SL_ADDS_NEVER, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR, .kept = true,
    .saved = { { .name = "rstd", .kind = SL_SAVED_STATISTIC }, { .name = "statistics", .kind = SL_SAVED_STATE } })
/* x, weight, bias, mean, rstd, residual? -> BATCH_NORM's y */
SL_BACKWARD_OP(BATCH_NORMALIZE, batch_normalize, batch_normalize, pointwise, batch_norm,
    SL_ARITY(5, 6, 1), .adds = SL_ADDS_NEVER, .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR,
    .element_flops = 4)
/* x, weight, bias, mean, rstd, dy, y? -> sums[R,P,2,C] f32 of g and of g (x - mean) over each node's samples, g being what passes
 * of dy as in BATCH_NORM_GRAD; dresidual? = g (accumulates) */
SL_BACKWARD_OP(BATCH_NORM_SUMS, batch_norm_sums, batch_norm_sums, pointwise, batch_norm,
    SL_ARITY(6, 7, 2), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 4, .gathers = true)
/* x, weight, bias, mean, rstd, dy, sums, y? -> dx?, dweight?, dbias? (accumulates). The last two are sums over all ranks, which
 * rank 0 contributes; of the others they are 0 */
SL_BACKWARD_OP(BATCH_NORMALIZE_GRAD, batch_normalize_grad, batch_normalize_grad, pointwise, batch_norm,
    SL_ARITY(7, 8, 3), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_INPUT_0, .rate = SL_CLASS_VECTOR,
    .element_flops = 8, .wide_outputs = 0x6u)
/* scalar -> every element, times attrs.scale.factor (gradient of sum and mean; accumulates) */
SL_BACKWARD_OP(EXPAND, expand, expand, pointwise, scale,
    SL_ARITY(1, 1, 1), .adds = SL_ADDS_ON_REQUEST, .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 1, .typed_by_output = true, .wide_outputs = 1u << 0)

/* ---- update phase: operands are whole-layer flat buffers bound by the plan, see plan/plan.h ---- */

/* contribution in the wire type -> f32 accumulator: copied for the first micro-batch of a step, added afterwards
 * (rule 1) */
SL_UPDATE_OP(ACCUMULATE, accumulate, accumulate, none,
    SL_ARITY(0, SL_MAX_INPUTS, SL_MAX_OUTPUTS), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 1)
/* gradient -> fp64 sum of squares per 1,024 elements (rule 3) */
SL_UPDATE_OP(NORM_LEAVES, norm_leaves, norm_leaves, none,
    SL_ARITY(0, SL_MAX_INPUTS, SL_MAX_OUTPUTS), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 2)
/* leaves in a row -> their sl_norm_node, few (core/norm_nodes.h); `first` of the call is SL_CUT_ELEMENTS times the
 * number of the first leaf */
SL_UPDATE_OP(NORM_COMBINE, norm_combine, norm_finish, none,
    SL_ARITY(0, SL_MAX_INPUTS, SL_MAX_OUTPUTS), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR)
/* the sl_norm_node of all leaves, in order -> fp64 sums of chunks of SL_NORM_CHUNK leaves */
SL_UPDATE_OP(NORM_JOIN, norm_join, norm_finish, none,
    SL_ARITY(0, SL_MAX_INPUTS, SL_MAX_OUTPUTS), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR)
/* all leaves, or the sums of all chunks -> sl_norm_result */
SL_UPDATE_OP(NORM_FINISH, norm_finish, norm_finish, none,
    SL_ARITY(0, SL_MAX_INPUTS, SL_MAX_OUTPUTS), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR)
/* gradient, norm result (absent: nothing is clipped or skipped), and where they are kept the old weights, remainder and slots -> weights, the master's
 * remainder, state slots; otherwise in place. f32 weights are their own master, without remainder; bf16 ones and their REMAINDER are it together;
 * f16 ones have all of the f32 master as remainder: written from it, also in a skipped step, and never read. A gradient
 * in f32 where the wire type is narrower is a sum that was not rounded yet: NORM_LEAVES and UPDATE round it as they
 * read it (rule 1) */
SL_UPDATE_OP(UPDATE, update, update, none,
    SL_ARITY(0, SL_MAX_INPUTS, SL_MAX_OUTPUTS), .in_place = SL_IN_PLACE_NEVER, .rate = SL_CLASS_VECTOR,
    .element_flops = 14)

#undef SL_FORWARD_OP
#undef SL_BACKWARD_OP
#undef SL_UPDATE_OP
#undef SL_ATTRIBUTES
#undef SL_IDENTITY
#undef SL_IDENTITY_ARRAY
#undef SL_IDENTITY_IF_SET
#undef SL_FREE
/* clang-format on */
