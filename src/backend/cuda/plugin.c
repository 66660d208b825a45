/* plugin.c: what libsluice_cuda.so exports, and what it takes from the library that opened it.
 *
 * The plugin is linked with the archives of core/, ir/ and backend/, as far as it uses them. The functions below stand
 * for those of core/status.c and core/alloc.c, which the linker therefore leaves out: messages end up in the library's
 * thread-local buffer and memory in its counters. One that is used and is not here would bring the original in beside
 * these, and the link would fail. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/backend.h"
#include "backend/cuda/gpu.h"
#include "backend/cuda/library.h"
#include "backend/plugin_file.h"
#include "core/alloc.h"
#include "core/bytes.h"

/* Of the library; set once, before anything else is called. */
static const sl_plugin_host *library;

static void connect_library(const sl_plugin_host *host)
{
    library = host;
}

/* ---- core/status.h ---- */

void sl_error_record(const char *format, ...)
{
    char text[SL_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    library->error_record("%s", text);
}

void sl_error_copy(char out[SL_MESSAGE_BYTES])
{
    snprintf(out, SL_MESSAGE_BYTES, "%s", library->error_text());
}

/* ---- core/alloc.h ---- */

void *sl_alloc(size_t bytes, const char *name)
{
    return library->alloc(bytes, name);
}

void *sl_alloc_array(size_t count, size_t each, const char *name)
{
    uint64_t bytes;
    if (sl_mul_u64(count, each, &bytes)) return sl_alloc(bytes, name);
    sl_error_record("%zu times %zu bytes of memory for %s is more than any machine has", count, each, name);
    return NULL;
}

void *sl_realloc(void *p, size_t old_bytes, size_t new_bytes, const char *name)
{
    void *grown = sl_alloc(new_bytes, name);
    if (grown == NULL) return NULL;
    if (p != NULL) memcpy(grown, p, old_bytes < new_bytes ? old_bytes : new_bytes);
    sl_free(p);
    return grown;
}

char *sl_strdup(const char *text, const char *name)
{
    size_t bytes = strlen(text) + 1;
    char *copy = sl_alloc(bytes, name);
    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

void sl_free(void *p)
{
    library->free(p);
}

/* ---- the table ---- */

static const char *libraries_text(void)
{
    static char text[256];
    sl_cuda_libraries_text(text, sizeof text);
    return text;
}

/* The exported name is that of the type, which C has no room for beside it. */
extern const sl_cuda_plugin exported __asm__(SL_CUDA_PLUGIN_SYMBOL);
__attribute__((visibility("default"))) const sl_cuda_plugin exported = {
    .version = SL_PLUGIN_VERSION,
    .backend_bytes = sizeof(sl_backend),
    .call_bytes = sizeof(sl_call),
    .options_bytes = sizeof(sl_device_options),
    .connect = connect_library,
    .backend = &sl_cuda_backend,
    .count = sl_gpu_count,
    .facts = sl_gpu_facts,
    .libraries = libraries_text,
};
