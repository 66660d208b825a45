/* idx_cifar_test.c: arrays of IDX and records of CIFAR. Bad files of both are in tests/cli/images_cli_test.c. */
#include "core/alloc.h"
#include "format/cifar.h"
#include "format/idx.h"
#include "support/picture_writer.h"
#include "test.h"

static const char *path_in(const char *folder, const char *name)
{
    static char path[8192];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

TEST(an_idx_file_is_the_same_plain_and_compressed)
{
    uint8_t elements[3 * 4 * 5];
    const char *folder = test_tmpdir();
    for (size_t i = 0; i < sizeof elements; i++) elements[i] = (uint8_t)(i * 3);
    write_idx(folder, "plain", 3, (int[]){ 3, 4, 5 }, elements, false);
    write_idx(folder, "packed.gz", 3, (int[]){ 3, 4, 5 }, elements, true);
    for (int i = 0; i < 2; i++) {
        sl_idx x;
        REQUIRE_OK(sl_idx_read(NULL, path_in(folder, i == 0 ? "plain" : "packed.gz"), &x));
        CHECK_EQ(x.dimensions, 3);
        CHECK(x.size[0] == 3 && x.size[1] == 4 && x.size[2] == 5);
        CHECK_EQ(x.count, sizeof elements);
        CHECK(memcmp(x.elements, elements, sizeof elements) == 0);
        sl_idx_free(&x);
    }
}

/* Gigabytes in a few bytes, and megabytes behind a header that says four, plain and compressed. */
TEST(an_idx_file_that_claims_more_than_it_holds_is_refused)
{
    const char *folder = test_tmpdir();
    uint8_t head[20] = { 0, 0, 8, 3, 0, 0, 64, 0, 0, 0, 4, 0, 0, 0, 4, 0 };
    sl_idx x;
    write_picture(folder, "plain", head, sizeof head);
    write_gzip(folder, "packed", head, sizeof head);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(sl_idx_read(NULL, path_in(folder, i == 0 ? "plain" : "packed"), &x), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), "its header says 17179869184 elements");
    }
    static uint8_t much[8 << 20] = { 0, 0, 8, 1, 0, 0, 0, 4 };
    write_gzip(folder, "much", much, sizeof much);
    CHECK_EQ(sl_idx_read(NULL, path_in(folder, "much"), &x), SLUICE_ERR_INPUT);
#ifdef SLUICE_ZLIB
    CHECK_CONTAINS(sluice_error(), "more than 12 bytes when uncompressed");
#endif
}

TEST(records_of_cifar_become_pixels_and_files_follow_each_other)
{
    const char *folder = test_tmpdir();
    uint8_t *pixels = NULL, expected[32 * 32 * 3];
    int32_t *labels = NULL;
    int64_t count = 0;
    write_cifar(folder, "a.bin", 3, 0, 1);
    write_cifar(folder, "b.bin", 12, 3, 1);
    REQUIRE_OK(sl_cifar_append(NULL, path_in(folder, "a.bin"), &sl_cifar10, &pixels, &labels, &count));
    CHECK_EQ(count, 3);
    REQUIRE_OK(sl_cifar_append(NULL, path_in(folder, "b.bin"), &sl_cifar10, &pixels, &labels, &count));
    CHECK_EQ(count, 15);
    for (int i = 0; i < 15; i++) {
        paint(expected, 32, 32, 3, i);
        CHECK_EQ(labels[i], (i < 3 ? i : i - 3) % 10);
        CHECK(memcmp(pixels + (size_t)i * sizeof expected, expected, sizeof expected) == 0);
    }
    sl_free(pixels);
    sl_free(labels);
}

TEST(both_labels_of_cifar100_can_be_read)
{
    const char *folder = test_tmpdir();
    uint8_t record[2 + 3072] = { 7, 93 };
    write_picture(folder, "train.bin", record, sizeof record);
    for (int coarse = 0; coarse < 2; coarse++) {
        uint8_t *pixels = NULL;
        int32_t *labels = NULL;
        int64_t count = 0;
        REQUIRE_OK(sl_cifar_append(NULL, path_in(folder, "train.bin"), coarse ? &sl_cifar100_coarse : &sl_cifar100_fine,
                                   &pixels, &labels, &count));
        CHECK_EQ(labels[0], coarse ? 7 : 93);
        sl_free(pixels);
        sl_free(labels);
    }
}
