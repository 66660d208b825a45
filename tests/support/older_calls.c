/* older_calls.c: see older_calls.h. */
#include "support/older_calls.h"

#define CALL(type, bytes)                                                                                              \
    void type##_init(void *o);                                                                                         \
    void older_##type##_init(void *o)                                                                                  \
    {                                                                                                                  \
        type##_init(o);                                                                                                \
    }
OLDER_STRUCTS(CALL)

void sluice_optimizer_init(void *o, int kind);
void older_sluice_optimizer_init(void *o, int kind)
{
    sluice_optimizer_init(o, kind);
}
