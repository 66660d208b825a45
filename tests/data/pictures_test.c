/* pictures_test.c: images as samples: where they come from, what they become, and which are left out. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/status.h"
#include "data/ahead.h"
#include "data/data.h"
#include "support/picture_writer.h"
#include "test.h"

enum { SIDE = 6, PIXELS = SIDE * SIDE, ROWS = 5, RGB = 2 };

static const char *in(const char *folder, const char *name)
{
    static char paths[16][4200];
    static int next;
    char path[4200], *out = paths[next++ % 16];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return strcpy(out, path);
}

static const char *make_folder(const char *folder, const char *name)
{
    const char *path = in(folder, name);
    if (mkdir(path, 0777) != 0) exit(99);
    return path;
}

static sl_data_options options(const char *path)
{
    return (
        sl_data_options){ .path = path, .normalize = SL_NORMALIZE_AUTO, .shuffle = true, .seed = 11, .crop = "none" };
}

typedef struct drawn {
    float x[ROWS * 3072];
    int32_t target[ROWS];
    sl_data_field fields[2];
} drawn;

static void make_fields(drawn *b, int64_t elements)
{
    b->fields[0] = (sl_data_field){ "x", SLUICE_F32, elements, b->x };
    b->fields[1] = (sl_data_field){ "target", SLUICE_I32, 1, b->target };
}

/* ---- sources ---- */

TEST(digits_are_normalised_by_the_images_to_train_on)
{
    enum { COUNT = 40 };
    uint8_t pixels[PIXELS];
    static drawn b;
    double sum = 0, squares = 0, n = 32 * PIXELS;
    int64_t valid;
    sluice_data *d;
    sl_image_size size;
    const char *folder = test_tmpdir();
    write_digits(folder, "t10k", COUNT, SIDE, 10);
    sl_data_options o = options(folder);
    o.validation = 0.2;
    REQUIRE_OK(sl_data_idx(&o, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 32);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 8);
    CHECK_EQ(sl_data_classes(d), 10);
    CHECK(sl_data_image(d, &size) && size.height == SIDE && size.width == SIDE && size.channels == 1);
    CHECK_STR(sl_data_class_name(d, 3), "");
    for (int i = 0; i < 32; i++) {
        paint(pixels, SIDE, SIDE, 1, i);
        for (int k = 0; k < PIXELS; k++) {
            sum += pixels[k];
            squares += pixels[k] * pixels[k];
        }
    }
    double mean = sum / n / 255, deviation = sqrt(squares / n - sum / n * (sum / n)) / 255;
    make_fields(&b, PIXELS);
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_VALIDATION, 4, ROWS, b.fields, 2, &valid));
    CHECK_EQ(valid, 4);
    CHECK_EQ(b.target[4], -1);
    for (int i = 0; i < 4; i++) {
        paint(pixels, SIDE, SIDE, 1, 36 + i);
        CHECK_EQ(b.target[i], (36 + i) % 10);
        for (int k = 0; k < PIXELS; k++) CHECK_NEAR(b.x[i * PIXELS + k], (pixels[k] / 255.0 - mean) / deviation, 1e-5);
    }
    sluice_data_destroy(d);
}

TEST(test_files_beside_the_training_files_are_the_validation_unless_a_share_is_asked_for)
{
    sluice_data *d;
    const char *folder = test_tmpdir();
    write_digits(folder, "train", 30, SIDE, 10);
    write_digits(folder, "t10k", 12, SIDE, 10);
    sl_data_options o = options(folder);
    REQUIRE_OK(sl_data_idx(&o, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 30);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 12);
    sluice_data_destroy(d);
    o.validation = 0.5;
    REQUIRE_OK(sl_data_idx(&o, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 15);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 15);
    sluice_data_destroy(d);
    o = options(in(folder, "train-images-idx3-ubyte"));
    CHECK_EQ(sl_data_idx(&o, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.labels_path is missing");
    o.labels_path = in(folder, "train-labels-idx1-ubyte");
    o.validation_path = in(folder, "t10k-images-idx3-ubyte");
    o.validation_labels_path = in(folder, "t10k-labels-idx1-ubyte");
    REQUIRE_OK(sl_data_idx(&o, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 30);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 12);
    sluice_data_destroy(d);
}

TEST(cifar_has_its_usual_numbers_names_and_test_file)
{
    static drawn b;
    static uint8_t pixels[3072];
    static const double mean[] = { 0.4914, 0.4822, 0.4465 }, deviation[] = { 0.2470, 0.2435, 0.2616 };
    const char names[] = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n";
    int64_t valid;
    sluice_data *d;
    const char *root = test_tmpdir();
    const char *folder = make_folder(root, "cifar-10-batches-bin");
    write_cifar(folder, "data_batch_1.bin", 6, 0, 1);
    write_cifar(folder, "data_batch_3.bin", 4, 6, 1);
    write_cifar(folder, "test_batch.bin", 5, 50, 1);
    write_picture(folder, "batches.meta.txt", names, sizeof names - 1);
    sl_data_options o = options(root);
    REQUIRE_OK(sl_data_cifar10(&o, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 10);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 5);
    CHECK_EQ(sl_data_classes(d), 10);
    CHECK_STR(sl_data_class_name(d, 3), "cat");
    make_fields(&b, 3072);
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_VALIDATION, 2, ROWS, b.fields, 2, &valid));
    paint(pixels, 32, 32, 3, 52);
    for (int i = 0; i < 3072; i++) CHECK_NEAR(b.x[i], (pixels[i] / 255.0 - mean[i % 3]) / deviation[i % 3], 1e-5);
    CHECK_EQ(b.target[0], 2);
    sluice_data_destroy(d);
}

/* ---- what is changed at random ---- */

/* Whether the row is image `number` moved by (top, left), mirrored or not; black is `black`. */
static bool is_moved(const float *row, int number, int top, int left, bool mirrored)
{
    uint8_t pixels[PIXELS];
    paint(pixels, SIDE, SIDE, 1, number);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            int from_y = y + top, from_x = (mirrored ? SIDE - 1 - x : x) + left;
            bool inside = from_y >= 0 && from_y < SIDE && from_x >= 0 && from_x < SIDE;
            float expected = inside ? (float)pixels[from_y * SIDE + from_x] / 255.0f : 0;
            if (row[y * SIDE + x] != expected) return false;
        }
    return true;
}

TEST(training_images_are_mirrored_and_moved_by_every_amount_and_evaluation_is_not)
{
    enum { COUNT = 10, PADDING = 2, PLACES = 2 * PADDING + 1, EPOCHS = 60 };
    static drawn b;
    int seen[PLACES][PLACES][2] = { 0 }, found = 0, mirrored = 0;
    int64_t valid;
    sluice_data *d;
    const char *folder = test_tmpdir();
    write_digits(folder, "train", COUNT, SIDE, 10);
    sl_data_options o = options(folder);
    o.normalize = SL_NORMALIZE_NONE;
    o.flip = true;
    o.crop = "2";
    REQUIRE_OK(sl_data_idx(&o, &d));
    make_fields(&b, PIXELS);
    for (uint64_t i = 0; i < EPOCHS * COUNT / ROWS; i++) {
        REQUIRE_OK(d->ops->fill(d, i, ROWS, b.fields, 2));
        for (int r = 0; r < ROWS; r++)
            for (int t = 0; t < PLACES; t++)
                for (int l = 0; l < PLACES; l++)
                    for (int m = 0; m < 2; m++) {
                        if (!is_moved(b.x + r * PIXELS, b.target[r], t - PADDING, l - PADDING, m)) continue;
                        seen[t][l][m]++;
                        found++;
                        mirrored += m;
                    }
    }
    CHECK_EQ(found, EPOCHS * COUNT); /* each is one of them */
    CHECK_NEAR(mirrored, EPOCHS * COUNT / 2, 60);
    for (int t = 0; t < PLACES; t++)
        for (int l = 0; l < PLACES; l++) CHECK_THAT(seen[t][l][0] + seen[t][l][1] > 5, "place %d, %d", t, l);
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_TRAIN, 0, ROWS, b.fields, 2, &valid));
    for (int r = 0; r < ROWS; r++) CHECK(is_moved(b.x + r * PIXELS, r, 0, 0, false));
    sluice_data_destroy(d);
}

TEST(what_is_drawn_follows_from_the_sample_and_the_epoch_alone)
{
    static drawn a, b;
    int same = 0;
    sluice_data *d, *e;
    const char *folder = test_tmpdir();
    write_digits(folder, "train", 10, SIDE, 10);
    sl_data_options o = options(folder);
    o.flip = true;
    o.crop = "3";
    REQUIRE_OK(sl_data_idx(&o, &d));
    REQUIRE_OK(sl_data_idx(&o, &e));
    make_fields(&a, PIXELS);
    make_fields(&b, PIXELS);
    for (uint64_t i = 9; i < 10; i--) { /* backwards, in pieces */
        REQUIRE_OK(d->ops->fill(d, i, ROWS, a.fields, 2));
        for (uint64_t r = 0; r < ROWS; r++) {
            REQUIRE_OK(e->ops->fill(e, i * ROWS + r, 1, b.fields, 2));
            CHECK(memcmp(b.x, a.x + r * PIXELS, PIXELS * sizeof *b.x) == 0);
            CHECK_EQ(b.target[0], a.target[r]);
        }
    }
    for (uint64_t i = 0; i < 40; i++) { /* another epoch is drawn anew */
        REQUIRE_OK(d->ops->fill(d, i, 1, a.fields, 2));
        for (uint64_t k = 40; k < 50; k++) {
            REQUIRE_OK(d->ops->fill(d, k, 1, b.fields, 2));
            same += a.target[0] == b.target[0] && memcmp(a.x, b.x, PIXELS * sizeof *b.x) == 0;
        }
    }
    CHECK(same < 10);
    sluice_data_destroy(d);
    sluice_data_destroy(e);
}

TEST(settings_that_mean_nothing_are_refused_by_name)
{
    sluice_data *d;
    const char *folder = test_tmpdir();
    write_digits(folder, "train", 10, SIDE, 10);
    sl_data_options o = options(folder);
    o.crop = "much";
    CHECK_EQ(sl_data_idx(&o, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.crop is \"much\"");
    o.crop = "6";
    CHECK_EQ(sl_data_idx(&o, &d), SLUICE_ERR_USAGE);
    o = options(folder);
    o.mean_count = 3;
    CHECK_EQ(sl_data_idx(&o, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.mean has 3 numbers");
    o = options(folder);
    o.classes = 5;
    CHECK_EQ(sl_data_idx(&o, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "train-labels-idx1-ubyte, byte 13: label 5 of image 5; data.classes is 5");
}

/* ---- folders ---- */

#if defined SLUICE_PNG && defined SLUICE_JPEG

/* An image of one colour, so that every part of it is that colour. */
static void write_colour(const char *folder, const char *name, int r, int g, int b, int width, int height)
{
    uint8_t pixels[64 * 64 * 3];
    for (int i = 0; i < width * height; i++)
        memcpy(pixels + 3 * i, (uint8_t[]){ (uint8_t)r, (uint8_t)g, (uint8_t)b }, 3);
    picture_bytes file = write_png(pixels, width, height, RGB, 8, false);
    write_picture(folder, name, file.data, file.bytes);
    free(file.data);
}

/* Three classes of four images; image k of class c has red 10 * k, green c. */
static const char *make_classes(const char *root)
{
    static const char *const classes[] = { "bee", "ant", "cow" };
    char name[32];
    for (int c = 0; c < 3; c++) {
        const char *folder = make_folder(root, classes[c]);
        for (int k = 0; k < 4; k++) {
            snprintf(name, sizeof name, "%d.PNG", k);
            write_colour(folder, name, 10 * k, c, 200, 20 + k, 31 - k);
        }
        write_picture(folder, ".hidden.png", "x", 1);
        write_picture(folder, "notes.txt", "x", 1);
    }
    return root;
}

static sl_data_options folder_options(const char *path)
{
    sl_data_options o = options(path);
    o.normalize = SL_NORMALIZE_NONE;
    o.image_size = 4;
    return o;
}

TEST(classes_are_folders_in_the_order_of_their_names_and_a_share_is_kept_of_each)
{
    static drawn b;
    int64_t valid;
    sluice_data *d;
    sl_data_options o = folder_options(make_classes(test_tmpdir()));
    o.validation = 0.25;
    REQUIRE_OK(sl_data_folder(&o, &d));
    CHECK_EQ(sl_data_classes(d), 3);
    CHECK_STR(sl_data_class_name(d, 0), "ant");
    CHECK_STR(sl_data_class_name(d, 1), "bee");
    CHECK_STR(sl_data_class_name(d, 2), "cow");
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 9);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 3);
    make_fields(&b, 48);
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_VALIDATION, 0, ROWS, b.fields, 2, &valid));
    CHECK_EQ(valid, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(b.target[i], i);
        CHECK_NEAR(b.x[48 * i] * 255, 30, 1e-3); /* the last file of the class */
        CHECK_NEAR(b.x[48 * i + 1] * 255, i == 0 ? 1 : i == 1 ? 0 : 2, 1e-3);
        CHECK_NEAR(b.x[48 * i + 2] * 255, 200, 1e-3);
    }
    sluice_data_destroy(d);
}

TEST(train_and_val_folders_are_the_parts_and_a_class_of_val_alone_is_refused)
{
    sluice_data *d;
    const char *root = test_tmpdir();
    make_classes(make_folder(root, "train"));
    const char *held = make_folder(root, "val");
    write_colour(make_folder(held, "cow"), "a.png", 1, 2, 3, 9, 9);
    sl_data_options o = folder_options(root);
    REQUIRE_OK(sl_data_folder(&o, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 12);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 1);
    sluice_data_destroy(d);
    write_colour(make_folder(held, "dog"), "a.png", 1, 2, 3, 9, 9);
    CHECK_EQ(sl_data_folder(&o, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "val/dog: a class that the images to train on do not have");
    make_folder(held, "empty");
}

/* The middle of an image whose halves differ, and parts of it at random. */
TEST(resized_parts_are_taken_from_all_over_the_image_in_training_only)
{
    static drawn b;
    uint8_t pixels[32 * 64 * 3];
    int64_t valid;
    double least = 1, most = 0;
    sluice_data *d;
    const char *root = test_tmpdir(), *folder = make_folder(root, "one");
    for (int i = 0; i < 32 * 64; i++) memset(pixels + 3 * i, i % 64 * 4, 3); /* darker to the left */
    picture_bytes file = write_png(pixels, 64, 32, RGB, 8, false);
    write_picture(folder, "a.png", file.data, file.bytes);
    free(file.data);
    make_folder(root, "two");
    write_colour(in(root, "two"), "b.png", 0, 0, 0, 8, 8);
    sl_data_options o = folder_options(root);
    o.crop = "resized";
    REQUIRE_OK(sl_data_folder(&o, &d));
    make_fields(&b, 48);
    for (uint64_t i = 0; i < 100; i++) {
        REQUIRE_OK(d->ops->fill(d, i, 2, b.fields, 2));
        for (int r = 0; r < 2; r++) {
            if (b.target[r] != 0) continue;
            double middle = (b.x[48 * r + 3 * 5] + b.x[48 * r + 3 * 6]) / 2;
            if (middle < least) least = middle;
            if (middle > most) most = middle;
        }
    }
    CHECK(least < 0.25 && most > 0.7);
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_TRAIN, 0, 1, b.fields, 2, &valid));
    CHECK_NEAR((b.x[3 * 5] + b.x[3 * 6]) / 2, 126.0 / 255, 0.01);
    /* 7/8 of 32 pixels in four columns: their middles are 7 pixels, or 28 steps of brightness, apart */
    CHECK_NEAR(b.x[3 * 6] - b.x[3 * 5], 28.0 / 255, 0.003);
    sluice_data_destroy(d);
}

TEST(a_bad_image_is_named_and_left_out_only_when_asked)
{
    static drawn b;
    char first[SL_MESSAGE_BYTES];
    int64_t valid;
    int seen[12] = { 0 };
    sluice_data *d;
    const char *root = make_classes(test_tmpdir());
    write_picture(in(root, "bee"), "1.PNG", "\x89PNG\r\n\x1a\n and no more", 20);
    sl_data_options o = folder_options(root);
    make_fields(&b, 48);
    REQUIRE_OK(sl_data_folder(&o, &d));
    CHECK_EQ(d->ops->fill_eval(d, SL_SPLIT_TRAIN, 4, 4, b.fields, 2, &valid), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "bee/1.PNG, before byte");
    CHECK_CONTAINS(sluice_error(), "data.skip_bad true leaves such images out");
    sluice_data_destroy(d);
    o.skip_bad = true;
    REQUIRE_OK(sl_data_folder(&o, &d));
    CHECK_EQ(d->ops->left_out(d, first), 0);
    for (uint64_t i = 0; i < 12; i++) {
        REQUIRE_OK(d->ops->fill(d, i, 1, b.fields, 2));
        seen[b.target[0] * 4 + (int)lrint(b.x[0] * 25.5)]++;
    }
    for (int i = 0; i < 12; i++) CHECK_EQ(seen[i], i == 5 ? 0 : i == 6 ? 2 : 1); /* the next takes its place */
    CHECK_EQ(d->ops->left_out(d, first), 1);
    CHECK_CONTAINS(first, "bee/1.PNG");
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_TRAIN, 4, 4, b.fields, 2, &valid));
    CHECK_EQ(b.target[0], 1);
    CHECK_EQ(b.target[1], -1);
    CHECK_EQ(b.target[2], 1);
    CHECK_EQ(d->ops->left_out(d, first), 1);
    sluice_data_destroy(d);
}

TEST(a_bad_image_among_ten_thousand_is_found_by_threads_and_named)
{
    enum { COUNT = 10000 };
    static float x[50 * 48];
    static int32_t target[50];
    sl_data_field fields[] = { { "x", SLUICE_F32, 48, x }, { "target", SLUICE_I32, 1, target } };
    char from[8300], to[8300];
    sluice_data *inner, *d;
    int failed = 0;
    const char *root = test_tmpdir(), *folder = make_folder(root, "all");
    write_colour(folder, "00000.png", 9, 9, 9, 4, 4);
    snprintf(from, sizeof from, "%s/00000.png", folder);
    for (int i = 1; i < COUNT; i++) {
        snprintf(to, sizeof to, "%s/%05d.png", folder, i);
        if (i != 6543 && link(from, to) != 0) exit(99);
    }
    write_picture(folder, "06543.png", "\xff\xd8\xff\xe0 no picture", 15);
    write_colour(make_folder(root, "other"), "a.png", 1, 1, 1, 4, 4);
    sl_data_options o = folder_options(root);
    REQUIRE_OK(sl_data_folder(&o, &inner));
    const sl_ahead_options ahead = { .workers = 3, .stride = 1, .rows = 50, .fields = fields, .field_count = 2 };
    REQUIRE_OK(sl_data_ahead(inner, &ahead, &d));
    for (uint64_t i = 0; i < COUNT / 50; i++) {
        if (d->ops->fill(d, i, 50, fields, 2) == SLUICE_OK) continue;
        failed++;
        CHECK_CONTAINS(sluice_error(), "all/06543.png, before byte");
    }
    CHECK_EQ(failed, 1);
    sluice_data_destroy(d);
}

#else

TEST(a_folder_of_images_is_listed_without_the_libraries_and_says_what_is_missing_when_read)
{
    static drawn b;
    sluice_data *d;
    const char *root = test_tmpdir();
    write_picture(make_folder(root, "a"), "x.png", "\x89PNG\r\n\x1a\n", 8);
    write_picture(in(root, "a"), "x.jpg", "\xff\xd8\xff", 3);
    sl_data_options o = options(root);
    o.image_size = 4;
    REQUIRE_OK(sl_data_folder(&o, &d));
    make_fields(&b, 48);
    CHECK_EQ(d->ops->fill(d, 0, 2, b.fields, 2), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "this sluice was built without lib");
    sluice_data_destroy(d);
}

#endif
