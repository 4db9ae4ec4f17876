/* A source and sink of frames at a packet socket of a network device: batches by sendmmsg and recvmmsg. */
#ifndef PACKET_END_H
#define PACKET_END_H

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/socket.h>

#include "frame.h"
#include "port.h"

enum { BATCH_MOST = 1024, RECEIVE_BUFFER = 64 << 20 };

struct packet_end {
    int fd;
    unsigned size, batch;
    char frame[FRAME_MOST];
    struct mmsghdr out[BATCH_MOST], in[BATCH_MOST];
    struct iovec out_part, in_parts[BATCH_MOST];
    char (*buffers)[FRAME_MOST];
    char first_bytes;
};

static inline void packet_open(struct packet_end *end, const char *device) {
    memset(end, 0, sizeof(*end));
    /* Without a protocol until it is bound: no frame of another device may come. */
    end->fd = socket(AF_PACKET, SOCK_RAW, 0);
    CHECK(end->fd >= 0);
    int on = 1, bytes = RECEIVE_BUFFER;
    CHECK(setsockopt(end->fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on)) == 0);
    CHECK(setsockopt(end->fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) == 0);
    CHECK(setsockopt(end->fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) == 0);
#ifdef PACKET_IGNORE_OUTGOING
    (void)setsockopt(end->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on));
#endif
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = if_nametoindex(device)};
    CHECK(address.sll_ifindex != 0);
    CHECK(bind(end->fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    end->buffers = calloc(BATCH_MOST, FRAME_MOST);
    CHECK(end->buffers != NULL);
    for (int i = 0; i < BATCH_MOST; i++) {
        end->in_parts[i] = (struct iovec){end->buffers[i], FRAME_MOST};
        end->in[i].msg_hdr = (struct msghdr){.msg_iov = &end->in_parts[i], .msg_iovlen = 1};
        end->out[i].msg_hdr = (struct msghdr){.msg_iov = &end->out_part, .msg_iovlen = 1};
    }
}

static inline void packet_aim(struct packet_end *end, int to, int from, unsigned size) {
    frame_make(end->frame, size, to, from);
    end->size = size;
    end->out_part = (struct iovec){end->frame, size};
}

static inline unsigned packet_send(struct packet_end *end) {
    int count = sendmmsg(end->fd, end->out, end->batch, MSG_DONTWAIT);
    if (count < 0 && errno != EAGAIN && errno != ENOBUFS)
        FAIL("sendmmsg: errno %d", errno);
    return count < 0 ? 0 : count;
}

static inline unsigned packet_receive(struct packet_end *end) {
    int count = recvmmsg(end->fd, end->in, end->batch, MSG_DONTWAIT, NULL);
    if (count < 0 && errno != EAGAIN)
        FAIL("recvmmsg: errno %d", errno);
    for (int i = 0; i < count; i++)
        end->first_bytes ^= end->buffers[i][0];
    return count < 0 ? 0 : count;
}

static inline int packet_has_heard(struct packet_end *end, int from) {
    int heard = 0;
    for (unsigned count = packet_receive(end); count > 0; count--)
        heard |= frame_is_from(end->buffers[count - 1], from);
    return heard;
}

#endif
