/* cifar_fuzz.c: records of CIFAR with every kind of labels. */
#include "core/alloc.h"
#include "format/cifar.h"
#include "support/fuzz/fuzz.h"

void fuzz_cifar(const uint8_t *data, size_t bytes)
{
    static const sl_cifar_kind *const kinds[] = { &sl_cifar10, &sl_cifar100_fine, &sl_cifar100_coarse };
    char path[4096];
    snprintf(path, sizeof path, "%s", fuzz_file("data_batch_1.bin", data, bytes));
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        uint8_t *pixels = NULL;
        int32_t *labels = NULL;
        int64_t count = 0;
        if (fuzz_accepted(sl_cifar_append(NULL, path, kinds[k], &pixels, &labels, &count))) {
            size_t record = (size_t)kinds[k]->label_bytes + 3072;
            FUZZ_CHECK((size_t)count * record == bytes);
            for (int64_t i = 0; i < count; i++) {
                const uint8_t *planes = data + (size_t)i * record + kinds[k]->label_bytes;
                FUZZ_CHECK(labels[i] >= 0 && labels[i] < kinds[k]->classes);
                for (int p = 0; p < 1024; p++) FUZZ_CHECK(pixels[i * 3072 + 3 * p + 1] == planes[1024 + p]);
            }
        }
        sl_free(pixels);
        sl_free(labels);
    }
}
