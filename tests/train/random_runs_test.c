/* random_runs_test.c: any model, any part of it frozen or adapted, in any precision: however it is divided, moved and
 * recomputed and however little memory there is, the bits are those of the plain run and the peak of every tier is the
 * planned one, or the run is refused before its first step.
 *
 * A subject (what is computed) and its arrangements (where and when) are drawn from a seed, which a failure names.
 * RANDOM_SUBJECTS says how many subjects there are, RANDOM_SEED the first one's seed. With LONG=1 there are many, from a
 * seed of their own each time. */
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "support/config_words.h"
#include "support/random_model.h"
#include "support/wav_writer.h"
#include "test.h"

enum { SUBJECTS = 40, LONG_SUBJECTS = 400, ARRANGEMENTS = 3, SEED = 1 };

typedef struct outcome {
    sluice_memory planned, observed;
    char weights[65], state[65];
    char error[2048];
    int faults; /* warnings that the planner failed on a placement which it might have taken */
    int steps;
} outcome;

typedef struct subject {
    uint64_t seed;
    const char *kind;
    char words[1024]; /* what is computed */
    char config[4200];
} subject;

static char folder[4096];

static int64_t draw(random_state *r, int64_t low, int64_t high)
{
    return random_between(r, low, high);
}

static bool one_in(random_state *r, int n)
{
    return draw(r, 1, n) == 1;
}

#define PICK(r, list) (list)[draw((r), 0, (int64_t)(sizeof(list) / sizeof *(list)) - 1)]

__attribute__((format(printf, 3, 4))) static void append(char *text, size_t room, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, room - used, format, arguments);
    va_end(arguments);
}

/* ---- data ---- */

static FILE *create(const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (f == NULL) abort();
    return f;
}

static void write_data(void)
{
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    FILE *text = create("text");
    for (int i = 0; i < 60; i++) fprintf(text, "the quick brown fox jumps over the lazy dog; ");
    fclose(text);
    FILE *table = create("clicks.csv");
    fprintf(table, "label,a,b,shop,item\n");
    for (int i = 0; i < 40; i++)
        fprintf(table, "%d,%d.5,%d,s%d,i%d\n", i % 3 == 0, i % 7, i * 5 % 11, i % 4, i * 7 % 13);
    fclose(table);
    char sounds[4200];
    snprintf(sounds, sizeof sounds, "%s/sounds", folder);
    if (mkdir(sounds, 0777) != 0) abort();
    write_tone_folder(sounds, 16);
}

/* ---- subjects ---- */

typedef struct kind {
    const char *name;
    void (*model)(random_state *r, char *out, size_t room); /* the model's members, after the type */
    const char *data;                                       /* %s: the folder */
    bool language;                                          /* takes adapters */
    bool slow;                                              /* some subjects, with LONG=1 alone */
} kind;

static void decoder(random_state *r, char *out, size_t room)
{
    const int heads = one_in(r, 2) ? 4 : 2;
    append(out, room, "\"layers\": %d, \"heads\": %d, \"width\": 32, \"context\": %d, \"vocabulary\": 64",
           (int)draw(r, 1, 3), heads, 8 * (int)draw(r, 1, 2));
    if (one_in(r, 2)) append(out, room, ", \"tie_word_embeddings\": false");
}

static void grouped_decoder(random_state *r, char *out, size_t room)
{
    decoder(r, out, room);
    append(out, room, ", \"kv_heads\": %d, \"head_width\": %d, \"feed_forward\": %d", (int)draw(r, 1, 2),
           8 * (int)draw(r, 1, 2), 16 * (int)draw(r, 1, 4));
}

static void gpt2(random_state *r, char *out, size_t room)
{
    decoder(r, out, room);
    if (one_in(r, 2)) append(out, room, ", \"dropout\": 0.1");
}

static void bert(random_state *r, char *out, size_t room)
{
    append(out, room, "\"layers\": %d, \"heads\": 2, \"width\": 32, \"context\": 16, \"vocabulary\": \"1366\"",
           (int)draw(r, 1, 2));
    if (one_in(r, 2)) append(out, room, ", \"dropout\": 0.1");
}

static void mlp(random_state *r, char *out, size_t room)
{
    static const char *const activations[] = { "none", "relu", "gelu", "silu" };
    append(out, room, "\"hidden\": [%d, %d, %d], \"activation\": \"%s\", \"bias\": %s", (int)draw(r, 1, 70),
           (int)draw(r, 1, 70), (int)draw(r, 1, 70), PICK(r, activations), one_in(r, 3) ? "false" : "true");
}

static void cnn(random_state *r, char *out, size_t room)
{
    append(out, room, "\"filters\": [%d, %d], \"hidden\": [%d], \"padding\": 1, \"pool\": %d", (int)draw(r, 1, 12),
           (int)draw(r, 1, 12), (int)draw(r, 1, 40), (int)draw(r, 1, 2));
    if (one_in(r, 2)) append(out, room, ", \"dropout\": 0.1");
}

static void resnet(random_state *r, char *out, size_t room)
{
    append(out, room, "\"depth\": 18, \"stem\": \"%s\", \"batch_norm\": \"micro_batch\"",
           one_in(r, 2) ? "cifar" : "imagenet");
}

static void vit(random_state *r, char *out, size_t room)
{
    append(out, room, "\"layers\": %d, \"heads\": 2, \"width\": 32, \"patch\": 4", (int)draw(r, 1, 3));
}

static void recommender(random_state *r, char *out, size_t room)
{
    append(out, room, "\"embedding\": 8, \"bottom\": [%d], \"top\": [%d, %d], \"sparse\": %s", (int)draw(r, 1, 40),
           (int)draw(r, 1, 40), (int)draw(r, 1, 40), one_in(r, 2) ? "true" : "false");
}

static void speech(random_state *r, char *out, size_t room)
{
    append(out, room, "\"layers\": %d, \"width\": %d, \"filters\": [4], \"bidirectional\": %s", (int)draw(r, 1, 2),
           8 * (int)draw(r, 1, 3), one_in(r, 2) ? "true" : "false");
    if (one_in(r, 2)) append(out, room, ", \"dropout\": 0.1");
}

#define TOKENS     "\"type\": \"random_tokens\", \"samples\": 16"
#define IMAGES     "\"type\": \"random_images\", \"samples\": 16, \"outputs\": 4, \"image_size\": 8"
#define BERT_WORDS SLUICE_SOURCE_DIR "/tests/fixtures/tokenizers/bert-uncased.json"

static const kind kinds[] = {
    { "qwen3", grouped_decoder, TOKENS, true, false },
    { "gemma3_text", grouped_decoder, TOKENS, true, false },
    { "gpt2", gpt2, TOKENS, true, false },
    { "llama", grouped_decoder, TOKENS, true, false },
    { "mlp", mlp, "\"type\": \"classification\", \"samples\": 32, \"features\": 9, \"outputs\": 5", false, false },
    { "cnn", cnn, IMAGES, false, false },
    { "qwen2", grouped_decoder, TOKENS, true, false },
    { "phi3", grouped_decoder, TOKENS, true, false },
    { "gemma", grouped_decoder, TOKENS, true, false },
    { "gemma2", grouped_decoder, TOKENS, true, false },
    { "vit", vit, IMAGES, false, false },
    { "recommender", recommender, "\"type\": \"table\", \"path\": \"%s/clicks.csv\", \"hash_buckets\": 40", false,
      false },
    { "bert", bert, "\"type\": \"text\", \"path\": \"%s/text\", \"tokenizer\": \"" BERT_WORDS "\"", false, false },
    { "speech", speech, "\"type\": \"speech\", \"path\": \"%s/sounds\", \"mels\": 12", false, false },
    { "mistral", grouped_decoder, TOKENS, true, false },
    { "resnet", resnet, IMAGES, false, true },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void draw_freeze(random_state *r, char *words, size_t room)
{
    static const char *const patterns[] = { "*norm*", "*q_norm*", "*k_norm*", "*bias", "*weight", "*.0.*",  "*.1.*",
                                            "*attn*", "*mlp*",    "*embed*",  "*e*",   "*[0-1]*", "*proj*", "*a*",
                                            "*o*",    "*ln*",     "*down*",   "*gru*", "*[02].*", "*l*.b*", "*head*",
                                            "*conv*", "*.weight", "*w*e*",    "*bn*" };
    append(words, room, " freeze=[");
    for (int i = (int)draw(r, 1, 3), first = 1; i > 0; i--, first = 0)
        append(words, room, "%s\"%s\"", first ? "" : ",", PICK(r, patterns));
    append(words, room, "]");
}

static void draw_lora(random_state *r, char *words, size_t room)
{
    static const char *const targets[] = { "[\"*\"]",         "[\"q_proj\",\"v_proj\"]", "[\"o_proj\"]",
                                           "[\"down_proj\"]", "[\"all-linear\"]",        "[\"k_proj\",\"gate_proj\"]" };
    append(words, room, " lora.rank=%d lora.targets=%s", (int)draw(r, 1, 4), PICK(r, targets));
    if (one_in(r, 3)) append(words, room, " lora.dropout=0.1");
    if (one_in(r, 4)) append(words, room, " lora.modules_to_save=[\"norm\"]");
}

static void draw_words(random_state *r, const kind *k, char *words, size_t room)
{
    static const char *const optimizers[] = {
        "{\"type\":\"AdamW\",\"params\":{\"lr\":0.01,\"weight_decay\":0.1}}",
        "{\"type\":\"Adam\",\"params\":{\"lr\":0.01}}",
        "{\"type\":\"SGD\",\"params\":{\"lr\":0.01,\"momentum\":0.9}}",
        "{\"type\":\"SGD\",\"params\":{\"lr\":0.01}}",
        "{\"type\":\"Adagrad\",\"params\":{\"lr\":0.01}}",
    };
    words[0] = '\0';
    append(words, room, "optimizer=%s", PICK(r, optimizers));
    const int precision = (int)draw(r, 0, 5);
    if (precision < 2) append(words, room, " bf16.enabled=true");
    if (precision == 2) append(words, room, " fp16={\"enabled\":true,\"initial_scale_power\":10}");
    if (one_in(r, 3)) append(words, room, " gradient_clipping=0.5");
    if (one_in(r, 8)) append(words, room, " zero_optimization.states=compact");
    if (k->language && one_in(r, 2))
        draw_lora(r, words, room);
    else if (!one_in(r, 4))
        draw_freeze(r, words, room);
}

static void draw_subject(random_state *r, const kind *k, subject *s)
{
    char model[512] = "", data[512];
    const int micro = 1 << draw(r, 0, 1);
    k->model(r, model, sizeof model);
    snprintf(data, sizeof data, k->data, folder); /* of those that name no folder it is not read */
    s->kind = k->name;
    draw_words(r, k, s->words, sizeof s->words);
    snprintf(s->config, sizeof s->config,
             "{\"model\": {\"type\": \"%s\", %s}, \"data\": {%s}, \"steps\": 2, \"seed\": 5, \"threads\": 1, "
             "\"train_batch_size\": %d, \"train_micro_batch_size_per_gpu\": %d, \"timeout_seconds\": 60, "
             "\"debug\": {\"guard\": true}, \"memory\": {\"device\": \"1GiB\", \"host\": \"1GiB\"}}",
             k->name, model, data, 4 * micro, micro);
}

/* ---- arrangements ---- */

/* `plain`: bytes of the device that the plain run takes. */
static int draw_arrangement(random_state *r, uint64_t plain, char *words, size_t room)
{
    static const char *const places[] = { "none", "cpu", "nvme", "auto" };
    static const char *const modes[] = { "none", "recompute", "offload", "selective", "auto" };
    static const char *const updates[] = { "sync", "speculative", "auto" };
    static const char *const partitions[] = { "auto", "layer", "block", "owner" };
    const int ranks = (int)draw(r, 1, 2);
    words[0] = '\0';
    append(words, room, "memory.disk_path=%s", folder);
    if (one_in(r, 2)) append(words, room, " zero_optimization.offload_optimizer.device=%s", PICK(r, places));
    if (one_in(r, 2)) append(words, room, " zero_optimization.offload_param.device=%s", PICK(r, places));
    if (one_in(r, 2)) append(words, room, " activation_checkpointing.mode=%s", PICK(r, modes));
    if (one_in(r, 6)) append(words, room, " activation_checkpointing.device=cpu");
    if (one_in(r, 3)) append(words, room, " memory.levels=%d", (int)draw(r, 1, 4));
    if (one_in(r, 3)) append(words, room, " memory.prefetch_layers=%d", (int)draw(r, 0, 2));
    if (one_in(r, 4)) append(words, room, " zero_optimization.update=%s", PICK(r, updates));
    if (one_in(r, 6)) append(words, room, " memory.disk_chunk=%d", 1024 * (int)draw(r, 1, 3));
    if (one_in(r, 4)) append(words, room, " zero_optimization.reduce_bucket_size=%d", 100 * (int)draw(r, 0, 30));
    if (one_in(r, 3)) append(words, room, " threads=2");
    if (one_in(r, 2)) append(words, room, " memory.device=%lld", (long long)plain * draw(r, 20, 110) / 100);
    if (one_in(r, 8)) append(words, room, " memory.host=%lld", (long long)plain * draw(r, 5, 110) / 100);
    if (ranks == 1) return ranks;
    if (!one_in(r, 4)) append(words, room, " zero_optimization.stage=%d", (int)draw(r, 0, 3));
    if (one_in(r, 2)) append(words, room, " zero_optimization.partition=%s", PICK(r, partitions));
    if (one_in(r, 4)) append(words, room, " memory.keep_gathered=true");
    return ranks;
}

/* ---- runs ---- */

typedef struct job {
    const subject *subject;
    const char *words;
    outcome *out; /* of rank 0, in memory that its process shares */
} job;

static void on_event(void *user, const sluice_event *e)
{
    outcome *o = user;
    if (e->kind == SLUICE_EVENT_PLAN) o->planned = e->peak;
    if (e->kind == SLUICE_EVENT_STEP) o->steps++;
    if (e->kind != SLUICE_EVENT_END) return;
    o->observed = e->peak;
    memcpy(o->weights, e->weights_sha256, sizeof o->weights);
    memcpy(o->state, e->state_sha256, sizeof o->state);
}

static void on_log(void *user, sluice_log_level level, const char *message)
{
    outcome *o = user;
    if (level == SLUICE_LOG_WARNING && strstr(message, "could not be planned") != NULL) {
        o->faults++;
        snprintf(o->error, sizeof o->error, "%s", message);
    }
}

static sluice_status train(void *user, sluice_world *world)
{
    const job *j = user;
    char path[4200], words[2300];
    sluice_config *c = NULL;
    sluice_job_options o;
    snprintf(path, sizeof path, "%s/config.json", folder);
    snprintf(words, sizeof words, "%s %s", j->subject->words, j->words);
    sluice_job_options_init(&o);
    o.world = world;
    if (sluice_world_rank(world) == 0) {
        o.event = on_event;
        o.log = on_log;
        o.user = j->out;
    }
    sluice_status st = config_load_words(path, words, &c);
    if (st == SLUICE_OK) st = sluice_job_train(c, &o);
    sluice_config_destroy(c);
    return st;
}

static sluice_status run(const subject *s, const char *words, int ranks, outcome *out)
{
    job j = { s, words, out };
    sluice_launch_options o;
    FILE *f = create("config.json");
    fputs(s->config, f);
    fclose(f);
    memset(out, 0, sizeof *out);
    sluice_launch_options_init(&o);
    o.ranks = ranks;
    sluice_status st = sluice_launch(&o, train, &j);
    if (st != SLUICE_OK) snprintf(out->error, sizeof out->error, "%s", sluice_error());
    return st;
}

/* What would help, as a refusal says it, as settings; nothing where that is no more memory. */
static void told_need(const char *error, char *words, size_t room)
{
    static const char *const keys[] = { "memory.device ", "memory.host ", "memory.disk " };
    const char *help = strstr(error, "What would help: "), *end = help == NULL ? NULL : strchr(help, ';');
    for (size_t k = 0; help != NULL && k < sizeof keys / sizeof keys[0]; k++) {
        const char *at = strstr(help, keys[k]);
        if (at == NULL || (end != NULL && at > end)) continue;
        append(words, room, " %.*s=%llu", (int)strlen(keys[k]) - 1, keys[k], strtoull(at + strlen(keys[k]), NULL, 10));
    }
}

#define FAILED(format, ...)                                                                                            \
    test_fail(__FILE__, __LINE__, "RANDOM_SEED=%llu RANDOM_SUBJECTS=1: %s, %s; %s; %d ranks, %s: " format,             \
              (unsigned long long)s->seed, s->kind, s->config, s->words, ranks, words, __VA_ARGS__)

static void check_outcome(const subject *s, const char *words, int ranks, const outcome *plain, const outcome *o)
{
    if (strcmp(o->weights, plain->weights) != 0 || strcmp(o->state, plain->state) != 0)
        FAILED("weights %s, state %s, not %s, %s", o->weights, o->state, plain->weights, plain->state);
    const sluice_memory *p = &o->planned, *seen = &o->observed;
    if (p->device != seen->device || p->host != seen->host || p->disk != seen->disk)
        FAILED("planned %llu, %llu, %llu, observed %llu, %llu, %llu", (unsigned long long)p->device,
               (unsigned long long)p->host, (unsigned long long)p->disk, (unsigned long long)seen->device,
               (unsigned long long)seen->host, (unsigned long long)seen->disk);
}

/* Where there is too little memory, what the refusal asks for is enough. Returns whether it ran. */
static bool check_arrangement(const subject *s, const char *words, int ranks, const outcome *plain, outcome *o)
{
    char need[200] = "", more[1300];
    sluice_status st = run(s, words, ranks, o);
    if (st == SLUICE_ERR_NO_FIT) told_need(o->error, need, sizeof need);
    if (need[0] != '\0') {
        snprintf(more, sizeof more, "%s%s", words, need);
        words = more;
        st = run(s, words, ranks, o);
        if (st != SLUICE_OK) FAILED("status %d with what was asked for: %s", (int)st, o->error);
    }
    if (st != SLUICE_OK && st != SLUICE_ERR_USAGE && st != SLUICE_ERR_NO_FIT)
        FAILED("status %d: %s", (int)st, o->error);
    if (st != SLUICE_OK && o->steps > 0) FAILED("refused after %d steps: %s", o->steps, o->error);
    if (o->faults > 0) FAILED("%s", o->error);
    if (st == SLUICE_OK) check_outcome(s, words, ranks, plain, o);
    return st == SLUICE_OK;
}

typedef struct tally {
    int plain, arranged, refused;
} tally;

static void run_subject(uint64_t seed, const kind *k, outcome *shared, tally *t)
{
    random_state r = { seed };
    subject drawn = { .seed = seed };
    const subject *s = &drawn;
    for (int i = 0; i < 8; i++) (void)draw(&r, 0, 1); /* neighbouring seeds begin alike */
    draw_subject(&r, k, &drawn);
    const int ranks = 1;
    const char *words = "activation_checkpointing.mode=none";
    sluice_status st = run(s, words, ranks, shared);
    for (int i = 0; st == SLUICE_ERR_USAGE && i < 4; i++) { /* patterns that name nothing, or all there is */
        t->refused++;
        draw_words(&r, k, drawn.words, sizeof drawn.words);
        st = run(s, words, ranks, shared);
    }
    if (st == SLUICE_ERR_USAGE) return;
    if (st != SLUICE_OK) {
        FAILED("status %d: %s", (int)st, shared->error);
        return;
    }
    const outcome plain = *shared;
    t->plain++;
    check_outcome(s, words, ranks, &plain, &plain);
    for (int i = 0; i < ARRANGEMENTS; i++) {
        char arrangement[1024];
        const int on = draw_arrangement(&r, plain.planned.device, arrangement, sizeof arrangement);
        if (check_arrangement(s, arrangement, on, &plain, shared))
            t->arranged++;
        else
            t->refused++;
    }
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *told = getenv(name);
    return told != NULL ? strtoull(told, NULL, 10) : otherwise;
}

TEST(any_model_trains_with_the_same_bits_in_any_arrangement_that_fits)
{
    const bool is_long = getenv("LONG") != NULL;
    const uint64_t first = number("RANDOM_SEED", is_long ? (uint64_t)time(NULL) : SEED);
    const uint64_t count = number("RANDOM_SUBJECTS", is_long ? LONG_SUBJECTS : SUBJECTS);
    const bool all = is_long || getenv("RANDOM_SEED") != NULL;
    outcome *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    tally t = { 0 };
    REQUIRE(shared != MAP_FAILED);
    write_data();
    if (is_long)
        printf("RANDOM_SEED=%llu RANDOM_SUBJECTS=%llu\n", (unsigned long long)first, (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++) {
        const kind *k = &kinds[(first + i) % KINDS];
        if (all || !k->slow) run_subject(first + i, k, shared, &t);
    }
    CHECK_THAT(count < 8 || (t.plain > 0 && t.arranged > t.plain), "%d plain runs, %d others, %d refused", t.plain,
               t.arranged, t.refused);
    if (is_long) printf("%d plain runs, %d others, %d refused\n", t.plain, t.arranged, t.refused);
    CHECK(t.plain > 0 || t.refused > 0);
    munmap(shared, sizeof *shared);
}
