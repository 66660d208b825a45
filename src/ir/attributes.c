/* attributes.c: descriptors of the attributes of ops, made of the rows of op_list.h, and their values as bytes and as
 * text. */
#include <inttypes.h>
#include <string.h>

#include "ir/op_rows.h"

/* clang-format off */
#define DESCRIBE(group, field, type_, count_, if_set_, free_)                                                          \
    { .name = #field, .type = (type_), .offset = offsetof(sl_attrs, group.field), .count = (count_),                   \
      .if_set = (if_set_), .free = (free_) },
#define SL_IDENTITY(group, type, field)               DESCRIBE(group, field, SL_ATTRIBUTE_##type, 1, false, NULL)
#define SL_IDENTITY_ARRAY(group, type, field, length) DESCRIBE(group, field, SL_ATTRIBUTE_##type, length, false, NULL)
#define SL_IDENTITY_IF_SET(group, type, field)        DESCRIBE(group, field, SL_ATTRIBUTE_##type, 1, true, NULL)
#define SL_FREE(group, type, field, why)              DESCRIBE(group, field, SL_ATTRIBUTE_##type, 1, false, why)
#define SL_ATTRIBUTES(group, fields)                                                                                   \
    static const sl_attribute group##_fields[] = { fields };                                                           \
    const sl_attribute_list sl_attributes_##group = { group##_fields, sizeof group##_fields / sizeof group##_fields[0], \
                                                      sizeof((sl_attrs *)NULL)->group };
#include "ir/op_list.h"
/* clang-format on */

const sl_attribute_list sl_attributes_none = { NULL, 0, 0 };

size_t sl_attribute_bytes(const sl_attribute *a)
{
    static const size_t bytes[] = {
        [SL_ATTRIBUTE_bool] = sizeof(bool),       [SL_ATTRIBUTE_int] = sizeof(int),
        [SL_ATTRIBUTE_int32_t] = sizeof(int32_t), [SL_ATTRIBUTE_uint32_t] = sizeof(uint32_t),
        [SL_ATTRIBUTE_int64_t] = sizeof(int64_t), [SL_ATTRIBUTE_float] = sizeof(float),
    };
    return bytes[a->type];
}

uint64_t sl_attribute_bits(const sl_attrs *attrs, const sl_attribute *a, int i)
{
    size_t bytes = sl_attribute_bytes(a);
    const char *at = (const char *)attrs + a->offset + (size_t)i * bytes;
    uint8_t one;
    uint32_t four;
    uint64_t eight;
    switch (bytes) {
    case sizeof one:
        memcpy(&one, at, sizeof one);
        return one;
    case sizeof four:
        memcpy(&four, at, sizeof four);
        return four;
    default:
        memcpy(&eight, at, sizeof eight);
        return eight;
    }
}

bool sl_attribute_there(const sl_attrs *attrs, const sl_attribute *a)
{
    bool there = !a->if_set;
    for (int i = 0; i < a->count && !there; i++) there = sl_attribute_bits(attrs, a, i) != 0;
    return there;
}

static int element_text(const sl_attribute *a, uint64_t bits, char *buf, size_t bytes)
{
    uint32_t low = (uint32_t)bits;
    float number;
    switch (a->type) {
    case SL_ATTRIBUTE_bool:
        return snprintf(buf, bytes, "%s", bits != 0 ? "true" : "false");
    case SL_ATTRIBUTE_int:
    case SL_ATTRIBUTE_int32_t:
        return snprintf(buf, bytes, "%" PRId32, (int32_t)low);
    case SL_ATTRIBUTE_uint32_t:
        return snprintf(buf, bytes, "%" PRIu32, low);
    case SL_ATTRIBUTE_int64_t:
        return snprintf(buf, bytes, "%" PRId64, (int64_t)bits);
    case SL_ATTRIBUTE_float:
        memcpy(&number, &low, sizeof number);
        return snprintf(buf, bytes, "%.9g", (double)number);
    }
    return 0;
}

const char *sl_attribute_text(const sl_attrs *attrs, const sl_attribute *a, char buf[SL_ATTRIBUTE_TEXT_BYTES])
{
    int at = 0;
    buf[0] = '\0';
    for (int i = 0; i < a->count && at < SL_ATTRIBUTE_TEXT_BYTES; i++) {
        if (i > 0) buf[at++] = ',';
        at += element_text(a, sl_attribute_bits(attrs, a, i), buf + at, (size_t)(SL_ATTRIBUTE_TEXT_BYTES - at));
    }
    return buf;
}
