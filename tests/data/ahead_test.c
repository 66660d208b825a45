/* ahead_test.c: what threads fill ahead is what would be filled without them, and failures come where they belong. */
#include "data/ahead.h"

#include <inttypes.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/status.h"
#include "data/source.h"
#include "test.h"

enum { ROWS = 12, WIDTH = 3, TRAIN = 101, HELD = 29 };

/* Numbers that follow from the sample; one sample may be bad. Counts how often it was asked. */
typedef struct counted {
    sluice_data base;
    sl_data_ops ops;
    int64_t bad;  /* sample of training that fails; -1: none */
    int delay_us; /* of each sample */
    _Atomic int64_t filled;
    _Atomic int64_t *also; /* outlives it; NULL: none */
} counted;

static void counted_destroy(sluice_data *d)
{
    sl_free(d);
}

static int64_t counted_samples(const sluice_data *d, sl_data_split split)
{
    (void)d;
    return split == SL_SPLIT_TRAIN ? TRAIN : HELD;
}

static void write_row(const sl_data_field *fields, int64_t row, int64_t sample, uint64_t epoch)
{
    float *x = sl_data_row(&fields[0], row);
    for (int i = 0; i < WIDTH; i++) x[i] = (float)(sample * WIDTH + i) + (float)epoch * 0.25f;
    *(int32_t *)sl_data_row(&fields[1], row) = (int32_t)sample;
}

static sluice_status counted_fill(sluice_data *d, uint64_t index, int64_t rows, const sl_data_field *fields, int count)
{
    counted *c = (counted *)d;
    (void)count;
    for (int64_t r = 0; r < rows; r++) {
        sl_data_place at = sl_data_locate(3, true, TRAIN, index * (uint64_t)rows + (uint64_t)r);
        if (c->delay_us > 0) usleep((useconds_t)c->delay_us);
        if (at.sample == c->bad) return sl_fail(SLUICE_ERR_INPUT, "sample %" PRId64 " is bad", at.sample);
        write_row(fields, r, at.sample, at.epoch);
        c->filled++;
        if (c->also != NULL) ++*c->also;
    }
    return SLUICE_OK;
}

static sluice_status counted_fill_eval(sluice_data *d, sl_data_split split, int64_t first, int64_t rows,
                                       const sl_data_field *fields, int count, int64_t *valid)
{
    (void)count;
    int64_t left = counted_samples(d, split) - first;
    if (left < 1) return sl_fail(SLUICE_ERR_USAGE, "past the end");
    *valid = left < rows ? left : rows;
    for (int64_t r = 0; r < rows; r++) {
        write_row(fields, r, first + (r < *valid ? r : *valid - 1), 0);
        if (r >= *valid) *(int32_t *)sl_data_row(&fields[1], r) = -1;
    }
    return SLUICE_OK;
}

static uint64_t counted_memory(const sluice_data *d)
{
    (void)d;
    return 1000;
}

static counted *make_counted(sl_fill_effort effort, int64_t bad)
{
    counted *c = sl_alloc(sizeof *c, "counted");
    if (c == NULL) exit(99);
    c->ops = (sl_data_ops){ .name = "counted",
                            .destroy = counted_destroy,
                            .samples = counted_samples,
                            .fill = counted_fill,
                            .fill_eval = counted_fill_eval,
                            .memory_bytes = counted_memory,
                            .effort = effort };
    c->base.ops = &c->ops;
    c->bad = bad;
    return c;
}

typedef struct rows_of {
    float x[ROWS * WIDTH];
    int32_t target[ROWS];
    sl_data_field fields[2];
} rows_of;

static void make_rows(rows_of *r)
{
    memset(r, 0x55, sizeof *r);
    r->fields[0] = (sl_data_field){ "x", SLUICE_F32, WIDTH, r->x };
    r->fields[1] = (sl_data_field){ "target", SLUICE_I32, 1, r->target };
}

static sluice_data *make_ahead(counted *c, int workers, int stride)
{
    rows_of r;
    sluice_data *d = NULL;
    make_rows(&r);
    const sl_ahead_options o = {
        .workers = workers, .stride = stride, .rows = ROWS, .fields = r.fields, .field_count = 2
    };
    CHECK_EQ(sl_data_ahead(&c->base, &o, &d), SLUICE_OK);
    return d;
}

/* The same from both, at every index of a rank of `stride` ranks from `first` on. */
static void check_same(sluice_data *ahead, sluice_data *plain, uint64_t first, int stride, int count)
{
    rows_of a, b;
    for (int i = 0; i < count; i++) {
        uint64_t index = first + (uint64_t)(i * stride);
        make_rows(&a);
        make_rows(&b);
        REQUIRE_OK(ahead->ops->fill(ahead, index, ROWS, a.fields, 2));
        REQUIRE_OK(plain->ops->fill(plain, index, ROWS, b.fields, 2));
        CHECK(memcmp(a.x, b.x, sizeof a.x) == 0);
        CHECK(memcmp(a.target, b.target, sizeof a.target) == 0);
    }
}

TEST(batches_ahead_are_the_same_with_any_number_of_threads_and_ranks)
{
    static const int workers[] = { 1, 4, 7 }, strides[] = { 1, 2, 5 };
    counted *plain = make_counted(SL_FILL_SLOW, -1);
    for (int w = 0; w < 3; w++)
        for (int s = 0; s < 3; s++)
            for (int effort = SL_FILL_SOME; effort <= SL_FILL_SLOW; effort++) {
                sluice_data *d = make_ahead(make_counted((sl_fill_effort)effort, -1), workers[w], strides[s]);
                REQUIRE(d != NULL);
                for (int rank = 0; rank < strides[s]; rank++)
                    check_same(d, &plain->base, (uint64_t)rank, strides[s], 20);
                check_same(d, &plain->base, 777, strides[s], 3); /* as after a resume */
                sluice_data_destroy(d);
            }
    sluice_data_destroy(&plain->base);
}

/* 29 samples in batches of 12: the last has 5 and padding. */
TEST(evaluation_ahead_pads_as_it_should_and_training_goes_on_behind_it)
{
    rows_of a, b;
    int64_t valid, expected;
    counted *plain = make_counted(SL_FILL_SLOW, -1);
    sluice_data *d = make_ahead(make_counted(SL_FILL_SLOW, -1), 3, 1);
    REQUIRE(d != NULL);
    for (int round = 0; round < 3; round++) {
        check_same(d, &plain->base, (uint64_t)(4 * round), 1, 4);
        for (int64_t first = 0; first < HELD; first += ROWS) {
            make_rows(&a);
            make_rows(&b);
            REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_VALIDATION, first, ROWS, a.fields, 2, &valid));
            REQUIRE_OK(counted_fill_eval(&plain->base, SL_SPLIT_VALIDATION, first, ROWS, b.fields, 2, &expected));
            CHECK_EQ(valid, expected);
            CHECK(memcmp(a.x, b.x, sizeof a.x) == 0);
            CHECK(memcmp(a.target, b.target, sizeof a.target) == 0);
        }
    }
    CHECK_EQ(d->ops->fill_eval(d, SL_SPLIT_VALIDATION, HELD, ROWS, a.fields, 2, &valid), SLUICE_ERR_USAGE);
    sluice_data_destroy(d);
    sluice_data_destroy(&plain->base);
}

TEST(a_failure_ahead_is_told_by_the_batch_it_belongs_to_each_time)
{
    rows_of a;
    uint64_t at = 0;
    counted *plain = make_counted(SL_FILL_SLOW, -1);
    while (sl_data_locate(3, true, TRAIN, at).sample != 42) at++;
    for (int workers = 1; workers <= 4; workers += 3) {
        sluice_data *d = make_ahead(make_counted(SL_FILL_SLOW, 42), workers, 1);
        REQUIRE(d != NULL);
        uint64_t batch = at / ROWS;
        check_same(d, &plain->base, 0, 1, (int)batch);
        make_rows(&a);
        for (int again = 0; again < 2; again++) {
            sl_error_record("something else");
            CHECK_EQ(d->ops->fill(d, batch, ROWS, a.fields, 2), SLUICE_ERR_INPUT);
            CHECK_STR(sluice_error(), "sample 42 is bad");
        }
        check_same(d, &plain->base, batch + 1, 1, 2); /* and goes on */
        sluice_data_destroy(d);
    }
    sluice_data_destroy(&plain->base);
}

/* While nobody asks, threads fill three micro-batches and no more. */
TEST(no_more_is_filled_ahead_than_there_is_room_for)
{
    counted *c = make_counted(SL_FILL_SLOW, -1);
    sluice_data *d = make_ahead(c, 4, 1);
    rows_of a;
    REQUIRE(d != NULL);
    CHECK_EQ(d->ops->memory_bytes(d), sl_ahead_bytes(ROWS * (WIDTH + 1) * 4) + 1000);
    CHECK(sl_ahead_bytes(ROWS * (WIDTH + 1) * 4) >= 3 * ROWS * (WIDTH + 1) * 4);
    make_rows(&a);
    REQUIRE_OK(d->ops->fill(d, 0, ROWS, a.fields, 2));
    for (int i = 0; i < 200 && c->filled < 4 * ROWS; i++) usleep(1000);
    usleep(20000);
    CHECK_EQ(c->filled, 4 * ROWS); /* the one that was taken, and three */
    sluice_data_destroy(d);
}

/* What was not begun when it ends is given up: of three micro-batches of 12 samples each, a second of work, two pieces at most. */
TEST(threads_ahead_end_with_the_piece_they_are_at)
{
    static _Atomic int64_t filled;
    counted *c = make_counted(SL_FILL_SLOW, -1);
    rows_of a;
    c->delay_us = 20000;
    c->also = &filled;
    filled = 0;
    sluice_data *d = make_ahead(c, 2, 1);
    REQUIRE(d != NULL);
    make_rows(&a);
    REQUIRE_OK(d->ops->fill(d, 0, ROWS, a.fields, 2));
    int64_t before = filled;
    sluice_data_destroy(d);
    CHECK_THAT(filled - before <= 4, "%lld samples were filled after the end", (long long)(filled - before));
}

static void count_buffer(void *user, void *buffer, size_t bytes)
{
    CHECK(buffer != NULL);
    *(size_t *)user += bytes;
}

/* Buffers change hands and go round: those of the caller are filled ahead, and what it gets holds the batch. */
TEST(batches_that_are_exchanged_are_those_that_would_be_copied)
{
    counted *plain = make_counted(SL_FILL_QUICK, -1);
    sluice_data *ahead = make_ahead(make_counted(SL_FILL_QUICK, -1), 2, 1);
    rows_of expected;
    sl_data_field given[2];
    size_t held = 0;
    make_rows(&expected);
    memcpy(given, expected.fields, sizeof given);
    for (int i = 0; i < 2; i++)
        REQUIRE((given[i].buffer = sl_alloc_array(ROWS, (size_t)given[i].row_elements * 4, "batch")) != NULL);
    for (uint64_t index = 0; index < 20; index++) {
        const void *before = given[0].buffer;
        REQUIRE_OK(sl_ahead_exchange(ahead, index, ROWS, given, 2));
        CHECK(given[0].buffer != before);
        REQUIRE_OK(plain->ops.fill(&plain->base, index, ROWS, expected.fields, 2));
        CHECK(memcmp(given[0].buffer, expected.x, sizeof expected.x) == 0);
        CHECK(memcmp(given[1].buffer, expected.target, sizeof expected.target) == 0);
    }
    sl_ahead_each_buffer(ahead, count_buffer, &held);
    CHECK_EQ(held, 3 * (sizeof expected.x + sizeof expected.target));
    for (int i = 0; i < 2; i++) sl_free(given[i].buffer);
    sluice_data_destroy(ahead);
    counted_destroy(&plain->base);
}

TEST(other_rows_and_fields_than_expected_are_filled_all_the_same)
{
    counted *plain = make_counted(SL_FILL_SLOW, -1);
    sluice_data *d = make_ahead(make_counted(SL_FILL_SLOW, -1), 2, 1);
    rows_of a, b;
    REQUIRE(d != NULL);
    make_rows(&a);
    make_rows(&b);
    REQUIRE_OK(d->ops->fill(d, 5, ROWS / 2, a.fields, 2));
    REQUIRE_OK(plain->ops.fill(&plain->base, 5, ROWS / 2, b.fields, 2));
    CHECK(memcmp(a.x, b.x, sizeof a.x) == 0);
    sluice_data_destroy(d);
    sluice_data_destroy(&plain->base);
}
