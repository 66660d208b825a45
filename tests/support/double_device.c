/* double_device.c: see double_device.h. */
#include "support/double_device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { QUEUE = 1024, TIERS = 2 };

struct sl_device {
    unsigned char *arenas[TIERS];
    bool shared[TIERS];
    uint64_t bytes;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct {
        sluice_status (*work)(void *user);
        void *user;
    } queue[QUEUE];
    uint64_t submitted, finished;
    bool closing;
    sluice_status failure;
    char message[SL_MESSAGE_BYTES];
};

static void *serve(void *user)
{
    sl_device *d = user;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        while (d->submitted == d->finished && !d->closing) pthread_cond_wait(&d->changed, &d->lock);
        if (d->submitted == d->finished) break;
        uint64_t i = d->finished % QUEUE;
        if (d->failure == SLUICE_OK) {
            pthread_mutex_unlock(&d->lock);
            sluice_status st = d->queue[i].work(d->queue[i].user);
            pthread_mutex_lock(&d->lock);
            if (st != SLUICE_OK && d->failure == SLUICE_OK) {
                sl_error_copy(d->message);
                d->failure = st;
            }
        }
        d->finished++;
        pthread_cond_broadcast(&d->changed);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

sl_device *double_open(sl_comm *c, uint64_t bytes)
{
    int files[SL_TIER_COUNT];
    sl_device *d = calloc(1, sizeof *d);
    if (d == NULL) abort();
    c->ops->arena_files(c, files);
    d->bytes = bytes;
    for (int t = 0; t < TIERS; t++) {
        d->shared[t] = files[t] >= 0;
        if (d->shared[t] && ftruncate(files[t], (off_t)bytes) != 0) abort();
        d->arenas[t] = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                            d->shared[t] ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, files[t], 0);
        if (d->arenas[t] == MAP_FAILED) abort();
    }
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, NULL);
    if (pthread_create(&d->thread, NULL, serve, d) != 0) abort();
    return d;
}

void double_close(sl_device *d)
{
    pthread_mutex_lock(&d->lock);
    d->closing = true;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    for (int t = 0; t < TIERS; t++) munmap(d->arenas[t], d->bytes);
    free(d);
}

unsigned char *double_at(sl_device *d, sl_span s)
{
    return d->arenas[s.tier] + s.offset;
}

void double_fail(sl_device *d, sluice_status status, const char *message)
{
    pthread_mutex_lock(&d->lock);
    if (d->failure == SLUICE_OK) snprintf(d->message, sizeof d->message, "%s", message);
    if (d->failure == SLUICE_OK) d->failure = status;
    pthread_mutex_unlock(&d->lock);
}

static sluice_status double_submit(sl_device *d, sl_stream stream, sluice_status (*work)(void *user), void *user)
{
    if (stream != SL_STREAM_COMM) return sl_fail(SLUICE_ERR_FAILED, "stream %d", (int)stream);
    pthread_mutex_lock(&d->lock);
    while (d->submitted - d->finished == QUEUE) pthread_cond_wait(&d->changed, &d->lock);
    d->queue[d->submitted % QUEUE].work = work;
    d->queue[d->submitted % QUEUE].user = user;
    d->submitted++;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    return SLUICE_OK;
}

static sluice_status double_resolve(sl_device *d, const char *what, sl_span s, void **out)
{
    if ((int)s.tier >= TIERS || s.offset + s.bytes > d->bytes)
        return sl_fail(SLUICE_ERR_FAILED, "%s: not in the arena", what);
    *out = double_at(d, s);
    return SLUICE_OK;
}

static bool double_window(const sl_device *d, sl_tier tier, sl_window *out)
{
    if ((int)tier >= TIERS || !d->shared[tier]) return false;
    *out = (sl_window){ 0, d->bytes };
    return true;
}

static sluice_status double_synchronize(sl_device *d)
{
    pthread_mutex_lock(&d->lock);
    while (d->submitted != d->finished) pthread_cond_wait(&d->changed, &d->lock);
    sluice_status st = d->failure == SLUICE_OK ? SLUICE_OK : sl_fail(d->failure, "%s", d->message);
    pthread_mutex_unlock(&d->lock);
    return st;
}

const sl_backend double_backend = {
    .name = "double",
    .close = double_close,
    .submit = double_submit,
    .resolve = double_resolve,
    .window = double_window,
    .synchronize = double_synchronize,
};
