/* mock_cudnn.h: what the test of cudnn_conv.c asks of modules/mock_cudnn.c. */
#ifndef SLUICE_TEST_MOCK_CUDNN_H
#define SLUICE_TEST_MOCK_CUDNN_H

typedef struct mock_cudnn_state {
    int handles, objects;  /* there now */
    int heuristics, packs; /* asked, and made, so far */
    int engine;            /* which one ran last */
    void *stream;          /* of the handle */
    const void *workspace; /* of the last run */
    int refusal;           /* status of all heuristics; 0: none */
} mock_cudnn_state;

mock_cudnn_state *mock_cudnn(void);

/* Of the engines that the heuristic names, best first, the one that may be taken, and the tf32 one before it, which may
 * where tf32 may. */
enum { MOCK_TF32_ENGINE = 6, MOCK_GOOD_ENGINE = 7 };

#endif
