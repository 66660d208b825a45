/* decoding_test.c: generation with a cache gives the logits of the whole context computed at once, whatever else is in the
 * batch and however prompts are cut, in the memory that the plan said. */
#include <math.h>

#include "config/config.h"
#include "core/half.h"
#include "model/model.h"
#include "test.h"
#include "train/decoding.h"

enum { CONTEXT = 150, VOCABULARY = 50, MOST_SLOTS = 3 };

static const sl_model_options gpt2 = {
    .type = "gpt2", .batch = 1, .layers = 2, .heads = 3, .width = 48, .context = CONTEXT, .vocabulary = VOCABULARY
};
static const sl_model_options llama = { .type = "llama",
                                        .batch = 1,
                                        .layers = 2,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .width = 64,
                                        .context = CONTEXT,
                                        .vocabulary = VOCABULARY,
                                        .untied = true };

/* Weights follow from the seed and their names alone: all graphs of a model have the same. */
typedef struct built {
    sluice_graph *g;
    sluice_engine *e;
} built;

static sluice_status build(const sl_model_options *m, sluice_dtype precision, uint64_t device, int threads, built *out)
{
    sluice_options o;
    sl_settings s;
    sl_model_info info;
    *out = (built){ NULL, NULL };
    sluice_options_init(&o);
    o.seed = 7;
    o.precision = precision;
    o.device_bytes = device;
    o.threads = threads;
    o.evaluation = true;
    SL_TRY(sl_settings_from_options(&o, &s));
    s.device.guard = true;
    SL_TRY(sluice_graph_create(&out->g));
    SL_TRY(sl_model_build(out->g, m, &info));
    sl_engine_options e = { .training = false, .settings = &s };
    return sl_engine_create(out->g, &e, &out->e);
}

static void destroy(built *b)
{
    sluice_engine_destroy(b->e);
    sluice_graph_destroy(b->g);
}

static sl_model_options decoding(const sl_model_options *m, int64_t rows, int64_t slots, int64_t places)
{
    sl_model_options d = *m;
    d.decode.rows = rows;
    d.decode.slots = slots;
    d.decode.places = places;
    return d;
}

/* A text of a sequence: any ids will do. */
static int32_t token_at(int sequence, int64_t i)
{
    return (int32_t)((i * i * 7 + i * 13 + sequence * 29 + 5) % VOCABULARY);
}

/* Logits at every position of a sequence, from one run over the whole context. [CONTEXT, VOCABULARY] */
static void whole_logits(const sl_model_options *m, sluice_dtype precision, int sequence, float *out)
{
    sl_model_options w = *m;
    built b;
    int32_t tokens[CONTEXT], targets[CONTEXT];
    w.logits = true;
    REQUIRE_OK(build(&w, precision, 0, 2, &b));
    for (int i = 0; i < CONTEXT; i++) tokens[i] = token_at(sequence, i), targets[i] = -1;
    sluice_array arrays[] = { { "tokens", tokens, sizeof tokens }, { "targets", targets, sizeof targets } };
    sluice_batch batch = { arrays, 2 };
    REQUIRE_OK(sluice_predict(b.e, &batch, out, CONTEXT * VOCABULARY * sizeof *out));
    destroy(&b);
}

/* Feeds sequences `first` .. with prompts of several lengths, then token after token up to `length`, and holds every row of
 * logits to `expected`. Bit for bit, or within `tolerance`. */
static void follow(sl_cached_decoder *d, int count, int64_t length, float *const *expected, double tolerance)
{
    sl_sequence sequences[MOST_SLOTS] = { { .ids = NULL } }, *list[MOST_SLOTS];
    const float *logits[MOST_SLOTS];
    int compared = 0, wrong = 0;
    for (int s = 0; s < count; s++) {
        list[s] = &sequences[s];
        sequences[s].slot = count - 1 - s;
        for (int64_t i = 0; i < 1 + 74 * s; i++) {
            int32_t id = token_at(s, i);
            REQUIRE_OK(sl_sequence_add(&sequences[s], &id, 1));
        }
    }
    for (;;) {
        int live = 0;
        for (int s = 0; s < count; s++)
            if (sequences[s].fed < length) list[live++] = &sequences[s];
        if (live == 0) break;
        REQUIRE_OK(sl_cached_decoder_run(d, list, live, logits, NULL));
        for (int k = 0; k < live; k++) {
            int s = (int)(list[k] - sequences);
            int64_t at = list[k]->count - 1;
            if (logits[k] == NULL) continue;
            for (int v = 0; v < VOCABULARY; v++) {
                float want = expected[s][at * VOCABULARY + v], got = logits[k][v];
                bool right = tolerance > 0 ? fabs((double)got - (double)want) <= tolerance
                                           : memcmp(&want, &got, sizeof want) == 0;
                wrong += !right;
            }
            compared++;
            int32_t id = token_at(s, at + 1);
            REQUIRE_OK(sl_sequence_add(list[k], &id, 1));
        }
    }
    CHECK_EQ(wrong, 0);
    CHECK(compared >= length);
    for (int s = 0; s < count; s++) sl_sequence_free(&sequences[s]);
}

static void check_decoding(const sl_model_options *m, sluice_dtype precision, int64_t rows, int count, double tolerance)
{
    float *expected[MOST_SLOTS];
    sl_model_options d = decoding(m, rows, count, CONTEXT);
    sl_cached_decoder *decoder;
    sluice_memory planned, observed;
    built b;
    for (int s = 0; s < count; s++) {
        expected[s] = malloc(CONTEXT * VOCABULARY * sizeof(float));
        REQUIRE(expected[s] != NULL);
        whole_logits(m, precision, s, expected[s]);
    }
    REQUIRE_OK(build(&d, precision, 0, 2, &b));
    REQUIRE_OK(sl_cached_decoder_create(b.e, CONTEXT, &decoder));
    follow(decoder, count, CONTEXT, expected, tolerance);
    sluice_planned_peak(b.e, &planned);
    sluice_observed_peak(b.e, &observed);
    CHECK_EQ(planned.device, observed.device);
    CHECK_EQ(planned.host, observed.host);
    sl_cached_decoder_destroy(decoder);
    destroy(&b);
    for (int s = 0; s < count; s++) free(expected[s]);
}

TEST(cached_logits_have_the_bits_of_the_whole_context_in_gpt2)
{
    check_decoding(&gpt2, SLUICE_F32, 1, 1, 0);
    check_decoding(&gpt2, SLUICE_F32, 16, 1, 0);
}

TEST(sequences_of_a_batch_have_the_bits_that_each_has_alone)
{
    check_decoding(&gpt2, SLUICE_F32, 3, 3, 0);
    check_decoding(&gpt2, SLUICE_F32, 40, 3, 0);
}

TEST(cached_logits_of_llama_are_those_of_the_whole_context)
{
    check_decoding(&llama, SLUICE_F32, 32, 3, 2e-6);
}

/* Each with what its family has: windows shorter than the context, soft caps, head norms, biases. Window and cap make other
 * blocks of keys there, so that bits may differ. */
TEST(cached_logits_of_every_family_are_those_of_the_whole_context)
{
    static const char *const families[] = { "mistral", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "gemma3_text" };
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        sl_model_options m = llama;
        m.type = families[i];
        m.layers = 3;
        m.untied = false;
        m.head_width = 24;
        if (strcmp(m.type, "mistral") == 0 || strncmp(m.type, "gemma", 5) == 0 || strcmp(m.type, "phi3") == 0)
            m.window = strcmp(m.type, "gemma") == 0 ? 0 : 37;
        check_decoding(&m, SLUICE_F32, 16, 2, 1e-5);
    }
}

TEST(cached_logits_in_bf16_are_close_to_those_of_the_whole_context)
{
    check_decoding(&gpt2, SLUICE_BF16, 32, 2, 0.02);
}

TEST(weights_that_do_not_fit_stream_from_the_host_with_the_same_bits)
{
    sl_model_options m = gpt2;
    sl_cached_decoder *decoder;
    built b;
    float *expected[1] = { malloc(CONTEXT * VOCABULARY * sizeof(float)) };
    REQUIRE(expected[0] != NULL);
    m.layers = 8;
    whole_logits(&m, SLUICE_F32, 0, expected[0]);
    sl_model_options d = decoding(&m, 8, 1, CONTEXT);
    REQUIRE_OK(build(&d, SLUICE_F32, 768 << 10, 2, &b));
    CHECK(b.e->plan->totals.host_parameter_layers > 0);
    REQUIRE_OK(sl_cached_decoder_create(b.e, CONTEXT, &decoder));
    follow(decoder, 1, CONTEXT, expected, 0);
    sl_cached_decoder_destroy(decoder);
    destroy(&b);
    free(expected[0]);
}

TEST(the_cache_is_planned_to_the_byte)
{
    sl_model_options d = decoding(&llama, 4, 3, 33);
    uint64_t bytes = 0;
    built b;
    REQUIRE_OK(build(&d, SLUICE_F32, 0, 1, &b));
    for (int i = 0; i < b.e->plan->buffer_count; i++)
        if (b.e->plan->buffers[i].kind == SL_BUFFER_CACHE) bytes += b.e->plan->buffers[i].bytes;
    /* layers, slots, key heads, keys and values, 33 places in blocks of 16, width of a head, f32 */
    CHECK_EQ(bytes, 2 * 3 * 2 * 2 * 48 * 16 * 4);
    destroy(&b);
}

/* What is older than the context is given up; the newest half begins anew. */
TEST(a_sequence_that_outgrows_its_slot_goes_on_with_its_newest_half)
{
    sl_model_options d = decoding(&gpt2, 8, 1, 20);
    sl_cached_decoder *decoder;
    sl_sequence s = { .ids = NULL }, *list[] = { &s };
    const float *logits[1];
    bool slid = false;
    built b;
    REQUIRE_OK(build(&d, SLUICE_F32, 0, 1, &b));
    REQUIRE_OK(sl_cached_decoder_create(b.e, 20, &decoder));
    for (int64_t i = 0; i < 21; i++) {
        int32_t id = token_at(0, i);
        REQUIRE_OK(sl_sequence_add(&s, &id, 1));
        do {
            REQUIRE_OK(sl_cached_decoder_run(decoder, list, 1, logits, &slid));
        } while (logits[0] == NULL);
        CHECK_EQ(slid, i == 20);
    }
    CHECK_EQ(s.start, 11);
    CHECK_EQ(s.fed, 21);
    sl_sequence fresh = { .ids = NULL }, *again[] = { &fresh };
    float kept[VOCABULARY];
    memcpy(kept, logits[0], sizeof kept);
    REQUIRE_OK(sl_sequence_add(&fresh, s.ids + s.start, s.count - s.start));
    do {
        REQUIRE_OK(sl_cached_decoder_run(decoder, again, 1, logits, NULL));
    } while (logits[0] == NULL);
    CHECK(memcmp(kept, logits[0], sizeof kept) == 0);
    sl_sequence_free(&s);
    sl_sequence_free(&fresh);
    sl_cached_decoder_destroy(decoder);
    destroy(&b);
}

TEST(a_graph_for_generation_is_not_trained)
{
    sl_model_options d = decoding(&gpt2, 4, 1, 20);
    sluice_graph *g;
    sluice_engine *e = NULL;
    sl_model_info info;
    REQUIRE_OK(sluice_graph_create(&g));
    REQUIRE_OK(sl_model_build(g, &d, &info));
    sluice_set_loss(g, sluice_mean(g, g->output));
    CHECK_EQ(sluice_engine_create(g, NULL, &e), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "has no gradient");
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
}
