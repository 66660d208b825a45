/* masked_test.c: tokens that are hidden to be guessed: which, how many, what they become, and that nothing but the seed and the number of
 * the sample decides it. */
#include <math.h>

#include "core/rng.h"
#include "core/status.h"
#include "data/data.h"
#include "format/token_file.h"
#include "support/text_file.h"
#include "test.h"

#define TOKENIZERS SLUICE_SOURCE_DIR "/tests/fixtures/tokenizers/"

/* Of bert-uncased.json; what is below FIRST is special. */
enum { CLS = 2, SEP = 3, MASK = 4, FIRST = 5, VOCABULARY = 1366, ORDINARY = VOCABULARY - FIRST };
enum { CONTEXT = 42, WINDOW = CONTEXT - 2, CHOSEN = 6, ROWS = 8, TOKENS = 1361 };

typedef struct batch {
    int32_t tokens[ROWS][CONTEXT], targets[ROWS][CONTEXT];
} batch;

/* A file in which token i is FIRST + i: a token tells its place, and its neighbours tell it too. */
static const char *ramp_file(void)
{
    uint16_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++) ids[i] = (uint16_t)(FIRST + i);
    return write_text_file("ramp.bin", ids, sizeof ids);
}

static sl_data_options options(const char *path, int64_t seed)
{
    return (sl_data_options){ .type = "tokens",
                              .path = path,
                              .tokenizer = TOKENIZERS "bert-uncased.json",
                              .dtype = SL_TOKENS_U16,
                              .document_token = -1,
                              .masking = 0.15,
                              .shuffle = true,
                              .seed = seed };
}

static sluice_data *open_ramp(int64_t seed, double validation)
{
    sluice_data *d = NULL;
    sl_data_options o = options(ramp_file(), seed);
    o.validation = validation;
    if (sl_data_open(&o, CONTEXT, VOCABULARY, &d) != SLUICE_OK) test_fail(__FILE__, __LINE__, "%s", sluice_error());
    return d;
}

static sluice_status draw(sluice_data *d, uint64_t index, int64_t rows, batch *b)
{
    const sl_data_field f[] = { { "tokens", SLUICE_I32, CONTEXT, b->tokens },
                                { "targets", SLUICE_I32, CONTEXT, b->targets } };
    return d->ops->fill(d, index, rows, f, 2);
}

static sluice_status draw_validation(sluice_data *d, int64_t first, batch *b, int64_t *valid)
{
    const sl_data_field f[] = { { "tokens", SLUICE_I32, CONTEXT, b->tokens },
                                { "targets", SLUICE_I32, CONTEXT, b->targets } };
    return d->ops->fill_eval(d, SL_SPLIT_VALIDATION, first, ROWS, f, 2, valid);
}

/* The token in front of a window of the ramp, by the tokens that were left as they are. */
static int32_t ramp_start(const int32_t *tokens, const int32_t *targets)
{
    for (int i = 1; i <= WINDOW; i++)
        if (targets[i] < 0) return tokens[i] - i;
    return -1;
}

typedef struct tally {
    int64_t chosen, masked, kept, replaced;
    int64_t at[CONTEXT];        /* chosen, by position */
    int64_t together[CONTEXT];  /* chosen beside the first position */
    int64_t became[VOCABULARY]; /* of replaced ones */
} tally;

static void count_row(const int32_t *tokens, const int32_t *targets, tally *t)
{
    int32_t start = ramp_start(tokens, targets);
    int chosen = 0;
    CHECK_EQ(tokens[0], CLS);
    CHECK_EQ(tokens[CONTEXT - 1], SEP);
    CHECK_EQ(targets[0], -1);
    CHECK_EQ(targets[CONTEXT - 1], -1);
    for (int i = 1; i <= WINDOW; i++) {
        if (targets[i] < 0) {
            CHECK_EQ(targets[i], -1);
            CHECK_EQ(tokens[i], start + i);
            continue;
        }
        CHECK_EQ(targets[i], start + i); /* what was there */
        chosen++;
        t->at[i]++;
        t->together[i] += targets[1] >= 0;
        t->masked += tokens[i] == MASK;
        t->kept += tokens[i] == targets[i];
        if (tokens[i] == MASK || tokens[i] == targets[i]) continue;
        CHECK(tokens[i] >= FIRST && tokens[i] < VOCABULARY);
        t->replaced++;
        t->became[tokens[i]]++;
    }
    CHECK_EQ(chosen, CHOSEN); /* 0.15 of 40 */
    t->chosen += chosen;
}

/* Within five standard deviations of n draws of probability p. */
static void check_share(int64_t count, int64_t n, double p, const char *what)
{
    double deviation = sqrt((double)n * p * (1 - p)), off = fabs((double)count - (double)n * p);
    if (off > 5 * deviation)
        test_fail(__FILE__, __LINE__, "%s: %lld of %lld, not %g", what, (long long)count, (long long)n, p);
    else
        CHECK(true);
}

TEST(fifteen_of_a_hundred_tokens_are_hidden_and_eighty_ten_ten_of_them_masked_replaced_and_kept)
{
    enum { BATCHES = 4000 };
    static tally t;
    batch b;
    sluice_data *d = open_ramp(3, 0);
    REQUIRE(d != NULL);
    t = (tally){ 0 };
    for (uint64_t i = 0; i < BATCHES; i++) {
        REQUIRE_OK(draw(d, i, ROWS, &b));
        for (int r = 0; r < ROWS; r++) count_row(b.tokens[r], b.targets[r], &t);
    }
    const int64_t rows = (int64_t)BATCHES * ROWS;
    CHECK_EQ(t.chosen, rows * CHOSEN);
    check_share(t.masked, t.chosen, 0.8, "masked");
    check_share(t.replaced, t.chosen, 0.1 * (1 - 1.0 / ORDINARY), "replaced"); /* one in 1,361 draws itself */
    check_share(t.kept, t.chosen, 0.1 * (1 + 1.0 / ORDINARY), "kept");
    for (int i = 1; i <= WINDOW; i++) check_share(t.at[i], rows, (double)CHOSEN / WINDOW, "a position");
    for (int i = 2; i <= WINDOW; i++)
        check_share(t.together[i], t.at[1], (double)(CHOSEN - 1) / (WINDOW - 1), "a position beside the first");
    for (int id = 0; id < FIRST; id++) CHECK_EQ(t.became[id], 0);
    for (int id = FIRST; id < VOCABULARY; id++) check_share(t.became[id], t.replaced, 1.0 / ORDINARY, "a token");
    sluice_data_destroy(d);
}

/* The rule once more, written down plainly: a row as another program would make it. */
static void expect_row(uint64_t seed, uint64_t number, int32_t start, int32_t *tokens, int32_t *targets)
{
    sl_rng places = sl_rng_stream(seed, SL_RNG_MASKING, number, 0, 0);
    sl_rng fates = sl_rng_stream(seed, SL_RNG_MASKING, number, 0, 1);
    sl_rng others = sl_rng_stream(seed, SL_RNG_MASKING, number, 0, 2);
    int order[WINDOW];
    for (int i = 0; i < WINDOW; i++) order[i] = i;
    for (int i = 0; i < CONTEXT; i++) {
        tokens[i] = i == 0 ? CLS : i == CONTEXT - 1 ? SEP : start + i;
        targets[i] = -1;
    }
    for (int i = 0; i < CHOSEN; i++) {
        int j = i + (int)sl_rng_below(&places, (uint64_t)i, (uint64_t)(WINDOW - i)), place = order[j];
        uint64_t fate = sl_rng_below(&fates, (uint64_t)i, 10);
        order[j] = order[i];
        targets[1 + place] = tokens[1 + place];
        if (fate < 8) tokens[1 + place] = MASK;
        if (fate == 8) tokens[1 + place] = FIRST + (int32_t)sl_rng_below(&others, (uint64_t)i, ORDINARY);
    }
}

TEST(a_row_follows_from_the_seed_and_the_number_of_its_sample)
{
    int32_t tokens[CONTEXT], targets[CONTEXT];
    batch b;
    sluice_data *d = open_ramp(11, 0);
    REQUIRE(d != NULL);
    for (uint64_t i = 0; i < 30; i++) {
        REQUIRE_OK(draw(d, i, ROWS, &b));
        for (int r = 0; r < ROWS; r++) {
            expect_row(11, i * ROWS + (uint64_t)r, ramp_start(b.tokens[r], b.targets[r]), tokens, targets);
            CHECK(memcmp(tokens, b.tokens[r], sizeof tokens) == 0);
            CHECK(memcmp(targets, b.targets[r], sizeof targets) == 0);
        }
    }
    sluice_data_destroy(d);
}

TEST(hidden_tokens_do_not_depend_on_the_cut_into_batches_or_on_what_was_drawn_before)
{
    batch whole, parts, again;
    sluice_data *d = open_ramp(5, 0), *fresh = open_ramp(5, 0);
    REQUIRE(d != NULL && fresh != NULL);
    for (uint64_t i = 0; i < 20; i++) REQUIRE_OK(draw(d, i, ROWS, &whole));
    for (int r = 0; r < ROWS; r += 2) {
        const sl_data_field f[] = { { "targets", SLUICE_I32, CONTEXT, parts.targets[r] },
                                    { "tokens", SLUICE_I32, CONTEXT, parts.tokens[r] } };
        REQUIRE_OK(fresh->ops->fill(fresh, (19 * ROWS + (uint64_t)r) / 2, 2, f, 2));
    }
    CHECK(memcmp(&whole, &parts, sizeof whole) == 0);
    REQUIRE_OK(draw(d, 3, ROWS, &again));
    REQUIRE_OK(draw(fresh, 3, ROWS, &parts));
    CHECK(memcmp(&again, &parts, sizeof again) == 0);
    CHECK(memcmp(&again, &whole, sizeof again) != 0);
    sluice_data_destroy(d);
    sluice_data_destroy(fresh);
}

TEST(another_epoch_and_another_seed_hide_other_tokens)
{
    enum { LONG_ENOUGH = 40 };
    batch b;
    int32_t seen[LONG_ENOUGH][CONTEXT];
    int same = 0;
    sl_data_options o = options(ramp_file(), 5);
    sluice_data *d;
    o.shuffle = false; /* sample n of an epoch is then sample n of the file */
    REQUIRE_OK(sl_data_open(&o, CONTEXT, VOCABULARY, &d));
    int64_t epoch = d->ops->samples(d, SL_SPLIT_TRAIN);
    REQUIRE(epoch <= LONG_ENOUGH);
    for (int64_t n = 0; n < 2 * epoch; n++) {
        REQUIRE_OK(draw(d, (uint64_t)n, 1, &b));
        CHECK_EQ(ramp_start(b.tokens[0], b.targets[0]), FIRST - 1 + n % epoch * WINDOW);
        if (n < epoch)
            memcpy(seen[n], b.targets[0], sizeof seen[n]);
        else
            same += memcmp(seen[n - epoch], b.targets[0], sizeof seen[0]) == 0;
    }
    CHECK_EQ(same, 0);
    sluice_data_destroy(d);
    o.seed = 6;
    REQUIRE_OK(sl_data_open(&o, CONTEXT, VOCABULARY, &d));
    REQUIRE_OK(draw(d, 0, 1, &b));
    CHECK(memcmp(seen[0], b.targets[0], sizeof seen[0]) != 0);
    sluice_data_destroy(d);
}

TEST(validation_hides_the_same_tokens_whenever_and_with_every_seed)
{
    batch b, again;
    int64_t valid;
    sluice_data *d = open_ramp(5, 0.3), *other = open_ramp(6, 0.3);
    REQUIRE(d != NULL && other != NULL);
    /* 409 of 1,361 tokens are ten windows of 40 and a rest, which fills none */
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 10);
    REQUIRE_OK(draw_validation(d, 0, &b, &valid));
    CHECK_EQ(valid, ROWS);
    tally t = { 0 };
    for (int r = 0; r < ROWS; r++) count_row(b.tokens[r], b.targets[r], &t);
    CHECK(memcmp(b.targets[0], b.targets[1], sizeof b.targets[0]) != 0);
    REQUIRE_OK(draw(d, 7, ROWS, &again));
    REQUIRE_OK(draw_validation(d, 0, &again, &valid));
    CHECK(memcmp(&b, &again, sizeof b) == 0);
    REQUIRE_OK(draw_validation(other, 0, &again, &valid));
    CHECK(memcmp(&b, &again, sizeof b) == 0);
    REQUIRE_OK(draw_validation(d, 8, &again, &valid));
    CHECK_EQ(valid, 2);
    for (int r = 2; r < ROWS; r++)
        for (int i = 0; i < CONTEXT; i++) CHECK_EQ(again.targets[r][i], -1);
    sluice_data_destroy(d);
    sluice_data_destroy(other);
}

TEST(a_text_of_whole_windows_is_validated_to_its_last_token)
{
    uint16_t ids[20 * WINDOW];
    for (int i = 0; i < 20 * WINDOW; i++) ids[i] = (uint16_t)(FIRST + i);
    sl_data_options o = options(write_text_file("whole.bin", ids, sizeof ids), 1);
    sluice_data *d;
    o.validation = 0.25;
    REQUIRE_OK(sl_data_open(&o, CONTEXT, VOCABULARY, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 5);
    sluice_data_destroy(d);
}

/* Every third token is one that the text spells: [SEP] or [UNK]. */
TEST(special_tokens_are_not_guessed_and_targets_are_counted_before_they_are_filled)
{
    uint16_t ids[TOKENS];
    batch b;
    sluice_data *d;
    for (int i = 0; i < TOKENS; i++) ids[i] = (uint16_t)(i % 3 == 0 ? 1 + i % 2 * 2 : FIRST + i);
    sl_data_options o = options(write_text_file("special.bin", ids, sizeof ids), 1);
    REQUIRE_OK(sl_data_open(&o, CONTEXT, VOCABULARY, &d));
    for (uint64_t i = 0; i < 40; i++) {
        int64_t promised, there = 0;
        REQUIRE_OK(d->ops->targets(d, i, ROWS, &promised));
        REQUIRE_OK(draw(d, i, ROWS, &b));
        for (int r = 0; r < ROWS; r++)
            for (int k = 0; k < CONTEXT; k++) {
                there += b.targets[r][k] >= 0;
                CHECK(b.targets[r][k] < 0 || b.targets[r][k] >= FIRST);
            }
        CHECK_EQ(there, promised);
        CHECK_EQ(there, 4 * ROWS); /* 0.15 of 26 or 27 */
    }
    sluice_data_destroy(d);
}

TEST(a_window_of_few_ordinary_tokens_has_one_to_guess_and_of_none_has_none)
{
    uint16_t ids[TOKENS];
    int64_t count;
    sluice_data *d;
    for (int i = 0; i < TOKENS; i++) ids[i] = i == 50 ? 700 : 1;
    sl_data_options o = options(write_text_file("few.bin", ids, sizeof ids), 1);
    o.shuffle = false;
    REQUIRE_OK(sl_data_open(&o, CONTEXT, VOCABULARY, &d));
    REQUIRE_OK(d->ops->targets(d, 0, 1, &count));
    CHECK_EQ(count, 0);
    REQUIRE_OK(d->ops->targets(d, 1, 1, &count));
    CHECK_EQ(count, 1);
    sluice_data_destroy(d);
}

TEST(a_text_is_read_by_wordpiece)
{
    enum { TEXT_CONTEXT = 12 };
    char text[4000] = "";
    int32_t tokens[TEXT_CONTEXT], targets[TEXT_CONTEXT];
    const sl_data_field f[] = { { "tokens", SLUICE_I32, TEXT_CONTEXT, tokens },
                                { "targets", SLUICE_I32, TEXT_CONTEXT, targets } };
    sluice_data *d;
    for (size_t used = 0; used < sizeof text - 20; used += 10) memcpy(text + used, "1, 2. 3 - ", 11);
    sl_data_options o = options(write_text_file("input.txt", text, strlen(text)), 1);
    o.type = "text";
    o.unit = SL_TEXT_TOKENS;
    REQUIRE_OK(sl_data_open(&o, TEXT_CONTEXT, 0, &d));
    CHECK_EQ(sl_data_vocabulary(d), VOCABULARY);
    REQUIRE_OK(d->ops->fill(d, 2, 1, f, 2));
    CHECK_EQ(tokens[0], CLS);
    CHECK_EQ(tokens[TEXT_CONTEXT - 1], SEP);
    int guessed = 0;
    for (int i = 1; i < TEXT_CONTEXT - 1; i++) {
        int32_t id = targets[i] >= 0 ? targets[i] : tokens[i];
        CHECK(id == 16 || id == 17 || id == 18 || (id >= 21 && id <= 23)); /* , - . 1 2 3 */
        guessed += targets[i] >= 0;
    }
    CHECK_EQ(guessed, 2);
    sluice_data_destroy(d);
}

TEST(the_identity_of_masked_data_tells_share_and_seed)
{
    char one[65], other[65];
    sl_data_options o = options(ramp_file(), 5);
    sluice_data *d;
    REQUIRE_OK(sl_data_open(&o, CONTEXT, VOCABULARY, &d));
    d->ops->identity(d, one);
    sluice_data_destroy(d);
    o.masking = 0.2;
    REQUIRE_OK(sl_data_open(&o, CONTEXT, VOCABULARY, &d));
    d->ops->identity(d, other);
    CHECK(strcmp(one, other) != 0);
    sluice_data_destroy(d);
    o.masking = 0.15;
    o.seed = 6;
    REQUIRE_OK(sl_data_open(&o, CONTEXT, VOCABULARY, &d));
    d->ops->identity(d, other);
    CHECK(strcmp(one, other) != 0);
    sluice_data_destroy(d);
}

TEST(what_cannot_be_masked_is_refused)
{
    sluice_data *d = NULL;
    sl_data_options o = options(ramp_file(), 5);
    CHECK_EQ(sl_data_open(&o, 3, VOCABULARY, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "model.context is 3, of which 2 tokens stand around the text");
    CHECK_EQ(sl_data_open(&o, TOKENS + 2, VOCABULARY, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "ramp.bin: the training part has 1361 tokens");
    o.tokenizer = TOKENIZERS "gpt2-v4.json";
    CHECK_EQ(sl_data_open(&o, CONTEXT, VOCABULARY, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "gpt2-v4.json has neither the token [MASK] nor <mask>");
    o.tokenizer = "nowhere";
    CHECK_EQ(sl_data_open(&o, CONTEXT, VOCABULARY, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "nowhere");
    CHECK(d == NULL);
}
