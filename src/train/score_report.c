/* score_report.c: an evaluation as text. */
#include "train/score_report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/quote.h"

/* Classes that a report lists one by one. */
#define MOST_LISTED 20

/* One line: what means something of this model. */
static void print_line(const sluice_event *e, const char *split, FILE *out)
{
    bool tokens = e->tokens > 0;
    fprintf(out, "%s loss %.6f", split, e->loss);
    if (isfinite(e->perplexity)) fprintf(out, ", perplexity %.4f", e->perplexity);
    if (isfinite(e->bits_per_byte)) fprintf(out, ", bits per byte %.4f", e->bits_per_byte);
    if (isfinite(e->accuracy)) fprintf(out, ", %saccuracy %.4f", tokens ? "token " : "", e->accuracy);
    fprintf(out, "%s%" PRIu64 " %s, weights of %s\n", tokens ? "; " : ", ", tokens ? e->tokens : e->samples,
            tokens ? "tokens" : "samples", e->path);
}

static bool is_in_line(const char *name)
{
    static const char *const there[] = { "loss", "accuracy", "perplexity", "bits_per_byte", "token_accuracy" };
    for (size_t i = 0; i < sizeof there / sizeof there[0]; i++)
        if (strcmp(there[i], name) == 0) return true;
    return false;
}

static void print_metrics(const sluice_event *e, bool asked, FILE *out)
{
    for (int i = 0; i < e->metric_count; i++) {
        const sluice_metric *m = &e->metrics[i];
        if (!m->shown || is_in_line(m->name)) continue;
        if (isfinite(m->value))
            fprintf(out, "  %-16s %12.6g\n", m->name, m->value);
        else if (asked)
            fprintf(out, "  %-16s %12s\n", m->name, "not known");
    }
}

static void print_scores(const char *name, const sluice_class_score *c, FILE *out)
{
    fprintf(out, "  %-20.20s %9.4f %9.4f %9.4f %9" PRIu64 "\n", name, c->precision, c->recall, c->f1, c->support);
}

static void print_class(const sluice_event *e, int64_t i, FILE *out)
{
    char label[64];
    const char *name = e->classes[i].name;
    snprintf(label, sizeof label, "%" PRId64 " %.40s", i, name != NULL ? sl_show(name).text : "");
    print_scores(label, &e->classes[i], out);
}

/* Means over classes: each the same, or by its samples. Classes without samples that nothing was taken for do not count. */
static void print_means(const sluice_event *e, FILE *out)
{
    sluice_class_score weighted = { .support = 0 };
    for (int64_t i = 0; i < e->class_count; i++) {
        const sluice_class_score *c = &e->classes[i];
        double n = (double)c->support;
        weighted.support += c->support;
        weighted.precision += n * c->precision;
        weighted.recall += n * c->recall;
        weighted.f1 += n * c->f1;
    }
    double n = weighted.support > 0 ? (double)weighted.support : 1;
    weighted =
        (sluice_class_score){ NULL, weighted.precision / n, weighted.recall / n, weighted.f1 / n, weighted.support };
    sluice_class_score macro = { .support = weighted.support };
    for (int i = 0; i < e->metric_count; i++) {
        const sluice_metric *m = &e->metrics[i];
        if (strcmp(m->name, "precision_macro") == 0) macro.precision = m->value;
        if (strcmp(m->name, "recall_macro") == 0) macro.recall = m->value;
        if (strcmp(m->name, "f1_macro") == 0) macro.f1 = m->value;
    }
    print_scores("mean over classes", &macro, out);
    print_scores("mean over samples", &weighted, out);
}

static void print_confusion(const sluice_event *e, FILE *out)
{
    fputs("\nconfusion matrix: a row for each target, a column for each prediction\n", out);
    fprintf(out, "  %6s", "");
    for (int64_t k = 0; k < e->class_count; k++) fprintf(out, " %6" PRId64, k);
    for (int64_t i = 0; i < e->class_count; i++) {
        fprintf(out, "\n  %6" PRId64, i);
        for (int64_t k = 0; k < e->class_count; k++) fprintf(out, " %6" PRIu64, e->confusion[i * e->class_count + k]);
    }
    fputc('\n', out);
}

void sl_score_report_print(const sluice_event *e, const char *split, bool asked, FILE *out)
{
    print_line(e, split, out);
    print_metrics(e, asked, out);
    if (e->class_count == 0 || e->class_count > MOST_LISTED) return;
    fprintf(out, "\n  %-20s %9s %9s %9s %9s\n", "class", "precision", "recall", "f1", "samples");
    for (int64_t i = 0; i < e->class_count; i++) print_class(e, i, out);
    print_means(e, out);
    if (e->confusion != NULL) print_confusion(e, out);
}
