/* plugin_file.h: the parts of sluice that are opened with dlopen: where they lie, how they are opened, and what they
 * get of the library.
 *
 * A plugin exports one symbol, a table whose first members say which build it belongs to, and needs no symbol of the
 * library or of the program: both may have the library inside with its symbols hidden. */
#ifndef SL_BACKEND_PLUGIN_FILE_H
#define SL_BACKEND_PLUGIN_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "sluice.h"

/* "0.2.0", as sluice_version() says it, without a symbol of the library. */
#define SL_PLUGIN_TEXT2(x) #x
#define SL_PLUGIN_TEXT(x)  SL_PLUGIN_TEXT2(x)
#define SL_PLUGIN_VERSION                                                                                              \
    SL_PLUGIN_TEXT(SLUICE_VERSION_MAJOR)                                                                               \
    "." SL_PLUGIN_TEXT(SLUICE_VERSION_MINOR) "." SL_PLUGIN_TEXT(SLUICE_VERSION_PATCH)

/* The path of the plugin `file` for dlopen: in the folder that SLUICE_PLUGINS names, else beside libsluice or the
 * program that has it inside, or in the folder sluice there, else where both are installed. A bare name, which leaves it to the loader, where it is in
 * none of these. */
void sl_plugin_find(const char *file, char out[PATH_MAX]);

/* What a plugin uses of the library: messages must end up in its thread-local buffer and memory in its counters. */
typedef struct sl_plugin_host {
    void (*error_record)(const char *format, ...) __attribute__((format(printf, 1, 2)));
    const char *(*error_text)(void); /* this thread's newest message */
    void *(*alloc)(size_t bytes, const char *name);
    void (*free)(void *p);
} sl_plugin_host;
extern const sl_plugin_host sl_plugin_library; /* this library's */

/* A plugin, and what to say where it is not installed. */
typedef struct sl_plugin {
    const char *file, *symbol;
    const char *part;      /* begins the message: "the CUDA part of sluice" */
    const char *needs;     /* what a build with it needs: "nvcc" */
    const char *otherwise; /* ends the message: "", or what works without it */
} sl_plugin;

/* Finds and opens the plugin and gives the table it exports. SLUICE_ERR_USAGE: it is not installed, cannot be loaded
 * (which library is missing), or exports no table. It is never unloaded: drivers' threads run on to the end of the
 * process, and MPI libraries do not bear it. A second time gives the same table. */
sluice_status sl_plugin_open(const sl_plugin *plugin, char path[PATH_MAX], const void **table);
/* SLUICE_OK where the plugin at `path` is of this version, and the sizes in its table are this build's (`fits`). */
sluice_status sl_plugin_check(const char *path, const char *version, bool fits);

#endif
