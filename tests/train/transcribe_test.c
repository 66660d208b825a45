/* transcribe_test.c: the likeliest classes of frames become labels: repetitions are one, blanks part equal ones. */
#include "train/transcribe.h"

#include "test.h"

enum { CLASSES = 4, FRAMES = 10 };

/* Logits whose largest is the class that is wanted. */
static int64_t understood(const int *classes, int64_t frames, int32_t *out)
{
    float logits[FRAMES * CLASSES];
    for (int64_t t = 0; t < frames; t++)
        for (int c = 0; c < CLASSES; c++) logits[t * CLASSES + c] = c == classes[t] ? 2.0f : -(float)c;
    return sl_ctc_greedy(logits, frames, CLASSES, 0, out);
}

TEST(repetitions_are_one_label_and_blanks_part_equal_ones)
{
    const int all[FRAMES] = { 0, 1, 1, 0, 1, 2, 2, 3, 0, 0 };
    const int32_t wanted[] = { 1, 1, 2, 3 };
    int32_t found[FRAMES];
    CHECK_EQ(understood(all, FRAMES, found), 4);
    for (int i = 0; i < 4; i++) CHECK_EQ(found[i], wanted[i]);
    CHECK_EQ(understood(all, 0, found), 0);
    CHECK_EQ(understood(all, 1, found), 0);
    CHECK_EQ(understood(all + 1, 2, found), 1);
}

TEST(of_equal_logits_the_first_class_counts)
{
    const float logits[2 * CLASSES] = { 1, 1, 0, 0, 0, 2, 2, 1 };
    int32_t found[2];
    CHECK_EQ(sl_ctc_greedy(logits, 2, CLASSES, 0, found), 1);
    CHECK_EQ(found[0], 1);
}

TEST(labels_end_at_the_first_below_zero)
{
    const int32_t labels[] = { 3, 1, -1, -1 };
    CHECK_EQ(sl_count_labels(labels, 4), 2);
    CHECK_EQ(sl_count_labels(labels, 2), 2);
    CHECK_EQ(sl_count_labels(labels + 2, 2), 0);
    CHECK_EQ(sl_count_labels(labels, 0), 0);
}
