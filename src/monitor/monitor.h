/* monitor.h: what a run leaves for those who watch it: its journal, logs, TensorBoard's files.
 *
 * Rank 0 has one. It hears every event and every message of the run, from before the first file is open: these wait. A write that
 * fails does not fail the run: it is told once, and the next line is tried again. */
#ifndef SL_MONITOR_MONITOR_H
#define SL_MONITOR_MONITOR_H

#include "core/log.h"
#include "core/run_names.h"
#include "core/status.h"

typedef struct sl_monitor sl_monitor;

/* Where the files go; NULL: there is none of that kind. Borrowed during the call. */
typedef struct sl_monitor_places {
    const char *run_folder;  /* for SL_JOURNAL_NAME; the caller has its lock */
    const char *log_file;    /* .jsonl or .csv */
    const char *tensorboard; /* folder */
    const char *csv_monitor; /* folder */
} sl_monitor_places;

/* What the first line of a start says. Borrowed during the call. */
typedef struct sl_monitor_about {
    bool resume; /* the journal goes on with the run that is its last */
    int ranks;
    uint64_t steps;
    const char *metric; /* that judges */
    const char *device; /* "cpu", "cuda" */
    const char *cpu;    /* its model */
    int cpus;
    uint64_t memory_bytes;     /* of this machine, that the process may use */
    const char *configuration; /* JSON */
    const char *plan;          /* text for people; NULL without tensorboard */
} sl_monitor_about;

/* `log` is told of writes that fail; borrowed, outlives the monitor. It must not lead back to sl_monitor_message. */
sluice_status sl_monitor_create(const sl_log *log, sl_monitor **out);
/* Opens the files, then writes what the run is and what has waited. A file that cannot be opened or written is a failure here,
 * before the first step. */
sluice_status sl_monitor_open(sl_monitor *m, const sl_monitor_places *places, const sl_monitor_about *about);
/* All of the following take NULL. */
void sl_monitor_event(sl_monitor *m, const sluice_event *event);
void sl_monitor_message(sl_monitor *m, sluice_log_level level, const char *text);
/* When the run is over, with its status: one that did not come to its end says why, by the message of this thread's newest
 * failure, which stays. */
void sl_monitor_end(sl_monitor *m, sluice_status status);
void sl_monitor_destroy(sl_monitor *m);

/* Whether the name is one that a log may have; SLUICE_ERR_USAGE otherwise. */
sluice_status sl_log_file_check(const char *path);

#endif
