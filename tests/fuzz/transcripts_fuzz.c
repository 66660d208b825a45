/* transcripts_fuzz.c: lists of sounds and what is said in them, beside one sound that is there: what is accepted has labels below its
 * classes and frames enough for them. */
#include <string.h>

#include "data/data.h"
#include "support/fuzz/fuzz.h"
#include "support/wav_writer.h"

static void use(sluice_data *d)
{
    sl_speech_size size;
    int64_t valid, classes = sl_data_classes(d);
    FUZZ_CHECK(sl_data_speech_size(d, &size) && size.rows > 0 && size.labels > 0);
    int32_t *labels = malloc((size_t)size.labels * sizeof *labels), length = 0;
    if (labels == NULL) exit(99);
    const sl_data_field fields[] = { { "lengths", SLUICE_I32, 1, &length },
                                     { "labels", SLUICE_I32, size.labels, labels } };
    for (int64_t i = 0; i < d->ops->samples(d, SL_SPLIT_TRAIN) && i < 16; i++) {
        FUZZ_CHECK(d->ops->fill_eval(d, SL_SPLIT_TRAIN, i, 1, fields, 2, &valid) == SLUICE_OK);
        int64_t count = 0;
        while (count < size.labels && labels[count] >= 0) FUZZ_CHECK(labels[count] > 0 && labels[count++] < classes);
        FUZZ_CHECK(count > 0 && count <= length && length <= size.rows);
    }
    for (int64_t i = 1; i < classes; i++) FUZZ_CHECK(strlen(sl_data_class_name(d, i)) > 0);
    free(labels);
}

void fuzz_transcripts(const uint8_t *data, size_t bytes)
{
    char sound[4200];
    sluice_data *d;
    sl_data_options o = { .type = "speech", .normalize = SL_NORMALIZE_AUTO, .mels = 8, .frame_stride = 1 };
    snprintf(sound, sizeof sound, "%s/a.wav", fuzz_folder());
    write_tones(sound, "abcd", 0);
    o.path = fuzz_file("transcripts.tsv", data, bytes);
    if (!fuzz_accepted(sl_data_speech(&o, &d))) return;
    use(d);
    sluice_data_destroy(d);
}
