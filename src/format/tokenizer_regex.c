/* tokenizer_regex.c: a small backtracking matcher. The expression becomes a tree, the tree a program; a loop over one set is
 * one instruction that gives back a character at a time, so that the choices at hand do not grow with the text. */
#include "format/tokenizer_regex.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "format/tokenizer_unicode.h"

enum {
    MOST_NODES = 2000,
    MOST_CODE = 8000,
    MOST_RANGES = 2000,
    MOST_NESTING = 24,
    MOST_REPEATS = 1000,
    UNBOUNDED = -1
};
#define MOST_CHOICES ((size_t)1 << 22)

/* Characters: those of a category, with a flag, without one, or in a range. */
typedef struct character_set {
    uint32_t categories;
    uint16_t with, without;
    uint16_t first_range, range_count;
    bool negated;
    bool
        bracketed; /* [...]: superscripts and fractions of Latin-1 are no word characters there, as in the reference's engine */
} character_set;

typedef struct code_range {
    uint32_t first, last;
} code_range;

typedef enum {
    NODE_EMPTY,
    NODE_SET,
    NODE_SEQUENCE,
    NODE_EITHER,
    NODE_REPEAT,
    NODE_AHEAD,
    NODE_START,
    NODE_END
} node_kind;

typedef struct node {
    node_kind kind;
    int left, right; /* nodes; NODE_SET: left is a set */
    int least, most;
    bool possessive, negated;
} node;

typedef enum { DO_SET, DO_LOOP, DO_CHOICE, DO_JUMP, DO_AHEAD, DO_START, DO_END, DO_MATCH } instruction_kind;

typedef struct instruction {
    instruction_kind kind;
    int set, target; /* DO_CHOICE: tried second; DO_AHEAD: where to go on */
    int least, most;
    bool possessive, negated;
} instruction;

struct sl_regex {
    instruction *code; /* owned, as the others */
    character_set *sets;
    code_range *ranges;
    int code_count, set_count, range_count;
};

/* ---- Parsing ---- */

typedef struct parser {
    const char *text;
    size_t bytes, at;
    sl_regex *regex;
    node *nodes; /* owned */
    int node_count, nesting;
    bool any_case;
    sl_regex_fault *fault;
    bool failed;
} parser;

static int fault(parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fault(parser *p, const char *format, ...)
{
    if (p->failed) return 0;
    va_list args;
    va_start(args, format);
    int used = vsnprintf(p->fault->text, sizeof p->fault->text, format, args);
    va_end(args);
    if (used > 0 && (size_t)used < sizeof p->fault->text)
        snprintf(p->fault->text + used, sizeof p->fault->text - (size_t)used, " (byte %zu)", p->at);
    p->failed = true;
    return 0;
}

static bool at_end(const parser *p)
{
    return p->failed || p->at >= p->bytes;
}

static bool looks_at(const parser *p, const char *text)
{
    size_t bytes = strlen(text);
    return !p->failed && p->bytes - p->at >= bytes && memcmp(p->text + p->at, text, bytes) == 0;
}

static bool take(parser *p, const char *text)
{
    if (!looks_at(p, text)) return false;
    p->at += strlen(text);
    return true;
}

static int new_node(parser *p, node n)
{
    if (p->node_count == MOST_NODES) return fault(p, "it is too long");
    p->nodes[p->node_count] = n;
    return p->node_count++;
}

static int new_set(parser *p)
{
    if (p->regex->set_count == MOST_NODES) return fault(p, "it is too long");
    p->regex->sets[p->regex->set_count] = (character_set){ .first_range = (uint16_t)p->regex->range_count };
    return p->regex->set_count++;
}

static void add_range(parser *p, int set, uint32_t first, uint32_t last)
{
    if (p->regex->range_count == MOST_RANGES) {
        fault(p, "it is too long");
        return;
    }
    p->regex->ranges[p->regex->range_count++] = (code_range){ first, last };
    p->regex->sets[set].range_count++;
}

/* With (?i:...) both cases of ASCII letters, and the two characters beyond it that fold to one. */
static void add_literal(parser *p, int set, uint32_t code)
{
    add_range(p, set, code, code);
    if (!p->any_case) return;
    uint32_t lower = code | 0x20;
    if (code >= 0x80) {
        fault(p, "(?i: with characters beyond ASCII");
    } else if (lower >= 'a' && lower <= 'z') {
        add_range(p, set, code ^ 0x20, code ^ 0x20);
        if (lower == 's') add_range(p, set, 0x17f, 0x17f);
        if (lower == 'k') add_range(p, set, 0x212a, 0x212a);
    }
}

/* L, Lu, M, ... as bits of categories; 0: not known. */
static uint32_t category_bits(const char *name, size_t bytes)
{
    static const char names[SL_CATEGORY_COUNT][3] = { "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                                      "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                                      "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs" };
    uint32_t bits = 0;
    for (int i = 0; i < SL_CATEGORY_COUNT; i++)
        if ((bytes == 1 || bytes == 2) && memcmp(names[i], name, bytes) == 0) bits |= UINT32_C(1) << i;
    return bits;
}

/* After \p or \P. */
static void add_property(parser *p, int set, bool negated)
{
    const char *name = p->text + p->at + 1;
    const char *close = looks_at(p, "{") ? memchr(name, '}', p->bytes - p->at - 1) : NULL;
    if (close == NULL) {
        fault(p, "\\p without {...}");
        return;
    }
    if (*name == '^') {
        negated = !negated;
        name++;
    }
    uint32_t bits = category_bits(name, (size_t)(close - name));
    if (bits == 0) {
        fault(p, "\\p{%.*s} is not a general category", (int)(close - name < 20 ? close - name : 20), name);
        return;
    }
    p->regex->sets[set].categories |= negated ? ~bits : bits;
    p->at = (size_t)(close + 1 - p->text);
}

/* Four or, in braces, up to six hexadecimal digits. */
static uint32_t read_code(parser *p, size_t digits)
{
    uint32_t code = 0;
    bool braces = take(p, "{");
    size_t count = 0;
    for (; !at_end(p) && count < (braces ? 6 : digits); count++, p->at++) {
        const char *hex = "0123456789abcdef";
        const char *digit = memchr(hex, p->text[p->at] | 0x20, 16);
        if (digit == NULL) break;
        code = code << 4 | (uint32_t)(digit - hex);
    }
    if (count == 0 || (!braces && count != digits) || (braces && !take(p, "}")) || code >= SL_CODE_POINTS)
        fault(p, "a character's number is malformed");
    return code;
}

/* An escape that stands for one character: true, with the character. Otherwise it is added to the set. */
static bool read_escape(parser *p, int set, uint32_t *code)
{
    static const char plain[] = "nrtfv0", meaning[] = "\n\r\t\f\v";
    if (at_end(p)) {
        fault(p, "it ends in a backslash");
        return false;
    }
    character_set *s = &p->regex->sets[set];
    char c = p->text[p->at++];
    const char *named = c == '0' ? NULL : strchr(plain, c);
    if (named != NULL) {
        *code = (unsigned char)meaning[named - plain];
        return true;
    }
    switch (c) {
    case 'p':
    case 'P':
        add_property(p, set, c == 'P');
        return false;
    case 's':
        s->with |= SL_CHAR_WHITE;
        return false;
    case 'S':
        s->without |= SL_CHAR_WHITE;
        return false;
    case 'w':
        s->with |= SL_CHAR_WORD;
        return false;
    case 'W':
        s->without |= SL_CHAR_WORD;
        return false;
    case 'd':
        s->categories |= UINT32_C(1) << SL_CATEGORY_ND;
        return false;
    case 'D':
        s->categories |= ~(UINT32_C(1) << SL_CATEGORY_ND);
        return false;
    case 'u':
        *code = read_code(p, 4);
        return true;
    case 'x':
        *code = read_code(p, 2);
        return true;
    default:
        break;
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c & 0x80) != 0) {
        fault(p, "\\%c is not built", (c & 0x80) != 0 ? '?' : c);
        return false;
    }
    *code = (unsigned char)c;
    return true;
}

static uint32_t read_character(parser *p)
{
    size_t length;
    uint32_t code = sl_code_point(p->text + p->at, &length);
    p->at += length;
    return code;
}

/* One character of [...], or what an escape adds; false: it was such an escape. */
static bool read_member(parser *p, int set, uint32_t *code)
{
    if (take(p, "\\")) return read_escape(p, set, code);
    if (looks_at(p, "[") || looks_at(p, "&&")) {
        fault(p, "sets inside of sets are not built");
        return false;
    }
    *code = read_character(p);
    return true;
}

/* After the opening bracket. */
static int parse_set(parser *p)
{
    int set = new_set(p);
    bool empty = true;
    if (p->failed) return 0;
    p->regex->sets[set].bracketed = true;
    p->regex->sets[set].negated = take(p, "^");
    for (; !at_end(p) && (empty || !looks_at(p, "]")); empty = false) {
        uint32_t first, last;
        if (!read_member(p, set, &first)) continue;
        bool range = looks_at(p, "-") && p->at + 1 < p->bytes && p->text[p->at + 1] != ']';
        if (!range) {
            add_literal(p, set, first);
            continue;
        }
        p->at++;
        if (!read_member(p, set, &last) || last < first) {
            fault(p, "a range is malformed");
        } else if (p->any_case) {
            fault(p, "(?i: with ranges");
        } else {
            add_range(p, set, first, last);
        }
    }
    if (!take(p, "]")) return fault(p, "a set has no end");
    return new_node(p, (node){ .kind = NODE_SET, .left = set });
}

static int parse_alternatives(parser *p);

/* After the opening parenthesis. */
static int parse_group(parser *p)
{
    bool any_case = p->any_case;
    node ahead = { .kind = NODE_AHEAD };
    bool looks = false;
    if (take(p, "?=") || looks_at(p, "?!")) {
        ahead.negated = take(p, "?!");
        looks = true;
    } else if (take(p, "?i:")) {
        p->any_case = true;
    } else if (!take(p, "?:") && looks_at(p, "?")) {
        return fault(p, "this kind of group is not built");
    }
    if (++p->nesting > MOST_NESTING) return fault(p, "groups are nested too deep");
    int inside = parse_alternatives(p);
    p->nesting--;
    p->any_case = any_case;
    if (!take(p, ")")) return fault(p, "a group has no end");
    ahead.left = inside;
    return looks ? new_node(p, ahead) : inside;
}

static int parse_atom(parser *p)
{
    if (take(p, "(")) return parse_group(p);
    if (take(p, "[")) return parse_set(p);
    if (take(p, "^")) return new_node(p, (node){ .kind = NODE_START });
    if (take(p, "$")) return new_node(p, (node){ .kind = NODE_END });
    if (looks_at(p, "*") || looks_at(p, "+") || looks_at(p, "?")) return fault(p, "nothing to repeat");
    int set = new_set(p);
    uint32_t code;
    if (p->failed) return 0;
    if (take(p, ".")) {
        p->regex->sets[set].negated = true;
        add_range(p, set, '\n', '\n');
    } else if (take(p, "\\")) {
        if (read_escape(p, set, &code)) add_literal(p, set, code);
    } else {
        add_literal(p, set, read_character(p));
    }
    return new_node(p, (node){ .kind = NODE_SET, .left = set });
}

static int read_count(parser *p)
{
    int value = 0;
    bool any = false;
    for (; !at_end(p) && p->text[p->at] >= '0' && p->text[p->at] <= '9' && value <= MOST_REPEATS; p->at++, any = true)
        value = value * 10 + (p->text[p->at] - '0');
    if (!any || value > MOST_REPEATS) fault(p, "a count of repeats is not from 0 to %d", MOST_REPEATS);
    return value;
}

/* What stands behind an atom; false: nothing. */
static bool read_repeat(parser *p, node *n)
{
    *n = (node){ .kind = NODE_REPEAT, .least = 0, .most = UNBOUNDED };
    if (take(p, "?")) {
        n->most = 1;
    } else if (take(p, "+")) {
        n->least = 1;
    } else if (take(p, "{")) {
        n->least = looks_at(p, ",") ? 0 : read_count(p);
        n->most = n->least;
        if (take(p, ",")) n->most = looks_at(p, "}") ? UNBOUNDED : read_count(p);
        if (!take(p, "}")) fault(p, "{m,n} is malformed");
        if (n->most != UNBOUNDED && n->most < n->least) fault(p, "{m,n} with m > n");
        if (looks_at(p, "+")) fault(p, "a repeated repeat"); /* the reference reads it as one, others as possessive */
    } else if (!take(p, "*")) {
        return false;
    }
    if (looks_at(p, "?")) fault(p, "repeats that take as few as they can are not built");
    n->possessive = take(p, "+");
    return !p->failed;
}

static int parse_sequence(parser *p)
{
    int sequence = new_node(p, (node){ .kind = NODE_EMPTY });
    while (!at_end(p) && !looks_at(p, "|") && !looks_at(p, ")")) {
        node repeat;
        int atom = parse_atom(p);
        if (read_repeat(p, &repeat)) {
            repeat.left = atom;
            atom = new_node(p, repeat);
        }
        if (looks_at(p, "*") || looks_at(p, "+") || looks_at(p, "?")) return fault(p, "a repeated repeat");
        sequence = new_node(p, (node){ .kind = NODE_SEQUENCE, .left = sequence, .right = atom });
    }
    return sequence;
}

static int parse_alternatives(parser *p)
{
    int either = parse_sequence(p);
    while (take(p, "|")) {
        int right = parse_sequence(p);
        either = new_node(p, (node){ .kind = NODE_EITHER, .left = either, .right = right });
    }
    return either;
}

/* ---- The program ---- */

static int emit(parser *p, instruction i)
{
    if (p->regex->code_count == MOST_CODE) return fault(p, "it is too long");
    p->regex->code[p->regex->code_count] = i;
    return p->regex->code_count++;
}

static bool may_be_empty(const parser *p, int at)
{
    const node *n = &p->nodes[at];
    switch (n->kind) {
    case NODE_SET:
        return false;
    case NODE_SEQUENCE:
        return may_be_empty(p, n->left) && may_be_empty(p, n->right);
    case NODE_EITHER:
        return may_be_empty(p, n->left) || may_be_empty(p, n->right);
    case NODE_REPEAT:
        return n->least == 0 || may_be_empty(p, n->left);
    default:
        return true;
    }
}

static void emit_node(parser *p, int at);

static void emit_optional(parser *p, int body)
{
    int choice = emit(p, (instruction){ .kind = DO_CHOICE });
    emit_node(p, body);
    p->regex->code[choice].target = p->regex->code_count;
}

static void emit_repeat(parser *p, const node *n)
{
    const node *body = &p->nodes[n->left];
    if (body->kind == NODE_SEQUENCE && p->nodes[body->left].kind == NODE_EMPTY)
        body = &p->nodes[body->right]; /* (x)* */
    if (body->kind == NODE_SET) {
        emit(p,
             (instruction){
                 .kind = DO_LOOP, .set = body->left, .least = n->least, .most = n->most, .possessive = n->possessive });
        return;
    }
    if (n->possessive || may_be_empty(p, n->left)) {
        fault(p, "this repeat of a group is not built");
        return;
    }
    for (int i = 0; i < n->least && !p->failed; i++) emit_node(p, n->left);
    for (int i = n->least; i < n->most && !p->failed; i++) emit_optional(p, n->left);
    if (n->most != UNBOUNDED) return;
    int choice = emit(p, (instruction){ .kind = DO_CHOICE });
    emit_node(p, n->left);
    emit(p, (instruction){ .kind = DO_JUMP, .target = choice });
    p->regex->code[choice].target = p->regex->code_count;
}

static void emit_either(parser *p, const node *n)
{
    int choice = emit(p, (instruction){ .kind = DO_CHOICE });
    emit_node(p, n->left);
    int jump = emit(p, (instruction){ .kind = DO_JUMP });
    p->regex->code[choice].target = p->regex->code_count;
    emit_node(p, n->right);
    p->regex->code[jump].target = p->regex->code_count;
}

static void emit_node(parser *p, int at)
{
    if (p->failed) return;
    const node *n = &p->nodes[at];
    switch (n->kind) {
    case NODE_EMPTY:
        break;
    case NODE_SET:
        emit(p, (instruction){ .kind = DO_SET, .set = n->left });
        break;
    case NODE_SEQUENCE:
        emit_node(p, n->left);
        emit_node(p, n->right);
        break;
    case NODE_EITHER:
        emit_either(p, n);
        break;
    case NODE_REPEAT:
        emit_repeat(p, n);
        break;
    case NODE_AHEAD: {
        int ahead = emit(p, (instruction){ .kind = DO_AHEAD, .negated = n->negated });
        emit_node(p, n->left);
        emit(p, (instruction){ .kind = DO_MATCH });
        p->regex->code[ahead].target = p->regex->code_count;
        break;
    }
    case NODE_START:
        emit(p, (instruction){ .kind = DO_START });
        break;
    case NODE_END:
        emit(p, (instruction){ .kind = DO_END });
        break;
    }
}

void sl_regex_free(sl_regex *r)
{
    if (r == NULL) return;
    sl_free(r->code);
    sl_free(r->sets);
    sl_free(r->ranges);
    sl_free(r);
}

static sl_regex *new_regex(void)
{
    sl_regex *r = sl_alloc(sizeof *r, "regular expression");
    if (r == NULL) return NULL;
    r->code = sl_alloc_array(MOST_CODE, sizeof *r->code, "regular expression");
    r->sets = sl_alloc_array(MOST_NODES, sizeof *r->sets, "regular expression");
    r->ranges = sl_alloc_array(MOST_RANGES, sizeof *r->ranges, "regular expression");
    if (r->code != NULL && r->sets != NULL && r->ranges != NULL) return r;
    sl_regex_free(r);
    return NULL;
}

sluice_status sl_regex_compile(const char *expression, size_t bytes, sl_regex **out, sl_regex_fault *why)
{
    sl_regex *r = new_regex();
    node *nodes = r == NULL ? NULL : sl_alloc_array(MOST_NODES, sizeof *nodes, "regular expression");
    if (nodes == NULL) {
        sl_regex_free(r);
        return SLUICE_ERR_NO_MEMORY;
    }
    parser p = { .text = expression, .bytes = bytes, .regex = r, .nodes = nodes, .fault = why };
    int root = parse_alternatives(&p);
    if (!p.failed && p.at < bytes) fault(&p, "a parenthesis too many");
    emit_node(&p, root);
    emit(&p, (instruction){ .kind = DO_MATCH });
    sl_free(nodes);
    if (!p.failed) {
        *out = r;
        return SLUICE_OK;
    }
    sl_regex_free(r);
    return SLUICE_ERR_INPUT;
}

/* ---- Matching ---- */

/* Where to go on when what was tried fails. A loop that may give back has low < at. */
typedef struct sl_regex_choice {
    int code;
    size_t at, low;
} choice_point;

void sl_regex_work_free(sl_regex_work *w)
{
    sl_free(w->choices);
    *w = (sl_regex_work){ 0 };
}

uint64_t sl_regex_steps(size_t bytes)
{
    return 1000000 + 2000 * (uint64_t)bytes;
}

typedef struct attempt {
    const sl_regex *r;
    const uint16_t *properties;
    const char *text;
    size_t bytes;
    sl_regex_work *w;
    size_t count; /* choices */
} attempt;

static bool is_in(const attempt *a, int set, uint32_t code)
{
    const character_set *s = &a->r->sets[set];
    unsigned property = a->properties[code];
    if (s->bracketed && code < 0x100 && !sl_is_word(a->properties, code)) property &= ~(unsigned)SL_CHAR_WORD;
    bool in = (s->categories >> (property & SL_CATEGORY_MASK) & 1) != 0 || (property & s->with) != 0 ||
              (~property & s->without) != 0;
    for (int i = 0; i < s->range_count && !in; i++) {
        const code_range *range = &a->r->ranges[s->first_range + i];
        in = code >= range->first && code <= range->last;
    }
    return in != s->negated;
}

static sluice_status push_choice(attempt *a, choice_point c)
{
    sl_regex_work *w = a->w;
    if (a->count == w->capacity) {
        size_t capacity = w->capacity == 0 ? 64 : 2 * w->capacity;
        if (capacity > MOST_CHOICES)
            return sl_fail(SLUICE_ERR_INPUT,
                           "the regular expression of the pre-tokenizer takes too much memory on this text");
        choice_point *choices =
            sl_realloc(w->choices, w->capacity * sizeof *choices, capacity * sizeof *choices, "regular expression");
        if (choices == NULL) return SLUICE_ERR_NO_MEMORY;
        w->choices = choices;
        w->capacity = capacity;
    }
    w->choices[a->count++] = c;
    return SLUICE_OK;
}

/* Takes the newest choice back that was made after the first `base`. */
static bool take_back(attempt *a, size_t base, int *code, size_t *at)
{
    if (a->count == base) return false;
    choice_point *c = &a->w->choices[a->count - 1];
    *code = c->code;
    if (c->low == SIZE_MAX) {
        *at = c->at;
        a->count--;
        return true;
    }
    c->at--;
    while (((unsigned char)a->text[c->at] & 0xc0) == 0x80) c->at--;
    *at = c->at;
    if (c->at == c->low) a->count--;
    return true;
}

/* As many characters of a set as there are. False: fewer than the least. */
static sluice_status run_loop(attempt *a, int code, size_t *at, bool *matched)
{
    const instruction *i = &a->r->code[code];
    size_t end = *at, low = *at, length;
    for (int count = 0; end < a->bytes && (i->most == UNBOUNDED || count < i->most); count++, end += length) {
        if (!is_in(a, i->set, sl_code_point(a->text + end, &length))) break;
        if (count + 1 <= i->least) low = end + length;
        if (a->w->steps > 0) a->w->steps--;
    }
    int needed = i->least;
    for (size_t k = *at; k < end && needed > 0; k += length, needed--) sl_code_point(a->text + k, &length);
    *matched = needed == 0;
    *at = end;
    if (!*matched || i->possessive || end == low) return SLUICE_OK;
    return push_choice(a, (choice_point){ code + 1, end, low });
}

/* Runs from `code` until DO_MATCH. */
static sluice_status run(attempt *a, int code, size_t at, bool *matched, size_t *end)
{
    size_t base = a->count, length;
    for (;;) {
        const instruction *i = &a->r->code[code];
        bool goes_on = true;
        if (a->w->steps == 0)
            return sl_fail(SLUICE_ERR_INPUT,
                           "the regular expression of the pre-tokenizer takes too many steps on this text");
        a->w->steps--;
        switch (i->kind) {
        case DO_SET:
            goes_on = at < a->bytes && is_in(a, i->set, sl_code_point(a->text + at, &length));
            if (goes_on) at += length;
            code++;
            break;
        case DO_LOOP:
            SL_TRY(run_loop(a, code++, &at, &goes_on));
            break;
        case DO_CHOICE:
            SL_TRY(push_choice(a, (choice_point){ i->target, at, SIZE_MAX }));
            code++;
            break;
        case DO_JUMP:
            code = i->target;
            break;
        case DO_AHEAD: {
            bool inside;
            size_t unused;
            SL_TRY(run(a, code + 1, at, &inside, &unused));
            goes_on = inside != i->negated;
            code = i->target;
            break;
        }
        case DO_START:
            goes_on = at == 0 || a->text[at - 1] == '\n';
            code++;
            break;
        case DO_END:
            goes_on = at == a->bytes || a->text[at] == '\n';
            code++;
            break;
        case DO_MATCH:
            a->count = base;
            *matched = true;
            *end = at;
            return SLUICE_OK;
        }
        if (!goes_on && !take_back(a, base, &code, &at)) {
            *matched = false;
            return SLUICE_OK;
        }
    }
}

sluice_status sl_regex_next(const sl_regex *r, const uint16_t *properties, const char *text, size_t bytes, size_t from,
                            sl_regex_work *w, bool *found, size_t *begin, size_t *end)
{
    attempt a = { r, properties, text, bytes, w, 0 };
    *found = false;
    for (size_t at = from, length; at <= bytes && !*found; at += length) {
        length = 1;
        if (at < bytes) sl_code_point(text + at, &length);
        *begin = at;
        SL_TRY(run(&a, 0, at, found, end));
    }
    return SLUICE_OK;
}
