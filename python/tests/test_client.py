"""The administration API."""

import json
import os
import signal

import ringway
from scene import Daemon, Scene, collect, frame


class Administration(Scene):
    def setUp(self) -> None:
        self.client = ringway.Client()
        self.addCleanup(self.client.close)

    def test_a_port_is_added_changed_and_removed(self) -> None:
        self.client.add_port("vm1", switch="adm", kind="process", weight=4)
        self.client.set_port("adm:vm1", {"ingress.rate": "1Gbit"}, weight=2)
        port = self.client.port("vm1")
        self.assertEqual((port["switch"], port["kind"], port["state"]), ("adm", "process", "waiting"))
        ingress = port["ingress"]
        assert ingress is not None
        self.assertEqual(ingress["rate"], "1Gbit")
        self.assertEqual([one["name"] for one in self.client.switches()], ["adm"])
        self.client.delete_port("vm1")
        with self.assertRaisesRegex(ringway.ApiError, "there is no port vm1"):
            self.client.port("vm1")

    def test_switches_buckets_and_addresses(self) -> None:
        a, b = self.pair()
        switch = a.name.split(":")[0]
        a.send(frame())
        collect(b, 1)
        [address] = self.client.addresses(switch)
        self.assertEqual((address["mac"], address["port"]), ("02:00:00:00:00:01", "a"))
        self.client.set_switch(switch, transit="drop")
        with self.assertRaisesRegex(ringway.ApiError, f'switch "{switch}" has no forwarding program'):
            self.client.tell(switch, "text")
        self.client.set_bucket("tenant", rate="2Gbit")
        self.client.set_port(a.name, ingress={"bucket": "tenant"})
        [bucket] = self.client.status()["buckets"]
        self.assertEqual((bucket["name"], bucket["ports"]), ("tenant", 1))
        with self.assertRaises(ringway.ApiError) as refused:
            self.client.delete_bucket("tenant")
        self.assertRegex(str(refused.exception), "tenant")
        a.close()
        self.until(lambda: self.client.status()["buckets"][0]["ports"] == 0, "the port is gone")
        self.client.delete_bucket("tenant")

    def test_counters_are_in_status_and_metrics(self) -> None:
        a, b = self.pair()
        a.send([frame()] * 5)
        collect(b, 5)
        self.until(lambda: self.client.port(b.name)["out"]["frames"] == 5, "the frames are counted")
        self.assertRegex(self.client.metrics(), r'ringway_port_frames_total\{[^}]*direction="out"[^}]*\} 5')

    def test_a_refusal_has_its_status_and_its_mistakes(self) -> None:
        with self.assertRaises(ringway.ApiError) as refused:
            self.client.add_port("vm2", switch="adm", kind="process", wieght=4)
        error = refused.exception
        self.assertEqual(error.status, 400)
        self.assertIn("wieght", str(error))
        self.assertEqual([one["key"] for one in error.mistakes], ["wieght"])
        with self.assertRaises(ringway.ApiError) as refused:
            self.client.set_port("nothing/here ?#", weight=1)
        self.assertIn('"nothing/here ?#" is not a name', str(refused.exception))
        with self.assertRaises(ringway.ApiError) as refused:
            self.client.set_port("nothing", weight=1)
        self.assertEqual(refused.exception.status, 404)
        self.assertIsInstance(error, ringway.Error)

    def test_a_capture_is_read_while_frames_flow_and_can_be_ended(self) -> None:
        a, b = self.pair()
        with self.client.capture(b.name, direction="out") as pcapng:
            a.send(frame(1, 200))
            self.assertEqual(len(pcapng.read(4)), 4)
            self.until(lambda: self.client.status()["captures"][0]["captured"] == 1, "the frame is captured")
            captures = self.client.status()["captures"]
            self.assertEqual([one["port"] for one in captures], ["b"])
            self.client.end_capture(captures[0]["id"])
            self.assertIn(frame(1, 200), pcapng.read())
        with self.assertRaises(ringway.ApiError):
            with self.client.capture("nobody"):
                pass

    def test_a_client_outlives_the_daemon_that_it_asked_first(self) -> None:
        daemon = Daemon()
        self.addCleanup(daemon.end)
        with ringway.Client(daemon.control) as client:
            client.status()
            daemon.stop(signal.SIGKILL)
            with self.assertRaisesRegex(ringway.ApiError, "ringway run"):
                client.status()
            other = Daemon()
            self.addCleanup(other.end)
            client._socket = client._connection._path = other.control
            self.assertEqual(client.ports(), [])
            other.stop()
        with self.assertRaisesRegex(ringway.ApiError, "no answer at /nowhere"):
            ringway.Client("/nowhere").ports()

    def test_reload_reads_the_file_again(self) -> None:
        with open(self.daemon.directory + "/ringway.toml", "w") as file:
            file.write('[switch.new]\n[port.p]\nswitch = "new"\nkind = "process"\n')
        self.assertIn("added port p to switch new", self.client.reload())
        with open(self.daemon.directory + "/ringway.toml", "w") as file:
            file.write("[switch.new]\nunknown = 1\n")
        with self.assertRaisesRegex(ringway.ApiError, "unknown"):
            self.client.reload()

    def test_every_request_of_the_description_has_a_method(self) -> None:
        asked: set[tuple[str, str]] = set()

        class Recorder(ringway.Client):
            def _exchange(self, method: str, path: str, keys: object = None) -> bytes:
                asked.add((method, path.split("?")[0]))
                return json.dumps({"changes": [], "switches": []}).encode()

        recorder = Recorder()
        recorder.status(), recorder.ports(), recorder.switches(), recorder.addresses("s"), recorder.metrics()
        recorder.add_port("N"), recorder.set_port("N"), recorder.delete_port("N"), recorder.enable_port("N")
        recorder.set_switch("N"), recorder.set_bucket("N"), recorder.delete_bucket("N"), recorder.reload()
        recorder.config(), recorder.reset_config()
        recorder.end_capture(1), recorder.tell("N", "text")
        described = {
            (method.upper(), path.replace("{name}", "N").replace("{id}", "1"))
            for path, methods in self.client.openapi()["paths"].items()
            for method in methods
        }
        # `capture` has a connection of its own.
        self.assertEqual(described - asked, {("GET", "/v1/ports/N/capture")})


class Limits(Scene):
    def test_a_daemon_that_does_not_answer_ends_with_the_timeout(self) -> None:
        switch = self.daemon.switch()
        os.kill(switch, signal.SIGSTOP)
        self.addCleanup(os.kill, switch, signal.SIGCONT)
        with self.assertRaisesRegex(ringway.ApiError, "timed out"):
            ringway.Client(timeout=0.05).ports()
