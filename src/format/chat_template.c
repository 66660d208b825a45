/* chat_template.c: the families' templates as rows, and the one renderer that reads them.
 *
 * Differences between families are few: what stands around a turn, where a system message goes, whether contents are stripped,
 * whether turns must alternate. Each is a field. Only Qwen 3's thinking blocks are a function.
 *
 * Loss begins where a generation prompt ends and goes to the end mark, with the newline that follows it: as TRL's training
 * templates have it (and so, for Qwen 2 and 2.5, from the newline after "assistant" on). */
#include "format/chat_template.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "format/chat_jinja.h"

/* In the texts of rows: what the folder calls them; and DATE. */
#define BOS "\001"
#define EOS "\002"
/* Where nothing says another: the one that Llama 3.1's own template has. */
#define USUAL_DATE "26 Jul 2024"

typedef enum {
    SYSTEM_TURN,       /* a turn like the others, anywhere */
    SYSTEM_ALWAYS,     /* the first turn, after fixed text, also where the conversation has none */
    SYSTEM_FIRST_USER, /* inside the first user turn */
    SYSTEM_LAST_USER,  /* inside the last turn, if a user's; otherwise left out */
    SYSTEM_DROPPED,    /* left out */
    SYSTEM_REFUSED
} system_rule;

typedef enum {
    STRIP_NOTHING,
    STRIP_CONTENTS, /* every content by itself */
    STRIP_JOINED,   /* every content; where a system message was put before one, the two together */
    STRIP_ANSWERS
} strip_rule;

typedef struct turn_text {
    const char *before, *after;
} turn_text;

struct sl_chat_template {
    const char *name;
    const char *begin; /* once, before everything */
    turn_text turns[SL_ROLE_COUNT];
    const char *lead; /* between the header of an answer and its content, already with loss */
    system_rule system;
    const char *default_system; /* its content where a conversation has none; NULL: no turn then. ALWAYS: fixed text */
    const char *system_open, *system_shut; /* around it inside a user turn */
    strip_rule strip;
    bool alternates; /* user, assistant, user, ... after the system message */
    bool thinks;     /* Qwen 3: answers have a thinking block */
    bool skips_empty_system;
    const char *prompt;  /* the header of an answer, after the last turn */
    const char *end;     /* after the last turn, where there is no prompt; with loss after an answer */
    const char *between; /* before a user turn that is not the first */
    const char *end_mark;
    const char *input_join, *input_system;
    bool adds_special;
    const char *jinja; /* our own text for it, with DATE where the date stands */
};

#define HEADER(role_) "<|start_header_id|>" role_ "<|end_header_id|>\n\n"
#define LLAMA3_TURNS                                                                                                   \
    {                                                                                                                  \
        { HEADER("system"), "<|eot_id|>" }, { HEADER("user"), "<|eot_id|>" },                                          \
        {                                                                                                              \
            HEADER("assistant"), "<|eot_id|>"                                                                          \
        }                                                                                                              \
    }
#define IM(role_) "<|im_start|>" role_
#define CHATML_TURNS                                                                                                   \
    {                                                                                                                  \
        { IM("system\n"), "<|im_end|>\n" }, { IM("user\n"), "<|im_end|>\n" },                                          \
        {                                                                                                              \
            IM("assistant\n"), "<|im_end|>\n"                                                                          \
        }                                                                                                              \
    }
#define QWEN2_TURNS                                                                                                    \
    {                                                                                                                  \
        { IM("system\n"), "<|im_end|>\n" }, { IM("user\n"), "<|im_end|>\n" },                                          \
        {                                                                                                              \
            IM("assistant"), "<|im_end|>\n"                                                                            \
        }                                                                                                              \
    }
#define PHI3_TURNS                                                                                                     \
    {                                                                                                                  \
        { "<|system|>\n", "<|end|>\n" }, { "<|user|>\n", "<|end|>\n" },                                                \
        {                                                                                                              \
            "<|assistant|>\n", "<|end|>\n"                                                                             \
        }                                                                                                              \
    }
#define ZEPHYR_TURNS                                                                                                   \
    {                                                                                                                  \
        { "<|system|>\n", EOS "\n" }, { "<|user|>\n", EOS "\n" },                                                      \
        {                                                                                                              \
            "<|assistant|>\n", EOS "\n"                                                                                \
        }                                                                                                              \
    }
#define GEMMA_TURNS                                                                                                    \
    {                                                                                                                  \
        { NULL, NULL }, { "<start_of_turn>user\n", "<end_of_turn>\n" },                                                \
        {                                                                                                              \
            "<start_of_turn>model\n", "<end_of_turn>\n"                                                                \
        }                                                                                                              \
    }
#define ALPACA_TASK    "Below is an instruction that describes a task"
#define ALPACA_REQUEST "Write a response that appropriately completes the request."

/* clang-format off */
static const sl_chat_template rows[] = {
    { .name = "llama2", .jinja = J_LLAMA2, .turns = { { NULL, NULL }, { BOS "[INST] ", " [/INST]" }, { "", " " EOS } }, .lead = " ",
      .system = SYSTEM_FIRST_USER, .system_open = "<<SYS>>\n", .system_shut = "\n<</SYS>>\n\n", .strip = STRIP_JOINED, .alternates = true },
    { .name = "llama3", .jinja = J_LLAMA3, .begin = BOS, .turns = LLAMA3_TURNS, .strip = STRIP_CONTENTS, .prompt = HEADER("assistant"), .end_mark = "<|eot_id|>" },
    { .name = "llama3.1", .jinja = J_LLAMA31, .begin = BOS, .turns = LLAMA3_TURNS, .strip = STRIP_CONTENTS, .system = SYSTEM_ALWAYS,
      .default_system = "Cutting Knowledge Date: December 2023\nToday Date: " DATE "\n\n",
      .prompt = HEADER("assistant"), .end_mark = "<|eot_id|>" },
    { .name = "chatml", .jinja = J_CHATML, .turns = CHATML_TURNS, .prompt = IM("assistant\n"), .end_mark = "<|im_end|>" },
    { .name = "qwen2", .jinja = J_QWEN2, .turns = QWEN2_TURNS, .lead = "\n", .default_system = "You are a helpful assistant.",
      .prompt = IM("assistant\n"), .end_mark = "<|im_end|>" },
    { .name = "qwen2.5", .jinja = J_QWEN25, .turns = QWEN2_TURNS, .lead = "\n",
      .default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
      .prompt = IM("assistant\n"), .end_mark = "<|im_end|>" },
    { .name = "qwen3", .jinja = J_QWEN3, .turns = CHATML_TURNS, .thinks = true, .prompt = IM("assistant\n"), .end_mark = "<|im_end|>" },
    { .name = "qwen3-instruct", .jinja = J_QWEN3_INSTRUCT, .turns = CHATML_TURNS, .prompt = IM("assistant\n"), .end_mark = "<|im_end|>" },
    { .name = "mistral-v1-old", .jinja = J_MISTRAL_V1_OLD, .begin = BOS, .turns = { { NULL, NULL }, { "[INST] ", " [/INST]" }, { "", EOS } },
      .system = SYSTEM_REFUSED, .alternates = true },
    { .name = "mistral-v1", .jinja = J_MISTRAL_V1, .begin = BOS, .turns = { { NULL, NULL }, { " [INST] ", " [/INST]" }, { "", EOS } }, .lead = " ",
      .system = SYSTEM_FIRST_USER, .system_shut = "\n\n", .alternates = true },
    { .name = "mistral-v3", .jinja = J_MISTRAL_V3, .begin = BOS, .turns = { { NULL, NULL }, { "[INST] ", "[/INST]" }, { "", EOS } }, .lead = " ",
      .system = SYSTEM_LAST_USER, .system_shut = "\n\n", .strip = STRIP_ANSWERS, .alternates = true },
    { .name = "mistral-tekken", .jinja = J_MISTRAL_TEKKEN, .begin = BOS, .turns = { { NULL, NULL }, { "[INST]", "[/INST]" }, { "", EOS } },
      .system = SYSTEM_LAST_USER, .system_shut = "\n\n", .alternates = true },
    { .name = "gemma", .jinja = J_GEMMA, .begin = BOS, .turns = GEMMA_TURNS, .system = SYSTEM_REFUSED, .strip = STRIP_CONTENTS, .alternates = true,
      .prompt = "<start_of_turn>model\n", .end_mark = "<end_of_turn>" },
    { .name = "gemma3", .jinja = J_GEMMA3, .begin = BOS, .turns = GEMMA_TURNS, .system = SYSTEM_FIRST_USER, .system_shut = "\n\n", .strip = STRIP_CONTENTS,
      .alternates = true, .prompt = "<start_of_turn>model\n", .end_mark = "<end_of_turn>" },
    { .name = "phi3", .jinja = J_PHI3, .turns = PHI3_TURNS, .prompt = "<|assistant|>\n", .end = EOS, .end_mark = "<|end|>" },
    { .name = "phi3.5", .jinja = J_PHI35, .turns = PHI3_TURNS, .skips_empty_system = true, .prompt = "<|assistant|>\n", .end = EOS, .end_mark = "<|end|>" },
    { .name = "phi3-old", .jinja = J_PHI3_OLD, .begin = BOS, .turns = { { NULL, NULL }, { "<|user|>\n", "<|end|>\n<|assistant|>\n" }, { "", "<|end|>\n" } },
      .system = SYSTEM_DROPPED, .end_mark = "<|end|>" },
    { .name = "zephyr", .jinja = J_ZEPHYR, .turns = ZEPHYR_TURNS, .prompt = "<|assistant|>\n" },
    { .name = "alpaca", .jinja = J_ALPACA(ALPACA_TASK ". " ALPACA_REQUEST), .turns = { { "", "\n\n" }, { "### Instruction:\n", "\n\n" }, { "### Response:\n", EOS } },
      .default_system = ALPACA_TASK ". " ALPACA_REQUEST, .prompt = "### Response:\n", .between = "\n\n",
      .input_join = "\n\n### Input:\n", .adds_special = true,
      .input_system = ALPACA_TASK ", paired with an input that provides further context. " ALPACA_REQUEST },
};
/* clang-format on */
enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

const sl_chat_template *sl_chat_at(int i)
{
    return i >= 0 && i < ROW_COUNT ? &rows[i] : NULL;
}

const sl_chat_template *sl_chat_find(const char *name)
{
    for (int i = 0; i < ROW_COUNT; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

const char *sl_chat_name(const sl_chat_template *t)
{
    return t->name;
}

const char *sl_chat_names(char *buf)
{
    size_t used = 0;
    for (int i = 0; i < ROW_COUNT && used < SL_CHAT_NAMES_BYTES; i++)
        used += (size_t)snprintf(buf + used, SL_CHAT_NAMES_BYTES - used, "%s%s", i > 0 ? ", " : "", rows[i].name);
    return buf;
}

bool sl_chat_adds_special(const sl_chat_template *t)
{
    return t->adds_special;
}

const char *sl_chat_end_mark(const sl_chat_template *t)
{
    return t->end_mark;
}

static bool names_eos(const char *text)
{
    return text != NULL && strstr(text, EOS) != NULL;
}

bool sl_chat_writes_eos(const sl_chat_template *t)
{
    bool writes = names_eos(t->end);
    for (int i = 0; i < SL_ROLE_COUNT; i++) writes |= names_eos(t->turns[i].after);
    return writes;
}

const char *sl_chat_usual_date(const sl_chat_template *t)
{
    return t != NULL && strstr(t->jinja, DATE) != NULL ? USUAL_DATE : NULL;
}

void sl_chat_jinja(const sl_chat_template *t, const char *date, sl_text *out)
{
    size_t before = strcspn(t->jinja, DATE);
    sl_text_add_bytes(out, t->jinja, before);
    if (t->jinja[before] == '\0') return;
    sl_text_add(out, "%s%s", date != NULL ? date : USUAL_DATE, t->jinja + before + strlen(DATE));
}

bool sl_chat_is_own(const sl_chat_template *t, const char *jinja, size_t bytes, sl_chat_span *date)
{
    size_t before = strcspn(t->jinja, DATE);
    bool tells = t->jinja[before] != '\0';
    const char *behind = t->jinja + before + (tells ? strlen(DATE) : 0);
    size_t after = strlen(behind) - (tells ? strlen("\n") : 0);
    if (!tells) before -= strlen("\n");
    *date = (sl_chat_span){ tells ? jinja + before : NULL, 0 };
    if (bytes < before + after || memcmp(jinja, t->jinja, before) != 0) return false;
    if (memcmp(jinja + bytes - after, behind, after) != 0) return false;
    date->bytes = bytes - before - after;
    return tells ? memchr(date->text, '\'', date->bytes) == NULL : date->bytes == 0;
}

const char *sl_chat_input_join(const sl_chat_template *t)
{
    return t->input_join != NULL ? t->input_join : "\n";
}

const char *sl_chat_input_system(const sl_chat_template *t)
{
    return t->input_system;
}

/* ---- texts ---- */

typedef sl_chat_span span;

/* Bytes of the white space character at p, as Python's str.strip knows them; 0: it is none. */
static size_t space_bytes(const char *p, size_t left)
{
    const unsigned char *u = (const unsigned char *)p;
    if (left == 0) return 0;
    if (u[0] < 0x80) return u[0] == ' ' || (u[0] >= 9 && u[0] <= 13) || (u[0] >= 0x1c && u[0] <= 0x1f);
    if (left >= 2 && u[0] == 0xc2) return u[1] == 0x85 || u[1] == 0xa0 ? 2 : 0;
    if (left < 3) return 0;
    uint32_t c = (uint32_t)(u[0] & 0x0f) << 12 | (uint32_t)(u[1] & 0x3f) << 6 | (u[2] & 0x3f);
    if (u[0] < 0xe0 || u[0] > 0xef) return 0;
    return c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
                   c == 0x3000
               ? 3
               : 0;
}

/* The bytes of `text` without white space at its end. */
static size_t strip_end(const char *text, size_t bytes)
{
    for (;;) {
        size_t length = 1;
        while (length < 4 && length < bytes && ((unsigned char)text[bytes - length] & 0xc0) == 0x80) length++;
        if (bytes == 0 || space_bytes(text + bytes - length, length) != length) return bytes;
        bytes -= length;
    }
}

static span strip(span s)
{
    for (size_t n; (n = space_bytes(s.text, s.bytes)) > 0;) s = (span){ s.text + n, s.bytes - n };
    s.bytes = strip_end(s.text, s.bytes);
    return s;
}

static span strip_newlines(span s, bool begin, bool end)
{
    while (begin && s.bytes > 0 && s.text[0] == '\n') s = (span){ s.text + 1, s.bytes - 1 };
    while (end && s.bytes > 0 && s.text[s.bytes - 1] == '\n') s.bytes--;
    return s;
}

static bool begins_with(span s, const char *prefix)
{
    size_t n = strlen(prefix);
    return s.bytes >= n && memcmp(s.text, prefix, n) == 0;
}

static bool ends_with(span s, const char *suffix)
{
    size_t n = strlen(suffix);
    return s.bytes >= n && memcmp(s.text + s.bytes - n, suffix, n) == 0;
}

/* Where `mark` is in the text, the first or the last time; NULL: it is not. */
static const char *find_mark(span s, const char *mark, bool last)
{
    size_t n = strlen(mark);
    const char *found = NULL;
    for (size_t at = 0; at + n <= s.bytes; at++) {
        const char *candidate = memchr(s.text + at, mark[0], s.bytes - n - at + 1);
        if (candidate == NULL) break;
        at = (size_t)(candidate - s.text);
        if (memcmp(candidate, mark, n) != 0) continue;
        found = candidate;
        if (!last) break;
        at += n - 1;
    }
    return found;
}

/* ---- writing ---- */

typedef struct renderer {
    const sl_chat_template *t;
    sl_chat_words words;
    sl_chat_text *out;
    bool loss; /* of what is written now */
} renderer;

/* Bytes that were added since the end of the last part become one, or lengthen it where it is of the same kind. */
static void end_part(renderer *r, bool content)
{
    sl_chat_text *o = r->out;
    size_t begin = o->part_count > 0 ? o->parts[o->part_count - 1].end : 0;
    if (o->text.failed || o->text.bytes == begin) return;
    sl_chat_part *last = o->part_count > 0 ? &o->parts[o->part_count - 1] : NULL;
    if (last != NULL && last->loss == r->loss && last->content == content) {
        last->end = o->text.bytes;
        return;
    }
    if (o->part_count == o->part_capacity) {
        int capacity = o->part_capacity > 0 ? 2 * o->part_capacity : 16;
        sl_chat_part *parts = sl_realloc(o->parts, (size_t)o->part_capacity * sizeof *parts,
                                         (size_t)capacity * sizeof *parts, "parts of a conversation");
        if (parts == NULL) {
            o->text.failed = true;
            return;
        }
        o->parts = parts;
        o->part_capacity = capacity;
    }
    o->parts[o->part_count++] = (sl_chat_part){ begin, o->text.bytes, r->loss, content };
}

static const char *word(const renderer *r, char mark)
{
    const char *text = mark == BOS[0] ? r->words.bos : mark == EOS[0] ? r->words.eos : r->words.date;
    if (text != NULL) return text;
    return mark == DATE[0] ? USUAL_DATE : "";
}

/* Text of the row; NULL is nothing. */
static void put(renderer *r, const char *text)
{
    if (text == NULL) return;
    for (size_t n; *text != '\0'; text += n) {
        n = strcspn(text, BOS EOS DATE);
        if (n > 0) {
            sl_text_add_bytes(&r->out->text, text, n);
        } else {
            const char *known = word(r, *text);
            sl_text_add_bytes(&r->out->text, known, strlen(known));
            n = 1;
        }
    }
    end_part(r, false);
}

static void put_content(renderer *r, span s)
{
    if (s.bytes == 0) return;
    sl_text_add_bytes(&r->out->text, s.text, s.bytes);
    end_part(r, true);
}

/* Takes white space back from the end of what was written after `from`, but for STRIP_JOINED. */
static void take_back_space(renderer *r, size_t from)
{
    sl_chat_text *o = r->out;
    if (o->text.failed) return;
    o->text.bytes = from + strip_end(o->text.data + from, o->text.bytes - from);
    while (o->part_count > 0 && o->parts[o->part_count - 1].begin >= o->text.bytes) o->part_count--;
    if (o->part_count > 0 && o->parts[o->part_count - 1].end > o->text.bytes)
        o->parts[o->part_count - 1].end = o->text.bytes;
}

static void put_turn(renderer *r, sl_chat_role role, span content)
{
    put(r, r->t->turns[role].before);
    put_content(r, content);
    put(r, r->t->turns[role].after);
}

static span content_of(const sl_chat_template *t, const sl_chat_message *m)
{
    span s = { m->content, m->bytes };
    bool strips = t->strip == STRIP_CONTENTS || t->strip == STRIP_JOINED ||
                  (t->strip == STRIP_ANSWERS && m->role == SL_ROLE_ASSISTANT);
    return strips ? strip(s) : s;
}

/* A user turn; `system` is put inside it, NULL: none is. */
static void put_user(renderer *r, const sl_chat_message *m, const sl_chat_message *system)
{
    const sl_chat_template *t = r->t;
    put(r, t->turns[SL_ROLE_USER].before);
    size_t from = r->out->text.bytes;
    if (system != NULL) {
        put(r, t->system_open);
        put_content(r, (span){ system->content, system->bytes });
        put(r, t->system_shut);
    }
    if (system != NULL && t->strip == STRIP_JOINED) {
        put_content(r, (span){ m->content, m->bytes });
        take_back_space(r, from);
    } else {
        put_content(r, content_of(t, m));
    }
    put(r, t->turns[SL_ROLE_USER].after);
}

/* Qwen 3: the thinking that an answer holds, apart from the answer. */
static void part_thinking(span answer, span *thinking, span *rest)
{
    static const char open[] = "<think>", shut[] = "</think>";
    const char *end = find_mark(answer, shut, false);
    *thinking = (span){ "", 0 };
    *rest = answer;
    if (end == NULL) return;
    const char *last = find_mark(answer, shut, true) + strlen(shut);
    *rest = strip_newlines((span){ last, answer.bytes - (size_t)(last - answer.text) }, true, false);
    span before = strip_newlines((span){ answer.text, (size_t)(end - answer.text) }, false, true);
    const char *begin = find_mark(before, open, true);
    if (begin != NULL) begin += strlen(open);
    *thinking = begin != NULL ? (span){ begin, before.bytes - (size_t)(begin - before.text) } : before;
    *thinking = strip_newlines(*thinking, true, false);
}

/* Answers after the last question show their thinking, the last one an empty block where it has none. */
static void put_thinking_answer(renderer *r, const sl_chat_message *m, bool current, bool last)
{
    span thinking, rest;
    part_thinking((span){ m->content, m->bytes }, &thinking, &rest);
    if (current && (last || thinking.bytes > 0)) {
        put(r, "<think>\n");
        put_content(r, strip_newlines(thinking, true, true));
        put(r, "\n</think>\n\n");
        rest = strip_newlines(rest, true, false);
    }
    put_content(r, rest);
}

static void put_answer(renderer *r, const sl_chat_message *m, bool current, bool last)
{
    const sl_chat_template *t = r->t;
    put(r, t->turns[SL_ROLE_ASSISTANT].before);
    r->loss = true;
    put(r, t->lead);
    if (t->thinks)
        put_thinking_answer(r, m, current, last);
    else
        put_content(r, content_of(t, m));
    put(r, t->turns[SL_ROLE_ASSISTANT].after);
    r->loss = false;
}

/* ---- conversations ---- */

static const char *role_name(sl_chat_role role)
{
    return role == SL_ROLE_SYSTEM ? "system" : role == SL_ROLE_USER ? "user" : "assistant";
}

/* `first` is the number of system messages in front that are no turns of their own. */
static sluice_status check_turns(const sl_chat_template *t, const sl_chat_message *messages, int first, int count,
                                 const char *where)
{
    for (int i = first; i < count; i++) {
        if (!t->alternates && (messages[i].role != SL_ROLE_SYSTEM || t->turns[SL_ROLE_SYSTEM].before != NULL ||
                               t->system == SYSTEM_DROPPED))
            continue;
        sl_chat_role due = (i - first) % 2 == 0 ? SL_ROLE_USER : SL_ROLE_ASSISTANT;
        if (messages[i].role == due) continue;
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: message %d is the %s's, and the chat template \"%s\" takes %s in turns, user first%s",
                       where, i + 1, role_name(messages[i].role), t->name, "user and assistant",
                       t->system == SYSTEM_REFUSED ? ", without a system message"
                                                   : ", after at most one system message");
    }
    return SLUICE_OK;
}

static sluice_status check(const sl_chat_template *t, const sl_chat_message *messages, int count, const char *where)
{
    if (count == 0) return sl_fail(SLUICE_ERR_INPUT, "%s: a conversation without messages", where);
    bool system = messages[0].role == SL_ROLE_SYSTEM;
    if (system && t->system == SYSTEM_REFUSED)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: the chat template \"%s\" has no system message; put its text into the first user message",
                       where, t->name);
    bool folded = t->system == SYSTEM_FIRST_USER || t->system == SYSTEM_LAST_USER;
    SL_TRY(check_turns(t, messages, system && folded, count, where));
    if (system && folded && count == 1)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: a conversation of a system message alone, which the chat template \"%s\" puts "
                       "into a user message",
                       where, t->name);
    return SLUICE_OK;
}

/* The turns before the conversation's own. Returns how many messages they took. */
static int put_opening(renderer *r, const sl_chat_message *messages)
{
    const sl_chat_template *t = r->t;
    bool system = messages[0].role == SL_ROLE_SYSTEM;
    put(r, t->begin);
    if (t->system == SYSTEM_ALWAYS) {
        put(r, t->turns[SL_ROLE_SYSTEM].before);
        put(r, t->default_system);
        if (system) put_content(r, content_of(t, &messages[0]));
        put(r, t->turns[SL_ROLE_SYSTEM].after);
        return system;
    }
    if (!system && t->default_system != NULL) {
        put(r, t->turns[SL_ROLE_SYSTEM].before);
        put(r, t->default_system);
        put(r, t->turns[SL_ROLE_SYSTEM].after);
    }
    return system && (t->system == SYSTEM_FIRST_USER || t->system == SYSTEM_LAST_USER);
}

/* Qwen 3: the user message that the model answers now; a result of a tool is none. */
static int last_question(const sl_chat_message *messages, int count)
{
    for (int i = count - 1; i >= 0; i--) {
        span s = { messages[i].content, messages[i].bytes };
        if (messages[i].role == SL_ROLE_USER &&
            !(begins_with(s, "<tool_response>") && ends_with(s, "</tool_response>")))
            return i;
    }
    return count - 1;
}

static void put_message(renderer *r, const sl_chat_message *messages, int first, int i, int count, int question)
{
    const sl_chat_template *t = r->t;
    const sl_chat_message *m = &messages[i], *inside = NULL;
    if (first == 1 && t->system == SYSTEM_FIRST_USER && i == first) inside = &messages[0];
    if (first == 1 && t->system == SYSTEM_LAST_USER && i == count - 1) inside = &messages[0];
    switch (m->role) {
    case SL_ROLE_USER:
        if (i > first && messages[i - 1].role == SL_ROLE_ASSISTANT) put(r, t->between);
        put_user(r, m, inside);
        break;
    case SL_ROLE_ASSISTANT:
        put_answer(r, m, i > question, i == count - 1);
        break;
    default:
        if (t->system == SYSTEM_DROPPED || (t->skips_empty_system && m->bytes == 0))
            r->out->system_dropped |= m->bytes > 0;
        else
            put_turn(r, SL_ROLE_SYSTEM, content_of(t, m));
    }
}

sluice_status sl_chat_render(const sl_chat_template *t, const sl_chat_words *words, const sl_chat_message *messages,
                             int count, bool prompts, const char *where, sl_chat_text *out)
{
    renderer r = { .t = t, .words = *words, .out = out };
    SL_TRY(check(t, messages, count, where));
    out->text.bytes = 0;
    out->part_count = 0;
    out->system_dropped = false;
    int first = put_opening(&r, messages), question = t->thinks ? last_question(messages, count) : 0;
    for (int i = t->system == SYSTEM_ALWAYS && messages[0].role == SL_ROLE_SYSTEM ? 1 : first; i < count; i++)
        put_message(&r, messages, first, i, count, question);
    bool answered = messages[count - 1].role == SL_ROLE_ASSISTANT;
    if (t->system == SYSTEM_LAST_USER && first == 1) out->system_dropped = answered;
    r.loss = !prompts && answered;
    put(&r, prompts ? t->prompt : t->end);
    return sl_text_status(&out->text);
}

void sl_chat_text_free(sl_chat_text *t)
{
    sl_text_free(&t->text);
    sl_free(t->parts);
    t->parts = NULL;
    t->part_count = t->part_capacity = 0;
}
