/* Weights in one file or in several are one list of tensors; an index that its files do not bear out is refused. */
#include "format/weights_set.h"

#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "support/plain_files.h"
#include "test.h"

/* A file with F32 vectors of one element, given as "a b c"; the value of each is the first letter of its name. */
static void write_file(const char *path, const char *names)
{
    char copy[256], *rest = NULL;
    sl_st_tensor tensors[16];
    float values[16];
    int count = 0;
    sl_st_writer *w;
    snprintf(copy, sizeof copy, "%s", names);
    for (char *name = strtok_r(copy, " ", &rest); name != NULL; name = strtok_r(NULL, " ", &rest)) {
        tensors[count] = (sl_st_tensor){ .name = name, .dtype = SL_ST_F32, .rank = 1, .dim = { 1 } };
        values[count++] = (float)name[0];
    }
    REQUIRE_OK(sl_st_write_begin(path, tensors, count, (const char *const[]){ "format", "pt" }, 1, &w));
    REQUIRE_OK(sl_st_write_data(w, values, (size_t)count * sizeof *values));
    REQUIRE_OK(sl_st_write_finish(w));
}

/* folder: one.safetensors with a and c, two.safetensors with b and d, and the index. */
static const char *make_folder(const char *index)
{
    const char *folder = test_tmpdir();
    write_file(at(folder, "one.safetensors"), "c a");
    write_file(at(folder, "two.safetensors"), "b d");
    if (!put(at(folder, SL_WEIGHTS_INDEX), index)) test_fail(__FILE__, __LINE__, "no index");
    return folder;
}

#define GOOD "{\"metadata\": {\"total_size\": 16}, " WITHOUT_METADATA
#define WITHOUT_METADATA                                                                                               \
    "\"weight_map\": {\"a\": \"one.safetensors\", \"b\": \"two.safetensors\", "                                        \
    "\"c\": \"one.safetensors\", \"d\": \"two.safetensors\"}}"

static void check_values(const char *path)
{
    static const char *const names[] = { "a", "b", "c", "d" };
    sl_weights_set *s;
    REQUIRE_OK(sl_weights_set_open(path, &s));
    CHECK_EQ(s->tensor_count, 4);
    for (int i = 0; i < 4; i++) {
        float value = 0;
        const sl_set_tensor *t = sl_weights_set_find(s, names[i]);
        REQUIRE(t != NULL);
        CHECK(t == &s->tensors[i]);
        REQUIRE_OK(sl_set_read_f32(t, 0, 1, &value));
        CHECK(value == (float)names[i][0]);
    }
    CHECK(sl_weights_set_find(s, "e") == NULL);
    CHECK_STR(sl_weights_set_metadata(s, "format"), "pt");
    CHECK(sl_weights_set_metadata(s, "other") == NULL);
    sl_weights_set_close(s);
}

TEST(a_folder_an_index_and_a_file_are_read_alike)
{
    const char *folder = make_folder(GOOD);
    check_values(folder);
    check_values(at(folder, SL_WEIGHTS_INDEX));
    CHECK(sl_is_weights_folder(folder));
    CHECK(!sl_is_weights_folder(at(folder, SL_WEIGHTS_INDEX)));
    write_file(at(folder, "whole.safetensors"), "d c b a");
    check_values(at(folder, "whole.safetensors"));
    REQUIRE(put(at(folder, SL_WEIGHTS_INDEX), "{" WITHOUT_METADATA));
    check_values(folder);
    /* where there are both, the whole file is read */
    REQUIRE(put(at(folder, SL_WEIGHTS_INDEX), "{}"));
    write_file(at(folder, SL_WEIGHTS_FILE), "d c b a");
    check_values(folder);
}

/* Caches of downloads hold links to files elsewhere. */
TEST(files_of_an_index_may_be_links)
{
    const char *folder = make_folder(GOOD);
    char real[PATH_MAX];
    snprintf(real, sizeof real, "%s/blobs", folder);
    REQUIRE(mkdir(real, 0777) == 0);
    snprintf(real, sizeof real, "%s/blobs/0123", folder);
    REQUIRE(rename(at(folder, "two.safetensors"), real) == 0);
    REQUIRE(symlink("blobs/0123", at(folder, "two.safetensors")) == 0);
    check_values(folder);
}

#define ONE(file_) "{\"weight_map\": {\"a\": \"" file_ "\"}}"

TEST(an_index_that_its_files_do_not_bear_out_is_refused)
{
    static const struct {
        const char *index, *part, *second_part;
    } rows[] = {
        { ONE("three.safetensors"), "three.safetensors is missing", "tensor \"a\"" },
        { ONE("two.safetensors"), "it says that tensor \"a\" is in ", "two.safetensors, which does not hold it" },
        { ONE("one.safetensors"), "one.safetensors holds tensor \"c\", which ", "does not name" },
        { ONE("../one.safetensors"), "\"../one.safetensors\", which is not the name of a file", "tensor \"a\"" },
        { ONE("/etc/passwd"), "\"/etc/passwd\", which is not the name of a file", "tensor \"a\"" },
        { ONE("sub/one.safetensors"), "not the name of a file beside the index", "tensor \"a\"" },
        { ONE(".."), "not the name of a file beside the index", "tensor \"a\"" },
        { ONE("."), "not the name of a file beside the index", "tensor \"a\"" },
        { ONE(""), "not the name of a file beside the index", "tensor \"a\"" },
        { ONE("one\\n\\u001b[2J.safetensors"), "not the name of a file beside the index", "tensor \"a\"" },
        { ONE("one\\u0000.safetensors"), "a name in it contains a NUL", "index.json" },
        { "{\"weight_map\": {\"a\": \"one.safetensors\", \"a\": \"two.safetensors\"}}", "tensor \"a\" is given twice",
          "in \"one.safetensors\" and in \"two.safetensors\"" },
        { "{\"weight_map\": {\"a\": 1}}", "the file of tensor \"a\" is not a string", "index.json" },
        { "{\"weight_map\": [1]}", "weight_map is not an object", "index.json" },
        { "{\"weight_map\": {}}", "weight_map is empty", "index.json" },
        { "{\"weight_map\": {}, \"weight_map\": {}}", "weight_map is given twice", "index.json" },
        { "{\"metadata\": {}}", "no weight_map", "index.json" },
        { "{\n \"weight_map\": {\"a\" \"b\"}}", "line 2, column 21: expected ':'", "index.json" },
        { "", "line 1, column 1: the text ends too early", "index.json" },
        { GOOD "x", "nothing may follow", "index.json" },
        { "{\"weight_map\": {\"\377\": \"a\"}}", "not valid UTF-8", "index.json" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_weights_set *s;
        CHECK_EQ(sl_weights_set_open(make_folder(rows[i].index), &s), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), rows[i].part);
        CHECK_CONTAINS(sluice_error(), rows[i].second_part);
    }
}

TEST(a_tensor_in_two_files_is_refused_by_name)
{
    const char *folder = make_folder(GOOD);
    sl_weights_set *s;
    write_file(at(folder, "two.safetensors"), "a b d");
    CHECK_EQ(sl_weights_set_open(folder, &s), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "tensor \"a\" is in two files");
    CHECK_CONTAINS(sluice_error(), "one.safetensors");
    CHECK_CONTAINS(sluice_error(), "two.safetensors");
}

TEST(a_file_that_was_cut_short_is_refused_by_name)
{
    const char *folder = make_folder(GOOD);
    sl_weights_set *s;
    struct stat is;
    REQUIRE(stat(at(folder, "two.safetensors"), &is) == 0);
    REQUIRE(truncate(at(folder, "two.safetensors"), is.st_size - 1) == 0);
    CHECK_EQ(sl_weights_set_open(folder, &s), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "two.safetensors: safetensors: tensor \"d\": its data ends at 8");
}

TEST(a_folder_without_weights_is_refused_with_what_to_do)
{
    const char *folder = test_tmpdir();
    sl_weights_set *s;
    CHECK_EQ(sl_weights_set_open(folder, &s), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "neither model.safetensors nor model.safetensors.index.json");
    REQUIRE(put(at(folder, "pytorch_model.bin"), "x"));
    CHECK_EQ(sl_weights_set_open(folder, &s), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "holds pytorch_model.bin, but no model.safetensors");
    CHECK_CONTAINS(sluice_error(), "save_pretrained");
    CHECK_EQ(sl_weights_set_open(at(folder, "nothing"), &s), SLUICE_ERR_INPUT);
}

TEST(a_prefix_is_taken_or_put_for_all_names_or_for_none)
{
    static const char *const heads[] = { "head.", NULL };
    const char *path = at(test_tmpdir(), "w.safetensors");
    sl_weights_set *s;
    bool done;
    write_file(path, "m.a m.b head.c");
    REQUIRE_OK(sl_weights_set_open(path, &s));
    REQUIRE_OK(sl_weights_set_rename(s, "m.", true, NULL, &done));
    CHECK(!done);
    CHECK(sl_weights_set_find(s, "m.a") != NULL);
    REQUIRE_OK(sl_weights_set_rename(s, "m.", true, heads, &done));
    CHECK(done);
    CHECK(sl_weights_set_find(s, "a") != NULL && sl_weights_set_find(s, "head.c") != NULL);
    CHECK(sl_weights_set_find(s, "m.a") == NULL);
    REQUIRE_OK(sl_weights_set_rename(s, "x.", false, heads, &done));
    CHECK(done && sl_weights_set_find(s, "x.b") != NULL && sl_weights_set_find(s, "head.c") != NULL);
    CHECK_STR(sl_weights_set_find(s, "x.b")->stored->name, "m.b");
    REQUIRE_OK(sl_weights_set_rename(s, "x.", false, heads, &done)); /* they have it already */
    CHECK(!done);
    REQUIRE_OK(sl_weights_set_rename(s, "x.", true, (const char *const[]){ "x.", "head.", NULL }, &done));
    CHECK(!done); /* nothing is left */
    sl_weights_set_close(s);
    write_file(path, "m.head.a head.a");
    REQUIRE_OK(sl_weights_set_open(path, &s));
    REQUIRE_OK(sl_weights_set_rename(s, "m.", true, heads, &done));
    CHECK(!done && sl_weights_set_find(s, "m.head.a") != NULL); /* two would be the same */
    sl_weights_set_close(s);
}

TEST(an_index_that_runs_out_of_memory_leaves_nothing_behind)
{
    const char *folder = make_folder(GOOD);
    sl_alloc_stats before, after;
    sl_weights_set *s;
    sl_alloc_get_stats(&before);
    for (int n = 1;; n++) {
        sl_alloc_fail_nth(n, 0);
        sluice_status st = sl_weights_set_open(folder, &s);
        sl_alloc_fail_nth(0, 0);
        if (st == SLUICE_OK) break;
        CHECK_EQ(st, SLUICE_ERR_NO_MEMORY);
        sl_alloc_get_stats(&after);
        CHECK_EQ(after.live_bytes, before.live_bytes);
    }
    sl_weights_set_close(s);
    sl_alloc_get_stats(&after);
    CHECK_EQ(after.live_bytes, before.live_bytes);
}
