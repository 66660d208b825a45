/* tokenizer.c: how fast one core turns a text into token ids and back.
 *
 *   bench_tokenizer FOLDER|tokenizer.json TEXT [--hard MB]
 *
 * Time is that of the core, the best of several runs over the whole text, with a new encoder each time and with one whose cache is warm. --hard adds texts
 * of MB megabytes of one letter, of spaces and of combining marks, which a method that is not linear does not survive.
 * bench/tokenizer.py shows the same text with the tokenizers package and tiktoken. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/thread.h"
#include "format/tokenizer.h"

enum { RUNS = 5 };

static void need(sluice_status st)
{
    if (st == SLUICE_OK) return;
    fprintf(stderr, "bench_tokenizer: %s\n", sluice_error());
    exit(1);
}

/* Seconds of this thread on a core: others on the machine change little of it. */
static double core_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double encode_once(sl_encoder *e, const char *text, size_t bytes, sl_ids *ids)
{
    double start = core_seconds();
    ids->count = 0;
    need(sl_encode(e, text, bytes, SL_ENCODE_PLAIN, ids));
    return core_seconds() - start;
}

static void report(const char *what, double bytes, double seconds, size_t tokens)
{
    printf("%-28s %8.2f MB/s  %8.2f M tokens/s  %zu tokens\n", what, bytes / 1e6 / seconds,
           (double)tokens / 1e6 / seconds, tokens);
    fflush(stdout);
}

static void hard_text(const sl_tokenizer *t, const char *name, const char *unit, size_t bytes)
{
    size_t length = strlen(unit), count = bytes / length;
    char *text = malloc(count * length + 1);
    sl_encoder *e;
    sl_ids ids = { 0 };
    if (text == NULL) exit(1);
    for (size_t i = 0; i < count; i++) memcpy(text + i * length, unit, length);
    need(sl_encoder_create(t, &e));
    double seconds = encode_once(e, text, count * length, &ids);
    report(name, (double)(count * length), seconds, ids.count);
    sl_encoder_destroy(e);
    sl_ids_free(&ids);
    free(text);
}

static void time_text(const sl_tokenizer *t, const char *text, size_t bytes)
{
    double cold = 1e30, warm = 1e30, back = 1e30;
    sl_ids ids = { 0 };
    sl_text out = { 0 };
    for (int i = 0; i < RUNS; i++) {
        sl_encoder *e;
        need(sl_encoder_create(t, &e));
        double seconds = encode_once(e, text, bytes, &ids);
        if (seconds < cold) cold = seconds;
        seconds = encode_once(e, text, bytes, &ids);
        if (seconds < warm) warm = seconds;
        sl_encoder_destroy(e);
        out.bytes = 0;
        double start = core_seconds();
        need(sl_decode(t, ids.data, ids.count, 0, &out));
        seconds = core_seconds() - start;
        if (seconds < back) back = seconds;
    }
    report("encode", (double)bytes, cold, ids.count);
    report("encode, warm cache", (double)bytes, warm, ids.count);
    report("decode", (double)out.bytes, back, ids.count);
    printf("decoded text %s the text\n", out.bytes == bytes && memcmp(out.data, text, bytes) == 0 ? "is" : "is not");
    sl_ids_free(&ids);
    sl_text_free(&out);
}

int main(int argc, char **argv)
{
    sl_tokenizer *t;
    char *text;
    size_t bytes;
    if (argc < 3) {
        fprintf(stderr, "usage: bench_tokenizer FOLDER|tokenizer.json TEXT [--hard MB]\n");
        return 2;
    }
    double start = sl_now();
    need(sl_tokenizer_open(argv[1], &t));
    printf("%s, %d tokens, opened in %.0f ms\n", sl_tokenizer_kind(t), sl_tokenizer_size(t), 1e3 * (sl_now() - start));
    need(sl_file_read_all(argv[2], (size_t)1 << 31, &text, &bytes));
    time_text(t, text, bytes);
    if (argc == 5 && strcmp(argv[3], "--hard") == 0) {
        size_t hard = (size_t)strtoul(argv[4], NULL, 10) * 1000000;
        hard_text(t, "one letter", "a", hard);
        hard_text(t, "spaces", " ", hard);
        hard_text(t, "combining marks", "\xcc\x81\xcc\xa3", hard);
        hard_text(t, "one digit", "7", hard);
        hard_text(t, "line ends", "\n", hard);
        hard_text(t, "line ends and spaces", "\n ", hard);
    }
    sl_free(text);
    sl_tokenizer_close(t);
    return 0;
}
