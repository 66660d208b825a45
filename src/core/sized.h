/* sized.h: structs of the public interface that carry their size.
 *
 * A program may have been built against a header in which such a struct had fewer fields than here, or more. The first member
 * of each is a size_t, the sizeof of its caller, and fields are added at the end alone: the bytes that both know mean the same. */
#ifndef SL_CORE_SIZED_H
#define SL_CORE_SIZED_H

#include <stddef.h>

#include "core/status.h"

/* Bytes of a struct whose last member is `member`, for the sizes that older headers had. */
#define SL_THROUGH(type, member) (offsetof(type, member) + sizeof((type *)0)->member)

/* Fills the caller's struct of `caller_bytes` from `defaults`, which has `bytes`, and sets its size. What the caller alone knows
 * becomes 0. Does nothing where `out` is NULL, or where caller_bytes is no size of such a struct. */
void sl_sized_fill(void *out, size_t caller_bytes, const void *defaults, size_t bytes);

/* Copies what the caller gave, a struct named `type`, over `copy`, a whole struct of `bytes`: fields that the caller does not
 * know keep what `copy` held. SLUICE_ERR_USAGE where it is smaller than `least`, the oldest header's, or larger than any, and
 * where it sets fields that are not known here. */
sluice_status sl_sized_take(const char *type, const void *given, size_t least, void *copy, size_t bytes);

#endif
