/* families_test.c: decoders of every family, read from folders that transformers wrote, give its logits and its losses
 * (tests/referees/families.py --record), wherever their parameters are. */
#include <dirent.h>
#include <jansson.h>
#include <math.h>

#include "support/folder_run.h"
#include "test.h"

#define FOLDERS SLUICE_SOURCE_DIR "/tests/fixtures/families/"
enum { MOST_STEPS = 32 };

/* A recorded folder. */
typedef struct recorded {
    char folder[1024];
    folder_run run;
    json_t *expected;
} recorded;

static void open_recorded(const char *name, recorded *out)
{
    char path[1100];
    snprintf(out->folder, sizeof out->folder, "%s%s", FOLDERS, name);
    snprintf(path, sizeof path, "%s/expected.json", out->folder);
    out->expected = json_load_file(path, 0, NULL);
    REQUIRE(out->expected != NULL);
    out->run = (folder_run){ .folder = out->folder,
                             .batch = json_integer_value(json_object_get(out->expected, "batch")),
                             .context = json_integer_value(json_object_get(out->expected, "context")),
                             .packed = json_is_true(json_object_get(out->expected, "packed")) };
    REQUIRE_OK(folder_run_open(&out->run));
}

static void close_recorded(recorded *r)
{
    folder_run_close(&r->run);
    json_decref(r->expected);
}

static void compare_row(const recorded *r, const char *key, const float *logits, int64_t row, int64_t at)
{
    const json_t *wanted = json_object_get(r->expected, key);
    const float *found = logits + (row * r->run.context + at) * r->run.vocabulary;
    REQUIRE((int64_t)json_array_size(wanted) == r->run.vocabulary);
    for (int64_t i = 0; i < r->run.vocabulary; i++)
        CHECK_THAT(fabs(found[i] - json_number_value(json_array_get(wanted, (size_t)i))) < 1e-4,
                   "%s, %s: logit %d is %g, not %g", r->folder, key, (int)i, found[i],
                   json_number_value(json_array_get(wanted, (size_t)i)));
}

static void compare_losses(const recorded *r, const double *losses)
{
    const json_t *wanted = json_object_get(r->expected, "losses");
    for (size_t i = 0; i < json_array_size(wanted); i++) {
        double loss = json_number_value(json_array_get(wanted, i));
        CHECK_THAT(fabs(losses[i] - loss) < 1e-4 * loss, "%s: loss %zu is %.9g, not %.9g", r->folder, i + 1, losses[i],
                   loss);
    }
}

/* Placements that must not change a bit. */
static void place(sluice_options *o, int way)
{
    folder_options(o);
    if (way == 1) o->stage = 3;
    if (way == 2) {
        o->parameters = o->optimizer_state = SLUICE_PLACE_HOST;
        o->activations = SLUICE_ACTIVATIONS_RECOMPUTE;
        o->offload_checkpoints = true;
    }
}

static void check_folder(const char *name)
{
    recorded r;
    float *logits = NULL;
    double losses[MOST_STEPS];
    char first[65] = "", sha256[65];
    open_recorded(name, &r);
    int steps = (int)json_array_size(json_object_get(r.expected, "losses"));
    REQUIRE(steps >= 10 && steps <= MOST_STEPS);
    CHECK_THAT(folder_logits(&r.run, &logits) == SLUICE_OK, "%s: %s", name, sluice_error());
    REQUIRE(logits != NULL);
    compare_row(&r, "row_0_at_5", logits, 0, 5);
    compare_row(&r, "last_row_at_last", logits, r.run.batch - 1, r.run.context - 1);
    for (int way = 0; way < 3; way++) {
        sluice_options o;
        place(&o, way);
        REQUIRE_OK(folder_train(&r.run, &o, steps, losses, sha256));
        compare_losses(&r, losses);
        if (way == 0) memcpy(first, sha256, sizeof first);
        CHECK_STR(sha256, first);
    }
    free(logits);
    close_recorded(&r);
}

TEST(folders_of_every_family_follow_transformers_to_the_same_bits_in_any_placement)
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
    CHECK(count >= SL_DECODER_COUNT - 1);
}
