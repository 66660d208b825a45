/* attention_size_test.c: how cuDNN's gradient of attention is cut into pieces, and the memory that they are given. */
#include "test.h"

#include "backend/cuda/attention_size.h"

typedef struct cut_case {
    int64_t batches, queries, heads, key_heads, width;
    sl_cudnn_cut want;
} cut_case;

static const cut_case cut_cases[] = {
    { 2, 300, 4, 2, 64, { 2, 2 } },       /* as it is */
    { 64, 1024, 12, 12, 64, { 16, 12 } }, /* a quarter of the batches */
    { 8, 2048, 24, 8, 128, { 2, 8 } },    /* heads that share keys need more */
    { 7, 2048, 24, 8, 128, { 1, 8 } },    /* pieces are of one size: of seven batches, one */
    { 3, 8192, 24, 8, 128, { 1, 1 } },    /* not even a batch */
    { 1, 8192, 6, 6, 64, { 1, 3 } },      /* half of its heads */
    { 1, 65536, 2, 2, 64, { 1, 0 } },     /* not even a head */
};

TEST(attention_is_cut_into_equal_pieces_that_fit)
{
    for (size_t i = 0; i < sizeof cut_cases / sizeof cut_cases[0]; i++) {
        const cut_case *c = &cut_cases[i];
        sl_cudnn_cut cut = sl_cudnn_cut_of(c->batches, c->heads, c->key_heads, c->queries, c->queries, c->width);
        CHECK_EQ(cut.batches, c->want.batches);
        CHECK_EQ(cut.key_heads, c->want.key_heads);
    }
}

/* What version 9.19 asks for on a GPU of compute capability 9.0; a plan that asks for more would not be taken. */
TEST(attention_of_cudnn_gets_the_memory_that_it_asks_for)
{
    CHECK(sl_cudnn_plan_room(false, 8, 24, 8, 2048, 2048, 128) >= 256);
    CHECK(sl_cudnn_plan_room(true, 2, 24, 8, 2048, 2048, 128) >= 503316736);
    CHECK(sl_cudnn_plan_room(true, 16, 12, 12, 1024, 1024, 64) >= 402653440);
    CHECK(sl_cudnn_plan_room(true, 2, 4, 2, 300, 300, 64) >= 3195136);
    CHECK(sl_cudnn_plan_room(true, 2, 4, 2, 300, 200, 96) >= 2539776);
    CHECK(sl_cudnn_plan_room(true, 2, 4, 4, 77, 77, 40) >= 262400);
    CHECK(sl_cudnn_plan_room(true, 2, 4, 2, 512, 512, 256) >= 12583168);
}
