/* families_test.c: decoders of every family, read from folders that transformers wrote, give its logits and its losses
 * (tests/referees/families.py --record), wherever their parameters are. */
#include <dirent.h>
#include <jansson.h>
#include <math.h>

#include "support/folder_run.h"
#include "test.h"

#define FOLDERS SLUICE_SOURCE_DIR "/tests/fixtures/families/"
enum { MOST_STEPS = 32, MOST_MASKS = 300 };

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

/* Masks are random in both programs: how far they move the losses tells rates and places. Weights stay as they are. */
static double moved_by_dropout(recorded *r, const json_t *c, const double *plain)
{
    static double losses[MOST_MASKS];
    char sha256[65];
    double squares = 0;
    sluice_options o;
    int steps = (int)json_integer_value(json_object_get(c, "steps"));
    folder_options(&o);
    o.optimizer.lr = 0;
    r->run.dropout = json_number_value(json_object_get(c, "stream"));
    r->run.embedding_dropout = json_number_value(json_object_get(c, "embedding"));
    if (folder_train(&r->run, &o, steps, losses, sha256) != SLUICE_OK) return NAN;
    for (int k = 0; k < steps; k++) squares += (losses[k] - plain[k]) * (losses[k] - plain[k]) / steps;
    return sqrt(squares);
}

TEST(dropout_by_place_moves_losses_as_far_as_in_transformers)
{
    static double plain[MOST_MASKS];
    recorded r;
    size_t i;
    const json_t *c;
    char sha256[65];
    sluice_options o;
    open_recorded("gpt2", &r);
    folder_options(&o);
    o.optimizer.lr = 0;
    json_t *cases = json_object_get(r.expected, "dropout");
    REQUIRE(json_array_size(cases) == 3);
    REQUIRE_OK(folder_train(&r.run, &o, MOST_MASKS, plain, sha256));
    json_array_foreach(cases, i, c)
    {
        double wanted = json_number_value(json_object_get(c, "moved"));
        double allowed = 4 * json_number_value(json_object_get(c, "deviation")), found = moved_by_dropout(&r, c, plain);
        CHECK_THAT(fabs(found - wanted) < allowed, "%g and %g: losses move by %.5f, not %.5f within %.5f",
                   r.run.dropout, r.run.embedding_dropout, found, wanted, allowed);
        if (r.run.dropout > 0 && r.run.embedding_dropout > 0) continue;
        json_t *swapped = json_pack("{s:f, s:f, s:i}", "stream", r.run.embedding_dropout, "embedding", r.run.dropout,
                                    "steps", MOST_MASKS);
        CHECK_THAT(fabs(moved_by_dropout(&r, swapped, plain) - wanted) > allowed,
                   "%g and %g the other way round: as far", r.run.dropout, r.run.embedding_dropout);
        json_decref(swapped);
    }
    close_recorded(&r);
}
