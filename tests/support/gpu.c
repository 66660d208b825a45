/* gpu.c: see gpu.h. */
#include "support/gpu.h"

#include <jansson.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cuda_plugin.h"
#include "support/run.h"
#include "test.h"

/* ---- processes of their own ---- */

static int wait_for(pid_t child)
{
    int status = -1;
    if (child > 0) waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int has_gpu(void)
{
    fflush(NULL);
    pid_t child = fork();
    if (child != 0) return wait_for(child) == 0;
    const sl_cuda_plugin *plugin;
    int count = 0;
    bool usable = sl_cuda_open_plugin(&plugin) == SLUICE_OK && plugin->count(&count) == SLUICE_OK && count > 0;
    _exit(usable ? 0 : 1);
}

const char *gpu_device(void)
{
    static int known; /* 1: no, 2: yes */
    const char *wanted = getenv("SLUICE_TEST_DEVICE");
    if (wanted != NULL && strcmp(wanted, "cpu") == 0) return "cpu";
    setenv("CUDA_VISIBLE_DEVICES", "0", 0); /* ranks share one, whatever the machine has */
    if (known == 0) known = has_gpu() ? 2 : 1;
    return known == 2 ? "cuda" : NULL;
}

void gpu_in_child(void (*body)(void *user), void *user)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        test_failures = 0;
        body(user);
        fflush(NULL);
        _exit(test_failures > 0);
    }
    int status = wait_for(child);
    CHECK_THAT(status == 0, "the process of its own ended with status %d", status);
}

/* ---- memory that somebody else holds ---- */

static sluice_status take_memory(uint64_t left)
{
    const sl_cuda_plugin *plugin;
    sl_cuda_facts facts;
    sl_device *d;
    sl_device_options options = { .threads = 1 };
    SL_TRY(sl_cuda_open_plugin(&plugin));
    SL_TRY(plugin->backend->open(&options, &d));
    SL_TRY(plugin->facts(0, &facts));
    if (facts.free_bytes <= left) return sl_fail(SLUICE_ERR_NO_MEMORY, "the GPU is full already");
    return plugin->backend->reserve(d, SL_TIER_DEVICE, facts.free_bytes - left);
}

int gpu_hog_start(gpu_hog *h, uint64_t left)
{
    int ready[2], hold[2];
    char ok = 0;
    if (pipe(ready) != 0 || pipe(hold) != 0) return 0;
    fflush(NULL);
    h->pid = fork();
    if (h->pid == 0) {
        close(hold[1]);
        close(ready[0]);
        ok = take_memory(left) == SLUICE_OK;
        if (!ok) fprintf(stderr, "%s\n", sluice_error());
        if (write(ready[1], &ok, 1) != 1) _exit(1);
        _exit(read(hold[0], &ok, 1) != 0); /* until the other end is closed */
    }
    close(hold[0]);
    close(ready[1]);
    h->hold = hold[1];
    if (read(ready[0], &ok, 1) != 1) ok = 0;
    close(ready[0]);
    if (!ok) gpu_hog_end(h);
    return ok;
}

void gpu_hog_end(gpu_hog *h)
{
    close(h->hold);
    wait_for(h->pid);
}

/* ---- the program ---- */

static const char gpt[] =
    "{\"model\": {\"type\": \"gpt2\", \"layers\": 4, \"heads\": 2, \"width\": 128, \"context\": 64,\n"
    "  \"vocabulary\": \"bytes\"},\n"
    " \"data\": {\"type\": \"text\", \"path\": \"text\", \"validation\": 0},\n"
    " \"steps\": 12, \"seed\": 3, \"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 2,\n"
    " \"gradient_clipping\": 1.0, \"timeout_seconds\": 120,\n"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, \"weight_decay\": 0.1}}}\n";

static void write_inputs(const char *folder)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/gpt.json", folder);
    if (access(path, R_OK) == 0) return;
    run_write(folder, "gpt.json", gpt);
    snprintf(path, sizeof path, "%s/text", folder);
    FILE *f = fopen(path, "w");
    if (f == NULL) exit(99);
    for (int i = 0; i < 4000; i++) fprintf(f, "line %d: the %d of %d\n", i, i * i % 97, i % 13);
    fclose(f);
}

static void read_peak(const json_t *event, uint64_t out[2])
{
    const json_t *peak = json_object_get(event, "peak_bytes");
    out[0] = (uint64_t)json_integer_value(json_object_get(peak, "device"));
    out[1] = (uint64_t)json_integer_value(json_object_get(peak, "host"));
}

static void read_step(gpu_run *r, const json_t *event)
{
    if (r->steps < GPU_MAX_STEPS) r->loss[r->steps] = json_number_value(json_object_get(event, "loss"));
    r->clipped += json_number_value(json_object_get(event, "grad_norm")) > 1;
    r->steps++;
}

static void read_event(gpu_run *r, const json_t *event)
{
    const char *kind = json_string_value(json_object_get(event, "event"));
    const char *weights = json_string_value(json_object_get(event, "weights_sha256"));
    const char *state = json_string_value(json_object_get(event, "state_sha256"));
    if (kind == NULL) return;
    if (strcmp(kind, "plan") == 0) read_peak(event, r->planned);
    if (strcmp(kind, "resumed") == 0) r->resumed = (uint64_t)json_integer_value(json_object_get(event, "step"));
    if (strcmp(kind, "step") == 0) read_step(r, event);
    if (strcmp(kind, "end") != 0 || weights == NULL || state == NULL) return;
    read_peak(event, r->peak);
    snprintf(r->weights, sizeof r->weights, "%s", weights);
    snprintf(r->state, sizeof r->state, "%s", state);
}

void gpu_train(gpu_run *out, const char *folder, const char *device, const char *arguments)
{
    char command[8192];
    write_inputs(folder);
    snprintf(command, sizeof command, "train gpt.json --json --set device=%s %s", device, arguments);
    run_result r = run_sluice(folder, command);
    *out = (gpu_run){ .status = r.status };
    snprintf(out->error, sizeof out->error, "%s", r.error);
    for (char *save, *line = strtok_r(r.out, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        json_t *event = json_loads(line, 0, NULL);
        read_event(out, event);
        json_decref(event);
    }
    run_free(&r);
}

void gpu_train_well(gpu_run *out, const char *folder, const char *device, const char *arguments)
{
    gpu_train(out, folder, device, arguments);
    if (out->status != 0)
        test_fail(__FILE__, __LINE__, "on %s, %s: status %d: %s", device, arguments, out->status, out->error);
    CHECK_EQ(strlen(out->weights), 64);
    if (out->steps == 0) return; /* nothing was touched but what was loaded */
    CHECK_EQ(out->peak[0], out->planned[0]);
    CHECK_EQ(out->peak[1], out->planned[1]);
}
