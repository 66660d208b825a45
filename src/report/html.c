/* html.c: see html.h. */
#include "report/html.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/bytes.h"

#define DASH "–"

/* ---- text ---- */

void sl_html_add(sl_text *out, const char *text)
{
    while (*text != '\0') {
        size_t plain = strcspn(text, "&<>\"'");
        sl_text_add_bytes(out, text, plain);
        text += plain;
        if (*text != '\0') sl_text_add(out, "&#%d;", *text++);
    }
}

void sl_html_add_json(sl_text *out, const char *json)
{
    while (*json != '\0') {
        size_t plain = strcspn(json, "<");
        sl_text_add_bytes(out, json, plain);
        json += plain;
        if (*json == '\0') break;
        sl_text_add(out, "\\u003c"); /* stands in a string: nothing else of JSON has it */
        json++;
    }
}

/* ---- numbers ---- */

const char *sl_html_count(uint64_t n, char buf[SL_HTML_NUMBER])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n), at = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) buf[at++] = ',';
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
    return buf;
}

const char *sl_html_seconds(double seconds, char buf[SL_HTML_NUMBER])
{
    static const struct {
        double least;
        const char *unit;
    } units[] = { { 1, "s" }, { 1e-3, "ms" }, { 1e-6, "µs" } };
    snprintf(buf, SL_HTML_NUMBER, DASH);
    if (!isfinite(seconds)) return buf;
    size_t i = 0;
    while (i < 2 && seconds < units[i].least) i++;
    double shown = seconds / units[i].least;
    int decimals = seconds <= 0 || shown >= 100 ? 0 : shown >= 10 ? 1 : 2;
    snprintf(buf, SL_HTML_NUMBER, "%.*f %s", decimals, seconds <= 0 ? 0.0 : shown, seconds <= 0 ? "s" : units[i].unit);
    return buf;
}

const char *sl_html_duration(double seconds, char buf[SL_HTML_NUMBER])
{
    if (!(seconds >= 60 && seconds < 1e9)) return sl_html_seconds(seconds, buf);
    long long s = (long long)(seconds + 0.5), d = s / 86400, h = s / 3600 % 24, m = s / 60 % 60;
    if (d > 0)
        snprintf(buf, SL_HTML_NUMBER, "%lld d %lld h", d, h);
    else if (h > 0)
        snprintf(buf, SL_HTML_NUMBER, "%lld h %lld min", h, m);
    else
        snprintf(buf, SL_HTML_NUMBER, "%lld min %lld s", m, s % 60);
    return buf;
}

const char *sl_html_number(double value, char buf[SL_HTML_NUMBER])
{
    if (isfinite(value))
        snprintf(buf, SL_HTML_NUMBER, "%.5g", value);
    else
        snprintf(buf, SL_HTML_NUMBER, DASH);
    return buf;
}

const char *sl_html_rate(double a_second, char buf[SL_HTML_NUMBER])
{
    if (isfinite(a_second)) return sl_format_rate(a_second, buf, SL_HTML_NUMBER);
    snprintf(buf, SL_HTML_NUMBER, DASH);
    return buf;
}

const char *sl_html_bytes(uint64_t bytes, char buf[SL_HTML_NUMBER])
{
    return sl_format_bytes(bytes, buf, SL_HTML_NUMBER);
}

const char *sl_html_percent(double share, char buf[SL_HTML_NUMBER])
{
    if (isfinite(share))
        snprintf(buf, SL_HTML_NUMBER, "%.1f %%", 100 * share);
    else
        snprintf(buf, SL_HTML_NUMBER, DASH);
    return buf;
}

/* ---- axes ---- */

/* What the marks of an axis are multiples of, and how that is called. */
typedef struct axis_unit {
    double size;
    const char *name;
} axis_unit;

static axis_unit unit_of(sl_axis_kind kind, double most)
{
    static const axis_unit bytes[] = {
        { 0x1p40, "TiB" }, { 0x1p30, "GiB" }, { 0x1p20, "MiB" }, { 1024, "KiB" }, { 1, "B" }
    };
    static const axis_unit times[] = { { 1e6, "s" }, { 1e3, "ms" }, { 1, "µs" } };
    if (kind == SL_AXIS_BYTES)
        for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++)
            if (most >= bytes[i].size || bytes[i].size <= 1) return bytes[i];
    if (kind == SL_AXIS_MICROSECONDS)
        for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
            if (most >= times[i].size || times[i].size <= 1) return times[i];
    return (axis_unit){ 1, "" };
}

/* 1, 2 or 5 times a power of ten. */
static double round_step(double wanted)
{
    double power = pow(10, floor(log10(wanted))), ratio = wanted / power;
    return power * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
}

void sl_extent_add(sl_extent *r, double value)
{
    if (!isfinite(value)) {
        r->not_finite++;
        return;
    }
    if (r->finite == 0 || value < r->low) r->low = value;
    if (r->finite == 0 || value > r->high) r->high = value;
    r->finite++;
}

sl_axis sl_axis_fit(sl_axis_kind kind, double low, double high, int marks, bool loose)
{
    if (!(high > low)) {
        double room = fabs(low) > 0 ? fabs(low) / 10 : 1;
        high = low + room;
        low -= kind == SL_AXIS_NUMBER ? room : 0;
    }
    double unit = unit_of(kind, high).size, step = round_step((high - low) / unit / marks) * unit;
    if (kind == SL_AXIS_COUNT && step < 1) step = 1;
    sl_axis a = { kind, low, high, step };
    if (loose) {
        a.low = floor(low / step + 1e-9) * step;
        a.high = ceil(high / step - 1e-9) * step;
    }
    return a;
}

double sl_axis_at(const sl_axis *a, double value)
{
    return 1000 * (value - a->low) / (a->high - a->low);
}

const char *sl_axis_label(const sl_axis *a, double value, char buf[SL_HTML_NUMBER])
{
    axis_unit unit = unit_of(a->kind, a->high);
    if (fabs(value) < a->step / 1e6) value = 0;
    if (a->kind == SL_AXIS_COUNT) return sl_html_count(value > 0 ? (uint64_t)(value + 0.5) : 0, buf);
    snprintf(buf, SL_HTML_NUMBER, "%.6g%s%s", value / unit.size, unit.name[0] != '\0' ? " " : "", unit.name);
    return buf;
}
