/* matrix_cli_test.c: every family that the program names, in every way of training it: all of it, --lora, an adapter of PEFT's,
 * a part frozen; in fp32 and bf16, on one rank and two; then evaluated, and asked for text. The folders are as transformers
 * writes them by default, and what it and PEFT compute of them was recorded (tests/referees/matrix.py --record). */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "support/run.h"
#include "test.h"

#define FOLDERS SLUICE_SOURCE_DIR "/tests/fixtures/matrix/"
enum { MOST_STEPS = 16, HASH_BYTES = 65 };

/* A family's folder, copied to where its runs write: into memory, for they save some hundred times. */
typedef struct family {
    const char *name;
    char folder[1100];
    json_t *expected; /* owned */
} family;

/* A way of training it, in a precision. */
typedef struct cell {
    const family *f;
    const json_t *way;
    const char *precision;
} cell;

static const char *way_name(const cell *c)
{
    return json_string_value(json_object_get(c->way, "way"));
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* The words of a list, each in quotes for the shell, behind what is there. */
static void add_words(char *arguments, size_t room, const json_t *list)
{
    const json_t *word;
    size_t i;
    json_array_foreach(list, i, word)
    {
        size_t used = strlen(arguments);
        snprintf(arguments + used, room - used, " '%s'", json_string_value(word));
    }
}

/* Runs a command in the cell's precision with the words of the way under `key`, and what is to follow them. */
static run_result run_cell(const cell *c, const char *command, const char *key, const char *more)
{
    char arguments[8000];
    bool bf16 = strcmp(c->precision, "bf16") == 0;
    snprintf(arguments, sizeof arguments, "%s c.json --set bf16.enabled=%s %s", command, bf16 ? "true" : "false", more);
    if (key != NULL) add_words(arguments, sizeof arguments, json_object_get(c->way, key));
    return run_sluice(c->f->folder, arguments);
}

/* ---- what a run said ---- */

/* The next event of that kind; NULL: there is none any more. */
static json_t *next_event(const char **lines, const char *kind)
{
    while (**lines != '\0') {
        size_t bytes = strcspn(*lines, "\n");
        json_t *event = json_loadb(*lines, bytes, 0, NULL);
        *lines += bytes + ((*lines)[bytes] == '\n');
        const char *is = json_string_value(json_object_get(event, "event"));
        if (is != NULL && strcmp(is, kind) == 0) return event;
        json_decref(event);
    }
    return NULL;
}

static void check_near(const cell *c, const char *what, double found, double wanted)
{
    double allowed = number(c->f->expected, c->precision) * fabs(wanted);
    CHECK_THAT(fabs(found - wanted) <= allowed, "%s, %s, %s: %s is %.9g, not %.9g", c->f->name, way_name(c),
               c->precision, what, found, wanted);
}

static void check_losses(const cell *c, const char *lines)
{
    const json_t *losses = json_object_get(c->way, "losses");
    json_t *event;
    size_t steps = 0;
    for (; (event = next_event(&lines, "step")) != NULL; steps++) {
        check_near(c, "the loss of a step", number(event, "loss"), json_number_value(json_array_get(losses, steps)));
        json_decref(event);
    }
    CHECK_EQ(steps, json_array_size(losses));
}

/* The plan says to the byte what the run needs. */
static void check_peak(const cell *c, const char *lines)
{
    json_t *plan = next_event(&lines, "plan"), *end = next_event(&lines, "end");
    CHECK_THAT(json_equal(json_object_get(plan, "peak_bytes"), json_object_get(end, "peak_bytes")) && end != NULL,
               "%s, %s, %s: the plan says another peak than was seen", c->f->name, way_name(c), c->precision);
    json_decref(plan);
    json_decref(end);
}

static void read_hash(const char *lines, char hash[HASH_BYTES])
{
    json_t *end = next_event(&lines, "end");
    const char *found = json_string_value(json_object_get(end, "weights_sha256"));
    snprintf(hash, HASH_BYTES, "%s", found != NULL ? found : "");
    json_decref(end);
}

/* ---- cells ---- */

static void train(const cell *c, const char *more, char hash[HASH_BYTES])
{
    run_result r = run_cell(c, "train", "settings", more);
    CHECK_THAT(r.status == 0, "%s, %s, %s: status %d: %s", c->f->name, way_name(c), c->precision, r.status, r.error);
    if (r.status == 0) {
        check_losses(c, r.out);
        check_peak(c, r.out);
    }
    read_hash(r.out, hash);
    run_free(&r);
}

/* The loss on what was held out, before training or of what it wrote. */
static void evaluate(const cell *c, const char *settings, const char *wanted)
{
    run_result r = run_cell(c, "eval", settings, "--json --quiet");
    const char *lines = r.out;
    json_t *event = next_event(&lines, "eval");
    CHECK_THAT(r.status == 0 && event != NULL, "%s, %s, %s: eval: status %d: %s", c->f->name, way_name(c), c->precision,
               r.status, r.error);
    if (event != NULL) check_near(c, wanted, number(event, "loss"), number(c->way, wanted));
    json_decref(event);
    run_free(&r);
}

/* Greedy text of what training wrote. In bf16 another token may be the likeliest now and then. */
static void generate(const cell *c)
{
    const char *text = json_string_value(json_object_get(c->way, "text"));
    if (text == NULL) return;
    run_result r =
        run_cell(c, "generate", "written", "--quiet --json --prompts prompts.txt --tokens 12 --temperature 0");
    json_t *reply = json_loads(r.out, 0, NULL);
    const char *found = json_string_value(json_object_get(reply, "text"));
    CHECK_THAT(r.status == 0 && found != NULL, "%s, %s, %s: generate: status %d: %s", c->f->name, way_name(c),
               c->precision, r.status, r.error);
    if (strcmp(c->precision, "fp32") == 0) CHECK_STR(found != NULL ? found : "", text);
    json_decref(reply);
    run_free(&r);
}

static void check_refused(const cell *c, const char *why)
{
    run_result r = run_cell(c, "train", "settings", "--quiet");
    CHECK_THAT(r.status == 2, "%s, %s: status %d", c->f->name, way_name(c), r.status);
    CHECK_CONTAINS(r.error, why);
    run_free(&r);
}

static void check_cell(const cell *c)
{
    const char *why = json_string_value(json_object_get(c->way, "refused"));
    char one[HASH_BYTES], two[HASH_BYTES];
    if (why != NULL) {
        check_refused(c, why);
        return;
    }
    evaluate(c, "settings", "before");
    train(c, "--json --quiet --machine default --out trained", one);
    train(c, "--json --quiet --machine default --ranks 2 --set zero_optimization.stage=3 --set save=", two);
    CHECK_THAT(one[0] != '\0' && strcmp(one, two) == 0, "%s, %s, %s: other weights on two ranks", c->f->name,
               way_name(c), c->precision);
    evaluate(c, "written", "after");
    generate(c);
}

/* ---- families ---- */

static void open_family(const char *name, family *f)
{
    char command[4096], path[2048], text[256];
    *f = (family){ .name = name };
    snprintf(f->folder, sizeof f->folder, "%.1000s", test_memory_path());
    snprintf(path, sizeof path, FOLDERS "%s/expected.json", name);
    f->expected = json_load_file(path, 0, NULL);
    CHECK_THAT(f->expected != NULL, "%s: tests/fixtures/matrix has no such family; tests/referees/matrix.py records it",
               name);
    if (f->expected == NULL) return;
    snprintf(command, sizeof command, "cp -r " FOLDERS "%s '%s'", name, f->folder);
    REQUIRE(system(command) == 0);
    snprintf(text, sizeof text, "%s\n", json_string_value(json_object_get(f->expected, "prompt")));
    run_write(f->folder, "prompts.txt", text);
}

static void check_family(const char *name)
{
    static const char *const precisions[] = { "fp32", "bf16" };
    const json_t *way;
    size_t i;
    family f;
    open_family(name, &f);
    json_array_foreach(json_object_get(f.expected, "ways"), i, way)
    {
        for (int k = 0; k < 2; k++) {
            cell c = { &f, way, precisions[k] };
            check_cell(&c);
        }
    }
    json_decref(f.expected);
}

/* As the program lists them to who names another: "..., built in are gpt2, llama, vit". */
static void list_families(char *names, size_t room)
{
    const char *folder = test_tmpdir();
    run_write(folder, "config.json", "{\"model_type\": \"none of them\"}");
    run_result r = run_sluice(folder, "plan --model .");
    const char *list = strstr(r.error, "built in are ");
    REQUIRE(list != NULL);
    list += strlen("built in are ");
    snprintf(names, room, "%.*s", (int)strcspn(list, "\n"), list);
    run_free(&r);
}

TEST(every_family_is_trained_in_every_way_as_transformers_and_peft_train_it)
{
    char names[1000], *rest = names;
    int count = 0;
    list_families(names, sizeof names);
    for (char *name; (name = strsep(&rest, ", ")) != NULL;) {
        if (name[0] == '\0') continue;
        check_family(name);
        count++;
    }
    CHECK(count >= 11);
}
