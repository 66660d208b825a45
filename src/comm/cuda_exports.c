/* cuda_exports.c: what libsluice_cuda.so exports, and what it takes from the library that opened it. It is here because
 * the plugin holds the backend and the communicator on top of it.
 *
 * The plugin is linked with the archives of core/, ir/ and backend/, as far as it uses them. The functions below stand
 * for those of core/status.c and core/alloc.c, which the linker therefore leaves out: messages end up in the library's
 * thread-local buffer and memory in its counters. One that is used and is not here would bring the original in beside
 * these, and the link would fail. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/gpu.h"
#include "backend/cuda/library.h"
#include "backend/plugin_file.h"
#include "comm/nccl_api.h"
#include "comm/nccl_comm.h"
#include "core/alloc.h"

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

void sl_free(void *p)
{
    library->free(p);
}

/* ---- the table ---- */

static const char *libraries_text(void)
{
    static char text[256];
    sl_nccl_api nccl;
    int version = 0;
    sl_cuda_libraries_text(text, sizeof text);
    size_t used = strlen(text);
    if (sl_nccl_api_open(&nccl) == SLUICE_OK && nccl.version(&version) == SL_NCCL_SUCCESS)
        snprintf(text + used, sizeof text - used, ", NCCL %d.%d", version / 10000, version / 100 % 100);
    return text;
}

/* The environment's SLUICE_CHECK_COLLECTIVES: compare every collective over the base as well. */
static sluice_status open_nccl(sl_comm *base, sl_comm **out)
{
    const char *check = getenv("SLUICE_CHECK_COLLECTIVES");
    sl_nccl_options o = { .base = base, .lane = &sl_cuda_lane_ops, .checked = check != NULL && check[0] == '1' };
    return sl_comm_nccl_open(&o, out);
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
    .comm_ops_bytes = sizeof(sl_comm_ops),
    .open_nccl = open_nccl,
    .lane = &sl_cuda_lane_ops,
};
