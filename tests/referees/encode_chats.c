/* encode_chats.c: samples as tokens, for the referee beside it (masks.py).
 *
 * encode_chats TOKENIZER TEMPLATE FILE BOS EOS: a line {"ids": [...], "loss": [...]} for each sample of the file, or {"error"}. */
#include <stdio.h>
#include <string.h>

#include "data/jsonl.h"

static void print_sample(const sl_jsonl_encoder *e)
{
    fputs("{\"ids\": [", stdout);
    for (int64_t i = 0; i < e->count; i++) printf("%s%d", i > 0 ? ", " : "", (int)sl_jsonl_id(e->tokens[i]));
    fputs("], \"loss\": [", stdout);
    for (int64_t i = 0; i < e->count; i++) printf("%s%d", i > 0 ? ", " : "", sl_jsonl_loss(e->tokens[i]));
    puts("]}");
}

static sluice_status encode_all(const sl_tokenizer *t, const char *name, const char *path, const char *bos,
                                const char *eos)
{
    sl_jsonl_file f;
    sl_jsonl_shape shape;
    sl_jsonl_encoder e;
    sl_jsonl_sample s = { .words = NULL };
    sl_jsonl_rules rules = { .tokenizer = t,
                             .chat = sl_chat_find(name),
                             .words = { bos, eos, NULL },
                             .most = 1 << 24,
                             .eos = sl_tokenizer_find(t, eos, strlen(eos)) };
    SL_TRY(sl_jsonl_file_read(NULL, path, &f));
    SL_TRY(sl_jsonl_detect(&f, &shape));
    SL_TRY(sl_jsonl_encoder_make(&rules, &e));
    for (int64_t i = 0; i < f.count; i++) {
        sluice_status st = sl_jsonl_sample_read(&f, i, shape, rules.chat, &s);
        if (st == SLUICE_OK) st = sl_jsonl_encode(&e, &s, "here");
        if (st == SLUICE_OK)
            print_sample(&e);
        else
            puts("{\"error\": true}");
    }
    sl_jsonl_encoder_free(&e);
    sl_jsonl_sample_free(&s);
    sl_jsonl_file_free(&f);
    return SLUICE_OK;
}

int main(int argc, char **argv)
{
    sl_tokenizer *t;
    if (argc != 6 || sl_tokenizer_open(argv[1], &t) != SLUICE_OK) {
        fprintf(stderr, "%s\n", argc == 6 ? sluice_error() : "usage: encode_chats TOKENIZER TEMPLATE FILE BOS EOS");
        return 1;
    }
    sluice_status st = encode_all(t, argv[2], argv[3], argv[4], argv[5]);
    if (st != SLUICE_OK) fprintf(stderr, "%s\n", sluice_error());
    sl_tokenizer_close(t);
    return st == SLUICE_OK ? 0 : 1;
}
