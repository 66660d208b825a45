/* update_rule.c: the rows of update_rule.h as data. */
#include "ir/update_rule.h"

const sl_update_def sl_updates[SL_UPDATE_KIND_COUNT] = {
#define ELEMENTWISE(name_, slots_, squares_)    [SL_UPDATE_##name_] = { #name_, slots_, squares_, false },
#define WHOLE(name_, slots_, squares_, measure) [SL_UPDATE_##name_] = { #name_, slots_, squares_, true },
    SL_UPDATE_RULES(ELEMENTWISE, WHOLE)
};
