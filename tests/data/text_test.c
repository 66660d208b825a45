/* text_test.c: a text file as windows of tokens. */
#include <unistd.h>

#include "core/alloc.h"
#include "data/data.h"
#include "format/file_kind.h"
#include "test.h"

/* Writes a file in a fresh folder and returns its path, which stays valid until the next call. */
static const char *write_file(const void *bytes, size_t count)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s/input.txt", test_tmpdir());
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(bytes, 1, count, f) != count || fclose(f) != 0) exit(99);
    return path;
}

/* count bytes in which byte i is i mod 251: a token tells its position within any window of interest. */
static const char *write_ramp(size_t count)
{
    unsigned char *bytes = malloc(count + 1);
    if (bytes == NULL) exit(99);
    for (size_t i = 0; i < count; i++) bytes[i] = (unsigned char)(i % 251);
    const char *path = write_file(bytes, count);
    free(bytes);
    return path;
}

TEST(targets_are_the_next_tokens)
{
    enum { CONTEXT = 16, ROWS = 50 };
    sluice_data *d;
    int32_t tokens[ROWS][CONTEXT], targets[ROWS][CONTEXT];
    sl_data_field f[] = { { "tokens", SLUICE_I32, CONTEXT, tokens }, { "targets", SLUICE_I32, CONTEXT, targets } };
    REQUIRE_OK(sl_data_text(write_ramp(1000), SL_TEXT_BYTES, NULL, CONTEXT, 0.1, true, 1, &d));
    REQUIRE_OK(d->ops->fill(d, 0, ROWS, f, 2));
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < CONTEXT; i++) {
            CHECK_EQ(targets[r][i], (tokens[r][i] + 1) % 251);
            if (i > 0) CHECK_EQ(tokens[r][i], targets[r][i - 1]);
        }
    sluice_data_destroy(d);
}

/* Reads start positions of every window of an epoch from a text of 240 distinct bytes. */
static void read_starts(sluice_data *d, uint64_t epoch, int64_t windows, int64_t context, int32_t *starts)
{
    int32_t tokens[64];
    sl_data_field f = { "tokens", SLUICE_I32, context, tokens };
    for (int64_t w = 0; w < windows; w++) {
        CHECK_EQ(d->ops->fill(d, epoch * (uint64_t)windows + (uint64_t)w, 1, &f, 1), SLUICE_OK);
        starts[w] = tokens[0];
    }
}

TEST(windows_of_an_epoch_do_not_overlap_and_phases_reach_every_token)
{
    enum { TOKENS = 240, CONTEXT = 16, EPOCHS = 400 };
    sluice_data *d;
    int32_t starts[TOKENS / CONTEXT];
    bool is_target[TOKENS] = { false };
    REQUIRE_OK(sl_data_text(write_ramp(TOKENS), SL_TEXT_BYTES, NULL, CONTEXT, 0, true, 1, &d));
    int64_t windows = d->ops->samples(d, SL_SPLIT_TRAIN);
    CHECK_EQ(windows, TOKENS / CONTEXT - 1);
    for (uint64_t e = 0; e < EPOCHS; e++) {
        bool used[TOKENS] = { false };
        read_starts(d, e, windows, CONTEXT, starts);
        for (int64_t w = 0; w < windows; w++) {
            CHECK_EQ((starts[w] - starts[0]) % CONTEXT, 0);
            REQUIRE(starts[w] >= 0 && starts[w] + CONTEXT < TOKENS);
            CHECK(!used[starts[w]]);
            used[starts[w]] = true;
            for (int i = 1; i <= CONTEXT; i++) is_target[starts[w] + i] = true;
        }
    }
    for (int i = 1; i < TOKENS; i++) CHECK(is_target[i]);
    sluice_data_destroy(d);
}

TEST(a_text_of_one_window_trains_on_it)
{
    sluice_data *d;
    int32_t tokens[2][9];
    sl_data_field f = { "tokens", SLUICE_I32, 9, tokens };
    REQUIRE_OK(sl_data_text(write_ramp(10), SL_TEXT_BYTES, NULL, 9, 0, true, 1, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 1);
    REQUIRE_OK(d->ops->fill(d, 3, 2, &f, 1));
    for (int i = 0; i < 9; i++) CHECK_EQ(tokens[1][i], i);
    sluice_data_destroy(d);
}

TEST(unshuffled_windows_follow_the_file)
{
    sluice_data *d;
    int32_t tokens[4][10];
    sl_data_field f = { "tokens", SLUICE_I32, 10, tokens };
    REQUIRE_OK(sl_data_text(write_ramp(31), SL_TEXT_BYTES, NULL, 10, 0, false, 1, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 3);
    REQUIRE_OK(d->ops->fill(d, 0, 4, &f, 1));
    const int32_t starts[] = { 0, 10, 20, 0 };
    for (int r = 0; r < 4; r++) CHECK_EQ(tokens[r][0], starts[r]);
    sluice_data_destroy(d);
}

/* Predicted positions of the validation split of `bytes` bytes, read in batches of `rows`: each one but the first
 * exactly once. */
static void check_validation_coverage(size_t bytes, int64_t context, int64_t rows)
{
    sluice_data *d;
    int32_t tokens[8 * 32], targets[8 * 32];
    int seen[251] = { 0 };
    sl_data_field f[] = { { "tokens", SLUICE_I32, context, tokens }, { "targets", SLUICE_I32, context, targets } };
    REQUIRE_OK(sl_data_text(write_ramp(bytes), SL_TEXT_BYTES, NULL, context, 0.5, true, 1, &d));
    int64_t train = (int64_t)(bytes / 2), held = (int64_t)bytes - train,
            windows = d->ops->samples(d, SL_SPLIT_VALIDATION), real = 0;
    for (int64_t first = 0; first < windows; first += rows) {
        int64_t valid;
        REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_VALIDATION, first, rows, f, 2, &valid));
        CHECK_EQ(valid, windows - first < rows ? windows - first : rows);
        for (int64_t i = 0; i < rows * context; i++) {
            REQUIRE(tokens[i] >= train && tokens[i] < (int64_t)bytes);
            if (i >= valid * context) CHECK_EQ(targets[i], -1);
            if (targets[i] == -1) continue;
            CHECK_EQ(targets[i], tokens[i] + 1);
            seen[targets[i]]++;
            real++;
        }
    }
    CHECK_EQ(real, held - 1);
    for (int64_t i = train + 1; i < (int64_t)bytes; i++) CHECK_EQ(seen[i], 1);
    sluice_data_destroy(d);
}

TEST(validation_predicts_every_token_with_a_predecessor_once)
{
    check_validation_coverage(200, 16, 4); /* 100 tokens held: 6 windows and a partial one of 3 targets */
    check_validation_coverage(194, 16, 4); /* 97: whole windows exactly */
    check_validation_coverage(196, 16, 7); /* 98: a last window of one target */
    check_validation_coverage(200, 32, 3);
}

TEST(the_split_is_the_floor_of_the_training_share)
{
    sluice_data *d;
    int32_t tokens[1][4];
    int64_t valid;
    sl_data_field f = { "tokens", SLUICE_I32, 4, tokens };
    REQUIRE_OK(sl_data_text(write_ramp(105), SL_TEXT_BYTES, NULL, 4, 0.1, false, 1, &d));
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_VALIDATION, 0, 1, &f, 1, &valid));
    CHECK_EQ(tokens[0][0], 94);
    sluice_data_destroy(d);
}

TEST(characters_are_numbered_in_order_of_code_points)
{
    const char text[] = "b\xc3\xa4"
                        "a\xe2\x82\xac\xf0\x9f\x98\x80"
                        "b"; /* b, a umlaut, a, euro, a face, b */
    sluice_data *d;
    int32_t ids[1][5];
    int64_t valid;
    sl_data_field f = { "tokens", SLUICE_I32, 5, ids };
    REQUIRE_OK(sl_data_text(write_file(text, sizeof text - 1), SL_TEXT_CHARACTERS, NULL, 5, 0, false, 1, &d));
    const sl_vocabulary *v = sl_data_characters(d);
    const uint32_t expected[] = { 'a', 'b', 0xe4, 0x20ac, 0x1f600 };
    REQUIRE(v != NULL && v->size == 5);
    for (int i = 0; i < 5; i++) CHECK_EQ(v->code_points[i], expected[i]);
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_TRAIN, 0, 1, &f, 1, &valid));
    const int32_t expected_ids[] = { 1, 2, 0, 3, 4 };
    CHECK(memcmp(ids, expected_ids, sizeof ids) == 0);
    sluice_data_destroy(d);
}

static size_t put_utf8(unsigned char *p, uint32_t c)
{
    p[0] = (unsigned char)(0xe0 | c >> 12);
    p[1] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
    p[2] = (unsigned char)(0x80 | (c & 0x3f));
    return 3;
}

TEST(ids_take_two_bytes_when_the_vocabulary_needs_them)
{
    enum { CHARACTERS = 300 };
    unsigned char text[3 * CHARACTERS];
    sluice_data *d;
    int32_t ids[1][CHARACTERS - 1];
    int64_t valid;
    size_t n = 0;
    sl_data_field f = { "tokens", SLUICE_I32, CHARACTERS - 1, ids };
    for (uint32_t c = 0; c < CHARACTERS; c++) n += put_utf8(text + n, 0x4e00 + (CHARACTERS - 1 - c));
    REQUIRE_OK(sl_data_text(write_file(text, n), SL_TEXT_CHARACTERS, NULL, CHARACTERS - 1, 0, false, 1, &d));
    CHECK_EQ(sl_data_characters(d)->size, CHARACTERS);
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_TRAIN, 0, 1, &f, 1, &valid));
    for (int i = 0; i < CHARACTERS - 1; i++) CHECK_EQ(ids[0][i], CHARACTERS - 1 - i);
    sluice_data_destroy(d);
}

TEST(ids_take_four_bytes_beyond_65536_characters)
{
    enum { FIRST = 0x10000, COUNT = 70000, CONTEXT = 8 };
    unsigned char *text = malloc(4 * COUNT);
    sluice_data *d;
    int32_t ids[1][CONTEXT];
    int64_t valid;
    sl_data_field f = { "tokens", SLUICE_I32, CONTEXT, ids };
    REQUIRE(text != NULL);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t c = FIRST + i;
        text[4 * i] = (unsigned char)(0xf0 | c >> 18);
        text[4 * i + 1] = (unsigned char)(0x80 | (c >> 12 & 0x3f));
        text[4 * i + 2] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
        text[4 * i + 3] = (unsigned char)(0x80 | (c & 0x3f));
    }
    REQUIRE_OK(sl_data_text(write_file(text, 4 * COUNT), SL_TEXT_CHARACTERS, NULL, CONTEXT, 0, false, 1, &d));
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_TRAIN, 8700, 1, &f, 1, &valid));
    for (int i = 0; i < CONTEXT; i++) CHECK_EQ(ids[0][i], 8700 * CONTEXT + i);
    CHECK(d->ops->memory_bytes(d) >= 8 * COUNT);
    sluice_data_destroy(d);
    free(text);
}

TEST(invalid_utf8_is_refused_with_its_byte)
{
    static const char *const bad[] = { "ab\377cd",           "ab\xc3",  "ab\xc0\x80xx", "ab\xed\xa0\x80x",
                                       "ab\xf4\x90\x80\x80", "ab\x80x", "ab\xe2\x82" };
    sluice_data *d = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *path = write_file(bad[i], strlen(bad[i]));
        CHECK_EQ(sl_data_text(path, SL_TEXT_CHARACTERS, NULL, 1, 0, true, 1, &d), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), "byte 2 ");
        CHECK_CONTAINS(sluice_error(), path);
    }
    CHECK(d == NULL);
}

TEST(missing_empty_and_short_texts_are_refused_with_numbers)
{
    sluice_data *d = NULL;
    char missing[4200];
    snprintf(missing, sizeof missing, "%s/nothing.txt", test_tmpdir());
    CHECK_EQ(sl_data_text(missing, SL_TEXT_BYTES, NULL, 8, 0, true, 1, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "nothing.txt");
    CHECK_EQ(sl_data_text(write_ramp(0), SL_TEXT_BYTES, NULL, 8, 0, true, 1, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "is empty");
    CHECK_EQ(sl_data_text(write_ramp(8), SL_TEXT_BYTES, NULL, 8, 0, true, 1, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "the training part has 8 bytes, and a context of 8 needs at least 9");
    CHECK_EQ(sl_data_text(write_file("aaaaaaaaaaaaaaaaaaaa", 20), SL_TEXT_CHARACTERS, NULL, 8, 0.1, true, 1, &d),
             SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "the validation part has 2 characters, and a context of 8 needs at least 9");
    CHECK_EQ(sl_data_text(write_ramp(100), SL_TEXT_BYTES, NULL, 0, 0.1, true, 1, &d), SLUICE_ERR_USAGE);
    CHECK_EQ(sl_data_text(write_ramp(100), SL_TEXT_BYTES, NULL, 8, -0.1, true, 1, &d), SLUICE_ERR_USAGE);
    CHECK(d == NULL);
}

TEST(a_text_without_validation_has_nothing_to_evaluate)
{
    sluice_data *d;
    int32_t tokens[8];
    int64_t valid;
    sl_data_field f = { "tokens", SLUICE_I32, 8, tokens };
    REQUIRE_OK(sl_data_text(write_ramp(100), SL_TEXT_BYTES, NULL, 8, 0, true, 1, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 0);
    CHECK_EQ(d->ops->fill_eval(d, SL_SPLIT_VALIDATION, 0, 1, &f, 1, &valid), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.validation");
    sluice_data_destroy(d);
}

TEST(a_context_that_differs_from_the_models_is_refused)
{
    sluice_data *d;
    int32_t tokens[16];
    sl_data_field f = { "tokens", SLUICE_I32, 16, tokens };
    REQUIRE_OK(sl_data_text(write_ramp(100), SL_TEXT_BYTES, NULL, 8, 0, true, 1, &d));
    CHECK_EQ(d->ops->fill(d, 0, 1, &f, 1), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "\"tokens\" takes 16 elements a sample, the text data has 8");
    sluice_data_destroy(d);
}

TEST(encoding_and_decoding_return_the_text)
{
    const char text[] = "na\xc3\xafve \xe2\x82\xac\xf0\x9f\x98\x80";
    sluice_data *d;
    int32_t ids[32];
    int64_t count;
    char back[64] = { 0 };
    size_t n = 0;
    REQUIRE_OK(sl_data_text(write_file(text, sizeof text - 1), SL_TEXT_CHARACTERS, NULL, 2, 0, true, 1, &d));
    const sl_vocabulary *v = sl_data_characters(d);
    REQUIRE_OK(sl_vocabulary_encode(v, text, sizeof text - 1, ids, 32, &count));
    CHECK_EQ(count, 8);
    for (int64_t i = 0; i < count; i++) n += (size_t)sl_vocabulary_decode(v, ids[i], back + n);
    CHECK_STR(back, text);
    CHECK_EQ(sl_vocabulary_decode(v, v->size, back), 0);
    CHECK_EQ(sl_vocabulary_decode(v, -1, back), 0);
    CHECK_EQ(sl_vocabulary_encode(v, "nz", 2, ids, 32, &count), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "\"z\" (U+007A) at byte 1");
    CHECK_EQ(sl_vocabulary_encode(v, "n\xc3", 2, ids, 32, &count), SLUICE_ERR_INPUT);
    CHECK_EQ(sl_vocabulary_encode(v, "nnn", 3, ids, 2, &count), SLUICE_ERR_USAGE);
    sluice_data_destroy(d);
}

TEST(bytes_encode_as_themselves)
{
    sl_vocabulary v = { SL_TEXT_BYTES, 256, NULL };
    int32_t ids[3];
    int64_t count;
    char out[4];
    REQUIRE_OK(sl_vocabulary_encode(&v, "a\xff\0", 3, ids, 3, &count));
    CHECK_EQ(count, 3);
    CHECK_EQ(ids[1], 255);
    CHECK_EQ(sl_vocabulary_decode(&v, 255, out), 1);
    CHECK_EQ((unsigned char)out[0], 255);
}

TEST(only_text_has_a_vocabulary)
{
    sluice_data *d;
    REQUIRE_OK(sl_data_regression(10, 1, 1, 0, 0, 1, &d));
    CHECK(sl_data_characters(d) == NULL);
    sluice_data_destroy(d);
}

TEST(identity_of_a_text_follows_contents_and_settings)
{
    sluice_data *d;
    char ids[4][65];
    const struct {
        size_t bytes;
        int64_t context;
        uint64_t seed;
    } cases[] = { { 200, 8, 1 }, { 201, 8, 1 }, { 200, 9, 1 }, { 200, 8, 2 } };
    for (int i = 0; i < 4; i++) {
        REQUIRE_OK(sl_data_text(write_ramp(cases[i].bytes), SL_TEXT_BYTES, NULL, cases[i].context, 0.1, true,
                                cases[i].seed, &d));
        d->ops->identity(d, ids[i]);
        sluice_data_destroy(d);
        for (int j = 0; j < i; j++) CHECK(strcmp(ids[i], ids[j]) != 0);
    }
    REQUIRE_OK(sl_data_text(write_ramp(200), SL_TEXT_BYTES, NULL, 8, 0.1, true, 1, &d));
    d->ops->identity(d, ids[1]);
    CHECK_STR(ids[0], ids[1]);
    sluice_data_destroy(d);
}

TEST(failed_allocations_of_text_leak_nothing)
{
    sl_alloc_stats before, after;
    sluice_data *d;
    int failed = 0;
    const char *path = write_file("some text to read", 17);
    sl_alloc_get_stats(&before);
    for (int n = 1; n < 16; n++) {
        sl_alloc_fail_nth(n, 0);
        sluice_status st = sl_data_text(path, SL_TEXT_CHARACTERS, NULL, 4, 0, true, 1, &d);
        sl_alloc_fail_nth(0, 0);
        failed += st == SLUICE_ERR_NO_MEMORY;
        if (st == SLUICE_OK) sluice_data_destroy(d);
        sl_alloc_get_stats(&after);
        CHECK_EQ(after.live_bytes, before.live_bytes);
    }
    CHECK(failed >= 5); /* the data set, the file, the table, the vocabulary, the ids */
}

TEST(shakespeare_has_65_characters_and_the_published_split)
{
    const char *path = test_data("shakespeare/input.txt");
    sluice_data *d;
    if (path == NULL) SKIP(shakespeare, "shakespeare/input.txt is absent");
    REQUIRE_OK(sl_data_text(path, SL_TEXT_CHARACTERS, NULL, 256, 0.1, true, 1337, &d));
    CHECK_EQ(sl_data_characters(d)->size, 65);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 1003854 / 256 - 1);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), (111540 - 1 + 255) / 256);
    sluice_data_destroy(d);
}

/* ---- a vocabulary that was kept ---- */

TEST(a_vocabulary_is_kept_as_text_and_read_back)
{
    static const uint32_t plain[] = { '\n', ' ', '"', '\\', 'a', 0xe9, 0x20ac, 0x1f600 }, nul[] = { 0, 'b', 'c' };
    static const struct {
        sl_vocabulary v;
        const char *unit, *characters;
    } rows[] = {
        { { SL_TEXT_CHARACTERS, 8, plain }, "characters", "\n \"\\a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80" },
        { { SL_TEXT_CHARACTERS, 3, nul }, "nul+characters", "bc" },
        { { SL_TEXT_CHARACTERS, 1, nul }, "nul+characters", "" },
        { { SL_TEXT_BYTES, 256, NULL }, "bytes", NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *unit;
        char *characters;
        sl_vocabulary back;
        REQUIRE_OK(sl_vocabulary_keep(&rows[i].v, &unit, &characters));
        CHECK_STR(unit, rows[i].unit);
        CHECK((characters == NULL) == (rows[i].characters == NULL));
        if (characters != NULL) CHECK_STR(characters, rows[i].characters);
        REQUIRE_OK(sl_vocabulary_read(unit, characters, "file", &back));
        CHECK_EQ(back.unit, rows[i].v.unit);
        REQUIRE(back.size == rows[i].v.size);
        for (int32_t id = 0; back.code_points != NULL && id < back.size; id++)
            CHECK_EQ(back.code_points[id], rows[i].v.code_points[id]);
        sl_free((void *)back.code_points);
        sl_free(characters);
    }
}

TEST(a_vocabulary_that_nothing_wrote_is_refused)
{
    static const struct {
        const char *unit, *characters, *part;
    } rows[] = {
        { "bpe", "ab", "file: its tokens are \"bpe\"" },       { "characters", "", "file: the characters" },
        { "characters", NULL, "file: the characters" },        { "characters", "ba", "increasing order" },
        { "characters", "aab", "increasing order" },           { "characters", "a\xff", "UTF-8" },
        { "nul+characters", "a\xc3", "file: the characters" },
    };
    sl_vocabulary v;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_EQ(sl_vocabulary_read(rows[i].unit, rows[i].characters, "file", &v), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), rows[i].part);
    }
}

TEST(a_kept_vocabulary_gives_its_ids_to_any_text_of_its_characters)
{
    static const uint32_t abcd[] = { 'a', 'b', 'c', 'd' };
    const sl_vocabulary kept = { SL_TEXT_CHARACTERS, 4, abcd };
    sluice_data *d;
    int32_t tokens[4], targets[4];
    const sl_data_field fields[] = { { "tokens", SLUICE_I32, 4, tokens }, { "targets", SLUICE_I32, 4, targets } };
    REQUIRE_OK(sl_data_text(write_file("bdbdb", 5), SL_TEXT_CHARACTERS, &kept, 4, 0, false, 1, &d));
    REQUIRE_OK(d->ops->fill(d, 0, 1, fields, 2));
    CHECK(tokens[0] == 1 && tokens[1] == 3 && targets[0] == 3 && targets[1] == 1);
    CHECK_EQ(sl_data_characters(d)->size, 4);
    sluice_data_destroy(d);
}

TEST(characters_that_a_kept_vocabulary_lacks_are_named_with_the_line_of_the_first)
{
    static const uint32_t ab[] = { '\n', 'a', 'b' };
    const sl_vocabulary kept = { SL_TEXT_CHARACTERS, 3, ab };
    char many[200] = "ab\nab\n";
    sluice_data *d;
    const char *path = write_file("ab\nab\nax\0yxb", 12);
    CHECK_EQ(sl_data_text(path, SL_TEXT_CHARACTERS, &kept, 2, 0, true, 1, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "line 3: the model was trained on 3 characters, and the text has 3 that are not");
    CHECK_CONTAINS(sluice_error(), "\"x\" (U+0078), \"\\u0000\" (U+0000), \"y\" (U+0079), first at byte 7");
    for (int i = 0; i < 25; i++) many[6 + i] = (char)('A' + i);
    CHECK_EQ(sl_data_text(write_file(many, 31), SL_TEXT_CHARACTERS, &kept, 2, 0, true, 1, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "the text has 25 that are not");
    CHECK_CONTAINS(sluice_error(), "\"T\" (U+0054), ..., first at byte 6");
}

TEST(what_is_no_text_is_called_by_its_name)
{
    sluice_data *d;
    CHECK_EQ(sl_data_text(write_file("\037\213\010\377\377\377\377", 7), SL_TEXT_CHARACTERS, NULL, 2, 0, true, 1, &d),
             SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "is compressed (gzip), not a text");
    REQUIRE_OK(sl_data_text(write_file("\037\213\010\377\377\377\377", 7), SL_TEXT_BYTES, NULL, 2, 0, true, 1, &d));
    REQUIRE(sl_data_text_kind(d) != NULL);
    CHECK_CONTAINS(sl_data_text_kind(d)->as_text, "gunzip");
    sluice_data_destroy(d);
    REQUIRE_OK(sl_data_text(write_file("{plain}", 7), SL_TEXT_BYTES, NULL, 2, 0, true, 1, &d));
    CHECK(sl_data_text_kind(d) == NULL);
    sluice_data_destroy(d);
}

TEST(a_stop_ends_the_reading_of_a_text)
{
    int stop = 15;
    sluice_data *d = NULL;
    for (int unit = SL_TEXT_BYTES; unit <= SL_TEXT_CHARACTERS; unit++) {
        stop = 15;
        CHECK_EQ(sl_data_text_until(&stop, write_ramp(100), (sl_text_unit)unit, NULL, 8, 0, true, 1, &d),
                 SLUICE_ERR_STOPPED);
        CHECK_CONTAINS(sluice_error(), "stopped by a signal while reading the data");
        stop = 0;
        REQUIRE_OK(sl_data_text_until(&stop, write_ramp(100), (sl_text_unit)unit, NULL, 8, 0, true, 1, &d));
        sluice_data_destroy(d);
    }
}

/* ---- with a tokenizer ---- */

/* Letters, a space, a newline, and merges of them. */
static const char *write_tokenizer(const char *vocabulary, const char *merges)
{
    static char folder[4200];
    char path[4300];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i == 0 ? "vocab.json" : "merges.txt");
        FILE *f = fopen(path, "wb");
        if (f == NULL || fputs(i == 0 ? vocabulary : merges, f) < 0 || fclose(f) != 0) exit(99);
    }
    return folder;
}

TEST(a_text_is_read_as_the_tokens_of_a_tokenizer)
{
    enum { CONTEXT = 6 };
    static const int32_t expected[] = { 4, 4, 2, 1, 0, 3, 4, 4, 2, 1, 0, 3, 4 };
    char first[65], other[65], path[4300];
    int32_t tokens[2][CONTEXT], targets[2][CONTEXT];
    sl_data_field f[] = { { "tokens", SLUICE_I32, CONTEXT, tokens }, { "targets", SLUICE_I32, CONTEXT, targets } };
    sluice_data *d;
    const char *vocabulary = "{\"a\": 0, \"b\": 1, \"\u0120\": 2, \"\u010a\": 3, \"ab\": 4, \"ba\": 5}";
    const char *text = "abab ba\nabab ba\nabab ba\n";
    snprintf(path, sizeof path, "%s", write_file(text, strlen(text)));
    const char *tokenizer = write_tokenizer(vocabulary, "#version: 0.2\na b\n");
    REQUIRE_OK(sl_data_text_encoded(NULL, path, tokenizer, CONTEXT, 0, false, 1, &d));
    CHECK_EQ(sl_data_vocabulary(d), 6);
    CHECK(sl_data_characters(d) == NULL);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 2);
    REQUIRE_OK(d->ops->fill(d, 0, 2, f, 2));
    CHECK(memcmp(tokens, expected, sizeof tokens) == 0);
    CHECK(memcmp(targets, expected + 1, sizeof targets) == 0);
    d->ops->identity(d, first);
    sluice_data_destroy(d);
    tokenizer = write_tokenizer(vocabulary, "#version: 0.2\nb a\n");
    REQUIRE_OK(sl_data_text_encoded(NULL, path, tokenizer, CONTEXT, 0, false, 1, &d));
    d->ops->identity(d, other);
    CHECK(strcmp(first, other) != 0);
    sluice_data_destroy(d);
    CHECK_EQ(sl_data_text_encoded(NULL, path, tokenizer, 40, 0, false, 1, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "tokens, and a context of 40");
    CHECK_EQ(sl_data_text_encoded(NULL, path, "no folder", CONTEXT, 0, false, 1, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "no folder");
    CHECK_EQ(sl_data_text_encoded(NULL, write_file("ab\xff", 3), tokenizer, 1, 0, false, 1, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "byte 2 (0xff) is not valid UTF-8");
}
