/* metrics.c: what is collected of a pass over a split, and the metrics that are made of it.
 *
 * Two flat arrays hold all that is collected, counts and sums, so that ranks add them up without knowing what they are. */
#include "train/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "train/edit_distance.h"

/* high + low: the sum in twice the digits of a double, whose first digits `high` is. */
typedef struct sum {
    double high, low;
} sum;

/* The model's score of a sample that is positive or not. */
typedef struct scored {
    double score;
    uint64_t positive;
} scored;

/* Places in `counts`; behind them classes times: right, predicted, actual; and the confusion matrix. */
enum { COUNTED, CORRECT, WORDS, WORD_ERRORS, LABELS, LABEL_ERRORS, FIXED_COUNTS };
/* Places in `sums`; behind them outputs times: residual, target, target_square. */
enum { LOG_LOSS, ABSOLUTE, SQUARED, FIXED_SUMS };
enum { OF_CLASS = 3, OF_OUTPUT = 3 };

struct sl_metrics {
    sl_metric_shape shape;
    int64_t classes;                                  /* that are told apart; 0: none are */
    uint64_t *counts;                                 /* owned; count_count of them */
    uint64_t *right, *predicted, *actual, *confusion; /* in counts; NULL: not counted */
    size_t count_count;
    sum *sums, *residual, *target, *target_square; /* owned; sum_count of them; the others are in it */
    size_t sum_count;
    scored *scores; /* owned; shape.scores of them; NULL: none are kept */
    int64_t score_count;
    bool unscored; /* a score is no number, or there was no room for one */
    double area;   /* under the curve; known when the ranks have shared */
    double loss, weight, bytes;
};

/* ---- sums ---- */

static void add(sum *s, double x)
{
    double high = s->high + x, of_x = high - s->high;
    s->low += (s->high - (high - of_x)) + (x - of_x);
    s->high = high;
}

/* x squared without rounding. */
static void add_square(sum *s, double x)
{
    double square = x * x;
    add(s, square);
    add(s, fma(x, x, -square));
}

static double total(const sum *s)
{
    return s->high + s->low;
}

/* ---- the table ---- */

enum { LOWER = 0, HIGHER = 1 };
enum {
    CLASSES = 1 << SL_JUDGED_CLASSES,
    BINARY = 1 << SL_JUDGED_BINARY,
    VALUES = 1 << SL_JUDGED_VALUES,
    TOKENS = 1 << SL_JUDGED_TOKENS,
    TRANSCRIPTS = 1 << SL_JUDGED_TRANSCRIPTS,
    ANYTHING = CLASSES | BINARY | VALUES | TOKENS | TRANSCRIPTS,
    ONLY_TWO = 1 << 16,
    TWO_CLASSES = CLASSES | BINARY | ONLY_TWO,
};

static double share_of(uint64_t part, uint64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : (double)NAN;
}

static double finish_loss(const sl_metrics *m)
{
    return m->weight > 0 ? m->loss / m->weight : (double)NAN;
}

static double finish_accuracy(const sl_metrics *m)
{
    return share_of(m->counts[CORRECT], m->counts[COUNTED]);
}

/* Of the classes that are there or were found; the others say nothing about the model. */
static double macro(const sl_metrics *m, size_t field)
{
    double all = 0, there = 0;
    for (int64_t i = 0; i < m->classes; i++) {
        sluice_class_score c = sl_metrics_class(m, i);
        if (m->actual[i] + m->predicted[i] == 0) continue;
        all += *(const double *)(const void *)((const char *)&c + field);
        there++;
    }
    return there > 0 ? all / there : (double)NAN;
}

/* Of two classes the second is the positive one. */
static double positive_or_macro(const sl_metrics *m, size_t field)
{
    if (m->classes != 2) return macro(m, field);
    sluice_class_score c = sl_metrics_class(m, 1);
    return m->counts[COUNTED] > 0 ? *(const double *)(const void *)((const char *)&c + field) : (double)NAN;
}

static double finish_precision(const sl_metrics *m)
{
    return positive_or_macro(m, offsetof(sluice_class_score, precision));
}

static double finish_recall(const sl_metrics *m)
{
    return positive_or_macro(m, offsetof(sluice_class_score, recall));
}

static double finish_f1(const sl_metrics *m)
{
    return positive_or_macro(m, offsetof(sluice_class_score, f1));
}

static double finish_precision_macro(const sl_metrics *m)
{
    return macro(m, offsetof(sluice_class_score, precision));
}

static double finish_recall_macro(const sl_metrics *m)
{
    return macro(m, offsetof(sluice_class_score, recall));
}

static double finish_f1_macro(const sl_metrics *m)
{
    return macro(m, offsetof(sluice_class_score, f1));
}

static double finish_auc(const sl_metrics *m)
{
    return m->area;
}

static double finish_log_loss(const sl_metrics *m)
{
    return m->counts[COUNTED] > 0 ? total(&m->sums[LOG_LOSS]) / (double)m->counts[COUNTED] : (double)NAN;
}

/* Numbers that were compared. */
static double values_of(const sl_metrics *m)
{
    return (double)m->counts[COUNTED] * (double)m->shape.outputs;
}

static double finish_mae(const sl_metrics *m)
{
    return m->counts[COUNTED] > 0 ? total(&m->sums[ABSOLUTE]) / values_of(m) : (double)NAN;
}

static double finish_rmse(const sl_metrics *m)
{
    return m->counts[COUNTED] > 0 ? sqrt(total(&m->sums[SQUARED]) / values_of(m)) : (double)NAN;
}

/* a * b without rounding. */
static void add_product(sum *s, double a, double b)
{
    double product = a * b;
    add(s, product);
    add(s, fma(a, b, -product));
}

/* Sum of the squares of n numbers less c, by the sums of the numbers and of their squares: what is left of those where c is
 * near their mean is exact, because all of them have twice the digits. */
static double squares_around(double c, double n, const sum *numbers, const sum *squares)
{
    sum s = *squares;
    double square = c * c, rest = fma(c, c, -square);
    add_product(&s, -2 * c, numbers->high);
    add_product(&s, -2 * c, numbers->low);
    add_product(&s, n, square);
    add_product(&s, n, rest);
    return total(&s);
}

/* 1 - residual / variance of one output; targets that do not vary are explained by a perfect model alone. */
static double explained(const sl_metrics *m, int64_t output)
{
    const sum *targets = &m->target[output], *squares = &m->target_square[output];
    double n = (double)m->counts[COUNTED], residual = total(&m->residual[output]);
    double variance = squares_around(total(targets) / n, n, targets, squares);
    if (variance <= 1e-24 * total(squares)) return residual == 0 ? 1 : 0; /* fp32 targets that differ have more */
    return 1 - residual / variance;
}

static double finish_r2(const sl_metrics *m)
{
    double all = 0;
    if (m->counts[COUNTED] < 2) return (double)NAN;
    for (int64_t i = 0; i < m->shape.outputs; i++) all += explained(m, i);
    return all / (double)m->shape.outputs;
}

static double finish_perplexity(const sl_metrics *m)
{
    return exp(finish_loss(m));
}

static double finish_bits_per_byte(const sl_metrics *m)
{
    return m->bytes > 0 ? m->loss / log(2.0) / m->bytes : (double)NAN;
}

static double finish_wer(const sl_metrics *m)
{
    return share_of(m->counts[WORD_ERRORS], m->counts[WORDS]);
}

static double finish_cer(const sl_metrics *m)
{
    return share_of(m->counts[LABEL_ERRORS], m->counts[LABELS]);
}

static const struct {
    const char *name;
    bool higher;
    int of; /* bits of sl_judged, and ONLY_TWO */
    double (*finish)(const sl_metrics *m);
} rows[] = {
#define METRIC_ROW(id_, name_, better_, of_, made_by_) [SL_METRIC_##id_] = { name_, better_, of_, finish_##made_by_ },
    SL_METRICS(METRIC_ROW)
#undef METRIC_ROW
};

const char *sl_metric_name(sl_metric m)
{
    return rows[m].name;
}

bool sl_metric_higher(sl_metric m)
{
    return rows[m].higher;
}

bool sl_metric_applies(sl_metric m, const sl_metric_shape *shape)
{
    if ((rows[m].of & 1 << shape->judged) == 0) return false;
    return (rows[m].of & ONLY_TWO) == 0 || shape->judged != SL_JUDGED_CLASSES || shape->classes == 2;
}

const char *sl_metric_list(const sl_metric_shape *shape, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (int m = 0; m < SL_METRIC_COUNT; m++)
        if (sl_metric_applies((sl_metric)m, shape) && used < bytes)
            used += (size_t)snprintf(out + used, bytes - used, "%s%s", used > 0 ? ", " : "", rows[m].name);
    return out;
}

double sl_metrics_value(sl_metrics *m, sl_metric which)
{
    return sl_metric_applies(which, &m->shape) ? rows[which].finish(m) : (double)NAN;
}

/* ---- the collection ---- */

static int64_t told_apart(const sl_metric_shape *s)
{
    return s->judged == SL_JUDGED_CLASSES ? s->classes : s->judged == SL_JUDGED_BINARY ? 2 : 0;
}

static bool confuses(const sl_metric_shape *s)
{
    return told_apart(s) > 0 && told_apart(s) <= SL_MOST_CONFUSED;
}

static size_t counts_in(const sl_metric_shape *s)
{
    size_t classes = (size_t)told_apart(s);
    return FIXED_COUNTS + OF_CLASS * classes + (confuses(s) ? classes * classes : 0);
}

static size_t sums_in(const sl_metric_shape *s)
{
    return FIXED_SUMS + (s->judged == SL_JUDGED_VALUES ? OF_OUTPUT * (size_t)s->outputs : 0);
}

uint64_t sl_metrics_bytes(const sl_metric_shape *shape, int ranks)
{
    uint64_t largest = counts_in(shape) * sizeof(uint64_t), scores = (uint64_t)shape->scores * sizeof(scored);
    if (largest < sums_in(shape) * sizeof(sum)) largest = sums_in(shape) * sizeof(sum);
    if (largest < scores) largest = scores;
    return counts_in(shape) * sizeof(uint64_t) + sums_in(shape) * sizeof(sum) + scores +
           (ranks > 1 ? (uint64_t)ranks * largest : 0);
}

sluice_status sl_metrics_create(const sl_metric_shape *shape, sl_metrics **out)
{
    sl_metrics *m = sl_alloc(sizeof *m, "metrics");
    if (m == NULL) return SLUICE_ERR_NO_MEMORY;
    m->shape = *shape;
    m->classes = told_apart(shape);
    m->count_count = counts_in(shape);
    m->sum_count = sums_in(shape);
    m->counts = sl_alloc_array(m->count_count, sizeof *m->counts, "counts of metrics");
    m->sums = sl_alloc_array(m->sum_count, sizeof *m->sums, "sums of metrics");
    if (shape->scores > 0) m->scores = sl_alloc_array((size_t)shape->scores, sizeof *m->scores, "scores of samples");
    if (m->counts == NULL || m->sums == NULL || (shape->scores > 0 && m->scores == NULL)) {
        sl_metrics_destroy(m);
        return SLUICE_ERR_NO_MEMORY;
    }
    m->right = m->counts + FIXED_COUNTS;
    m->predicted = m->right + m->classes;
    m->actual = m->predicted + m->classes;
    m->confusion = confuses(shape) ? m->actual + m->classes : NULL;
    m->residual = m->sums + FIXED_SUMS;
    m->target = m->residual + shape->outputs;
    m->target_square = m->target + shape->outputs;
    sl_metrics_reset(m);
    *out = m;
    return SLUICE_OK;
}

void sl_metrics_destroy(sl_metrics *m)
{
    if (m == NULL) return;
    sl_free(m->counts);
    sl_free(m->sums);
    sl_free(m->scores);
    sl_free(m);
}

void sl_metrics_reset(sl_metrics *m)
{
    memset(m->counts, 0, m->count_count * sizeof *m->counts);
    memset(m->sums, 0, m->sum_count * sizeof *m->sums);
    m->score_count = 0;
    m->unscored = m->scores == NULL;
    m->area = m->loss = m->bytes = (double)NAN;
    m->weight = 0;
}

void sl_metrics_set_loss(sl_metrics *m, double loss, double weight, double bytes)
{
    m->loss = loss;
    m->weight = weight;
    m->bytes = bytes;
}

static int64_t find_largest(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* Sum of e^(x - x[largest]). */
static double sum_exponentials(const float *x, int64_t n, int64_t largest)
{
    double all = 0;
    for (int64_t i = 0; i < n; i++) all += exp((double)x[i] - (double)x[largest]);
    return all;
}

sl_choice sl_choose(const float *logits, int64_t classes)
{
    int64_t best = find_largest(logits, classes);
    return (sl_choice){ best, 1 / sum_exponentials(logits, classes, best) };
}

static void count_class(sl_metrics *m, int64_t predicted, int64_t actual)
{
    m->counts[COUNTED]++;
    m->counts[CORRECT] += predicted == actual;
    m->right[actual] += predicted == actual;
    m->predicted[predicted]++;
    m->actual[actual]++;
    if (m->confusion != NULL) m->confusion[actual * m->classes + predicted]++;
}

static void keep_score(sl_metrics *m, double score, bool positive)
{
    if (m->scores == NULL) return;
    m->unscored = m->unscored || isnan(score) || m->score_count == m->shape.scores;
    if (!m->unscored) m->scores[m->score_count++] = (scored){ score, positive };
}

void sl_metrics_add_class(sl_metrics *m, const float *logits, int32_t target)
{
    if (target < 0 || target >= m->classes) return;
    int64_t best = find_largest(logits, m->classes);
    double below = (double)logits[best] - (double)logits[target];
    count_class(m, best, target);
    add(&m->sums[LOG_LOSS], below + log(sum_exponentials(logits, m->classes, best)));
    if (m->classes == 2) keep_score(m, (double)logits[1] - (double)logits[0], target == 1);
}

void sl_metrics_add_binary(sl_metrics *m, float logit, float target)
{
    bool positive = target > 0.5F;
    double against = positive ? -(double)logit : (double)logit;
    count_class(m, logit > 0, positive);
    /* log(1 + e^against), without overflow */
    add(&m->sums[LOG_LOSS], fmax(against, 0) + log1p(exp(-fabs(against))));
    keep_score(m, (double)logit, positive);
}

void sl_metrics_add_values(sl_metrics *m, const float *values, const float *targets)
{
    m->counts[COUNTED]++;
    for (int64_t i = 0; i < m->shape.outputs; i++) {
        double error = (double)values[i] - (double)targets[i];
        add(&m->sums[ABSOLUTE], fabs(error));
        add_square(&m->sums[SQUARED], error);
        add_square(&m->residual[i], error);
        add(&m->target[i], (double)targets[i]);
        add_square(&m->target_square[i], (double)targets[i]);
    }
}

void sl_metrics_add_token(sl_metrics *m, const float *logits, int64_t vocabulary, int32_t target)
{
    if (target < 0) return;
    m->counts[COUNTED]++;
    m->counts[CORRECT] += find_largest(logits, vocabulary) == target;
}

sluice_status sl_metrics_add_transcript(sl_metrics *m, const int32_t *reference, int64_t reference_count,
                                        const int32_t *hypothesis, int64_t hypothesis_count, int32_t space)
{
    int64_t labels, words, word_count;
    SL_TRY(sl_label_distance(reference, reference_count, hypothesis, hypothesis_count, &labels));
    SL_TRY(sl_word_distance(reference, reference_count, hypothesis, hypothesis_count, space, &words, &word_count));
    m->counts[LABELS] += (uint64_t)reference_count;
    m->counts[LABEL_ERRORS] += (uint64_t)labels;
    m->counts[WORDS] += (uint64_t)word_count;
    m->counts[WORD_ERRORS] += (uint64_t)words;
    return SLUICE_OK;
}

/* ---- the area under the curve ---- */

static int compare_scores(const void *pa, const void *pb)
{
    const scored *a = pa, *b = pb;
    return (a->score > b->score) - (a->score < b->score);
}

/* Share of the pairs of a positive and a negative sample that the scores order right; equal scores count half. Counted in
 * integers, so that the order of samples does not matter. Sorts the scores. NaN: there is no pair. */
static double area_under_curve(scored *scores, size_t count)
{
    uint64_t negatives = 0, positives = 0, halves = 0;
    qsort(scores, count, sizeof *scores, compare_scores);
    for (size_t i = 0, next; i < count; i = next) {
        uint64_t equal_positives = 0;
        for (next = i; next < count && scores[next].score == scores[i].score; next++)
            equal_positives += scores[next].positive;
        uint64_t equal_negatives = next - i - equal_positives;
        halves += equal_positives * (2 * negatives + equal_negatives);
        positives += equal_positives;
        negatives += equal_negatives;
    }
    if (positives == 0 || negatives == 0) return (double)NAN;
    return (double)halves / 2 / ((double)positives * (double)negatives);
}

/* ---- ranks ---- */

static sluice_status add_counts(sl_metrics *m, sl_comm *comm, int ranks)
{
    uint64_t *all = sl_alloc_array((size_t)ranks, m->count_count * sizeof *all, "counts of the ranks");
    if (all == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = comm->ops->exchange(comm, "counts of metrics", m->counts, m->count_count * sizeof *all, all);
    for (size_t i = 0; st == SLUICE_OK && i < m->count_count; i++) {
        m->counts[i] = 0;
        for (int r = 0; r < ranks; r++) m->counts[i] += all[(size_t)r * m->count_count + i];
    }
    sl_free(all);
    return st;
}

static sluice_status add_sums(sl_metrics *m, sl_comm *comm, int ranks)
{
    sum *all = sl_alloc_array((size_t)ranks, m->sum_count * sizeof *all, "sums of the ranks");
    if (all == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = comm->ops->exchange(comm, "sums of metrics", m->sums, m->sum_count * sizeof *all, all);
    for (size_t i = 0; st == SLUICE_OK && i < m->sum_count; i++) {
        m->sums[i] = (sum){ 0, 0 };
        for (int r = 0; r < ranks; r++) {
            add(&m->sums[i], all[(size_t)r * m->sum_count + i].high);
            add(&m->sums[i], all[(size_t)r * m->sum_count + i].low);
        }
    }
    sl_free(all);
    return st;
}

/* At rank 0, and from there to all. */
static sluice_status find_area(sl_metrics *m, sl_comm *comm, int rank, int ranks)
{
    size_t mine = m->unscored ? SIZE_MAX : (size_t)m->score_count * sizeof(scored), bytes = 0;
    size_t *lengths = sl_alloc_array((size_t)ranks, sizeof *lengths, "scores of the ranks");
    scored *all = NULL;
    if (lengths == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = comm->ops->exchange(comm, "number of scores", &mine, sizeof mine, lengths);
    bool there = st == SLUICE_OK;
    for (int r = 0; r < ranks && there; r++) {
        there = lengths[r] != SIZE_MAX;
        bytes += lengths[r];
    }
    if (st == SLUICE_OK && there) {
        all = sl_alloc(rank == 0 ? bytes : 1, "scores of all samples");
        st = all != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
        if (st == SLUICE_OK) st = comm->ops->collect(comm, "scores", 0, m->scores, lengths, all);
        if (st == SLUICE_OK && rank == 0) m->area = area_under_curve(all, bytes / sizeof *all);
        if (st == SLUICE_OK) st = comm->ops->broadcast(comm, "area under the curve", 0, &m->area, sizeof m->area);
    }
    sl_free(all);
    sl_free(lengths);
    return st;
}

sluice_status sl_metrics_share(sl_metrics *m, sl_ranks *ranks)
{
    if (ranks->count == 1) {
        if (!m->unscored) m->area = area_under_curve(m->scores, (size_t)m->score_count);
        return SLUICE_OK;
    }
    SL_TRY(add_counts(m, ranks->comm, ranks->count));
    SL_TRY(add_sums(m, ranks->comm, ranks->count));
    return m->scores != NULL ? find_area(m, ranks->comm, ranks->rank, ranks->count) : SLUICE_OK;
}

/* ---- classes ---- */

int64_t sl_metrics_classes(const sl_metrics *m)
{
    return m->classes;
}

static double quotient(double a, double b)
{
    return b > 0 ? a / b : 0;
}

sluice_class_score sl_metrics_class(const sl_metrics *m, int64_t i)
{
    double right = (double)m->right[i], predicted = (double)m->predicted[i], actual = (double)m->actual[i];
    return (sluice_class_score){ .precision = quotient(right, predicted),
                                 .recall = quotient(right, actual),
                                 .f1 = quotient(2 * right, predicted + actual),
                                 .support = m->actual[i] };
}

const uint64_t *sl_metrics_confusion(const sl_metrics *m)
{
    return m->confusion;
}
