/* table_file_test.c: rows of CSV and TSV files: which columns they have, what values become, and files that are none. */
#include <math.h>

#include "core/status.h"
#include "data/data.h"
#include "support/text_file.h"
#include "test.h"

enum { ROWS = 4 };

static sl_data_options options(const char *path)
{
    return (sl_data_options){ .path = path,
                              .target = SL_TARGET_AUTO,
                              .separator = SL_SEPARATOR_AUTO,
                              .hash_buckets = 1000,
                              .shuffle = true,
                              .seed = 3 };
}

typedef struct drawn_rows {
    float x[ROWS * 8], number[ROWS];
    int32_t categories[ROWS * 8], target[ROWS];
    sl_data_field fields[3];
} drawn_rows;

static void make_fields(drawn_rows *b, int64_t numeric, int64_t categorical, bool number)
{
    b->fields[0] = (sl_data_field){ "x", SLUICE_F32, numeric, b->x };
    b->fields[1] = (sl_data_field){ "categories", SLUICE_I32, categorical, b->categories };
    b->fields[2] = number ? (sl_data_field){ "target", SLUICE_F32, 1, b->number }
                          : (sl_data_field){ "target", SLUICE_I32, 1, b->target };
}

static const char plain[] = "\xef\xbb\xbf"
                            "age,city,\"height, m\",label\r\n"
                            "10,Rome,1.5,no\r\n"
                            "20,\"Rio, \"\"RJ\"\"\",,yes\r\n"
                            "\r\n"
                            "30,\"two\r\nlines\",2.5,yes\r\n"
                            "40,Rome,1e0,no\n"
                            "50,,NA,yes";

TEST(columns_are_told_by_their_values_and_numbers_normalised_by_the_rows_to_train_on)
{
    drawn_rows b;
    int64_t valid;
    sluice_data *d;
    sl_column_counts counts;
    sl_data_options o = options(write_text_file("rows.csv", plain, sizeof plain - 1));
    o.validation = 0.2;
    REQUIRE_OK(sl_data_table(&o, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 4);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 1);
    CHECK(sl_data_columns(d, &counts));
    CHECK_EQ(counts.numeric, 2);
    CHECK_EQ(counts.categorical, 1);
    CHECK_EQ(counts.buckets, 1000);
    CHECK_EQ(sl_data_classes(d), 2);
    CHECK_STR(sl_data_class_name(d, 0), "no");
    CHECK_STR(sl_data_class_name(d, 1), "yes");
    make_fields(&b, 2, 1, false);
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_TRAIN, 0, ROWS, b.fields, 3, &valid));
    CHECK_EQ(valid, 4);
    const float deviation = sqrtf(125);
    for (int i = 0; i < ROWS; i++) CHECK_NEAR(b.x[2 * i], ((float)(10 * i + 10) - 25) / deviation, 1e-6);
    const double h[3] = { 1.5, 2.5, 1 }, mean = 5.0 / 3;
    double squares = 0;
    for (int i = 0; i < 3; i++) squares += (h[i] - mean) * (h[i] - mean);
    CHECK_NEAR(b.x[1], (1.5 - mean) / sqrt(squares / 3), 1e-6);
    CHECK_NEAR(b.x[3], 0, 0); /* missing: the mean */
    CHECK_NEAR(b.x[5], (2.5 - mean) / sqrt(squares / 3), 1e-6);
    CHECK_EQ(b.categories[0], b.categories[3]);
    CHECK(b.categories[0] != b.categories[1] && b.categories[1] != b.categories[2]);
    const int32_t labels[] = { 0, 1, 1, 0 };
    for (int i = 0; i < ROWS; i++) CHECK_EQ(b.target[i], labels[i]);
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_VALIDATION, 0, ROWS, b.fields, 3, &valid));
    CHECK_EQ(valid, 1);
    CHECK_EQ(b.target[0], 1);
    CHECK_EQ(b.target[1], -1);
    CHECK_NEAR(b.x[0], 25 / deviation, 1e-6);
    CHECK_NEAR(b.x[1], 0, 0);
    sluice_data_destroy(d);
}

static void keep_notes(void *user, sluice_log_level level, const char *line)
{
    char *text = user;
    (void)level;
    snprintf(text + strlen(text), 2000 - strlen(text), "%s\n", line);
}

/* A few values that no numbers are read from make a column one of categories, which is told with the first of them. */
TEST(a_column_that_is_nearly_one_of_numbers_is_told)
{
    static const char *const odd[] = { "inf", "1e400", "0x10" };
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        char text[256], notes[2000] = "", wanted[256];
        sluice_data *d;
        snprintf(text, sizeof text, "label,n,city\nno,1,7\nyes,2,b\nno,%s,c\nyes,4,d\nno,5,7\n", odd[i]);
        sl_data_options o = options(write_text_file("rows.csv", text, strlen(text)));
        REQUIRE_OK(sl_data_table(&o, &d));
        d->ops->say(d, &(sl_log){ keep_notes, notes, 0, 1 });
        snprintf(wanted, sizeof wanted,
                 "column \"n\" is taken as categories: 4 of its values are numbers, and 1 is none, the first \"%s\" in "
                 "line 4",
                 odd[i]);
        CHECK_CONTAINS(notes, wanted);
        CHECK(strstr(notes, "\"city\" is taken") == NULL);
        sluice_data_destroy(d);
        static const char *const named[] = { "n" };
        o.categorical = named;
        o.categorical_count = 1;
        notes[0] = '\0';
        REQUIRE_OK(sl_data_table(&o, &d));
        d->ops->say(d, &(sl_log){ keep_notes, notes, 0, 1 });
        CHECK(strstr(notes, "is taken as") == NULL);
        sluice_data_destroy(d);
    }
}

/* The numbers of buckets are part of what a trained model means: FNV-1a of the bytes, folded, modulo the buckets. */
TEST(the_hash_of_a_category_does_not_change)
{
    static const char text[] = "a\tb\tlabel\nuser_1\t1e5\t0\nuser_2\t\t1\n";
    const char *const numeric[] = { "x" }, *const categorical[] = { "a", "b" };
    drawn_rows b;
    int64_t valid;
    sluice_data *d;
    sl_data_options o = options(write_text_file("rows.tsv", text, sizeof text - 1));
    o.categorical = categorical;
    o.categorical_count = 2;
    o.hash_buckets = 1 << 20;
    REQUIRE_OK(sl_data_table(&o, &d));
    make_fields(&b, 0, 2, false);
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_TRAIN, 0, 2, b.fields + 1, 2, &valid));
    CHECK_EQ(b.categories[0], 532952);
    CHECK_EQ(b.categories[1], 157970);
    CHECK_EQ(b.categories[2], 532501);
    CHECK_EQ(b.categories[3], 49089);
    sluice_data_destroy(d);
    o.numeric = numeric;
    o.numeric_count = 1;
    CHECK_EQ(sl_data_table(&o, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.columns.numeric: \"x\" is no column of");
}

TEST(labels_are_classes_numbers_or_one_of_two)
{
    static const char text[] = "y;a\n10;1\n2;2\n2;3\n";
    drawn_rows b;
    int64_t valid;
    sluice_data *d;
    sl_data_options o = options(write_text_file("rows.csv", text, sizeof text - 1));
    REQUIRE_OK(sl_data_table(&o, &d));
    CHECK_STR(sl_data_class_name(d, 0), "2"); /* by value */
    CHECK_STR(sl_data_class_name(d, 1), "10");
    sluice_data_destroy(d);
    o.target = SL_TARGET_NUMBER;
    REQUIRE_OK(sl_data_table(&o, &d));
    CHECK_EQ(sl_data_classes(d), 0);
    make_fields(&b, 1, 0, true);
    b.fields[1] = b.fields[2];
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_TRAIN, 0, 3, b.fields, 2, &valid));
    CHECK_NEAR(b.number[0], 10, 0);
    CHECK_NEAR(b.number[2], 2, 0);
    sluice_data_destroy(d);
    o.target = SL_TARGET_BINARY;
    REQUIRE_OK(sl_data_table(&o, &d));
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_TRAIN, 0, 3, b.fields, 2, &valid));
    CHECK_NEAR(b.number[0], 1, 0);
    CHECK_NEAR(b.number[1], 0, 0);
    sluice_data_destroy(d);
}

/* A large offset does not cost the digits that tell rows apart. */
TEST(numbers_far_from_zero_keep_their_differences)
{
    static const char text[] = "t,label\n1700000001,0\n1700000002,1\n1700000003,0\n1700000004,1\n";
    drawn_rows b;
    int64_t valid;
    sluice_data *d;
    sl_data_options o = options(write_text_file("rows.csv", text, sizeof text - 1));
    REQUIRE_OK(sl_data_table(&o, &d));
    make_fields(&b, 1, 0, false);
    b.fields[1] = b.fields[2];
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_TRAIN, 0, ROWS, b.fields, 2, &valid));
    for (int i = 0; i < ROWS; i++) CHECK_NEAR(b.x[i], (i - 1.5) / sqrt(1.25), 1e-6);
    sluice_data_destroy(d);
}

TEST(the_validation_file_has_its_columns_in_any_order_and_no_label_of_its_own)
{
    static const char train[] = "a,b,label\n1,x,0\n2,y,1\n", other[] = "label,extra,b,a\n1,9,x,2\n";
    static const char strange[] = "label,b,a\n7,x,2\n", without[] = "label,a\n1,2\n", word[] = "label,a,b\n1,two,x\n";
    drawn_rows b;
    int64_t valid;
    sluice_data *d;
    sl_data_options o = options(write_text_file("train.csv", train, sizeof train - 1));
    o.validation_path = write_text_file("other.csv", other, sizeof other - 1);
    REQUIRE_OK(sl_data_table(&o, &d));
    make_fields(&b, 1, 1, false);
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_VALIDATION, 0, 1, b.fields, 3, &valid));
    CHECK_NEAR(b.x[0], 1, 1e-6);
    CHECK_EQ(b.target[0], 1);
    sluice_data_destroy(d);
    o.validation_path = write_text_file("strange.csv", strange, sizeof strange - 1);
    CHECK_EQ(sl_data_table(&o, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "strange.csv, line 2: label \"7\" is none of those that are trained on: 0, 1");
    o.validation_path = write_text_file("without.csv", without, sizeof without - 1);
    CHECK_EQ(sl_data_table(&o, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "without.csv: line 1 has no column \"b\", which is trained on");
    o.validation_path = write_text_file("word.csv", word, sizeof word - 1);
    CHECK_EQ(sl_data_table(&o, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "word.csv, line 2: \"two\" in column \"a\" is no number");
}

TEST(fifteen_bad_tables_are_refused_with_their_place)
{
    const struct {
        const char *text, *says;
        size_t bytes;
        int target;
    } bad[] = {
#define BAD(text_, says_) { text_, says_, sizeof text_ - 1, SL_TARGET_AUTO }
        BAD("", "is empty; its first line names the columns"),
        BAD("a,label\n", "has no rows behind its header"),
        BAD("a,label\n1,0\n1\n", "line 3: 1 field, and the header has 2"),
        BAD("a,label\n1,0,7\n", "line 2: 3 fields, and the header has 2"),
        BAD("a,a,label\n1,2,0\n", "line 1: the header names two columns \"a\""),
        BAD("a,,label\n1,2,0\n", "line 1: column 2 of the header has no name"),
        BAD("a,b\n1,2\n", "line 1 names no column of labels that is known"),
        BAD("a,label\n\"1,0\n2,1\n", "line 2: the quote that opens here is not closed"),
        BAD("a,label\n\"1\"x,0\n", "line 2, field 1: text behind the quote that ends it"),
        BAD("a,label\nx\"1,0\n", "line 2, field 1: a quote within a field that does not begin with one"),
        BAD("a,label\n1,0\n2,\n", "line 3: the label is empty"),
        BAD("a,label\n1,0\n2,0\n", "every label is \"0\"; there is nothing to tell apart"),
        BAD("a,label\n1,0\n\xff\xfe,1\n", "line 3, field 1: byte 0 of it is not UTF-8"),
        BAD("a,label\n1,0\n\0,1\n", "line 3: a NUL byte"),
        BAD("\xff\xfe"
            "a\0,\0",
            "is UTF-16; convert it to UTF-8"),
        BAD("\x1f\x8b\x08", "is compressed by gzip"),
        BAD("label\n1\n0\n", "there is no column to learn from beside the label"),
        { "a,label\n1,0\n2,x\n", "line 3: \"x\" in column \"label\" is no number", 16, SL_TARGET_NUMBER },
        { "a,label\n1,0\n2,1\n3,2\n", "line 4: label \"2\", and 2 others come before it", 20, SL_TARGET_BINARY },
#undef BAD
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        sluice_data *d;
        sl_data_options o = options(write_text_file("bad.csv", bad[i].text, bad[i].bytes));
        o.target = bad[i].target;
        CHECK_EQ(sl_data_table(&o, &d), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), bad[i].says);
        CHECK_CONTAINS(sluice_error(), "bad.csv");
    }
}

/* Records longer than a block of the reader, and more of them than fit in one. */
TEST(long_files_are_read_in_blocks)
{
    enum { COUNT = 60000, LONG = 3 << 20 };
    static char text[COUNT * 40 + LONG + 100];
    size_t used = (size_t)sprintf(text, "a,word,label\n");
    drawn_rows b;
    int64_t valid;
    sluice_data *d;
    for (int i = 0; i < COUNT; i++) used += (size_t)sprintf(text + used, "%d,\"word, %d\",%d\n", i, i % 7, i % 2);
    used += (size_t)sprintf(text + used, "%d,", COUNT);
    memset(text + used, 'w', LONG);
    used += LONG;
    used += (size_t)sprintf(text + used, ",1\n");
    sl_data_options o = options(write_text_file("long.csv", text, used));
    REQUIRE_OK(sl_data_table(&o, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), COUNT + 1);
    make_fields(&b, 1, 1, false);
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_TRAIN, COUNT - 3, ROWS, b.fields, 3, &valid));
    for (int i = 0; i < ROWS - 1; i++) CHECK_EQ(b.target[i], (COUNT - 3 + i) % 2);
    CHECK_NEAR(b.x[3] - b.x[2], b.x[1] - b.x[0], 1e-5);
    sluice_data_destroy(d);
}
