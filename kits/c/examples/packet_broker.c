/* A packet broker: each flow from one port goes to one of several others, for example to probes, and stays there while the ports stay. Frames of
 * these ports go to the one.
 *
 * `config` has the names of the ports, the one first: `in out1 out2 out3`.
 */
#include "ringway_program.h"

RINGWAY_PROGRAM(96, 256)

enum { MOST_PORTS = 64, MOST_TEXT = 4096 };

static char config[MOST_TEXT];
static uint32_t config_length;
static int32_t in = -1;
static uint32_t outs[MOST_PORTS];
static uint32_t out_count;
static uint32_t no_port;

/* Finds the ports that are there. */
RINGWAY_EXPORT(ringway_ports)
void ringway_ports(void) {
    bool is_first = true;
    in = -1;
    out_count = 0;
    for (uint32_t begin = 0, end; begin < config_length; begin = end + 1) {
        for (end = begin; end < config_length && config[end] > ' ';)
            end++;
        if (end == begin)
            continue;
        int32_t port = ringway_port_by_name(config + begin, end - begin);
        if (is_first)
            in = port;
        else if (port >= 0 && out_count < MOST_PORTS)
            outs[out_count++] = (uint32_t)port;
        is_first = false;
    }
}

RINGWAY_EXPORT(ringway_start)
int32_t ringway_start(void) {
    ringway_begin();
    no_port = ringway_drop_reason(RINGWAY_TEXT("no_port"));
    config_length = ringway_config(config, MOST_TEXT);
    if (config_length == 0 || config_length > MOST_TEXT) {
        ringway_log(RINGWAY_TEXT("config: write names of ports, at most 4096 bytes: \"in out1 out2\""));
        return 1;
    }
    return 0;
}

/* The part of a flow that all its frames have: without ports if they are fragments. */
static uint64_t hash_of(const uint8_t *head, uint32_t length) {
    struct ringway_flow flow;
    if (!ringway_flow(head, length, &flow))
        return ringway_hash(head, 12, 0);
    flow.transport = 0;
    if (flow.is_fragment)
        flow.source_port = flow.destination_port = 0;
    flow.is_fragment = flow.is_later_fragment = false;
    return ringway_hash(&flow, sizeof flow, 0);
}

RINGWAY_EXPORT(ringway_frames)
void ringway_frames(uint32_t count, uint32_t port) {
    for (uint32_t i = 0; i < count; i++) {
        if ((int32_t)port != in)
            ringway_verdicts[i] = in < 0 ? RINGWAY_DROP(no_port) : RINGWAY_PORT((uint32_t)in);
        else if (out_count == 0)
            ringway_verdicts[i] = RINGWAY_DROP(no_port);
        else
            ringway_verdicts[i] =
                RINGWAY_PORT(outs[hash_of(ringway_heads[i], ringway_frame[i].head_bytes) % out_count]);
    }
}
