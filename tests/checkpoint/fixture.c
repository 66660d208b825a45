#include "fixture.h"

#include <unistd.h>

#include "test.h"

static float value_at(int tensor, uint64_t element, uint64_t step)
{
    return (float)((int)step * 1000 + tensor * 100) + (float)(element % 97) / 128.0f;
}

static sluice_status read_values(void *user, int64_t tensor, uint64_t first, uint64_t count, float *out)
{
    fixture *f = user;
    memcpy(out, f->values[tensor] + first, count * sizeof *out);
    return SLUICE_OK;
}

static sluice_status write_values(void *user, int64_t tensor, uint64_t first, uint64_t count, const float *data)
{
    fixture *f = user;
    f->writes++;
    memcpy(f->values[tensor] + first, data, count * sizeof *data);
    return SLUICE_OK;
}

void fixture_make(fixture *f, int64_t rows)
{
    const sl_shape a = { 2, { 2, 3 } }, b = { 2, { rows, 64 } }, c = { 0, { 0 } }, d = { 1, { 0 } };
    const sl_state_tensor tensors[FIXTURE_TENSORS] = {
        { "a", SL_KIND_WEIGHT, a, 6 }, { "b", SL_KIND_WEIGHT, b, (uint64_t)rows * 64 },
        { "c", SL_KIND_WEIGHT, c, 1 }, { "d", SL_KIND_WEIGHT, d, 0 },
        { "a", "exp_avg", a, 6 },      { "b", "exp_avg", b, (uint64_t)rows * 64 },
        { "c", "exp_avg", c, 1 },
    };
    memset(f, 0, sizeof *f);
    memcpy(f->tensors, tensors, sizeof tensors);
    for (int i = 0; i < FIXTURE_TENSORS; i++) f->values[i] = calloc(tensors[i].elements + 1, sizeof(float));
    f->state = (sl_state){ f->tensors, FIXTURE_TENSORS, read_values, write_values, f };
}

void fixture_free(fixture *f)
{
    for (int i = 0; i < FIXTURE_TENSORS; i++) free(f->values[i]);
}

void fixture_fill(fixture *f, uint64_t step)
{
    for (int i = 0; i < FIXTURE_TENSORS; i++)
        for (uint64_t e = 0; e < f->tensors[i].elements; e++) f->values[i][e] = value_at(i, e, step);
}

int64_t fixture_step(const fixture *f)
{
    int64_t step = (int64_t)(f->values[0][0] / 1000.0f);
    for (int i = 0; i < FIXTURE_TENSORS; i++)
        for (uint64_t e = 0; e < f->tensors[i].elements; e++)
            if (f->values[i][e] != value_at(i, e, (uint64_t)step)) return -1;
    return step;
}

sl_checkpoint_meta fixture_meta(uint64_t step)
{
    sl_checkpoint_meta meta = {
        .step = step, .applied_steps = step - step / 4, .seed = UINT64_MAX - 5, .data_position = 3 * step
    };
    meta.loss_scale = 0.1;
    meta.schedule = (sl_schedule_state){ INFINITY, -0.0, 3, 4 };
    strcpy(meta.model_sha256, "aaaabbbbccccddddeeeeffff0000111122223333444455556666777788889999");
    strcpy(meta.kernels, "scalar \"1\"");
    return meta;
}

sluice_status fixture_save(fixture *f, const char *folder, uint64_t step)
{
    char path[4096];
    sl_checkpoint_meta meta = fixture_meta(step);
    fixture_fill(f, step);
    return sl_state_save(&f->state, &meta, folder, 2, path);
}

static void count_warning(void *user, sluice_log_level level, const char *line)
{
    (void)line;
    *(int *)user += level == SLUICE_LOG_WARNING;
}

sluice_status fixture_load(fixture *f, const char *folder, int64_t *step, int *warnings)
{
    sl_checkpoint_meta meta;
    bool found;
    *warnings = 0;
    *step = -1;
    sl_log log = { count_warning, warnings, 0, 1 };
    for (int i = 0; i < FIXTURE_TENSORS; i++) memset(f->values[i], 0, f->tensors[i].elements * sizeof(float));
    f->writes = 0;
    SL_TRY(sl_state_load(&f->state, folder, fixture_meta(1).model_sha256, false, &log, &meta, &found));
    if (found && (int64_t)meta.step == fixture_step(f)) *step = (int64_t)meta.step;
    return SLUICE_OK;
}

static char memory_root[64];

static void remove_memory_root(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", memory_root);
    if (system(command) != 0) fprintf(stderr, "could not remove %s\n", memory_root);
}

const char *memory_folder(void)
{
    static char path[4096];
    static int count;
    if (memory_root[0] == '\0') {
        char root[] = "/dev/shm/sluice-test-XXXXXX";
        if (mkdtemp(root) == NULL) return test_tmpdir();
        strcpy(memory_root, root);
        atexit(remove_memory_root);
    }
    snprintf(path, sizeof path, "%s/%d", memory_root, ++count);
    return path;
}

char *read_bytes(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) return NULL;
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*bytes + 1);
    if (data == NULL || fread(data, 1, *bytes, f) != *bytes) exit(99);
    data[*bytes] = '\0';
    fclose(f);
    return data;
}

void write_bytes(const char *path, const char *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) exit(99);
}

void copy_file(const char *from, const char *to)
{
    size_t bytes;
    char *data = read_bytes(from, &bytes);
    if (data == NULL) exit(99);
    write_bytes(to, data, bytes);
    free(data);
}
