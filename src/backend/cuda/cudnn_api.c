/* cudnn_api.c: finds cuDNN. */
#include "backend/cuda/cudnn_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t field;
} functions[] = {
#define SL_ROW(field, symbol, result, arguments) { #symbol, offsetof(sl_cudnn_api, field) },
    SL_CUDNN_FUNCTIONS(SL_ROW)
#undef SL_ROW
};

static sluice_status open_file(const char *path, void **out)
{
    const char *const files[] = { path != NULL ? path : "libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9" };
    char reason[512] = "";
    for (size_t i = 0; i < (path != NULL ? 1 : sizeof files / sizeof files[0]); i++) {
        *out = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
        if (*out != NULL) return SLUICE_OK;
        if (i == 0) snprintf(reason, sizeof reason, "%s", dlerror());
    }
    return sl_fail(SLUICE_ERR_USAGE, "cuDNN 9 was not found: %s. If it is installed, add its folder to LD_LIBRARY_PATH",
                   reason);
}

sluice_status sl_cudnn_api_open(const char *path, sl_cudnn_api *out)
{
    void *file;
    SL_TRY(open_file(path, &file));
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *address = dlsym(file, functions[i].name);
        if (address == NULL)
            return sl_fail(SLUICE_ERR_USAGE, "cuDNN lacks the function %s: its version does not fit sluice",
                           functions[i].name);
        memcpy((char *)out + functions[i].field, &address, sizeof address);
    }
    return SLUICE_OK;
}
