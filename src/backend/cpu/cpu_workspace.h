/* cpu_workspace.h: memory that kernels of the CPU backend need for the length of a call, beyond their threads' scratch. */
#ifndef SL_BACKEND_CPU_CPU_WORKSPACE_H
#define SL_BACKEND_CPU_CPU_WORKSPACE_H

#include "backend/backend.h"

uint64_t sl_cpu_workspace(const sl_call *call); /* sl_backend.workspace */

#endif
