/* llama_parity_test.c: twenty steps of a small Llama give the losses that PyTorch gives
 * (tests/parity/record_llama.py). */
#include "support/parity.h"

static const sl_model_options model = { .type = "llama",
                                        .batch = BATCH,
                                        .layers = LAYERS,
                                        .heads = HEADS,
                                        .kv_heads = 2,
                                        .width = WIDTH,
                                        .feed_forward = 96,
                                        .context = CONTEXT,
                                        .vocabulary = VOCABULARY };

static void compare(const char *run, bool untied, bool offloaded)
{
    sluice_options o;
    sl_model_options m = model;
    json_t *record = json_load_file(SLUICE_SOURCE_DIR "/tests/parity/llama_losses.json", 0, NULL);
    REQUIRE(record != NULL);
    sluice_options_init(&o);
    set_recorded_options(&o);
    m.untied = untied;
    if (offloaded) {
        o.parameters = o.optimizer_state = SLUICE_PLACE_HOST;
        o.activations = SLUICE_ACTIVATIONS_RECOMPUTE;
        o.offload_checkpoints = true;
    }
    train_and_compare(&o, &m, json_object_get(record, run));
    json_decref(record);
}

TEST(small_llama_follows_pytorch)
{
    compare("tied", false, false);
}

TEST(small_llama_with_a_head_of_its_own_follows_pytorch)
{
    compare("untied", true, false);
}

TEST(small_llama_follows_pytorch_with_everything_offloaded)
{
    compare("tied", false, true);
}
