/* generate_chat.c: a conversation: lines of the user, and the model's reply to each.
 *
 * The whole conversation is written anew by the template for every reply, and what it has in common with what the cache
 * already holds is not fed again. Templates may change earlier turns as a conversation goes on: then more is fed. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "train/generate.h"

#define POLL_MILLISECONDS 200 /* between two looks at a request to stop */
#define MOST_LINE_BYTES   ((size_t)16 << 20)

typedef struct talk {
    sl_generator *n;
    sl_chat_message *messages; /* owned; their contents too */
    int count, capacity;
    sl_text input; /* read and not used yet */
} talk;

/* ---- lines ---- */

/* More input. *over: there is none any more. A wait for it ends with a request to stop. */
static sluice_status read_more(talk *t, bool *over)
{
    char bytes[4096];
    struct pollfd in = { .fd = fileno(t->n->o->in), .events = POLLIN };
    for (;;) {
        SL_TRY(sl_stop_poll(t->n->job->stop, "waiting for the next line"));
        int ready = poll(&in, 1, POLL_MILLISECONDS);
        if (ready < 0 && errno != EINTR) return sl_fail(SLUICE_ERR_IO, "chat: reading: %s", strerror(errno));
        if (ready > 0) break;
    }
    ssize_t got = read(in.fd, bytes, sizeof bytes);
    if (got < 0) return sl_fail(SLUICE_ERR_IO, "chat: reading: %s", strerror(errno));
    *over = got == 0;
    sl_text_add_bytes(&t->input, bytes, (size_t)got);
    if (t->input.bytes > MOST_LINE_BYTES)
        return sl_fail(SLUICE_ERR_INPUT, "chat: a line has over %zu bytes", MOST_LINE_BYTES);
    return sl_text_status(&t->input);
}

static sluice_status add_message(talk *t, sl_chat_role role, const char *text, size_t bytes)
{
    SL_TRY(sl_grow((void **)&t->messages, &t->capacity, t->count + 1, sizeof *t->messages, "conversation"));
    char *copy = sl_alloc(bytes + 1, "message of a conversation");
    if (copy == NULL) return SLUICE_ERR_NO_MEMORY;
    memcpy(copy, text, bytes);
    t->messages[t->count++] = (sl_chat_message){ role, copy, bytes };
    return SLUICE_OK;
}

/* The next line that says something, as a message. *over: there is none any more. */
static sluice_status next_line(talk *t, bool *over)
{
    bool ended = false;
    for (;;) {
        const char *end = t->input.bytes > 0 ? memchr(t->input.data, '\n', t->input.bytes) : NULL;
        size_t length = end != NULL ? (size_t)(end - t->input.data) : t->input.bytes;
        *over = ended && length == 0 && end == NULL;
        if (*over) return SLUICE_OK;
        if (end == NULL && !ended) {
            SL_TRY(read_more(t, &ended));
            continue;
        }
        size_t used = length + (end != NULL), said = length;
        while (said > 0 && strchr(" \t\r", t->input.data[said - 1]) != NULL) said--;
        sluice_status st = said > 0 ? add_message(t, SL_ROLE_USER, t->input.data, said) : SLUICE_OK;
        memmove(t->input.data, t->input.data + used, t->input.bytes - used);
        t->input.bytes -= used;
        if (st != SLUICE_OK || said > 0) return st;
    }
}

/* ---- replies ---- */

/* Ids that two sequences begin with alike. */
static int64_t common(const sl_sequence *a, const sl_sequence *b)
{
    int64_t count = 0;
    while (count < a->count && count < b->count && a->ids[count] == b->ids[count]) count++;
    return count;
}

/* The conversation becomes the exchange's sequence; something of it is left to feed. */
static sluice_status take_conversation(talk *t, sl_exchange *x)
{
    char *text;
    size_t bytes;
    sl_sequence whole = { .ids = NULL };
    SL_TRY(sl_generation_render(t->n->g, t->messages, t->count, "chat", &text, &bytes));
    sluice_status st = sl_text_codec_encode(&t->n->g->text, text, bytes, true, &whole);
    sl_free(text);
    if (st == SLUICE_OK && whole.count == 0) st = sl_fail(SLUICE_ERR_INPUT, "chat: the conversation has no tokens");
    if (st == SLUICE_OK) {
        int64_t kept = common(&whole, &x->sequence);
        sl_sequence_cut(&x->sequence, kept < whole.count ? kept : whole.count - 1);
        kept = x->sequence.count;
        st = sl_sequence_add(&x->sequence, whole.ids + kept, whole.count - kept);
        x->prompt_tokens = x->sequence.count;
    }
    sl_sequence_free(&whole);
    return st;
}

static sluice_status talk_on(talk *t)
{
    sl_generator *n = t->n;
    sl_exchange *x = &n->g->exchanges[0];
    bool terminal = isatty(fileno(n->o->in)) && isatty(fileno(n->replies.out));
    n->next = n->g->count;
    if (n->o->system != NULL) SL_TRY(add_message(t, SL_ROLE_SYSTEM, n->o->system, strlen(n->o->system)));
    for (;;) {
        bool over;
        if (terminal) fputs("> ", n->replies.out);
        fflush(n->replies.out);
        SL_TRY(next_line(t, &over));
        if (over) return SLUICE_OK;
        SL_TRY(take_conversation(t, x));
        SL_TRY(sl_generator_begin(n, x, 0));
        SL_TRY(sl_generator_run(n));
        const sl_text *reply = &x->reply.text;
        SL_TRY(add_message(t, SL_ROLE_ASSISTANT, reply->data != NULL ? reply->data : "", reply->bytes));
    }
}

sluice_status sl_generate_chat(sl_generator *n)
{
    talk t = { .n = n };
    sluice_status st = talk_on(&t);
    for (int i = 0; i < t.count; i++) sl_free((void *)(uintptr_t)t.messages[i].content);
    sl_free(t.messages);
    sl_text_free(&t.input);
    return st;
}
