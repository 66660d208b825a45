/* page_tables.c: layers, events, machine and configuration. */
#include <math.h>
#include <string.h>

#include "report/page.h"

#define MOST_LAYERS 600

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s != NULL ? s : "";
}

/* ---- layers ---- */

static const char *const layer_times[] = { "forward", "backward", "update", "moves" };
enum { LAYER_TIMES = sizeof layer_times / sizeof layer_times[0], KERNEL_TIMES = 3 };

static double kernel_seconds(const json_t *layer)
{
    double sum = 0;
    for (int i = 0; i < KERNEL_TIMES; i++) sum += fmax(0, sl_profile_best(layer, layer_times[i]));
    return sum;
}

/* What counts, and below it what was predicted where that is not the same. */
static void add_time(const sl_page *p, const json_t *layer, const char *key)
{
    char path[64], a[SL_HTML_NUMBER], b[SL_HTML_NUMBER];
    double best = sl_profile_best(layer, key);
    snprintf(path, sizeof path, "%s.predicted", key);
    double predicted = sl_profile_number(layer, path);
    bool both = json_is_number(json_object_get(json_object_get(layer, key), "measured"));
    if (!(best > 0) && !(predicted > 0)) {
        sl_text_add(p->out, "<td></td>");
        return;
    }
    sl_text_add(p->out, "<td>%s%s%s%s</td>", sl_html_seconds(best, a), both ? "<small>" : "",
                both ? sl_html_seconds(predicted, b) : "", both ? "</small>" : "");
}

/* all: seconds of all layers; most: of the longest, whose bar is full. */
static void add_layer(const sl_page *p, const json_t *layer, double all, double most)
{
    char a[SL_HTML_NUMBER], b[SL_HTML_NUMBER];
    double parameters = sl_profile_number(layer, "parameters"), share = all > 0 ? kernel_seconds(layer) / all : 0;
    const char *state = text_of(layer, "state_on");
    sl_text_add(p->out, "<tr><th scope=\"row\">");
    sl_html_add(p->out, text_of(layer, "name"));
    sl_text_add(p->out, "</th><td>%s</td><td>%s</td>", parameters > 0 ? sl_html_count((uint64_t)parameters, a) : "",
                parameters > 0 ? sl_html_bytes((uint64_t)sl_profile_number(layer, "parameter_bytes"), b) : "");
    sl_page_add_cell(p, text_of(layer, "parameters_on"));
    sl_page_add_cell(p, parameters > 0 && json_is_false(json_object_get(layer, "trained")) ? "frozen" : state);
    sl_page_add_cell(p, text_of(layer, "activations"));
    for (int i = 0; i < LAYER_TIMES; i++) add_time(p, layer, layer_times[i]);
    sl_text_add(p->out, "<td class=\"share\"><span style=\"width:%.4g%%\"></span>%s</td></tr>\n",
                100 * share * all / (most > 0 ? most : 1), sl_html_percent(share, a));
}

void sl_page_add_layers(const sl_page *p)
{
    size_t i;
    json_t *layer;
    double all = 0, most = 0;
    const json_t *layers = json_object_get(p->profile, "layers");
    bool measured = json_is_true(json_object_get(p->profile, "measured"));
    if (json_array_size(layers) == 0) return;
    json_array_foreach(layers, i, layer)
    {
        all += kernel_seconds(layer);
        most = fmax(most, kernel_seconds(layer));
    }
    sl_text_add(
        p->out,
        "<section id=\"layers\"><h2>Layers</h2>\n<p class=\"note\">Of rank %d. Times are of kernels in one step, %s; "
        "transfers run beside them.</p>\n",
        (int)sl_profile_number(p->profile, "rank"), measured ? "measured, and predicted below" : "predicted");
    sl_page_add_scroll(p, "layers");
    sl_text_add(p->out,
                "<table class=\"layers\"><thead><tr><th scope=\"col\">layer</th><th scope=\"col\">parameters</th><th "
                "scope=\"col\">size</th><th scope=\"col\" class=\"t\">parameters on</th><th scope=\"col\" "
                "class=\"t\">state on</th><th scope=\"col\" class=\"t\">activations</th><th scope=\"col\">forward</th>"
                "<th scope=\"col\">backward</th><th scope=\"col\">update</th><th scope=\"col\">transfers</th><th "
                "scope=\"col\">share</th></tr></thead><tbody>\n");
    json_array_foreach(layers, i, layer) if (i < MOST_LAYERS) add_layer(p, layer, all, most);
    sl_text_add(p->out, "</tbody></table></div>");
    if (json_array_size(layers) > MOST_LAYERS)
        sl_text_add(p->out, "<p class=\"note\">%zu more layers are not in the table.</p>",
                    json_array_size(layers) - MOST_LAYERS);
    sl_text_add(p->out, "</section>\n");
}

/* ---- events ---- */

static bool has_times(const sl_run_record *r)
{
    for (size_t i = 0; i < r->note_count; i++)
        if (r->notes[i].time[0] != '\0') return true;
    return false;
}

static void add_note(const sl_page *p, const sl_recorded_note *n, bool times)
{
    char step[SL_HTML_NUMBER];
    bool alarm = strcmp(n->kind, "warning") == 0 || strcmp(n->kind, "failed") == 0 || strcmp(n->kind, "stopped") == 0;
    sl_text_add(p->out, "<tr%s><td>%s</td>", alarm ? " class=\"alarm\"" : "", sl_html_count(n->step, step));
    if (times) sl_page_add_cell(p, n->time);
    sl_page_add_cell(p, n->kind);
    sl_page_add_cell(p, n->text);
    sl_text_add(p->out, "</tr>\n");
}

void sl_page_add_events(const sl_page *p)
{
    const sl_run_record *r = p->record;
    char a[SL_HTML_NUMBER];
    if (r->outcome == SL_RUN_PLANNED) return;
    sl_text_add(p->out, "<section id=\"events\"><h2>Events</h2>\n");
    if (r->repeated_steps > 0)
        sl_text_add(p->out,
                    "<p class=\"note\">%s steps were lost and repeated after a restart; shown is what counts.</p>",
                    sl_html_count(r->repeated_steps, a));
    if (r->unread_lines > 0)
        sl_text_add(p->out, "<p class=\"note\">%s lines of the log are no whole events and were left out.</p>",
                    sl_html_count(r->unread_lines, a));
    if (r->note_count == 0) sl_text_add(p->out, "<p>No saves, warnings or restarts are recorded.</p>");
    if (r->note_count > 0) {
        sl_page_add_scroll(p, "events");
        sl_text_add(p->out,
                    "<table><thead><tr><th scope=\"col\">step</th>%s<th scope=\"col\" class=\"t\">what</th><th "
                    "scope=\"col\" class=\"t\"></th></tr></thead><tbody>\n",
                    has_times(r) ? "<th scope=\"col\" class=\"t\">time</th>" : "");
        for (size_t i = 0; i < r->note_count; i++) add_note(p, &r->notes[i], has_times(r));
        sl_text_add(p->out, "</tbody></table></div>");
    }
    if (r->notes_left_out > 0)
        sl_text_add(p->out, "<p class=\"note\">%zu later ones are left out.</p>", r->notes_left_out);
    sl_text_add(p->out, "</section>\n");
}

/* ---- keys and values ---- */

static void add_value(const sl_page *p, const char *key, const json_t *value)
{
    char *text = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    sl_text_add(p->out, "<tr><th scope=\"row\">");
    sl_html_add(p->out, key);
    sl_text_add(p->out, "</th><td class=\"t\">");
    sl_html_add(p->out, json_is_string(value) ? json_string_value(value) : text != NULL ? text : "");
    sl_text_add(p->out, "</td></tr>\n");
    sl_json_free_text(text);
}

/* Objects inside objects become dotted keys. */
static void add_values(const sl_page *p, const char *prefix, json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        char key[256];
        snprintf(key, sizeof key, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", name);
        if (json_is_object(value) && json_object_size(value) > 0 && strlen(key) < 200)
            add_values(p, key, value);
        else
            add_value(p, key, value);
    }
}

static json_t *run_event(const sl_page *p)
{
    json_t *o = NULL;
    const char *text = p->record->run_event;
    if (text == NULL || sl_json_parse(text, strlen(text), "log", SLUICE_ERR_INPUT, &o) != SLUICE_OK) return NULL;
    return o;
}

/* How a number of the profile is shown. */
typedef enum { PLAIN, BYTES, FLOPS, BANDWIDTH } fact_unit;

static const struct {
    const char *path, *name;
    fact_unit unit;
} machine_facts[] = {
    { "device", "device", PLAIN },
    { "threads", "threads", PLAIN },
    { "ranks", "ranks", PLAIN },
    { "stage", "ZeRO stage", PLAIN },
    { "micro_batches", "micro-batches of a rank in a step", PLAIN },
    { "precision", "precision", PLAIN },
    { "parameters", "parameters", PLAIN },
    { "operations", "operations of the plan", PLAIN },
    { "overhead_bytes", "outside the arenas", BYTES },
    { "device_overhead_bytes", "outside the arena, on the device", BYTES },
    { "machine.gemm_flops", "matrix products", FLOPS },
    { "machine.gemm_16bit_flops", "matrix products in 16 bits", FLOPS },
    { "machine.vector_flops", "other kernels", FLOPS },
    { "machine.device_bytes_per_second", "memory of the device", BANDWIDTH },
    { "machine.update_bytes_per_second", "updates on the host", BANDWIDTH },
    { "machine.to_device_bytes_per_second", "to device", BANDWIDTH },
    { "machine.to_host_bytes_per_second", "to host", BANDWIDTH },
    { "machine.comm_bytes_per_second", "between ranks", BANDWIDTH },
    { "version", "sluice", PLAIN },
};

static void add_fact(const sl_page *p, const char *path, const char *name, fact_unit unit)
{
    char text[SL_HTML_NUMBER + 16] = "", number[SL_HTML_NUMBER];
    const char *own = json_string_value(json_object_get(p->profile, path));
    double v = sl_profile_number(p->profile, path);
    if (own == NULL && !(v > 0)) return;
    if (own != NULL)
        text[0] = '\0'; /* a word of its own, and v is no number */
    else if (unit == BYTES)
        snprintf(text, sizeof text, "%s", sl_html_bytes((uint64_t)v, number));
    else if (unit == PLAIN)
        snprintf(text, sizeof text, "%s", sl_html_count((uint64_t)v, number));
    else
        snprintf(text, sizeof text, "%.4g %s", unit == FLOPS ? v / 1e12 : v / 1e9, unit == FLOPS ? "TFLOP/s" : "GB/s");
    sl_text_add(p->out, "<tr><th scope=\"row\">%s</th><td class=\"t\">", name);
    sl_html_add(p->out, own != NULL ? own : text);
    sl_text_add(p->out, "</td></tr>\n");
}

void sl_page_add_machine(const sl_page *p)
{
    json_t *event = run_event(p), *told = json_object_get(event, "machine");
    if (p->profile == NULL && told == NULL) {
        json_decref(event);
        return;
    }
    sl_text_add(p->out, "<section id=\"machine\"><h2>Machine</h2>\n<p class=\"note\">Rates are those that the plan was "
                        "made with.</p>\n");
    sl_page_add_scroll(p, "machine");
    sl_text_add(p->out, "<table class=\"keys\"><tbody>\n");
    for (size_t i = 0; i < sizeof machine_facts / sizeof machine_facts[0]; i++)
        add_fact(p, machine_facts[i].path, machine_facts[i].name, machine_facts[i].unit);
    if (json_is_object(told)) add_values(p, "", told);
    sl_text_add(p->out, "</tbody></table></div></section>\n");
    json_decref(event);
}

void sl_page_add_configuration(const sl_page *p)
{
    json_t *event = run_event(p), *keys = json_object_get(p->profile, "configuration");
    if (!json_is_object(keys)) keys = json_object_get(event, "configuration");
    if (!json_is_object(keys)) keys = json_object_get(event, "config");
    if (json_is_object(keys)) {
        sl_text_add(p->out,
                    "<section id=\"configuration\"><h2>Configuration</h2>\n<details><summary>Every key with its value"
                    "</summary>");
        sl_page_add_scroll(p, "configuration");
        sl_text_add(p->out, "<table class=\"keys\"><tbody>\n");
        add_values(p, "", keys);
        sl_text_add(p->out, "</tbody></table></div></details></section>\n");
    }
    json_decref(event);
}
