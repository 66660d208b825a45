/* tokenizer_describe.c: a tokenizer for people and for programs: kind, size, added tokens. */
#include <string.h>

#include "format/json.h"
#include "format/tokenizer_parts.h"

static void print_token(const sl_added_token *a, bool json, bool first, FILE *out)
{
    if (json) {
        fprintf(out, "%s{\"id\":%u,\"content\":", first ? "" : ",", a->id);
        sl_json_write_string(out, a->content);
        fprintf(out, ",\"special\":%s}", a->special ? "true" : "false");
        return;
    }
    fprintf(out, "  %7u  ", a->id);
    sl_json_write_string(out, a->content);
    fprintf(out, "%s%s%s%s\n", a->special ? "  special" : "", a->lstrip ? "  lstrip" : "", a->rstrip ? "  rstrip" : "",
            a->normalized ? "  normalized" : "");
}

void sl_tokenizer_describe(const sl_tokenizer *t, bool json, FILE *out)
{
    if (json)
        fprintf(out, "{\"kind\":\"%s\",\"ids\":%u,\"tokens\":%u,\"merges\":%u,\"end_of_text\":%d,\"added_tokens\":[",
                sl_tokenizer_kind(t), t->vocab.size, t->vocab.count, t->bpe.merge_count, sl_tokenizer_end_of_text(t));
    else
        fprintf(out, "tokenizer: %s, %u tokens, %u merges, ids below %u\n%zu added token%s\n", sl_tokenizer_kind(t),
                t->vocab.count, t->bpe.merge_count, t->vocab.size, t->added_count, t->added_count == 1 ? "" : "s");
    for (size_t i = 0; i < t->added_count; i++) print_token(&t->added[i], json, i == 0, out);
    if (json) fputs("]}\n", out);
}
