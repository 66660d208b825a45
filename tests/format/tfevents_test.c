/* tfevents_test.c: what is written as TensorBoard's events is read by a reader of their definition. */
#include "format/tfevents.h"

#include "support/tfevents_reader.h"
#include "test.h"

static tf_file read_back(const sl_text *t)
{
    return tf_read((const unsigned char *)t->data, t->bytes);
}

TEST(a_file_begins_with_the_version_as_tensorboard_has_it)
{
    static const unsigned char expected[] = { 24, 0, 0, 0, 0, 0, 0, 0 }; /* length of the record */
    sl_text t = { 0 };
    sl_tf_add_version(&t, 1700000000.25);
    CHECK_EQ(t.bytes, 24 + 16);
    CHECK(memcmp(t.data, expected, sizeof expected) == 0);
    tf_file f = read_back(&t);
    CHECK(f.whole);
    CHECK_STR(f.version, "brain.Event:2");
    CHECK_EQ(f.records, 1);
    free(f.values);
    sl_text_free(&t);
}

TEST(scalars_come_back_with_their_step_and_time)
{
    const sl_tf_scalar scalars[] = { { "loss/train", 2.5 }, { "lr", 1e-3 }, { "x", -0.0 } };
    sl_text t = { 0 };
    sl_tf_add_version(&t, 1);
    sl_tf_add_scalars(&t, 1700000000.25, 1234567890123, scalars, 3);
    sl_tf_add_scalars(&t, 2, 0, scalars, 1);
    tf_file f = read_back(&t);
    CHECK(f.whole);
    CHECK_EQ(f.count, 4);
    CHECK_EQ(f.records, 3);
    REQUIRE(f.count == 4);
    CHECK_STR(f.values[0].tag, "loss/train");
    CHECK_NEAR(f.values[0].number, 2.5, 0);
    CHECK_EQ(f.values[0].step, 1234567890123);
    CHECK_NEAR(f.values[0].seconds, 1700000000.25, 0);
    CHECK_STR(f.values[1].tag, "lr");
    CHECK_NEAR(f.values[1].number, 1e-3f, 0);
    CHECK_EQ(f.values[3].step, 0);
    free(f.values);
    sl_text_free(&t);
}

/* Lengths take one byte, two and three. */
TEST(texts_of_all_lengths_come_back)
{
    static const size_t lengths[] = { 0, 1, 100, 127, 128, 300, 3000, 16383, 16384, 100000 };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        char *text = calloc(1, lengths[i] + 1);
        memset(text, 'a', lengths[i]);
        sl_text t = { 0 };
        sl_tf_add_text(&t, 1, 0, "plan/text_summary", text);
        tf_file f = read_back(&t);
        CHECK(f.whole);
        REQUIRE(f.count == 1);
        CHECK(f.values[0].is_text);
        CHECK_STR(f.values[0].tag, "plan/text_summary");
        size_t shown = lengths[i] < sizeof f.values[0].text - 1 ? lengths[i] : sizeof f.values[0].text - 1;
        CHECK_EQ(strlen(f.values[0].text), shown);
        free(f.values);
        free(text);
        sl_text_free(&t);
    }
}

TEST(the_reader_sees_every_changed_byte)
{
    const sl_tf_scalar scalar = { "loss", 1 };
    sl_text t = { 0 };
    sl_tf_add_scalars(&t, 1, 5, &scalar, 1);
    for (size_t i = 0; i < t.bytes; i++) {
        t.data[i] ^= 4;
        tf_file f = read_back(&t);
        CHECK(!f.whole);
        free(f.values);
        t.data[i] ^= 4;
    }
    sl_text_free(&t);
}
