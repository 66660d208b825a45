/* speech_cli_test.c: training on speech: the loss falls and what was said is understood; one hash on ranks, stages and threads and after
 * an interruption; bad files end with status 4, the file and the place, and checkpoints stay what they were. */
#include <limits.h>
#include <sys/stat.h>

#include "support/run.h"
#include "support/wav_writer.h"
#include "test.h"

#ifdef SLUICE_SOUND

#define CONFIG                                                                                                         \
    "{\"model\": {\"type\": \"speech\", \"filters\": [4], \"frame_stride\": 2, \"layers\": 1, \"width\": 24}, "        \
    "\"data\": {\"type\": \"speech\", \"path\": \"good\", \"mels\": 16, \"validation\": 0.2}, \"steps\": 6, "          \
    "\"threads\": 1, \"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 2, \"evaluate\": {\"metric\": "      \
    "\"cer\"}, \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.01}}}"

static char root[4096];

static const char *in_root(const char *name)
{
    static char path[4400];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static void begin(int count)
{
    snprintf(root, sizeof root, "%s", test_tmpdir());
    if (mkdir(in_root("good"), 0777) != 0) exit(99);
    write_tone_folder(in_root("good"), count);
    run_write(root, "config.json", CONFIG);
}

TEST(speech_gives_one_hash_with_any_threads_ranks_stages_and_placement_and_after_a_resume)
{
    static const char *const others[] = {
        "--set data.threads=3",
        "--ranks 2",
        "--ranks 2 --set zero_optimization.stage=1 --set data.threads=2",
        "--ranks 4 --set zero_optimization.stage=2",
        "--ranks 4 --set zero_optimization.stage=3 --set zero_optimization.partition=block",
        "--ranks 2 --set zero_optimization.stage=3 --set zero_optimization.offload_param.device=cpu",
        "--set zero_optimization.offload_optimizer.device=cpu --set activation_checkpointing.mode=recompute",
    };
    char one[RUN_HASHES], other[RUN_HASHES];
    begin(30);
    run_hashes(root, "--set data.threads=0 --set data.time_masks=1 --set data.frequency_masks=1", one);
    CHECK(strlen(one) > 100);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments, "%s --set data.time_masks=1 --set data.frequency_masks=1", others[i]);
        run_hashes(root, arguments, other);
        CHECK_STR(other, one);
    }
    run_must(root,
             "train config.json --quiet --set steps=4 --set checkpoint.path=c --ranks 2 --set data.time_masks=1 --set "
             "data.frequency_masks=1");
    run_hashes(root, "--set checkpoint.path=c --resume --set data.time_masks=1 --set data.frequency_masks=1", other);
    CHECK_STR(other, one);
    run_hashes(root, "", other);
    CHECK(strcmp(other, one) != 0);
    run_hashes(root, "--set bf16.enabled=true", one);
    run_hashes(root, "--set bf16.enabled=true --ranks 4 --set zero_optimization.stage=3", other);
    CHECK_STR(other, one);
}

static double number_behind(const char *text, const char *key)
{
    const char *at = text != NULL ? strstr(text, key) : NULL;
    return at != NULL ? strtod(at + strlen(key), NULL) : NAN;
}

TEST(a_recogniser_learns_letters_of_tones_and_writes_what_it_understood)
{
    begin(150);
    run_result r = run_sluice(root, "train config.json --json --set steps=150 --set save=w.safetensors");
    CHECK_THAT(r.status == 0, "%s", r.error);
    const char *first = strstr(r.out, "\"event\":\"eval\""), *last = first;
    for (const char *at = first; at != NULL; at = strstr(at + 1, "\"event\":\"eval\"")) last = at;
    CHECK(first != NULL && last != first);
    CHECK(number_behind(first, "\"loss\":") > 3 * number_behind(last, "\"loss\":"));
    CHECK(number_behind(first, "\"cer\":") > 0.5);
    CHECK_THAT(number_behind(last, "\"cer\":") < 0.05, "character error rate %g", number_behind(last, "\"cer\":"));
    CHECK(number_behind(last, "\"wer\":") < 0.2);
    run_free(&r);
    r = run_sluice(root, "eval config.json --weights w.safetensors --predictions said.csv");
    CHECK_THAT(r.status == 0, "%s", r.error);
    CHECK_CONTAINS(r.out, "cer");
    CHECK_CONTAINS(r.out, "wer");
    run_free(&r);
    char *rows = run_read(in_root("said.csv"));
    CHECK_CONTAINS(rows, "index,target,predicted\n0,");
    int lines = 0, right = 0;
    for (char *save, *row = strtok_r(rows, "\n", &save); row != NULL; row = strtok_r(NULL, "\n", &save), lines++) {
        char said[64] = "", heard[64] = "";
        if (lines > 0 && sscanf(row, "%*d,%63[^,],%63[^\n]", said, heard) == 2) right += strcmp(said, heard) == 0;
    }
    CHECK_EQ(lines, 31);
    CHECK(right >= 25);
    free(rows);
    /* utterances count the same whatever batches they come in; rows that fill the last one do not */
    double loss[2], cer[2];
    for (int i = 0; i < 2; i++) {
        r = run_sluice(root, i == 0 ? "eval config.json --json --weights w.safetensors"
                                    : "eval config.json --json --weights w.safetensors --set train_batch_size=7 --set "
                                      "train_micro_batch_size_per_gpu=7");
        CHECK_THAT(r.status == 0, "%s", r.error);
        loss[i] = number_behind(r.out, "\"loss\":");
        cer[i] = number_behind(r.out, "\"cer\":");
        run_free(&r);
    }
    CHECK_NEAR(loss[0], loss[1], 1e-5 * loss[0]);
    CHECK_NEAR(cer[0], cer[1], 0);
    /* weights keep their characters: a list that lacks some of them is understood as before */
    run_write(root, "good/few.tsv", "path\ttext\n000.wav\ta\n");
    r = run_sluice(root,
                   "eval config.json --weights w.safetensors --set data.path=good/few.tsv --set data.validation=0");
    CHECK_THAT(r.status == 0, "%s", r.error);
    run_free(&r);
    run_write(root, "good/few.tsv", "path\ttext\n000.wav\tz\n");
    r = run_sluice(root,
                   "eval config.json --weights w.safetensors --set data.path=good/few.tsv --set data.validation=0");
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, "good/few.tsv, line 2: character \"z\" (U+007A) at byte 0 is not among the 5 characters");
    run_free(&r);
    r = run_sluice(root, "generate config.json --weights w.safetensors --prompt a");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "model.type \"speech\" does not generate text");
    run_free(&r);
}

TEST(a_recogniser_has_its_outputs_from_the_data_and_its_loss_from_ctc)
{
    begin(20);
    run_result r = run_sluice(root, "train config.json --quiet --set model.outputs=5");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "model.outputs is 5, and the data has 6 characters, the blank among them");
    run_free(&r);
    r = run_sluice(root, "train config.json --quiet --set model.loss=mse");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "speech is learnt by CTC's loss; leave it out");
    run_free(&r);
    r = run_sluice(root, "train config.json --quiet --set evaluate.metric=accuracy");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "evaluate.metric: this model has no accuracy; it has loss, wer, cer");
    run_free(&r);
    r = run_sluice(root, "train config.json --quiet --set model.type=cnn");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "cnn reads images, and speech has speech");
    run_free(&r);
    r = run_sluice(root, "plan config.json --json");
    CHECK_EQ(r.status, 0);
    run_free(&r);
    r = run_sluice(root, "train config.json --set data.max_seconds=0.4");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.error, "longer than data.max_seconds and left out; the first: ");
    run_free(&r);
}

/* ---- bad files ---- */

/* A change to the sixth sound: bytes at a place, then cut to a length. */
typedef struct change {
    int at;
    const char *bytes;
    int count;
    int length; /* 0: as it was */
    const char *says;
} change;

static const change changes[] = {
    { 0, "not a sound at all", 18, 18, "005.wav, byte 0: neither a WAV nor a FLAC file, but something else" },
    { 0, "\xff\xfb\x90\x44", 4, 0, "005.wav, byte 0: neither a WAV nor a FLAC file, but an MP3 file" },
    { 0, "", 0, -1, "005.wav is empty" },
    { 0, "", 0, 9, "005.wav, byte 9: the file ends in its header" },
    { 0, "", 0, 33, "005.wav, byte 16: a chunk of 16 bytes, and the file ends 13 behind it" },
    { 0, "", 0, 500, "005.wav, byte 40: a chunk of " },
    { 22, "\0\0", 2, 0, "005.wav, byte 22: 0 channels" },
    { 20, "\x50\0", 2, 0, "005.wav, byte 20: codec 0x0050 is not read" },
    { 24, "\x01\0\0\0", 4, 0, "005.wav, byte 24: 1 samples a second; rates of 1000 to 384000 are read" },
    { 24, "\0\0\0\x7f", 4, 0, "005.wav, byte 24: 2130706432 samples a second" },
    { 24, "\x80\x3e\0\0", 4, 0, "005.wav has 16000 samples a second, and " },
    { 34, "\x0c", 1, 0, "005.wav, byte 34: samples of 12 bits" },
    { 40, "\0\0\0\0", 4, 0, "005.wav, byte 40: there are no samples in it" },
    { 40, "\x40\0\0\0", 4, 0, "005.wav has 32 samples, 4 ms, and 256 are the least" },
    { 36, "junk", 4, 0, "the file ends before its samples" },
};

/* The sixth sound of root/good, changed. */
static void spoil(const change *c)
{
    static uint8_t file[1 << 16];
    FILE *f = fopen(in_root("good/005.wav"), "rb");
    size_t bytes = f != NULL ? fread(file, 1, sizeof file, f) : 0;
    if (f == NULL || fclose(f) != 0 || bytes < 1000) exit(99);
    memcpy(file + c->at, c->bytes, (size_t)c->count);
    wav_write(in_root("good/005.wav"), file, c->length < 0 ? 0 : c->length > 0 ? (size_t)c->length : bytes);
}

/* A training that must end with status 4 and the message, and leaves the checkpoint that was there. */
static void check_refused(const char *says)
{
    run_refused(root, "train config.json --quiet --set checkpoint.path=c --resume", says, "good/");
    run_must(root, "verify c");
}

TEST(bad_sounds_end_with_status_4_the_file_and_the_byte_and_lose_nothing)
{
    begin(10);
    run_must(root, "train config.json --quiet --set steps=2 --set checkpoint.path=c");
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        write_tone_folder(in_root("good"), 10);
        spoil(&changes[i]);
        check_refused(changes[i].says);
    }
    write_tone_folder(in_root("good"), 10);
    if (remove(in_root("good/005.wav")) != 0) exit(99);
    check_refused("good/005.wav");
    write_tone_folder(in_root("good"), 10);
    run_must(root, "train config.json --quiet --set checkpoint.path=c --resume");
}

TEST(numbers_that_are_none_end_a_run_where_they_are_drawn)
{
    static float samples[4 * TONE_SAMPLES];
    static uint8_t file[WAV_HEADER + sizeof samples];
    begin(10);
    run_must(root, "train config.json --quiet --set steps=2 --set checkpoint.path=c");
    samples[100] = NAN;
    wav_write(in_root("good/005.wav"), file,
              wav_make((wav_kind){ WAV_FLOAT, 1, TONE_RATE, 32 }, samples, sizeof samples, file));
    run_result r = run_sluice(root, "train config.json --quiet --set checkpoint.path=c --resume");
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, "good/005.wav, byte 444: sample 100 is not a number, which is no loudness");
    run_free(&r);
    run_must(root, "verify c");
}

TEST(bad_transcripts_end_with_status_4_and_the_line)
{
    static const struct {
        const char *line, *says;
    } bad[] = {
        { "001.wav", "good/transcripts.tsv, line 3" },
        { "001.wav\t", "good/transcripts.tsv, line 3: the transcript of 001.wav is empty" },
        { "\tab", "good/transcripts.tsv, line 3: the path is empty" },
        { "001.wav\t\xff\xfe", "good/transcripts.tsv, line 3" },
        { "001.wav\tz", "good/transcripts.tsv, line 3: character \"z\" (U+007A) at byte 0 is not among" },
        { "none.wav\ta", "good/none.wav" },
        { "001.wav\tabcdabcdabcdabcdabcdabcdabcdabcdabcd", "good/transcripts.tsv, line 3: the 36 characters of "
                                                           "\"abcdabcdabcdabcdabcdabcdabcdabcdabcd\" need 36 frames" },
    };
    begin(10);
    run_must(root, "train config.json --quiet --set steps=2 --set checkpoint.path=c");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char list[512];
        snprintf(list, sizeof list, "path\ttext\n000.wav\ta\n%s\n002.wav\tb\n003.wav\tc\n", bad[i].line);
        run_write(root, "good/transcripts.tsv", list);
        check_refused(bad[i].says);
    }
}

#endif
