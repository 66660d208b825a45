/* run.h: runs the built program in a folder of its own and keeps what it said. */
#ifndef SLUICE_TEST_RUN_H
#define SLUICE_TEST_RUN_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct run_result {
    int status;  /* exit status; 128 + n when killed by signal n */
    char *out;   /* standard output, owned */
    char *error; /* standard error, owned */
} run_result;

/* Runs `sluice <arguments>` through the shell in `folder`; the arguments may redirect. */
run_result run_sluice(const char *folder, const char *arguments);
void run_free(run_result *r);
/* The same where anything but success fails the test. */
void run_must(const char *folder, const char *arguments);
/* Trains config.json of the folder: the hashes of weights and state as the end tells them. Anything but success fails the test. */
#define RUN_HASHES 200
void run_hashes(const char *folder, const char *arguments, char hashes[RUN_HASHES]);
/* What bad input must end with: status 4 and, warnings aside, one line, which says what is wrong and names the place. */
void run_refused(const char *folder, const char *arguments, const char *says, const char *place);
/* Starts it without waiting, standard output and error in folder/out and folder/err. `arguments` are split at
 * spaces. */
pid_t run_start(const char *folder, const char *arguments);
/* Waits for it and collects the result. */
run_result run_wait(const char *folder, pid_t child);
/* Writes folder/name. */
void run_write(const char *folder, const char *name, const char *text);
/* A whole file as a string, owned by the caller; "" where there is none. */
char *run_read(const char *path);

/* Whether this machine and the build have what a test may need: a word that tests/needs knows. */
bool run_has(const char *need);

/* A small configuration that trains in well under a second; `extra` is appended ("" or ", \"key\": value"). */
void run_write_config(const char *folder, const char *name, const char *extra);

#endif
