/* sinks.h: the kinds of files that a monitor writes. Each takes events and writes whole lines or records at once.
 *
 * A status that is not OK means that something could not be written, and that the file is as it was before. */
#ifndef SL_MONITOR_SINKS_H
#define SL_MONITOR_SINKS_H

#include "format/text_buffer.h"
#include "monitor/line_file.h"

/* What every line says of the run. */
typedef struct sl_run_stamp {
    char run[40]; /* its id */
} sl_run_stamp;

#define SL_TIME_BYTES 32
/* Seconds since 1970. */
double sl_wall_clock(void);
/* "2026-01-31T12:34:56.789Z" */
void sl_time_text(double seconds, char out[SL_TIME_BYTES]);

/* ---- csv_log.c: a row a step ---- */

typedef struct sl_csv_log {
    sl_line_file file;
    sl_text row;  /* of the newest step, without what an evaluation adds */
    sl_text line; /* of it with all */
} sl_csv_log;

/* Writes the columns' names into a file that is new; refuses one that begins otherwise. */
sluice_status sl_csv_log_open(sl_csv_log *l, const char *path);
sluice_status sl_csv_log_event(sl_csv_log *l, const sl_run_stamp *stamp, const char *time, const sluice_event *e);
void sl_csv_log_close(sl_csv_log *l);

/* ---- tensorboard.c: a file a start ---- */

typedef struct sl_tensorboard {
    sl_line_file file; /* records are its lines */
    sl_text records;   /* on their way there */
} sl_tensorboard;

/* Makes the folder, and a file in it with the texts. */
sluice_status sl_tensorboard_open(sl_tensorboard *t, const char *folder, double seconds, const char *configuration,
                                  const char *plan);
sluice_status sl_tensorboard_event(sl_tensorboard *t, double seconds, const sluice_event *e);
void sl_tensorboard_close(sl_tensorboard *t);

/* ---- scalars that DeepSpeed names ---- */

/* The value of one of them in a step; NaN: the step has none. */
typedef struct sl_deepspeed_scalar {
    const char *tag, *file, *column;
    double (*value)(const sluice_event *e);
} sl_deepspeed_scalar;
enum { SL_DEEPSPEED_SCALARS = 3 };
extern const sl_deepspeed_scalar sl_deepspeed_scalars[SL_DEEPSPEED_SCALARS];

/* ---- csv_monitor.c: a file a scalar, as DeepSpeed's csv_monitor has them ---- */

typedef struct sl_csv_monitor {
    sl_line_file files[SL_DEEPSPEED_SCALARS];
    char folder[4096]; /* "": not open */
} sl_csv_monitor;

sluice_status sl_csv_monitor_open(sl_csv_monitor *c, const char *folder);
sluice_status sl_csv_monitor_event(sl_csv_monitor *c, const sluice_event *e);
void sl_csv_monitor_close(sl_csv_monitor *c);

#endif
