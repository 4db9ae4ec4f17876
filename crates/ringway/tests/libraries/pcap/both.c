/* A program with both interfaces: a netmap port and a libpcap handle on one switch, each of which hears the other. */
#include <pcap/pcap.h>

#include "../netmap/port.h"

int main(void) {
    char errbuf[PCAP_ERRBUF_SIZE], frame[60];
    struct port netmap = port_open("lan0:n");
    pcap_t *pcap = pcap_open_live("lan0:p", 100, 1, 0, errbuf);
    if (pcap == NULL)
        FAIL("%s", errbuf);
    send_frames(&netmap, 1, 0, 100);
    for (uint32_t got = 0; got < 100; got++) {
        struct pcap_pkthdr *header;
        const u_char *data;
        CHECK(pcap_next_ex(pcap, &header, &data) == 1 && header->len == 60);
        CHECK(frame_sequence((const char *)data) == got);
    }
    for (uint32_t sent = 0; sent < 100; sent++) {
        frame_write(frame, 2, sent);
        CHECK(pcap_inject(pcap, frame, sizeof frame) == (int)sizeof frame);
    }
    expect(&netmap, 0, 100);
    pcap_close(pcap);
    port_close(&netmap);
    puts("both");
    return 0;
}
