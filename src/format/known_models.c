/* known_models.c: the shapes of published models. A row becomes the text of a config.json, which is read as any other. */
#include "format/known_models.h"

#include <ctype.h>
#include <string.h>

#include "core/names.h"

/* Sizes as config.json has them; head_width 0: width / heads. `more`: further keys, as JSON behind a comma. */
typedef struct known_model {
    const char *names, *family;
    int width, layers, heads, kv_heads, head_width, feed_forward, vocabulary, context;
    const char *more;
} known_model;

#define TIED   ",\"tie_word_embeddings\":true"
#define UNTIED ",\"tie_word_embeddings\":false"
#define LLAMA3                                                                                                         \
    ",\"rms_norm_eps\":1e-5,\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,"             \
    "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}"
#define QWEN   ",\"rope_theta\":1e6,\"use_sliding_window\":false"
#define GEMMA2 ",\"sliding_window\":4096,\"query_pre_attn_scalar\":256"

/* clang-format off */
static const known_model models[] = {
    { "llama-3.1-8b|llama-3-8b|llama3-8b|meta-llama-3.1-8b|meta-llama/Llama-3.1-8B|llama-3.1-8b-instruct", "llama", 4096, 32, 32, 8, 0, 14336, 128256, 131072, LLAMA3 UNTIED },
    { "llama-3.1-70b|llama-3.3-70b|llama-3-70b|meta-llama/Llama-3.1-70B", "llama", 8192, 80, 64, 8, 0, 28672, 128256, 131072, LLAMA3 UNTIED },
    { "llama-3.1-405b|meta-llama/Llama-3.1-405B", "llama", 16384, 126, 128, 8, 0, 53248, 128256, 131072, LLAMA3 UNTIED },
    { "llama-3.2-1b|meta-llama/Llama-3.2-1B", "llama", 2048, 16, 32, 8, 64, 8192, 128256, 131072, LLAMA3 TIED },
    { "llama-3.2-3b|meta-llama/Llama-3.2-3B", "llama", 3072, 28, 24, 8, 128, 8192, 128256, 131072, LLAMA3 TIED },
    { "llama-2-7b|llama-7b|meta-llama/Llama-2-7b-hf", "llama", 4096, 32, 32, 32, 0, 11008, 32000, 4096, UNTIED },
    { "llama-2-13b|llama-13b|meta-llama/Llama-2-13b-hf", "llama", 5120, 40, 40, 40, 0, 13824, 32000, 4096, UNTIED },
    { "llama-2-70b|meta-llama/Llama-2-70b-hf", "llama", 8192, 80, 64, 8, 0, 28672, 32000, 4096, UNTIED },
    { "tinyllama-1.1b|tinyllama", "llama", 2048, 22, 32, 4, 0, 5632, 32000, 2048, UNTIED },
    { "smollm2-135m", "llama", 576, 30, 9, 3, 0, 1536, 49152, 8192, TIED },
    { "smollm2-360m", "llama", 960, 32, 15, 5, 0, 2560, 49152, 8192, TIED },
    { "smollm2-1.7b", "llama", 2048, 24, 32, 32, 0, 8192, 49152, 8192, TIED },
    { "mistral-7b|mistral-7b-v0.3|mistralai/Mistral-7B-v0.3", "mistral", 4096, 32, 32, 8, 0, 14336, 32768, 32768, ",\"sliding_window\":null,\"rope_theta\":1e6" UNTIED },
    { "mistral-nemo-12b|mistral-nemo", "mistral", 5120, 40, 32, 8, 128, 14336, 131072, 131072, ",\"sliding_window\":null,\"rope_theta\":1e6" UNTIED },
    { "qwen2.5-0.5b|qwen/Qwen2.5-0.5B", "qwen2", 896, 24, 14, 2, 0, 4864, 151936, 32768, QWEN TIED },
    { "qwen2.5-1.5b|qwen/Qwen2.5-1.5B", "qwen2", 1536, 28, 12, 2, 0, 8960, 151936, 32768, QWEN TIED },
    { "qwen2.5-3b|qwen/Qwen2.5-3B", "qwen2", 2048, 36, 16, 2, 0, 11008, 151936, 32768, QWEN TIED },
    { "qwen2.5-7b|qwen/Qwen2.5-7B", "qwen2", 3584, 28, 28, 4, 0, 18944, 152064, 131072, QWEN UNTIED },
    { "qwen2.5-14b|qwen/Qwen2.5-14B", "qwen2", 5120, 48, 40, 8, 0, 13824, 152064, 131072, QWEN UNTIED },
    { "qwen2.5-32b|qwen/Qwen2.5-32B", "qwen2", 5120, 64, 40, 8, 0, 27648, 152064, 131072, QWEN UNTIED },
    { "qwen2.5-72b|qwen/Qwen2.5-72B", "qwen2", 8192, 80, 64, 8, 0, 29568, 152064, 131072, QWEN UNTIED },
    { "qwen3-0.6b|qwen/Qwen3-0.6B", "qwen3", 1024, 28, 16, 8, 128, 3072, 151936, 40960, QWEN TIED },
    { "qwen3-1.7b|qwen/Qwen3-1.7B", "qwen3", 2048, 28, 16, 8, 128, 6144, 151936, 40960, QWEN TIED },
    { "qwen3-4b|qwen/Qwen3-4B", "qwen3", 2560, 36, 32, 8, 128, 9728, 151936, 40960, QWEN TIED },
    { "qwen3-8b|qwen/Qwen3-8B", "qwen3", 4096, 36, 32, 8, 128, 12288, 151936, 40960, QWEN UNTIED },
    { "qwen3-14b|qwen/Qwen3-14B", "qwen3", 5120, 40, 40, 8, 128, 17408, 151936, 40960, QWEN UNTIED },
    { "qwen3-32b|qwen/Qwen3-32B", "qwen3", 5120, 64, 64, 8, 128, 25600, 151936, 40960, QWEN UNTIED },
    { "phi-3-mini|phi-3-mini-4k|phi-3-mini-4k-instruct", "phi3", 3072, 32, 32, 32, 0, 8192, 32064, 4096, ",\"sliding_window\":2047" UNTIED },
    { "phi-3-medium|phi-3-medium-4k-instruct", "phi3", 5120, 40, 40, 10, 0, 17920, 32064, 4096, ",\"sliding_window\":2047" UNTIED },
    { "phi-4|microsoft/phi-4", "phi3", 5120, 40, 40, 10, 0, 17920, 100352, 16384, ",\"sliding_window\":null" UNTIED },
    { "gemma-2b|google/gemma-2b", "gemma", 2048, 18, 8, 1, 256, 16384, 256000, 8192, "" },
    { "gemma-7b|google/gemma-7b", "gemma", 3072, 28, 16, 16, 256, 24576, 256000, 8192, "" },
    { "gemma-2-2b|google/gemma-2-2b", "gemma2", 2304, 26, 8, 4, 256, 9216, 256000, 8192, GEMMA2 },
    { "gemma-2-9b|google/gemma-2-9b", "gemma2", 3584, 42, 16, 8, 256, 14336, 256000, 8192, GEMMA2 },
    { "gemma-2-27b|google/gemma-2-27b", "gemma2", 4608, 46, 32, 16, 128, 36864, 256000, 8192, ",\"sliding_window\":4096,\"query_pre_attn_scalar\":144" },
    { "gemma-3-1b|google/gemma-3-1b-pt", "gemma3_text", 1152, 26, 4, 1, 256, 6912, 262144, 32768, ",\"sliding_window\":512" },
    { "gpt2|gpt2-small|gpt2-124m|openai-community/gpt2", "gpt2", 768, 12, 12, 0, 0, 0, 50257, 1024, "" },
    { "gpt2-medium|gpt2-350m|gpt2-355m", "gpt2", 1024, 24, 16, 0, 0, 0, 50257, 1024, "" },
    { "gpt2-large|gpt2-774m", "gpt2", 1280, 36, 20, 0, 0, 0, 50257, 1024, "" },
    { "gpt2-xl|gpt2-1.5b|gpt2-1558m", "gpt2", 1600, 48, 25, 0, 0, 0, 50257, 1024, "" },
    { "bert-base|bert-base-uncased", "bert", 768, 12, 12, 0, 0, 3072, 30522, 512, "" },
    { "bert-large|bert-large-uncased", "bert", 1024, 24, 16, 0, 0, 4096, 30522, 512, "" },
};
/* clang-format on */
enum { MODELS = sizeof models / sizeof models[0] };

static void write_config(const known_model *m, char *out, size_t bytes)
{
    size_t used;
    if (strcmp(m->family, "gpt2") == 0) {
        snprintf(out, bytes,
                 "{\"model_type\":\"gpt2\",\"n_embd\":%d,\"n_layer\":%d,\"n_head\":%d,\"vocab_size\":%d,"
                 "\"n_positions\":%d,\"torch_dtype\":\"bfloat16\"%s}",
                 m->width, m->layers, m->heads, m->vocabulary, m->context, m->more);
        return;
    }
    used =
        (size_t)snprintf(out, bytes,
                         "{\"model_type\":\"%s\",\"hidden_size\":%d,\"num_hidden_layers\":%d,"
                         "\"num_attention_heads\":%d,\"intermediate_size\":%d,\"vocab_size\":%d,"
                         "\"max_position_embeddings\":%d,\"torch_dtype\":\"bfloat16\"%s",
                         m->family, m->width, m->layers, m->heads, m->feed_forward, m->vocabulary, m->context, m->more);
    if (m->kv_heads > 0) used += (size_t)snprintf(out + used, bytes - used, ",\"num_key_value_heads\":%d", m->kv_heads);
    if (m->head_width > 0) used += (size_t)snprintf(out + used, bytes - used, ",\"head_dim\":%d", m->head_width);
    snprintf(out + used, bytes - used, "}");
}

bool sl_known_model(const char *name, sl_model_config *out)
{
    char text[1024], what[64];
    for (int i = 0; i < MODELS; i++) {
        if (!sl_name_is(name, models[i].names)) continue;
        write_config(&models[i], text, sizeof text);
        sl_name_first(models[i].names, what, sizeof what);
        return sl_model_config_parse(text, strlen(text), what, out) == SLUICE_OK;
    }
    return false;
}

const char *sl_known_model_nearest(const char *name, char *buf, size_t bytes)
{
    return sl_names_nearest(name, &models[0].names, MODELS, sizeof models[0], buf, bytes);
}

/* Letters of a name on a hub. */
static size_t name_bytes(const char *text)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || (text[n] != '\0' && strchr("-_.", text[n]) != NULL)) n++;
    return text[0] != '.' ? n : 0;
}

const char *sl_hub_hint(const char *name, char *buf, size_t bytes)
{
    size_t owner = name_bytes(name);
    buf[0] = '\0';
    if (owner == 0 || name[owner] != '/') return buf;
    size_t model = name_bytes(name + owner + 1);
    if (model == 0 || name[owner + 1 + model] != '\0') return buf;
    snprintf(
        buf, bytes,
        "; sluice downloads nothing: if it is a model on a hub, `hf download %.100s --local-dir FOLDER` fetches it, "
        "and FOLDER is what to give",
        name);
    return buf;
}

void sl_known_models_print(FILE *out)
{
    char name[64];
    fprintf(out, "models (--model NAME): layers, width, vocabulary\n");
    for (int i = 0; i < MODELS; i++)
        fprintf(out, "  %-20s %-12s %4d layers, %5d wide, %6d tokens\n",
                sl_name_first(models[i].names, name, sizeof name), models[i].family, models[i].layers, models[i].width,
                models[i].vocabulary);
}

void sluice_known_models(FILE *out)
{
    if (out != NULL) sl_known_models_print(out);
}
