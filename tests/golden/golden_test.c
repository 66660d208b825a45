/* golden_test.c: training ends in recorded bits and plans are the recorded ones.
 *
 * `cases` lists configurations over families, precisions, stages, ranks, placements and optimizers; `expected` has for
 * each of them the hashes of weights and state after training, the bytes of its plan, and the printed plan. A change
 * that is meant to keep the mathematics and the plans must leave it alone. One that is meant to change them records it
 * anew, and its diff is part of the review:
 *
 *     GOLDEN_RECORD=tests/golden/expected build/test_golden
 */
#include <unistd.h>

#include "support/run.h"
#include "test.h"

#define GOLDEN SLUICE_SOURCE_DIR "/tests/golden/"

typedef struct golden_case {
    char name[64], base[32], settings[512];
    int ranks;
} golden_case;

enum { MAX_CASES = 128, SECTION_BYTES = 16384 };

/* Words of a fixed sequence, so that the text never changes. */
static void write_text(const char *folder)
{
    static const char *const words[] = { "weights", "flow",   "through", "a",     "narrow", "gate",
                                         "and",     "none",   "is",      "lost",  "while",  "the",
                                         "water",   "waits;", "Every",   "layer", "moves." };
    char text[4096];
    size_t used = 0;
    for (unsigned state = 1; used < 3000; state = state * 1664525u + 1013904223u)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s ", words[(state >> 16) % 17]);
    run_write(folder, "text.txt", text);
}

static void copy_file(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, GOLDEN "%s", name);
    char *text = run_read(path);
    run_write(folder, name, text);
    free(text);
}

static void prepare(char folder[4096])
{
    static const char *const files[] = { "gpt2.json", "llama.json", "mlp.json", "linear.json", "machine.json" };
    snprintf(folder, 4096, "%s", test_tmpdir());
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) copy_file(folder, files[i]);
    write_text(folder);
    /* bf16 GEMMs on AMX tiles have other bits; all other paths agree */
    setenv("SLUICE_CPU", __builtin_cpu_supports("avx2") ? "avx2" : "scalar", 1);
}

static int read_cases(golden_case *cases)
{
    int count = 0;
    char *text = run_read(GOLDEN "cases"), *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        golden_case *c = &cases[count];
        c->settings[0] = '\0';
        if (line[0] == '#' || count == MAX_CASES) continue;
        if (sscanf(line, "%63s | %d | %31s | %511[^\n]", c->name, &c->ranks, c->base, c->settings) >= 3) count++;
    }
    free(text);
    return count;
}

static run_result run_case(const char *folder, const char *command, const golden_case *c)
{
    char arguments[8192], settings[512], *save = NULL;
    int used = snprintf(arguments, sizeof arguments, "%s %s.json --ranks %d --machine machine.json", command, c->base,
                        c->ranks);
    snprintf(settings, sizeof settings, "%s", c->settings);
    for (char *word = strtok_r(settings, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save))
        used += snprintf(arguments + used, sizeof arguments - (size_t)used, " --set '%s'", word);
    run_result r = run_sluice(folder, arguments);
    if (r.status != 0) test_fail(__FILE__, __LINE__, "%s: %s: status %d: %s", c->name, command, r.status, r.error);
    return r;
}

/* Appends `name value`: what stands behind "name": in a line of JSON, up to `end`. */
static size_t add_field(char *section, size_t used, const char *json, const char *name, const char *end)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(json, key);
    if (at == NULL) return used;
    at += strlen(key);
    return used + (size_t)snprintf(section + used, SECTION_BYTES - used, "%s %.*s\n", name,
                                   (int)(strcspn(at + 1, end) + 2), at);
}

/* The hashes after training. */
static void make_bits(const char *folder, const golden_case *c, char *section)
{
    size_t used = 0;
    run_result r = run_case(folder, "train --json", c);
    section[0] = '\0';
    used = add_field(section, used, r.out, "weights_sha256", "\"");
    add_field(section, used, r.out, "state_sha256", "\"");
    run_free(&r);
}

/* The plan's bytes, then what is printed, but for what this machine decides: memory outside the arenas, which the verdict
 * counts as well. */
static void make_plan(const char *folder, const golden_case *c, char *section)
{
    static const char *const fields[] = { "peak_bytes", "state_bytes", "moved_bytes", "comm_bytes" };
    size_t used = 0;
    char *save = NULL;
    run_result numbers = run_case(folder, "plan --json", c), printed = run_case(folder, "plan", c);
    section[0] = '\0';
    for (size_t i = 0; i < 4; i++) used = add_field(section, used, numbers.out, fields[i], "}");
    for (char *line = strtok_r(printed.out, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save))
        if (strstr(line, "outside the arenas") == NULL && strncmp(line, "memory: ", 8) != 0 &&
            strncmp(line, "fits: ", 6) != 0)
            used += (size_t)snprintf(section + used, SECTION_BYTES - used, "%s\n", line);
    run_free(&numbers);
    run_free(&printed);
}

/* The part of `expected` between "== name" and the next "==", in memory of the caller; "" where there is none. */
static void find_section(const char *expected, const char *name, char *section)
{
    char head[80];
    snprintf(head, sizeof head, "== %.63s\n", name);
    const char *at = strstr(expected, head);
    section[0] = '\0';
    if (at == NULL) return;
    at += strlen(head);
    const char *end = strstr(at, "\n== ");
    snprintf(section, SECTION_BYTES, "%.*s", end != NULL ? (int)(end + 1 - at) : SECTION_BYTES, at);
}

/* Names the first line that differs. */
static void compare(const golden_case *c, const char *made, const char *expected)
{
    if (strcmp(made, expected) == 0) return;
    size_t line = 0, i = 0;
    for (; made[i] != '\0' && made[i] == expected[i]; i++)
        if (made[i] == '\n') line = i + 1;
    test_fail(__FILE__, __LINE__, "%s: \"%.*s\", recorded \"%.*s\"", c->name, (int)strcspn(made + line, "\n"),
              made + line, (int)strcspn(expected + line, "\n"), expected + line);
}

static void check_part(void (*make)(const char *folder, const golden_case *c, char *section), bool bits)
{
    static golden_case cases[MAX_CASES];
    static char made[SECTION_BYTES], section[SECTION_BYTES];
    char folder[4096];
    int count = read_cases(cases);
    char *expected = run_read(GOLDEN "expected");
    prepare(folder);
    CHECK(count >= 60);
    for (int i = 0; i < count; i++) {
        find_section(expected, cases[i].name, section);
        char *plan = strstr(section, "peak_bytes");
        if (plan == NULL) {
            test_fail(__FILE__, __LINE__, "%s is not in tests/golden/expected", cases[i].name);
            continue;
        }
        make(folder, &cases[i], made);
        if (bits) *plan = '\0';
        compare(&cases[i], made, bits ? section : plan);
    }
    free(expected);
}

static void record(const char *path)
{
    static golden_case cases[MAX_CASES];
    static char bits[SECTION_BYTES], plan[SECTION_BYTES];
    char folder[4096];
    int count = read_cases(cases);
    FILE *out = fopen(path, "w");
    REQUIRE(out != NULL);
    prepare(folder);
    for (int i = 0; i < count; i++) {
        make_bits(folder, &cases[i], bits);
        make_plan(folder, &cases[i], plan);
        fprintf(out, "== %s\n%s%s", cases[i].name, bits, plan);
    }
    fclose(out);
}

TEST(plans_are_the_recorded_ones)
{
    if (getenv("GOLDEN_RECORD") != NULL) record(getenv("GOLDEN_RECORD"));
    check_part(make_plan, false);
}

TEST(training_ends_in_the_recorded_bits)
{
    check_part(make_bits, true);
}
