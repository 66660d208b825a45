/* machine_file.c: a machine as a file, so that a plan can be made for one that is not here.
 *
 * One table names the members; reading and writing both follow it. Four are essential: how fast products are, how fast
 * and how large the memories. Other general rates follow from these where they are left out; what only a measurement knows
 * has the general rates stand in for it, and those of f32 for those of 16 bits. A member that is not known is an error, and
 * so is a number that no machine has: a plan from other units would look as good as any. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/output.h"
#include "format/json.h"
#include "format/text_buffer.h"
#include "machine/known.h"
#include "machine/machine.h"

#define MACHINE_FORMAT    1
#define MAX_MACHINE_BYTES ((size_t)1 << 20)

typedef enum { RATE, LATENCY, CAPACITY, FLAG, FACTOR, COUNT, PATH, NAME, FOLDERS, POINTS, KERNELS } member_kind;

/* ESSENTIAL: without it there is no description. GENERAL: otherwise it follows from the others (fill_general). MEASURED: only
 * a measurement, or a GPU, has it. */
typedef enum { ESSENTIAL, GENERAL, MEASURED } member_need;

typedef struct member {
    const char *name;
    member_kind kind;
    size_t offset; /* in sl_machine_description */
    member_need need;
} member;

#define AT(field_) offsetof(sl_machine_description, field_)

static const member members[] = {
    { "gemm_flops", RATE, AT(rates.gemm_flops), ESSENTIAL },
    { "gemm_16bit_flops", RATE, AT(rates.gemm_16bit_flops), MEASURED },
    { "attention_fraction", RATE, AT(rates.attention_fraction), MEASURED },
    { "vector_flops", RATE, AT(rates.vector_flops), GENERAL },
    { "device_bytes_per_second", RATE, AT(rates.device_bytes_per_second), ESSENTIAL },
    { "update_bytes_per_second", RATE, AT(rates.update_bytes_per_second), GENERAL },
    { "to_device_bytes_per_second", RATE, AT(rates.link_bytes_per_second[SL_LINK_TO_DEVICE]), GENERAL },
    { "to_host_bytes_per_second", RATE, AT(rates.link_bytes_per_second[SL_LINK_TO_HOST]), GENERAL },
    { "disk_read_bytes_per_second", RATE, AT(rates.link_bytes_per_second[SL_LINK_DISK_READ]), MEASURED },
    { "disk_write_bytes_per_second", RATE, AT(rates.link_bytes_per_second[SL_LINK_DISK_WRITE]), MEASURED },
    { "comm_bytes_per_second", RATE, AT(rates.comm_bytes_per_second), GENERAL },
    { "link_latency", LATENCY, AT(rates.link_latency), GENERAL },
    { "kernel_latency", LATENCY, AT(rates.kernel_latency), GENERAL },
    { "comm_latency", LATENCY, AT(rates.comm_latency), GENERAL },
    { "disk_latency", LATENCY, AT(rates.disk_latency), MEASURED },
    { "disk_read_slowdown", FACTOR, AT(rates.disk_read_slowdown), MEASURED },
    { "disk_write_slowdown", FACTOR, AT(rates.disk_write_slowdown), MEASURED },
    { "disk_processor", FACTOR, AT(rates.disk_processor), MEASURED },
    { "device_bytes", CAPACITY, AT(rates.capacity[SL_TIER_DEVICE]), ESSENTIAL },
    { "host_bytes", CAPACITY, AT(rates.capacity[SL_TIER_HOST]), ESSENTIAL },
    { "disk_bytes", CAPACITY, AT(rates.capacity[SL_TIER_DISK]), MEASURED },
    { "shared_memory", FLAG, AT(shared_memory), GENERAL },
    { "pinnable_bytes", CAPACITY, AT(pinnable_bytes), MEASURED },
    { "cuda", FLAG, AT(is_cuda), MEASURED },
    { "gpu", NAME, AT(gpu), MEASURED },
    { "disk_folders", FOLDERS, AT(disk_folders), MEASURED },
    { "gpus_meet", FLAG, AT(gpus_meet), MEASURED },
    { "copies_overlap", FLAG, AT(rates.copies_overlap), GENERAL },
    { "measured_ranks", COUNT, AT(ranks), MEASURED },
    { "measured_threads", COUNT, AT(threads), MEASURED },
    { "instruction_path", PATH, AT(isa), MEASURED },
    { "kernels_take_turns", FLAG, AT(rates.kernels_take_turns), MEASURED },
    { "kernel_slowdown", FACTOR, AT(rates.kernel_slowdown), MEASURED },
    { "move_slowdown", FACTOR, AT(rates.move_slowdown), MEASURED },
    { "update_slowdown", FACTOR, AT(rates.update_slowdown), MEASURED },
    { "move_update_slowdown", FACTOR, AT(rates.move_update_slowdown), MEASURED },
    { "to_device", POINTS, AT(rates.copies[SL_LINK_TO_DEVICE]), MEASURED },
    { "to_host", POINTS, AT(rates.copies[SL_LINK_TO_HOST]), MEASURED },
    { "disk_read", POINTS, AT(rates.copies[SL_LINK_DISK_READ]), MEASURED },
    { "disk_write", POINTS, AT(rates.copies[SL_LINK_DISK_WRITE]), MEASURED },
    { "disk_read_beside", POINTS, AT(rates.disk_beside[0]), MEASURED },
    { "disk_write_beside", POINTS, AT(rates.disk_beside[1]), MEASURED },
    { "gather", POINTS, AT(rates.gather), MEASURED },
    { "reduce_scatter", POINTS, AT(rates.reduce), MEASURED },
    { "kernels", KERNELS, AT(rates.kernels[SL_RATE_F32]), MEASURED },
    { "kernels_16bit", KERNELS, AT(rates.kernels[SL_RATE_16BIT]), MEASURED },
    { "host_kernels", KERNELS, AT(rates.host_kernels), MEASURED },
    { "update_16bit_states", POINTS, AT(rates.narrow_updates[0][0]), MEASURED },
    { "update_compact_states", POINTS, AT(rates.narrow_updates[0][1]), MEASURED },
    { "host_update_16bit_states", POINTS, AT(rates.narrow_updates[1][0]), MEASURED },
    { "host_update_compact_states", POINTS, AT(rates.narrow_updates[1][1]), MEASURED },
};
enum { MEMBER_COUNT = sizeof members / sizeof members[0] };

static const char *const expected[] = {
    [RATE] = "a number above 0",
    [LATENCY] = "a number of seconds, 0 or more",
    [CAPACITY] = "a whole number of bytes, or text such as \"20GiB\"",
    [FLAG] = "true or false",
    [FACTOR] = "a number, 0 or more",
    [COUNT] = "a whole number above 0",
    [PATH] = "\"scalar\", \"avx2\", \"avx512\" or \"amx\"",
    [NAME] = "text of at most 63 bytes",
    [FOLDERS] = "text of at most 1023 bytes",
    [POINTS] = "a list of 1 to 8 pairs [work, seconds], both above 0, the work increasing",
    [KERNELS] = "an object with a list of points for each kernel",
};
_Static_assert(SL_RATE_POINTS == 8, "the text above says 8");

/* ---- reading ---- */

typedef struct source {
    const char *path, *text;
    size_t bytes;
    json_t *root;
} source;

static bool read_capacity(const json_t *json, uint64_t *out)
{
    if (json_is_string(json)) return sl_parse_bytes(json_string_value(json), out);
    if (!json_is_integer(json) || json_integer_value(json) < 0) return false;
    *out = (uint64_t)json_integer_value(json);
    return true;
}

static bool read_count(const json_t *json, int *out)
{
    json_int_t value = json_integer_value(json);
    if (!json_is_integer(json) || value < 1 || value > INT32_MAX) return false;
    *out = (int)value;
    return true;
}

static bool read_path(const json_t *json, sl_isa *out)
{
    for (int i = 0; json_is_string(json) && i < SL_ISA_COUNT; i++) {
        if (strcmp(json_string_value(json), sl_isa_name((sl_isa)i)) != 0) continue;
        *out = (sl_isa)i;
        return true;
    }
    return false;
}

static bool read_positive(const json_t *json, double *out)
{
    *out = json_number_value(json);
    return json_is_number(json) && isfinite(*out) && *out > 0;
}

static bool read_points(const json_t *json, sl_rates *out)
{
    size_t count = json_array_size(json);
    if (!json_is_array(json) || count < 1 || count > SL_RATE_POINTS) return false;
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(json, i);
        sl_rate_point *p = &out->points[i];
        if (json_array_size(pair) != 2 || !read_positive(json_array_get(pair, 0), &p->work) ||
            !read_positive(json_array_get(pair, 1), &p->seconds) || (i > 0 && p->work <= p[-1].work))
            return false;
    }
    out->count = (int)count;
    return true;
}

static bool store(const member *m, const json_t *json, sl_machine_description *d)
{
    void *field = (char *)d + m->offset;
    double value = json_number_value(json);
    switch (m->kind) {
    case CAPACITY:
        return read_capacity(json, field);
    case FLAG:
        *(bool *)field = json_is_true(json);
        return json_is_boolean(json);
    case COUNT:
        return read_count(json, field);
    case PATH:
        return read_path(json, field);
    case NAME:
        return json_is_string(json) &&
               snprintf(field, sizeof d->gpu, "%s", json_string_value(json)) < (int)sizeof d->gpu;
    case FOLDERS:
        return json_is_string(json) &&
               snprintf(field, sizeof d->disk_folders, "%s", json_string_value(json)) < (int)sizeof d->disk_folders;
    case POINTS:
        return read_points(json, field);
    case KERNELS:
        return json_is_object(json);
    case RATE:
        return read_positive(json, field);
    default:
        *(double *)field = value;
        return json_is_number(json) && isfinite(value) && value >= 0;
    }
}

static sluice_status read_member(const source *s, const member *m, sl_machine_description *d)
{
    const json_t *json = json_object_get(s->root, m->name);
    if (json == NULL) return SLUICE_OK;
    if (store(m, json, d)) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s:%d: %s must be %s", s->path, sl_json_key_line(s->text, s->bytes, m->name),
                   m->name, expected[m->kind]);
}

static sluice_status read_kernels(const source *s, const member *m, sl_machine_description *d)
{
    sl_rates *kernels = (sl_rates *)(void *)((char *)d + m->offset);
    const char *name;
    json_t *points;
    json_object_foreach(json_object_get(s->root, m->name), name, points)
    {
        char key[160];
        int op = 0;
        while (op < SL_OP_COUNT && strcmp(sl_ops[op].name, name) != 0) op++;
        snprintf(key, sizeof key, "%s.%.100s", m->name, name);
        int line = sl_json_key_line(s->text, s->bytes, key);
        if (op == SL_OP_COUNT) return sl_fail(SLUICE_ERR_INPUT, "%s:%d: unknown key \"%s\"", s->path, line, key);
        if (!read_points(points, &kernels[op]))
            return sl_fail(SLUICE_ERR_INPUT, "%s:%d: %s must be %s", s->path, line, key, expected[POINTS]);
    }
    return SLUICE_OK;
}

static sluice_status check_names(const source *s)
{
    const char *name;
    json_t *json;
    json_object_foreach(s->root, name, json)
    {
        bool known = strcmp(name, "sluice_machine") == 0;
        for (int i = 0; i < MEMBER_COUNT; i++) known = known || strcmp(members[i].name, name) == 0;
        if (!known)
            return sl_fail(SLUICE_ERR_INPUT, "%s:%d: unknown key \"%.100s\"", s->path,
                           sl_json_key_line(s->text, s->bytes, name), name);
    }
    return SLUICE_OK;
}

/* All that are missing at once. */
static sluice_status check_missing(const source *s)
{
    char names[256] = "";
    for (int i = 0; i < MEMBER_COUNT; i++) {
        size_t used = strlen(names);
        if (members[i].need != ESSENTIAL || json_object_get(s->root, members[i].name) != NULL) continue;
        snprintf(names + used, sizeof names - used, "%s\"%s\", %s", used > 0 ? "; " : "", members[i].name,
                 expected[members[i].kind]);
    }
    if (names[0] == '\0') return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s: missing: %s. Everything else may be left out", s->path, names);
}

/* ---- what is left out, and what cannot be ---- */

static bool has(const source *s, const char *name)
{
    return json_object_get(s->root, name) != NULL;
}

static void fill_rate(const source *s, const char *name, double value, double *rate)
{
    if (!has(s, name)) *rate = value;
}

/* What a description leaves out follows from the rest: a GPU's as those of its class usually are. */
static void fill_general(const source *s, sl_machine_description *d)
{
    sl_machine *m = &d->rates;
    double *link = m->link_bytes_per_second;
    fill_rate(s, "vector_flops", d->is_cuda ? m->gemm_flops : m->gemm_flops / 8, &m->vector_flops);
    fill_rate(s, "update_bytes_per_second", d->is_cuda ? 40e9 : m->device_bytes_per_second,
              &m->update_bytes_per_second);
    fill_rate(s, "to_device_bytes_per_second",
              has(s, "to_host_bytes_per_second") ? link[SL_LINK_TO_HOST]
              : d->is_cuda                       ? 25e9
                                                 : 8e9,
              &link[SL_LINK_TO_DEVICE]);
    fill_rate(s, "to_host_bytes_per_second", link[SL_LINK_TO_DEVICE], &link[SL_LINK_TO_HOST]);
    fill_rate(s, "comm_bytes_per_second", link[SL_LINK_TO_HOST] / 2, &m->comm_bytes_per_second);
    fill_rate(s, "link_latency", d->is_cuda ? 10e-6 : 2e-6, &m->link_latency);
    fill_rate(s, "kernel_latency", d->is_cuda ? 3e-6 : 2e-6, &m->kernel_latency);
    if (!has(s, "shared_memory")) d->shared_memory = !d->is_cuda;
}

/* A file holds no shares: those of a GPU that was measured are its kind's, for ops that were not. Where the file says what
 * attention reaches, that holds. */
static void fill_shares(sl_machine_description *d)
{
    sl_machine *m = &d->rates;
    const double attention = m->attention_fraction;
    if (!d->is_cuda || d->ranks == 0) return;
    sl_known_shares(sl_known_kernels(d->gpu), m);
    if (attention == 1) return;
    m->attention_fraction = attention;
    m->share[SL_OP_ATTENTION] = m->share[SL_OP_ATTENTION_GRAD] = 1;
    m->narrow_heads = 1;
}

/* Bounds that no machine is beyond: a number outside is in other units. By kind; the fraction is no rate of a machine. */
static const struct {
    double least, most;
    const char *advice;
} magnitudes[] = {
    [RATE] = { 1e6, 1e18, "rates are per second, in bytes or operations: 55 GB/s is 5.5e10, 989 TFLOP/s is 9.89e14" },
    [LATENCY] = { 0, 1, "latencies are in seconds: 30 microseconds are 3e-5" },
};

static sluice_status check_magnitudes(const source *s, const sl_machine_description *d)
{
    for (int i = 0; i < MEMBER_COUNT; i++) {
        const member *m = &members[i];
        bool counts = (m->kind == RATE || m->kind == LATENCY) && m->offset != AT(rates.attention_fraction);
        if (!counts || !has(s, m->name)) continue;
        double value = *(const double *)(const void *)((const char *)d + m->offset);
        if (value >= magnitudes[m->kind].least && value <= magnitudes[m->kind].most) continue;
        return sl_fail(SLUICE_ERR_INPUT, "%s:%d: %s is %g, which no machine has; %s", s->path,
                       sl_json_key_line(s->text, s->bytes, m->name), m->name, value, magnitudes[m->kind].advice);
    }
    return SLUICE_OK;
}

/* Members that contradict each other. */
static sluice_status check_together(const source *s, const sl_machine_description *d)
{
    uint64_t device = d->rates.capacity[SL_TIER_DEVICE], host = d->rates.capacity[SL_TIER_HOST];
    const uint64_t least = (uint64_t)1 << 20;
    int line = sl_json_key_line(s->text, s->bytes, "device_bytes");
    if (device < least)
        return sl_fail(
            SLUICE_ERR_INPUT,
            "%s:%d: device_bytes is %llu, too little for anything; it is in bytes, or text such as \"24GiB\"", s->path,
            line, (unsigned long long)device);
    if (!d->shared_memory && d->pinnable_bytes > host)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s:%d: pinnable_bytes is %llu, more than the %llu of host_bytes that it is a part of", s->path,
                       sl_json_key_line(s->text, s->bytes, "pinnable_bytes"), (unsigned long long)d->pinnable_bytes,
                       (unsigned long long)host);
    if (d->rates.attention_fraction > 2)
        return sl_fail(SLUICE_ERR_INPUT, "%s:%d: attention_fraction is %g; it is a share of gemm_flops, such as 0.6",
                       s->path, sl_json_key_line(s->text, s->bytes, "attention_fraction"), d->rates.attention_fraction);
    return SLUICE_OK;
}

static sluice_status read_members(const source *s, sl_machine_description *d)
{
    const json_t *format = json_object_get(s->root, "sluice_machine");
    if (!json_is_object(s->root) || !json_is_integer(format))
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: this is not a description of a machine: \"sluice_machine\" is missing; write one with "
                       "sluice devices --measure --machine FILE",
                       s->path);
    if (json_integer_value(format) != MACHINE_FORMAT)
        return sl_fail(SLUICE_ERR_INPUT, "%s: the description has format %lld, this program reads %d", s->path,
                       (long long)json_integer_value(format), MACHINE_FORMAT);
    SL_TRY(check_names(s));
    for (int i = 0; i < MEMBER_COUNT; i++) {
        SL_TRY(read_member(s, &members[i], d));
        if (members[i].kind == KERNELS) SL_TRY(read_kernels(s, &members[i], d));
    }
    SL_TRY(check_missing(s));
    fill_general(s, d);
    fill_shares(d);
    SL_TRY(check_magnitudes(s, d));
    return check_together(s, d);
}

sluice_status sl_machine_read(const char *path, sl_machine_description *out)
{
    char *text;
    source s = { .path = path };
    sl_machine_description d = { .shared_memory = false };
    sl_machine_default(&d.rates); /* what a description does not speak of */
    SL_TRY(sl_file_read_all(path, MAX_MACHINE_BYTES, &text, &s.bytes));
    s.text = text;
    sluice_status st = sl_json_parse(text, s.bytes, path, SLUICE_ERR_INPUT, &s.root);
    if (st == SLUICE_OK) {
        st = read_members(&s, &d);
        json_decref(s.root);
    }
    sl_free(text);
    if (st == SLUICE_OK) *out = d;
    return st;
}

/* ---- writing ---- */

static void add_points(const sl_rates *r, sl_text *text)
{
    sl_text_add(text, "[");
    for (int i = 0; i < r->count; i++)
        sl_text_add(text, "%s[%.6g, %.6g]", i > 0 ? ", " : "", r->points[i].work, r->points[i].seconds);
    sl_text_add(text, "]");
}

static void add_kernels(const sl_rates *kernels, sl_text *text)
{
    const char *between = "";
    sl_text_add(text, "{");
    for (int op = 0; op < SL_OP_COUNT; op++) {
        if (kernels[op].count == 0) continue;
        sl_text_add(text, "%s\n    \"%s\": ", between, sl_ops[op].name);
        add_points(&kernels[op], text);
        between = ",";
    }
    sl_text_add(text, "\n  }");
}

/* Without what would have to be escaped. */
static void add_name(const char *name, sl_text *text)
{
    sl_text_add(text, "\"");
    for (; *name != '\0'; name++)
        if ((unsigned char)*name >= ' ' && *name != '"' && *name != '\\') sl_text_add(text, "%c", *name);
    sl_text_add(text, "\"");
}

/* What was not measured is not written. */
static bool is_known(const member *m, const sl_machine_description *d)
{
    const void *field = (const char *)d + m->offset;
    if (m->kind == POINTS) return ((const sl_rates *)field)->count > 0;
    if (m->kind == KERNELS) {
        const sl_rates *kernels = field;
        for (int op = 0; op < SL_OP_COUNT; op++)
            if (kernels[op].count > 0) return true;
        return false;
    }
    if (m->kind == RATE) return *(const double *)field > 0;
    if (m->kind == NAME || m->kind == FOLDERS) return *(const char *)field != '\0';
    if (m->kind == CAPACITY && m->need == MEASURED) return *(const uint64_t *)field > 0;
    if (field == &d->gpus_meet) return d->gpus_meet;
    return m->need != MEASURED || d->ranks > 0;
}

static void add_member(const member *m, const sl_machine_description *d, sl_text *text)
{
    const void *field = (const char *)d + m->offset;
    if (!is_known(m, d)) return;
    sl_text_add(text, ",\n  \"%s\": ", m->name);
    if (m->kind == FLAG)
        sl_text_add(text, "%s", *(const bool *)field ? "true" : "false");
    else if (m->kind == CAPACITY)
        sl_text_add(text, "%llu", (unsigned long long)*(const uint64_t *)field);
    else if (m->kind == COUNT)
        sl_text_add(text, "%d", *(const int *)field);
    else if (m->kind == PATH)
        sl_text_add(text, "\"%s\"", sl_isa_name(*(const sl_isa *)field));
    else if (m->kind == NAME || m->kind == FOLDERS)
        add_name(field, text);
    else if (m->kind == POINTS)
        add_points(field, text);
    else if (m->kind == KERNELS)
        add_kernels(field, text);
    else
        sl_text_add(text, "%.6g", *(const double *)field);
}

sluice_status sl_machine_write(const char *path, const sl_machine_description *d)
{
    sl_text text = { .data = NULL };
    sl_text_add(&text, "{\n  \"sluice_machine\": %d", MACHINE_FORMAT);
    for (int i = 0; i < MEMBER_COUNT; i++) add_member(&members[i], d, &text);
    sl_text_add(&text, "\n}\n");
    sluice_status st = sl_text_status(&text);
    if (st == SLUICE_OK) st = sl_file_replace(path, text.data, text.bytes);
    sl_text_free(&text);
    return st;
}
