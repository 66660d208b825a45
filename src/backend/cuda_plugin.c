/* cuda_plugin.c: the library's side of cuda_plugin.h. */
#include "backend/cuda_plugin.h"

#include "backend/cuda/args.h"
#include "core/status.h"

/* Connecting it twice changes nothing. */
sluice_status sl_cuda_open_plugin(const sl_cuda_plugin **out)
{
    static const sl_plugin what = { .file = SL_CUDA_PLUGIN_FILE,
                                    .symbol = SL_CUDA_PLUGIN_SYMBOL,
                                    .part = "the CUDA part of sluice",
                                    .needs = "nvcc",
                                    .otherwise = "" };
    char path[PATH_MAX];
    const void *table;
    SL_TRY(sl_plugin_open(&what, path, &table));
    const sl_cuda_plugin *plugin = table;
    SL_TRY(sl_plugin_check(path, plugin->version,
                           plugin->backend_bytes == sizeof(sl_backend) && plugin->call_bytes == sizeof(sl_call) &&
                               plugin->options_bytes == sizeof(sl_device_options)));
    plugin->connect(&sl_plugin_library);
    *out = plugin;
    return SLUICE_OK;
}

uint64_t sl_cuda_plan_workspace(const sl_call *call)
{
    return sl_cuda_call_workspace(call);
}
