/* utterances_test.c: utterances as rows of batches: features, lengths, labels, padding and masks; lists and what is wrong with them. */
#include "core/alloc.h"
#include "core/status.h"
#include "data/ahead.h"
#include "data/data.h"
#include "data/log_mel.h"
#include "support/wav_writer.h"
#include "test.h"

#ifdef SLUICE_SOUND

enum { BATCH = 4, MELS = 12, MOST_ROWS = 64, MOST_LABELS = 16 };

static char folder[4096];

static const char *in_folder(const char *name)
{
    static char path[4400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static sl_data_options options(void)
{
    return (sl_data_options){ .type = "speech",
                              .path = folder,
                              .normalize = SL_NORMALIZE_AUTO,
                              .mels = MELS,
                              .frame_stride = 2,
                              .time_mask_width = 10,
                              .frequency_mask_width = 4,
                              .shuffle = true,
                              .seed = 3 };
}

static void list(const char *name, const char *text)
{
    wav_write(in_folder(name), (const uint8_t *)text, strlen(text));
}

/* Five sounds and the list of them. */
static void begin(void)
{
    static const char *const said[] = { "abc", "d", "bb", "a d", "cab" };
    char path[4400];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%d.wav", folder, i);
        write_tones(path, said[i], i);
    }
    list("transcripts.tsv",
         "path\tspeaker\ttext\n0.wav\tx\tabc\n1.wav\ty\t d \n2.wav\tx\tbb\n3.wav\tx\ta   d\n4.wav\ty\tcab\n");
}

typedef struct drawn_speech {
    float x[BATCH * MOST_ROWS * MELS];
    int32_t lengths[BATCH], labels[BATCH * MOST_LABELS];
    sl_data_field fields[3];
    sl_speech_size size;
} drawn_speech;

static void make_fields(const sluice_data *d, drawn_speech *b)
{
    REQUIRE(sl_data_speech_size(d, &b->size));
    REQUIRE(b->size.rows <= MOST_ROWS && b->size.labels <= MOST_LABELS && b->size.bands == MELS);
    b->fields[0] = (sl_data_field){ "x", SLUICE_F32, b->size.rows * MELS, b->x };
    b->fields[1] = (sl_data_field){ "lengths", SLUICE_I32, 1, b->lengths };
    b->fields[2] = (sl_data_field){ "labels", SLUICE_I32, b->size.labels, b->labels };
}

static void evaluate(sluice_data *d, sl_data_split split, int64_t first, drawn_speech *b, int64_t *valid)
{
    make_fields(d, b);
    REQUIRE_OK(d->ops->fill_eval(d, split, first, BATCH, b->fields, 3, valid));
}

TEST(utterances_are_rows_of_loudness_lengths_in_frames_and_characters_behind_the_blank)
{
    static const int32_t wanted[BATCH][3] = { { 2, 3, 4 }, { 5, -1, -1 }, { 3, 3, -1 }, { 2, 1, 5 } };
    static drawn_speech b;
    sluice_data *d;
    int64_t valid;
    begin();
    sl_data_options o = options();
    REQUIRE_OK(sl_data_speech(&o, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 5);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 0);
    CHECK_EQ(sl_data_classes(d), 6);
    CHECK_STR(sl_data_class_name(d, 0), "");
    CHECK_STR(sl_data_class_name(d, 1), " ");
    CHECK_STR(sl_data_class_name(d, 5), "d");
    CHECK_EQ(sl_data_characters(d)->size, 5);
    evaluate(d, SL_SPLIT_TRAIN, 0, &b, &valid);
    CHECK_EQ(valid, BATCH);
    const int64_t rows = (3 * TONE_SAMPLES - 256) / 80 + 1; /* of three characters, the most that are here */
    CHECK_EQ(b.size.rows, rows);
    CHECK_EQ(b.size.labels, 3);
    CHECK_EQ(b.lengths[0], (rows + 1) / 2);
    CHECK_EQ(b.lengths[1], ((TONE_SAMPLES - 256) / 80 + 1 + 1) / 2);
    for (int i = 0; i < BATCH; i++)
        for (int k = 0; k < 3; k++) CHECK_EQ(b.labels[3 * i + k], wanted[i][k]);
    /* behind the end of the second there are zeros */
    const int64_t its_rows = (TONE_SAMPLES - 256) / 80 + 1;
    for (int64_t i = its_rows * MELS; i < rows * MELS; i++) CHECK_EQ(b.x[rows * MELS + i] == 0, true);
    sluice_data_destroy(d);
}

/* Rows of a sound file as they come from log_mel.h. */
static int64_t rows_of(const char *text, int voice, float *out)
{
    static int16_t samples[TONE_MOST * TONE_SAMPLES];
    static float numbers[TONE_MOST * TONE_SAMPLES];
    sl_log_mel *m;
    size_t count = tones_of(text, voice, samples);
    for (size_t i = 0; i < count; i++) numbers[i] = (float)samples[i] / 32768.0f;
    if (sl_log_mel_create(TONE_RATE, MELS, &m) != SLUICE_OK) exit(99);
    void *scratch = malloc(sl_log_mel_scratch_bytes(m));
    sl_log_mel_run(m, numbers, (int64_t)count, scratch, out);
    int64_t rows = sl_log_mel_rows(m, (int64_t)count);
    free(scratch);
    sl_log_mel_destroy(m);
    return rows;
}

TEST(bands_are_normalised_by_the_utterance_by_all_of_them_or_not)
{
    static drawn_speech b;
    static float plain[MOST_ROWS * MELS];
    sluice_data *d;
    int64_t valid;
    begin();
    sl_data_options o = options();
    int64_t rows = rows_of("abc", 0, plain);
    o.normalize = SL_NORMALIZE_NONE;
    REQUIRE_OK(sl_data_speech(&o, &d));
    evaluate(d, SL_SPLIT_TRAIN, 0, &b, &valid);
    for (int64_t i = 0; i < rows * MELS; i++) CHECK_NEAR(b.x[i], plain[i], 0);
    sluice_data_destroy(d);
    o.normalize = SL_NORMALIZE_AUTO;
    REQUIRE_OK(sl_data_speech(&o, &d));
    evaluate(d, SL_SPLIT_TRAIN, 0, &b, &valid);
    for (int m = 0; m < MELS; m++) {
        double sum = 0, squares = 0, mean = 0, deviation = 0;
        for (int64_t t = 0; t < rows; t++) mean += (double)plain[t * MELS + m] / (double)rows;
        for (int64_t t = 0; t < rows; t++) deviation += pow((double)plain[t * MELS + m] - mean, 2) / (double)rows;
        for (int64_t t = 0; t < rows; t++) {
            sum += (double)b.x[t * MELS + m];
            squares += (double)b.x[t * MELS + m] * (double)b.x[t * MELS + m];
            CHECK_NEAR(b.x[t * MELS + m], (plain[t * MELS + m] - mean) / sqrt(deviation + 1e-5), 1e-5);
        }
        CHECK_NEAR(sum / (double)rows, 0, 1e-5);
        CHECK_NEAR(squares / (double)rows, 1, 1e-3);
    }
    sluice_data_destroy(d);
    /* over all five: the mean of everything is 0, that of one is not */
    o.normalize = SL_NORMALIZE_COMPUTED;
    o.threads = 3;
    REQUIRE_OK(sl_data_speech(&o, &d));
    double sum[MELS] = { 0 }, one = 0;
    for (int64_t first = 0; first < 5; first += BATCH) {
        evaluate(d, SL_SPLIT_TRAIN, first, &b, &valid);
        for (int64_t i = 0; i < valid * b.size.rows * MELS; i++) sum[i % MELS] += (double)b.x[i];
        if (first == 0)
            for (int64_t t = 0; t < rows; t++) one += (double)b.x[t * MELS];
    }
    for (int m = 0; m < MELS; m++) CHECK_NEAR(sum[m], 0, 1e-3);
    CHECK(fabs(one) > 0.1);
    sluice_data_destroy(d);
}

TEST(rows_behind_the_last_sample_have_no_frames_and_no_labels)
{
    static drawn_speech b;
    sluice_data *d;
    int64_t valid;
    begin();
    sl_data_options o = options();
    o.validation = 0.2;
    REQUIRE_OK(sl_data_speech(&o, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 4);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 1);
    evaluate(d, SL_SPLIT_VALIDATION, 0, &b, &valid);
    CHECK_EQ(valid, 1);
    CHECK_EQ(b.labels[0], 4);
    for (int i = 1; i < BATCH; i++) {
        CHECK_EQ(b.lengths[i], 0);
        for (int64_t k = 0; k < b.size.labels; k++) CHECK_EQ(b.labels[i * b.size.labels + k], -1);
    }
    CHECK_EQ(d->ops->fill_eval(d, SL_SPLIT_VALIDATION, 1, BATCH, b.fields, 3, &valid), SLUICE_ERR_USAGE);
    sluice_data_destroy(d);
}

TEST(masks_silence_bands_and_stretches_in_training_alone_and_follow_from_the_seed)
{
    static drawn_speech plain, masked, again;
    sluice_data *d;
    int64_t valid;
    begin();
    sl_data_options o = options();
    o.shuffle = false;
    REQUIRE_OK(sl_data_speech(&o, &d));
    make_fields(d, &plain);
    REQUIRE_OK(d->ops->fill(d, 0, BATCH, plain.fields, 3));
    sluice_data_destroy(d);
    o.time_masks = 2;
    o.frequency_masks = 1;
    REQUIRE_OK(sl_data_speech(&o, &d));
    make_fields(d, &masked);
    make_fields(d, &again);
    REQUIRE_OK(d->ops->fill(d, 0, BATCH, masked.fields, 3));
    REQUIRE_OK(d->ops->fill(d, 0, BATCH, again.fields, 3));
    CHECK(memcmp(masked.x, again.x, sizeof masked.x) == 0);
    const int64_t each = masked.size.rows * MELS;
    int silenced = 0;
    for (int64_t i = 0; i < BATCH * each; i++) {
        CHECK(masked.x[i] == plain.x[i] || masked.x[i] == 0);
        silenced += masked.x[i] != plain.x[i];
    }
    CHECK(silenced > MELS && silenced < BATCH * each / 2);
    evaluate(d, SL_SPLIT_TRAIN, 0, &again, &valid);
    CHECK(memcmp(again.x, plain.x, (size_t)(BATCH * each) * sizeof *plain.x) == 0);
    /* another epoch has other masks */
    REQUIRE_OK(d->ops->fill(d, 5, BATCH, again.fields, 3));
    CHECK(memcmp(again.x, masked.x, (size_t)each * sizeof *plain.x) != 0);
    sluice_data_destroy(d);
}

TEST(threads_give_what_one_gives_and_every_epoch_has_every_utterance_once)
{
    static drawn_speech one, other;
    sluice_data *d, *a;
    begin();
    sl_data_options o = options();
    o.frequency_masks = 2;
    REQUIRE_OK(sl_data_speech(&o, &d));
    CHECK_EQ(d->ops->effort, SL_FILL_SLOW);
    REQUIRE_OK(sl_data_speech(&o, &a));
    make_fields(d, &one);
    make_fields(a, &other);
    const sl_ahead_options ahead = {
        .workers = 3, .stride = 1, .rows = BATCH, .fields = other.fields, .field_count = 3
    };
    REQUIRE_OK(sl_data_ahead(a, &ahead, &a));
    CHECK_EQ(sl_data_classes(a), 6);
    CHECK_EQ(sl_data_characters(a)->size, 5);
    CHECK(sl_data_speech_size(a, &other.size) && other.size.rows == one.size.rows);
    int seen[5] = { 0 };
    for (uint64_t i = 0; i < 5; i++) {
        REQUIRE_OK(d->ops->fill(d, i, BATCH, one.fields, 3));
        REQUIRE_OK(a->ops->fill(a, i, BATCH, other.fields, 3));
        CHECK(memcmp(one.x, other.x, (size_t)(BATCH * one.size.rows * MELS) * sizeof *one.x) == 0);
        CHECK(memcmp(one.labels, other.labels, (size_t)(BATCH * one.size.labels) * sizeof *one.labels) == 0);
        for (int r = 0; r < BATCH; r++) /* "abc", "d", "bb", "a d" and "cab" differ in what comes first and second */
            for (int k = 0; k < 5; k++) {
                static const int32_t starts[5][2] = { { 2, 3 }, { 5, -1 }, { 3, 3 }, { 2, 1 }, { 4, 2 } };
                seen[k] += memcmp(&one.labels[r * one.size.labels], starts[k], sizeof starts[k]) == 0;
            }
    }
    for (int k = 0; k < 5; k++) CHECK_EQ(seen[k], 4);
    sluice_data_destroy(a);
    sluice_data_destroy(d);
}

TEST(characters_are_those_of_the_weights_of_the_settings_or_of_the_transcripts)
{
    static const uint32_t points[] = { ' ', 'a', 'b', 'c', 'd', 'x' };
    const sl_vocabulary kept = { SL_TEXT_CHARACTERS, 6, points };
    sluice_data *d;
    begin();
    sl_data_options o = options();
    o.characters = "dcbae ";
    REQUIRE_OK(sl_data_speech(&o, &d));
    CHECK_EQ(sl_data_classes(d), 7);
    CHECK_STR(sl_data_class_name(d, 6), "e");
    sluice_data_destroy(d);
    o.kept = &kept;
    CHECK_EQ(sl_data_speech(&o, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(),
                   "data.characters has 6 characters, and the model was trained on 6 that are not the same");
    o.characters = "xdcba ";
    REQUIRE_OK(sl_data_speech(&o, &d));
    sluice_data_destroy(d);
    o.characters = "";
    REQUIRE_OK(sl_data_speech(&o, &d));
    CHECK_EQ(sl_data_classes(d), 7);
    CHECK_STR(sl_data_class_name(d, 6), "x");
    sluice_data_destroy(d);
    o.kept = NULL;
    o.characters = "abc ";
    CHECK_EQ(sl_data_speech(&o, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "transcripts.tsv, line 3: character \"d\" (U+0064) at byte 0 is not among the 4 "
                                   "characters of data.characters");
}

TEST(longer_utterances_are_left_out_and_other_lists_are_found)
{
    sluice_data *d;
    char identity[65], other[65];
    begin();
    sl_data_options o = options();
    REQUIRE_OK(sl_data_speech(&o, &d));
    d->ops->identity(d, identity);
    sluice_data_destroy(d);
    o.max_seconds = 0.3;
    REQUIRE_OK(sl_data_speech(&o, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 2); /* "d" and "bb" */
    d->ops->identity(d, other);
    CHECK(strcmp(identity, other) != 0);
    sluice_data_destroy(d);
    o.max_seconds = 0.05;
    CHECK_EQ(sl_data_speech(&o, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "all of its sounds are longer than data.max_seconds, 0.05; the first: ");
    o.max_seconds = 0;
    list("validation.csv", "sentence,audio\n\"d\",1.wav\n");
    REQUIRE_OK(sl_data_speech(&o, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 5);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 1);
    sluice_data_destroy(d);
    o.validation_path = in_folder("validation.csv");
    o.path = NULL;
    CHECK_EQ(sl_data_speech(&o, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.path is missing");
    o.path = folder;
    REQUIRE_OK(sl_data_speech(&o, &d));
    sluice_data_destroy(d);
    o.validation = 0.5;
    CHECK_EQ(sl_data_speech(&o, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "give one");
}

TEST(lists_and_sounds_that_do_not_fit_are_refused_with_their_line)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        { "path\ttext\n0.wav\n", "transcripts.tsv, line 2" },
        { "path\ttext\n0.wav\tabc\n1.wav\t \n", "transcripts.tsv, line 3: the transcript of 1.wav is empty" },
        { "path\ttext\n\tabc\n", "transcripts.tsv, line 2: the path is empty" },
        { "path\ttext\n", "transcripts.tsv has no sounds behind its header" },
        { "file\twords\n0.wav\tabc\n",
          "line 1 names no column that is known, such as text; name it with data.columns.label" },
        { "sound\ttext\n0.wav\tabc\n", "such as path; name it with data.columns.first" },
        { "path\ttext\nnone.wav\tabc\n", "none.wav" },
        { "path\ttext\n1.wav\tdddd\n", "transcripts.tsv, line 2: the 4 characters of \"dddd\" need 7 frames, one more "
                                       "between equal neighbours, and " },
        { "path\ttext\n1.wav\td\nfast.wav\td\n", "fast.wav has 16000 samples a second, and " },
        { "path\ttext\nshort.wav\td\n", "short.wav has 255 samples, 32 ms, and 256 are the least" },
    };
    static int16_t samples[2000];
    static uint8_t file[WAV_HEADER + sizeof samples];
    sluice_data *d;
    begin();
    wav_write(in_folder("fast.wav"), file, wav_make((wav_kind){ WAV_PCM, 1, 16000, 16 }, samples, 4000, file));
    wav_write(in_folder("short.wav"), file, wav_make((wav_kind){ WAV_PCM, 1, TONE_RATE, 16 }, samples, 510, file));
    sl_data_options o = options();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        list("transcripts.tsv", bad[i].text);
        CHECK_EQ(sl_data_speech(&o, &d), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), bad[i].says);
    }
    list("transcripts.tsv", "sound\twords\n1.wav\td\n");
    o.first_column = "sound";
    o.label_column = "words";
    REQUIRE_OK(sl_data_speech(&o, &d));
    sluice_data_destroy(d);
    o.sample_rate = 16000;
    CHECK_EQ(sl_data_speech(&o, &d), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(),
                   "1.wav has 8000 samples a second, and data.sample_rate is 16000; sounds are not resampled");
}

/* The data set is opened, and a batch of it filled. */
static sluice_status open_and_fill(const sl_data_options *o, drawn_speech *b)
{
    sluice_data *d;
    SL_TRY(sl_data_speech(o, &d));
    make_fields(d, b);
    sluice_status st = d->ops->fill(d, 0, BATCH, b->fields, 3);
    sluice_data_destroy(d);
    return st;
}

TEST(any_allocation_may_fail_and_nothing_is_lost)
{
    static drawn_speech b;
    sl_alloc_stats before, after;
    begin();
    sl_data_options o = options();
    o.normalize = SL_NORMALIZE_COMPUTED;
    o.threads = 1;
    o.validation = 0.2;
    sluice_status st = SLUICE_ERR_NO_MEMORY;
    int64_t n;
    for (n = 1; st == SLUICE_ERR_NO_MEMORY && n < 1000; n++) {
        sl_alloc_get_stats(&before);
        sl_alloc_fail_nth(n, 0);
        st = open_and_fill(&o, &b);
        sl_alloc_fail_nth(0, 0);
        sl_alloc_get_stats(&after);
        CHECK_EQ(after.live_count, before.live_count);
    }
    CHECK_EQ(st, SLUICE_OK);
    CHECK(n > 30);
}

TEST(a_sound_that_was_changed_after_the_start_is_noticed_where_it_is_drawn)
{
    static drawn_speech b;
    sluice_data *d;
    begin();
    sl_data_options o = options();
    REQUIRE_OK(sl_data_speech(&o, &d));
    make_fields(d, &b);
    write_tones(in_folder("2.wav"), "abcd", 0);
    CHECK_EQ(d->ops->fill(d, 0, 5, (sl_data_field[]){ { "labels", SLUICE_I32, 3, b.labels } }, 1), SLUICE_OK);
    sluice_status st = SLUICE_OK;
    for (uint64_t i = 0; i < 2 && st == SLUICE_OK; i++) st = d->ops->fill(d, i, BATCH, b.fields, 3);
    CHECK_EQ(st, SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "2.wav was changed since the data was opened: it had ");
    sluice_data_destroy(d);
}

#endif
