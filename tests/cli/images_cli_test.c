/* images_cli_test.c: training on images: one hash on ranks, threads and after an interruption; bad files end with status 4, the file
 * and the byte, and checkpoints stay what they were. */
#include <limits.h>
#include <sys/stat.h>

#include "support/picture_writer.h"
#include "support/run.h"
#include "test.h"

enum { SIDE = 8, RGB = 2 };

#define CONFIG(type_, more_)                                                                                           \
    "{\"model\": {\"type\": \"mlp\", \"hidden\": [16]}, \"data\": {\"type\": \"" type_ "\", \"path\": \"good\", "      \
    "\"validation\": 0.25" more_ "}, \"steps\": 6, \"threads\": 1, \"train_batch_size\": 8, "                          \
    "\"train_micro_batch_size_per_gpu\": 2, \"evaluate\": {\"every\": 3}, \"optimizer\": {\"type\": \"Adam\", "        \
    "\"params\": {\"lr\": 0.01}}}"

static char root[4096];

static const char *make_folder(const char *name)
{
    static char path[4400];
    snprintf(path, sizeof path, "%s/%s", root, name);
    if (mkdir(path, 0777) != 0) exit(99);
    return path;
}

static const char *folder_of(const char *name)
{
    static char path[4400];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static void begin(void)
{
    snprintf(root, sizeof root, "%s", test_tmpdir());
}

static void run_ok(const char *arguments)
{
    run_must(root, arguments);
}

TEST(images_give_one_hash_with_any_threads_ranks_and_stages_and_after_a_resume)
{
    static const char *const others[] = { "--set data.threads=1", "--set data.threads=4",
                                          "--set data.threads=2 --ranks 2", "--ranks 4 --set zero_optimization.stage=3",
                                          "--set zero_optimization.offload_optimizer.device=cpu --set data.threads=3" };
    char one[RUN_HASHES], other[RUN_HASHES];
    begin();
    write_digits(make_folder("good"), "train", 50, SIDE, 10);
    run_write(root, "config.json", CONFIG("idx", ", \"flip\": true, \"crop\": 2"));
    run_hashes(root, "--set data.threads=0", one);
    CHECK(strlen(one) > 100);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        run_hashes(root, others[i], other);
        CHECK_STR(other, one);
    }
    run_ok("train config.json --quiet --set steps=4 --set checkpoint.path=c --set data.threads=2 --ranks 2");
    run_hashes(root, "--set checkpoint.path=c --resume", other);
    CHECK_STR(other, one);
    run_hashes(root, "--set data.flip=false", other);
    CHECK(strcmp(other, one) != 0);
}

TEST(a_model_has_features_and_outputs_from_its_images_and_other_numbers_are_refused)
{
    begin();
    write_digits(make_folder("good"), "train", 40, SIDE, 10);
    run_write(root, "config.json", CONFIG("idx", ""));
    run_ok("train config.json --quiet --set model.features=64 --set model.outputs=10");
    run_result r = run_sluice(root, "train config.json --quiet --set model.features=63");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "model.features is 63, and the data has 64 numbers in a sample");
    run_free(&r);
    r = run_sluice(root, "train config.json --quiet --set model.outputs=9");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "model.outputs is 9, and the data has 10 classes");
    run_free(&r);
    r = run_sluice(root, "train config.json --quiet --set model.loss=mse");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "classes of images need cross_entropy");
    run_free(&r);
    r = run_sluice(root, "train config.json --set data.mean=[0.5] --set data.std=[0.25]");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.error,
                   "data: 30 images to train on and 10 to validate, 10 classes, 8 x 8 x 1; pixels of 0 to 1 less "
                   "[0.5], divided by [0.25]");
    CHECK_CONTAINS(r.out, "waiting for data");
    run_free(&r);
    r = run_sluice(root, "plan config.json --json --set data.threads=2");
    CHECK_EQ(r.status, 0);
    run_free(&r);
}

/* ---- bad files ---- */

static void put_big_endian(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint32_t crc_of(const uint8_t *p, size_t n)
{
    uint32_t c = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xedb88320 : c >> 1;
    }
    return ~c;
}

/* A change to a good file: bytes at a place (from the end where it is negative), then cut or extended to a length. */
typedef struct change {
    long at;
    const char *bytes;
    int count;
    long length; /* of the file afterwards; 0: as it was, negative: less */
    const char *says;
    const char *file; /* another than the first of the kind */
} change;

/* The bytes of a file of root/good, changed, as the same file of root/bad, which is otherwise a copy. */
static void write_changed(const change *c, const char *name, bool fix_header)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/good/%s", root, name);
    FILE *f = fopen(path, "rb");
    if (f == NULL) exit(99);
    uint8_t *file = calloc(1, 1 << 16);
    size_t bytes = fread(file, 1, 1 << 15, f);
    fclose(f);
    if (c->count > 0) memcpy(file + (c->at < 0 ? (long)bytes + c->at : c->at), c->bytes, (size_t)c->count);
    if (fix_header) put_big_endian(file + 29, crc_of(file + 12, 17));
    if (c->length > 0) bytes = (size_t)c->length;
    if (c->length < 0) bytes = (size_t)((long)bytes + c->length);
    write_picture(folder_of("bad"), name, file, bytes);
    free(file);
}

/* Training on root/bad, from a checkpoint on: status 4, the file, what is said. */
static void check_bad(const change *c, const char *name, const char *more)
{
    char line[512];
    snprintf(line, sizeof line, "train config.json --quiet --set data.path=bad --set checkpoint.path=run --resume %s",
             more);
    run_refused(root, line, c->says, name);
}

/* What was saved before is whole, and goes on to the bits of a run that was never disturbed. */
static void check_unharmed(const char *hash)
{
    char after[RUN_HASHES];
    run_ok("verify run");
    run_hashes(root, "--set checkpoint.path=run --resume", after);
    CHECK_STR(after, hash);
}

static void save_first_steps(char hash[RUN_HASHES])
{
    run_hashes(root, "", hash);
    run_ok("train config.json --quiet --set steps=2 --set checkpoint.path=run");
}

#define IMAGES "train-images-idx3-ubyte"
#define LABELS "train-labels-idx1-ubyte"

TEST(bad_idx_files_end_with_status_4_and_their_byte_and_nothing_is_lost)
{
    static const change changes[] = {
        { 0, "", 0, -2576, "it ends at byte 0", IMAGES },
        { 0, "", 0, 3, "it ends at byte 3", IMAGES },
        { 0, "\x01", 1, 0, "byte 0: 0x01; an IDX file begins with two zero bytes", IMAGES },
        { 1, "\xff", 1, 0, "byte 1: 0xff", IMAGES },
        { 2, "\x0d", 1, 0, "byte 2: type 0x0d, floats", IMAGES },
        { 2, "\x00", 1, 0, "byte 2: type 0x00", IMAGES },
        { 3, "\x00", 1, 0, "byte 3: 0 dimensions", IMAGES },
        { 3, "\x05", 1, 0, "byte 3: 5 dimensions", IMAGES },
        { 3, "\x02", 1, 0, "its header says", IMAGES },
        { 0, "", 0, 10, "it ends at byte 10, inside the header, which has 16", IMAGES },
        { 8, "\0\0\0\0", 4, 0, "byte 8: dimension 2 is 0", IMAGES },
        { 12, "\xff\xff\xff\xff", 4, 0, "byte 12: dimension 3 is 4294967295", IMAGES },
        { 4, "\x7f\xff\xff\xff\x7f\xff\xff\xff", 8, 0, "byte 8: the dimensions are those of more than", IMAGES },
        { 0, "", 0, -1, "2576 bytes with the header, and it ends too early", IMAGES },
        { 0, "", 0, 2577, "and it has more", IMAGES },
        { 7, "\x29", 1, 0, "ends too early", IMAGES },
        { 0, "\x1f\x8b\x08\x00", 4, 0, IMAGES ": not a whole gzip file", IMAGES },
        { 7, "\x27", 1, 47, "has 39 labels", LABELS },
        { 3, "\x03\0\0\0\x02\0\0\0\x04\0\0\0\x05", 13, 56, "byte 3: 3 dimensions; labels have one", LABELS },
        { -1, "\x0b", 1, 0, "byte 47: label 11 of image 39; data.classes is 10", LABELS },
    };
    char hash[RUN_HASHES];
    begin();
    make_folder("bad");
    write_digits(make_folder("good"), "train", 40, SIDE, 10);
    run_write(root, "config.json", CONFIG("idx", ", \"classes\": 10"));
    save_first_steps(hash);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        const change same = { .says = "" };
        bool labels = strcmp(changes[i].file, LABELS) == 0;
        write_changed(labels ? &same : &changes[i], IMAGES, false);
        write_changed(labels ? &changes[i] : &same, LABELS, false);
        check_bad(&changes[i], changes[i].file, "");
    }
    check_unharmed(hash);
}

TEST(bad_cifar_files_end_with_status_4_and_their_byte_and_nothing_is_lost)
{
    static const change changes[] = {
        { 0, "", 0, -18438, "data_batch_1.bin is empty", "data_batch_1.bin" },
        { 0, "", 0, 1, "the last one begins at byte 0", NULL },
        { 0, "", 0, -1, "the last one begins at byte 15365", NULL },
        { 0, "", 0, 18439, "the last one begins at byte 18438", NULL },
        { 0, "", 0, 3072, "the last one begins at byte 0", NULL },
        { 0, "", 0, 3074, "the last one begins at byte 3073", NULL },
        { 0, "", 0, 10000, "the last one begins at byte 9219", NULL },
        { 0, "\x0a", 1, 0, "byte 0: label 10; CIFAR-10 has 0 to 9", NULL },
        { 0, "\xff", 1, 0, "byte 0: label 255", NULL },
        { 3073, "\x10", 1, 0, "byte 3073: label 16", NULL },
        { 15365, "\x0a", 1, 0, "byte 15365: label 10", NULL },
        { 0, "\x1f\x8b", 2, 500, "500 bytes are not whole records of CIFAR-10, which have 3073", NULL },
        { 0, "", 0, -1, "the last one begins at byte 15365", "data_batch_2.bin" },
        { 6146, "\x20", 1, 0, "byte 6146: label 32", "data_batch_2.bin" },
        { 3073, "\x0b", 1, 0, "byte 3073: label 11", "data_batch_2.bin" },
    };
    char hash[RUN_HASHES];
    const change same = { .says = "" };
    begin();
    make_folder("bad");
    make_folder("good");
    write_cifar(folder_of("good"), "data_batch_1.bin", 6, 0, 1);
    write_cifar(folder_of("good"), "data_batch_2.bin", 6, 6, 1);
    run_write(root, "config.json", CONFIG("cifar10", ""));
    save_first_steps(hash);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        bool second = changes[i].file != NULL && strcmp(changes[i].file, "data_batch_2.bin") == 0;
        write_changed(second ? &same : &changes[i], "data_batch_1.bin", false);
        write_changed(second ? &changes[i] : &same, "data_batch_2.bin", false);
        check_bad(&changes[i], second ? "data_batch_2.bin" : "data_batch_1.bin", "");
    }
    check_unharmed(hash);
    run_result r =
        run_sluice(root, "train config.json --quiet --set data.path=good/data_batch_1.bin --set data.type=cifar100");
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, "not whole records of CIFAR-100, which have 3074");
    run_free(&r);
    make_folder("none");
    r = run_sluice(root, "train config.json --quiet --set data.path=none");
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, "none: data_batch_1.bin is not there, which the binary version of CIFAR-10 has");
    run_free(&r);
}

#if defined SLUICE_PNG && defined SLUICE_JPEG

/* Two classes with six pictures each, of which good/a/0 is the one that is changed. */
static void make_pictures(bool jpeg, const char *first)
{
    uint8_t pixels[20 * 20 * 3];
    char name[32];
    make_folder("good");
    make_folder("good/a");
    make_folder("good/b");
    make_folder("bad");
    make_folder("bad/a");
    make_folder("bad/b");
    for (int i = 0; i < 12; i++) {
        paint(pixels, 20, 20, 3, i);
        picture_bytes file = jpeg ? write_jpeg(pixels, 20, 20, 3, false) : write_png(pixels, 20, 20, RGB, 8, false);
        snprintf(name, sizeof name, "%s/%d.%s", i < 6 ? "a" : "b", i % 6, jpeg ? "jpg" : "png");
        if (i == 0) snprintf(name, sizeof name, "%s", first);
        write_picture(folder_of("good"), name, file.data, file.bytes);
        write_picture(folder_of("bad"), name, file.data, file.bytes);
        free(file.data);
    }
    run_write(root, "config.json", CONFIG("images", ", \"image_size\": 8"));
}

TEST(bad_png_files_end_with_status_4_and_their_byte_and_nothing_is_lost)
{
    static const struct {
        change c;
        bool header; /* a change of the header, whose checksum is then right */
    } changes[] = {
        { { 0, "", 0, 1, "damaged PNG file: the file ends too early", NULL }, false },
        { { 0, "", 0, 8, "before byte 8: damaged PNG file", NULL }, false },
        { { 0, "", 0, 20, "before byte 20: damaged PNG file", NULL }, false },
        { { 4, "\n", 1, 0, "neither a PNG nor a JPEG file", NULL }, false },
        { { 29, "\0\0\0\0", 4, 0, "before byte 33: damaged PNG file: IHDR: CRC error", NULL }, false },
        { { 16, "\0\0\0\0", 4, 0, "damaged PNG file", NULL }, true },
        { { 16, "\0\0\x40\0\0\0\x40\0", 8, 0, "cannot hold the 16384 x 16384 pixels of its header", NULL }, true },
        { { 16, "\x7f\xff\xff\xff", 4, 0, "damaged PNG file", NULL }, true },
        { { 24, "\x07", 1, 0, "damaged PNG file", NULL }, true },                     /* bit depth */
        { { 25, "\x05", 1, 0, "damaged PNG file", NULL }, true },                     /* colour type */
        { { 25, "\x03", 1, 0, "damaged PNG file: IDAT: Missing PLTE", NULL }, true }, /* a palette that is not there */
        { { 26, "\x09", 1, 0, "damaged PNG file", NULL }, true },                     /* compression */
        { { 28, "\x02", 1, 0, "damaged PNG file", NULL }, true },                     /* interlacing */
        { { 20, "\0\0\0\x40", 4, 0, "damaged PNG file", NULL }, true },               /* more rows than there are */
        { { 45, "\x55\x55\x55\x55\x55\x55", 6, 0, "damaged PNG file: IDAT", NULL }, false },
        { { -16, "\0\0\0\0", 4, 0, "damaged PNG file", NULL }, false },                  /* checksum of the pixels */
        { { 0, "", 0, -12, "damaged PNG file: the file ends too early", NULL }, false }, /* without its end */
        { { 37, "jDAT", 4, 0, "damaged PNG file", NULL }, false },
        { { 0, "GIF89a", 6, 0, "but a GIF picture", NULL }, false },
    };
    char hash[RUN_HASHES];
    begin();
    make_pictures(false, "a/0.png");
    save_first_steps(hash);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        write_changed(&changes[i].c, "a/0.png", changes[i].header);
        check_bad(&changes[i].c, "bad/a/0.png", i % 2 ? "--set data.threads=0" : "--set data.threads=3");
    }
    check_unharmed(hash);
}

/* Where a marker begins in good/a/0.jpg. */
static long marker_at(int marker)
{
    FILE *f = fopen(folder_of("good/a/0.jpg"), "rb");
    int before = 0, c;
    long at = 0;
    for (; f != NULL && (c = fgetc(f)) != EOF; at++, before = c)
        if (before == 0xff && c == marker) break;
    if (f == NULL || feof(f)) exit(99);
    fclose(f);
    return at - 1;
}

TEST(bad_jpeg_files_end_with_status_4_and_their_byte_and_nothing_is_lost)
{
    char hash[RUN_HASHES];
    begin();
    make_pictures(true, "a/0.jpg");
    save_first_steps(hash);
    long sof = marker_at(0xc0), dqt = marker_at(0xdb), dht = marker_at(0xc4), sos = marker_at(0xda);
    const change changes[] = {
        { 0, "", 0, 2, "damaged JPEG file", NULL },
        { 0, "", 0, 11, "damaged JPEG file", NULL },
        { 0, "", 0, sof + 6, "damaged JPEG file", NULL },
        { 0, "", 0, sos + 4, "damaged JPEG file", NULL },
        { 0, "", 0, sos + 60, "damaged JPEG file: Premature end", NULL },
        { 0, "", 0, -2, "damaged JPEG file: Premature end", NULL },
        { sof + 5, "\0\0", 2, 0, "damaged JPEG file", NULL },
        { sof + 7, "\0\0", 2, 0, "damaged JPEG file: Empty JPEG image", NULL },
        { sof + 5, "\x20\0\x20\0", 4, 0, "cannot hold the 8192 x 8192 pixels of its header", NULL },
        { sof + 4, "\x0c", 1, 0, "damaged JPEG file: Unsupported JPEG data precision 12", NULL },
        { sof + 1, "\xc3", 1, 0, "damaged JPEG file: Unsupported JPEG process", NULL },
        { sof + 1, "\xc9", 1, 0, "JPEG with arithmetic coding", NULL },
        { sof + 2, "\0\x05", 2, 0, "damaged JPEG file", NULL },
        { dqt + 2, "\0\x01", 2, 0, "damaged JPEG file", NULL },
        { dqt + 1, "\xee", 1, 0, "damaged JPEG file", NULL }, /* a table less */
        { dht + 5, "\xff\xff", 2, 0, "damaged JPEG file: Bogus Huffman table", NULL },
        { sos + 4, "\x07", 1, 0, "damaged JPEG file", NULL }, /* components of a scan */
        { sos + 20, "\xff\xd9", 2, 0, "damaged JPEG file", NULL },
        { 2, "\xff\xd8", 2, 0, "damaged JPEG file: Invalid JPEG file structure: two SOI markers", NULL },
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        write_changed(&changes[i], "a/0.jpg", false);
        check_bad(&changes[i], "bad/a/0.jpg", i % 2 ? "--set data.threads=0" : "--set data.threads=3");
    }
    check_unharmed(hash);
}

TEST(evaluation_and_predictions_name_classes_as_their_folders_are_called)
{
    char path[4400];
    begin();
    make_pictures(false, "a/0.png");
    run_ok("train config.json --quiet --set data.path=good --set save=m.safetensors --set data.validation=0.4");
    run_result r = run_sluice(root, "eval config.json --set data.path=good --weights m.safetensors --predictions p.csv "
                                    "--set data.validation=0.4");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "\n  0 a ");
    CHECK_CONTAINS(r.out, "\n  1 b ");
    run_free(&r);
    r = run_sluice(root,
                   "eval config.json --json --set data.path=good --weights m.safetensors --set data.validation=0.4");
    CHECK_CONTAINS(r.out, "{\"class\":1,\"name\":\"b\",");
    run_free(&r);
    snprintf(path, sizeof path, "%s/p.csv", root);
    char *text = run_read(path);
    CHECK_CONTAINS(text, "index,target,predicted,probability,target_name,predicted_name\n0,");
    CHECK(strstr(text, ",a\n") != NULL || strstr(text, ",b\n") != NULL);
    free(text);
}

TEST(bad_images_are_left_out_when_asked_counted_and_said)
{
    char hash[RUN_HASHES], other[RUN_HASHES];
    const change cut = { 0, "", 0, 40, "", NULL };
    begin();
    make_pictures(false, "a/0.png");
    write_changed(&cut, "a/0.png", false);
    write_changed(&cut, "b/3.png", false);
    run_result r = run_sluice(root, "train config.json --set data.path=bad --set data.skip_bad=true");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.error, "2 bad images are left out");
    CHECK_CONTAINS(r.error, ".png, before byte 40: damaged PNG file");
    run_free(&r);
    run_hashes(root, "--set data.path=bad --set data.skip_bad=true --set data.threads=0", hash);
    run_hashes(root, "--set data.path=bad --set data.skip_bad=true --set data.threads=4", other);
    CHECK_STR(other, hash);
    run_hashes(root, "--set data.path=bad --set data.skip_bad=true --ranks 2 --set data.threads=2", other);
    CHECK_STR(other, hash);
    write_picture(folder_of("bad/a"), "notes.txt", "x", 1);
    r = run_sluice(root, "train config.json --set data.path=bad --set data.skip_bad=true");
    CHECK_CONTAINS(r.error, "1 files that end in neither .png nor .jpg or .jpeg are ignored");
    run_free(&r);
}

#endif

/* ---- the example ---- */

TEST(the_example_of_the_digits_learns_them)
{
    const char *images = test_data("mnist/t10k-images-idx3-ubyte.gz");
    char line[9000], folder[PATH_MAX];
    if (images == NULL) SKIP(mnist, "no MNIST here");
    REQUIRE(realpath(images, folder) != NULL); /* the program runs elsewhere */
    *strrchr(folder, '/') = '\0';
    begin();
    snprintf(line, sizeof line,
             "train " SLUICE_SOURCE_DIR "/examples/mnist-mlp.json --json --set epochs=4 --set data.path=%s", folder);
    run_result r = run_sluice(root, line);
    CHECK_THAT(r.status == 0, "status %d: %s", r.status, r.error);
    double accuracy = 0;
    for (const char *at = r.out; (at = strstr(at, "\"accuracy\":")) != NULL; at++) accuracy = atof(at + 11);
    CHECK_THAT(accuracy >= 0.94, "accuracy %g", accuracy);
    run_free(&r);
}

/* ---- fetching ---- */

/* What the script says, and its exit status at the end. */
static void get_data(const char *arguments, char out[4096])
{
    char command[9000];
    snprintf(command, sizeof command, "'%s/scripts/get-data' %s 2>&1; echo status $?", SLUICE_SOURCE_DIR, arguments);
    FILE *pipe = popen(command, "r");
    size_t bytes = pipe != NULL ? fread(out, 1, 4095, pipe) : 0;
    out[bytes] = '\0';
    if (pipe != NULL) pclose(pipe);
}

/* Nothing of this needs a network. */
TEST(the_script_that_fetches_data_tells_wrong_files_and_wrong_arguments)
{
    char said[4096], arguments[4400];
    begin();
    make_folder("shakespeare");
    write_picture(root, "shakespeare/input.txt", "no play", 7);
    snprintf(arguments, sizeof arguments, "--into '%s' shakespeare", root);
    get_data(arguments, said);
    CHECK_CONTAINS(said, "shakespeare/input.txt: WRONG");
    CHECK_CONTAINS(said, "status 1");
    char *kept = run_read(folder_of("shakespeare/input.txt"));
    CHECK_STR(kept, "no play");
    free(kept);
    snprintf(arguments, sizeof arguments, "--check --into '%s' mnist", root);
    get_data(arguments, said);
    CHECK_CONTAINS(said, "4 files are missing");
    CHECK_CONTAINS(said, "status 1");
    get_data("digits", said);
    CHECK_CONTAINS(said, "\"digits\" is none of mnist");
    get_data("", said);
    CHECK_CONTAINS(said, "status 2");
}
