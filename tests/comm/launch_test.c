/* launch_test.c: how a job of local ranks ends, and what it leaves behind: nothing. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/comm.h"
#include "test.h"

typedef sluice_status body_fn(void *user, sluice_world *world);

static sluice_status launch(int ranks, body_fn *body, void *user)
{
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = ranks;
    o.timeout_seconds = 30;
    return sluice_launch(&o, body, user);
}

/* Zeroed memory that forked processes share. */
static void *shared_memory(void)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) abort();
    return p;
}

/* ---- good ends ---- */

static sluice_status check_in(void *user, sluice_world *w)
{
    _Atomic int *seen = user;
    atomic_fetch_add(&seen[sluice_world_rank(w)], sluice_world_size(w));
    return SLUICE_OK;
}

TEST(every_rank_runs_the_body_once)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        _Atomic int *seen = shared_memory();
        REQUIRE_OK(launch(ranks, check_in, seen));
        for (int r = 0; r < 5; r++) CHECK_EQ(atomic_load(&seen[r]), r < ranks ? ranks : 0);
        munmap(seen, 4096);
    }
}

TEST(without_a_world_a_process_is_rank_0_of_1)
{
    CHECK_EQ(sluice_world_rank(NULL), 0);
    CHECK_EQ(sluice_world_size(NULL), 1);
    sluice_world_leave(NULL);
}

TEST(impossible_launches_are_refused)
{
    sluice_launch_options o;
    CHECK_EQ(launch(0, check_in, NULL), SLUICE_ERR_USAGE);
    CHECK_EQ(launch(100000, check_in, NULL), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "100000 ranks");
    sluice_launch_options_init(&o);
    o.timeout_seconds = -1;
    CHECK_EQ(sluice_launch(&o, check_in, NULL), SLUICE_ERR_USAGE);
    o.size = 1;
    CHECK_EQ(sluice_launch(&o, check_in, NULL), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "sluice_launch_options_init");
}

/* ---- failures ---- */

static sluice_status all_refuse(void *user, sluice_world *w)
{
    (void)user, (void)w;
    return sl_fail(SLUICE_ERR_USAGE, "steps: 0 is not a number of steps");
}

TEST(what_all_ranks_say_is_said_once_and_plainly)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        CHECK_EQ(launch(ranks, all_refuse, NULL), SLUICE_ERR_USAGE);
        CHECK_STR(sluice_error(), "steps: 0 is not a number of steps");
    }
}

/* Rank 2 has a failure of its own; the others learn it while they wait. */
static sluice_status one_fails(void *user, sluice_world *w)
{
    (void)user;
    if (sluice_world_rank(w) != 2) return w->ops->barrier(w, "end of the step");
    return sl_fail(SLUICE_ERR_IO, "write w.safetensors: No space left on device");
}

TEST(the_first_failure_is_reported_with_its_rank)
{
    CHECK_EQ(launch(4, one_fails, NULL), SLUICE_ERR_IO);
    CHECK_STR(sluice_error(), "rank 2: write w.safetensors: No space left on device");
}

static sluice_status one_aborts(void *user, sluice_world *w)
{
    _Atomic int *told = user;
    if (sluice_world_rank(w) == 1) {
        w->ops->abort(w, "the disk is full");
        w->ops->abort(w, "another word");
        while (atomic_load(told) != 2) usleep(1000); /* it is still there: the others learn it from the call alone */
        return sl_fail(SLUICE_ERR_IO, "the disk is full");
    }
    sluice_status st = w->ops->barrier(w, "end of the step");
    if (st == SLUICE_ERR_RANK && strcmp(sluice_error(), "rank 1 gave up: the disk is full") == 0)
        atomic_fetch_add(told, 1);
    else
        fprintf(stderr, "%d %s\n", (int)st, sluice_error());
    CHECK_EQ(w->ops->barrier(w, "any other call"), SLUICE_ERR_RANK);
    return st;
}

TEST(an_abort_reaches_the_others_in_their_next_call)
{
    _Atomic int *told = shared_memory();
    CHECK_EQ(launch(3, one_aborts, told), SLUICE_ERR_IO);
    CHECK_STR(sluice_error(), "rank 1: the disk is full");
    CHECK_EQ(atomic_load(told), 2);
    munmap(told, 4096);
}

static sluice_status one_ends_early(void *user, sluice_world *w)
{
    (void)user;
    return sluice_world_rank(w) == 1 ? SLUICE_OK : w->ops->barrier(w, "last barrier");
}

TEST(a_rank_that_ends_early_is_named_with_the_call_it_misses)
{
    CHECK_EQ(launch(2, one_ends_early, NULL), SLUICE_ERR_RANK);
    CHECK_STR(sluice_error(), "rank 0: rank 1 has ended and did not arrive at \"last barrier\"");
}

static sluice_status one_exits(void *user, sluice_world *w)
{
    (void)user;
    if (sluice_world_rank(w) == 1) _exit(3);
    return w->ops->barrier(w, "last barrier");
}

TEST(a_rank_that_exits_without_a_word_is_lost)
{
    CHECK_EQ(launch(3, one_exits, NULL), SLUICE_ERR_RANK);
    CHECK_CONTAINS(sluice_error(), "rank 1 ended with exit status 3 before its work was done");
}

static sluice_status one_crashes(void *user, sluice_world *w)
{
    int signal_number = *(const int *)user;
    SL_TRY(w->ops->barrier(w, "first barrier"));
    if (sluice_world_rank(w) == 2) {
        signal(signal_number, SIG_DFL); /* sanitizers catch some */
        raise(signal_number);
    }
    return w->ops->barrier(w, "second barrier");
}

TEST(a_rank_killed_by_a_signal_is_named_and_the_others_end)
{
    static const int signals[] = { SIGKILL, SIGSEGV };
    for (int i = 0; i < 2; i++) {
        int number = signals[i];
        char expected[128];
        snprintf(expected, sizeof expected, "rank 2 was killed by signal %d (%s", number, strsignal(number));
        CHECK_EQ(launch(3, one_crashes, &number), SLUICE_ERR_RANK);
        CHECK(strncmp(sluice_error(), expected, strlen(expected)) == 0);
        CHECK_CONTAINS(sluice_error(), "after \"first barrier\"");
    }
}

/* ---- signals to the job ---- */

static volatile sig_atomic_t caught;

static void catch_signal(int number)
{
    caught = number;
}

typedef struct request {
    int stop, save;
} request;

/* The ranks listen first; then rank 0 sets the parent's flag, as the parent's own handler would. */
static sluice_status wait_for_stop(void *user, sluice_world *w)
{
    request *r = user;
    signal(SIGTERM, catch_signal);
    SL_TRY(w->ops->barrier(w, "listening"));
    if (sluice_world_rank(w) == 0) __atomic_store_n(&r->stop, SIGTERM, __ATOMIC_RELAXED);
    while (caught == 0) usleep(1000);
    return sl_fail(SLUICE_ERR_STOPPED, "stopped by signal %d after step %d", (int)caught, 7 + sluice_world_rank(w));
}

TEST(a_stop_reaches_all_ranks_and_rank_0_speaks)
{
    request *r = shared_memory();
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = 3;
    o.stop = &r->stop;
    CHECK_EQ(sluice_launch(&o, wait_for_stop, r), SLUICE_ERR_STOPPED);
    CHECK_STR(sluice_error(), "stopped by signal 15 after step 7");
    munmap(r, 4096);
}

static sluice_status wait_for_save(void *user, sluice_world *w)
{
    request *r = user;
    signal(SIGUSR1, catch_signal);
    SL_TRY(w->ops->barrier(w, "listening"));
    if (sluice_world_rank(w) == 0) __atomic_store_n(&r->save, 1, __ATOMIC_RELAXED);
    while (sluice_world_rank(w) == 0 && caught == 0) usleep(1000);
    SL_TRY(w->ops->barrier(w, "heard"));
    return (caught != 0) == (sluice_world_rank(w) == 0) ? SLUICE_OK
                                                        : sl_fail(SLUICE_ERR_FAILED, "heard %d", (int)caught);
}

TEST(a_request_to_save_reaches_one_rank_and_is_cleared)
{
    request *r = shared_memory();
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = 3;
    o.save_request = &r->save;
    REQUIRE_OK(sluice_launch(&o, wait_for_save, r));
    CHECK_EQ(r->save, 0);
    munmap(r, 4096);
}

/* ---- nothing is left ---- */

static int count_files(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL) return -1;
    while (readdir(dir) != NULL) count++;
    closedir(dir);
    return count;
}

/* Mappings of this process whose line in its list contains `part`. */
static int count_mappings(const char *part)
{
    int count = 0;
    char line[4096];
    FILE *f = fopen("/proc/self/maps", "r");
    if (f == NULL) return -1;
    while (fgets(line, sizeof line, f) != NULL) count += strstr(line, part) != NULL;
    fclose(f);
    return count;
}

static sluice_status look_for_names(void *user, sluice_world *w)
{
    (void)user;
    SL_TRY(w->ops->barrier(w, "use the memory"));
    int named = count_mappings("/dev/shm/"), memory = count_mappings("/dev/zero (deleted)");
    if (named == 0 && memory > 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "%d named and %d nameless shared mappings", named, memory);
}

TEST(what_ranks_share_has_no_name_that_could_stay)
{
    REQUIRE_OK(launch(2, look_for_names, NULL));
}

TEST(no_file_mapping_or_process_is_left_after_a_launch)
{
    _Atomic int *seen = shared_memory();
    int files = count_files(), mappings = count_mappings(" rw-s ");
    (void)launch(3, one_exits, NULL);
    REQUIRE_OK(launch(3, check_in, seen));
    CHECK_EQ(count_files(), files);
    CHECK_EQ(count_mappings(" rw-s "), mappings);
    munmap(seen, 4096);
    CHECK_EQ(waitpid(-1, NULL, WNOHANG), -1);
    CHECK_EQ(errno, ECHILD);
}

typedef struct pids {
    _Atomic int rank[4];
} pids;

static sluice_status sit(void *user, sluice_world *w)
{
    atomic_store(&((pids *)user)->rank[sluice_world_rank(w)], (int)getpid());
    for (;;) pause();
    return SLUICE_OK;
}

/* Whether an adopted process is killed before ten seconds have passed; if not, it is now. */
static bool dies_by_itself(pid_t pid)
{
    int status = 0;
    for (int i = 0; i < 10000; i++) {
        if (waitpid(pid, &status, WNOHANG) == pid) return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        usleep(1000);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return false;
}

/* This process adopts the orphans, so that it can see how they ended. */
TEST(ranks_die_with_a_parent_that_is_killed)
{
    pids *p = shared_memory();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fflush(stdout);
    pid_t parent = fork();
    REQUIRE(parent >= 0);
    if (parent == 0) _exit(launch(3, sit, p) != SLUICE_OK);
    for (int r = 0; r < 3; r++)
        while (atomic_load(&p->rank[r]) == 0) usleep(1000);
    kill(parent, SIGKILL);
    CHECK_EQ(waitpid(parent, NULL, 0), parent);
    for (int r = 0; r < 3; r++) CHECK(dies_by_itself(atomic_load(&p->rank[r])));
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    munmap(p, 4096);
}
