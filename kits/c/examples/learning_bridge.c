/* A learning bridge: learns where addresses are, sends frames to known ones there, and all others to all ports. */
#include "ringway_program.h"

/* Destination and source address, and some more: multiples of 16 bytes cost least. */
RINGWAY_PROGRAM(16, 256)

static uint32_t group_source;

RINGWAY_EXPORT(ringway_start)
int32_t ringway_start(void) {
    ringway_begin();
    group_source = ringway_drop_reason(RINGWAY_TEXT("group_source"));
    return 0;
}

static uint32_t verdict(const uint8_t *head, uint16_t vlan) {
    const uint8_t *to = head, *from = head + 6;
    if (from[0] & 1)
        return RINGWAY_DROP(group_source);
    ringway_mac_learn(from, vlan);
    int32_t port = ringway_mac_lookup(to, vlan);
    return port < 0 ? RINGWAY_FLOOD : RINGWAY_PORT((uint32_t)port);
}

static bool is_same_flow(uint32_t a, uint32_t b) {
    return ringway_frame[a].vlan == ringway_frame[b].vlan && ringway_same(ringway_heads[a], ringway_heads[b], 12);
}

RINGWAY_EXPORT(ringway_frames)
void ringway_frames(uint32_t count, uint32_t port) {
    for (uint32_t i = 0; i < count; i++) {
        /* Frames of one flow follow one another: the table is asked once for them. */
        bool is_known = i > 0 && is_same_flow(i, i - 1);
        ringway_verdicts[i] = is_known ? ringway_verdicts[i - 1] : verdict(ringway_heads[i], ringway_frame[i].vlan);
    }
}
