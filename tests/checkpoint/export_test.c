/* Exports: the same bytes as a save of the weights, whole or in shards, and never from damaged data. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/half.h"
#include "format/json.h"
#include "format/safetensors.h"
#include "support/checkpoint_fixture.h"
#include "test.h"

typedef struct paths {
    char folder[4096], out[4200], expected[4200], index[4200];
} paths;

static void make_paths(paths *p)
{
    snprintf(p->folder, sizeof p->folder, "%s", test_memory_path());
    snprintf(p->out, sizeof p->out, "%s-model.safetensors", p->folder);
    snprintf(p->expected, sizeof p->expected, "%s-expected", p->folder);
    snprintf(p->index, sizeof p->index, "%s-model.safetensors.index.json", p->folder);
}

/* The weights of `step` as a save of one rank writes them. */
static sluice_status write_expected(const paths *p, int64_t rows, uint64_t step)
{
    fixture f;
    fixture_make(&f, rows);
    fixture_fill(&f, step);
    sluice_status st = sl_state_weights_save(&f.state, p->expected);
    fixture_free(&f);
    return st;
}

static bool same_bytes(const char *a, const char *b)
{
    size_t a_bytes, b_bytes;
    char *x = read_bytes(a, &a_bytes), *y = read_bytes(b, &b_bytes);
    bool same = x != NULL && y != NULL && a_bytes == b_bytes && memcmp(x, y, a_bytes) == 0;
    free(x);
    free(y);
    return same;
}

/* What the ranks save. */
typedef struct saving {
    const char *folder;
    int64_t rows;
    fixture_cut c;
} saving;

static sluice_status save_on_rank(void *user, sluice_world *world)
{
    saving *s = user;
    fixture f;
    fixture_make_rank(&f, s->rows, world, s->c, false);
    SL_TRY(fixture_save(&f, s->folder, 1));
    SL_TRY(fixture_save(&f, s->folder, 2));
    fixture_free(&f);
    return SLUICE_OK;
}

static sluice_status save_by(int ranks, fixture_cut c, const char *folder, int64_t rows)
{
    sluice_launch_options o;
    saving s = { folder, rows, c };
    sluice_launch_options_init(&o);
    o.ranks = ranks;
    o.timeout_seconds = 30;
    return sluice_launch(&o, save_on_rank, &s);
}

TEST(an_export_is_the_same_file_as_a_save_of_the_weights)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        paths p;
        char step[4200];
        make_paths(&p);
        REQUIRE_OK(save_by(ranks, (fixture_cut)(ranks % CUT_COUNT), p.folder, 20000));
        REQUIRE_OK(write_expected(&p, 20000, 2));
        REQUIRE_OK(sluice_export(p.folder, p.out, SLUICE_F32, 0, NULL));
        CHECK(same_bytes(p.out, p.expected));
        snprintf(step, sizeof step, "%s/step-1", p.folder);
        REQUIRE_OK(write_expected(&p, 20000, 1));
        REQUIRE_OK(sluice_export(step, p.out, SLUICE_F32, 0, NULL));
        CHECK(same_bytes(p.out, p.expected));
        unlink(p.out);
        unlink(p.expected);
    }
}

/* Whether tensor `name` is the same in the whole file and in the shard at `path`, which has at most `limit` bytes of
 * tensors, or one. */
static bool is_in_shard(sl_st_file *whole, const char *name, const char *path, uint64_t limit)
{
    sl_st_file *shard;
    uint64_t bytes = 0;
    if (sl_st_open(path, &shard) != SLUICE_OK) return false;
    const sl_st_tensor *a = sl_st_find(whole, name), *b = sl_st_find(shard, name);
    bool same = a != NULL && b != NULL && a->bytes == b->bytes;
    float *x = malloc(same ? 2 * a->bytes + 8 : 1), *y = x + (same ? a->bytes / 4 + 1 : 0);
    same = same && sl_st_read(whole, a, 0, sl_st_elements(a), x) == SLUICE_OK &&
           sl_st_read(shard, b, 0, sl_st_elements(b), y) == SLUICE_OK && memcmp(x, y, a->bytes) == 0;
    for (int64_t i = 0; i < shard->tensor_count; i++) bytes += shard->tensors[i].bytes;
    same = same && (bytes <= limit || shard->tensor_count == 1);
    free(x);
    sl_st_close(shard);
    return same;
}

TEST(more_chunks_are_exported_than_are_kept)
{
    paths p;
    fixture f;
    make_paths(&p);
    fixture_make(&f, 140000); /* b has 36 MB */
    REQUIRE_OK(fixture_save(&f, p.folder, 3));
    REQUIRE_OK(sl_state_weights_save(&f.state, p.expected));
    REQUIRE_OK(sluice_export(p.folder, p.out, SLUICE_F32, 0, NULL));
    CHECK(same_bytes(p.out, p.expected));
    fixture_free(&f);
    unlink(p.out);
    unlink(p.expected);
}

/* How many tensors of the file `expected` the index names where they are. */
static int64_t count_indexed(const paths *p, const char *expected, uint64_t limit)
{
    sl_st_file *whole;
    const char *name;
    json_t *root = NULL, *file;
    size_t bytes;
    int64_t found = 0;
    char *text = read_bytes(p->index, &bytes);
    if (text == NULL || sl_json_parse(text, bytes, "index", SLUICE_ERR_INPUT, &root) != SLUICE_OK) return -1;
    if (sl_st_open(expected, &whole) != SLUICE_OK) return -1;
    json_object_foreach(json_object_get(root, "weight_map"), name, file)
    {
        char path[4300];
        snprintf(path, sizeof path, "%.*s/%s", (int)(strrchr(p->folder, '/') - p->folder), p->folder,
                 json_string_value(file));
        found += is_in_shard(whole, name, path, limit);
    }
    sl_st_close(whole);
    json_decref(root);
    free(text);
    return found;
}

TEST(shards_add_up_to_the_whole_and_the_index_names_them)
{
    paths p;
    size_t bytes;
    char printed[4096];
    make_paths(&p);
    REQUIRE_OK(save_by(3, CUT_BLOCKS, p.folder, 5));
    REQUIRE_OK(write_expected(&p, 5, 2));
    FILE *out = fmemopen(printed, sizeof printed, "w");
    REQUIRE_OK(sluice_export(p.folder, p.out, SLUICE_F32, 20, out)); /* a: 24 bytes, b: 1280, c: 4, d: none */
    fclose(out);
    CHECK_CONTAINS(printed, "-model-00001-of-00003.safetensors: 1 tensor of step 2, ");
    CHECK_CONTAINS(printed, "-model.safetensors.index.json: index of 3 files");
    CHECK(access(p.out, F_OK) != 0);
    char *text = read_bytes(p.index, &bytes);
    REQUIRE(text != NULL);
    CHECK_CONTAINS(text, "{\n  \"metadata\": {\n    \"total_parameters\": 327,\n    \"total_size\": 1308\n  },\n  "
                         "\"weight_map\": {\n    \"a\": \"");
    CHECK_CONTAINS(text, "-00003-of-00003.safetensors\"\n  }\n}\n");
    CHECK_EQ(count_indexed(&p, p.expected, 20), 4);
    free(text);
    REQUIRE_OK(sluice_export(p.folder, p.out, SLUICE_F32, 1 << 20, NULL)); /* all fits in one: no index */
    CHECK(same_bytes(p.out, p.expected));
}

static void flip_bit(const char *folder, int step, int rank)
{
    char path[4200];
    size_t bytes;
    snprintf(path, sizeof path, "%s/step-%d/rank-%d.bin", folder, step, rank);
    char *data = read_bytes(path, &bytes);
    data[3] ^= 1;
    write_bytes(path, data, bytes);
    free(data);
}

TEST(damaged_checkpoints_are_not_exported)
{
    paths p;
    char step[4200], printed[4096];
    make_paths(&p);
    CHECK_EQ(sluice_export(p.folder, p.out, SLUICE_F32, 0, NULL), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "there is no such file or folder");
    REQUIRE_OK(save_by(2, CUT_EVEN, p.folder, 5));
    flip_bit(p.folder, 2, 1);
    REQUIRE_OK(write_expected(&p, 5, 1));
    FILE *out = fmemopen(printed, sizeof printed, "w");
    REQUIRE_OK(sluice_export(p.folder, p.out, SLUICE_F32, 0, out)); /* the older one */
    fclose(out);
    CHECK(same_bytes(p.out, p.expected));
    CHECK_CONTAINS(printed, "step-2: skipped: ");
    CHECK_CONTAINS(printed, "4 tensors of step 1");
    unlink(p.out);
    snprintf(step, sizeof step, "%s/step-2", p.folder);
    CHECK_EQ(sluice_export(step, p.out, SLUICE_F32, 0, NULL), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "rank-1.bin is damaged");
    flip_bit(p.folder, 1, 0);
    CHECK_EQ(sluice_export(p.folder, p.out, SLUICE_F32, 20, NULL), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "no checkpoint can be exported; the newest: ");
    CHECK(access(p.out, F_OK) != 0 && access(p.index, F_OK) != 0);
}

/* Step 1 is exported, then step 2, in which the nth call fails: what is there is one or the other, and whole. False: no
 * call failed. */
static bool check_failing_export(const paths *p, const char *expected[2], uint64_t shard_bytes, int n)
{
    countdown c = { .at = n, .error = EIO };
    char step[2][4200];
    for (int i = 0; i < 2; i++) {
        snprintf(step[i], sizeof step[i], "%s/step-%d", p->folder, i + 1);
        if (i == 1) sl_io_set_hook(count_down, &c);
        sluice_status st = sluice_export(step[i], p->out, SLUICE_F32, shard_bytes, NULL);
        sl_io_set_hook(NULL, NULL);
        CHECK(st == SLUICE_OK || (i == 1 && c.calls >= n));
    }
    bool indexed = access(p->index, F_OK) == 0, whole = access(p->out, F_OK) == 0;
    CHECK(indexed ? shard_bytes > 0 : shard_bytes == 0 || c.calls >= n);
    CHECK(!indexed || count_indexed(p, expected[0], 20) == 4 || count_indexed(p, expected[1], 20) == 4);
    CHECK(whole == (shard_bytes == 0));
    CHECK(!whole || same_bytes(p->out, expected[0]) || same_bytes(p->out, expected[1]));
    return c.calls >= n;
}

TEST(a_failing_disk_leaves_no_half_export)
{
    paths p;
    char first[4200];
    make_paths(&p);
    REQUIRE_OK(save_by(2, CUT_UNEVEN, p.folder, 5));
    REQUIRE_OK(write_expected(&p, 5, 1));
    snprintf(first, sizeof first, "%s-first", p.folder);
    CHECK(rename(p.expected, first) == 0);
    REQUIRE_OK(write_expected(&p, 5, 2));
    const char *expected[2] = { first, p.expected };
    for (int shards = 0; shards < 2; shards++) {
        int n = 1;
        while (check_failing_export(&p, expected, shards ? 20 : 0, n)) n++;
        CHECK(n > 15);
        unlink(p.out);
    }
}

TEST(an_export_can_be_rounded_to_16_bits)
{
    static const struct {
        sluice_dtype type;
        sl_st_dtype dtype;
    } rows[] = { { SLUICE_BF16, SL_ST_BF16 }, { SLUICE_F16, SL_ST_F16 } };
    paths p;
    make_paths(&p);
    fixture f;
    fixture_make(&f, 20);
    REQUIRE_OK(fixture_save(&f, p.folder, 1));
    REQUIRE_OK(sl_state_weights_save(&f.state, p.expected));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_st_file *exact, *rounded;
        REQUIRE_OK(sluice_export(p.folder, p.out, rows[i].type, 0, NULL));
        REQUIRE_OK(sl_st_open(p.expected, &exact));
        REQUIRE_OK(sl_st_open(p.out, &rounded));
        CHECK_EQ(rounded->tensor_count, exact->tensor_count);
        for (int64_t t = 0; t < rounded->tensor_count; t++) {
            const sl_st_tensor *a = exact->by_name[t], *b = rounded->by_name[t];
            CHECK_STR(b->name, a->name);
            CHECK_EQ(b->dtype, rows[i].dtype);
            CHECK_EQ(2 * b->bytes, a->bytes);
            for (int64_t k = 0; k < sl_st_elements(a); k++) {
                float x, y;
                REQUIRE_OK(sl_st_read_f32(exact, a, k, 1, &x));
                REQUIRE_OK(sl_st_read_f32(rounded, b, k, 1, &y));
                float want = rows[i].type == SLUICE_BF16 ? sl_bf16_to_float(sl_float_to_bf16(x))
                                                         : sl_f16_to_float(sl_float_to_f16(x));
                CHECK(sl_float_bits(y) == sl_float_bits(want));
            }
        }
        sl_st_close(exact);
        sl_st_close(rounded);
    }
    fixture_free(&f);
}

/* A manifest carries the parts: an export has nothing else to know them by. */
TEST(an_export_writes_a_weight_in_its_parts)
{
    static const sl_part parts[] = { { "b.one", 3 }, { "b.two", 17 } };
    paths p;
    fixture f;
    make_paths(&p);
    fixture_make(&f, 20);
    f.tensors[1].parts = parts;
    f.tensors[1].part_count = 2;
    REQUIRE_OK(fixture_save(&f, p.folder, 2));
    REQUIRE_OK(sl_state_weights_save(&f.state, p.expected));
    REQUIRE_OK(sluice_export(p.folder, p.out, SLUICE_F32, 0, NULL));
    CHECK(same_bytes(p.out, p.expected));
    REQUIRE_OK(sluice_export(p.folder, p.out, SLUICE_F32, 1, NULL));
    size_t bytes;
    char *index = read_bytes(p.index, &bytes);
    REQUIRE(index != NULL);
    CHECK_CONTAINS(index, "\"b.two\": ");
    CHECK(strstr(index, "\"b\": ") == NULL);
    free(index);
    fixture_free(&f);
}

/* ---- what is not written ---- */

TEST(an_export_replaces_neither_its_checkpoint_nor_what_is_no_file)
{
    paths p;
    char source[4400], target[4500];
    make_paths(&p);
    REQUIRE_OK(save_by(1, CUT_EVEN, p.folder, 40));
    static const char *const files[] = { "rank-0.bin", "manifest.json" };
    for (size_t i = 0; i < 2; i++) {
        snprintf(source, sizeof source, "%s/step-2/%s", p.folder, files[i]);
        snprintf(target, sizeof target, "%s/hard-%s", p.folder, files[i]);
        REQUIRE(link(source, target) == 0);
        CHECK_EQ(sluice_export(p.folder, source, SLUICE_F32, 0, NULL), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), "which only the run itself writes");
        CHECK_EQ(sluice_export(p.folder, target, SLUICE_F32, 0, NULL), SLUICE_ERR_USAGE);
    }
    snprintf(target, sizeof target, "%s/pipe", p.folder);
    REQUIRE(mkfifo(target, 0600) == 0);
    CHECK_EQ(sluice_export(p.folder, target, SLUICE_F32, 0, NULL), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "a named pipe");
    /* an index that is a link keeps it */
    snprintf(source, sizeof source, "%s.real", p.index);
    REQUIRE(symlink(source, p.index) == 0);
    REQUIRE_OK(sluice_export(p.folder, p.out, SLUICE_F32, 100, NULL));
    CHECK(access(source, F_OK) == 0);
    CHECK(readlink(p.index, target, sizeof target) > 0);
    snprintf(target, sizeof target, "%s/m", p.folder);
    CHECK_EQ(sluice_export("nowhere", target, SLUICE_F32, 0, NULL), SLUICE_ERR_INPUT);
    snprintf(target, sizeof target, "%s/none/m", p.folder);
    CHECK_EQ(sluice_export("nowhere", target, SLUICE_F32, 0, NULL), SLUICE_ERR_IO); /* before anything is read */
    FILE *sink = tmpfile();
    REQUIRE(sink != NULL);
    CHECK_EQ(sluice_verify(p.folder, sink), SLUICE_OK);
    fclose(sink);
}
