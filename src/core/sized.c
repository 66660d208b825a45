/* sized.c: see sized.h. */
#include "core/sized.h"

#include <string.h>

/* No header will ever have a struct so many times larger: a size beyond is of a struct that nobody filled. */
#define MOST_GROWTH 16

void sl_sized_fill(void *out, size_t caller_bytes, const void *defaults, size_t bytes)
{
    if (out == NULL || caller_bytes < sizeof caller_bytes || caller_bytes > MOST_GROWTH * bytes) return;
    size_t shared = caller_bytes < bytes ? caller_bytes : bytes;
    memcpy(out, defaults, shared);
    memset((char *)out + shared, 0, caller_bytes - shared);
    memcpy(out, &caller_bytes, sizeof caller_bytes);
}

static bool all_zero(const unsigned char *from, const unsigned char *end)
{
    while (from < end && *from == 0) from++;
    return from == end;
}

sluice_status sl_sized_take(const char *type, const void *given, size_t least, void *copy, size_t bytes)
{
    size_t size = 0;
    if (given == NULL) return sl_fail(SLUICE_ERR_USAGE, "%s: options is NULL", type);
    memcpy(&size, given, sizeof size);
    if (size < least || size > MOST_GROWTH * bytes)
        return sl_fail(SLUICE_ERR_USAGE, "%s.size is %zu: start from %s_init", type, size, type);
    const unsigned char *all = given;
    if (size > bytes && !all_zero(all + bytes, all + size))
        return sl_fail(
            SLUICE_ERR_USAGE,
            "%s.size is %zu: the program was built for a newer sluice and sets a field that this one, %s, does "
            "not have",
            type, size, sluice_version());
    memcpy(copy, given, size < bytes ? size : bytes);
    memcpy(copy, &bytes, sizeof bytes);
    return SLUICE_OK;
}
