/* names_test.c: what the settings' documentation, which is made from their table, calls optimizers and models is what
 * their own tables call them. */
#include "model/model.h"
#include "optim/optim.h"
#include "test.h"

/* The row of a key in docs/config.md. */
static void read_row(const char *key, char *out, size_t bytes)
{
    char start[64];
    FILE *f = fopen(SLUICE_SOURCE_DIR "/docs/config.md", "r");
    snprintf(start, sizeof start, "`%s`", key);
    out[0] = '\0';
    REQUIRE(f != NULL);
    while (fgets(out, (int)bytes, f) != NULL && strstr(out, start) == NULL) out[0] = '\0';
    fclose(f);
}

TEST(every_optimizer_is_a_choice_of_optimizer_type_under_its_name)
{
    char row[4096], name[64];
    read_row("optimizer.type", row, sizeof row);
    for (int kind = 0; kind < sl_optim_count(); kind++) {
        snprintf(name, sizeof name, "`%s`", sl_optim_name((sluice_optimizer_kind)kind));
        CHECK_CONTAINS(row, name);
    }
}

TEST(every_model_is_named_in_the_help_of_model_type)
{
    char row[4096], name[64];
    read_row("model.type", row, sizeof row);
    for (const char *at = sl_model_names(); *at != '\0'; at += strspn(at, ", ")) {
        size_t length = strcspn(at, ",");
        snprintf(name, sizeof name, "`%.*s`", (int)length, at);
        CHECK_CONTAINS(row, name);
        at += length;
    }
}
