/* emulated.h: the CUDA backend without a GPU: the kernels of src/backend/cuda, compiled for emulator.h. */
#ifndef SLUICE_TEST_EMULATED_H
#define SLUICE_TEST_EMULATED_H

#include "backend/backend.h"

/* Both tiers are RAM, guarded like the CPU backend's. Everything happens at once in the caller's thread: kernels of the
 * GPU's streams in the emulator, those of the host's streams on the CPU, as the CUDA device does it. */
extern const sl_backend sl_emulated_cuda_backend;

#endif
