/* op_harness.h: runs single operations and whole graphs on every device variant of this machine, and on the reference.
 *
 * A test lays operands out in one image of the device's arena, the last one flush with the end. Between them, and in
 * outputs, is poison: a signalling NaN of the operand's form. A kernel that reads outside its operands computes NaN;
 * one that writes or adds there changes the poison or dies on the guard. */
#ifndef SLUICE_TEST_OP_HARNESS_H
#define SLUICE_TEST_OP_HARNESS_H

#include "backend/backend.h"
#include "ir/form.h"
#include "support/op_reference.h"

typedef struct test_device {
    const sl_backend *backend;
    sl_isa isa;
    int threads;
    char name[32]; /* "cpu avx2, 2 threads" */
} test_device;

#define MAX_TEST_DEVICES 16
/* Every backend that computes: the CPU's on every instruction path of this one, with one and with two threads, then
 * the emulated CUDA backend where it was built, then a GPU where there is one. Returns how many. In the environment:
 * SLUICE_TEST_NO_EMULATION leaves the emulation out, SLUICE_TEST_DEVICES=cuda takes those alone whose name begins
 * so. */
int test_devices(test_device out[MAX_TEST_DEVICES]);
/* Their results agree in every bit: the paths of one backend do. Each backend's are held to the reference. */
bool test_same_bits(const test_device *a, const test_device *b);

/* Deterministic numbers for operands. */
typedef struct test_random {
    uint64_t state;
} test_random;
double test_uniform(test_random *r, double low, double high);

/* Bytes of an arena, owned; test_image_free releases them. */
typedef struct test_image {
    uint8_t *bytes;
    uint64_t size;
} test_image;

/* Appends an operand of `count` elements of a form, 256-byte aligned, after a gap of poison; test_image_add: of four
 * bytes.
 */
sl_span test_image_add_form(test_image *image, int64_t count, sl_form form);
sl_span test_image_add(test_image *image, int64_t count);
void test_image_free(test_image *image);
float *test_floats(const test_image *image, sl_span span);
int32_t *test_indices(const test_image *image, sl_span span);
/* Element i of an operand in F32, I32, BF16 or F16, and x rounded to what that form holds. */
double test_number(const test_image *image, sl_span span, sl_form form, int64_t i);
void test_set_number(test_image *image, sl_span span, sl_form form, int64_t i, double x);

/* The call without output i. */
void test_leave_out(sl_call *call, int i);

/* Opens the device with an arena of exactly the image, uploads it, runs the calls in order, downloads it. Fails where
 * anything but the calls' outputs has changed. */
sluice_status test_run(const test_device *device, test_image *image, const sl_call *calls, int call_count);

#endif
