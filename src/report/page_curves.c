/* page_curves.c: loss, rate, learning rate and gradient norm by step. */
#include <math.h>
#include <string.h>

#include "report/page.h"
#include "report/thin.h"

#define TABLE_ROWS 50 /* of the table behind a curve */

/* A curve: one row of the table below, and where its numbers are. */
typedef struct curve {
    const char *id, *title, *data; /* data: the script's name of its column */
    double (*value)(const sl_recorded_step *s);
    bool from_zero, evals;
} curve;

static double loss_of(const sl_recorded_step *s)
{
    return s->loss;
}

static double lr_of(const sl_recorded_step *s)
{
    return s->lr;
}

static double norm_of(const sl_recorded_step *s)
{
    return s->gradient_norm;
}

static double rate_of(const sl_recorded_step *s)
{
    return s->rate;
}

static const curve curves[] = {
    { "loss", "Loss", "1", loss_of, false, true },
    { "rate", "Rate", "5", rate_of, true, false },
    { "learning-rate", "Learning rate", "2", lr_of, true, false },
    { "gradient-norm", "Gradient norm, before clipping", "3", norm_of, true, false },
};

/* ---- range ---- */

static sl_extent range_of(const sl_page *p, const curve *c)
{
    sl_extent r = { 0, 0, 0, 0 };
    const sl_run_record *rec = p->record;
    for (size_t i = 0; i < rec->step_count; i++) sl_extent_add(&r, c->value(&rec->steps[i]));
    for (size_t i = 0; c->evals && i < rec->eval_count; i++)
        if (isfinite(rec->evals[i].loss)) sl_extent_add(&r, rec->evals[i].loss);
    if (c->from_zero && r.low > 0) r.low = 0;
    return r;
}

/* ---- drawing ---- */

/* What a line is drawn through. */
typedef struct curve_of_page {
    const sl_page *p;
    const curve *c;
    size_t stride; /* of the evaluations */
} curve_of_page;

static void step_at(const void *of, size_t i, double *x, double *y)
{
    const curve_of_page *l = of;
    const sl_recorded_step *s = &l->p->record->steps[l->p->shown[i]];
    *x = (double)s->step;
    *y = l->c->value(s);
}

static void eval_at(const void *of, size_t i, double *x, double *y)
{
    const curve_of_page *l = of;
    const sl_recorded_eval *e = &l->p->record->evals[i * l->stride];
    *x = (double)e->step;
    *y = e->loss;
}

static void add_steps(const sl_page *p, const curve *c, const sl_figure *f)
{
    const curve_of_page of = { p, c, 1 };
    sl_figure_add_line(p, f, "line s0", &(sl_figure_points){ p->shown_count, step_at, &of });
}

/* A line through the evaluations, and a dot at each while they can be told apart. */
static void add_evals(const sl_page *p, const curve *c, const sl_figure *f)
{
    const sl_run_record *r = p->record;
    const curve_of_page of = { p, c, r->eval_count / 2000 + 1 };
    size_t count = (r->eval_count + of.stride - 1) / of.stride;
    sl_figure_add_line(p, f, "line s1", &(sl_figure_points){ count, eval_at, &of });
    if (r->eval_count > 100) return;
    sl_text_add(p->out, "<path class=\"dots s1\" d=\"");
    for (size_t i = 0; i < r->eval_count; i++)
        if (isfinite(r->evals[i].loss))
            sl_text_add(p->out, "M%.2f %.2fh0", sl_axis_at(&f->x, (double)r->evals[i].step),
                        1000 - sl_axis_at(&f->y, r->evals[i].loss));
    sl_text_add(p->out, "\"/>");
}

static void add_legend(const sl_page *p, const void *user)
{
    const curve *c = user;
    if (!c->evals || p->record->eval_count == 0) return;
    sl_text_add(p->out, "<span class=\"key s0\">train</span><span class=\"key s1\">validation</span>");
}

/* ---- the table behind it ---- */

static void add_table(const sl_page *p, const curve *c)
{
    char a[SL_HTML_NUMBER], b[SL_HTML_NUMBER];
    size_t stride = (p->shown_count + TABLE_ROWS - 1) / TABLE_ROWS;
    sl_text_add(p->out,
                "<details><summary>Table</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
                "aria-label=\"%s by step\"><table><thead><tr><th scope=\"col\">step</th><th scope=\"col\">%s</th>"
                "</tr></thead><tbody>",
                c->title, c->evals ? "train" : "value");
    for (size_t i = 0; i < p->shown_count; i++) {
        const sl_recorded_step *s = &p->record->steps[p->shown[i]];
        if (i % stride != 0 && i + 1 != p->shown_count) continue;
        sl_text_add(p->out, "<tr><td>%s</td><td>%s</td></tr>", sl_html_count(s->step, a),
                    sl_html_number(c->value(s), b));
    }
    sl_text_add(p->out, "</tbody></table>");
    if (c->evals && p->record->eval_count > 0) {
        size_t every = (p->record->eval_count + TABLE_ROWS - 1) / TABLE_ROWS;
        sl_text_add(p->out,
                    "<table><thead><tr><th scope=\"col\">step</th><th scope=\"col\">validation</th></tr></thead>"
                    "<tbody>");
        for (size_t i = 0; i < p->record->eval_count; i++)
            if (i % every == 0 || i + 1 == p->record->eval_count)
                sl_text_add(p->out, "<tr><td>%s</td><td>%s</td></tr>", sl_html_count(p->record->evals[i].step, a),
                            sl_html_number(p->record->evals[i].loss, b));
        sl_text_add(p->out, "</tbody></table>");
    }
    sl_text_add(p->out, "</div></details>");
}

/* ---- a curve ---- */

static void describe(const sl_page *p, const curve *c, const sl_extent *r, char *out, size_t bytes)
{
    const sl_run_record *rec = p->record;
    const sl_recorded_step *first = &rec->steps[0], *last = &rec->steps[rec->step_count - 1];
    char a[SL_HTML_NUMBER], b[SL_HTML_NUMBER], low[SL_HTML_NUMBER], high[SL_HTML_NUMBER];
    snprintf(out, bytes,
             "%s by step: %s at step %llu, %s at step %llu, between %s and %s. Arrow keys read values, plus and minus "
             "zoom, Escape shows all.",
             c->title, sl_html_number(c->value(first), a), (unsigned long long)first->step,
             sl_html_number(c->value(last), b), (unsigned long long)last->step, sl_html_number(r->low, low),
             sl_html_number(r->high, high));
}

static void add_curve(const sl_page *p, const curve *c)
{
    const sl_run_record *rec = p->record;
    sl_extent r = range_of(p, c);
    char label[512], attributes[64];
    double first = (double)rec->steps[0].step, last = (double)rec->steps[rec->step_count - 1].step;
    if (r.finite == 0) return;
    if (c->evals && rec->eval_count > 0 && (double)rec->evals[0].step < first) first = (double)rec->evals[0].step;
    if (c->evals && rec->eval_count > 0 && (double)rec->evals[rec->eval_count - 1].step > last)
        last = (double)rec->evals[rec->eval_count - 1].step;
    describe(p, c, &r, label, sizeof label);
    snprintf(attributes, sizeof attributes, "data-curve=\"%s\"%s", c->data, c->evals ? " data-evals=\"1\"" : "");
    sl_figure f = { .id = c->id, .title = c->title, .label = label, .attributes = attributes, .unit = "" };
    if (c->value == rate_of) f.unit = rec->rate_is_samples ? "samples a second" : "tokens a second";
    f.x = sl_axis_fit(SL_AXIS_COUNT, first, last, 6, false);
    f.y = sl_axis_fit(SL_AXIS_NUMBER, r.low, r.high, 4, true);
    sl_figure_begin(p, &f, add_legend, c);
    add_steps(p, c, &f);
    if (c->evals && rec->eval_count > 0) add_evals(p, c, &f);
    sl_figure_end(p, &f);
    if (r.not_finite > 0)
        sl_text_add(p->out, "<p class=\"note\">%llu steps have no finite number here: the line has gaps.</p>",
                    (unsigned long long)r.not_finite);
    add_table(p, c);
    sl_text_add(p->out, "</figure>\n");
}

void sl_page_add_curves(const sl_page *p)
{
    char all[SL_HTML_NUMBER], shown[SL_HTML_NUMBER];
    if (p->record->step_count == 0) return;
    sl_text_add(p->out, "<section id=\"curves\"><h2>Course of the run</h2>\n");
    if (p->shown_count < p->record->step_count)
        sl_text_add(
            p->out,
            "<p class=\"note\">%s steps, of which %s are shown: those with the smallest and the largest value of "
            "each of %d columns.</p>\n",
            sl_html_count(p->record->step_count, all), sl_html_count(p->shown_count, shown), SL_THIN_COLUMNS);
    sl_text_add(p->out, "<div class=\"charts\">");
    for (size_t i = 0; i < sizeof curves / sizeof curves[0]; i++) add_curve(p, &curves[i]);
    sl_text_add(p->out, "</div></section>\n");
}
