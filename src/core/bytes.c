/* bytes.c: sizes as people write and read them.
 *
 * Parsing is in integers throughout: "16777216.1TiB" must not pass through a double that forgets the low bits. */
#include "core/bytes.h"

#include <stdio.h>

/* Binary units first: sizes are printed in these. Disks are sold in the decimal ones. */
static const struct unit {
    const char *name;
    uint64_t bytes;
} units[] = { { "KiB", UINT64_C(1) << 10 },   { "MiB", UINT64_C(1) << 20 },     { "GiB", UINT64_C(1) << 30 },
              { "TiB", UINT64_C(1) << 40 },   { "kB", UINT64_C(1000) },         { "MB", UINT64_C(1000000) },
              { "GB", UINT64_C(1000000000) }, { "TB", UINT64_C(1000000000000) } };
enum { UNIT_COUNT = sizeof units / sizeof units[0], PRINTED_UNITS = 4 };

/* More fraction digits than this change nothing: 10^-15 TiB is a thousandth of a byte. */
#define FRACTION_DIGITS 15

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads digits at *p into *out. False when there is none or on overflow. */
static bool parse_whole(const char **p, uint64_t *out)
{
    uint64_t value = 0;
    if (!is_digit(**p)) return false;
    for (; is_digit(**p); (*p)++)
        if (!sl_mul_u64(value, 10, &value) || !sl_add_u64(value, (uint64_t)(**p - '0'), &value)) return false;
    *out = value;
    return true;
}

/* Reads the digits after a point as numerator / denominator, cut after FRACTION_DIGITS. */
static bool parse_fraction(const char **p, uint64_t *numerator, uint64_t *denominator)
{
    *numerator = 0;
    *denominator = 1;
    if (!is_digit(**p)) return false;
    for (int digits = 0; is_digit(**p); (*p)++, digits++) {
        if (digits >= FRACTION_DIGITS) continue;
        *numerator = *numerator * 10 + (uint64_t)(**p - '0');
        *denominator *= 10;
    }
    return true;
}

/* Bytes of the unit that is all of `text`; 0 where it is none. */
static uint64_t unit_bytes(const char *text)
{
    for (int i = 0; i < UNIT_COUNT; i++)
        if (strcmp(text, units[i].name) == 0) return units[i].bytes;
    return 0;
}

bool sl_parse_bytes(const char *text, uint64_t *out)
{
    const char *p = text;
    uint64_t whole, numerator = 0, denominator = 1;
    if (!parse_whole(&p, &whole)) return false;
    bool fraction = *p == '.';
    if (fraction) {
        p++;
        if (!parse_fraction(&p, &numerator, &denominator)) return false;
    }
    uint64_t unit = 1;
    if (*p != '\0' || fraction) { /* a fraction of a byte is no size, so a fraction needs a unit */
        while (*p == ' ') p++;
        unit = unit_bytes(p);
        if (unit == 0) return false;
    }
    uint64_t value, rest = (uint64_t)((unsigned __int128)numerator * unit / denominator);
    if (!sl_mul_u64(whole, unit, &value) || !sl_add_u64(value, rest, &value)) return false;
    *out = value;
    return true;
}

const char *sl_format_bytes(uint64_t bytes, char *buf, size_t buf_bytes)
{
    if (bytes < 1024) {
        snprintf(buf, buf_bytes, "%d B", (int)bytes);
        return buf;
    }
    double value = (double)bytes / 1024.0;
    int unit = 0;
    while (value >= 1023.995 && unit + 1 < PRINTED_UNITS) { /* "1024.00 KiB" reads as a mistake */
        value /= 1024.0;
        unit++;
    }
    snprintf(buf, buf_bytes, "%.2f %s", value, units[unit].name);
    return buf;
}

const char *sl_format_rate(double rate, char *buf, size_t buf_bytes)
{
    static const char *const suffixes[] = { "", "k", "M", "G" };
    int scale = 0;
    while (rate >= (scale == 0 ? 9999.5 : 999.95) && scale < 3) {
        rate /= 1000;
        scale++;
    }
    snprintf(buf, buf_bytes, "%.*f%s", scale > 0 ? 1 : rate < 10 ? 2 : 0, rate, suffixes[scale]);
    return buf;
}
