/* wav_writer.h: WAV files of given samples, and speech that is made of tones, for tests. */
#ifndef SLUICE_TEST_WAV_WRITER_H
#define SLUICE_TEST_WAV_WRITER_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAV_HEADER = 44, WAV_PCM = 1, WAV_FLOAT = 3, WAV_MU_LAW = 7 };

/* What a header says. */
typedef struct wav_kind {
    unsigned codec, channels, rate, bits;
} wav_kind;

static inline void wav_put(uint8_t *at, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

/* Header and `bytes` bytes of samples into out; returns how long it is. */
static inline size_t wav_make(wav_kind k, const void *samples, size_t bytes, uint8_t *out)
{
    unsigned block = k.channels * k.bits / 8;
    memcpy(out, "RIFF    WAVEfmt ", 16);
    wav_put(out + 4, (uint32_t)(36 + bytes), 4);
    wav_put(out + 16, 16, 4);
    wav_put(out + 20, k.codec, 2);
    wav_put(out + 22, k.channels, 2);
    wav_put(out + 24, k.rate, 4);
    wav_put(out + 28, k.rate * block, 4);
    wav_put(out + 32, block, 2);
    wav_put(out + 34, k.bits, 2);
    memcpy(out + 36, "data", 4);
    wav_put(out + 40, (uint32_t)bytes, 4);
    memcpy(out + WAV_HEADER, samples, bytes);
    return WAV_HEADER + bytes;
}

static inline void wav_write(const char *path, const uint8_t *bytes, size_t count)
{
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(bytes, 1, count, f) != count || fclose(f) != 0) exit(99);
}

/* ---- speech of tones: "a" is a low tone of 80 ms, "b" a higher one and so on, a space is a pause; 40 ms lie between ---- */

enum { TONE_RATE = 8000, TONE_SAMPLES = TONE_RATE * 12 / 100, TONE_MOST = 32 };

/* Samples of a text in out, which has room for TONE_MOST characters; `voice` shifts all tones a little. */
static inline size_t tones_of(const char *text, int voice, int16_t *out)
{
    size_t count = 0;
    for (; *text != '\0'; text++)
        for (int i = 0; i < TONE_SAMPLES; i++) {
            double pitch = 300.0 * pow(1.6, *text - 'a') * (1 + 0.01 * voice);
            bool sounds = *text != ' ' && i < TONE_RATE * 8 / 100;
            double noise = (double)((count * 7919 + (size_t)voice * 104729) % 97) / 97 - 0.5;
            out[count++] = (int16_t)(300 * noise + (sounds ? 9000 * sin(2 * M_PI * pitch * i / TONE_RATE) : 0));
        }
    return count;
}

static inline void write_tones(const char *path, const char *text, int voice)
{
    static int16_t samples[TONE_MOST * TONE_SAMPLES];
    static uint8_t file[WAV_HEADER + sizeof samples];
    size_t count = tones_of(text, voice, samples);
    wav_write(path, file, wav_make((wav_kind){ WAV_PCM, 1, TONE_RATE, 16 }, samples, 2 * count, file));
}

/* A folder of `count` utterances of one to four letters of "abcd", some with a space, and transcripts.tsv. */
static inline void write_tone_folder(const char *folder, int count)
{
    char path[4600], text[16];
    uint32_t s = 7;
    snprintf(path, sizeof path, "%s/transcripts.tsv", folder);
    FILE *list = fopen(path, "wb");
    if (list == NULL) exit(99);
    fprintf(list, "path\ttext\n");
    for (int i = 0; i < count; i++) {
        int used = 0, letters;
        s = s * 1664525 + 1013904223;
        letters = 1 + (int)(s >> 24) % 4;
        for (int k = 0; k < letters; k++) {
            s = s * 1664525 + 1013904223;
            if (k == 2) text[used++] = ' ';
            text[used++] = (char)('a' + (s >> 24) % 4);
        }
        text[used] = '\0';
        snprintf(path, sizeof path, "%s/%03d.wav", folder, i);
        write_tones(path, text, i % 5);
        fprintf(list, "%03d.wav\t%s\n", i, text);
    }
    if (fclose(list) != 0) exit(99);
}

#endif
