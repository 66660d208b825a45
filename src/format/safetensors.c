/* safetensors.c: what the reader and the writer share: dtypes, sizes, values as float. */
#include "format/safetensors.h"

#include <stdio.h>
#include <string.h>

#include "core/bytes.h"
#include "format/scan.h"

static float float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t load_u16(const char *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void bf16_to_f32(const char *in, int64_t count, float *out)
{
    enum { BLOCK = 32 }; /* a number that the compiler knows, so that it uses vectors */
    int64_t i = 0;
    for (; i + BLOCK <= count; i += BLOCK) {
        uint16_t high[BLOCK];
        uint32_t bits[BLOCK];
        memcpy(high, in + 2 * i, sizeof high);
        for (int k = 0; k < BLOCK; k++) bits[k] = (uint32_t)high[k] << 16;
        memcpy(out + i, bits, sizeof bits);
    }
    for (; i < count; i++) out[i] = float_from_bits((uint32_t)load_u16(in + 2 * i) << 16);
}

/* 5 bits of exponent, bias 15. Subnormals are integers times 2^-24, exact in float. */
static float f16_value(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 0x1f, fraction = h & 0x3ff;
    if (exponent == 0) return float_from_bits(sign | 0x3f800000) * ((float)fraction * 0x1p-24f);
    exponent = exponent == 0x1f ? 0xff : exponent + 112;
    return float_from_bits(sign | exponent << 23 | fraction << 13);
}

static void f16_to_f32(const char *in, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i++) out[i] = f16_value(load_u16(in + 2 * i));
}

static void f32_to_f32(const char *in, int64_t count, float *out)
{
    memcpy(out, in, (size_t)count * sizeof *out);
}

static void f64_to_f32(const char *in, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i++) {
        double value;
        memcpy(&value, in + 8 * i, sizeof value);
        out[i] = (float)value;
    }
}

static const struct {
    const char *name;
    size_t bytes;
    void (*to_f32)(const char *in, int64_t count, float *out); /* NULL: not read as float */
} dtypes[SL_ST_DTYPE_COUNT] = {
    [SL_ST_BOOL] = { "BOOL", 1, NULL },
    [SL_ST_U8] = { "U8", 1, NULL },
    [SL_ST_I8] = { "I8", 1, NULL },
    [SL_ST_F8_E4M3] = { "F8_E4M3", 1, NULL },
    [SL_ST_F8_E5M2] = { "F8_E5M2", 1, NULL },
    [SL_ST_I16] = { "I16", 2, NULL },
    [SL_ST_U16] = { "U16", 2, NULL },
    [SL_ST_F16] = { "F16", 2, f16_to_f32 },
    [SL_ST_BF16] = { "BF16", 2, bf16_to_f32 },
    [SL_ST_I32] = { "I32", 4, NULL },
    [SL_ST_U32] = { "U32", 4, NULL },
    [SL_ST_F32] = { "F32", 4, f32_to_f32 },
    [SL_ST_F64] = { "F64", 8, f64_to_f32 },
    [SL_ST_I64] = { "I64", 8, NULL },
    [SL_ST_U64] = { "U64", 8, NULL },
};

const char *sl_st_dtype_name(sl_st_dtype t)
{
    return dtypes[t].name;
}

size_t sl_st_dtype_bytes(sl_st_dtype t)
{
    return dtypes[t].bytes;
}

bool sl_st_is_float(sl_st_dtype t)
{
    return dtypes[t].to_f32 != NULL;
}

bool sl_st_size(sl_st_dtype dtype, int rank, const int64_t *dim, uint64_t *bytes)
{
    uint64_t elements = 1;
    for (int i = 0; i < rank; i++)
        if (!sl_mul_u64(elements, (uint64_t)dim[i], &elements)) return false;
    return elements <= INT64_MAX && sl_mul_u64(elements, dtypes[dtype].bytes, bytes);
}

int64_t sl_st_elements(const sl_st_tensor *t)
{
    uint64_t elements = 1; /* unsigned: dimensions before a zero may multiply beyond 2^63 */
    for (int i = 0; i < t->rank; i++) elements *= (uint64_t)t->dim[i];
    return (int64_t)elements;
}

static sluice_status check_range(const sl_st_file *f, const sl_st_tensor *t, int64_t first, int64_t count)
{
    int64_t elements = sl_st_elements(t);
    if (first >= 0 && count >= 0 && first <= elements && count <= elements - first) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s: tensor %s: %lld elements from %lld on asked for, it has %lld", f->file.path,
                   sl_quote(t->name).text, (long long)count, (long long)first, (long long)elements);
}

sluice_status sl_st_read(sl_st_file *f, const sl_st_tensor *t, int64_t first, int64_t count, void *out)
{
    size_t each = dtypes[t->dtype].bytes;
    SL_TRY(check_range(f, t, first, count));
    return sl_file_pread(&f->file, out, (size_t)count * each, f->data_offset + t->begin + (uint64_t)first * each);
}

/* Values of two bytes: one transfer to the end of `out`, widened from its beginning on. A piece is copied aside before the
 * values that it becomes are written over it and what follows it, which they never pass. */
static sluice_status read_widened(sl_st_file *f, const sl_st_tensor *t, int64_t first, int64_t count, float *out)
{
    enum { PIECE = 4096 };
    char piece[2 * PIECE];
    SL_TRY(check_range(f, t, first, count));
    char *raw = (char *)(out + count) - 2 * count;
    SL_TRY(sl_st_read(f, t, first, count, raw));
    for (int64_t done = 0; done < count;) {
        int64_t n = count - done < PIECE ? count - done : PIECE;
        memcpy(piece, raw + 2 * done, (size_t)(2 * n));
        dtypes[t->dtype].to_f32(piece, n, out + done);
        done += n;
    }
    return SLUICE_OK;
}

void sl_st_to_f32(sl_st_dtype t, const char *in, int64_t count, float *out)
{
    dtypes[t].to_f32(in, count, out);
}

/* ---- large reads ---- */

void sl_st_bypass_cache(sl_st_file *f)
{
    enum { LEAST_BYTES = 4 << 20 };
    const sl_st_tensor *last = f->tensor_count > 0 ? &f->tensors[f->tensor_count - 1] : NULL;
    uint64_t bytes = last != NULL ? last->begin + last->bytes : 0;
    if (bytes >= LEAST_BYTES && f->direct.path == NULL && !sl_file_open_direct(&f->file, &f->direct))
        f->direct = (sl_file){ -1, NULL };
}

static uint64_t place_of(const sl_st_file *f, const sl_st_tensor *t, int64_t first)
{
    return f->data_offset + t->begin + (uint64_t)first * dtypes[t->dtype].bytes;
}

bool sl_st_is_cached(const sl_st_file *f, const sl_st_tensor *t, int64_t first, int64_t count)
{
    size_t bytes = (size_t)count * dtypes[t->dtype].bytes;
    return f->direct.path != NULL && sl_file_is_cached(&f->file, bytes, place_of(f, t, first));
}

/* [begin, begin+bytes) of a file to `to`, which is as far from an aligned address as `begin` is from an aligned place. */
static sluice_status read_past_cache(sl_st_file *f, char *to, uint64_t bytes, uint64_t begin)
{
    uint64_t before = begin % SL_DIRECT_ALIGNMENT, least = before + bytes;
    return sl_file_pread_some(&f->direct, to - before, (size_t)least, (size_t)sl_align_up(least, SL_DIRECT_ALIGNMENT),
                              begin - before);
}

sluice_status sl_st_read_block(sl_st_file *f, const sl_st_tensor *t, int64_t first, int64_t count, sl_st_way way,
                               void *room, const char **out)
{
    char why[SL_MESSAGE_BYTES];
    uint64_t begin = place_of(f, t, first), bytes = (uint64_t)count * dtypes[t->dtype].bytes;
    uintptr_t address = (uintptr_t)room;
    char *to = (char *)room + (sl_align_up(address, SL_DIRECT_ALIGNMENT) - address) + begin % SL_DIRECT_ALIGNMENT;
    SL_TRY(check_range(f, t, first, count));
    *out = to;
    sluice_status st = way == SL_ST_PAST_CACHE && f->direct.path != NULL
                           ? read_past_cache(f, to, bytes, begin)
                           : sl_file_pread(&f->file, to, (size_t)bytes, begin);
    if (st == SLUICE_OK) return SLUICE_OK;
    sl_error_copy(why);
    return sl_fail(st, "%s (tensor %s, from byte %llu on)", why, sl_quote(t->name).text, (unsigned long long)begin);
}

void sl_st_expect(sl_st_file *f, const sl_st_tensor *t, int64_t first, int64_t count)
{
    sl_file_expect(&f->file, place_of(f, t, first), (uint64_t)count * dtypes[t->dtype].bytes);
}

sluice_status sl_st_read_f32(sl_st_file *f, const sl_st_tensor *t, int64_t first, int64_t count, float *out)
{
    char piece[1 << 15];
    if (t->dtype == SL_ST_F32) return sl_st_read(f, t, first, count, out);
    if (dtypes[t->dtype].to_f32 == NULL)
        return sl_fail(SLUICE_ERR_INPUT, "%s: tensor %s has dtype %s; F32, F16, BF16 or F64 is needed", f->file.path,
                       sl_quote(t->name).text, dtypes[t->dtype].name);
    if (dtypes[t->dtype].bytes == 2) return read_widened(f, t, first, count, out);
    SL_TRY(check_range(f, t, first, count));
    int64_t most = (int64_t)(sizeof piece / dtypes[t->dtype].bytes);
    for (int64_t done = 0; done < count;) {
        int64_t n = count - done < most ? count - done : most;
        SL_TRY(sl_st_read(f, t, first + done, n, piece));
        dtypes[t->dtype].to_f32(piece, n, out + done);
        done += n;
    }
    return SLUICE_OK;
}
