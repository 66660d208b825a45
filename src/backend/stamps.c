/* stamps.c: see stamps.h. */
#include "backend/stamps.h"

#include "core/alloc.h"
#include "core/thread.h"

static sluice_status check_count(const sl_stamps *s, int count)
{
    if (count >= 0 && count <= s->count) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "%d stamps asked for, %d are reserved", count, s->count);
}

sluice_status sl_stamps_reserve(sl_stamps *s, int count)
{
    sl_free(s->at);
    *s = (sl_stamps){ .at = NULL };
    if (count == 0) return SLUICE_OK;
    if (count < 0) return sl_fail(SLUICE_ERR_FAILED, "%d stamps asked for", count);
    s->at = sl_alloc_array((size_t)count, sizeof *s->at, "times of a trace");
    if (s->at == NULL) return SLUICE_ERR_NO_MEMORY;
    s->count = count;
    s->origin = sl_now();
    return SLUICE_OK;
}

sluice_status sl_stamps_read(const sl_stamps *s, double *seconds, int count)
{
    SL_TRY(check_count(s, count));
    for (int i = 0; i < count; i++) seconds[i] = s->at[i] > 0 ? s->at[i] - s->origin : -1;
    return SLUICE_OK;
}

sluice_status sl_stamps_slot(sl_stamps *s, int index, double **out)
{
    if (index < 0 || index >= s->count)
        return sl_fail(SLUICE_ERR_FAILED, "there is no stamp %d: %d are reserved", index, s->count);
    *out = &s->at[index];
    return SLUICE_OK;
}

sluice_status sl_stamps_set(sl_stamps *s, int index)
{
    double *slot;
    SL_TRY(sl_stamps_slot(s, index, &slot));
    *slot = sl_now();
    return SLUICE_OK;
}
