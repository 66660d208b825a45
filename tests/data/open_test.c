/* open_test.c: the kinds of data sets that a configuration can name. */
#include "data/data.h"
#include "test.h"

TEST(every_type_that_is_listed_opens_and_no_other_does)
{
    char names[256];
    int count = 0;
    sl_data_options o = { .path = "no folder/here.txt",
                          .tokenizer = "no folder",
                          .samples = 8,
                          .features = 3,
                          .outputs = 2,
                          .image_size = 4,
                          .hash_buckets = 9 };
    sluice_data *d;
    snprintf(names, sizeof names, "%s", sl_data_names());
    for (char *save, *name = strtok_r(names, ", ", &save); name != NULL; name = strtok_r(NULL, ", ", &save), count++) {
        bool text = strstr("text tokens jsonl idx cifar10 cifar100 images glue table speech", name) !=
                    NULL; /* which need their files */
        o.type = name;
        sluice_status st = sl_data_open(&o, 4, 10, &d);
        CHECK_THAT(text ? st == SLUICE_ERR_INPUT : st == SLUICE_OK, "%s: status %d: %s", name, (int)st, sluice_error());
        if (st == SLUICE_OK) {
            CHECK_EQ(sl_data_has_tokens(d), (sl_data_gives(name) == SL_SAMPLES_TOKENS));
            sluice_data_destroy(d);
        }
    }
    CHECK_EQ(count, 14);
    o.type = "numbers";
    CHECK_EQ(sl_data_open(&o, 4, 10, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "data.type \"numbers\" is not one of text, tokens, jsonl, random_tokens");
}
