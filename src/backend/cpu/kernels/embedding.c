/* embedding.c: rows of a table by index, and the gradient of the table.
 *
 * The gradient adds one row of dy per token, and several tokens may share a table row. A task owns a block of the
 * table, whose sums lie as floats in its scratch memory, and walks the tokens in order: every element is the sum of its
 * tokens in order of position, rounded once to the output's form. Looking through all indices for each block costs
 * little next to the rows. Readers of data check ids; an id outside the table that comes here all the same yields NaN,
 * which stops the run, and is never used as an index. */
#include "backend/cpu/kernels/elem.h"

/* A block's sums are at most 256 KiB, which a core's own cache holds. Its rows are fewer where the vocabulary is small,
 * so that the work spreads. */
#define COLUMNS    128
#define MOST_ROWS  512
#define LEAST_ROWS 16
#define ROW_BLOCKS 32   /* wanted */
#define TOKENS     4096 /* listed at a time */
#define AHEAD      6    /* tokens between asking for a row and adding it */

typedef struct embedding_job {
    const int32_t *ids;
    const elem *from; /* table */
    elem *to;         /* y */
    int64_t tokens, vocabulary, width, tokens_per_task;
} embedding_job;

static void embedding_task(void *context, int64_t task, void *scratch)
{
    const embedding_job *j = context;
    const sl_slice r = sl_task_range(task, j->tokens_per_task, j->tokens);
    (void)scratch;
    for (int64_t t = r.begin; t < r.end; t++) {
        elem *to = j->to + t * j->width;
        int32_t id = j->ids[t];
        if (id >= 0 && id < j->vocabulary)
            memcpy(to, j->from + id * j->width, (size_t)j->width * sizeof *to);
        else
            for (int64_t c = 0; c < j->width; c++) e1_put(to + c, NAN);
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

/* ---- The table's gradient ---- */

typedef struct table_job {
    const int32_t *ids;
    const elem *dy;
    const sl_tensor *out; /* of any float form */
    bool accumulate;
    int64_t tokens, vocabulary, width;
    int64_t rows, row_blocks; /* of a block; how many such blocks the table has */
} table_job;

/* A block of the table. Lies in the worker's scratch. */
typedef struct table_block {
    sl_slice rows, columns;
    bool touched[MOST_ROWS]; /* whether a token had the row; its sums are unset before */
    float sums[MOST_ROWS][COLUMNS];
    int64_t tokens[TOKENS + 1]; /* those with a row of the block; one place more, written before it is known to count */
} table_block;

_Static_assert(sizeof(table_block) <= SL_SCRATCH_BYTES, "a block must fit in a worker's scratch");

/* What is there counts as the first term when accumulating. */
static void begin_row(const table_job *j, table_block *b, int64_t row)
{
    float *sum = b->sums[row - b->rows.begin];
    b->touched[row - b->rows.begin] = true;
    for (int64_t c = b->columns.begin; c < b->columns.end; c += SL_LANES, sum += SL_LANES) {
        sl_v16 v = v16_set1(0.0f);
        if (j->accumulate) v = w16_get(j->out, row * j->width + c, b->columns.end - c, 0.0f);
        v16_store(sum, v);
    }
}

static void add_token(const table_job *j, table_block *b, int64_t token)
{
    const int64_t row = j->ids[token];
    if (!b->touched[row - b->rows.begin]) begin_row(j, b, row);
    float *sum = b->sums[row - b->rows.begin];
    const elem *dy = j->dy + token * j->width;
    for (int64_t c = b->columns.begin; c < b->columns.end; c += SL_LANES, sum += SL_LANES)
        v16_store(sum, v16_add(v16_load(sum), e16_get(dy + c, b->columns.end - c, 0.0f)));
}

SL_INLINE bool in_block(const table_block *b, int32_t id)
{
    return (uint32_t)id - (uint32_t)b->rows.begin < (uint32_t)(b->rows.end - b->rows.begin);
}

/* Lists the tokens of [begin, end), at most TOKENS, whose row is in the block. Returns how many. Sixteen at a time are
 * mostly none, which is one comparison. */
static int64_t list_tokens(const table_job *j, table_block *b, int64_t begin, int64_t end)
{
    int64_t count = 0;
    for (int64_t t = begin; t < end; t += SL_LANES) {
        const int n = (int)sl_least(SL_LANES, end - t);
        if (n == SL_LANES) {
            uint32_t any = 0;
            for (int i = 0; i < SL_LANES; i++) any |= in_block(b, j->ids[t + i]);
            if (any == 0) continue;
        }
        for (int i = 0; i < n; i++) {
            b->tokens[count] = t + i;
            count += in_block(b, j->ids[t + i]);
        }
    }
    return count;
}

/* The listed rows of dy lie apart, so they are asked for ahead of their turn. */
static void add_tokens(const table_job *j, table_block *b)
{
    const int64_t line = 64 / (int64_t)sizeof(elem);
    for (int64_t begin = 0; begin < j->tokens; begin += TOKENS) {
        const int64_t count = list_tokens(j, b, begin, sl_least(begin + TOKENS, j->tokens));
        for (int64_t i = 0; i < count; i++) {
            const elem *ahead = j->dy + b->tokens[sl_least(i + AHEAD, count - 1)] * j->width;
            for (int64_t c = b->columns.begin; c < b->columns.end; c += line) __builtin_prefetch(ahead + c);
            add_token(j, b, b->tokens[i]);
        }
    }
}

/* Rows without a token are zero, or stay as they are when accumulating. */
static void write_row(const table_job *j, const table_block *b, int64_t row)
{
    const float *sum = b->sums[row - b->rows.begin];
    const bool touched = b->touched[row - b->rows.begin];
    if (!touched && j->accumulate) return;
    for (int64_t c = b->columns.begin; c < b->columns.end; c += SL_LANES, sum += SL_LANES)
        w16_put(j->out, row * j->width + c, touched ? v16_load(sum) : v16_set1(0.0f), b->columns.end - c);
}

static void table_task(void *context, int64_t task, void *scratch)
{
    const table_job *j = context;
    table_block *b = scratch;
    b->rows = sl_task_range(task % j->row_blocks, j->rows, j->vocabulary);
    b->columns = sl_task_range(task / j->row_blocks, COLUMNS, j->width);
    memset(b->touched, 0, sizeof b->touched);
    add_tokens(j, b);
    for (int64_t row = b->rows.begin; row < b->rows.end; row++) write_row(j, b, row);
}

void K(embedding_grad)(const sl_kernel_args *a)
{
    table_job j = {
        .ids = a->in[0].data,
        .dy = a->in[1].data,
        .out = &a->out[0],
        .accumulate = sl_accumulates(a, 0),
        .tokens = a->in[0].elements,
        .vocabulary = a->out[0].shape->dim[0],
        .width = sl_row_width(&a->out[0]),
    };
    j.rows = sl_ceil_div(j.vocabulary, ROW_BLOCKS);
    if (j.rows < LEAST_ROWS) j.rows = LEAST_ROWS;
    if (j.rows > MOST_ROWS) j.rows = MOST_ROWS;
    j.row_blocks = sl_ceil_div(j.vocabulary, j.rows);
    sl_pool_run(a->pool, table_task, &j, j.row_blocks * sl_ceil_div(j.width, COLUMNS));
}
