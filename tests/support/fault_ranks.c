/* fault_ranks.c: starting and striking jobs of several ranks. */
#include "support/fault_ranks.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

/* ---- one rank of a job ---- */

typedef struct rank_view {
    const ranks_job *job;
    ranks_result *result;
    int rank;
    /* The hook is called from the rank's own thread and from those that write for it. */
    atomic_bool begun, over, full;
} rank_view;

static int deal_blow(rank_view *v)
{
    if (v->job->blow == BLOW_KILL_RANK) kill(getpid(), SIGKILL);
    if (v->job->blow == BLOW_KILL_PARENT) kill(getppid(), SIGKILL);
    if (v->job->blow == BLOW_STOP_RANK) kill(getpid(), SIGSTOP);
    if (v->job->blow != BLOW_DISK_FULL) {
        sleep(20); /* the blow is on its way; should it never come, the test has long failed */
        _exit(98);
    }
    atomic_store(&v->full, true);
    return ENOSPC;
}

static bool counted(rank_view *v, const char *path)
{
    const ranks_job *j = v->job;
    if (j->from == NULL || strstr(path, j->from) != NULL) atomic_store(&v->begun, true);
    if (j->until != NULL && strstr(path, j->until) != NULL) atomic_store(&v->over, true);
    return atomic_load(&v->begun) && !atomic_load(&v->over);
}

static int on_call(void *user, const char *call, const char *path)
{
    rank_view *v = user;
    if (atomic_load(&v->full)) return strcmp(call, "pwrite") == 0 ? ENOSPC : 0;
    if (!counted(v, path)) return 0;
    int calls = __atomic_add_fetch(&v->result->calls[v->rank], 1, __ATOMIC_SEQ_CST);
    bool now = v->job->blow != BLOW_NONE && v->rank == v->job->odd_rank && calls == v->job->at;
    return now ? deal_blow(v) : 0;
}

static void on_event(void *user, const sluice_event *e)
{
    ranks_result *r = ((rank_view *)user)->result;
    if (e->kind == SLUICE_EVENT_RESUMED) r->resumed = e->step;
    if (e->kind == SLUICE_EVENT_STEP) r->step = e->step;
    if (e->kind == SLUICE_EVENT_SAVED) r->saved = e->step;
    if (e->kind != SLUICE_EVENT_END) return;
    snprintf(r->weights, sizeof r->weights, "%s", e->weights_sha256);
    snprintf(r->state, sizeof r->state, "%s", e->state_sha256);
}

static sluice_status configure(const rank_view *v, sluice_config **out)
{
    const ranks_job *j = v->job;
    sluice_status st = sluice_config_load("c.json", out);
    for (int i = 0; st == SLUICE_OK && i < MOST_SETTINGS && j->settings[i] != NULL; i++)
        st = sluice_config_set(*out, j->settings[i]);
    if (st == SLUICE_OK && v->rank == j->odd_rank && j->odd_setting != NULL)
        st = sluice_config_set(*out, j->odd_setting);
    return st;
}

static void take_ballast(size_t bytes)
{
    char *memory = malloc(bytes);
    if (memory == NULL) _exit(99);
    for (size_t i = 0; i < bytes; i += 4096) ((volatile char *)memory)[i] = 1;
}

static sluice_status rank_body(void *user, sluice_world *world)
{
    rank_view *v = user; /* this process's copy */
    sluice_config *c = NULL;
    sluice_job_options o;
    v->rank = sluice_world_rank(world);
    v->result->pids[v->rank] = getpid();
    if (v->rank == v->job->odd_rank && v->job->odd_folder != NULL && chdir(v->job->odd_folder) != 0) _exit(99);
    if (v->rank == 0 && v->job->ballast > 0) take_ballast(v->job->ballast);
    sluice_job_options_init(&o);
    o.world = world;
    o.resume = v->job->resume;
    o.event = on_event;
    o.user = v;
    sluice_status st = configure(v, &c);
    sl_io_set_hook(on_call, v);
    if (st == SLUICE_OK) st = sluice_job_train(c, &o);
    sl_io_set_hook(NULL, NULL);
    sluice_config_destroy(c);
    return st;
}

/* ---- the process that starts the ranks ---- */

static int launch(const ranks_job *j, ranks_result *result)
{
    rank_view v = { .job = j, .result = result };
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = j->ranks;
    o.timeout_seconds = j->timeout_seconds;
    if (chdir(j->folder) != 0) return 99;
    alarm(300); /* should the ranks hang, the test fails instead of waiting for ever */
    sluice_status st = sluice_launch(&o, rank_body, &v);
    if (st != SLUICE_OK) snprintf(result->message, sizeof result->message, "%s", sluice_error());
    return sluice_exit_status(st);
}

static void *share(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(99);
    return memory;
}

int *shared_ints(int count)
{
    return share((size_t)count * sizeof(int));
}

int ranks_run(const ranks_job *job, ranks_result **out)
{
    int status = 0;
    ranks_result *r = share(sizeof *r);
    *out = r;
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) exit(99);
    if (child == 0) _exit(launch(job, r));
    if (waitpid(child, &status, 0) != child) return -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- ranks of the program ---- */

int program_ranks(const program *p, pid_t pids[MOST_RANKS])
{
    char path[128], text[256], *at = text;
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)p->pid, (int)p->pid);
    FILE *f = fopen(path, "r");
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f != NULL) fclose(f);
    text[n] = '\0';
    for (long pid = strtol(at, &at, 10); pid > 0 && count < MOST_RANKS; pid = strtol(at, &at, 10))
        pids[count++] = (pid_t)pid;
    return count;
}

void program_start_narrow(program *p, const char *folder, const char *arguments)
{
    program_start(p, folder, arguments);
    (void)fcntl(fileno(p->out), F_SETPIPE_SZ, 4096);
}

/* ---- afterwards ---- */

/* A zombie is dead: its reaper is not ours to judge. */
static bool alive(pid_t pid)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f == NULL) return false;
    char *got = fgets(line, sizeof line, f);
    fclose(f);
    const char *end = got != NULL ? strrchr(line, ')') : NULL;
    return end != NULL && end[1] == ' ' && end[2] != 'Z' && end[2] != 'X';
}

static void check_no_segment(void)
{
    struct dirent *entry;
    DIR *dir = opendir("/dev/shm");
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (strstr(entry->d_name, "sluice") != NULL && strncmp(entry->d_name, "sluice-test-", 12) != 0)
            test_fail(__FILE__, __LINE__, "/dev/shm/%s is left", entry->d_name);
    if (dir != NULL) closedir(dir);
}

void check_gone(const pid_t *pids, int count)
{
    int living = count;
    for (int tries = 0; tries < 10000 && living > 0; tries++) {
        living = 0;
        for (int i = 0; i < count; i++) living += pids[i] > 0 && alive(pids[i]);
        if (living > 0) usleep(1000);
    }
    if (living > 0) test_fail(__FILE__, __LINE__, "%d of %d ranks are still there", living, count);
    check_no_segment();
}

static bool is_step(const char *name)
{
    if (strncmp(name, "step-", 5) != 0) return false;
    for (name += 5; isdigit((unsigned char)*name); name++) continue;
    return *name == '\0';
}

static void check_names(const char *folder, const char *const *known, bool steps)
{
    struct dirent *entry;
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        bool expected = entry->d_name[0] == '.' || (steps && is_step(entry->d_name));
        for (int i = 0; known[i] != NULL; i++) expected = expected || strcmp(entry->d_name, known[i]) == 0;
        if (!expected) test_fail(__FILE__, __LINE__, "%s/%s is left", folder, entry->d_name);
    }
    if (dir != NULL) closedir(dir);
}

void check_tidy(const char *folder, const char *checkpoints)
{
    static const char *const inside[] = { "lock", "latest", "model", "log.jsonl", "profile.json", NULL };
    const char *const around[] = { "c.json", "input.txt", "err", checkpoints, NULL };
    char path[2200];
    snprintf(path, sizeof path, "%s/%s", folder, checkpoints);
    check_names(folder, around, false);
    check_names(path, inside, true);
}
