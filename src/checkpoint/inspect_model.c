/* inspect_model.c: a folder of a model for people and for programs. Every part that cannot be read says why in its place. */
#include "checkpoint/inspect_model.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/io.h"
#include "format/chat_template.h"
#include "format/json.h"
#include "format/model_config.h"
#include "format/tokenizer.h"
#include "format/weights_set.h"

/* What was found; texts are "" where there is nothing to say. */
typedef struct model_facts {
    const char *folder;
    bool known; /* config.json is one that can be computed */
    sl_model_config c;
    char config_fault[SL_MESSAGE_BYTES];
    int64_t tensors, files, elements;
    uint64_t bytes;
    char types[64], weights_fault[SL_MESSAGE_BYTES];
    char tokenizer[SL_MESSAGE_BYTES];
    int64_t tokens; /* 0: there is no tokenizer, or one that cannot be read */
    char chat[SL_MESSAGE_BYTES];
} model_facts;

static bool in_folder(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && sl_path_exists(path);
}

/* A config.json that names a family, known or not. */
static bool names_family(const char *folder)
{
    char path[PATH_MAX], *text;
    size_t bytes;
    if (snprintf(path, sizeof path, "%s/config.json", folder) >= (int)sizeof path) return false;
    if (sl_file_read_all(path, 1 << 20, &text, &bytes) != SLUICE_OK) return false;
    bool found = sl_json_key_line(text, bytes, "model_type") > 0;
    sl_free(text);
    return found;
}

bool sl_is_model_folder(const char *path)
{
    return in_folder(path, "config.json") && (sl_is_weights_folder(path) || names_family(path));
}

/* ---- Looking ---- */

static void look_at_weights(model_facts *f)
{
    bool seen[SL_ST_DTYPE_COUNT] = { false };
    sl_weights_set *s;
    if (sl_weights_set_open(f->folder, &s) != SLUICE_OK) {
        sl_error_copy(f->weights_fault);
        return;
    }
    f->files = s->file_count;
    f->tensors = s->tensor_count;
    for (int64_t i = 0; i < s->tensor_count; i++) {
        f->elements += sl_st_elements(s->tensors[i].stored);
        f->bytes += s->tensors[i].stored->bytes;
        seen[s->tensors[i].stored->dtype] = true;
    }
    for (int t = 0; t < SL_ST_DTYPE_COUNT; t++) {
        size_t used = strlen(f->types);
        if (seen[t])
            snprintf(f->types + used, sizeof f->types - used, "%s%s", used > 0 ? ", " : "", sl_st_dtype_name(t));
    }
    sl_weights_set_close(s);
}

static void look_at_tokenizer(model_facts *f)
{
    sl_tokenizer *t;
    if (!in_folder(f->folder, "tokenizer.json") && !in_folder(f->folder, "vocab.json")) {
        static const char *const unread[] = { "tokenizer.model", "tekken.json" };
        snprintf(f->tokenizer, sizeof f->tokenizer, "none");
        for (size_t i = 0; i < sizeof unread / sizeof unread[0]; i++)
            if (in_folder(f->folder, unread[i]))
                snprintf(f->tokenizer, sizeof f->tokenizer, "none that is read: %s is, without a tokenizer.json, not",
                         unread[i]);
        return;
    }
    if (sl_tokenizer_open(f->folder, &t) != SLUICE_OK) {
        sl_error_copy(f->tokenizer);
        return;
    }
    f->tokens = sl_tokenizer_size(t);
    snprintf(f->tokenizer, sizeof f->tokenizer, "%s, %" PRId64 " tokens", sl_tokenizer_kind(t), f->tokens);
    sl_tokenizer_close(t);
}

static void look_at_chat(model_facts *f)
{
    sl_chat_folder chat = { .bos = NULL };
    if (sl_chat_folder_read(NULL, f->folder, &chat) != SLUICE_OK) {
        sl_error_copy(f->chat);
        return;
    }
    if (chat.chat != NULL)
        snprintf(f->chat, sizeof f->chat, "%s", sl_chat_name(chat.chat));
    else if (chat.source == NULL)
        snprintf(f->chat, sizeof f->chat, "none");
    else
        snprintf(f->chat, sizeof f->chat, "not known%s%s: give data.template", chat.nearest != NULL ? ", nearest " : "",
                 chat.nearest != NULL ? sl_chat_name(chat.nearest) : "");
    sl_chat_folder_free(&chat);
}

static void look(model_facts *f)
{
    f->known = sl_model_config_read(f->folder, &f->c, NULL) == SLUICE_OK;
    if (!f->known) sl_error_copy(f->config_fault);
    look_at_weights(f);
    look_at_tokenizer(f);
    look_at_chat(f);
}

/* Why it cannot be used; NULL: it can. */
static const char *fault_of(const model_facts *f)
{
    if (!f->known) return f->config_fault;
    if (f->weights_fault[0] != '\0') return f->weights_fault;
    if (f->tokens > f->c.vocabulary) return "its tokenizer has more tokens than the embedding has rows";
    return NULL;
}

/* ---- For people ---- */

static int64_t count_windows(const sl_model_config *c)
{
    int64_t count = 0;
    for (int64_t i = 0; i < c->layers; i++) count += sl_model_config_slides(c, i);
    return count;
}

static void print_sizes(const sl_model_config *c, FILE *out)
{
    static const char *const scalings[] = { [SL_ROPE_DEFAULT] = "",
                                            [SL_ROPE_LINEAR] = ", linear",
                                            [SL_ROPE_DYNAMIC] = ", dynamic",
                                            [SL_ROPE_LLAMA3] = ", llama3",
                                            [SL_ROPE_YARN] = ", yarn" };
    int64_t windows = count_windows(c);
    fprintf(out, "  family          %s (%s)\n", sl_decoder_name(c->family), sl_model_config_class(c));
    fprintf(out, "  layers          %" PRId64 " of width %" PRId64 ", feed-forward %" PRId64 "\n", c->layers, c->width,
            c->feed_forward);
    fprintf(out, "  heads           %" PRId64 " of width %" PRId64 ", %" PRId64 " of keys and values\n", c->heads,
            c->head_width, c->kv_heads);
    fprintf(out, "  vocabulary      %" PRId64 ", head %s\n", c->vocabulary,
            c->tied ? "tied to the embedding" : "of its own");
    if (c->rope.theta > 0)
        fprintf(out, "  positions       %" PRId64 ", rotary, base %g%s\n", c->context, c->rope.theta,
                scalings[c->rope.type]);
    else
        fprintf(out, "  positions       %" PRId64 ", learned\n", c->context);
    if (windows > 0) fprintf(out, "  windows         of %" PRId64 " in %" PRId64 " layers\n", c->window, windows);
}

static void print_text(const model_facts *f, FILE *out)
{
    char size[32];
    const char *fault = fault_of(f);
    fprintf(out, "%s: model\n", f->folder);
    if (f->known) print_sizes(&f->c, out);
    if (f->weights_fault[0] == '\0')
        fprintf(out, "  weights         %" PRId64 " in %" PRId64 " tensors and %" PRId64 " file%s, %s, %s\n",
                f->elements, f->tensors, f->files, f->files == 1 ? "" : "s", f->types,
                sl_format_bytes(f->bytes, size, sizeof size));
    fprintf(out, "  tokenizer       %s\n  chat template   %s\n", f->tokenizer, f->chat);
    if (fault != NULL)
        fprintf(out, "  here            cannot be used: %s\n", fault);
    else
        fprintf(out,
                "  here            plan, train, evaluate and generate with --model; all weights, or adapters (lora)\n");
}

/* ---- For programs ---- */

static void print_member(FILE *out, const char *key, const char *value)
{
    fprintf(out, ", \"%s\": ", key);
    sl_json_write_string(out, value);
}

static void print_json(const model_facts *f, FILE *out)
{
    const sl_model_config *c = &f->c;
    const char *fault = fault_of(f);
    fputs("{\"type\": \"model\"", out);
    print_member(out, "path", f->folder);
    fprintf(out, ", \"usable\": %s", fault == NULL ? "true" : "false");
    if (fault != NULL) print_member(out, "why_not", fault);
    if (f->known) {
        print_member(out, "family", sl_decoder_name(c->family));
        fprintf(out,
                ", \"layers\": %" PRId64 ", \"width\": %" PRId64 ", \"heads\": %" PRId64 ", \"kv_heads\": %" PRId64
                ", \"head_width\": %" PRId64 ", \"feed_forward\": %" PRId64 ", \"vocabulary\": %" PRId64
                ", \"context\": %" PRId64 ", \"tied\": %s",
                c->layers, c->width, c->heads, c->kv_heads, c->head_width, c->feed_forward, c->vocabulary, c->context,
                c->tied ? "true" : "false");
    }
    if (f->weights_fault[0] == '\0')
        fprintf(out, ", \"parameters\": %" PRId64 ", \"bytes\": %" PRIu64 ", \"files\": %" PRId64, f->elements,
                f->bytes, f->files);
    print_member(out, "dtypes", f->types);
    print_member(out, "tokenizer", f->tokenizer);
    print_member(out, "chat_template", f->chat);
    fputs("}\n", out);
}

sluice_status sl_inspect_model(const char *folder, bool json, FILE *out)
{
    model_facts f = { .folder = folder };
    look(&f);
    (json ? print_json : print_text)(&f, out);
    return SLUICE_OK;
}
