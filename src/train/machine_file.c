/* machine_file.c: a machine as a file, so that a plan can be made for one that is not here.
 *
 * One table names the members; reading and writing both follow it. A member that is missing or not known is an error,
 * because a plan from half a description would look as good as any. */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/io.h"
#include "format/json.h"
#include "format/text.h"
#include "train/machine.h"

#define MACHINE_FORMAT    1
#define MAX_MACHINE_BYTES ((size_t)1 << 20)

typedef enum { RATE, LATENCY, CAPACITY, FLAG } member_kind;

typedef struct member {
    const char *name;
    member_kind kind;
    size_t offset; /* in sl_machine_description */
} member;

#define AT(field_) offsetof(sl_machine_description, field_)

static const member members[] = {
    { "gemm_flops", RATE, AT(rates.gemm_flops) },
    { "vector_flops", RATE, AT(rates.vector_flops) },
    { "device_bytes_per_second", RATE, AT(rates.device_bytes_per_second) },
    { "update_bytes_per_second", RATE, AT(rates.update_bytes_per_second) },
    { "to_device_bytes_per_second", RATE, AT(rates.link_bytes_per_second[0]) },
    { "to_host_bytes_per_second", RATE, AT(rates.link_bytes_per_second[1]) },
    { "comm_bytes_per_second", RATE, AT(rates.comm_bytes_per_second) },
    { "link_latency", LATENCY, AT(rates.link_latency) },
    { "kernel_latency", LATENCY, AT(rates.kernel_latency) },
    { "comm_latency", LATENCY, AT(rates.comm_latency) },
    { "device_bytes", CAPACITY, AT(rates.capacity[SL_TIER_DEVICE]) },
    { "host_bytes", CAPACITY, AT(rates.capacity[SL_TIER_HOST]) },
    { "shared_memory", FLAG, AT(shared_memory) },
    { "copies_overlap", FLAG, AT(rates.copies_overlap) },
};
enum { MEMBER_COUNT = sizeof members / sizeof members[0] };

static const char *const expected[] = {
    [RATE] = "a number above 0",
    [LATENCY] = "a number of seconds, 0 or more",
    [CAPACITY] = "a whole number of bytes, or text such as \"20GiB\"",
    [FLAG] = "true or false",
};

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
    default:
        *(double *)field = value;
        return json_is_number(json) && isfinite(value) && (value > 0 || (m->kind == LATENCY && value == 0));
    }
}

static sluice_status read_member(const source *s, const member *m, sl_machine_description *d)
{
    const json_t *json = json_object_get(s->root, m->name);
    if (json == NULL)
        return sl_fail(SLUICE_ERR_INPUT, "%s: \"%s\" is missing; it is %s", s->path, m->name, expected[m->kind]);
    if (store(m, json, d)) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s:%d: %s must be %s", s->path, sl_json_key_line(s->text, s->bytes, m->name),
                   m->name, expected[m->kind]);
}

static bool is_member(const char *name)
{
    bool known = strcmp(name, "sluice_machine") == 0;
    for (int i = 0; i < MEMBER_COUNT; i++) known = known || strcmp(members[i].name, name) == 0;
    return known;
}

static sluice_status check_names(const source *s)
{
    const char *name;
    json_t *json;
    json_object_foreach(s->root, name, json)
    {
        if (!is_member(name))
            return sl_fail(SLUICE_ERR_INPUT, "%s:%d: unknown key \"%.100s\"", s->path,
                           sl_json_key_line(s->text, s->bytes, name), name);
    }
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
    for (int i = 0; i < MEMBER_COUNT; i++) SL_TRY(read_member(s, &members[i], d));
    return SLUICE_OK;
}

sluice_status sl_machine_read(const char *path, sl_machine_description *out)
{
    char *text;
    source s = { .path = path };
    sl_machine_description d = { .shared_memory = false };
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

static void add_member(const member *m, const sl_machine_description *d, sl_text *text)
{
    const void *field = (const char *)d + m->offset;
    sl_text_add(text, ",\n  \"%s\": ", m->name);
    if (m->kind == FLAG)
        sl_text_add(text, "%s", *(const bool *)field ? "true" : "false");
    else if (m->kind == CAPACITY)
        sl_text_add(text, "%llu", (unsigned long long)*(const uint64_t *)field);
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
