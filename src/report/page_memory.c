/* page_memory.c: what is live on each tier while a step runs, one on top of the other. */
#include <math.h>
#include <string.h>

#include "report/page.h"

enum { FIRST_KIND = 2 }; /* of a moment: time, step of the plan, then bytes of each kind */

static double at(const json_t *list, size_t i)
{
    return json_number_value(json_array_get(list, i));
}

/* Bytes below kind `k` at a moment. */
static double below(const json_t *moment, size_t k)
{
    double sum = 0;
    for (size_t i = 0; i < k; i++) sum += at(moment, FIRST_KIND + i);
    return sum;
}

/* Item i of a list of texts; "" where a file that others changed has none there. */
static const char *text_of(const json_t *list, size_t i)
{
    const char *text = json_string_value(json_array_get(list, i));
    return text != NULL ? text : "";
}

/* Kinds have the same colours on all tiers: by the place of their names here. */
static int colour_of(const char *kind)
{
    static const char *const names[] = {
        "optimizer state", "parameters",           "gradients",       "activations",
        "inputs",          "workspace of kernels", "copy for saving", "sparse tables"
    };
    int count = (int)(sizeof names / sizeof names[0]);
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], kind) == 0) return i;
    return count;
}

/* Up along the top of the kind, and back along its bottom. A value holds until the next moment. */
static void add_area(const sl_page *p, const json_t *tier, size_t k, const sl_figure *f)
{
    const json_t *moments = json_object_get(tier, "moments");
    size_t count = json_array_size(moments);
    sl_text_add(p->out, "<path class=\"area m%d\" d=\"M", colour_of(text_of(json_object_get(tier, "kinds"), k)));
    for (size_t i = 0; i < count; i++) {
        const json_t *m = json_array_get(moments, i);
        double y = 1000 - sl_axis_at(&f->y, below(m, k + 1));
        sl_text_add(p->out, i == 0 ? "%.2f %.2f" : "H%.2fV%.2f", sl_axis_at(&f->x, at(m, 0)), y);
    }
    sl_text_add(p->out, "H1000");
    for (size_t i = count; i-- > 0;) {
        const json_t *m = json_array_get(moments, i);
        sl_text_add(p->out, "V%.2fH%.2f", 1000 - sl_axis_at(&f->y, below(m, k)), sl_axis_at(&f->x, at(m, 0)));
    }
    sl_text_add(p->out, "Z\"/>");
}

/* A line across, with its name; not where it is far above everything. */
static void add_level(const sl_page *p, const sl_figure *f, double bytes, const char *class)
{
    double y = 1000 - sl_axis_at(&f->y, bytes);
    if (bytes > 0 && y >= 0) sl_text_add(p->out, "<path class=\"level %s\" d=\"M0 %.2fH1000\"/>", class, y);
}

static void add_legend(const sl_page *p, const void *user)
{
    const json_t *kinds = json_object_get(user, "kinds");
    for (size_t i = json_array_size(kinds); i-- > 0;) {
        const char *kind = text_of(kinds, i);
        sl_text_add(p->out, "<span class=\"key m%d\">", colour_of(kind));
        sl_html_add(p->out, kind);
        sl_text_add(p->out, "</span>");
    }
}

static double most_live(const json_t *tier)
{
    size_t i, kinds = json_array_size(json_object_get(tier, "kinds"));
    json_t *m;
    double most = 0;
    json_array_foreach(json_object_get(tier, "moments"), i, m) most = fmax(most, below(m, kinds));
    return most;
}

static void add_row(const sl_page *p, const char *name, double bytes)
{
    char text[SL_HTML_NUMBER], exact[SL_HTML_NUMBER];
    sl_text_add(p->out, "<tr><th scope=\"row\">");
    sl_html_add(p->out, name);
    sl_text_add(p->out, "</th><td>%s</td><td>%s</td></tr>", sl_html_bytes((uint64_t)bytes, text),
                sl_html_count((uint64_t)bytes, exact));
}

/* At the fullest moment, and the largest tenants of the whole step. */
static void add_table(const sl_page *p, const json_t *tier)
{
    enum { SHOWN = 40 };
    const json_t *kinds = json_object_get(tier, "kinds"), *tenants = json_object_get(tier, "tenants");
    size_t left = json_array_size(tenants) > SHOWN ? json_array_size(tenants) - SHOWN : 0;
    sl_text_add(p->out,
                "<details><summary>Table</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
                "aria-label=\"memory by kind and tenant\"><table><thead><tr><th scope=\"col\">at the fullest moment"
                "</th><th scope=\"col\">size</th><th scope=\"col\">bytes</th></tr></thead><tbody>");
    for (size_t i = 0; i < json_array_size(kinds); i++)
        add_row(p, text_of(kinds, i), at(json_object_get(tier, "at_peak_bytes"), i));
    add_row(p, "alignment and gaps", sl_profile_number(tier, "gap_bytes"));
    add_row(p, "arena, reserved once", sl_profile_number(tier, "peak_bytes"));
    add_row(p, "budget", sl_profile_number(tier, "budget_bytes"));
    add_row(p, "without reuse of bytes", sl_profile_number(tier, "without_reuse_bytes"));
    sl_text_add(p->out,
                "</tbody></table><table><thead><tr><th scope=\"col\">largest tenants</th><th scope=\"col\">size</th>"
                "<th scope=\"col\">bytes</th></tr></thead><tbody>");
    for (size_t i = 0; i < json_array_size(tenants) && i < SHOWN; i++) {
        const json_t *t = json_array_get(tenants, i);
        char name[320];
        snprintf(name, sizeof name, "%.200s (%.80s)", text_of(t, 0), text_of(kinds, (size_t)at(t, 1)));
        add_row(p, name, at(t, 2));
    }
    sl_text_add(p->out, "</tbody></table>");
    left += (size_t)sl_profile_number(tier, "tenants_left_out");
    if (left > 0) sl_text_add(p->out, "<p class=\"note\">%zu smaller ones are not in the table.</p>", left);
    sl_text_add(p->out, "</div></details>");
}

static void add_tier(const sl_page *p, const json_t *tier, size_t number)
{
    const char *name = json_string_value(json_object_get(tier, "tier"));
    double peak = sl_profile_number(tier, "peak_bytes"), budget = sl_profile_number(tier, "budget_bytes");
    double live = most_live(tier), top = fmax(peak, live);
    char id[40], label[400], attributes[64], title[80], a[SL_HTML_NUMBER], b[SL_HTML_NUMBER], c[SL_HTML_NUMBER];
    if (name == NULL || json_array_size(json_object_get(tier, "moments")) == 0) return;
    if (budget > 0 && budget <= 1.5 * top) top = fmax(top, budget);
    snprintf(id, sizeof id, "memory-%.20s", name);
    snprintf(title, sizeof title, "%c%.40s", name[0] - 'a' + 'A', name + 1);
    snprintf(attributes, sizeof attributes, "data-memory=\"%zu\"", number);
    snprintf(label, sizeof label,
             "Memory of the %s over a step: at most %s live, %s reserved, budget %s. Arrow keys go from moment to "
             "moment and "
             "name the largest tenants.",
             name, sl_html_bytes((uint64_t)live, a), sl_html_bytes((uint64_t)peak, b),
             sl_html_bytes((uint64_t)budget, c));
    sl_figure f = { .id = id, .title = title, .label = label, .attributes = attributes, .unit = "" };
    f.x = sl_axis_fit(SL_AXIS_MICROSECONDS, 0, sl_profile_number(tier, "end"), 6, false);
    f.y = sl_axis_fit(SL_AXIS_BYTES, 0, top, 5, true);
    sl_figure_begin(p, &f, add_legend, tier);
    for (size_t k = 0; k < json_array_size(json_object_get(tier, "kinds")); k++) add_area(p, tier, k, &f);
    add_level(p, &f, peak, "arena");
    add_level(p, &f, budget, "budget");
    sl_figure_end(p, &f);
    sl_text_add(p->out,
                "<p class=\"note\"><span class=\"rule arena\"></span>arena %s, reserved once; <span class=\"rule "
                "budget\"></span>budget %s%s.</p>",
                b, c, budget > 1.5 * fmax(peak, live) ? ", above the drawing" : "");
    add_table(p, tier);
    sl_text_add(p->out, "</figure>\n");
}

void sl_page_add_memory(const sl_page *p)
{
    size_t i;
    json_t *tier;
    const json_t *tiers = json_object_get(p->profile, "memory");
    bool measured = json_is_true(json_object_get(p->profile, "measured"));
    if (json_array_size(tiers) == 0) return;
    sl_text_add(
        p->out,
        "<section id=\"memory\"><h2>Memory over a step</h2>\n<p class=\"note\">What is live at each moment of one "
        "step, of rank %d. Sizes and addresses are the plan&#39;s, which the run follows to the byte; moments are "
        "%s.</p>\n<div class=\"charts\">",
        (int)sl_profile_number(p->profile, "rank"), measured ? "as measured" : "as predicted");
    json_array_foreach(tiers, i, tier) add_tier(p, tier, i);
    sl_text_add(p->out, "</div></section>\n");
}
