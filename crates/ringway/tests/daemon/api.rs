//! The administration API as any HTTP client sees it, and the notifications to systemd.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Stdio;

use ringway_abi::doorbell;
use ringway_scenes::{Daemon, PATIENCE, ringway, until, until_some, why_ended};
use ringway_testing::child::Ended;
use serde_json::Value;

/// Sends a request unchanged. Returns the status and the body.
pub fn ask(daemon: &Daemon, request: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(daemon.runtime_dir().join("control.sock")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "{request} HTTP/1.1\r\nhost: x\r\naccept: application/openmetrics-text\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut answer = Vec::new();
    // If the daemon refuses a body unread, the connection is reset after the answer.
    if let Err(e) = stream.read_to_end(&mut answer) {
        assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset);
    }
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn ports_come_change_and_go_by_http() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let (status, body) = ask(&daemon, "POST /v1/ports", r#"{"name":"p","switch":"lan0","kind":"process","weight":2}"#);
    assert_eq!((status, body.as_str()), (200, r#"{"changes":["added port p to switch lan0"]}"#));
    assert_eq!(ask(&daemon, "PATCH /v1/ports/lan0:p", r#"{"mac":["02:00:00:00:00:01"]}"#).0, 200);
    let ports: Value = serde_json::from_str(&ask(&daemon, "GET /v1/ports", "").1).unwrap();
    assert_eq!((&ports[0]["weight"], &ports[0]["mac"][0]), (&2.into(), &"02:00:00:00:00:01".into()));
    assert_eq!(ask(&daemon, "DELETE /v1/ports/p", "").0, 200);
    assert_eq!(ask(&daemon, "GET /v1/ports", "").1, "[]");
    assert_eq!(ask(&daemon, "POST /v1/reload", "").1, r#"{"changes":[]}"#);
}

#[test]
fn buckets_and_switches_are_set_by_http() {
    let daemon = Daemon::start("[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"process\"\n");
    let put = |body: &str| ask(&daemon, "PUT /v1/buckets/t", body);
    assert_eq!(put(r#"{"rate":"1Gbit","frames":"1kpps"}"#), (200, r#"{"changes":["set bucket t"]}"#.to_owned()));
    assert_eq!(put(r#"{"rate":"1Gbit"}"#), (200, r#"{"changes":["set bucket t"]}"#.to_owned()));
    assert_eq!(put(r#"{"rate":"1Gbit"}"#), (200, r#"{"changes":[]}"#.to_owned()));
    assert_eq!(daemon.status()["buckets"][0]["frames"], Value::Null, "omitted keys have their default");
    assert_eq!(ask(&daemon, "PATCH /v1/ports/p", r#"{"egress":{"bucket":"t"}}"#).0, 200);
    let (status, body) = ask(&daemon, "DELETE /v1/buckets/t", "");
    assert!(status == 409 && body.contains("part of a limit of port"), "{body}");
    assert_eq!(ask(&daemon, "PATCH /v1/ports/p", r#"{"egress":{}}"#).0, 200);
    assert_eq!(ask(&daemon, "DELETE /v1/buckets/t", "").1, r#"{"changes":["removed bucket t"]}"#);
    let patch = ask(&daemon, "PATCH /v1/switches/lan0", r#"{"transit":"drop","mac_limit":7}"#);
    assert_eq!(patch, (200, r#"{"changes":["changed switch lan0"]}"#.to_owned()));
    let switch = daemon.status()["switches"][0].clone();
    assert_eq!(
        (&switch["transit"], &switch["mac_limit"], &switch["inbound"]),
        (&"drop".into(), &7.into(), &"allow".into())
    );
}

#[test]
fn requests_that_are_wrong_are_refused_with_the_reason() {
    let daemon = Daemon::start("[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"process\"\n");
    let large = format!("{{\"name\":\"{}\"}}", "x".repeat(300_000));
    for (request, body, status, wanted) in [
        ("POST /v1/ports", "{", 400, "the body is not a JSON object"),
        ("POST /v1/ports", "[]", 400, "the body is not a JSON object"),
        ("POST /v1/ports", "{}", 400, "key \\\"name\\\": missing"),
        ("POST /v1/ports", r#"{"name":"a/b"}"#, 400, "is not a name"),
        ("POST /v1/ports", r#"{"name":"q"}"#, 400, r#""key":"switch","what":"missing""#),
        ("POST /v1/ports", r#"{"name":"q","weight":1.5}"#, 400, "expected a whole number from 1 to 64"),
        ("POST /v1/ports", r#"{"name":"p","switch":"lan0","kind":"process"}"#, 409, "exists already"),
        ("POST /v1/ports", &large, 413, "more than 262144 bytes"),
        ("PATCH /v1/ports/p", r#"{"colour":1}"#, 400, "unknown key"),
        ("PATCH /v1/ports/q", r#"{"weight":1}"#, 404, "there is no port"),
        ("DELETE /v1/ports/q", "", 404, "there is no port"),
        ("PUT /v1/buckets/t", "{}", 400, r#""key":"rate","what":"missing""#),
        ("PUT /v1/buckets/t", r#"{"rate":1}"#, 400, "expected a rate like"),
        ("PUT /v1/buckets/a:b", r#"{"rate":"1Gbit"}"#, 400, "is not a name"),
        ("DELETE /v1/buckets/t", "", 404, "there is no bucket"),
        ("PATCH /v1/switches/lan9", "{}", 404, "there is no switch"),
        ("PATCH /v1/switches/lan0", r#"{"local":true}"#, 400, "found true"),
        ("PATCH /v1/switches/lan0", r#"{"unknown_unicast":"p"}"#, 400, "port:NAME"),
        ("GET /v1/fdb?switch=lan9", "", 404, "there is no switch"),
        ("GET /v1/fdb?swich=lan0", "", 400, "swich"),
        ("GET /v1/ports/q/capture", "", 404, "there is no port"),
        ("GET /v1/ports/p/capture?snaplen=1", "", 400, "1 is out of range"),
        ("GET /v1/ports/p/capture?direction=up", "", 400, "unknown value"),
        ("GET /v1/ports/p/capture?filter=arp", "", 400, "filter"),
        ("DELETE /v1/captures/7", "", 404, "there is no capture 7"),
        ("DELETE /v1/captures/x", "", 404, "there is no capture x"),
        ("GET /v2", "", 404, "/openapi.json"),
        ("PUT /v1/status", "", 405, "/openapi.json"),
    ] {
        let (got, answer) = ask(&daemon, request, body);
        assert_eq!(got, status, "{request}: {answer}");
        assert!(answer.contains(wanted), "{request}: {answer}");
        assert!(serde_json::from_str::<Value>(&answer).unwrap()["error"].is_string(), "{request}");
    }
    assert_eq!(daemon.status()["ports"].as_array().unwrap().len(), 1, "a refused request changes nothing");
}

#[test]
fn what_a_port_names_and_cannot_have_is_told_as_the_requests_fault_with_the_reason() {
    let daemon = Daemon::start("[privileged]\nrequests = \"any\"\n[switch.lan0]\n");
    let run = daemon.runtime_dir();
    std::fs::create_dir(run.join("directory")).unwrap();
    std::os::unix::fs::symlink("loop", run.join("loop")).unwrap();
    std::os::unix::fs::symlink("nowhere", run.join("dangling")).unwrap();
    let _theirs = std::os::unix::net::UnixListener::bind(run.join("theirs.sock")).unwrap();
    let long = format!("/{}/x.sock", "x".repeat(90));
    for kind in ["vhost-user", "e1000", "stream"] {
        for (socket, status, wanted) in [
            ("/etc/passwd", 422, "is not a socket"),
            ("/dev/null", 422, "is not a socket"),
            ("directory", 422, "is not a socket"),
            ("dangling", 422, "is not a socket"),
            ("loop/x.sock", 422, "symbolic links"),
            ("/etc/passwd/x.sock", 422, "Not a directory"),
            ("no-such/x.sock", 422, "No such file or directory"),
            ("/proc/x.sock", 422, "cannot open socket"),
            ("theirs.sock", 422, "somebody listens"),
            ("control.sock", 400, "the daemon's own"),
            (&format!("{}{long}", run.display()), 400, "at most 107"),
        ] {
            let body = format!(r#"{{"name":"p","switch":"lan0","kind":"{kind}","socket":"{socket}"}}"#);
            let (got, answer) = ask(&daemon, "POST /v1/ports", &body);
            assert_eq!(got, status, "{kind} {socket}: {answer}");
            assert!(answer.contains(wanted), "{kind} {socket}: {answer}");
        }
    }
    let made = std::process::Command::new("mkfifo").arg(run.join("pipe")).status().unwrap();
    assert!(made.success());
    let pipe = format!(r#""netns":"{}""#, run.join("pipe").display());
    for (keys, wanted) in [
        (pipe.as_str(), "cannot enter network namespace"),
        (r#""netns":"no-such""#, "cannot open network namespace"),
        (r#""netns":"/etc/passwd""#, "cannot enter network namespace"),
        (r#""device":"lo""#, "is no TAP device"),
    ] {
        let body = format!(r#"{{"name":"p","switch":"lan0","kind":"tap",{keys}}}"#);
        let (got, answer) = ask(&daemon, "POST /v1/ports", &body);
        assert_eq!(got, 422, "{keys}: {answer}");
        // Without privileges the kernel does not report the kind of the device.
        assert!(answer.contains(wanted) || answer.contains("CAP_NET_ADMIN"), "{keys}: {answer}");
    }
    assert_eq!(daemon.status()["ports"], serde_json::json!([]), "a refused request changes nothing");
}

#[test]
fn the_description_names_every_request_and_the_metrics_every_counter() {
    let daemon = Daemon::start("[switch.lan0]\n[port.vm1]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n");
    let _port = daemon.attach("lan0:p").unwrap();
    let description: Value = serde_json::from_str(&ask(&daemon, "GET /openapi.json", "").1).unwrap();
    let paths: Vec<&String> = description["paths"].as_object().unwrap().keys().collect();
    assert_eq!(
        paths,
        [
            "/metrics",
            "/v1/buckets/{name}",
            "/v1/captures/{id}",
            "/v1/config",
            "/v1/config/reset",
            "/v1/fdb",
            "/v1/ports",
            "/v1/ports/{name}",
            "/v1/ports/{name}/capture",
            "/v1/ports/{name}/enable",
            "/v1/reload",
            "/v1/status",
            "/v1/switches/{name}",
            "/v1/switches/{name}/tell"
        ]
    );
    assert!(description["components"]["schemas"]["PortStatus"]["properties"]["in"].is_object());
    // The error for an unknown key lists the valid keys.
    for (schema, request, name) in [
        ("PortKeys", "POST /v1/ports", r#""name":"q","#),
        ("BucketKeys", "PUT /v1/buckets/t", ""),
        ("SwitchKeys", "PATCH /v1/switches/lan0", ""),
    ] {
        let refused = ask(&daemon, request, &format!("{{{name}\"a key that there is not\":1}}")).1;
        let (_, keys) = refused.split_once("the keys here are ").unwrap();
        let keys: BTreeSet<&str> = keys[..keys.find(['"', '\n', '\\']).unwrap()].split(", ").collect();
        let described = description["components"]["schemas"][schema]["properties"].as_object().unwrap();
        let described: BTreeSet<&str> = described.keys().map(String::as_str).filter(|key| *key != "name").collect();
        assert_eq!(described, keys);
    }
    let metrics = ask(&daemon, "GET /metrics", "").1;
    for line in [
        "ringway_port_frames_total{switch=\"lan0\",port=\"p\",direction=\"in\"} 0",
        "ringway_port_frames_total{switch=\"lan0\",port=\"vm1\",direction=\"out\"} 0",
        "ringway_port_up{switch=\"lan0\",port=\"p\"} 1",
        "ringway_port_up{switch=\"lan0\",port=\"vm1\"} 0",
        "ringway_port_bytes_total{switch=\"lan0\",port=\"p\",direction=\"out\"} 0",
        "ringway_port_calls_total{switch=\"lan0\",port=\"p\"} 0",
        "ringway_poller_busy_seconds_total{poller=\"0\"} ",
        "# EOF",
    ] {
        assert!(metrics.contains(line), "{line}:\n{metrics}");
    }
}

#[test]
fn a_client_that_breaks_the_rules_loses_its_port_and_the_status_says_why() {
    let daemon = Daemon::start("");
    let (mut bad, _good) = (daemon.attach("lan0:bad").unwrap(), daemon.attach("lan0:good").unwrap());
    let head = bad.layout().doorbell(0) + 4 * (doorbell::TX_CLIENT + doorbell::INDEX);
    let written = bad.memory().mapping().whole().sub(head, 4).is_some_and(|word| word.write(&[0xff; 4]));
    assert!(written);
    rustix::io::write(bad.kick_fd(), &1u64.to_ne_bytes()).unwrap();
    until("the port is gone", || daemon.port("bad").is_null());
    assert!(why_ended(&mut bad).contains("head"), "the client learns the reason");
    let status = daemon.status();
    let fault = &status["faults"][0];
    assert_eq!((&fault["port"], &fault["reason"]), (&"bad".into(), &"tx_head_out_of_range".into()));
    assert_eq!(daemon.port("good")["state"], "up");
    assert!(daemon.ok(&["status"]).contains("transmit ring: head 4294967295 is not a slot of the ring"));
    daemon.attach("lan0:bad").expect("the name is free again");
}

#[test]
fn a_service_manager_is_notified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = ringway();
    command.args(["run", "--runtime-dir"]).arg(dir.path().join("run")).env("NOTIFY_SOCKET", &path);
    let _daemon = Ended(command.stdout(std::process::Stdio::null()).spawn().unwrap());
    let mut message = [0; 256];
    let said = socket.recv(&mut message).map(|len| String::from_utf8_lossy(&message[..len]).into_owned());
    assert_eq!(said.unwrap().trim(), "READY=1");
}

/// Runs a program that reads metrics from stdin.
fn check_metrics(program: &str, args: &[&str], metrics: &str) -> ringway_scenes::Said {
    let mut command = std::process::Command::new(program);
    let child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("make deps installs it");
    child.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

/// Removes values that change only with time: clocks, pollers' times, fill levels of buckets.
fn remove_clocks(status: &mut Value) {
    match status {
        Value::Object(fields) => {
            fields.retain(|name, _| !["uptime", "busy", "free", "fill", "frames_fill", "age"].contains(&name.as_str()));
            fields.values_mut().for_each(remove_clocks);
        }
        Value::Array(list) => list.iter_mut().for_each(remove_clocks),
        _ => {}
    }
}

/// The other tests ask the socket.
#[test]
fn the_command_for_the_status_writes_what_the_socket_answers() {
    let daemon = Daemon::start("[switch.lan0]\n");
    until("a moment at which nothing changes", || {
        let said: Value = serde_json::from_str(&daemon.ok(&["status", "--json"])).unwrap();
        let mut both = [said, daemon.status()];
        both.iter_mut().for_each(remove_clocks);
        both[0] == both[1]
    });
}

#[test]
fn prometheus_reads_the_metrics_in_both_formats_and_they_are_those_of_the_status() {
    let daemon = Daemon::start(
        "[bucket.t]\nrate = \"1Gbit\"\n[switch.lan0]\n[port.vm1]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n\
         ingress = { rate = \"1Mbit\", frames = \"1kpps\" }\negress = { rate = \"1Mbit\", bucket = \"t\" }\n\
         [port.a]\nswitch = \"lan0\"\nkind = \"process\"\nstorm = { broadcast = \"1kpps\" }\n\
         ingress = { bucket = \"t\", frames = \"1pps\", frames_burst = 4 }\n",
    );
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    for number in 0..3 {
        ringway_scenes::send(&mut a, &ringway_scenes::frame([0xff; 6], [2, 0, 0, 0, 0, 0xa], number));
        assert!(ringway_scenes::receive(&mut b, PATIENCE).is_some());
    }
    ringway_scenes::send(&mut a, &ringway_scenes::frame([0xff; 6], [0; 6], 3));
    until("the drop is counted", || daemon.port("a")["drops"]["bad_source"] == 1);
    let mut sent = 4;
    until("the frames beyond the limit are counted", || {
        // More at once than the burst: frames that come one by one may all be within the limit.
        for _ in 0..8 {
            assert!(a.tx().push(&ringway_scenes::frame([0xff; 6], [2, 0, 0, 0, 0, 0xa], 4)));
        }
        a.flush();
        sent += 8;
        until("the frames are taken", || daemon.port("a")["in"]["frames"] == sent);
        daemon.port("a")["ingress"]["refused"]["frames"] != 0
    });
    // Both ports send from the same address.
    ringway_scenes::send(&mut b, &ringway_scenes::frame([0xff; 6], [2, 0, 0, 0, 0, 0xa], 5));
    until("the address has moved", || daemon.status()["switches"][0]["moved"] == 1);
    // Metrics and status must be of one moment: the status is equal before and after the metrics are read.
    let settled = || {
        let mut status = daemon.status();
        remove_clocks(&mut status);
        status
    };
    let curl = |accept: &str| {
        let socket = daemon.runtime_dir().join("control.sock");
        let mut command = std::process::Command::new("curl");
        command.args(["-sSi", "-H", accept, "http://localhost/metrics", "--unix-socket"]).arg(socket);
        let said: ringway_scenes::Said = command.output().expect("make deps installs it").into();
        let (head, metrics) = said.out.split_once("\r\n\r\n").expect("an answer");
        (head.to_owned(), metrics.to_owned())
    };

    let (head, text) = curl("accept: text/plain;version=0.0.4;q=0.5,*/*;q=0.1");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    let said = check_metrics("promtool", &["check", "metrics"], &text);
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", ""));

    // The strict parser of Prometheus' own Python library.
    let (head, text, status) = until_some("a moment at which nothing changes", || {
        let before = settled();
        let (head, text) = curl("accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
        (before == settled()).then_some((head, text, before))
    });
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    let script = "import json, sys\n\
                  from prometheus_client.openmetrics.parser import text_string_to_metric_families as families\n\
                  samples = [s for f in families(sys.stdin.read()) for s in f.samples]\n\
                  print(json.dumps([[s.name, s.labels, s.value] for s in samples]))\n";
    let said = check_metrics("/usr/bin/python3", &["-c", script], &text);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let samples: Vec<(String, BTreeMap<String, String>, f64)> = serde_json::from_str(&said.out).unwrap();
    let value = |name: &str, labels: &[(&str, &str)]| {
        let labels: BTreeMap<String, String> = labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let mut found = samples.iter().filter(|sample| sample.0 == name && sample.1 == labels);
        let value = found.next().unwrap_or_else(|| panic!("{name} {labels:?}: {text}")).2;
        assert!(found.next().is_none(), "{name} {labels:?} twice");
        value
    };
    let tally = |labels: &[(&str, &str)], name: &str, limit: &Value| {
        let counts = [
            ("frames", &limit["passed"]["frames"]),
            ("bytes", &limit["passed"]["bytes"]),
            ("waits", &limit["waits"]),
            ("waited_seconds", &limit["waited"]),
        ];
        for (what, count) in counts {
            assert_eq!(value(&format!("ringway_{name}_{what}_total"), labels), count.as_f64().unwrap(), "{what}");
        }
        for (by, count) in limit["refused"].as_object().unwrap() {
            let labels = [labels, &[("by", by)]].concat();
            assert_eq!(value(&format!("ringway_{name}_refused_total"), &labels), count.as_f64().unwrap(), "{by}");
        }
    };
    tally(&[("bucket", "t")], "bucket", &status["buckets"][0]);
    let a = [("switch", "lan0"), ("port", "a")];
    assert!(value("ringway_bucket_bytes_total", &[("bucket", "t")]) >= 180.0);
    let refused = [&a[..], &[("direction", "in"), ("by", "frames")]].concat();
    assert!(value("ringway_port_limit_refused_total", &refused) > 0.0);
    assert!(value("ringway_port_storm_frames_total", &[&a[..], &[("class", "broadcast")]].concat()) >= 3.0);
    for port in status["ports"].as_array().unwrap() {
        let of = [("switch", port["switch"].as_str().unwrap()), ("port", port["name"].as_str().unwrap())];
        for direction in ["in", "out"] {
            let labels = [&of[..], &[("direction", direction)]].concat();
            assert_eq!(value("ringway_port_frames_total", &labels), port[direction]["frames"].as_f64().unwrap());
            assert_eq!(value("ringway_port_bytes_total", &labels), port[direction]["bytes"].as_f64().unwrap());
        }
        for (reason, count) in port["drops"].as_object().unwrap() {
            let labels = [&of[..], &[("reason", reason)]].concat();
            assert_eq!(value("ringway_port_drops_total", &labels), count.as_f64().unwrap());
        }
        for (direction, limit) in [("in", &port["ingress"]), ("out", &port["egress"])] {
            if !limit.is_null() {
                tally(&[&of[..], &[("direction", direction)]].concat(), "port_limit", limit);
            }
        }
        for class in port["storm"].as_object().map(|_| ["broadcast", "multicast", "unknown_unicast"]).iter().flatten() {
            let labels = [&of[..], &[("class", class)]].concat();
            let storm = |what: &str| port["storm"][what][class].as_f64().unwrap();
            assert_eq!(value("ringway_port_storm_frames_total", &labels), storm("passed"));
            assert_eq!(value("ringway_port_storm_refused_total", &labels), storm("refused"));
        }
        assert_eq!(value("ringway_port_kicks_total", &of), port["kicks"].as_f64().unwrap());
        assert_eq!(value("ringway_port_calls_total", &of), port["calls"].as_f64().unwrap());
        assert_eq!(value("ringway_port_address_moves_held_total", &of), port["moves_held"].as_f64().unwrap());
        assert_eq!(value("ringway_port_coalesced_total", &of), port["coalesced"].as_f64().unwrap());
        assert_eq!(value("ringway_port_up", &of), if port["state"] == "up" { 1.0 } else { 0.0 });
    }
    assert_eq!(value("ringway_switch_ports", &[("switch", "lan0")]), 3.0);
    assert_eq!(value("ringway_switch_address_moves_total", &[("switch", "lan0")]), 1.0);
    assert_eq!(value("ringway_switch_address_moves_held_total", &[("switch", "lan0")]), 0.0);
    assert_eq!(
        value("ringway_poller_passes_total", &[("poller", "0")]),
        status["pollers"][0]["passes"].as_f64().unwrap()
    );
    assert!(value("ringway_poller_busy_seconds_total", &[("poller", "0")]) > 0.0);
    for (direction, of, fill) in [("in", "bits", "fill"), ("in", "frames", "frames_fill"), ("out", "bits", "fill")] {
        let labels = [("switch", "lan0"), ("port", "vm1"), ("direction", direction), ("of", of)];
        let limit = if direction == "in" { "ingress" } else { "egress" };
        assert_eq!(value("ringway_port_limit_fill_ratio", &labels), daemon.port("vm1")[limit][fill].as_f64().unwrap());
    }
    assert_eq!(value("ringway_bucket_fill_ratio", &[("bucket", "t"), ("of", "bits")]), 1.0);
    let version = status["version"].as_str().unwrap();
    assert_eq!(value("ringway_build_info", &[("version", version)]), 1.0);
}
