/* sparse_cli_test.c: a recommender with sparse tables, from the command line: tables of 20 times memory.device, the weights
 * of dense ones, what a step moves, resuming, refusals. */
#include <math.h>

#include "support/run.h"
#include "test.h"

#define CONFIG                                                                                                         \
    "{\"model\": {\"type\": \"recommender\", \"embedding\": 8, \"bottom\": [6], \"top\": [6], \"sparse\": true},"      \
    "\"data\": {\"type\": \"table\", \"path\": \"rows.csv\", \"hash_buckets\": 4000,"                                  \
    "\"columns\": {\"label\": \"label\"}},"                                                                            \
    "\"optimizer\": {\"type\": \"Adagrad\", \"params\": {\"lr\": 0.05}}, \"steps\": 6, \"threads\": 1,"                \
    "\"train_micro_batch_size_per_gpu\": 16, \"gradient_accumulation_steps\": 2}"

static void write_rows(const char *folder)
{
    enum { ROWS = 400, LINE = 64 };
    char *text = malloc(ROWS * LINE + LINE), *at = text;
    at += sprintf(at, "label,n,a,b\n");
    for (int i = 0; i < ROWS; i++)
        at += sprintf(at, "%d,0.%d,x%d,y%d\n", i * 7 / 3 % 2, i % 10, i * i % 97, i * 31 % 101);
    run_write(folder, "rows.csv", text);
    free(text);
}

static void prepare(char folder[4096])
{
    snprintf(folder, 4096, "%s", test_tmpdir());
    run_write(folder, "c.json", CONFIG);
    write_rows(folder);
}

/* The text behind a key of the "end" event. */
static void read_end(const char *folder, const char *arguments, const char *key, char *out, size_t bytes)
{
    char command[1024], wanted[64];
    snprintf(command, sizeof command, "train c.json --json %s", arguments);
    run_result r = run_sluice(folder, command);
    CHECK_THAT(r.status == 0, "%s: %s", arguments, r.error);
    snprintf(wanted, sizeof wanted, "\"%s\":", key);
    const char *end = strstr(r.out, "{\"event\":\"end\""), *at = end != NULL ? strstr(end, wanted) : NULL;
    snprintf(out, bytes, "%s", at != NULL ? at + strlen(wanted) : "");
    out[strcspn(out, "}\n")] = '\0';
    if (strstr(out, ",\"sent") != NULL) *strstr(out, ",\"sent") = '\0'; /* goes by which ranks keep the rows */
    CHECK_THAT(at != NULL, "no %s in %s", key, r.out);
    run_free(&r);
}

static void read_hash(const char *folder, const char *arguments, char out[70])
{
    read_end(folder, arguments, "weights_sha256", out, 68);
}

#define ONE  "--set gradient_accumulation_steps=4 "
#define TWO  "--ranks 2 "
#define FOUR "--ranks 4 --set gradient_accumulation_steps=1 "

TEST(a_recommender_with_sparse_tables_learns_the_weights_of_dense_ones)
{
    char folder[4096], dense[70], sparse[70];
    static const char *const runs[] = { ONE,
                                        TWO,
                                        TWO "--set zero_optimization.stage=1",
                                        TWO "--set zero_optimization.stage=2",
                                        TWO "--set zero_optimization.stage=3",
                                        FOUR "--set zero_optimization.stage=3" };
    prepare(folder);
    read_hash(folder, ONE "--set model.sparse=false", dense);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        read_hash(folder, runs[i], sparse);
        CHECK_STR(sparse, dense);
    }
}

/* Two tables of 4,000 rows of 8, and as much state: 512,000 bytes. */
TEST(a_recommender_has_tables_of_20_times_the_device)
{
    char folder[4096], small[70], plenty[70];
    prepare(folder);
    read_hash(folder, "--set memory.device=25600 --set memory.host=2MiB", small);
    read_hash(folder, "--set memory.device=64MiB --set memory.host=64MiB", plenty);
    CHECK_STR(small, plenty);
    run_result r = run_sluice(folder, "train c.json --set memory.device=25600 --set memory.host=500KiB");
    CHECK_EQ(r.status, 3);
    run_free(&r);
}

TEST(a_step_of_a_recommender_moves_the_same_of_larger_tables)
{
    char folder[4096], first[512], other[512], arguments[128];
    prepare(folder);
    /* categories that share a bucket in a small table do not in a large one: more buckets than there are of these */
    read_end(folder, TWO "--set data.hash_buckets=100000", "tables", first, sizeof first);
    CHECK(strstr(first, "\"rows\":") != NULL && strstr(first, "\"rows\":0,") == NULL);
    for (int times = 4; times <= 16; times *= 4) {
        snprintf(arguments, sizeof arguments, TWO "--set data.hash_buckets=%d", times * 100000);
        read_end(folder, arguments, "tables", other, sizeof other);
        CHECK_STR(other, first);
    }
}

TEST(a_recommender_with_sparse_tables_resumes_and_is_exported)
{
    char folder[4096], whole[70], resumed[70];
    prepare(folder);
    read_hash(folder, TWO, whole);
    run_must(folder, "train c.json --quiet --set steps=3 --set checkpoint.path=kept --set checkpoint.every=3 " ONE
                     "--set checkpoint.background=true");
    read_hash(folder, FOUR "--set checkpoint.path=kept --resume --set model.sparse_rows=64", resumed);
    CHECK_STR(resumed, whole);
    run_must(folder, "export kept --out out.safetensors");
    run_must(folder, "eval c.json --weights out.safetensors");
    run_result r = run_sluice(folder, "train c.json --set checkpoint.path=kept --resume --set model.sparse=false");
    CHECK_THAT(r.status != 0 && strstr(r.error, "sparse") != NULL, "%s", r.error);
    run_free(&r);
}

/* ---- on a disk ---- */

/* Of an event the object behind a key, without its braces; cut at `until`. */
static void read_object(const char *out, const char *event, const char *key, char found[256])
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "{\"event\":\"%s\"", event);
    const char *line = strstr(out, wanted);
    snprintf(wanted, sizeof wanted, "\"%s\":{", key);
    const char *at = line != NULL ? strstr(line, wanted) : NULL;
    snprintf(found, 256, "%s", at != NULL ? at + strlen(wanted) : "");
    found[strcspn(found, "}\n")] = '\0';
    CHECK_THAT(at != NULL, "no %s of %s in %s", key, event, out);
}

static unsigned long long number_in(const char *object, const char *key)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\"%s\":", key);
    const char *at = strstr(object, wanted);
    CHECK_THAT(at != NULL, "no %s in %s", key, object);
    return at != NULL ? strtoull(at + strlen(wanted), NULL, 10) : 0;
}

/* What is planned moves as planned; what goes by the batches is beside it, and no more than was said. */
static void check_disk_run(const char *folder, const char *arguments)
{
    char command[1024], planned[256], counted[256];
    snprintf(command, sizeof command,
             "train c.json --json --set memory.disk_path=. --set steps=4 "
             "--set zero_optimization.offload_param.device=nvme %s",
             arguments);
    run_result r = run_sluice(folder, command);
    CHECK_THAT(r.status == 0, "%s: %s", arguments, r.error);
    read_object(r.out, "plan", "moved_bytes", planned);
    read_object(r.out, "end", "moved_bytes", counted);
    CHECK_STR(counted, planned);
    CHECK(number_in(planned, "disk_read") > 0 && number_in(planned, "disk_write") > 0);
    read_object(r.out, "plan", "tables", planned);
    read_object(r.out, "end", "tables", counted);
    CHECK(number_in(counted, "disk_write") > 0);
    CHECK(number_in(counted, "disk_read") <= number_in(planned, "disk_read"));
    CHECK(number_in(counted, "disk_write") <= number_in(planned, "disk_write"));
    run_free(&r);
}

TEST(what_lives_on_a_disk_beside_sparse_tables_moves_as_planned)
{
    char folder[4096];
    static const char *const runs[] = {
        ONE,
        ONE "--set zero_optimization.offload_optimizer.device=nvme --set memory.disk_chunk=2048",
        ONE "--set bf16.enabled=true --set optimizer.type=AdamW --set zero_optimization.offload_optimizer.device=nvme",
        TWO "--set optimizer.type=SGD --set zero_optimization.stage=0",
        TWO "--set bf16.enabled=true --set zero_optimization.stage=2",
        TWO "--set fp16.enabled=true --set fp16.initial_scale_power=8 --set optimizer.type=Adam "
            "--set zero_optimization.stage=3 --set zero_optimization.offload_optimizer.device=nvme",
        FOUR "--set optimizer.type=AdamW --set zero_optimization.stage=3 --set zero_optimization.partition=block "
             "--set zero_optimization.partition_block=1024",
    };
    prepare(folder);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) check_disk_run(folder, runs[i]);
}

static void check_refused(const char *folder, const char *arguments, int status, const char *part)
{
    char command[512];
    snprintf(command, sizeof command, "train c.json --quiet %s", arguments);
    run_result r = run_sluice(folder, command);
    CHECK_THAT(r.status == status && strstr(r.error, part) != NULL, "%s: status %d: %s", arguments, r.status, r.error);
    run_free(&r);
}

TEST(what_sparse_tables_cannot_do_is_refused)
{
    char folder[4096];
    prepare(folder);
    check_refused(folder, "--set model.sparse_rows=5", 2, "model.sparse_rows");
    check_refused(folder, TWO "--set model.sparse_rows=5", 2, "model.sparse_rows");
    check_refused(folder, "--set optimizer.type=AdamW --set optimizer.params.weight_decay=0.1", 2, "weight_decay");
    check_refused(folder, "--set optimizer.type=Lion", 2, "sparse table");
}
