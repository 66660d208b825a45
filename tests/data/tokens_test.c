/* tokens_test.c: token files as a data set: formats, several files, masks, documents, sizes beyond memory. */
#include <fcntl.h>
#include <unistd.h>

#include "core/io.h"
#include "core/status.h"
#include "data/data.h"
#include "format/token_file.h"
#include "test.h"

enum { CONTEXT = 8, ROWS = 4, VOCABULARY = 1000, PATH_BYTES = 4400 };

static char folder[PATH_BYTES - 200];

static const char *path_of(const char *name)
{
    static char path[4][PATH_BYTES];
    static int next;
    char *out = path[next++ % 4];
    snprintf(out, PATH_BYTES, "%s/%s", folder, name);
    return out;
}

static void write_file(const char *name, const void *head, size_t head_bytes, const void *bytes, size_t count)
{
    FILE *f = fopen(path_of(name), "wb");
    if (f == NULL || fwrite(head, 1, head_bytes, f) != head_bytes || fwrite(bytes, 1, count, f) != count ||
        fclose(f) != 0)
        exit(99);
}

/* Bare uint16 tokens first, first + 1, ... modulo VOCABULARY: a token tells its place. */
static void write_ramp(const char *name, int first, int count)
{
    uint16_t *ids = malloc((size_t)count * sizeof *ids);
    if (ids == NULL) exit(99);
    for (int i = 0; i < count; i++) ids[i] = (uint16_t)((first + i) % VOCABULARY);
    write_file(name, "", 0, ids, (size_t)count * sizeof *ids);
    free(ids);
}

static void begin(void)
{
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
}

static sl_data_options options(const char *name)
{
    return (sl_data_options){ .type = "tokens",
                              .path = path_of(name),
                              .dtype = SL_TOKENS_U16,
                              .document_token = -1,
                              .shuffle = true,
                              .seed = 5 };
}

typedef struct batch {
    int32_t tokens[ROWS][CONTEXT], targets[ROWS][CONTEXT], positions[ROWS][CONTEXT];
    sl_data_field fields[3];
} batch;

static void make_fields(batch *b)
{
    b->fields[0] = (sl_data_field){ "tokens", SLUICE_I32, CONTEXT, b->tokens };
    b->fields[1] = (sl_data_field){ "targets", SLUICE_I32, CONTEXT, b->targets };
    b->fields[2] = (sl_data_field){ "positions", SLUICE_I32, CONTEXT, b->positions };
}

static void check_open_fails(const sl_data_options *o, sluice_status status, const char *says)
{
    sluice_data *d = NULL;
    CHECK_EQ(sl_data_tokens(o, CONTEXT, VOCABULARY, &d), status);
    CHECK_CONTAINS(sluice_error(), says);
    sluice_data_destroy(d);
}

/* ---- what a batch is ---- */

TEST(an_epoch_of_token_windows_sees_every_token_about_once)
{
    enum { TOKENS = 900 };
    int seen[TOKENS] = { 0 };
    batch b;
    sluice_data *d;
    begin();
    write_ramp("a.bin", 0, TOKENS);
    sl_data_options o = options("a.bin");
    REQUIRE_OK(sl_data_tokens(&o, CONTEXT, VOCABULARY, &d));
    make_fields(&b);
    int64_t windows = d->ops->samples(d, SL_SPLIT_TRAIN);
    CHECK_EQ(windows, TOKENS / CONTEXT - 1);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 0);
    for (int64_t i = 0; i < windows / ROWS; i++) {
        REQUIRE_OK(d->ops->fill(d, (uint64_t)i, ROWS, b.fields, 2));
        for (int r = 0; r < ROWS; r++)
            for (int k = 0; k < CONTEXT; k++) {
                seen[b.tokens[r][k]]++;
                CHECK_EQ(b.targets[r][k], b.tokens[r][k] + 1);
            }
    }
    for (int i = 0; i < TOKENS; i++) CHECK(seen[i] <= 1);
    CHECK(!sl_data_packs(d));
    sluice_data_destroy(d);
}

/* Filled with the same options from another path; true where all batches are the same. */
static bool same_batches(sluice_data *a, sluice_data *b)
{
    batch x, y;
    bool same = true;
    make_fields(&x);
    make_fields(&y);
    for (uint64_t i = 0; i < 60; i++) {
        CHECK_EQ(a->ops->fill(a, i, ROWS, x.fields, 2), SLUICE_OK);
        CHECK_EQ(b->ops->fill(b, i, ROWS, y.fields, 2), SLUICE_OK);
        same = same && memcmp(x.tokens, y.tokens, sizeof x.tokens) == 0;
        same = same && memcmp(x.targets, y.targets, sizeof x.targets) == 0;
    }
    return same;
}

/* The same tokens, bare, in llm.c's form, as arrays, and cut into three files. */
TEST(formats_and_cuts_of_the_files_change_neither_batches_nor_identity)
{
    enum { TOKENS = 700 };
    static const char *const names[] = { "llmc.bin", "llmc32.bin", "u2.npy", "u4.npy", "i4.npy", "part-*.bin" };
    static const struct {
        const char *name, *descr;
        int width;
    } arrays[] = { { "u2.npy", "<u2", 2 }, { "u4.npy", "<u4", 4 }, { "i4.npy", "<i4", 4 } };
    uint16_t narrow[TOKENS];
    uint32_t wide[TOKENS], header[256] = { 20240520, 1, TOKENS };
    char first[65], other[65], text[128], npy[138] = "\x93NUMPY\x01\x00";
    sluice_data *d, *e;
    begin();
    for (int i = 0; i < TOKENS; i++) wide[i] = narrow[i] = (uint16_t)(i * 31 % VOCABULARY);
    write_file("bare.bin", "", 0, narrow, sizeof narrow);
    write_file("llmc.bin", header, sizeof header, narrow, sizeof narrow);
    header[0] = 20240801;
    header[1] = 7;
    write_file("llmc32.bin", header, sizeof header, wide, sizeof wide);
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        int n = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }",
                         arrays[i].descr, TOKENS);
        memset(npy + 10, ' ', 128);
        memcpy(npy + 10, text, (size_t)n);
        npy[8] = (char)128;
        npy[137] = '\n';
        write_file(arrays[i].name, npy, sizeof npy, arrays[i].width == 2 ? (void *)narrow : (void *)wide,
                   (size_t)TOKENS * (size_t)arrays[i].width);
    }
    write_file("part-a.bin", "", 0, narrow, 3 * sizeof *narrow);
    write_file("part-b.bin", "", 0, narrow + 3, 300 * sizeof *narrow);
    write_file("part-c.bin", "", 0, narrow + 303, (TOKENS - 303) * sizeof *narrow);
    sl_data_options o = options("bare.bin");
    REQUIRE_OK(sl_data_tokens(&o, CONTEXT, VOCABULARY, &d));
    d->ops->identity(d, first);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        o = options(names[i]);
        if (strncmp(names[i], "part", 4) != 0) o.dtype = SL_TOKENS_UNKNOWN;
        REQUIRE_OK(sl_data_tokens(&o, CONTEXT, VOCABULARY, &e));
        e->ops->identity(e, other);
        CHECK_STR(other, first);
        CHECK_THAT(same_batches(d, e), "%s gives other batches", names[i]);
        sluice_data_destroy(e);
    }
    o = options("{part-c,part-[ab]}.bin"); /* in the order of names, however they are written */
    REQUIRE_OK(sl_data_tokens(&o, CONTEXT, VOCABULARY, &e));
    CHECK(same_batches(d, e));
    sluice_data_destroy(e);
    sluice_data_destroy(d);
}

TEST(more_token_files_than_may_be_open_at_once_are_one_sequence)
{
    enum { FILES = 150, EACH = 6 };
    char name[32];
    batch b;
    sluice_data *d;
    begin();
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "s%03d.bin", i);
        write_ramp(name, i * EACH, EACH);
    }
    sl_data_options o = options("s*.bin");
    REQUIRE_OK(sl_data_tokens(&o, CONTEXT, VOCABULARY, &d));
    make_fields(&b);
    for (uint64_t i = 0; i < 50; i++) {
        REQUIRE_OK(d->ops->fill(d, i, ROWS, b.fields, 2));
        for (int r = 0; r < ROWS; r++)
            for (int k = 0; k < CONTEXT; k++) {
                CHECK_EQ(b.tokens[r][k], b.tokens[r][0] + k);
                CHECK_EQ(b.targets[r][k], b.tokens[r][0] + k + 1);
            }
    }
    sluice_data_destroy(d);
}

/* ---- masks ---- */

TEST(a_mask_takes_targets_out_and_they_are_counted_before)
{
    enum { TOKENS = 500 };
    uint8_t mask[TOKENS];
    batch b;
    sluice_data *d;
    int64_t counted, valid;
    begin();
    write_ramp("a.bin", 0, TOKENS);
    for (int i = 0; i < TOKENS; i++) mask[i] = i % 7 < 3;
    write_file("a.mask", "", 0, mask, sizeof mask);
    sl_data_options o = options("a.bin");
    o.mask_path = path_of("a.mask");
    o.validation = 0.25;
    REQUIRE_OK(sl_data_tokens(&o, CONTEXT, VOCABULARY, &d));
    make_fields(&b);
    for (uint64_t i = 0; i < 40; i++) {
        REQUIRE_OK(d->ops->fill(d, i, ROWS, b.fields, 2));
        REQUIRE_OK(d->ops->targets(d, i, ROWS, &counted));
        int64_t found = 0;
        for (int r = 0; r < ROWS; r++)
            for (int k = 0; k < CONTEXT; k++) {
                int next = b.tokens[r][k] + 1;
                CHECK_EQ(b.targets[r][k], mask[next] ? next : -1);
                found += b.targets[r][k] >= 0;
            }
        CHECK_EQ(counted, found);
    }
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_VALIDATION, 0, ROWS, b.fields, 2, &valid));
    for (int k = 0; k < CONTEXT; k++) CHECK_EQ(b.targets[0][k], mask[b.tokens[0][k] + 1] ? b.tokens[0][k] + 1 : -1);
    sluice_data_destroy(d);
    o.mask_path = "";
    REQUIRE_OK(sl_data_tokens(&o, CONTEXT, VOCABULARY, &d));
    REQUIRE_OK(d->ops->targets(d, 3, ROWS, &counted));
    CHECK_EQ(counted, ROWS * CONTEXT);
    sluice_data_destroy(d);
}

TEST(a_mask_that_is_none_is_refused)
{
    uint8_t mask[100] = { 0 };
    begin();
    write_ramp("a.bin", 0, 100);
    write_file("short.mask", "", 0, mask, 99);
    mask[41] = 3;
    write_file("odd.mask", "", 0, mask, 100);
    sl_data_options o = options("a.bin");
    o.mask_path = path_of("short.mask");
    check_open_fails(&o, SLUICE_ERR_INPUT, "short.mask has a mask for 99 tokens");
    o.mask_path = path_of("odd.mask");
    check_open_fails(&o, SLUICE_ERR_INPUT, "odd.mask: the mask of token 41 is 3");
    o.mask_path = path_of("*.mask");
    check_open_fails(&o, SLUICE_ERR_INPUT, "1 files of tokens");
    o.mask_path = path_of("none.mask");
    check_open_fails(&o, SLUICE_ERR_INPUT, "none.mask");
}

/* ---- evaluation ---- */

TEST(evaluation_predicts_each_token_but_the_first_exactly_once)
{
    enum { TOKENS = 61 };
    int seen[TOKENS] = { 0 };
    batch b;
    sluice_data *d;
    int64_t valid;
    begin();
    write_ramp("train.bin", 0, 200);
    write_ramp("validation.bin", 0, TOKENS);
    sl_data_options o = options("train.bin");
    o.validation_path = path_of("validation.bin");
    o.packing = SL_PACKING_DOCUMENTS;
    o.document_token = 20;
    REQUIRE_OK(sl_data_tokens(&o, CONTEXT, VOCABULARY, &d));
    make_fields(&b);
    int64_t windows = d->ops->samples(d, SL_SPLIT_VALIDATION);
    CHECK_EQ(windows, 8);
    for (int64_t first = 0; first < windows; first += 3) { /* the last rows are padding */
        REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_VALIDATION, first, ROWS - 1, b.fields, 3, &valid));
        CHECK_EQ(valid, first + 3 <= windows ? 3 : windows - first);
        for (int r = 0; r < ROWS - 1; r++)
            for (int k = 0; k < CONTEXT; k++)
                if (b.targets[r][k] >= 0) seen[b.targets[r][k]]++;
    }
    CHECK_EQ(seen[0], 0);
    for (int i = 1; i < TOKENS; i++) CHECK_EQ(seen[i], 1);
    /* of the last window tokens 56 to 60 are real: padding is a document of its own */
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_VALIDATION, 7, 1, b.fields, 3, &valid));
    static const int32_t positions[CONTEXT] = { 0, 1, 2, 3, 4, 0, 1, 2 };
    CHECK(memcmp(b.positions[0], positions, sizeof positions) == 0);
    CHECK_EQ(b.targets[0][3], 60);
    CHECK_EQ(b.targets[0][4], -1);
    CHECK_EQ(d->ops->fill_eval(d, SL_SPLIT_VALIDATION, 8, 1, b.fields, 3, &valid), SLUICE_ERR_USAGE);
    sluice_data_destroy(d);
}

/* ---- documents ---- */

TEST(positions_restart_at_the_document_token_and_no_target_is_lost)
{
    batch b;
    sluice_data *d;
    begin();
    write_ramp("a.bin", 0, 300);
    sl_data_options o = options("a.bin");
    o.packing = SL_PACKING_DOCUMENTS;
    o.document_token = 50;
    REQUIRE_OK(sl_data_tokens(&o, CONTEXT, VOCABULARY, &d));
    CHECK(sl_data_packs(d));
    make_fields(&b);
    int restarts = 0;
    for (uint64_t i = 0; i < 36; i++) {
        REQUIRE_OK(d->ops->fill(d, i, ROWS, b.fields, 3));
        for (int r = 0; r < ROWS; r++)
            for (int k = 0; k < CONTEXT; k++) {
                int from = b.tokens[r][0] <= 50 && b.tokens[r][k] >= 50 ? 50 : b.tokens[r][0];
                CHECK_EQ(b.positions[r][k], b.tokens[r][k] - from);
                CHECK_EQ(b.targets[r][k], b.tokens[r][k] + 1);
                restarts += k > 0 && b.positions[r][k] == 0;
            }
    }
    CHECK(restarts > 0);
    sluice_data_destroy(d);
}

/* ---- large ---- */

/* A file with a hole of 9 GiB: tokens on both sides of 2^32 bytes are where they should be, and opening is quick. */
TEST(token_files_beyond_four_gib_are_read_by_64_bit_offsets)
{
    const int64_t tokens = (int64_t)5 << 30, far = ((int64_t)9 << 30) / 2;
    batch b;
    sluice_data *d;
    int64_t valid;
    begin();
    int fd = open(path_of("huge.bin"), O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && ftruncate(fd, tokens * 2) == 0);
    for (int i = 0; i < 100; i++) {
        uint16_t id = (uint16_t)(i + 1);
        CHECK(pwrite(fd, &id, 2, (far + i) * 2) == 2);
    }
    close(fd);
    sl_data_options o = options("huge.bin");
    o.shuffle = false;
    REQUIRE_OK(sl_data_tokens(&o, CONTEXT, VOCABULARY, &d));
    make_fields(&b);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), (tokens - 1) / CONTEXT);
    REQUIRE_OK(d->ops->fill(d, (uint64_t)(far / CONTEXT), 1, b.fields, 2));
    for (int k = 0; k < CONTEXT; k++) {
        CHECK_EQ(b.tokens[0][k], k + 1);
        CHECK_EQ(b.targets[0][k], k + 2);
    }
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_TRAIN, far / CONTEXT + 1, 1, b.fields, 2, &valid));
    CHECK_EQ(b.tokens[0][0], CONTEXT + 1);
    CHECK(d->ops->memory_bytes(d) < 16384);
    sluice_data_destroy(d);
    unlink(path_of("huge.bin"));
}

TEST(the_identity_of_a_long_sequence_is_of_blocks_of_it)
{
    enum { TOKENS = 20 << 20 }; /* more than are hashed whole */
    char first[65], same[65], other[65];
    uint16_t *ids = calloc(TOKENS, sizeof *ids);
    sluice_data *d;
    begin();
    CHECK(ids != NULL);
    if (ids == NULL) return;
    sl_data_options o = options("a.bin");
    for (int i = 0; i < 3; i++) {
        if (i == 2) ids[TOKENS - 1] = 7; /* the last token is among what is hashed */
        write_file("a.bin", "", 0, ids, TOKENS * sizeof *ids);
        REQUIRE_OK(sl_data_tokens(&o, CONTEXT, VOCABULARY, &d));
        d->ops->identity(d, i == 0 ? first : i == 1 ? same : other);
        sluice_data_destroy(d);
    }
    CHECK_STR(same, first);
    CHECK(strcmp(other, first) != 0);
    free(ids);
}

/* ---- refusals ---- */

TEST(ids_beyond_the_vocabulary_are_refused_with_file_and_place)
{
    enum { TOKENS = 20 << 20, BAD = 12345678 };
    const uint16_t bad = VOCABULARY;
    batch b;
    sluice_data *d;
    sluice_status st = SLUICE_OK;
    begin();
    write_ramp("a.bin", 0, 100);
    write_ramp("b.bin", 990, 10);
    sl_data_options o = options("{a,b}.bin");
    CHECK_EQ(sl_data_tokens(&o, CONTEXT, 999, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "b.bin: token 9 is 999, and the model's vocabulary has 999");
    /* in a file too long to be looked at as a whole: when it is read */
    int fd = open(path_of("long.bin"), O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)TOKENS * 2) == 0 && pwrite(fd, &bad, 2, (off_t)BAD * 2) == 2);
    close(fd);
    o = options("long.bin");
    o.shuffle = false;
    REQUIRE_OK(sl_data_tokens(&o, CONTEXT, VOCABULARY, &d));
    make_fields(&b);
    for (uint64_t i = BAD / CONTEXT - 2; i < BAD / CONTEXT + 2 && st == SLUICE_OK; i++)
        st = d->ops->fill(d, i, 1, b.fields, 2);
    CHECK_EQ(st, SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "long.bin: token 12345678 is 1000");
    sluice_data_destroy(d);
}

TEST(settings_of_token_files_that_do_not_fit_are_refused)
{
    begin();
    write_ramp("a.bin", 0, 100);
    write_file("odd.bin", "", 0, "abc", 3);
    sl_data_options o = options("odd.bin");
    check_open_fails(&o, SLUICE_ERR_INPUT, "odd.bin has 3 bytes");
    o = options("nothing*.bin");
    check_open_fails(&o, SLUICE_ERR_INPUT, "nothing*.bin: no file has that name");
    o = options("a.bin");
    o.dtype = SL_TOKENS_UNKNOWN;
    check_open_fails(&o, SLUICE_ERR_USAGE, "set data.dtype");
    o = options("a.bin");
    o.validation_path = path_of("a.bin");
    o.validation = 0.5;
    check_open_fails(&o, SLUICE_ERR_USAGE, "data.validation_path");
    o = options("a.bin");
    o.validation_mask_path = path_of("a.mask");
    check_open_fails(&o, SLUICE_ERR_USAGE, "which is missing");
    o = options("a.bin");
    o.packing = SL_PACKING_DOCUMENTS;
    check_open_fails(&o, SLUICE_ERR_USAGE, "needs data.document_token");
    o.document_token = VOCABULARY;
    check_open_fails(&o, SLUICE_ERR_USAGE, "data.document_token is 1000");
    o = options("a.bin");
    o.validation = 0.97;
    check_open_fails(&o, SLUICE_ERR_INPUT, "a.bin: the training part has 3 tokens");
    o.validation = 0.02;
    check_open_fails(&o, SLUICE_ERR_INPUT, "a.bin: the validation part has 2 tokens");
    o = options("a.bin");
    sluice_data *d;
    CHECK_EQ(sl_data_tokens(&o, CONTEXT, -1, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "model.vocabulary must be a number");
}

/* Under a memory map this would be a signal. */
TEST(a_token_file_that_is_cut_while_it_is_used_is_a_failure_that_names_it)
{
    batch b;
    sluice_data *d;
    sluice_status st = SLUICE_OK;
    begin();
    write_ramp("a.bin", 0, 900);
    sl_data_options o = options("a.bin");
    REQUIRE_OK(sl_data_tokens(&o, CONTEXT, VOCABULARY, &d));
    CHECK(truncate(path_of("a.bin"), 400) == 0);
    make_fields(&b);
    for (uint64_t i = 0; i < 100 && st == SLUICE_OK; i++) st = d->ops->fill(d, i, ROWS, b.fields, 2);
    CHECK_EQ(st, SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "a.bin ends at byte");
    sluice_data_destroy(d);
}
