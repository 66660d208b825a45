/* mock_nccl.h: what a stream is to the NCCL of mock_nccl.c: somebody who does what was queued, in order, later. */
#ifndef SLUICE_TEST_MOCK_NCCL_H
#define SLUICE_TEST_MOCK_NCCL_H

typedef struct mock_stream {
    void (*enqueue)(struct mock_stream *s, void (*work)(void *user), void *user);
} mock_stream;

#endif
