/* logging.c: what telling of one step costs: the journal alone, and with every other file. In CPU time, which other work on the
 * machine hardly changes, and by the clock. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/thread.h"
#include "monitor/monitor.h"

enum { STEPS = 20000 };

static const sl_monitor_about about = {
    .ranks = 1, .steps = STEPS, .metric = "loss", .device = "cpu", .cpu = "", .configuration = "{}", .plan = "plan"
};

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void measure(const char *what, const sl_monitor_places *places)
{
    sl_monitor *m;
    if (sl_monitor_create(NULL, &m) != SLUICE_OK || sl_monitor_open(m, places, &about) != SLUICE_OK) {
        fprintf(stderr, "%s\n", sluice_error());
        exit(1);
    }
    double start = sl_now(), cpu = cpu_seconds();
    for (uint64_t i = 1; i <= STEPS; i++) {
        sluice_event e = { .kind = SLUICE_EVENT_STEP,
                           .step = i,
                           .steps = STEPS,
                           .loss = 1.0 / (double)i,
                           .lr = 1e-3 / 3,
                           .gradient_norm = 2.0 / 7,
                           .seconds = 0.1 + 1e-9 * (double)i,
                           .samples = 24,
                           .tokens = 6144,
                           .targets = 6144,
                           .loss_scale = 1,
                           .tokens_per_second = 6144 / 0.1 + 1e-3 * (double)i,
                           .mfu = 0.123456789,
                           .memory = { 1 << 30, 1 << 20, 0 },
                           .resident_bytes = (uint64_t)1 << 30,
                           .total_samples = 24 * i };
        sl_monitor_event(m, &e);
    }
    cpu = cpu_seconds() - cpu;
    printf("  %-30s %7.2f us of CPU, %7.2f us\n", what, 1e6 * cpu / STEPS, 1e6 * (sl_now() - start) / STEPS);
    sl_monitor_destroy(m);
}

int main(void)
{
    char folder[] = "/tmp/sluice-bench-XXXXXX", table[64], command[64];
    if (mkdtemp(folder) == NULL) return 1;
    snprintf(table, sizeof table, "%s/all.csv", folder);
    printf("telling of one step, %d steps each\n", STEPS);
    measure("nothing is written", &(sl_monitor_places){ .run_folder = NULL });
    measure("journal", &(sl_monitor_places){ .run_folder = folder });
    measure(
        "journal, CSV, TensorBoard",
        &(sl_monitor_places){ .run_folder = folder, .log_file = table, .tensorboard = folder, .csv_monitor = folder });
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0 ? 0 : 1;
}
