/* A bridge of two devices by libpcap, with a source and a sink of another kind at its sides, all in one thread:
 *     bridge netmap|packet ONE LEFT RIGHT OTHER SIZE one|both
 * LEFT and RIGHT are libpcap's devices. ONE and OTHER are netmap ports of the same switches, or devices that are wired to them. Frames go
 * from ONE to OTHER, or both ways. */
#define _GNU_SOURCE
#include <pcap/pcap.h>

#include "netmap_end.h"
#include "packet_end.h"
#include "turns.h"

enum { ONE = 1, OTHER = 2, BATCH = 256 };

static struct netmap_end netmap_one, netmap_other;
static struct packet_end packet_one, packet_other;
static pcap_t *left, *right;
static int is_netmap, is_both;

static pcap_t *device_open(const char *name) {
    char error[PCAP_ERRBUF_SIZE] = "";
    pcap_t *device = pcap_create(name, error);
    if (!device)
        FAIL("%s: %s", name, error);
    /* Linux reserves so many bytes for each frame: no frame here is longer. */
    pcap_set_snaplen(device, FRAME_MOST);
    pcap_set_promisc(device, 1);
    pcap_set_timeout(device, 1);
    /* A frame is there as soon as it has come. Linux then keeps each frame in a place of its own. */
    pcap_set_immediate_mode(device, 1);
    if (pcap_activate(device) < 0)
        FAIL("%s: %s", name, pcap_geterr(device));
    if (pcap_setdirection(device, PCAP_D_IN) < 0 || pcap_setnonblock(device, 1, error) < 0)
        FAIL("%s: %s %s", name, pcap_geterr(device), error);
    return device;
}

static void forward(u_char *to, const struct pcap_pkthdr *header, const u_char *frame) {
    /* Without room the frame is dropped, as by a switch. */
    (void)pcap_inject((pcap_t *)to, frame, header->caplen);
}

static void bridge(void) {
    if (pcap_dispatch(left, BATCH, forward, (u_char *)right) < 0 || pcap_dispatch(right, BATCH, forward, (u_char *)left) < 0)
        FAIL("dispatch: %s %s", pcap_geterr(left), pcap_geterr(right));
}

static uint64_t by_turns(uint64_t end) {
    uint64_t frames = 0;
    do {
        for (int i = 0; i < TURNS_PER_LOOK; i++) {
            is_netmap ? netmap_send(&netmap_one) : packet_send(&packet_one);
            if (is_both)
                is_netmap ? netmap_send(&netmap_other) : packet_send(&packet_other);
            bridge();
            frames += is_netmap ? netmap_receive(&netmap_other) : packet_receive(&packet_other);
            if (is_both)
                frames += is_netmap ? netmap_receive(&netmap_one) : packet_receive(&packet_one);
        }
    } while (clock_ns() < end);
    return frames;
}

/* Either end hears a broadcast of the other: the switches know both addresses, and the bridge works both ways. */
static void introduce(double end) {
    if (is_netmap) {
        netmap_introduce(&netmap_one, ONE);
        netmap_introduce(&netmap_other, OTHER);
    } else {
        packet_aim(&packet_one, 0, ONE, 60);
        packet_aim(&packet_other, 0, OTHER, 60);
        packet_send(&packet_one);
        packet_send(&packet_other);
    }
    for (int heard = 0; heard != 3;) {
        CHECK(now() < end);
        bridge();
        if (is_netmap)
            heard |= netmap_has_heard(&netmap_one, OTHER) | netmap_has_heard(&netmap_other, ONE) << 1;
        else
            heard |= packet_has_heard(&packet_one, OTHER) | packet_has_heard(&packet_other, ONE) << 1;
    }
}

int main(int count, char **words) {
    if (count != 8)
        FAIL("bridge netmap|packet ONE LEFT RIGHT OTHER SIZE one|both");
    is_netmap = strcmp(words[1], "netmap") == 0;
    is_both = strcmp(words[7], "both") == 0;
    if (is_netmap) {
        netmap_open(&netmap_one, words[2]);
        netmap_open(&netmap_other, words[5]);
    } else {
        packet_open(&packet_one, words[2]);
        packet_open(&packet_other, words[5]);
    }
    netmap_one.batch = netmap_other.batch = packet_one.batch = packet_other.batch = BATCH;
    left = device_open(words[3]);
    right = device_open(words[4]);
    introduce(now() + PATIENCE);
    unsigned size = atoi(words[6]);
    if (is_netmap) {
        netmap_aim(&netmap_one, OTHER, ONE, size, 0);
        netmap_aim(&netmap_other, ONE, OTHER, size, 0);
    } else {
        packet_aim(&packet_one, OTHER, ONE, size);
        packet_aim(&packet_other, ONE, OTHER, size);
    }
    serve(by_turns, FRAMES_BEFORE);
}
