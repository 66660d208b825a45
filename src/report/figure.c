/* figure.c: the frame of a drawing: caption, axes, grid.
 *
 * Drawings are stretched to the width of the page, text is not: the <svg> has only lines and areas, with strokes that keep
 * their width, and the marks of the axes are text beside it, placed in percent. */
#include <math.h>

#include "report/page.h"

enum { MOST_MARKS = 12 };

/* The marks of an axis that lie within it; at most MOST_MARKS. */
static int find_marks(const sl_axis *a, double out[MOST_MARKS])
{
    int n = 0;
    double first = ceil(a->low / a->step - 1e-9);
    for (int i = 0; n < MOST_MARKS && (first + i) * a->step <= a->high + a->step * 1e-9; i++)
        out[n++] = (first + i) * a->step;
    return n;
}

static void add_grid(const sl_page *p, const sl_axis *y)
{
    double marks[MOST_MARKS];
    int count = find_marks(y, marks);
    sl_text_add(p->out, "<path class=\"grid\" d=\"");
    for (int i = 0; i < count; i++) sl_text_add(p->out, "M0 %.6gH1000", 1000 - sl_axis_at(y, marks[i]));
    sl_text_add(p->out, "\"/>");
}

static void add_y_marks(const sl_page *p, const sl_axis *y)
{
    double marks[MOST_MARKS];
    char label[SL_HTML_NUMBER];
    int count = find_marks(y, marks);
    sl_text_add(p->out, "<div class=\"y\" aria-hidden=\"true\">");
    for (int i = 0; i < count; i++)
        sl_text_add(p->out, "<span style=\"bottom:%.5g%%\">%s</span>", sl_axis_at(y, marks[i]) / 10,
                    sl_axis_label(y, marks[i], label));
    sl_text_add(p->out, "</div>");
}

void sl_figure_add_x_marks(const sl_page *p, const sl_axis *x)
{
    double marks[MOST_MARKS];
    char label[SL_HTML_NUMBER];
    int count = find_marks(x, marks);
    sl_text_add(p->out, "<div class=\"x\" aria-hidden=\"true\">");
    for (int i = 0; i < count; i++) {
        double at = sl_axis_at(x, marks[i]) / 10;
        const char *edge = at < 3 ? " class=\"l\"" : at > 97 ? " class=\"r\"" : ""; /* stays inside the drawing */
        sl_text_add(p->out, "<span%s style=\"left:%.5g%%\">%s</span>", edge, at, sl_axis_label(x, marks[i], label));
    }
    sl_text_add(p->out, "</div>");
}

void sl_figure_begin(const sl_page *p, const sl_figure *f, void (*legend)(const sl_page *p, const void *user),
                     const void *user)
{
    sl_text_add(p->out, "<figure class=\"chart\" id=\"%s\"><figcaption><span class=\"title\">", f->id);
    sl_html_add(p->out, f->title);
    sl_text_add(p->out, "</span>");
    if (f->unit[0] != '\0') {
        sl_text_add(p->out, "<span class=\"unit\">");
        sl_html_add(p->out, f->unit);
        sl_text_add(p->out, "</span>");
    }
    if (legend != NULL) legend(p, user);
    sl_text_add(p->out,
                "</figcaption>\n<div class=\"frame\" tabindex=\"0\" role=\"group\" aria-roledescription=\"chart\" "
                "aria-label=\"");
    sl_html_add(p->out, f->label);
    sl_text_add(p->out, "\" data-x=\"%.17g %.17g %d\" data-y=\"%.17g %.17g %d\" %s>\n", f->x.low, f->x.high,
                (int)f->x.kind, f->y.low, f->y.high, (int)f->y.kind, f->attributes);
    add_y_marks(p, &f->y);
    sl_text_add(p->out, "<div class=\"draw\"><svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" "
                        "aria-hidden=\"true\" focusable=\"false\">");
    add_grid(p, &f->y);
}

void sl_figure_add_line(const sl_page *p, const sl_figure *f, const char *class, const sl_figure_points *points)
{
    bool begun = false;
    sl_text_add(p->out, "<path class=\"%s\" d=\"", class);
    for (size_t i = 0; i < points->count; i++) {
        double x, y;
        points->at(points->of, i, &x, &y);
        if (isfinite(y))
            sl_text_add(p->out, "%c%.2f %.2f", begun ? 'L' : 'M', sl_axis_at(&f->x, x), 1000 - sl_axis_at(&f->y, y));
        begun = isfinite(y);
    }
    sl_text_add(p->out, "\"/>");
}

void sl_figure_end(const sl_page *p, const sl_figure *f)
{
    sl_text_add(p->out, "</svg></div>");
    sl_figure_add_x_marks(p, &f->x);
    sl_text_add(p->out, "</div>\n");
}
