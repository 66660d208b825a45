/* generate.c: text from a trained model.
 *
 * All prompts are known, and encoded, before the model is built, so that its cache has room for what they need and no more.
 * Then sequences take turns in the slots: as soon as one ends, the next prompt begins. What becomes of a sequence depends on
 * nothing else in the batch. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/quote.h"
#include "core/thread.h"
#include "train/generate.h"

/* Tokens that a run computes at most: prompts are fed in such parts. */
#define MOST_ROWS 256
/* Sequences at a time, unless the caller says. */
#define USUAL_SLOTS 8

/* ---- how tokens are drawn ---- */

static void tell_chosen(const sl_job *j, const char *option, double value)
{
    sl_log_write(&j->log, SLUICE_LOG_NOTE, "chosen: --%s %g (generation_config.json of the model's folder)", option,
                 value);
}

/* A value of the folder's where the caller leaves it to it and it says one; negative: it does not. */
static double settle(const sl_job *j, const sluice_job_options *o, unsigned bit, const char *option, double said,
                     double given)
{
    if ((o->from_folder & bit) == 0 || said < 0) return given;
    if (said != given) tell_chosen(j, option, said);
    return said;
}

/* As transformers reads it: without do_sample it says no temperature, with it 1 where none is written. */
static double said_temperature(const sl_generation_config *c)
{
    if (c->samples <= 0) return c->samples; /* 0: the most likely token */
    return c->temperature >= 0 ? c->temperature : 1;
}

static void choose_sampling(const sl_job *j, const sluice_job_options *o, const sl_generation_config *c,
                            sl_sampling *out)
{
    *out = (sl_sampling){
        .seed = o->seed >= 0 ? (uint64_t)o->seed : (uint64_t)j->settings.seed,
        .temperature = settle(j, o, SLUICE_FOLDER_TEMPERATURE, "temperature", said_temperature(c), o->temperature),
        .top_k = (int64_t)settle(j, o, SLUICE_FOLDER_TOP_K, "top-k", (double)c->top_k, o->top_k),
        .top_p = settle(j, o, SLUICE_FOLDER_TOP_P, "top-p", c->top_p, o->top_p),
        .min_p = settle(j, o, SLUICE_FOLDER_MIN_P, "min-p", c->min_p, o->min_p),
        .repetition_penalty = settle(j, o, SLUICE_FOLDER_REPETITION_PENALTY, "repetition-penalty",
                                     c->repetition_penalty, o->repetition_penalty),
    };
    if (o->from_folder != 0 && c->unbuilt != NULL)
        sl_log_write(
            &j->log, SLUICE_LOG_NOTE,
            "generation_config.json of the model's folder asks for %s, which is not built in and has no effect",
            c->unbuilt);
}

/* ---- before the model is built ---- */

static sluice_status take_prompts(struct sl_generation *g, const sluice_job_options *o)
{
    g->in_file = o->prompts != NULL;
    g->talks = o->chat && o->prompt == NULL && o->prompts == NULL;
    if (o->prompts != NULL) return sl_generation_read(g, o->prompts, o);
    const char *prompt = o->prompt != NULL ? o->prompt : "";
    return sl_generation_add(g, prompt, strlen(prompt));
}

/* There must be something for the first token to follow. An empty prompt is what the tokenizer begins every text with, or a new
 * line, or, where the tokenizer has no token for that either, the token that texts begin with. */
static sluice_status begin_empty(struct sl_generation *g, sl_exchange *x)
{
    SL_TRY(sl_text_codec_encode(&g->text, "\n", 1, false, &x->sequence));
    if (x->sequence.count > 0) return SLUICE_OK;
    if (g->text.begin < 0)
        return sl_fail(SLUICE_ERR_INPUT,
                       "generate: prompt %d, %s, has no tokens, a new line has none, and the model's folder names no "
                       "token that texts begin or end with (bos_token_id, eos_token_id): give a prompt that its "
                       "tokenizer.json has tokens for",
                       (int)(x - g->exchanges) + 1, sl_quote(x->prompt).text);
    return sl_sequence_add(&x->sequence, &g->text.begin, 1);
}

static sluice_status encode(struct sl_generation *g, sl_exchange *x)
{
    bool rendered = x->rendered != NULL;
    const char *text = rendered ? x->rendered : x->prompt;
    size_t bytes = rendered ? x->rendered_bytes : x->prompt_bytes;
    SL_TRY(sl_text_codec_encode(&g->text, text, bytes, rendered, &x->sequence));
    if (x->sequence.count == 0) SL_TRY(begin_empty(g, x));
    x->prompt_tokens = x->sequence.count;
    return SLUICE_OK;
}

static sluice_status encode_all(struct sl_generation *g, const sluice_job_options *o)
{
    if (o->chat && g->text.chat == NULL && g->text.folder.source != NULL)
        return sl_chat_refuse(&g->text.folder, "--template");
    if (o->chat && g->text.chat == NULL)
        return sl_fail(SLUICE_ERR_USAGE, "chat: %s; name one with --template",
                       g->text.tokenizer == NULL ? "a model of bytes or characters has no chat template"
                                                 : "the model's folder has no chat template");
    for (int i = 0; i < g->count && !g->talks; i++) {
        sl_exchange *x = &g->exchanges[i];
        if (o->chat && x->rendered == NULL) SL_TRY(sl_generation_render_prompt(g, x, o->system));
        SL_TRY(encode(g, x));
    }
    return SLUICE_OK;
}

/* Slots for what can be under way, and places for the longest sequence. */
static void choose_sizes(const struct sl_generation *g, const sluice_job_options *o, sl_model_options *m)
{
    int64_t longest = 0, wanted = o->batch > 0 ? o->batch : USUAL_SLOTS;
    for (int i = 0; i < g->count; i++)
        if (g->exchanges[i].prompt_tokens > longest) longest = g->exchanges[i].prompt_tokens;
    int64_t needed = g->talks ? m->context : longest + o->tokens;
    m->decode.slots = g->count < wanted ? g->count : wanted;
    m->decode.places = needed < m->context ? needed : m->context;
    m->decode.rows = m->decode.places < MOST_ROWS ? m->decode.places : MOST_ROWS;
    if (m->decode.rows < m->decode.slots) m->decode.rows = m->decode.slots;
}

/* Beyond the context that the model was made for, dynamic scaling has other frequencies for every length: those of the keys in
 * the cache would have to stay as they were, those of a prompt follow from all of it. The rotation of one token at a time knows
 * no length, so that it would be another model. */
static sluice_status check_rotation(const sl_job *j, const sl_model_options *m)
{
    const sl_model_config *c = &m->folder;
    bool dynamic = c->rope.type == SL_ROPE_DYNAMIC || c->local_rope.type == SL_ROPE_DYNAMIC;
    if (j->settings.path[0] == '\0' || !dynamic || m->decode.places <= c->context) return SLUICE_OK;
    return sl_fail(
        SLUICE_ERR_USAGE,
        "generate: the rope scaling of %s/config.json is dynamic, and sequences of %lld tokens, prompt and reply, are "
        "longer than its max_position_embeddings %lld: that is not built in; --set model.context=%lld forgets the "
        "oldest "
        "tokens instead, fewer --tokens need less",
        j->settings.path, (long long)m->decode.places, (long long)c->context, (long long)c->context);
}

sluice_status sl_generation_prepare(sl_job *j, const sluice_job_options *o, sl_model_options *m)
{
    struct sl_generation *g = j->generation = sl_alloc(sizeof *g, "generation");
    if (g == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(sl_text_codec_open(j, o->template_name, &g->text));
    SL_TRY(take_prompts(g, o));
    SL_TRY(encode_all(g, o));
    choose_sizes(g, o, m);
    SL_TRY(check_rotation(j, m));
    g->places = m->decode.places;
    return SLUICE_OK;
}

void sl_generation_free(struct sl_generation *g)
{
    if (g == NULL) return;
    for (int i = 0; i < g->count; i++) {
        sl_free(g->exchanges[i].prompt);
        sl_free(g->exchanges[i].rendered);
        sl_token_stream_close(&g->exchanges[i].stream);
        sl_sequence_free(&g->exchanges[i].sequence);
        sl_seen_free(&g->exchanges[i].seen);
        sl_reply_free(&g->exchanges[i].reply);
    }
    sl_free(g->exchanges);
    sl_text_codec_close(&g->text);
    sl_free(g);
}

/* ---- replies ---- */

static void write_json_text(FILE *out, const char *text, size_t bytes)
{
    char escaped[SL_ESCAPE_BYTES];
    fputc('"', out);
    for (size_t i = 0; i < bytes;) {
        if (text[i] == '\0') {
            fputs("\\u0000", out);
            i++;
            continue;
        }
        i += sl_json_escape(text + i, escaped);
        fputs(escaped, out);
    }
    fputc('"', out);
}

static void write_reply(const sl_generator *n, int number)
{
    static const char *const ends[] = { "", "length", "end", "stop" };
    const sl_exchange *x = &n->g->exchanges[number];
    FILE *out = n->replies.out;
    fprintf(out, "{\"index\":%d,\"prompt\":", number);
    write_json_text(out, x->prompt, x->prompt_bytes);
    fputs(",\"text\":", out);
    write_json_text(out, x->reply.text.data != NULL ? x->reply.text.data : "", x->reply.text.bytes);
    fprintf(out, ",\"end\":\"%s\",\"prompt_tokens\":%lld,\"tokens\":%lld,\"slid\":%s}\n", ends[x->end],
            (long long)x->prompt_tokens, (long long)(x->sequence.count - x->prompt_tokens), x->slid ? "true" : "false");
    fflush(out);
}

/* One prompt for people: its text as it comes. */
static bool streams(const sl_generator *n)
{
    return !n->g->in_file && !n->o->json;
}

static sluice_status show(sl_generator *n, const sl_exchange *x, size_t from)
{
    if (streams(n) && x->reply.shown > from) {
        fwrite(x->reply.text.data + from, 1, x->reply.shown - from, n->replies.out);
        fflush(n->replies.out);
    }
    return sl_reply_file_check(&n->replies);
}

/* In the order of the prompts, as far as they have ended. */
static void write_ended(sl_generator *n)
{
    if (streams(n)) return;
    for (; n->written < n->g->count && n->g->exchanges[n->written].end != SL_ENDS_NOT; n->written++)
        write_reply(n, n->written);
}

/* ---- tokens ---- */

sluice_status sl_generator_begin(sl_generator *n, sl_exchange *x, int slot)
{
    n->in_slot[slot] = x;
    x->sequence.slot = slot;
    x->end = SL_ENDS_NOT;
    if (x->seen.bits == NULL) SL_TRY(sl_seen_create(&x->seen, sl_cached_decoder_vocabulary(n->decoder)));
    for (int64_t i = 0; i < x->sequence.count; i++) sl_seen_add(&x->seen, x->sequence.ids[i]);
    sl_token_stream_close(&x->stream);
    SL_TRY(sl_token_stream_open(&n->g->text, &x->stream));
    sl_reply_free(&x->reply);
    sl_reply_start(&x->reply, n->o->stops, n->o->stop_count);
    return SLUICE_OK;
}

/* The next prompt into a free slot. */
static sluice_status begin_next(sl_generator *n, int slot)
{
    sl_exchange *x = &n->g->exchanges[n->next++];
    SL_TRY(sl_generator_begin(n, x, slot));
    if (!streams(n) || n->o->prompt == NULL || n->o->chat) return SLUICE_OK;
    fwrite(x->prompt, 1, x->prompt_bytes, n->replies.out);
    fflush(n->replies.out);
    return SLUICE_OK;
}

/* A token was drawn: its text, and whether that was all. */
static sluice_status take_token(sl_generator *n, sl_exchange *x, int32_t token)
{
    size_t before = x->reply.shown;
    SL_TRY(sl_sequence_add(&x->sequence, &token, 1));
    sl_seen_add(&x->seen, token);
    x->drawn++;
    bool ends = sl_text_codec_ends(&n->g->text, token);
    bool last = ends || x->sequence.count - x->prompt_tokens >= n->o->tokens;
    if (!ends) SL_TRY(sl_token_stream_add(&x->stream, token, &x->reply.text));
    if (last) SL_TRY(sl_token_stream_finish(&x->stream, &x->reply.text));
    sl_reply_look(&x->reply, last);
    x->end = x->reply.stopped ? SL_ENDS_STOP : ends ? SL_ENDS_TOKEN : last ? SL_ENDS_LENGTH : SL_ENDS_NOT;
    return show(n, x, before);
}

/* Said once: the text goes on, but the model no longer sees its beginning. */
static void tell_slide(sl_generator *n)
{
    long long places = (long long)sl_cached_decoder_places(n->decoder);
    if (n->slid) return;
    n->slid = true;
    sl_log_write(&n->job->log, SLUICE_LOG_NOTE,
                 "the context of %lld tokens is full: the newest %lld are kept and computed again, what is older is "
                 "forgotten",
                 places, (places + 1) / 2);
}

/* Every free slot takes the next prompt. *live: how many sequences are under way. */
static sluice_status fill_slots(sl_generator *n, int *live)
{
    *live = 0;
    for (int slot = 0; slot < n->slots; slot++) {
        if (n->in_slot[slot] == NULL && n->next < n->g->count) SL_TRY(begin_next(n, slot));
        if (n->in_slot[slot] == NULL) continue;
        n->live[*live] = n->in_slot[slot];
        n->sequences[(*live)++] = &n->in_slot[slot]->sequence;
    }
    return SLUICE_OK;
}

static sluice_status draw_tokens(sl_generator *n, int live)
{
    for (int i = 0; i < live; i++) {
        sl_exchange *x = n->live[i];
        if (n->logits[i] == NULL) continue;
        uint64_t index = (uint64_t)x->drawn;
        uint32_t number = (uint32_t)(x - n->g->exchanges);
        SL_TRY(take_token(n, x, sl_sampler_draw(n->sampler, n->logits[i], &x->seen, index, number)));
        if (x->end != SL_ENDS_NOT) n->in_slot[x->sequence.slot] = NULL;
    }
    write_ended(n);
    return SLUICE_OK;
}

/* A request to stop ends it. What was written by then is: lines of replies, or text. */
static sluice_status poll_stop(const sl_generator *n)
{
    if (!sl_stop_asked(n->job->stop)) return SLUICE_OK;
    if (n->replies.path == NULL && n->written > 0)
        return sl_fail(SLUICE_ERR_STOPPED, "stopped by a signal while generating; %d of %d replies were written",
                       n->written, n->g->count);
    if (n->replies.path == NULL && streams(n))
        return sl_fail(SLUICE_ERR_STOPPED, "stopped by a signal while generating; the text ends here");
    return sl_stop_poll(n->job->stop, "generating");
}

sluice_status sl_generator_run(sl_generator *n)
{
    bool full = false;
    for (;;) {
        int live;
        bool slid = false;
        SL_TRY(poll_stop(n));
        SL_TRY(fill_slots(n, &live));
        if (live == 0) break;
        SL_TRY(sl_cached_decoder_run(n->decoder, n->sequences, live, n->logits, &slid));
        for (int i = 0; i < live; i++) n->live[i]->slid |= n->sequences[i]->start > 0;
        full |= slid;
        SL_TRY(draw_tokens(n, live));
    }
    if (streams(n)) {
        fputc('\n', n->replies.out);
        fflush(n->replies.out);
    }
    if (full) tell_slide(n); /* behind the text, not in the middle of one of its lines */
    return SLUICE_OK;
}

/* ---- the job ---- */

static sluice_status open_generator(sl_generator *n)
{
    sl_sampling sampling;
    choose_sampling(n->job, n->o, &n->g->text.generation, &sampling);
    SL_TRY(sl_cached_decoder_create(n->job->engine, n->g->places, &n->decoder));
    SL_TRY(sl_sampler_create(&sampling, sl_cached_decoder_vocabulary(n->decoder), &n->sampler));
    n->slots = (int)sl_cached_decoder_slots(n->decoder);
    size_t slots = (size_t)n->slots;
    n->in_slot = sl_alloc_array(slots, sizeof *n->in_slot, "slots");
    n->live = sl_alloc_array(slots, sizeof *n->live, "sequences");
    n->sequences = sl_alloc_array(slots, sizeof *n->sequences, "sequences");
    n->logits = sl_alloc_array(slots, sizeof *n->logits, "logits of sequences");
    bool made = n->in_slot != NULL && n->live != NULL && n->sequences != NULL && n->logits != NULL;
    return made ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

static void close_generator(sl_generator *n)
{
    sl_cached_decoder_destroy(n->decoder);
    sl_sampler_destroy(n->sampler);
    sl_free(n->in_slot);
    sl_free(n->live);
    sl_free(n->sequences);
    sl_free((void *)n->logits);
}

static sluice_status generate_job(sl_job *j, const sluice_job_options *o)
{
    sl_generator n = { .job = j, .o = o, .g = j->generation };
    SL_TRY(sl_job_load_weights(j, o));
    SL_TRY(sl_reply_file_open(&n.replies, o->replies, o->out));
    sluice_status st = open_generator(&n);
    if (st == SLUICE_OK) st = n.g->talks ? sl_generate_chat(&n) : sl_generator_run(&n);
    close_generator(&n);
    return sl_reply_file_close(&n.replies, st);
}

sluice_status sluice_job_generate(const sluice_config *c, const sluice_job_options *o)
{
    return sl_job_run(c, o, SL_JOB_GENERATE, "sluice_job_generate", generate_job);
}
