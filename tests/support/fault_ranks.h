/* fault_ranks.h: jobs of several ranks that the tests disturb: inside the test, where a hook sees every file call of every
 * rank, and of the program under test, whose ranks are processes to be found and struck. */
#ifndef SLUICE_TEST_FAULT_RANKS_H
#define SLUICE_TEST_FAULT_RANKS_H

#include "core/io.h"
#include "sluice.h"
#include "support/fault_program.h"

#define MOST_RANKS    4
#define MOST_SETTINGS 12

/* ---- jobs inside the test ---- */

/* What befalls one rank at one of its file calls. */
typedef enum {
    BLOW_NONE,
    BLOW_KILL_RANK,   /* SIGKILL to itself before the call */
    BLOW_KILL_PARENT, /* SIGKILL to the process that started the ranks */
    BLOW_STOP_RANK,   /* SIGSTOP to itself: it never comes back */
    BLOW_DISK_FULL    /* this and every later write fails with ENOSPC */
} blow_kind;

typedef struct ranks_job {
    const char *folder; /* where it runs; has c.json */
    int ranks;
    bool resume;
    double timeout_seconds;              /* 0: 60 */
    const char *settings[MOST_SETTINGS]; /* on all ranks, up to the first NULL */
    /* One rank that is not like the others. */
    int odd_rank;            /* meaningful with one of the following */
    const char *odd_setting; /* NULL: none */
    const char *odd_folder;  /* the rank's working folder; NULL: as the others */
    /* File calls are counted on every rank from the first whose path has `from` up to the first whose path has `until`
     * (NULL: from the beginning, to the end); the `at`-th of the odd rank gets the blow. */
    const char *from, *until;
    blow_kind blow;
    int at;
    size_t ballast; /* bytes that rank 0 touches first: the kernel frees them before it lets go of the rank's files */
} ranks_job;

/* In memory that all processes of the job share. */
typedef struct ranks_result {
    pid_t pids[MOST_RANKS]; /* of this launch */
    int calls[MOST_RANKS];  /* that were counted */
    uint64_t resumed, step, saved;
    char weights[65], state[65];
    char message[4096]; /* what the launching process would print */
} ranks_result;

/* Runs a job in a process of its own, which starts the ranks. The exit status, or 128 + n when signal n killed that
 * process. The result stays valid for the whole test program. */
int ranks_run(const ranks_job *job, ranks_result **out);

/* Zeros that a process shares with those it starts; valid for the whole test program. */
int *shared_ints(int count);

/* ---- ranks of the program ---- */

/* The processes of the ranks, in order; how many there are. */
int program_ranks(const program *p, pid_t pids[MOST_RANKS]);
/* Starts it with so small a pipe that it gets no more than some 17 events ahead of the reader. */
void program_start_narrow(program *p, const char *folder, const char *arguments);

/* ---- what must hold afterwards ---- */

/* None of the processes is alive ten seconds from now, and nothing of sluice is left in shared memory. */
void check_gone(const pid_t *pids, int count);
/* The folder of a finished run holds its files and nothing else. */
void check_tidy(const char *folder, const char *checkpoints);

#endif
