/* tfevents.c: records of TensorBoard, and as much of protobuf's wire format as they need.
 *
 * A message stands behind its length, which is known when it is complete. So an outer one is begun, filled in place and then
 * closed, which moves its bytes up by the few that the length takes; nothing is allocated but the text itself. */
#include "format/tfevents.h"

#include <string.h>

#include "core/crc32c.h"

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
/* Fields of the messages, as event.proto, summary.proto and tensor.proto of TensorFlow number them. */
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1 };
enum { VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
enum { METADATA_PLUGIN_DATA = 1, PLUGIN_DATA_NAME = 1 };
enum { TENSOR_TYPE = 1, TENSOR_SHAPE = 2, TENSOR_STRING = 8, SHAPE_DIM = 2, DIM_SIZE = 1, TYPE_STRING = 7 };

static void put_little_endian(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(value >> (8 * i));
}

static void add_little_endian(sl_text *t, uint64_t value, int bytes)
{
    unsigned char raw[8];
    put_little_endian(raw, value, bytes);
    sl_text_add_bytes(t, raw, (size_t)bytes);
}

static int make_varint(uint64_t value, unsigned char out[10])
{
    int n = 0;
    for (; value >= 0x80; value >>= 7) out[n++] = (unsigned char)(value | 0x80);
    out[n++] = (unsigned char)value;
    return n;
}

static void add_varint(sl_text *t, uint64_t value)
{
    unsigned char raw[10];
    int n = make_varint(value, raw);
    sl_text_add_bytes(t, raw, (size_t)n);
}

static void add_key(sl_text *t, int field, int wire)
{
    add_varint(t, (uint64_t)field << 3 | (uint64_t)wire);
}

static void add_integer(sl_text *t, int field, int64_t value)
{
    add_key(t, field, WIRE_VARINT);
    add_varint(t, (uint64_t)value);
}

static void add_double(sl_text *t, int field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_key(t, field, WIRE_64);
    add_little_endian(t, bits, 8);
}

static void add_float(sl_text *t, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_key(t, field, WIRE_32);
    add_little_endian(t, bits, 4);
}

static void add_string(sl_text *t, int field, const char *text)
{
    add_key(t, field, WIRE_BYTES);
    add_varint(t, strlen(text));
    sl_text_add_bytes(t, text, strlen(text));
}

/* Begins a message inside another; end_message gets what this returns. */
static size_t begin_message(sl_text *t, int field)
{
    add_key(t, field, WIRE_BYTES);
    return t->bytes;
}

/* Puts the length before what was added since. */
static void end_message(sl_text *t, size_t begin)
{
    unsigned char raw[10];
    size_t bytes = t->bytes - begin;
    int n = make_varint(bytes, raw);
    sl_text_add_bytes(t, raw, (size_t)n);
    if (t->failed) return;
    memmove(t->data + begin + n, t->data + begin, bytes);
    memcpy(t->data + begin, raw, (size_t)n);
}

/* TensorBoard's: so that the checksum of data that contains checksums is not weak. */
static uint32_t masked_crc(const void *data, size_t bytes)
{
    uint32_t crc = sl_crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

enum { HEADER_BYTES = 12 };

static size_t begin_record(sl_text *t, double seconds)
{
    static const char header[HEADER_BYTES];
    size_t begin = t->bytes;
    sl_text_add_bytes(t, header, sizeof header);
    add_double(t, EVENT_WALL_TIME, seconds);
    return begin;
}

static void end_record(sl_text *t, size_t begin)
{
    if (t->failed) return;
    unsigned char *header = (unsigned char *)t->data + begin;
    size_t bytes = t->bytes - begin - HEADER_BYTES;
    put_little_endian(header, bytes, 8);
    put_little_endian(header + 8, masked_crc(header, 8), 4);
    add_little_endian(t, masked_crc(header + HEADER_BYTES, bytes), 4);
}

void sl_tf_add_version(sl_text *out, double seconds)
{
    size_t record = begin_record(out, seconds);
    add_string(out, EVENT_FILE_VERSION, "brain.Event:2");
    end_record(out, record);
}

void sl_tf_add_scalars(sl_text *out, double seconds, int64_t step, const sl_tf_scalar *scalars, int count)
{
    size_t record = begin_record(out, seconds);
    add_integer(out, EVENT_STEP, step);
    size_t summary = begin_message(out, EVENT_SUMMARY);
    for (int i = 0; i < count; i++) {
        size_t value = begin_message(out, SUMMARY_VALUE);
        add_string(out, VALUE_TAG, scalars[i].tag);
        add_float(out, VALUE_SIMPLE, (float)scalars[i].value);
        end_message(out, value);
    }
    end_message(out, summary);
    end_record(out, record);
}

/* A tensor of one string, as the text plugin reads it. */
static void add_text_tensor(sl_text *out, const char *text)
{
    size_t tensor = begin_message(out, VALUE_TENSOR);
    add_integer(out, TENSOR_TYPE, TYPE_STRING);
    size_t shape = begin_message(out, TENSOR_SHAPE), dim = begin_message(out, SHAPE_DIM);
    add_integer(out, DIM_SIZE, 1);
    end_message(out, dim);
    end_message(out, shape);
    add_string(out, TENSOR_STRING, text);
    end_message(out, tensor);
}

void sl_tf_add_text(sl_text *out, double seconds, int64_t step, const char *tag, const char *text)
{
    size_t record = begin_record(out, seconds);
    add_integer(out, EVENT_STEP, step);
    size_t summary = begin_message(out, EVENT_SUMMARY), value = begin_message(out, SUMMARY_VALUE);
    add_string(out, VALUE_TAG, tag);
    add_text_tensor(out, text);
    size_t metadata = begin_message(out, VALUE_METADATA), plugin = begin_message(out, METADATA_PLUGIN_DATA);
    add_string(out, PLUGIN_DATA_NAME, "text");
    end_message(out, plugin);
    end_message(out, metadata);
    end_message(out, value);
    end_message(out, summary);
    end_record(out, record);
}
