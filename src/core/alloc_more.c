/* alloc_more.c: what is made of sl_alloc and sl_free alone. A file of its own, because the CUDA plugin takes those two
 * from the library that opened it and these as they are. */
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/status.h"

void *sl_alloc_array(size_t count, size_t each, const char *name)
{
    uint64_t bytes;
    if (sl_mul_u64(count, each, &bytes)) return sl_alloc(bytes, name);
    sl_fail(SLUICE_ERR_NO_MEMORY, "%zu times %zu bytes of memory for %s is more than any machine has", count, each,
            name);
    return NULL;
}

void *sl_realloc(void *p, size_t old_bytes, size_t new_bytes, const char *name)
{
    void *grown = sl_alloc(new_bytes, name);
    if (grown == NULL) return NULL;
    if (p != NULL) memcpy(grown, p, old_bytes < new_bytes ? old_bytes : new_bytes);
    sl_free(p);
    return grown;
}

char *sl_strdup(const char *text, const char *name)
{
    size_t bytes = strlen(text) + 1;
    char *copy = sl_alloc(bytes, name);
    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}
