/* machine.h: what this machine offers: memory that may be used, rates by default or measured. */
#ifndef SL_TRAIN_MACHINE_H
#define SL_TRAIN_MACHINE_H

#include "core/cpu.h"
#include "plan/plan.h"

/* Bytes this process may still take: the least of available memory and what its cgroups (v1, v2) leave. */
uint64_t sl_memory_available(void);
/* Resident bytes of this process now. */
uint64_t sl_memory_resident(void);
/* Most resident bytes this process ever had. */
uint64_t sl_memory_high_water(void);
/* Rates by class of CPU and number of threads; nothing is measured, so that plans are the same from run to run. */
void sl_machine_describe(sl_isa isa, int threads, sl_machine *out);
/* Rates by micro-benchmarks of about a second. */
sluice_status sl_machine_measure(sl_isa isa, int threads, sl_machine *out);
/* Fills in the budgets that are 0 and caps those that exceed the machine: `available` less 5 %, less the overhead still
 * to come. On the CPU both tiers are RAM, so together they may not take more than that either. */
void sl_machine_budgets(sl_plan_options *options, uint64_t available);
/* The instruction path of this process: SLUICE_CPU, or the best there is. The only place that reads it. */
sluice_status sl_machine_isa(sl_isa *out);

#endif
