/*
 * ringway.h: process ports of a Ringway switch, and LWEP. ringway(3) and ringway-lwep(3) are the manual.
 *
 * Functions that return int return 0 or a number on success and a negative RINGWAY_E_* code on failure; ringway_strerror() has its
 * text. NULL for a port or for memory that is needed is RINGWAY_E_ARGUMENT, and so is a ring that does not exist.
 *
 * Threads: any thread may use a port, one at a time. Different threads may use different rings of a port at the same time, with the
 * functions that take a ring; the functions that take none use all rings, unless their comment says otherwise. An endpoint (ringway_lwep)
 * is used by one thread at a time.
 *
 * No function unwinds into the caller: a defect of the library ends the process by abort().
 */
#ifndef RINGWAY_H
#define RINGWAY_H


#include <stddef.h>
#include <stdint.h>

/* The value of a struct ringway_shape with the default of each member. */
#define RINGWAY_SHAPE_INIT { sizeof(struct ringway_shape), 0, 0, 0, 0, 0, 0 }

/* The value of a struct ringway_lwep_options with the default of each member. */
#define RINGWAY_LWEP_OPTIONS_INIT \
    { sizeof(struct ringway_lwep_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}, {0, 0}, 0, 0, 0 }


/*
 A pointer is NULL, a ring does not exist, or a number is out of range.
 */
#define RINGWAY_E_ARGUMENT -1

/*
 The name is not SWITCH:PORT (ringway_attach), or not that of a link (ringway_lwep_attach).
 */
#define RINGWAY_E_NAME -2

/*
 The shape is not possible.
 */
#define RINGWAY_E_SHAPE -3

/*
 No switch listens at the socket.
 */
#define RINGWAY_E_UNREACHABLE -4

/*
 The switch refused the request. The text says why: the port has a client already, or the name is not allowed.
 */
#define RINGWAY_E_REFUSED -5

/*
 The switch has ended the port, or is gone; the interface of a link is down or gone. ringway_ended() and ringway_lwep_ended() say why.
 */
#define RINGWAY_E_ENDED -6

/*
 The dialogue with the switch failed, or a system call did.
 */
#define RINGWAY_E_SYSTEM -7

/*
 The shared memory differs from what the switch announced, or the program's memory has no room for the buffers of a port.
 */
#define RINGWAY_E_MEMORY -8

/*
 The frame is longer than a ring takes (ringway_push), or than the caller's buffer (ringway_pop); the message is longer than the peer
 takes (ringway_lwep_send).
 */
#define RINGWAY_E_LENGTH -9

/*
 The offload header contradicts itself.
 */
#define RINGWAY_E_OFFLOAD -10

/*
 A signal has ended the wait.
 */
#define RINGWAY_E_INTERRUPTED -11

/*
 There is no such connection, or its end was announced.
 */
#define RINGWAY_E_OVER -12

/*
 The endpoint has as many connections as its options allow, or the identifier of a connection is in use.
 */
#define RINGWAY_E_CONNECTIONS -13

/*
 The network interface or the NIC of a link cannot be used. The text says why, and what would help.
 */
#define RINGWAY_E_INTERFACE -14

/*
 The rest of a long message has to be sent before anything else (ringway_lwep_send_long).
 */
#define RINGWAY_E_IN_MESSAGE -15

/*
 A flag of a slot: the frame continues in the next slot.
 */
#define RINGWAY_MORE 1

/*
 Bytes of the offload header before each frame of a port with `offload`.
 */
#define RINGWAY_OFFLOAD_BYTES 12

/*
 A kind of segmentation: none.
 */
#define RINGWAY_GSO_NONE 0

/*
 A kind of segmentation: TCP over IPv4.
 */
#define RINGWAY_GSO_TCP4 1

/*
 A kind of segmentation: UDP into IP fragments.
 */
#define RINGWAY_GSO_UDP_FRAGMENTS 3

/*
 A kind of segmentation: TCP over IPv6.
 */
#define RINGWAY_GSO_TCP6 4

/*
 A kind of segmentation: UDP into datagrams.
 */
#define RINGWAY_GSO_UDP 5

/*
 A kind of event: the peer has accepted a connection.
 */
#define RINGWAY_LWEP_CONNECTED 1

/*
 A kind of event: a peer has connected to `service` of this endpoint.
 */
#define RINGWAY_LWEP_ACCEPTED 2

/*
 A kind of event: a message of `length` bytes at `data`.
 */
#define RINGWAY_LWEP_MESSAGE 3

/*
 A kind of event: a connection that had no room for a message has room again.
 */
#define RINGWAY_LWEP_ROOM 4

/*
 A kind of event: the peer sends no further messages. The other direction is as before.
 */
#define RINGWAY_LWEP_FINISHED 5

/*
 A kind of event: the connection is over, for `reason`. `acknowledged` own messages have arrived at the peer, `received` messages of
 the peer have arrived here; an orderly end counts as a message.
 */
#define RINGWAY_LWEP_ENDED 6

/*
 A reason: both ends have closed the connection.
 */
#define RINGWAY_LWEP_CLOSED 1

/*
 A reason: nobody listens for this service at the peer.
 */
#define RINGWAY_LWEP_NOBODY_LISTENS 2

/*
 A reason: the peer has no room for another connection.
 */
#define RINGWAY_LWEP_NO_ROOM 3

/*
 A reason: the peer has ended the connection.
 */
#define RINGWAY_LWEP_RESET 4

/*
 A reason: the peer does not answer.
 */
#define RINGWAY_LWEP_NO_ANSWER 5

/*
 A reason: a message is longer than its receiver takes.
 */
#define RINGWAY_LWEP_TOO_LONG 6

/*
 A reason: the peer speaks another version of LWEP.
 */
#define RINGWAY_LWEP_OTHER_VERSION 7

/*
 A reason: the peer does not know the connection any more.
 */
#define RINGWAY_LWEP_UNKNOWN 8

/*
 A reason: this end has aborted the connection.
 */
#define RINGWAY_LWEP_ABORTED 9

/*
 A part of a memory that the program has to itself. ringway_area_take() and ringway_area_take_at() take it, ringway_area_free() ends
 it.
 */
typedef struct ringway_area ringway_area;

/*
 An LWEP endpoint at a link: a process port, or a network interface. ringway_lwep_attach() makes it, ringway_lwep_free() ends it.
 */
typedef struct ringway_lwep ringway_lwep;

/*
 Memory of the program for its ports. ringway_memory_new() and ringway_memory_from_fd() make it, ringway_memory_free() ends it.
 */
typedef struct ringway_memory ringway_memory;

/*
 A process port. ringway_attach() makes it, ringway_detach() ends it.
 */
typedef struct ringway_port ringway_port;

/*
 What remains to be done before a frame can go onto a wire.
 */
typedef struct ringway_offload {
  /*
   1: the ones' complement sum from `csum_start` to the frame's end goes `csum_offset` bytes after `csum_start`. The sum of the
   pseudo-header is there now.
   */
  uint8_t needs_csum;
  /*
   1: a TCP frame that reports congestion; only its first segment has CWR set.
   */
  uint8_t ecn;
  /*
   One of RINGWAY_GSO_*.
   */
  uint16_t gso;
  /*
   Most bytes of a segment after its headers.
   */
  uint16_t gso_size;
  /*
   Bytes of all headers of a frame to be segmented. The switch sets it, and ignores it from senders.
   */
  uint16_t header_length;
  /*
   Offset in the frame at which the summed bytes begin.
   */
  uint16_t csum_start;
  /*
   Offset of the checksum from `csum_start`.
   */
  uint16_t csum_offset;
} ringway_offload;

/*
 Numbers of rings and slots, and number and size of buffers. 0 stands for the default.
 */
typedef struct ringway_shape {
  /*
   sizeof(struct ringway_shape), set by RINGWAY_SHAPE_INIT. Later versions of the library may append members.
   */
  size_t size;
  /*
   Transmit rings: 1 to 16 (1).
   */
  uint32_t tx_rings;
  /*
   Receive rings: 1 to 16 (1). The switch spreads flows over them.
   */
  uint32_t rx_rings;
  /*
   Slots of each transmit ring: 4 to 32768 (512). One of them is always empty.
   */
  uint32_t tx_slots;
  /*
   Slots of each receive ring: 4 to 32768 (512). One of them is always empty.
   */
  uint32_t rx_slots;
  /*
   Bytes of a buffer: 128 to 65472, a multiple of 64 (2112).
   */
  uint32_t buffer_size;
  /*
   1: every frame begins with RINGWAY_OFFLOAD_BYTES bytes of offload header, in both directions.
   */
  uint32_t offload;
} ringway_shape;

/*
 A frame in the caller's memory.
 */
typedef struct ringway_frame {
  /*
   The bytes.
   */
  const void *data;
  /*
   Number of bytes.
   */
  size_t length;
} ringway_frame;

/*
 A slot of a ring: a frame, or a part of one.
 */
typedef struct ringway_slot {
  /*
   The bytes, in shared memory.
   */
  uint8_t *data;
  /*
   Number of bytes. ringway_reserve() stores the size of the buffer here.
   */
  uint32_t length;
  /*
   RINGWAY_MORE, or 0.
   */
  uint32_t flags;
} ringway_slot;

/*
 Consecutive slots of a ring as they are in shared memory. Use it by the ringway_run_*() functions of this header.
 */
typedef struct ringway_run {
  /*
   Two words for each slot: the first has the number of the buffer in bits 0 to 31, the length in bits 32 to 47, flags in bits 48
   to 63 (32: the frame continues in the next slot).
   */
  uint64_t (*slots)[2];
  /*
   Buffer 0.
   */
  uint8_t *buffers;
  /*
   Number of slots.
   */
  uint32_t count;
  /*
   Number of bytes of a buffer.
   */
  uint32_t buffer_size;
  /*
   Bytes from one number of a buffer to the next.
   */
  uint32_t stride;
} ringway_run;

/*
 What ringway_drain() calls for each frame: with the caller's context, and the bytes of the frame, which are valid until it
 returns. It must return, and not by an exception or longjmp().
 */
typedef void (*ringway_take)(void *context, const uint8_t *frame, size_t length);

/*
 How an endpoint behaves. 0 stands for the default, which is in parentheses.
 */
typedef struct ringway_lwep_options {
  /*
   sizeof(struct ringway_lwep_options), set by RINGWAY_LWEP_OPTIONS_INIT. Later versions of the library may append members.
   */
  size_t size;
  /*
   Slots of the transmit ring and of the receive ring: 4 to 32768 (1024 of a process port, 512 of other links).
   */
  uint32_t slots;
  /*
   Bytes of a buffer: 128 to 65472, a multiple of 64 (2112 of a process port, 2048 of other links). Header and checksum take 52 bytes
   of it, and an offload header 66. A dev: link with an address needs 65549 or more, an xdp: link 2048 or 4096.
   */
  uint32_t buffer_size;
  /*
   Buffers for messages to send, and for messages that wait or are kept: up to 65536 (4096 of a process port, 2048 of other links).
   */
  uint32_t buffers;
  /*
   1: a process port or a NIC of pci: takes and gives frames that are still to be segmented, for ringway_lwep_reserve_many(). A dev:
   link does so with an address, an xdp: link never.
   */
  uint32_t offload;
  /*
   Most connections of one station; there is room for half as many more (1024).
   */
  uint32_t connections;
  /*
   Messages of each connection that are taken before the program has had them: 8 to 4096 (1024).
   */
  uint32_t window;
  /*
   Messages of each connection that may be queued and not acknowledged (1024).
   */
  uint32_t queue;
  /*
   1: frames have checksums (CRC-32C); so have those of the peers.
   */
  uint32_t checksums;
  /*
   Most bytes of a long message that is taken (none is).
   */
  uint32_t long_message;
  /*
   Bytes of the messages that a segmented buffer becomes (1440).
   */
  uint32_t segment;
  /*
   Connections that peers have asked for and not completed: more displace the oldest (64).
   */
  uint32_t half_open;
  /*
   The endpoint's own IPv4 address, which no kernel has, for segmented buffers; 0.0.0.0: no such frames are taken.
   */
  uint8_t address[4];
  /*
   The address to use at a process port, if none is bound to it. Other links have the interface's.
   */
  uint8_t mac[6];
  /*
   0.
   */
  uint8_t reserved[2];
  /*
   An acknowledgement waits at most so long for a message that carries it, in nanoseconds (25000).
   */
  uint64_t acknowledge_within_ns;
  /*
   A connection without traffic for so long asks whether its peer is there, in nanoseconds (never).
   */
  uint64_t keep_alive_ns;
  /*
   A connection attempt ends without an answer for so long, in nanoseconds (5000000000).
   */
  uint64_t connect_within_ns;
} ringway_lwep_options;

/*
 State of a connection.
 */
typedef struct ringway_lwep_status {
  /*
   The peer's address.
   */
  uint8_t mac[6];
  /*
   1 when messages flow: the handshake is over.
   */
  uint8_t is_open;
  /*
   1 if buffers to this peer can be segmented.
   */
  uint8_t is_segmented;
  /*
   Most bytes of a message in one frame to this peer.
   */
  uint64_t message;
  /*
   Messages that are queued or under way.
   */
  uint64_t queued;
  /*
   Own messages that the peer has acknowledged.
   */
  uint64_t acknowledged;
  /*
   The peer's messages that have arrived without a gap.
   */
  uint64_t received;
  /*
   The smoothed round trip in nanoseconds; 0 before it is measured.
   */
  uint64_t round_trip_ns;
} ringway_lwep_status;

/*
 Frames and messages since the endpoint was made. Every frame that is not used is counted under its reason.
 */
typedef struct ringway_lwep_counters {
  /*
   Messages that were sent for the first time, fragments counted one by one.
   */
  uint64_t messages_sent;
  /*
   Messages that were given to the program, or added to a long one.
   */
  uint64_t messages_received;
  /*
   Frames that were sent, with repetitions, acknowledgements and all others.
   */
  uint64_t frames_sent;
  /*
   Frames that were received.
   */
  uint64_t frames_received;
  /*
   Messages that were sent again.
   */
  uint64_t repeated;
  /*
   Retransmission timeouts.
   */
  uint64_t timeouts;
  /*
   Messages that had arrived before.
   */
  uint64_t duplicates;
  /*
   Frames that are not LWEP.
   */
  uint64_t foreign;
  /*
   Frames whose header is cut, contradicts itself, or is unknown.
   */
  uint64_t malformed;
  /*
   Frames of another version.
   */
  uint64_t other_version;
  /*
   Frames with a wrong checksum, or without one on a connection with checksums.
   */
  uint64_t bad_checksum;
  /*
   Frames for no connection, or with a wrong secret or source.
   */
  uint64_t no_connection;
  /*
   Messages with numbers outside the window.
   */
  uint64_t outside_window;
  /*
   Acknowledgements of what was never sent.
   */
  uint64_t bad_acknowledgement;
  /*
   Messages for which there was no free buffer.
   */
  uint64_t no_buffer;
  /*
   Requests for connections that were refused or displaced.
   */
  uint64_t refused;
  /*
   Answers to strangers that the rate limit has suppressed.
   */
  uint64_t unanswered;
} ringway_lwep_counters;

/*
 What has happened. Members that the kind does not name are 0. Later versions may have further kinds and reasons.
 */
typedef struct ringway_lwep_event {
  /*
   One of RINGWAY_LWEP_CONNECTED to RINGWAY_LWEP_ENDED.
   */
  uint32_t kind;
  /*
   Number of the connection. It may be used again after RINGWAY_LWEP_ENDED.
   */
  uint32_t connection;
  /*
   The message, where it was received.
   */
  const uint8_t *data;
  /*
   Number of its bytes.
   */
  size_t length;
  /*
   The service that a peer has connected to.
   */
  uint32_t service;
  /*
   Why the connection is over: one of RINGWAY_LWEP_CLOSED to RINGWAY_LWEP_ABORTED.
   */
  uint32_t reason;
  /*
   Number of own messages that the peer has acknowledged.
   */
  uint64_t acknowledged;
  /*
   Number of the peer's messages that have arrived without a gap.
   */
  uint64_t received;
} ringway_lwep_event;

/*
 What ringway_lwep_drain() calls for each event: with the caller's context, and the event, which is valid with its message until it
 returns. It must return, and not by an exception or longjmp().
 */
typedef void (*ringway_lwep_take)(void *context, const struct ringway_lwep_event *event);

/*
 A buffer of an endpoint that the program has: to write a message, or with one that was kept, which is only read.
 */
typedef struct ringway_lwep_buffer {
  /*
   The bytes.
   */
  uint8_t *data;
  /*
   Number of bytes.
   */
  size_t length;
  /*
   The buffer's number, for the functions that take it back.
   */
  uint64_t handle;
} ringway_lwep_buffer;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Returns the text of an error code. The text is constant.
 */
const char *ringway_strerror(int code);

/*
 Writes RINGWAY_OFFLOAD_BYTES bytes of header in front of a frame in a reserved buffer. `offload` may be NULL: then nothing is left
 to be done. Returns 0.
 */
int ringway_offload_encode(const struct ringway_offload *offload,
                           void *header);

/*
 Reads the header in front of a received frame into `*offload`. Returns 1 if something is left to be done, 0 if nothing is: then
 all members are 0.
 */
int ringway_offload_decode(const void *header,
                           struct ringway_offload *offload);

/*
 Attaches as `name` (SWITCH:PORT) through the socket of the switch, and stores the port in `*port`. `socket` may be NULL: then it
 is $RINGWAY_ATTACH_SOCKET, or /run/ringway/attach.sock. `shape` may be NULL for the default shape. After an error `*port` is NULL,
 and `text` has what was wrong, cut to `text_size` bytes with the NUL. `text` may be NULL.
 */
int ringway_attach(const char *socket,
                   const char *name,
                   const struct ringway_shape *shape,
                   struct ringway_port **port,
                   char *text,
                   size_t text_size);

/*
 Detaches, and frees what belongs to the port: also the buffers that ringway_reserve() and ringway_peek() returned. `port` may be
 NULL.
 */
void ringway_detach(struct ringway_port *port);

/*
 Returns the number of transmit rings; 0 if `port` is NULL.
 */
uint32_t ringway_tx_rings(const struct ringway_port *port);

/*
 Returns the number of receive rings; 0 if `port` is NULL.
 */
uint32_t ringway_rx_rings(const struct ringway_port *port);

/*
 Stores the MAC address that is bound to the port. Returns 1, or 0 if there is none: then it stores zeroes.
 */
int ringway_mac(struct ringway_port *port, uint8_t (*mac)[6]);

/*
 Publishes the frames that are queued on all transmit rings, and wakes the switch if it sleeps. Uses all transmit rings: a thread
 with a ring of its own calls ringway_flush_ring().
 */
int ringway_flush(struct ringway_port *port);

/*
 Sleeps until a frame can be received, for at most `timeout_ns` nanoseconds; without end if it is negative. Returns 1 if there is
 a frame, 0 after the time, RINGWAY_E_INTERRUPTED after a signal that a handler has taken (whatever its SA_RESTART says) or after
 the process was stopped and continued, RINGWAY_E_ENDED when the switch has ended the port. Uses all rings.
 */
int ringway_wait_rx(struct ringway_port *port,
                    int64_t timeout_ns);

/*
 Sleeps until a frame can be sent, like ringway_wait_rx().
 */
int ringway_wait_tx(struct ringway_port *port, int64_t timeout_ns);

/*
 Returns the descriptor that is readable after a call, for the caller's own event loop. Ask for calls with ringway_want_rx() and
 ringway_want_tx(), and clear the descriptor with ringway_clear_call(). The port owns it.
 */
int ringway_call_fd(struct ringway_port *port);

/*
 Returns the descriptor that is readable when the switch has ended the port. The port owns it; ringway_ended() reads it.
 */
int ringway_connection_fd(struct ringway_port *port);

/*
 Asks for a call when frames arrive. Returns 1 if there are frames already: then the caller must not sleep. Uses all rings.
 */
int ringway_want_rx(struct ringway_port *port);

/*
 Asks for a call when there is room to send. Returns 1 if there is room already. Uses all rings.
 */
int ringway_want_tx(struct ringway_port *port);

/*
 Withdraws all requests for calls. Uses all rings.
 */
int ringway_want_nothing(struct ringway_port *port);

/*
 Clears the descriptor of ringway_call_fd(). Returns 1 if it was readable, else 0.
 */
int ringway_clear_call(struct ringway_port *port);

/*
 Returns 1 if the switch has ended the port, else 0. `text` gets the reason, cut to `text_size` bytes with the NUL. It may be NULL.
 */
int ringway_ended(struct ringway_port *port,
                  char *text,
                  size_t text_size);

/*
 Returns the number of slots that can be filled now.
 */
int ringway_room(struct ringway_port *port, uint32_t ring);

/*
 Returns the bytes of the longest frame that can be queued: 65535, or fewer if they do not fit into 64 slots or the ring. On a port
 with an offload header it is 65601: the header, and a frame with an offload.
 */
int ringway_longest(struct ringway_port *port,
                    uint32_t ring);

/*
 Queues a copy of a frame. Returns 1, or 0 if there is no room. A frame that is longer than a buffer takes several slots. If it is
 longer than ringway_longest(), returns RINGWAY_E_LENGTH.
 */
int ringway_push(struct ringway_port *port,
                 uint32_t ring,
                 const void *frame,
                 size_t length);

/*
 Queues copies of up to `count` frames, in order. Returns how many were queued: fewer if there is no room for the next one. If the
 first frame is too long for any room, returns RINGWAY_E_LENGTH.
 */
int ringway_push_batch(struct ringway_port *port,
                       uint32_t ring,
                       const struct ringway_frame *frames,
                       size_t count);

/*
 Queues a copy of a frame after its offload header, on a port with an offload header. `offload` may be NULL: then nothing is left
 to be done, and the frame has at most 65535 bytes. Returns as ringway_push().
 */
int ringway_push_offloaded(struct ringway_port *port,
                           uint32_t ring,
                           const void *frame,
                           size_t length,
                           const struct ringway_offload *offload);

/*
 Stores the buffers of up to `count` free slots in `slots`, with the size of a buffer as `length`. Returns their number. The
 caller writes frames into the buffers, sets `length` (and RINGWAY_MORE in `flags`), and calls ringway_commit(). Until then, the
 next ringway_reserve() or ringway_push() takes the same buffers.
 */
int ringway_reserve(struct ringway_port *port,
                    uint32_t ring,
                    struct ringway_slot *slots,
                    size_t count);

/*
 Queues what the caller has written into the first `count` buffers of the last ringway_reserve(). Only `length` and `flags` of
 `slots` are read. Returns 0. Returns RINGWAY_E_ARGUMENT, and queues nothing, if there are more slots than free ones, if a length
 exceeds a buffer, or if the last slot has RINGWAY_MORE.
 */
int ringway_commit(struct ringway_port *port,
                   uint32_t ring,
                   const struct ringway_slot *slots,
                   size_t count);

/*
 Stores up to `count` free slots in `*run`, not beyond the end of the ring: call it again for those from its start. Returns their
 number. The caller writes frames into the buffers, sets each slot's length with ringway_run_set(), and calls
 ringway_commit_run().
 */
int ringway_reserve_run(struct ringway_port *port,
                        uint32_t ring,
                        struct ringway_run *run,
                        size_t count);

/*
 Queues the first `count` slots of the last ringway_reserve_run(). Returns 0; RINGWAY_E_ARGUMENT, and queues nothing, if there are
 fewer free slots.
 */
int ringway_commit_run(struct ringway_port *port,
                       uint32_t ring,
                       size_t count);

/*
 Publishes the frames that are queued on one transmit ring, and wakes the switch if it sleeps.
 */
int ringway_flush_ring(struct ringway_port *port, uint32_t ring);

/*
 Returns the number of slots that hold received frames.
 */
int ringway_available(struct ringway_port *port, uint32_t ring);

/*
 Stores up to `count` received slots in `slots`, in order. Returns their number. The frames stay where they are until
 ringway_release(): without it, the next ringway_peek() returns them again. If a frame is longer than a buffer, all its slots but
 the last one have RINGWAY_MORE; a `count` of 64 is enough for any frame.
 */
int ringway_peek(struct ringway_port *port,
                 uint32_t ring,
                 struct ringway_slot *slots,
                 size_t count);

/*
 Stores up to `count` received slots in `*run`, not beyond the end of the ring. Returns their number. The caller reads frames by
 ringway_run_data() and ringway_run_length(), and gives the slots back with ringway_release().
 */
int ringway_peek_run(struct ringway_port *port,
                     uint32_t ring,
                     struct ringway_run *run,
                     size_t count);

/*
 Gives the first `count` slots of the last ringway_peek() or ringway_peek_run() back to the switch. Returns 0; RINGWAY_E_ARGUMENT, and gives back
 nothing, if so many were never returned.
 */
int ringway_release(struct ringway_port *port,
                    uint32_t ring,
                    size_t count);

/*
 Copies the next received frame into `buffer`. Returns 1 and stores the frame's length in `*length`, or returns 0 if there is no
 frame. If the frame is longer than `capacity`, it stays, and the result is RINGWAY_E_LENGTH.
 */
int ringway_pop(struct ringway_port *port,
                uint32_t ring,
                void *buffer,
                size_t capacity,
                size_t *length);

/*
 Calls `take` for up to `most` received frames, in order, and gives their slots back. Returns their number. Frames of several
 slots are put together. `take` must not use the ring.
 */
int ringway_drain(struct ringway_port *port,
                  uint32_t ring,
                  size_t most,
                  ringway_take take,
                  void *context);

/*
 Makes a memory of `bytes` zeroed bytes, and stores it in `*memory`. Frames are sent from multiples of `unit`: a power of two from 1
 to 64. The memory has less than 2^32 units. Returns 0; after an error `*memory` is NULL.
 */
int ringway_memory_new(size_t bytes,
                       uint32_t unit,
                       struct ringway_memory **memory);

/*
 Makes a memory of the whole of a memfd, like ringway_memory_new(). The library seals it against shrinking (F_SEAL_SHRINK), if it is
 not sealed. The caller keeps its descriptor, and may close it.
 */
int ringway_memory_from_fd(int fd,
                           uint32_t unit,
                           struct ringway_memory **memory);

/*
 Ends a memory. Ports and areas that use it keep what they use. `memory` may be NULL.
 */
void ringway_memory_free(struct ringway_memory *memory);

/*
 Takes `bytes` bytes of a memory that nothing else has, and stores the area in `*area`. They stay taken. Returns 1, or 0 if so many
 are not left in one piece: then `*area` is NULL.
 */
int ringway_area_take(struct ringway_memory *memory,
                      size_t bytes,
                      struct ringway_area **area);

/*
 Takes the `bytes` bytes from `offset` on, like ringway_area_take(). Returns 0 if a part of them is taken already, is outside, or is in
 the first two units. While an area exists, the program uses these bytes only through the area.
 */
int ringway_area_take_at(struct ringway_memory *memory,
                         size_t offset,
                         size_t bytes,
                         struct ringway_area **area);

/*
 Returns the first byte of an area; NULL if `area` is NULL.
 */
void *ringway_area_data(struct ringway_area *area);

/*
 Ends an area. Its bytes stay taken. Frames that were queued from it have to be sent before. `area` may be NULL.
 */
void ringway_area_free(struct ringway_area *area);

/*
 Attaches like ringway_attach(), with the port's buffers in `memory` instead of in memory of the switch. The port takes a part of the
 memory for the buffers of its slots; RINGWAY_E_MEMORY if there is no room for them. After an error the memory is as before, unless the
 switch has asked for it: then the part stays taken, as the switch may have used it. Ports of one process may share a memory.
 */
int ringway_attach_with_memory(const char *socket,
                               const char *name,
                               const struct ringway_shape *shape,
                               struct ringway_memory *memory,
                               struct ringway_port **port,
                               char *text,
                               size_t text_size);

/*
 Queues `length` bytes of an area from `offset` on as a frame, without a copy: the switch reads them when it takes the frame. That is
 done when ringway_room() is the number of slots less 1. The area is in the port's memory, and the frame begins at a multiple of the
 memory's unit. Returns as ringway_push().
 */
int ringway_push_from(struct ringway_port *port,
                      uint32_t ring,
                      const struct ringway_area *area,
                      size_t offset,
                      size_t length);

/*
 Opens the link `name`, makes an endpoint of it, and stores it in `*lwep`. `name` is SWITCH:PORT for a process port, through the socket
 of the switch; dev:INTERFACE for a network interface that the host goes on using; xdp:INTERFACE or xdp:INTERFACE/QUEUE for one of its
 queues by AF_XDP; pci:ADDRESS for a NIC that this program drives. `socket` and `options` may be NULL; `socket`, `text` and the result
 are as with ringway_attach(), and RINGWAY_E_INTERFACE.
 */
int ringway_lwep_attach(const char *socket,
                        const char *name,
                        const struct ringway_lwep_options *options,
                        struct ringway_lwep **lwep,
                        char *text,
                        size_t text_size);

/*
 Detaches, and frees what belongs to the endpoint: also the buffers that the program has. Connections end without a word to their
 peers: ringway_lwep_close() or ringway_lwep_abort() end them before. `lwep` may be NULL.
 */
void ringway_lwep_free(struct ringway_lwep *lwep);

/*
 Stores the 6 bytes of the endpoint's address at `mac`. Returns 0.
 */
int ringway_lwep_mac(struct ringway_lwep *lwep, uint8_t *mac);

/*
 Returns most bytes of a message in one frame, if the peer takes as many: the least that ringway_lwep_reserve() gives.
 */
int ringway_lwep_message(struct ringway_lwep *lwep);

/*
 Accepts connections to a service, a number that peers know. Returns 0.
 */
int ringway_lwep_listen(struct ringway_lwep *lwep, uint32_t service);

/*
 Accepts no further connections to a service. Those that exist stay. Returns 0.
 */
int ringway_lwep_ignore(struct ringway_lwep *lwep, uint32_t service);

/*
 Asks the endpoint with the 6 bytes `mac` as address for a connection to `service`, and stores its number in `*connection`. Messages
 may be sent at once: they go out when the peer has accepted, which RINGWAY_LWEP_CONNECTED tells. Returns 0; RINGWAY_E_CONNECTIONS if
 there are too many, RINGWAY_E_ARGUMENT if the address is a group's or the endpoint's own.
 */
int ringway_lwep_connect(struct ringway_lwep *lwep,
                         const uint8_t *mac,
                         uint32_t service,
                         uint64_t now,
                         uint32_t *connection);

/*
 Begins a connection that both ends have agreed on by other means: both call this with the other one's address and the same
 `identifier`, which was never used between them before. Nothing is sent for it. Returns as ringway_lwep_connect().
 */
int ringway_lwep_agree(struct ringway_lwep *lwep,
                       const uint8_t *mac,
                       uint64_t identifier,
                       uint64_t now,
                       uint32_t *connection);

/*
 Announces that no further messages follow. The connection is over (RINGWAY_LWEP_ENDED) when both ends have done so and all messages
 are acknowledged. Returns 0; RINGWAY_E_OVER if there is no such connection or this was done before.
 */
int ringway_lwep_close(struct ringway_lwep *lwep,
                       uint32_t connection,
                       uint64_t now);

/*
 Ends a connection at once. What is not acknowledged may have arrived or not: RINGWAY_LWEP_ENDED tells what is acknowledged. Returns
 0; RINGWAY_E_OVER if there is no such connection.
 */
int ringway_lwep_abort(struct ringway_lwep *lwep,
                       uint32_t connection,
                       uint64_t now);

/*
 Takes no messages of a connection for the program. They wait until the connection's window is full; then the peer waits. Returns 0;
 RINGWAY_E_OVER if there is no such connection.
 */
int ringway_lwep_pause(struct ringway_lwep *lwep,
                       uint32_t connection);

/*
 Takes messages of a connection again. Returns as ringway_lwep_pause().
 */
int ringway_lwep_resume(struct ringway_lwep *lwep, uint32_t connection);

/*
 Stores the state of a connection in `*status`; `size` is sizeof(struct ringway_lwep_status). Returns 0; RINGWAY_E_OVER if there is no
 such connection.
 */
int ringway_lwep_get_status(struct ringway_lwep *lwep,
                            uint32_t connection,
                            struct ringway_lwep_status *status,
                            size_t size);

/*
 Stores what the endpoint has counted in `*counters`; `size` is sizeof(struct ringway_lwep_counters). Returns the number of
 connections.
 */
int ringway_lwep_get_counters(struct ringway_lwep *lwep,
                              struct ringway_lwep_counters *counters,
                              size_t size);

/*
 Stores what has happened next in `*event`: a message, in the order of arrival, or another event. Returns 1, or 0 if there is nothing
 more for now: then everything that was due by `now` is done. `now` is the time in nanoseconds of any clock that does not run
 backwards, for instance ringway_lwep_now(). A message stays where it is until the next ringway_lwep_poll(), ringway_lwep_drain(),
 ringway_lwep_keep(), ringway_lwep_abort() or ringway_lwep_free(); it may be sent from there.
 */
int ringway_lwep_poll(struct ringway_lwep *lwep,
                      uint64_t now,
                      struct ringway_lwep_event *event);

/*
 Calls `take` for up to `most` events: the fastest way for many messages. Returns their number: fewer than `most` if there is nothing
 more for now. `take` must not use the endpoint.
 */
int ringway_lwep_drain(struct ringway_lwep *lwep,
                       uint64_t now,
                       size_t most,
                       ringway_lwep_take take,
                       void *context);

/*
 Keeps the message of the last ringway_lwep_poll() beyond the next one: stores it in `*buffer`. It is not copied, unless it is a long
 message, shares its buffer with others, no other buffer is free, or a dev: link has received it. Returns 1, or 0 if the last event was no message or it is kept
 already. ringway_lwep_give_back() frees it.
 */
int ringway_lwep_keep(struct ringway_lwep *lwep,
                      struct ringway_lwep_buffer *buffer);

/*
 Frees a message that was kept. Returns 0; RINGWAY_E_ARGUMENT if `handle` is not one of a kept message.
 */
int ringway_lwep_give_back(struct ringway_lwep *lwep, uint64_t handle);

/*
 Sends a copy of a message. Returns 1, or 0 if there is no room: RINGWAY_LWEP_ROOM tells when there is. Returns RINGWAY_E_LENGTH if it
 is longer than a frame or than the peer takes, RINGWAY_E_OVER if there is no such connection or its end was announced. It goes out
 at once if the windows allow; ringway_lwep_flush(), and ringway_lwep_poll() when nothing more has arrived, hand it to the switch.
 */
int ringway_lwep_send(struct ringway_lwep *lwep,
                      uint32_t connection,
                      const void *message,
                      size_t length,
                      uint64_t now);

/*
 Sends copies of up to `count` messages of a connection, in order. Returns how many were taken: fewer if there is no room for the next
 one. If the first one is refused, returns as ringway_lwep_send().
 */
int ringway_lwep_send_batch(struct ringway_lwep *lwep,
                            uint32_t connection,
                            const struct ringway_frame *messages,
                            size_t count,
                            uint64_t now);

/*
 Sends a copy of a message of any length that the peer takes, in as many frames as it needs. Returns as ringway_lwep_send(). After 0
 a part of it may have been sent: after RINGWAY_LWEP_ROOM the program calls this again with the same message, until it returns 1. Until
 then the connection takes nothing else, which RINGWAY_E_IN_MESSAGE tells.
 */
int ringway_lwep_send_long(struct ringway_lwep *lwep,
                           uint32_t connection,
                           const void *message,
                           size_t length,
                           uint64_t now);

/*
 Stores a buffer for a message to any connection in `*buffer`, with its size as `length`. Returns 1, or 0 if no buffer is free. The
 caller writes a message into it and calls ringway_lwep_commit() or ringway_lwep_discard().
 */
int ringway_lwep_reserve(struct ringway_lwep *lwep,
                         struct ringway_lwep_buffer *buffer);

/*
 Stores a buffer for many messages of equal length in `*buffer`, like ringway_lwep_reserve(), for ringway_lwep_commit_many().
 */
int ringway_lwep_reserve_many(struct ringway_lwep *lwep,
                              struct ringway_lwep_buffer *buffer);

/*
 Sends the first `length` bytes of a buffer of ringway_lwep_reserve() as one message. Returns as ringway_lwep_send(). If it is 1 the
 buffer is the endpoint's again; otherwise it is still the program's, as it was. RINGWAY_E_ARGUMENT if `handle` is not one of a
 buffer to write.
 */
int ringway_lwep_commit(struct ringway_lwep *lwep,
                        uint32_t connection,
                        uint64_t handle,
                        size_t length,
                        uint64_t now);

/*
 Sends the first `length` bytes of a buffer of ringway_lwep_reserve_many() as messages of `part` bytes each, the last one shorter if
 it has to be. Where both ends have an IPv4 address in their options and the port has offloads, the buffer goes out as a whole, and
 segmentation makes the frames. Returns as ringway_lwep_commit().
 */
int ringway_lwep_commit_many(struct ringway_lwep *lwep,
                             uint32_t connection,
                             uint64_t handle,
                             size_t length,
                             size_t part,
                             uint64_t now);

/*
 Gives a buffer of ringway_lwep_reserve() or ringway_lwep_reserve_many() back unsent. Returns 0; RINGWAY_E_ARGUMENT if `handle` is not
 one of a buffer to write.
 */
int ringway_lwep_discard(struct ringway_lwep *lwep,
                         uint64_t handle);

/*
 Hands over to the switch what was sent, and wakes it if it sleeps. ringway_lwep_poll() does it, too, when nothing more has arrived.
 Returns 0.
 */
int ringway_lwep_flush(struct ringway_lwep *lwep);

/*
 Returns the time of CLOCK_MONOTONIC in nanoseconds.
 */
uint64_t ringway_lwep_now(void);

/*
 Sleeps until there is something to do, for at most `longest_ns` nanoseconds; without such a limit if it is negative. Returns 0: call
 ringway_lwep_poll(), with the time after the sleep. Returns RINGWAY_E_INTERRUPTED after a signal that a handler has taken,
 RINGWAY_E_ENDED when the link has ended.
 */
int ringway_lwep_sleep(struct ringway_lwep *lwep,
                       uint64_t now,
                       int64_t longest_ns);

/*
 Prepares for a sleep in the caller's own event loop: sends the acknowledgements that are owed, and asks the switch or the interface to
 wake this side. Returns 1: wait until ringway_lwep_fd() is readable or ringway_lwep_next_deadline() has come, then call
 ringway_lwep_awake(). Returns 0 if there is something to do at once: then call ringway_lwep_poll(). Returns RINGWAY_E_ENDED when the
 link is known to have ended.
 */
int ringway_lwep_prepare_sleep(struct ringway_lwep *lwep,
                               uint64_t now);

/*
 Ends a sleep: withdraws the request to be woken, and clears the descriptor of ringway_lwep_fd(). Returns 0, or RINGWAY_E_ENDED when the
 link has ended.
 */
int ringway_lwep_awake(struct ringway_lwep *lwep);

/*
 Returns the descriptor that is readable when the switch or the interface has woken this side, and when the link has ended. The endpoint
 owns it.
 */
int ringway_lwep_fd(struct ringway_lwep *lwep);

/*
 Returns the time at which the caller has to call ringway_lwep_poll() although nothing has arrived, on the clock of the times that the
 caller passes; UINT64_MAX if there is no such time.
 */
uint64_t ringway_lwep_next_deadline(struct ringway_lwep *lwep);

/*
 Returns 1 if the link has ended, else 0. `text` gets the reason, cut to `text_size` bytes with the NUL. It may be NULL.
 */
int ringway_lwep_ended(struct ringway_lwep *lwep, char *text, size_t text_size);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/* The bytes of a slot: slot 0 is the first of the run. */
static inline uint8_t *ringway_run_data(const ringway_run *run, uint32_t slot) {
    return run->buffers + (size_t)(uint32_t)run->slots[slot][0] * run->stride;
}

/* The number of bytes of a received slot. */
static inline uint32_t ringway_run_length(const ringway_run *run, uint32_t slot) {
    return (uint32_t)(run->slots[slot][0] >> 32) & 0xffff;
}

/* 1 if the frame of a received slot continues in the next slot, else 0. */
static inline int ringway_run_more(const ringway_run *run, uint32_t slot) {
    return (int)(run->slots[slot][0] >> 53) & 1;
}

/* Sets the number of bytes of a slot that is to be sent, at most run->buffer_size; `more` is 1 if the frame continues in the next slot,
   else 0. A word that would not change is not written: it may be in the cache of the switch. */
static inline void ringway_run_set(const ringway_run *run, uint32_t slot, uint32_t length, int more) {
    uint64_t old = run->slots[slot][0];
    uint64_t word = (old & 0xffffffffu) | (uint64_t)(length & 0xffff) << 32 | (uint64_t)(more != 0) << 53;
    if (word != old)
        run->slots[slot][0] = word;
}

/* Fetches the beginning of a slot's buffer into the cache, for writing (`write` is 1) or for reading (0). */
#if defined(__GNUC__)
#define ringway_run_prefetch(run, slot, write) __builtin_prefetch(ringway_run_data(run, slot), write)
#else
#define ringway_run_prefetch(run, slot, write) ((void)0)
#endif

#endif  /* RINGWAY_H */
