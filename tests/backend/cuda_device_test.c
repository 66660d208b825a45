/* cuda_device_test.c: the CUDA plugin as the library opens it, and the device behind it where there is a GPU: order
 * over its two kinds of streams, memory, failures. What kernels compute is tested with all other devices. */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cuda_plugin.h"
#include "core/alloc.h"
#include "support/shared_memory.h"
#include "test.h"

#define NO_PLUGIN "built without CUDA"
#define NO_GPU    "no GPU here, or built without CUDA"
#define CHILD     "SLUICE_TEST_CHILD" /* set where a test runs itself in a process of its own */

static char output[1 << 14];

/* ---- opening the plugin ---- */

/* NULL where it is not built. */
static const sl_cuda_plugin *open_plugin(void)
{
    const sl_cuda_plugin *plugin;
    return sl_cuda_open_plugin(&plugin) == SLUICE_OK ? plugin : NULL;
}

/* The backend; NULL where there is no GPU. */
static const sl_backend *open_backend(void)
{
    int count;
    const sl_cuda_plugin *plugin = open_plugin();
    return plugin != NULL && plugin->count(&count) == SLUICE_OK && count > 0 ? plugin->backend : NULL;
}

/* Opens the plugin of a folder, which fails; the message is in sluice_error(). */
static sluice_status open_from(const char *folder)
{
    const sl_cuda_plugin *plugin = NULL;
    const char *before = getenv("SLUICE_PLUGINS");
    char *kept = before != NULL ? strdup(before) : NULL;
    setenv("SLUICE_PLUGINS", folder, 1);
    sluice_status st = sl_cuda_open_plugin(&plugin);
    CHECK(plugin == NULL);
    if (kept != NULL)
        setenv("SLUICE_PLUGINS", kept, 1);
    else
        unsetenv("SLUICE_PLUGINS");
    free(kept);
    return st;
}

TEST(a_cuda_plugin_of_another_version_is_refused)
{
    CHECK_EQ(open_from(SLUICE_BINARY_DIR "/plugins/other"), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "belongs to another build of sluice (0.0.7, this is ");
}

TEST(a_library_that_is_no_plugin_is_refused)
{
    CHECK_EQ(open_from(SLUICE_BINARY_DIR "/plugins/none"), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "plugins/none/./libsluice_cuda.so is not a part of sluice");
}

TEST(a_file_that_is_no_library_is_refused_with_the_loaders_reason)
{
    char path[4200];
    const char *folder = test_tmpdir();
    snprintf(path, sizeof path, "%s/libsluice_cuda.so", folder);
    FILE *f = fopen(path, "w");
    REQUIRE(f != NULL);
    for (int i = 0; i < 100; i++) fputs("this is no library, whatever its name may say\n", f);
    fclose(f);
    CHECK_EQ(open_from(folder), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "the CUDA part of sluice is not here: ");
    CHECK_CONTAINS(sluice_error(), "invalid ELF header");
}

/* Runs one test of this program in a process of its own, with `variables` set; its exit status. */
static int run_child(const char *variables, const char *test)
{
    char program[4096], command[8192];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0) return -1;
    program[length] = '\0';
    snprintf(command, sizeof command, CHILD "=1 %s timeout -k 5 60 '%s' %s 2>&1", variables, program, test);
    FILE *p = popen(command, "r");
    if (p == NULL) return -1;
    output[fread(output, 1, sizeof output - 1, p)] = '\0';
    int status = pclose(p);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(a_plugin_that_is_not_installed_is_named)
{
    char program[4096], command[12288];
    if (getenv(CHILD) != NULL) {
        const sl_cuda_plugin *plugin;
        CHECK_EQ(sl_cuda_open_plugin(&plugin), SLUICE_ERR_USAGE);
        printf("%s\n", sluice_error());
        return;
    }
    /* nothing lies beside a copy of this program */
    const char *folder = test_tmpdir();
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    REQUIRE(length > 0);
    program[length] = '\0';
    snprintf(command, sizeof command,
             "cp '%s' %s/copy && env -u SLUICE_PLUGINS " CHILD
             "=1 %s/copy a_plugin_that_is_not_installed_is_named 2>&1",
             program, folder, folder);
    FILE *p = popen(command, "r");
    REQUIRE(p != NULL);
    output[fread(output, 1, sizeof output - 1, p)] = '\0';
    CHECK_EQ(pclose(p), 0);
    CHECK_CONTAINS(output, "the CUDA part of sluice is not here: libsluice_cuda.so: cannot open shared object file");
    CHECK_CONTAINS(output, "name the folder of libsluice_cuda.so in SLUICE_PLUGINS");
}

TEST(without_a_gpu_the_plugin_says_what_is_missing)
{
    if (getenv(CHILD) != NULL) {
        int count;
        sl_device *d = NULL;
        sl_device_options options = { .threads = 1 };
        const sl_cuda_plugin *plugin;
        REQUIRE_OK(sl_cuda_open_plugin(&plugin));
        CHECK_EQ(plugin->count(&count), SLUICE_ERR_USAGE);
        CHECK_EQ(plugin->backend->open(&options, &d), SLUICE_ERR_USAGE);
        CHECK(d == NULL);
        printf("%s\n", sluice_error());
        return;
    }
    if (open_plugin() == NULL) SKIP(cuda, NO_PLUGIN);
    CHECK_EQ(run_child("CUDA_VISIBLE_DEVICES=", "without_a_gpu_the_plugin_says_what_is_missing"), 0);
    if (open_backend() != NULL)
        CHECK_CONTAINS(output, "the NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES is set)");
    else
        CHECK_CONTAINS(output, "NVIDIA driver");
}

/* ---- a device to work with ---- */

#define CELLS        24
#define EVENTS       16
#define CELL_SPACING 256

static sl_span on_device(uint64_t offset, uint64_t bytes)
{
    return (sl_span){ SL_TIER_DEVICE, offset, bytes };
}

static sl_span on_host(uint64_t offset, uint64_t bytes)
{
    return (sl_span){ SL_TIER_HOST, offset, bytes };
}

/* NULL after a reported failure. */
static sl_device *open_device(const sl_backend *b, sl_device_options options, uint64_t bytes)
{
    sl_device *d = NULL;
    options.threads = 2;
    options.isa = sl_isa_best();
    if (b->open(&options, &d) == SLUICE_OK && b->reserve(d, SL_TIER_DEVICE, bytes) == SLUICE_OK &&
        b->reserve(d, SL_TIER_HOST, bytes) == SLUICE_OK && b->reserve_events(d, EVENTS) == SLUICE_OK)
        return d;
    test_fail(__FILE__, __LINE__, "open: %s", sluice_error());
    b->close(d);
    return NULL;
}

/* ---- order: random programs against a model ---- */

/* Cells are words of both arenas, CELLS of each. A program copies cells on CUDA streams and computes with those of the
 * host on host queues; the model does the same in the order of submission. Each operation waits for the last event of
 * every cell it touches. Events are few and used again and again, while waits for their earlier recordings are still
 * queued. */
typedef struct program {
    const sl_backend *b;
    sl_device *d;
    uint64_t random;
    uint32_t model[2 * CELLS];
    int event[2 * CELLS]; /* of the last operation that touched the cell; -1: none */
    int next_event;
    uint32_t *host[CELLS]; /* addresses of the host's cells */
} program;

/* cell = mix(cell, from); some take their time. */
typedef struct mixing {
    uint32_t *to;
    const uint32_t *from;
    int microseconds;
} mixing;

static uint32_t mix(uint32_t a, uint32_t b)
{
    return (a ^ (b >> 3)) * 2654435761u + b;
}

static sluice_status do_mixing(void *user)
{
    mixing *m = user;
    if (m->microseconds > 0) usleep((useconds_t)m->microseconds);
    *m->to = mix(*m->to, *m->from);
    return SLUICE_OK;
}

static int pick(program *p, int count)
{
    p->random = p->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((p->random >> 33) % (uint64_t)count);
}

static sl_span cell_span(int cell)
{
    uint64_t offset = (uint64_t)(cell % CELLS) * CELL_SPACING;
    return cell < CELLS ? on_device(offset, 4) : on_host(offset, 4);
}

static sluice_status wait_for_cell(program *p, sl_stream s, int cell)
{
    return p->event[cell] < 0 ? SLUICE_OK : p->b->wait(p->d, s, p->event[cell]);
}

/* The event's earlier recording must not be forgotten by cells that still name it: the new one comes after it. */
static sluice_status mark_cells(program *p, sl_stream s, int a, int b)
{
    int event = p->next_event;
    p->next_event = (event + 1 + pick(p, 2)) % EVENTS;
    SL_TRY(p->b->wait(p->d, s, event));
    SL_TRY(p->b->record(p->d, s, event));
    p->event[a] = p->event[b] = event;
    return SLUICE_OK;
}

static sluice_status random_copy(program *p)
{
    static const sl_stream streams[] = { SL_STREAM_COMPUTE, SL_STREAM_TO_DEVICE, SL_STREAM_TO_HOST };
    sl_stream s = streams[pick(p, 3)];
    int from = pick(p, 2 * CELLS), to = pick(p, 2 * CELLS);
    if (from == to || (from >= CELLS && to >= CELLS && pick(p, 8) != 0)) return SLUICE_OK; /* the host's own: rarely */
    SL_TRY(wait_for_cell(p, s, from));
    SL_TRY(wait_for_cell(p, s, to));
    SL_TRY(p->b->copy(p->d, s, cell_span(to), cell_span(from)));
    p->model[to] = p->model[from];
    return mark_cells(p, s, from, to);
}

static sluice_status random_host_work(program *p, mixing *m)
{
    static const sl_stream streams[] = { SL_STREAM_COMM, SL_STREAM_UPDATE };
    sl_stream s = streams[pick(p, 2)];
    int from = pick(p, CELLS), to = pick(p, CELLS), work = pick(p, 5);
    if (from == to) return SLUICE_OK;
    SL_TRY(wait_for_cell(p, s, CELLS + from));
    SL_TRY(wait_for_cell(p, s, CELLS + to));
    *m = (mixing){ p->host[to], p->host[from], pick(p, 50) == 0 ? pick(p, 300) : 0 };
    if (work == 0) {
        SL_TRY(p->b->copy(p->d, s, cell_span(CELLS + to), cell_span(CELLS + from)));
        p->model[CELLS + to] = p->model[CELLS + from];
    } else {
        SL_TRY(p->b->submit(p->d, s, do_mixing, m));
        p->model[CELLS + to] = mix(p->model[CELLS + to], p->model[CELLS + from]);
    }
    return mark_cells(p, s, CELLS + from, CELLS + to);
}

/* A new value from outside, in order on some stream. */
static sluice_status random_upload(program *p)
{
    sl_stream s = (sl_stream)pick(p, SL_STREAM_COUNT);
    int to = pick(p, 2 * CELLS);
    uint32_t value = (uint32_t)pick(p, 1 << 30);
    SL_TRY(wait_for_cell(p, s, to));
    SL_TRY(p->b->upload(p->d, s, cell_span(to), &value));
    p->model[to] = value;
    return mark_cells(p, s, to, to);
}

static sluice_status check_cell(program *p, int cell)
{
    uint32_t value;
    if (p->event[cell] >= 0) SL_TRY(p->b->await(p->d, p->event[cell]));
    SL_TRY(p->b->download(p->d, &value, cell_span(cell)));
    CHECK_EQ(value, p->model[cell]);
    return SLUICE_OK;
}

static sluice_status run_program(program *p, int operations, mixing *mixings)
{
    for (int c = 0; c < 2 * CELLS; c++) {
        p->model[c] = (uint32_t)c * 77;
        p->event[c] = -1;
        SL_TRY(p->b->upload(p->d, SL_STREAM_COMPUTE, cell_span(c), &p->model[c]));
    }
    SL_TRY(p->b->synchronize(p->d));
    for (int i = 0; i < operations && test_failures == 0; i++) {
        int kind = pick(p, 100);
        SL_TRY(kind < 50    ? random_copy(p)
               : kind < 94  ? random_host_work(p, &mixings[i])
               : kind < 97  ? random_upload(p)
               : kind < 99  ? check_cell(p, pick(p, 2 * CELLS))
               : pick(p, 5) ? SLUICE_OK
                            : p->b->synchronize(p->d));
    }
    SL_TRY(p->b->synchronize(p->d));
    for (int c = 0; c < 2 * CELLS; c++) SL_TRY(check_cell(p, c));
    return SLUICE_OK;
}

TEST(events_order_cuda_streams_and_host_queues_in_random_programs)
{
    enum { OPERATIONS = 3000, PROGRAMS = 6 };
    const sl_backend *b = open_backend();
    if (b == NULL) SKIP(gpu, NO_GPU);
    mixing *mixings = calloc(OPERATIONS, sizeof *mixings);
    REQUIRE(mixings != NULL);
    for (uint64_t seed = 1; seed <= PROGRAMS && test_failures == 0; seed++) {
        program p = { .b = b, .random = seed };
        p.d = open_device(b, (sl_device_options){ .guard = seed % 2 == 0 }, CELLS * CELL_SPACING);
        if (p.d == NULL) break;
        for (int c = 0; c < CELLS; c++) {
            void *address = NULL;
            CHECK_EQ(b->resolve(p.d, "cell", cell_span(CELLS + c), &address), SLUICE_OK);
            p.host[c] = address;
        }
        if (run_program(&p, OPERATIONS, mixings) != SLUICE_OK)
            test_fail(__FILE__, __LINE__, "program %d: %s", (int)seed, sluice_error());
        b->close(p.d);
    }
    free(mixings);
}

/* ---- kernels on both sides ---- */

static const sl_shape one = { 1, { 1 } };

static sl_call scale_call(const sl_attrs *attrs, sl_span from, sl_span to)
{
    sl_call c = { .op = SL_OP_SCALE, .attrs = attrs, .input_count = 1, .output_count = 1, .name = "twice" };
    c.inputs[0] = from;
    c.outputs[0] = to;
    c.input_shapes[0] = c.output_shapes[0] = &one;
    return c;
}

typedef struct increment {
    float *at;
} increment;

static sluice_status add_one(void *user)
{
    *((increment *)user)->at += 1.0f;
    return SLUICE_OK;
}

/* compute * 2 -> to host -> update * 0.5 on the CPU -> comm + 1 -> to device. A lap adds one. */
static void lap(const sl_backend *b, sl_device *d, increment *add)
{
    static const sl_attrs twice = { .scale = { 2.0f } }, half = { .scale = { 0.5f } };
    sl_call on_gpu = scale_call(&twice, on_device(0, 4), on_device(256, 4));
    sl_call on_cpu = scale_call(&half, on_host(0, 4), on_host(256, 4));
    REQUIRE_OK(b->wait(d, SL_STREAM_COMPUTE, 4));
    REQUIRE_OK(b->run(d, SL_STREAM_COMPUTE, &on_gpu));
    REQUIRE_OK(b->record(d, SL_STREAM_COMPUTE, 0));
    REQUIRE_OK(b->wait(d, SL_STREAM_TO_HOST, 0));
    REQUIRE_OK(b->copy(d, SL_STREAM_TO_HOST, on_host(0, 4), on_device(256, 4)));
    REQUIRE_OK(b->record(d, SL_STREAM_TO_HOST, 1));
    REQUIRE_OK(b->wait(d, SL_STREAM_UPDATE, 1));
    REQUIRE_OK(b->run(d, SL_STREAM_UPDATE, &on_cpu));
    REQUIRE_OK(b->record(d, SL_STREAM_UPDATE, 2));
    REQUIRE_OK(b->wait(d, SL_STREAM_COMM, 2));
    REQUIRE_OK(b->submit(d, SL_STREAM_COMM, add_one, add));
    REQUIRE_OK(b->record(d, SL_STREAM_COMM, 3));
    REQUIRE_OK(b->wait(d, SL_STREAM_TO_DEVICE, 3));
    REQUIRE_OK(b->copy(d, SL_STREAM_TO_DEVICE, on_device(0, 4), on_host(256, 4)));
    REQUIRE_OK(b->record(d, SL_STREAM_TO_DEVICE, 4));
}

TEST(laps_over_gpu_and_host_keep_their_order_and_allocate_nothing)
{
    const sl_backend *b = open_backend();
    float zero = 0.0f, last = 0.0f;
    void *address;
    sl_alloc_stats before, after;
    if (b == NULL) SKIP(gpu, NO_GPU);
    sl_device *d = open_device(b, (sl_device_options){ .guard = true }, 1024);
    REQUIRE(d != NULL);
    REQUIRE_OK(b->upload(d, SL_STREAM_COMPUTE, on_device(0, 4), &zero));
    REQUIRE_OK(b->resolve(d, "sum", on_host(256, 4), &address));
    increment add = { address };
    lap(b, d, &add); /* starts the queues */
    sl_alloc_get_stats(&before);
    for (int i = 1; i < 1000 && test_failures == 0; i++) lap(b, d, &add);
    sl_alloc_get_stats(&after);
    CHECK_EQ(after.total_count - before.total_count, 0);
    REQUIRE_OK(b->synchronize(d));
    REQUIRE_OK(b->download(d, &last, on_device(0, 4)));
    CHECK(last == 1000.0f);
    b->close(d);
}

/* The queue is held up while the caller's context and shapes change. */
static sluice_status nap(void *user)
{
    usleep((useconds_t) * (int *)user);
    return SLUICE_OK;
}

TEST(a_queued_kernel_has_its_own_copy_of_what_it_was_given)
{
    const sl_backend *b = open_backend();
    int microseconds = 20000;
    float out[2] = { 0, 0 };
    if (b == NULL) SKIP(gpu, NO_GPU);
    sl_device *d = open_device(b, (sl_device_options){ .guard = true }, 1024);
    REQUIRE(d != NULL);
    REQUIRE_OK(b->submit(d, SL_STREAM_UPDATE, nap, &microseconds));
    for (int i = 0; i < 2; i++) {
        sl_attrs *none = calloc(1, sizeof *none); /* graph data: stays */
        sl_run_context context = { .seed_gradient = 3.0f + (float)i };
        sl_shape scalar = { 0, { 0 } };
        sl_call c = { .op = SL_OP_SEED, .attrs = none, .output_count = 1, .context = &context, .name = "seed" };
        c.outputs[0] = on_host(256 * (uint64_t)i, 4);
        c.output_shapes[0] = &scalar;
        REQUIRE_OK(b->run(d, SL_STREAM_UPDATE, &c));
        memset(&context, 0x7f, sizeof context);
        memset(&scalar, 0x7f, sizeof scalar);
        REQUIRE_OK(b->synchronize(d));
        REQUIRE_OK(b->download(d, &out[i], c.outputs[0]));
        free(none);
    }
    CHECK(out[0] == 3.0f && out[1] == 4.0f);
    b->close(d);
}

TEST(operands_on_the_wrong_side_are_refused)
{
    const sl_backend *b = open_backend();
    static const sl_attrs twice = { .scale = { 2.0f } };
    void *address;
    if (b == NULL) SKIP(gpu, NO_GPU);
    sl_device *d = open_device(b, (sl_device_options){ 0 }, 1024);
    REQUIRE(d != NULL);
    sl_call c = scale_call(&twice, on_host(0, 4), on_device(0, 4));
    CHECK_EQ(b->run(d, SL_STREAM_COMPUTE, &c), SLUICE_ERR_FAILED);
    CHECK_CONTAINS(sluice_error(),
                   "scale twice: input 0 is on the host tier, but kernels of the compute stream run on the GPU");
    CHECK_EQ(b->run(d, SL_STREAM_UPDATE, &c), SLUICE_ERR_FAILED);
    CHECK_CONTAINS(sluice_error(), "output 0 is on the device tier, but kernels of the update stream run on the CPU");
    CHECK_EQ(b->copy(d, SL_STREAM_COMM, on_device(0, 4), on_host(0, 4)), SLUICE_ERR_FAILED);
    CHECK_CONTAINS(sluice_error(), "communication stream");
    CHECK_EQ(b->resolve(d, "gather of h.3", on_device(0, 4), &address), SLUICE_ERR_FAILED);
    CHECK_CONTAINS(sluice_error(), "gather of h.3: 4 bytes at offset 0 of the device tier are in the GPU's memory");
    CHECK_EQ(b->copy(d, SL_STREAM_COUNT, on_device(0, 4), on_device(256, 4)), SLUICE_ERR_FAILED);
    CHECK_EQ(b->record(d, SL_STREAM_COMPUTE, EVENTS), SLUICE_ERR_FAILED);
    CHECK_EQ(b->synchronize(d), SLUICE_OK);
    b->close(d);
}

/* ---- memory ---- */

TEST(arenas_of_a_gpu_are_zero_or_poisoned)
{
    const sl_backend *b = open_backend();
    static const sl_tier tiers[] = { SL_TIER_DEVICE, SL_TIER_HOST };
    if (b == NULL) SKIP(gpu, NO_GPU);
    for (int guard = 0; guard < 2; guard++) {
        sl_device *d = open_device(b, (sl_device_options){ .guard = guard == 1 }, 5000);
        REQUIRE(d != NULL);
        for (int t = 0; t < 2; t++) {
            uint8_t bytes[5000];
            int wrong = 0;
            memset(bytes, 0x11, sizeof bytes);
            REQUIRE_OK(b->download(d, bytes, (sl_span){ tiers[t], 0, 5000 }));
            for (int i = 0; i < 5000; i++) wrong += bytes[i] != (guard ? 0xff : 0);
            CHECK_EQ(wrong, 0);
        }
        REQUIRE_OK(b->synchronize(d));
        b->close(d);
    }
}

/* More threads than there are ways to the GPU, so that some wait for one. */
TEST(several_threads_store_to_a_gpu_and_read_at_a_time)
{
    const sl_backend *b = open_backend();
    sl_pool *pool;
    if (b == NULL) SKIP(gpu, NO_GPU);
    sl_device *d = open_device(b, (sl_device_options){ .guard = true }, SHARED_TASKS * SHARED_BYTES);
    REQUIRE(d != NULL);
    REQUIRE_OK(sl_pool_create(24, &pool));
    for (int tier = SL_TIER_DEVICE; tier <= SL_TIER_HOST; tier++) {
        shared_memory m = { b, d, (sl_tier)tier };
        REQUIRE_OK(sl_pool_try(pool, store_and_read, &m, SHARED_TASKS));
    }
    REQUIRE_OK(b->synchronize(d));
    sl_pool_destroy(pool);
    b->close(d);
}

TEST(more_memory_than_a_gpu_has_is_refused_with_the_numbers)
{
    const sl_backend *b = open_backend();
    sl_device *d = NULL;
    sl_device_options options = { .threads = 1 };
    if (b == NULL) SKIP(gpu, NO_GPU);
    REQUIRE_OK(b->open(&options, &d));
    CHECK_EQ(b->reserve(d, SL_TIER_DEVICE, (uint64_t)1 << 50), SLUICE_ERR_NO_MEMORY);
    CHECK_CONTAINS(sluice_error(), "the device arena needs 1125899906842624 bytes");
    CHECK_CONTAINS(sluice_error(), "free of");
    CHECK_EQ(b->copy(d, SL_STREAM_COMPUTE, on_device(0, 4), on_device(256, 4)), SLUICE_ERR_FAILED);
    CHECK_EQ(b->reserve(d, SL_TIER_HOST, UINT64_MAX), SLUICE_ERR_NO_MEMORY);
    CHECK_CONTAINS(sluice_error(), "the host arena needs");
    CHECK_EQ(b->synchronize(d), SLUICE_OK);
    b->close(d);
}

TEST(large_uploads_arrive_whole_and_in_the_order_of_their_stream)
{
    enum { BYTES = (20 << 20) + 13 };
    const sl_backend *b = open_backend();
    if (b == NULL) SKIP(gpu, NO_GPU);
    uint8_t *sent = malloc(BYTES), *seen = malloc(BYTES);
    sl_device *d = open_device(b, (sl_device_options){ 0 }, BYTES);
    REQUIRE(sent != NULL && seen != NULL && d != NULL);
    for (int i = 0; i < BYTES; i++) sent[i] = (uint8_t)(i * 2654435761u >> 13);
    REQUIRE_OK(b->upload(d, SL_STREAM_TO_DEVICE, on_device(0, BYTES), sent));
    REQUIRE_OK(b->copy(d, SL_STREAM_TO_DEVICE, on_host(0, BYTES), on_device(0, BYTES)));
    memset(seen, 1, BYTES);
    REQUIRE_OK(b->upload(d, SL_STREAM_TO_DEVICE, on_device(0, BYTES), seen)); /* after the copy */
    REQUIRE_OK(b->synchronize(d));
    REQUIRE_OK(b->download(d, seen, on_host(0, BYTES)));
    CHECK(memcmp(sent, seen, BYTES) == 0);
    REQUIRE_OK(b->upload(d, SL_STREAM_UPDATE, on_device(0, BYTES), sent));
    REQUIRE_OK(b->download(d, seen, on_device(0, BYTES)));
    CHECK(memcmp(sent, seen, BYTES) == 0);
    b->close(d);
    free(sent);
    free(seen);
}

TEST(the_gpu_counts_what_it_was_handed)
{
    const sl_backend *b = open_backend();
    sl_device_stats stats;
    sl_window window;
    if (b == NULL) SKIP(gpu, NO_GPU);
    int file = memfd_create("sluice test", MFD_CLOEXEC);
    sl_device *d = open_device(b, (sl_device_options){ .arena_files = { 0, file } }, 1 << 20);
    REQUIRE(file > 0 && d != NULL);
    REQUIRE_OK(b->copy(d, SL_STREAM_TO_DEVICE, on_device(0, 4096), on_host(8192, 4096)));
    REQUIRE_OK(b->copy(d, SL_STREAM_TO_HOST, on_host(0, 100), on_device(4096, 100)));
    REQUIRE_OK(b->synchronize(d));
    b->stats(d, &stats);
    CHECK_EQ(stats.moved[SL_LINK_TO_DEVICE], 4096);
    CHECK_EQ(stats.moved[SL_LINK_TO_HOST], 100);
    CHECK_EQ(stats.copy_calls, 2);
    CHECK_EQ(stats.observed_peak[SL_TIER_DEVICE], 4196);
    CHECK_EQ(stats.observed_peak[SL_TIER_HOST], 12288);
    CHECK(stats.device_overhead < (uint64_t)8 << 30);
    CHECK(!b->window(d, SL_TIER_DEVICE, &window));
    REQUIRE(b->window(d, SL_TIER_HOST, &window));
    CHECK_EQ(window.bytes, 1 << 20);
    b->close(d);
    close(file);
}

/* ---- times ---- */

static sluice_status sleep_5_ms(void *user)
{
    (void)user;
    usleep(5000);
    return SLUICE_OK;
}

/* A large copy, then host work that waits for it, then a copy that waits for that: on two clocks made one. */
TEST(times_of_the_gpu_and_of_the_host_are_of_one_clock)
{
    enum { LAPS = 20, BYTES = 32 << 20 };
    const double slack = 100e-6;
    const sl_backend *b = open_backend();
    double at[4 * LAPS + 1];
    if (b == NULL) SKIP(gpu, NO_GPU);
    sl_device *d = open_device(b, (sl_device_options){ .ordinal = 0 }, BYTES);
    REQUIRE(d != NULL);
    REQUIRE_OK(b->reserve_stamps(d, 4 * LAPS + 1));
    for (int i = 0; i < LAPS; i++) {
        REQUIRE_OK(b->wait(d, SL_STREAM_TO_DEVICE, 1));
        REQUIRE_OK(b->stamp(d, SL_STREAM_TO_DEVICE, 4 * i));
        REQUIRE_OK(b->copy(d, SL_STREAM_TO_DEVICE, on_device(0, BYTES), on_host(0, BYTES)));
        REQUIRE_OK(b->stamp(d, SL_STREAM_TO_DEVICE, 4 * i + 1));
        REQUIRE_OK(b->record(d, SL_STREAM_TO_DEVICE, 0));
        REQUIRE_OK(b->wait(d, SL_STREAM_UPDATE, 0));
        REQUIRE_OK(b->stamp(d, SL_STREAM_UPDATE, 4 * i + 2));
        REQUIRE_OK(b->submit(d, SL_STREAM_UPDATE, sleep_5_ms, NULL));
        REQUIRE_OK(b->stamp(d, SL_STREAM_UPDATE, 4 * i + 3));
        REQUIRE_OK(b->record(d, SL_STREAM_UPDATE, 1));
    }
    REQUIRE_OK(b->synchronize(d));
    REQUIRE_OK(b->read_stamps(d, at, 4 * LAPS + 1));
    CHECK(at[0] >= 0 && at[4 * LAPS] < 0);
    for (int i = 0; i < LAPS; i++) {
        CHECK(at[4 * i + 1] - at[4 * i] > BYTES / 500e9); /* no link is faster */
        CHECK(at[4 * i + 3] - at[4 * i + 2] > 4.9e-3);
        CHECK(at[4 * i + 2] >= at[4 * i + 1] - slack);
        if (i > 0) CHECK(at[4 * i] >= at[4 * i - 1] - slack);
    }
    CHECK(at[4 * LAPS - 1] < 10);
    REQUIRE_OK(b->reserve_stamps(d, 3)); /* closing frees them */
    b->close(d);
}

/* ---- failures ---- */

static sluice_status fail_with_number(void *user)
{
    return sl_fail(SLUICE_ERR_RANK, "rank %d is gone", *(int *)user);
}

TEST(the_first_failure_of_host_work_beside_a_gpu_is_reported_once)
{
    static const sl_stream streams[] = { SL_STREAM_COMM, SL_STREAM_UPDATE, SL_STREAM_COMPUTE, SL_STREAM_TO_DEVICE };
    const sl_backend *b = open_backend();
    int numbers[] = { 3, 4 };
    if (b == NULL) SKIP(gpu, NO_GPU);
    for (int s = 0; s < 4; s++)
        for (int awaited = 0; awaited < 2; awaited++) {
            float sum = 0.0f, x = 7.0f, y = 0.0f;
            increment add = { &sum };
            sl_device *d = open_device(b, (sl_device_options){ 0 }, 1024);
            REQUIRE(d != NULL);
            REQUIRE_OK(b->upload(d, SL_STREAM_COMPUTE, on_host(0, 4), &x));
            REQUIRE_OK(b->submit(d, streams[s], add_one, &add));
            REQUIRE_OK(b->submit(d, streams[s], fail_with_number, &numbers[0]));
            REQUIRE_OK(b->submit(d, streams[s], fail_with_number, &numbers[1]));
            REQUIRE_OK(b->submit(d, streams[s], add_one, &add));
            REQUIRE_OK(b->record(d, streams[s], 0));
            REQUIRE_OK(b->wait(d, SL_STREAM_TO_HOST, 0));                              /* nobody waits for ever */
            REQUIRE_OK(b->copy(d, SL_STREAM_TO_HOST, on_device(0, 4), on_host(0, 4))); /* copies still happen */
            REQUIRE_OK(b->record(d, SL_STREAM_TO_HOST, 1));
            sl_error_record("another thread's trouble");
            CHECK_EQ(awaited ? b->await(d, 1) : b->synchronize(d), SLUICE_ERR_RANK);
            CHECK_STR(sluice_error(), "rank 3 is gone");
            CHECK(sum == 1.0f);
            CHECK_EQ(b->synchronize(d), SLUICE_OK);
            REQUIRE_OK(b->download(d, &y, on_device(0, 4)));
            CHECK(y == 7.0f);
            REQUIRE_OK(b->submit(d, streams[s], add_one, &add));
            REQUIRE_OK(b->synchronize(d));
            CHECK(sum == 2.0f);
            b->close(d);
        }
}

/* A part that begins far outside its tensor: the kernel reads where nothing is mapped. */
static sl_call faulty_call(void)
{
    static const sl_attrs far_away = { .split = { .axis = 0, .start = (int64_t)1 << 40, .size = 4 } };
    static const sl_shape whole = { 1, { 8 } }, part = { 1, { 4 } };
    sl_call c = { .op = SL_OP_SPLIT, .attrs = &far_away, .input_count = 1, .output_count = 1 };
    c.name = "first half";
    c.layer = "h.5";
    c.inputs[0] = on_device(0, 32);
    c.outputs[0] = on_device(256, 16);
    c.input_shapes[0] = &whole;
    c.output_shapes[0] = &part;
    return c;
}

/* Kernels before and after the faulty one, and queues on both sides that wait for what will never come. */
static void break_gpu(const sl_backend *b)
{
    static const sl_attrs attrs = { .scale = { 2.0f } };
    char first[512];
    float sum = 0.0f;
    increment add = { &sum };
    sl_device *d = open_device(b, (sl_device_options){ 0 }, 4096);
    REQUIRE(d != NULL);
    sl_call good = scale_call(&attrs, on_device(1024, 4), on_device(2048, 4)), bad = faulty_call();
    for (int i = 0; i < 100; i++) REQUIRE_OK(b->run(d, SL_STREAM_COMPUTE, &good));
    (void)b->run(d, SL_STREAM_COMPUTE, &bad); /* may know already */
    (void)b->record(d, SL_STREAM_COMPUTE, 0);
    (void)b->wait(d, SL_STREAM_UPDATE, 0);
    (void)b->submit(d, SL_STREAM_UPDATE, add_one, &add);
    (void)b->record(d, SL_STREAM_UPDATE, 1);
    (void)b->wait(d, SL_STREAM_TO_DEVICE, 1);
    (void)b->run(d, SL_STREAM_COMPUTE, &good);
    CHECK_EQ(b->synchronize(d), SLUICE_ERR_FAILED);
    snprintf(first, sizeof first, "%s", sluice_error());
    CHECK_CONTAINS(first, "failed, in split first half of layer h.5: ");
    CHECK_EQ(b->run(d, SL_STREAM_COMPUTE, &good), SLUICE_ERR_FAILED);
    CHECK_STR(sluice_error(), first);
    CHECK_EQ(b->await(d, 1), SLUICE_ERR_FAILED);
    CHECK_EQ(b->submit(d, SL_STREAM_UPDATE, add_one, &add), SLUICE_ERR_FAILED);
    CHECK_EQ(b->synchronize(d), SLUICE_ERR_FAILED);
    CHECK_STR(sluice_error(), first);
    CHECK(sum == 0.0f);
    b->close(d);
}

/* In a process of its own: its context is gone afterwards. */
TEST(a_gpu_that_fails_names_the_operation_and_nothing_hangs)
{
    const sl_backend *b = getenv(CHILD) != NULL ? open_backend() : NULL;
    if (b != NULL) {
        break_gpu(b);
        return;
    }
    if (open_backend() == NULL) SKIP(gpu, NO_GPU);
    int status = run_child("", "a_gpu_that_fails_names_the_operation_and_nothing_hangs");
    CHECK_EQ(status, 0);
    if (status != 0) fprintf(stderr, "%s\n", output);
}
