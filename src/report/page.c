/* page.c: see page.h. */
#include "report/page.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "report/thin.h"

/* ---- reading a profile ---- */

double sl_profile_number(const json_t *o, const char *path)
{
    char key[64];
    for (const char *dot; (dot = strchr(path, '.')) != NULL; path = dot + 1) {
        snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
        o = json_object_get(o, key);
    }
    const json_t *v = json_object_get(o, path);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

double sl_profile_best(const json_t *o, const char *key)
{
    const json_t *pair = json_object_get(o, key);
    double measured = sl_profile_number(pair, "measured");
    return isfinite(measured) ? measured : sl_profile_number(pair, "predicted");
}

/* ---- what all pages have ---- */

void sl_page_begin(const sl_page *p, const char *when)
{
    sl_text_add(
        p->out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
        "<meta name=\"color-scheme\" content=\"light dark\"/>\n<meta name=\"generator\" content=\"sluice %s\"/>\n"
        "<title>",
        sluice_version());
    sl_html_add(p->out, p->name);
    sl_text_add(p->out, " · sluice</title>\n<style>\n");
    sl_text_add_bytes(p->out, sl_page_css, strlen(sl_page_css));
    sl_text_add(p->out, "</style></head>\n<body>\n<header><h1>");
    sl_html_add(p->out, p->name);
    sl_text_add(p->out, "</h1>");
    if (when[0] != '\0') {
        sl_text_add(p->out, "<p class=\"when\">");
        sl_html_add(p->out, when);
        sl_text_add(p->out, "</p>");
    }
    sl_text_add(p->out, "</header>\n<main>\n");
}

void sl_page_end(const sl_page *p, const sl_text *data)
{
    sl_text_add(p->out,
                "</main>\n<footer><p>Made by sluice %s. In a chart: drag or <kbd>+</kbd> <kbd>−</kbd> zoom, arrow "
                "keys read values, <kbd>Esc</kbd> shows all.</p></footer>\n"
                "<div id=\"tip\" role=\"status\" aria-live=\"polite\"></div>\n",
                sluice_version());
    sl_text_add(p->out, "<script type=\"application/json\" id=\"data\">");
    sl_html_add_json(p->out, data->data);
    sl_text_add(p->out, "</script>\n<script>\n");
    sl_text_add_bytes(p->out, sl_page_js, strlen(sl_page_js));
    sl_text_add(p->out, "</script>\n</body></html>\n");
}

void sl_page_add_tile(const sl_page *p, const char *name, const char *value, const char *more)
{
    sl_text_add(p->out, "<div><dt>");
    sl_html_add(p->out, name);
    sl_text_add(p->out, "</dt><dd>");
    sl_html_add(p->out, value);
    if (more[0] != '\0') {
        sl_text_add(p->out, "<small>");
        sl_html_add(p->out, more);
        sl_text_add(p->out, "</small>");
    }
    sl_text_add(p->out, "</dd></div>\n");
}

void sl_page_add_cell(const sl_page *p, const char *text)
{
    sl_text_add(p->out, "<td class=\"t\">");
    sl_html_add(p->out, text);
    sl_text_add(p->out, "</td>");
}

void sl_page_add_scroll(const sl_page *p, const char *label)
{
    sl_text_add(p->out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\">", label);
}

void sl_page_add_number(sl_text *data, const char *between, double value)
{
    char digits[SL_JSON_DIGITS];
    sl_json_digits(value, digits);
    sl_text_add(data, "%s%s", between, digits);
}

/* ---- the numbers, for the script and for programs ---- */

/* Whatever the journal has in its place. */
static void add_hash(sl_text *out, const char *key, const char *hash)
{
    if (hash[0] == '\0') return;
    sl_text_add(out, ",\"%s\":", key);
    sl_text_add_string(out, hash);
}

static void add_sums(sl_text *out, const char *key, const sl_recorded_sums *s)
{
    if (!s->known) return;
    sl_text_add(out, ",\n\"%s\":{\"steps\":%llu,\"ranks\":%llu,\"stage\":%llu,\"parameters\":%llu", key,
                (unsigned long long)s->steps, (unsigned long long)s->ranks, (unsigned long long)s->stage,
                (unsigned long long)s->parameters);
    sl_text_add(out, ",\"peak_bytes\":{\"device\":%llu,\"host\":%llu,\"disk\":%llu}", (unsigned long long)s->peak[0],
                (unsigned long long)s->peak[1], (unsigned long long)s->peak[2]);
    sl_text_add(out, ",\"moved_bytes\":{\"to_device\":%llu,\"to_host\":%llu,\"disk_read\":%llu,\"disk_write\":%llu}",
                (unsigned long long)s->moved[0], (unsigned long long)s->moved[1], (unsigned long long)s->moved[2],
                (unsigned long long)s->moved[3]);
    sl_text_add(out, ",\"comm_bytes\":{\"gather\":%llu,\"reduce\":%llu,\"norm\":%llu}", (unsigned long long)s->comm[0],
                (unsigned long long)s->comm[1], (unsigned long long)s->comm[2]);
    sl_page_add_number(out, ",\"step_seconds\":", s->step_seconds);
    sl_page_add_number(out, ",\"tokens_per_second\":", s->tokens_per_second);
    sl_page_add_number(out, ",\"mfu\":", s->mfu);
    add_hash(out, "weights_sha256", s->weights_sha256);
    add_hash(out, "state_sha256", s->state_sha256);
    sl_text_add(out, "}");
}

static void add_steps(const sl_page *p, sl_text *out)
{
    sl_text_add(out, ",\n\"columns\":[\"step\",\"loss\",\"lr\",\"grad_norm\",\"seconds\",\"rate\"],\n\"steps\":[");
    for (size_t i = 0; i < p->shown_count; i++) {
        const sl_recorded_step *s = &p->record->steps[p->shown[i]];
        sl_text_add(out, "%s[%llu", i > 0 ? "," : "", (unsigned long long)s->step);
        sl_page_add_number(out, ",", s->loss);
        sl_page_add_number(out, ",", s->lr);
        sl_page_add_number(out, ",", s->gradient_norm);
        sl_page_add_number(out, ",", s->seconds);
        sl_page_add_number(out, ",", s->rate);
        sl_text_add(out, "]");
    }
    sl_text_add(out, "],\n\"evals\":[");
    for (size_t i = 0, stride = p->record->eval_count / 2000 + 1, n = 0; i < p->record->eval_count; i += stride) {
        const sl_recorded_eval *e = &p->record->evals[i];
        sl_text_add(out, "%s[%llu", n++ > 0 ? "," : "", (unsigned long long)e->step);
        sl_page_add_number(out, ",", e->loss);
        sl_page_add_number(out, ",", e->accuracy);
        sl_text_add(out, ",%s]", e->best ? "true" : "false");
    }
    sl_text_add(out, "]");
}

static void add_profile(const sl_page *p, sl_text *out)
{
    char *text = p->profile != NULL ? json_dumps(p->profile, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    if (text != NULL) sl_text_add(out, ",\n\"profile\":%s", text);
    sl_json_free_text(text);
}

static void make_data(const sl_page *p, sl_text *json)
{
    static const char *const outcomes[] = { "planned", "running", "finished", "stopped", "failed", "dead" };
    const sl_run_record *r = p->record;
    sl_text_add(json,
                "{\"outcome\":\"%s\",\"step_count\":%zu,\"starts\":%llu,\"repeated_steps\":%llu,\"rate_unit\":\"%s\"",
                outcomes[r->outcome], r->step_count, (unsigned long long)r->starts,
                (unsigned long long)r->repeated_steps, r->rate_is_samples ? "samples/s" : "tokens/s");
    if (r->run_id[0] != '\0') {
        sl_text_add(json, ",\"run\":");
        sl_text_add_string(json, r->run_id);
    }
    add_sums(json, "plan", &r->plan);
    add_sums(json, "end", &r->end);
    add_steps(p, json);
    add_profile(p, json);
    sl_text_add(json, "}");
}

/* ---- the page ---- */

static void add_missing(const sl_page *p)
{
    if (p->profile != NULL) return;
    sl_text_add(p->out,
                "<p class=\"note\">This run has no profile (profile.json in its folder), so that the timeline of a "
                "step, its memory and its layers are not shown.</p>\n");
}

static void begin(const sl_page *p)
{
    char when[80] = "";
    if (p->record->first_time[0] != '\0')
        snprintf(when, sizeof when, "%s to %s", p->record->first_time, p->record->last_time);
    sl_page_begin(p, when);
}

sluice_status sl_page_write(const sl_run_record *record, json_t *profile, const char *name, sl_text *out)
{
    sl_text data = { .data = NULL };
    sl_page p = { .out = out, .record = record, .profile = profile, .name = name };
    if (record->step_count > 0) SL_TRY(sl_thin_steps(record->steps, record->step_count, &p.shown, &p.shown_count));
    begin(&p);
    sl_page_add_verdict(&p);
    sl_page_add_curves(&p);
    sl_page_add_step(&p);
    sl_page_add_memory(&p);
    sl_page_add_layers(&p);
    add_missing(&p);
    sl_page_add_events(&p);
    sl_page_add_machine(&p);
    sl_page_add_configuration(&p);
    make_data(&p, &data);
    sluice_status st = sl_text_status(&data);
    if (st == SLUICE_OK) sl_page_end(&p, &data);
    sl_text_free(&data);
    sl_free(p.shown);
    SL_TRY(st);
    return sl_text_status(out);
}
