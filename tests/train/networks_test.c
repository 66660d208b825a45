/* networks_test.c: networks of images, sentences and clicks give the logits, the losses and the running statistics that
 * torchvision, transformers and PyTorch gave (tests/referees/networks.py --record), wherever their parameters are. */
#include <dirent.h>

#include "support/network_run.h"
#include "test.h"

#define FOLDERS SLUICE_SOURCE_DIR "/tests/fixtures/networks/"
enum { MOST_STEPS = 32 };

static void compare_logits(const network_run *r, const json_t *expected, const char *key, const float *found)
{
    const json_t *wanted = json_object_get(expected, key);
    REQUIRE(json_array_size(wanted) > 0 && (int64_t)json_array_size(wanted) <= r->output_count);
    for (size_t i = 0; i < json_array_size(wanted); i++)
        CHECK_THAT(fabs(found[i] - json_number_value(json_array_get(wanted, i))) < 1e-4, "%s, %s: %zu is %g, not %g",
                   r->folder, key, i, found[i], json_number_value(json_array_get(wanted, i)));
}

static void compare_losses(const network_run *r, const json_t *wanted, const double *losses)
{
    for (size_t i = 0; i < json_array_size(wanted); i++) {
        double loss = json_number_value(json_array_get(wanted, i));
        CHECK_THAT(fabs(losses[i] - loss) < 1e-4, "%s: loss %zu is %.9g, not %.9g", r->folder, i + 1, losses[i], loss);
    }
}

static void compare_statistics(network_run *r, const json_t *wanted)
{
    const char *name;
    json_t *values;
    json_object_foreach((json_t *)wanted, name, values)
    {
        float found[2048];
        size_t count = json_array_size(values);
        REQUIRE(count > 0 && count <= 2048);
        REQUIRE_OK(sluice_get_parameter(r->e, name, found, count * sizeof *found));
        for (size_t i = 0; i < count; i++) {
            double want = json_number_value(json_array_get(values, i));
            CHECK_THAT(fabs(found[i] - want) < 1e-5 * (1 + fabs(want)), "%s: %s[%zu] is %.9g, not %.9g", r->folder,
                       name, i, found[i], want);
        }
    }
}

/* Placements that must not change a bit. */
static void place(const network_run *r, sluice_options *o, int way)
{
    network_options(r, o);
    if (way == 1) {
        o->parameters = o->optimizer_state = SLUICE_PLACE_HOST;
        o->activations = SLUICE_ACTIVATIONS_RECOMPUTE;
        o->offload_checkpoints = true;
    }
    if (way == 2) {
        o->stage = 3;
        o->activations = SLUICE_ACTIVATIONS_OFFLOAD;
    }
}

static void run_way(network_run *r, const json_t *expected, int way, char hash[130])
{
    double losses[MOST_STEPS];
    sluice_options o;
    const json_t *wanted = json_object_get(expected, "losses");
    REQUIRE(json_array_size(wanted) >= 10 && json_array_size(wanted) <= MOST_STEPS);
    place(r, &o, way);
    REQUIRE_OK(network_start(r, &o));
    float *logits = malloc((size_t)r->output_count * sizeof *logits);
    REQUIRE(logits != NULL);
    REQUIRE_OK(network_predict(r, logits));
    compare_logits(r, expected, "logits", logits);
    REQUIRE_OK(network_train(r, (int)json_array_size(wanted), losses));
    compare_losses(r, wanted, losses);
    REQUIRE_OK(network_predict(r, logits));
    compare_logits(r, expected, "logits_after", logits);
    compare_statistics(r, json_object_get(expected, "statistics"));
    REQUIRE_OK(sluice_hash(r->e, hash, hash + 65));
    free(logits);
    network_stop(r);
}

static void check_folder(const char *name)
{
    char folder[1024], path[1100], hashes[3][130];
    network_run r;
    snprintf(folder, sizeof folder, "%s%s", FOLDERS, name);
    snprintf(path, sizeof path, "%s/expected.json", folder);
    json_t *expected = json_load_file(path, 0, NULL);
    REQUIRE(expected != NULL);
    REQUIRE_OK(network_open(&r, folder));
    int ways = json_is_true(json_object_get(r.spec, "made")) ? 1 : 3; /* a whole ResNet takes a second */
    for (int way = 0; way < ways; way++) {
        run_way(&r, expected, way, hashes[way]);
        CHECK_THAT(memcmp(hashes[way], hashes[0], 130) == 0, "%s: other bits in placement %d", name, way);
    }
    network_close(&r);
    json_decref(expected);
}

TEST(networks_follow_torchvision_and_transformers_to_the_same_bits_in_any_placement)
{
    int count = 0;
    DIR *folders = opendir(FOLDERS);
    REQUIRE(folders != NULL);
    for (const struct dirent *entry; (entry = readdir(folders)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        check_folder(entry->d_name);
        count++;
    }
    closedir(folders);
    CHECK(count >= 8);
}
