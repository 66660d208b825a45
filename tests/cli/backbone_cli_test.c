/* backbone_cli_test.c: a network that was trained before, frozen, under a new head for other classes: a ResNet and a BERT. What is frozen keeps
 * its bytes, running statistics among it, and the head learns. */
#include <sys/stat.h>

#include "support/run.h"
#include "test.h"

#define TOKENIZER SLUICE_SOURCE_DIR "/tests/fixtures/tokenizers/bert-uncased.json"

#define PICTURES                                                                                                       \
    "{\"model\": {\"type\": \"resnet\", \"depth\": 18, \"stem\": \"cifar\"}, \"data\": {\"type\": "                    \
    "\"random_images\", \"samples\": 16, \"image_size\": 8, \"channels\": 3, \"outputs\": 4}, \"steps\": 2, "          \
    "\"threads\": 1, \"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 2, "                                 \
    "\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.05}}, \"save\": \"base.safetensors\"}"

#define SENTENCES                                                                                                      \
    "{\"model\": {\"type\": \"bert\", \"head\": \"classifier\", \"layers\": 2, \"heads\": 2, \"width\": 16, "          \
    "\"feed_forward\": 32, \"context\": 12, \"dropout\": 0.1}, \"data\": {\"type\": \"glue\", \"path\": \"two.tsv\", " \
    "\"tokenizer\": \"" TOKENIZER "\"}, \"steps\": 4, \"threads\": 1, \"train_batch_size\": 8, "                       \
    "\"train_micro_batch_size_per_gpu\": 2, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "        \
    "\"save\": \"base.safetensors\"}"

static char root[4000];

/* ---- weights files ---- */

typedef struct weights {
    uint8_t *file; /* owned */
    const char *header;
    size_t header_bytes;
} weights;

static weights read_weights(const char *name)
{
    char path[4200];
    struct stat info;
    weights w = { NULL, NULL, 0 };
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "rb");
    if (f == NULL || stat(path, &info) != 0 || (w.file = calloc(1, (size_t)info.st_size + 1)) == NULL) exit(99);
    if (fread(w.file, 1, (size_t)info.st_size, f) != (size_t)info.st_size) exit(99);
    fclose(f);
    memcpy(&w.header_bytes, w.file, 8);
    w.header = (const char *)w.file + 8;
    return w;
}

/* The bytes of the tensor that `at` of the header names, and its name. */
static const uint8_t *tensor_at(const weights *w, const char *at, char name[128], size_t *bytes)
{
    size_t from, to;
    const char *offsets = strstr(at, "\"data_offsets\":[");
    if (offsets == NULL || sscanf(offsets, "\"data_offsets\":[%zu,%zu]", &from, &to) != 2) exit(99);
    snprintf(name, 128, "%.*s", (int)strcspn(at + 1, "\""), at + 1);
    *bytes = to - from;
    return w->file + 8 + w->header_bytes + from;
}

static const char *find_tensor(const weights *w, const char *name)
{
    char quoted[140];
    snprintf(quoted, sizeof quoted, "\"%s\":{", name);
    return strstr(w->header, quoted);
}

/* Compares all tensors of two files but those whose names begin with `head`; returns how many there are. */
static int compare_backbones(const char *first, const char *second, const char *head)
{
    weights a = read_weights(first), b = read_weights(second);
    int compared = 0;
    for (const char *at = strstr(a.header, "\":{\"dtype\""); at != NULL; at = strstr(at + 1, "\":{\"dtype\"")) {
        char name[128], again[128];
        size_t bytes, others;
        const char *begin = at;
        while (begin[-1] != '"') begin--;
        const uint8_t *mine = tensor_at(&a, begin - 1, name, &bytes);
        if (strncmp(name, head, strlen(head)) == 0) continue;
        const char *there = find_tensor(&b, name);
        CHECK_THAT(there != NULL, "%s is not in %s", name, second);
        if (there == NULL) continue;
        const uint8_t *theirs = tensor_at(&b, there, again, &others);
        CHECK_THAT(bytes == others && memcmp(mine, theirs, bytes) == 0, "%s has changed", name);
        compared++;
    }
    free(a.file);
    free(b.file);
    return compared;
}

/* ---- runs ---- */

/* Trained with `more` settings, in several ways that give the same bits. */
static void check_ways(const char *more)
{
    static const char *const ways[] = { "", "--ranks 2 --set zero_optimization.stage=3",
                                        "--set activation_checkpointing.mode=recompute" };
    char line[700], hash[3][RUN_HASHES];
    for (int i = 0; i < 3; i++) {
        snprintf(line, sizeof line, "%s %s --set save=new-%d.safetensors", more, ways[i], i);
        run_hashes(root, line, hash[i]);
        CHECK_STR(hash[i], hash[0]);
    }
}

TEST(a_frozen_resnet_under_a_new_head_keeps_its_weights_and_statistics)
{
    const char *more =
        "--set load=base.safetensors --set data.outputs=3 --set 'freeze=[\"conv1.*\",\"bn1.*\",\"layer*\"]' "
        "--set 'new_parameters=[\"fc.*\"]'";
    char name[128];
    size_t bytes;
    snprintf(root, sizeof root, "%s", test_tmpdir());
    run_write(root, "config.json", PICTURES);
    run_must(root, "train config.json --quiet");
    check_ways(more);
    /* 20 convolutions, 20 batch norms of five tensors each */
    CHECK_EQ(compare_backbones("base.safetensors", "new-0.safetensors", "fc."), 20 + 20 * 5);
    weights w = read_weights("new-1.safetensors");
    REQUIRE(find_tensor(&w, "fc.weight") != NULL);
    tensor_at(&w, find_tensor(&w, "fc.weight"), name, &bytes);
    CHECK_EQ(bytes, 3 * 512 * sizeof(float));
    free(w.file);
    /* what is not frozen learns, statistics among it */
    run_must(root,
             "train config.json --quiet --set load=base.safetensors --set data.outputs=3 --set save=free.safetensors "
             "--set 'new_parameters=[\"fc.*\"]'");
    weights a = read_weights("base.safetensors"), b = read_weights("free.safetensors");
    const uint8_t *before = tensor_at(&a, find_tensor(&a, "layer4.1.bn2.running_mean"), name, &bytes);
    CHECK(memcmp(before, tensor_at(&b, find_tensor(&b, "layer4.1.bn2.running_mean"), name, &bytes), bytes) != 0);
    free(a.file);
    free(b.file);
}

/* The head begins with the first values of a run of this seed, and the frozen part gives the same whatever rows come together: single rows
 * and pairs of them differ by rounding alone. */
TEST(a_frozen_resnet_does_not_depend_on_the_rows_of_a_micro_batch)
{
    static const char *const sizes[] = { "1", "4" };
    double losses[2];
    snprintf(root, sizeof root, "%s", test_tmpdir());
    run_write(root, "config.json", PICTURES);
    run_must(root, "train config.json --quiet");
    for (int i = 0; i < 2; i++) {
        char line[600];
        snprintf(line, sizeof line,
                 "train config.json --json --set load=base.safetensors --set "
                 "'freeze=[\"conv1.*\",\"bn1.*\",\"layer*\"]' --set "
                 "train_micro_batch_size_per_gpu=%s --set save=m.safetensors",
                 sizes[i]);
        run_result r = run_sluice(root, line);
        const char *second = strstr(r.out, "\"event\":\"step\",\"step\":2,");
        const char *loss = second != NULL ? strstr(second, "\"loss\":") : NULL;
        CHECK_THAT(r.status == 0 && loss != NULL, "status %d: %s", r.status, r.error);
        losses[i] = loss != NULL ? atof(loss + 7) : -1;
        run_free(&r);
    }
    CHECK_NEAR(losses[0], losses[1], 1e-4);
}

static void write_sentences(const char *name, int classes)
{
    static char text[8000];
    size_t used = (size_t)sprintf(text, "sentence\tlabel\n");
    for (int i = 0; i < 60; i++) used += (size_t)sprintf(text + used, "the %d of %d\tc%d\n", i % 7, i % 5, i % classes);
    run_write(root, name, text);
}

TEST(a_frozen_bert_under_a_new_head_keeps_its_weights)
{
    const char *more = "--set load=base.safetensors --set data.path=three.tsv --set 'freeze=[\"bert.*\"]' --set "
                       "'new_parameters=[\"classifier.*\"]'";
    char name[128], line[600];
    size_t bytes;
    snprintf(root, sizeof root, "%s", test_tmpdir());
    run_write(root, "config.json", SENTENCES);
    write_sentences("two.tsv", 2);
    write_sentences("three.tsv", 3);
    run_must(root, "train config.json --quiet");
    check_ways(more);
    /* 3 tables and a norm; 16 tensors of a layer; the pooler */
    CHECK_EQ(compare_backbones("base.safetensors", "new-0.safetensors", "classifier."), 5 + 2 * 16 + 2);
    weights w = read_weights("new-0.safetensors");
    REQUIRE(find_tensor(&w, "classifier.weight") != NULL);
    tensor_at(&w, find_tensor(&w, "classifier.weight"), name, &bytes);
    CHECK_EQ(bytes, 3 * 16 * sizeof(float));
    free(w.file);
    /* without new_parameters the old head is refused by its shape */
    run_result r = run_sluice(
        root,
        "train config.json --quiet --set load=base.safetensors --set data.path=three.tsv --set save=other.safetensors");
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, "classifier.");
    run_free(&r);
    /* a pattern that names nothing is a mistake */
    snprintf(line, sizeof line,
             "train config.json --quiet %s --set save=other.safetensors --set 'new_parameters=[\"fc.*\"]'", more);
    r = run_sluice(root, line);
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "new_parameters: no parameter of this model is called like \"fc.*\"");
    run_free(&r);
}
