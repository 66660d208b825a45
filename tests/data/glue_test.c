/* glue_test.c: sentences with a class: columns, tokens of singles and pairs, what is cut, and files that are none. */
#include "core/status.h"
#include "data/data.h"
#include "support/text_file.h"
#include "test.h"

#define TOKENIZER SLUICE_SOURCE_DIR "/tests/fixtures/tokenizers/bert-uncased.json"

/* Of the tokenizer, which puts pairs as [CLS] A [SEP] B. A digit d is one token. */
enum { PAD = 0, CLS = 2, SEP = 3, ZERO = 20 };
enum { CONTEXT = 8, ROWS = 4 };

static sl_data_options options(const char *path)
{
    return (sl_data_options){ .type = "glue", .path = path, .tokenizer = TOKENIZER, .threads = 2, .seed = 3 };
}

typedef struct drawn_sentences {
    int32_t tokens[ROWS][CONTEXT], segments[ROWS][CONTEXT], lengths[ROWS], target[ROWS];
} drawn_sentences;

static sluice_status read_rows(sluice_data *d, sl_data_split split, int64_t first, drawn_sentences *b, int64_t *valid)
{
    const sl_data_field f[] = { { "tokens", SLUICE_I32, CONTEXT, b->tokens },
                                { "segments", SLUICE_I32, CONTEXT, b->segments },
                                { "lengths", SLUICE_I32, 1, b->lengths },
                                { "target", SLUICE_I32, 1, b->target } };
    return d->ops->fill_eval(d, split, first, ROWS, f, 4, valid);
}

/* Tokens of a row as text: "C12S3" for [CLS] 1 2 [SEP] 3; padding is a dot. */
static const char *spell(const int32_t *tokens)
{
    static char text[CONTEXT + 1];
    for (int i = 0; i < CONTEXT; i++)
        text[i] = tokens[i] == PAD                             ? '.'
                  : tokens[i] == CLS                           ? 'C'
                  : tokens[i] == SEP                           ? 'S'
                  : tokens[i] >= ZERO && tokens[i] < ZERO + 10 ? (char)('0' + tokens[i] - ZERO)
                                                               : '?';
    return text;
}

/* MRPC's columns; the longer sentence is cut first, and of two equal ones the first keeps less, as the tokenizers package does. */
TEST(pairs_are_put_together_as_the_tokenizer_says_and_the_longer_is_cut_first)
{
    static const char text[] = "\xef\xbb\xbf"
                               "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
                               "1\t7\t8\t1 2\t3\r\n"
                               "0\t7\t8\t1 2 3 4 5 6 7 8\t9\r\n"
                               "0\t7\t8\t1\t2 3 4 5 6 7 8 9\r\n"
                               "1\t7\t8\t1 2 3 4 5\t6 7 8 9 0\r\n";
    static const char *const spelt[] = { "C12S3...", "C12345S9", "C1S23456", "C123S678" };
    static const int lengths[] = { 5, 8, 8, 8 };
    drawn_sentences b;
    int64_t valid;
    sluice_data *d;
    sl_data_options o = options(write_text_file("train.tsv", text, sizeof text - 1));
    REQUIRE_OK(sl_data_open(&o, CONTEXT, 0, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 4);
    CHECK_EQ(sl_data_classes(d), 2);
    CHECK_STR(sl_data_class_name(d, 1), "1");
    CHECK_EQ(sl_data_vocabulary(d), 1366);
    REQUIRE_OK(read_rows(d, SL_SPLIT_TRAIN, 0, &b, &valid));
    for (int r = 0; r < ROWS; r++) {
        CHECK_STR(spell(b.tokens[r]), spelt[r]);
        CHECK_EQ(b.lengths[r], lengths[r]);
        CHECK_EQ(b.target[r], r == 0 || r == 3);
        for (int i = 0, second = 0; i < lengths[r]; i++) {
            CHECK_EQ(b.segments[r][i], second);
            second |= b.tokens[r][i] == SEP;
        }
    }
    sluice_data_destroy(d);
}

TEST(single_sentences_keep_the_tokens_around_them_when_they_are_cut)
{
    static const char text[] = "sentence\tlabel\n1 2\tno\n\n\"9\" 8\tyes\n1 2 3 4 5 6 7 8 9\tno\n";
    drawn_sentences b;
    int64_t valid;
    sluice_data *d;
    sl_data_options o = options(write_text_file("train.tsv", text, sizeof text - 1));
    REQUIRE_OK(sl_data_open(&o, CONTEXT, 0, &d));
    REQUIRE_OK(read_rows(d, SL_SPLIT_TRAIN, 0, &b, &valid));
    CHECK_EQ(valid, 3);
    CHECK_STR(spell(b.tokens[0]), "C12S....");
    CHECK_STR(spell(b.tokens[1]), "C?9?8S.."); /* quotes are characters */
    CHECK_STR(spell(b.tokens[2]), "C123456S");
    CHECK_EQ(b.target[1], 1);
    CHECK_EQ(b.target[3], -1); /* padding */
    for (int i = 0; i < CONTEXT; i++) CHECK_EQ(b.segments[2][i], 0);
    sluice_data_destroy(d);
}

TEST(a_folder_has_its_validation_file_and_columns_can_be_named)
{
    static const char train[] = "x\tleft\tright\ty\n0\t1\t2\ta\n0\t3\t4\tb\n";
    static const char dev[] = "y\tright\tleft\nb\t6\t5\n";
    drawn_sentences b;
    char folder[4000];
    int64_t valid;
    sluice_data *d;
    snprintf(folder, sizeof folder, "%s", write_text_file("train.tsv", train, sizeof train - 1));
    *strrchr(folder, '/') = '\0';
    FILE *f = fopen(at(folder, "dev.tsv"), "w");
    REQUIRE(f != NULL && fputs(dev, f) >= 0 && fclose(f) == 0);
    sl_data_options o = options(folder);
    o.first_column = "left";
    o.second_column = "right";
    o.label_column = "y";
    REQUIRE_OK(sl_data_open(&o, CONTEXT, 0, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 2);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 1);
    REQUIRE_OK(read_rows(d, SL_SPLIT_VALIDATION, 0, &b, &valid));
    CHECK_EQ(valid, 1);
    CHECK_STR(spell(b.tokens[0]), "C5S6....");
    CHECK_EQ(b.target[0], 1);
    sluice_data_destroy(d);
    o.validation = 0.5; /* then a share of train.tsv */
    REQUIRE_OK(sl_data_open(&o, CONTEXT, 0, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 1);
    REQUIRE_OK(read_rows(d, SL_SPLIT_VALIDATION, 0, &b, &valid));
    CHECK_STR(spell(b.tokens[0]), "C3S4....");
    sluice_data_destroy(d);
}

/* More records than are encoded at a time. */
TEST(what_is_kept_does_not_depend_on_the_threads)
{
    enum { COUNT = 9001 };
    static char text[COUNT * 32];
    char one[65], other[65];
    sluice_data *d;
    size_t used = (size_t)sprintf(text, "sentence1\tsentence2\tlabel\n");
    for (int i = 0; i < COUNT; i++) used += (size_t)sprintf(text + used, "%d\tof %d\t%d\n", i, i / 7, i % 3);
    sl_data_options o = options(write_text_file("train.tsv", text, used));
    for (int threads = 1; threads <= 5; threads += 2) {
        o.threads = threads;
        REQUIRE_OK(sl_data_open(&o, CONTEXT, 0, &d));
        CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), COUNT);
        CHECK_EQ(sl_data_classes(d), 3);
        d->ops->identity(d, threads == 1 ? one : other);
        if (threads > 1) CHECK_STR(other, one);
        sluice_data_destroy(d);
    }
}

TEST(mrpc_is_read_whole)
{
    const char *file = test_data("mrpc/train.tsv");
    char folder[4000];
    sluice_data *d;
    if (file == NULL) SKIP(mrpc, "no MRPC here");
    snprintf(folder, sizeof folder, "%s", file);
    *strrchr(folder, '/') = '\0';
    sl_data_options o = options(folder);
    REQUIRE_OK(sl_data_open(&o, 128, 0, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 3667);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 408);
    CHECK_EQ(sl_data_classes(d), 2);
    sluice_data_destroy(d);
}

TEST(bad_files_of_sentences_are_refused_with_their_place)
{
#define HEAD "sentence1\tsentence2\tlabel\n"
#define GOOD HEAD "1\t2\ta\n3\t4\tb\n"
    static const struct {
        const char *text, *says;
        size_t bytes;
    } bad[] = {
#define BAD(text_, says_) { text_, says_, sizeof text_ - 1 }
        BAD("", "is empty; its first line names the columns"),
        BAD("\n\n", "is empty; its first line names the columns"),
        BAD(HEAD, "has no samples behind its header"),
        BAD("a\tb\tlabel\n1\t2\t0\n", "line 1 names no column of sentences that is known"),
        BAD("sentence1\tlabel\n1\t0\n", "line 1 names no column of sentences that is known"),
        BAD("sentence1\tsentence2\n1\t2\n", "line 1 names no column of labels that is known"),
        BAD("sentence\tsentence\tlabel\n1\t2\t0\n", "line 1: the header names two columns \"sentence\""),
        BAD("sentence\t\tlabel\n1\t2\t0\n", "line 1: column 2 of the header has no name"),
        BAD(GOOD "1\t2\n", "line 4: 2 fields, and the header has 3"),
        BAD(GOOD "1\t2\ta\t0\n", "line 4: 4 fields, and the header has 3"),
        BAD(GOOD "\n1 2 a\n", "line 5: 1 field, and the header has 3"),
        BAD(GOOD "1\t2\t\n", "line 4: the label is empty"),
        BAD(GOOD "\t\ta\n", "line 4: the sentence is empty"),
        BAD(GOOD "1\t\xc3(\ta\n", "line 4, field 2: byte 0 of it is not UTF-8"),
        BAD(GOOD "1\t2\0\ta\n", "line 4: a NUL byte"),
        BAD("\xff\xfes\0e\0", "is UTF-16; convert it to UTF-8"),
        BAD("\x1f\x8b\x08", "is compressed by gzip"),
        BAD(HEAD "1\t2\ta\n3\t4\ta\n", "every label is \"a\"; there is nothing to tell apart"),
#undef BAD
    };
    sluice_data *d = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        sl_data_options o = options(write_text_file("bad.tsv", bad[i].text, bad[i].bytes));
        CHECK_EQ(sl_data_open(&o, CONTEXT, 0, &d), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), bad[i].says);
        CHECK_CONTAINS(sluice_error(), "bad.tsv");
    }
    CHECK(d == NULL);
}

TEST(a_validation_file_that_does_not_fit_is_refused)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        { HEAD "1\t2\ta\n1\t2\tc\n", "line 3: label \"c\" is none of those that are trained on: a, b" },
        { "sentence\tlabel\n1\ta\n", "has single sentences, and what is trained on has pairs" },
        { HEAD, "has no samples behind its header" },
    };
    char other[4200];
    sluice_data *d = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(other, sizeof other, "%s", write_text_file("other.tsv", bad[i].text, strlen(bad[i].text)));
        sl_data_options o = options(write_text_file("train.tsv", GOOD, strlen(GOOD)));
        o.validation_path = other;
        CHECK_EQ(sl_data_open(&o, CONTEXT, 0, &d), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), bad[i].says);
        CHECK_CONTAINS(sluice_error(), "other.tsv");
    }
    CHECK(d == NULL);
}

TEST(settings_of_sentences_that_do_not_fit_are_refused)
{
    sluice_data *d = NULL;
    sl_data_options o = options(write_text_file("train.tsv", GOOD, strlen(GOOD)));
    CHECK_EQ(sl_data_open(&o, 3, 0, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "model.context is 3; give 4");
    o.classes = 3;
    CHECK_EQ(sl_data_open(&o, CONTEXT, 0, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "has 2 different labels (a, b), and data.classes is 3");
    o.classes = 0;
    o.label_column = "quality";
    CHECK_EQ(sl_data_open(&o, CONTEXT, 0, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "has no column \"quality\", which data.columns.label names");
    o.label_column = NULL;
    o.second_column = "sentence2";
    CHECK_EQ(sl_data_open(&o, CONTEXT, 0, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.columns.second is given and data.columns.first is not");
    o.second_column = NULL;
    o.tokenizer = "";
    CHECK_EQ(sl_data_open(&o, CONTEXT, 0, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.tokenizer is missing");
    CHECK(d == NULL);
}
