/* generate.c: tokens a second of generation: with the cache, without it, several sequences at a time, and with weights that are
 * three times what the device may hold.
 *
 *     bench_generate [--tokens N] [--layers N] [--width N] [--threads N]
 *
 * The model is a GPT-2 of bytes, 6 x 384 with a context of 256 unless told, with random weights: what is drawn costs the same.
 * Seconds are of the clock and of the CPU (all threads together): on a machine that others use, the second tell more. For
 * streamed weights the bytes that a token moves to the device, over the seconds, stand beside what plain copies of memory of
 * that size reach here: the link of this backend. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config/config.h"
#include "core/thread.h"
#include "train/decoding.h"

enum { CONTEXT = 256, VOCABULARY = 256, MOST_SLOTS = 8 };

typedef struct bench {
    sl_model_options model;
    int tokens, threads;
} bench;

typedef struct built {
    sluice_graph *g;
    sluice_engine *e;
} built;

static void must(sluice_status st)
{
    if (st == SLUICE_OK) return;
    fprintf(stderr, "bench_generate: %s\n", sluice_error());
    exit(1);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static built build(const bench *b, const sl_model_options *m, uint64_t device_bytes)
{
    sluice_options o;
    sl_settings s;
    sl_model_info info;
    built out = { NULL, NULL };
    sluice_options_init(&o);
    o.threads = b->threads;
    o.device_bytes = device_bytes;
    o.evaluation = true;
    must(sl_settings_from_options(&o, &s));
    must(sluice_graph_create(&out.g));
    must(sl_model_build(out.g, m, &info));
    sl_engine_options e = { .training = false, .settings = &s };
    must(sl_engine_create(out.g, &e, &out.e));
    return out;
}

static void destroy(built *b)
{
    sluice_engine_destroy(b->e);
    sluice_graph_destroy(b->g);
}

typedef struct timing {
    double wall, cpu;
} timing;

static timing now(void)
{
    return (timing){ sl_now(), cpu_seconds() };
}

static void report(const char *what, int tokens, timing start)
{
    timing end = now();
    double wall = end.wall - start.wall, cpu = end.cpu - start.cpu;
    printf("%-34s %9.1f tokens/s  %8.3f s  CPU %8.3f s, %9.1f tokens/s of it\n", what, tokens / wall, wall, cpu,
           tokens / cpu);
}

/* `slots` sequences side by side, each of b->tokens tokens. Returns the seconds. */
static double run_cached(const bench *b, int slots, uint64_t device_bytes, const char *what, built *keep)
{
    sl_model_options m = b->model;
    sl_cached_decoder *d;
    sl_sequence sequences[MOST_SLOTS] = { { .ids = NULL } }, *list[MOST_SLOTS];
    const float *logits[MOST_SLOTS];
    m.decode.rows = 64;
    m.decode.slots = slots;
    m.decode.places = CONTEXT;
    built x = build(b, &m, device_bytes);
    must(sl_cached_decoder_create(x.e, CONTEXT, &d));
    for (int s = 0; s < slots; s++) {
        list[s] = &sequences[s];
        sequences[s].slot = s;
        must(sl_sequence_add(&sequences[s], &(int32_t){ 10 }, 1));
    }
    must(sl_cached_decoder_run(d, list, slots, logits, NULL)); /* the first touches new pages */
    timing start = now();
    for (int i = 0; i < b->tokens; i++) {
        for (int s = 0; s < slots; s++) must(sl_sequence_add(&sequences[s], &(int32_t){ i % VOCABULARY }, 1));
        do {
            must(sl_cached_decoder_run(d, list, slots, logits, NULL));
        } while (logits[0] == NULL);
    }
    double seconds = sl_now() - start.wall;
    report(what, slots * b->tokens, start);
    for (int s = 0; s < slots; s++) sl_sequence_free(&sequences[s]);
    sl_cached_decoder_destroy(d);
    if (keep != NULL)
        *keep = x;
    else
        destroy(&x);
    return seconds;
}

/* As generation was before there was a cache: a run over the whole context for each token. */
static void run_whole(const bench *b, int tokens)
{
    sl_model_options m = b->model;
    static int32_t ids[CONTEXT], targets[CONTEXT];
    static float out[CONTEXT * VOCABULARY];
    sluice_array arrays[] = { { "tokens", ids, sizeof ids }, { "targets", targets, sizeof targets } };
    sluice_batch batch = { arrays, 2 };
    m.logits = true;
    memset(targets, 0xff, sizeof targets);
    built x = build(b, &m, 0);
    must(sluice_predict(x.e, &batch, out, sizeof out));
    timing start = now();
    for (int i = 0; i < tokens; i++) must(sluice_predict(x.e, &batch, out, sizeof out));
    report("without the cache", tokens, start);
    destroy(&x);
}

/* Bytes a second of copying blocks as large as a layer of the model. */
static double copy_rate(size_t bytes)
{
    enum { ROUNDS = 8 };
    char *from = malloc(bytes), *to = malloc(bytes);
    double best = 0;
    if (from == NULL || to == NULL) exit(1);
    memset(from, 1, bytes);
    memset(to, 1, bytes);
    for (int i = 0; i < ROUNDS; i++) {
        double start = sl_now();
        memcpy(to, from, bytes);
        double rate = (double)bytes / (sl_now() - start);
        if (rate > best) best = rate;
    }
    free(from);
    free(to);
    return best;
}

static void run_streamed(const bench *b)
{
    built x;
    sl_device_stats stats;
    uint64_t weights = 0;
    sl_model_options m = b->model;
    m.decode.rows = 64;
    m.decode.slots = 1;
    m.decode.places = CONTEXT;
    built probe = build(b, &m, 0);
    weights = (uint64_t)sl_graph_parameter_elements(probe.g) * sizeof(float);
    destroy(&probe);
    double seconds = run_cached(b, 1, weights / 3, "weights 3 times memory.device", &x);
    sl_exec_stats(x.e->exec, &stats, NULL);
    double moved = (double)stats.moved[SL_LINK_TO_DEVICE] / (double)(b->tokens + 1);
    double rate = moved * b->tokens / seconds, link = copy_rate((size_t)(weights / (uint64_t)b->model.layers));
    printf("  %.1f of %.1f MB of weights move for a token: %.2f GB/s, copies alone %.2f GB/s: %.0f %%\n", moved * 1e-6,
           (double)weights * 1e-6, rate * 1e-9, link * 1e-9, 100 * rate / link);
    destroy(&x);
}

int main(int argc, char **argv)
{
    bench b = { .model = { .type = "gpt2",
                           .batch = 1,
                           .layers = 6,
                           .heads = 6,
                           .width = 384,
                           .context = CONTEXT,
                           .vocabulary = VOCABULARY },
                .tokens = 200 };
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--tokens") == 0) b.tokens = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--layers") == 0) b.model.layers = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--width") == 0) b.model.width = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--threads") == 0) b.threads = atoi(argv[i + 1]);
    }
    if (b.tokens < 1 || b.tokens > CONTEXT - 2 || b.model.layers < 1 || b.model.width < 6) return 2;
    printf("GPT-2 of %lld x %lld, bytes, context %d, fp32\n", (long long)b.model.layers, (long long)b.model.width,
           CONTEXT);
    run_cached(&b, 1, 0, "one sequence", NULL);
    run_cached(&b, MOST_SLOTS, 0, "8 sequences", NULL);
    run_whole(&b, b.tokens < 20 ? b.tokens : 20);
    run_streamed(&b);
    return 0;
}
