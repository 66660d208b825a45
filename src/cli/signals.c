/* signals.c: signals become flags that the run polls: between steps, and while it plans, reads, loads and hashes.
 *
 * A handler can reach nothing but file-level variables; these three are the program's only ones. The flags are plain
 * ints, because that is what the library polls, and are written with atomic stores. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "cli/cli.h"

static int stop_signal;
static int save_request;
static pid_t first_process; /* the one that was told to catch signals; ranks are its children */

/* Whoever asks a second time means it: the first process then dies of the signal, and its ranks with it. A rank itself
 * may well get the same request twice, from a service manager that tells every process and from its parent. A hang-up
 * is no such insistence: it comes from the terminal, the shell or the service manager, often beside another signal. */
static void on_stop(int signal_number)
{
    __atomic_store_n(&stop_signal, signal_number, __ATOMIC_RELAXED);
    if (getpid() != first_process || signal_number == SIGHUP) return;
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
}

static void on_save(int signal_number)
{
    (void)signal_number;
    __atomic_store_n(&save_request, 1, __ATOMIC_RELAXED);
}

static void on_alarm(int signal_number)
{
    static const char line[] = "sluice: planning; a large model, or a search over settings, takes a while\n";
    const int kept = errno;
    (void)signal_number;
    if (write(STDERR_FILENO, line, sizeof line - 1) < 0) errno = kept; /* then nobody hears of it */
    errno = kept;
}

static void catch_signal(int signal_number, void (*handler)(int))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(signal_number, &action, NULL);
}

static bool is_ignored(int signal_number)
{
    struct sigaction now;
    return sigaction(signal_number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void cli_ignore_write_signals(void)
{
    catch_signal(SIGPIPE, SIG_IGN);
    catch_signal(SIGXFSZ, SIG_IGN);
}

void cli_catch_signals(void)
{
    first_process = getpid();
    catch_signal(SIGTERM, on_stop);
    catch_signal(SIGINT, on_stop);
    if (!is_ignored(SIGHUP)) catch_signal(SIGHUP, on_stop); /* nohup has it ignored */
    catch_signal(SIGUSR1, on_save);
}

void cli_tell_of_planning(bool tells)
{
    const struct itimerval after = { .it_value.tv_sec = tells ? CLI_PATIENCE_SECONDS : 0 };
    catch_signal(SIGALRM, tells ? on_alarm : SIG_IGN);
    setitimer(ITIMER_REAL, &after, NULL);
}

const int *cli_stop_flag(void)
{
    return &stop_signal;
}

int *cli_save_flag(void)
{
    return &save_request;
}

void cli_request_stop(int signal_number)
{
    __atomic_store_n(&stop_signal, signal_number, __ATOMIC_RELAXED);
}
