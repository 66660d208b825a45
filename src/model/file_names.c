/* file_names.c: what files of other programs call the parameters of a model. */
#include <fnmatch.h>
#include <string.h>

#include "format/weight_names.h"
#include "model/family.h"

/* Behind what programs that wrap a model put before all of its names. */
static const char *unwrapped(const char *pattern)
{
    for (const sl_weight_prefix *p = sl_weight_prefixes; p->text != NULL; p++)
        if (p->outside == NULL && strncmp(pattern, p->text, strlen(p->text)) == 0)
            return unwrapped(pattern + strlen(p->text));
    return pattern;
}

/* As it is, with the family's prefix that names in a graph lack, or without one that they have. */
static bool fits_prefixed(const sl_weight_names *known, const char *pattern, const char *name)
{
    char longer[2 * SL_MODEL_NAME_BYTES + 32];
    if (fnmatch(pattern, name, 0) == 0) return true;
    if (known != NULL && known->prefix != NULL && !sl_weight_is_head(name)) {
        snprintf(longer, sizeof longer, "%s%s", known->prefix, name);
        if (fnmatch(pattern, longer, 0) == 0) return true;
    }
    for (const sl_weight_prefix *p = sl_weight_prefixes; p->text != NULL; p++)
        if (strncmp(name, p->text, strlen(p->text)) == 0 && fnmatch(pattern, name + strlen(p->text), 0) == 0)
            return true;
    return false;
}

bool sl_model_is_called(const sluice_graph *g, const char *pattern, const char *name)
{
    const sl_weight_names *known = g->file_names;
    pattern = unwrapped(pattern);
    if (fits_prefixed(known, pattern, name)) return true;
    for (const sl_weight_copy *c = known != NULL ? known->copies : NULL; c != NULL && c->name != NULL; c++)
        if (strcmp(c->of, name) == 0 && fits_prefixed(known, pattern, c->name)) return true;
    return false;
}

bool sl_model_is_constant(const sluice_graph *g, const char *name)
{
    const sl_weight_names *known = g->file_names;
    name = unwrapped(name);
    if (known == NULL || known->buffers == NULL || strpbrk(name, "*?[") != NULL) return false;
    size_t prefix = known->prefix != NULL ? strlen(known->prefix) : 0;
    bool prefixed = prefix > 0 && strncmp(name, known->prefix, prefix) == 0;
    for (const char *const *p = known->buffers; *p != NULL; p++)
        if (fnmatch(*p, name, 0) == 0 || (prefixed && fnmatch(*p, name + prefix, 0) == 0)) return true;
    return false;
}
