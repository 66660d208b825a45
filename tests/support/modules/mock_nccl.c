/* mock_nccl.c: an NCCL without GPUs, built as a library of its own: ranks are processes, bytes go over sockets, and
 * streams are threads of the test (mock_nccl.h).
 *
 * As NCCL does, it returns before anything has happened, says that it is still at it, and waits for a rank that does
 * not come until it is told to abort. It ends the program where two ranks do not mean the same message. The
 * environment's MOCK_NCCL asks for trouble: "old", "init", "stall", "error:N" and "hang:N" (the N-th group of the
 * process). */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "comm/nccl_api.h"
#include "support/mock_nccl.h"

#define EXPORTED __attribute__((visibility("default")))

enum { RANKS = 16, OPS = 8192, SYSTEM_ERROR = 2, REMOTE_ERROR = 6, POLLS = 3 };

struct sl_nccl_comm {
    int rank, ranks, sockets[RANKS];
    char name[64];
    pthread_t starter;
    _Atomic int state, polls; /* polls: how often it still says that it is in progress */
    _Atomic bool aborted;
    struct sl_nccl_comm *next; /* never freed: a stream may still be at it */
};
typedef struct sl_nccl_comm comm;

typedef struct op {
    const char *from; /* NULL: a receive */
    char *to;         /* NULL: a send. With both: a copy */
    uint64_t bytes;
    int peer;
    uint64_t announced; /* of a message: its length goes ahead of it */
    uint64_t done;      /* with the length */
} op;

typedef struct batch {
    comm *c;
    bool hangs;
    int count;
    op ops[];
} batch;

static comm *all;
static _Thread_local op queued[OPS];
static _Thread_local int queued_count;
static _Thread_local comm *queued_comm;
static _Thread_local mock_stream *queued_stream;
static int groups;

static void die(const char *what)
{
    fprintf(stderr, "mock NCCL: %s\n", what);
    abort();
}

static bool wants(const char *trouble)
{
    const char *text = getenv("MOCK_NCCL");
    return text != NULL && strcmp(text, trouble) == 0;
}

static bool wants_now(const char *trouble)
{
    char text[32];
    snprintf(text, sizeof text, "%s:%d", trouble, groups);
    return wants(text);
}

/* ---- starting ---- */

EXPORTED int ncclGetVersion(int *version)
{
    *version = wants("old") ? 21000 : 22809;
    return 0;
}

EXPORTED const char *ncclGetErrorString(int result)
{
    return result == SYSTEM_ERROR ? "mock system error" : "mock error";
}

EXPORTED const char *ncclGetLastError(comm *c)
{
    (void)c;
    return "";
}

EXPORTED int ncclGetUniqueId(sl_nccl_id *id)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    snprintf(id->internal, sizeof id->internal, "mock-nccl-%d-%lld", (int)getpid(),
             (long long)t.tv_sec * 1000000000 + t.tv_nsec);
    return 0;
}

static struct sockaddr_un address_of(const comm *c, int rank)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "%s-%d", c->name, rank);
    return a;
}

static bool is_ready(const comm *c, int socket)
{
    struct pollfd p = { socket, POLLIN, 0 };
    while (!atomic_load(&c->aborted))
        if (poll(&p, 1, 5) > 0) return true;
    return false;
}

static void call_lower(comm *c)
{
    for (int r = 0; r < c->rank; r++) {
        struct sockaddr_un a = address_of(c, r);
        c->sockets[r] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        while (connect(c->sockets[r], (struct sockaddr *)&a, sizeof a) != 0 && !atomic_load(&c->aborted)) usleep(1000);
        if (write(c->sockets[r], &c->rank, sizeof c->rank) != (ssize_t)sizeof c->rank && !atomic_load(&c->aborted))
            die("a rank did not take the call");
    }
}

static void *start(void *user)
{
    comm *c = user;
    struct sockaddr_un own = address_of(c, c->rank);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&own, sizeof own) != 0 || listen(listener, RANKS) != 0) die("no socket");
    call_lower(c);
    for (int i = c->rank + 1; i < c->ranks && is_ready(c, listener); i++) {
        int r = -1, s = accept(listener, NULL, NULL);
        if (!is_ready(c, s)) break;
        if (read(s, &r, sizeof r) != (ssize_t)sizeof r || r <= c->rank || r >= c->ranks) die("a strange rank called");
        c->sockets[r] = s;
    }
    close(listener);
    atomic_store(&c->state, SL_NCCL_SUCCESS);
    return NULL;
}

EXPORTED int ncclCommInitRankConfig(comm **out, int ranks, sl_nccl_id id, int rank, sl_nccl_config *config)
{
    if (config->size != sizeof *config || config->magic != SL_NCCL_CONFIG_MAGIC || config->blocking != 0)
        die("a strange configuration");
    if (wants("init")) return SYSTEM_ERROR;
    comm *c = calloc(1, sizeof *c);
    if (c == NULL || ranks > RANKS) die("too many ranks");
    c->rank = rank, c->ranks = ranks, c->next = all, all = c;
    snprintf(c->name, sizeof c->name, "%.63s", id.internal);
    for (int r = 0; r < RANKS; r++) c->sockets[r] = -1;
    atomic_store(&c->state, SL_NCCL_IN_PROGRESS);
    *out = c;
    groups = 0;
    if (!wants("stall") && pthread_create(&c->starter, NULL, start, c) != 0) die("no thread");
    return SL_NCCL_IN_PROGRESS;
}

EXPORTED int ncclCommGetAsyncError(comm *c, int *error)
{
    *error = atomic_load(&c->state);
    if (*error == SL_NCCL_SUCCESS && atomic_fetch_sub(&c->polls, 1) > 0) *error = SL_NCCL_IN_PROGRESS;
    return 0;
}

/* ---- ending ---- */

static void leave(comm *c)
{
    if (c->starter != 0) pthread_join(c->starter, NULL);
    c->starter = 0;
}

EXPORTED int ncclCommFinalize(comm *c)
{
    atomic_store(&c->polls, POLLS);
    return SL_NCCL_IN_PROGRESS;
}

EXPORTED int ncclCommDestroy(comm *c)
{
    leave(c);
    for (int r = 0; r < c->ranks; r++)
        if (c->sockets[r] >= 0) close(c->sockets[r]);
    return 0;
}

EXPORTED int ncclCommAbort(comm *c)
{
    atomic_store(&c->aborted, true);
    leave(c);
    return 0;
}

/* ---- groups ---- */

EXPORTED int ncclGroupStart(void)
{
    queued_count = 0;
    queued_comm = NULL;
    return 0;
}

static int queue(comm *c, void *stream, int type, op o)
{
    if (type != SL_NCCL_UINT8 || queued_count == OPS) die("a strange call");
    if (o.from == NULL || o.to == NULL)
        if (o.peer < 0 || o.peer >= c->ranks || o.peer == c->rank) die("a message to nobody");
    queued[queued_count++] = o;
    queued_comm = c;
    queued_stream = stream;
    return SL_NCCL_IN_PROGRESS;
}

EXPORTED int ncclSend(const void *from, size_t count, int type, int peer, comm *c, void *stream)
{
    return queue(c, stream, type, (op){ .from = from, .bytes = count, .peer = peer });
}

EXPORTED int ncclRecv(void *to, size_t count, int type, int peer, comm *c, void *stream)
{
    return queue(c, stream, type, (op){ .to = to, .bytes = count, .peer = peer });
}

EXPORTED int ncclAllGather(const void *from, void *to, size_t count, int type, comm *c, void *stream)
{
    char *whole = to;
    for (int r = 0; r < c->ranks; r++) {
        if (r == c->rank) continue;
        (void)ncclSend(from, count, type, r, c, stream);
        (void)ncclRecv(whole + (size_t)r * count, count, type, r, c, stream);
    }
    op own = { .from = from, .to = whole + (size_t)c->rank * count, .bytes = count, .peer = -1 };
    return queue(c, stream, type, own);
}

/* A few more bytes of a message, its length first. */
static bool advance(const comm *c, op *o)
{
    bool sends = o->from != NULL, in_head = o->done < sizeof o->announced;
    uint64_t begin = in_head ? o->done : o->done - sizeof o->announced;
    uint64_t left = (in_head ? sizeof o->announced : o->bytes) - begin;
    char *head = (char *)&o->announced;
    if (sends) o->announced = o->bytes;
    ssize_t n = sends ? send(c->sockets[o->peer], (in_head ? head : o->from) + begin, left, MSG_DONTWAIT | MSG_NOSIGNAL)
                      : recv(c->sockets[o->peer], (in_head ? head : o->to) + begin, left, MSG_DONTWAIT);
    if (n <= 0) return false;
    o->done += (uint64_t)n;
    if (!sends && o->done == sizeof o->announced && o->announced != o->bytes) die("a message of another length");
    return true;
}

static bool is_done(const op *o)
{
    return o->done == o->bytes + sizeof o->announced;
}

/* One round over all messages; those to and from one rank in their order. Sets *left to how many are not done. */
static bool step(batch *b, int *left)
{
    bool moved = false, busy[2][RANKS] = { { false } };
    *left = 0;
    for (int i = 0; i < b->count; i++) {
        op *o = &b->ops[i];
        if (o->peer < 0 || is_done(o)) continue;
        bool *taken = &busy[o->from != NULL][o->peer];
        if (!*taken && advance(b->c, o)) moved = true;
        *taken = true;
        *left += !is_done(o);
    }
    return moved;
}

static void carry_out(void *user)
{
    batch *b = user;
    int left = b->count;
    for (int i = 0; i < b->count; i++)
        if (b->ops[i].peer < 0) memmove(b->ops[i].to, b->ops[i].from, b->ops[i].bytes);
    while ((left > 0 || b->hangs) && !atomic_load(&b->c->aborted))
        if (b->hangs || !step(b, &left)) usleep(50);
    free(b);
}

EXPORTED int ncclGroupEnd(void)
{
    if (queued_comm == NULL) return 0;
    batch *b = malloc(sizeof *b + (size_t)queued_count * sizeof(op));
    if (b == NULL) die("no memory");
    groups++;
    *b = (batch){ queued_comm, wants_now("hang") || wants_now("error"), queued_count };
    memcpy(b->ops, queued, (size_t)queued_count * sizeof(op));
    atomic_store(&b->c->polls, POLLS);
    queued_stream->enqueue(queued_stream, carry_out, b);
    if (wants_now("error")) {
        atomic_store(&queued_comm->polls, 0);
        atomic_store(&queued_comm->state, REMOTE_ERROR);
    }
    return SL_NCCL_IN_PROGRESS;
}
