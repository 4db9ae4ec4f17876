"""Scapy's functions on ports."""

import threading

from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw
from scapy.sendrecv import sndrcv, sniff

import ringway
from ringway.scapy import RingwaySocket
from scene import LIMIT, Scene

ONE, TWO = "02:00:00:00:00:01", "02:00:00:00:00:02"


class Answerer(threading.Thread):
    """Answers ARP and ICMP as the station TWO, until it has answered `count` requests."""

    def __init__(self, socket: RingwaySocket, count: int) -> None:
        super().__init__(daemon=True)
        self.socket, self.count = socket, count

    def run(self) -> None:
        def answer(request: Packet) -> None:
            if ARP in request and request[ARP].op == 1:
                reply = ARP(op=2, hwsrc=TWO, psrc=request[ARP].pdst, hwdst=request.src, pdst=request[ARP].psrc)
                self.socket.send(Ether(src=TWO, dst=request.src) / reply)
            elif ICMP in request and request[ICMP].type == 8:
                ip = IP(src=request[IP].dst, dst=request[IP].src)
                icmp = ICMP(type=0, id=request[ICMP].id, seq=request[ICMP].seq) / request[ICMP].payload
                self.socket.send(Ether(src=TWO, dst=request.src) / ip / icmp)

        self.socket.sniff(count=self.count, prn=answer, store=False, timeout=LIMIT)


def echo(number: int) -> Packet:
    return Ether(src=ONE, dst=TWO) / IP(src="10.0.0.1", dst="10.0.0.2") / ICMP(id=7, seq=number) / Raw(b"payload")


class Scapy(Scene):
    def sockets(self) -> tuple[RingwaySocket, RingwaySocket]:
        a, b = self.pair()
        return RingwaySocket(a), RingwaySocket(b)

    def test_requests_find_their_answers(self) -> None:
        a, b = self.sockets()
        answerer = Answerer(b, 6)
        answerer.start()
        who = Ether(src=ONE, dst="ff:ff:ff:ff:ff:ff") / ARP(hwsrc=ONE, psrc="10.0.0.1", pdst="10.0.0.2")
        reply = a.sr1(who, timeout=LIMIT, verbose=False)
        assert reply is not None
        self.assertEqual((reply[ARP].op, reply[ARP].hwsrc), (2, TWO))
        answered, unanswered = a.sr([echo(number) for number in range(5)], timeout=LIMIT, verbose=False)
        self.assertEqual((len(answered), len(unanswered)), (5, 0))
        for request, answer in answered:
            self.assertEqual(request[ICMP].seq, answer[ICMP].seq)
            self.assertGreaterEqual(answer.time, request.sent_time)
        answerer.join(LIMIT)

    def test_sndrcv_takes_the_socket(self) -> None:
        a, b = self.sockets()
        answerer = Answerer(b, 1)
        answerer.start()
        answered, _ = sndrcv(a, echo(1), timeout=LIMIT, verbose=False)
        self.assertEqual(len(answered), 1)
        answerer.join(LIMIT)

    def test_sniff_hears_several_sockets_filters_and_stops(self) -> None:
        a, b = self.sockets()
        c = RingwaySocket(self.port(a.iface.replace(":a", ":c")))
        for port in range(20):
            a.send(Ether(src=ONE, dst="ff:ff:ff:ff:ff:ff") / IP(dst="10.0.0.2") / UDP(sport=port, dport=port))
        heard = sniff(
            opened_socket={b: "b", c: "c"}, count=20, timeout=LIMIT, lfilter=lambda one: one[UDP].dport >= 10
        )
        self.assertEqual(sorted(one[UDP].dport for one in heard), sorted(2 * list(range(10, 20))))
        self.assertEqual({one.sniffed_on for one in heard}, {"b", "c"})
        a.send(Ether(src=ONE, dst="ff:ff:ff:ff:ff:ff") / IP(dst="10.0.0.2") / UDP(dport=99))
        stopped = sniff(opened_socket=b, stop_filter=lambda one: one[UDP].dport == 99, timeout=LIMIT)
        self.assertEqual(stopped[-1][UDP].dport, 99)

    def test_an_ended_port_ends_a_sniff(self) -> None:
        _, b = self.sockets()
        ringway.Client().delete_port(b.iface)
        self.assertEqual(len(sniff(opened_socket=b, timeout=LIMIT)), 0)

    def test_a_name_attaches_and_closing_detaches(self) -> None:
        names = lambda: [port["name"] for port in ringway.Client().ports()]
        with RingwaySocket("named:mine", rx_slots=64) as socket:
            self.assertIn("mine", names())
            self.assertEqual(socket.iface, "named:mine")
        self.until(lambda: "mine" not in names(), "the port is gone")
        port = self.port("named:kept")
        RingwaySocket(port).close()
        self.assertFalse(port.closed)

    def test_a_filter_of_the_kernel_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "lfilter"):
            RingwaySocket("named:filtered", filter="icmp")
