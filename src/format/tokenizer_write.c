/* tokenizer_write.c: see tokenizer_write.h. */
#include "format/tokenizer_write.h"

#include <stdbool.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/utf8.h"
#include "format/tokenizer_parts.h"

/* The character by which byte-level tokenizers write a byte: itself where it is printable, otherwise one from U+0100 on. */
static int byte_character(int byte)
{
    int before = 0;
    bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
    if (itself) return byte;
    for (int b = 0; b < byte; b++)
        before += !((b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff));
    return 0x100 + before;
}

static void add_bytes_vocabulary(sl_text *text)
{
    for (int byte = 0; byte < 256; byte++) {
        int c = byte_character(byte);
        char utf8[3] = { (char)c };
        if (c >= 0x80) {
            utf8[0] = (char)(0xc0 | c >> 6);
            utf8[1] = (char)(0x80 | (c & 0x3f));
        }
        sl_text_add(text, byte > 0 ? ", " : "");
        sl_text_add_string(text, utf8);
        sl_text_add(text, ": %d", byte);
    }
}

/* Token 0 is U+0000 where the unit says so: no string holds it, so that it is written as an escape. */
static void add_characters_vocabulary(sl_text *text, const char *unit, const char *characters)
{
    int id = 0;
    if (strcmp(unit, "nul+characters") == 0) {
        sl_text_add(text, "\"\\u0000\": 0");
        id = 1;
    }
    for (const char *at = characters; at != NULL && *at != '\0';) {
        char one[8] = "";
        size_t length = sl_utf8_length(at, strlen(at));
        if (length == 0) return;
        memcpy(one, at, length);
        sl_text_add(text, id > 0 ? ", " : "");
        sl_text_add_string(text, one);
        sl_text_add(text, ": %d", id++);
        at += length;
    }
}

/* Pre-tokeniser and decoder; without `splits` a text is one piece. */
static void add_byte_level(sl_text *text, bool splits)
{
    sl_text_add(text,
                "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": %s}",
                splits ? "true" : "false");
}

/* All before the object of the vocabulary. end_content NULL: no added token. */
static void begin(sl_text *text, bool byte_level, bool splits, int32_t end, const char *end_content)
{
    sl_text_add(text,
                "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [");
    if (end_content != NULL) {
        sl_text_add(text, "{\"id\": %d, \"content\": ", end);
        sl_text_add_string(text, end_content);
        sl_text_add(text, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
                          "\"special\": true}");
    }
    sl_text_add(text, "],\n  \"normalizer\": null,\n  \"pre_tokenizer\": ");
    if (byte_level)
        add_byte_level(text, splits);
    else
        sl_text_add(text, "null");
    sl_text_add(text, ",\n  \"post_processor\": null,\n  \"decoder\": ");
    if (byte_level)
        add_byte_level(text, splits);
    else
        sl_text_add(text, "{\"type\": \"Fuse\"}");
    sl_text_add(text, ",\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
                      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
                      "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"vocab\": ");
}

void sl_tokenizer_write_units(const char *unit, const char *characters, sl_text *out)
{
    bool bytes = strcmp(unit, "bytes") == 0;
    begin(out, bytes, false, -1, NULL);
    sl_text_add(out, "{");
    if (bytes)
        add_bytes_vocabulary(out);
    else
        add_characters_vocabulary(out, unit, characters);
    sl_text_add(out, "},\n    \"merges\": []\n  }\n}\n");
}

/* A line is a merge; the first may be a comment that says "#version". */
static sluice_status add_merges(sl_text *out, char *merges, size_t bytes)
{
    const char *comma = "";
    for (size_t at = 0; at < bytes;) {
        char *end = memchr(merges + at, '\n', bytes - at);
        size_t next = end == NULL ? bytes : (size_t)(end - merges) + 1;
        size_t length = (end == NULL ? bytes : (size_t)(end - merges)) - at;
        if (length > 0 && merges[at + length - 1] == '\r') length--;
        bool comment = at == 0 && length >= 8 && memcmp(merges, "#version", 8) == 0;
        merges[at + length] = '\0'; /* at most where the text ends, which sl_file_read_all ends with a NUL */
        if (length > 0 && !comment) {
            sl_text_add(out, "%s", comma);
            sl_text_add_string(out, merges + at);
            comma = ", ";
        }
        at = next;
    }
    return sl_text_status(out);
}

sluice_status sl_tokenizer_write_pair(const char *vocab_file, const char *merges_file, int32_t end,
                                      const char *end_content, sl_text *out)
{
    char *vocab, *merges;
    size_t vocab_bytes, merges_bytes;
    SL_TRY(sl_file_read_all(vocab_file, SL_TOKENIZER_MAX_BYTES, &vocab, &vocab_bytes));
    begin(out, true, true, end, end_content);
    sl_text_add_bytes(out, vocab, vocab_bytes);
    sl_free(vocab);
    sl_text_add(out, ",\n    \"merges\": [");
    SL_TRY(sl_file_read_all(merges_file, SL_TOKENIZER_MAX_BYTES, &merges, &merges_bytes));
    sluice_status st = add_merges(out, merges, merges_bytes);
    sl_free(merges);
    sl_text_add(out, "]\n  }\n}\n");
    return st;
}
