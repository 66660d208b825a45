/* compared.c: see compared.h. */
#include "report/compared.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/output.h"

/* ---- reading ---- */

static const char *word(const sl_compared *v, const char *key)
{
    const char *s = json_string_value(json_object_get(v->line, key));
    return s != NULL ? s : "";
}

static double number(const sl_compared *v, const char *path)
{
    return sl_profile_number(v->line, path);
}

static uint64_t count_of(const sl_compared *v, const char *path)
{
    double n = number(v, path);
    return n > 0 && n < 0x1p63 ? (uint64_t)n : 0;
}

/* One step: of each seed a number, or null where the loss was none. */
static sl_compared_loss loss_of(const json_t *seeds, size_t step)
{
    size_t i, count = json_array_size(seeds);
    json_t *seed;
    sl_extent r = { 0, 0, 0, 0 };
    double sum = 0;
    json_array_foreach(seeds, i, seed)
    {
        const json_t *loss = json_array_get(seed, step);
        double value = json_is_number(loss) ? json_number_value(loss) : (double)NAN;
        sl_extent_add(&r, value);
        sum += value / (double)count;
    }
    bool whole = r.finite > 0 && r.not_finite == 0;
    return (sl_compared_loss){ sum, whole ? r.low : (double)NAN, whole ? r.high : (double)NAN };
}

static sluice_status read_losses(sl_compared *v, int line)
{
    size_t i;
    json_t *seed;
    const json_t *seeds = json_object_get(v->line, "losses");
    v->step_count = json_array_size(json_array_get(seeds, 0));
    json_array_foreach(seeds, i, seed) if (json_array_size(seed) != v->step_count || v->step_count == 0) return sl_fail(
        SLUICE_ERR_INPUT, "comparison, line %d: its seeds have losses of %zu and of %zu steps", line, v->step_count,
        json_array_size(seed));
    v->losses = sl_alloc_array(v->step_count + 1, sizeof *v->losses, "losses of a comparison");
    if (v->losses == NULL) return SLUICE_ERR_NO_MEMORY;
    for (size_t k = 0; k < v->step_count; k++) v->losses[k] = loss_of(seeds, k);
    return SLUICE_OK;
}

static sluice_status read_line(const char *text, size_t bytes, sl_comparison *c)
{
    char what[48];
    json_t *o;
    sl_compared *v = &c->variants[c->count];
    int line = c->count + 1;
    snprintf(what, sizeof what, "comparison, line %d", line);
    if (c->count == SL_COMPARED_MOST)
        return sl_fail(SLUICE_ERR_INPUT, "a comparison has at most %d configurations", SL_COMPARED_MOST);
    SL_TRY(sl_json_parse(text, bytes, what, SLUICE_ERR_INPUT, &o));
    if (json_array_append_new(c->lines, o) != 0) return sl_fail(SLUICE_ERR_NO_MEMORY, "out of memory for a comparison");
    const char *name = json_string_value(json_object_get(o, "name"));
    if (name == NULL || !json_is_boolean(json_object_get(o, "fits")))
        return sl_fail(SLUICE_ERR_INPUT, "%s is no line of sluice compare --json: it has no \"name\" and \"fits\"",
                       what);
    *v = (sl_compared){ .line = o, .name = name, .fits = json_is_true(json_object_get(o, "fits")) };
    c->count++;
    if (!v->fits) return SLUICE_OK;
    if (c->first < 0) c->first = c->count - 1;
    return read_losses(v, line);
}

sluice_status sl_comparison_read(const char *lines, sl_comparison *out)
{
    sluice_status st = SLUICE_OK;
    *out = (sl_comparison){ .lines = json_array(), .first = -1 };
    if (out->lines == NULL) st = sl_fail(SLUICE_ERR_NO_MEMORY, "out of memory for a comparison");
    while (st == SLUICE_OK && *lines != '\0') {
        size_t bytes = strcspn(lines, "\n");
        if (bytes > 0) st = read_line(lines, bytes, out);
        lines += bytes + (lines[bytes] != '\0');
    }
    if (st == SLUICE_OK && out->count == 0) st = sl_fail(SLUICE_ERR_INPUT, "a comparison without configurations");
    if (st != SLUICE_OK) sl_comparison_free(out);
    return st;
}

void sl_comparison_free(sl_comparison *c)
{
    for (int i = 0; i < c->count; i++) sl_free(c->variants[i].losses);
    json_decref(c->lines);
    *c = (sl_comparison){ .lines = NULL };
}

/* ---- in a sentence ---- */

void sl_comparison_describe(const sl_comparison *c, char *out, size_t bytes)
{
    const sl_compared *v = &c->variants[c->first >= 0 ? c->first : 0];
    unsigned long long steps = count_of(v, "steps"), rounds = count_of(v, "rounds"), seeds = count_of(v, "seeds"),
                       ranks = count_of(v, "ranks");
    snprintf(out, bytes, "%llu steps, %llu round%s, %llu seed%s, %llu rank%s", steps, rounds,
             rounds == 1 ? "" : "s in turn", seeds, seeds == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s");
}

/* The configuration that fits with the smallest number; `but` does not count. NULL: there is none. */
static const sl_compared *least(const sl_comparison *c, const char *path, const sl_compared *but)
{
    const sl_compared *best = NULL;
    for (int i = 0; i < c->count; i++) {
        const sl_compared *v = &c->variants[i];
        if (!v->fits || v == but || !isfinite(number(v, path))) continue;
        if (best == NULL || number(v, path) < number(best, path)) best = v;
    }
    return best;
}

/* Whether the steps of two are so mixed that neither is faster. */
static bool alike(const sl_compared *a, const sl_compared *b)
{
    return number(b, "step_seconds") <= number(a, "step_seconds_90") &&
           number(a, "step_seconds") >= number(b, "step_seconds_10");
}

/* The fastest, and beside it all others in the order in which they stand. */
static void judge_speed(const sl_comparison *c, const sl_compared *best, sl_text *out)
{
    char a[SL_HTML_NUMBER];
    const char *between = ": ";
    double own = number(best, "step_seconds");
    const sl_compared *next = least(c, "step_seconds", best);
    bool clear = next != NULL && !alike(best, next);
    sl_text_add(out, "%s %s %s a step", best->name,
                next == NULL ? "is the only one that fits, at"
                : clear      ? "is the fastest, at"
                             : "takes",
                sl_html_seconds(own, a));
    for (int i = 0; i < c->count; i++) {
        const sl_compared *v = &c->variants[i];
        if (!v->fits || v == best || !isfinite(number(v, "step_seconds"))) continue;
        sl_text_add(out, "%s", between);
        if (alike(best, v))
            sl_text_add(out, "about as fast as %s", v->name);
        else
            sl_text_add(out, "%.3g times as fast as %s", number(v, "step_seconds") / own, v->name);
        sl_text_add(out, " (%s)", sl_html_seconds(number(v, "step_seconds"), a));
        between = ", ";
    }
    sl_text_add(out, ".");
}

static void judge_memory(const sl_comparison *c, const sl_compared *best, sl_text *out)
{
    char a[SL_HTML_NUMBER];
    const sl_compared *small = least(c, "peak_bytes.device", NULL);
    double own = number(best, "peak_bytes.device"), host = number(best, "peak_bytes.host"),
           disk = number(best, "peak_bytes.disk");
    if (!isfinite(own) || small == NULL) return;
    sl_text_add(out, " It has %s on the device", sl_html_bytes((uint64_t)own, a));
    if (host > 0) sl_text_add(out, ", %s on the host", sl_html_bytes((uint64_t)host, a));
    if (disk > 0) sl_text_add(out, ", %s on disk", sl_html_bytes((uint64_t)disk, a));
    if (number(small, "peak_bytes.device") < own)
        sl_text_add(out, "; %s needs least of the device, %s", small->name,
                    sl_html_bytes(count_of(small, "peak_bytes.device"), a));
    sl_text_add(out, ".");
}

static bool has_bits(const sl_compared *v, const char *words)
{
    return strcmp(word(v, "bits"), words) == 0;
}

bool sl_comparison_agrees(const sl_comparison *c)
{
    for (int i = 0; i < c->count; i++) {
        const sl_compared *v = &c->variants[i];
        if (v->fits && !has_bits(v, i == c->first ? "repeatable" : "the same bits") &&
            !(i == c->first && has_bits(v, "-")))
            return false;
    }
    return true;
}

static void judge_bits(const sl_comparison *c, sl_text *out)
{
    const char *first = c->variants[c->first].name;
    int run = 0;
    for (int i = 0; i < c->count; i++) run += c->variants[i].fits;
    if (sl_comparison_agrees(c)) {
        if (run > 1) sl_text_add(out, " All have the same bits.");
        return;
    }
    for (int i = 0; i < c->count; i++) {
        const sl_compared *v = &c->variants[i];
        if (!v->fits || has_bits(v, "repeatable") || has_bits(v, "-")) continue;
        if (has_bits(v, "the same bits"))
            sl_text_add(out, " %s has the bits of %s.", v->name, first);
        else if (i == c->first)
            sl_text_add(out, " %s: %s.", v->name, word(v, "bits"));
        else
            sl_text_add(out, " %s beside %s: %s.", v->name, first, word(v, "bits"));
    }
}

void sl_comparison_judge(const sl_comparison *c, sl_text *out)
{
    const sl_compared *best = least(c, "step_seconds", NULL);
    if (best != NULL) {
        judge_speed(c, best, out);
        judge_memory(c, best, out);
    }
    if (c->first >= 0) judge_bits(c, out);
    for (int i = 0; i < c->count; i++)
        if (!c->variants[i].fits) sl_text_add(out, " %s does not fit.", c->variants[i].name);
}

/* ---- the table ---- */

static const struct {
    const char *name, *path;
    sl_cell_kind kind;
    bool part, optional;
} facts[] = {
    { "step, median", "step_seconds", SL_CELL_SECONDS, false, false },
    { "10th to 90th percentile", "step_seconds_10", SL_CELL_RANGE, true, false },
    { "predicted", "predicted_step_seconds", SL_CELL_SECONDS, true, false },
    { "tokens or samples a second", "units_per_second", SL_CELL_RATE, false, false },
    { "model FLOPs utilization", "mfu", SL_CELL_SHARE, false, true },
    { "device memory, peak", "peak_bytes.device", SL_CELL_BYTES, false, false },
    { "host memory, peak", "peak_bytes.host", SL_CELL_BYTES, false, false },
    { "disk, peak", "peak_bytes.disk", SL_CELL_BYTES, false, true },
    { "to device in a step", "moved_bytes.to_device", SL_CELL_TRAFFIC, false, false },
    { "to host in a step", "moved_bytes.to_host", SL_CELL_TRAFFIC, false, false },
    { "read from disk in a step", "moved_bytes.disk_read", SL_CELL_TRAFFIC, false, true },
    { "written to disk in a step", "moved_bytes.disk_write", SL_CELL_TRAFFIC, false, true },
    { "between ranks in a step", "sent_bytes", SL_CELL_TRAFFIC, false, true },
    { "", "", SL_CELL_USE, false, false }, /* here come the streams that were timed */
    { "loss of the last step", "loss", SL_CELL_LOSS, false, false },
    { "validation loss", "validation_loss", SL_CELL_LOSS, false, true },
    { "bits", "bits", SL_CELL_WORDS, false, false },
};

static const json_t *find_stream(const sl_compared *v, const char *name)
{
    size_t i;
    json_t *s;
    json_array_foreach(json_object_get(v->line, "streams"), i, s)
    {
        const char *own = json_string_value(json_object_get(s, "name"));
        if (own != NULL && strcmp(own, name) == 0) return s;
    }
    return NULL;
}

bool sl_compared_use(const sl_compared *v, const char *stream, double *busy, double *exposed)
{
    const json_t *s = find_stream(v, stream);
    double step = number(v, "timed_seconds");
    *busy = sl_profile_number(s, "busy_seconds") / step;
    *exposed = sl_profile_number(s, "exposed_seconds") / step;
    return s != NULL && isfinite(*busy) && isfinite(*exposed);
}

static bool has_row(const sl_compared_row *rows, int count, const char *path)
{
    for (int i = 0; i < count; i++)
        if (rows[i].kind == SL_CELL_USE && strcmp(rows[i].path, path) == 0) return true;
    return false;
}

/* A row for each stream that any configuration uses. */
static int add_streams(const sl_comparison *c, sl_compared_row *out, int count)
{
    for (int v = 0; v < c->count; v++) {
        size_t i;
        json_t *s;
        json_array_foreach(json_object_get(c->variants[v].line, "streams"), i, s)
        {
            const char *name = json_string_value(json_object_get(s, "name"));
            if (name == NULL || count == SL_COMPARED_ROWS - 4 || has_row(out, count, name)) continue;
            out[count] = (sl_compared_row){ .path = name, .kind = SL_CELL_USE };
            snprintf(out[count++].name, sizeof out->name, "%.40s, busy", name);
        }
    }
    return count;
}

static bool any_has(const sl_comparison *c, const char *path)
{
    for (int i = 0; i < c->count; i++)
        if (isfinite(number(&c->variants[i], path)) && number(&c->variants[i], path) > 0) return true;
    return false;
}

int sl_comparison_rows(const sl_comparison *c, sl_compared_row out[SL_COMPARED_ROWS])
{
    int count = 0;
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        if (facts[i].kind == SL_CELL_USE) {
            count = add_streams(c, out, count);
            continue;
        }
        if (facts[i].optional && !any_has(c, facts[i].path)) continue;
        out[count] = (sl_compared_row){ .path = facts[i].path, .kind = facts[i].kind, .part = facts[i].part };
        snprintf(out[count++].name, sizeof out->name, "%s", facts[i].name);
    }
    return count;
}

/* ---- a cell ---- */

static void write_traffic(const sl_compared *v, double bytes, char out[SL_COMPARED_CELL])
{
    char size[SL_HTML_NUMBER];
    double step = number(v, "step_seconds");
    snprintf(out, SL_COMPARED_CELL, "%s", sl_html_bytes(bytes > 0 ? (uint64_t)bytes : 0, size));
    if (bytes > 0 && step > 0) snprintf(out, SL_COMPARED_CELL, "%s, %.3g GB/s", size, bytes / step / 1e9);
}

static void write_loss(const sl_compared *v, const char *path, double mean, char out[SL_COMPARED_CELL])
{
    char key[64];
    snprintf(key, sizeof key, "%s_spread", path);
    if (number(v, "seeds") > 1 && isfinite(number(v, key)))
        snprintf(out, SL_COMPARED_CELL, "%.5g ± %.2g", mean, number(v, key));
    else
        snprintf(out, SL_COMPARED_CELL, "%.6g", mean);
}

static void write_use(const sl_compared *v, const char *stream, char out[SL_COMPARED_CELL])
{
    char a[SL_HTML_NUMBER], b[SL_HTML_NUMBER];
    double busy, exposed;
    if (!sl_compared_use(v, stream, &busy, &exposed)) return;
    snprintf(out, SL_COMPARED_CELL, "%s", sl_html_percent(busy, a));
    if (exposed > 0) snprintf(out, SL_COMPARED_CELL, "%s, %s exposed", a, sl_html_percent(exposed, b));
}

void sl_compared_cell(const sl_compared *v, const sl_compared_row *row, char out[SL_COMPARED_CELL])
{
    char a[SL_HTML_NUMBER], b[SL_HTML_NUMBER];
    double value = number(v, row->path);
    snprintf(out, SL_COMPARED_CELL, "–");
    if (row->kind == SL_CELL_WORDS)
        snprintf(out, SL_COMPARED_CELL, "%.90s", v->fits ? word(v, row->path) : "does not fit");
    else if (row->kind == SL_CELL_USE)
        write_use(v, row->path, out);
    else if (!isfinite(value))
        return;
    else if (row->kind == SL_CELL_SECONDS)
        sl_html_seconds(value, out);
    else if (row->kind == SL_CELL_RANGE)
        snprintf(out, SL_COMPARED_CELL, "%s .. %s", sl_html_seconds(value, a),
                 sl_html_seconds(number(v, "step_seconds_90"), b));
    else if (row->kind == SL_CELL_RATE)
        sl_html_rate(value, out);
    else if (row->kind == SL_CELL_SHARE)
        sl_html_percent(value, out);
    else if (row->kind == SL_CELL_BYTES)
        sl_html_bytes(count_of(v, row->path), out);
    else if (row->kind == SL_CELL_TRAFFIC)
        write_traffic(v, value, out);
    else
        write_loss(v, row->path, value, out);
}

/* ---- on a terminal ---- */

enum { NAME_COLUMNS = 28, CELL_COLUMNS = 24 };

/* At most `most` characters of a text. Signs that not every terminal has are written with others. Returns how many. */
static int write_plain(const char *text, int most, char *out, size_t bytes)
{
    static const char *const signs[][2] = { { "–", "-" }, { "µ", "u" }, { "±", "+-" } };
    size_t used = 0;
    int columns = 0;
    while (*text != '\0' && columns < most) {
        size_t length = 1, k = 0;
        while ((text[length] & 0xc0) == 0x80) length++;
        while (k < 3 && strncmp(text, signs[k][0], strlen(signs[k][0])) != 0) k++;
        const char *plain = k < 3 ? signs[k][1] : text;
        size_t wide = k < 3 ? strlen(plain) : length;
        if (used + wide >= bytes) break;
        memcpy(out + used, plain, wide);
        used += wide;
        columns += k < 3 ? (int)wide : 1;
        text += length;
    }
    out[used] = '\0';
    return columns;
}

static void print_cell(const char *text, FILE *out)
{
    char shown[4 * CELL_COLUMNS];
    int columns = write_plain(text, CELL_COLUMNS - 1, shown, sizeof shown);
    fprintf(out, "%*s%s", columns < CELL_COLUMNS ? CELL_COLUMNS - columns : 1, "", shown);
}

static void print_verdict(const sl_comparison *c, FILE *out)
{
    enum { MOST = 4096 };
    char shown[MOST];
    sl_text verdict = { .data = NULL };
    sl_comparison_judge(c, &verdict);
    if (sl_text_status(&verdict) == SLUICE_OK && verdict.bytes > 0) {
        write_plain(verdict.data, MOST, shown, sizeof shown);
        fprintf(out, "%s\n", shown);
    }
    sl_text_free(&verdict);
}

void sl_comparison_print(const sl_comparison *c, FILE *out)
{
    sl_compared_row rows[SL_COMPARED_ROWS];
    char cell[SL_COMPARED_CELL];
    int count = sl_comparison_rows(c, rows);
    sl_comparison_describe(c, cell, sizeof cell);
    fprintf(out, "%s\n%*s", cell, NAME_COLUMNS, "");
    for (int k = 0; k < c->count; k++) print_cell(c->variants[k].name, out);
    fprintf(out, "\n");
    for (int i = 0; i < count; i++) {
        fprintf(out, "%s%-*s", rows[i].part ? "  " : "", NAME_COLUMNS - (rows[i].part ? 2 : 0), rows[i].name);
        for (int k = 0; k < c->count; k++) {
            sl_compared_cell(&c->variants[k], &rows[i], cell);
            print_cell(cell, out);
        }
        fprintf(out, "\n");
    }
    print_verdict(c, out);
}

/* ---- for others ---- */

static sluice_status try_page(const char *page)
{
    sl_target target;
    if (page == NULL) return SLUICE_OK;
    SL_TRY(sl_target_find(page, &target));
    return sl_target_try(&target);
}

static sluice_status write_page(const sl_comparison *c, const char *path)
{
    sl_text page = { .data = NULL };
    sluice_status st = sl_comparison_page(c, &page);
    if (st == SLUICE_OK) st = sl_file_replace(path, page.data, page.bytes);
    sl_text_free(&page);
    return st;
}

sluice_status sluice_comparison_show(const char *lines, FILE *out, const char *page)
{
    sl_comparison c;
    if (page != NULL && page[0] == '\0') return sl_fail(SLUICE_ERR_USAGE, "the page of a comparison has no file name");
    if (lines == NULL) return try_page(page);
    SL_TRY(sl_comparison_read(lines, &c));
    if (out != NULL) sl_comparison_print(&c, out);
    sluice_status st = page != NULL ? write_page(&c, page) : SLUICE_OK;
    sl_comparison_free(&c);
    return st;
}
