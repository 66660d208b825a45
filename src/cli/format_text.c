/* format_text.c: rates, times and sizes as people read them. */
#include <math.h>

#include "cli/cli.h"

void cli_format_rate(double rate, const char *unit, char *out, size_t bytes)
{
    static const char *const suffixes[] = { "", "k", "M", "G" };
    int scale = 0;
    while (rate >= (scale == 0 ? 9999.5 : 999.95) && scale < 3) {
        rate /= 1000;
        scale++;
    }
    snprintf(out, bytes, "%.*f%s %s/s", scale > 0 ? 1 : rate < 10 ? 2 : 0, rate, suffixes[scale], unit);
}

void cli_format_seconds(double seconds, char *out, size_t bytes)
{
    long long s = seconds < 1e9 ? (long long)ceil(seconds) : 999999999;
    if (s >= 3600)
        snprintf(out, bytes, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, bytes, "%lld:%02lld", s / 60, s % 60);
}

void cli_format_size(uint64_t size, char *out, size_t bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double amount = (double)size;
    int unit = 0;
    for (; amount >= 1024 && unit < 4; unit++) amount /= 1024;
    snprintf(out, bytes, unit == 0 ? "%.0f %s" : "%.1f %s", amount, units[unit]);
}
