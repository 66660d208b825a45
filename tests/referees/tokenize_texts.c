/* tokenize_texts.c: a tokenizer as a program, for the referee beside it (tokenizer_parity.py).
 *
 *   tokenize_texts FOLDER|tokenizer.json
 *
 * A request on standard input is a letter, a byte of flags, a count (32 bits, as all numbers: little-endian) and that many bytes
 * or ids: E encodes a text, D decodes ids at once, S decodes them one by one. The answer is a count and that many ids or bytes. */
#include <stdio.h>
#include <stdlib.h>

#include "format/tokenizer.h"

static void need(sluice_status st)
{
    if (st == SLUICE_OK) return;
    fprintf(stderr, "tokenize_texts: %s\n", sluice_error());
    exit(4);
}

static void answer(const void *data, size_t count, size_t each)
{
    uint32_t n = (uint32_t)count;
    if (fwrite(&n, sizeof n, 1, stdout) != 1 || fwrite(data, each, count, stdout) != count || fflush(stdout) != 0)
        exit(6);
}

static void decode(const sl_tokenizer *t, bool stream, unsigned flags, const int32_t *ids, uint32_t count)
{
    sl_text out = { 0 };
    sl_stream_decoder *d;
    if (stream) {
        need(sl_stream_decoder_create(t, flags, &d));
        for (uint32_t i = 0; i < count; i++) need(sl_stream_decoder_add(d, ids[i], &out));
        need(sl_stream_decoder_finish(d, &out));
        sl_stream_decoder_destroy(d);
    } else {
        need(sl_decode(t, ids, count, flags, &out));
    }
    answer(out.data, out.bytes, 1);
    sl_text_free(&out);
}

int main(int argc, char **argv)
{
    sl_tokenizer *t;
    sl_encoder *e;
    sl_ids ids = { 0 };
    char head[2];
    if (argc != 2) return 2;
    need(sl_tokenizer_open(argv[1], &t));
    need(sl_encoder_create(t, &e));
    while (fread(head, 2, 1, stdin) == 1) {
        uint32_t count;
        if (fread(&count, sizeof count, 1, stdin) != 1) return 1;
        size_t each = head[0] == 'E' ? 1 : sizeof(int32_t);
        void *data = malloc(count * each + 1);
        if (data == NULL || fread(data, each, count, stdin) != count) return 1;
        ids.count = 0;
        if (head[0] == 'E') {
            need(sl_encode(e, data, count, (unsigned char)head[1], &ids));
            answer(ids.data, ids.count, sizeof *ids.data);
        } else {
            decode(t, head[0] == 'S', (unsigned char)head[1], data, count);
        }
        free(data);
    }
    sl_ids_free(&ids);
    sl_encoder_destroy(e);
    sl_tokenizer_close(t);
    return 0;
}
