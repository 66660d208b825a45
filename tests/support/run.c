/* run.c: the program as its users run it. */
#include "support/run.h"

#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM SLUICE_BINARY_DIR "/sluice"

char *run_read(const char *path)
{
    size_t used = 0, capacity = 4096;
    char *text = malloc(capacity);
    FILE *f = fopen(path, "r");
    for (size_t n; f != NULL && (n = fread(text + used, 1, capacity - used - 1, f)) > 0;) {
        used += n;
        if (capacity - used < 1024) text = realloc(text, capacity *= 2);
    }
    if (f != NULL) fclose(f);
    text[used] = '\0';
    return text;
}

void run_write(const char *folder, const char *name, const char *text)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (f == NULL) exit(99);
    fputs(text, f);
    fclose(f);
}

void run_write_config(const char *folder, const char *name, const char *extra)
{
    char text[2048];
    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"mlp\", \"features\": 4, \"hidden\": [8]},\n \"data\": {\"type\": "
             "\"regression\", \"samples\": 40},\n"
             " \"steps\": 5, \"train_batch_size\": 4, \"optimizer\": {\"type\": \"SGD\"}, \"threads\": 1%s}\n",
             extra);
    run_write(folder, name, text);
}

bool run_has(const char *need)
{
    char command[4096];
    snprintf(command, sizeof command, "%s/tests/needs %s %s", SLUICE_SOURCE_DIR, SLUICE_BINARY_DIR, need);
    return system(command) == 0;
}

static run_result collect(const char *folder, int wait_status)
{
    char path[4400];
    run_result r = { .status = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status) };
    snprintf(path, sizeof path, "%s/out", folder);
    r.out = run_read(path);
    snprintf(path, sizeof path, "%s/err", folder);
    r.error = run_read(path);
    return r;
}

run_result run_sluice(const char *folder, const char *arguments)
{
    char command[16384];
    /* what the arguments redirect comes last and wins */
    snprintf(command, sizeof command, "cd '%s' && '%s' >out 2>err %s", folder, PROGRAM, arguments);
    return collect(folder, system(command));
}

void run_free(run_result *r)
{
    free(r->out);
    free(r->error);
}

static void redirect(const char *name, int to)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || dup2(fd, to) < 0) _exit(99);
    close(fd);
}

pid_t run_start(const char *folder, const char *arguments)
{
    char words[1024], *argv[32] = { PROGRAM };
    int count = 1;
    snprintf(words, sizeof words, "%s", arguments);
    for (char *save, *word = strtok_r(words, " ", &save); word != NULL && count < 31; word = strtok_r(NULL, " ", &save))
        argv[count++] = word;
    pid_t child = fork();
    if (child != 0) return child;
    if (chdir(folder) != 0) _exit(99);
    redirect("out", 1);
    redirect("err", 2);
    execv(PROGRAM, argv);
    _exit(99);
}

run_result run_wait(const char *folder, pid_t child)
{
    int status = 0;
    waitpid(child, &status, 0);
    return collect(folder, status);
}

void run_must(const char *folder, const char *arguments)
{
    run_result r = run_sluice(folder, arguments);
    if (r.status != 0) test_fail(__FILE__, __LINE__, "%s: status %d: %s", arguments, r.status, r.error);
    run_free(&r);
}

void run_hashes(const char *folder, const char *arguments, char hashes[RUN_HASHES])
{
    char line[1024];
    snprintf(line, sizeof line, "train config.json --json %s", arguments);
    run_result r = run_sluice(folder, line);
    const char *begin = strstr(r.out, "\"weights_sha256\""), *end = begin != NULL ? strstr(begin, ",\"tokens") : NULL;
    if (r.status != 0 || end == NULL) test_fail(__FILE__, __LINE__, "%s: status %d: %s", arguments, r.status, r.error);
    snprintf(hashes, RUN_HASHES, "%.*s", end != NULL ? (int)(end - begin) : 0, begin != NULL ? begin : "");
    run_free(&r);
}

/* Lines that are no warnings. */
static int count_lines(const char *text)
{
    static const char warning[] = "sluice: warning: ";
    int count = 0;
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n')
        count += strncmp(line, warning, sizeof warning - 1) != 0;
    return count;
}

void run_refused(const char *folder, const char *arguments, const char *says, const char *place)
{
    run_result r = run_sluice(folder, arguments);
    CHECK_THAT(r.status == 4, "%s: status %d, expected 4: %s", says, r.status, r.error);
    CHECK_CONTAINS(r.error, says);
    CHECK_CONTAINS(r.error, place);
    CHECK_THAT(count_lines(r.error) == 1, "not one line: %s", r.error);
    run_free(&r);
}
