/* cuda_backend.h: the table of the CUDA backend, for plugin.c. */
#ifndef SL_BACKEND_CUDA_CUDA_BACKEND_H
#define SL_BACKEND_CUDA_CUDA_BACKEND_H

#include "backend/backend.h"

extern const sl_backend sl_cuda_backend;

#endif
