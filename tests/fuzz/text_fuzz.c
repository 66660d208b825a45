/* text_fuzz.c: a text as training data, by bytes and by characters. */
#include "data/data.h"
#include "support/fuzz/fuzz.h"

enum { CONTEXT = 8, ROWS = 3 };

static void check_ids(const int32_t *ids, int32_t size, int32_t least)
{
    for (int i = 0; i < ROWS * CONTEXT; i++) FUZZ_CHECK(ids[i] >= least && ids[i] < size);
}

void fuzz_text(const uint8_t *data, size_t bytes)
{
    int32_t tokens[ROWS * CONTEXT], targets[ROWS * CONTEXT];
    const sl_data_field fields[] = { { "tokens", SLUICE_I32, CONTEXT, tokens },
                                     { "targets", SLUICE_I32, CONTEXT, targets } };
    const char *path = fuzz_file("text.txt", data, bytes);
    for (int unit = SL_TEXT_BYTES; unit <= SL_TEXT_CHARACTERS; unit++) {
        sluice_data *d;
        int64_t valid;
        if (!fuzz_accepted(sl_data_text(path, (sl_text_unit)unit, NULL, CONTEXT, 0.25, true, 1, &d))) continue;
        int32_t size = sl_data_characters(d)->size;
        for (uint64_t index = 0; index < 4; index++) {
            FUZZ_CHECK(d->ops->fill(d, index, ROWS, fields, 2) == SLUICE_OK);
            check_ids(tokens, size, 0);
            check_ids(targets, size, 0);
        }
        for (int split = SL_SPLIT_TRAIN; split <= SL_SPLIT_VALIDATION; split++) {
            if (d->ops->samples(d, (sl_data_split)split) == 0) continue;
            FUZZ_CHECK(d->ops->fill_eval(d, (sl_data_split)split, 0, ROWS, fields, 2, &valid) == SLUICE_OK);
            check_ids(tokens, size, 0);
            check_ids(targets, size, -1);
        }
        d->ops->destroy(d);
    }
}
