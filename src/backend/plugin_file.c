/* plugin_file.c: see plugin_file.h. */
#include "backend/plugin_file.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/status.h"

const sl_plugin_host sl_plugin_library = { sl_error_record, sluice_error, sl_alloc, sl_free };

/* The folder of the file that this function is in: libsluice, or the program that has it inside. */
static void own_folder(char out[PATH_MAX])
{
    Dl_info info;
    char path[PATH_MAX];
    snprintf(out, PATH_MAX, ".");
    if (dladdr((void *)sl_plugin_find, &info) == 0 || info.dli_fname == NULL) return;
    if (realpath(info.dli_fname, path) == NULL) {
        /* A program found through PATH is known by its bare name. */
        ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
        if (length <= 0) return;
        path[length] = '\0';
    }
    char *slash = strrchr(path, '/');
    if (slash == NULL) return;
    *slash = '\0';
    snprintf(out, PATH_MAX, "%s", path);
}

static bool is_in(const char *folder, const char *below, const char *file, char out[PATH_MAX])
{
    int length = snprintf(out, PATH_MAX, "%s/%s/%s", folder, below, file);
    return length < PATH_MAX && access(out, R_OK) == 0;
}

void sl_plugin_find(const char *file, char out[PATH_MAX])
{
    static const char *const beside[] = { ".", "sluice", SLUICE_PLUGIN_DIR, "../lib" };
    const char *named = getenv("SLUICE_PLUGINS");
    char folder[PATH_MAX];
    if (named != NULL && is_in(named, ".", file, out)) return;
    own_folder(folder);
    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++)
        if (is_in(folder, beside[i], file, out)) return;
    snprintf(out, PATH_MAX, "%s", file);
}

sluice_status sl_plugin_open(const sl_plugin *plugin, char path[PATH_MAX], const void **table)
{
    sl_plugin_find(plugin->file, path);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "%s is not here: %s. Build sluice where %s is installed, or name the folder of %s in SLUICE_PLUGINS%s",
            plugin->part, dlerror(), plugin->needs, plugin->file, plugin->otherwise);
    const void *found = dlsym(handle, plugin->symbol);
    if (found == NULL) return sl_fail(SLUICE_ERR_USAGE, "%s is not a part of sluice", path);
    *table = found;
    return SLUICE_OK;
}

sluice_status sl_plugin_check(const char *path, const char *version, bool fits)
{
    if (fits && strcmp(version, SL_PLUGIN_VERSION) == 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s belongs to another build of sluice (%s, this is %s): install them together",
                   path, version, SL_PLUGIN_VERSION);
}
