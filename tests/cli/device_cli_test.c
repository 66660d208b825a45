/* device_cli_test.c: the choice of a device that is not there, with or without a GPU in this machine: exit status and one
 * line that says why. */
#include <unistd.h>

#include "support/run.h"
#include "test.h"

#define OTHER SLUICE_BINARY_DIR "/plugins/other"
#define NONE  SLUICE_BINARY_DIR "/plugins/none"

/* NULL: the variable is not set. */
static const struct {
    const char *device, *plugins, *arguments;
    int status;
    const char *part; /* of the message */
} rows[] = {
    { "gpu", NULL, "train c.json --quiet", 2, "SLUICE_DEVICE is \"gpu\"; give auto, cpu or cuda" },
    { "CUDA", NULL, "plan c.json", 2, "SLUICE_DEVICE is \"CUDA\"; give auto, cpu or cuda" },
    { "cuda:0", NULL, "train c.json --ranks 2", 2, "SLUICE_DEVICE is \"cuda:0\"" },
    { "nonsense", NULL, "train c.json --quiet --set device=cpu", 0, NULL },
    { "", NULL, "train c.json --quiet --set device=cpu", 0, NULL },
    { NULL, NULL, "train c.json --set device=gpu", 2, "device: \"gpu\" is not allowed" },
    { "cpu", OTHER, "train c.json --set device=cuda", 2, "belongs to another build of sluice (0.0.7, this is " },
    { "cuda", OTHER, "train c.json", 2, "belongs to another build of sluice (0.0.7, this is " },
    { "cuda", OTHER, "train c.json --ranks 2", 2, "belongs to another build of sluice (0.0.7, this is " },
    { "cuda", NONE, "train c.json", 2, "plugins/none/./libsluice_cuda.so is not a part of sluice" },
    /* what cannot be used is no reason to fail where anything will do */
    { "auto", OTHER, "train c.json --quiet", 0, NULL },
    { "auto", NONE, "train c.json --quiet", 0, NULL },
};

static void set_variable(const char *name, const char *value)
{
    if (value != NULL)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

/* Exactly one line, and it is the program's. */
static bool one_message(const char *error)
{
    const char *newline = strchr(error, '\n');
    return strncmp(error, "sluice: ", 8) == 0 && newline != NULL && newline[1] == '\0';
}

/* The environment of a test, as it was before. */
typedef struct variable {
    const char *name;
    char *value;
} variable;

static variable keep(const char *name)
{
    const char *value = getenv(name);
    return (variable){ name, value != NULL ? strdup(value) : NULL };
}

static void put_back(variable *v)
{
    set_variable(v->name, v->value);
    free(v->value);
}

TEST(a_device_that_cannot_be_had_ends_with_status_2_and_the_reason)
{
    variable device = keep("SLUICE_DEVICE"), plugins = keep("SLUICE_PLUGINS");
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write_config(folder, "c.json", "");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        set_variable("SLUICE_DEVICE", rows[i].device);
        set_variable("SLUICE_PLUGINS", rows[i].plugins);
        run_result r = run_sluice(folder, rows[i].arguments);
        bool right = r.status == rows[i].status &&
                     (rows[i].part == NULL || (one_message(r.error) && strstr(r.error, rows[i].part) != NULL));
        CHECK_THAT(right, "row %zu, sluice %s: status %d, expected %d with \"%s\"; said: %s", i, rows[i].arguments,
                   r.status, rows[i].status, rows[i].part != NULL ? rows[i].part : "", r.error);
        run_free(&r);
    }
    put_back(&device);
    put_back(&plugins);
}

/* A copy of the program has no plugin beside it. */
TEST(without_its_cuda_part_the_program_says_so_and_computes_on_the_cpu)
{
    variable plugins = keep("SLUICE_PLUGINS");
    char folder[4096], command[12288];
    static const char *const devices[] = { "cuda", "auto" };
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write_config(folder, "c.json", "");
    unsetenv("SLUICE_PLUGINS");
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command,
                 "--help >/dev/null; cp '%s/sluice' copy && SLUICE_DEVICE=%s ./copy train c.json --quiet >out 2>err",
                 SLUICE_BINARY_DIR, devices[i]);
        run_result r = run_sluice(folder, command);
        CHECK_EQ(r.status, i == 0 ? 2 : 0);
        if (i == 0) {
            CHECK(one_message(r.error));
            CHECK_CONTAINS(r.error, "the CUDA part of sluice is not here: libsluice_cuda.so: cannot open");
            CHECK_CONTAINS(r.error, "in SLUICE_PLUGINS");
        }
        run_free(&r);
    }
    put_back(&plugins);
}

/* As on a machine without a GPU, whatever this one has. */
TEST(device_cuda_without_a_gpu_ends_with_status_2_and_says_what_is_missing)
{
    variable visible = keep("CUDA_VISIBLE_DEVICES"), plugins = keep("SLUICE_PLUGINS");
    char folder[4096];
    bool plugin = access(SLUICE_BINARY_DIR "/libsluice_cuda.so", R_OK) == 0;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write_config(folder, "c.json", "");
    unsetenv("SLUICE_PLUGINS");
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    static const char *const arguments[] = { "train c.json --set device=cuda", "plan c.json --set device=cuda",
                                             "train c.json --set device=cuda --ranks 2" };
    for (int i = 0; i < 3; i++) {
        run_result r = run_sluice(folder, arguments[i]);
        CHECK_EQ(r.status, 2);
        CHECK(one_message(r.error));
        CHECK_CONTAINS(r.error, plugin ? "NVIDIA driver" : "the CUDA part of sluice is not here");
        run_free(&r);
    }
    put_back(&visible);
    put_back(&plugins);
}
