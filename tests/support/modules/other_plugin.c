/* other_plugin.c: a CUDA part that another build of sluice left behind. */
#include "backend/cuda_plugin.h"

extern const sl_cuda_plugin exported __asm__(SL_CUDA_PLUGIN_SYMBOL);
__attribute__((visibility("default"))) const sl_cuda_plugin exported = { .version = "0.0.7" };
