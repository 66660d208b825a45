/* version.c: which sluice this is. */
#include "sluice.h"

#define TEXT2(x) #x
#define TEXT(x)  TEXT2(x)

const char *sluice_version(void)
{
    return TEXT(SLUICE_VERSION_MAJOR) "." TEXT(SLUICE_VERSION_MINOR) "." TEXT(SLUICE_VERSION_PATCH);
}
