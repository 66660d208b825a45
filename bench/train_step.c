/* train_step.c: how long a whole training step takes, data and update included, through the same job that `sluice
 * train` runs.
 *
 *     bench_train_step CONFIG [--steps N] [--set KEY=VALUE]...
 *                                   5 rounds of N steps (3) after one to warm up; prints the median
 *     bench_train_step ... --busy   the time that the CPUs worked, not the clock's: a machine that others use disturbs less
 *     bench_train_step ... --serve  prints the seconds a step of each round takes, and starts the next one when a line
 *                                   arrives: so can somebody else's steps take turns with these
 *
 * The text it trains on, 65 different characters without meaning, is written to text.txt in the current folder. */
#include <sluice.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 5, CHARACTERS = 65, TEXT_BYTES = 1 << 18 };

typedef struct rounds {
    bool serve, busy;
    int stop;               /* the job polls it */
    int round, step, steps; /* steps of a round */
    double start;           /* of the round */
    double seconds[ROUNDS]; /* a step, without the round that warms up */
} rounds;

static double now(const rounds *r)
{
    struct timespec t;
    clock_gettime(r->busy ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Serving, the next round begins with a line from whoever asks for it; at the end of input there is none. */
static void end_round(rounds *r, double seconds)
{
    if (r->serve) {
        printf("%.6f\n", seconds);
        fflush(stdout);
        for (int c; (c = getchar()) != '\n';) {
            if (c != EOF) continue;
            r->stop = 1;
            return;
        }
    } else if (r->round > 0) {
        r->seconds[r->round - 1] = seconds;
        r->stop = r->round == ROUNDS;
    }
}

static void on_event(void *user, const sluice_event *event)
{
    rounds *r = user;
    if (event->kind != SLUICE_EVENT_STEP) {
        r->start = now(r);
        return;
    }
    if (++r->step < r->steps) return;
    end_round(r, (now(r) - r->start) / r->steps);
    r->round++;
    r->step = 0;
    r->start = now(r);
}

static bool write_text(const char *path)
{
    FILE *f = fopen(path, "w");
    if (f == NULL) return false;
    uint32_t state = 1;
    for (int i = 0; i < TEXT_BYTES; i++) {
        state = state * 1664525u + 1013904223u;
        fputc(' ' + (int)((i < CHARACTERS ? (uint32_t)i : state >> 16) % CHARACTERS), f);
    }
    return fclose(f) == 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: bench_train_step CONFIG [--serve] [--busy] [--steps N] [--set KEY=VALUE]...\n");
    return 2;
}

static bool read_arguments(int argc, char **argv, rounds *r, sluice_config *config, sluice_status *status)
{
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--serve") == 0)
            r->serve = true;
        else if (strcmp(argv[i], "--busy") == 0)
            r->busy = true;
        else if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc && atoi(argv[i + 1]) > 0)
            r->steps = atoi(argv[++i]);
        else if (strcmp(argv[i], "--set") == 0 && i + 1 < argc)
            *status = sluice_config_set(config, argv[++i]);
        else
            return false;
        if (*status != SLUICE_OK) break;
    }
    return true;
}

int main(int argc, char **argv)
{
    rounds r = { .steps = 3 };
    sluice_job_options options;
    sluice_config *config;
    if (argc < 2) return usage();
    sluice_job_options_init(&options);
    options.event = on_event;
    options.user = &r;
    options.stop = &r.stop;
    sluice_status status = write_text("text.txt") ? sluice_config_load(argv[1], &config) : SLUICE_ERR_IO;
    if (status == SLUICE_OK) {
        bool understood = read_arguments(argc, argv, &r, config, &status);
        if (understood && status == SLUICE_OK) status = sluice_job_train(config, &options);
        sluice_config_destroy(config);
        if (!understood) return usage();
    }
    if (status != SLUICE_ERR_STOPPED) {
        fprintf(stderr, "bench_train_step: %s\n", sluice_error());
        return 1;
    }
    if (r.serve) return 0;
    qsort(r.seconds, ROUNDS, sizeof r.seconds[0], compare);
    printf("%.1f ms a step (median of %d rounds; %.1f to %.1f)\n", 1e3 * r.seconds[ROUNDS / 2], ROUNDS,
           1e3 * r.seconds[0], 1e3 * r.seconds[ROUNDS - 1]);
    return 0;
}
