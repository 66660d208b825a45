/* html.h: text and numbers of a page, and the axes of its charts. */
#ifndef SL_REPORT_HTML_H
#define SL_REPORT_HTML_H

#include <stdint.h>

#include "format/text_buffer.h"

#define SL_HTML_NUMBER 48 /* bytes of a number in words */

/* Text of others, with everything escaped that HTML would take for its own. */
void sl_html_add(sl_text *out, const char *text);
/* JSON that stands in a <script>: nothing in it ends the script. */
void sl_html_add_json(sl_text *out, const char *json);

/* Numbers for people; each returns `buf`. What is not finite is a dash. */
const char *sl_html_count(uint64_t n, char buf[SL_HTML_NUMBER]);        /* 1,234,567 */
const char *sl_html_seconds(double seconds, char buf[SL_HTML_NUMBER]);  /* 41.2 ms */
const char *sl_html_duration(double seconds, char buf[SL_HTML_NUMBER]); /* 2 h 5 min */
const char *sl_html_number(double value, char buf[SL_HTML_NUMBER]);     /* 1.8323 */
const char *sl_html_rate(double a_second, char buf[SL_HTML_NUMBER]);    /* 27.4k */
const char *sl_html_bytes(uint64_t bytes, char buf[SL_HTML_NUMBER]);    /* 1.50 GiB */
const char *sl_html_percent(double share, char buf[SL_HTML_NUMBER]);    /* 91.3 % */

/* ---- axes ---- */

typedef enum { SL_AXIS_NUMBER, SL_AXIS_COUNT, SL_AXIS_BYTES, SL_AXIS_MICROSECONDS } sl_axis_kind;

/* An axis of a chart: the drawing runs from `low` to `high`; marks are the multiples of `step` in between. */
typedef struct sl_axis {
    sl_axis_kind kind;
    double low, high, step;
} sl_axis;

/* The values that a chart has to show. Zero-initialise. */
typedef struct sl_extent {
    double low, high; /* of the finite ones */
    uint64_t finite, not_finite;
} sl_extent;
void sl_extent_add(sl_extent *r, double value);

/* Room for values from low to high with about `marks` marks at round numbers; `loose`: the ends are round, too. */
sl_axis sl_axis_fit(sl_axis_kind kind, double low, double high, int marks, bool loose);
/* Where a value lies, from 0 to 1000. */
double sl_axis_at(const sl_axis *a, double value);
/* The name of a mark: its number, with the axis' unit. */
const char *sl_axis_label(const sl_axis *a, double value, char buf[SL_HTML_NUMBER]);

#endif
