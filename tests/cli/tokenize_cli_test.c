/* tokenize_cli_test.c: sluice tokenize, and what it is told by mistake. */
#include <stdlib.h>
#include <string.h>

#include "support/run.h"
#include "test.h"

#define TOKENIZERS SLUICE_SOURCE_DIR "/tests/fixtures/tokenizers/"

static void check_run(const char *folder, const char *arguments, int status, const char *out, const char *error)
{
    run_result r = run_sluice(folder, arguments);
    CHECK_THAT(r.status == status, "%s: exit status %d, not %d: %s", arguments, r.status, status, r.error);
    CHECK_CONTAINS(r.out, out);
    CHECK_CONTAINS(r.error, error);
    run_free(&r);
}

TEST(tokenize_prints_or_writes_ids)
{
    const char *folder = test_tmpdir();
    run_write(folder, "a.txt", "the king\n");
    run_write(folder, "b.txt", "the end\nof it\n");
    check_run(folder, "tokenize " TOKENIZERS "gpt2-v4.json a.txt", 0, "1 document, ", "");
    check_run(folder, "tokenize " TOKENIZERS "gpt2-v4.json - < a.txt", 0, "\"", "");
    check_run(folder,
              "tokenize " TOKENIZERS
              "bert-uncased.json a.txt b.txt -o out.bin --lines --eos '[SEP]' --token-type uint32",
              0, "out.bin: ", "");
    check_run(folder, "tokenize " TOKENIZERS "gpt2-v4.json a.txt b.txt -o t.bin --validation 0.5", 0,
              "t.validation.bin: ", "");
    check_run(folder, "tokenize " TOKENIZERS "gpt2-v4.json a.txt -o t.bin --quiet", 0, "", "");
}

TEST(tokenize_refuses_with_the_status_of_the_mistake)
{
    const char *folder = test_tmpdir();
    run_write(folder, "a.txt", "the king\n");
    run_write(folder, "bad.txt", "the \xff king\n");
    run_write(folder, "tokenizer.json", "{\"model\": {\"type\": \"Unigram\"}}");
    check_run(folder, "tokenize " TOKENIZERS "gpt2-v4.json", 2, "", "TEXT ... is missing");
    check_run(folder, "tokenize " TOKENIZERS "gpt2-v4.json a.txt --token-type int8 -o x", 2, "", "uint16, uint32");
    check_run(folder, "tokenize " TOKENIZERS "gpt2-v4.json a.txt --validation 0.5", 2, "", "--validation needs --out");
    check_run(folder, "tokenize . a.txt", 4, "", "\"Unigram\" is not built");
    check_run(folder, "tokenize nowhere a.txt", 4, "", "nowhere");
    check_run(folder, "tokenize " TOKENIZERS "gpt2-v4.json bad.txt -o x", 4, "", "byte 4 (0xff) is not UTF-8");
    check_run(folder, "tokenize " TOKENIZERS "gpt2-v4.json nothing.txt -o x", 4, "", "nothing.txt");
    check_run(folder, "tokenize " TOKENIZERS "gpt2-v4.json a.txt -o a.txt", 2, "", "would replace a text, a.txt");
}

TEST(inspect_says_what_a_tokenizer_is)
{
    const char *folder = test_tmpdir();
    check_run(folder, "tokenize --help", 0, "--special-tokens", "");
    char *text = run_read(TOKENIZERS "gpt2-v4.json");
    run_write(folder, "tokenizer.json", text);
    free(text);
    check_run(folder, "inspect tokenizer.json", 0, "byte-level BPE", "");
    check_run(folder, "inspect tokenizer.json", 0, "\"<|endoftext|>\"  special", "");
    check_run(folder, "inspect tokenizer.json --json", 0, "{\"kind\":\"byte-level BPE\"", "");
}
