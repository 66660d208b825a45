/* gru.c: a gated recurrent unit over the frames of sequences, and its gradients.
 *
 * Sequences do not depend on each other: a task takes some of them through all frames, so threads meet once and not at
 * every frame. The weight is packed once. Each element of a product is one chain over k, as everywhere (gemm.h), so that how
 * many sequences share a task changes no bit. States and what is handed from frame to frame are f32 in every type.
 *
 * Backward leaves the gradients of w h + bias of all frames in f32 beside the states before them: the weight's gradient is
 * then one product, as a linear layer's. */
#include "backend/cpu/kernels/elem.h"
#include "backend/cpu/kernels/gemm.h"
#include "backend/cpu/kernels/sequence_size.h"
#include "backend/cpu/kernels/strided_gemm.h"
#include "backend/cpu/kernels/vmath.h"

#define PACK_COLUMNS (8 * SL_TILE_COLUMNS) /* of the weight, packed by one task */

typedef struct gru_job {
    const sl_kernel_args *a;
    int64_t batch, frames, width, rows; /* rows: sequences of a task */
    bool reverse;
    const int32_t *lengths; /* NULL: all frames of all */
    sl_matrix weight;       /* as the product reads it */
    int64_t columns, k;     /* of it */
    float *packed;
    float *dgates;  /* backward: [B,T,3H], of w h + bias; NULL: not wanted */
    elem *previous; /* backward: [B,T,H], states before; NULL: not wanted */
} gru_job;

/* What a task works with: sequences [first, first + rows). */
typedef struct gru_task {
    const gru_job *j;
    int64_t first, rows, longest;
    float *left;          /* the product's left operand, packed */
    float *gates, *state; /* rows gates_row and state_row apart */
    int64_t gates_row, state_row;
} gru_task;

/* ---- both directions ---- */

static void pack_weight(void *context, int64_t task, void *scratch)
{
    const gru_job *j = context;
    const int64_t first = task * PACK_COLUMNS;
    sl_matrix w = j->weight;
    (void)scratch;
    w.data = sl_matrix_at(w, 0, first);
    KI(pack_b)(j->packed + first * j->k, w, sl_least(PACK_COLUMNS, j->columns - first), j->k);
}

/* Frames of sequence b that count. Whatever the data says, never more than there are. */
static int64_t length_of(const gru_job *j, int64_t b)
{
    if (j->lengths == NULL) return j->frames;
    const int64_t n = j->lengths[b];
    return n < 0 ? 0 : sl_least(n, j->frames);
}

/* Sequences of a task: all threads get some, and their rows fit in a thread's scratch. */
static int64_t task_rows(const gru_job *j)
{
    const int64_t most = (int64_t)(SL_SCRATCH_BYTES / sizeof(float)) / sl_gru_scratch_floats(j->width);
    const int64_t even = sl_ceil_div(j->batch, sl_pool_threads(j->a->pool));
    return even < most ? even : most;
}

static gru_task open_task(const gru_job *j, int64_t number, float *scratch)
{
    gru_task t = { .j = j, .first = number * j->rows };
    t.rows = sl_least(j->rows, j->batch - t.first);
    for (int64_t i = 0; i < t.rows; i++) {
        const int64_t n = length_of(j, t.first + i);
        if (n > t.longest) t.longest = n;
    }
    t.gates_row = sl_whole_lanes(3 * j->width);
    t.state_row = sl_whole_lanes(j->width);
    t.gates = scratch;
    t.state = t.gates + t.rows * t.gates_row;
    t.left = t.state + t.rows * t.state_row;
    memset(t.gates, 0, (size_t)(t.rows * t.gates_row) * sizeof *t.gates);
    memset(t.state, 0, (size_t)(t.rows * t.state_row) * sizeof *t.state);
    return t;
}

/* Index of sequence i of the task at frame f. */
static int64_t frame_at(const gru_task *t, int64_t i, int64_t f)
{
    return (t->first + i) * t->j->frames + f;
}

/* The frame that the state before frame f is of; -1: there is none, it is 0. */
static int64_t frame_before(const gru_job *j, int64_t f)
{
    const int64_t before = j->reverse ? f + 1 : f - 1;
    return before < j->frames ? before : -1;
}

static void run_tasks(gru_job *j, sl_task_fn fn)
{
    j->rows = task_rows(j);
    sl_pool_run(j->a->pool, pack_weight, j, sl_ceil_div(j->columns, PACK_COLUMNS));
    sl_pool_run(j->a->pool, fn, j, sl_ceil_div(j->batch, j->rows));
}

/* ---- forward ---- */

/* The sixteen (or `left`) elements of a frame's state from c on; t->gates has the product of the state before. */
SL_INLINE void step_lanes(const gru_task *t, int64_t i, int64_t frame, int64_t c)
{
    const gru_job *j = t->j;
    const int64_t width = j->width, left = width - c;
    const elem *x = (const elem *)j->a->in[0].data + frame * 3 * width + c, *bias = (const elem *)j->a->in[2].data + c;
    const float *sums = t->gates + i * t->gates_row + c;
    float *state = t->state + i * t->state_row + c, *saved = (float *)j->a->out[1].data + frame * 4 * width + c;
    sl_v16 of_state[3], of_input[3];
    for (int gate = 0; gate < 3; gate++) {
        const int64_t at = gate * width;
        of_state[gate] = v16_add(v16_get(sums + at, left, 0.0f), e16_get(bias + at, left, 0.0f));
        of_input[gate] = e16_get(x + at, left, 0.0f);
    }
    const sl_v16 r = v16_sigmoid(v16_add(of_input[0], of_state[0]));
    const sl_v16 z = v16_sigmoid(v16_add(of_input[1], of_state[1]));
    const sl_v16 n = v16_tanh(v16_fma(r, of_state[2], of_input[2]));
    const sl_v16 h = v16_fma(z, v16_sub(v16_get(state, left, 0.0f), n), n);
    v16_put(state, h, left);
    e16_put((elem *)j->a->out[0].data + frame * width + c, h, left);
    v16_put(saved, r, left);
    v16_put(saved + width, z, left);
    v16_put(saved + 2 * width, n, left);
    v16_put(saved + 3 * width, of_state[2], left);
}

static void pass_over(const gru_task *t, int64_t i, int64_t frame)
{
    const gru_job *j = t->j;
    memset((elem *)j->a->out[0].data + frame * j->width, 0, (size_t)j->width * sizeof(elem));
    memset((float *)j->a->out[1].data + frame * 4 * j->width, 0, (size_t)(4 * j->width) * sizeof(float));
    memset(t->state + i * t->state_row, 0, (size_t)j->width * sizeof(float));
}

static void forward_frame(const gru_task *t, int64_t f)
{
    const gru_job *j = t->j;
    const sl_matrix state = { t->state, t->state_row, 1, SL_FORM_F32 };
    KI(pack_a)(t->left, state, t->rows, t->rows, j->k);
    KI(multiply_packed)
    (t->left, j->packed, t->rows, j->columns, j->k, NULL, (sl_block){ t->gates, t->gates_row, SL_TILE_COLUMNS });
    for (int64_t i = 0; i < t->rows; i++) {
        const int64_t frame = frame_at(t, i, f);
        if (f < length_of(j, t->first + i))
            for (int64_t c = 0; c < j->width; c += SL_LANES) step_lanes(t, i, frame, c);
        else
            pass_over(t, i, frame);
    }
}

static void forward_task(void *context, int64_t number, void *scratch)
{
    const gru_job *j = context;
    const gru_task t = open_task(j, number, scratch);
    for (int64_t f = t.longest; f < j->frames; f++)
        for (int64_t i = 0; i < t.rows; i++) pass_over(&t, i, frame_at(&t, i, f));
    for (int64_t n = 0; n < t.longest; n++) forward_frame(&t, j->reverse ? t.longest - 1 - n : n);
}

/* gates_x[B,T,3H], w[3H,H], bias[3H], lengths[B]? -> h[B,T,H], gates[B,T,4H] */
void K(gru)(const sl_kernel_args *a)
{
    gru_job j = { .a = a, .packed = a->workspace, .reverse = a->attrs->gru.reverse };
    j.batch = a->out[0].shape->dim[0];
    j.frames = a->out[0].shape->dim[1];
    j.width = a->out[0].shape->dim[2];
    j.lengths = a->input_count > 3 ? a->in[3].data : NULL;
    j.weight = sl_transposed(sl_rows_of(&a->in[1], j.width));
    j.columns = 3 * j.width;
    j.k = j.width;
    run_tasks(&j, forward_task);
}

/* ---- backward ---- */

/* The gradient of a frame's state, which t->state has what later frames give of, becomes those of its gates, and what goes
 * straight on to the state before. */
SL_INLINE void back_lanes(const gru_task *t, int64_t i, int64_t frame, const elem *before, int64_t c)
{
    const gru_job *j = t->j;
    const int64_t width = j->width, left = width - c;
    const float *saved = (const float *)j->a->in[1].data + frame * 4 * width + c;
    float *state = t->state + i * t->state_row + c, *gates = t->gates + i * t->gates_row + c;
    elem *dx = j->a->out[0].data;
    const sl_v16 one = v16_set1(1.0f), r = v16_get(saved, left, 0.0f), z = v16_get(saved + width, left, 0.0f);
    const sl_v16 n = v16_get(saved + 2 * width, left, 0.0f), of_state = v16_get(saved + 3 * width, left, 0.0f);
    const sl_v16 past = before != NULL ? e16_get(before + c, left, 0.0f) : v16_set1(0.0f);
    const sl_v16 dy = e16_get((const elem *)j->a->in[3].data + frame * width + c, left, 0.0f);
    const sl_v16 dh = v16_add(dy, v16_get(state, left, 0.0f));
    const sl_v16 dn = v16_mul(v16_mul(dh, v16_sub(one, z)), v16_fma(v16_neg(n), n, one));
    const sl_v16 dr = v16_mul(v16_mul(dn, of_state), v16_mul(r, v16_sub(one, r)));
    const sl_v16 dz = v16_mul(v16_mul(dh, v16_sub(past, n)), v16_mul(z, v16_sub(one, z)));
    v16_put(state, v16_mul(dh, z), left);
    v16_put(gates, dr, left);
    v16_put(gates + width, dz, left);
    v16_put(gates + 2 * width, v16_mul(dn, r), left);
    if (dx == NULL) return;
    const bool add = sl_accumulates(j->a, 0);
    dx += frame * 3 * width + c;
    e16_put_or_add(dx, dr, left, add);
    e16_put_or_add(dx + width, dz, left, add);
    e16_put_or_add(dx + 2 * width, dn, left, add);
}

/* A frame that does not count has no gradient, and hands none on. */
static void skip_back(const gru_task *t, int64_t i, int64_t frame)
{
    const gru_job *j = t->j;
    elem *dx = j->a->out[0].data;
    memset(t->state + i * t->state_row, 0, (size_t)j->width * sizeof(float));
    memset(t->gates + i * t->gates_row, 0, (size_t)(3 * j->width) * sizeof(float));
    if (dx != NULL && !sl_accumulates(j->a, 0))
        memset(dx + frame * 3 * j->width, 0, (size_t)(3 * j->width) * sizeof *dx);
}

/* For the weight's gradient. */
static void keep_frame(const gru_task *t, int64_t i, int64_t frame, const elem *before)
{
    const gru_job *j = t->j;
    if (j->dgates == NULL) return;
    memcpy(j->dgates + frame * 3 * j->width, t->gates + i * t->gates_row, (size_t)(3 * j->width) * sizeof(float));
    if (before != NULL)
        memcpy(j->previous + frame * j->width, before, (size_t)j->width * sizeof(elem));
    else
        memset(j->previous + frame * j->width, 0, (size_t)j->width * sizeof(elem));
}

static void backward_row(const gru_task *t, int64_t i, int64_t f)
{
    const gru_job *j = t->j;
    const int64_t frame = frame_at(t, i, f), other = frame_before(j, f);
    const elem *before = other < 0 ? NULL : (const elem *)j->a->in[2].data + frame_at(t, i, other) * j->width;
    if (f < length_of(j, t->first + i))
        for (int64_t c = 0; c < j->width; c += SL_LANES) back_lanes(t, i, frame, before, c);
    else
        skip_back(t, i, frame);
    keep_frame(t, i, frame, before);
}

static void backward_frame(const gru_task *t, int64_t f)
{
    const gru_job *j = t->j;
    const sl_matrix gates = { t->gates, t->gates_row, 1, SL_FORM_F32 };
    for (int64_t i = 0; i < t->rows; i++) backward_row(t, i, f);
    KI(pack_a)(t->left, gates, t->rows, t->rows, j->k);
    KI(multiply_packed)
    (t->left, j->packed, t->rows, j->columns, j->k, t->state, (sl_block){ t->state, t->state_row, SL_TILE_COLUMNS });
}

static void backward_task(void *context, int64_t number, void *scratch)
{
    const gru_job *j = context;
    const gru_task t = open_task(j, number, scratch);
    for (int64_t f = t.longest; f < j->frames; f++)
        for (int64_t i = 0; i < t.rows; i++) backward_row(&t, i, f);
    for (int64_t n = 0; n < t.longest; n++) backward_frame(&t, j->reverse ? n : t.longest - 1 - n);
}

/* dw[3H,H] = dgates^T previous, dbias[3H] = the sum of dgates over all frames. */
static void weight_gradients(const gru_job *j)
{
    const sl_kernel_args *a = j->a;
    const sl_shape gates = { .rank = 3, .dim = { j->batch, j->frames, 3 * j->width } };
    const sl_shape states = { .rank = 3, .dim = { j->batch, j->frames, j->width } };
    const int64_t frames = j->batch * j->frames;
    const sl_attrs attrs = { .accumulate = a->attrs->accumulate >> 1, .linear = { .in_out = false } };
    sl_kernel_args product = *a;
    product.attrs = &attrs;
    product.input_count = product.output_count = 2;
    product.in[0] = (sl_tensor){ j->dgates, &gates, frames * 3 * j->width, SL_FORM_F32 };
    product.in[1] = (sl_tensor){ j->previous, &states, frames * j->width, a->in[2].form };
    product.out[0] = a->out[1];
    product.out[1] = a->out[2];
    SL_KT(linear_grad_weight, f32)(&product);
}

/* w[3H,H], gates[B,T,4H], h[B,T,H], dh[B,T,H], lengths[B]? -> dgates_x?, dw?, dbias? */
void K(gru_grad)(const sl_kernel_args *a)
{
    gru_job j = { .a = a, .packed = a->workspace, .reverse = a->attrs->gru.reverse };
    const sl_shape *state = a->in[2].shape;
    j.batch = state->dim[0];
    j.frames = state->dim[1];
    j.width = state->dim[2];
    j.lengths = a->input_count > 4 ? a->in[4].data : NULL;
    j.weight = sl_rows_of(&a->in[0], j.width);
    j.columns = j.width;
    j.k = 3 * j.width;
    if (a->out[1].data != NULL || a->out[2].data != NULL) {
        j.dgates = j.packed + sl_gru_packed_floats(j.columns, j.k);
        j.previous = (elem *)(void *)(j.dgates + j.batch * j.frames * 3 * j.width);
    }
    run_tasks(&j, backward_task);
    if (j.dgates != NULL) weight_gradients(&j);
}
