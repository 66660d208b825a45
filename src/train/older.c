/* older.c: what programs call that were built against the header of version 0.2.0.
 *
 * There the _init functions were calls into the library that knew no size; today's header passes one. Their names in the
 * library are kept for those programs, and fill what the structs of that version had. Today's header has these names inline,
 * so here they are names for the linker alone. */
#include "sluice.h"

/* `bytes`: sizeof the struct in version 0.2.0. */
#define OLDER_INIT(type, bytes)                                                                                        \
    SLUICE_API void older_##type(type *o) __asm__(#type "_init");                                                      \
    void older_##type(type *o)                                                                                         \
    {                                                                                                                  \
        type##_init_sized(o, bytes);                                                                                   \
    }

OLDER_INIT(sluice_conv_options, 40)
OLDER_INIT(sluice_pool_options, 40)
OLDER_INIT(sluice_batch_norm_options, 32)
OLDER_INIT(sluice_rotary_options, 64)
OLDER_INIT(sluice_attention_options, 32)
OLDER_INIT(sluice_launch_options, 40)
OLDER_INIT(sluice_options, 312)
OLDER_INIT(sluice_job_options, 328)
OLDER_INIT(sluice_tokenize_options, 104)

SLUICE_API void older_sluice_optimizer(sluice_optimizer *o,
                                       sluice_optimizer_kind kind) __asm__("sluice_optimizer_init");
void older_sluice_optimizer(sluice_optimizer *o, sluice_optimizer_kind kind)
{
    sluice_optimizer_init_sized(o, kind, 104);
}

/* Structs that lie within others or in arrays, or that are filled for a caller whose size nobody knows: with another size, what
 * follows them would be elsewhere than programs of version 0.2.0 have it. */
#define KEEPS_ITS_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " has another size than in 0.2.0")
KEEPS_ITS_SIZE(sluice_optimizer, 104);
KEEPS_ITS_SIZE(sluice_loss_scale, 32);
KEEPS_ITS_SIZE(sluice_init, 8);
KEEPS_ITS_SIZE(sluice_array, 24);
KEEPS_ITS_SIZE(sluice_batch, 16);
KEEPS_ITS_SIZE(sluice_memory, 24);
KEEPS_ITS_SIZE(sluice_setting, 72);
KEEPS_ITS_SIZE(sluice_metric, 24);
KEEPS_ITS_SIZE(sluice_class_score, 40);
KEEPS_ITS_SIZE(sluice_candidate, 64);
