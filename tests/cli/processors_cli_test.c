/* processors_cli_test.c: images for a folder with a preprocessor_config.json become what transformers makes of them
 * (tests/referees/processors.py --record); what is typed wins, what cannot be done is refused, and what is saved says what was
 * done. */
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/plain_files.h"
#include "support/run.h"
#include "test.h"

#define FIXTURES SLUICE_SOURCE_DIR "/tests/fixtures/processors/"

/* The data of a kind, as settings of a configuration. */
static const char *data_of(const char *kind)
{
    if (strcmp(kind, "cifar10") == 0)
        return "\"path\": \"" FIXTURES "cifar.bin\", \"validation_path\": \"" FIXTURES "cifar.bin\"";
    if (strcmp(kind, "idx") == 0)
        return "\"path\": \"" FIXTURES "digits-idx3-ubyte.gz\", \"labels_path\": \"" FIXTURES
               "digits-idx1-ubyte.gz\", \"validation_path\": \"" FIXTURES
               "digits-idx3-ubyte.gz\", \"validation_labels_path\": \"" FIXTURES "digits-idx1-ubyte.gz\"";
    return "\"path\": \"" FIXTURES "pictures\", \"validation_path\": \"" FIXTURES "pictures\"";
}

/* root/vit: the recorded model with this preprocessor_config.json (NULL: none); root/config.json: a run of it that changes no
 * weight. */
static const char *prepare(const char *model, const char *kind, const char *processor)
{
    static char root[1024];
    char text[3000], from[1100], to[100];
    static const char *const files[] = { "config.json", "model.safetensors" };
    snprintf(root, sizeof root, "%.1000s", test_tmpdir());
    if (mkdir(at(root, "vit"), 0777) != 0) exit(99);
    for (size_t i = 0; i < 2; i++) {
        snprintf(from, sizeof from, FIXTURES "%s/%s", model, files[i]);
        snprintf(to, sizeof to, "vit/%s", files[i]);
        if (symlink(from, at(root, to)) != 0) exit(99);
    }
    if (processor != NULL) run_write(root, "vit/preprocessor_config.json", processor);
    snprintf(
        text, sizeof text,
        "{\"model\": {\"path\": \"vit\"}, \"data\": {\"type\": \"%s\", %s}, \"steps\": 1, \"train_batch_size\": 5, "
        "\"threads\": 1, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0}}}",
        kind, data_of(kind));
    run_write(root, "config.json", text);
    return root;
}

static double loss_of(const char *root, const char *arguments)
{
    run_result r = run_sluice(root, arguments);
    const char *loss = strstr(r.out, "\"loss\":");
    double found = NAN;
    if (r.status != 0 || loss == NULL || sscanf(loss, "\"loss\":%lf", &found) != 1)
        test_fail(__FILE__, __LINE__, "%s: %d: %s%s", arguments, r.status, r.out, r.error);
    run_free(&r);
    return found;
}

/* Whether this build reads the files of a kind. */
static bool can_read(const char *kind)
{
#ifndef SLUICE_PNG
    if (strcmp(kind, "images") == 0) return false;
#endif
#ifndef SLUICE_ZLIB
    if (strcmp(kind, "idx") == 0) return false;
#endif
    return kind[0] != '\0';
}

/* Losses agree with a recorded one: where images are resized, sums in another order differ a little more. */
static void check_case(const json_t *c)
{
    const char *name = json_string_value(json_object_get(c, "name"));
    double wanted = json_number_value(json_object_get(c, "loss"));
    double allowed = json_is_true(json_object_get(c, "resizes")) ? 1e-5 : 1e-6;
    char *processor = json_dumps(json_object_get(c, "processor"), JSON_INDENT(2));
    const char *root = prepare(json_string_value(json_object_get(c, "model")),
                               json_string_value(json_object_get(c, "data")), processor);
    double found = loss_of(root, "eval config.json --json --quiet");
    CHECK_THAT(fabs(found - wanted) < allowed * wanted, "%s: the loss is %.9g, not %.9g", name, found, wanted);
    run_must(root, "train config.json --quiet --set save=saved/");
    double again = loss_of(root, "eval config.json --json --quiet --set model.path=saved");
    CHECK_THAT(again == found, "%s: the loss of what was saved is %.9g, not %.9g", name, again, found);
    free(processor);
}

TEST(images_become_what_transformers_makes_of_them_by_the_folders_preprocessor_config)
{
    json_t *cases = json_load_file(FIXTURES "expected.json", 0, NULL);
    size_t i;
    const json_t *c;
    REQUIRE(json_array_size(cases) > 12);
    json_array_foreach(cases, i, c)
    {
        if (can_read(json_string_value(json_object_get(c, "data")))) check_case(c);
    }
    json_decref(cases);
}

#define ODD                                                                                                            \
    "{\"image_processor_type\": \"ViTImageProcessor\",\n \"size\": 32, \"image_mean\": [0.4, 0.5, 0.6], "              \
    "\"image_std\": "                                                                                                  \
    "[0.2, 0.25, 0.3]}"

TEST(what_is_typed_wins_over_the_folder_is_told_and_is_what_the_result_says)
{
    const char *root = prepare("rgb", "cifar10", ODD);
    const char *hand = "--set data.mean=[0.1,0.2,0.3]";
    char line[400];
    snprintf(line, sizeof line, "train config.json %s --set save=saved/", hand);
    run_result r = run_sluice(root, line);
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.error,
                   "data.mean is [0.1, 0.2, 0.3] as given, and vit/preprocessor_config.json says [0.4, 0.5, 0.6]");
    CHECK_CONTAINS(r.error, "chosen: data.std [0.2, 0.25, 0.3] (preprocessor_config.json of model.path)");
    run_free(&r);
    char *saved = run_read(at(root, "saved/preprocessor_config.json"));
    CHECK_CONTAINS(saved, "\"image_mean\": [0.1, 0.2, 0.3]");
    CHECK_CONTAINS(saved, "\"image_std\": [0.2, 0.25, 0.3]");
    free(saved);
    snprintf(line, sizeof line, "eval config.json --json --quiet %s", hand);
    double used = loss_of(root, line);
    CHECK(loss_of(root, "eval config.json --json --quiet --set model.path=saved") == used);
    CHECK(loss_of(root, "eval config.json --json --quiet") != used);
}

/* The folder's own file stays as it is, to the byte, where training did what it says. */
TEST(a_folder_whose_file_was_followed_keeps_it)
{
    const char *root = prepare("rgb", "cifar10", ODD);
    run_must(root, "train config.json --quiet --set save=saved/");
    char *saved = run_read(at(root, "saved/preprocessor_config.json"));
    CHECK_STR(saved, ODD);
    free(saved);
}

TEST(a_vit_from_nothing_says_what_its_images_became)
{
    const char *root = prepare("rgb", "cifar10", NULL);
    run_must(root, "train config.json --quiet --set save=saved/ --set model.path= --set model.type=vit --set "
                   "model.layers=1 --set model.heads=2 --set model.width=8 --set model.patch=8");
    char *saved = run_read(at(root, "saved/preprocessor_config.json"));
    CHECK_CONTAINS(saved, "\"image_mean\": [0.4914, 0.4822, 0.4465]");
    CHECK_CONTAINS(saved, "\"image_processor_type\": \"ViTImageProcessor\"");
    free(saved);
    CHECK(isfinite(loss_of(root, "eval config.json --json --quiet --set model.path=saved")));
}

/* What cannot be done is refused, with file, line and key; typed settings make up for some of it. */
TEST(what_a_processor_asks_for_and_is_not_built_in_is_refused)
{
    static const struct {
        const char *processor, *says, *instead;
    } cases[] = {
        { "{\n\"image_processor_type\": \"ConvNextImageProcessor\"}",
          "vit/preprocessor_config.json:2: image_processor_type: \"ConvNextImageProcessor\" is not built in",
          "--set data.mean=[0.5] --set data.std=[0.5] --set data.image_size=32 --set data.resize=stretch --set "
          "data.resample=bilinear" },
        { "{\"size\": 32,\n\n\"resample\": 0}", "vit/preprocessor_config.json:3: resample: 0 is not built in",
          "--set data.resample=bilinear" },
        { "{\"size\": {\"height\": 32, \"width\": 48}}",
          "preprocessor_config.json:1: size: {\"height\":32,\"width\":48}",
          "--set data.image_size=32 --set data.resize=stretch" },
        { "{\"size\": {\"longest_edge\": 32}}", "preprocessor_config.json:1: size: {\"longest_edge\":32}", NULL },
        { "{\"size\": 32, \"do_pad\": true}", "preprocessor_config.json:1: do_pad: true is not built in", NULL },
        { "{\"size\": 32, \"do_resize\": false, \"do_center_crop\": true}", "do_center_crop: true is not built in",
          NULL },
        { "{\"size\": 32, \"do_center_crop\": true, \"crop_size\": 40}", "crop_size: 40 is not at most", NULL },
        { "{\"size\": 32, \"image_mean\": \"half\"}", "image_mean: \"half\" is not a number for each channel",
          "--set data.normalize=none" },
        { "{\"size\": 32, \"image_std\": [0.2, 0, 0.2]}", "image_std: [0.2,0,0.2] is not a positive number", NULL },
        { "{\"size\": 32, \"image_mean\": [0.5, 0.5]}",
          "image_mean has 2 numbers, and config.json says that images have 3", NULL },
        { "{\"size\": 32, \"do_normalize\": 1}", "do_normalize: 1 is not true or false", NULL },
        { "{\"size\": 32, ", "preprocessor_config.json: line 1", NULL },
        { "[32]", "preprocessor_config.json is no JSON object", NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *root = prepare("rgb", "cifar10", cases[i].processor);
        char line[400];
        run_refused(root, "eval config.json --quiet", cases[i].says, "vit/preprocessor_config.json");
        if (cases[i].instead == NULL) continue;
        snprintf(line, sizeof line, "eval config.json --quiet %s", cases[i].instead);
        run_must(root, line);
    }
}

TEST(keys_of_a_processor_without_effect_here_are_told_even_when_quiet)
{
    const char *root = prepare("rgb", "cifar10", "{\"size\": 32, \"crop_pct\": 0.9, \"return_tensors\": \"pt\"}");
    run_result r = run_sluice(root, "eval config.json --quiet");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.error, "preprocessor_config.json:1: \"crop_pct\" is not known and has no effect");
    CHECK(strstr(r.error, "return_tensors") == NULL);
    run_free(&r);
}
