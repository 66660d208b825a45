/* tokenize_test.c: files of token ids. */
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/output.h"
#include "format/tokenizer.h"
#include "sluice.h"
#include "test.h"

#define TOKENIZER SLUICE_SOURCE_DIR "/tests/fixtures/tokenizers/gpt2-v4.json"

typedef struct place {
    char in[512], second[512], out[512], validation[512];
} place;

static place make_place(const char *out)
{
    const char *folder = test_tmpdir();
    place p;
    snprintf(p.in, sizeof p.in, "%s/in.txt", folder);
    snprintf(p.second, sizeof p.second, "%s/second.txt", folder);
    snprintf(p.out, sizeof p.out, "%s/%s", folder, out);
    snprintf(p.validation, sizeof p.validation, "%s/validation.bin", folder);
    return p;
}

static void write_text(const char *path, const char *text, size_t bytes)
{
    CHECK_EQ(sl_file_replace(path, text, bytes), SLUICE_OK);
}

/* The ids of a text by itself. */
static sl_ids encode(const char *text, size_t bytes, unsigned flags)
{
    sl_tokenizer *t = NULL;
    sl_encoder *e = NULL;
    sl_ids ids = { 0 };
    CHECK_EQ(sl_tokenizer_open(TOKENIZER, &t), SLUICE_OK);
    CHECK_EQ(sl_encoder_create(t, &e), SLUICE_OK);
    CHECK_EQ(sl_encode(e, text, bytes, flags, &ids), SLUICE_OK);
    sl_encoder_destroy(e);
    sl_tokenizer_close(t);
    return ids;
}

static void check_file(const char *path, size_t header, int width, const int32_t *ids, size_t count)
{
    char *data;
    size_t bytes, wrong = 0;
    REQUIRE_OK(sl_file_read_all(path, 1 << 28, &data, &bytes));
    CHECK_EQ(bytes, header + count * (size_t)width);
    for (size_t i = 0; i < count && header + (i + 1) * (size_t)width <= bytes; i++) {
        uint32_t id = 0;
        memcpy(&id, data + header + i * (size_t)width, (size_t)width);
        wrong += id != (uint32_t)ids[i];
    }
    CHECK_EQ(wrong, 0);
    sl_free(data);
}

static sluice_tokenize_options options_of(const char *const *inputs, int count, const char *out)
{
    sluice_tokenize_options o;
    sluice_tokenize_options_init(&o);
    o.inputs = inputs;
    o.input_count = count;
    o.out = out;
    return o;
}

/* Lines of words, with empty ones, some indented, and marks: 3 MB, which are cut for threads. */
static char *long_text(size_t *bytes)
{
    static const char *const parts[] = { "the king",     " Rome's ",       "\n", ".\n",     "\n\n",  "  x = 12345;\n",
                                         "caf\xc3\xa9 ", "\xe6\xbc\xa2\n", "\t", " \nThen", "!\nAnd" };
    size_t capacity = 3000000;
    char *text = malloc(capacity + 32);
    uint32_t state = 7;
    *bytes = 0;
    while (*bytes < capacity) {
        state = state * 1664525 + 1013904223;
        const char *part = parts[(state >> 16) % (sizeof parts / sizeof parts[0])];
        memcpy(text + *bytes, part, strlen(part));
        *bytes += strlen(part);
    }
    return text;
}

TEST(a_text_that_threads_share_has_the_ids_of_the_whole)
{
    place p = make_place("out.bin");
    size_t bytes;
    char *text = long_text(&bytes);
    write_text(p.in, text, bytes);
    sl_ids ids = encode(text, bytes, 0);
    const char *inputs[] = { p.in };
    sluice_tokenize_options o = options_of(inputs, 1, p.out);
    for (o.threads = 1; o.threads <= 4; o.threads += 3) {
        REQUIRE_OK(sluice_tokenize(TOKENIZER, &o, NULL));
        check_file(p.out, 0, 2, ids.data, ids.count);
    }
    sl_ids_free(&ids);
    free(text);
}

TEST(lines_are_documents_and_end_with_the_token)
{
    place p = make_place("out.bin");
    write_text(p.in, "one line\r\n\n\nanother", 19);
    write_text(p.second, "third\n", 6);
    const char *inputs[] = { p.in, p.second };
    sluice_tokenize_options o = options_of(inputs, 2, p.out);
    o.lines = true;
    o.eos = "auto";
    o.token_bytes = 4;
    REQUIRE_OK(sluice_tokenize(TOKENIZER, &o, NULL));
    sl_ids expected = encode("one line<|endoftext|>another<|endoftext|>third<|endoftext|>", 59, 0);
    check_file(p.out, 0, 4, expected.data, expected.count);
    sl_ids_free(&expected);
}

TEST(special_tokens_in_a_text_are_text_unless_asked_for)
{
    place p = make_place("out.bin");
    const char text[] = "a<|endoftext|>b";
    write_text(p.in, text, sizeof text - 1);
    const char *inputs[] = { p.in };
    sluice_tokenize_options o = options_of(inputs, 1, p.out);
    for (int asked = 0; asked < 2; asked++) {
        o.special_in_text = asked;
        REQUIRE_OK(sluice_tokenize(TOKENIZER, &o, NULL));
        sl_ids expected = encode(text, sizeof text - 1, asked ? 0 : SL_ENCODE_PLAIN);
        CHECK(asked ? expected.count == 3 : expected.count > 3);
        check_file(p.out, 0, 2, expected.data, expected.count);
        sl_ids_free(&expected);
    }
}

TEST(the_last_share_of_the_tokens_goes_to_validation)
{
    place p = make_place("out.bin");
    size_t bytes;
    char *text = long_text(&bytes);
    write_text(p.in, text, bytes);
    sl_ids ids = encode(text, bytes, 0);
    const char *inputs[] = { p.in };
    sluice_tokenize_options o = options_of(inputs, 1, p.out);
    o.validation = 0.25;
    o.validation_out = p.validation;
    REQUIRE_OK(sluice_tokenize(TOKENIZER, &o, NULL));
    size_t tail = (size_t)((double)ids.count * 0.25);
    check_file(p.out, 0, 2, ids.data, ids.count - tail);
    check_file(p.validation, 0, 2, ids.data + ids.count - tail, tail);
    sl_ids_free(&ids);
    free(text);
}

TEST(headers_of_numpy_and_llmc_say_what_follows)
{
    place p = make_place("out.npy");
    char *data;
    size_t bytes;
    write_text(p.in, "the king", 8);
    sl_ids ids = encode("the king", 8, 0);
    const char *inputs[] = { p.in };
    sluice_tokenize_options o = options_of(inputs, 1, p.out);
    REQUIRE_OK(sluice_tokenize(TOKENIZER, &o, NULL));
    check_file(p.out, 128, 2, ids.data, ids.count);
    REQUIRE_OK(sl_file_read_all(p.out, 1 << 20, &data, &bytes));
    CHECK(memcmp(data, "\x93NUMPY\x01\x00\x76\x00{'descr': '<u2'", 25) == 0 && data[127] == '\n');
    sl_free(data);
    o.out = p.validation;
    o.llmc_header = true;
    REQUIRE_OK(sluice_tokenize(TOKENIZER, &o, NULL));
    check_file(p.validation, 1024, 2, ids.data, ids.count);
    REQUIRE_OK(sl_file_read_all(p.validation, 1 << 20, &data, &bytes));
    uint32_t words[3];
    memcpy(words, data, sizeof words);
    CHECK(words[0] == 20240520 && words[1] == 1 && words[2] == ids.count);
    sl_free(data);
    sl_ids_free(&ids);
}

TEST(what_cannot_be_tokenized_is_refused_and_nothing_is_written)
{
    place p = make_place("out.bin");
    write_text(p.in, "good\nbad \xff here", 15);
    const char *inputs[] = { p.in };
    sluice_tokenize_options o = options_of(inputs, 1, p.out);
    CHECK_EQ(sluice_tokenize(TOKENIZER, &o, NULL), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "in.txt: byte 9 (0xff) is not UTF-8");
    CHECK(!sl_path_exists(p.out));
    write_text(p.in, "good", 4);
    o.eos = "<nothing>";
    CHECK_EQ(sluice_tokenize(TOKENIZER, &o, NULL), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "\"<nothing>\" is not a token");
    o.eos = NULL;
    o.out = p.in;
    CHECK_EQ(sluice_tokenize(TOKENIZER, &o, NULL), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "which this run reads; name another file");
    inputs[0] = p.second;
    o.out = p.out;
    CHECK_EQ(sluice_tokenize(TOKENIZER, &o, NULL), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "second.txt");
}
