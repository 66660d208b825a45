/* page.h: the report as one HTML file that needs nothing else: text, tables and drawings (SVG) are in it as they are shown;
 * the script only adds reading off and zooming. The numbers that it shows are also there as JSON. */
#ifndef SL_REPORT_PAGE_H
#define SL_REPORT_PAGE_H

#include "format/json.h"
#include "report/html.h"
#include "report/run_record.h"

/* What a page is made from. */
typedef struct sl_page {
    sl_text *out;
    const sl_run_record *record;
    json_t *profile;  /* borrowed; NULL: there is none */
    const char *name; /* of the run, for its title */
    size_t *shown;    /* indices into record->steps that are drawn */
    size_t shown_count;
} sl_page;

/* `profile`: the document of profile.h, or NULL. `name` is what the page is about. */
sluice_status sl_page_write(const sl_run_record *record, json_t *profile, const char *name, sl_text *out);

/* ---- parts: each adds a <section>, or nothing where there is nothing to show ---- */

void sl_page_add_verdict(const sl_page *p); /* page_verdict.c */
void sl_page_add_curves(const sl_page *p);  /* page_curves.c */
void sl_page_add_step(const sl_page *p);    /* page_step.c: where the time goes, streams */
void sl_page_add_memory(const sl_page *p);  /* page_memory.c */
void sl_page_add_layers(const sl_page *p);  /* page_tables.c */
void sl_page_add_events(const sl_page *p);
void sl_page_add_machine(const sl_page *p);
void sl_page_add_configuration(const sl_page *p);

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
/* Only the marks along the bottom, for figures that have rows instead of a y axis. */
void sl_figure_add_x_marks(const sl_page *p, const sl_axis *x);

/* ---- made from page.css and page.js when the library is built ---- */

extern const char sl_page_css[], sl_page_js[];

#endif
