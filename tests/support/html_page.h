/* html_page.h: what every page must be, and the numbers that it has inside. */
#ifndef SLUICE_TEST_HTML_PAGE_H
#define SLUICE_TEST_HTML_PAGE_H

#include <ctype.h>
#include <jansson.h>
#include <string.h>

#include "test.h"

/* ---- well-formed: every element that begins ends, in order; attributes are quoted ---- */

typedef struct html_tags {
    char names[64][24];
    int depth;
} html_tags;

/* Behind the tag that begins at `at`, or NULL after a reported failure. */
static inline const char *html_read_tag(const char *at, html_tags *s)
{
    char name[24];
    bool closing = at[1] == '/';
    const char *begin = at + 1 + closing, *end = begin;
    while (isalnum((unsigned char)*end)) end++;
    snprintf(name, sizeof name, "%.*s", (int)(end - begin), begin);
    for (bool quoted = false; *end != '\0' && (quoted || *end != '>'); end++) {
        if (*end == '"') quoted = !quoted;
        if (*end == '<' || (!quoted && *end == '\'')) {
            test_fail(__FILE__, __LINE__, "a bare %c in: %.60s", *end, at);
            return NULL;
        }
    }
    if (closing) {
        bool fits = s->depth > 0 && strcmp(s->names[s->depth - 1], name) == 0;
        if (!fits) test_fail(__FILE__, __LINE__, "</%s> closes <%s>", name, s->depth > 0 ? s->names[s->depth - 1] : "");
        s->depth--;
        return fits ? end + 1 : NULL;
    }
    if (end[-1] == '/') return end + 1;
    if (s->depth < 64) snprintf(s->names[s->depth], sizeof s->names[0], "%s", name);
    s->depth++;
    return end + 1;
}

static inline void html_check_balance(const char *page)
{
    html_tags s = { .depth = 0 };
    const char *at = strchr(page + 1, '<'); /* behind the doctype */
    for (; at != NULL && *at != '\0'; at = at != NULL ? strchr(at, '<') : NULL) {
        if ((at = html_read_tag(at, &s)) == NULL) break;
        const char *top = s.depth > 0 ? s.names[s.depth - 1] : "";
        if (strcmp(top, "script") == 0) at = strstr(at, "</script>");
        if (strcmp(top, "style") == 0) at = strstr(at, "</style>");
    }
    CHECK_EQ(s.depth, 0);
}

/* ---- the embedded numbers ---- */

/* NULL after a reported failure. */
static inline json_t *html_page_data(const char *page)
{
    static const char begin[] = "<script type=\"application/json\" id=\"data\">";
    json_error_t error;
    const char *at = strstr(page, begin), *end = at != NULL ? strstr(at, "</script>") : NULL;
    if (end == NULL) {
        test_fail(__FILE__, __LINE__, "the page has no data");
        return NULL;
    }
    at += sizeof begin - 1;
    json_t *root = json_loadb(at, (size_t)(end - at), JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) test_fail(__FILE__, __LINE__, "embedded data: %s", error.text);
    return root;
}

#endif
