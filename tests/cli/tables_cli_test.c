/* tables_cli_test.c: training on CSV files and on GLUE's: one hash on ranks and after an interruption; bad files end with status 4, the file and
 * the line, and checkpoints stay what they were. */
#include <sys/stat.h>

#include "support/run.h"
#include "test.h"

#define TOKENIZER SLUICE_SOURCE_DIR "/tests/fixtures/tokenizers/bert-uncased.json"

#define REST                                                                                                           \
    "\"steps\": 6, \"threads\": 1, \"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 2, "                   \
    "\"evaluate\": {\"every\": 3}, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}}"

#define CLICKS                                                                                                         \
    "{\"model\": {\"type\": \"recommender\", \"bottom\": [4], \"embedding\": 4, \"top\": [8]}, \"data\": {\"type\": "  \
    "\"table\", \"path\": \"good\", \"hash_buckets\": 50}, " REST

#define SENTENCES                                                                                                      \
    "{\"model\": {\"type\": \"bert\", \"head\": \"classifier\", \"layers\": 1, \"heads\": 2, \"width\": 16, "          \
    "\"feed_forward\": 32, \"context\": 12, \"dropout\": 0.1}, \"data\": {\"type\": \"glue\", \"path\": \"good\", "    \
    "\"tokenizer\": \"" TOKENIZER "\"}, " REST

static char root[4000];

static void write_in(const char *folder, const char *name, const char *text, size_t bytes)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(text, 1, bytes, f) != bytes || fclose(f) != 0) exit(99);
}

static void make_folder(const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", root, name);
    if (mkdir(path, 0777) != 0) exit(99);
}

/* Rows of good/train and good/test (or dev), and the same of root/bad. */
static void prepare(const char *config, bool sentences)
{
    static char text[20000];
    static const char *const endings[] = { "csv", "tsv" };
    snprintf(root, sizeof root, "%s", test_tmpdir());
    make_folder("good");
    make_folder("bad");
    for (int file = 0; file < 2; file++) {
        char name[32];
        size_t used = (size_t)sprintf(text, sentences ? "sentence1\tsentence2\tlabel\n" : "label,age,city,item\n");
        for (int i = 0; i < (file == 0 ? 60 : 21); i++)
            used +=
                (size_t)(sentences ? sprintf(text + used, "the %d of\tin %d\t%s\n", i % 7, i % 5, i % 3 ? "no" : "yes")
                                   : sprintf(text + used, "%d,%d,c%d,\"i, %d\"\n", i % 3 == 0, i % 11, i % 4, i % 7));
        snprintf(name, sizeof name, "%s.%s", file == 0 ? "train" : "dev", endings[sentences]);
        write_in("good", name, text, used);
        write_in("bad", name, text, used);
    }
    run_write(root, "config.json", config);
}

static void check_one_hash(void)
{
    static const char *const others[] = { "--ranks 2", "--ranks 4 --set zero_optimization.stage=3",
                                          "--set zero_optimization.offload_optimizer.device=cpu" };
    char hash[RUN_HASHES], other[RUN_HASHES];
    run_hashes(root, "", hash);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        run_hashes(root, others[i], other);
        CHECK_STR(other, hash);
    }
    run_must(root, "train config.json --quiet --ranks 2 --set steps=4 --set checkpoint.path=c");
    run_hashes(root, "--set checkpoint.path=c --resume", other);
    CHECK_STR(other, hash);
}

TEST(clicks_give_one_hash_on_ranks_and_stages_and_after_a_resume)
{
    prepare(CLICKS, false);
    check_one_hash();
}

TEST(sentences_give_one_hash_on_ranks_and_stages_and_after_a_resume)
{
    prepare(SENTENCES, true);
    check_one_hash();
}

TEST(sets_with_a_validation_file_of_their_own_are_evaluated_without_a_warning)
{
    for (int sentences = 0; sentences < 2; sentences++) {
        prepare(sentences ? SENTENCES : CLICKS, sentences);
        run_result r = run_sluice(root, "train config.json");
        CHECK_EQ(r.status, 0);
        CHECK_CONTAINS(r.error, "21 to validate");
        CHECK_CONTAINS(r.out, "step 6: validation loss ");
        CHECK(strstr(r.error, "nothing to evaluate on") == NULL);
        run_free(&r);
    }
}

/* A file that takes the place of one of root/bad. */
typedef struct bad_file {
    const char *text;
    size_t bytes;
    const char *says;
    bool validates;
} bad_file;

/* Training goes on from a checkpoint with each of the files: status 4, one line with the file and what is wrong; the checkpoint stays what it was. */
static void check_files(const bad_file *files, size_t count, const char *ending)
{
    char before[RUN_HASHES], after[RUN_HASHES], name[32], whole[4200], path[4200];
    run_hashes(root, "", before);
    run_must(root, "train config.json --quiet --set steps=2 --set checkpoint.path=run");
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s.%s", files[i].validates ? "dev" : "train", ending);
        snprintf(path, sizeof path, "%s/bad/%s", root, name);
        snprintf(whole, sizeof whole, "%s/good/%s", root, name);
        char *good = run_read(whole);
        write_in("bad", name, files[i].text, files[i].bytes);
        run_refused(root, "train config.json --quiet --set data.path=bad --set checkpoint.path=run --resume --ranks 2",
                    files[i].says, name);
        write_in("bad", name, good, strlen(good));
        free(good);
    }
    run_must(root, "verify run");
    run_hashes(root, "--set data.path=bad --set checkpoint.path=run --resume", after);
    CHECK_STR(after, before);
}

#define BAD(text_, says_)                                                                                              \
    {                                                                                                                  \
        text_, sizeof text_ - 1, says_, false                                                                          \
    }
#define BAD_DEV(text_, says_)                                                                                          \
    {                                                                                                                  \
        text_, sizeof text_ - 1, says_, true                                                                           \
    }

TEST(bad_csv_files_end_with_status_4_and_their_line_and_nothing_is_lost)
{
#define NAMES "label,age,city,item\n"
#define TWO   NAMES "0,1,a,b\n1,2,a,b\n"
    static const bad_file files[] = {
        BAD("", "is empty; its first line names the columns"),
        BAD(NAMES, "has no rows behind its header"),
        BAD("label,age,age,item\n", "line 1: the header names two columns \"age\""),
        BAD("label,age,,item\n", "line 1: column 3 of the header has no name"),
        BAD("click_or_not,age,city\n0,1,a\n", "line 1 names no column of labels that is known"),
        BAD(TWO "1,2,a\n", "line 4: 3 fields, and the header has 4"),
        BAD(TWO "1,2,a,b,c\n", "line 4: 5 fields, and the header has 4"),
        BAD(TWO "1,2,\"a,b\n", "line 4: the quote that opens here is not closed"),
        BAD(TWO "1,2,\"a\"b,c\n", "line 4, field 3: text behind the quote that ends it"),
        BAD(TWO "1,2,a\"b,c\n", "line 4, field 3: a quote within a field that does not begin with one"),
        BAD(TWO ",2,a,b\n", "line 4: the label is empty"),
        BAD(TWO "2,2,a,b\n", "line 4: label \"2\", and 2 others come before it"),
        BAD(NAMES "0,1,a,b\n0,2,a,b\n", "every label is \"0\"; there is nothing to tell apart"),
        BAD(TWO "1,2,\xe9,b\n", "line 4, field 3: byte 0 of it is not UTF-8"),
        BAD(TWO "1,\0,a,b\n", "line 4: a NUL byte"),
        BAD("\xfe\xff\0l", "is UTF-16; convert it to UTF-8"),
        BAD("\x1f\x8b\x08\0", "is compressed by gzip"),
        BAD("PK\x03\x04\x14\0\0", "line 1: a NUL byte"),
        BAD_DEV("label,age,city\n1,2,a\n", "line 1 has no column \"item\", which is trained on"),
        BAD_DEV(NAMES "0,1,a,b\n1,x,a,b\n", "line 3: \"x\" in column \"age\" is no number"),
        BAD_DEV(NAMES "0,1,a,b\nyes,2,a,b\n", "line 3: label \"yes\" is none of those that are trained on"),
        BAD_DEV(NAMES, "has no rows behind its header"),
    };
    prepare(CLICKS, false);
    check_files(files, sizeof files / sizeof files[0], "csv");
}

TEST(bad_tsv_files_end_with_status_4_and_their_line_and_nothing_is_lost)
{
#define PAIRS     "sentence1\tsentence2\tlabel\n"
#define TWO_PAIRS PAIRS "1\t2\tno\n3\t4\tyes\n"
    static const bad_file files[] = {
        BAD("", "is empty; its first line names the columns"),
        BAD(PAIRS, "has no samples behind its header"),
        BAD("left\tright\tlabel\n1\t2\tno\n", "line 1 names no column of sentences that is known"),
        BAD("sentence1\tsentence2\n1\t2\n", "line 1 names no column of labels that is known"),
        BAD("sentence1\tsentence2\tlabel\tlabel\n", "line 1: the header names two columns \"label\""),
        BAD("sentence1\tsentence2\tlabel\t\n", "line 1: column 4 of the header has no name"),
        BAD(TWO_PAIRS "5\t6\n", "line 4: 2 fields, and the header has 3"),
        BAD(TWO_PAIRS "5\t6\tno\tno\n", "line 4: 4 fields, and the header has 3"),
        BAD(TWO_PAIRS "5,6,no\n", "line 4: 1 field, and the header has 3"),
        BAD(TWO_PAIRS "5\t6\t\n", "line 4: the label is empty"),
        BAD(TWO_PAIRS "\t\tno\n", "line 4: the sentence is empty"),
        BAD(TWO_PAIRS "5\t\xff\tno\n", "line 4, field 2: byte 0 of it is not UTF-8"),
        BAD(TWO_PAIRS "5\t6\0\tno\n", "line 4: a NUL byte"),
        BAD(PAIRS "1\t2\tno\n", "every label is \"no\"; there is nothing to tell apart"),
        BAD("\xff\xfes\0", "is UTF-16; convert it to UTF-8"),
        BAD("\x1f\x8b\x08\0", "is compressed by gzip"),
        BAD_DEV(PAIRS "1\t2\tmaybe\n", "line 2: label \"maybe\" is none of those that are trained on: no, yes"),
        BAD_DEV("sentence\tlabel\n1\tno\n", "has single sentences, and what is trained on has pairs"),
        BAD_DEV(PAIRS, "has no samples behind its header"),
    };
    prepare(SENTENCES, true);
    check_files(files, sizeof files / sizeof files[0], "tsv");
}

TEST(sets_that_are_not_there_are_named)
{
    prepare(CLICKS, false);
    make_folder("none");
    run_result r = run_sluice(root, "train config.json --quiet --set data.path=none");
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, "none");
    run_free(&r);
    r = run_sluice(root, "train config.json --quiet --set data.path=nowhere.csv");
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, "nowhere.csv");
    run_free(&r);
    prepare(SENTENCES, true);
    make_folder("none");
    r = run_sluice(root, "train config.json --quiet --set data.path=none");
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, "none: train.tsv is not there, nor msr_paraphrase_train.txt");
    run_free(&r);
}
