/* tokens_fuzz.c: a token file of every type; as bare uint16 also with a mask, the lowest bit of each token. */
#include "data/data.h"
#include "format/token_file.h"
#include "support/fuzz/fuzz.h"

enum { CONTEXT = 8, ROWS = 3, VOCABULARY = 60000 };

static void check_ids(const int32_t *ids, int32_t least)
{
    for (int i = 0; i < ROWS * CONTEXT; i++) FUZZ_CHECK(ids[i] >= least && ids[i] < VOCABULARY);
}

/* Ids beyond the vocabulary are found here at the latest. */
static void use(sluice_data *d, const sl_data_options *o)
{
    int32_t tokens[ROWS * CONTEXT], targets[ROWS * CONTEXT], positions[ROWS * CONTEXT];
    const sl_data_field fields[] = { { "tokens", SLUICE_I32, CONTEXT, tokens },
                                     { "targets", SLUICE_I32, CONTEXT, targets },
                                     { "positions", SLUICE_I32, CONTEXT, positions } };
    const int count = o->packing == SL_PACKING_DOCUMENTS ? 3 : 2;
    int64_t valid, counted;
    for (uint64_t index = 0; index < 4; index++) {
        FUZZ_CHECK(d->ops->fill(d, index, ROWS, fields, count) == SLUICE_OK);
        FUZZ_CHECK(d->ops->targets(d, index, ROWS, &counted) == SLUICE_OK);
        check_ids(tokens, 0);
        check_ids(targets, -1);
        for (int i = 0; i < ROWS * CONTEXT; i++) counted -= targets[i] >= 0;
        FUZZ_CHECK(counted == 0);
    }
    for (int split = SL_SPLIT_TRAIN; split <= SL_SPLIT_VALIDATION; split++) {
        if (d->ops->samples(d, (sl_data_split)split) == 0) continue;
        FUZZ_CHECK(d->ops->fill_eval(d, (sl_data_split)split, 0, ROWS, fields, count, &valid) == SLUICE_OK);
        check_ids(tokens, 0);
        check_ids(targets, -1);
        for (int i = 0; count == 3 && i < ROWS * CONTEXT; i++)
            FUZZ_CHECK(positions[i] >= 0 && positions[i] <= i % CONTEXT);
    }
}

/* Where the bytes are bare uint16: 0 or 1 for each. */
static void write_mask(const uint8_t *data, size_t bytes, char path[4096])
{
    uint8_t mask[1 << 12];
    size_t count = bytes / 2 < sizeof mask ? bytes / 2 : sizeof mask;
    for (size_t i = 0; i < count; i++) mask[i] = data[2 * i] & 1;
    snprintf(path, 4096, "%s", fuzz_file("mask.bin", mask, count));
}

static void feed(const sl_data_options *o)
{
    sluice_data *d;
    if (!fuzz_accepted(sl_data_tokens(o, CONTEXT, VOCABULARY, &d))) return;
    use(d, o);
    d->ops->destroy(d);
}

void fuzz_tokens(const uint8_t *data, size_t bytes)
{
    char mask[4096];
    write_mask(data, bytes, mask);
    sl_data_options o = {
        .path = fuzz_file("tokens.bin", data, bytes), .validation = 0.25, .shuffle = true, .seed = 1
    };
    for (o.dtype = SL_TOKENS_UNKNOWN; o.dtype <= SL_TOKENS_U32; o.dtype++) {
        o.packing = o.dtype == SL_TOKENS_U32 ? SL_PACKING_DOCUMENTS : SL_PACKING_NONE;
        feed(&o);
    }
    o.dtype = SL_TOKENS_U16;
    o.mask_path = mask;
    feed(&o);
}
