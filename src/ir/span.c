/* span.c: the rows of tiers and links. */
#include "ir/span.h"

#include "core/bytes.h"

const sl_tier_row sl_tiers[SL_TIER_COUNT] = {
    [SL_TIER_DEVICE] = { .name = "device",
                         .setting = "memory.device",
                         .letter = 'D',
                         .in_memory = true,
                         .alignment = SL_ALIGNMENT },
    [SL_TIER_HOST] = { .name = "host",
                       .setting = "memory.host",
                       .letter = 'H',
                       .in_memory = true,
                       .alignment = SL_ALIGNMENT },
    [SL_TIER_DISK] = { .name = "disk", .setting = "memory.disk", .letter = 'S', .alignment = SL_DISK_UNIT },
};

const sl_link_row sl_links[SL_LINK_COUNT] = {
    [SL_LINK_TO_DEVICE] = { .from = SL_TIER_HOST,
                            .to = SL_TIER_DEVICE,
                            .stream = SL_STREAM_TO_DEVICE,
                            .name = "to device" },
    [SL_LINK_TO_HOST] = { .from = SL_TIER_DEVICE, .to = SL_TIER_HOST, .stream = SL_STREAM_TO_HOST, .name = "to host" },
    [SL_LINK_DISK_READ] = { .from = SL_TIER_DISK,
                            .to = SL_TIER_HOST,
                            .stream = SL_STREAM_DISK_READ,
                            .name = "from disk" },
    [SL_LINK_DISK_WRITE] = { .from = SL_TIER_HOST,
                             .to = SL_TIER_DISK,
                             .stream = SL_STREAM_DISK_WRITE,
                             .name = "to disk" },
};

sl_link sl_link_of(sl_tier from, sl_tier to)
{
    int k = 0;
    while (k < SL_LINK_COUNT && (sl_links[k].from != from || sl_links[k].to != to)) k++;
    return (sl_link)k;
}

sl_stream sl_copy_stream(sl_tier from, sl_tier to)
{
    int k = 0;
    while (k + 1 < SL_LINK_COUNT && (sl_links[k].to != to || (from != to && sl_links[k].from != from))) k++;
    return sl_links[k].stream;
}

const char *sl_tier_name(sl_tier tier)
{
    return (unsigned)tier < SL_TIER_COUNT ? sl_tiers[tier].name : "unknown";
}
