/* nccl_api.c: finds NCCL. */
#include "comm/nccl_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_include)
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define SAME(type, field, theirs) (offsetof(sl_nccl_config, field) == offsetof(type, theirs))
_Static_assert(sizeof(sl_nccl_id) == sizeof(ncclUniqueId), "ncclUniqueId");
_Static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int), "enums of NCCL");
_Static_assert((int)ncclSuccess == SL_NCCL_SUCCESS && (int)ncclInProgress == SL_NCCL_IN_PROGRESS, "ncclResult_t");
_Static_assert(ncclUint8 == SL_NCCL_UINT8, "ncclDataType_t");
_Static_assert(SAME(ncclConfig_t, blocking, blocking) && SAME(ncclConfig_t, net_name, netName) &&
                   SAME(ncclConfig_t, split_share, splitShare),
               "ncclConfig_t");
#endif
#endif

static const struct {
    const char *name;
    size_t field;
} functions[] = {
#define SL_ROW(field, symbol, parameters) { #symbol, offsetof(sl_nccl_api, field) },
    SL_NCCL_FUNCTIONS(SL_ROW)
#undef SL_ROW
        { "ncclGetErrorString", offsetof(sl_nccl_api, error_text) },
    { "ncclGetLastError", offsetof(sl_nccl_api, last_error) },
};

static sluice_status find_functions(const char *path, void *file, sl_nccl_api *out)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *address = dlsym(file, functions[i].name);
        if (address == NULL)
            return sl_fail(SLUICE_ERR_USAGE, "%s lacks the function %s: sluice needs NCCL 2.18 or newer", path,
                           functions[i].name);
        memcpy((char *)out + functions[i].field, &address, sizeof address);
    }
    return SLUICE_OK;
}

sluice_status sl_nccl_api_open(sl_nccl_api *out)
{
    const char *named = getenv("SLUICE_NCCL"), *path = named != NULL && named[0] != '\0' ? named : SL_NCCL_FILE;
    int version = 0;
    void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (file == NULL)
        return sl_fail(SLUICE_ERR_USAGE,
                       "NCCL, through which ranks on GPUs talk, is not here: %s. Install it, name its file in "
                       "SLUICE_NCCL, or set communication.gpu to host",
                       dlerror());
    SL_TRY(find_functions(path, file, out));
    if (out->version(&version) != SL_NCCL_SUCCESS || version < SL_NCCL_LEAST)
        return sl_fail(SLUICE_ERR_USAGE, "%s is NCCL version %d; sluice needs 2.18 (%d) or newer", path, version,
                       SL_NCCL_LEAST);
    return SLUICE_OK;
}
