/* parity_test.c: fifty steps of a small GPT give the losses that PyTorch gives. tests/parity/README.md describes the
 * case. */
#include "support/parity.h"

static const sl_model_options model = { .type = "gpt2",
                                        .batch = BATCH,
                                        .layers = LAYERS,
                                        .heads = HEADS,
                                        .width = WIDTH,
                                        .context = CONTEXT,
                                        .vocabulary = VOCABULARY };

TEST(small_gpt_follows_pytorch_for_fifty_steps)
{
    sluice_options o;
    json_t *record = json_load_file(SLUICE_SOURCE_DIR "/tests/parity/gpt_losses.json", 0, NULL);
    REQUIRE(record != NULL);
    sluice_options_init(&o);
    set_recorded_options(&o);
    train_and_compare(&o, &model, record);
    json_decref(record);
}

TEST(small_gpt_follows_pytorch_with_everything_offloaded)
{
    sluice_options o;
    json_t *record = json_load_file(SLUICE_SOURCE_DIR "/tests/parity/gpt_losses.json", 0, NULL);
    REQUIRE(record != NULL);
    sluice_options_init(&o);
    set_recorded_options(&o);
    o.parameters = o.optimizer_state = SLUICE_PLACE_HOST;
    o.activations = SLUICE_ACTIVATIONS_RECOMPUTE;
    o.offload_checkpoints = true;
    train_and_compare(&o, &model, record);
    json_decref(record);
}

/* The head as two ops, as it is where logits are wanted. */
TEST(small_gpt_with_logits_follows_pytorch)
{
    sluice_options o;
    sl_model_options with_logits = model;
    json_t *record = json_load_file(SLUICE_SOURCE_DIR "/tests/parity/gpt_losses.json", 0, NULL);
    REQUIRE(record != NULL);
    sluice_options_init(&o);
    set_recorded_options(&o);
    with_logits.logits = true;
    train_and_compare(&o, &with_logits, record);
    json_decref(record);
}
