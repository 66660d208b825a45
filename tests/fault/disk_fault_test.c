/* disk_fault_test.c: the whole program on a disk that fails, is slow, lies or stops answering, at one request after the other
 * and by both ways to read and write.
 *
 * What can be carried on is, to the bits of a run in memory. Everything else is one message that names the step, what was
 * moved and the folder, and exit status 6; what was saved resumes to the same bits; nothing is left in the folder. In `make
 * test` a few requests of each kind are struck, with LONG every one. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <unistd.h>

#include "support/fault_program.h"
#include "test.h"

#define STEPS 4

/* Parameters, state and activations on the disk: about 70 reads and 30 writes with one micro-batch a step. */
static const char config[] =
    "{\"model\": {\"type\": \"mlp\", \"features\": 8, \"hidden\": [32], \"outputs\": 4},\n"
    " \"data\": {\"type\": \"regression\", \"samples\": 64}, \"steps\": 4, \"train_batch_size\": 4,\n"
    " \"train_micro_batch_size_per_gpu\": %d, \"threads\": 1, \"optimizer\": {\"type\": \"AdamW\"},\n"
    " \"gradient_clipping\": 1.0, \"checkpoint\": {\"path\": \"run\", \"every\": 2}%s}\n";
#define ON_DISK                                                                                                        \
    ", \"activation_checkpointing\": {\"mode\": \"offload\", \"device\": \"nvme\"},\n"                                 \
    " \"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"},\n"                 \
    "                         \"offload_param\": {\"device\": \"nvme\"}}"
#define TRAIN "train c.json --json"

typedef struct scene {
    char folder[1024], disk[PATH_MAX];
    int micro;         /* samples of a micro-batch, of the 4 of a step: as many ranks as 4 / micro can share them */
    program untouched; /* a run in memory */
} scene;

static bool is_long(void)
{
    return getenv("LONG") != NULL;
}

static void make_folder(const scene *s, char folder[1024])
{
    char place[PATH_MAX + 512], text[PATH_MAX + 2048];
    memory_folder(folder);
    snprintf(place, sizeof place, ON_DISK, s->disk);
    snprintf(text, sizeof text, config, s->micro, s->disk[0] != '\0' ? place : "");
    write_text(folder, "c.json", text);
}

/* False with a failed check. */
static bool open_scene(scene *s, int micro)
{
    *s = (scene){ .disk = "", .micro = micro };
    make_folder(s, s->folder);
    int status = program_run(&s->untouched, s->folder, TRAIN);
    CHECK_EQ(status, 0);
    snprintf(s->disk, sizeof s->disk, "%s", test_tmpdir());
    return status == 0;
}

/* ---- what must hold ---- */

static void check_bits(const scene *s, const program *p)
{
    CHECK_EQ(p->step, STEPS);
    CHECK_STR(p->weights, s->untouched.weights);
    CHECK_STR(p->state, s->untouched.state);
}

/* One line: "sluice: [rank 1: ]step 3: ... FOLDER ...", of a step behind the newest checkpoint. */
static void check_message(const scene *s, const program *p, const char *what)
{
    const char *message = program_message(p), *at = strstr(message, "step ");
    uint64_t step = UINT64_MAX;
    CHECK_THAT(message[0] != '\0' && strchr(message, '\n') == message + strlen(message) - 1, "not one line: %s",
               message);
    CHECK_THAT(at != NULL && sscanf(at, "step %" SCNu64 ":", &step) == 1, "no step: %s", message);
    /* A step is told when its losses are there: transfers of it, and of the ranks behind it, may still be under way. */
    CHECK_THAT(step >= p->saved && step <= p->step + 1, "after step %d: %s", (int)p->step, message);
    CHECK_CONTAINS(message, s->disk);
    CHECK_CONTAINS(message, what);
    CHECK_THAT(strstr(message, " of layer ") != NULL || strstr(message, "relu") != NULL ||
                   strstr(message, "fc") != NULL,
               "no tensor: %s", message);
}

static void check_resumes(const scene *s, const program *struck, const char *arguments)
{
    program p;
    char all[512];
    snprintf(all, sizeof all, TRAIN " --resume %s", arguments);
    CHECK_EQ(program_run(&p, struck->folder, all), 0);
    CHECK_STR(program_message(&p), "");
    CHECK_EQ(p.resumed, struck->saved);
    if (struck->saved < STEPS) check_bits(s, &p);
    CHECK_STR(p.weights, s->untouched.weights);
    fault_check_empty(s->disk);
}

/* ---- one fault ---- */

/* False: the run ended before the fault's turn came. */
static bool strike(const scene *s, const disk_fault *f, const char *arguments, const char *what)
{
    program p;
    char folder[1024], all[512];
    int earlier = test_failures;
    make_folder(s, folder);
    snprintf(all, sizeof all, TRAIN " %s", arguments);
    int status = program_run_faulty(&p, folder, f, all);
    fault_check_empty(s->disk);
    if (program_faults(&p).struck == 0) {
        CHECK_EQ(status, 0);
        check_bits(s, &p);
        return false;
    }
    CHECK_EQ(status, 6);
    check_message(s, &p, what);
    check_resumes(s, &p, arguments);
    if (test_failures > earlier)
        test_fail(__FILE__, __LINE__, "%s %d, kind %d, value %d, threads %d %s: status %d: %s", f->call, f->nth,
                  (int)f->kind, f->value, f->threads, arguments, status, program_error(&p));
    return true;
}

/* Requests before the first weights are written try the file: another message, tested with the store. */
enum { TRIAL_REQUESTS = 1, STEPS_APART = 23 };

/* Every request of one direction, or some; the number of those that were struck. */
static int strike_all(const scene *s, disk_fault f, const char *arguments, const char *what, int ranks, int apart)
{
    int struck = 0;
    f.nth = ranks * TRIAL_REQUESTS + 1;
    while (test_failures == 0 && strike(s, &f, arguments, what)) {
        struck++;
        f.nth += apart;
    }
    return struck;
}

TEST(requests_that_fail_or_lie_end_the_run_with_6_and_the_checkpoint_resumes)
{
    static const struct {
        disk_fault fault;
        const char *what;
    } rows[] = {
        { { .call = "swap_read", .kind = DISK_FAILS, .value = EIO }, "Input/output error; check that disk" },
        { { .call = "swap_write", .kind = DISK_FAILS, .value = EIO }, "Input/output error; check that disk" },
        { { .call = "swap_write", .kind = DISK_FAILS, .value = ENOSPC }, "No space left on device; free space there" },
        { { .call = "swap_read", .kind = DISK_FLIP_READ }, "came back changed from the swap file in " },
    };
    scene s;
    int struck = 0;
    REQUIRE(open_scene(&s, 4));
    for (int threads = 0; threads < 2; threads++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            disk_fault f = rows[i].fault;
            f.threads = threads;
            struck += strike_all(&s, f, "", rows[i].what, 1, is_long() ? 1 : 3 * STEPS_APART);
        }
    printf("%d requests failed or lied\n", struck);
    CHECK(struck >= 8);
}

TEST(a_rank_whose_disk_fails_is_named_and_all_end_with_6)
{
    static const char *const ranks[] = { "--ranks 2 --set zero_optimization.stage=2",
                                         "--ranks 4 --set zero_optimization.stage=3",
                                         "--ranks 2 --set zero_optimization.stage=0" };
    scene s;
    int struck = 0;
    REQUIRE(open_scene(&s, 1));
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) {
            const disk_fault fails = { .call = "swap_", .kind = DISK_FAILS, .value = EIO, .threads = i % 2 == 1 },
                             lies = { .call = "swap_read", .kind = DISK_FLIP_READ, .threads = i % 2 == 0 };
            struck += strike_all(&s, k == 0 ? fails : lies, ranks[i], "rank ", i == 1 ? 8 : 4,
                                 is_long() ? 3 : 6 * STEPS_APART);
        }
    printf("%d requests of ranks failed or lied\n", struck);
    CHECK(struck >= 6);
}

TEST(a_disk_that_stops_answering_ends_the_run_with_6_within_the_deadline)
{
    static const struct {
        const char *arguments;
        int first;
    } rows[] = { { "--set timeout_seconds=1", 3 },
                 { "--ranks 2 --set timeout_seconds=2", 5 },
                 { "--ranks 4 --set timeout_seconds=2 --set zero_optimization.stage=3", 9 } };
    scene s;
    int struck = 0;
    REQUIRE(open_scene(&s, 1));
    for (int threads = 0; threads < 2; threads++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            disk_fault f = { .call = "swap_", .kind = DISK_NEVER, .threads = threads };
            if (!is_long() && (int)i % 2 != threads) continue;
            for (f.nth = rows[i].first + (is_long() ? 0 : 37 * threads);
                 test_failures == 0 && strike(&s, &f, rows[i].arguments, "has not answered for"); f.nth += 17) {
                struck++;
                if (!is_long()) break;
            }
        }
    printf("%d requests were never answered\n", struck);
    CHECK(struck >= 3);
}

/* ---- what is survived ---- */

TEST(a_disk_that_is_slow_short_or_interrupted_changes_nothing)
{
    static const disk_fault rows[] = {
        { "swap_", 2, 1, DISK_SHORT, 4096, false },   { "swap_", 3, 3, DISK_SHORT, 100, false },
        { "swap_", 3, 2, DISK_SHORT, 5000, false },   { "swap_", 3, 2, DISK_FAILS, EINTR, false },
        { "swap_", 3, 3, DISK_FAILS, EAGAIN, false }, { "swap_", 3, 1, DISK_SLOW, 50000, false },
    };
    scene s;
    REQUIRE(open_scene(&s, 4));
    for (int threads = 0; threads < 2; threads++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            program p;
            char folder[1024];
            disk_fault f = rows[i];
            f.threads = threads;
            if (!is_long() && f.kind == DISK_SLOW) f.every = 7;
            make_folder(&s, folder);
            CHECK_EQ(program_run_faulty(&p, folder, &f, TRAIN), 0);
            CHECK_STR(program_message(&p), "");
            CHECK(program_faults(&p).struck >= 10);
            check_bits(&s, &p);
            fault_check_empty(s.disk);
        }
}

/* ---- before the first step ---- */

TEST(a_disk_without_the_space_is_exit_3_and_one_that_cannot_reserve_it_exit_6)
{
    static const struct {
        int error, status;
        const char *what;
    } rows[] = { { ENOSPC, 3, "free space or name another folder" },
                 { EDQUOT, 3, "free space or name another folder" },
                 { EIO, 6, "cannot reserve " } };
    scene s;
    REQUIRE(open_scene(&s, 2));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int ranks = 1; ranks <= 2; ranks++) {
            program p;
            char folder[1024], arguments[64];
            disk_fault f = { .call = "fallocate", .nth = ranks, .kind = DISK_FAILS, .value = rows[i].error };
            make_folder(&s, folder);
            snprintf(arguments, sizeof arguments, TRAIN " --ranks %d", ranks);
            CHECK_EQ(program_run_faulty(&p, folder, &f, arguments), rows[i].status);
            CHECK_EQ(p.step, 0);
            CHECK_CONTAINS(program_message(&p), rows[i].what);
            CHECK_CONTAINS(program_message(&p), s.disk);
            fault_check_empty(s.disk);
            p.saved = 0;
            check_resumes(&s, &p, "");
        }
}

/* As a user has it, whose rates are measured. */
static void measure_rates(bool yes)
{
    setenv("SLUICE_MACHINE", yes ? "" : "default", 1);
    if (yes)
        setenv("XDG_CACHE_HOME", test_tmpdir(), 1);
    else
        unsetenv("XDG_CACHE_HOME");
}

TEST(a_disk_that_fails_while_its_rates_are_measured_ends_the_run_with_6_before_the_first_step)
{
    static const struct {
        disk_fault fault;
        const char *arguments, *what;
    } rows[] = {
        { { .call = "swap_", .nth = 40, .kind = DISK_NEVER }, "--set timeout_seconds=1", "has not answered for" },
        { { .call = "swap_", .nth = 40, .kind = DISK_NEVER, .threads = true },
          "--set timeout_seconds=2 --ranks 2",
          "has not answered for" },
        { { .call = "swap_", .nth = 70, .kind = DISK_FAILS, .value = EIO }, "", "Input/output error; check that disk" },
        { { .call = "swap_read", .nth = 9, .kind = DISK_FLIP_READ, .threads = true },
          "--ranks 2",
          "came back changed" },
    };
    scene s;
    REQUIRE(open_scene(&s, 2));
    measure_rates(true);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        program p;
        char folder[1024], arguments[128];
        make_folder(&s, folder);
        snprintf(arguments, sizeof arguments, TRAIN " %s", rows[i].arguments);
        CHECK_EQ(program_run_faulty(&p, folder, &rows[i].fault, arguments), 6);
        CHECK_EQ(program_faults(&p).struck, 1);
        CHECK_EQ(p.step, 0);
        CHECK_CONTAINS(program_message(&p), "a measurement");
        CHECK_CONTAINS(program_message(&p), rows[i].what);
        CHECK_CONTAINS(program_message(&p), s.disk);
        fault_check_empty(s.disk);
    }
    measure_rates(false);
}

/* ---- flipped bits ---- */

#define FLIPS      12
#define LONG_FLIPS 1000

static int count_requests(const scene *s, const char *arguments)
{
    const disk_fault none = { .call = "swap_", .kind = DISK_FINE };
    program p;
    char folder[1024], all[512];
    make_folder(s, folder);
    snprintf(all, sizeof all, TRAIN " %s", arguments);
    CHECK_EQ(program_run_faulty(&p, folder, &none, all), 0);
    check_bits(s, &p);
    CHECK(program_faults(&p).calls > 0);
    return program_faults(&p).calls;
}

/* True: it was found. */
static bool flip_a_bit(const scene *s, const disk_fault *f, const char *arguments)
{
    program p;
    char folder[1024], all[512];
    make_folder(s, folder);
    snprintf(all, sizeof all, TRAIN " %s", arguments);
    int status = program_run_faulty(&p, folder, f, all);
    fault_check_empty(s->disk);
    CHECK_EQ(program_faults(&p).struck, 1);
    if (status == 0) {
        check_bits(s, &p);
    } else {
        CHECK_EQ(status, 6);
        check_message(s, &p, "came back changed from the swap file in ");
        check_resumes(s, &p, arguments);
    }
    if (test_failures > 0) test_fail(__FILE__, __LINE__, "request %d %s: %s", f->nth, arguments, program_error(&p));
    return status != 0;
}

/* A random bit of the file itself before a random request. One that is written over before it is read harms nobody; all others
 * are found. */
TEST(a_flipped_bit_of_a_swap_file_is_found_or_written_over)
{
    static const char *const ways[] = { "", "--ranks 2", "--ranks 4 --set zero_optimization.stage=3" };
    scene s;
    uint64_t random = 20260611;
    const char *told = getenv("DISK_FLIPS");
    int requests[3], found = 0, done = 0, flips = told != NULL ? atoi(told) : is_long() ? LONG_FLIPS : FLIPS;
    REQUIRE(open_scene(&s, 1));
    for (int i = 0; i < 3; i++) requests[i] = count_requests(&s, ways[i]);
    for (; done < flips && test_failures == 0; done++) {
        uint32_t way = next_random(&random, 5) / 2;
        disk_fault f = { .call = "swap_", .kind = DISK_FLIP_FILE, .value = (int)next_random(&random, 1 << 30) };
        f.nth = 1 + (int)next_random(&random, (uint32_t)requests[way]);
        f.threads = next_random(&random, 2) == 0;
        found += flip_a_bit(&s, &f, ways[way]);
    }
    printf("%d bits of swap files flipped: %d found, %d written over before they were read\n", done, found,
           done - found);
    CHECK(found >= flips / 4);
}
