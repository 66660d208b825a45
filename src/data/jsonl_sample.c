/* jsonl_sample.c: what one JSON object says, in each of the shapes that data sets come in.
 *
 * Objects are walked in place (format/scan.h), twice: once for the places of the keys that matter, once for their values. Keys that
 * would change what is learned and are not built are refused by name; others are the data set's own business. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "data/jsonl.h"
#include "format/scan.h"

enum { MAX_MESSAGES = 100000 };

typedef enum {
    KEY_MESSAGES,
    KEY_CONVERSATIONS,
    KEY_PROMPT,
    KEY_COMPLETION,
    KEY_INSTRUCTION,
    KEY_INPUT,
    KEY_OUTPUT,
    KEY_SYSTEM,
    KEY_HISTORY,
    KEY_TEXT,
    KEY_CHOSEN,
    KEY_REJECTED,
    KEY_TOOLS,
    KEY_COUNT
} key;
static const char *const key_names[KEY_COUNT] = { "messages", "conversations", "prompt", "completion", "instruction",
                                                  "input",    "output",        "system", "history",    "text",
                                                  "chosen",   "rejected",      "tools" };

/* Bytes [begin, end) of the record. */
typedef struct place {
    size_t begin, end;
    bool there;
} place;

typedef struct reader {
    const sl_jsonl_file *file;
    int64_t record;
    sl_scan s; /* of the record's text */
    place places[KEY_COUNT];
    const sl_chat_template *chat;
    sl_jsonl_sample *out;
} reader;

/* ---- messages about places ---- */

static sluice_status __attribute__((format(printf, 3, 4))) fail_at(const reader *r, size_t at, const char *format, ...)
{
    const sl_jsonl_record *record = &r->file->records[r->record];
    char what[1024];
    va_list args;
    int line, column;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    sl_scan_position(r->s.text, at, &line, &column);
    if (line == 1) /* columns count from the line's begin, not from the object's */
        for (size_t i = record->begin; i > 0 && r->file->text[i - 1] != '\n'; i--) column++;
    return sl_fail(SLUICE_ERR_INPUT, "%s: line %" PRId64 ", column %d: %s", sl_show(r->file->path).text,
                   record->line + line - 1, column, what);
}

static sluice_status fail_scan(const reader *r)
{
    return fail_at(r, r->s.at, "%s", r->s.fault);
}

static const char *kind_at(const reader *r, size_t at)
{
    switch (r->s.text[at]) {
    case '"':
        return "a string";
    case '{':
        return "an object";
    case '[':
        return "a list";
    case 'n':
        return "null";
    case 't':
    case 'f':
        return "true or false";
    default:
        return "a number";
    }
}

/* ---- values ---- */

static bool is_string(const reader *r, place p)
{
    return p.there && r->s.text[p.begin] == '"';
}

static bool is_nothing(const reader *r, place p)
{
    return !p.there || r->s.text[p.begin] == 'n';
}

/* Decoded strings take no more room than their spelling; begin() made room for the record and for what joins them. */
static sl_jsonl_span keep(sl_jsonl_sample *out, const char *text, size_t bytes)
{
    char *copy = out->words + out->used;
    memcpy(copy, text, bytes);
    out->used += bytes;
    return (sl_jsonl_span){ copy, bytes };
}

static sluice_status take_string(const reader *r, place p, const char *name, sl_jsonl_span *out)
{
    if (!p.there) return fail_at(r, 0, "no \"%s\"", name);
    if (!is_string(r, p)) return fail_at(r, p.begin, "\"%s\" is %s, not a string", name, kind_at(r, p.begin));
    char *copy = r->out->words + r->out->used;
    size_t bytes = sl_scan_decode(r->s.text + p.begin + 1, p.end - p.begin - 2, copy);
    r->out->used += bytes;
    *out = (sl_jsonl_span){ copy, bytes };
    return SLUICE_OK;
}

static bool is_blank(sl_jsonl_span s)
{
    for (size_t i = 0; i < s.bytes; i++)
        if (strchr(" \t\r\n\f\v", s.text[i]) == NULL || s.text[i] == '\0') return false;
    return true;
}

/* The next value under the cursor. */
static bool scan_place(sl_scan *s, int depth, place *out)
{
    sl_scan_space(s);
    *out = (place){ .begin = s->at, .there = true };
    if (!sl_scan_skip(s, depth)) return false;
    out->end = s->at;
    return true;
}

/* Calls `take` for every element of the list at a place, with the cursor before it; it leaves the cursor after it. */
static sluice_status each_element(reader *r, place list, const char *name, sluice_status (*take)(reader *r))
{
    if (!list.there) return fail_at(r, 0, "no \"%s\"", name);
    if (r->s.text[list.begin] != '[')
        return fail_at(r, list.begin, "\"%s\" is %s, not a list", name, kind_at(r, list.begin));
    r->s.at = list.begin + 1;
    if (sl_scan_accept(&r->s, ']')) return SLUICE_OK;
    do {
        sl_scan_space(&r->s);
        SL_TRY(take(r));
    } while (sl_scan_accept(&r->s, ','));
    return SLUICE_OK;
}

/* ---- messages of conversations ---- */

static sluice_status add_message(reader *r, sl_chat_role role, sl_jsonl_span content)
{
    sl_jsonl_sample *o = r->out;
    if (o->message_count == MAX_MESSAGES)
        return fail_at(r, r->s.at, "a conversation of more than %d messages", MAX_MESSAGES);
    if (o->message_count == o->message_capacity) {
        int capacity = o->message_capacity > 0 ? 2 * o->message_capacity : 8;
        sl_chat_message *messages = sl_realloc(o->messages, (size_t)o->message_capacity * sizeof *messages,
                                               (size_t)capacity * sizeof *messages, "messages of a sample");
        if (messages == NULL) return SLUICE_ERR_NO_MEMORY;
        o->messages = messages;
        o->message_capacity = capacity;
    }
    o->messages[o->message_count++] = (sl_chat_message){ role, content.text, content.bytes };
    if (role == SL_ROLE_ASSISTANT && is_blank(content)) o->empty = true;
    return SLUICE_OK;
}

static const struct role_name {
    const char *name;
    sl_chat_role role; /* SL_ROLE_COUNT: known, but not built */
} role_names[] = {
    { "system", SL_ROLE_SYSTEM },       { "user", SL_ROLE_USER },      { "human", SL_ROLE_USER },
    { "assistant", SL_ROLE_ASSISTANT }, { "gpt", SL_ROLE_ASSISTANT },  { "model", SL_ROLE_ASSISTANT },
    { "tool", SL_ROLE_COUNT },          { "function", SL_ROLE_COUNT }, { "observation", SL_ROLE_COUNT },
    { "function_call", SL_ROLE_COUNT }, { "ipython", SL_ROLE_COUNT },  { "function_response", SL_ROLE_COUNT },
};

static sluice_status find_role(const reader *r, place p, const char *name, sl_chat_role *out)
{
    sl_jsonl_span role;
    size_t used = r->out->used;
    SL_TRY(take_string(r, p, name, &role));
    r->out->used = used;
    for (size_t i = 0; i < sizeof role_names / sizeof role_names[0]; i++) {
        if (strlen(role_names[i].name) != role.bytes || memcmp(role_names[i].name, role.text, role.bytes) != 0)
            continue;
        *out = role_names[i].role;
        if (*out != SL_ROLE_COUNT) return SLUICE_OK;
        return fail_at(r, p.begin, "messages of the role \"%s\" are not built: leave conversations with tools out",
                       role_names[i].name);
    }
    char shown[64];
    snprintf(shown, sizeof shown, "%.*s", role.bytes < 40 ? (int)role.bytes : 40, role.text);
    return fail_at(r, p.begin, "the role %s is none of system, user (human), assistant (gpt)", sl_quote(shown).text);
}

/* Members of a message that would change what it means. */
static const char *const refused_members[] = { "tool_calls", "function_call", "reasoning_content", "thinking" };
/* The same where they are 0 or false: the message is not to be learned. */
static const char *const refused_zeros[] = { "weight", "train" };

typedef struct message_places {
    place role, content;
} message_places;

static bool names_key(const reader *r, size_t begin, size_t end, const char *name)
{
    return end - begin == strlen(name) && memcmp(r->s.text + begin, name, end - begin) == 0;
}

static sluice_status check_member(const reader *r, size_t begin, size_t end, place value)
{
    char first = r->s.text[value.begin];
    bool empty = first == 'n' || (value.end - value.begin == 2 && strchr("[{\"", first) != NULL);
    for (size_t i = 0; i < sizeof refused_members / sizeof refused_members[0]; i++)
        if (!empty && names_key(r, begin, end, refused_members[i]))
            return fail_at(r, begin, "\"%s\" of a message is not built: leave such conversations out",
                           refused_members[i]);
    for (size_t i = 0; i < sizeof refused_zeros / sizeof refused_zeros[0]; i++)
        if ((first == '0' || first == 'f') && names_key(r, begin, end, refused_zeros[i]))
            return fail_at(r, begin, "\"%s\" of a message, which leaves it out of the loss, is not built",
                           refused_zeros[i]);
    return SLUICE_OK;
}

/* The object under the cursor; the cursor is past it afterwards. */
static sluice_status find_members(reader *r, const char *role, const char *content, message_places *out)
{
    size_t begin, end;
    place value;
    *out = (message_places){ .role = { 0, 0, false } };
    if (r->s.text[r->s.at] != '{') return fail_at(r, r->s.at, "a message is %s, not an object", kind_at(r, r->s.at));
    r->s.at++;
    if (sl_scan_accept(&r->s, '}')) return SLUICE_OK;
    do {
        if (!sl_scan_string(&r->s, &begin, &end) || !sl_scan_take(&r->s, ':') || !scan_place(&r->s, 3, &value))
            return fail_scan(r);
        if (names_key(r, begin, end, role))
            out->role = value;
        else if (names_key(r, begin, end, content))
            out->content = value;
        else
            SL_TRY(check_member(r, begin, end, value));
    } while (sl_scan_accept(&r->s, ','));
    return sl_scan_take(&r->s, '}') ? SLUICE_OK : fail_scan(r);
}

/* An element of a list of contents: {"type": "text", "text": ...}. */
static sluice_status take_text_part(reader *r)
{
    message_places p;
    sl_jsonl_span kind, text;
    size_t used = r->out->used, at = r->s.at;
    SL_TRY(find_members(r, "type", "text", &p));
    SL_TRY(take_string(r, p.role, "type", &kind));
    r->out->used = used;
    if (kind.bytes != 4 || memcmp(kind.text, "text", 4) != 0)
        return fail_at(r, at, "a content that is no text; images and sounds are not built");
    return take_string(r, p.content, "text", &text);
}

/* A string, or a list of texts, which are put together. */
static sluice_status take_content(reader *r, place p, const char *name, sl_jsonl_span *out)
{
    size_t begin = r->out->used, at = r->s.at;
    if (!p.there || r->s.text[p.begin] != '[') return take_string(r, p, name, out);
    SL_TRY(each_element(r, p, name, take_text_part));
    r->s.at = at;
    *out = (sl_jsonl_span){ r->out->words + begin, r->out->used - begin };
    return SLUICE_OK;
}

static sluice_status take_message_of(reader *r, const char *role_key, const char *content_key)
{
    message_places p;
    sl_chat_role role;
    sl_jsonl_span content;
    size_t at = r->s.at;
    SL_TRY(find_members(r, role_key, content_key, &p));
    if (!p.role.there) return fail_at(r, at, "a message without \"%s\"", role_key);
    if (!p.content.there) return fail_at(r, at, "a message without \"%s\"", content_key);
    SL_TRY(find_role(r, p.role, role_key, &role));
    SL_TRY(take_content(r, p.content, content_key, &content));
    return add_message(r, role, content);
}

static sluice_status take_message(reader *r)
{
    return take_message_of(r, "role", "content");
}

static sluice_status take_turn(reader *r)
{
    return take_message_of(r, "from", "value");
}

/* ---- shapes ---- */

static sluice_status take_messages(reader *r)
{
    return each_element(r, r->places[KEY_MESSAGES], "messages", take_message);
}

/* ShareGPT's own words, or those of the other shape, as some data sets have. */
static sluice_status take_either(reader *r)
{
    size_t at = r->s.at;
    message_places p;
    SL_TRY(find_members(r, "from", "value", &p));
    r->s.at = at;
    return p.role.there ? take_turn(r) : take_message(r);
}

static sluice_status take_conversations(reader *r)
{
    if (!is_nothing(r, r->places[KEY_SYSTEM])) {
        sl_jsonl_span system;
        SL_TRY(take_string(r, r->places[KEY_SYSTEM], "system", &system));
        if (system.bytes > 0) SL_TRY(add_message(r, SL_ROLE_SYSTEM, system));
    }
    return each_element(r, r->places[KEY_CONVERSATIONS], "conversations", take_either);
}

static sluice_status take_completion(reader *r)
{
    place prompt = r->places[KEY_PROMPT], completion = r->places[KEY_COMPLETION];
    if (is_string(r, prompt) || is_string(r, completion)) {
        SL_TRY(take_string(r, prompt, "prompt", &r->out->prompt));
        SL_TRY(take_string(r, completion, "completion", &r->out->completion));
        r->out->plain = true;
        r->out->empty = is_blank(r->out->completion);
        return SLUICE_OK;
    }
    SL_TRY(each_element(r, prompt, "prompt", take_message));
    r->out->empty = false; /* answers of the prompt are not learned */
    r->out->prompt_messages = r->out->message_count;
    if (r->out->message_count == 0) return fail_at(r, prompt.begin, "\"prompt\" is an empty list");
    SL_TRY(each_element(r, completion, "completion", take_message));
    if (r->out->message_count == r->out->prompt_messages) r->out->empty = true;
    return SLUICE_OK;
}

/* A pair of strings: what was asked before, and what was answered. */
static sluice_status take_pair(reader *r)
{
    place question, answer;
    sl_jsonl_span text;
    size_t at = r->s.at;
    if (r->s.text[at] != '[') return fail_at(r, at, "an element of \"history\" is %s, not a pair", kind_at(r, at));
    r->s.at++;
    if (!scan_place(&r->s, 3, &question) || !sl_scan_take(&r->s, ',') || !scan_place(&r->s, 3, &answer) ||
        !sl_scan_take(&r->s, ']'))
        return fail_at(r, at, "an element of \"history\" is not a pair of strings");
    SL_TRY(take_string(r, question, "history", &text));
    SL_TRY(add_message(r, SL_ROLE_USER, text));
    SL_TRY(take_string(r, answer, "history", &text));
    return add_message(r, SL_ROLE_ASSISTANT, text);
}

/* Instruction and input as one text. */
static sluice_status take_instruction(reader *r, sl_jsonl_span *out, bool *has_input)
{
    sl_jsonl_span instruction, input = { "", 0 };
    SL_TRY(take_string(r, r->places[KEY_INSTRUCTION], "instruction", &instruction));
    size_t joint = r->out->used;
    const char *join = sl_chat_input_join(r->chat);
    keep(r->out, join, strlen(join));
    if (!is_nothing(r, r->places[KEY_INPUT])) SL_TRY(take_string(r, r->places[KEY_INPUT], "input", &input));
    *has_input = input.bytes > 0;
    if (!*has_input) r->out->used = joint;
    *out = (sl_jsonl_span){ instruction.text, (size_t)(r->out->words + r->out->used - instruction.text) };
    return SLUICE_OK;
}

static sluice_status take_alpaca(reader *r)
{
    sl_jsonl_span system = { "", 0 }, instruction, output;
    bool has_input;
    place given = r->places[KEY_SYSTEM];
    if (!is_nothing(r, given)) SL_TRY(take_string(r, given, "system", &system));
    place input = r->places[KEY_INPUT];
    const char *text = sl_chat_input_system(r->chat);
    bool asks = is_string(r, input) && input.end - input.begin > 2;
    if (system.bytes == 0 && asks && text != NULL) system = (sl_jsonl_span){ text, strlen(text) };
    if (system.bytes > 0) SL_TRY(add_message(r, SL_ROLE_SYSTEM, system));
    if (!is_nothing(r, r->places[KEY_HISTORY])) SL_TRY(each_element(r, r->places[KEY_HISTORY], "history", take_pair));
    SL_TRY(take_instruction(r, &instruction, &has_input));
    SL_TRY(add_message(r, SL_ROLE_USER, instruction));
    SL_TRY(take_string(r, r->places[KEY_OUTPUT], "output", &output));
    return add_message(r, SL_ROLE_ASSISTANT, output);
}

static sluice_status take_text(reader *r)
{
    SL_TRY(take_string(r, r->places[KEY_TEXT], "text", &r->out->completion));
    r->out->prompt = (sl_jsonl_span){ "", 0 };
    r->out->plain = true;
    r->out->empty = is_blank(r->out->completion);
    return SLUICE_OK;
}

/* In the order in which they are looked for: some data sets keep the rendered text beside the messages. */
static const struct shape_row {
    const char *name;
    key needs[2];
    int need_count;
    sluice_status (*take)(reader *r);
} shape_rows[SL_SHAPE_COUNT] = {
    [SL_SHAPE_MESSAGES] = { "messages", { KEY_MESSAGES }, 1, take_messages },
    [SL_SHAPE_CONVERSATIONS] = { "conversations", { KEY_CONVERSATIONS }, 1, take_conversations },
    [SL_SHAPE_COMPLETION] = { "prompt and completion", { KEY_PROMPT, KEY_COMPLETION }, 2, take_completion },
    [SL_SHAPE_ALPACA] = { "instruction and output", { KEY_INSTRUCTION, KEY_OUTPUT }, 2, take_alpaca },
    [SL_SHAPE_TEXT] = { "text", { KEY_TEXT }, 1, take_text },
};

const char *sl_jsonl_shape_name(sl_jsonl_shape shape)
{
    return shape_rows[shape].name;
}

/* ---- records ---- */

static sluice_status note_key(reader *r, size_t begin, size_t end, place value)
{
    for (int k = 0; k < KEY_COUNT; k++) {
        if (!names_key(r, begin, end, key_names[k])) continue;
        if (r->places[k].there) return fail_at(r, begin, "\"%s\" is there twice", key_names[k]);
        r->places[k] = value;
    }
    return SLUICE_OK;
}

static sluice_status find_keys(reader *r)
{
    size_t bad, begin, end;
    place value;
    if (!sl_utf8_valid(r->s.text, r->s.bytes, &bad)) return fail_at(r, bad, "not valid UTF-8");
    if (!sl_scan_take(&r->s, '{'))
        return fail_at(r, r->s.at, "a sample is %s, not an object; give a JSON object a line", kind_at(r, r->s.at));
    if (!sl_scan_accept(&r->s, '}')) {
        do {
            if (!sl_scan_string(&r->s, &begin, &end) || !sl_scan_take(&r->s, ':') || !scan_place(&r->s, 1, &value))
                return fail_scan(r);
            SL_TRY(note_key(r, begin, end, value));
        } while (sl_scan_accept(&r->s, ','));
        if (!sl_scan_take(&r->s, '}')) return fail_scan(r);
    }
    sl_scan_space(&r->s);
    return r->s.at == r->s.bytes ? SLUICE_OK : fail_at(r, r->s.at, "more text after the end of the object");
}

static sluice_status begin(const sl_jsonl_file *f, int64_t record, const sl_chat_template *chat, sl_jsonl_sample *out,
                           reader *r)
{
    enum { JOINT_BYTES = 256 };
    const sl_jsonl_record *at = &f->records[record];
    size_t bytes = at->end - at->begin;
    *r = (reader){
        .file = f, .record = record, .s = { .text = f->text + at->begin, .bytes = bytes }, .chat = chat, .out = out
    };
    out->message_count = out->prompt_messages = 0;
    out->plain = out->empty = false;
    out->used = 0;
    if (out->capacity < bytes + JOINT_BYTES) {
        size_t capacity = 2 * bytes + JOINT_BYTES;
        char *words = sl_realloc(out->words, 0, capacity, "words of a sample");
        if (words == NULL) return SLUICE_ERR_NO_MEMORY;
        out->words = words;
        out->capacity = capacity;
    }
    return find_keys(r);
}

static bool has_keys(const reader *r, const struct shape_row *row)
{
    for (int i = 0; i < row->need_count; i++)
        if (!r->places[row->needs[i]].there) return false;
    return true;
}

static sluice_status refuse_shape(const reader *r)
{
    if (r->places[KEY_CHOSEN].there || r->places[KEY_REJECTED].there)
        return fail_at(
            r, 0,
            "this is preference data (\"chosen\" and \"rejected\" answers), which training on answers cannot use; "
            "make \"prompt\" and \"completion\" of the prompts and the chosen ones");
    return fail_at(r, 0,
                   "none of the known shapes: give \"messages\", \"conversations\", \"prompt\" and \"completion\", "
                   "\"instruction\" and \"output\", or \"text\"");
}

/* Tools change what a template writes. */
static sluice_status refuse_tools(const reader *r)
{
    place tools = r->places[KEY_TOOLS];
    if (is_nothing(r, tools) || tools.end - tools.begin == 2) return SLUICE_OK;
    return fail_at(r, tools.begin, "\"tools\" are not built: leave conversations with tools out");
}

sluice_status sl_jsonl_detect(const sl_jsonl_file *f, sl_jsonl_shape *out)
{
    sl_jsonl_sample sample = { .words = NULL };
    reader r;
    sluice_status st = begin(f, 0, NULL, &sample, &r);
    sl_jsonl_sample_free(&sample);
    SL_TRY(st);
    if (r.places[KEY_CHOSEN].there && r.places[KEY_REJECTED].there) return refuse_shape(&r);
    for (int i = 0; i < SL_SHAPE_COUNT; i++)
        if (has_keys(&r, &shape_rows[i])) {
            *out = (sl_jsonl_shape)i;
            return SLUICE_OK;
        }
    return refuse_shape(&r);
}

sluice_status sl_jsonl_sample_read(const sl_jsonl_file *f, int64_t record, sl_jsonl_shape shape,
                                   const sl_chat_template *chat, sl_jsonl_sample *out)
{
    reader r;
    SL_TRY(begin(f, record, chat, out, &r));
    if (!has_keys(&r, &shape_rows[shape])) {
        char list[128];
        snprintf(list, sizeof list, "\"%s\"%s%s%s", key_names[shape_rows[shape].needs[0]],
                 shape_rows[shape].need_count > 1 ? " and \"" : "",
                 shape_rows[shape].need_count > 1 ? key_names[shape_rows[shape].needs[1]] : "",
                 shape_rows[shape].need_count > 1 ? "\"" : "");
        return fail_at(&r, 0, "a sample without %s, which the first one has", list);
    }
    SL_TRY(refuse_tools(&r));
    return shape_rows[shape].take(&r);
}

void sl_jsonl_sample_free(sl_jsonl_sample *s)
{
    sl_free(s->messages);
    sl_free(s->words);
    *s = (sl_jsonl_sample){ .words = NULL };
}
