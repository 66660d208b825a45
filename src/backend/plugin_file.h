/* plugin_file.h: where the parts of sluice lie that are opened with dlopen. */
#ifndef SL_BACKEND_PLUGIN_FILE_H
#define SL_BACKEND_PLUGIN_FILE_H

#include <limits.h>

/* "0.1.0", as sluice_version() says it, without a symbol of the library. */
#define SL_PLUGIN_TEXT2(x) #x
#define SL_PLUGIN_TEXT(x)  SL_PLUGIN_TEXT2(x)
#define SL_PLUGIN_VERSION                                                                                              \
    SL_PLUGIN_TEXT(SLUICE_VERSION_MAJOR)                                                                               \
    "." SL_PLUGIN_TEXT(SLUICE_VERSION_MINOR) "." SL_PLUGIN_TEXT(SLUICE_VERSION_PATCH)

/* The path of the plugin `file` for dlopen: in the folder that SLUICE_PLUGINS names, else beside libsluice or the
 * program that has it inside, else where both are installed. A bare name, which leaves it to the loader, where it is in
 * none of these. */
void sl_plugin_find(const char *file, char out[PATH_MAX]);

#endif
