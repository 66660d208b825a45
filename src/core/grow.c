/* grow.c: see grow.h. */
#include "core/grow.h"

#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"

sluice_status sl_grow_list(void *list, int64_t *capacity, int64_t needed, int64_t least, size_t each, const char *name)
{
    void *old, *grown;
    uint64_t bytes;
    if (needed <= *capacity) return SLUICE_OK;
    int64_t wanted = *capacity <= INT64_MAX / 2 ? 2 * *capacity : needed;
    if (wanted < least) wanted = least;
    if (wanted < needed) wanted = needed;
    if (!sl_mul_u64((uint64_t)wanted, each, &bytes))
        return sl_fail(SLUICE_ERR_NO_MEMORY, "%lld times %zu bytes of memory for %s is more than any machine has",
                       (long long)wanted, each, name);
    memcpy(&old, list, sizeof old);
    grown = sl_realloc(old, (size_t)*capacity * each, bytes, name);
    if (grown == NULL) return SLUICE_ERR_NO_MEMORY;
    memcpy(list, &grown, sizeof grown);
    *capacity = wanted;
    return SLUICE_OK;
}
