/* random_tokens.c: sequences of tokens drawn at random, for timing models and filling memory: nothing can be learned
 * from them but that all tokens are as frequent. */
#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "core/rng.h"
#include "data/source.h"

enum { COLUMN_TOKENS, COLUMN_TARGETS, COLUMN_COUNT };
/* Numbers its stream of the data domain (synthetic.c has the others). */
enum { STREAM_TOKENS = 5 };

typedef struct random_tokens {
    sl_table table;
    sl_data_column columns[COLUMN_COUNT];
    int64_t context;
    uint64_t vocabulary;
    sl_rng stream;
    char identity[65];
} random_tokens;

/* Token i of a sample is element sample * (context + 1) + i; targets are one further. */
static void write_row(const sl_table *t, int64_t sample, int column, void *row)
{
    const random_tokens *d = (const random_tokens *)t;
    uint64_t first = (uint64_t)sample * (uint64_t)(d->context + 1) + (column == COLUMN_TARGETS);
    int32_t *ids = row;
    for (int64_t i = 0; i < d->context; i++)
        ids[i] = (int32_t)sl_rng_below(&d->stream, first + (uint64_t)i, d->vocabulary);
}

static void destroy(sluice_data *d)
{
    sl_free(d);
}

static uint64_t memory_bytes(const sluice_data *d)
{
    (void)d;
    return sizeof(random_tokens);
}

static void identity(const sluice_data *d, char sha256[65])
{
    memcpy(sha256, ((const random_tokens *)d)->identity, 65);
}

static const sl_data_ops ops = {
    .name = "random tokens",
    .has_tokens = true,
    .destroy = destroy,
    .samples = sl_table_samples,
    .fill = sl_table_fill,
    .fill_eval = sl_table_fill_eval,
    .memory_bytes = memory_bytes,
    .identity = identity,
};

sluice_status sl_data_random_tokens(int64_t samples, int64_t context, int64_t vocabulary, double validation,
                                    uint64_t seed, sluice_data **out)
{
    int64_t train;
    sl_sha256 h;
    SL_TRY(sl_data_train_count(samples, validation, &train));
    if (train < 1 || context < 1 || vocabulary < 1 || vocabulary > INT32_MAX)
        return sl_fail(SLUICE_ERR_USAGE,
                       "random tokens need samples to train on, a context and a vocabulary, not %" PRId64 ", %" PRId64
                       " and %" PRId64,
                       train, context, vocabulary);
    random_tokens *d = sl_alloc(sizeof *d, "random tokens");
    if (d == NULL) return SLUICE_ERR_NO_MEMORY;
    d->table = (sl_table){ .base = { &ops },
                           .seed = seed,
                           .shuffle = true,
                           .train = train,
                           .total = samples,
                           .columns = d->columns,
                           .column_count = COLUMN_COUNT,
                           .write = write_row };
    d->columns[COLUMN_TOKENS] = (sl_data_column){ "tokens", SLUICE_I32, context };
    d->columns[COLUMN_TARGETS] = (sl_data_column){ "targets", SLUICE_I32, context };
    d->context = context;
    d->vocabulary = (uint64_t)vocabulary;
    d->stream = sl_rng_stream(seed, SL_RNG_DATA, 0, 0, STREAM_TOKENS);
    sl_identity_begin(&h,
                      "random tokens samples %" PRId64 " context %" PRId64 " vocabulary %" PRId64
                      " validation %.17g seed %" PRIu64,
                      samples, context, vocabulary, validation, seed);
    sl_identity_end(&h, d->identity);
    *out = &d->table.base;
    return SLUICE_OK;
}
