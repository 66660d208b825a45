/* json_members.c: see json_members.h. */
#include "format/json_members.h"

#include <string.h>

/* Behind the string that begins at `at`; NULL: it does not end. */
static const char *skip_string(const char *at, const char *end)
{
    for (at++; at < end; at++) {
        if (*at == '\\')
            at++;
        else if (*at == '"')
            return at + 1;
    }
    return NULL;
}

/* Behind an object or a list. */
static const char *skip_parts(const char *at, const char *end)
{
    int depth = 0;
    while (at != NULL && at < end) {
        if (*at == '"') {
            at = skip_string(at, end);
            continue;
        }
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        at++;
        if (depth == 0) return at;
    }
    return NULL;
}

/* Behind a value. NULL: it does not end. */
static const char *skip_value(const char *at, const char *end)
{
    if (at < end && *at == '"') return skip_string(at, end);
    if (at < end && (*at == '{' || *at == '[')) return skip_parts(at, end);
    const char *start = at;
    while (at < end && *at != ',' && *at != '}') at++;
    return at > start && at < end ? at : NULL;
}

static const char *skip_spaces(const char *at, const char *end)
{
    while (at < end && *at == ' ') at++;
    return at;
}

void sl_json_members_begin(sl_json_members *m, const char *text, size_t bytes)
{
    const bool object = bytes >= 2 && text[0] == '{';
    *m = (sl_json_members){ .at = object ? text + 1 : text + bytes, .end = text + bytes };
}

bool sl_json_next_member(sl_json_members *m, sl_json_member *out)
{
    const char *key = skip_spaces(m->at, m->end), *end = m->end;
    m->at = end; /* unless all is well */
    if (key >= end || *key != '"') return false;
    const char *behind = skip_string(key, end);
    if (behind == NULL || behind >= end || *behind != ':') return false;
    const char *value = skip_spaces(behind + 1, end), *next = skip_value(value, end);
    if (next == NULL || next >= end || (*next != ',' && *next != '}')) return false;
    *out = (sl_json_member){ key + 1, (size_t)(behind - key) - 2, value, (size_t)(next - value) };
    m->whole = *next == '}' && next + 1 == end;
    if (*next == ',') m->at = next + 1;
    return true;
}

bool sl_json_member_is(const sl_json_member *m, const char *key)
{
    return strlen(key) == m->key_bytes && memcmp(m->key, key, m->key_bytes) == 0;
}
