/* meta.c: the table behind meta.h. A field that is not a row is not saved. */
#include "checkpoint/meta.h"

#include "checkpoint/checkpoint.h"

#define FIELD(name_, type_)                                                                                            \
    {                                                                                                                  \
#name_, type_, offsetof(sl_checkpoint_meta, name_), sizeof(((sl_checkpoint_meta *)0)->name_), false            \
    }
#define LATER(name_, type_)                                                                                            \
    {                                                                                                                  \
#name_, type_, offsetof(sl_checkpoint_meta, name_), sizeof(((sl_checkpoint_meta *)0)->name_), true             \
    }
#define PLATEAU(name_, type_)                                                                                          \
    {                                                                                                                  \
#name_, type_, offsetof(sl_checkpoint_meta, schedule) + offsetof(sl_schedule_state, name_), sizeof(uint64_t),  \
            false                                                                                                      \
    }

#define BEST(of_, name_, type_)                                                                                        \
    {                                                                                                                  \
#of_ "_" #name_, type_, offsetof(sl_checkpoint_meta, of_) + offsetof(sl_best, name_),                          \
            sizeof(((sl_best *)0)->name_), true                                                                        \
    }

const sl_meta_field sl_meta_fields[] = {
    FIELD(step, SL_META_COUNT),
    FIELD(applied_steps, SL_META_COUNT),
    FIELD(seed, SL_META_UNSIGNED),
    FIELD(data_position, SL_META_COUNT),
    FIELD(loss_scale, SL_META_DOUBLE),
    PLATEAU(plateau_best, SL_META_DOUBLE),
    PLATEAU(plateau_lr, SL_META_DOUBLE),
    PLATEAU(plateau_bad, SL_META_COUNT),
    PLATEAU(plateau_cooldown, SL_META_COUNT),
    FIELD(model_sha256, SL_META_TEXT),
    FIELD(data_sha256, SL_META_TEXT),
    FIELD(kernels, SL_META_TEXT),
    LATER(identity, SL_META_TEXT),
    LATER(micro_batch, SL_META_COUNT),
    LATER(global_micro_batches, SL_META_COUNT),
    LATER(optimizer, SL_META_TEXT),
    LATER(precision, SL_META_TEXT),
    LATER(wire, SL_META_TEXT),
    LATER(states, SL_META_TEXT),
    LATER(scale_steps, SL_META_COUNT),
    LATER(scale_hysteresis, SL_META_COUNT),
    LATER(plain_steps, SL_META_COUNT),
    BEST(best, by, SL_META_TEXT),
    BEST(best, value, SL_META_DOUBLE),
    BEST(best, step, SL_META_COUNT),
    BEST(best, since, SL_META_COUNT),
    BEST(stopping, by, SL_META_TEXT),
    BEST(stopping, value, SL_META_DOUBLE),
    BEST(stopping, step, SL_META_COUNT),
    BEST(stopping, since, SL_META_COUNT),
};
const size_t sl_meta_field_count = sizeof sl_meta_fields / sizeof sl_meta_fields[0];
