/* rates.c: seconds from work: the default machine, and interpolation between measured points. */
#include <math.h>

#include "plan/rates.h"

void sl_machine_default(sl_machine *m)
{
    *m = (sl_machine){ .gemm_flops = 100e9,
                       .attention_fraction = 1,
                       .vector_flops = 10e9,
                       .device_bytes_per_second = 20e9,
                       .update_bytes_per_second = 15e9,
                       .link_bytes_per_second = { [SL_LINK_TO_DEVICE] = 8e9,
                                                  [SL_LINK_TO_HOST] = 8e9,
                                                  [SL_LINK_DISK_READ] = 3e9, /* a plain NVMe drive */
                                                  [SL_LINK_DISK_WRITE] = 1.5e9 },
                       .disk_latency = 100e-6,
                       .disk_read_slowdown = 0.6,
                       .disk_write_slowdown = 0.6,
                       .disk_processor = 0.2, /* checksums at 17 GB/s, and requests */
                       .comm_bytes_per_second = 4e9,
                       .comm_latency = 30e-6,
                       .link_latency = 2e-6,
                       .kernel_latency = 2e-6,
                       .copies_overlap = true };
}

void sl_machine_set_links(sl_machine *m, double bytes_per_second)
{
    for (int k = 0; k < SL_LINK_COUNT; k++)
        if (sl_tiers[sl_links[k].from].in_memory && sl_tiers[sl_links[k].to].in_memory)
            m->link_bytes_per_second[k] = bytes_per_second;
}

bool sl_is_matrix_op(sl_op op)
{
    return sl_ops[op].rate != SL_CLASS_VECTOR;
}

double sl_rates_seconds(const sl_rates *r, double work, double latency)
{
    const sl_rate_point *p = r->points, *last = &r->points[r->count - 1];
    if (work <= 0) return latency;
    if (work < p->work) return latency + p->seconds / p->work * work;
    if (work > last->work) return latency + last->seconds / last->work * work;
    while (p < last && p[1].work < work) p++;
    if (p == last || p[0].work == p[1].work) return p->seconds / p->work * work;
    /* the logarithm of the rate is linear in that of the work exactly where the logarithm of the seconds is */
    double share = log(work / p[0].work) / log(p[1].work / p[0].work);
    return p[0].seconds * pow(p[1].seconds / p[0].seconds, share);
}
