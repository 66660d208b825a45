/* compared.h: configurations that were run side by side, as the lines of `sluice compare --json` tell of them: as a table, as
 * a page, and in a sentence. docs/compare.md has the members of a line. */
#ifndef SL_REPORT_COMPARED_H
#define SL_REPORT_COMPARED_H

#include "report/page.h"

enum { SL_COMPARED_MOST = 8, SL_COMPARED_ROWS = 32, SL_COMPARED_CELL = 96 };

/* The losses of a step: mean over the seeds, and the smallest and the largest of them. */
typedef struct sl_compared_loss {
    double mean, low, high;
} sl_compared_loss;

/* One configuration. */
typedef struct sl_compared {
    json_t *line; /* borrowed from the comparison */
    const char *name;
    bool fits;                /* otherwise it was not run */
    sl_compared_loss *losses; /* owned; of each step */
    size_t step_count;
} sl_compared;

typedef struct sl_comparison {
    json_t *lines; /* owned; an array */
    sl_compared variants[SL_COMPARED_MOST];
    int count;
    int first; /* the one that the others are compared with: the first that fits; -1: none does */
} sl_comparison;

/* `lines`: an object a line. SLUICE_ERR_INPUT: it is something else; the message says which line. */
sluice_status sl_comparison_read(const char *lines, sl_comparison *out);
void sl_comparison_free(sl_comparison *c);

/* "20 steps, 2 rounds in turn, 1 seed, 1 rank" */
void sl_comparison_describe(const sl_comparison *c, char *out, size_t bytes);
/* Which is fastest, by how much, with what memory; the same bits, or from which step on not. */
void sl_comparison_judge(const sl_comparison *c, sl_text *out);
/* Whether all that fit have the same bits. */
bool sl_comparison_agrees(const sl_comparison *c);

/* ---- the table: rows of facts, a column for each configuration ---- */

/* How a fact is written. */
typedef enum {
    SL_CELL_SECONDS,
    SL_CELL_RANGE, /* the percentiles of a step */
    SL_CELL_RATE,
    SL_CELL_SHARE,
    SL_CELL_BYTES,
    SL_CELL_TRAFFIC, /* bytes of a step, and in a second */
    SL_CELL_LOSS,    /* with its spread */
    SL_CELL_USE,     /* the stream of that name: share of the step in which it was busy, and exposed */
    SL_CELL_WORDS
} sl_cell_kind;

typedef struct sl_compared_row {
    char name[64];
    const char *path; /* of the member, "peak_bytes.device" */
    sl_cell_kind kind;
    bool part;     /* of the row above it */
    bool optional; /* left out where no configuration has such a number */
} sl_compared_row;

/* Those that this comparison has something for; returns how many. Paths are valid as long as `c` is. */
int sl_comparison_rows(const sl_comparison *c, sl_compared_row out[SL_COMPARED_ROWS]);
void sl_compared_cell(const sl_compared *v, const sl_compared_row *row, char out[SL_COMPARED_CELL]);

/* The table and the verdict for a terminal, in ASCII but for names. */
void sl_comparison_print(const sl_comparison *c, FILE *out);

/* A stream of the step that was timed, as shares of that step; false: the configuration does not use it. */
bool sl_compared_use(const sl_compared *v, const char *stream, double *busy, double *exposed);

/* ---- compare_page.c ---- */

sluice_status sl_comparison_page(const sl_comparison *c, sl_text *out);

#endif
