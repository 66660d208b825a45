/* shape.c: shapes and element types as plain data.
 *
 * A shape is checked once, when a value is made from it (sl_shape_fault); from then on its products cannot overflow and
 * are formed without checks. */
#include <inttypes.h>
#include <string.h>

#include "core/bytes.h"
#include "ir/graph.h"
#include "ir/op_rows.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[SLUICE_DTYPE_COUNT] = {
    [SLUICE_F32] = { "f32", 4 },
    [SLUICE_I32] = { "i32", 4 },
    [SLUICE_BF16] = { "bf16", 2 },
    [SLUICE_F16] = { "f16", 2 },
};

size_t sl_dtype_bytes(sluice_dtype t)
{
    return dtypes[t].bytes;
}

const char *sl_dtype_name(sluice_dtype t)
{
    return dtypes[t].name;
}

int64_t sl_shape_elements(const sl_shape *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++) n *= s->dim[i];
    return n;
}

uint64_t sl_value_bytes(const sl_value *v)
{
    return (uint64_t)sl_shape_elements(&v->shape) * sl_dtype_bytes(v->dtype);
}

bool sl_shape_equal(const sl_shape *a, const sl_shape *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

const char *sl_shape_text(const sl_shape *s, char *buf, size_t bytes)
{
    size_t at = 0;
    for (int i = 0; i < s->rank && at < bytes; i++) {
        int n = snprintf(buf + at, bytes - at, i == 0 ? "[%" PRId64 : ", %" PRId64, s->dim[i]);
        at += (size_t)n;
    }
    if (at < bytes) snprintf(buf + at, bytes - at, s->rank == 0 ? "[]" : "]");
    return buf;
}

const char *sl_shape_fault(const sl_shape *s, sluice_dtype dtype)
{
    if (s->rank < 0 || s->rank > SL_MAX_RANK) return "a tensor has 0 to 6 dimensions";
    uint64_t bytes = sl_dtype_bytes(dtype);
    for (int i = 0; i < s->rank; i++) {
        if (s->dim[i] < 1) return "every dimension must be at least 1";
        if (!sl_mul_u64(bytes, (uint64_t)s->dim[i], &bytes) || bytes > INT64_MAX) return "it has over 2^63 bytes";
    }
    return NULL;
}

int64_t sl_shape_last(const sl_shape *s)
{
    return s->rank == 0 ? 1 : s->dim[s->rank - 1];
}

int64_t sl_shape_rows(const sl_shape *s)
{
    return sl_shape_elements(s) / sl_shape_last(s);
}

bool sl_shape_broadcast(const sl_shape *a, const sl_shape *b, sl_shape *out)
{
    sl_shape r = { .rank = a->rank > b->rank ? a->rank : b->rank };
    for (int i = 0; i < r.rank; i++) {
        int ia = i - (r.rank - a->rank), ib = i - (r.rank - b->rank);
        int64_t da = ia < 0 ? 1 : a->dim[ia], db = ib < 0 ? 1 : b->dim[ib];
        if (da != db && da != 1 && db != 1) return false;
        r.dim[i] = da == 1 ? db : da;
    }
    *out = r;
    return true;
}
