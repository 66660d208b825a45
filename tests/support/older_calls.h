/* older_calls.h: the _init functions of version 0.2.0, as programs of that version call them: by their names in the library.
 * Today's header has functions of these names, inline, which clang takes for the ones that are meant; so they are called
 * from a file that does not include it. */
#ifndef SLUICE_TEST_OLDER_CALLS_H
#define SLUICE_TEST_OLDER_CALLS_H

/* The structs of options, and the sizeof that their callers had. */
#define OLDER_STRUCTS(X)                                                                                               \
    X(sluice_conv_options, 40)                                                                                         \
    X(sluice_pool_options, 40)                                                                                         \
    X(sluice_batch_norm_options, 32)                                                                                   \
    X(sluice_rotary_options, 64)                                                                                       \
    X(sluice_attention_options, 32)                                                                                    \
    X(sluice_launch_options, 40)                                                                                       \
    X(sluice_options, 312)                                                                                             \
    X(sluice_job_options, 328)                                                                                         \
    X(sluice_tokenize_options, 104)

#define OLDER_CALL(type, bytes) void older_##type##_init(void *o);
OLDER_STRUCTS(OLDER_CALL)
#undef OLDER_CALL
void older_sluice_optimizer_init(void *o, int kind);

#endif
