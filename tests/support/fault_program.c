/* fault_program.c: starting, reading and ending the program under test. */
#include "support/fault_program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#define PROGRAM        SLUICE_BINARY_DIR "/sluice"
#define FAULTY_PROGRAM SLUICE_BINARY_DIR "/faulty/sluice"
/* One that hangs is killed by SIGALRM, so that a test fails where it would wait for ever. */
#define PROGRAM_SECONDS 300

/* ---- the child's side ---- */

static void redirect(const char *path, int to)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || dup2(fd, to) < 0) _exit(99);
    close(fd);
}

static void join_group(const char *group)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/cgroup.procs", group);
    int fd = open(path, O_WRONLY);
    if (fd < 0 || write(fd, "0", 1) != 1) _exit(99);
    close(fd);
}

/* Beside the folder, which holds what the program makes and nothing else. */
static void counts_path(const char *folder, char out[4096])
{
    snprintf(out, 4096, "%s.counts", folder);
}

static void tell_fault(const char *folder, const disk_fault *f)
{
    char path[4096], text[128];
    const disk_fault_counts none = { 0, 0 };
    counts_path(folder, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, &none, sizeof none) != (ssize_t)sizeof none) _exit(99);
    close(fd);
    snprintf(text, sizeof text, "%s %d %d %d %d %d", f->call, f->nth, f->every, (int)f->kind, f->value, f->threads);
    if (setenv(DISK_FAULT_VARIABLE, text, 1) != 0 || setenv(DISK_COUNT_VARIABLE, path, 1) != 0) _exit(99);
}

static void become_program(const char *folder, const char *group, const disk_fault *fault, const char *arguments,
                           int out)
{
    char words[4096], *argv[64] = { fault != NULL ? FAULTY_PROGRAM : PROGRAM };
    int count = 1;
    snprintf(words, sizeof words, "%s", arguments);
    for (char *save, *word = strtok_r(words, " ", &save); word != NULL && count < 63; word = strtok_r(NULL, " ", &save))
        argv[count++] = word;
    if (group != NULL) join_group(group);
    if (fault != NULL) tell_fault(folder, fault);
    if (chdir(folder) != 0 || dup2(out, 1) < 0) _exit(99);
    redirect("err", 2);
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }); /* a file more would be one left behind */
    alarm(PROGRAM_SECONDS);
    execv(argv[0], argv);
    _exit(99);
}

/* ---- ours ---- */

static void start(program *p, const char *folder, const char *group, const disk_fault *fault, const char *arguments)
{
    int ends[2];
    *p = (program){ .pid = -1 };
    snprintf(p->folder, sizeof p->folder, "%s", folder);
    if (pipe2(ends, O_CLOEXEC) != 0) exit(99);
    (void)fcntl(ends[1], F_SETPIPE_SZ, PROGRAM_PIPE_BYTES);
    fflush(stdout);
    p->pid = fork();
    if (p->pid < 0) exit(99);
    if (p->pid == 0) become_program(folder, group, fault, arguments, ends[1]);
    close(ends[1]);
    p->out = fdopen(ends[0], "r");
    if (p->out == NULL) exit(99);
}

void program_start_in_group(program *p, const char *folder, const char *group, const char *arguments)
{
    start(p, folder, group, NULL, arguments);
}

void program_start(program *p, const char *folder, const char *arguments)
{
    start(p, folder, NULL, NULL, arguments);
}

void program_start_faulty(program *p, const char *folder, const disk_fault *fault, const char *arguments)
{
    start(p, folder, NULL, fault, arguments);
}

/* The number behind the first "name": after `from`, or 0. */
static uint64_t number_of(const char *from, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(from, key);
    return at != NULL ? strtoull(at + strlen(key), NULL, 10) : 0;
}

static void digest_of(const char *line, const char *name, char out[65])
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\":\"", name);
    const char *at = strstr(line, key);
    if (at != NULL) snprintf(out, 65, "%.64s", at + strlen(key));
}

static bool is_event(const char *line, const char *kind)
{
    char start[64];
    snprintf(start, sizeof start, "{\"event\":\"%s\"", kind);
    return strncmp(line, start, strlen(start)) == 0;
}

static void note_event(program *p, const char *line)
{
    if (is_event(line, "phase")) return; /* before anything that a test waits for, or after it */
    p->events++;
    if (is_event(line, "step")) p->step = number_of(line, "step");
    if (is_event(line, "resumed")) p->resumed = number_of(line, "step");
    if (is_event(line, "saved")) {
        p->saved = number_of(line, "step");
        p->saves++;
    }
    if (is_event(line, "plan")) {
        p->starts++;
        p->device_bytes = number_of(line, "device");
        p->host_bytes = number_of(line, "host");
        p->overhead_bytes = number_of(line, "overhead_bytes");
    }
    if (is_event(line, "end")) {
        p->end_device_bytes = number_of(line, "device");
        p->end_host_bytes = number_of(line, "host");
        digest_of(line, "weights_sha256", p->weights);
        digest_of(line, "state_sha256", p->state);
    }
}

bool program_event(program *p)
{
    char line[4096];
    if (fgets(line, sizeof line, p->out) == NULL) return false;
    if (strchr(line, '\n') != NULL) note_event(p, line); /* a killed program may leave half a line */
    return true;
}

bool program_reach(program *p, int events)
{
    while (p->events < events)
        if (!program_event(p)) return false;
    return true;
}

int program_wait(program *p)
{
    int status = 0;
    while (program_event(p)) continue;
    fclose(p->out);
    if (waitpid(p->pid, &status, 0) != p->pid) return -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int program_run(program *p, const char *folder, const char *arguments)
{
    program_start(p, folder, arguments);
    return program_wait(p);
}

int program_run_faulty(program *p, const char *folder, const disk_fault *fault, const char *arguments)
{
    program_start_faulty(p, folder, fault, arguments);
    return program_wait(p);
}

disk_fault_counts program_faults(const program *p)
{
    char path[4096];
    disk_fault_counts counts = { 0, 0 };
    counts_path(p->folder, path);
    FILE *f = fopen(path, "rb");
    if (f == NULL || fread(&counts, sizeof counts, 1, f) != 1) exit(99);
    fclose(f);
    return counts;
}

const char *program_message(const program *p)
{
    static char text[4096];
    size_t used = 0;
    for (const char *line = program_error(p); *line != '\0';) {
        size_t length = strcspn(line, "\n") + (strchr(line, '\n') != NULL);
        if (strncmp(line, "sluice: note: ", 14) != 0) {
            memcpy(text + used, line, length);
            used += length;
        }
        line += length;
    }
    text[used] = '\0';
    return text;
}

const char *program_error(const program *p)
{
    static char text[4096];
    char path[4096];
    snprintf(path, sizeof path, "%s/err", p->folder);
    FILE *f = fopen(path, "r");
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = '\0';
    if (f != NULL) fclose(f);
    return text;
}

/* ---- files ---- */

void write_text(const char *folder, const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (f == NULL || fputs(text, f) < 0 || fclose(f) != 0) exit(99);
}

void write_corpus(const char *folder, int bytes)
{
    static const char *const words[] = { "river ", "gate ", "water ", "lock ", "weir ", "boat.\n", "mill ", "the " };
    char path[4096];
    uint64_t random = 5;
    snprintf(path, sizeof path, "%s/input.txt", folder);
    FILE *f = fopen(path, "w");
    if (f == NULL) exit(99);
    for (int written = 0; written < bytes;) written += fprintf(f, "%s", words[next_random(&random, 8)]);
    if (fclose(f) != 0) exit(99);
}

void memory_folder(char out[1024])
{
    snprintf(out, 1024, "%.1000s", test_memory_path());
    if (mkdir(out, 0777) != 0 && errno != EEXIST) exit(99);
}

uint32_t next_random(uint64_t *state, uint32_t limit)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % limit;
}

void fault_check_empty(const char *folder)
{
    struct dirent *entry;
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            test_fail(__FILE__, __LINE__, "%s/%s is left", folder, entry->d_name);
    if (dir != NULL) closedir(dir);
}
