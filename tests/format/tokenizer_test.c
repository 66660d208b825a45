/* tokenizer_test.c: ids and texts as the reference recorded them, and what malformed files are told. */
#include "format/tokenizer.h"

#include <dirent.h>
#include <jansson.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/output.h"
#include "core/sha256.h"
#include "format/tokenizer_parts.h"
#include "test.h"

#define FIXTURES SLUICE_SOURCE_DIR "/tests/fixtures/tokenizers/"

/* ---- Recorded answers ---- */

static bool same_ids(const json_t *expected, const sl_ids *found)
{
    if (json_array_size(expected) != found->count) return false;
    for (size_t i = 0; i < found->count; i++)
        if (json_integer_value(json_array_get(expected, i)) != found->data[i]) return false;
    return true;
}

static void check_ids(const char *kind, int line, const char *what, sl_encoder *e, const json_t *text, unsigned flags,
                      const json_t *expected)
{
    sl_ids ids = { 0 };
    CHECK_EQ(sl_encode(e, json_string_value(text), json_string_length(text), flags, &ids), SLUICE_OK);
    CHECK_THAT(same_ids(expected, &ids), "%s: line %d: other ids (%s)", kind, line, what);
    sl_ids_free(&ids);
}

static void decode_streamed(const sl_tokenizer *t, const sl_ids *ids, sl_text *out)
{
    sl_stream_decoder *d;
    REQUIRE_OK(sl_stream_decoder_create(t, SL_DECODE_SKIP_SPECIAL, &d));
    for (size_t i = 0; i < ids->count; i++) REQUIRE_OK(sl_stream_decoder_add(d, ids->data[i], out));
    REQUIRE_OK(sl_stream_decoder_finish(d, out));
    sl_stream_decoder_destroy(d);
}

static bool is_text(const json_t *expected, const sl_text *found)
{
    return json_string_length(expected) == found->bytes &&
           (found->bytes == 0 || memcmp(json_string_value(expected), found->data, found->bytes) == 0);
}

static void check_decoded(const char *kind, int line, const sl_tokenizer *t, const json_t *ids, const json_t *expected)
{
    sl_ids list = { 0 };
    sl_text whole = { 0 }, streamed = { 0 };
    for (size_t i = 0; i < json_array_size(ids); i++)
        REQUIRE_OK(sl_ids_add(&list, (int32_t)json_integer_value(json_array_get(ids, i))));
    CHECK_EQ(sl_decode(t, list.data, list.count, SL_DECODE_SKIP_SPECIAL, &whole), SLUICE_OK);
    CHECK_THAT(is_text(expected, &whole), "%s: line %d: other text", kind, line);
    decode_streamed(t, &list, &streamed);
    /* Bytes that are no character are known as such only once all of their run is there. */
    bool broken = strstr(json_string_value(expected), "\xef\xbf\xbd") != NULL;
    CHECK_THAT(broken || is_text(expected, &streamed), "%s: line %d: other text, one by one", kind, line);
    sl_ids_free(&list);
    sl_text_free(&whole);
    sl_text_free(&streamed);
}

static void check_line(const char *kind, int number, const sl_tokenizer *t, sl_encoder *e, const json_t *line)
{
    const json_t *text = json_object_get(line, "text"), *ids = json_object_get(line, "ids");
    const json_t *special = json_object_get(line, "special"), *plain = json_object_get(line, "plain");
    check_ids(kind, number, "as it is", e, text, 0, ids);
    check_ids(kind, number, "with special tokens", e, text, SL_ENCODE_ADD_SPECIAL, special != NULL ? special : ids);
    check_ids(kind, number, "plain", e, text, SL_ENCODE_PLAIN, plain != NULL ? plain : ids);
    check_decoded(kind, number, t, ids, json_object_get(line, "decoded"));
}

/* KIND.json is the tokenizer, KIND.jsonl what the reference made of some texts. Returns how many. */
static int check_kind(const char *kind)
{
    char path[1024], *text;
    size_t bytes;
    sl_tokenizer *t;
    sl_encoder *e;
    int lines = 0;
    snprintf(path, sizeof path, FIXTURES "%s.json", kind);
    if (sl_tokenizer_open(path, &t) != SLUICE_OK) return 0;
    CHECK_EQ(sl_encoder_create(t, &e), SLUICE_OK);
    snprintf(path, sizeof path, FIXTURES "%s.jsonl", kind);
    CHECK_EQ(sl_file_read_all(path, 1 << 24, &text, &bytes), SLUICE_OK);
    for (char *at = text; at < text + bytes;) {
        char *end = memchr(at, '\n', (size_t)(text + bytes - at));
        json_t *line = json_loadb(at, (size_t)(end - at), JSON_ALLOW_NUL, NULL);
        check_line(kind, ++lines, t, e, line);
        json_decref(line);
        at = end + 1;
    }
    sl_free(text);
    sl_encoder_destroy(e);
    sl_tokenizer_close(t);
    return lines;
}

TEST(recorded_texts_get_the_ids_of_the_reference_and_come_back)
{
    DIR *folder = opendir(FIXTURES);
    int kinds = 0;
    REQUIRE(folder != NULL);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char kind[256];
        const char *ending = strstr(entry->d_name, ".jsonl");
        if (ending == NULL) continue;
        snprintf(kind, sizeof kind, "%.*s", (int)(ending - entry->d_name), entry->d_name);
        CHECK_THAT(check_kind(kind) > 50, "%s has few texts", kind);
        kinds++;
    }
    closedir(folder);
    CHECK_THAT(kinds >= 10, "%d kinds of tokenizers were recorded", kinds);
}

static void hash_ids(const sl_ids *ids, char hex[65])
{
    sl_sha256 h;
    uint8_t digest[32];
    sl_sha256_init(&h);
    for (size_t i = 0; i < ids->count; i++) {
        uint8_t two[2] = { (uint8_t)ids->data[i], (uint8_t)(ids->data[i] >> 8) };
        sl_sha256_update(&h, two, 2);
    }
    sl_sha256_final(&h, digest);
    sl_sha256_hex(digest, hex);
}

TEST(gpt2s_vocabulary_gives_the_known_ids_of_shakespeare)
{
    char vocabulary[1024], *text, hex[65];
    const char *path = test_data("gpt2-bpe/vocab.json");
    size_t bytes;
    sl_tokenizer *t;
    sl_encoder *e;
    sl_ids ids = { 0 };
    sl_text back = { 0 };
    if (path == NULL || test_data("shakespeare/input.txt") == NULL) SKIP(gpt2_bpe, "no vocabulary of GPT-2 here");
    snprintf(vocabulary, sizeof vocabulary, "%s", test_data("gpt2-bpe/vocab.json"));
    REQUIRE_OK(sl_tokenizer_open(vocabulary, &t));
    REQUIRE_OK(sl_encoder_create(t, &e));
    REQUIRE_OK(sl_file_read_all(test_data("shakespeare/input.txt"), 1 << 24, &text, &bytes));
    REQUIRE_OK(sl_encode(e, text, bytes, 0, &ids));
    hash_ids(&ids, hex);
    CHECK_EQ(ids.count, 338025);
    CHECK_STR(hex, "25c01b32b32f41897a6359dd222ec114992dc30c357bcafbfe6c56672f76cd31");
    REQUIRE_OK(sl_decode(t, ids.data, ids.count, 0, &back));
    CHECK(back.bytes == bytes && memcmp(back.data, text, bytes) == 0);
    sl_text_free(&back);
    sl_ids_free(&ids);
    sl_free(text);
    sl_encoder_destroy(e);
    sl_tokenizer_close(t);
}

/* ---- Files made here ---- */

static const char *write_file(const char *folder, const char *name, const char *text)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_EQ(sl_file_replace(path, text, strlen(text)), SLUICE_OK);
    return path;
}

/* A tokenizer.json of these parts; NULL leaves the usual one. */
typedef struct file_parts {
    const char *added, *normalizer, *pre_tokenizer, *post, *decoder, *model_keys, *vocab, *merges, *top;
} file_parts;

static const char *tokenizer_text(file_parts p)
{
    static char text[32768];
#define PART(part_, usual_) (p.part_ != NULL ? p.part_ : (usual_))
    snprintf(
        text, sizeof text,
        "{%s\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": %s, \"normalizer\": %s,\n"
        "\"pre_tokenizer\": %s, \"post_processor\": %s, \"decoder\": %s,\n"
        "\"model\": {%s,\n\"vocab\": %s,\n\"merges\": %s}}",
        PART(top, ""), PART(added, "[]"), PART(normalizer, "null"), PART(pre_tokenizer, "null"), PART(post, "null"),
        PART(decoder, "null"), PART(model_keys, "\"type\": \"BPE\""),
        PART(vocab, "{\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \"abc\": 4}"),
        PART(merges, "[\"a b\", [\"ab\", \"c\"]]"));
#undef PART
    return text;
}

static sl_tokenizer *open_parts(file_parts p)
{
    sl_tokenizer *t = NULL;
    CHECK_EQ(sl_tokenizer_open(write_file(test_tmpdir(), "tokenizer.json", tokenizer_text(p)), &t), SLUICE_OK);
    return t;
}

static const struct {
    const char *what;
    file_parts parts;
    const char *says;
} malformed[] = {
    { "a normaliser",
      { .normalizer = "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"\"}" },
      "normalizer: the component \"Precompiled\" is not built" },
    { "a normaliser in a sequence",
      { .normalizer = "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Nmt\"}]}" },
      "normalizer.normalizers.1: the component \"Nmt\" is not built" },
    { "a pre-tokeniser",
      { .pre_tokenizer = "{\"type\": \"UnicodeScripts\"}" },
      "pre_tokenizer: the component \"UnicodeScripts\" is not built" },
    { "a key of a component",
      { .pre_tokenizer = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"shuffle\": true}" },
      "pre_tokenizer: the key \"shuffle\"" },
    { "a key of the file", { .top = "\"magic\": 1, " }, "the key \"magic\" is not known" },
    { "a key of the model", { .model_keys = "\"type\": \"BPE\", \"magic\": 1" }, "model: the key \"magic\"" },
    { "a flag that is none",
      { .pre_tokenizer = "{\"type\": \"ByteLevel\", \"add_prefix_space\": 1}" },
      "\"add_prefix_space\" is neither true nor false" },
    { "a model", { .model_keys = "\"type\": \"Unigram\"" }, "model: the component \"Unigram\" is not built" },
    { "no type", { .model_keys = "\"type\": null" }, "model: \"type\" is missing" },
    { "dropout", { .model_keys = "\"type\": \"BPE\", \"dropout\": 0.1" }, "\"dropout\" is not built" },
    { "a suffix",
      { .model_keys = "\"type\": \"BPE\", \"end_of_word_suffix\": \"</w>\"" },
      "\"end_of_word_suffix\" is not built" },
    { "an unknown token that is none",
      { .model_keys = "\"type\": \"BPE\", \"unk_token\": \"<u>\"" },
      "\"unk_token\": \"<u>\" is not in the vocabulary" },
    { "a vocabulary that is a list", { .vocab = "[[\"a\", 0.5]]" }, "model.vocab is not an object" },
    { "an empty vocabulary", { .vocab = "{}", .merges = "[]" }, "model.vocab has no token" },
    { "an id below 0", { .vocab = "{\"a\": -1}", .merges = "[]" }, "an id is not a whole number" },
    { "an id that is a string", { .vocab = "{\"a\": \"0\"}", .merges = "[]" }, "an id is not a whole number" },
    { "an id too large", { .vocab = "{\"a\": 4000000000}", .merges = "[]" }, "the id 4000000000 is too large" },
    { "an id far away", { .vocab = "{\"a\": 9999999}", .merges = "[]" }, "the id 9999999 is too large" },
    { "an id twice", { .vocab = "{\"a\": 0, \"b\": 0}", .merges = "[]" }, "two tokens have the id 0" },
    { "a token twice",
      { .vocab = "{\"a\": 0, \"\\u0061\": 1}", .merges = "[]" },
      "the token \"a\" stands here for the second time" },
    { "a merge of three", { .merges = "[\"a b c\"]" }, "merge 0: not two tokens" },
    { "a merge of one", { .merges = "[\"a b\", [\"ab\"]]" }, "merge 1: not two tokens" },
    { "a merge that is a number", { .merges = "[7]" }, "merge 0: neither a string nor a list" },
    { "a merge to nothing", { .merges = "[\"b c\"]" }, "merge 0: its result is not in the vocabulary" },
    { "a merge of nothing", { .merges = "[\"a d\"]" }, "merge 0: its right side is not in the vocabulary" },
    { "merges that are an object", { .merges = "{}" }, "model.merges is not a list" },
    { "an added token without an id", { .added = "[{\"content\": \"<x>\"}]" }, "added_tokens.0: \"id\" is missing" },
    { "an added token of another id",
      { .added = "[{\"id\": 1, \"content\": \"a\"}]" },
      "\"a\" has the id 1 here and 0 in the vocabulary" },
    { "an added token on another",
      { .added = "[{\"id\": 1, \"content\": \"<x>\"}]" },
      "\"<x>\" has the id 1 of another token" },
    { "an added token that is a number", { .added = "[5]" }, "added_tokens.0: not an object" },
    { "added tokens that are an object", { .added = "{}" }, "added_tokens is not a list" },
    { "an expression",
      { .pre_tokenizer = "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?<=a)b\"}, \"behavior\": \"Isolated\", "
                         "\"invert\": false}" },
      "the regular expression is not built: this kind of group is not built" },
    { "an open expression",
      { .pre_tokenizer =
            "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"[a\"}, \"behavior\": \"Isolated\", \"invert\": false}" },
      "a set has no end" },
    { "a behaviour",
      { .pre_tokenizer =
            "{\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}, \"behavior\": \"Isolate\", \"invert\": false}" },
      "\"behavior\" is \"Isolate\"" },
    { "something after ByteLevel",
      { .pre_tokenizer =
            "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, {\"type\": \"Whitespace\"}]}" },
      "after ByteLevel" },
    { "a sequence without a list", { .pre_tokenizer = "{\"type\": \"Sequence\"}" }, "\"pretokenizers\" is not a list" },
    { "a template without the text",
      { .post = "{\"type\": \"TemplateProcessing\", \"single\": [], \"pair\": [], \"special_tokens\": {}}" },
      "the Sequence A 0 times" },
    { "a template with an id of nothing",
      { .post = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": "
                "0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], "
                "\"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [99], \"tokens\": [\"<s>\"]}}}" },
      "post_processor: an id is not one of a token" },
    { "a post-processor", { .post = "{\"type\": \"Magic\"}" }, "post_processor: the component \"Magic\" is not built" },
    { "a decoder", { .decoder = "{\"type\": \"CTC\"}" }, "decoder: the component \"CTC\" is not built" },
    { "a decoder that is a list", { .decoder = "[]" }, "decoder is not an object" },
    { "broken syntax", { .normalizer = "nul" }, "line 1, column" },
};

TEST(malformed_files_are_refused_with_one_message)
{
    int count = sizeof malformed / sizeof malformed[0];
    const char *folder = test_tmpdir();
    CHECK(count >= 20);
    for (int i = 0; i < count; i++) {
        sl_tokenizer *t = NULL;
        sluice_status st =
            sl_tokenizer_open(write_file(folder, "tokenizer.json", tokenizer_text(malformed[i].parts)), &t);
        CHECK_THAT(st == SLUICE_ERR_INPUT, "%s was accepted", malformed[i].what);
        CHECK_THAT(strstr(sluice_error(), malformed[i].says) != NULL, "%s: \"%s\" does not say \"%s\"",
                   malformed[i].what, sluice_error(), malformed[i].says);
        CHECK_CONTAINS(sluice_error(), "tokenizer.json");
        if (st == SLUICE_OK) sl_tokenizer_close(t);
    }
}

/* Reserved tokens by the hundred are a line; two are no run, nor are tokens of other ids, words or kinds. */
TEST(runs_of_numbered_tokens_are_described_in_a_line)
{
    char text[65536], added[16384] = "[{\"id\": 5, \"content\": \"<eos>\", \"special\": true}";
    const char *folder = test_tmpdir();
    size_t used = strlen(added);
    sl_tokenizer *t;
    for (int i = 0; i < 120; i++)
        used += (size_t)snprintf(added + used, sizeof added - used,
                                 ", {\"id\": %d, \"content\": \"<|spare_%d|>\", \"special\": true}", 300 + i, 5 + i);
    for (int i = 0; i < 2; i++)
        used += (size_t)snprintf(added + used, sizeof added - used,
                                 ", {\"id\": %d, \"content\": \"<two_%d>\", \"special\": true}", 420 + i, i);
    for (int i = 0; i < 4; i++)
        used += (size_t)snprintf(added + used, sizeof added - used,
                                 ", {\"id\": %d, \"content\": \"<odd_%d>\", \"special\": %s}", 422 + i, i * i,
                                 i % 2 == 0 ? "true" : "false");
    snprintf(added + used, sizeof added - used, "]");
    REQUIRE_OK(
        sl_tokenizer_open(write_file(folder, "tokenizer.json", tokenizer_text((file_parts){ .added = added })), &t));
    FILE *out = fmemopen(text, sizeof text, "w");
    REQUIRE(out != NULL);
    sl_tokenizer_describe(t, false, out);
    fclose(out);
    CHECK_CONTAINS(text, "127 added tokens\n");
    CHECK_CONTAINS(text,
                   "      300  \"<|spare_5|>\" to \"<|spare_124|>\", 120 tokens  special\n      420  \"<two_0>\"");
    CHECK_CONTAINS(text, "      421  \"<two_1>\"  special\n      422  \"<odd_0>\"  special\n      423  \"<odd_1>\"");
    CHECK(strstr(text, "spare_6|") == NULL);
    out = fmemopen(text, sizeof text, "w");
    REQUIRE(out != NULL);
    sl_tokenizer_describe(t, true, out); /* programs get all of them */
    fclose(out);
    CHECK_CONTAINS(text, "\"<|spare_6|>\"");
    sl_tokenizer_close(t);
}

TEST(folders_without_a_tokenizer_say_what_to_do)
{
    sl_tokenizer *t;
    const char *folder = test_tmpdir();
    write_file(folder, "other.txt", "");
    CHECK_EQ(sl_tokenizer_open(folder, &t), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "neither tokenizer.json nor vocab.json");
    write_file(folder, "tekken.json", "{}");
    CHECK_EQ(sl_tokenizer_open(folder, &t), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "has only tekken.json, the tokenizer in the format of Mistral's own programs");
    CHECK_CONTAINS(sluice_error(), "/tekken.json').save_pretrained(");
    write_file(folder, "vocab.txt", "");
    CHECK_EQ(sl_tokenizer_open(folder, &t), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "has only vocab.txt");
    write_file(folder, "tokenizer.model", "");
    CHECK_EQ(sl_tokenizer_open(folder, &t), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "has only tokenizer.model");
    CHECK_CONTAINS(sluice_error(), "save_pretrained");
    CHECK_EQ(sl_tokenizer_open(write_file(folder, "tokenizer.model", "x"), &t), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "SentencePiece models are not read");
    write_file(folder, "vocab.json", "{\"a\": 0}");
    CHECK_EQ(sl_tokenizer_open(folder, &t), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "no merges.txt");
}

TEST(a_vocabulary_with_merges_is_a_tokenizer)
{
    const char *folder = test_tmpdir();
    sl_tokenizer *t;
    sl_encoder *e;
    sl_ids ids = { 0 };
    write_file(folder, "vocab.json",
               "{\"a\": 0, \"b\": 1, \"\\u0120\": 2, \"ab\": 3, \"\\u0120ab\": 4, \"<|endoftext|>\": 5}");
    const char *path = write_file(folder, "merges.txt", "#version: 0.2\na b\n\xc4\xa0 ab\n");
    REQUIRE_OK(sl_tokenizer_open(path, &t));
    CHECK_STR(sl_tokenizer_kind(t), "byte-level BPE");
    CHECK_EQ(sl_tokenizer_size(t), 6);
    CHECK_EQ(sl_tokenizer_end_of_text(t), 5);
    REQUIRE_OK(sl_encoder_create(t, &e));
    REQUIRE_OK(sl_encode(e, "ab ab<|endoftext|>", 18, 0, &ids));
    CHECK_EQ(ids.count, 3);
    CHECK(ids.data[0] == 3 && ids.data[1] == 4 && ids.data[2] == 5);
    CHECK(sl_tokenizer_is_special(t, 5) && !sl_tokenizer_is_special(t, 4) && !sl_tokenizer_is_special(t, -1));
    sl_ids_free(&ids);
    sl_encoder_destroy(e);
    sl_tokenizer_close(t);
}

/* What transformers 5 makes of the same folders (tests/referees/tokenizer_parity.py). */
TEST(a_vocabulary_with_merges_takes_the_tokens_around_texts_from_its_configuration)
{
    static const struct {
        const char *config;
        int32_t before, after; /* -1: none */
    } cases[] = {
        { "{}", -1, -1 },
        { "{\"add_bos_token\": true}", 1, -1 },
        { "{\"add_eos_token\": true, \"add_bos_token\": false}", -1, 1 },
        { "{\"add_bos_token\": true, \"add_eos_token\": true, \"bos_token\": \"<s>\", \"eos_token\": "
          "{\"content\": \"</s>\"}}",
          2, 3 },
        { "{\"add_bos_token\": true, \"bos_token\": null}", -1, -1 },
        { "{\"add_bos_token\": true, \"tokenizer_class\": \"GPT2TokenizerFast\"}", 1, -1 },
        { "{\"add_eos_token\": true, \"tokenizer_class\": \"CodeGenTokenizer\"}", -1, 1 },
    };
    static const struct {
        const char *config, *message;
    } bad[] = {
        { "{\"add_bos_token\": 1}", "tokenizer_config.json" },
        { "{\"add_bos_token\": 1}", "\"add_bos_token\" is neither true nor false" },
        { "{\"add_eos_token\": true, \"eos_token\": 3}", "\"eos_token\" is neither text nor an object" },
        { "{\"add_eos_token\": true, \"eos_token\": \"<e>\"}", "\"<e>\" is no token of vocab.json" },
        { "[]", "is no JSON object" },
        /* Qwen's cuts numbers into digits, which the two files do not say */
        { "{\"tokenizer_class\": \"Qwen2Tokenizer\"}", "\"Qwen2Tokenizer\", which cuts a text in a way of its own" },
        { "{\"tokenizer_class\": \"RobertaTokenizerFast\"}", "Make a tokenizer.json: python -c" },
        { "{", "tokenizer_config.json" },
    };
    char folder[1024];
    sl_tokenizer *t;
    snprintf(folder, sizeof folder, "%.1000s", test_tmpdir());
    write_file(folder, "vocab.json", "{\"a\": 0, \"<|endoftext|>\": 1, \"<s>\": 2, \"</s>\": 3}");
    write_file(folder, "merges.txt", "#version: 0.2\n");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_encoder *e;
        sl_ids ids = { 0 }, expected = { 0 };
        write_file(folder, "tokenizer_config.json", cases[i].config);
        REQUIRE_OK(sl_tokenizer_open(folder, &t));
        REQUIRE_OK(sl_encoder_create(t, &e));
        REQUIRE_OK(sl_encode(e, "a", 1, SL_ENCODE_ADD_SPECIAL, &ids));
        if (cases[i].before >= 0) REQUIRE_OK(sl_ids_add(&expected, cases[i].before));
        REQUIRE_OK(sl_ids_add(&expected, 0));
        if (cases[i].after >= 0) REQUIRE_OK(sl_ids_add(&expected, cases[i].after));
        CHECK_EQ(ids.count, expected.count);
        CHECK(ids.count == expected.count && memcmp(ids.data, expected.data, ids.count * sizeof *ids.data) == 0);
        sl_ids_free(&ids);
        sl_ids_free(&expected);
        sl_encoder_destroy(e);
        sl_tokenizer_close(t);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_file(folder, "tokenizer_config.json", bad[i].config);
        CHECK_EQ(sl_tokenizer_open(folder, &t), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), bad[i].message);
    }
}

TEST(text_that_is_not_utf8_is_refused_with_its_place)
{
    sl_tokenizer *t = open_parts((file_parts){ 0 });
    sl_encoder *e;
    sl_ids ids = { 0 };
    REQUIRE_OK(sl_encoder_create(t, &e));
    CHECK_EQ(sl_encode(e, "abcabcabcab\xff", 12, 0, &ids), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "byte 11 is 0xff");
    CHECK_EQ(ids.count, 0);
    sl_encoder_destroy(e);
    sl_tokenizer_close(t);
}

/* ---- Merging: the queue of long pieces against the definition ---- */

/* The lowest rank, the leftmost of equals, until there is none. */
static size_t merge_plainly(const sl_bpe *b, int32_t *ids, size_t count)
{
    for (;;) {
        size_t at = count;
        uint32_t best = UINT32_MAX;
        for (size_t i = 0; i + 1 < count; i++)
            for (uint32_t rank = 0; rank < b->merge_count; rank++)
                if (b->merges[rank].left == (uint32_t)ids[i] && b->merges[rank].right == (uint32_t)ids[i + 1] &&
                    rank < best) {
                    best = rank;
                    at = i;
                }
        if (at == count) return count;
        ids[at] = (int32_t)b->merges[best].joined;
        memmove(ids + at + 1, ids + at + 2, (count - at - 2) * sizeof *ids);
        count--;
    }
}

TEST(long_pieces_merge_as_the_definition_says)
{
    /* "bc" comes before what makes its parts, so that lower ranks appear while higher ones are merged. */
    sl_tokenizer *t = open_parts((file_parts){
        .vocab = "{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"aa\":4,\"bc\":5,\"abc\":6,\"aab\":7,\"cab\":8,\"abcab\":9,\"bb\":"
                 "10,\"aaaa\":11}",
        .merges = "[\"ab c\",\"abc ab\",\"a ab\",\"a b\",\"b b\",\"c ab\",\"a a\",\"aa aa\",\"b c\",\"a bc\"]" });
    sl_encoder *e;
    REQUIRE_OK(sl_encoder_create(t, &e));
    uint32_t state = 12345;
    for (int round = 0; round < 40; round++) {
        char text[400];
        int32_t plain[400];
        size_t count = 49 + (size_t)round * 8; /* longer than what is merged by looking each time */
        sl_ids ids = { 0 };
        for (size_t i = 0; i < count; i++) {
            state = state * 1664525 + 1013904223;
            plain[i] = (int32_t)(state >> 16) % (round % 3 + 1);
            text[i] = (char)('a' + plain[i]);
        }
        size_t left = merge_plainly(&t->bpe, plain, count);
        REQUIRE_OK(sl_encode(e, text, count, 0, &ids));
        CHECK_THAT(ids.count == left && memcmp(ids.data, plain, left * sizeof *plain) == 0, "round %d differs", round);
        sl_ids_free(&ids);
    }
    sl_encoder_destroy(e);
    sl_tokenizer_close(t);
}
