/* double_lane.h: the device of double_device.h as a GPU: its COMM stream as communicators of GPUs use it
 * (backend/cuda/lane.h), with the real kernel on the emulation of CUDA where that is built. */
#ifndef SLUICE_TEST_DOUBLE_LANE_H
#define SLUICE_TEST_DOUBLE_LANE_H

#include "backend/cuda/lane.h"

extern const sl_lane_ops double_lane_ops;

#endif
