/* compare_page.c: the page of a comparison: the verdict, the table, and drawings of what it says.
 *
 * Configurations have a colour and a kind of line by their place; those with the same bits have the same curve, so later
 * lines are thinner and lie on the earlier ones. */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "report/compared.h"
#include "report/thin.h"

enum { CURVE_WHOLE = 800, CURVE_COLUMNS = 150, TABLE_ROWS = 50 };

/* The steps of a configuration that are shown. */
typedef struct shown_curve {
    const sl_compared *variant;
    size_t *steps; /* owned; indices into its losses */
    size_t count;
    double scale; /* x of a step: 1, or what it takes in microseconds */
} shown_curve;

typedef struct compare_page {
    sl_page page;
    const sl_comparison *c;
    shown_curve curves[SL_COMPARED_MOST];
} compare_page;

static double number(const sl_compared *v, const char *path)
{
    return sl_profile_number(v->line, path);
}

/* ---- verdict and table ---- */

static void add_tiles(const compare_page *p)
{
    const sl_comparison *c = p->c;
    sl_text_add(p->page.out, "<dl class=\"tiles\">\n");
    for (int i = 0; i < c->count; i++) {
        const sl_compared *v = &c->variants[i];
        char value[SL_HTML_NUMBER], rate[SL_HTML_NUMBER], memory[SL_HTML_NUMBER], more[256];
        const char *bits = json_string_value(json_object_get(v->line, "bits"));
        const char *units = json_string_value(json_object_get(v->line, "units"));
        const char *why = json_string_value(json_object_get(v->line, "why"));
        if (!v->fits) {
            sl_page_add_tile(&p->page, v->name, "does not fit", why != NULL ? why : "");
            continue;
        }
        double device = number(v, "peak_bytes.device");
        bool judged = bits != NULL && strcmp(bits, "-") != 0;
        snprintf(more, sizeof more, "a step; %s %.20s a second; %s on the device%s%.60s",
                 sl_html_rate(number(v, "units_per_second"), rate), units != NULL ? units : "samples",
                 sl_html_bytes(device > 0 ? (uint64_t)device : 0, memory), judged ? "; " : "", judged ? bits : "");
        sl_page_add_tile(&p->page, v->name, sl_html_seconds(number(v, "step_seconds"), value), more);
    }
    sl_text_add(p->page.out, "</dl>");
}

static sluice_status add_verdict(const compare_page *p)
{
    sl_text verdict = { .data = NULL };
    bool agrees = sl_comparison_agrees(p->c);
    sl_comparison_judge(p->c, &verdict);
    sluice_status st = sl_text_status(&verdict);
    sl_text_add(
        p->page.out,
        "<section id=\"verdict\" aria-label=\"Verdict\">\n<p class=\"outcome\"><strong class=\"%s\">%s</strong> ",
        agrees ? "good" : "warn", agrees ? "Same bits" : "Other bits");
    if (st == SLUICE_OK && verdict.data != NULL) sl_html_add(p->page.out, verdict.data);
    sl_text_add(p->page.out, "</p>\n");
    add_tiles(p);
    sl_text_add(p->page.out, "</section>\n");
    sl_text_free(&verdict);
    return st;
}

static void add_key(const compare_page *p, int variant)
{
    sl_text_add(p->page.out, "<span class=\"key who v%d\">", variant);
    sl_html_add(p->page.out, p->c->variants[variant].name);
    sl_text_add(p->page.out, "</span>");
}

static void add_table(const compare_page *p)
{
    sl_compared_row rows[SL_COMPARED_ROWS];
    char cell[SL_COMPARED_CELL];
    int count = sl_comparison_rows(p->c, rows);
    sl_text_add(p->page.out, "<section id=\"table\"><h2>Side by side</h2>\n");
    sl_page_add_scroll(&p->page, "side by side");
    sl_text_add(p->page.out, "<table><thead><tr><td></td>");
    for (int k = 0; k < p->c->count; k++) {
        sl_text_add(p->page.out, "<th scope=\"col\">");
        add_key(p, k);
        sl_text_add(p->page.out, "</th>");
    }
    sl_text_add(p->page.out, "</tr></thead><tbody>\n");
    for (int i = 0; i < count; i++) {
        sl_text_add(p->page.out, "<tr><th scope=\"row\"%s>", rows[i].part ? " class=\"below\"" : "");
        sl_html_add(p->page.out, rows[i].name);
        sl_text_add(p->page.out, "</th>");
        for (int k = 0; k < p->c->count; k++) {
            sl_compared_cell(&p->c->variants[k], &rows[i], cell);
            sl_text_add(p->page.out, "<td>");
            sl_html_add(p->page.out, cell);
            sl_text_add(p->page.out, "</td>");
        }
        sl_text_add(p->page.out, "</tr>\n");
    }
    sl_text_add(p->page.out, "</tbody></table></div></section>\n");
}

/* ---- bars ---- */

/* Opens the bar of a configuration: its name, its numbers in words, and a track in which parts follow. */
static void begin_bar(const compare_page *p, int variant, const char *value)
{
    sl_text_add(p->page.out, "<li><span class=\"name\">");
    sl_html_add(p->page.out, p->c->variants[variant].name);
    sl_text_add(p->page.out, "</span><span class=\"value\">");
    sl_html_add(p->page.out, value);
    sl_text_add(p->page.out, "</span><span class=\"track\" aria-hidden=\"true\">");
}

static void end_bar(const compare_page *p)
{
    sl_text_add(p->page.out, "</span></li>\n");
}

static void add_part(const compare_page *p, const char *class, double share)
{
    if (share > 0)
        sl_text_add(p->page.out, "<span class=\"part %s\" style=\"width:%.4g%%\"></span>", class, 100 * share);
}

/* A mark over the track, from one share to another. */
static void add_mark(const compare_page *p, const char *class, double from, double to)
{
    if (isfinite(from) && isfinite(to) && from <= 1)
        sl_text_add(p->page.out, "<span class=\"%s\" style=\"left:%.4g%%;width:%.4g%%\"></span>", class, 100 * from,
                    100 * (fmin(to, 1) - from));
}

/* What a full track stands for: a step that takes very long now and then is cut off. */
static double full_time(const sl_comparison *c)
{
    double median = 0, most = 0;
    for (int i = 0; i < c->count; i++) {
        const sl_compared *v = &c->variants[i];
        if (!v->fits) continue;
        median = fmax(median, fmax(number(v, "step_seconds"), number(v, "predicted_step_seconds")));
        most = fmax(most, number(v, "step_seconds_90"));
    }
    return fmax(median, fmin(most, 2 * median));
}

static void add_times(const compare_page *p)
{
    double full = full_time(p->c);
    sl_text_add(
        p->page.out,
        "<section id=\"step-time\"><h2>Step time</h2>\n<p class=\"note\">Bars are medians. <span class=\"legend "
        "range\"></span>from the 10th to the 90th percentile; <span class=\"legend tick\"></span>as "
        "predicted.</p>\n<ul class=\"bars\">\n");
    for (int i = 0; i < p->c->count; i++) {
        const sl_compared *v = &p->c->variants[i];
        double median = number(v, "step_seconds"), low = number(v, "step_seconds_10"),
               high = number(v, "step_seconds_90"), predicted = number(v, "predicted_step_seconds");
        char a[SL_HTML_NUMBER], b[SL_HTML_NUMBER], d[SL_HTML_NUMBER], e[SL_HTML_NUMBER], value[256] = "does not fit";
        if (v->fits)
            snprintf(value, sizeof value, "%s (%s to %s), predicted %s", sl_html_seconds(median, a),
                     sl_html_seconds(low, b), sl_html_seconds(high, d), sl_html_seconds(predicted, e));
        begin_bar(p, i, value);
        if (v->fits && full > 0) {
            add_part(p, "time", median / full);
            add_mark(p, "range", low / full, high / full);
            add_mark(p, "tick", predicted / full, predicted / full);
        }
        end_bar(p);
    }
    sl_text_add(p->page.out, "</ul></section>\n");
}

static const struct {
    const char *name, *path;
} tiers[] = { { "device", "peak_bytes.device" }, { "host", "peak_bytes.host" }, { "disk", "peak_bytes.disk" } };
enum { TIERS = sizeof tiers / sizeof tiers[0] };

static double tier_bytes(const sl_compared *v, int tier)
{
    double bytes = number(v, tiers[tier].path);
    return bytes > 0 ? bytes : 0;
}

static void add_memory(const compare_page *p)
{
    double most = 0;
    bool used[TIERS] = { false };
    for (int i = 0; i < p->c->count; i++) {
        double sum = 0;
        for (int t = 0; t < TIERS; t++) {
            double bytes = tier_bytes(&p->c->variants[i], t);
            used[t] = used[t] || bytes > 0;
            sum += bytes;
        }
        most = fmax(most, sum);
    }
    sl_text_add(p->page.out,
                "<section id=\"memory\"><h2>Memory by tier</h2>\n<p class=\"note\">The peak of the rank that "
                "has most.");
    for (int t = 0; t < TIERS; t++)
        if (used[t]) sl_text_add(p->page.out, " <span class=\"key t%d\">%s</span>", t, tiers[t].name);
    sl_text_add(p->page.out, "</p>\n<ul class=\"bars\">\n");
    for (int i = 0; i < p->c->count; i++) {
        const sl_compared *v = &p->c->variants[i];
        char value[256] = "", a[SL_HTML_NUMBER], class[16];
        for (int t = 0; v->fits && t < TIERS; t++) {
            size_t at = strlen(value);
            if (used[t])
                snprintf(value + at, sizeof value - at, "%s%s %s", at > 0 ? ", " : "", tiers[t].name,
                         sl_html_bytes((uint64_t)tier_bytes(v, t), a));
        }
        begin_bar(p, i, v->fits ? value : "does not fit");
        for (int t = 0; v->fits && t < TIERS; t++) {
            snprintf(class, sizeof class, "t%d", t);
            add_part(p, class, most > 0 ? tier_bytes(v, t) / most : 0);
        }
        end_bar(p);
    }
    sl_text_add(p->page.out, "</ul></section>\n");
}

static void add_use(const compare_page *p, int variant, const sl_compared_row *row)
{
    const sl_compared *v = &p->c->variants[variant];
    char cell[SL_COMPARED_CELL];
    double busy, exposed;
    if (!sl_compared_use(v, row->path, &busy, &exposed)) return;
    sl_compared_cell(v, row, cell);
    begin_bar(p, variant, cell);
    add_part(p, "w1", fmin(exposed, 1));
    add_part(p, "w0", fmin(busy, 1) - fmin(exposed, 1));
    end_bar(p);
}

/* The device and the links in the step that was timed: one group of bars for each stream. */
static void add_uses(const compare_page *p)
{
    sl_compared_row rows[SL_COMPARED_ROWS];
    int count = sl_comparison_rows(p->c, rows), groups = 0;
    for (int r = 0; r < count; r++) {
        if (rows[r].kind != SL_CELL_USE) continue;
        if (groups++ == 0)
            sl_text_add(p->page.out,
                        "<section id=\"use\"><h2>Device and links</h2>\n<p class=\"note\">Share of the shortest step "
                        "that was timed, on rank 0, "
                        "in which each was <span class=\"key w0\">busy behind compute</span>, or <span class=\"key "
                        "w1\">exposed</span>: compute stood still until it was done.</p>\n<div class=\"charts\">\n");
        sl_text_add(p->page.out, "<div><h3>");
        sl_html_add(p->page.out, rows[r].path);
        sl_text_add(p->page.out, "</h3><ul class=\"bars\">\n");
        for (int i = 0; i < p->c->count; i++) add_use(p, i, &rows[r]);
        sl_text_add(p->page.out, "</ul></div>\n");
    }
    if (groups > 0) sl_text_add(p->page.out, "</div></section>\n");
}

/* ---- losses ---- */

static double step_place(const void *of, size_t i)
{
    (void)of;
    return (double)i + 1;
}

static double step_value(const void *of, size_t i, int series)
{
    const sl_compared_loss *l = &((const sl_compared *)of)->losses[i];
    const double values[] = { l->mean, l->low, l->high };
    return values[series];
}

static sluice_status choose_steps(compare_page *p)
{
    for (int i = 0; i < p->c->count; i++) {
        const sl_compared *v = &p->c->variants[i];
        shown_curve *s = &p->curves[i];
        s->variant = v;
        if (v->step_count == 0) continue;
        SL_TRY(sl_thin(&(sl_thin_source){ v, v->step_count, 3, CURVE_WHOLE, CURVE_COLUMNS, step_place, step_value },
                       &s->steps, &s->count));
    }
    return SLUICE_OK;
}

static void mean_at(const void *of, size_t i, double *x, double *y)
{
    const shown_curve *s = of;
    *x = (double)(s->steps[i] + 1) * s->scale;
    *y = s->variant->losses[s->steps[i]].mean;
}

static double band_edge(const shown_curve *s, const sl_figure *f, size_t i, bool high, double *x)
{
    const sl_compared_loss *l = &s->variant->losses[s->steps[i]];
    *x = sl_axis_at(&f->x, (double)(s->steps[i] + 1) * s->scale);
    return 1000 - sl_axis_at(&f->y, high ? l->high : l->low);
}

/* Between the smallest and the largest loss of the seeds: one area for each stretch of steps that have both. */
static void add_band(const compare_page *p, const shown_curve *s, const sl_figure *f, int variant)
{
    double x;
    sl_text_add(p->page.out, "<path class=\"band v%d\" d=\"", variant);
    for (size_t i = 0, end; i<s->count; i = end> i ? end : i + 1) {
        for (end = i; end < s->count && isfinite(s->variant->losses[s->steps[end]].low);) end++;
        for (size_t k = i; k < end; k++) {
            double y = band_edge(s, f, k, true, &x);
            sl_text_add(p->page.out, "%c%.2f %.2f", k == i ? 'M' : 'L', x, y);
        }
        for (size_t k = end; k-- > i;) {
            double y = band_edge(s, f, k, false, &x);
            sl_text_add(p->page.out, "L%.2f %.2f%s", x, y, k == i ? "Z" : "");
        }
    }
    sl_text_add(p->page.out, "\"/>");
}

static bool has_spread(const sl_compared *v)
{
    return json_array_size(json_object_get(v->line, "losses")) > 1;
}

static void add_legend(const sl_page *page, const void *user)
{
    const compare_page *p = user;
    (void)page;
    for (int i = 0; i < p->c->count; i++)
        if (p->curves[i].count > 0) add_key(p, i);
}

/* What all curves have to show, and how far the longest goes. */
static sl_extent find_range(const compare_page *p, double *end)
{
    sl_extent r = { 0, 0, 0, 0 };
    *end = 0;
    for (int i = 0; i < p->c->count; i++) {
        const shown_curve *s = &p->curves[i];
        for (size_t k = 0; k < s->count; k++) {
            const sl_compared_loss *l = &s->variant->losses[s->steps[k]];
            sl_extent_add(&r, l->mean);
            if (isfinite(l->low)) sl_extent_add(&r, l->low);
            if (isfinite(l->high)) sl_extent_add(&r, l->high);
        }
        if (s->count > 0) *end = fmax(*end, (double)s->variant->step_count * s->scale);
    }
    return r;
}

static void describe(const compare_page *p, const char *title, sl_text *out)
{
    char a[SL_HTML_NUMBER], b[SL_HTML_NUMBER];
    sl_text_add(out, "%s:", title);
    for (int i = 0; i < p->c->count; i++) {
        const shown_curve *s = &p->curves[i];
        if (s->count > 0)
            sl_text_add(out, " %s from %s to %s in %zu steps;", s->variant->name,
                        sl_html_number(s->variant->losses[0].mean, a),
                        sl_html_number(s->variant->losses[s->variant->step_count - 1].mean, b), s->variant->step_count);
    }
    sl_text_add(out, " Arrow keys read values, plus and minus zoom, Escape shows all.");
}

static void add_curves(const compare_page *p, const sl_figure *f)
{
    char class[24];
    for (int i = 0; i < p->c->count; i++)
        if (p->curves[i].count > 0 && has_spread(p->curves[i].variant)) add_band(p, &p->curves[i], f, i);
    for (int i = 0; i < p->c->count; i++) {
        if (p->curves[i].count == 0) continue;
        snprintf(class, sizeof class, "line v%d", i);
        sl_figure_add_line(&p->page, f, class, &(sl_figure_points){ p->curves[i].count, mean_at, &p->curves[i] });
    }
}

/* `kind`: of the x axis. Returns whether there was anything to draw; the figure is open then. */
static bool add_figure(compare_page *p, const char *id, const char *title, sl_axis_kind kind)
{
    sl_text label = { .data = NULL };
    double end;
    bool timed = kind == SL_AXIS_MICROSECONDS;
    for (int i = 0; i < p->c->count; i++)
        p->curves[i].scale = timed && p->curves[i].count > 0 ? 1e6 * number(p->curves[i].variant, "step_seconds") : 1;
    sl_extent r = find_range(p, &end);
    if (r.finite == 0 || !(end > 0)) return false;
    describe(p, title, &label);
    sl_figure f = { .id = id, .title = title, .label = label.data != NULL ? label.data : "", .unit = "" };
    f.attributes = timed ? "data-losses=\"time\"" : "data-losses=\"step\"";
    f.x = sl_axis_fit(kind, timed ? 0 : 1, end, 6, false);
    f.y = sl_axis_fit(SL_AXIS_NUMBER, r.low, r.high, 4, true);
    sl_figure_begin(&p->page, &f, add_legend, p);
    add_curves(p, &f);
    sl_figure_end(&p->page, &f);
    sl_text_free(&label);
    if (r.not_finite > 0)
        sl_text_add(p->page.out, "<p class=\"note\">%llu losses are no finite number: the lines have gaps.</p>",
                    (unsigned long long)r.not_finite);
    return true;
}

static void add_loss_table(const compare_page *p)
{
    size_t steps = 0;
    char a[SL_HTML_NUMBER], b[SL_HTML_NUMBER];
    for (int i = 0; i < p->c->count; i++)
        if (p->c->variants[i].step_count > steps) steps = p->c->variants[i].step_count;
    size_t stride = (steps + TABLE_ROWS - 1) / TABLE_ROWS;
    sl_text_add(p->page.out, "<details><summary>Table</summary>");
    sl_page_add_scroll(&p->page, "loss by step");
    sl_text_add(p->page.out, "<table><thead><tr><th scope=\"col\">step</th>");
    for (int i = 0; i < p->c->count; i++) {
        sl_text_add(p->page.out, "<th scope=\"col\">");
        sl_html_add(p->page.out, p->c->variants[i].name);
        sl_text_add(p->page.out, "</th>");
    }
    sl_text_add(p->page.out, "</tr></thead><tbody>");
    for (size_t k = 0; k < steps; k++) {
        if (k % stride != 0 && k + 1 != steps) continue;
        sl_text_add(p->page.out, "<tr><td>%s</td>", sl_html_count(k + 1, a));
        for (int i = 0; i < p->c->count; i++) {
            const sl_compared *v = &p->c->variants[i];
            sl_text_add(p->page.out, "<td>%s</td>", k < v->step_count ? sl_html_number(v->losses[k].mean, b) : "");
        }
        sl_text_add(p->page.out, "</tr>");
    }
    sl_text_add(p->page.out, "</tbody></table></div></details>");
}

static void add_losses(compare_page *p)
{
    bool spread = false;
    for (int i = 0; i < p->c->count; i++) spread = spread || has_spread(&p->c->variants[i]);
    sl_text_add(
        p->page.out,
        "<section id=\"losses\"><h2>Loss</h2>\n<p class=\"note\">%sWhere lines have the same losses, the "
        "thinner ones lie on the others.</p>\n<div class=\"charts\">",
        spread ? "Lines are means over the seeds; behind them, from the smallest to the largest loss of a seed. " : "");
    if (add_figure(p, "loss-by-step", "Loss by step", SL_AXIS_COUNT)) {
        add_loss_table(p);
        sl_text_add(p->page.out, "</figure>\n");
    }
    if (add_figure(p, "loss-by-time", "Loss by time, at the median step", SL_AXIS_MICROSECONDS))
        sl_text_add(p->page.out, "</figure>\n");
    sl_text_add(p->page.out, "</div></section>\n");
}

/* ---- the numbers ---- */

/* The line as it was given, with the steps that are shown instead of all losses: [step, mean, smallest, largest]. */
static sluice_status add_data_of(const shown_curve *s, sl_text *data)
{
    json_t *line = json_copy(s->variant->line);
    if (line != NULL) json_object_del(line, "losses");
    char *text = line != NULL ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(line);
    if (text == NULL) return sl_fail(SLUICE_ERR_NO_MEMORY, "out of memory for the page of a comparison");
    text[strlen(text) - 1] = '\0'; /* the brace */
    sl_text_add(data, "%s,\"curve\":[", text);
    sl_json_free_text(text);
    for (size_t i = 0; i < s->count; i++) {
        const sl_compared_loss *l = &s->variant->losses[s->steps[i]];
        sl_text_add(data, "%s[%zu", i > 0 ? "," : "", s->steps[i] + 1);
        sl_page_add_number(data, ",", l->mean);
        if (has_spread(s->variant)) {
            sl_page_add_number(data, ",", l->low);
            sl_page_add_number(data, ",", l->high);
        }
        sl_text_add(data, "]");
    }
    sl_text_add(data, "]}");
    return SLUICE_OK;
}

static sluice_status make_data(const compare_page *p, sl_text *data)
{
    sl_text_add(data, "{\"compared\":[");
    for (int i = 0; i < p->c->count; i++) {
        if (i > 0) sl_text_add(data, ",\n");
        SL_TRY(add_data_of(&p->curves[i], data));
    }
    sl_text_add(data, "]}");
    return sl_text_status(data);
}

/* ---- the page ---- */

static sluice_status fill(compare_page *p)
{
    char when[96];
    sl_text data = { .data = NULL };
    SL_TRY(choose_steps(p));
    sl_comparison_describe(p->c, when, sizeof when);
    sl_page_begin(&p->page, when);
    SL_TRY(add_verdict(p));
    add_table(p);
    add_times(p);
    add_memory(p);
    add_uses(p);
    add_losses(p);
    sluice_status st = make_data(p, &data);
    if (st == SLUICE_OK) sl_page_end(&p->page, &data);
    sl_text_free(&data);
    SL_TRY(st);
    return sl_text_status(p->page.out);
}

sluice_status sl_comparison_page(const sl_comparison *c, sl_text *out)
{
    sl_text name = { .data = NULL };
    for (int i = 0; i < c->count; i++)
        sl_text_add(&name, "%s%s", i == 0 ? "Comparison: " : i + 1 < c->count ? ", " : " and ", c->variants[i].name);
    compare_page p = { .page = { .out = out, .name = name.data }, .c = c };
    sluice_status st = sl_text_status(&name);
    if (st == SLUICE_OK) st = fill(&p);
    for (int i = 0; i < c->count; i++) sl_free(p.curves[i].steps);
    sl_text_free(&name);
    return st;
}
