/* sound_file_test.c: WAV files of every kind that is read become the numbers they stand for, and damaged ones are refused with the byte. */
#include "format/sound_file.h"

#include "support/wav_writer.h"
#include "test.h"

#ifdef SLUICE_SOUND

enum { RATE = 16000 };

static uint8_t file[4096];

static sluice_status decode(size_t bytes, sl_sound *out)
{
    return sl_sound_decode("a.wav", file, bytes, out);
}

TEST(pcm_of_all_widths_and_floats_become_numbers_from_minus_one_to_one)
{
    static const int16_t two[] = { 0, 16384, -32768 };
    static const uint8_t one[] = { 128, 192, 0 }, three[] = { 0, 0, 0, 0, 0, 64, 0, 0, 128 };
    static const int32_t four[] = { 0, 1 << 30, INT32_MIN };
    static const float f32[] = { 0, 0.5f, -1 };
    static const double f64[] = { 0, 0.5, -1 };
    static const struct {
        unsigned codec, bits;
        const void *samples;
    } kinds[] = { { WAV_PCM, 8, one },   { WAV_PCM, 16, two },   { WAV_PCM, 24, three },
                  { WAV_PCM, 32, four }, { WAV_FLOAT, 32, f32 }, { WAV_FLOAT, 64, f64 } };
    sl_sound s = { .samples = NULL };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        wav_kind k = { kinds[i].codec, 1, RATE, kinds[i].bits };
        REQUIRE_OK(decode(wav_make(k, kinds[i].samples, 3 * k.bits / 8, file), &s));
        CHECK_EQ(s.info.samples, 3);
        CHECK_EQ(s.info.rate, RATE);
        CHECK_EQ(s.info.data, WAV_HEADER);
        CHECK_NEAR(s.samples[0], 0, 0);
        CHECK_NEAR(s.samples[1], 0.5, 0);
        CHECK_NEAR(s.samples[2], -1, 0);
    }
    sl_sound_free(&s);
}

TEST(channels_are_averaged_and_chunks_that_mean_nothing_here_are_passed_over)
{
    static const float stereo[] = { 1, 0, 0.25f, 0.75f };
    sl_sound s = { .samples = NULL };
    size_t bytes = wav_make((wav_kind){ WAV_FLOAT, 2, RATE, 32 }, stereo, sizeof stereo, file);
    memmove(file + 36 + 12, file + 36, bytes - 36); /* an odd chunk, with its padding, before the samples */
    memcpy(file + 36, "LIST\3\0\0\0abc\0", 12);
    REQUIRE_OK(decode(bytes + 12, &s));
    CHECK_EQ(s.info.channels, 2);
    CHECK_EQ(s.info.samples, 2);
    CHECK_NEAR(s.samples[0], 0.5, 0);
    CHECK_NEAR(s.samples[1], 0.5, 0);
    sl_sound_free(&s);
}

TEST(mu_law_is_expanded)
{
    static const uint8_t bytes[] = { 0xff, 0x80, 0x00 }; /* G.711: 0, the largest and the least */
    sl_sound s = { .samples = NULL };
    REQUIRE_OK(decode(wav_make((wav_kind){ WAV_MU_LAW, 1, 8000, 8 }, bytes, sizeof bytes, file), &s));
    CHECK_NEAR(s.samples[0], 0, 0);
    CHECK_NEAR(s.samples[1], 32124.0 / 32768, 0);
    CHECK_NEAR(s.samples[2], -32124.0 / 32768, 0);
    sl_sound_free(&s);
}

TEST(flac_files_are_read_whole_or_refused)
{
    sl_sound s = { .samples = NULL };
    sl_sound_info info;
    FILE *in = fopen(SLUICE_SOURCE_DIR "/tests/fuzz/corpus/sound/tone.flac", "rb");
    REQUIRE(in != NULL);
    size_t bytes = fread(file, 1, sizeof file, in);
    fclose(in);
    REQUIRE_OK(sl_sound_look(SLUICE_SOURCE_DIR "/tests/fuzz/corpus/sound/tone.flac", &info));
    CHECK_EQ(info.rate, 16000);
    CHECK_EQ(info.channels, 1);
    CHECK_EQ(info.samples, 300);
    REQUIRE_OK(decode(bytes, &s));
    for (int i = 0; i < 300; i++) CHECK_NEAR(s.samples[i], 0.5 * sin(0.1 * i), 1e-4);
    CHECK_EQ(decode(bytes - 40, &s), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "a.wav, before byte ");
    CHECK_EQ(decode(20, &s), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "a.wav, byte 20: the file ends in its header");
    file[18] = 0, file[19] = 0, file[20] &= 0xf;
    CHECK_EQ(decode(bytes, &s), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "a.wav, byte 18: 0 samples a second");
    sl_sound_free(&s);
}

/* A good file of ten samples with something else at a place, cut to a length. */
typedef struct damage {
    int at;
    const char *bytes;
    int count;
    int length; /* 0: as it was */
    const char *says;
} damage;

TEST(damaged_headers_are_refused_with_their_byte)
{
    static const int16_t samples[10] = { 1, 2, 3 };
    static const damage all[] = {
        { 0, "ID3", 3, 0, "a.wav, byte 0: neither a WAV nor a FLAC file, but an MP3 file" },
        { 0, "RIFX", 4, 0, "byte 0: neither a WAV nor a FLAC file, but a WAV file of big-endian numbers" },
        { 8, "AVI ", 4, 0, "byte 0: neither a WAV nor a FLAC file, but a RIFF file without sound" },
        { 0, "", 0, 7, "byte 7: the file ends in its header" },
        { 0, "", 0, 16, "byte 16: the file ends before its format" },
        { 0, "", 0, 30, "byte 16: a chunk of 16 bytes, and the file ends 10 behind it: it was cut off" },
        { 0, "", 0, 40, "byte 40: the file ends before its samples" },
        { 0, "", 0, 60, "byte 40: a chunk of 20 bytes, and the file ends 16 behind it: it was cut off" },
        { 40, "\xff\xff\xff\x7f", 4, 0, "or a program wrote it to a pipe and never knew its length" },
        { 40, "\x13", 1, 0, "byte 62: 19 bytes of samples of 2 bytes: the last is cut off" },
        { 40, "\0", 1, 0, "byte 40: there are no samples in it" },
        { 16, "\x0e", 1, 0, "byte 20: a format of 14 bytes, and 16 are the least" },
        { 20, "\x55\0", 2, 0, "byte 20: codec 0x0055 is not read; PCM, floating point, A-law and mu-law are" },
        { 22, "\0\0", 2, 0, "byte 22: 0 channels; sounds of 1 to 64 are read" },
        { 22, "\xff\xff", 2, 0, "byte 22: 65535 channels" },
        { 24, "\0\0\0\0", 4, 0, "byte 24: 0 samples a second; rates of 1000 to 384000 are read" },
        { 24, "\xff\xff\xff\xff", 4, 0, "byte 24: 4294967295 samples a second" },
        { 32, "\4", 1, 0, "byte 32: blocks of 4 bytes; 1 channels of 16 bits are 2" },
        { 34, "\7", 1, 0, "byte 34: samples of 7 bits, which codec 1 does not have" },
        { 12, "junk", 4, 0, "byte 36: samples before the chunk that says what they are" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        sl_sound s = { .samples = NULL };
        size_t bytes = wav_make((wav_kind){ WAV_PCM, 1, RATE, 16 }, samples, sizeof samples, file);
        memcpy(file + all[i].at, all[i].bytes, (size_t)all[i].count);
        CHECK_EQ(decode(all[i].length > 0 ? (size_t)all[i].length : bytes, &s), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), all[i].says);
        sl_sound_free(&s);
    }
}

TEST(numbers_that_are_no_loudness_are_refused_with_their_place)
{
    float samples[20000] = { 0 };
    static uint8_t long_file[WAV_HEADER + sizeof samples];
    const float bad[] = { NAN, INFINITY };
    const char *const says[] = { "a.wav, byte 71908: sample 17966 is not a number", "sample 17966 is infinite" };
    for (int i = 0; i < 2; i++) {
        sl_sound s = { .samples = NULL };
        samples[17966] = bad[i];
        size_t bytes = wav_make((wav_kind){ WAV_FLOAT, 1, RATE, 32 }, samples, sizeof samples, long_file);
        CHECK_EQ(sl_sound_decode("a.wav", long_file, bytes, &s), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), says[i]);
        sl_sound_free(&s);
    }
}

TEST(headers_in_files_say_what_files_in_memory_do)
{
    static const int16_t samples[10] = { 1, 2, 3 };
    char path[4200];
    sl_sound_info info;
    snprintf(path, sizeof path, "%s/a.wav", test_tmpdir());
    wav_write(path, file, wav_make((wav_kind){ WAV_PCM, 2, 44100, 16 }, samples, sizeof samples, file));
    REQUIRE_OK(sl_sound_look(path, &info));
    CHECK_EQ(info.samples, 5);
    CHECK_EQ(info.channels, 2);
    CHECK_EQ(info.rate, 44100);
    wav_write(path, file, 0);
    CHECK_EQ(sl_sound_look(path, &info), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "a.wav is empty");
}

#else

TEST(without_libsndfile_sounds_are_refused_with_what_to_install)
{
    sl_sound s = { .samples = NULL };
    CHECK_STR(sl_sound_formats(), "");
    CHECK_EQ(sl_sound_decode("a.wav", (const uint8_t *)"RIFF", 4, &s), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "a.wav: this sluice was built without libsndfile");
}

#endif
