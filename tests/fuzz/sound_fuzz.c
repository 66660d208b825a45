/* sound_fuzz.c: WAV and FLAC files: what is decoded is whole, of numbers, and as long as its header says. */
#include <math.h>

#include "format/sound_file.h"
#include "support/fuzz/fuzz.h"

void fuzz_sound(const uint8_t *data, size_t bytes)
{
    sl_sound s = { .samples = NULL };
    sl_sound_info info;
    bool looked = fuzz_accepted(sl_sound_look(fuzz_file("sound.wav", data, bytes), &info));
    if (fuzz_accepted(sl_sound_decode("sound", data, bytes, &s))) {
        FUZZ_CHECK(looked && info.samples == s.info.samples && info.rate == s.info.rate);
        FUZZ_CHECK(s.info.samples > 0 && (size_t)s.info.samples * sizeof(float) <= s.capacity);
        FUZZ_CHECK(s.info.channels > 0 && s.info.channels <= SL_SOUND_MOST_CHANNELS);
        for (int64_t i = 0; i < s.info.samples; i++) FUZZ_CHECK(isfinite(s.samples[i]));
    }
    sl_sound_free(&s);
}
