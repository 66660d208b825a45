/* show_pictures.c: the images of a folder as training would see them in evaluation, as bytes of fp32, for tests/referees/images.py.
 *
 *     show_pictures FOLDER SIDE CROP CHANNELS > floats */
#include <stdio.h>
#include <stdlib.h>

#include "data/data.h"

int main(int argc, char **argv)
{
    sluice_data *d;
    sl_image_size size;
    int64_t valid;
    int32_t target;
    if (argc != 5) return 2;
    const sl_data_options o = { .path = argv[1],
                                .image_size = atoi(argv[2]),
                                .crop = argv[3],
                                .channels = atoi(argv[4]),
                                .normalize = SL_NORMALIZE_AUTO };
    if (sl_data_folder(&o, &d) != SLUICE_OK || !sl_data_image(d, &size)) {
        fprintf(stderr, "%s\n", sluice_error());
        return 1;
    }
    int64_t elements = size.height * size.width * size.channels, count = d->ops->samples(d, SL_SPLIT_TRAIN);
    float *x = malloc((size_t)elements * sizeof *x);
    const sl_data_field fields[] = { { "x", SLUICE_F32, elements, x }, { "target", SLUICE_I32, 1, &target } };
    for (int64_t i = 0; x != NULL && i < count; i++) {
        if (d->ops->fill_eval(d, SL_SPLIT_TRAIN, i, 1, fields, 2, &valid) != SLUICE_OK) {
            fprintf(stderr, "%s\n", sluice_error());
            return 1;
        }
        fwrite(x, sizeof *x, (size_t)elements, stdout);
    }
    free(x);
    sluice_data_destroy(d);
    return 0;
}
