/* embedding.c: rows of a table by index, and the gradient of the table.
 *
 * The gradient adds one row of dy per token, and several tokens may share a table row: a task owns a block of columns
 * and walks the tokens in order, so every table element is the sum of its tokens in order of position. Readers of data
 * check ids; an id outside the table that comes here all the same yields NaN, which stops the run, and is never used as
 * an index. */
#include "backend/cpu/kernels/loops.h"

#define COLUMNS 64

typedef struct embedding_job {
    const int32_t *ids;
    const float *from; /* table, or dy */
    float *to;         /* y, or dtable */
    int64_t tokens, vocabulary, width, tokens_per_task;
} embedding_job;

static void embedding_task(void *context, int64_t task, void *scratch)
{
    const embedding_job *j = context;
    const sl_range r = sl_task_range(task, j->tokens_per_task, j->tokens);
    (void)scratch;
    for (int64_t t = r.begin; t < r.end; t++) {
        float *to = j->to + t * j->width;
        int32_t id = j->ids[t];
        if (id >= 0 && id < j->vocabulary)
            memcpy(to, j->from + id * j->width, (size_t)j->width * sizeof *to);
        else
            for (int64_t c = 0; c < j->width; c++) to[c] = NAN;
    }
}

void K(embedding)(const sl_kernel_args *a)
{
    embedding_job j = {
        .ids = a->in[0].data,
        .from = a->in[1].data,
        .to = a->out[0].data,
        .tokens = a->in[0].elements,
        .vocabulary = a->in[1].shape->dim[0],
        .width = sl_row_width(&a->in[1]),
    };
    j.tokens_per_task = sl_items_per_task(j.width);
    sl_pool_run(a->pool, embedding_task, &j, sl_ceil_div(j.tokens, j.tokens_per_task));
}

static void zero_task(void *context, int64_t task, void *scratch)
{
    const embedding_job *j = context;
    const sl_range r = sl_task_range(task, SL_TASK_ELEMENTS, j->vocabulary * j->width);
    (void)scratch;
    memset(j->to + r.begin, 0, (size_t)(r.end - r.begin) * sizeof *j->to);
}

static void scatter_task(void *context, int64_t task, void *scratch)
{
    const embedding_job *j = context;
    const sl_range r = sl_task_range(task, COLUMNS, j->width);
    (void)scratch;
    for (int64_t t = 0; t < j->tokens; t++) {
        int32_t id = j->ids[t];
        if (id < 0 || id >= j->vocabulary) continue; /* forward made NaN of it */
        const float *from = j->from + t * j->width;
        float *to = j->to + id * j->width;
        for (int64_t c = r.begin; c < r.end; c += SL_LANES)
            v16_put_or_add(to + c, v16_get(from + c, r.end - c, 0.0f), r.end - c, true);
    }
}

/* Accumulating means adding the tokens' rows one by one to what is there. */
void K(embedding_grad)(const sl_kernel_args *a)
{
    embedding_job j = {
        .ids = a->in[0].data,
        .from = a->in[1].data,
        .to = a->out[0].data,
        .tokens = a->in[0].elements,
        .vocabulary = a->out[0].shape->dim[0],
        .width = sl_row_width(&a->out[0]),
    };
    if (!sl_accumulates(a, 0)) sl_pool_run(a->pool, zero_task, &j, sl_ceil_div(a->out[0].elements, SL_TASK_ELEMENTS));
    sl_pool_run(a->pool, scatter_task, &j, sl_ceil_div(j.width, COLUMNS));
}
