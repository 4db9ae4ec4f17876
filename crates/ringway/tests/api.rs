//! The administration API as any HTTP client sees it, and what systemd hears.

mod support;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};

use ringway_abi::doorbell;
use serde_json::Value;
use support::{Daemon, PATIENCE, ringway, until, why_ended};

/// Sends a request as it is and gives status and body.
fn ask(daemon: &Daemon, request: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(daemon.runtime_dir().join("control.sock")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A body that is refused unread is a reset, after the answer.
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
        ("GET /v1/fdb?switch=lan9", "", 404, "there is no switch"),
        ("GET /v1/fdb?swich=lan0", "", 400, "swich"),
        ("GET /v2", "", 404, "/openapi.json"),
        ("PUT /v1/status", "", 405, "/openapi.json"),
    ] {
        let (got, answer) = ask(&daemon, request, body);
        assert_eq!(got, status, "{request}: {answer}");
        assert!(answer.contains(wanted), "{request}: {answer}");
        assert!(serde_json::from_str::<Value>(&answer).unwrap()["error"].is_string(), "{request}");
    }
    assert_eq!(daemon.status()["ports"].as_array().unwrap().len(), 1, "nothing has changed");
}

#[test]
fn the_description_names_every_request_and_the_metrics_every_counter() {
    let daemon = Daemon::start("[switch.lan0]\n[port.vm1]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n");
    let _port = daemon.attach("lan0:p").unwrap();
    let description: Value = serde_json::from_str(&ask(&daemon, "GET /openapi.json", "").1).unwrap();
    let paths: Vec<&String> = description["paths"].as_object().unwrap().keys().collect();
    assert_eq!(paths, ["/metrics", "/v1/fdb", "/v1/ports", "/v1/ports/{name}", "/v1/reload", "/v1/status"]);
    assert!(description["components"]["schemas"]["PortStatus"]["properties"]["in"].is_object());
    // A mistake in a key names those that are there.
    let refused = ask(&daemon, "POST /v1/ports", r#"{"name":"q","a key that there is not":1}"#).1;
    let (_, keys) = refused.split_once("the keys here are ").unwrap();
    let keys: BTreeSet<&str> = keys[..keys.find(['"', '\n', '\\']).unwrap()].split(", ").collect();
    let described = description["components"]["schemas"]["PortKeys"]["properties"].as_object().unwrap();
    let described: BTreeSet<&str> = described.keys().map(String::as_str).filter(|key| *key != "name").collect();
    assert_eq!(described, keys);
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
    assert!(why_ended(&mut bad).contains("head"), "the client is told");
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
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut message = [0; 256];
    let said = socket.recv(&mut message).map(|len| String::from_utf8_lossy(&message[..len]).into_owned());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(said.unwrap().trim(), "READY=1");
}
