/* page.h: a report as one HTML file that needs nothing else: text, tables and drawings (SVG) are in it as they are shown;
 * the script only adds reading off and zooming. The numbers that it shows are also there as JSON.
 *
 * page.c and the page_*.c files make the page of a run, compare_page.c (compared.h) that of a comparison. */
#ifndef SL_REPORT_PAGE_H
#define SL_REPORT_PAGE_H

#include "format/json.h"
#include "report/html.h"
#include "report/run_record.h"

/* What a page is made from. */
typedef struct sl_page {
    sl_text *out;
    const char *name;            /* its title */
    const sl_run_record *record; /* from here on of a run's page alone */
    json_t *profile;             /* borrowed; NULL: there is none */
    size_t *shown;               /* indices into record->steps that are drawn */
    size_t shown_count;
} sl_page;

/* `profile`: the document of profile.h, or NULL. `name` is what the page is about. */
sluice_status sl_page_write(const sl_run_record *record, json_t *profile, const char *name, sl_text *out);

/* ---- what all pages have ---- */

/* Everything up to the first section; `when`: a line beside the title, "" for none. */
void sl_page_begin(const sl_page *p, const char *when);
/* Everything behind the last one: the footer, the script, and `data`, the JSON that it reads. */
void sl_page_end(const sl_page *p, const sl_text *data);
/* One of the boxes in a <dl class="tiles">; `more`: a second line, "" for none. */
void sl_page_add_tile(const sl_page *p, const char *name, const char *value, const char *more);
/* A cell of a table with text. */
void sl_page_add_cell(const sl_page *p, const char *text);
/* Opens the <div> in which a wide table scrolls; `label` names it to screen readers. */
void sl_page_add_scroll(const sl_page *p, const char *label);
/* ",\"key\":1.25": a number of the data, exact; null where it is not finite. */
void sl_page_add_number(sl_text *data, const char *between, double value);

/* ---- parts of a run's page: each adds a <section>, or nothing where there is nothing to show ---- */

void sl_page_add_verdict(const sl_page *p); /* page_verdict.c */
void sl_page_add_curves(const sl_page *p);  /* page_curves.c */
void sl_page_add_step(const sl_page *p);    /* page_step.c: where the time goes, streams */
void sl_page_add_memory(const sl_page *p);  /* page_memory.c */
void sl_page_add_layers(const sl_page *p);  /* page_tables.c */
void sl_page_add_events(const sl_page *p);
void sl_page_add_machine(const sl_page *p);
void sl_page_add_configuration(const sl_page *p);

/* page_verdict.c: of the steps after the first, which touches new memory; NaN: there are none. */
double sl_page_median_seconds(const sl_run_record *r);

/* ---- reading a profile ---- */

/* A member that is a number, however deep: "step_seconds.measured"; NaN: it is none. */
double sl_profile_number(const json_t *o, const char *path);
/* Of a pair: the measured value, or the predicted one where nothing was measured. */
double sl_profile_best(const json_t *o, const char *key);

/* ---- drawing ---- */

/* Opens a figure: caption, then the frame with the marks of both axes and an <svg> of 1000 by 1000 that fills it. `attributes`
 * go to the frame, for the script. `label` says in words what the drawing shows. */
typedef struct sl_figure {
    const char *id, *title, *label, *attributes;
    const char *unit; /* of the y axis, beside the title; "": none */
    sl_axis x, y;
} sl_figure;
void sl_figure_begin(const sl_page *p, const sl_figure *f, void (*legend)(const sl_page *p, const void *user),
                     const void *user);
void sl_figure_end(const sl_page *p, const sl_figure *f);
/* A line through points; it has a gap where y is not finite. */
typedef struct sl_figure_points {
    size_t count;
    void (*at)(const void *of, size_t i, double *x, double *y);
    const void *of;
} sl_figure_points;
void sl_figure_add_line(const sl_page *p, const sl_figure *f, const char *class, const sl_figure_points *points);
/* Only the marks along the bottom, for figures that have rows instead of a y axis. */
void sl_figure_add_x_marks(const sl_page *p, const sl_axis *x);

/* ---- made from page.css and page.js when the library is built ---- */

extern const char sl_page_css[], sl_page_js[];

#endif
