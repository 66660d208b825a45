/* cuda_plugin.c: the library's side of cuda_plugin.h. */
#include "backend/cuda_plugin.h"

#include <dlfcn.h>
#include <string.h>

#include "backend/cuda/args.h"
#include "backend/plugin_file.h"
#include "core/alloc.h"

static sluice_status check_plugin(const char *path, const sl_cuda_plugin *plugin)
{
    if (strcmp(plugin->version, SL_PLUGIN_VERSION) == 0 && plugin->backend_bytes == sizeof(sl_backend) &&
        plugin->call_bytes == sizeof(sl_call) && plugin->options_bytes == sizeof(sl_device_options))
        return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s belongs to another build of sluice (%s, this is %s): install them together",
                   path, plugin->version, SL_PLUGIN_VERSION);
}

/* Loading it twice gives the same plugin, and connecting it twice changes nothing. It is never unloaded: the driver's
 * threads run on to the end of the process. */
sluice_status sl_cuda_open_plugin(const sl_cuda_plugin **out)
{
    static const sl_plugin_host host = { sl_error_record, sluice_error, sl_alloc, sl_free };
    char path[PATH_MAX];
    sl_plugin_find(SL_CUDA_PLUGIN_FILE, path);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return sl_fail(SLUICE_ERR_USAGE,
                       "the CUDA part of sluice is not here: %s. Build sluice where nvcc is installed, or name the "
                       "folder of %s in SLUICE_PLUGINS",
                       dlerror(), SL_CUDA_PLUGIN_FILE);
    const sl_cuda_plugin *plugin = dlsym(handle, SL_CUDA_PLUGIN_SYMBOL);
    if (plugin == NULL) return sl_fail(SLUICE_ERR_USAGE, "%s is not a part of sluice", path);
    SL_TRY(check_plugin(path, plugin));
    plugin->connect(&host);
    *out = plugin;
    return SLUICE_OK;
}

uint64_t sl_cuda_plan_workspace(const sl_call *call)
{
    return sl_cuda_call_workspace(call);
}
