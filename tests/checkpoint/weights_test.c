/* Weights as safetensors, hashes by their definition, and what inspect and verify say. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

#include "checkpoint/kept_vocabulary.h"
#include "core/io.h"
#include "core/sha256.h"
#include "format/json.h"
#include "format/safetensors.h"
#include "format/weight_names.h"
#include "support/checkpoint_fixture.h"
#include "test.h"

static const char *in_tmp(const char *name)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", test_tmpdir(), name);
    return path;
}

TEST(weights_round_trip_through_safetensors)
{
    fixture f;
    const char *path = in_tmp("w.safetensors");
    sl_st_file *st;
    fixture_make(&f, 20000);
    fixture_fill(&f, 4);
    REQUIRE_OK(sl_state_weights_save(&f.state, path));
    REQUIRE_OK(sl_st_open(path, &st));
    CHECK_EQ(st->tensor_count, 4);
    CHECK_STR(st->metadata[0], "format");
    CHECK_EQ(sl_st_find(st, "b")->dim[0], 20000);
    sl_st_close(st);
    for (int i = 0; i < 4; i++) memset(f.values[i], 0, f.tensors[i].elements * sizeof(float));
    REQUIRE_OK(sl_state_weights_load(&f.state, path));
    CHECK_EQ(fixture_step(&f), 4);
    fixture_free(&f);
}

static void check_refused(fixture *f, const char *path, const char *message)
{
    f->writes = 0;
    CHECK_EQ(sl_state_weights_load(&f->state, path), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), message);
    CHECK_CONTAINS(sluice_error(), path);
    CHECK_EQ(f->writes, 0);
}

TEST(weights_of_another_model_are_refused_by_tensor)
{
    fixture f;
    const char *path = in_tmp("w.safetensors");
    fixture_make(&f, 3);
    REQUIRE_OK(sl_state_weights_save(&f.state, path));
    f.tensors[2].name = "cc";
    check_refused(
        &f, path,
        "does not fit this model: it lacks 1 tensor of the model: \"cc\"; it holds 1 tensor the model does not "
        "have: \"c\"");
    f.tensors[2].name = "c";
    f.tensors[2].kind = "exp_avg";
    check_refused(&f, path, "does not fit this model: it holds 1 tensor the model does not have: \"c\"");
    f.tensors[2].kind = SL_KIND_WEIGHT;
    f.tensors[0].shape.dim[1] = 4;
    check_refused(&f, path, "tensor \"a\" has the shape [2, 3], this model's has [2, 4]");
    f.tensors[0].shape.dim[1] = 3;
    sl_st_tensor integer = { .name = "a", .dtype = SL_ST_I32, .rank = 2, .dim = { 2, 3 } };
    sl_st_writer *w;
    REQUIRE_OK(sl_st_write_begin(path, &integer, 1, NULL, 0, &w));
    REQUIRE_OK(sl_st_write_data(w, (int32_t[6]){ 0 }, 24));
    REQUIRE_OK(sl_st_write_finish(w));
    for (int i = 1; i < 4; i++) f.tensors[i].is_adapter = true; /* the file need not have them */
    check_refused(&f, path, "tensor \"a\" has dtype I32");
    fixture_free(&f);
}

TEST(of_many_wrong_names_five_are_named_and_the_others_counted)
{
    static char names[12][8];
    fixture f;
    const char *path = in_tmp("w.safetensors");
    sl_st_tensor tensors[12];
    sl_st_writer *w;
    fixture_make(&f, 3);
    for (int i = 0; i < 12; i++) {
        snprintf(names[i], sizeof names[i], "x%02d", i);
        tensors[i] = (sl_st_tensor){ .name = names[i], .dtype = SL_ST_F32, .rank = 1, .dim = { 0 } };
    }
    REQUIRE_OK(sl_st_write_begin(path, tensors, 12, NULL, 0, &w));
    REQUIRE_OK(sl_st_write_finish(w));
    check_refused(&f, path, "it lacks 4 tensors of the model: \"a\", \"b\", \"c\", \"d\"; it holds 12 tensors");
    check_refused(&f, path, "\"x00\", \"x01\", \"x02\", \"x03\", \"x04\" and 7 more");
    fixture_free(&f);
}

/* Published files hold masks beside the parameters: a model names them, and no other stranger gets in. */
TEST(constants_that_a_model_names_are_passed_over)
{
    static const char *const buffers[] = { "h.*.mask", "c", NULL };
    static const sl_weight_names all = { buffers, NULL, NULL, NULL }, none = { &buffers[2], NULL, NULL, NULL };
    fixture f;
    const char *path = in_tmp("w.safetensors");
    fixture_make(&f, 3);
    fixture_fill(&f, 2);
    REQUIRE_OK(sl_state_weights_save(&f.state, path));
    f.tensors[2].kind = "exp_avg"; /* now "c" is in the file and not in the model */
    check_refused(&f, path, "it holds 1 tensor the model does not have: \"c\"");
    f.state.names = &all;
    REQUIRE_OK(sl_state_weights_load(&f.state, path));
    f.state.names = &none;
    check_refused(&f, path, "it holds 1 tensor the model does not have: \"c\"");
    fixture_free(&f);
}

/* A file with tensor "e", which a model takes for a copy of "b". */
static void write_copy(const fixture *f, const char *path, sl_st_dtype dtype, int64_t rows, const float *values)
{
    char other[4300];
    sl_st_file *from;
    sl_st_tensor tensors[5];
    sl_st_writer *w;
    float *whole = calloc(f->tensors[1].elements + 1, sizeof *whole);
    snprintf(other, sizeof other, "%s.plain", path);
    REQUIRE_OK(sl_state_weights_save(&f->state, other));
    REQUIRE_OK(sl_st_open(other, &from));
    for (int i = 0; i < 4; i++) tensors[i] = *from->by_name[i];
    tensors[4] = (sl_st_tensor){ .name = "e", .dtype = dtype, .rank = 2, .dim = { rows, 64 } };
    REQUIRE_OK(sl_st_write_begin(path, tensors, 5, NULL, 0, &w));
    for (int i = 0; i < 4; i++) {
        REQUIRE_OK(sl_st_read(from, from->by_name[i], 0, sl_st_elements(from->by_name[i]), whole));
        REQUIRE_OK(sl_st_write_data(w, whole, from->by_name[i]->bytes));
    }
    REQUIRE_OK(sl_st_write_data(w, values, (size_t)rows * 64 * sl_st_dtype_bytes(dtype)));
    REQUIRE_OK(sl_st_write_finish(w));
    sl_st_close(from);
    free(whole);
}

/* 20,000 rows are more than one chunk: the last element is looked at too. */
TEST(a_copy_of_a_parameter_is_taken_where_it_is_one_and_refused_where_it_is_not)
{
    static const sl_weight_copy copies[] = { { "e", "b", "do this" }, { NULL, NULL, NULL } };
    static const sl_weight_names names = { NULL, copies, NULL, NULL };
    fixture f;
    const char *path = in_tmp("copy.safetensors");
    fixture_make(&f, 20000);
    fixture_fill(&f, 4);
    f.state.names = &names;
    REQUIRE_OK(sl_state_weights_save(&f.state, path));
    REQUIRE_OK(sl_state_weights_load(&f.state, path)); /* a file need not hold the copy */
    float *head = malloc(f.tensors[1].elements * sizeof *head);
    memcpy(head, f.values[1], f.tensors[1].elements * sizeof *head);
    write_copy(&f, path, SL_ST_F32, 20000, head);
    for (int i = 0; i < 4; i++) memset(f.values[i], 0, f.tensors[i].elements * sizeof(float));
    REQUIRE_OK(sl_state_weights_load(&f.state, path));
    CHECK_EQ(fixture_step(&f), 4);
    head[f.tensors[1].elements - 1] += 1;
    write_copy(&f, path, SL_ST_F32, 20000, head);
    check_refused(&f, path, "tensor \"e\" differs from \"b\", which serves as the head of this model: do this");
    write_copy(&f, path, SL_ST_F32, 19999, head);
    check_refused(&f, path, "tensor \"e\" has the shape [19999, 64], this model's has [20000, 64]");
    write_copy(&f, path, SL_ST_I32, 20000, head);
    check_refused(&f, path, "tensor \"e\" has dtype I32");
    f.state.names = NULL;
    check_refused(&f, path, "it holds 1 tensor the model does not have: \"e\"");
    free(head);
    fixture_free(&f);
}

/* Exact rule 10 written out: SHA-256(name NUL SHA-256(values) ...). */
TEST(hashes_follow_their_definition)
{
    fixture f;
    sl_sha256 h, inner;
    uint8_t digest[32];
    char weights[65], state[65], expected[65];
    double scale = 0.5;
    static const int state_order[] = { 5, 4,
                                       6 }; /* "a.b.exp_avg" comes before "a.exp_avg": names are compared as a whole */
    fixture_make(&f, 20000);
    fixture_fill(&f, 3);
    f.tensors[1].name = f.tensors[5].name = "a.b";
    REQUIRE_OK(sl_state_sha256(&f.state, scale, weights, state));
    sl_sha256_init(&h);
    for (int i = 0; i < 4; i++) {
        sl_sha256_init(&inner);
        sl_sha256_update(&inner, f.values[i], f.tensors[i].elements * sizeof(float));
        sl_sha256_final(&inner, digest);
        sl_sha256_update(&h, f.tensors[i].name, strlen(f.tensors[i].name) + 1);
        sl_sha256_update(&h, digest, 32);
    }
    sl_sha256_final(&h, digest);
    sl_sha256_hex(digest, expected);
    CHECK_STR(weights, expected);
    sl_sha256_init(&h);
    for (int k = 0; k < 4; k++) {
        char name[64] = "loss_scale";
        sl_sha256_init(&inner);
        if (k < 3) {
            int i = state_order[k];
            snprintf(name, sizeof name, "%s.exp_avg", f.tensors[i].name);
            sl_sha256_update(&inner, f.values[i], f.tensors[i].elements * sizeof(float));
        } else {
            sl_sha256_update(&inner, &scale, sizeof scale);
        }
        sl_sha256_final(&inner, digest);
        sl_sha256_update(&h, name, strlen(name) + 1);
        sl_sha256_update(&h, digest, 32);
    }
    sl_sha256_final(&h, digest);
    sl_sha256_hex(digest, expected);
    CHECK_STR(state, expected);
    fixture_free(&f);
}

/* What a function prints; `path` may be refused. */
static char printed[65536];
static sluice_status capture(sluice_status (*fn)(const char *path, FILE *out), const char *path)
{
    FILE *out = fmemopen(printed, sizeof printed, "w");
    sluice_status st = fn(path, out);
    fclose(out);
    return st;
}

static sluice_status inspect_text(const char *path, FILE *out)
{
    return sluice_inspect(path, false, out);
}

static sluice_status inspect_json(const char *path, FILE *out)
{
    return sluice_inspect(path, true, out);
}

static json_t *inspected(const char *path)
{
    json_t *root = NULL;
    if (capture(inspect_json, path) != SLUICE_OK) return NULL;
    if (sl_json_parse(printed, strlen(printed), "inspect", SLUICE_ERR_FAILED, &root) != SLUICE_OK) return NULL;
    return root;
}

TEST(inspect_tells_what_is_in_files_checkpoints_and_folders)
{
    fixture f;
    char folder[4096], path[4200];
    json_t *root;
    fixture_make(&f, 3);
    snprintf(folder, sizeof folder, "%.4000s/run", test_tmpdir());
    REQUIRE_OK(fixture_save(&f, folder, 1));
    REQUIRE_OK(fixture_save(&f, folder, 2));
    snprintf(path, sizeof path, "%s/w.safetensors", folder);
    REQUIRE_OK(sl_state_weights_save(&f.state, path));

    REQUIRE_OK(capture(inspect_text, path));
    CHECK_CONTAINS(printed, "safetensors, 4 tensors, 199 elements");
    CHECK_CONTAINS(printed, "F32      \"b\" [3, 64]");
    REQUIRE((root = inspected(path)) != NULL);
    CHECK_STR(json_string_value(json_object_get(root, "type")), "safetensors");
    CHECK_EQ(json_array_size(json_object_get(root, "tensors")), 4);
    json_decref(root);

    snprintf(path, sizeof path, "%s/step-2", folder);
    REQUIRE_OK(capture(inspect_text, path));
    CHECK_CONTAINS(printed, "step 2 (2 applied), seed 18446744073709551610");
    REQUIRE((root = inspected(path)) != NULL);
    CHECK_EQ(json_integer_value(json_object_get(root, "step")), 2);
    CHECK_STR(json_string_value(json_object_get(root, "seed")), "18446744073709551610");
    CHECK_EQ(json_array_size(json_object_get(root, "tensors")), 7);
    json_decref(root);

    snprintf(path, sizeof path, "%s/step-1/manifest.json", folder);
    write_bytes(path, "{}", 2);
    REQUIRE_OK(capture(inspect_text, folder));
    CHECK_CONTAINS(printed, "step-2: step 2, ");
    CHECK_CONTAINS(printed, "step-1: damaged: ");
    REQUIRE((root = inspected(folder)) != NULL);
    json_t *list = json_object_get(root, "checkpoints");
    CHECK_EQ(json_array_size(list), 2);
    CHECK(json_is_null(json_object_get(json_array_get(list, 0), "fault")));
    CHECK(json_is_string(json_object_get(json_array_get(list, 1), "fault")));
    json_decref(root);
    CHECK_EQ(capture(inspect_text, in_tmp("missing")), SLUICE_ERR_INPUT);
    fixture_free(&f);
}

TEST(verify_reads_everything_and_counts_numbers_gone_bad)
{
    fixture f;
    char folder[4096], path[4200];
    fixture_make(&f, 3);
    snprintf(folder, sizeof folder, "%.4000s/run", test_tmpdir());
    CHECK_EQ(capture(sluice_verify, folder), SLUICE_ERR_INPUT);
    REQUIRE_OK(fixture_save(&f, folder, 1));
    REQUIRE_OK(fixture_save(&f, folder, 2));
    REQUIRE_OK(capture(sluice_verify, folder));
    CHECK_CONTAINS(printed, "step-1: ok: step 1, 7 tensors");
    CHECK_CONTAINS(printed, "step-2: ok: step 2, 7 tensors");
    snprintf(path, sizeof path, "%s/step-2", folder);
    REQUIRE_OK(capture(sluice_verify, path));
    snprintf(path, sizeof path, "%s/w.safetensors", folder);
    f.values[1][7] = NAN;
    f.values[1][9] = -INFINITY;
    REQUIRE_OK(sl_state_weights_save(&f.state, path));
    REQUIRE_OK(capture(sluice_verify, path));
    CHECK_CONTAINS(printed, "note: tensor \"b\" holds 2 NaN or infinite values");
    CHECK_CONTAINS(printed, "ok: 4 tensors");
    CHECK(truncate(path, 300) == 0);
    CHECK_EQ(capture(sluice_verify, path), SLUICE_ERR_INPUT);
    CHECK_EQ(capture(sluice_verify, test_tmpdir()), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "holds no checkpoint");
    fixture_free(&f);
}

/* ---- weights that files hold in parts ---- */

static const sl_part rows_of_b[] = { { "b.first", 5 }, { "b.second", 1 }, { "b.third", 14 } };

TEST(a_weight_in_parts_is_written_as_its_parts_and_read_back)
{
    fixture f;
    const char *path = in_tmp("parts.safetensors");
    sl_st_file *st;
    fixture_make(&f, 20);
    fixture_fill(&f, 4);
    f.tensors[1].parts = rows_of_b;
    f.tensors[1].part_count = 3;
    REQUIRE_OK(sl_state_weights_save(&f.state, path));
    REQUIRE_OK(sl_st_open(path, &st));
    CHECK_EQ(st->tensor_count, 6);
    CHECK(sl_st_find(st, "b") == NULL);
    const sl_st_tensor *third = sl_st_find(st, "b.third");
    REQUIRE(third != NULL && third->rank == 2);
    CHECK(third->dim[0] == 14 && third->dim[1] == 64);
    float value;
    REQUIRE_OK(sl_st_read_f32(st, third, 65, 1, &value));
    CHECK(value == f.values[1][6 * 64 + 65]);
    sl_st_close(st);
    for (int i = 0; i < 4; i++) memset(f.values[i], 0, f.tensors[i].elements * sizeof(float));
    REQUIRE_OK(sl_state_weights_load(&f.state, path));
    CHECK_EQ(fixture_step(&f), 4);
    f.tensors[1].part_count = 2;
    check_refused(&f, path, "it holds 1 tensor the model does not have: \"b.third\"");
    f.tensors[1].part_count = 0;
    check_refused(&f, path, "it lacks 1 tensor of the model: \"b\"");
    fixture_free(&f);
}

TEST(a_weight_in_parts_is_also_read_from_a_file_that_has_it_whole)
{
    fixture f;
    const char *path = in_tmp("whole.safetensors");
    fixture_make(&f, 20);
    fixture_fill(&f, 4);
    REQUIRE_OK(sl_state_weights_save(&f.state, path));
    f.tensors[1].parts = rows_of_b;
    f.tensors[1].part_count = 3;
    for (int i = 0; i < 4; i++) memset(f.values[i], 0, f.tensors[i].elements * sizeof(float));
    REQUIRE_OK(sl_state_weights_load(&f.state, path));
    CHECK_EQ(fixture_step(&f), 4);
    fixture_free(&f);
}

TEST(a_part_that_is_missing_or_of_another_shape_is_refused_by_name)
{
    static const sl_part other_rows[] = { { "b.first", 6 }, { "b.second", 1 }, { "b.third", 13 } };
    static const sl_part other_names[] = { { "b.first", 5 }, { "b.zeroth", 15 } };
    fixture f;
    const char *path = in_tmp("parts.safetensors");
    fixture_make(&f, 20);
    f.tensors[1].parts = rows_of_b;
    f.tensors[1].part_count = 3;
    REQUIRE_OK(sl_state_weights_save(&f.state, path));
    f.tensors[1].parts = other_rows;
    check_refused(&f, path, "tensor \"b.first\" has the shape [5, 64], this model's has [6, 64]");
    f.tensors[1].parts = other_names;
    f.tensors[1].part_count = 2;
    check_refused(&f, path, "it lacks 1 tensor of the model: \"b.zeroth\"");
    fixture_free(&f);
}

TEST(an_adapter_that_a_file_does_not_hold_stays_as_it_is)
{
    fixture f;
    const char *path = in_tmp("base.safetensors");
    fixture_make(&f, 3);
    fixture_fill(&f, 4);
    f.tensors[2].kind = "exp_avg"; /* "c" is not written */
    REQUIRE_OK(sl_state_weights_save(&f.state, path));
    f.tensors[2].kind = SL_KIND_WEIGHT;
    check_refused(&f, path, "it lacks 1 tensor of the model: \"c\"");
    f.tensors[2].is_adapter = true;
    for (int i = 0; i < 2; i++) memset(f.values[i], 0, f.tensors[i].elements * sizeof(float));
    REQUIRE_OK(sl_state_weights_load(&f.state, path));
    CHECK_EQ(fixture_step(&f), 4);
    fixture_free(&f);
}

/* ---- blocks, threads and ways ---- */

enum { LARGE_ROWS = 131072 }; /* 32 MiB of "b" */

/* A disk that takes 20 ms for each read, of which nothing is in the page cache, and whose nth read fails. */
typedef struct slow_disk {
    _Atomic int reads;
    int nth, error; /* 0: none fails */
} slow_disk;

static int slow_down(void *disk, const char *call, const char *path)
{
    slow_disk *d = disk;
    if (strcmp(call, "mincore") == 0) return ENOSYS;
    if (strcmp(call, "pread") != 0 || strstr(path, ".safetensors") == NULL) return 0;
    usleep(20000);
    return atomic_fetch_add(&d->reads, 1) + 1 == d->nth ? d->error : 0;
}

static sluice_status load_slowly(fixture *f, const char *path, slow_disk *d)
{
    for (int i = 0; i < 4; i++) memset(f->values[i], 0, f->tensors[i].elements * sizeof(float));
    sl_io_set_hook(slow_down, d);
    sluice_status st = sl_state_weights_load(&f->state, path);
    sl_io_set_hook(NULL, NULL);
    if (st == SLUICE_OK) CHECK_EQ(fixture_step(f), 4);
    return st;
}

/* An invalid transfer is an error but for reads past the cache, which go on without that: so it tells how a read was made. */
TEST(a_part_of_the_weights_is_read_through_the_page_cache_and_the_next_past_it)
{
    enum { IN_FIRST_PART = 5, IN_SECOND_PART = 13, TRIES = 5 };
    fixture f;
    const char *path = in_tmp("large.safetensors");
    fixture_make(&f, LARGE_ROWS);
    fixture_fill(&f, 4);
    REQUIRE_OK(sl_state_weights_save(&f.state, path));
    slow_disk first = { .nth = IN_FIRST_PART, .error = EINVAL };
    CHECK_EQ(load_slowly(&f, path, &first), SLUICE_ERR_IO);
    CHECK_CONTAINS(sluice_error(), "tensor \"b\"");
    int probe = open(path, O_RDONLY | O_DIRECT), tries = 0;
    sluice_status st = SLUICE_ERR_IO;
    for (; probe >= 0 && tries < TRIES && st != SLUICE_OK; tries++) { /* parts have no fixed number of reads */
        slow_disk second = { .nth = IN_SECOND_PART, .error = EINVAL };
        st = load_slowly(&f, path, &second);
        CHECK(second.reads >= IN_SECOND_PART);
    }
    CHECK(probe < 0 || st == SLUICE_OK);
    if (probe >= 0) close(probe);
    fixture_free(&f);
}

TEST(several_threads_load_what_one_loads_and_stop_where_one_fails)
{
    fixture f;
    const char *path = in_tmp("large.safetensors");
    slow_disk sound = { 0 }, broken = { .nth = 9, .error = EIO };
    fixture_make(&f, LARGE_ROWS);
    fixture_fill(&f, 4);
    REQUIRE_OK(sl_state_weights_save(&f.state, path));
    REQUIRE_OK(sl_pool_create(3, &f.state.pool));
    REQUIRE_OK(load_slowly(&f, path, &sound));
    CHECK_EQ(load_slowly(&f, path, &broken), SLUICE_ERR_IO);
    CHECK_CONTAINS(sluice_error(), "Input/output error");
    CHECK_CONTAINS(sluice_error(), "tensor \"b\", from byte");
    CHECK(broken.reads <= 9 + 3);
    sl_pool_destroy(f.state.pool);
    fixture_free(&f);
}

/* ---- asked to stop ---- */

TEST(a_stop_ends_loading_and_never_saving)
{
    int stop = 15;
    char folder[4096], path[4200];
    fixture f;
    snprintf(folder, sizeof folder, "%s", test_memory_path());
    snprintf(path, sizeof path, "%s-weights", folder);
    fixture_make(&f, 200);
    fixture_fill(&f, 1);
    f.state.stop = &stop;
    CHECK_EQ(sl_state_weights_save(&f.state, path), SLUICE_OK);
    CHECK_EQ(fixture_save(&f, folder, 1), SLUICE_OK);
    CHECK_EQ(sl_state_weights_load(&f.state, path), SLUICE_ERR_STOPPED);
    CHECK_CONTAINS(sluice_error(), "stopped by a signal while loading weights");
    sl_checkpoint_meta meta;
    bool found;
    sl_log log = { NULL, NULL, 0, 1 };
    CHECK_EQ(sl_state_load(&f.state, folder, NULL, false, &log, &meta, &found), SLUICE_ERR_STOPPED);
    CHECK_CONTAINS(sluice_error(), "stopped by a signal while loading a checkpoint");
    char weights[65], state[65];
    CHECK_EQ(sl_state_sha256(&f.state, 1, weights, state), SLUICE_ERR_STOPPED);
    CHECK_CONTAINS(sluice_error(), "stopped by a signal while hashing");
    stop = 0;
    CHECK_EQ(sl_state_sha256(&f.state, 1, weights, state), SLUICE_OK);
    CHECK_EQ(sl_state_weights_load(&f.state, path), SLUICE_OK);
    CHECK_EQ(sl_state_load(&f.state, folder, NULL, false, &log, &meta, &found), SLUICE_OK);
    fixture_free(&f);
}

/* ---- the vocabulary that is kept beside weights ---- */

TEST(a_vocabulary_is_kept_in_weights_files_and_another_one_is_refused)
{
    fixture f;
    sl_arena arena;
    sl_kept_vocabulary kept;
    const char *path = in_tmp("v.safetensors");
    fixture_make(&f, 3);
    fixture_fill(&f, 4);
    sl_arena_init(&arena, "test");
    REQUIRE_OK(sl_state_weights_save(&f.state, path));
    REQUIRE_OK(sl_weights_vocabulary(path, &arena, &kept));
    CHECK(kept.unit == NULL && kept.characters == NULL);
    f.state.vocabulary = (sl_kept_vocabulary){ "characters", "\n \"ab\xc3\xa9" };
    REQUIRE_OK(sl_state_weights_load(&f.state, path)); /* a file that keeps none says nothing against it */
    REQUIRE_OK(sl_state_weights_save(&f.state, path));
    REQUIRE_OK(sl_weights_vocabulary(path, &arena, &kept));
    CHECK_STR(kept.unit, "characters");
    CHECK_STR(kept.characters, "\n \"ab\xc3\xa9");
    REQUIRE_OK(sl_state_weights_load(&f.state, path));
    f.state.vocabulary.characters = "\n \"abc";
    check_refused(&f, path, "keeps another vocabulary");
    f.state.vocabulary = (sl_kept_vocabulary){ "bytes", NULL };
    check_refused(&f, path,
                  "keeps another vocabulary (\"characters\", 7 bytes of characters) than this run has (\"bytes\"");
    f.state.vocabulary = (sl_kept_vocabulary){ NULL, NULL };
    REQUIRE_OK(sl_state_weights_load(&f.state, path));
    sl_arena_free(&arena);
    fixture_free(&f);
}

TEST(a_vocabulary_is_kept_in_checkpoints_and_found_in_the_newest_that_can_be_read)
{
    fixture f;
    sl_arena arena;
    sl_kept_vocabulary kept = { NULL, NULL };
    char folder[4096], path[4200];
    bool found;
    int64_t step;
    int warnings;
    fixture_make(&f, 3);
    sl_arena_init(&arena, "test");
    snprintf(folder, sizeof folder, "%.4000s/run", test_tmpdir());
    REQUIRE_OK(sl_checkpoint_vocabulary(folder, &arena, &kept, &found));
    CHECK(!found);
    REQUIRE_OK(fixture_save(&f, folder, 1));
    REQUIRE_OK(sl_checkpoint_vocabulary(folder, &arena, &kept, &found));
    CHECK(found && kept.unit == NULL);
    f.state.vocabulary = (sl_kept_vocabulary){ "characters", "ab\"\\\xe2\x82\xac" };
    REQUIRE_OK(fixture_save(&f, folder, 2));
    REQUIRE_OK(fixture_save(&f, folder, 3));
    snprintf(path, sizeof path, "%s/step-3/manifest.json", folder);
    write_bytes(path, "{}", 2);
    REQUIRE_OK(sl_checkpoint_vocabulary(folder, &arena, &kept, &found));
    CHECK(found);
    CHECK_STR(kept.unit, "characters");
    CHECK_STR(kept.characters, "ab\"\\\xe2\x82\xac");
    snprintf(path, sizeof path, "%s/step-2", folder);
    REQUIRE_OK(sl_checkpoint_vocabulary(path, &arena, &kept, &found));
    CHECK(found);
    REQUIRE_OK(fixture_load(&f, folder, &step, &warnings));
    CHECK_EQ(step, 2);
    f.state.vocabulary.characters = "ab";
    CHECK_EQ(fixture_load(&f, folder, &step, &warnings), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "keeps another vocabulary");
    sl_arena_free(&arena);
    fixture_free(&f);
}
