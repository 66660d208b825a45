/* cuda_errors.c: errors of CUDA, and in which operation they occurred.
 *
 * Errors of kernels come to light long after the kernel was submitted, in whatever call is made next, and kill the CUDA
 * context. So that the message can name the operation, the GPU counts the calls of COMPUTE as it finishes them, in
 * pinned memory, which survives the context; the first one not counted is the one that failed. */
#include <stdio.h>

#include "backend/cuda/device.h"

/* The one place to switch counting off: it is one small write of the GPU per kernel. */
static const bool counts_calls = true;

/* ---- which operation ---- */

void sl_device_note_call(sl_device *d, const sl_call *c)
{
    d->call_count++;
    d->calls[d->call_count % SL_CALL_RING] = (sl_call_note){ c->op, c->name, c->layer };
}

void sl_device_count_call(sl_device *d)
{
    if (!counts_calls || d->write_word == NULL) return;
    (void)d->write_word(d->streams[SL_STREAM_COMPUTE], (CUdeviceptr)(uintptr_t)&d->words->finished_calls, d->call_count,
                        CU_STREAM_WRITE_VALUE_DEFAULT);
}

/* "linear fc1 of layer h.3" */
static void describe(const sl_call_note *n, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s %s%s%s", sl_ops[n->op].name, n->name != NULL ? n->name : "",
             n->layer != NULL ? " of layer " : "", n->layer != NULL ? n->layer : "");
}

/* Where the GPU was when it failed. */
static void describe_place(const sl_device *d, char *out, size_t bytes)
{
    char call[512];
    uint32_t finished = atomic_load(&d->words->finished_calls), pending = d->call_count - finished;
    if (d->call_count == 0 || (counts_calls && d->write_word != NULL && pending == 0)) {
        snprintf(out, bytes, "no kernel of sluice was under way");
    } else if (!counts_calls || d->write_word == NULL || pending > SL_CALL_RING) {
        describe(&d->calls[d->call_count % SL_CALL_RING], call, sizeof call);
        snprintf(out, bytes, "in one of the kernels up to %s", call);
    } else {
        describe(&d->calls[(finished + 1) % SL_CALL_RING], call, sizeof call);
        snprintf(out, bytes, "in %s", call);
    }
}

/* ---- life and death ---- */

/* Of several threads that see it, the first writes the message. */
static void die(sl_device *d, cudaError_t error)
{
    char place[640];
    if (atomic_load(&d->host.dead) || atomic_flag_test_and_set(&d->dying)) return;
    describe_place(d, place, sizeof place);
    snprintf(d->death, sizeof d->death, "GPU %d failed, %s: %s", d->options.ordinal, place, cudaGetErrorString(error));
    atomic_store(&d->host.dead, true);
}

sluice_status sl_device_alive(const sl_device *d)
{
    if (!atomic_load(&d->host.dead)) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "%s", d->death);
}

/* An error of the context is told by every call from then on; that a stream is not empty is none, but is remembered
 * like one. */
void sl_device_look(void *device)
{
    sl_device *d = device;
    if (d->streams[SL_STREAM_COMPUTE] == NULL || atomic_load(&d->host.dead)) return;
    cudaError_t error = cudaStreamQuery(d->streams[SL_STREAM_COMPUTE]);
    if (error == cudaSuccess) return;
    (void)cudaGetLastError();
    if (error != cudaErrorNotReady) die(d, error);
}

sluice_status sl_device_enter(sl_device *d)
{
    SL_TRY(sl_device_alive(d));
    SL_CUDA(d, cudaSetDevice(d->options.ordinal), "choosing the GPU");
    return SLUICE_OK;
}

sluice_status sl_device_failed(sl_device *d, cudaError_t error, const char *what)
{
    (void)cudaGetLastError();
    sl_device_look(d);
    SL_TRY(sl_device_alive(d));
    return sl_fail(error == cudaErrorMemoryAllocation ? SLUICE_ERR_NO_MEMORY : SLUICE_ERR_FAILED, "GPU %d: %s: %s",
                   d->options.ordinal, what, cudaGetErrorString(error));
}

sluice_status sl_device_launched(sl_device *d, const sl_call *c, sluice_status st)
{
    char message[SL_MESSAGE_BYTES], call[512];
    cudaError_t error = cudaGetLastError();
    if (st == SLUICE_OK && error == cudaSuccess) return SLUICE_OK;
    if (st == SLUICE_OK)
        snprintf(message, sizeof message, "%s", cudaGetErrorString(error));
    else
        sl_error_copy(message);
    sl_device_look(d);
    SL_TRY(sl_device_alive(d));
    describe(&(sl_call_note){ c->op, c->name, c->layer }, call, sizeof call);
    return sl_fail(st != SLUICE_OK ? st : SLUICE_ERR_FAILED, "%s: %s", call, message);
}
