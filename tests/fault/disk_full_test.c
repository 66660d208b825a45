/* A disk that fills up while saving: exit status 6, and what was saved before is still good. */
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/fault_program.h"
#include "test.h"

/* A checkpoint has 40 KiB, the weights alone 13 KiB. */
static const char config[] =
    "{\"model\": {\"type\": \"mlp\", \"features\": 16, \"hidden\": [100], \"outputs\": 16},\n"
    " \"data\": {\"type\": \"regression\", \"samples\": 64}, \"steps\": 6, \"train_batch_size\": 4, \"threads\": 1,\n"
    " \"optimizer\": {\"type\": \"AdamW\"}, \"checkpoint\": {\"path\": \"small/run\", \"every\": 1}}\n";

static void make_folder(char folder[1024])
{
    char path[1100];
    memory_folder(folder);
    write_text(folder, "c.json", config);
    snprintf(path, sizeof path, "%s/small", folder);
    if (mkdir(path, 0700) != 0) exit(99);
}

/* Runs into the wall, then goes on from what is left once there is room. */
static void check_full_while_saving(const char *folder, void (*make_room)(const char *folder))
{
    program untouched, p;
    CHECK_EQ(program_run(&untouched, folder, "train c.json --json --set checkpoint.path=elsewhere"), 0);
    CHECK_EQ(program_run(&p, folder, "train c.json --json"), 6);
    CHECK_CONTAINS(program_error(&p), "free space there");
    CHECK(p.saved >= 1 && p.saved < 6);
    uint64_t saved = p.saved;
    CHECK_EQ(program_run(&p, folder, "verify small/run"), 0);
    make_room(folder);
    CHECK_EQ(program_run(&p, folder, "train c.json --json --resume"), 0);
    CHECK_EQ(p.resumed, saved);
    CHECK_STR(p.weights, untouched.weights);
    CHECK_STR(p.state, untouched.state);
}

/* A file system of 100 KiB: two checkpoints, not three. */
static bool mount_small(const char *folder, const char *size, unsigned long flags)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/small", folder);
    return mount("sluice-test", path, "tmpfs", flags, size) == 0;
}

static void enlarge(const char *folder)
{
    CHECK(mount_small(folder, "size=4m", MS_REMOUNT));
}

/* In a child with mounts of its own, so that nothing stays mounted whatever happens. Exit status: failures, 200 where
 * we may not. */
static int in_private_mounts(const char *folder, void (*run)(const char *folder))
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            !mount_small(folder, "size=100k", 0))
            _exit(200);
        run(folder);
        _exit(test_failures < 100 ? test_failures : 100);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

static void run_on_small_disk(const char *folder)
{
    check_full_while_saving(folder, enlarge);
}

TEST(a_full_disk_while_saving_is_exit_6_and_the_last_checkpoint_is_good)
{
    char folder[1024];
    make_folder(folder);
    int failures = in_private_mounts(folder, run_on_small_disk);
    if (failures == 200) SKIP(small_disk, "no small file system can be mounted here");
    CHECK_EQ(failures, 0);
}

/* ---- the same where nothing can be mounted: files may not grow beyond a limit ---- */

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) exit(99);
}

TEST(weights_that_cannot_be_written_are_exit_6_and_the_old_file_stays)
{
    char folder[1024];
    program first, p;
    make_folder(folder);
    CHECK_EQ(program_run(&first, folder,
                         "train c.json --json --set checkpoint.path= --set save=w.safetensors --set steps=3"),
             0);
    signal(SIGXFSZ, SIG_IGN); /* also in the program, which then sees an error */
    limit_files(4096);
    int status = program_run(&p, folder, "train c.json --json --set checkpoint.path= --set save=w.safetensors");
    limit_files(RLIM_INFINITY);
    signal(SIGXFSZ, SIG_DFL);
    CHECK_EQ(status, 6);
    CHECK_CONTAINS(program_error(&p), "w.safetensors");
    CHECK_EQ(program_run(&p, folder, "verify w.safetensors"), 0);
    CHECK_EQ(program_run(&p, folder,
                         "train c.json --json --set checkpoint.path= --set load=w.safetensors --set steps=1 --set "
                         "optimizer.params.lr=0"),
             0);
    CHECK_STR(p.weights, first.weights);
}

/* ---- known before the first step ---- */

static void check_no_room(const char *folder, const char *arguments, const char *what)
{
    program p;
    CHECK_EQ(program_run(&p, folder, arguments), 6);
    CHECK_EQ(p.step, 0);
    CHECK_CONTAINS(program_error(&p), what);
    CHECK_CONTAINS(program_error(&p), "free space there or choose another folder");
}

/* 100 KiB, where 1,000 hidden features have 130 KiB of weights and three times that in a checkpoint; 500 have 66 KiB of
 * weights alone. */
static void run_without_room(const char *folder)
{
    check_no_room(folder, "train c.json --json --set model.hidden=[1000]", "a checkpoint needs at least");
    check_no_room(folder,
                  "train c.json --json --set model.hidden=[1000] --set checkpoint.path=elsewhere --set save=small/w",
                  "save needs at least");
    check_no_room(folder, "train c.json --json --set model.hidden=[200] --set save=small/w",
                  "a checkpoint together with save needs at least");
    program p;
    CHECK_EQ(program_run(&p, folder,
                         "train c.json --json --set model.hidden=[500] --set checkpoint.path=else --set save=small/w"),
             0);
}

TEST(a_disk_without_room_for_what_a_run_writes_ends_it_before_the_first_step)
{
    char folder[1024];
    make_folder(folder);
    int status = in_private_mounts(folder, run_without_room);
    if (status == 200) SKIP(small_disk, "no small file system can be mounted here");
    CHECK_EQ(status, 0);
}
