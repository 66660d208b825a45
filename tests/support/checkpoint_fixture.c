#include "support/checkpoint_fixture.h"

#include <signal.h>
#include <unistd.h>

#include "test.h"

static float value_at(int tensor, uint64_t element, uint64_t step)
{
    return (float)((int)step * 1000 + tensor * 100) + (float)(element % 97) / 128.0f;
}

static int64_t owned_count(void *user, int64_t tensor, int rank)
{
    return ((fixture *)user)->run_count[tensor][rank];
}

static sl_range owned(void *user, int64_t tensor, int rank, int64_t index)
{
    return ((fixture *)user)->runs[tensor][rank][index];
}

static bool owns(const fixture *f, int64_t tensor, uint64_t element)
{
    for (int64_t i = 0; i < f->run_count[tensor][f->state.rank]; i++) {
        sl_range r = f->runs[tensor][f->state.rank][i];
        if ((int64_t)element >= r.first && (int64_t)element < r.first + r.count) return true;
    }
    return false;
}

static bool wants(void *user, int64_t tensor, sl_range range)
{
    fixture *f = user;
    for (int64_t i = 0; i < f->run_count[tensor][f->state.rank] && !f->whole; i++)
        if (sl_range_common(range, f->runs[tensor][f->state.rank][i]).count > 0) return true;
    return f->whole;
}

/* Copies what this rank owns of [first, first+count) between its array and `data`, which begins with `first`. */
static void copy_owned(fixture *f, int64_t tensor, sl_range range, float *values, float *data, bool out)
{
    for (int64_t i = 0; i < f->run_count[tensor][f->state.rank]; i++) {
        sl_range r = sl_range_common(range, f->runs[tensor][f->state.rank][i]);
        float *here = values + r.first, *there = data + (r.first - range.first);
        memcpy(out ? there : here, out ? here : there, (size_t)r.count * sizeof(float));
    }
}

static sluice_status read_values(void *user, int64_t tensor, uint64_t first, uint64_t count, float *out)
{
    fixture *f = user;
    float *from = f->snapshot[0] != NULL ? f->snapshot[tensor] : f->values[tensor];
    copy_owned(f, tensor, (sl_range){ (int64_t)first, (int64_t)count }, from, out, true);
    return SLUICE_OK;
}

static sluice_status write_values(void *user, int64_t tensor, uint64_t first, uint64_t count, const float *data)
{
    fixture *f = user;
    f->writes++;
    if (f->whole) memcpy(f->values[tensor] + first, data, count * sizeof *data);
    if (!f->whole)
        copy_owned(f, tensor, (sl_range){ (int64_t)first, (int64_t)count }, f->values[tensor], (float *)data, false);
    return SLUICE_OK;
}

/* Shards of a flat run, at places that no alignment favours. */
static sl_shards cut_run(fixture_cut c, int64_t elements, int ranks, int64_t bounds[FIXTURE_RANKS + 1])
{
    sl_shards s = { .rank_count = ranks, .elements = elements, .block = 1, .bounds = bounds };
    if (c == CUT_BLOCKS) s.block = elements / (8 * ranks) + 1;
    if (c == CUT_BLOCKS) s.rounds = elements / (s.block * ranks);
    int64_t start = s.block * s.rounds * ranks, rest = elements - start;
    for (int r = 0; r <= ranks; r++) {
        bounds[r] = start + rest * r / ranks;
        if (c == CUT_LAST_OWNS_ALL) bounds[r] = r < ranks ? 0 : elements;
        if (c == CUT_UNEVEN) bounds[r] = rest * r * (r + 1) / (ranks * (ranks + 1));
    }
    return s;
}

static void deal(fixture *f, fixture_cut c, int ranks)
{
    int64_t bounds[FIXTURE_RANKS + 1], offsets[FIXTURE_TENSORS], elements = 0;
    for (int t = 0; t < FIXTURE_TENSORS; t++) {
        if (t == 4) elements = 0; /* the slots are cut as their parameters are: d, without one, is empty */
        offsets[t] = elements;
        elements += (int64_t)f->tensors[t].elements;
    }
    sl_shards s = cut_run(c, elements, ranks, bounds);
    for (int t = 0; t < FIXTURE_TENSORS; t++)
        for (int r = 0; r < ranks; r++)
            for (int64_t i = 0; i < sl_shard_range_count(&s, r); i++) {
                sl_range all = { offsets[t], (int64_t)f->tensors[t].elements };
                sl_range run = sl_range_common(all, sl_shard_range(&s, r, i));
                if (run.count == 0) continue;
                run.first -= offsets[t];
                if (f->run_count[t][r] == FIXTURE_RUNS) exit(99);
                f->runs[t][r][f->run_count[t][r]++] = run;
            }
}

#define TENSOR(name_, kind_, shape_, elements_)                                                                        \
    {                                                                                                                  \
        .name = name_, .kind = kind_, .shape = shape_, .elements = elements_                                           \
    }

void fixture_make_rank(fixture *f, int64_t rows, sluice_world *world, fixture_cut c, bool whole)
{
    const sl_shape a = { 2, { 2, 3 } }, b = { 2, { rows, 64 } }, s = { 0, { 0 } }, d = { 1, { 0 } };
    const sl_state_tensor tensors[FIXTURE_TENSORS] = {
        TENSOR("a", SL_KIND_WEIGHT, a, 6), TENSOR("b", SL_KIND_WEIGHT, b, (uint64_t)rows * 64),
        TENSOR("c", SL_KIND_WEIGHT, s, 1), TENSOR("d", SL_KIND_WEIGHT, d, 0),
        TENSOR("a", "exp_avg", a, 6),      TENSOR("b", "exp_avg", b, (uint64_t)rows * 64),
        TENSOR("c", "exp_avg", s, 1),
    };
    memset(f, 0, sizeof *f);
    memcpy(f->tensors, tensors, sizeof tensors);
    for (int i = 0; i < FIXTURE_TENSORS; i++) f->values[i] = calloc(tensors[i].elements + 1, sizeof(float));
    f->whole = whole;
    f->state = (sl_state){ .tensors = f->tensors, .count = FIXTURE_TENSORS };
    f->state.comm = world;
    f->state.rank = sluice_world_rank(world);
    f->state.rank_count = sluice_world_size(world);
    f->state.owned_count = owned_count;
    f->state.owned = owned;
    f->state.wants = wants;
    f->state.read = read_values;
    f->state.write = write_values;
    f->state.user = f;
    deal(f, c, f->state.rank_count);
}

void fixture_make(fixture *f, int64_t rows)
{
    fixture_make_rank(f, rows, NULL, CUT_EVEN, true);
}

void fixture_snapshot(fixture *f)
{
    for (int i = 0; i < FIXTURE_TENSORS; i++) {
        size_t bytes = (f->tensors[i].elements + 1) * sizeof(float);
        if (f->snapshot[i] == NULL) f->snapshot[i] = malloc(bytes);
        memcpy(f->snapshot[i], f->values[i], bytes);
    }
}

void fixture_free(fixture *f)
{
    for (int i = 0; i < FIXTURE_TENSORS; i++) {
        free(f->values[i]);
        free(f->snapshot[i]);
    }
}

void fixture_fill(fixture *f, uint64_t step)
{
    for (int i = 0; i < FIXTURE_TENSORS; i++)
        for (uint64_t e = 0; e < f->tensors[i].elements; e++)
            f->values[i][e] = f->whole || owns(f, i, e) ? value_at(i, e, step) : FIXTURE_UNKEPT;
}

int64_t fixture_step(const fixture *f)
{
    int64_t step = -1;
    for (int i = 0; i < FIXTURE_TENSORS; i++)
        for (uint64_t e = 0; e < f->tensors[i].elements; e++) {
            if (!f->whole && !owns(f, i, e)) continue;
            if (step < 0) step = (int64_t)(f->values[i][e] / 1000.0f);
            if (f->values[i][e] != value_at(i, e, (uint64_t)step)) return -1;
        }
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
    meta.micro_batch = 16;
    meta.global_micro_batches = 4;
    strcpy(meta.optimizer, "adamw");
    return meta;
}

const sl_identity *fixture_identity(void)
{
    static sl_identity identity;
    sl_checkpoint_meta meta = fixture_meta(1);
    memcpy(identity.model_sha256, meta.model_sha256, sizeof meta.model_sha256);
    memcpy(identity.old_model_sha256, meta.model_sha256, sizeof meta.model_sha256);
    return &identity;
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
    SL_TRY(sl_state_load(&f->state, folder, fixture_identity(), false, &log, &meta, &found));
    if (found && (int64_t)meta.step == fixture_step(f)) *step = (int64_t)meta.step;
    return SLUICE_OK;
}

int count_down(void *user, const char *call, const char *path)
{
    countdown *c = user;
    (void)path;
    c->calls++;
    if (c->calls != c->at && !(c->persistent && c->calls > c->at)) return 0;
    if (c->error == 0) raise(SIGKILL);
    if (c->calls == c->at) snprintf(c->failed, sizeof c->failed, "%s", call);
    return c->error;
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
