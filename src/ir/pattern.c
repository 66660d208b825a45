/* pattern.c: see pattern.h. */
#include "ir/pattern.h"

#include <fnmatch.h>
#include <string.h>

#include "ir/tile.h"

typedef bool name_test(const sluice_graph *g, const char *pattern, const char *name);

static bool fits(const sluice_graph *g, const char *pattern, const char *name)
{
    (void)g;
    return fnmatch(pattern, name, 0) == 0;
}

static uint8_t all_of(const sl_parameter *p)
{
    return (uint8_t)((1u << (p->part_count > 0 ? p->part_count : 1)) - 1);
}

/* The bits of one parameter. */
static uint8_t name_parts(const sluice_graph *g, const char *pattern, int parameter, name_test *test)
{
    const sl_parameter *p = &g->parameters[parameter];
    uint8_t parts = 0;
    for (int k = 0; k < p->part_count; k++)
        if (test(g, pattern, p->parts[k].name)) parts |= (uint8_t)(1u << k);
    if (parts != 0) return parts;
    return test(g, pattern, sl_whole_name(g, parameter)) ? all_of(p) : 0;
}

static int match(const sluice_graph *g, const char *pattern, name_test *test, uint8_t *named)
{
    int count = 0;
    for (int p = 0; p < g->parameter_count; p++) {
        named[p] = name_parts(g, pattern, p, test);
        count += named[p] != 0;
    }
    return count;
}

int sl_graph_match(const sluice_graph *g, const char *pattern, uint8_t *named)
{
    int count = match(g, pattern, fits, named);
    return count > 0 || g->is_called == NULL ? count : match(g, pattern, g->is_called, named);
}

bool sl_graph_is_whole(const sluice_graph *g, int parameter, uint8_t named)
{
    return named == all_of(&g->parameters[parameter]);
}

void sl_graph_explain_part(const sluice_graph *g, int parameter, uint8_t named, char *out, size_t bytes)
{
    const sl_parameter *p = &g->parameters[parameter];
    const char *in = NULL, *left_out = NULL, *whole = sl_whole_name(g, parameter);
    for (int k = p->part_count - 1; k >= 0; k--) *((named >> k & 1) != 0 ? &in : &left_out) = p->parts[k].name;
    const char *module = strrchr(whole, '.');
    while (module != NULL && module > whole && module[-1] != '.') module--;
    snprintf(out, bytes,
             "%s is named and %s is not, and here both are parts of one parameter, %s; name all of its parts, or it "
             "(\"*.%s\")",
             in, left_out, whole, module != NULL ? module : whole);
}
