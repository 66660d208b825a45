/* launch.c: starts the ranks of one machine, watches them, and says what became of them.
 *
 * Everything the ranks share is made before the fork and has no name: one segment, and one file per rank and tier for
 * the arenas. Nothing is left when the processes are gone, and they go with their parent, whatever kills it. The parent
 * computes nothing: it passes signals on, reports a rank that vanished to the others, and kills what does not end. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "comm/local.h"
#include "core/alloc.h"
#include "core/sized.h"
#include "core/thread.h"

#define DEFAULT_TIMEOUT 60.0
/* After the first failure the others may take one more deadline, and this long to end. */
#define GRACE_SECONDS    3.0
#define LOOK_NANOSECONDS 5000000
/* Others whose whereabouts the message about a lost rank tells. */
#define TOLD_RANKS 4

typedef struct launch {
    sluice_launch_options options;
    sl_local_segment *segment;
    int (*files)[SL_LOCAL_TIERS]; /* [ranks] */
    pid_t *pids;                  /* [ranks]; 0: ended, or never started */
    bool *killed;                 /* [ranks]; by us */
    int living;
    int passed;       /* the value of *stop that the ranks have */
    double kill_time; /* when what is left is killed; 0: nothing has failed */
} launch;

/* ---- the ranks' own world ---- */

int sluice_world_rank(const sluice_world *w)
{
    return w != NULL ? w->ops->rank(w) : 0;
}

int sluice_world_size(const sluice_world *w)
{
    return w != NULL ? w->ops->size(w) : 1;
}

void sluice_world_leave(sluice_world *w)
{
    if (w != NULL) w->ops->close(w);
}

/* ---- setting up ---- */

void sluice_launch_options_init_sized(sluice_launch_options *o, size_t size)
{
    sluice_launch_options defaults = { .ranks = 1, .timeout_seconds = DEFAULT_TIMEOUT };
    sl_sized_fill(o, size, &defaults, sizeof defaults);
}

static sluice_status take_options(const sluice_launch_options *given, sluice_launch_options *o)
{
    sluice_launch_options_init(o);
    SL_TRY(
        sl_sized_take("sluice_launch_options", given, offsetof(sluice_launch_options, timeout_seconds), o, sizeof *o));
    if (o->timeout_seconds == 0) o->timeout_seconds = DEFAULT_TIMEOUT;
    if (!(o->timeout_seconds > 0 && o->timeout_seconds <= SL_MOST_TIMEOUT))
        return sl_fail(SLUICE_ERR_USAGE, "timeout_seconds is %g, must be above 0 and at most %g", o->timeout_seconds,
                       SL_MOST_TIMEOUT);
    if (o->ranks < 1 || o->ranks > SL_LOCAL_RANKS)
        return sl_fail(SLUICE_ERR_USAGE, "%d ranks on one machine: from 1 to %d are possible", o->ranks,
                       SL_LOCAL_RANKS);
    return SLUICE_OK;
}

static void close_files(launch *l)
{
    for (int r = 0; r < l->options.ranks; r++)
        for (int t = 0; t < SL_LOCAL_TIERS; t++)
            if (l->files[r][t] >= 0) close(l->files[r][t]);
}

static sluice_status open_files(launch *l)
{
    int *all = l->files[0], count = l->options.ranks * SL_LOCAL_TIERS;
    for (int i = 0; i < count; i++) all[i] = -1;
    for (int i = 0; i < count; i++) {
        all[i] = memfd_create("sluice arena", MFD_CLOEXEC);
        if (all[i] >= 0) continue;
        sluice_status st = sl_fail(SLUICE_ERR_FAILED, "a file in memory for the arenas of %d ranks: %s%s",
                                   l->options.ranks, strerror(errno), errno == EMFILE ? "; raise ulimit -n" : "");
        close_files(l);
        return st;
    }
    return SLUICE_OK;
}

/* ---- a rank ---- */

/* The rank's own group keeps the terminal's signals from it: they reach the parent, which passes them on once. */
static void tie_to_parent(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(SLUICE_ERR_RANK); /* it died before the line above */
    setpgid(0, 0);
    signal(SIGTTOU, SIG_IGN); /* outside the terminal's group, writing there must not stop it */
}

static _Noreturn void run_rank(launch *l, int rank, pid_t parent, const sigset_t *signals,
                               sluice_status (*body)(void *user, sluice_world *world), void *user)
{
    sl_comm *world = NULL;
    tie_to_parent(parent);
    sigprocmask(SIG_SETMASK, signals, NULL);
    sluice_status st = sl_comm_local_open(l->segment, rank, l->files, &world);
    if (st == SLUICE_OK) st = body(user, world);
    sl_segment_end(l->segment, rank, st, st == SLUICE_OK ? "" : sluice_error());
    fflush(stdout);
    fflush(stderr);
    sluice_world_leave(world);
    _exit(sluice_exit_status(st));
}

static void kill_living(launch *l, int signal_number)
{
    for (int r = 0; r < l->options.ranks; r++)
        if (l->pids[r] > 0) kill(l->pids[r], signal_number);
}

/* For a start that failed: none of them has done anything yet that matters. */
static void end_started(launch *l)
{
    kill_living(l, SIGKILL);
    for (int r = 0; r < l->options.ranks; r++)
        while (l->pids[r] > 0 && waitpid(l->pids[r], NULL, 0) < 0 && errno == EINTR) continue;
}

/* No signal is handled between reading *stop and the last fork, so that all ranks begin with what `passed` says. */
static sluice_status fork_ranks(launch *l, sluice_status (*body)(void *user, sluice_world *world), void *user)
{
    sigset_t all, before;
    pid_t parent = getpid();
    sluice_status st = SLUICE_OK;
    fflush(NULL); /* or every rank would write what is buffered */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    if (l->options.stop != NULL) l->passed = __atomic_load_n(l->options.stop, __ATOMIC_RELAXED);
    for (int r = 0; r < l->options.ranks && st == SLUICE_OK; r++) {
        l->pids[r] = fork();
        if (l->pids[r] == 0) run_rank(l, r, parent, &before, body, user);
        if (l->pids[r] < 0) {
            st = sl_fail(SLUICE_ERR_FAILED, "starting rank %d of %d: %s", r, l->options.ranks, strerror(errno));
            end_started(l);
        } else {
            l->living++;
        }
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return st;
}

/* ---- watching ---- */

/* Appends where the other ranks were when one was lost. */
static void tell_others(const launch *l, int lost, char *out, size_t bytes)
{
    int told = 0;
    for (int r = 0; r < l->options.ranks && told < TOLD_RANKS; r++) {
        char where[SL_LOCAL_NAME_BYTES + 128];
        size_t used = strlen(out);
        if (r == lost || l->pids[r] == 0) continue;
        sl_member_describe(&l->segment->members[r], where, sizeof where);
        snprintf(out + used, bytes - used, "; rank %d was %s", r, where);
        told++;
    }
}

static void report_lost(launch *l, int r, int wait_status)
{
    char text[SL_MESSAGE_BYTES], where[SL_LOCAL_NAME_BYTES + 128];
    sl_member_describe(&l->segment->members[r], where, sizeof where);
    if (l->killed[r])
        snprintf(text, sizeof text, "rank %d did not end and was killed, %s", r, where);
    else if (WIFSIGNALED(wait_status))
        snprintf(text, sizeof text, "rank %d was killed by signal %d (%s%s) %s", r, WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)),
                 WTERMSIG(wait_status) == SIGKILL ? ", by someone or for lack of memory" : "", where);
    else
        snprintf(text, sizeof text, "rank %d ended with exit status %d before its work was done, %s", r,
                 WEXITSTATUS(wait_status), where);
    tell_others(l, r, text, sizeof text);
    sl_segment_break(l->segment, r, SL_LIFE_LOST, text);
}

/* A rank is gone. One that has said how it ended counts as lost only if something killed it afterwards. */
static void note_end(launch *l, int r, int wait_status)
{
    bool ended = atomic_load(&l->segment->members[r].life.state) == SL_LIFE_ENDED;
    l->pids[r] = 0;
    l->living--;
    if (!ended || (WIFSIGNALED(wait_status) && !l->killed[r])) report_lost(l, r, wait_status);
}

static void reap(launch *l)
{
    for (int r = 0; r < l->options.ranks; r++) {
        int wait_status = 0;
        if (l->pids[r] == 0) continue;
        pid_t got = waitpid(l->pids[r], &wait_status, WNOHANG);
        /* An error other than an interruption: the caller lets the system reap, and the process is gone. */
        if (got > 0 || (got < 0 && errno != EINTR)) note_end(l, r, wait_status);
    }
}

/* One rank is enough for what ranks agree on in every step; telling all could hit two different steps. */
static void signal_first(const launch *l, int signal_number)
{
    for (int r = 0; r < l->options.ranks; r++)
        if (l->pids[r] > 0) {
            kill(l->pids[r], signal_number);
            return;
        }
}

static void pass_signals(launch *l)
{
    int stop = l->options.stop != NULL ? __atomic_load_n(l->options.stop, __ATOMIC_RELAXED) : 0;
    if (stop != l->passed && stop > 0) kill_living(l, stop);
    l->passed = stop;
    if (l->options.save_request != NULL && __atomic_exchange_n(l->options.save_request, 0, __ATOMIC_RELAXED) != 0)
        signal_first(l, SIGUSR1);
}

/* A rank that waits in vain learns it at its deadline. When a deadline has passed, all that is left is to end. */
static void enforce_end(launch *l)
{
    double now = sl_now(), grace = GRACE_SECONDS;
    if (atomic_load(&l->segment->failures) == 0) return;
    if (!atomic_load(&l->segment->late)) grace += l->options.timeout_seconds;
    if (l->kill_time == 0 || now + grace < l->kill_time) l->kill_time = now + grace;
    if (now < l->kill_time) return;
    for (int r = 0; r < l->options.ranks; r++)
        if (l->pids[r] > 0) l->killed[r] = true;
    kill_living(l, SIGKILL);
}

static void watch(launch *l)
{
    const struct timespec look = { 0, LOOK_NANOSECONDS };
    for (reap(l); l->living > 0; reap(l)) {
        pass_signals(l);
        enforce_end(l);
        nanosleep(&look, NULL);
    }
}

/* ---- what became of them ---- */

static sluice_status status_of(const sl_life *life)
{
    return atomic_load(&life->state) == SL_LIFE_ENDED ? (sluice_status)life->status : SLUICE_ERR_RANK;
}

static const char *message_of(const sl_life *life)
{
    return atomic_load(&life->state) == SL_LIFE_ENDED ? life->message : life->reason;
}

/* The rank that failed first; -1: none did. */
static int first_failed(const launch *l)
{
    int first = -1;
    uint32_t least = UINT32_MAX;
    for (int r = 0; r < l->options.ranks; r++) {
        const sl_life *life = &l->segment->members[r].life;
        sluice_status st = status_of(life);
        uint32_t order = atomic_load(&life->order);
        if (st == SLUICE_OK || st == SLUICE_ERR_STOPPED || order >= least) continue;
        first = r;
        least = order;
    }
    return first;
}

static bool all_say(const launch *l, const char *message)
{
    for (int r = 0; r < l->options.ranks; r++)
        if (strcmp(message_of(&l->segment->members[r].life), message) != 0) return false;
    return true;
}

static bool names_rank(const char *message, int rank)
{
    char name[32];
    int length = snprintf(name, sizeof name, "rank %d", rank);
    for (const char *at = message; (at = strstr(at, name)) != NULL; at += length)
        if (at[length] < '0' || at[length] > '9') return true;
    return false;
}

static sluice_status outcome(const launch *l)
{
    int r = first_failed(l);
    for (int i = 0; i < l->options.ranks && r < 0; i++)
        if (status_of(&l->segment->members[i].life) == SLUICE_ERR_STOPPED) r = i;
    if (r < 0) return SLUICE_OK;
    const sl_life *life = &l->segment->members[r].life;
    const char *message = message_of(life);
    sluice_status st = status_of(life);
    if (st == SLUICE_ERR_STOPPED || names_rank(message, r) || all_say(l, message)) return sl_fail(st, "%s", message);
    return sl_fail(st, "rank %d: %s", r, message);
}

sluice_status sluice_launch(const sluice_launch_options *o, sluice_status (*body)(void *user, sluice_world *world),
                            void *user)
{
    sluice_status st;
    launch l = { 0 };
    if (o == NULL || body == NULL) return sl_fail(SLUICE_ERR_USAGE, "sluice_launch: options and body are needed");
    SL_TRY(take_options(o, &l.options));
    size_t ranks = (size_t)l.options.ranks;
    l.files = sl_alloc_array(ranks, sizeof *l.files, "arena files");
    l.pids = sl_alloc_array(ranks, sizeof *l.pids, "rank processes");
    l.killed = sl_alloc_array(ranks, sizeof *l.killed, "rank processes");
    st = SLUICE_ERR_NO_MEMORY;
    if (l.files == NULL || l.pids == NULL || l.killed == NULL) goto free_arrays;
    if ((st = sl_segment_create(l.options.ranks, l.options.timeout_seconds, &l.segment)) != SLUICE_OK) goto free_arrays;
    if ((st = open_files(&l)) != SLUICE_OK) goto destroy_segment;
    st = fork_ranks(&l, body, user);
    close_files(&l);
    if (st != SLUICE_OK) goto destroy_segment;
    watch(&l);
    st = outcome(&l);
destroy_segment:
    sl_segment_destroy(l.segment);
free_arrays:
    sl_free(l.killed);
    sl_free(l.pids);
    sl_free(l.files);
    return st;
}
