/* Damaged checkpoints: every flipped bit, cut file, swapped or missing file is found before a byte is used, named, and
 * skipped. */
#include <unistd.h>

#include "checkpoint/manifest.h"
#include "core/rng.h"
#include "support/checkpoint_fixture.h"
#include "test.h"

/* Two checkpoints, 1 and 2, and the paths of the newer one's files. */
typedef struct pair {
    fixture f;
    char folder[4096];
    char files[2][4200];
} pair;

static bool make_pair(pair *p)
{
    static const char *const names[] = { "rank-0.bin", SL_MANIFEST_NAME };
    snprintf(p->folder, sizeof p->folder, "%s", test_memory_path());
    fixture_make(&p->f, 5);
    for (int i = 0; i < 2; i++) snprintf(p->files[i], sizeof p->files[i], "%s/step-2/%s", p->folder, names[i]);
    return fixture_save(&p->f, p->folder, 1) == SLUICE_OK && fixture_save(&p->f, p->folder, 2) == SLUICE_OK;
}

/* The damage of step 2 is found: loading reports it, takes step 1, and verify agrees. */
static void check_found(pair *p, const char *what)
{
    int64_t step;
    int warnings;
    FILE *sink = fopen("/dev/null", "w");
    sluice_status st = fixture_load(&p->f, p->folder, &step, &warnings);
    if (st != SLUICE_OK || step != 1 || warnings != 1)
        test_fail(__FILE__, __LINE__, "%s: status %d, step %d, %d warnings", what, (int)st, (int)step, warnings);
    CHECK_EQ(sluice_verify(p->folder, sink), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "step-2");
    fclose(sink);
}

TEST(every_flipped_bit_is_found)
{
    pair p;
    char what[128];
    sl_rng rng = sl_rng_stream(1, SL_RNG_DATA, 0, 0, 0);
    REQUIRE(make_pair(&p));
    for (int file = 0; file < 2; file++) {
        size_t bytes;
        char *data = read_bytes(p.files[file], &bytes);
        REQUIRE(data != NULL);
        for (uint64_t i = 0; i < 1000; i++) {
            uint64_t bit = i < 8 ? i : i < 16 ? 8 * bytes - 1 - (i - 8) : sl_rng_below(&rng, 2 * i, 8 * bytes);
            data[bit / 8] = (char)(data[bit / 8] ^ (1 << bit % 8));
            write_bytes(p.files[file], data, bytes);
            snprintf(what, sizeof what, "file %d, bit %llu", file, (unsigned long long)bit);
            check_found(&p, what);
            data[bit / 8] = (char)(data[bit / 8] ^ (1 << bit % 8));
        }
        write_bytes(p.files[file], data, bytes);
        free(data);
    }
    int64_t step;
    int warnings;
    REQUIRE_OK(fixture_load(&p.f, p.folder, &step, &warnings)); /* and undone, it loads again */
    CHECK_EQ(step, 2);
    fixture_free(&p.f);
}

TEST(every_cut_or_longer_file_is_found)
{
    pair p;
    char what[128];
    REQUIRE(make_pair(&p));
    for (int file = 0; file < 2; file++) {
        size_t bytes;
        char *data = read_bytes(p.files[file], &bytes);
        REQUIRE(data != NULL);
        for (size_t cut = 0; cut < bytes; cut += cut < 64 || cut + 64 > bytes ? 1 : 29) {
            write_bytes(p.files[file], data, cut);
            snprintf(what, sizeof what, "file %d, cut at %zu", file, cut);
            check_found(&p, what);
        }
        write_bytes(p.files[file], data, bytes + 1); /* the NUL that read_bytes added */
        check_found(&p, "one byte longer");
        write_bytes(p.files[file], data, bytes);
        free(data);
    }
    fixture_free(&p.f);
}

TEST(missing_and_swapped_files_are_found)
{
    pair p;
    char other[4200], saved[4200];
    REQUIRE(make_pair(&p));
    snprintf(saved, sizeof saved, "%s/saved", p.folder);
    for (int file = 0; file < 2; file++) {
        snprintf(other, sizeof other, "%s/step-1/%s", p.folder, file == 0 ? "rank-0.bin" : SL_MANIFEST_NAME);
        copy_file(p.files[file], saved);
        unlink(p.files[file]);
        check_found(&p, "missing file");
        copy_file(other, p.files[file]);
        check_found(&p, "file of another step");
        copy_file(saved, p.files[file]);
    }
    snprintf(other, sizeof other, "%s/step-1/rank-0.bin", p.folder);
    copy_file(other, p.files[0]);
    snprintf(other, sizeof other, "%s/step-1/manifest.json", p.folder);
    copy_file(other, p.files[1]);
    check_found(&p, "a whole checkpoint of another step");
    fixture_free(&p.f);
}

TEST(damage_is_named_by_file_offset_and_tensor)
{
    pair p;
    size_t bytes;
    REQUIRE(make_pair(&p));
    char *data = read_bytes(p.files[0], &bytes);
    data[3] ^= 1;
    write_bytes(p.files[0], data, bytes);
    FILE *sink = fopen("/dev/null", "w");
    CHECK_EQ(sluice_verify(p.folder, sink), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "step-2/rank-0.bin is damaged: bytes 0 to ");
    CHECK_CONTAINS(sluice_error(), "first tensor there: \"a\" (weight)");
    fclose(sink);
    free(data);
    fixture_free(&p.f);
}

/* Chunks are read side by side; whichever fault a thread finds first, the first in the file is named. */
TEST(of_several_damaged_chunks_the_first_is_named)
{
    enum { CHUNK = 4 << 20, ROWS = 100000 }; /* tensor b and its slot have 25.6 MB each: 13 chunks */
    char folder[4096], file[4200];
    fixture f;
    sl_pool *pool;
    size_t bytes;
    int64_t step;
    int warnings;
    snprintf(folder, sizeof folder, "%s", test_memory_path());
    snprintf(file, sizeof file, "%s/step-2/rank-0.bin", folder);
    fixture_make(&f, ROWS);
    REQUIRE_OK(sl_pool_create(5, &pool));
    REQUIRE_OK(fixture_save(&f, folder, 1));
    REQUIRE_OK(fixture_save(&f, folder, 2));
    char *data = read_bytes(file, &bytes);
    REQUIRE(data != NULL && bytes > 12 * (size_t)CHUNK);
    for (size_t chunk = 2; chunk < 12; chunk++) data[chunk * CHUNK + 77] ^= 1;
    write_bytes(file, data, bytes);
    for (int i = 0; i < 20; i++) {
        FILE *sink = fopen("/dev/null", "w");
        CHECK_EQ(sluice_verify(folder, sink), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), "is damaged: bytes 8388608 to 12582912 do not match");
        fclose(sink);
    }
    f.state.pool = pool;
    REQUIRE_OK(fixture_load(&f, folder, &step, &warnings));
    CHECK_EQ(step, 1);
    CHECK_EQ(warnings, 1);
    free(data);
    sl_pool_destroy(pool);
    fixture_free(&f);
}

TEST(nothing_is_written_before_everything_is_verified)
{
    pair p;
    size_t bytes;
    sl_checkpoint_meta meta;
    bool found;
    char step1[4200];
    REQUIRE(make_pair(&p));
    snprintf(step1, sizeof step1, "%s/step-1/rank-0.bin", p.folder);
    const char *damaged[] = { step1, p.files[0] };
    for (int i = 0; i < 2; i++) { /* the last byte: padding, far behind the first tensor */
        char *data = read_bytes(damaged[i], &bytes);
        data[bytes - 1] ^= 1;
        write_bytes(damaged[i], data, bytes);
        free(data);
    }
    p.f.writes = 0;
    CHECK_EQ(sl_state_load(&p.f.state, p.folder, NULL, false, NULL, &meta, &found), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "none of 2 checkpoints can be loaded; the newest: ");
    CHECK_EQ(p.f.writes, 0);
    fixture_free(&p.f);
}

/* A manifest that was changed and given a fitting checksum: it is whole, but its claims are still checked. */
static void forge(pair *p, const char *from, const char *to)
{
    size_t bytes;
    char *text = read_bytes(p->files[1], &bytes), *at = strstr(text, from);
    if (at == NULL) {
        test_fail(__FILE__, __LINE__, "\"%s\" is not in the manifest", from);
        return;
    }
    sl_text forged = { 0 };
    sl_text_add_bytes(&forged, text, (size_t)(at - text));
    sl_text_add(&forged, "%s", to);
    char *end = strstr(at, "\n \"xxh3\": \"") + 1;
    sl_text_add_bytes(&forged, at + strlen(from), (size_t)(end - at) - strlen(from));
    sl_manifest_seal(&forged);
    write_bytes(p->files[1], forged.data, forged.bytes);
    sl_text_free(&forged);
    free(text);
}

TEST(forged_manifests_are_refused)
{
    static const struct {
        const char *from, *to;
    } forgeries[] = {
        { "\"rank-0.bin\"", "\"../step-1/rank-0.bin\"" },
        { "\"rank-0.bin\"", "\"\"" },
        { "\"rank-0.bin\"", "\".hidden\"" },
        { "\"bytes\": 4096", "\"bytes\": 8192" },
        { "\"bytes\": 4096", "\"bytes\": 9223372036854775807" },
        { "\"bytes\": 4096", "\"bytes\": -1" },
        { "\"shape\": [2, 3]", "\"shape\": [2, -3]" },
        { "\"shape\": [2, 3]", "\"shape\": [4611686018427387904, 8]" },
        { "\"shape\": [2, 3]", "\"shape\": [2, 4]" },
        { "\"shape\": [2, 3]", "\"shape\": [1, 1, 1, 1, 1, 2, 3]" },
        { "\"dtype\": \"f32\"", "\"dtype\": \"f64\"" },
        { "\"kind\": \"weight\"", "\"kind\": \"\\u001b[31m\"" },
        { "\"sluice\": \"", "\"sluice\": \"\\n" },
        { "\"tensor\": 0, \"first\": 0, \"count\": 6", "\"tensor\": 0, \"first\": 0, \"count\": 5" },
        { "\"tensor\": 0, \"first\": 0, \"count\": 6", "\"tensor\": 0, \"first\": 0, \"count\": 9223372036854775807" },
        { "\"tensor\": 0, \"first\": 0", "\"tensor\": 0, \"first\": 1" },
        { "\"tensor\": 0", "\"tensor\": 7" },
        { "\"tensor\": 0", "\"tensor\": -1" },
        { "\"tensor\": 0", "\"tensor\": 1" },
        { "\"file\": 0", "\"file\": 1" },
        { "\"offset\": 64", "\"offset\": 65" },
        { "\"offset\": 64", "\"offset\": 0" },
        { "\"offset\": 64", "\"offset\": 4096" },
        { "\"offset\": 64", "\"offset\": 18446744073709551552" },
        { "\"step\": 2", "\"step\": 3" },
        { "\"step\": 2", "\"step\": \"2\"" },
        { "\"loss_scale\": \"3fb", "\"loss_scale\": \"xfb" },
        { "\"seed\": \"18446744073709551610\"", "\"seed\": \"18446744073709551616\"" },
        { "\"kernels\": \"", "\"kernels\": \"0123456789012345678901234567890123456789012345678901234567890123456789" },
        { "\"files\": [", "\"files\": {}, \"f\": [" },
        { "\"format\": 1", "\"format\": \"1\"" },
        { "\"meta\": {", "\"meta\": 1, \"x\": {" },
        { "\"ranks\": 1", "\"ranks\": 1, \"ranks\": 1" },
    };
    pair p;
    char saved[4200];
    REQUIRE(make_pair(&p));
    snprintf(saved, sizeof saved, "%s/saved", p.folder);
    copy_file(p.files[1], saved);
    forge(&p, "\"ranks\": 1", "\"ranks\": 2"); /* the forger's craft: a harmless change is accepted */
    int64_t step;
    int warnings;
    REQUIRE_OK(fixture_load(&p.f, p.folder, &step, &warnings));
    CHECK_EQ(step, 2);
    for (size_t i = 0; i < sizeof forgeries / sizeof forgeries[0]; i++) {
        copy_file(saved, p.files[1]);
        forge(&p, forgeries[i].from, forgeries[i].to);
        check_found(&p, forgeries[i].to);
    }
    fixture_free(&p.f);
}

TEST(a_manifest_of_before_a_field_was_kept_is_whole)
{
    pair p;
    sl_checkpoint_meta meta;
    bool found = false;
    REQUIRE(make_pair(&p));
    forge(&p, ", \"micro_batch\": 16", "");
    forge(&p, ", \"optimizer\": \"adamw\"", "");
    REQUIRE_OK(sl_state_load(&p.f.state, p.folder, NULL, false, NULL, &meta, &found));
    CHECK(found && meta.step == 2 && meta.micro_batch == 0 && meta.optimizer[0] == '\0');
    CHECK_EQ(meta.global_micro_batches, 4);
    fixture_free(&p.f);
}

/* ---- whole, but not ours ---- */

static void check_refused(pair *p, const char *model, const char *message)
{
    sl_checkpoint_meta meta;
    bool found;
    sl_identity identity = *fixture_identity();
    p->f.writes = 0;
    if (model != NULL) {
        snprintf(identity.model_sha256, sizeof identity.model_sha256, "%s", model);
        snprintf(identity.old_model_sha256, sizeof identity.old_model_sha256, "%s", model);
    }
    CHECK_EQ(sl_state_load(&p->f.state, p->folder, model != NULL ? &identity : NULL, false, NULL, &meta, &found),
             SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), message);
    CHECK_CONTAINS(sluice_error(), "step-2");
    CHECK_EQ(p->f.writes, 0);
}

TEST(checkpoints_of_another_model_are_refused_by_tensor)
{
    pair p;
    REQUIRE(make_pair(&p));
    check_refused(&p, "another",
                  "is of another model: its description has SHA-256 aaaabbbbcccc..., this run's another");
    p.f.state.count--;
    check_refused(&p, NULL, "tensor \"c\" (exp_avg) [] is in the checkpoint but not in this run");
    p.f.state.count++;
    p.f.tensors[4].kind = "momentum";
    check_refused(&p, NULL, "tensor \"a\" (exp_avg) [2, 3] is in the checkpoint but not in this run");
    p.f.tensors[4].kind = "exp_avg";
    p.f.tensors[1].name = "bb";
    check_refused(&p, NULL, "tensor \"b\" (weight) [5, 64] is in the checkpoint but not in this run");
    p.f.tensors[1].name = "aa";
    check_refused(&p, NULL, "tensor \"aa\" (weight) [5, 64] is missing in the checkpoint");
    p.f.tensors[1].name = "b";
    p.f.tensors[0].shape.dim[0] = 3;
    p.f.tensors[0].shape.dim[1] = 2;
    check_refused(&p, NULL, "tensor \"a\" (weight) [3, 2] has the shape [2, 3] in the checkpoint");
    fixture_free(&p.f);
}

TEST(a_newer_format_is_refused_naming_both_versions)
{
    pair p;
    REQUIRE(make_pair(&p));
    forge(&p, "\"format\": 1", "\"format\": 2");
    check_refused(&p, NULL, "checkpoint format 2, written by sluice ");
    CHECK_CONTAINS(sluice_error(), "which reads format 1");
    fixture_free(&p.f);
}

TEST(weights_load_alone_and_past_damaged_state)
{
    pair p;
    size_t bytes;
    sl_checkpoint_meta meta;
    bool found;
    char one[4200];
    snprintf(p.folder, sizeof p.folder, "%s", test_memory_path());
    fixture_make(&p.f, 40000); /* weights end in the third chunk, state begins there */
    REQUIRE_OK(fixture_save(&p.f, p.folder, 2));
    snprintf(one, sizeof one, "%s/step-2/rank-0.bin", p.folder);
    char *data = read_bytes(one, &bytes);
    data[bytes - 1] ^= 1;
    write_bytes(one, data, bytes);
    free(data);
    memset(p.f.values[1], 0, p.f.tensors[1].elements * sizeof(float));
    float momentum = p.f.values[5][3];
    p.f.values[5][3] = -1.0f;
    REQUIRE_OK(sl_state_load(&p.f.state, p.folder, NULL, true, NULL, &meta, &found));
    CHECK(found && p.f.values[5][3] == -1.0f);
    p.f.values[5][3] = momentum;
    CHECK_EQ(fixture_step(&p.f), 2);
    snprintf(one, sizeof one, "%s/step-2", p.folder);
    REQUIRE_OK(sl_state_load(&p.f.state, one, NULL, true, NULL, &meta, &found)); /* one step's own folder */
    CHECK_EQ(meta.step, 2);
    CHECK_EQ(sl_state_load(&p.f.state, one, NULL, false, NULL, &meta, &found), SLUICE_ERR_INPUT);
    fixture_free(&p.f);
}
