#include "format/token_file.h"

#include <inttypes.h>
#include <string.h>

#include "core/status.h"

enum { LLMC_HEADER_BYTES = 1024, NPY_PREFIX_BYTES = 8, MOST_DIGITS = 18 };

static const struct {
    const char *name;
    int width;
} types[] = {
    [SL_TOKENS_U16] = { "uint16", 2 },
    [SL_TOKENS_U32] = { "uint32", 4 },
    [SL_TOKENS_I32] = { "int32", 4 },
    [SL_TOKENS_U8] = { "uint8", 1 },
};

const char *sl_token_type_name(sl_token_type type)
{
    return type == SL_TOKENS_UNKNOWN ? "unknown" : types[type].name;
}

static uint32_t little_endian(const unsigned char *p, int bytes)
{
    uint32_t x = 0;
    for (int i = bytes - 1; i >= 0; i--) x = x << 8 | p[i];
    return x;
}

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* ---- what all formats have in common ---- */

/* What a header says beside what was asked for. */
static sluice_status check_type(const char *path, const char *format, sl_token_type type, sl_token_type given)
{
    if (type == SL_TOKENS_U8 && given != SL_TOKENS_U8)
        return sl_fail(SLUICE_ERR_INPUT, "%s: its header (%s) says one byte for each, which is a mask and no token ids",
                       path, format);
    if (given == SL_TOKENS_UNKNOWN || given == type) return SLUICE_OK;
    if (given == SL_TOKENS_U8)
        return sl_fail(SLUICE_ERR_INPUT, "%s: its header (%s) says %s; a mask has one byte for each token", path,
                       format, types[type].name);
    return sl_fail(SLUICE_ERR_INPUT, "%s: its header (%s) says %s, and data.dtype is \"%s\"; leave data.dtype out",
                   path, format, types[type].name, types[given].name);
}

/* `count` tokens of `type` from `offset` to the end of the file. */
static sluice_status lay_out(const char *path, const char *format, sl_token_type type, uint64_t offset, uint64_t count,
                             uint64_t file_bytes, sl_token_layout *out)
{
    uint64_t width = (uint64_t)types[type].width;
    if (file_bytes < offset || count > (file_bytes - offset) / width || offset + count * width != file_bytes)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: its header (%s) says %" PRIu64 " tokens of %s, %" PRIu64
                       " bytes with the header, and it has %" PRIu64 "; it was cut off, or is something else",
                       path, format, count, types[type].name, offset + count * width, file_bytes);
    if (count == 0) return sl_fail(SLUICE_ERR_INPUT, "%s: there are no tokens in it", path);
    *out = (sl_token_layout){ format, type, types[type].width, offset, count };
    return SLUICE_OK;
}

/* ---- llm.c ---- */

static const struct {
    uint32_t magic, version;
    sl_token_type type;
} llmc_kinds[] = {
    { 20240520, 1, SL_TOKENS_U16 }, /* GPT-2 and GPT-3 */
    { 20240801, 7, SL_TOKENS_U32 }, /* Llama 3 */
};

static sluice_status read_llmc(const char *path, const unsigned char *head, int kind, uint64_t file_bytes,
                               sl_token_type given, sl_token_layout *out)
{
    uint32_t version = little_endian(head + 4, 4), count = little_endian(head + 8, 4);
    sl_token_type type = llmc_kinds[kind].type;
    if (version != llmc_kinds[kind].version)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: a token file of llm.c of version %" PRIu32 "; version %" PRIu32 " is the one that is known",
                       path, version, llmc_kinds[kind].version);
    if (count > INT32_MAX)
        return sl_fail(SLUICE_ERR_INPUT, "%s: its header (llm.c) says a negative number of tokens", path);
    SL_TRY(check_type(path, "llm.c", type, given));
    return lay_out(path, "llm.c", type, LLMC_HEADER_BYTES, count, file_bytes, out);
}

/* ---- .npy ---- */

/* The header's text: a Python dictionary, spaces, a newline. */
typedef struct npy {
    const char *path;
    const char *at, *end;
    bool has_type, has_order, has_shape;
    sl_token_type type;
    uint64_t count;
} npy;

static sluice_status fail_npy(const npy *n, const char *why)
{
    return sl_fail(SLUICE_ERR_INPUT, "%s: its header (.npy) %s", n->path, why);
}

static void skip_spaces(npy *n)
{
    while (n->at < n->end && *n->at == ' ') n->at++;
}

static bool take_character(npy *n, char c)
{
    skip_spaces(n);
    if (n->at == n->end || *n->at != c) return false;
    n->at++;
    return true;
}

static bool take_word(npy *n, const char *word)
{
    size_t length = strlen(word);
    skip_spaces(n);
    if ((size_t)(n->end - n->at) < length || memcmp(n->at, word, length) != 0) return false;
    n->at += length;
    return true;
}

static sluice_status read_descr(npy *n)
{
    static const struct {
        const char *name;
        sl_token_type type;
    } known[] = { { "'<u2'", SL_TOKENS_U16 },
                  { "'<u4'", SL_TOKENS_U32 },
                  { "'<i4'", SL_TOKENS_I32 },
                  { "'|u1'", SL_TOKENS_U8 },
                  { "'|b1'", SL_TOKENS_U8 } };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (take_word(n, known[i].name)) {
            n->type = known[i].type;
            return SLUICE_OK;
        }
    return fail_npy(n, "has a descr that is not <u2, <u4 or <i4, nor |u1 or |b1 of a mask; save it with such a dtype");
}

/* "(123,)" */
static sluice_status read_shape(npy *n)
{
    int digits = 0;
    n->count = 0;
    if (!take_character(n, '(')) return fail_npy(n, "has a shape that is no tuple");
    skip_spaces(n);
    for (; n->at < n->end && *n->at >= '0' && *n->at <= '9'; n->at++, digits++) {
        if (digits == MOST_DIGITS) return fail_npy(n, "has a shape that is too large");
        n->count = n->count * 10 + (uint64_t)(*n->at - '0');
    }
    if (digits > 0 && take_character(n, ',') && take_character(n, ')')) return SLUICE_OK;
    return fail_npy(n, "has a shape that is not (N,); save it flattened, with one dimension");
}

static sluice_status read_order(npy *n)
{
    if (take_word(n, "False") || take_word(n, "True")) return SLUICE_OK; /* of one dimension both are the same */
    return fail_npy(n, "has a fortran_order that is neither True nor False");
}

static sluice_status read_key(npy *n)
{
    static const struct {
        const char *name;
        size_t seen;
        sluice_status (*read)(npy *n);
    } keys[] = { { "'descr'", offsetof(npy, has_type), read_descr },
                 { "'fortran_order'", offsetof(npy, has_order), read_order },
                 { "'shape'", offsetof(npy, has_shape), read_shape } };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!take_word(n, keys[i].name)) continue;
        bool *seen = (bool *)((char *)n + keys[i].seen);
        if (*seen) return fail_npy(n, "has a key twice");
        *seen = true;
        if (!take_character(n, ':')) return fail_npy(n, "lacks a colon behind a key");
        return keys[i].read(n);
    }
    return fail_npy(n, "has a key other than 'descr', 'fortran_order' and 'shape'");
}

static sluice_status read_dictionary(npy *n)
{
    if (!take_character(n, '{')) return fail_npy(n, "does not begin with {");
    while (!take_character(n, '}')) {
        SL_TRY(read_key(n));
        if (take_character(n, ',')) continue;
        if (take_character(n, '}')) break;
        return fail_npy(n, "lacks a comma or } behind a value");
    }
    skip_spaces(n);
    if (n->at + 1 != n->end || *n->at != '\n') return fail_npy(n, "does not end in a newline behind the }");
    if (!n->has_type || !n->has_order || !n->has_shape)
        return fail_npy(n, "lacks one of 'descr', 'fortran_order' and 'shape'");
    return SLUICE_OK;
}

static sluice_status read_npy(const char *path, const unsigned char *head, size_t head_bytes, uint64_t file_bytes,
                              sl_token_type given, sl_token_layout *out)
{
    npy n = { .path = path };
    int version = head_bytes > 7 ? head[6] : 0, length_bytes = version == 1 ? 2 : 4;
    size_t begin = NPY_PREFIX_BYTES + (size_t)length_bytes;
    if (version < 1 || version > 3 || head[7] != 0) return fail_npy(&n, "is of a version other than 1.0, 2.0 or 3.0");
    if (head_bytes < begin) return fail_npy(&n, "ends too early");
    uint32_t length = little_endian(head + NPY_PREFIX_BYTES, length_bytes);
    if (length > SL_TOKEN_HEAD_BYTES - begin) return fail_npy(&n, "is longer than one of an array with one dimension");
    if (length > head_bytes - begin) return fail_npy(&n, "ends too early");
    n.at = (const char *)head + begin;
    n.end = n.at + length;
    SL_TRY(read_dictionary(&n));
    SL_TRY(check_type(path, ".npy", n.type, given));
    return lay_out(path, ".npy", n.type, begin + length, n.count, file_bytes, out);
}

/* ---- all of them ---- */

static sluice_status read_bare(const char *path, uint64_t file_bytes, sl_token_type given, sl_token_layout *out)
{
    if (file_bytes == 0) return sl_fail(SLUICE_ERR_INPUT, "%s is empty", path);
    if (given == SL_TOKENS_UNKNOWN)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "%s does not say how wide its tokens are: set data.dtype to \"uint16\", as nanoGPT writes them, or "
            "\"uint32\"",
            path);
    uint64_t width = (uint64_t)types[given].width;
    if (file_bytes % width != 0)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s has %" PRIu64 " bytes, which is no whole number of tokens of %s (%" PRIu64
                       " bytes each); it was cut off, or data.dtype is wrong",
                       path, file_bytes, types[given].name, width);
    return lay_out(path, "bare", given, 0, file_bytes / width, file_bytes, out);
}

sluice_status sl_token_layout_read(const char *path, const unsigned char *head, size_t head_bytes, uint64_t file_bytes,
                                   sl_token_type given, sl_token_layout *out)
{
    static const char npy_magic[] = "\x93NUMPY";
    if (head_bytes >= sizeof npy_magic - 1 && memcmp(head, npy_magic, sizeof npy_magic - 1) == 0)
        return read_npy(path, head, head_bytes, file_bytes, given, out);
    if (ends_in(path, ".npy"))
        return sl_fail(SLUICE_ERR_INPUT, "%s: its name ends in .npy, and it does not begin as such files do", path);
    for (int k = 0; head_bytes >= 12 && k < (int)(sizeof llmc_kinds / sizeof llmc_kinds[0]); k++)
        if (given != SL_TOKENS_U8 && little_endian(head, 4) == llmc_kinds[k].magic)
            return read_llmc(path, head, k, file_bytes, given, out);
    return read_bare(path, file_bytes, given, out);
}
