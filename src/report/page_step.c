/* page_step.c: where the time of a step goes, and its streams beside each other: what was predicted above what was measured. */
#include <math.h>
#include <string.h>

#include "report/page.h"

enum { COMPUTE_STREAM = 0, KINDS = 5, RECOMPUTED = 4 };

static const char *const kind_names[KINDS] = { "forward", "backward", "update", "evaluation", "computed again" };

static double at(const json_t *list, size_t i)
{
    return json_number_value(json_array_get(list, i));
}

static bool is_measured(const sl_page *p)
{
    return json_is_true(json_object_get(p->profile, "measured"));
}

/* ---- where the time goes ---- */

static void add_share(const sl_page *p, const char *name, double seconds, double step, int colour)
{
    char a[SL_HTML_NUMBER], b[SL_HTML_NUMBER];
    if (!(seconds > 0.0005 * step)) return;
    sl_text_add(p->out, "<li class=\"w%d\"><span class=\"bar\" style=\"width:%.4g%%\"></span><span class=\"name\">",
                colour, 100 * seconds / step);
    sl_html_add(p->out, name);
    sl_text_add(p->out, "</span> <span class=\"value\">%s</span> <span class=\"value\">%s</span></li>",
                sl_html_seconds(seconds, a), sl_html_percent(seconds / step, b));
}

static void add_shares(const sl_page *p)
{
    size_t i;
    json_t *stream;
    char name[80];
    double step = sl_profile_best(p->profile, "step_seconds");
    if (!(step > 0)) return;
    sl_text_add(p->out, "<h3>Where the time goes</h3>\n<ul class=\"shares\">");
    json_array_foreach(json_object_get(p->profile, "streams"), i, stream)
    {
        bool compute = sl_profile_number(stream, "stream") == COMPUTE_STREAM;
        const char *own = json_string_value(json_object_get(stream, "name"));
        snprintf(name, sizeof name, compute ? "%s" : "exposed: %s", own != NULL ? own : "");
        add_share(p, name, sl_profile_best(stream, compute ? "busy_seconds" : "exposed_seconds"), step,
                  compute ? 0 : 1);
    }
    add_share(p, "waiting for the host", sl_profile_best(p->profile, "idle_seconds"), step, 2);
    sl_text_add(p->out, "</ul>\n");
}

/* ---- streams ---- */

static void add_rectangle(const sl_page *p, const sl_axis *x, double begin, double length)
{
    double left = sl_axis_at(x, begin), width = sl_axis_at(x, begin + length) - left;
    sl_text_add(p->out, "M%.3f 0h%.3fv10h-%.3fz", left, width, width);
}

static void add_marks(const sl_page *p, const json_t *marks, const sl_axis *x)
{
    for (int kind = 0; kind < KINDS; kind++) {
        bool any = false;
        for (size_t i = 0; i < json_array_size(marks); i++) {
            const json_t *m = json_array_get(marks, i);
            if ((int)at(m, 3) != kind) continue;
            if (!any) sl_text_add(p->out, "<path class=\"k%d\" d=\"", kind);
            any = true;
            add_rectangle(p, x, at(m, 0), at(m, 1));
        }
        if (any) sl_text_add(p->out, "\"/>");
    }
}

/* On the row of compute: when it stood still. */
static void add_waits(const sl_page *p, const char *which, const sl_axis *x)
{
    size_t i;
    json_t *w;
    const json_t *list = json_object_get(json_object_get(json_object_get(p->profile, "waits"), which), "list");
    sl_text_add(p->out, "<path class=\"wait\" d=\"");
    json_array_foreach(list, i, w) add_rectangle(p, x, at(w, 0), at(w, 1));
    sl_text_add(p->out, "\"/>");
}

static void add_row(const sl_page *p, const json_t *stream, const char *which, const sl_axis *x)
{
    const json_t *marks = json_object_get(stream, which);
    if (!json_is_array(marks)) return;
    sl_text_add(p->out,
                "<div class=\"row %s\"><span class=\"which\">%s</span><svg viewBox=\"0 0 1000 10\" "
                "preserveAspectRatio=\"none\" aria-hidden=\"true\" focusable=\"false\">",
                which, which);
    if (sl_profile_number(stream, "stream") == COMPUTE_STREAM) add_waits(p, which, x);
    add_marks(p, marks, x);
    sl_text_add(p->out, "</svg></div>");
}

static void add_stream(const sl_page *p, const json_t *stream, const sl_axis *x)
{
    char a[SL_HTML_NUMBER], b[SL_HTML_NUMBER];
    bool compute = sl_profile_number(stream, "stream") == COMPUTE_STREAM;
    const char *name = json_string_value(json_object_get(stream, "name"));
    sl_text_add(p->out, "<div class=\"stream\"><div class=\"head\"><span class=\"name\">");
    sl_html_add(p->out, name != NULL ? name : "");
    sl_text_add(p->out, "</span><span class=\"sum\">busy %s%s%s</span></div>",
                sl_html_seconds(sl_profile_best(stream, "busy_seconds"), a), compute ? "" : ", exposed ",
                compute ? "" : sl_html_seconds(sl_profile_best(stream, "exposed_seconds"), b));
    add_row(p, stream, "predicted", x);
    add_row(p, stream, "measured", x);
    sl_text_add(p->out, "</div>\n");
}

/* From where to where the step is counted. */
static void add_brackets(const sl_page *p, const sl_axis *x)
{
    static const char *const which[] = { "predicted", "measured" };
    char path[64], a[SL_HTML_NUMBER], b[SL_HTML_NUMBER];
    sl_text_add(p->out,
                "<div class=\"stream\"><div class=\"head\"><span class=\"name\">the step</span><span "
                "class=\"sum\">predicted %s%s%s</span></div>",
                sl_html_seconds(sl_profile_number(p->profile, "step_seconds.predicted"), a),
                is_measured(p) ? ", measured " : "",
                is_measured(p) ? sl_html_seconds(sl_profile_number(p->profile, "step_seconds.measured"), b) : "");
    for (int i = 0; i < (is_measured(p) ? 2 : 1); i++) {
        snprintf(path, sizeof path, "begin_seconds.%s", which[i]);
        double begin = sl_profile_number(p->profile, path);
        snprintf(path, sizeof path, "step_seconds.%s", which[i]);
        sl_text_add(p->out,
                    "<div class=\"bracket %s\"><svg viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" "
                    "aria-hidden=\"true\" focusable=\"false\"><path d=\"",
                    which[i]);
        add_rectangle(p, x, begin * 1e6, sl_profile_number(p->profile, path) * 1e6);
        sl_text_add(p->out, "\"/></svg></div>");
    }
    sl_text_add(p->out, "</div>\n");
}

static double last_end(const json_t *marks)
{
    size_t i;
    json_t *m;
    double end = 0;
    json_array_foreach(marks, i, m) end = fmax(end, at(m, 0) + at(m, 1));
    return end;
}

static double timeline_end(const sl_page *p)
{
    size_t i;
    json_t *s;
    double end = 1;
    json_array_foreach(json_object_get(p->profile, "streams"), i, s)
    {
        end = fmax(end, last_end(json_object_get(s, "predicted")));
        end = fmax(end, last_end(json_object_get(s, "measured")));
    }
    return end;
}

static void add_legend(const sl_page *p)
{
    static const int shown[] = { 0, 1, 2, RECOMPUTED };
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++)
        sl_text_add(p->out, "<span class=\"key k%d\">%s</span>", shown[i], kind_names[shown[i]]);
    sl_text_add(p->out, "<span class=\"key wait\">compute stands still</span>");
    if (is_measured(p)) sl_text_add(p->out, "<span class=\"unit\">thin: predicted, thick: measured</span>");
}

/* ---- the table behind it ---- */

static void add_time_cells(const sl_page *p, const json_t *o, const char *key)
{
    char a[SL_HTML_NUMBER], path[64];
    static const char *const which[] = { "predicted", "measured" };
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s.%s", key, which[i]);
        sl_text_add(p->out, "<td>%s</td>", sl_html_seconds(sl_profile_number(o, path), a));
    }
}

static void add_table(const sl_page *p)
{
    size_t i;
    json_t *s;
    sl_text_add(p->out, "<details><summary>Table</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
                        "aria-label=\"streams\"><table><thead><tr><th scope=\"col\">stream</th><th scope=\"col\">busy, "
                        "predicted</th><th scope=\"col\">busy, measured</th><th scope=\"col\">exposed, predicted</th>"
                        "<th scope=\"col\">exposed, measured</th></tr></thead><tbody>");
    json_array_foreach(json_object_get(p->profile, "streams"), i, s)
    {
        const char *name = json_string_value(json_object_get(s, "name"));
        sl_text_add(p->out, "<tr><th scope=\"row\">");
        sl_html_add(p->out, name != NULL ? name : "");
        sl_text_add(p->out, "</th>");
        add_time_cells(p, s, "busy_seconds");
        add_time_cells(p, s, "exposed_seconds");
        sl_text_add(p->out, "</tr>");
    }
    sl_text_add(p->out, "<tr><th scope=\"row\">waiting for the host</th><td></td><td></td>");
    add_time_cells(p, p->profile, "idle_seconds");
    sl_text_add(p->out, "</tr><tr><th scope=\"row\">step</th>");
    add_time_cells(p, p->profile, "step_seconds");
    sl_text_add(p->out, "<td></td><td></td></tr></tbody></table></div></details>");
}

/* ---- the section ---- */

/* One step is timed, which is not always like the others: what is measured of an odd one is no fault of the plan. */
static void add_typical(const sl_page *p)
{
    const double odd = 1.5;
    const double drawn = sl_profile_number(p->profile, "step_seconds.measured");
    const double median = sl_page_median_seconds(p->record);
    char a[SL_HTML_NUMBER], b[SL_HTML_NUMBER], times[SL_HTML_NUMBER];
    if (!(median > 0) || !(drawn > odd * median || drawn * odd < median)) return;
    sl_text_add(
        p->out,
        " <strong>It is not typical</strong>: it took %s, %s times the %s that the median step of the run takes, "
        "and so is all that is measured of it here and of the layers.",
        sl_html_seconds(drawn, a), sl_html_number(round(100 * drawn / median) / 100, times),
        sl_html_seconds(median, b));
}

/* What the drawing covers, in words. */
static void add_scope(const sl_page *p)
{
    const char *why = json_string_value(json_object_get(p->profile, "why_predicted"));
    int shown = (int)sl_profile_number(p->profile, "shown_micro_batches");
    int all = (int)sl_profile_number(p->profile, "micro_batches");
    sl_text_add(p->out, "<p class=\"note\">");
    if (is_measured(p))
        sl_text_add(p->out, "Step %.0f of the run%s.", sl_profile_number(p->profile, "training_step"),
                    json_is_true(json_object_get(p->profile, "followed")) ? " and the first forward of the next" : "");
    else
        sl_text_add(p->out, "A step and the first forward of the next, as the plan expects them.");
    if (is_measured(p)) add_typical(p);
    if (why != NULL) {
        sl_text_add(p->out, " ");
        sl_html_add(p->out, why);
    }
    if (shown < all) sl_text_add(p->out, " Shown are %d of %d micro-batches.", shown, all);
    sl_text_add(p->out,
                " A step counts from the end of one first forward to the end of the next, where there is a next; "
                "what is exposed is the time in which compute stands still.</p>\n");
}

void sl_page_add_step(const sl_page *p)
{
    size_t i;
    json_t *stream;
    char a[SL_HTML_NUMBER];
    if (json_array_size(json_object_get(p->profile, "streams")) == 0) return;
    double end = timeline_end(p);
    sl_axis x = sl_axis_fit(SL_AXIS_MICROSECONDS, 0, end, 6, false);
    sl_text_add(p->out, "<section id=\"step\"><h2>One step</h2>\n");
    add_shares(p);
    sl_text_add(p->out, "<figure class=\"chart\" id=\"streams\"><figcaption><span class=\"title\">Streams</span>");
    add_legend(p);
    sl_text_add(
        p->out,
        "</figcaption>\n<div class=\"frame gantt\" tabindex=\"0\" role=\"group\" aria-roledescription=\"chart\" "
        "aria-label=\"Streams of a step over %s, predicted and measured. Left and right go from operation to "
        "operation, up and down from row to row, plus and minus zoom, Escape shows all.\" data-x=\"0 %.17g %d\" "
        "data-gantt=\"1\">\n",
        sl_html_seconds(end / 1e6, a), end, (int)SL_AXIS_MICROSECONDS);
    add_brackets(p, &x);
    json_array_foreach(json_object_get(p->profile, "streams"), i, stream) add_stream(p, stream, &x);
    sl_figure_add_x_marks(p, &x);
    sl_text_add(p->out, "</div>\n");
    add_scope(p);
    add_table(p);
    sl_text_add(p->out, "</figure></section>\n");
}
