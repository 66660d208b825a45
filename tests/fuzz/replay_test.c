/* replay_test.c: every input of the corpus through its target, without libFuzzer: what was once found stays mended. */
#include <dirent.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "support/fuzz/fuzz.h"
#include "test.h"

#define CORPUS SLUICE_SOURCE_DIR "/tests/fuzz/corpus/"

static void replay(const char *target, void (*feed)(const uint8_t *data, size_t bytes))
{
    char folder[1024], path[2048], *data;
    size_t bytes;
    int count = 0;
    snprintf(folder, sizeof folder, "%s%s", CORPUS, target);
    DIR *inputs = opendir(folder);
    CHECK_THAT(inputs != NULL, "%s is missing", folder);
    if (inputs == NULL) return;
    for (const struct dirent *input; (input = readdir(inputs)) != NULL;) {
        if (input->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, input->d_name);
        CHECK_EQ(sl_file_read_all(path, 1 << 24, &data, &bytes), SLUICE_OK);
        feed((const uint8_t *)data, bytes);
        sl_free(data);
        count++;
    }
    closedir(inputs);
    CHECK_THAT(count > 0, "%s is empty", folder);
}

#define REPLAY(name_)                                                                                                  \
    TEST(corpus_of_##name_##_is_read_as_it_should)                                                                     \
    {                                                                                                                  \
        replay(#name_, fuzz_##name_);                                                                                  \
    }
FUZZ_TARGETS(REPLAY)
