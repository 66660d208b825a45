/* tokenizer_describe.c: a tokenizer for people and for programs: kind, size, added tokens. */
#include <stdlib.h>
#include <string.h>

#include "format/json.h"
#include "format/tokenizer_parts.h"

static void print_json(const sl_added_token *a, bool first, FILE *out)
{
    fprintf(out, "%s{\"id\":%u,\"content\":", first ? "" : ",", a->id);
    sl_json_write_string(out, a->content);
    fprintf(out, ",\"special\":%s}", a->special ? "true" : "false");
}

/* ---- Runs: <|reserved_7|>, <|reserved_8|>, ... ---- */

enum { SHORTEST_RUN = 3 };

/* The number in a content, the last one: where it begins, its digits, its value. False: there is none. */
static bool find_number(const sl_added_token *a, size_t *begin, size_t *digits, uint64_t *value)
{
    size_t end = a->bytes;
    while (end > 0 && !(a->content[end - 1] >= '0' && a->content[end - 1] <= '9')) end--;
    *begin = end;
    while (*begin > 0 && a->content[*begin - 1] >= '0' && a->content[*begin - 1] <= '9') --*begin;
    *digits = end - *begin;
    *value = strtoull(a->content + *begin, NULL, 10);
    return *digits > 0 && *digits < 19;
}

/* Whether b is what follows a: the next id, the next number, and alike otherwise. */
static bool follows(const sl_added_token *a, const sl_added_token *b)
{
    size_t begin, digits, begin_b, digits_b;
    uint64_t value, value_b;
    if (b->id != a->id + 1 || a->special != b->special || a->lstrip != b->lstrip || a->rstrip != b->rstrip ||
        a->normalized != b->normalized)
        return false;
    if (!find_number(a, &begin, &digits, &value) || !find_number(b, &begin_b, &digits_b, &value_b)) return false;
    size_t rest = a->bytes - begin - digits;
    return value_b == value + 1 && begin == begin_b && b->bytes - begin_b - digits_b == rest &&
           memcmp(a->content, b->content, begin) == 0 &&
           memcmp(a->content + begin + digits, b->content + begin_b + digits_b, rest) == 0;
}

/* One line for the tokens first to last, of which there are one or a run. */
static void print_tokens(const sl_added_token *first, const sl_added_token *last, FILE *out)
{
    fprintf(out, "  %7u  ", first->id);
    sl_json_write_string(out, first->content);
    if (last != first) {
        fputs(" to ", out);
        sl_json_write_string(out, last->content);
        fprintf(out, ", %u tokens", last->id - first->id + 1);
    }
    fprintf(out, "%s%s%s%s\n", first->special ? "  special" : "", first->lstrip ? "  lstrip" : "",
            first->rstrip ? "  rstrip" : "", first->normalized ? "  normalized" : "");
}

static void print_added(const sl_tokenizer *t, FILE *out)
{
    for (size_t i = 0; i < t->added_count;) {
        size_t end = i + 1;
        while (end < t->added_count && follows(&t->added[end - 1], &t->added[end])) end++;
        if (end - i < SHORTEST_RUN) end = i + 1;
        print_tokens(&t->added[i], &t->added[end - 1], out);
        i = end;
    }
}

void sl_tokenizer_describe(const sl_tokenizer *t, bool json, FILE *out)
{
    if (json)
        fprintf(out, "{\"kind\":\"%s\",\"ids\":%u,\"tokens\":%u,\"merges\":%u,\"end_of_text\":%d,\"added_tokens\":[",
                sl_tokenizer_kind(t), t->vocab.size, t->vocab.count, t->bpe.merge_count, sl_tokenizer_end_of_text(t));
    else
        fprintf(out, "tokenizer: %s, %u tokens, %u merges, ids below %u\n%zu added token%s\n", sl_tokenizer_kind(t),
                t->vocab.count, t->bpe.merge_count, t->vocab.size, t->added_count, t->added_count == 1 ? "" : "s");
    if (!json) {
        print_added(t, out);
        return;
    }
    for (size_t i = 0; i < t->added_count; i++) print_json(&t->added[i], i == 0, out);
    fputs("]}\n", out);
}
