/* channel_norm.c: batch norm, alone and over ranks, and group norm over rows of channels, and their gradients.
 *
 * Both are one: batch norm is one sample whose groups are single channels. The first walk over the rows gives two sums for
 * each channel: of blocks of SL_CHANNEL_BLOCK rows in f32, of blocks and parts in double. In between, sums become
 * statistics, and these the factors by which the second walk computes each element by itself.
 *
 *   forward   sums of x and of x^2, the latter about the block's own mean so that nothing cancels in f32
 *             y = relu?((x - mean) scale + bias (+ residual)), scale = rstd weight
 *   backward  sums of g and of g (x - mean), where g is the part of dy that the ReLU let pass
 *             dx = scale g + (x - mean) slope + shift
 *
 * Over ranks both walks are ops of their own. The first takes the sums of each sample by itself; in f32 they are the leaves of a
 * tree over the samples of all ranks (core/sample_tree.h), whose nodes the ranks exchange. */
#include "backend/cpu/kernels/channel_parts.h"
#include "backend/cpu/kernels/elem.h"
#include "core/sample_tree.h"

#define GROUPS       4 /* vectors of channels summed side by side */
#define SUM_CHANNELS (GROUPS * SL_LANES)
#define AHEAD        8 /* rows between asking for an element and adding it */

/* What the second walk needs of a sample's channels. */
enum { MEAN, SCALE, BIAS, SLOPE, SHIFT };
_Static_assert(SHIFT + 1 == SL_CHANNEL_FACTORS, "there is room for every factor");

typedef struct channel_job {
    sl_channel_cut cut;
    const elem *x, *weight, *bias;    /* bias NULL: of no interest */
    const elem *residual;             /* NULL: none */
    const elem *dy, *passed;          /* passed: y, where the ReLU's mask is taken from it; NULL: from x, or no ReLU */
    bool relu, fixed;                 /* fixed: mean and deviation do not depend on x */
    elem *y, *dresidual;              /* y: forward's result, or dx; NULL: not wanted */
    float *mean, *rstd;               /* [samples, groups] */
    float *statistics;                /* of batch norm; NULL: not wanted, or group norm */
    const sl_tensor *dweight, *dbias; /* NULL: not wanted */
    int64_t groups;
    float epsilon;
    bool add_dx, add_dweight, add_dbias, add_dresidual;
    double *sums;   /* [samples, parts, 2, width] */
    float *factors; /* [samples, SL_CHANNEL_FACTORS, width]; of one sample where all share them */
    bool share_factors;
    /* over ranks */
    float *nodes; /* [ranks, node_room, 2, width] */
    int64_t ranks, node_room, rank;
    int64_t rank_samples; /* of each rank */
    bool backward;        /* nodes are sums, not means and variances */
    bool add_nodes;
    double count; /* rows of all ranks */
} channel_job;

SL_INLINE float *factor_out(const channel_job *j, int64_t sample, int which)
{
    return j->factors + ((j->share_factors ? 0 : sample) * SL_CHANNEL_FACTORS + which) * j->cut.width;
}

SL_INLINE const float *factor(const channel_job *j, int64_t sample, int which)
{
    return factor_out(j, sample, which);
}

SL_INLINE double *sums_of(const channel_job *j, int64_t sample, int64_t part)
{
    return j->sums + (sample * j->cut.parts + part) * 2 * j->cut.width;
}

/* ---- the first walk ---- */

SL_INLINE void ask_ahead(const elem *p, int64_t ahead, int64_t count)
{
    for (int64_t at = 0; at < count; at += 64 / (int64_t)sizeof(elem)) __builtin_prefetch(p + ahead + at);
}

/* Adds a block's two sums of `groups` vectors of channels from c on to those of its part. */
SL_INLINE void add_block(const channel_job *j, double *sums, int64_t c, int groups, const sl_v16 *first,
                         const sl_v16 *second)
{
    for (int g = 0; g < groups; g++) {
        float a[SL_LANES], b[SL_LANES];
        const int64_t at = c + g * SL_LANES, n = sl_least(j->cut.width - at, SL_LANES);
        v16_store(a, first[g]);
        v16_store(b, second[g]);
        for (int64_t i = 0; i < n; i++) {
            sums[at + i] += (double)a[i];
            sums[j->cut.width + at + i] += (double)b[i];
        }
    }
}

/* Sums of x and of x^2 of one block. Squares are taken about the block's mean m, rounded as it is, and moved in double:
 * sum x^2 = sum (x - m)^2 + m (2 sum x - rows m). */
SL_INLINE void forward_block(const channel_job *j, double *sums, int64_t row, int64_t rows, int64_t c, int groups)
{
    const int64_t width = j->cut.width;
    const elem *x = j->x + row * width + c;
    sl_v16 sum[GROUPS], mean[GROUPS], square[GROUPS];
    for (int g = 0; g < groups; g++) sum[g] = square[g] = v16_set1(0.0f);
    for (int64_t r = 0; r < rows; r++) {
        if (r + AHEAD < rows) ask_ahead(x + r * width, AHEAD * width, groups * SL_LANES);
        for (int g = 0; g < groups; g++)
            sum[g] = v16_add(sum[g], e16_get(x + r * width + g * SL_LANES, width - c - g * SL_LANES, 0.0f));
    }
    for (int g = 0; g < groups; g++) mean[g] = v16_div(sum[g], v16_set1((float)rows));
    for (int64_t r = 0; r < rows; r++)
        for (int g = 0; g < groups; g++) {
            sl_v16 d = v16_sub(e16_get(x + r * width + g * SL_LANES, width - c - g * SL_LANES, 0.0f), mean[g]);
            square[g] = v16_fma(d, d, square[g]);
        }
    add_block(j, sums, c, groups, sum, square);
    for (int g = 0; g < groups; g++) {
        float m[SL_LANES], s[SL_LANES];
        const int64_t at = c + g * SL_LANES, n = sl_least(width - at, SL_LANES);
        v16_store(m, mean[g]);
        v16_store(s, sum[g]);
        for (int64_t i = 0; i < n; i++)
            sums[width + at + i] += (double)m[i] * (2.0 * (double)s[i] - (double)rows * (double)m[i]);
    }
}

/* The part of dy that the ReLU let pass, at channel c of an element. */
SL_INLINE sl_v16 passed_gradient(const channel_job *j, int64_t at, int64_t left, sl_v16 centred, const float *scale,
                                 const float *bias)
{
    const sl_v16 dy = e16_get(j->dy + at, left, 0.0f);
    if (!j->relu) return dy;
    const sl_v16 z = j->passed != NULL ? e16_get(j->passed + at, left, 0.0f)
                                       : v16_fma(centred, v16_get(scale, left, 0.0f), v16_get(bias, left, 0.0f));
    return v16_select_gt0(z, dy, v16_set1(0.0f));
}

SL_INLINE void backward_block(const channel_job *j, double *sums, int64_t sample, int64_t row, int64_t rows, int64_t c,
                              int groups)
{
    const int64_t width = j->cut.width;
    sl_v16 sum[GROUPS], product[GROUPS];
    for (int g = 0; g < groups; g++) sum[g] = product[g] = v16_set1(0.0f);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t begin = (row + r) * width + c;
        if (r + AHEAD < rows) {
            ask_ahead(j->x + begin, AHEAD * width, groups * SL_LANES);
            ask_ahead(j->dy + begin, AHEAD * width, groups * SL_LANES);
        }
        for (int g = 0; g < groups; g++) {
            const int64_t k = c + g * SL_LANES, at = begin + g * SL_LANES, left = width - k;
            sl_v16 d = v16_sub(e16_get(j->x + at, left, 0.0f), v16_get(factor(j, sample, MEAN) + k, left, 0.0f));
            sl_v16 dy = passed_gradient(j, at, left, d, factor(j, sample, SCALE) + k, factor(j, sample, BIAS) + k);
            sum[g] = v16_add(sum[g], dy);
            product[g] = v16_fma(dy, d, product[g]);
            if (j->dresidual != NULL) e16_put_or_add(j->dresidual + at, dy, left, j->add_dresidual);
        }
    }
    add_block(j, sums, c, groups, sum, product);
}

/* A channel's sums do not depend on whether they are taken with 63 others or with 15. */
SL_INLINE void walk_blocks(const channel_job *j, int64_t sample, int64_t part, sl_slice channels, bool backward)
{
    double *sums = sums_of(j, sample, part);
    const sl_slice rows = sl_task_range(part, j->cut.part_rows, j->cut.rows);
    for (int64_t c = channels.begin; c < channels.end; c++) sums[c] = sums[j->cut.width + c] = 0.0;
    for (int64_t row = rows.begin; row < rows.end; row += SL_CHANNEL_BLOCK) {
        const int64_t count = sl_least(SL_CHANNEL_BLOCK, rows.end - row), at = sample * j->cut.rows + row;
        for (int64_t c = channels.begin; c < channels.end;) {
            const bool many = channels.end - c >= SUM_CHANNELS;
            if (backward && many)
                backward_block(j, sums, sample, at, count, c, GROUPS);
            else if (backward)
                backward_block(j, sums, sample, at, count, c, 1);
            else if (many)
                forward_block(j, sums, at, count, c, GROUPS);
            else
                forward_block(j, sums, at, count, c, 1);
            c += many ? SUM_CHANNELS : SL_LANES;
        }
    }
}

static int64_t column_tasks(const channel_job *j)
{
    return sl_ceil_div(j->cut.width, SL_CHANNEL_COLUMNS);
}

static void sums_task(const channel_job *j, int64_t task, bool backward)
{
    const int64_t columns = column_tasks(j), part = task / columns;
    const sl_slice channels = sl_task_range(task % columns, SL_CHANNEL_COLUMNS, j->cut.width);
    walk_blocks(j, part / j->cut.parts, part % j->cut.parts, channels, backward);
}

static void forward_sums_task(void *context, int64_t task, void *scratch)
{
    (void)scratch;
    sums_task(context, task, false);
}

static void backward_sums_task(void *context, int64_t task, void *scratch)
{
    (void)scratch;
    sums_task(context, task, true);
}

/* ---- in between ---- */

/* Sums over the parts of one channel. */
SL_INLINE void channel_sums(const channel_job *j, int64_t sample, int64_t c, double *first, double *second)
{
    *first = *second = 0.0;
    for (int64_t part = 0; part < j->cut.parts; part++) {
        const double *sums = sums_of(j, sample, part);
        *first += sums[c];
        *second += sums[j->cut.width + c];
    }
}

/* Mean and reciprocal deviation of a group, known, for all its channels. */
static void set_factors(const channel_job *j, int64_t sample, sl_slice channels, float mean, float rstd)
{
    for (int64_t c = channels.begin; c < channels.end; c++) {
        factor_out(j, sample, MEAN)[c] = mean;
        factor_out(j, sample, SCALE)[c] = e1_get(j->weight + c) * rstd;
        factor_out(j, sample, BIAS)[c] = j->bias != NULL ? e1_get(j->bias + c) : 0.0f;
    }
}

/* The statistics of group `task` of all samples' groups, from its sums. */
static void statistics_task(void *context, int64_t task, void *scratch)
{
    const channel_job *j = context;
    const int64_t sample = task / j->groups, each = j->cut.width / j->groups;
    const sl_slice channels = sl_task_range(task % j->groups, each, j->cut.width);
    const double n = (double)j->cut.rows * (double)each;
    double sum = 0.0, square = 0.0;
    (void)scratch;
    for (int64_t c = channels.begin; c < channels.end; c++) {
        double first, second;
        channel_sums(j, sample, c, &first, &second);
        sum += first;
        square += second;
    }
    const double mean = sum / n, spread = square / n - mean * mean, variance = spread > 0.0 ? spread : 0.0 * spread;
    j->mean[task] = (float)mean;
    j->rstd[task] = (float)(1.0 / sqrt(variance + (double)j->epsilon));
    set_factors(j, sample, channels, j->mean[task], j->rstd[task]);
    if (j->statistics == NULL) return;
    j->statistics[SL_BATCH_MEAN * j->cut.width + task] = (float)mean;
    j->statistics[SL_BATCH_VARIANCE * j->cut.width + task] = (float)(n > 1.0 ? variance * n / (n - 1.0) : variance);
}

/* What evaluation normalises a channel by. */
static void running_statistics_task(void *context, int64_t task, void *scratch)
{
    const channel_job *j = context;
    const sl_slice channels = sl_task_range(task, SL_CHANNEL_COLUMNS, j->cut.width);
    (void)scratch;
    for (int64_t c = channels.begin; c < channels.end; c++) {
        const double variance = (double)j->statistics[SL_RUNNING_VARIANCE * j->cut.width + c];
        j->mean[c] = j->statistics[SL_RUNNING_MEAN * j->cut.width + c];
        j->rstd[c] = (float)(1.0 / sqrt(variance + (double)j->epsilon));
    }
}

static void running_task(void *context, int64_t task, void *scratch)
{
    const channel_job *j = context;
    const sl_slice channels = sl_task_range(task, SL_CHANNEL_COLUMNS, j->cut.width);
    running_statistics_task(context, task, scratch);
    for (int64_t c = channels.begin; c < channels.end; c++)
        set_factors(j, 0, (sl_slice){ c, c + 1 }, j->mean[c], j->rstd[c]);
}

/* Before the sums of backward: what forward left. */
static void kept_task(void *context, int64_t task, void *scratch)
{
    const channel_job *j = context;
    const sl_slice channels = sl_task_range(task % j->groups, j->cut.width / j->groups, j->cut.width);
    (void)scratch;
    set_factors(j, task / j->groups, channels, j->mean[task], j->rstd[task]);
}

/* With w = weight: the group's means of w g and of w g hat, hat = (x - mean) rstd, give slope and shift of all its
 * channels:  dx = rstd (w g - mean(w g) - hat mean(w g hat)), or rstd w g where they are fixed */
static void slopes_task(void *context, int64_t task, void *scratch)
{
    const channel_job *j = context;
    const int64_t sample = task / j->groups, each = j->cut.width / j->groups;
    const sl_slice channels = sl_task_range(task % j->groups, each, j->cut.width);
    const double n = (double)j->cut.rows * (double)each, rstd = (double)j->rstd[task];
    double mean = 0.0, mean_hat = 0.0;
    (void)scratch;
    for (int64_t c = channels.begin; c < channels.end; c++) {
        double sum, product;
        channel_sums(j, sample, c, &sum, &product);
        mean += (double)e1_get(j->weight + c) * sum;
        mean_hat += (double)e1_get(j->weight + c) * product * rstd;
    }
    for (int64_t c = channels.begin; c < channels.end; c++) {
        factor_out(j, sample, SLOPE)[c] = j->fixed ? 0.0f : (float)(-(rstd * rstd) * (mean_hat / n));
        factor_out(j, sample, SHIFT)[c] = j->fixed ? 0.0f : (float)(-rstd * (mean / n));
    }
}

/* The gradients of SL_LANES channels' weight and bias: sums over the samples in order. */
static void parameters_task(void *context, int64_t task, void *scratch)
{
    const channel_job *j = context;
    const sl_slice channels = sl_task_range(task, SL_LANES, j->cut.width);
    float dweight[SL_LANES] = { 0 }, dbias[SL_LANES] = { 0 };
    (void)scratch;
    for (int64_t c = channels.begin; c < channels.end; c++) {
        const int64_t group = c / (j->cut.width / j->groups);
        double weight = 0.0, bias = 0.0;
        for (int64_t sample = 0; sample < j->cut.samples; sample++) {
            double sum, product;
            channel_sums(j, sample, c, &sum, &product);
            bias += sum;
            weight += product * (double)j->rstd[sample * j->groups + group];
        }
        dweight[c - channels.begin] = (float)weight;
        dbias[c - channels.begin] = (float)bias;
    }
    const int64_t left = j->cut.width - channels.begin;
    if (j->dweight != NULL) w16_put_or_add(j->dweight, channels.begin, v16_load(dweight), left, j->add_dweight);
    if (j->dbias != NULL) w16_put_or_add(j->dbias, channels.begin, v16_load(dbias), left, j->add_dbias);
}

/* ---- the second walk ---- */

SL_INLINE void result_row(const channel_job *j, int64_t row)
{
    const int64_t sample = row / j->cut.rows, width = j->cut.width;
    const float *mean = factor(j, sample, MEAN), *scale = factor(j, sample, SCALE), *bias = factor(j, sample, BIAS);
    for (int64_t c = 0; c < width; c += SL_LANES) {
        const int64_t at = row * width + c, left = width - c;
        sl_v16 d = v16_sub(e16_get(j->x + at, left, 0.0f), v16_get(mean + c, left, 0.0f));
        sl_v16 z = v16_fma(d, v16_get(scale + c, left, 0.0f), v16_get(bias + c, left, 0.0f));
        if (j->residual != NULL) z = v16_add(z, e16_get(j->residual + at, left, 0.0f));
        if (j->relu) z = v16_max(v16_set1(0.0f), z); /* NaN stays */
        e16_put(j->y + at, z, left);
    }
}

SL_INLINE void dx_row(const channel_job *j, int64_t row)
{
    const int64_t sample = row / j->cut.rows, width = j->cut.width;
    const float *mean = factor(j, sample, MEAN), *scale = factor(j, sample, SCALE), *bias = factor(j, sample, BIAS);
    const float *slope = factor(j, sample, SLOPE), *shift = factor(j, sample, SHIFT);
    for (int64_t c = 0; c < width; c += SL_LANES) {
        const int64_t at = row * width + c, left = width - c;
        sl_v16 d = v16_sub(e16_get(j->x + at, left, 0.0f), v16_get(mean + c, left, 0.0f));
        sl_v16 g = passed_gradient(j, at, left, d, scale + c, bias + c);
        sl_v16 rest = v16_fma(d, v16_get(slope + c, left, 0.0f), v16_get(shift + c, left, 0.0f));
        e16_put_or_add(j->y + at, v16_fma(g, v16_get(scale + c, left, 0.0f), rest), left, j->add_dx);
    }
}

static void result_task(void *context, int64_t task, void *scratch)
{
    const channel_job *j = context;
    const sl_slice r = sl_task_range(task, sl_items_per_task(j->cut.width), j->cut.samples * j->cut.rows);
    (void)scratch;
    for (int64_t row = r.begin; row < r.end; row++) result_row(j, row);
}

static void dx_task(void *context, int64_t task, void *scratch)
{
    const channel_job *j = context;
    const sl_slice r = sl_task_range(task, sl_items_per_task(j->cut.width), j->cut.samples * j->cut.rows);
    (void)scratch;
    for (int64_t row = r.begin; row < r.end; row++) dx_row(j, row);
}

/* ---- over ranks ---- */

/* Nodes that wait for their neighbour, SL_LANES channels of each; larger ones, which come first, at the bottom. */
typedef struct node_stack {
    int depth;
    int64_t samples[SL_SAMPLE_DEPTH];
    sl_v16 first[SL_SAMPLE_DEPTH], second[SL_SAMPLE_DEPTH];
} node_stack;

/* The two on top become one. */
SL_INLINE void merge_top(node_stack *s, bool backward)
{
    const int a = s->depth - 2, b = s->depth - 1;
    if (backward) {
        s->first[a] = v16_add(s->first[a], s->first[b]);
        s->second[a] = v16_add(s->second[a], s->second[b]);
    } else {
        const sl_sample_shares share = sl_sample_shares_of(s->samples[a], s->samples[b]);
        const sl_v16 right = v16_set1(share.right), d = v16_sub(s->first[b], s->first[a]);
        const sl_v16 within = v16_fma(s->second[b], right, v16_mul(s->second[a], v16_set1(share.left)));
        s->first[a] = v16_fma(d, right, s->first[a]);
        s->second[a] = v16_fma(v16_mul(d, d), v16_set1(share.between), within);
    }
    s->samples[a] += s->samples[b];
    s->depth--;
}

/* Takes the next node; it meets its neighbour where that waits for it. */
SL_INLINE void push_node(node_stack *s, int64_t samples, sl_v16 first, sl_v16 second, bool backward)
{
    s->samples[s->depth] = samples;
    s->first[s->depth] = first;
    s->second[s->depth++] = second;
    while (s->depth > 1 && s->samples[s->depth - 2] == s->samples[s->depth - 1]) merge_top(s, backward);
}

/* Two numbers of a sample by itself, of channels from c on. */
SL_INLINE void push_sample(const channel_job *j, node_stack *s, int64_t sample, int64_t c)
{
    const double rows = (double)j->cut.rows;
    const int64_t count = sl_least(j->cut.width - c, SL_LANES);
    float first[SL_LANES] = { 0 }, second[SL_LANES] = { 0 };
    for (int64_t i = 0; i < count; i++) {
        double a, b;
        channel_sums(j, sample, c + i, &a, &b);
        const double mean = a / rows, spread = b / rows - mean * mean;
        first[i] = (float)(j->backward ? a : mean);
        second[i] = (float)(j->backward ? b : spread > 0.0 ? spread : 0.0 * spread);
    }
    push_node(s, 1, v16_load(first), v16_load(second), j->backward);
}

SL_INLINE float *node_row(const channel_job *j, int64_t rank, int64_t node, int row)
{
    return j->nodes + ((rank * j->node_room + node) * SL_NODE_ROWS + row) * j->cut.width;
}

SL_INLINE void put_node(const channel_job *j, int64_t node, int row, int64_t c, sl_v16 x)
{
    float *to = node_row(j, j->rank, node, row) + c;
    const int64_t left = j->cut.width - c;
    v16_put(to, j->add_nodes ? v16_add(v16_get(to, left, 0.0f), x) : x, left);
}

/* The nodes of this rank's samples, of SL_LANES channels; zeros in the room behind them. */
static void nodes_task(void *context, int64_t task, void *scratch)
{
    const channel_job *j = context;
    const int64_t c = task * SL_LANES;
    const int64_t begin = j->rank * j->rank_samples, end = begin + j->rank_samples;
    int64_t next = begin;
    (void)scratch;
    for (int64_t node = 0; node < j->node_room; node++) {
        node_stack s = { .depth = 0 };
        const int64_t samples = next < end ? (int64_t)1 << sl_norm_level(next, end) : 0;
        for (int64_t i = 0; i < samples; i++) push_sample(j, &s, next - begin + i, c);
        const sl_v16 zero = v16_set1(0.0f);
        put_node(j, node, SL_NODE_FIRST, c, samples > 0 ? s.first[0] : zero);
        put_node(j, node, SL_NODE_SECOND, c, samples > 0 ? s.second[0] : zero);
        next += samples;
    }
}

/* What the nodes of all ranks come to, of channels from c on. */
SL_INLINE void join_nodes(const channel_job *j, int64_t c, float first[SL_LANES], float second[SL_LANES])
{
    const int64_t left = j->cut.width - c;
    node_stack s = { .depth = 0 };
    for (int64_t rank = 0; rank < j->ranks; rank++) {
        int64_t next = rank * j->rank_samples;
        const int64_t end = next + j->rank_samples;
        for (int64_t node = 0; next < end; node++) {
            const int64_t samples = (int64_t)1 << sl_norm_level(next, end);
            push_node(&s, samples, v16_get(node_row(j, rank, node, SL_NODE_FIRST) + c, left, 0.0f),
                      v16_get(node_row(j, rank, node, SL_NODE_SECOND) + c, left, 0.0f), j->backward);
            next += samples;
        }
    }
    while (s.depth > 1) merge_top(&s, j->backward);
    v16_store(first, s.first[0]);
    v16_store(second, s.second[0]);
}

static void joined_statistics_task(void *context, int64_t task, void *scratch)
{
    const channel_job *j = context;
    const int64_t width = j->cut.width;
    const sl_slice channels = sl_task_range(task, SL_LANES, width);
    const double n = j->count;
    float mean[SL_LANES], spread[SL_LANES];
    (void)scratch;
    join_nodes(j, channels.begin, mean, spread);
    for (int64_t c = channels.begin; c < channels.end; c++) {
        const double variance = (double)spread[c - channels.begin];
        j->mean[c] = mean[c - channels.begin];
        j->rstd[c] = (float)(1.0 / sqrt(variance + (double)j->epsilon));
        if (j->statistics == NULL) continue;
        j->statistics[SL_BATCH_MEAN * width + c] = mean[c - channels.begin];
        j->statistics[SL_BATCH_VARIANCE * width + c] = (float)(n > 1.0 ? variance * n / (n - 1.0) : variance);
    }
}

/* Slope and shift of SL_LANES channels, as slopes_task; and the gradients of their weight and bias, which are rank 0's. */
static void joined_slopes_task(void *context, int64_t task, void *scratch)
{
    const channel_job *j = context;
    const sl_slice channels = sl_task_range(task, SL_LANES, j->cut.width);
    const int64_t left = j->cut.width - channels.begin;
    float sum[SL_LANES], product[SL_LANES], dweight[SL_LANES] = { 0 }, dbias[SL_LANES] = { 0 };
    (void)scratch;
    join_nodes(j, channels.begin, sum, product);
    for (int64_t c = channels.begin; c < channels.end; c++) {
        const int64_t i = c - channels.begin;
        const double rstd = (double)j->rstd[c], weight = (double)e1_get(j->weight + c), hat = (double)product[i] * rstd;
        factor_out(j, 0, SLOPE)[c] = (float)(-(rstd * rstd) * (weight * hat / j->count));
        factor_out(j, 0, SHIFT)[c] = (float)(-rstd * (weight * (double)sum[i] / j->count));
        dweight[i] = j->rank == 0 ? (float)hat : 0.0f;
        dbias[i] = j->rank == 0 ? sum[i] : 0.0f;
    }
    if (j->dweight != NULL) w16_put_or_add(j->dweight, channels.begin, v16_load(dweight), left, j->add_dweight);
    if (j->dbias != NULL) w16_put_or_add(j->dbias, channels.begin, v16_load(dbias), left, j->add_dbias);
}

/* ---- whole calls ---- */

static void set_shape(channel_job *j, const sl_kernel_args *a, bool by_sample, int64_t groups)
{
    j->cut = sl_channel_cut_of(a->in[0].shape, by_sample);
    j->groups = groups > 0 ? groups : j->cut.width;
    j->x = a->in[0].data;
    j->weight = a->in[1].data;
    j->y = a->out[0].data;
    j->sums = a->workspace;
    if (a->workspace != NULL) j->factors = (float *)((char *)a->workspace + sl_channel_sum_bytes(&j->cut));
}

static void run_sums(const sl_kernel_args *a, channel_job *j, void (*task)(void *, int64_t, void *))
{
    sl_pool_run(a->pool, task, j, j->cut.samples * j->cut.parts * column_tasks(j));
}

static void run_rows(const sl_kernel_args *a, channel_job *j, void (*task)(void *, int64_t, void *))
{
    sl_pool_run(a->pool, task, j, sl_ceil_div(j->cut.samples * j->cut.rows, sl_items_per_task(j->cut.width)));
}

static void run_groups(const sl_kernel_args *a, channel_job *j, void (*task)(void *, int64_t, void *))
{
    sl_pool_run(a->pool, task, j, j->cut.samples * j->groups);
}

static const sl_tensor *wanted(const sl_kernel_args *a, int output)
{
    return a->output_count > output && a->out[output].data != NULL ? &a->out[output] : NULL;
}

static void run_forward(const sl_kernel_args *a, channel_job *j)
{
    j->bias = a->in[2].data;
    j->mean = a->out[1].data;
    j->rstd = a->out[2].data;
    run_sums(a, j, forward_sums_task);
    run_groups(a, j, statistics_task);
    run_rows(a, j, result_task);
}

static void run_backward(const sl_kernel_args *a, channel_job *j)
{
    j->dweight = wanted(a, 1);
    j->dbias = wanted(a, 2);
    j->add_dx = sl_accumulates(a, 0);
    j->add_dweight = sl_accumulates(a, 1);
    j->add_dbias = sl_accumulates(a, 2);
    j->add_dresidual = sl_accumulates(a, 3);
    run_groups(a, j, kept_task);
    run_sums(a, j, backward_sums_task);
    if (j->dweight != NULL || j->dbias != NULL)
        sl_pool_run(a->pool, parameters_task, j, sl_ceil_div(j->cut.width, SL_LANES));
    if (j->y == NULL) return;
    if (j->dresidual != NULL && !j->add_dresidual) { /* it is what passed */
        j->dy = j->dresidual;
        j->relu = false;
    }
    run_groups(a, j, slopes_task);
    run_rows(a, j, dx_task);
}

void K(batch_norm)(const sl_kernel_args *a)
{
    channel_job j = { .epsilon = a->attrs->batch_norm.epsilon, .relu = a->attrs->batch_norm.relu };
    set_shape(&j, a, false, 0);
    j.statistics = wanted(a, 3) != NULL ? a->out[3].data : NULL;
    if (a->input_count > 3) j.residual = a->in[3].data;
    if (a->context->training && !a->attrs->batch_norm.frozen) {
        run_forward(a, &j);
        return;
    }
    j.bias = a->in[2].data;
    j.mean = a->out[1].data;
    j.rstd = a->out[2].data;
    sl_pool_run(a->pool, running_task, &j, column_tasks(&j));
    run_rows(a, &j, result_task);
}

void K(batch_norm_grad)(const sl_kernel_args *a)
{
    channel_job j = { .bias = a->in[2].data, .mean = a->in[3].data, .rstd = a->in[4].data, .dy = a->in[5].data };
    set_shape(&j, a, false, 0);
    j.relu = a->attrs->batch_norm.relu;
    j.fixed = a->attrs->batch_norm.frozen;
    if (a->input_count > 6) j.passed = a->in[6].data;
    if (wanted(a, 3) != NULL) j.dresidual = a->out[3].data;
    run_backward(a, &j);
}

void K(group_norm)(const sl_kernel_args *a)
{
    channel_job j = { .epsilon = a->attrs->group_norm.epsilon };
    set_shape(&j, a, true, a->attrs->group_norm.groups);
    run_forward(a, &j);
}

void K(group_norm_grad)(const sl_kernel_args *a)
{
    channel_job j = { .mean = a->in[2].data, .rstd = a->in[3].data, .dy = a->in[4].data };
    set_shape(&j, a, true, a->attrs->group_norm.groups);
    run_backward(a, &j);
}

/* ---- whole calls, over ranks ---- */

/* `by_sample`: sums are taken of each sample; otherwise rows are only walked. `nodes`: what the ranks tell each other; NULL: the
 * call has nothing to do with it. */
static channel_job shared_job(const sl_kernel_args *a, bool by_sample, const sl_tensor *nodes, bool backward)
{
    channel_job j = { .share_factors = true, .backward = backward, .epsilon = a->attrs->batch_norm.epsilon };
    set_shape(&j, a, by_sample, 0);
    j.relu = a->attrs->batch_norm.relu;
    j.ranks = a->attrs->batch_norm.ranks;
    j.rank = (int64_t)a->context->micro % j.ranks;
    j.rank_samples = a->in[0].shape->dim[0];
    j.count = (double)(j.cut.samples * j.cut.rows) * (double)j.ranks;
    if (nodes != NULL) {
        j.nodes = nodes->data;
        j.node_room = nodes->shape->dim[1];
    }
    return j;
}

static void run_lanes(const sl_kernel_args *a, channel_job *j, void (*task)(void *, int64_t, void *))
{
    sl_pool_run(a->pool, task, j, sl_ceil_div(j->cut.width, SL_LANES));
}

/* Mean and deviation are inputs 3 and 4: what the walks need of them. */
static void take_statistics(const sl_kernel_args *a, channel_job *j)
{
    j->weight = a->in[1].data;
    j->bias = a->in[2].data;
    j->mean = a->in[3].data;
    j->rstd = a->in[4].data;
    sl_pool_run(a->pool, kept_task, j, j->groups);
}

void K(batch_moments)(const sl_kernel_args *a)
{
    if (!a->context->training) return;
    channel_job j = shared_job(a, true, &a->out[0], false);
    run_sums(a, &j, forward_sums_task);
    run_lanes(a, &j, nodes_task);
}

void K(batch_statistics)(const sl_kernel_args *a)
{
    channel_job j = shared_job(a, false, &a->in[1], false);
    j.mean = a->out[0].data;
    j.rstd = a->out[1].data;
    j.statistics = wanted(a, 2) != NULL ? a->out[2].data : NULL;
    if (a->context->training)
        run_lanes(a, &j, joined_statistics_task);
    else
        sl_pool_run(a->pool, running_statistics_task, &j, column_tasks(&j));
}

void K(batch_normalize)(const sl_kernel_args *a)
{
    channel_job j = shared_job(a, false, NULL, false);
    if (a->input_count > 5) j.residual = a->in[5].data;
    take_statistics(a, &j);
    run_rows(a, &j, result_task);
}

void K(batch_norm_sums)(const sl_kernel_args *a)
{
    channel_job j = shared_job(a, true, &a->out[0], true);
    j.dy = a->in[5].data;
    if (a->input_count > 6) j.passed = a->in[6].data;
    if (wanted(a, 1) != NULL) j.dresidual = a->out[1].data;
    j.add_nodes = sl_accumulates(a, 0);
    j.add_dresidual = sl_accumulates(a, 1);
    take_statistics(a, &j);
    run_sums(a, &j, backward_sums_task);
    run_lanes(a, &j, nodes_task);
}

void K(batch_normalize_grad)(const sl_kernel_args *a)
{
    channel_job j = shared_job(a, false, &a->in[6], true);
    j.dy = a->in[5].data;
    if (a->input_count > 7) j.passed = a->in[7].data;
    j.dweight = wanted(a, 1);
    j.dbias = wanted(a, 2);
    j.add_dx = sl_accumulates(a, 0);
    j.add_dweight = sl_accumulates(a, 1);
    j.add_dbias = sl_accumulates(a, 2);
    take_statistics(a, &j);
    run_lanes(a, &j, joined_slopes_task);
    if (j.y != NULL) run_rows(a, &j, dx_task);
}
