/* double_device.h: a device of two arenas in files and one thread, for tests of communicators.
 *
 * It does what sl_comm needs of a device and nothing else, with as little as possible between the test and a fault. */
#ifndef SLUICE_TEST_DOUBLE_DEVICE_H
#define SLUICE_TEST_DOUBLE_DEVICE_H

#include "comm/comm.h"

/* Submitted work runs in a thread of the device, as it does on real ones. Entries for computing are NULL. */
extern const sl_backend double_backend;

/* Arenas of `bytes` bytes each, in the files that the communicator offers; or private ones. */
sl_device *double_open(sl_comm *c, uint64_t bytes);
void double_close(sl_device *d);
unsigned char *double_at(sl_device *d, sl_span s);
/* Any thread: as if work that was submitted had failed. */
void double_fail(sl_device *d, sluice_status status, const char *message);

#endif
