/* Programs that were built against an older header: their structs end earlier than today's, and nothing behind them is theirs
 * to be written. */
#include <string.h>

#include "sluice.h"
#include "support/older_calls.h"
#include "test.h"

#define TODAY(type, bytes)                                                                                             \
    static void sized_##type(void *o, size_t size)                                                                     \
    {                                                                                                                  \
        type##_init_sized(o, size);                                                                                    \
    }                                                                                                                  \
    static void today_##type(void *o)                                                                                  \
    {                                                                                                                  \
        type##_init_sized(o, sizeof(type));                                                                            \
    }
OLDER_STRUCTS(TODAY)

static void called_optimizer(void *o)
{
    older_sluice_optimizer_init(o, SLUICE_LAMB);
}
static void sized_optimizer(void *o, size_t size)
{
    sluice_optimizer_init_sized(o, SLUICE_LAMB, size);
}
static void today_optimizer(void *o)
{
    sluice_optimizer_init_sized(o, SLUICE_LAMB, sizeof(sluice_optimizer));
}

static const struct {
    const char *name;
    size_t bytes; /* of version 0.2.0 */
    void (*called)(void *o);
    void (*sized)(void *o, size_t size);
    void (*today)(void *o);
} rows[] = {
#define ROW(type, bytes) { #type, bytes, older_##type##_init, sized_##type, today_##type },
    OLDER_STRUCTS(ROW){ "sluice_optimizer", 104, called_optimizer, sized_optimizer, today_optimizer },
};
enum { ROWS = sizeof rows / sizeof rows[0], ROOM = 2048, CANARY = 0xa5 };

/* o[0 .. bytes) is a whole struct of that size, as today's library fills it; behind it nothing was touched. */
static bool filled(int row, const unsigned char *o, size_t bytes)
{
    _Alignas(16) unsigned char today[ROOM];
    size_t size;
    rows[row].today(today);
    memcpy(&size, o, sizeof size);
    bool right = size == bytes && memcmp(o + sizeof size, today + sizeof size, bytes - sizeof size) == 0;
    for (size_t i = bytes; i < ROOM; i++) right = right && o[i] == CANARY;
    if (!right) printf("%s with %zu bytes\n", rows[row].name, bytes);
    return right;
}

TEST(programs_of_version_0_2_get_their_structs_and_nothing_behind_them)
{
    for (int i = 0; i < ROWS; i++) {
        _Alignas(16) unsigned char o[ROOM];
        memset(o, CANARY, sizeof o);
        rows[i].called(o);
        CHECK(filled(i, o, rows[i].bytes));
    }
}

TEST(no_init_function_writes_more_than_its_caller_has)
{
    for (int i = 0; i < ROWS; i++)
        for (size_t bytes = 16; bytes <= rows[i].bytes; bytes += 8) {
            _Alignas(16) unsigned char o[ROOM];
            memset(o, CANARY, sizeof o);
            rows[i].sized(o, bytes);
            CHECK(filled(i, o, bytes));
        }
}

TEST(options_of_version_0_2_train_with_the_defaults_of_what_they_lack)
{
    _Alignas(16) unsigned char room[ROOM];
    sluice_options *o = (sluice_options *)room;
    sluice_graph *g = NULL;
    sluice_engine *e = NULL;
    float x[2] = { 1, 2 };
    sluice_array array = { "x", x, sizeof x };
    memset(room, CANARY, sizeof room);
    older_sluice_options_init(o);
    o->gradient_clipping = 1;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value in = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 1, 2 });
    sluice_set_loss(g, sluice_mean(g, sluice_linear(g, in, 2, "fc")));
    REQUIRE_OK(sluice_engine_create(g, o, &e));
    double loss;
    CHECK_EQ(sluice_train_step(e, &(sluice_batch){ &array, 1 }, &loss), SLUICE_OK);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
}
