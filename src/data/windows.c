#include "data/windows.h"

#include <inttypes.h>

#include "core/rng.h"

sluice_status sl_windows_check_context(int64_t context)
{
    if (context >= 1 && context <= SL_MAX_CONTEXT) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "model.context is %" PRId64 "; give 1 to %" PRId64, context, SL_MAX_CONTEXT);
}

sluice_status sl_windows_check(const char *path, const char *part, int64_t tokens, const char *unit, int64_t context)
{
    if (tokens > context) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s: the %s part has %" PRId64 " %s, and a context of %" PRId64 " needs at least %" PRId64
                   "; give a longer text, shorten model.context or change data.validation",
                   path, part, tokens, unit, context, context + 1);
}

void sl_windows_lay_out(sl_windows *w)
{
    /* A window reads context + 1 tokens. One window less than would fit at phase 0 leaves room for every phase below
     * context; what is left over then widens the range of phases, so that each token is reached. */
    w->windows = (w->tokens - 1) / w->context;
    w->phases = 1;
    if (!w->shuffle) return;
    if (w->tokens >= 2 * w->context) w->windows = w->tokens / w->context - 1;
    w->phases = w->tokens - w->windows * w->context;
}

int64_t sl_windows_start(const sl_windows *w, uint64_t number)
{
    sl_data_place place = sl_data_locate(w->seed, w->shuffle, w->windows, number);
    sl_rng phase = sl_rng_stream(w->seed, SL_RNG_SHUFFLE, place.epoch, 0, SL_SHUFFLE_PHASE);
    return place.sample * w->context + (int64_t)sl_rng_below(&phase, 0, (uint64_t)w->phases);
}

int64_t sl_windows_of_evaluation(int64_t tokens, int64_t context)
{
    return tokens < 2 ? 0 : (tokens - 1 + context - 1) / context;
}
